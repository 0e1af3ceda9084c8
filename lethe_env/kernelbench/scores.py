"""Scores: KernelBench's fast_p, geometric means and pass@k."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

FAST_P = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The thresholds that KernelBench's analysis prints."""


def fastp(
    is_correct: np.ndarray, baseline_speed: np.ndarray, actual_speed: np.ndarray, n: int, p: float
) -> float:
    """Share of `n` problems with a correct kernel more than `p` times as fast as the baseline.

    Args:
        is_correct: booleans, one a problem.
        baseline_speed: times of the baseline.
        actual_speed: times of the kernels, in the same unit.
        n: how many problems there are.
        p: threshold; faster means strictly above it.
    """
    ratios = _ratios(is_correct, baseline_speed, actual_speed)
    return float((ratios > p).sum()) / n if n > 0 else 0.0


def geometric_mean_speed_ratio_correct_only(
    is_correct: np.ndarray, baseline_speed: np.ndarray, actual_speed: np.ndarray, n: int
) -> float:
    """Geometric mean of baseline over kernel time, correct kernels only; 0 if there are none."""
    return geometric_mean(_ratios(is_correct, baseline_speed, actual_speed))


def geometric_mean_speed_ratio_correct_and_faster_only(
    is_correct: np.ndarray, baseline_speed: np.ndarray, actual_speed: np.ndarray, n: int
) -> float:
    """The same over those that are faster than the baseline."""
    ratios = _ratios(is_correct, baseline_speed, actual_speed)
    return geometric_mean(ratios[ratios > 1])


def geometric_mean(ratios: Sequence[float] | np.ndarray) -> float:
    """By logarithms, so that it neither overflows nor underflows; 0 of nothing."""
    values = np.asarray(ratios, dtype=np.float64)
    if not values.size or not (values > 0).all():
        return 0.0
    return float(np.exp(np.log(values).mean()))


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Chance that one of `k` of the samples, drawn without replacement, is correct.

    Raises:
        ValueError: `k` exceeds the samples.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} cannot be told from {samples} samples")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def pass_at_k_results(
    correct: Mapping[str, Sequence[bool]], k_values: Sequence[int]
) -> dict[str, Any]:
    """What KernelBench writes into `pass_at_k_results.json`.

    A `k` is left out of a problem that has fewer samples, and averages are over those that have it.

    Args:
        correct: problem to whether each of its samples is correct.
        k_values: which `k`.
    """
    problems: dict[str, dict[str, Any]] = {}
    for problem, samples in correct.items():
        total, right = len(samples), sum(samples)
        rates = {f"pass@{k}": pass_at_k(total, right, k) for k in k_values if k <= total}
        problems[problem] = {"total_samples": total, "correct_samples": right, **rates}
    metadata: dict[str, Any] = {
        "total_problems": len(problems),
        "problems_with_samples": sum(entry["total_samples"] > 0 for entry in problems.values()),
        "total_evaluated_samples": sum(entry["total_samples"] for entry in problems.values()),
        "total_correct_samples": sum(entry["correct_samples"] for entry in problems.values()),
    }
    averages = {}
    for k in k_values:
        known = [entry[f"pass@{k}"] for entry in problems.values() if f"pass@{k}" in entry]
        metadata[f"pass@{k}_count"] = len(known)
        averages[f"avg_pass@{k}"] = sum(known) / len(known) if known else 0.0
    return {"averages": averages, "metadata": metadata, "problems": problems}


def _ratios(is_correct: Any, baseline_speed: Any, actual_speed: Any) -> np.ndarray:
    chosen = np.asarray(is_correct, dtype=bool)
    return np.asarray(baseline_speed)[chosen] / np.asarray(actual_speed)[chosen]
