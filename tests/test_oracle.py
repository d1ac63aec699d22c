"""The oracle: whose turn it is, what each policy is shown, and that the tasks are solved."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from efmdp.ddpg import DDPG, DDPGConfig
from efmdp.domains import make_env
from efmdp.entities import EntityObs, UserError
from efmdp.env import FETCH_DIMS, FINGER_ACTION, IS_SWITCH, POSITION, FetchEnv
from efmdp.evaluate import about_policy, load_policy, policy_tensors
from efmdp.networks import NetworkConfig
from efmdp.oracle import SUBTASKS, Oracle, make_oracle, parse_sources, subtasks
from efmdp.rollout import run_episodes
from efmdp.runs import Run
from efmdp.scripted import CLOSE, OPEN, Scripted
from efmdp.tasks import PAPER_TASKS, parse_task

SCRIPTED = parse_sources(["scripted"])
TABLE, TOP = 0.425, 0.475  # heights of cubes


class Recorder:
    """Does the same thing everywhere, and remembers what it was shown and told."""

    def __init__(self, finger: float = CLOSE) -> None:
        self.finger = finger
        self.seen: list[EntityObs] = []
        self.resets: list[list[int] | None] = []

    def act(self, obs: EntityObs) -> np.ndarray:
        self.seen.append(obs)
        return np.tile([0.5, -0.5, 0.25, self.finger], (len(obs.agent), 1))

    def reset(self, ids: np.ndarray | None = None) -> None:
        self.resets.append(None if ids is None else ids.tolist())


def observe(places: list[list[float]], goals: list[list[float]], switches: int = 0) -> EntityObs:
    """One slot; entity i is at places[i], (x, y, z) of a cube or (angle, 0, 0) of a switch."""
    entities = np.zeros((1, len(places), FETCH_DIMS.entity), np.float32)
    entities[0, :, POSITION] = places
    entities[0, :switches, IS_SWITCH] = 1
    return EntityObs(np.zeros((1, FETCH_DIMS.agent), np.float32), entities, np.array([goals], np.float32))


def cubes(*solved: bool) -> EntityObs:
    """Cubes in a row, 1 m apart and at or 20 cm from their goals."""
    places = [[float(i), 0.0, TABLE] for i in range(len(solved))]
    return observe(places, [[x, 0.0 if there else 0.2, z] for (x, _, z), there in zip(places, solved, strict=True)])


def test_the_first_unsolved_one_is_kept_until_it_is_solved() -> None:
    push = Recorder()
    oracle = Oracle(1, {"push": push})

    def target(*solved: bool) -> int:
        oracle.act(cubes(*solved))
        return int(oracle.target[0])

    assert target(True, False, False) == 1
    assert push.seen[-1].entities.shape == (1, 1, FETCH_DIMS.entity)
    assert push.seen[-1].entities[0, 0, 0] == push.seen[-1].goals[0, 0, 0] == 1  # the x of cube 1
    assert target(False, False, True) == 1  # cube 0 was knocked away and cube 2 is solved: 1 is not finished
    assert target(False, True, True) == 0
    assert target(True, True, False) == 2
    assert target(True, False, False) == 2
    assert target(True, True, True) == -1
    assert target(True, True, False) == 2  # a solved one that is knocked away is worked on again


def test_the_edge_of_the_threshold_is_solved() -> None:
    oracle = Oracle(1, {"push": Recorder()})
    oracle.act(observe([[0, 0, TABLE]], [[0.0499, 0, TABLE]]))
    assert oracle.target[0] == -1
    oracle.act(observe([[0, 0, TABLE]], [[0.0501, 0, TABLE]]))
    assert oracle.target[0] == 0


def test_with_nothing_left_the_hand_is_still_and_holds_what_it_holds() -> None:
    for finger in (CLOSE, OPEN):
        oracle = Oracle(1, {"push": Recorder(finger)})
        assert oracle.act(cubes(False)).tolist() == [[0.5, -0.5, 0.25, finger]]
        for _ in range(2):
            actions = oracle.act(cubes(True))
            assert actions.tolist() == [[0, 0, 0, finger]]
        oracle.reset()
        assert actions[0, FINGER_ACTION] == finger  # what was handed out does not change
        assert oracle.act(cubes(True)).tolist() == [[0, 0, 0, CLOSE]]


def test_each_entity_goes_to_the_policy_of_its_subtask() -> None:
    policies = {name: Recorder() for name in SUBTASKS}
    oracle = Oracle(1, policies)
    goals = [[-0.7, 0, 0], [0.2, 0, TABLE]]
    oracle.act(observe([[0, 0, 0], [0, 0, TABLE]], goals, switches=1))
    assert [len(policies[name].seen) for name in SUBTASKS] == [0, 1, 0]
    assert policies["switch"].seen[0].goals.tolist() == [[[np.float32(-0.7), 0, 0]]]
    oracle.act(observe([[-0.7, 0, 0], [0, 0, TABLE]], goals, switches=1))
    assert [len(policies[name].seen) for name in SUBTASKS] == [1, 1, 0]


@pytest.mark.parametrize("upper", [0, 1])
def test_a_cube_is_stacked_when_the_one_below_is_in_place(upper: int) -> None:
    push, stack = Recorder(), Recorder(OPEN)
    oracle = Oracle(1, {"push": push, "stack": stack})
    goals = [[0.3, 0, TABLE], [0.3, 0, TABLE]]
    goals[upper] = [0.3, 0, TOP]
    places = [[0.0, 0, TABLE], [0.0, 0, TABLE]]

    def put(entity: int, x: float) -> EntityObs:
        places[entity] = [x, 0, TABLE]
        return observe(places, goals)

    oracle.act(put(upper, 0.1))
    assert int(oracle.target[0]) == 1 - upper
    assert push.seen[-1].goals[0] == pytest.approx(np.array([[0.3, 0, TABLE]]))
    oracle.act(put(1 - upper, 0.28))
    assert int(oracle.target[0]) == upper
    shown = [[0.28, 0, TABLE], [0.28, 0, TABLE]]  # the lower one is to stay where it is
    shown[upper] = [0.3, 0, TOP]
    assert stack.seen[-1].goals[0] == pytest.approx(np.array(shown))
    assert stack.seen[-1].entities.shape == (1, 2, FETCH_DIMS.entity)
    oracle.act(put(1 - upper, 0.2))  # knocked out of place before the upper one is there
    assert int(oracle.target[0]) == 1 - upper
    assert (len(push.seen), len(stack.seen)) == (2, 1)


def test_a_policy_forgets_the_slots_whose_target_changes() -> None:
    push = Recorder()
    oracle = Oracle(3, {"push": push})
    both, second, first = cubes(False, False), cubes(True, False), cubes(False, True)

    def slots(*parts: EntityObs) -> EntityObs:
        return EntityObs(*(np.concatenate(field) for field in zip(*parts, strict=True)))

    oracle.act(slots(both, second, first))
    oracle.act(slots(both, second, first))
    oracle.act(slots(second, second, both))
    oracle.reset(np.array([2]))
    oracle.act(slots(second, second, second))
    assert push.resets == [[0, 1, 2], [0], [2], [2]]
    assert oracle.target.tolist() == [1, 1, 1]
    oracle.reset()
    assert push.resets[-1] is None
    assert oracle.target.tolist() == [-1, -1, -1]


@pytest.mark.parametrize("task", ["1-Push", "1-Switch"])
def test_with_one_entity_it_does_what_its_policy_does(
    task: str, tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    run = write_run(tmp_path / "run", task)
    env, policy = FetchEnv(parse_task(task), 8), load_policy(run, "best")
    oracle = make_oracle(8, env.task, {name: str(run) for name in subtasks(env.task)})
    obs = env.reset(seed=1)
    for _ in range(20):
        expected, actions = policy.act(obs), oracle.act(obs)
        unsolved = ~env.success(env.achieved(obs.entities), obs.goals)
        assert unsolved.any()
        assert np.array_equal(actions[unsolved, :3], expected[unsolved, :3])
        assert (actions[:, FINGER_ACTION] == CLOSE).all()  # where the policy says 0, for it was trained without
        obs = env.step(expected).obs


def test_a_policy_that_was_trained_with_the_gripper_moves_it(tmp_path: Path, write_run: Callable[..., Path]) -> None:
    run = str(write_run(tmp_path / "run", "2-Push|Stack"))
    env, policy = FetchEnv(parse_task("Stack"), 8), load_policy(Path(run), "best")
    oracle, obs = make_oracle(8, env.task, {"push": run, "stack": run}), env.reset(seed=1)
    actions = oracle.act(obs)
    assert np.array_equal(actions, policy.act(obs))
    assert len(np.unique(actions[:, FINGER_ACTION])) == 8


@pytest.mark.parametrize(
    "name",
    [
        *("1-Push", "2-Switch+2-Push", "Stack", "Push+Stack", "2-Switch|2-Push", "2-Push|Stack"),
        *("2-Switch&2-Push", "2-Push&Stack"),
    ],
)
def test_with_scripted_policies_it_is_about_as_good_as_the_scripted_controller(name: str) -> None:
    slots = 30
    env = FetchEnv(parse_task(name), slots)
    scripted = run_episodes(env, Scripted(slots), seed=7).success_once.mean()
    oracle = run_episodes(env, make_oracle(slots, env.task, SCRIPTED), seed=7).success_once.mean()
    assert oracle >= max(0.8, scripted - 0.07)
    assert env.failures == 0


def test_a_policy_of_another_world_is_refused(tmp_path: Path) -> None:
    env, network = make_env("1-Disc"), NetworkConfig(width=8)
    agent = DDPG(network, env.dims, DDPGConfig(), env.usable_actions, 0)
    Run(tmp_path).write_policy("best", policy_tensors(agent), about_policy(agent, network, env, "1-Disc"))
    with pytest.raises(UserError, match="was trained on 1-Disc, not to push: name another run"):
        make_oracle(1, parse_task("1-Push"), {"push": str(tmp_path)})


def test_a_slot_does_not_depend_on_the_others() -> None:
    task = parse_task("2-Push|Stack")
    together, alone = FetchEnv(task, 3), FetchEnv(task, 1)
    obs, single_obs = together.reset(seed=[1, 2, 5]), alone.reset(seed=[2])
    oracle, single_oracle = make_oracle(3, task, SCRIPTED), make_oracle(1, task, SCRIPTED)
    assert len(set(together.member.tolist())) == 2
    for _ in range(60):
        actions, single = oracle.act(obs), single_oracle.act(single_obs)
        assert np.array_equal(actions[1], single[0])
        obs, single_obs = together.step(actions).obs, alone.step(single).obs


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_what_a_task_needs_is_what_its_entities_need(name: str) -> None:
    task = parse_task(name)
    needed = subtasks(task)
    assert ("switch" in needed) == ("Switch" in name)
    assert ("push" in needed) == ("Push" in name or "Stack" in name)
    assert ("stack" in needed) == ("Stack" in name)
    oracle = make_oracle(4, task, SCRIPTED)
    assert set(oracle.policies) == needed
    assert oracle.act(FetchEnv(task, 4).observe()).shape == (4, 4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pull=scripted"], "unknown subtask 'pull': choose push, switch, stack"),
        (["push"], "'push' is no policy of an oracle: write scripted, or some of push=RUN switch=RUN stack=RUN"),
        (["push="], "'push=' is no policy"),
        (["scripted", "push=runs/x"], "'scripted' is no policy"),
        (["push=a", "push=b"], "two policies to push, a and b: choose one"),
        (
            ["switch=scripted"],
            "in Push+Stack the oracle must push and stack: say who does, as in push=RUN or =scripted",
        ),
        (["push=absent", "stack=scripted"], "there is no policy at absent"),
        (["push=RUN", "stack=RUN"], "was trained on 1-Push, not to stack: name another run"),
    ],
)
def test_what_is_wrong_with_an_oracle_is_said_in_one_line(
    words: list[str], said: str, tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    run = write_run(tmp_path / "run", "1-Push")
    with pytest.raises(UserError) as caught:
        make_oracle(1, parse_task("Push+Stack"), parse_sources([word.replace("RUN", str(run)) for word in words]))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_oracle_made_by_hand_says_what_it_lacks_too() -> None:
    with pytest.raises(UserError, match="unknown subtask 'lift'"):
        Oracle(1, {"lift": Recorder()})
    with pytest.raises(UserError, match="the oracle has no policy to push: add push=RUN or push=scripted"):
        Oracle(1, {"stack": Recorder()}).act(cubes(False))
