"""DiscEnv passes every check, and for every check there is an environment that fails it."""

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from efmdp.conformance import CHECKS, CheckResult, check, check_gymnasium, report
from efmdp.discs import DiscEnv, DiscPusher
from efmdp.entities import EntityEnv, EntityObs, Objective, Step


def failed(results: list[CheckResult]) -> set[str]:
    return {r.name for r in results if not r.passed}


@pytest.mark.parametrize(
    ("discs", "goals", "collisions", "reward"),
    [
        (1, 1, False, "sparse"),
        (2, 2, False, "dense"),
        (3, 3, True, "sparse"),
        (3, 1, False, "sparse"),
        (4, 2, True, "dense"),
        (2, 2, False, Objective("sparse", "any", 0.1)),
        (3, 3, True, Objective("sparse", "sum", 0.1)),
    ],
)
def test_discs_pass(discs: int, goals: int, collisions: bool, reward: str | Objective) -> None:
    results = check(lambda n: DiscEnv(n, discs, goals, collisions, reward), tolerance=1e-9)
    assert not failed(results), report(results)
    assert [r.name for r in results] == list(CHECKS)


class HeavyFirst(DiscEnv):
    def _advance(self, actions: np.ndarray) -> np.ndarray:
        before = self._discs[:, :, 0].copy()
        result = super()._advance(actions)
        self._discs[:, :, 0] = (before + self._discs[:, :, 0]) / 2
        return result


