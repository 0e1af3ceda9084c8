"""The evaluation as a figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .scores import Evaluation

_CONTRACT, _ALLCLOSE, _REST = "#1b6ca8", "#d98032", "#d9d9d9"


def evaluation_figure(evaluation: Evaluation) -> Figure:
    """Acceptance by both graders and pass@k, pass rates per gate, pass rates per op class.

    False accepts are a share of what allclose accepts.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a plot needs `pip install lethe_env[report]`") from error
    figure = Figure(figsize=(13, 4.5), layout="constrained")
    overall, gates, classes = figure.subplots(1, 3)
    summary = evaluation.summary()
    bars = {
        "allclose accepts": summary["allclose_rate"],
        "contract accepts": summary["pass_rate"],
        "allclose accepts and\nthe contract rejects": summary["false_accept_rate"],
        **{f"pass@{k}": value for k, value in summary["pass_at"].items()},
        **{f"faster than {p}×": value for p, value in summary["fast"].items()},
    }
    kinds = ", ".join(summary["speed_kinds"])
    left_out = f", {summary['infra']} not judged" if summary["infra"] else ""
    title = f"{summary['samples']} samples, {summary['tasks']} tasks{left_out}"
    _bars(overall, bars, f"{title}{f' (speed {kinds})' if kinds else ''}")
    _bars(gates, summary["gate_pass_rates"], "passed, by gate")
    _bars(classes, summary["op_class_pass_rates"], "accepted by the contract, by class")
    return figure


def _bars(axes: Axes, rates: Mapping[str, float | None], title: str) -> None:
    names = list(rates)
    places = range(len(names))
    colours = [_ALLCLOSE if "allclose" in name else _CONTRACT for name in names]
    axes.barh(places, [1.0] * len(names), color=_REST, height=0.7)
    axes.barh(places, [rates[name] or 0.0 for name in names], color=colours, height=0.7)
    for place, name in zip(places, names, strict=True):
        rate = rates[name]
        label = "not asked" if rate is None else f"{100 * rate:.0f} %"
        colour = "white" if rate is not None and rate > 0.9 else "black"
        axes.text(0.98, place, label, ha="right", va="center", fontsize=8, color=colour)
    axes.set_yticks(places, names, fontsize=8)
    axes.set_xlim(0, 1)
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.set_title(title, fontsize=10)
    for side in axes.spines.values():
        side.set_visible(False)
