"""Instructions in which the 32 lanes of a warp see each other, from the PTX ISA."""

from __future__ import annotations

import numpy as np

from .formats import BF16, F16, F32, Bits, Format, decode, encode

LANES = 32
_LANE = np.arange(LANES)
_GROUP, _MEMBER = _LANE // 4, _LANE % 4


def shuffle(mode: str, values: Bits, step: Bits, clamp: Bits) -> tuple[Bits, Bits]:
    """`shfl.sync`: each lane's value from another lane, and whether that lane was in range."""
    step, clamp = (step & np.uint64(31)).astype(int), clamp.astype(int)
    segment = clamp >> 8 & 31
    last = (_LANE & segment) | (clamp & 31 & ~segment)
    source = {
        "up": _LANE - step,
        "down": _LANE + step,
        "bfly": _LANE ^ step,
        "idx": (_LANE & segment) | (step & ~segment),
    }[mode]
    valid = source >= last if mode == "up" else source <= last
    return values[np.where(valid, source, _LANE)], valid.astype(np.uint64)


def matrix_rows(rows: np.ndarray, transposed: bool) -> Bits:
    """What `ldmatrix` gives each lane of one 8x8 matrix, from its rows of 8 halves."""
    matrix = rows.T if transposed else rows
    pairs = matrix[_GROUP[:, None], 2 * _MEMBER[:, None] + np.arange(2)].astype(np.uint64)
    return pairs[:, 0] | pairs[:, 1] << np.uint64(16)


def multiply(
    shape: str,
    kinds: tuple[str, str, str, str],
    fragments: list[list[Bits]],
    *,
    capability: int,
    saturates: bool = False,
) -> list[Bits]:
    """`mma.sync` of a compute capability such as 80: the fragments of D from those of A, B, C."""
    out, left, right, total = kinds
    if left != right or out != total or (shape, left) not in _ELEMENT_BITS:
        raise NotImplementedError(f"mma {shape} of {kinds}")
    a, b = _operands(shape, left, fragments[0], fragments[1])
    if out == "s32":
        c = _result_matrix([register.astype(np.uint32).view(np.int32) for register in fragments[2]])
        integers = a.astype(np.int64) @ b.astype(np.int64) + c
        if saturates:
            integers = np.clip(integers, -(2**31), 2**31 - 1)
        return _result_fragments((integers % 2**32).astype(np.uint64))
    if out != "f32" or saturates:
        raise NotImplementedError(f"mma into {out}")
    c = _result_matrix([decode(register, F32) for register in fragments[2]])
    sums = _accumulate(a, b, c, left, _NEWER if capability >= 90 else _OLDER)
    return _result_fragments(encode(sums, F32, "rz"))


_ELEMENT_BITS = {
    ("m16n8k16", "f16"): 16,
    ("m16n8k16", "bf16"): 16,
    ("m16n8k8", "f16"): 16,
    ("m16n8k8", "bf16"): 16,
    ("m16n8k8", "tf32"): 32,
    ("m16n8k4", "tf32"): 32,
    ("m16n8k32", "s8"): 8,
    ("m16n8k32", "u8"): 8,
    ("m16n8k16", "s8"): 8,
    ("m16n8k16", "u8"): 8,
}

_LEAST_EXPONENT = {
    "f16": F16.least_exponent,
    "bf16": BF16.least_exponent,
    "tf32": -126,
    "f32": -126,
}
_OLDER, _NEWER = (24, 16, -132), (25, 32, -133)
"""Fraction bits, bytes of K in a step, and the exponent of a zero."""


def _operands(
    shape: str, kind: str, left: list[Bits], right: list[Bits]
) -> tuple[np.ndarray, np.ndarray]:
    """A `(16, K)` and B `(K, 8)` from their fragments.

    Register `r` of A holds row `group + 8 (r mod 2)` and, of B, column `group`; its elements lie
    side by side at `per * member`, and each further pair of A's registers, or register of B's, is
    four such runs along.
    """
    bits = _ELEMENT_BITS[shape, kind]
    per = 32 // bits
    depth = int(shape.rsplit("k", 1)[1])
    a, b = np.zeros((16, depth)), np.zeros((depth, 8))
    for at, register in enumerate(left):
        for part in range(per):
            column = per * (_MEMBER + 4 * (at // 2)) + part
            a[_GROUP + 8 * (at % 2), column] = _element(register, part, kind)
    for at, register in enumerate(right):
        for part in range(per):
            b[per * (_MEMBER + 4 * at) + part, _GROUP] = _element(register, part, kind)
    return a, b


def _element(register: Bits, part: int, kind: str) -> np.ndarray:
    if kind == "tf32":
        return decode(register & np.uint64(0xFFFFE000), F32)
    if kind in ("s8", "u8"):
        byte = (register >> np.uint64(8 * part)).astype(np.uint8)
        return byte.view(np.int8 if kind == "s8" else np.uint8).astype(np.float64)
    form: Format = F16 if kind == "f16" else BF16
    return decode(register >> np.uint64(16 * part) & np.uint64(0xFFFF), form)


def _result_matrix(registers: list[np.ndarray]) -> np.ndarray:
    """The 16x8 matrix of four registers: two columns side by side, then the rows 8 below."""
    matrix = np.zeros((16, 8), registers[0].dtype)
    for at, register in enumerate(registers):
        matrix[_GROUP + 8 * (at // 2), 2 * _MEMBER + at % 2] = register
    return matrix


def _result_fragments(matrix: Bits) -> list[Bits]:
    return [matrix[_GROUP + 8 * (at // 2), 2 * _MEMBER + at % 2] for at in range(4)]


def _accumulate(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, kind: str, model: tuple[int, int, int]
) -> np.ndarray:
    """Tensor-core sums: in steps of 16 or 32 bytes of K, each rounded towards zero to float32.

    Within a step all products and the total are cut to 24 or 25 fraction bits below the largest
    exponent, then summed exactly (Xie et al., "MMA-Sim", 2025, found this for Ampere and Hopper).
    """
    fraction_bits, step_bytes, zero_exponent = model
    step = step_bytes // (4 if kind == "tf32" else 2)
    for start in range(0, a.shape[1], step):
        part = slice(start, start + step)
        terms = a[:, None, part] * b.T[None, :, part]
        exponents = _exponent(a, kind)[:, None, part] + _exponent(b, kind).T[None, :, part]
        terms = np.concatenate([terms, c[..., None]], axis=-1)
        exponents = np.concatenate([exponents, _exponent(c, "f32")[..., None]], axis=-1)
        top = np.where(terms == 0, zero_exponent, exponents).max(axis=-1, keepdims=True)
        cut = np.ldexp(np.trunc(np.ldexp(terms, fraction_bits - top)), top - fraction_bits)
        c = decode(encode(cut.sum(axis=-1), F32, "rz"), F32) + 0.0
    return c


def _exponent(values: np.ndarray, kind: str) -> np.ndarray:
    """Exponents as stored: subnormals have the smallest normal number's."""
    return np.maximum(np.frexp(values)[1] - 1, _LEAST_EXPONENT[kind])
