"""Which verifier is at work: two with equal fingerprints give equal verdicts."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
IRRELEVANT = ("agents", "audit", "env", "kernels", "reward", "suite", "trl", "__pycache__")
"""Folders whose code settles no verdict. A task's own source is in its digest."""
LIBRARIES = ("torch", "triton", "numpy", "llvmlite")


@cache
def code_fingerprint() -> str:
    """Hash of the verifier's code and of the libraries it computes with."""
    content = hashlib.sha256(json.dumps([_versions(), platform.python_version()]).encode())
    for folder, inner, files in os.walk(PACKAGE, followlinks=True):
        inner[:] = sorted(name for name in inner if name not in IRRELEVANT)
        for name in sorted(files):
            if name.endswith(".py"):
                path = Path(folder, name)
                content.update(str(path.relative_to(PACKAGE)).encode())
                content.update(path.read_bytes())
    return content.hexdigest()


def _versions() -> dict[str, str]:
    versions = {}
    for library in LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            versions[library] = "not installed"
    return versions
