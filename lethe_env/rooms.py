"""The rooms of the source tree, and whom their bare names could mislead."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path


def hide_kernels() -> None:
    """Keep transformers from taking the folder `kernels` for Hugging Face's library of that name.

    It would find the folder wherever the source tree itself is on the path, as in a script or a
    notebook that lies beside it.
    """
    folder = Path(__file__).resolve().parent.parent / "kernels"
    spec = None if "kernels" in sys.modules else find_spec("kernels")
    if spec is not None and spec.origin and Path(spec.origin).resolve().parent == folder:
        sys.modules["kernels"] = None  # type: ignore[assignment]
