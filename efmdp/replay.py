"""Whole episodes in a ring, and batches of transitions from them with goals relabelled in hindsight."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from efmdp.entities import Array, EntityDims, EntityObs, UserError
from efmdp.her import Draw, draw_transitions, relabel

MOVED = 0.01  # metres or radians: an entity that moved further was touched
UNTOUCHED_WEIGHT = 0.05  # of what did not move, against 1 more for what did; an episode has the mean of its entities


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
        self.weights = np.zeros((c, n))  # of entities
        self.cumulative = np.zeros(c)  # sums of the weights of episodes
        self.added = 0  # episodes ever, of which the last `capacity` are kept

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, new: Episodes) -> None:
        slots = (self.added + np.arange(len(new.lengths))) % self.capacity
        for kept, fresh in zip(self.episodes, new, strict=True):
            kept[slots] = fresh
        self.reached[slots] = self.achieved(new.entities)
        self.weights[slots] = self._weigh(self.reached[slots], new.lengths)
        self.cumulative = np.cumsum(self.weights.mean(1))
        self.added += len(slots)

    def _weigh(self, reached: Array, lengths: Array) -> Array:
        """How often to sample each entity of each episode: by whether it moved, or all alike (K, N)."""
        if not self.by_movement:
            return np.ones((len(lengths), reached.shape[2]))
        inside = np.arange(reached.shape[1]) <= lengths[:, None]  # (K, T + 1)
        travelled = np.linalg.norm(reached - reached[:, :1], axis=-1) * inside[:, :, None]
        return UNTOUCHED_WEIGHT + (travelled.max(1) > MOVED)

    def sample(
        self, batch_size: int, relabel_prob: float, rng: np.random.Generator, entities: int | None = None
    ) -> Batch:
        """Transitions of all entities, or of so many of them: what happens to a few is a smaller problem of its own."""
        if not self.added:
            raise UserError("the replay is empty: every simulation failed, or nothing was collected")
        kept, number = self.episodes, self.weights.shape[1] if entities is None else entities
        chosen, who, draw = self._draw(batch_size, relabel_prob, rng, number)
        for _ in range(self.redraws):
            idle = np.flatnonzero(draw.relabelled)[self._already_there(chosen, who, draw)]
            chosen[idle], who[idle], again = self._draw(len(idle), 1.0, rng, number)
            for field, fresh in zip(draw, again, strict=True):
                field[idle] = fresh
        now, then, later = draw.time, draw.time + 1, draw.future
        goals = relabel(_of(who, kept.goals[chosen]), _of(who, self.reached[chosen, later]), draw.relabelled)
        return Batch(
            EntityObs(kept.agent[chosen, now], _of(who, kept.entities[chosen, now]), goals),
            kept.actions[chosen, now],
            EntityObs(kept.agent[chosen, then], _of(who, kept.entities[chosen, then]), goals),
            self.reward(_of(who, self.reached[chosen, then]), goals),
        )

    def _draw(
        self, count: int, relabel_prob: float, rng: np.random.Generator, number: int
    ) -> tuple[Array, Array, Draw]:
        """Episodes by their weights, so many entities and a transition of each."""
        chosen = np.searchsorted(self.cumulative, rng.random(count) * self.cumulative[-1], side="right")
        who = self._some_entities(chosen, number, rng)
        return chosen, who, draw_transitions(self.episodes.lengths[chosen], relabel_prob, rng)

    def _some_entities(self, chosen: Array, number: int, rng: np.random.Generator) -> Array:
        """So many different ones of each episode (B, number), in their order, drawn one by one by their weights."""
        weights = self.weights[chosen]  # (B, N)
        if number == weights.shape[1]:
            return np.tile(np.arange(number), (len(chosen), 1))
        keys = rng.random(weights.shape) ** (1 / weights)  # the largest are such a draw (Efraimidis, Spirakis 2006)
        return np.sort(np.argsort(keys, 1)[:, -number:], 1)

    def _already_there(self, chosen: Array, who: Array, draw: Draw) -> Array:
        """Which of the relabelled transitions begin where their goal already holds: they teach little."""
        chosen, who = chosen[draw.relabelled], who[draw.relabelled]
        times = draw.time[draw.relabelled], draw.future[draw.relabelled]
        return self.reward(*(_of(who, self.reached[chosen, time]) for time in times)) == 0


def _of(who: Array, values: Array) -> Array:
    """Of (B, N, F) the entities `who` (B, n): (B, n, F). All of them are in their order."""
    return values if who.shape[1] == values.shape[1] else np.take_along_axis(values, who[:, :, None], 1)
