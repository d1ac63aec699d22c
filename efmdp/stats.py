"""Honest numbers: intervals for success rates, over episodes, over seeds, and over seeds and tasks together.

The scores of an architecture on several tasks are a list with one array a task: the success rates of its seeds there.
Means over tasks follow Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice":
bootstraps draw seeds within each task, for it is the seeds that are a sample, not the tasks.
"""

from collections.abc import Sequence
from math import isnan, nan, sqrt
from typing import NamedTuple

import numpy as np

from efmdp.entities import Array

Z95 = 1.959964  # half-width of a 95 % interval in standard deviations
# The same where the standard deviation is estimated, for 1, 2, .. 10 degrees of freedom (Student's t)
T95 = (12.7062, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.30600, 2.26216, 2.22814)
RESAMPLES = 5000


class Rate(NamedTuple):
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        interval = "" if isnan(self.low) else f" ({100 * self.low:.1f} to {100 * self.high:.1f})"
        return f"{100 * self.value:.1f} %{interval}"


def success_rate(successes: int, episodes: int) -> Rate:
    """A rate with its 95 % Wilson interval, which holds for few episodes and rates near 0 and 1.

    >>> str(success_rate(95, 100))
    '95.0 % (88.8 to 97.8)'
    """
    rate = successes / episodes
    spread = Z95**2 / episodes
    centre = (rate + spread / 2) / (1 + spread)
    half = sqrt(spread * (rate * (1 - rate) + spread / 4)) / (1 + spread)
    return Rate(rate, max(0.0, centre - half), min(1.0, centre + half))


def mean_over_seeds(rates: Sequence[float] | Array) -> Rate:
    """The mean over seeds with its 95 % interval (Student's t, not cut at 0 and 1); a single seed has none: NaN.

    >>> str(mean_over_seeds([0.8, 0.9, 1.0]))
    '90.0 % (65.2 to 114.8)'
    """
    mean, seeds = float(np.mean(rates)), len(rates)
    if seeds < 2:
        return Rate(mean, nan, nan)
    half = t95(seeds - 1) * float(np.std(rates, ddof=1)) / sqrt(seeds)
    return Rate(mean, mean - half, mean + half)


def t95(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: a table, then its expansion around the normal one, right to 0.0002."""
    if freedom <= len(T95):
        return T95[freedom - 1]
    z, v = Z95, freedom
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / v + second / v**2 + third / v**3


def interquartile_mean(scores: Sequence[Array], rng: np.random.Generator) -> Rate:
    """The mean of the middle half of all scores, whichever task they are of, with its 95 % bootstrap interval."""
    resampled = np.concatenate([_resample(rates, rng) for rates in scores], -1)
    return _with_interval(_middle_mean(np.concatenate(scores)), _middle_mean(resampled), scores)


def probability_of_improvement(ours: Sequence[Array], theirs: Sequence[Array], rng: np.random.Generator) -> Rate:
    """How often a seed of ours beats one of theirs (a tie counts half), averaged over tasks, with its interval."""
    pairs = list(zip(ours, theirs, strict=True))
    value = np.mean([_wins(a, b) for a, b in pairs])
    resampled = np.mean([_wins(_resample(a, rng), _resample(b, rng)) for a, b in pairs], axis=0)
    return _with_interval(value, resampled, [*ours, *theirs])


def _resample(rates: Array, rng: np.random.Generator) -> Array:
    """As many seeds as there are, drawn with replacement, again and again: (S,) to (RESAMPLES, S)."""
    return np.asarray(rates)[rng.integers(len(rates), size=(RESAMPLES, len(rates)))]


def _middle_mean(scores: Array) -> Array:
    """(..., K) to (...), without the lowest and the highest quarter, rounded down."""
    cut = scores.shape[-1] // 4
    return np.sort(scores, -1)[..., cut : scores.shape[-1] - cut].mean(-1)


def _wins(ours: Array, theirs: Array) -> Array:
    """The share of pairs in which ours is higher: (..., S) and (..., R) to (...)."""
    lead = np.asarray(ours)[..., :, None] - np.asarray(theirs)[..., None, :]  # (..., S, R)
    return ((lead > 0) + 0.5 * (lead == 0)).mean((-2, -1))


def _with_interval(value: Array, resampled: Array, scores: Sequence[Array]) -> Rate:
    """95 % of the resampled values; with a single seed on some task they cannot vary as they should: NaN."""
    if min(len(rates) for rates in scores) < 2:
        return Rate(float(value), nan, nan)
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Rate(float(value), float(low), float(high))
