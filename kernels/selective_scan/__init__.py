"""C1 and C2: the selective scan of a diagonal state space, forward and backward."""

from .operator import selective_scan

__all__ = ["selective_scan"]
