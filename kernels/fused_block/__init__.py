"""C5 and C6: a Mamba block's convolution, SiLU, selective scan and RMS norm, and its gradients."""

from .operator import fused_block

__all__ = ["fused_block"]
