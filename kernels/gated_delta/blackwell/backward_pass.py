"""The backward by native kernels, with Triton for what they leave out.

It takes what the Triton forward kept and gives what `backward_pass.run_backward` gives. Native is
all but d(w∘v) by the write gates. The native kernels have fixed widths; narrower keys and values
are padded with zeros, which add nothing to any sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...cute_dsl import load
from ..backward_pass import Backward, PackedGradients, in_triton, launch_transform_adjoint
from ..device import ABSENT
from ..forward_pass import Scratch
from ..setting import Setting, Tokens
from . import native_stages
from .compilation import CHUNK, KEYS, VALUES
from .execution import stages_for
from .layout import Layout, layout_of
from .native_stages import TokenGradients


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


@dataclass(frozen=True, slots=True)
class _Operands:
    """What the native stages take, in their layout and padded; float16 but for the decays."""

    query_decayed: Tensor
    """Qg [S, H, N, C, K]"""
    key_decayed: Tensor
    """Kg [S, H, N, C, K]"""
    erase_transformed: Tensor
    """Ww [S, H, N, C, K]"""
    total: Tensor
    """a_C [S, H, N, 1, K], float32"""
    attention: Tensor
    """A [S, H, N, C, C]"""
    inverse: Tensor | None
    """T [S, H, N, C, C]; None if nothing is erased"""
    updates: Tensor
    """U [S, H, N, C, V]"""
    states: Tensor
    """h [S, H, N, K, V]"""
    grad_output: Tensor
    """dO [S, H, N, C, V]"""


def run_native_backward(
    tokens: Tokens,
    setting: Setting,
    scratch: Scratch,
    grad_output: Tensor,
    grad_final: Tensor | None,
) -> PackedGradients:
    """Run all backward stages; arguments and results as of `backward_pass.run_backward`."""
    t, s, layout = tokens, setting, layout_of(setting.chunks, CHUNK)
    given = _operands(t, s, scratch, grad_output, layout)
    written, made, grad_initial = _native_gradients(given, t, s, grad_final, layout)
    gates_only = replace(s, b=ABSENT.value)
    _, _, grad_v, grad_w = launch_transform_adjoint(t, written, scratch, gates_only)
    return PackedGradients(made.q, made.k, grad_v, made.g, made.b, grad_w, grad_initial)


def _operands(
    t: Tokens, s: Setting, kept: Scratch, grad_output: Tensor, layout: Layout
) -> _Operands:
    values, erases = _padded(s.value_dim), s.b != ABSENT.value
    keys = layout.by_chunk(kept.key_decayed, KEYS)
    return _Operands(
        query_decayed=layout.by_chunk(kept.query_decayed, KEYS),
        key_decayed=keys,
        erase_transformed=(
            layout.by_chunk(kept.erase_transformed, KEYS) if erases else torch.zeros_like(keys)
        ),
        total=_total_decay(t, s, layout),
        attention=layout.matrices(kept.attention, CHUNK, CHUNK),
        inverse=layout.matrices(kept.inverse, CHUNK, CHUNK) if erases else None,
        updates=layout.by_chunk(kept.updates, values),
        states=layout.matrices(kept.states, KEYS, values),
        grad_output=layout.by_chunk(grad_output, values),
    )


def _native_gradients(
    x: _Operands, t: Tokens, s: Setting, grad_final: Tensor | None, layout: Layout
) -> tuple[Tensor, TokenGradients, Tensor]:
    """Run the native stages: d(w∘v) [tokens, H, V], of tokens, and of the initial states."""
    erases = x.inverse is not None
    run = stages_for(x.grad_output.shape[-1], decays=s.g != ABSENT.value, erases=erases)
    grad_attention, local = native_stages.output_adjoint(
        run.output_adjoint, x.grad_output, x.attention, x.updates
    )
    scan = native_stages.reverse_state_scan(
        run.reverse_state_scan,
        x.query_decayed,
        x.key_decayed,
        x.erase_transformed,
        x.total,
        x.grad_output,
        local,
        _final_gradient(grad_final, s),
    )
    written, grad_erasure = scan.grad_updates, None
    if run.transform_adjoint is not None and x.inverse is not None:
        written, _, grad_erasure = native_stages.transform_adjoint(
            run.transform_adjoint, x.inverse, x.updates, x.states, scan.grad_updates
        )
    made = native_stages.token_gradients(
        run.token_gradients,
        t,
        s.scale,
        layout.token[..., 0],
        layout.has_token.sum(-1),
        x.states,
        x.grad_output,
        scan.grad_states,
        x.updates,
        written if erases else None,
        grad_attention,
        grad_erasure,
    )
    grad_initial = scan.grad_initial[..., : s.key_dim, : s.value_dim].contiguous()
    return layout.by_token(written, s.value_dim), made, grad_initial


def _total_decay(t: Tokens, s: Setting, layout: Layout) -> Tensor:
    """a_C [S, H, N, 1, K], as far as the member has decays."""
    if t.g is None:
        sequences, chunks = layout.chunk.shape
        return t.v.new_zeros(sequences, s.heads, chunks, 1, KEYS, dtype=torch.float32)
    gate = t.g.float() if t.g.dim() == 3 else t.g.float().unsqueeze(-1).expand(-1, -1, s.key_dim)
    return layout.by_chunk(gate, KEYS).sum(-2, keepdim=True)


def _final_gradient(grad_final: Tensor | None, s: Setting) -> Tensor:
    """Gradient of the final states [S, H, K, V], padded, float32."""
    if grad_final is None:
        shape = *s.end_shape[:2], KEYS, _padded(s.value_dim)
        return torch.zeros(shape, device=s.chunks.starts.device)
    beyond = (0, _padded(s.value_dim) - s.value_dim, 0, KEYS - s.key_dim)
    return torch.nn.functional.pad(grad_final.float(), beyond)


def _padded(value_dim: int) -> int:
    """The width that the native kernels have for so many value channels."""
    return min(width for width in VALUES if width >= value_dim)
