import mujoco
import numpy as np
import pytest

from efmdp.entities import EntityObs, Step
from efmdp.env import REACH_PER_STEP, FetchEnv
from efmdp.scene import CUBE_REST_HEIGHT, GRIPPER_START, TABLE_TOP
from efmdp.tasks import parse_task

PROFILES = ("reference", "fast")


def make(name: str, num_envs: int = 2, profile: str = "fast", seed: int = 0, threads: int = 0, **options) -> FetchEnv:
    return FetchEnv(parse_task(name, **options), num_envs, profile, seed, threads)


def action(env: FetchEnv, *values: float) -> np.ndarray:
    return np.tile(np.array(values, float), (env.num_envs, 1))


def random_actions(env: FetchEnv, steps: int, seed: int = 0) -> np.ndarray:
    """(T, B, A), each held for five steps, so that the hand goes somewhere."""
    rng = np.random.default_rng(seed)
    shape = (-(-steps // 5), env.num_envs, 4)
    return np.repeat(rng.uniform(-1, 1, shape), 5, axis=0)[:steps]


def arrays(result: EntityObs | Step) -> list[np.ndarray]:
    return [*result.obs, *result[1:]] if isinstance(result, Step) else list(result)


def same(a: EntityObs | Step, b: EntityObs | Step, a_rows=slice(None), b_rows=slice(None)) -> bool:
    return all(np.array_equal(x[a_rows], y[b_rows]) for x, y in zip(arrays(a), arrays(b), strict=True))


def place_cube(env: FetchEnv, cube: int, position: tuple[float, ...], velocity: tuple[float, ...] = (0,) * 6) -> None:
    """Put a cube of every slot (of the only member) somewhere, with (linear, angular) velocity, right after a reset.
    A position of 7 numbers has the quaternion, too."""
    (simulations,) = env._tables
    q, v = simulations.scene.cube_qpos.start + 7 * cube, simulations.scene.cube_qvel.start + 6 * cube
    simulations.qpos[:, q : q + len(position)] = position
    simulations.qvel[:, v : v + 6] = velocity
    simulations.batch.forward()


# Physics


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", ["2-Switch+2-Push", "Stack", "2-Switch&2-Push", "2-Push&Stack"])
def test_nothing_moves_by_itself(name: str, profile: str) -> None:
    env = make(name, 4, profile)
    before = env.reset(seed=0)
    for _ in range(50):
        obs = env.step(action(env, 0, 0, 0, 0)).obs
    moved = np.abs(env.achieved(obs.entities) - env.achieved(before.entities)).max()
    assert moved < 1e-4
    assert np.linalg.norm(obs.agent[:, :3] - GRIPPER_START, axis=1).max() < 5e-3
    assert np.abs(obs.agent[:, 5:8]).max() < 1e-4


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("size", [1.0, 0.5, -0.5, -1.0])
def test_an_action_moves_the_hand(profile: str, axis: int, size: float) -> None:
    """The target runs ahead by 5 cm; within a control step the hand makes about two thirds of that."""
    env = make("1-Switch", 1, profile)
    env.reset(seed=0)
    env._tables[0].switch_bases[:, :, :2] = 1.1, 0.45  # out of the way
    for _ in range(3):  # up, away from the table
        start = env.step(action(env, 0, 0, 1, 0)).obs
    for _ in range(2):
        start = env.step(action(env, 0, 0, 0, 0)).obs
    move = [0.0] * 4
    move[axis] = size
    for _ in range(2):
        obs = env.step(action(env, *move)).obs
    travelled = (obs.agent - start.agent)[0, :3]
    expected = np.zeros(3)
    expected[axis] = 2 * size * REACH_PER_STEP
    assert 0.5 < travelled[axis] / expected[axis] < 0.8
    others = [i for i in range(3) if i != axis]
    assert np.abs(travelled[others]).max() < 4e-3


@pytest.mark.parametrize("profile", PROFILES)
def test_half_an_action_goes_half_as_far_and_more_than_one_is_one(profile: str) -> None:
    ways = {}
    for size in (0.5, 1.0, 3.0):
        env = make("1-Push", 1, profile)
        start = env.reset(seed=0)
        for _ in range(2):
            obs = env.step(action(env, 0, 0, size, 0)).obs
        ways[size] = float((obs.agent - start.agent)[0, 2])
    assert ways[0.5] == pytest.approx(ways[1.0] / 2, rel=0.1)
    assert ways[3.0] == ways[1.0]


@pytest.mark.parametrize("collisions", [False, True])
@pytest.mark.parametrize("profile", PROFILES)
def test_a_pushed_cube_moves_another_only_with_collisions(collisions: bool, profile: str) -> None:
    env = make("2-Push", 1, profile, collisions=collisions)
    env.reset(seed=0)
    x, y, _ = GRIPPER_START
    place_cube(env, 0, (x, y + 0.06, CUBE_REST_HEIGHT))
    place_cube(env, 1, (x, y + 0.13, CUBE_REST_HEIGHT))
    for _ in range(3):
        obs = env.step(action(env, 0, 0.7, 0.05, 0)).obs
    first, second = obs.entities[0, :, 1]
    assert first > y + 0.1  # it was pushed, far enough to meet the other
    if collisions:
        assert second > y + 0.14
        assert second - first > 0.045
    else:
        assert second == pytest.approx(y + 0.13, abs=1e-3)
        assert second - first < 0.04  # one inside the other


def test_the_hand_tips_a_switch_and_it_stays() -> None:
    """Pushed towards +y the lever turns to θ < 0, against its limit; left alone it does not come back."""
    env = make("1-Switch", 1)
    env.reset(seed=0)
    env._tables[0].switch_bases[:, 0, :2] = GRIPPER_START[0], GRIPPER_START[1] + 0.06
    env._tables[0].batch.forward()
    for _ in range(3):
        env.step(action(env, 0, 0, 0.3, 0))
    for _ in range(3):  # and not beyond the lever: on its way back the hand would bring it along
        obs = env.step(action(env, 0, 0.5, 0, 0)).obs
    assert obs.entities[0, 0, 0] == pytest.approx(-0.7, abs=0.05)
    for _ in range(3):
        left = env.step(action(env, 0, -1, 0, 0)).obs.entities[0, 0, 0]
    for _ in range(10):
        obs = env.step(action(env, 0, 0, 0, 0)).obs
    assert obs.entities[0, 0, 0] == pytest.approx(left, abs=1e-3)
    assert left == pytest.approx(-0.7, abs=0.05)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_fourth_action_does_nothing_where_the_gripper_is_closed(profile: str) -> None:
    results = []
    for finger in (-1.0, 0.0, 1.0):
        env = make("2-Push", 2, profile)
        env.reset(seed=5)
        for moves in random_actions(env, 10):
            moves[:, 3] = finger
            result = env.step(moves)
        results.append(result)
        assert np.abs(result.obs.agent[:, 3:5]).max() < 1e-3
    assert same(results[0], results[1])
    assert same(results[0], results[2])


@pytest.mark.parametrize("profile", PROFILES)
def test_the_fourth_action_moves_the_fingers_in_stack(profile: str) -> None:
    env = make("Stack", 2, profile)
    assert (env.reset(seed=0).agent[:, 3:5] == 0).all()
    opened = env.step(action(env, 0, 0, 0.5, 1)).obs
    assert (opened.agent[:, 3:5] > 0.01).all()
    assert (opened.agent[:, 8:10] > 0).all()
    for _ in range(3):
        opened = env.step(action(env, 0, 0, 0.5, 1)).obs
    assert opened.agent[:, 3:5] == pytest.approx(0.05, abs=2e-3)  # both fingers, to the end
    closing = env.step(action(env, 0, 0, 0, -1)).obs
    assert (closing.agent[:, 8:10] < 0).all()
    for _ in range(5):
        closed = env.step(action(env, 0, 0, 0, -1)).obs
    assert np.abs(closed.agent[:, 3:5]).max() < 3e-3


# Observations, against what MuJoCo says


def looked_into(env: FetchEnv, slot: int = 0) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """The slot's model and data with everything derived computed afresh from the state."""
    scene, data = env.simulation(slot)
    mujoco.mj_forward(scene.model, data)
    return scene.model, data


def object_velocity(model: mujoco.MjModel, data: mujoco.MjData, body: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Linear and angular velocity in the world's frame, of a "body" or "site"."""
    kinds = {"body": mujoco.mjtObj.mjOBJ_BODY, "site": mujoco.mjtObj.mjOBJ_SITE}
    result = np.zeros(6)
    mujoco.mj_objectVelocity(model, data, int(kinds[kind]), body, result, 0)
    return result[3:], result[:3]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", ["2-Push", "2-Switch+2-Push", "Stack"])
def test_features_are_what_mujoco_says(name: str, profile: str) -> None:
    from gymnasium_robotics.utils.rotations import mat2euler  # slow to import

    env = make(name, 2, profile)
    env.reset(seed=1)
    tilted = (1.3, 0.6, 0.55, *(np.array([0.8, 0.3, -0.4, 0.33]) / np.linalg.norm([0.8, 0.3, -0.4, 0.33])))
    place_cube(env, 0, tilted, (0.3, -0.2, 0.5, 12.0, -6.0, 18.0))  # thrown, spinning
    for moves in random_actions(env, 2, seed=2):
        obs = env.step(moves).obs
    dt = env._tables[0].scene.control_dt
    switches = env.task.scenes[0].switches
    for slot in range(2):
        model, data = looked_into(env, slot)
        grip = data.site("robot0:grip")
        hand_velocity, _ = object_velocity(model, data, grip.id, "site")
        agent = obs.agent[slot]
        assert agent[:3] == pytest.approx(grip.xpos, abs=1e-6)
        assert agent[5:8] == pytest.approx(hand_velocity * dt, abs=1e-6)
        assert np.abs(agent[5:8]).max() > 1e-3
        for i, entity in enumerate(obs.entities[slot]):
            assert entity[15] == (i < switches)
            if i < switches:
                base = data.body(f"switch{i}").xpos
                assert entity[0] == pytest.approx(data.joint(f"switch{i}").qpos[0], abs=1e-6)
                assert entity[3:6] == pytest.approx(base - grip.xpos, abs=1e-6)
                assert entity[9:12] == pytest.approx(base, abs=1e-6)
                assert base[2] == TABLE_TOP
                assert (entity[[1, 2, 6, 7, 8, 12, 13, 14]] == 0).all()
                continue
            cube = data.body(f"cube{i - switches}")
            velocity, spin = object_velocity(model, data, cube.id, "body")
            assert entity[:3] == pytest.approx(cube.xpos, abs=1e-6)
            assert entity[3:6] == pytest.approx(cube.xpos - grip.xpos, abs=1e-6)
            assert entity[6:9] == pytest.approx(mat2euler(cube.xmat.reshape(3, 3)), abs=1e-5)
            assert entity[9:12] == pytest.approx((velocity - hand_velocity) * dt, abs=1e-6)
            assert entity[12:15] == pytest.approx(spin * dt, abs=1e-6)
        thrown = obs.entities[slot, switches]
        assert np.abs(thrown[6:9]).max() > 0.1
        assert np.abs(thrown[12:15]).max() > 0.01


@pytest.mark.parametrize("profile", PROFILES)
def test_velocities_are_per_control_step(profile: str) -> None:
    env = make("1-Push", 1, profile)
    env.reset(seed=1)
    place_cube(env, 0, (1.3, 0.6, 0.9), (0.5, -0.3, 0, 0, 0, 0))  # in free flight: x and y are uniform
    before = env.observe()
    for _ in range(2):
        previous, before = before, env.step(action(env, 0, 0.5, 0.5, 0)).obs
    moved = before.entities[0, 0, :2] - previous.entities[0, 0, :2]
    relative, hand = before.entities[0, 0, 9:11], before.agent[0, 5:7]
    assert relative + hand == pytest.approx(moved, rel=0.02)
    assert moved == pytest.approx([0.02, -0.012], rel=0.02)
    lag = (before.agent - previous.agent)[0, :3]
    assert (np.sign(lag[1:]) == np.sign(before.agent[0, 6:8])).all()
    assert before.agent[0, 6:8] == pytest.approx(lag[1:], rel=0.5)


def test_goals_are_those_of_the_layout() -> None:
    obs = make("1-Switch+1-Push", 16).observe()
    assert np.isin(obs.goals[:, 0, 0], np.float32([-0.7, 0.7])).all()
    assert (obs.goals[:, 0, 1:] == 0).all()
    assert obs.goals[:, 1, 2] == pytest.approx(CUBE_REST_HEIGHT)
    assert (obs.entities[:, 0, 0] == 0).all()  # switches start upright


def test_shapes_types_and_arrays_of_one_s_own() -> None:
    env = make("2-Switch+1-Push", 3)
    first = env.observe()
    kept = [a.copy() for a in first]
    result = env.step(random_actions(env, 1)[0])
    assert [a.shape for a in first] == [(3, 10), (3, 3, 16), (3, 3, 3)]
    assert {a.dtype for a in first} == {np.dtype(np.float32)}
    assert [a.shape for a in result[1:]] == [(3,)] * 4
    assert all(np.array_equal(a, b) for a, b in zip(first, kept, strict=True))
    first.goals[:] = 9
    assert env.observe().goals.max() < 2


# Reward


@pytest.mark.parametrize("reward", ["sparse", "dense"])
def test_rewards_by_hand(reward: str) -> None:
    env = make("1-Switch+2-Push", 1, reward=reward)
    goals = np.array([[[0.7, 0, 0], [1.3, 0.7, 0.425], [1.4, 0.8, 0.425]]], np.float32)
    offsets = np.array([0.04, 0.03, 0.02])
    close = goals + np.array([[[-0.04, 0, 0], [0, 0.03, 0], [0, 0, -0.02]]], np.float32)
    far = goals + np.array([[[-0.06, 0, 0], [0, 0.03, 0], [0.3, 0.4, 0]]], np.float32)
    assert env.success(close, goals).tolist() == [True]
    assert env.success(far, goals).tolist() == [False]
    if reward == "sparse":
        assert env.reward(close, goals).tolist() == [0]
        assert env.reward(far, goals).tolist() == [-1]
    else:
        assert env.reward(close, goals) == pytest.approx(-offsets.mean(), abs=1e-6)
        assert env.reward(far, goals) == pytest.approx(-(0.06 + 0.03 + 0.5) / 3, abs=1e-6)
    stacked = np.stack([np.stack([close[0], far[0]])] * 3)  # (T, B, N, G)
    assert env.reward(stacked, np.broadcast_to(goals, stacked.shape)).shape == (3, 2)


@pytest.mark.parametrize("reward", ["sparse", "dense"])
def test_step_rewards_what_it_observes(reward: str) -> None:
    env = make("2-Push", 3, reward=reward)
    obs = env.reset(seed=0)
    (simulations,) = env._tables
    cubes = simulations.qpos[:, simulations.scene.cube_qpos].reshape(3, 2, 7)
    cubes[0, :, :2] = obs.goals[0, :, :2]  # slot 0 solved, slot 1 half, slot 2 not at all
    cubes[1, 0, :2] = obs.goals[1, 0, :2]
    simulations.qpos[:, simulations.scene.cube_qpos] = cubes.reshape(3, -1)
    simulations.batch.forward()
    result = env.step(action(env, 0, 0, 1, 0))
    distance = np.linalg.norm(result.obs.entities[..., :3] - result.obs.goals, axis=-1)
    assert result.success.tolist() == [True, False, False]
    if reward == "sparse":
        assert result.reward.tolist() == [0, -1, -1]
    else:
        assert result.reward == pytest.approx(-distance.mean(1), abs=1e-6)
        assert result.reward[0] > -0.01
    assert not result.truncated.any()  # success ends nothing


# Slots


def test_resetting_some_slots_leaves_the_others_alone() -> None:
    one, two = make("2-Switch+1-Push", 4), make("2-Switch+1-Push", 4)
    one.reset(seed=3)
    two.reset(seed=3)
    for t, moves in enumerate(random_actions(one, 30)):
        if t == 10:
            before = one.observe()
            after = one.reset([1, 3])
            assert same(before, after, [0, 2], [0, 2])
            assert not np.array_equal(before.entities[[1, 3]], after.entities[[1, 3]])
            assert one.elapsed.tolist() == [10, 0, 10, 0]
        a, b = one.step(moves), two.step(moves)
        assert same(a, b, [0, 2], [0, 2])


def test_a_mask_selects_slots_too() -> None:
    env = make("1-Push", 3)
    before = env.reset(seed=0)
    after = env.reset(np.array([False, True, False]))
    assert (before.goals == after.goals).all(axis=(1, 2)).tolist() == [True, False, True]
    assert same(after, env.reset([]))
    with pytest.raises(ValueError, match="there are 3"):
        env.reset([3])


@pytest.mark.parametrize("name", ["2-Push", "2-Switch|2-Push", "Stack", "2-Switch&2-Push"])
def test_a_slot_with_its_seed_is_a_single_environment(name: str) -> None:
    seeds = [11, 5, 11]
    env = make(name, 3)
    singles = [make(name, 1) for _ in seeds]
    assert same(env.reset(seed=seeds), env.observe())
    for single, seed in zip(singles, seeds, strict=True):
        single.reset(seed=[seed])
    moves = random_actions(env, 25)
    moves[:, 2] = moves[:, 0]  # so that slots 0 and 2 do the same
    for m in moves:
        together = env.step(m)
        for i, single in enumerate(singles):
            assert same(together, single.step(m[i : i + 1]), [i], [0])
    assert same(together, together, [0], [2])
    obs = env.reset()
    for i, single in enumerate(singles):
        assert same(obs, single.reset(), [i], [0])  # and the streams go on alike
    assert same(make(name, 1).reset(seed=7), single.reset(seed=[7]))


@pytest.mark.parametrize("name", ["3-Push", "2-Push|Stack"])
def test_the_number_of_threads_changes_nothing(name: str) -> None:
    one, two = make(name, 5, threads=1), make(name, 5, threads=2)
    assert same(one.observe(), two.observe())
    for moves in random_actions(one, 40):
        assert same(one.step(moves), two.step(moves))


def test_seeds() -> None:
    env = make("3-Push", 3)
    a, b, c = env.reset(seed=1), env.reset(seed=1), env.reset(seed=2)
    assert same(a, b)
    assert not np.array_equal(a.goals, c.goals)
    assert not np.array_equal(a.goals[0], a.goals[1])  # an int gives every slot a stream of its own
    with pytest.raises(ValueError, match="2 seeds for 3 environments"):
        env.reset(seed=[1, 2])


def test_truncation_at_the_horizon_of_each_slot() -> None:
    env = make("1-Switch", 2)
    for t in range(1, 21):
        if t == 6:
            env.reset([1])
        truncated = env.step(action(env, 0, 0, 0, 0)).truncated
        assert truncated.tolist() == [t >= 20, False]
    assert env.elapsed.tolist() == [20, 15]


@pytest.mark.parametrize("name", ["2-Switch|2-Push", "2-Push|Stack"])
def test_mixtures(name: str) -> None:
    env = make(name, 32, seed=4)
    assert 6 <= env.member.sum() <= 26
    horizons = np.array([scene.horizon for scene in env.task.scenes])
    assert (env.horizons == horizons[env.member]).all()
    obs = env.observe()
    switches = np.array([scene.switches for scene in env.task.scenes])[env.member]
    assert (obs.entities[..., 15].sum(1) == switches).all()
    first = env.member.copy()
    env.reset()
    assert (env.member != first).any()  # each episode draws anew
    seen = env.member.copy()
    env.reset(seed=4)
    env.reset()
    again = make(name, 32, seed=4)
    assert (again.member == first).all()
    again.reset()
    assert (again.member == seen).all()


def test_slots_of_a_mixture_end_at_their_own_horizon() -> None:
    env = make("2-Switch|2-Push", 6, seed=0)
    assert set(env.member) == {0, 1}
    for t in range(1, 101):
        result = env.step(action(env, 0, 0, 0, 0))
        assert (result.truncated == (t >= np.array([40, 100])[env.member])).all()


@pytest.mark.parametrize("name", ["2-Switch&2-Push", "2-Push&Stack", "1-Switch&2-Push"])
def test_on_a_shared_table_only_the_drawn_task_is_to_do(name: str) -> None:
    env = make(name, 32, seed=4)
    assert len(env._tables) == 1
    assert 6 <= env.member.sum() <= 26
    assert (env.horizons == 100).all()
    obs, entities = env.observe(), range(env.num_entities)
    solved = env.distance(env.achieved(obs.entities), obs.goals) < 1e-6
    for slot, member in enumerate(env.member):
        scene = env.task.scenes[member]
        switches, cubes = env.task.places(scene)
        to_do = np.flatnonzero(~solved[slot])
        assert set(to_do) <= {*entities[switches], *entities[cubes]}
        assert len(to_do) == scene.entities - scene.stacks  # of a stack the base is in its place
    first = env.member.copy()
    env.reset()
    assert (env.member != first).any()  # each episode draws anew


@pytest.mark.parametrize(("name", "profile"), [("2-Switch&2-Push", "reference"), ("2-Switch&Stack", "fast")])
def test_what_starts_solved_stays_solved(name: str, profile: str) -> None:
    """Also next to the hand, which is whole in the reference physics, and where levers collide with each other."""
    env = make(name, 100, profile, seed=0)
    before = env.achieved(env.observe().entities)
    for _ in range(3):
        obs = env.step(action(env, 0, 0, 0, 0)).obs
    assert np.abs(env.achieved(obs.entities) - before).max() < 1e-3


def test_who_disturbs_what_was_solved_has_not_solved_the_task() -> None:
    env = make("1-Switch&1-Push", 16, seed=1)
    (simulations,), obs = env._tables, env.observe()
    simulations.cube_pose[:, 0, :2] = obs.goals[:, 1, :2]
    simulations.levers[:, 0] = obs.goals[:, 0, 0]
    still = action(env, 0, 0, 0, 0)
    assert env.step(still).success.all()
    cube, lever = env.member == 0, env.member == 1  # what was solved from the start
    assert cube.any()
    assert lever.any()
    simulations.cube_pose[cube, 0, 1] += 0.06
    simulations.levers[lever] *= 0.9
    assert not env.step(still).success.any()


# What goes wrong


@pytest.mark.parametrize("name", ["2-Push", "2-Switch+1-Push", "2-Switch|2-Push"])
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("value", [np.nan, 1e30])
def test_a_simulation_that_blows_up_fails_alone(name: str, profile: str, value: float, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log where it runs
    poked, calm = make(name, 4, profile, seed=2), make(name, 4, profile, seed=2)
    victim = int(np.flatnonzero(poked.member == 0)[0])
    start = poked.observe()
    others = [i for i in range(4) if i != victim]
    for t, moves in enumerate(random_actions(poked, 12)):
        if t == 6:
            poked._tables[0].qvel[victim] = value
        a, b = poked.step(moves), calm.step(moves)
        assert same(a, b, others, others)
        assert all(np.isfinite(x).all() for x in arrays(a))
        assert a.failed.tolist() == [t == 6 and i == victim for i in range(4)]
        assert a.truncated.tolist() == [t == 6 and i == victim for i in range(4)]
        if t == 6:
            assert not np.array_equal(a.obs.entities[victim], start.entities[victim])  # a new episode
            assert np.abs(a.obs.agent[victim, :3] - GRIPPER_START).max() < 1e-3
            poked.reset([victim])
            assert poked.elapsed[victim] == 0
    assert (poked.failures, calm.failures) == (1, 0)


def test_a_failed_slot_that_is_not_reset_begins_a_new_episode(tmp_path, monkeypatch) -> None:
    """`EntityEnv` says that it is put at the start of a new episode, so that it can go on: its clock, too."""
    monkeypatch.chdir(tmp_path)
    env = make("1-Switch", 2)
    still = action(env, 0, 0, 0, 0)
    for _ in range(9):
        env.step(still)
    env._tables[0].qvel[0] = np.nan
    assert env.step(still).failed.tolist() == [True, False]
    assert env.elapsed.tolist() == [0, 10]


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (np.zeros((2, 3)), ValueError, r"shape \(2, 3\), expected \(2, 4\)"),
        (np.zeros(4), ValueError, r"shape \(4,\), expected \(2, 4\)"),
        (np.zeros((3, 4)), ValueError, r"shape \(3, 4\)"),
        (np.zeros((2, 4), int), TypeError, "dtype int64"),
        (np.zeros((2, 4), bool), TypeError, "dtype bool"),
        (np.zeros((2, 4), object), TypeError, "dtype object"),
        (np.array([[0, 0, 0, 0], [0, np.nan, 0, 0]], float), ValueError, r"environments \[1\] are not finite"),
        (np.array([[np.inf, 0, 0, 0], [0, 0, 0, 0]], float), ValueError, r"environments \[0\] are not finite"),
    ],
)
def test_bad_actions_raise_before_anything_changes(actions: np.ndarray, error: type, message: str) -> None:
    env = make("2-Push", 2)
    before, state = env.observe(), env._tables[0].batch.state.copy()
    with pytest.raises(error, match=message):
        env.step(actions)
    assert same(before, env.observe())
    assert np.array_equal(state, env._tables[0].batch.state)
    assert env.elapsed.tolist() == [0, 0]


def test_actions_are_not_changed_and_may_be_single_precision() -> None:
    one, two = make("1-Push", 2), make("1-Push", 2)
    moves = np.full((2, 4), 2.0, np.float32)
    result = one.step(moves)
    assert (moves == 2).all()
    exact = two.step(np.ones((2, 4)))
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(arrays(result), arrays(exact), strict=True))


def test_there_is_no_environment_without_slots() -> None:
    with pytest.raises(ValueError, match="at least one"):
        make("1-Push", 0)


# Save and restore


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", ["2-Switch+2-Push", "2-Push|Stack", "2-Switch&2-Push"])
def test_a_restored_environment_goes_on_identically(name: str, profile: str) -> None:
    env = make(name, 4, profile, seed=6)
    for moves in random_actions(env, 15):
        env.step(moves)
    env.reset()
    saved = env.save()
    moves = random_actions(env, 25, seed=1)
    first = env.observe()
    results = [env.step(m) for m in moves]
    following = env.reset()
    for target in (env, make(name, 4, profile, seed=99)):
        assert same(target.restore(saved), first)
        assert all(same(target.step(m), result) for m, result in zip(moves, results, strict=True))
        assert (target.elapsed == 25).all()
        assert same(target.reset(), following)


def test_a_saved_state_is_a_copy_and_knows_its_size() -> None:
    env = make("1-Push", 2)
    saved = env.save()
    goals = saved["goals"].copy()
    env.reset()
    assert np.array_equal(saved["goals"], goals)
    env.restore(saved)
    env.reset()
    assert np.array_equal(saved["goals"], goals)
    with pytest.raises(ValueError, match=r"2 environments of 1 entities.* this is FetchEnv: 3 environments"):
        make("1-Push", 3).restore(saved)


def test_slots_may_be_reset_in_any_order_and_bad_ones_change_nothing() -> None:
    env = make("2-Push", 3)
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.ones((3, 4)))
    before = env.observe()
    for wrong in ([True, False], [0.0, 1.0], [3], [-1]):
        with pytest.raises(ValueError, match="slots"):
            env.reset(wrong)
    after = env.reset([2, 0, 2])
    assert env.elapsed.tolist() == [0, 3, 0]
    assert np.array_equal(after.entities[1], before.entities[1])
    assert not np.array_equal(after.goals[2], before.goals[2])


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        make("1-Push", 1).reset(seed=-1)


def test_a_state_of_another_task_is_refused_and_changes_nothing() -> None:
    env, other = make("2-Push", 2), make("2-Switch", 2)
    elapsed, goals = env.elapsed.copy(), env.observe().goals
    with pytest.raises(ValueError, match="the saved state is of"):
        env.restore(other.save())
    assert np.array_equal(env.elapsed, elapsed)
    assert np.array_equal(env.observe().goals, goals)
