"""The native stages, compiled for sm_100a where the CuTe DSL is installed; no GPU is needed."""

from __future__ import annotations

from ...cute_dsl import Compiled, compile_host, load, placeholder

KEYS, CHUNK, VALUES = 128, 64, (64, 128)
"""Key channels, tokens of a chunk, and value channels that the native stages take."""


def compile_reverse_state_scan(value_dim: int) -> Compiled:
    """K#1 for so many value channels.

    Raises:
        ValueError: not one of `VALUES`.
        ModuleNotFoundError: the DSL is not installed; says how to.
    """
    _check("K#1", value_dim)
    int32 = load("cutlass").Int32
    from .reverse_state_scan import reverse_state_scan

    keys = [placeholder("Float16", None, CHUNK, KEYS) for _ in range(3)]
    return compile_host(
        reverse_state_scan(value_dim),
        *keys,
        placeholder("Float32", None, KEYS),
        placeholder("Float16", None, CHUNK, value_dim),
        placeholder("Float32", None, CHUNK, value_dim),
        placeholder("Float32", None, KEYS, value_dim),
        placeholder("Float32", None, KEYS, value_dim),
        placeholder("Float32", None, CHUNK, value_dim),
        placeholder("Float32", None, KEYS, value_dim),
        int32(1),
    )


def compile_transform_adjoint(value_dim: int) -> Compiled:
    """K#2 for so many value channels.

    Raises:
        ValueError: not one of `VALUES`.
        ModuleNotFoundError: the DSL is not installed; says how to.
    """
    _check("K#2", value_dim)
    from .transform_adjoint import transform_adjoint

    return compile_host(
        transform_adjoint,
        placeholder("Float16", None, CHUNK, CHUNK),
        placeholder("Float16", None, CHUNK, value_dim),
        placeholder("Float16", None, KEYS, value_dim),
        placeholder("Float16", None, CHUNK, value_dim),
        placeholder("Float32", None, CHUNK, value_dim),
        placeholder("Float32", None, CHUNK, KEYS),
        placeholder("Float32", None, CHUNK, CHUNK),
    )


def compile_output_adjoint(value_dim: int) -> Compiled:
    """The output's adjoint for so many value channels.

    Raises:
        ValueError: not one of `VALUES`.
        ModuleNotFoundError: the DSL is not installed; says how to.
    """
    _check("output's adjoint", value_dim)
    from .independent_products import output_adjoint

    return compile_host(
        output_adjoint,
        placeholder("Float16", None, CHUNK, value_dim),
        placeholder("Float16", None, CHUNK, CHUNK),
        placeholder("Float16", None, CHUNK, value_dim),
        placeholder("Float32", None, CHUNK, CHUNK),
        placeholder("Float32", None, CHUNK, value_dim),
    )


def compile_token_gradients(value_dim: int, decays: bool, erases: bool) -> Compiled:
    """The last stage for so many value channels, and members with decays and erasing or without.

    Raises:
        ValueError: not one of `VALUES`.
        ModuleNotFoundError: the DSL is not installed; says how to.
    """
    _check("gradients of tokens", value_dim)
    types = load("cutlass")
    from .token_gradients import token_gradients

    rows, pairs = (CHUNK, value_dim), (CHUNK, CHUNK)
    shapes = (KEYS, value_dim), rows, rows, (KEYS, value_dim), rows, pairs, pairs
    tokens = 2 * ["Float16"] + 2 * ["Float32"]
    return compile_host(
        token_gradients(decays, erases),
        *(placeholder("Float16", None, *shape) for shape in shapes),
        *(placeholder("Int32", None, None) for _ in range(2)),
        *(placeholder(name, None, None, align_bytes=4) for name in 2 * tokens),
        types.Int32(1),
        types.Float32(1.0),
    )


def _check(stage: str, value_dim: int) -> None:
    if value_dim not in VALUES:
        raise ValueError(f"the native {stage} takes {VALUES} value channels, not {value_dim}")
    load()
