"""Policies by name."""

from __future__ import annotations

from ..env.policies import Policy
from .policy import PolicyError


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
