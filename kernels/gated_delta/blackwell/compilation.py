"""The native stages, compiled for sm_100a where the CuTe DSL is installed; no GPU is needed."""

from __future__ import annotations

from typing import Any

from ...cute_dsl import Compiled, compile_host, load, placeholder
from ..device import ABSENT, PER_HEAD

KEYS, CHUNK, VALUES = 128, 64, (64, 128)
"""Most key channels, most tokens of a chunk, and widths of tiles for value channels."""
ALIGN_BYTES, WIDTH_STEP = 16, 8
"""What addresses and strides have to be a multiple of for TMA, and so channels of float16."""


def compile_reverse_state_scan(key_dim: int, value_dim: int, erases: bool) -> Compiled:
    """K#1, and Aᵀ dO, for so many channels, and members that erase or do not.

    Raises:
        ValueError: too many channels, or no multiple of `WIDTH_STEP`.
        ModuleNotFoundError: the DSL is not installed; says how to.
    """
    _check("K#1", key_dim, value_dim)
    int32 = load("cutlass").Int32
    from .reverse_state_scan import reverse_state_scan

    states, ends = (_matrices(name, key_dim, value_dim) for name in ("Float16", "Float32"))
    return compile_host(
        reverse_state_scan(erases),
        _rows(key_dim),
        _rows(key_dim),
        _rows(key_dim) if erases else _stub(),
        _matrices("Float32", key_dim),
        _matrices("Float16", CHUNK, CHUNK),
        _rows(value_dim),
        ends,
        states,
        _matrices("Float16", CHUNK, value_dim),
        ends,
        *_places(),
        placeholder("Int32", None),
        int32(1),
    )


def compile_transform_adjoint(value_dim: int, erases: bool, gate: int) -> Compiled:
    """K#2, dA, dv and dw.

    Args:
        value_dim: Value channels.
        erases: Whether the member erases; else only dA, dv and dw are made.
        gate: Kind of w, of `device.py`.

    Raises:
        ValueError: too many channels, or no multiple of `WIDTH_STEP`.
        ModuleNotFoundError: the DSL is not installed; says how to.
    """
    _check("K#2", KEYS, value_dim)
    from .transform_adjoint import Form, transform_adjoint

    wide = _rows(value_dim, "Float32", align_bytes=4)
    weights = placeholder("Float32", None, None, align_bytes=4) if gate == PER_HEAD.value else wide
    pairs = _matrices("Float16", CHUNK, CHUNK)
    return compile_host(
        transform_adjoint(Form(tile_of(value_dim), erases, gate)),
        pairs if erases else _stub(),
        _rows(value_dim),
        _rows(value_dim),
        _matrices("Float16", CHUNK, value_dim),
        _rows(value_dim, align_bytes=2),
        _stub("Float32") if gate == ABSENT.value else weights,
        *_places(),
        pairs,
        pairs if erases else _stub(),
        _rows(value_dim) if erases else _stub(),
        _rows(value_dim),
        _stub("Float32") if gate == ABSENT.value else wide,
    )


def compile_token_gradients(tile: int, decays: bool, erases: bool) -> Compiled:
    """The last stage for up to so many value channels, and members with decays and erasing or not.

    It takes any number of key channels up to `KEYS`, and of value channels up to the tile.

    Raises:
        ValueError: not one of `VALUES`.
        ModuleNotFoundError: the DSL is not installed; says how to.
    """
    if tile not in VALUES:
        raise ValueError(f"gradients of tokens have tiles of {VALUES} value channels, not {tile}")
    float32 = load("cutlass").Float32
    from .token_gradients import token_gradients

    width = load().sym_int(divisibility=WIDTH_STEP)
    states, rows = (placeholder("Float16", None, None, width) for _ in range(2))
    pairs = _matrices("Float16", CHUNK, CHUNK)
    keys, wide = (placeholder(x, None, None, align_bytes=4) for x in ("Float16", "Float32"))
    return compile_host(
        token_gradients(tile, decays, erases),
        *(states, rows, rows if erases else _stub(), states, rows),
        *(pairs, pairs if erases else _stub()),
        *_places(),
        *(keys, keys, wide, wide) * 2,
        float32(1.0),
    )


def tile_of(value_dim: int) -> int:
    """The width of a tile that holds so many value channels."""
    return min(width for width in VALUES if width >= value_dim)


def _rows(width: int, dtype: str = "Float16", align_bytes: int = 16) -> Any:
    """Packed tokens."""
    return placeholder(dtype, None, None, width, align_bytes=align_bytes)


def _matrices(dtype: str, *shape: int) -> Any:
    return placeholder(dtype, None, *shape)


def _places() -> tuple[Any, Any]:
    """Where chunks start and stop."""
    return placeholder("Int64", None), placeholder("Int64", None)


def _stub(dtype: str = "Float16") -> Any:
    """What is not there."""
    return placeholder(dtype, None)


def _check(stage: str, key_dim: int, value_dim: int) -> None:
    for name, width, most in (("key", key_dim, KEYS), ("value", value_dim, max(VALUES))):
        if not 0 < width <= most or width % WIDTH_STEP:
            raise ValueError(
                f"the native {stage} takes up to {most} {name} channels, a multiple of "
                f"{WIDTH_STEP}, not {width}"
            )
    load()
