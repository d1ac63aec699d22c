"""Honest numbers: intervals for success rates, over episodes, over seeds, and over seeds and tasks together.

The scores of an architecture are an array (S, T): the success rates of its S seeds on T tasks. Means over tasks follow
Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice", but for one thing: here one
trained policy plays all tasks, and is good or bad at several of them together. Bootstraps therefore draw seeds, each
with all its tasks, and every architecture's by themselves; drawn for each task anew, intervals would be too narrow.
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


def interquartile_mean(scores: Array, rng: np.random.Generator) -> Rate:
    """The mean of the middle half of all scores, whichever task they are of, with its 95 % bootstrap interval."""
    return _with_interval(_middle_mean(scores), _middle_mean(_resample(scores, rng)), len(scores))


def probability_of_improvement(ours: Array, theirs: Array, rng: np.random.Generator) -> Rate:
    """How often a seed of ours beats one of theirs (a tie counts half), averaged over tasks, with its interval."""
    resampled = _wins(_resample(ours, rng), _resample(theirs, rng))
    return _with_interval(_wins(ours, theirs), resampled, min(len(ours), len(theirs)))


def _resample(scores: Array, rng: np.random.Generator) -> Array:
    """As many seeds as there are, drawn with replacement, again and again: (S, T) to (RESAMPLES, S, T)."""
    return scores[rng.integers(len(scores), size=(RESAMPLES, len(scores)))]


def _middle_mean(scores: Array) -> Array:
    """(..., S, T) to (...), without the lowest and the highest quarter, rounded down."""
    ranked = np.sort(scores.reshape(*scores.shape[:-2], -1), -1)
    cut = ranked.shape[-1] // 4
    return ranked[..., cut : ranked.shape[-1] - cut].mean(-1)


def _wins(ours: Array, theirs: Array) -> Array:
    """The share of pairs in which ours is higher: (..., S, T) and (..., R, T) to (...)."""
    lead = ours[..., :, None, :] - theirs[..., None, :, :]  # (..., S, R, T)
    return ((lead > 0) + 0.5 * (lead == 0)).mean((-3, -2, -1))


def _with_interval(value: Array, resampled: Array, seeds: int) -> Rate:
    """95 % of the resampled values; with a single seed they cannot vary: NaN."""
    if seeds < 2:
        return Rate(float(value), nan, nan)
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Rate(float(value), float(low), float(high))
