"""The backward by native kernels alone.

It takes what the Triton forward kept and gives what `backward_pass.run_backward` gives. Nothing is
copied in between, unless channels are no multiples of 8.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...cute_dsl import load
from ..backward_pass import Backward, PackedGradients, in_triton
from ..device import ABSENT
from ..forward_pass import Scratch
from ..setting import Setting, Tokens
from . import native_stages
from .compilation import (
    ALIGN_BYTES,
    KEYS,
    VALUES,
    WIDTH_STEP,
    compile_reverse_state_scan,
    compile_token_gradients,
    compile_transform_adjoint,
    tile_of,
)
from .execution import executable
from .widths import fits, run_widened


def natively(setting: Setting) -> Backward:
    """Choose the native backward; see `gated_delta`.

    Raises:
        ValueError: The call is outside of what the native kernels take; says what, and what to do.
        ModuleNotFoundError: The CuTe DSL is not installed; says how to.
    """
    if limit := limit_of(setting):
        raise ValueError(
            f"the native backward takes {limit}; leave out backward=natively to have Triton's, or "
            "pass backward=natively_or_in_triton to have it where the native one does not fit"
        )
    load()
    return run_native_backward


def natively_or_in_triton(setting: Setting) -> Backward:
    """Choose the native backward where it fits, else Triton's.

    Raises:
        ModuleNotFoundError: It fits, but the CuTe DSL is not installed; says how to.
    """
    return in_triton(setting) if limit_of(setting) else natively(setting)


def limit_of(setting: Setting) -> str:
    """What the call is too wide or too precise for, in words; empty if it fits."""
    if setting.dtype != torch.float16:
        return f"q, k and v in float16, not {str(setting.dtype).removeprefix('torch.')}"
    if setting.key_dim > KEYS:
        return f"at most {KEYS} key channels, not {setting.key_dim}"
    if setting.value_dim > max(VALUES):
        return f"at most {max(VALUES)} value channels, not {setting.value_dim}"
    return ""


def run_native_backward(
    tokens: Tokens,
    setting: Setting,
    scratch: Scratch,
    grad_output: Tensor,
    grad_final: Tensor | None,
) -> PackedGradients:
    """Run all backward stages; arguments and results as of `backward_pass.run_backward`."""
    given = tokens, setting, scratch, _aligned(grad_output), grad_final
    if fits(setting, WIDTH_STEP):
        return _run(*given)
    return run_widened(_run, WIDTH_STEP, *given)


def _run(
    t: Tokens, s: Setting, kept: Scratch, grad_output: Tensor, grad_final: Tensor | None
) -> PackedGradients:
    erases = s.b != ABSENT.value
    scan = native_stages.reverse_state_scan(
        executable(compile_reverse_state_scan, s.key_dim, s.value_dim, erases),
        *(kept, grad_output, grad_final, s),
    )
    made = native_stages.transform_adjoint(
        executable(compile_transform_adjoint, s.value_dim, erases, s.w),
        *(t, kept, grad_output, scan.grad_updates, s),
    )
    last = native_stages.token_gradients(
        executable(compile_token_gradients, tile_of(s.value_dim), s.g != ABSENT.value, erases),
        *(t, kept, grad_output, scan.grad_states, made, s),
    )
    return PackedGradients(last.q, last.k, made.value, last.g, last.b, made.gate, scan.grad_initial)


def _aligned(rows: Tensor) -> Tensor:
    """Where TMA can read it."""
    return rows.clone() if rows.data_ptr() % ALIGN_BYTES else rows
