import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import efmdp
from efmdp.entities import EntityObs
from efmdp.env import FetchEnv
from efmdp.gym_env import FetchGymEnv, FetchVectorEnv, entity_obs
from efmdp.tasks import PAPER_TASKS, TaskError, parse_task

IDS = ["efmdp/Fetch-v1", *(efmdp.gym_id(task) for task in PAPER_TASKS)]
MODES = ("NextStep", "SameStep", "Disabled")


def moves(steps: int, num_envs: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (steps, num_envs, 4)).astype(np.float32)


def row(obs: dict[str, np.ndarray], i: int) -> dict[str, np.ndarray]:
    return {name: value[i] for name, value in obs.items()}


def equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def draws(first: str, second: str) -> int:
    """A seed with which 2-Switch|2-Push draws these tasks, one after the other."""
    env = FetchGymEnv("2-Switch|2-Push")
    return next(s for s in range(100) if (env.reset(seed=s)[1]["task"], env.reset()[1]["task"]) == (first, second))


# Slots of the mixture that end early and change their task, end early and do not, and do not end within 45 steps
SEEDS = [draws("2-Switch", "2-Push"), draws("2-Switch", "2-Switch"), draws("2-Push", "2-Switch")]


# Registration


def test_the_ids_that_the_suite_promises_exist() -> None:
    names = ["3Push", "3Switch", "2Switch2Push", "Stack", "PushStack", "2SwitchOr2Push", "2PushOrStack"]
    assert {f"efmdp/Fetch{name}-v1" for name in names} <= set(IDS)
    assert {name for name in gymnasium.registry if name.startswith("efmdp/")} == set(IDS)


