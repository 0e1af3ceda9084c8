"""Policies by name, and what all of them share.

A policy is whatever has `act(observation) -> source`, see `env.policies.Policy`; its observation
is that of `env.kernel_env.KernelEnv`.
"""

from __future__ import annotations

from ..env.policies import Policy


class PolicyError(RuntimeError):
    """A policy has no answer: it does not know the task, or what it relies on is out of reach."""


def no_source(reason: str) -> str:
    """What a policy hands in for a completion without code: it earns what an empty file earns."""
    return f"# no source text: {' '.join(reason.split())}\n"


def policy_named(name: str) -> Policy:
    """A policy from a short name.

    Args:
        name: `expert`, `cheater`, `local:` and a model's name or folder, or `endpoint:` and the
            name of a model behind the endpoint that `OPENAI_BASE_URL` names.

    Raises:
        PolicyError: there is no such policy.
        OSError: there is no such local model.
    """
    from .endpoint import EndpointPolicy
    from .local import LocalPolicy
    from .scripted import cheater, expert

    kind, colon, model = name.partition(":")
    if name in ("expert", "cheater"):
        return expert() if name == "expert" else cheater()
    if colon and model and kind == "local":
        return LocalPolicy.load(model)
    if colon and model and kind == "endpoint":
        return EndpointPolicy(model=model)
    raise PolicyError(f"no policy {name}; known: expert, cheater, local:NAME, endpoint:MODEL")
