"""TRL: reward functions, an environment for tool use, and the specification of a training run.

The names below are looked up on first use, so that importing this package loads neither torch nor
TRL.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .reward_functions import RewardFunction, allclose_reward, contract_reward, floor_reward
    from .scoring import Scorer, shared_scorer, use_verifier
    from .spec import LetheSpec
    from .tool_env import KernelToolEnv

__all__ = [
    "KernelToolEnv",
    "LetheSpec",
    "RewardFunction",
    "Scorer",
    "allclose_reward",
    "contract_reward",
    "floor_reward",
    "shared_scorer",
    "use_verifier",
]

_HOMES = {
    "KernelToolEnv": "tool_env",
    "LetheSpec": "spec",
    "RewardFunction": "reward_functions",
    "Scorer": "scoring",
    "allclose_reward": "reward_functions",
    "contract_reward": "reward_functions",
    "floor_reward": "reward_functions",
    "shared_scorer": "scoring",
    "use_verifier": "scoring",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
