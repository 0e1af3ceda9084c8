"""Linear attention, gated linear attention, SSD, and the delta rules, as one recurrence."""

from .operation import gated_delta

__all__ = ["gated_delta"]