@pytest.mark.parametrize("name", IDS)
def test_every_id_passes_the_checker(name: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = gymnasium.make(name)
        check_env(env.unwrapped, skip_render_check=True)
        env.close()
    said = [str(w.message) for w in caught]
    assert [text for text in said if "infinity" not in text] == []


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_an_id_is_its_task(task: str) -> None:
    env = gymnasium.make(efmdp.gym_id(task)).unwrapped
    assert isinstance(env, FetchGymEnv)
    assert env.fetch.task == parse_task(task)
    n = env.fetch.task.entities
    assert {k: box.shape for k, box in env.observation_space.items()} == {
        "observation": (10 + 16 * n,),
        "achieved_goal": (3 * n,),
        "desired_goal": (3 * n,),
    }
    assert env.action_space == gymnasium.spaces.Box(-1, 1, (4,), np.float32)


def test_keyword_arguments() -> None:
    options: dict[str, Any] = {"task": "8-Push", "layout": "wide", "reward": "dense", "collisions": True}
    env = gymnasium.make("efmdp/Fetch-v1", **options, gripper=True, profile="reference").unwrapped
    assert env.fetch.task == parse_task("8-Push", layout="wide", reward="dense", collisions=True, gripper=True)
    assert env.fetch.profile == "reference"
    assert gymnasium.make("efmdp/Fetch-v1", task="4-Push").unwrapped.fetch.task.name == "4-Push"
    vector = gymnasium.make_vec("efmdp/Fetch-v1", num_envs=2, **options)
    assert vector.unwrapped.fetch.task == parse_task(options.pop("task"), **options)


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_what_cannot_be_made_says_so() -> None:
    with pytest.raises(TaskError, match="Did you mean '4-Push'"):
        gymnasium.make("efmdp/Fetch-v1", task="4-push")
    with pytest.raises(TaskError, match="Did you mean '4-Push'"):
        FetchVectorEnv(2, task="4-push")
    with pytest.raises(ValueError, match="render_mode 'ansi'"):
        FetchGymEnv(render_mode="ansi")
    with pytest.raises(RuntimeError, match="render_mode='rgb_array'"):
        FetchGymEnv().render()


# One environment


@pytest.mark.parametrize(("name", "horizon"), [("1-Switch", 20), ("1-Push", 50)])
def test_an_episode_is_that_of_the_batched_environment(name: str, horizon: int) -> None:
    env, fetch = gymnasium.make("efmdp/Fetch-v1", task=name), FetchEnv(parse_task(name), 1)
    obs, info = env.reset(seed=9)
    first = fetch.reset(seed=9)
    assert info["is_success"] is False
    assert info["task"] == name
    for t, action in enumerate(moves(horizon, 1), 1):
        back = entity_obs(obs)
        assert all(np.array_equal(a, b[0]) for a, b in zip(back, first, strict=True))
        assert np.array_equal(obs["achieved_goal"].reshape(-1, 3), fetch.achieved(first.entities)[0])
        obs, reward, terminated, truncated, info = env.step(action[0])
        step = fetch.step(action)
        first = step.obs
        assert type(reward) is float
        assert reward == step.reward[0]
        assert terminated is False
        assert truncated is (t == horizon)
        assert type(info["is_success"]) is bool
        assert type(info["failed"]) is bool


def test_observations_are_in_their_space() -> None:
    env = gymnasium.make("efmdp/Fetch2Switch2Push-v1")
    obs, _ = env.reset(seed=0)
    assert obs in env.observation_space
    obs, *_ = env.step(env.action_space.sample())
    assert obs in env.observation_space


def test_entity_obs_goes_there_and_back() -> None:
    vector = FetchVectorEnv(3, task="1-Switch+2-Push")
    flat, _ = vector.reset(seed=0)
    structured, expected = entity_obs(flat), vector.fetch.observe()
    assert isinstance(structured, EntityObs)
    assert all(np.array_equal(a, b) for a, b in zip(structured, expected, strict=True))
    again = np.concatenate([structured.agent, structured.entities.reshape(3, -1)], 1)
    assert np.array_equal(again, flat["observation"])
    series = {name: np.stack([value] * 5) for name, value in flat.items()}  # (T, B, ...)
    assert [a.shape for a in entity_obs(series)] == [(5, 3, 10), (5, 3, 3, 16), (5, 3, 3, 3)]


def test_resets_without_a_seed_go_on_and_a_seed_begins_again() -> None:
    env = gymnasium.make("efmdp/Fetch1Push-v1")
    first, second, again = env.reset(seed=3)[0], env.reset()[0], env.reset(seed=3)[0]
    assert not equal(first, second)
    assert equal(first, again)
    assert equal(second, env.reset()[0])


@pytest.mark.parametrize("make", [FetchGymEnv, lambda: FetchVectorEnv(2)], ids=["single", "vector"])
def test_environments_that_were_never_seeded_differ(make: Callable[[], Any]) -> None:
    """Gymnasium: a first reset without a seed takes one from the system. Else the environments of a user who makes
    several play the same episodes."""
    assert not equal(make().reset()[0], make().reset()[0])


def test_a_mixture_says_which_task_it_plays() -> None:
    env = gymnasium.make("efmdp/Fetch2SwitchOr2Push-v1")
    lengths = {}
    for seed in range(6):
        _, info = env.reset(seed=seed)
        name, steps, truncated = info["task"], 0, False
        while not truncated:
            *_, truncated, info = env.step(np.zeros(4, np.float32))
            steps += 1
            assert info["task"] == name
        lengths[name] = steps
    assert lengths == {"2-Switch": 40, "2-Push": 100}


# Reward


@pytest.mark.parametrize("reward", ["sparse", "dense"])
def test_compute_reward(reward: str) -> None:
    env = gymnasium.make("efmdp/Fetch2Switch2Push-v1", reward=reward).unwrapped
    obs, _ = env.reset(seed=0)
    seen, rewards = [], []
    for action in moves(20, 1):
        obs, r, *_ = env.step(action[0])
        seen.append(obs)
        rewards.append(r)
        assert env.compute_reward(obs["achieved_goal"], obs["desired_goal"], {}) == r
    achieved, desired = (np.stack([o[name] for o in seen]) for name in ("achieved_goal", "desired_goal"))
    for infos in (None, {}, [{}] * 20, np.array([{}] * 20), object()):
        computed = env.compute_reward(achieved, desired, infos)
        assert isinstance(computed, np.ndarray)
        assert computed.shape == (20,)
        assert computed.tolist() == rewards
    assert env.compute_reward(desired, desired, None) == pytest.approx(0)
    cube = achieved.reshape(4, 5, -1)
    assert env.compute_reward(cube, desired.reshape(4, 5, -1), None).shape == (4, 5)


# The vector environment


def single(task: str) -> Callable[[], gymnasium.Env[Any, Any]]:
    return lambda: FetchGymEnv(task)


@pytest.mark.parametrize("mode", MODES)
def test_make_vec_gives_the_native_environment(mode: str) -> None:
    env = gymnasium.make_vec("efmdp/Fetch2Push-v1", num_envs=3, autoreset_mode=mode)
    assert isinstance(env.unwrapped, FetchVectorEnv)
    assert env.num_envs == 3
    assert env.metadata["autoreset_mode"] == AutoresetMode(mode)
    assert env.single_action_space == gymnasium.make("efmdp/Fetch2Push-v1").action_space
    obs, _ = env.reset(seed=0)
    assert obs in env.observation_space
    obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert obs in env.observation_space
    assert reward.shape == terminated.shape == truncated.shape == info["is_success"].shape == (3,)
    assert terminated.dtype == truncated.dtype == info["is_success"].dtype == bool
    env.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("task", ["1-Switch", "2-Switch|2-Push"])
def test_autoreset_against_a_loop_over_single_environments(mode: str, task: str) -> None:
    """1-Switch ends after 20 steps, in all slots together; the mixture after 40 or 100, in each on its own."""
    vector = FetchVectorEnv(3, task=task, autoreset_mode=mode)
    envs = [FetchGymEnv(task) for _ in SEEDS]
    obs, _ = vector.reset(seed=SEEDS)
    for i, (env, seed) in enumerate(zip(envs, SEEDS, strict=True)):
        assert equal(row(obs, i), env.reset(seed=seed)[0])
    done, ends = [False] * 3, 0
    for action in moves(45, 3):
        obs, reward, terminated, truncated, info = vector.step(action)
        assert not terminated.any()
        ended = truncated.copy()
        for i, env in enumerate(envs):
            if mode == "NextStep" and done[i]:
                expected, expected_reward, done[i], success = env.reset()[0], 0, False, False
            else:
                expected, expected_reward, _, done[i], single_info = env.step(action[i])
                success = single_info["is_success"]
                if mode == "SameStep" and done[i]:
                    assert equal(info["final_obs"][i], expected)
                    assert info["final_info"]["is_success"][i] == success
                    assert info["final_info"]["task"][i] == single_info["task"]
                    expected = env.reset()[0]
            assert reward[i] == expected_reward
            assert truncated[i] == done[i]
            if mode != "SameStep" or not done[i]:
                assert info["is_success"][i] == success
            assert equal(row(obs, i), expected)
        if mode == "SameStep":
            assert ("final_obs" in info) == ended.any()
            if ended.any():
                assert info["_final_obs"].tolist() == ended.tolist()
                assert all((info["final_obs"][i] is None) == (not ended[i]) for i in range(3))
        ends += ended.sum()
        if mode == "Disabled" and ended.any():
            obs, _ = vector.reset(options={"reset_mask": ended})
            for i in np.flatnonzero(ended):
                assert equal(row(obs, i), envs[i].reset()[0])
    assert ends >= 1


def comparable(info: Any) -> Any:
    """Infos as plain data: arrays as lists, dictionaries in one order; where a mask is False, nothing counts."""
    if isinstance(info, dict):
        return {name: comparable(value) for name, value in sorted(info.items())}
    if isinstance(info, np.ndarray) and info.dtype == object:
        return [comparable(value) for value in info]
    return info.tolist() if isinstance(info, np.ndarray) else info


def masked(info: dict[str, Any]) -> dict[str, Any]:
    """What counts of a vector environment's infos: per name, the values where the mask `_name` is True."""
    plain = {}
    for name, value in info.items():
        if name.startswith("_"):
            continue
        mask = info[f"_{name}"]
        if isinstance(value, dict):
            plain[name] = masked(value)
        else:
            plain[name] = {int(i): comparable(value[i]) for i in np.flatnonzero(mask)}
    return plain


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("task", ["1-Switch", "2-Switch|2-Push"])
def test_steps_are_those_of_gymnasium_s_own_vector_environment(mode: str, task: str) -> None:
    ours = FetchVectorEnv(3, task=task, autoreset_mode=mode)
    theirs = SyncVectorEnv([single(task)] * 3, autoreset_mode=AutoresetMode(mode))
    assert equal(ours.reset(seed=SEEDS)[0], theirs.reset(seed=SEEDS)[0])
    for action in moves(45, 3):
        a, b = ours.step(action), theirs.step(action)
        assert equal(a[0], b[0])
        for x, y in zip(a[1:4], b[1:4], strict=True):
            assert np.array_equal(x, y)
        ended = a[3]
        assert ("final_obs" in a[4]) == ("final_obs" in b[4]) == (mode == "SameStep" and ended.any())
        if "final_obs" in a[4]:
            for name in ("final_obs", "final_info"):
                assert np.array_equal(a[4][f"_{name}"], b[4][f"_{name}"])
            for i in np.flatnonzero(ended):
                assert equal(a[4]["final_obs"][i], b[4]["final_obs"][i])
            assert masked(a[4]["final_info"]) == masked(b[4]["final_info"])


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_infos_are_those_of_gymnasium_s_own_vector_environment(mode: str) -> None:
    """Of the episode that the observation belongs to: after an autoreset, of the new one. (At a reset there is nothing
    that could have failed, so `failed` is not compared.)"""
    task = "2-Switch|2-Push"
    ours = FetchVectorEnv(3, task=task, autoreset_mode=mode)
    theirs = SyncVectorEnv([single(task)] * 3, autoreset_mode=AutoresetMode(mode))
    ours.reset(seed=SEEDS)
    theirs.reset(seed=SEEDS)
    for t, action in enumerate(moves(45, 3)):
        info, expected = ours.step(action)[4], theirs.step(action)[4]
        for name in ("task", "is_success"):
            assert masked(info)[name] == masked(expected)[name], f"step {t}"


def test_infos_of_a_reset_are_those_of_gymnasium_s_own_vector_environment() -> None:
    task = "2-Switch|2-Push"
    info = FetchVectorEnv(3, task=task).reset(seed=SEEDS)[1]
    assert masked(info) == masked(SyncVectorEnv([single(task)] * 3).reset(seed=SEEDS)[1])


def test_returned_arrays_are_not_reused() -> None:
    env = FetchVectorEnv(2, task="1-Switch", autoreset_mode="Disabled")
    env.reset(seed=0)
    for action in moves(20, 2):
        obs, reward, terminated, truncated, _ = env.step(action)
    assert truncated.all()
    kept = [value.copy() for value in (*obs.values(), reward, terminated, truncated)]
    env.reset(options={"reset_mask": truncated})
    env.step(moves(1, 2)[0])
    assert all(np.array_equal(a, b) for a, b in zip((*obs.values(), reward, terminated, truncated), kept, strict=True))


def test_a_mask_resets_some() -> None:
    env = FetchVectorEnv(3, task="1-Push", autoreset_mode="Disabled")
    before, _ = env.reset(seed=0)
    after, _ = env.reset(options={"reset_mask": np.array([True, False, True])})
    same = [equal(row(before, i), row(after, i)) for i in range(3)]
    assert same == [False, True, False]


def test_vector_compute_reward() -> None:
    env = FetchVectorEnv(4, task="2-Push", reward="dense")
    env.reset(seed=0)
    obs, reward, *_ = env.step(moves(1, 4)[0])
    assert np.array_equal(env.compute_reward(obs["achieved_goal"], obs["desired_goal"], None), reward)


def test_a_failure_is_reported_in_the_info_of_its_environment(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log where it runs
    env = FetchVectorEnv(3, task="1-Push")
    env.reset(seed=0)
    env.fetch._tables[0].qvel[1] = np.nan
    obs, _, _, truncated, info = env.step(moves(1, 3)[0])
    assert info["failed"].tolist() == truncated.tolist() == [False, True, False]
    assert np.isfinite(obs["observation"]).all()
    _, _, _, truncated, info = env.step(moves(1, 3)[0])
    assert not info["failed"].any()
    assert not truncated.any()
    alone = FetchGymEnv("1-Push")
    alone.reset(seed=0)
    alone.fetch._tables[0].qvel[0] = np.nan
    *_, truncated, info = alone.step(np.zeros(4, np.float32))
    assert truncated is info["failed"] is True


def test_the_info_of_a_failure_names_the_task_that_failed(tmp_path, monkeypatch) -> None:
    """Its slot has drawn another task by then."""
    monkeypatch.chdir(tmp_path)
    env = FetchVectorEnv(8, task="2-Switch|2-Push")
    env.reset(seed=0)
    playing = env.fetch.member.copy()
    for member in (0, 1):
        env.fetch._tables[member].qvel[playing == member] = np.nan
    info = env.step(moves(1, 8)[0])[4]
    assert info["failed"].all()
    assert (env.fetch.member != playing).any()
    assert info["task"].tolist() == [("2-Switch", "2-Push")[member] for member in playing]


# Pictures


@pytest.fixture(scope="module")
def opengl() -> None:
    import mujoco

    try:
        mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 16, 16).close()
    except Exception as error:
        pytest.skip(f"no OpenGL on this machine: {error}")


@pytest.mark.usefixtures("opengl")
def test_rendering() -> None:
    env = gymnasium.make("efmdp/Fetch1Switch1Push-v1", render_mode="rgb_array", width=160, height=120)
    env.reset(seed=0)
    first = env.render()
    assert first.shape == (120, 160, 3)
    assert first.dtype == np.uint8
    assert first.std() > 10
    assert np.array_equal(first, env.render())
    kept = first.copy()
    for _ in range(4):
        env.step(np.array([0, 0, 1, 0], np.float32))
    moved = env.render()
    assert np.array_equal(first, kept)
    changed = np.abs(moved.astype(int) - first).max(-1) > 30
    assert 0.005 < changed.mean() < 0.5  # hand and arm, not the whole picture
    env.close()


@pytest.mark.usefixtures("opengl")
def test_the_robot_the_cube_and_its_goal_are_seen() -> None:
    import mujoco

    from efmdp.render import Picture

    env = FetchEnv(parse_task("1-Push"), 1)
    picture = Picture(env, 160, 120)
    picture.frame()
    (renderer,) = picture._renderers.values()
    renderer.enable_segmentation_rendering()
    shown = renderer.render()  # (H, W, 2): object id and type
    ((model, _),) = picture._tables.values()
    geoms = np.unique(shown[..., 0][shown[..., 1] == int(mujoco.mjtObj.mjOBJ_GEOM)])
    bodies = {model.body(model.geom_bodyid[g]).name for g in geoms if 0 <= g < model.ngeom}
    assert {"cube0", "table0", "robot0:gripper_link"} <= bodies
    assert len([name for name in bodies if name.startswith("robot0:")]) >= 4
    renderer.disable_segmentation_rendering()
    red = picture.frame().astype(int)
    reddish = (red[..., 0] > 100) & (red[..., 1] < 0.6 * red[..., 0]) & (red[..., 2] < 0.6 * red[..., 0])
    assert reddish.sum() > 20
    picture.close()


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("name", ["Fetch2SwitchOr2Push", "Fetch2SwitchAnd2Push"])
def test_a_vector_environment_renders_each_of_its_environments(name: str) -> None:
    env = gymnasium.make_vec(f"efmdp/{name}-v1", num_envs=3, render_mode="rgb_array", width=80, height=60).unwrapped
    env.reset(seed=[0, 1, 2])
    frames = env.render()
    assert [frame.shape for frame in frames] == [(60, 80, 3)] * 3
    assert not np.array_equal(frames[0], frames[1])
    env.close()


def test_a_window_without_a_screen_is_an_error_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("efmdp.render.has_screen", lambda: False)
    env = gymnasium.make("efmdp/Fetch1Push-v1", render_mode="human")
    with pytest.raises(ValueError, match="there is no screen"):
        env.reset()


def test_goals_of_another_size_are_refused() -> None:
    env = gymnasium.make("efmdp/Fetch2Push-v1").unwrapped
    with pytest.raises(ValueError, match="this task's have 6"):
        env.compute_reward(np.zeros((5, 9)), np.zeros((5, 9)), [{}] * 5)


def test_a_vector_environment_has_no_window_and_closes() -> None:
    with pytest.raises(ValueError, match="no window"):
        gymnasium.make_vec("efmdp/Fetch1Push-v1", num_envs=2, render_mode="human")
    envs = gymnasium.make_vec("efmdp/Fetch1Push-v1", num_envs=2)
    envs.close()
    assert envs.closed
