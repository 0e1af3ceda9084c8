"""Options: everything that settles what a verdict will say, as one value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..cell import Limits
from ..grader import DEFAULT_TARGETS, Grader, cache_directory
from ..vgpu.timing import DEFAULT_ARCHITECTURE


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderOptions:
    """How graders are to be made; the fields are those of `Grader`."""

    device: str = "auto"
    """`cuda`, `vgpu`, `interpreter`, or `auto`, which is settled where the grader runs."""
    targets: tuple[str, ...] = DEFAULT_TARGETS
    """Hardware on which every kernel has to fit."""
    seed: int = 0
    """Moves every probe's seed; keep it secret from what is being trained."""
    limits: Limits = field(default_factory=Limits)
    """What one candidate may use."""
    call_seconds: float = 30.0
    """Deadline of one call."""
    cache: Path | None = field(default_factory=cache_directory)
    """Where truths and verdicts are kept; `None` keeps them in memory only."""
    fail_fast: bool = False
    """Whether a candidate is dropped at its first failure, see `gates.stages`."""
    architecture: int = DEFAULT_ARCHITECTURE
    """Whose code runs where there is no GPU: 80, 90 or 100."""

    def grader(self) -> Grader:
        """A new grader with these options."""
        return Grader(
            device=self.device,
            targets=self.targets,
            seed=self.seed,
            limits=self.limits,
            call_seconds=self.call_seconds,
            cache=self.cache,
            fail_fast=self.fail_fast,
            architecture=self.architecture,
        )

    @property
    def digest(self) -> str:
        """Content hash."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping from which `from_json` rebuilds equal options."""
        cache = None if self.cache is None else str(self.cache)
        return {**asdict(self), "targets": list(self.targets), "cache": cache}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GraderOptions:
        """Rebuild from `to_json`."""
        return cls(
            **{
                **data,
                "targets": tuple(data["targets"]),
                "limits": Limits(**data["limits"]),
                "cache": None if data["cache"] is None else Path(data["cache"]),
            }
        )
