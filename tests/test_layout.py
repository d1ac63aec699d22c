from collections.abc import Iterator

import numpy as np
import pytest

import efmdp.layout
from efmdp.layout import SEPARATION, THRESHOLD, Layouts, sample_layouts
from efmdp.scene import CUBE_HALF, CUBE_REST_HEIGHT, GRIPPER_START, SWITCH_BASE_HALF
from efmdp.tasks import Scene, Task, TaskError, parse_task

SHARED = (
    "2-Switch&2-Push",
    "2-Push&Stack",
    "1-Switch&2-Push",
    "3-Switch&3-Push",
    "2-Switch&Push+Stack&1-Switch+1-Push",
)
TASKS = (
    *("1-Push", "3-Push", "6-Push", "1-Switch", "6-Switch", "3-Switch+3-Push", "Stack", "Push+Stack", "2-Push|Stack"),
    *SHARED,
)
WIDE = ("8-Push", "12-Push", "6-Switch+6-Push", "6-Push&6-Switch")
EPISODES = 200
TABLE_X, TABLE_Y = (1.05, 1.55), (0.4, 1.1)


def sample_layout(task: Task, scene: Scene, rng: np.random.Generator) -> Layouts:
    """One layout without its batch dimension: starts (N, 2), angles (switches,), goals (N, 3)."""
    return Layouts(*(batch[0] for batch in sample_layouts(task, scene, [rng])))


def layouts(task: Task, episodes: int = EPISODES) -> Iterator[tuple[Scene, Layouts]]:
    for scene in task.scenes:
        batch = sample_layouts(task, scene, [np.random.default_rng(seed) for seed in range(episodes)])
        for parts in zip(*batch, strict=True):
            yield scene, Layouts(*parts)


def gaps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.norm(a[:, None] - b[None], axis=-1)


def closest(points: np.ndarray) -> float:
    """The least distance between two of the points."""
    return float((gaps(points, points) + 9 * np.eye(len(points))).min())


@pytest.mark.parametrize(
    "task", [*(parse_task(n) for n in TASKS), *(parse_task(n, layout="wide") for n in WIDE)], ids=lambda task: task.name
)
def test_properties_of_every_layout(task: Task) -> None:
    half, center = np.array(task.half_widths), GRIPPER_START[:2]
    for scene, (starts, angles, goals) in layouts(task, EPISODES if task.layout == "paper" else 50):
        table, (own_switches, own_cubes) = task.table(scene), task.places(scene)
        assert starts.shape == (table.entities, 2)
        assert goals.shape == (table.entities, 3)
        assert angles.shape == (table.switches,)
        assert (np.abs(starts - center) <= half).all()
        assert closest(np.concatenate([center[None], starts])) >= SEPARATION
        switches, wanted, cube_goals = starts[: table.switches], goals[: table.switches], goals[table.switches :]
        assert np.isin(wanted[:, 0], (-0.7, 0.7)).all()
        assert (wanted[:, 1:] == 0).all()
        assert (np.abs(cube_goals[:, :2] - center) <= half).all()
        assert gaps(cube_goals[:, :2], switches).min(initial=9) > SEPARATION
        low = cube_goals[cube_goals[:, 2] == CUBE_REST_HEIGHT]
        assert len(low) == table.cubes - scene.stacks
        assert len(low) < 2 or closest(low[:, :2]) > SEPARATION
        assert (angles[own_switches] == 0).all()
        if not scene.stacks:
            assert (np.linalg.norm(starts[own_cubes] - goals[own_cubes, :2], axis=1) > THRESHOLD).all()


@pytest.mark.parametrize("name", SHARED)
def test_what_is_not_drawn_starts_solved(name: str) -> None:
    task = parse_task(name)
    sides = []
    for scene, (starts, angles, goals) in layouts(task, 100):
        for other in set(task.scenes) - {scene}:
            switches, cubes = task.places(other)
            assert (angles[switches] == goals[switches, 0]).all()
            sides += list(angles[switches])
            assert (goals[cubes, :2] == starts[cubes]).all()  # a solved stack is two cubes on the table
            assert (goals[cubes, 2] == CUBE_REST_HEIGHT).all()
    assert set(sides) <= {-0.7, 0.7}
    assert not sides or abs(np.mean(np.array(sides) > 0) - 0.5) < 0.2  # of 100 at least: 4 standard errors


def test_separation_and_threshold_are_those_of_the_task() -> None:
    assert (SEPARATION, THRESHOLD) == (0.1, 0.05)
    assert parse_task("3-Push").half_widths == (0.15, 0.15)


