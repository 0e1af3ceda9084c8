"""What all policies share.

A policy is whatever has `act(observation) -> source`, see `env.policies.Policy`; its observation
is that of `env.kernel_env.KernelEnv`.
"""

from __future__ import annotations


class PolicyError(RuntimeError):
    """A policy has no answer: it does not know the task, or what it relies on is out of reach."""


def no_source(reason: str) -> str:
    """What a policy hands in for a completion without code: it earns what an empty file earns."""
    return f"# no source text: {' '.join(reason.split())}\n"
