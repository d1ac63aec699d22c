"""Honest numbers: intervals for success rates."""

from math import sqrt
from typing import NamedTuple

Z95 = 1.959964  # half-width of a 95 % interval in standard deviations


class Rate(NamedTuple):
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"


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