class RewardOfFirst(DiscEnv):
    """The same states, but a reward that knows which disc is which."""

    def distance(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return super().distance(achieved, desired) * np.arange(1, self.num_entities + 1)


class PermutesNothing(DiscEnv):
    def permute(self, order: np.ndarray) -> None:
        pass


class CannotPermute(DiscEnv):
    def permute(self, order: np.ndarray) -> None:
        raise NotImplementedError("later")


class OtherReward(DiscEnv):
    def step(self, actions: np.ndarray) -> Step:
        step = super().step(actions)
        return step._replace(reward=step.reward - 0.5)


class OtherSuccess(DiscEnv):
    def step(self, actions: np.ndarray) -> Step:
        step = super().step(actions)
        return step._replace(success=step.success | (self.elapsed == 5))


class GlobalNoise(DiscEnv):
    def _advance(self, actions: np.ndarray) -> np.ndarray:
        return super()._advance(actions + 1e-14 * np.random.default_rng().normal(size=actions.shape))


class IgnoresSeed(DiscEnv):
    def reset(self, ids: Any = None, seed: Any = None) -> EntityObs:
        return super().reset(ids, None if seed is None else 0)


class KeepsVelocity(DiscEnv):
    """A reset that leaves something of the last episode."""

    def _begin(self, ids: np.ndarray) -> None:
        velocity = self._agent_velocity.copy()
        super()._begin(ids)
        self._agent_velocity = velocity


class NotANumber(DiscEnv):
    def observe(self) -> EntityObs:
        obs = super().observe()
        obs.entities[0, :, 5] = np.nan
        return obs


class WrongShape(DiscEnv):
    def observe(self) -> EntityObs:
        obs = super().observe()
        return obs._replace(agent=np.pad(obs.agent, ((0, 0), (0, 1))))


class ReusesBuffers(DiscEnv):
    def observe(self) -> EntityObs:
        obs = super().observe()
        if not hasattr(self, "_buffers"):
            self._buffers = obs
        for buffer, values in zip(self._buffers, obs, strict=True):
            buffer[:] = values
        return self._buffers


class SometimesSolved(DiscEnv):
    def _begin(self, ids: np.ndarray) -> None:
        super()._begin(ids)
        for i in ids:
            if self.rngs[i].random() < 0.1:
                self._goals[i, :, :2] = self._discs[:, i].T


class EndsEarly(DiscEnv):
    def step(self, actions: np.ndarray) -> Step:
        return super().step(actions)._replace(truncated=self.elapsed >= self.horizons - 1)


class EndsLate(DiscEnv):
    def step(self, actions: np.ndarray) -> Step:
        return super().step(actions)._replace(truncated=self.elapsed > self.horizons)


class ForgetsVelocity(DiscEnv):
    def _restore(self, saved: dict[str, np.ndarray]) -> None:
        super()._restore({**saved, "agent_velocity": self._agent_velocity})


class ForgetsGenerators(DiscEnv):
    def restore(self, saved: dict[str, Any]) -> EntityObs:
        return super().restore({**saved, "rngs": [rng.bit_generator.state for rng in self.rngs]})


class SavesViews(DiscEnv):
    def _advance(self, actions: np.ndarray) -> np.ndarray:
        agent = self._agent
        result = super()._advance(actions)
        agent[:] = self._agent
        self._agent = agent
        return result

    def _save(self) -> dict[str, np.ndarray]:
        return {**super()._save(), "agent": self._agent}

    def _restore(self, saved: dict[str, np.ndarray]) -> None:
        super()._restore(saved)
        self._agent = saved["agent"]


class AcceptsAnything(DiscEnv):
    def _checked(self, actions: np.ndarray) -> np.ndarray:
        return np.nan_to_num(actions.astype(float)[:, :2]).clip(-1, 1)


class RejectsTooLate(DiscEnv):
    def step(self, actions: np.ndarray) -> Step:
        self.elapsed += 1
        self._checked(actions)
        self.elapsed -= 1
        return super().step(actions)


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (HeavyFirst, {"symmetry of dynamics"}),
        (RewardOfFirst, {"symmetry of dynamics"}),
        (PermutesNothing, {"symmetry of dynamics"}),
        (CannotPermute, {"symmetry of dynamics"}),
        (OtherReward, {"reward recomputed"}),
        (OtherSuccess, {"reward recomputed"}),
        (GlobalNoise, {"seed determinism", "save and restore"}),  # noise: nothing can be repeated
        (IgnoresSeed, {"seed determinism"}),
        (KeepsVelocity, {"seed determinism"}),
        (NotANumber, {"finite values"}),
        (WrongShape, {"finite values"}),
        (ReusesBuffers, {"fresh arrays"}),
        (SometimesSolved, {"no episode starts solved"}),
        (EndsEarly, {"horizon"}),
        (EndsLate, {"horizon"}),
        (ForgetsVelocity, {"save and restore"}),
        (ForgetsGenerators, {"save and restore"}),
        (SavesViews, {"save and restore"}),
        (AcceptsAnything, {"rejects bad actions"}),
        (RejectsTooLate, {"rejects bad actions"}),
    ],
)
def test_every_check_can_fail(broken: type[DiscEnv], expected: set[str]) -> None:
    results = check(lambda n: broken(n, 3))
    assert failed(results) == expected, report(results)


def test_every_check_has_an_environment_that_fails_it() -> None:
    (mark,) = test_every_check_can_fail.pytestmark  # type: ignore[attr-defined]
    seen = set().union(*(expected for _, expected in mark.args[1]))
    assert seen | {"contact was made"} == set(CHECKS)


def test_touching_nothing_proves_nothing() -> None:
    class Idle:
        def act(self, obs: EntityObs) -> np.ndarray:
            return np.zeros((len(obs.agent), 2))

        def reset(self, ids: np.ndarray | None = None) -> None:
            pass

    results = check(lambda n: DiscEnv(n, 3), policy=Idle())
    assert failed(results) == {"contact was made"}, report(results)


def test_discs_that_move_by_themselves_were_not_touched() -> None:
    class Drifting(DiscEnv):
        def _advance(self, actions: np.ndarray) -> np.ndarray:
            failed = super()._advance(0 * actions)
            self._discs = self._discs + 0.001
            return failed

    assert "contact was made" in failed(check(lambda n: Drifting(n, 3)))


