"""A reinforcement-learning gym for GPU-kernel generation with a contract-grade verifier."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("lethe_env")
except PackageNotFoundError:  # running from a tree that was never installed
    __version__ = "0.0.0"

__all__ = ["__version__"]
