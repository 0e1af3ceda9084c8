"""The pictures of the report, on transparent ground, in ink for light and dark pages alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..gates.verdict import FLOOR_GATES
from .population import Step
from .rate import Rate
from .summary import Summary
from .sweep import SweepPoint
from .tables import ClassRate, GateRate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _FAINT = "#7a828e", "#7a828e55"
_VIOLATION, _FLOOR, _LEFT, _REMOVED = "#3f83b5", "#d0613f", "#3f83b5", "#7a828e66"
_GATE_COLORS = 10
_DPI = 160
_STYLE = {
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


def draw(summary: Summary, folder: Path) -> list[str]:
    """Draw every picture for which there is something to show.

    Returns:
        Their file names without ending, in the report's order.
    """
    from matplotlib import rc_context

    drawn = []
    with rc_context(_STYLE):
        for name, painter in _PAINTERS.items():
            figure = painter(summary)
            if figure is not None:
                figure.savefig(folder / f"{name}.png", dpi=_DPI, transparent=True)
                drawn.append(name)
    return drawn


def _waterfall(summary: Summary) -> Figure:
    steps: Sequence[Step] = summary.waterfall
    figure, axes = _canvas(len(steps))
    at = range(len(steps))
    axes.barh(at, [step.rows for step in steps], color=_LEFT, height=0.62)
    axes.barh(
        at,
        [step.removed for step in steps],
        left=[step.rows for step in steps],
        color=_REMOVED,
        height=0.62,
    )
    for place, step in enumerate(steps):
        text = f"{step.rows:,}" + (f"   −{step.removed:,}" if step.removed else "")
        axes.text(step.rows + step.removed, place, f"  {text}", va="center")
    axes.set_yticks(at, [step.name for step in steps])
    axes.set_xlim(0, 1.18 * max(1, steps[0].rows))
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.invert_yaxis()
    return figure


def _gates(summary: Summary) -> Figure | None:
    gates: Sequence[GateRate] = [gate for gate in summary.gates if gate.rate.of]
    if not gates:
        return None
    figure, axes = _canvas(len(gates))
    colors = [_FLOOR if gate.gate in FLOOR_GATES else _VIOLATION for gate in gates]
    for place, (gate, color) in enumerate(zip(gates, colors, strict=True)):
        _dot(axes, gate.rate, place, color)
    axes.set_yticks(range(len(gates)), [gate.gate for gate in gates])
    axes.invert_yaxis()
    _percent(axes, "failures, in % of the rows to which the gate applied")
    return figure


def _classes(summary: Summary) -> Figure | None:
    classes: Sequence[ClassRate] = summary.classes
    if not classes:
        return None
    figure, axes = _canvas(len(classes))
    for place, row in enumerate(classes):
        _dot(axes, row.violation, place - 0.14, _VIOLATION, "any violation" if not place else "")
        _dot(axes, row.floor, place + 0.14, _FLOOR, "tolerance-free floor" if not place else "")
    axes.set_yticks(
        range(len(classes)), [f"{row.op_class} ({row.violation.of:,})" for row in classes]
    )
    axes.invert_yaxis()
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=2)
    _percent(axes, "in % of the class's rows in the denominator")
    return figure


def _matrix(summary: Summary) -> Figure | None:
    gates = [gate.gate for gate in summary.gates if gate.rate.of]
    if not gates or not summary.classes:
        return None
    figure, axes = _canvas(len(summary.classes) + 1)
    nothing = float("nan")
    shares = [
        [_share(row.gates[gate]) if gate in row.gates else nothing for gate in gates]
        for row in summary.classes
    ]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for y, row in enumerate(shares):
        for x, value in enumerate(row):
            if value == value:
                ink = "white" if value > 0.55 else "#222831"
                axes.text(x, y, f"{100 * value:.0f}", ha="center", va="center", color=ink)
    axes.set_yticks(range(len(shares)), [row.op_class for row in summary.classes])
    axes.set_xticks(range(len(gates)), gates, rotation=35, ha="right")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def _sensitivity(summary: Summary) -> Figure | None:
    if len(summary.classes) < 2:
        return None
    figure, axes = _canvas(len(summary.classes))
    for place, row in enumerate(summary.classes):
        _dot(axes, row.violation_without, place, _VIOLATION)
        _dot(axes, row.floor_without, place, _FLOOR)
    headline = summary.headline
    for rate, color in ((headline.violation, _VIOLATION), (headline.floor, _FLOOR)):
        axes.axvline(100 * _share(rate), color=color, linewidth=0.8, linestyle=":")
    axes.set_yticks(
        range(len(summary.classes)), [f"without {row.op_class}" for row in summary.classes]
    )
    axes.invert_yaxis()
    _percent(axes, "in % of the remaining rows; dotted: of all")
    return figure


def _sweep(summary: Summary) -> Figure | None:
    points: Sequence[SweepPoint] = summary.sweep
    if not points:
        return None
    from matplotlib import colormaps

    figure, axes = _canvas(8)
    at = [point.exponent for point in points]
    palette = colormaps["tab10"]
    for place, gate in enumerate(points[0].gates):
        shares = [100 * _share(point.gates[gate]) for point in points]
        axes.plot(at, shares, linewidth=0.9, color=palette(place % _GATE_COLORS), label=gate)
    shares = [100 * _share(point.violation) for point in points]
    axes.plot(at, shares, linewidth=2.4, color=_VIOLATION, label="any violation")
    for label, rate, style in (
        ("at every factor", summary.immovable, ":"),
        ("tolerance-free floor", summary.headline.floor, "--"),
    ):
        axes.axhline(100 * _share(rate), color=_FLOOR, linestyle=style, label=label)
    axes.axvline(0, color=_FAINT, linewidth=0.8)
    axes.set(xlabel="bounds multiplied by 2^k, k =", ylabel="% rejected", ylim=(0, None))
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


_PAINTERS: dict[str, Callable[[Summary], Figure | None]] = {
    "waterfall": _waterfall,
    "gates": _gates,
    "classes": _classes,
    "matrix": _matrix,
    "sensitivity": _sensitivity,
    "sweep": _sweep,
}


def _canvas(lines: int) -> tuple[Figure, Axes]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 0.9 + 0.34 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _dot(axes: Axes, rate: Rate, at: float, color: str, label: str = "") -> None:
    axes.plot([100 * rate.low, 100 * rate.high], [at, at], color=color, linewidth=1.6, alpha=0.6)
    axes.plot([100 * _share(rate)], [at], "o", color=color, markersize=4.5, label=label or None)


def _percent(axes: Axes, label: str) -> None:
    axes.set_xlim(0, max(5.0, axes.get_xlim()[1]))
    axes.grid(axis="x", color=_FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"{label}; the lines are 95 % intervals")


def _share(rate: Rate) -> float:
    return float("nan") if rate.share is None else rate.share
