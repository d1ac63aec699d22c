"""Hindsight experience replay: which transitions to learn from, and which goals to pretend they were after."""

from typing import NamedTuple

import numpy as np

from efmdp.entities import Array


class Draw(NamedTuple):
    """For each of B transitions: its time, a later time whose achieved goal may replace its goal, and whether it does.

    In an episode of length 5 (observations 0..5), time 3 has its next observation at 4, so `future` is 4 or 5.
    """

    time: Array  # (B,)
    future: Array  # (B,) in time + 1 .. length
    relabelled: Array  # (B,) bool


def draw_transitions(lengths: Array, relabel_prob: float, rng: np.random.Generator) -> Draw:
    """Draw a uniform time in each of B episodes of these lengths (B,), and a uniform `future` one after it."""
    when, later, coin = rng.random((3, len(lengths)))
    time = (when * lengths).astype(np.int64)
    future = time + 1 + (later * (lengths - time)).astype(np.int64)
    return Draw(time, future, coin < relabel_prob)


def relabel(goals: Array, achieved_later: Array, relabelled: Array) -> Array:
    """Goals (B, N, G), replaced as a whole by those achieved later where relabelled (B,)."""
    return np.where(relabelled[:, None, None], achieved_later, goals)
