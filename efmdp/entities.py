"""The Entity-Factored MDP: its types, its rewards, and what an environment of one has to provide.

Shapes are always written with the same letters: B batch, T time, N entities, U agent, E entity, G subgoal, A action.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

Array = np.ndarray
Rule = Literal["all", "any", "mean", "sum"]


class UserError(ValueError):
    """Something that whoever asked can mend; the message says in one line what is wrong and what to do."""


class NonFinite(UserError):
    """A number that went wrong; the message names it."""


class CannotPlay(UserError):
    """A policy was shown what it cannot take: too many entities, or other features."""


@dataclass(frozen=True)
class EntityDims:
    """How many numbers describe the agent, one entity, one subgoal and one action."""

    agent: int
    entity: int
    goal: int
    action: int


class EntityObs(NamedTuple):
    """One batch of observations: the agent, and the entities with their subgoals."""

    agent: Array  # (B, U)
    entities: Array  # (B, N, E)
    goals: Array  # (B, N, G)

    def finite(self) -> "EntityObs":
        """These observations, if all of them are numbers: clipping would hide it from whoever learns from them."""
        for name, values in self._asdict().items():
            if not np.isfinite(values).all():
                bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(1)).tolist()
                raise NonFinite(f"observations ({name}) of environments {bad} are not finite")
        return self

    def permuted(self, order: Array) -> "EntityObs":
        """The same states with entity-subgoal pair i taken from order[:, i]; order is (B, N)."""
        pick = np.asarray(order)[:, :, None]
        return EntityObs(
            self.agent, np.take_along_axis(self.entities, pick, 1), np.take_along_axis(self.goals, pick, 1)
        )


def aggregate(subrewards: Array, rule: Rule, has_goal: Array | None = None) -> Array:
    """Combine the subgoal rewards (..., N), none of them positive, into one reward (...).

    `all` is the worst of them, `any` the best. Entities without a goal (`has_goal` False) do not count; where nothing
    has a goal there is nothing left to do and the reward is 0.

    >>> aggregate(np.array([-1.0, 0.0]), "all"), aggregate(np.array([-1.0, 0.0]), "mean")
    (np.float64(-1.0), np.float64(-0.5))
    """
    if has_goal is None:
        match rule:
            case "all":
                return subrewards.min(-1)
            case "any":
                return subrewards.max(-1)
            case "mean":
                return subrewards.mean(-1)
            case "sum":
                return subrewards.sum(-1)
        raise ValueError(f"unknown aggregation {rule!r}: choose all, any, mean or sum")
    if rule == "any":
        best = np.where(has_goal, subrewards, -np.inf).max(-1)
        return np.where(has_goal.any(-1), best, 0).astype(subrewards.dtype)
    counted = np.where(has_goal, subrewards, 0)
    if rule == "mean":
        return (counted.sum(-1) / np.maximum(has_goal.sum(-1), 1)).astype(subrewards.dtype)
    return aggregate(counted, rule)


@dataclass(frozen=True)
class Objective:
    """What counts as reaching a subgoal, and how subgoal rewards become the reward."""

    kind: Literal["sparse", "dense"]
    """sparse: each subgoal reward is 0 when met and -1 when not; dense: minus the distance to it."""
    rule: Rule
    """how subgoal rewards aggregate"""
    threshold: float = 0.05
    """a subgoal is met within this distance"""

    def __post_init__(self) -> None:
        if self.kind not in ("sparse", "dense") or self.rule not in get_args(Rule):
            raise UserError(f"unknown objective {self.kind!r}, {self.rule!r}: sparse or dense, by {get_args(Rule)}")

    def met(self, distance: Array) -> Array:
        return distance <= self.threshold

    def reward(self, distance: Array, has_goal: Array | None = None) -> Array:
        """(..., N) distances to (...) rewards. A NaN distance never counts as met."""
        subrewards = self.met(distance).astype(distance.dtype) - 1 if self.kind == "sparse" else -distance
        return aggregate(subrewards, self.rule, has_goal)

    def success(self, distance: Array, has_goal: Array | None = None) -> Array:
        met = self.met(distance)
        if self.rule == "any":
            if has_goal is None:
                return np.any(met, axis=-1)
            return np.any(met & has_goal, axis=-1) | ~np.any(has_goal, axis=-1)
        return np.all(met if has_goal is None else met | ~has_goal, axis=-1)


OBJECTIVES = {"sparse": Objective("sparse", "all"), "dense": Objective("dense", "mean")}


class Step(NamedTuple):
    """What one step of B environments gives."""

    obs: EntityObs
    reward: Array  # (B,)
    success: Array  # (B,) bool
    truncated: Array  # (B,) bool: the episode's time is up, or its simulation failed
    failed: Array  # (B,) bool: the simulation blew up and was reset; this transition means nothing


class EntityEnv(ABC):
    """B environments of one Entity-Factored MDP, stepped together.

    A subclass provides the dynamics (the abstract methods); this class provides seeding, counting, validation, reward
    and saving. Slot i draws everything random from `self.rngs[i]`, so that what happens in a slot depends on its own
    stream alone. Nothing resets by itself: call `reset(ids)` for the slots that are truncated. A simulation that failed
    is put at the start of a new episode, so that it can go on, and is reported as failed and truncated.
    """

    def __init__(self, num_envs: int, num_entities: int, dims: EntityDims, objective: Objective, seed: int = 0) -> None:
        if num_envs < 1:
            raise UserError(f"num_envs is {num_envs}: at least one environment is needed")
        self.num_envs = num_envs
        self.num_entities = num_entities
        self.dims = dims
        self.objective = objective
        self.elapsed = np.zeros(num_envs, np.int64)
        self.failures = 0
        self.rngs = self._generators(seed)

    # What an environment provides

    @property
    @abstractmethod
    def horizons(self) -> Array:
        """Length in steps of each slot's current episode, (B,)."""

    @property
    def identity(self) -> str:
        """What a saved state must agree with to be restored here."""
        return f"{type(self).__name__}: {self.num_envs} environments of {self.num_entities} entities"

    @property
    def max_horizon(self) -> int:
        """The longest that an episode can be; more than any of `horizons` where episodes differ."""
        return int(self.horizons.max())

    @property
    def largest_distance(self) -> float:
        """How far from its subgoal an entity can be; infinite where nobody knows."""
        return np.inf

    @property
    def usable_actions(self) -> Array:
        """Which actions the environment listens to, (A,) bool."""
        return np.ones(self.dims.action, bool)

    @abstractmethod
    def _begin(self, ids: Array) -> None:
        """Draw and set up a new episode in the slots ids, slot i from self.rngs[i]."""

    @abstractmethod
    def _advance(self, actions: Array) -> Array:
        """Apply actions (B, A), finite and within [-1, 1]. Returns which simulations blew up, (B,) bool."""

    @abstractmethod
    def observe(self) -> EntityObs:
        """The current observations, in arrays that are not reused."""

    @abstractmethod
    def achieved(self, entities: Array) -> Array:
        """The subgoals that entities (..., N, E) meet right now, (..., N, G)."""

    @abstractmethod
    def permute(self, order: Array) -> None:
        """Right after a reset: give entity-subgoal pair i the state and subgoal of pair order[:, i], (B, N)."""

    @abstractmethod
    def exchangeable(self) -> Array:
        """Which entities `permute` may swap: (B, N) labels, swaps stay within a label."""

    @abstractmethod
    def _save(self) -> dict[str, Array]:
        """Everything but counters and generators, as arrays."""

    @abstractmethod
    def _restore(self, saved: dict[str, Array]) -> None: ...

    def distance(self, achieved: Array, desired: Array) -> Array:
        """(..., N) distances between subgoals (..., N, G)."""
        difference = achieved - desired
        return np.sqrt(np.einsum("...g,...g->...", difference, difference))

    def has_goal(self, desired: Array) -> Array | None:
        """Which entities have a subgoal, (..., N) bool; None when all of them have."""
        return None

    # What every environment gets

    def reset(self, ids: Array | Sequence[int] | None = None, seed: int | Sequence[int] | None = None) -> EntityObs:
        """Begin new episodes in the slots ids (all by default) and return the observations of all slots.

        An int seeds every slot's stream from (seed, slot); a list gives slot i the seed (seed[i], 0), so that it equals
        a single environment with that seed. Without a seed the streams go on.
        """
        slots = self._slots(ids)
        if seed is not None:
            fresh = self._generators(seed)
            for i in slots:
                self.rngs[i] = fresh[i]
        if slots.size:
            self.elapsed[slots] = 0
            self._begin(slots)
        return self.observe()

    def step(self, actions: Array) -> Step:
        """Advance every slot by one step."""
        failed = self._advance(self._checked(actions))
        self.elapsed += 1
        truncated = self.elapsed >= self.horizons
        if failed.any():
            self.failures += int(failed.sum())
            truncated = truncated | failed
            self.elapsed[failed] = 0
            self._begin(np.flatnonzero(failed))
        obs = self.observe()
        distance = self.distance(self.achieved(obs.entities), obs.goals)
        has_goal = self.has_goal(obs.goals)
        return Step(
            obs,
            self.objective.reward(distance, has_goal),
            self.objective.success(distance, has_goal),
            truncated,
            failed,
        )

    def reward(self, achieved: Array, desired: Array) -> Array:
        """The reward (...) of subgoals (..., N, G): the same function that `step` uses, for relabelling."""
        return self.objective.reward(self.distance(achieved, desired), self.has_goal(desired))

    def success(self, achieved: Array, desired: Array) -> Array:
        return self.objective.success(self.distance(achieved, desired), self.has_goal(desired))

    def save(self) -> dict[str, Any]:
        """Counters, generators and states: exact when taken right after a reset of all slots."""
        rngs = [rng.bit_generator.state for rng in self.rngs]
        return {
            "environment": self.identity,
            "elapsed": self.elapsed.copy(),
            "failures": self.failures,
            "rngs": rngs,
            **self._save(),
        }

    def restore(self, saved: dict[str, Any]) -> EntityObs:
        if saved.get("environment") != self.identity:
            raise UserError(f"the saved state is of {saved.get('environment')}, this is {self.identity}")
        self.elapsed[:] = saved["elapsed"]
        self.failures = int(saved["failures"])
        for rng, state in zip(self.rngs, saved["rngs"], strict=True):
            rng.bit_generator.state = state
        self._restore(saved)
        return self.observe()

    def _slots(self, ids: Array | Sequence[int] | None) -> Array:
        """Slot numbers, sorted, from numbers in any order or from a mask."""
        if ids is None:
            return np.arange(self.num_envs)
        chosen = np.asarray(ids)
        if chosen.dtype == bool:
            if chosen.shape != (self.num_envs,):
                raise UserError(f"a mask of slots needs shape ({self.num_envs},), this one has {chosen.shape}")
            return np.flatnonzero(chosen)
        if chosen.size and chosen.dtype.kind not in "iu":
            raise UserError(f"slots are whole numbers or a mask, not {chosen.dtype}")
        if chosen.size and (chosen.min() < 0 or chosen.max() >= self.num_envs):
            raise UserError(f"cannot reset slots {chosen.tolist()}: there are {self.num_envs}")
        return np.unique(chosen).astype(np.int64)

    def _generators(self, seed: int | Sequence[int]) -> list[np.random.Generator]:
        if np.min(seed) < 0:
            raise UserError(f"seed {seed} is negative: choose 0 or more")
        if isinstance(seed, int | np.integer):
            return [np.random.default_rng([int(seed), i]) for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"{len(seed)} seeds for {self.num_envs} environments")
        return [np.random.default_rng([int(s), 0]) for s in seed]

    def _checked(self, actions: Array) -> Array:
        actions = np.asarray(actions)
        expected = (self.num_envs, self.dims.action)
        if actions.shape != expected:
            raise ValueError(f"actions have shape {actions.shape}, expected {expected} (environments, action)")
        if actions.dtype.kind != "f":
            raise TypeError(f"actions have dtype {actions.dtype}, expected float32 or float64")
        if not np.isfinite(actions).all():
            bad = np.flatnonzero(~np.isfinite(actions).all(1)).tolist()
            raise NonFinite(f"actions of environments {bad} are not finite")
        return actions.clip(-1, 1)
