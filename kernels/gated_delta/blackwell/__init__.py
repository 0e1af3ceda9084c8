"""The gated-delta backward written for Blackwell: tensor memory, TMA, warp roles."""

from .backward_pass import natively, natively_or_in_triton

__all__ = ["natively", "natively_or_in_triton"]
