"""The ladder of the gated-delta family, and a training run of every member.

    python benchmarks/gated_delta.py ladder       # worst error of every stage against the oracle
    python benchmarks/gated_delta.py members      # of every member, by Triton's or native kernels
    python benchmarks/gated_delta.py train        # 300 steps of a tiny model through the kernels

Kernels run on the GPU, or on the virtual GPU where there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from lethe_env.kernels import cute_dsl
from lethe_env.kernels.gated_delta import stages
from lethe_env.kernels.gated_delta.backward_pass import Backward, in_triton
from lethe_env.kernels.gated_delta.blackwell import natively
from lethe_env.kernels.gated_delta.chunked import chunked_backward, chunked_forward
from lethe_env.kernels.gated_delta.member_problem import (
    draw_member,
    kernel_results,
    true_results,
)
from lethe_env.kernels.gated_delta.members import NAMES as MEMBERS
from lethe_env.kernels.gated_delta.operation import gated_delta
from lethe_env.kernels.gated_delta.problem import Problem, draw_problem, worst_relative_error
from lethe_env.kernels.gated_delta.reference import (
    Gradients,
    autograd_backward,
    serial_backward,
    serial_forward,
)
from lethe_env.kernels.gated_delta.setting import Setting
from lethe_env.vgpu.driver import VirtualDriver

app = typer.Typer(add_completion=False, no_args_is_help=True)
HALF = {torch.float16: stages.half_operand, torch.bfloat16: stages.bfloat16_operand}
NAMES = ("output", "final", *(f"d{name}" for name in (*"qkvgbw", "S0")))
Run = Callable[[Problem], tuple[torch.Tensor, ...]]
Choice = Callable[[Setting], Backward]
Native = Annotated[bool, typer.Option("--native", help="The backward in kernels for sm_100a.")]


def reverse_recurrence(p: Problem) -> tuple[torch.Tensor, ...]:
    options = {"scale": p.scale, "initial_state": p.initial_state}
    gradients = serial_backward(*p.inputs, *p.cotangents, **options)
    return (*serial_forward(*p.inputs, **options), *gradients)


def chunkwise(dtype: torch.dtype, operand: stages.Operand = stages.exact, **forms: bool) -> Run:
    def run(p: Problem) -> tuple[torch.Tensor, ...]:
        p = p.to(dtype)
        output, final, saved = chunked_forward(
            *p.inputs, scale=p.scale, initial_state=p.initial_state, operand=operand
        )
        return output, final, *chunked_backward(saved, *p.cotangents, operand=operand, **forms)

    return run


def kernels(dtype: torch.dtype, backward: Choice = in_triton) -> Run:
    def run(p: Problem) -> tuple[torch.Tensor, ...]:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        narrow = [x.to(device, dtype).requires_grad_() for x in p.inputs[:3]]
        wide = [
            x.to(device, torch.float32).requires_grad_() for x in (*p.inputs[3:], p.initial_state)
        ]
        outputs = gated_delta(
            *narrow, *wide[:3], scale=p.scale, initial_state=wide[3], backward=backward
        )
        cotangents = [x.to(device, y.dtype) for x, y in zip(p.cotangents, outputs, strict=True)]
        gradients = torch.autograd.grad(outputs, [*narrow, *wide], cotangents)
        return tuple(x.detach().cpu() for x in (*outputs, *gradients))

    return run


def rungs() -> dict[tuple[str, str], tuple[torch.dtype, Run]]:
    """By stage and dtype: the dtype to which inputs are rounded first, and what to run."""
    double, single = torch.float64, torch.float32
    by_forms = chunkwise(double, seven_products=True, decay_by_difference=True)
    result: dict[tuple[str, str], tuple[torch.dtype, Run]] = {
        ("reverse recurrence", "float64"): (double, reverse_recurrence),
        ("chunkwise", "float64"): (double, chunkwise(double)),
        ("chunkwise, K#2 in 7 products, dg by difference", "float64"): (double, by_forms),
        ("chunkwise", "float32"): (single, chunkwise(single)),
    }
    for dtype, operand in HALF.items():
        name = f"{str(dtype)[6:]} operands"
        result["chunkwise", name] = (dtype, chunkwise(single, operand))
        forms = chunkwise(single, operand, seven_products=True, decay_by_difference=True)
        result["chunkwise, K#2 in 7 products, dg by difference", name] = (dtype, forms)
    for dtype in (single, *HALF):
        result["kernels", f"{str(dtype)[6:]} operands"] = (dtype, kernels(dtype))
    if cute_dsl.is_installed():
        half = torch.float16
        result["kernels, backward native", "float16 operands"] = (half, kernels(half, natively))
    return result


def oracle(p: Problem) -> tuple[torch.Tensor, ...]:
    options = {"scale": p.scale, "initial_state": p.initial_state}
    gradients: Gradients = autograd_backward(*p.inputs, *p.cotangents, **options)
    return (*serial_forward(*p.inputs, **options), *gradients)


def use_virtual_gpu_without_gpu() -> None:
    if not torch.cuda.is_available():
        driver = VirtualDriver()
        driver.session.sanitize = False
        driver.activate()


@app.command()
def ladder(
    length: Annotated[int, typer.Option(help="Tokens.")] = 2048,
    key_dim: Annotated[int, typer.Option(help="K.")] = 128,
    value_dim: Annotated[int, typer.Option(help="V.")] = 64,
    only: Annotated[str, typer.Option(help="Only stages that contain this.")] = "",
) -> None:
    """Print the worst relative error of every stage against token-serial float64 autograd."""
    use_virtual_gpu_without_gpu()
    problem = draw_problem(length, key_dim, value_dim, strongest_decay=0.1)
    table = Table(
        "stage", "dtype", *NAMES, "worst gradient", title=f"{length=} {key_dim=} {value_dim=}"
    )
    truths: dict[torch.dtype, tuple[torch.Tensor, ...]] = {}
    for (stage, dtype), (inputs, run) in rungs().items():
        if only not in stage:
            continue
        print(f"{stage}, {dtype}", file=sys.stderr, flush=True)
        given = problem.to(inputs).to(torch.float64)
        if inputs not in truths:
            truths[inputs] = oracle(given)
        errors = [
            worst_relative_error(a, b) for a, b in zip(run(given), truths[inputs], strict=True)
        ]
        table.add_row(stage, dtype, *(f"{x:.0e}" for x in errors), f"{max(errors[2:]):.1e}")
    Console(width=200).print(table)


@app.command()
def members(
    native: Native = False,
    length: Annotated[int, typer.Option(help="Tokens.")] = 2048,
    key_dim: Annotated[int, typer.Option(help="K.")] = 128,
    value_dim: Annotated[int, typer.Option(help="V.")] = 64,
    only: Annotated[str, typer.Option(help="Only this member.")] = "",
) -> None:
    """Print every member's worst relative errors with float16 operands against the oracle."""
    use_virtual_gpu_without_gpu()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    columns = ("output", "final state", *(f"d{x}" for x in (*"qkvgbwβ", "initial state")))
    title = f"{length=} {key_dim=} {value_dim=} {native=}"
    table = Table("member", *columns, "worst gradient", title=title)
    for member in MEMBERS:
        if only not in ("", member):
            continue
        print(member, file=sys.stderr, flush=True)
        given = draw_member(member, length, key_dim, value_dim)
        found = kernel_results(given, device=device, backward=natively if native else in_triton)
        errors = {
            name: worst_relative_error(found[name], exact)
            for name, exact in true_results(given).items()
        }
        worst = max(error for name, error in errors.items() if name.startswith("d"))
        cells = (f"{errors[name]:.0e}" if name in errors else "" for name in columns)
        table.add_row(member, *cells, f"{worst:.1e}")
    Console(width=200).print(table)


