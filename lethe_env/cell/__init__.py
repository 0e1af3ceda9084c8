"""The cell: the untrusted process in which one candidate lives, and the judge's handles on it."""

from .cell import Cell
from .device_lock import exclusive
from .policy import review
from .protocol import HarnessError, WireTensor
from .requests import CONFIGURATION_LIMIT, CallRequest, Limits, ModelRequest
from .resources import TARGETS
from .sandbox import Containment
from .workshop import Workshop, default_device

__all__ = [
    "CONFIGURATION_LIMIT",
    "TARGETS",
    "CallRequest",
    "Cell",
    "Containment",
    "HarnessError",
    "Limits",
    "ModelRequest",
    "WireTensor",
    "Workshop",
    "default_device",
    "exclusive",
    "review",
]
