"""The task: one problem, its shape families, and what its contract asks for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

OP_CLASSES = (
    "elementwise",
    "matmul",
    "softmax",
    "norm",
    "reduction",
    "scan",
    "conv",
    "pooling",
    "attention",
    "loss",
    "recurrence",
    "other",
)


DTYPES = ("float32", "float16", "bfloat16")
"""Those a task may demand and a gate asks for."""


class TaskError(Exception):
    """The task itself is at fault: its file, its metadata or its reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeFamily:
    """Members of one task's shape family, as values for module-level size constants.

    Every mapping goes from the name of a module-level integer constant of the reference source
    to a value. A constant that a mapping does not name keeps the value written in the source.
    """

    base: Mapping[str, int] = field(default_factory=dict)
    """The member on which the numeric gates work: small, odd, one dimension beyond a block."""
    vary: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """For each constant, the values it takes alone while the others stay at the base."""
    long: Mapping[str, int] = field(default_factory=dict)
    """The member with the longest reduction."""

    def variants(self) -> tuple[dict[str, int], ...]:
        """Every member that differs from the base in exactly one constant."""
        return tuple(
            {**self.base, name: value}
            for name, values in self.vary.items()
            for value in values
            if value != self.base.get(name)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem in the KernelBench convention (`Model`, `get_inputs`, `get_init_inputs`)."""

    id: str
    """`class/problem` for the suite, `levelN/name` for a KernelBench checkout."""
    source: str
    """The reference module's source text: what the policy sees."""
    op_class: str = "other"
    """One of `OP_CLASSES`."""
    level: int | None = None
    """KernelBench level: 1 single operations, 2 fusions, 3 architectures."""
    family: ShapeFamily = field(default_factory=ShapeFamily)
    """Shapes at which probes are made. The native shape is the one written in the source."""
    domains: tuple[str | None, ...] = ()
    """For each tensor input in order, the domain to draw from; `None` or missing is inferred."""
    waived: Mapping[str, str] = field(default_factory=dict)
    """Gate name to the reason why the gate does not apply."""
    dtypes: tuple[str, ...] = ("float32",)
    """Dtypes a candidate may not refuse. Questions are asked in float32 if it is one of them, else
    in the first."""
    gradients: bool = False
    """Whether vector-Jacobian products of inputs and parameters are part of the contract."""
    allow_tf32: bool = False
    """Whether matrix products of float32 inputs may round those inputs to TF32."""
    weights_by_shape: bool = False
    """Whether a candidate is given the reference's weights by shape too where no name fits and the
    shape is that of one tensor alone: a rule of some corpora, not of KernelBench."""
    evaluation_mode: bool = False
    """Whether reference and candidate are put into evaluation mode after their construction: a rule
    of some corpora. KernelBench leaves them in the mode that the constructor chose."""
    origin: str = ""
    """Where the source was read from: a path, or a table and row."""

    def __post_init__(self) -> None:
        if self.op_class not in OP_CLASSES:
            known = ", ".join(OP_CLASSES)
            raise TaskError(f"task {self.id}: unknown op class {self.op_class!r}; known: {known}")
        if not self.dtypes or set(self.dtypes) - set(DTYPES):
            known = ", ".join(DTYPES)
            raise TaskError(f"task {self.id}: dtypes are one or more of {known}, not {self.dtypes}")
        for gate, reason in self.waived.items():
            if not reason:
                raise TaskError(f"task {self.id}: the waiver of {gate} needs a reason")

    @property
    def working_dtype(self) -> str:
        """The dtype in which questions are asked that are not about a dtype."""
        return "float32" if "float32" in self.dtypes else self.dtypes[0]

    @property
    def digest(self) -> str:
        """Content hash: equal for tasks that are graded alike. `origin` does not enter."""
        content = {k: v for k, v in self.to_json().items() if k != "origin"}
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        return hash(self.digest)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping from which `from_json` rebuilds an equal task."""
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Task:
        """Rebuild a task from `to_json`."""
        family = data["family"]
        return cls(
            **{
                **data,
                "family": ShapeFamily(
                    base=dict(family["base"]),
                    vary={name: tuple(values) for name, values in family["vary"].items()},
                    long=dict(family["long"]),
                ),
                "domains": tuple(data["domains"]),
                "dtypes": tuple(data["dtypes"]),
            }
        )
