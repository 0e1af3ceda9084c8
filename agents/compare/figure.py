"""The picture: what both graders accept while each policy learns, and what is broken at the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .tables import Results, broken_gates, curve, samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ALLCLOSE, _CONTRACT, _UNTRAINED = "#c8553d", "#2a6f97", "#9a9a9a"
GATES_SHOWN = 12


def draw(results: Results, path: Path) -> None:
    """Draw the picture into a file, whose ending settles its format."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 3, width_ratios=(1, 1, 1.2))
    _curves(axes[0], results, "allclose", "trained on allclose")
    _curves(axes[1], results, "contract", "trained on the contract")
    _gates(axes[2], results)
    figure.savefig(path, dpi=150)


def _curves(axes: Axes, results: Results, arm: str, title: str) -> None:
    points = curve(results, arm)
    steps = range(1, len(points) + 1)
    allclose = [point.allclose for point in points]
    contract = [point.contract for point in points]
    axes.plot(steps, allclose, color=_ALLCLOSE, label="allclose accepts")
    axes.plot(steps, contract, color=_CONTRACT, label="the contract accepts")
    axes.fill_between(steps, contract, allclose, color=_ALLCLOSE, alpha=0.12, linewidth=0)
    axes.set(title=title, xlabel="step", ylabel="share of completions", ylim=(-0.02, 1.02))
    axes.legend(loc="center right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _gates(axes: Axes, results: Results) -> None:
    policies = (
        ("untrained", "before training", _UNTRAINED),
        ("allclose", "trained on allclose", _ALLCLOSE),
        ("contract", "trained on the contract", _CONTRACT),
    )
    broken = {name: broken_gates(samples(results, name)) for name, _, _ in policies}
    worst: dict[str, float] = {}
    for shares in broken.values():
        for gate, share in shares.items():
            worst[gate] = max(worst.get(gate, 0.0), share)
    gates = sorted(sorted(worst, key=worst.__getitem__)[-GATES_SHOWN:], reverse=True)
    height = 0.27
    for place, (name, label, color) in enumerate(policies):
        at = [index + (1 - place) * height for index in range(len(gates))]
        shares = [broken[name].get(gate, 0.0) for gate in gates]
        axes.barh(at, shares, height=height, color=color, label=label)
    axes.set_yticks(range(len(gates)), gates)
    axes.set(
        title="what is wrong with the kernels that allclose accepts",
        xlabel="share rejected by the gate",
        xlim=(0, 1),
    )
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
