"""Metadata: KernelBench's helpers for seeds, precisions and what goes into JSON."""

from __future__ import annotations

import json
import logging
from typing import Any

import torch

from ..gates.kernelbench_rule import TOLERANCE, error_name

log = logging.getLogger(__name__)

_NAMES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def get_error_name(e: BaseException) -> str:
    """Module and class of an exception, `builtins.ValueError`."""
    return error_name(e)


def set_seed(seed: int) -> None:
    """Seed torch on the CPU and on the current CUDA device."""
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)


def get_torch_dtype_from_string(precision: str) -> torch.dtype:
    """The dtype of `fp32`, `fp16` or `bf16`.

    Raises:
        ValueError: any other name.
    """
    if precision not in _NAMES:
        raise ValueError(f"Invalid precision not supported: {precision}")
    return _NAMES[precision]


def get_tolerance_for_precision(precision: str | torch.dtype) -> float:
    """KernelBench's absolute and relative tolerance in a precision.

    Raises:
        ValueError: an unknown name.
        AssertionError: a dtype that it does not evaluate in, as there.
    """
    dtype = get_torch_dtype_from_string(precision) if isinstance(precision, str) else precision
    if dtype not in TOLERANCE:
        raise AssertionError(f"Invalid precision not supported: {precision}")
    return TOLERANCE[dtype]


def register_and_format_exception(
    exception_type: str,
    exception_msg: BaseException | str,
    metadata: dict[str, Any],
    verbose: bool = False,
    truncate: bool = False,
    max_length: int = 200,
) -> dict[str, Any]:
    """Put the text of an exception under a key; cut to `max_length` characters if `truncate`."""
    text = str(exception_msg)
    if truncate and len(text) > max_length:
        text = f"{text[: max_length - 3]}..."
    if verbose:
        log.info("%s: %s", exception_type, text)
    metadata[exception_type] = text
    return metadata


def check_metadata_serializable(metadata: dict[str, Any]) -> dict[str, Any]:
    """Metadata that JSON can hold: what it cannot becomes text, one level below `eval_0`."""
    if _fits_json(metadata):
        return metadata
    return {"eval_0": {k: _plain(v, deep=False) for k, v in metadata["eval_0"].items()}}


def check_metadata_serializable_all_types(metadata: dict[str, Any]) -> dict[str, Any]:
    """Metadata that JSON can hold: what it cannot becomes text, at any depth."""
    return metadata if _fits_json(metadata) else _plain(metadata, deep=True)


def _fits_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, OverflowError):
        return False
    return True


def _plain(value: Any, *, deep: bool) -> Any:
    if isinstance(value, str | int | float | bool | type(None)):
        return value
    if not deep:
        return value if isinstance(value, dict | list) else str(value)
    if isinstance(value, dict):
        return {key: _plain(item, deep=True) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, deep=True) for item in value]
    return str(value)
