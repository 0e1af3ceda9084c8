"""The truth of a probe: float64 values, the permitted difference, and what may be charged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..tasks.inputs import dtype_named


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthTensor:
    """What one output or gradient has to be."""

    path: str
    dtype: torch.dtype
    """Dtype of the working-precision reference's result."""
    values: torch.Tensor
    """Truth: float64, or the exact integer or boolean result."""
    allowed: torch.Tensor
    """Permitted absolute difference per element, float64; zeros for exact results."""
    allowed_subnormal: torch.Tensor
    """The same without the allowance of one smallest normal number."""
    charged: torch.Tensor
    """Boolean: elements on which a candidate can be judged."""
    working: torch.Tensor
    """The working-precision reference's own result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The truth of one probe."""

    outputs: tuple[TruthTensor, ...] = ()
    gradients: tuple[TruthTensor, ...] = ()
    output_is_view: bool = False
    """Whether the reference itself returns memory of one of its inputs or parameters."""
    changes_inputs: tuple[int, ...] = ()
    """Tensor inputs that the reference itself writes to."""
    reduction_terms: int = 1
    draws_random: bool = False
    unmodelled: tuple[str, ...] = ()
    error: str = ""
    """Why the reference cannot take this probe; then nothing else is set."""


TENSOR_FIELDS = ("values", "allowed", "allowed_subnormal", "charged", "working")


def pack(truth: Truth) -> dict[str, Any]:
    """A mapping of plain values and tensors that `torch.load(weights_only=True)` reads back."""

    def tensor(item: TruthTensor) -> dict[str, Any]:
        fields = {name: getattr(item, name) for name in TENSOR_FIELDS}
        return {"path": item.path, "dtype": str(item.dtype).removeprefix("torch."), **fields}

    return {
        "outputs": [tensor(item) for item in truth.outputs],
        "gradients": [tensor(item) for item in truth.gradients],
        "output_is_view": truth.output_is_view,
        "changes_inputs": list(truth.changes_inputs),
        "reduction_terms": truth.reduction_terms,
        "draws_random": truth.draws_random,
        "unmodelled": list(truth.unmodelled),
        "error": truth.error,
    }


def unpack(data: dict[str, Any]) -> Truth:
    """Rebuild a truth from `pack`."""

    def tensor(item: dict[str, Any]) -> TruthTensor:
        return TruthTensor(**{**item, "dtype": dtype_named(item["dtype"])})

    return Truth(
        **{
            **data,
            "outputs": tuple(tensor(item) for item in data["outputs"]),
            "gradients": tuple(tensor(item) for item in data["gradients"]),
            "changes_inputs": tuple(data["changes_inputs"]),
            "unmodelled": tuple(data["unmodelled"]),
        }
    )
