"""The service: many verdicts, for many callers, from one pool of warm workers."""
