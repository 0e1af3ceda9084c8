"""From a completion to its source text, and from a verdict to one number."""

from .completion import Extraction, extract_source
from .rewards import REWARDS, AllcloseReward, ContractReward, FloorReward, Reward
from .shape import RewardShape

__all__ = [
    "REWARDS",
    "AllcloseReward",
    "ContractReward",
    "Extraction",
    "FloorReward",
    "Reward",
    "RewardShape",
    "extract_source",
]
