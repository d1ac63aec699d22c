import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from efmdp.discs import CONTACT, EDGE, RADIUS, SPREAD, DiscEnv
from efmdp.entities import Objective


def play(env: DiscEnv) -> np.ndarray:
    """Which slots the demonstrator solved at some step."""
    obs, pusher, once = env.reset(), env.demonstrator(), np.zeros(env.num_envs, bool)
    for _ in range(int(env.horizons[0])):
        step = env.step(pusher.act(obs))
        obs, once = step.obs, once | step.success
    return once


@pytest.mark.parametrize(("discs", "collisions", "least"), [(1, False, 0.9), (3, False, 0.65), (3, True, 0.65)])
def test_demonstrator_solves(discs: int, collisions: bool, least: float) -> None:
    assert play(DiscEnv(256, discs, collisions=collisions, seed=1)).mean() >= least


@settings(max_examples=20)
@given(st.integers(1, 8), st.integers(0, 1000), st.data())
def test_layouts_keep_their_distances(discs: int, seed: int, data: st.DataObject) -> None:
    goals = data.draw(st.integers(1, discs))
    env = DiscEnv(8, discs, num_goals=goals, seed=seed)
    obs = env.observe()
    has_goal = obs.goals[..., 2] == 1
    assert (has_goal.sum(1) == goals).all()
    assert (obs.goals[~has_goal] == 0).all()
    assert np.abs(obs.entities[..., :2]).max() <= SPREAD
    assert (env.distance(obs.entities[..., :2], obs.goals)[has_goal] > env.objective.threshold).all()
    places = np.concatenate([obs.agent[:, None, :2], obs.entities[..., :2]], 1)
    gaps = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1) + 9 * np.eye(discs + 1)
    assert gaps.min() > 2 * RADIUS


def test_agent_shoves_a_disc_and_it_stays_where_it_was_left() -> None:
    env = DiscEnv(1, 1)
    env._agent[:] = [[-0.4], [0.0]]
    env._discs[:] = 0
    right = np.array([[1.0, 0.0]])
    for _ in range(5):
        obs = env.step(right).obs
    x, y = obs.entities[0, 0, :2]
    assert x - obs.agent[0, 0] == pytest.approx(CONTACT)
    assert x > 0.05
    assert y == 0
    obs = env.step(-right).obs  # inertia: the agent stands still
    obs = env.step(-right).obs
    assert (obs.entities[0, 0, 4:] == 0).all()
    for _ in range(40):
        obs = env.step(right).obs
    assert obs.entities[0, 0, 0] <= EDGE


@pytest.mark.parametrize("collisions", [False, True])
def test_discs_push_each_other_only_with_collisions(collisions: bool) -> None:
    env = DiscEnv(1, 2, collisions=collisions)
    env._agent[:] = [[-0.5], [0.0]]
    env._discs[:] = [[[0.0, 0.25]], [[0.0, 0.0]]]
    for _ in range(6):
        obs = env.step(np.array([[1.0, 0.0]])).obs
    assert (obs.entities[0, 1, 0] > 0.25) == collisions


def test_coinciding_centres_stay_finite() -> None:
    env = DiscEnv(1, 3, collisions=True)
    env._agent[:] = 0
    env._discs[:] = 0
    assert np.isfinite(env.step(np.zeros((1, 2))).obs.entities).all()


def test_only_wanted_discs_count() -> None:
    env = DiscEnv(4, 3, num_goals=1, reward="dense")
    obs = env.step(np.zeros((4, 2))).obs
    achieved, wanted = env.achieved(obs.entities), obs.goals[..., 2] == 1
    expected = -np.linalg.norm(achieved[..., :2] - obs.goals[..., :2], axis=-1)[wanted]
    np.testing.assert_allclose(env.reward(achieved, obs.goals), expected)
    assert env.success(achieved, achieved).all()  # what was achieved is a valid goal: all discs wanted


def test_slots_do_not_depend_on_their_neighbours() -> None:
    many, one = DiscEnv(5, 3), DiscEnv(1, 3)
    together = many.reset(seed=[3, 1, 4, 1, 5])
    alone = one.reset(seed=[4])
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_array_equal(a[2:3], b)
    before = many.reset()
    after = many.reset([0])
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a[1:], b[1:])


def test_wrong_arguments_say_what_would_be_right() -> None:
    with pytest.raises(ValueError, match=r"no room for 80 discs and 80 subgoals .* at most [1-9][0-9]* discs"):
        DiscEnv(1, 80)
    with pytest.raises(ValueError, match="no room"):  # every subgoal is within the threshold
        DiscEnv(1, 1, reward=Objective("sparse", "all", threshold=3))
    with pytest.raises(ValueError, match="choose 1 to 2"):
        DiscEnv(1, 2, num_goals=3)
    with pytest.raises(ValueError, match="at least one disc"):
        DiscEnv(1, 0)
    with pytest.raises(ValueError, match="choose sparse or dense"):
        DiscEnv(1, 1, reward="shaped")


def test_twenty_discs_fit() -> None:
    assert DiscEnv(16, 20).observe().entities.shape == (16, 20, 6)


def test_a_large_batch_is_fast() -> None:
    env = DiscEnv(4096, 3)
    actions = np.zeros((4096, 2))
    times = []
    for _ in range(20):
        start = time.perf_counter()
        env.step(actions)
        times.append(time.perf_counter() - start)
    assert 4096 / min(times) > 300_000  # measured: millions; the margin is for busy machines
