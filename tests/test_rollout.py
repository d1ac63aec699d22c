import numpy as np
import pytest

from efmdp.discs import DiscEnv, DiscPusher
from efmdp.entities import OBJECTIVES, EntityDims, EntityEnv, EntityObs, Step
from efmdp.rollout import run_episodes


class Pusher(DiscPusher):
    resets = 0

    def reset(self, ids: np.ndarray | None = None) -> None:
        self.resets += 1


class Still:
    def act(self, obs: EntityObs) -> np.ndarray:
        return np.zeros((len(obs.agent), 2))

    def reset(self, ids: np.ndarray | None = None) -> None: ...


class Script(EntityEnv):
    """One number per entity, which the script says for every slot and step; the subgoal is 0. A failure comes
    where the script says so, and then a new episode begins at 9."""

    def __init__(self, places: list[list[list[float]]], horizons: list[int], fails: dict[int, int]) -> None:
        self.places, self._horizons, self.fails = np.array(places), np.array(horizons), fails  # (B, T, N)
        slots, _, entities = self.places.shape
        self.now, self.time = np.zeros((slots, entities)), 0
        super().__init__(slots, entities, EntityDims(1, 1, 1, 2), OBJECTIVES["sparse"])

    @property
    def horizons(self) -> np.ndarray:
        return self._horizons

    def _begin(self, ids: np.ndarray) -> None:
        self.now[ids] = 9
        if len(ids) == self.num_envs:
            self.time = 0

    def _advance(self, actions: np.ndarray) -> np.ndarray:
        self.now = self.places[:, self.time].copy()
        self.time += 1
        return np.array([self.fails.get(i) == self.time for i in range(self.num_envs)])

    def observe(self) -> EntityObs:
        return EntityObs(np.zeros((self.num_envs, 1)), self.now[:, :, None].copy(), np.zeros((*self.now.shape, 1)))

    def achieved(self, entities: np.ndarray) -> np.ndarray:
        return entities

    def permute(self, order: np.ndarray) -> None:
        raise NotImplementedError

    def exchangeable(self) -> np.ndarray:
        raise NotImplementedError

    def _save(self) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def _restore(self, saved: dict[str, np.ndarray]) -> None:
        raise NotImplementedError


def test_outcome_on_discs() -> None:
    env = DiscEnv(64, 2, seed=1)
    policy, seen = Pusher(env.objective.threshold), []
    outcome = run_episodes(env, policy, seed=5, watch=seen.append)
    assert policy.resets == 1
    assert len(seen) == 80
    assert all(isinstance(step, Step) for step in seen)
    success = np.stack([step.success for step in seen])  # (T, B)
    assert (outcome.success_once == success.any(0)).all()
    assert 0.5 < outcome.success_once.mean() < 1
    assert (outcome.success_end == success[-1]).all()
    assert np.array_equal(np.isnan(outcome.steps), ~outcome.success_once)
    first = outcome.success_once
    assert (outcome.steps[first] == success.argmax(0)[first] + 1).all()
    assert outcome.distance.shape == (64, 2)
    assert outcome.solved == pytest.approx((outcome.distance <= 0.1).mean(1))
    assert (outcome.solved[outcome.success_end] == 1).all()
    assert not outcome.failed.any()


def test_the_same_seed_gives_the_same_outcome() -> None:
    env = DiscEnv(8, 1)
    one, two = (run_episodes(env, Pusher(), seed=3) for _ in range(2))
    other = run_episodes(env, Pusher(), seed=4)
    assert all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(one, two, strict=True))
    assert not np.array_equal(one.distance, other.distance)


def test_doing_nothing_solves_nothing() -> None:
    outcome = run_episodes(DiscEnv(8, 2), Still(), seed=0)
    assert not outcome.success_once.any()
    assert np.isnan(outcome.steps).all()
    assert (outcome.distance > 0.1).all()
    assert (outcome.solved == 0).all()


def test_each_slot_is_played_to_its_own_horizon() -> None:
    """Slot 0 has 2 steps, slot 1 has 4: what slot 0 does after its end does not count."""
    env = Script([[[1, 0], [1, 1], [0, 0], [0, 0]], [[1, 1], [0, 0], [0, 1], [0, 1]]], [2, 4], {})
    seen = []
    outcome = run_episodes(env, Still(), watch=seen.append)
    assert len(seen) == 4
    assert outcome.success_once.tolist() == [False, True]
    assert outcome.success_end.tolist() == [False, False]
    assert outcome.steps[1] == 2
    assert np.isnan(outcome.steps[0])
    assert outcome.distance.tolist() == [[1, 1], [0, 1]]
    assert outcome.solved.tolist() == [0, 0.5]


def test_success_at_the_last_step_counts_for_both() -> None:
    outcome = run_episodes(Script([[[1], [1], [0.05]]], [3], {}), Still())
    assert outcome.success_once.tolist() == outcome.success_end.tolist() == [True]
    assert outcome.steps.tolist() == [3]
    assert outcome.solved.tolist() == [1]


def test_an_episode_whose_simulation_failed_is_no_success() -> None:
    """Solved at step 1, blown up at step 2. Its slot goes on in a new episode, which does not count either."""
    env = Script([[[0], [1], [0], [0]], [[0], [0], [0], [0]]], [4, 4], {0: 2})
    outcome = run_episodes(env, Still())
    assert outcome.failed.tolist() == [True, False]
    assert outcome.success_once.tolist() == [False, True]
    assert outcome.success_end.tolist() == [False, True]
    assert outcome.steps[1] == 1
    assert outcome.solved.tolist() == [0, 1]
    assert np.isnan(outcome.steps[0])  # NaN without a success