GATES = {"LA": "", "GLA": "g", "SSD": "s", "KDA": "gβ", "GDN": "gbw"}
"""The gates of each member: g, b, w per channel; s, β one a head, β for b and w."""


class TinyMixer(torch.nn.Module):
    """Embedding, one layer of the family, and a read-out: what followed this token last time?

    Keys and erase gates are those of the token before, so that a state binds a token to what
    follows it; no layer of the family could answer otherwise.
    """

    def __init__(
        self,
        member: str,
        vocabulary: int = 16,
        heads: int = 2,
        width: int = 16,
        backward: Choice = in_triton,
    ) -> None:
        super().__init__()
        self.gates, self.heads, self.width = GATES[member], heads, width
        self.backward_choice = backward
        self.embedding = torch.nn.Embedding(vocabulary, heads * width)
        self.projection = torch.nn.Linear(heads * width, 6 * heads * width)
        self.readout = torch.nn.Linear(heads * width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[B, T] → logits [B, T, vocabulary]."""
        x = self.embedding(tokens)
        shape = (*tokens.shape, self.heads, self.width)
        q, k, v, g, b, w = (part.reshape(shape) for part in self.projection(x).chunk(6, dim=-1))
        k, b = (torch.nn.functional.pad(x, (0, 0, 0, 0, 1, -1)) for x in (k, b))
        q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
        g, b, w = torch.nn.functional.logsigmoid(4 + g), b.sigmoid(), w.sigmoid()
        beta = b[..., 0] if "β" in self.gates else None
        given = {
            "g": g if "g" in self.gates else g[..., 0] if "s" in self.gates else None,
            "b": b if "b" in self.gates else beta,
            "w": w if "w" in self.gates else beta,
        }
        half = (x.half() for x in (q, k, v))
        mixed, _ = gated_delta(*half, **given, backward=self.backward_choice)
        return self.readout(x + mixed.float().flatten(-2))


@app.command()
def train(
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 300,
    vocabulary: Annotated[int, typer.Option(help="Tokens; each sequence has each twice.")] = 40,
    native: Native = False,
    only: Annotated[str, typer.Option(help="Only this member.")] = "",
) -> None:
    """Train a tiny model with every member on recalling what followed a token, and print losses.

    A sequence is a permutation of the vocabulary, twice, in chunks of 64 tokens; guessing costs
    log(vocabulary).
    """
    use_virtual_gpu_without_gpu()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    backward = natively if native else in_triton
    table = Table("member", "first loss", "last loss", "all finite", title=f"{steps=} {native=}")
    for member in MEMBERS:
        if only not in ("", member):
            continue
        torch.manual_seed(0)
        model = TinyMixer(member, vocabulary, backward=backward).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses, finite = [], True
        for step in range(steps):
            half = torch.stack([torch.randperm(vocabulary) for _ in range(4)])
            tokens = torch.cat([half, half], 1).to(device)
            logits = model(tokens[:, :-1])[:, vocabulary:]
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), tokens[:, vocabulary + 1 :].flatten()
            )
            optimizer.zero_grad()
            loss.backward()
            gradients = [x.grad for x in model.parameters() if x.grad is not None]
            finite &= all(bool(x.isfinite().all()) for x in (loss, *gradients))
            optimizer.step()
            losses.append(loss.item())
            if step % 50 == 0:
                print(f"{member} step {step} loss {loss.item():.3f}", file=sys.stderr, flush=True)
        first, last = (sum(part) / len(part) for part in (losses[:20], losses[-20:]))
        table.add_row(member, f"{first:.3f}", f"{last:.3f}", str(finite))
    Console(width=120).print(table)


if __name__ == "__main__":
    app()