def test_both_sides_of_a_switch_are_wanted_equally_often() -> None:
    wanted = np.array([layout.goals[:, 0] for _, layout in layouts(parse_task("3-Switch"), 400)])
    assert set(np.unique(wanted)) == {-0.7, 0.7}
    assert np.abs((wanted > 0).mean(0) - 0.5).max() < 0.1  # each switch: 4 standard errors
    together = (wanted[:, 0] == wanted[:, 1]).mean()
    assert abs(together - 0.5) < 0.1


def test_starts_and_goals_fill_the_square() -> None:
    found = [layout for _, layout in layouts(parse_task("2-Push"), 400)]
    for points in (np.array([x.starts for x in found]), np.array([x.goals[:, :2] for x in found])):
        offsets = points.reshape(-1, 2) - GRIPPER_START[:2]
        assert (offsets.max(0) > 0.14).all()
        assert (offsets.min(0) < -0.14).all()
        assert np.abs(offsets.mean(0)).max() < 0.02


@pytest.mark.parametrize("name", ["Stack", "Push+Stack", "2-Push&Stack", "Push+Stack&1-Switch"])
def test_a_stack_has_one_goal_right_above_the_other(name: str) -> None:
    task = parse_task(name)
    bases = []
    for scene, layout in layouts(task):
        if not scene.stacks:
            continue
        _, cubes = task.places(scene)
        starts, goals = layout.starts[cubes], layout.goals[cubes]
        base = int(goals[:, 2].argmin())
        bases.append(base)
        assert goals[base, 2] == CUBE_REST_HEIGHT
        assert goals[1 - base] - goals[base] == pytest.approx([0, 0, 2 * CUBE_HALF])
        to_base = np.linalg.norm(starts - goals[base, :2], axis=1)
        if scene.pushes:
            assert (to_base > THRESHOLD).all()  # neither cube lies where the stack shall be
        else:
            assert (goals[base, :2] == starts[base]).all()
            assert to_base[1 - base] >= SEPARATION
    assert 0.35 < np.mean(bases) < 0.65


@pytest.mark.parametrize("name", ["12-Push", "12-Switch", "6-Switch+6-Push"])
def test_the_wide_layout_stays_on_the_table(name: str) -> None:
    task = parse_task(name, layout="wide")
    edge = np.array([max(CUBE_HALF, SWITCH_BASE_HALF[0])] * 2)
    low, high = np.array([TABLE_X, TABLE_Y]).T
    for scene, (starts, _, goals) in layouts(task, 50):
        points = np.concatenate([starts, goals[scene.switches :, :2]])
        assert (points - edge >= low).all()
        assert (points + edge <= high).all()


def test_the_same_generator_gives_the_same_layout() -> None:
    for name in TASKS:
        task = parse_task(name)
        one, two, other = (sample_layout(task, task.scenes[0], np.random.default_rng(seed)) for seed in (3, 3, 4))
        assert np.array_equal(one.starts, two.starts)
        assert np.array_equal(one.goals, two.goals)
        assert not np.array_equal(one.starts, other.starts)


def test_a_layout_depends_on_its_own_generator_alone() -> None:
    """Also where others, or it, have to begin anew."""
    task = parse_task("6-Push")
    batch = sample_layouts(task, task.scenes[0], [np.random.default_rng(seed) for seed in range(40)])
    for seed in range(40):
        alone = sample_layout(task, task.scenes[0], np.random.default_rng(seed))
        assert np.array_equal(alone.starts, batch.starts[seed])
        assert np.array_equal(alone.goals, batch.goals[seed])


def test_an_impossible_layout_is_an_error_and_not_an_endless_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    task = parse_task("6-Push")
    monkeypatch.setattr(Task, "half_widths", (0.08, 0.08))
    monkeypatch.setattr(efmdp.layout, "ATTEMPTS", 20)
    with pytest.raises(TaskError, match="6-Push does not fit the 'paper' layout"):
        sample_layout(task, task.scenes[0], np.random.default_rng(0))


def test_a_goal_without_room_is_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for the starts, none for the goals: everything lies within the threshold of where the cube starts."""
    task = parse_task("1-Push")
    monkeypatch.setattr(efmdp.layout, "THRESHOLD", 1.0)
    monkeypatch.setattr(efmdp.layout, "ATTEMPTS", 20)
    with pytest.raises(TaskError, match="no room found in 20 attempts"):
        sample_layout(task, task.scenes[0], np.random.default_rng(0))
