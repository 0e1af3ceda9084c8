"""The chunkwise backward with native stages, and in plain torch what they leave out.

Native are all matrix products but those between tokens of one chunk that decay channel by channel.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..chunked import Adjoints, Saved, gradients, split
from ..reference import Gradients
from . import native_stages
from .native_stages import Run


@dataclass(frozen=True, slots=True)
class NativeBackward:
    """What runs each stage, all compiled for one V."""

    output_adjoint: Run
    reverse_state_scan: Run
    transform_adjoint: Run
    state_gradients: Run

    def __call__(
        self, saved: Saved, grad_output: Tensor, grad_final_state: Tensor | None = None
    ) -> Gradients:
        """Run the backward.

        Args:
            saved: From `chunked_forward`, with K = 128 and chunks of 64.
            grad_output: [B, T, H, V].
            grad_final_state: [B, H, K, V], zero if None.

        Raises:
            ValueError: K or the chunks are not what the kernels are made for.
        """
        s, scan = saved, saved.scan
        grad_output = split(grad_output, saved.q.shape[-2])
        if grad_final_state is None:
            grad_final_state = torch.zeros_like(scan.final)
        grad_attention, local = native_stages.output_adjoint(
            self.output_adjoint, grad_output, s.pairs.attention, scan.updates
        )
        reverse = native_stages.reverse_state_scan(
            self.reverse_state_scan,
            s.q * s.decay.prefix.exp(),
            s.k * s.decay.suffix.exp(),
            s.erase_transformed,
            s.decay.total,
            grad_output,
            local,
            grad_final_state,
        )
        transform = native_stages.transform_adjoint(
            self.transform_adjoint, s.inverse, scan.updates, scan.states, reverse.grad_updates
        )
        through_states = native_stages.state_gradients(
            self.state_gradients, grad_output, scan.updates, scan.states, reverse.grad_states
        )
        return gradients(saved, Adjoints(grad_attention, reverse, transform, *through_states))
