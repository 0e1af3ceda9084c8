"""The picture: what both graders accept while each policy learns, and what is broken at the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .tables import Results, broken_gates, curve, samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ALLCLOSE, _CONTRACT, _UNTRAINED = "#c8553d", "#2a6f97", "#9a9a9a"
_LEGEND = {"ncols": 3, "frameon": False, "handlelength": 1.2, "columnspacing": 1.2}
GATES_SHOWN = 12


def draw(results: Results, path: Path) -> None:
    """Draw the picture into a file, whose ending settles its format."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subfigures(1, 2, width_ratios=(1.4, 1))
    axes = left.subplots(1, 2, sharey=True)
    _curves(axes[0], results, "allclose", "trained on allclose")
    _curves(axes[1], results, "contract", "trained on the contract")
    axes[0].set_ylabel("share of completions accepted")
    left.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", **_LEGEND)
    bars = right.subplots()
    _gates(bars, results)
    right.legend(*bars.get_legend_handles_labels(), loc="outside lower center", **_LEGEND)
    figure.savefig(path, dpi=110)


def _curves(axes: Axes, results: Results, arm: str, title: str) -> None:
    points = curve(results, arm)
    steps = range(1, len(points) + 1)
    allclose = [point.allclose for point in points]
    contract = [point.contract for point in points]
    axes.plot(steps, allclose, color=_ALLCLOSE, label="by allclose")
    axes.plot(steps, contract, color=_CONTRACT, label="by the contract")
    axes.fill_between(steps, contract, allclose, color=_ALLCLOSE, alpha=0.12, linewidth=0)
    axes.set(title=title, xlabel="step", ylim=(-0.02, 1.02))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.spines[["top", "right"]].set_visible(False)


def _gates(axes: Axes, results: Results) -> None:
    policies = (
        ("untrained", "untrained", _UNTRAINED),
        ("allclose", "trained on allclose", _ALLCLOSE),
        ("contract", "trained on contract", _CONTRACT),
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
        title="kernels that allclose accepts",
        xlabel="share rejected by gate or channel",
        xlim=(0, 1),
    )
    axes.spines[["top", "right"]].set_visible(False)
