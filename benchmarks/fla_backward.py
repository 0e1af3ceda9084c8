"""The backward of flash-linear-attention beside ours, in modelled time on the virtual GPU.

    pip install flash-linear-attention
    python benchmarks/fla_backward.py --tokens 512 2048

Every kernel is priced by what it does: its bytes, its products and its instructions
(`docs/virtual_gpu.md`, "Modelled time"). It is no measurement, and waiting is not in it. Where the
library tunes, the configuration is taken that is the fastest for all heads together. Of KDA it
is asked to keep what it would compute a second time to save memory; its other members compute
states again in the backward.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))  # PYTHONSAFEPATH leaves it out

import torch
from blackwell import TARGET, operations_us, scaled
from rich.console import Console
from rich.table import Table
from torch import Tensor

from lethe_env.kernels.gated_delta import gated_delta
from lethe_env.kernels.gated_delta.backward_pass import Backward, in_triton
from lethe_env.kernels.gated_delta.blackwell import natively
from lethe_env.kernels.gated_delta.blackwell.compilation import KEYS, VALUES
from lethe_env.kernels.gated_delta.member_problem import MemberProblem, draw_member, true_results
from lethe_env.kernels.gated_delta.problem import worst_relative_error
from lethe_env.kernels.gated_delta.setting import Setting
from lethe_env.vgpu.driver import VirtualDriver
from lethe_env.vgpu.operations import OperationLog
from lethe_env.vgpu.session import Session
from lethe_env.vgpu.timing import model

ARCHITECTURE = 100


@dataclass(frozen=True)
class Price:
    """Of one backward."""

    kernels_us: float
    kernels: int
    operations_us: float
    """Of torch operations between the kernels."""
    operations: int
    worst_error: float
    """Of a gradient, over the largest element of the truth."""

    @property
    def total_us(self) -> float:
        """Of everything."""
        return self.kernels_us + self.operations_us


@dataclass(frozen=True)
class Row:
    """The same backward three times."""

    member: str
    tokens: int
    values: int
    library: Price
    """flash-linear-attention."""
    triton: Price
    native: Price

    @property
    def ratio(self) -> float:
        """Native over the library's."""
        return self.native.total_us / self.library.total_us


Arguments = dict[str, Tensor]
"""q, k, v, gates and initial state by name."""
Call = Callable[[Arguments], tuple[Tensor, Tensor]]
"""Gives outputs and final states."""


def scale(x: Arguments) -> float:
    """Of the queries, as problems are drawn with."""
    return x["k"].shape[-1] ** -0.5


def ours(choose: Callable[[Setting], Backward]) -> Call:
    """The public function here, with one of its backwards."""

    def call(x: Arguments) -> tuple[Tensor, Tensor]:
        gates = x.get("g"), x.get("b", x.get("β")), x.get("w", x.get("β"))
        tokens = x["q"], x["k"], x["v"]
        return gated_delta(*tokens, *gates, initial_state=x["initial state"], backward=choose)

    return call


def _linear(x: Arguments) -> tuple[Tensor, Tensor]:
    from fla.ops.linear_attn import chunk_linear_attn

    return chunk_linear_attn(
        x["q"],
        x["k"],
        x["v"],
        scale(x),
        x["initial state"],
        output_final_state=True,
        normalize=False,
    )


def _gated(x: Arguments) -> tuple[Tensor, Tensor]:
    from fla.ops.gla import chunk_gla

    return _called(chunk_gla, x, "qkvg")


def _dual(x: Arguments) -> tuple[Tensor, Tensor]:
    from fla.ops.simple_gla import chunk_simple_gla

    return _called(chunk_simple_gla, x, "qkvg")


def _delta(x: Arguments) -> tuple[Tensor, Tensor]:
    from fla.ops.kda import chunk_kda

    return _called(chunk_kda, x, "qkvgβ", disable_recompute=True)


def _called(
    function: Callable[..., tuple[Tensor, Tensor]], x: Arguments, names: str, **options: bool
) -> tuple[Tensor, Tensor]:
    """Call a function that takes tokens and gates in order."""
    return function(
        *(x[name] for name in names),
        scale=scale(x),
        initial_state=x["initial state"],
        output_final_state=True,
        **options,
    )


