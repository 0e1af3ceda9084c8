"""The audit: corpora of foreign kernels in, tables and a report out."""
