"""A random problem for one member of the family: its gradients by kernels, and the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .backward_pass import Backward, in_triton
from .operation import gated_delta
from .problem import Problem, draw_problem
from .reference import serial_backward, serial_forward
from .setting import Setting

_GATES = {"LA": "", "GLA": "g", "SSD": "g", "KDA": "gβ", "GDN": "gbw"}
_PER_HEAD = {"SSD": "g", "KDA": "β"}
"""Gates with one value a head instead of one a channel; β is both b and w."""


@dataclass(frozen=True, slots=True)
class MemberProblem:
    """Inputs and cotangents of one call of a member, in float64 but representable in a dtype."""

    member: str
    problem: Problem
    """Its gates are not used."""
    gates: dict[str, Tensor]
    """Those the member has, of g, b, w and β, as the public function takes them."""

    @property
    def inputs(self) -> dict[str, Tensor]:
        """All that has a gradient."""
        p = self.problem
        state = {"initial state": p.initial_state}
        return {"q": p.q, "k": p.k, "v": p.v, **self.gates, **state}


def draw_member(
    member: str,
    length: int,
    key_dim: int,
    value_dim: int,
    *,
    dtype: torch.dtype = torch.float16,
    batch: int = 1,
    heads: int = 1,
    strongest_decay: float = 0.1,
    seed: int = 0,
) -> MemberProblem:
    """Draw a problem of a member of `members.NAMES`, rounded to a dtype; see `draw_problem`."""
    options = {"batch": batch, "heads": heads, "strongest_decay": strongest_decay, "seed": seed}
    p = draw_problem(length, key_dim, value_dim, **options).to(dtype).to(torch.float64)
    channels = {"g": p.g, "b": p.b, "w": p.w, "β": p.b}
    gates = {name: channels[name] for name in _GATES[member]}
    for name in _PER_HEAD.get(member, ""):
        gates[name] = gates[name][..., 0]
    return MemberProblem(member, p, gates)


def kernel_results(
    given: MemberProblem,
    dtype: torch.dtype = torch.float16,
    *,
    device: str = "cpu",
    backward: Callable[[Setting], Backward] = in_triton,
) -> dict[str, Tensor]:
    """What the public function makes of a problem: output, final state, each input's gradient."""
    leaves = {
        name: x.to(device, dtype if name in "qkv" else torch.float32).requires_grad_()
        for name, x in given.inputs.items()
    }
    tokens, gates, state = _arguments(leaves)
    results = gated_delta(
        *tokens, *gates, scale=given.problem.scale, initial_state=state, backward=backward
    )
    return _named(leaves, results, _gradients(results, leaves, given))


def true_results(given: MemberProblem) -> dict[str, Tensor]:
    """The same in float64, token by token."""
    leaves = {name: x.clone().requires_grad_() for name, x in given.inputs.items()}
    tokens, gates, state = _arguments(leaves)
    full = _in_full(gates, tokens)
    p, options = given.problem, {"scale": given.problem.scale, "initial_state": state.detach()}
    inputs = [x.detach() for x in (*tokens, *full)]
    results = serial_forward(*inputs, **options)
    found = serial_backward(*inputs, *p.cotangents, **options)
    gradients = dict(zip("qkv", found, strict=False)) | {"initial state": found.initial_state}
    made = [(x, dx) for x, dx in zip(full, found[3:6], strict=True) if x.requires_grad]
    if made:
        own = torch.autograd.grad(
            [x for x, _ in made], [leaves[name] for name in given.gates], [dx for _, dx in made]
        )
        gradients |= dict(zip(given.gates, own, strict=True))
    return _named(leaves, results, [gradients[name] for name in leaves])


def _arguments(
    leaves: dict[str, Tensor],
) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...], Tensor]:
    """Tokens, gates g, b and w, and the initial state, of the public function."""
    both = leaves.get("β")
    gates = leaves.get("g"), leaves.get("b", both), leaves.get("w", both)
    return tuple(leaves[name] for name in "qkv"), gates, leaves["initial state"]


def _in_full(gates: tuple[Tensor | None, ...], tokens: tuple[Tensor, ...]) -> list[Tensor]:
    """g, b and w by channel, as the reference takes them."""
    _, k, v = tokens
    neutral = torch.zeros_like(k), torch.zeros_like(k), torch.ones_like(v)
    full = []
    for gate, absent in zip(gates, neutral, strict=True):
        if gate is None:
            full.append(absent.detach())
        else:
            full.append(gate.unsqueeze(-1).expand_as(absent) if gate.dim() == 3 else gate)
    return full


def _gradients(
    results: tuple[Tensor, Tensor], leaves: dict[str, Tensor], given: MemberProblem
) -> tuple[Tensor, ...]:
    pairs = zip(given.problem.cotangents, results, strict=True)
    return torch.autograd.grad(results, [*leaves.values()], [x.to(y) for x, y in pairs])


def _named(
    leaves: dict[str, Tensor], results: tuple[Tensor, Tensor], gradients: list | tuple
) -> dict[str, Tensor]:
    forward = {"output": results[0], "final state": results[1]}
    backward = {f"d{name}": x for name, x in zip(leaves, gradients, strict=True)}
    return {name: x.detach().cpu() for name, x in (forward | backward).items()}
