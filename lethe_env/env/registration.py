"""Entry of the environments into Gymnasium's registry, by name alone: nothing heavy is imported."""

from __future__ import annotations

import gymnasium


def register() -> None:
    """Register `lethe_env/Kernel-v0`, and `lethe_env/KernelTimed-v0` whose `info` holds times.

    `gymnasium.make` wraps an environment in a checker and an order enforcer, and wrappers do not
    pass on methods that they do not know: `make(...).evaluate` would fail. Both are turned off:
    the environment enforces the order itself, and `make(..., disable_env_checker=False)` brings
    the checker back. `additional_wrappers` could carry the method, but rules out `make_vec`. With
    a time limit, `make(..., max_episode_steps=…)`, it is `env.unwrapped.evaluate` after all.
    """
    for name, settings in (("Kernel-v0", {}), ("KernelTimed-v0", {"timed": True})):
        if f"lethe_env/{name}" in gymnasium.registry:
            continue
        gymnasium.register(
            f"lethe_env/{name}",
            entry_point="lethe_env.env.kernel_env:KernelEnv",
            vector_entry_point="lethe_env.env.vector_env:KernelVectorEnv",
            order_enforce=False,
            disable_env_checker=True,
            nondeterministic=bool(settings),
            kwargs=settings,
        )
