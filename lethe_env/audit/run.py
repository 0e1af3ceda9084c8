"""A run: the rows of a corpus, one after the other, until all are done or someone stops it."""

from __future__ import annotations

import hashlib
import heapq
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from . import outcomes
from .bench import Bench
from .corpora import Item, Unusable
from .judge import Judged
from .ledger import Ledger
from .row import Outcome, Recorded, Row, Stage, digest

WAIT_SECONDS = 0.5
"""How often a run that waits looks whether it is to stop."""

Report = Callable[[Outcome], None]
"""Called after each outcome that was kept."""


class Stop:
    """Asked once, a run finishes what is under way and ends; asked twice, it drops that too."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self._asked = threading.Event()
        self._again = threading.Event()

    @property
    def asked(self) -> bool:
        """Whether no new row is to be taken."""
        return self._asked.is_set()

    @property
    def at_once(self) -> bool:
        """Whether rows that are under way are to be dropped."""
        return self._again.is_set()

    def ask(self) -> None:
        """Ask once more."""
        (self._again if self.asked else self._asked).set()


@contextmanager
def stopped_by_signals(stop: Stop, say: Callable[[str], None]) -> Iterator[None]:
    """Have Ctrl-C and a polite kill stop a run, once to finish what runs, twice at once."""

    def ask(number: int, frame: FrameType | None) -> None:
        stop.ask()
        say(
            "stopping at once; the rows under way are judged when the run continues"
            if stop.at_once
            else "finishing the rows under way; once more stops at once"
        )

    before = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which rows of a corpus a run is about."""

    sample: int | None = None
    """So many rows drawn at random; all of them otherwise. They are held in memory, and judged in
    the order of their draw, so that what is done at any time is a random sample by itself, and a
    larger sample contains a smaller one."""
    seed: int = 0
    accepted_only: bool = False
    """Whether rows that the source system rejected are left out."""

    def items(self, corpus: Iterable[Item]) -> Iterator[Item]:
        """The items to work on, every id once."""
        named = unique(corpus)
        if self.sample is None:
            return named
        return iter(heapq.nsmallest(self.sample, named, key=self._rank))

    def _rank(self, item: Item) -> str:
        return hashlib.sha256(f"{self.seed}\n{item.id}".encode(errors="replace")).hexdigest()


def unique(corpus: Iterable[Item]) -> Iterator[Item]:
    """The items of a corpus; one whose id was there before is unusable, under an id of its own."""
    seen: set[str] = set()
    for item in corpus:
        identity, times = item.id, 1
        while (key := digest(identity)) in seen:
            times += 1
            identity = f"{item.id} (time {times})"
        seen.add(key)
        if times > 1:
            reason = f"the id is taken: {item.id!r} was there before"
            yield Unusable(identity, reason, item.origin)
        else:
            yield item


def run(
    items: Iterable[Item], bench: Bench, ledger: Ledger, plan: Plan, stop: Stop, report: Report
) -> bool:
    """Work on every item that the ledger does not hold.

    At most `bench.capacity` rows are under way, so the corpus is read no faster than it is judged.

    Args:
        items: what the plan chose.
        bench: judges; closed by the caller.
        ledger: keeps outcomes.
        plan: which rows are left out.
        stop: ends the run early.
        report: called after each outcome.

    Returns:
        Whether every item is done.

    Raises:
        OSError: an outcome could not be kept.
        CorpusError: the corpus cannot be read on. What was under way is kept first.
    """
    under_way = 0
    waiting = _remaining(items, ledger, plan)

    def keep(judged: Judged) -> None:
        ledger.add(judged)
        report(judged.outcome)

    try:
        while not stop.asked:
            while under_way >= bench.capacity and not stop.asked:
                under_way -= _collect(bench, keep)
            entry = None if stop.asked else next(waiting, None)
            if entry is None:
                break
            if isinstance(entry, Outcome):
                keep(Judged(entry))
            else:
                bench.put(entry)
                under_way += 1
    except OSError:
        under_way = 0  # nothing can be kept any more
        raise
    finally:
        while under_way and not stop.at_once:
            under_way -= _collect(bench, keep)
    return not stop.asked


def _collect(bench: Bench, keep: Callable[[Judged], None]) -> int:
    judged = bench.get(WAIT_SECONDS)
    if judged is None:
        return 0
    keep(judged)
    return 1


def _remaining(items: Iterable[Item], ledger: Ledger, plan: Plan) -> Iterator[Row | Outcome]:
    """Rows to judge, and outcomes of items that need no judge."""
    for item in items:
        if item.id in ledger:
            continue
        if isinstance(item, Unusable):
            yield outcomes.skipped(item)
        elif plan.accepted_only and item.recorded_verdict is Recorded.REJECTED:
            reason = "the source system rejected it"
            yield outcomes.undecided(item, Stage.NOT_ACCEPTED, reason)
        else:
            yield item