def test_simulations_that_fail_prove_no_symmetry() -> None:
    class Failing(DiscEnv):
        def _advance(self, actions: np.ndarray) -> np.ndarray:
            super()._advance(actions)
            return np.ones(self.num_envs, bool)

    assert "symmetry of dynamics" in failed(check(lambda n: Failing(n, 2)))


def test_a_reward_that_prefers_an_entity_is_found_even_if_no_goal_is_met() -> None:
    class Biased(DiscEnv):
        def distance(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
            return super().distance(achieved, desired) * np.array([3.0, 1.0])

    class Still(DiscPusher):
        """Touches discs but brings none to its goal."""

        def act(self, obs: EntityObs) -> np.ndarray:
            return np.sign(obs.entities[:, 0, 2:4]) * 1.0

    assert "symmetry of dynamics" in failed(check(lambda n: Biased(n, 2), policy=Still(0.1)))


def test_an_environment_that_cannot_even_run_is_reported() -> None:
    class Crashing(DiscEnv):
        def demonstrator(self) -> DiscPusher:
            raise RuntimeError("no demonstration today")

    (result,) = check(lambda n: Crashing(n, 2))
    assert not result.passed
    assert "no demonstration today" in result.measured
    (result,) = check(lambda n: DiscEnv(3, 2))
    assert "16 environments were asked for, 3 were made" in result.measured


def test_symmetry_of_a_window_after_contact() -> None:
    class HeavyLater(HeavyFirst):
        def _advance(self, actions: np.ndarray) -> np.ndarray:
            return super()._advance(actions) if self.elapsed[0] > 100 else DiscEnv._advance(self, actions)

    def make(n: int) -> DiscEnv:
        return HeavyLater(n, 3)

    assert failed(check(make)) == {"symmetry of dynamics"}
    assert not failed(check(make, steps=10))


def test_entities_of_different_kinds_are_not_swapped() -> None:
    class Labelled(HeavyFirst):
        def exchangeable(self) -> np.ndarray:
            return np.tile([1, 0, 0], (self.num_envs, 1))

    results = check(lambda n: Labelled(n, 3))
    assert not failed(results), report(results)


def test_report_has_a_line_for_each_check() -> None:
    text = report([CheckResult("one", True, "1", "1"), CheckResult("another", False, "2", "no more than 1")])
    rows = {cells[1]: cells[-2] for line in text.splitlines() if len(cells := re.split(r"\s*\|\s*", line)) == 6}
    assert rows == {"check": "ok", "one": "yes", "another": "NO"}


class Walk(gymnasium.Env[np.ndarray, np.ndarray]):
    def __init__(self, high: float = 1, bound: float = np.inf, crash: bool = False) -> None:
        self.action_space = gymnasium.spaces.Box(-1, high, (1,), np.float32)
        self.observation_space = gymnasium.spaces.Box(-bound, bound, (1,), np.float64)
        self.crash = crash

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1, 1)
        return self.place.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert not self.crash, "crashed"
        self.place = np.clip(self.place + action, -9, 9).astype(float)
        return self.place.copy(), 0.0, False, False, {}


def test_gymnasium_checker() -> None:
    assert check_gymnasium(lambda: Walk(bound=10)) == CheckResult(
        "gymnasium's checker", True, "passed", "no error; no warning but unbounded observations"
    )
    assert check_gymnasium(Walk).passed  # an unbounded observation space is no fault
    lopsided = check_gymnasium(lambda: Walk(high=2, bound=10))
    assert not lopsided.passed
    assert "normalized" in lopsided.measured
    crashing = check_gymnasium(lambda: Walk(crash=True))
    assert not crashing.passed
    assert "crashed" in crashing.measured


def test_the_documented_environment_passes() -> None:
    text = (Path(__file__).parents[1] / "docs" / "your-own-environment.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    names: dict[str, Any] = {}
    exec(code, names)
    assert issubclass(names["BeadEnv"], EntityEnv)
    assert all(name in text for name in CHECKS)
    assert len(names["results"]) == len(CHECKS)
