"""The report: one page that needs nothing else, the same as Markdown, its pictures and numbers."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..env.prompt import CLAIMS
from ..gates.verdict import FLOOR_GATES
from .figures import draw
from .hand_audit import exhibit
from .rate import Rate
from .summary import Summary
from .tables import EXCLUDED_FROM_FLOOR

if TYPE_CHECKING:
    from jinja2 import Environment

PAGE, TEXT, NUMBERS = "report.html", "report.md", "tables.json"
_SIGNIFICANT = 3


def write_report(summary: Summary, folder: Path, title: str = "") -> None:
    """Write `report.html`, `report.md`, `tables.json` and the pictures into a folder.

    Args:
        summary: what to say.
        folder: where `sources/` of the run lies, if sources were kept.
        title: of the page; by default the corpus that `run.json` names.

    Raises:
        ImportError: matplotlib or jinja2 is not installed (`pip install lethe_env[report]`).
        OSError: the folder cannot be written.
    """
    pictures = draw(summary, folder)
    context = {
        "title": title or f"Audit of {summary.run.get('corpus', folder.resolve().name)}",
        "summary": summary,
        "pictures": {name: _data_address(folder / f"{name}.png") for name in pictures},
        "exhibits": [exhibit(row, folder) for row in summary.sample],
        "claims": CLAIMS,
        "floor_gates": FLOOR_GATES,
        "excluded": EXCLUDED_FROM_FLOOR,
    }
    (folder / NUMBERS).write_text(json.dumps(summary.to_json(), indent=2, allow_nan=False) + "\n")
    (folder / TEXT).write_text(_render(_markdown(), f"{TEXT}.j2", context), errors="replace")
    (folder / PAGE).write_text(_render(_html(), f"{PAGE}.j2", context), errors="replace")


def percent(rate: Rate) -> str:
    """`62.1 %`, or a dash of nothing."""
    return "–" if rate.share is None else f"{100 * rate.share:.1f} %"


def interval(rate: Rate) -> str:
    """`60.3–64.0`, in percent."""
    return f"{100 * rate.low:.1f}–{100 * rate.high:.1f}" if rate.of else "–"


def cell(text: object) -> str:
    """Text that stays within one cell of a Markdown table, and stays text."""
    flat = " ".join(str(text).split())
    return re.sub(r"([\\`*_\[\]|<>~])", r"\\\1", flat)


def factor(exponent: int) -> str:
    """`1/16`, `1` or `1,024` for −4, 0 and 10."""
    return f"1/{2**-exponent:,}" if exponent < 0 else f"{2**exponent:,}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, to three digits."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.{_SIGNIFICANT}g} {unit}"
    return f"{seconds:.{_SIGNIFICANT}g} s"


def _html() -> Environment:
    return _environment(autoescape=True)


def _markdown() -> Environment:
    return _environment(autoescape=False)


def _environment(*, autoescape: bool) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for tool in (percent, interval, cell, factor, duration):
        environment.filters[tool.__name__] = tool
    environment.filters["count"] = "{:,}".format
    return environment


def _render(environment: Environment, template: str, context: dict[str, Any]) -> str:
    return environment.get_template(template).render(context)


def _data_address(picture: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode()}"
