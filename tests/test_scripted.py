"""The scripted controllers solve the tasks, which proves that the tasks can be solved."""

import numpy as np
import pytest

from efmdp.env import FetchEnv
from efmdp.rollout import run_episodes
from efmdp.scripted import DONE, Scripted
from efmdp.tasks import parse_task

EPISODES = 100


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("1-Push", 0.97),
        ("1-Switch", 0.97),
        ("3-Push", 0.90),
        ("3-Switch", 0.90),
        ("Stack", 0.85),
        ("Push+Stack", 0.85),
        ("2-Switch+2-Push", 0.85),
        ("2-Switch&2-Push", 0.90),
        ("2-Push&Stack", 0.90),
    ],
)
def test_the_tasks_are_solved(name: str, least: float) -> None:
    env = FetchEnv(parse_task(name), EPISODES)
    outcome = run_episodes(env, Scripted(EPISODES), seed=7)
    assert outcome.success_once.mean() >= least
    assert env.failures == 0


@pytest.mark.parametrize("name", ["2-Switch&2-Push", "2-Push&Stack"])
def test_what_is_solved_is_not_worked_on(name: str) -> None:
    env, policy = FetchEnv(parse_task(name), 24), Scripted(24)
    obs, to_do = env.reset(seed=3), np.ones(24, bool)
    for _ in range(100):
        solved = env.distance(env.achieved(obs.entities), obs.goals) <= DONE
        to_do &= ~solved.all(1)
        actions = policy.act(obs)
        assert not solved[to_do, policy.target[to_do]].any()
        obs = env.step(actions).obs
    assert to_do.mean() < 0.1


def test_actions_are_actions() -> None:
    env = FetchEnv(parse_task("2-Push|Stack"), 8)
    policy = Scripted(8)
    obs = env.reset(seed=0)
    for _ in range(20):
        actions = policy.act(obs)
        assert actions.shape == (8, 4)
        assert np.abs(actions).max() <= 1
        obs = env.step(actions).obs


def test_a_slot_does_not_depend_on_the_others() -> None:
    together, alone = FetchEnv(parse_task("3-Push"), 3), FetchEnv(parse_task("3-Push"), 1)
    obs, single_obs = together.reset(seed=[1, 2, 3]), alone.reset(seed=[2])
    policy, single_policy = Scripted(3), Scripted(1)
    for _ in range(60):
        actions, single = policy.act(obs), single_policy.act(single_obs)
        assert np.array_equal(actions[1], single[0])
        obs, single_obs = together.step(actions).obs, alone.step(single).obs


def test_reset_forgets_the_targets_of_those_slots() -> None:
    policy = Scripted(3)
    policy.act(FetchEnv(parse_task("2-Push"), 3).observe())
    assert (policy.target >= 0).all()
    policy.reset(np.array([1]))
    assert (policy.target >= 0).tolist() == [True, False, True]
    policy.reset()
    assert (policy.target == -1).all()


def test_a_cube_that_is_knocked_away_is_pushed_again() -> None:
    slots = 24
    env = FetchEnv(parse_task("1-Push"), slots)
    (simulations,) = env._tables
    obs, policy = env.reset(seed=3), Scripted(slots)
    start, solved_before, solved_after = obs.entities[:, 0, :2].copy(), np.zeros(slots, bool), np.zeros(slots, bool)
    for t in range(100):  # twice the horizon: nothing ends by itself
        if t == 40:
            place = simulations.scene.cube_qpos.start
            assert solved_before.mean() > 0.9
            simulations.qpos[:, place : place + 2] = start  # back to where it was
            simulations.batch.forward()
            obs = env.observe()
            assert not env.success(env.achieved(obs.entities), obs.goals).any()
        step = env.step(policy.act(obs))
        obs = step.obs
        (solved_before if t < 40 else solved_after)[step.success] = True
    assert solved_after.mean() > 0.9


def test_a_cube_that_is_taken_from_the_hand_is_grasped_again() -> None:
    slots = 24
    env = FetchEnv(parse_task("Stack"), slots)
    (simulations,) = env._tables
    obs, policy = env.reset(seed=3), Scripted(slots)
    starts = simulations.qpos[:, simulations.scene.cube_qpos].reshape(slots, 2, 7).copy()
    upper = obs.goals[..., 2].argmax(1)
    rows, taken, solved = np.arange(slots), np.zeros(slots, bool), np.zeros(slots, bool)
    for _ in range(100):
        carried = ~taken & (obs.entities[rows, upper, 2] > 0.45)
        if carried.any():
            cubes = simulations.qpos[:, simulations.scene.cube_qpos].reshape(slots, 2, 7)
            cubes[rows[carried], upper[carried]] = starts[rows[carried], upper[carried]]
            simulations.qpos[:, simulations.scene.cube_qpos] = cubes.reshape(slots, -1)
            simulations.batch.forward()
            taken |= carried
            obs = env.observe()
        step = env.step(policy.act(obs))
        obs, solved = step.obs, solved | (step.success & taken)
    assert taken.mean() > 0.9
    assert solved.mean() > 0.8
