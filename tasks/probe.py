"""The probe: one call to make, with everything needed to make it again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

LAYOUTS = ("contiguous", "transposed", "offset", "expanded")
WEIGHTS = ("seed", "noised", "replaced", "corrupted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One call of the candidate, described by value and never by tensors.

    Equal probes have equal inputs, so gates that ask the same question share the answer.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    """Values for module-level size constants; empty is the native shape."""
    values: str = "own"
    """Name of the input family, see `tasks.families.FAMILIES`."""
    dtype: str = "float32"
    """Dtype of floating inputs and parameters."""
    layout: str = "contiguous"
    """How input tensors lie in memory, one of `LAYOUTS`."""
    weights: str = "seed"
    """`seed`: as the constructor draws them; `noised`: constant initial values get seeded
    noise; `replaced`: fresh values copied in after construction; `corrupted`: the same with NaN
    and infinities among them."""
    gradients: bool = False
    """Whether vector-Jacobian products are asked for."""
    seed: int = 0
    """Seed of the inputs, the cotangents and the weights' noise."""
    repeat: int = 0
    """Distinguishes repeated calls of one question."""
    mute: bool = False
    """Whether kernel launches are turned into no-ops."""
    configuration: int | None = None
    """Which autotune configuration is launched, counted round; `None` leaves it to the probe."""
    timed: bool = False
    """Whether speed is taken: work is counted, and the fastest autotune configuration launched."""

    @property
    def question(self) -> Probe:
        """The probe without what only the candidate's side sees; keys the oracle."""
        return replace(self, repeat=0, mute=False, timed=False, configuration=None)

    @property
    def label(self) -> str:
        """One readable line: family, dtype, sizes and what is special about the call."""
        sizes = ",".join(f"{name}={value}" for name, value in sorted(self.sizes.items()))
        parts = [self.values, self.dtype, sizes or "native"]
        if self.layout != "contiguous":
            parts.append(self.layout)
        if self.weights != "seed":
            parts.append(f"weights {self.weights}")
        if self.gradients:
            parts.append("gradients")
        if self.mute:
            parts.append("muted")
        if self.configuration is not None:
            parts.append(f"configuration {self.configuration}")
        if self.timed:
            parts.append("timed")
        return " ".join([*parts, f"seed {self.seed}"])

    @property
    def digest(self) -> str:
        """Content hash."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping from which `Probe(**data)` rebuilds an equal probe."""
        return asdict(self)

    def __hash__(self) -> int:
        return hash(self.digest)
