"""Everything that a report says, as one value: the tables, the sample and how the run was made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from .agreement import Agreement, agreement
from .journal import FILE_NAME, Unread, read_outcomes
from .population import Population, Step
from .rate import CONFIDENCE, Rate
from .row import Outcome
from .sample import SAMPLE_SIZE, Sampled, Strata
from .sweep import SweepPoint, immovable, sweep
from .tables import (
    ChannelRate,
    ClassRate,
    Contingency,
    GateRate,
    Headline,
    class_table,
    contingencies,
    floor_table,
    gate_table,
    headline,
)

RUN_FILE = "run.json"
"""How the run was made: one flat JSON object, name to value, shown as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The content of one report."""

    run: Mapping[str, str]
    unread: tuple[Unread, ...]
    """Lines of the journal that could not be used."""
    elapsed_s: float
    """Wall time of all rows together, seconds."""
    judged: int
    waterfall: tuple[Step, ...]
    headline: Headline
    floor: tuple[ChannelRate, ...]
    gates: tuple[GateRate, ...]
    classes: tuple[ClassRate, ...]
    contingencies: tuple[Contingency, ...]
    sweep: tuple[SweepPoint, ...]
    immovable: Rate
    """Rows that the contract rejects under every tolerance."""
    agreement: Agreement | None
    sample: tuple[Sampled, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping: every number of the report, without the sample's texts."""
        data: dict[str, Any] = {
            field.name: _plain(getattr(self, field.name))
            for field in fields(self)
            if field.name != "sample"
        }
        data["confidence"] = CONFIDENCE
        data["sample"] = [
            {"id": row.outcome.id, "stratum": list(row.stratum), "stratum_rows": row.stratum_rows}
            for row in self.sample
        ]
        return data


def summarise(folder: Path, *, seed: int = 0, sample_size: int = SAMPLE_SIZE) -> Summary:
    """Read the journal of a folder once and compute everything.

    Args:
        folder: holds `rows.jsonl` and perhaps `run.json`.
        seed: of the sample.
        sample_size: rows for a person to judge.

    Raises:
        OSError: there is no journal, or it cannot be read.
    """
    unread: list[Unread] = []
    strata = Strata(seed)
    elapsed_s = 0.0

    def noted(outcome: Outcome) -> Outcome:
        nonlocal elapsed_s
        elapsed_s += outcome.elapsed_s
        strata.offer(outcome)
        return outcome

    outcomes = map(noted, read_outcomes(folder / FILE_NAME, unread.append))
    population = Population(outcomes)
    return Summary(
        run=_run(folder / RUN_FILE),
        unread=tuple(unread),
        elapsed_s=elapsed_s,
        judged=len(population.denominator),
        waterfall=tuple(population.waterfall()),
        headline=headline(population),
        floor=tuple(floor_table(population)),
        gates=tuple(gate_table(population)),
        classes=tuple(class_table(population)),
        contingencies=tuple(contingencies(population)),
        sweep=tuple(sweep(population)),
        immovable=immovable(population),
        agreement=agreement(population),
        sample=tuple(strata.sample(sample_size)),
    )


def _run(path: Path) -> dict[str, str]:
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        return {"run": f"{path.name} cannot be read: {error}"}
    if not isinstance(data, dict):
        return {"run": f"{path.name} is not a JSON object"}
    return {
        str(name): value if isinstance(value, str) else json.dumps(value)
        for name, value in data.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Rate):
        return value.to_json()
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