LIBRARY: dict[str, Call] = {
    "LA": _linear,
    "GLA": _gated,
    "SSD": _dual,
    "KDA": _delta,
}
"""Members that the library has, and how it is called; it has no GDN with gates by channel."""


@contextlib.contextmanager
def seen_as_gpu() -> Iterator[None]:
    """Answer what the library asks torch about its GPU when it is imported and called."""
    answers = {
        "get_device_name": lambda *_: f"NVIDIA {TARGET.name}",
        "get_device_capability": lambda *_: (ARCHITECTURE // 10, 0),
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "device": lambda _: contextlib.nullcontext(),
    }
    with mock.patch.multiple(torch.cuda, **answers):
        yield


def check_library() -> None:
    """See that it is there.

    Raises:
        SystemExit: it is not.
    """
    if importlib.util.find_spec("fla") is None:
        raise SystemExit(
            "flash-linear-attention is not installed; pip install flash-linear-attention"
        )


def price(call: Call, given: MemberProblem, session: Session, heads: int) -> Price:
    """What the backward of a call costs, for so many heads that do the same side by side.

    It runs twice, as a library tunes when it runs first. A kernel of the second run costs as much
    as the fastest of that name in the first.
    """
    leaves = {
        name: x.to(torch.float16 if name in "qkv" else torch.float32).requires_grad_()
        for name, x in given.inputs.items()
    }
    results = call(leaves)
    wanted = [x.to(y) for x, y in zip(given.problem.cotangents, results, strict=True)]

    def backward() -> tuple[Tensor, ...]:
        return torch.autograd.grad(results, list(leaves.values()), wanted, retain_graph=True)

    session.counts.clear()
    backward()
    fastest: dict[str, float] = {}
    for name, counts in session.counts:
        kernel_us = model(scaled(counts, heads), TARGET).total_us
        fastest[name] = min(kernel_us, fastest.get(name, kernel_us))
    session.counts.clear()
    with OperationLog() as log:
        found = backward()
    truth = true_results(given)
    gradients = zip(leaves, found, strict=True)
    return Price(
        kernels_us=sum(fastest[name] for name, _ in session.counts),
        kernels=len(session.counts),
        operations_us=operations_us(log.operations, heads),
        operations=len(log.operations),
        worst_error=max(worst_relative_error(x, truth[f"d{name}"]) for name, x in gradients),
    )


def rows(members: Sequence[str], lengths: Sequence[int], heads: int) -> Iterator[Row]:
    """One row for each member, length and width of values."""
    session = Session(sanitize=False)
    VirtualDriver(session, architecture=ARCHITECTURE).activate()
    for member, tokens, values in itertools.product(members, lengths, VALUES):
        given = draw_member(member, tokens, KEYS, values)
        prices = {}
        calls = {"library": LIBRARY[member], "triton": ours(in_triton), "native": ours(natively)}
        for name, call in calls.items():
            print(f"{member}, {tokens} tokens, V = {values}: {name}", file=sys.stderr)
            prices[name] = price(call, given, session, heads)
        yield Row(member, tokens, values, **prices)


def table(found: Iterable[Row]) -> Table:
    """As people read it."""
    titles = (
        "member",
        "tokens",
        "V",
        "fla",
        "Triton here",
        "native",
        "native / fla",
        "fla's error",
    )
    result = Table(*titles, "native error", box=None)
    for row in found:
        sides = (row.library, row.triton, row.native)
        result.add_row(
            row.member,
            *(str(number) for number in (row.tokens, row.values)),
            *(f"{side.total_us:.0f}" for side in sides),
            f"{row.ratio:.2f}",
            *(f"{side.worst_error:.1e}" for side in (row.library, row.native)),
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", nargs="+", choices=LIBRARY, default=list(LIBRARY))
    parser.add_argument("--tokens", nargs="+", type=int, default=[512, 2048])
    parser.add_argument("--heads", type=int, default=128, help="that the model prices; one is run")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with seen_as_gpu():
        check_library()
        found = list(rows(arguments.members, arguments.tokens, arguments.heads))
    if arguments.json:
        print(json.dumps([asdict(row) | {"ratio": row.ratio} for row in found]))
        return
    Console().print(table(found))


if __name__ == "__main__":
    main()
