"""Whole episodes in a ring, and batches of transitions from them with goals relabelled in hindsight."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from efmdp.entities import Array, EntityDims, EntityObs, UserError
from efmdp.her import Draw, draw_transitions, relabel

MOVED = 0.01  # metres or radians: an entity that moved further was touched
UNTOUCHED_WEIGHT = 0.05  # of an episode in which nothing moved, against 1 for one in which everything did


class Episodes(NamedTuple):
    """K episodes of up to T steps."""

    agent: Array  # (K, T + 1, U)
    entities: Array  # (K, T + 1, N, E)
    goals: Array  # (K, N, G)
    actions: Array  # (K, T, A)
    lengths: Array  # (K,)


class Batch(NamedTuple):
    """B transitions towards `goals`, which hold for both observations."""

    obs: EntityObs
    actions: Array  # (B, A)
    next_obs: EntityObs
    rewards: Array  # (B,)


class Replay:
    """The last `capacity` transitions, in whole episodes."""

    def __init__(
        self,
        capacity: int,
        horizon: int,
        num_entities: int,
        dims: EntityDims,
        achieved: Callable[[Array], Array],
        reward: Callable[[Array, Array], Array],
        by_movement: bool,
        redraws: int,
    ) -> None:
        self.capacity = max(1, capacity // horizon)  # in episodes
        self.achieved, self.reward, self.by_movement, self.redraws = achieved, reward, by_movement, redraws
        c, t, n = self.capacity, horizon, num_entities
        self.episodes = Episodes(
            np.zeros((c, t + 1, dims.agent), np.float32),
            np.zeros((c, t + 1, n, dims.entity), np.float32),
            np.zeros((c, n, dims.goal), np.float32),
            np.zeros((c, t, dims.action), np.float32),
            np.zeros(c, np.int64),
        )
        self.reached = np.zeros((c, t + 1, n, dims.goal), np.float32)  # the subgoals that its entities meet
        self.weights = np.zeros(c)
        self.cumulative = np.zeros(c)  # sums of the weights
        self.added = 0  # episodes ever, of which the last `capacity` are kept

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, new: Episodes) -> None:
        slots = (self.added + np.arange(len(new.lengths))) % self.capacity
        for kept, fresh in zip(self.episodes, new, strict=True):
            kept[slots] = fresh
        self.reached[slots] = self.achieved(new.entities)
        self.weights[slots] = self._weigh(self.reached[slots], new.lengths)
        self.cumulative = np.cumsum(self.weights)
        self.added += len(slots)

    def _weigh(self, reached: Array, lengths: Array) -> Array:
        """How often to sample each episode: by the fraction of its entities that moved, or all alike."""
        if not self.by_movement:
            return np.ones(len(lengths))
        inside = np.arange(reached.shape[1]) <= lengths[:, None]  # (K, T + 1)
        travelled = np.linalg.norm(reached - reached[:, :1], axis=-1) * inside[:, :, None]
        return UNTOUCHED_WEIGHT + (travelled.max(1) > MOVED).mean(1)

    def sample(self, batch_size: int, relabel_prob: float, rng: np.random.Generator) -> Batch:
        if not self.added:
            raise UserError("the replay is empty: every simulation failed, or nothing was collected")
        kept = self.episodes
        chosen, draw = self._draw(batch_size, relabel_prob, rng)
        for _ in range(self.redraws):
            idle = np.flatnonzero(draw.relabelled)[self._already_there(chosen[draw.relabelled], draw)]
            chosen[idle], again = self._draw(len(idle), 1.0, rng)
            for field, fresh in zip(draw, again, strict=True):
                field[idle] = fresh
        now, then = (chosen, draw.time), (chosen, draw.time + 1)
        goals = relabel(kept.goals[chosen], self.reached[chosen, draw.future], draw.relabelled)
        return Batch(
            EntityObs(kept.agent[now], kept.entities[now], goals),
            kept.actions[now],
            EntityObs(kept.agent[then], kept.entities[then], goals),
            self.reward(self.reached[then], goals),
        )

    def _draw(self, count: int, relabel_prob: float, rng: np.random.Generator) -> tuple[Array, Draw]:
        """Episodes by their weights, and a transition of each."""
        chosen = np.searchsorted(self.cumulative, rng.random(count) * self.cumulative[-1], side="right")
        return chosen, draw_transitions(self.episodes.lengths[chosen], relabel_prob, rng)

    def _already_there(self, chosen: Array, draw: Draw) -> Array:
        """Which of the relabelled transitions begin where their goal already holds: they teach little."""
        time, future = draw.time[draw.relabelled], draw.future[draw.relabelled]
        return self.reward(self.reached[chosen, time], self.reached[chosen, future]) == 0
