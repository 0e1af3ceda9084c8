"""A share with its uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.95
"""Coverage of every interval of the report."""
_QUANTILE = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True, slots=True)
class Rate:
    """How many of how many."""

    hits: int
    of: int

    @property
    def share(self) -> float | None:
        """The observed share; `None` of nothing."""
        return self.hits / self.of if self.of else None

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self._interval()[0]

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self._interval()[1]

    def _interval(self) -> tuple[float, float]:
        """Wilson's score interval (Wilson 1927): the shares p that a score test would not reject.

        It is the solution of |p̂ − p| ≤ z √(p(1 − p)/n), so it stays within [0, 1] and is right for
        shares near the ends and for few rows, where p̂ ± z √(p̂(1 − p̂)/n) is not.
        """
        if not self.of:
            return 0.0, 1.0
        n, z = self.of, _QUANTILE
        share = self.hits / n
        centre = share + z * z / (2 * n)
        reach = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        scale = 1 + z * z / n
        low = 0.0 if self.hits == 0 else (centre - reach) / scale
        high = 1.0 if self.hits == n else (centre + reach) / scale
        return low, high

    def to_json(self) -> dict[str, float | int | None]:
        """A JSON-ready mapping."""
        return {
            "hits": self.hits,
            "of": self.of,
            "share": self.share,
            "low": self.low,
            "high": self.high,
        }
