"""C3: the multi-input multi-output scan and its gradients."""

from .operator import mimo_scan

__all__ = ["mimo_scan"]
