"""C4: the scan of a complex state space as rotary embeddings, forward and backward."""

from .operator import rotary_scan

__all__ = ["rotary_scan"]
