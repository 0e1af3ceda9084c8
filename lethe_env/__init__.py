"""A reinforcement-learning gym for GPU-kernel generation with a contract-grade verifier."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from .env.registration import register
from .rooms import hide_kernels

if TYPE_CHECKING:
    from .env.evaluation import Evaluation, evaluate

try:
    __version__ = version("lethe_env")
except PackageNotFoundError:  # running from a tree that was never installed
    __version__ = "0.0.0"

__all__ = ["Evaluation", "__version__", "evaluate"]

hide_kernels()
register()  # Gymnasium has no plugins: `import lethe_env` is what makes the environments known


def __getattr__(name: str) -> Any:
    """Import what needs torch only when it is asked for."""
    if name in ("Evaluation", "evaluate"):
        from .env import evaluation

        return getattr(evaluation, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
