import pytest

from efmdp.tasks import (
    GRAMMAR,
    PAPER_CAPACITY,
    PAPER_HALF,
    PAPER_TASKS,
    WIDE_CAPACITY,
    WIDE_LIMITS,
    TaskError,
    parse_task,
)


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_every_task_of_the_paper_has_its_own_name(name: str) -> None:
    assert parse_task(name).name == name


@pytest.mark.parametrize(
    ("name", "entities", "horizons"),
    [
        ("1-Push", 1, [50]),
        ("3-Push", 3, [150]),
        ("1-Switch", 1, [20]),
        ("4-Switch", 4, [80]),
        ("2-Switch+2-Push", 4, [140]),
        ("1-Switch+3-Push", 4, [170]),
        ("Stack", 2, [50]),
        ("Push+Stack", 2, [100]),
        ("2-Switch|2-Push", 2, [40, 100]),
        ("2-Push|Stack", 2, [100, 50]),
        ("3-Switch|3-Push|1-Switch+2-Push", 3, [60, 150, 120]),
        ("2-Switch&2-Push", 4, [100, 100]),
        ("2-Push&Stack", 4, [100, 100]),
        ("1-Switch&2-Push", 3, [100, 100]),
        ("3-Switch&Stack&1-Push", 6, [60, 60, 60]),
        ("Push+Stack&1-Switch+1-Push", 4, [100, 100]),
        ("2-Push&1-Push", 3, [100, 100]),
    ],
)
def test_entities_and_horizons(name: str, entities: int, horizons: list[int]) -> None:
    task = parse_task(name)
    assert task.entities == entities
    assert [task.table(scene).entities for scene in task.scenes] == [entities] * len(horizons)
    assert list(task.horizons) == horizons


def test_a_stack_has_two_cubes_and_no_switch() -> None:
    for name in ("Stack", "Push+Stack"):
        (scene,) = parse_task(name).scenes
        assert (scene.switches, scene.cubes) == (0, 2)


def test_a_shared_table_holds_all_switches_then_all_cubes_in_the_order_of_the_names() -> None:
    task = parse_task("1-Push&2-Switch&1-Switch+1-Push&Stack", layout="wide")
    (table,) = task.tables
    assert (table.switches, table.cubes) == (3, 4)
    order = {scene.name: [list(range(7))[part] for part in task.places(scene)] for scene in task.scenes}
    assert order == {
        "1-Push": [[], [3]],
        "2-Switch": [[0, 1], []],
        "1-Switch+1-Push": [[2], [4]],
        "Stack": [[], [5, 6]],
    }


@pytest.mark.parametrize("name", ["3-Push", "2-Switch+2-Push", "Push+Stack", "2-Switch|2-Push", "2-Push|Stack"])
def test_without_a_shared_table_everything_on_it_is_to_do(name: str) -> None:
    task = parse_task(name)
    assert task.tables == task.scenes
    for scene in task.scenes:
        switches, cubes = task.places(scene)
        assert [*range(scene.entities)[switches], *range(scene.entities)[cubes]] == list(range(scene.entities))


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_collisions_and_gripper_are_on_as_soon_as_a_member_stacks(name: str) -> None:
    task = parse_task(name)
    assert task.collisions == task.gripper == ("Stack" in name)
    assert (task.layout, task.reward) == ("paper", "sparse")


def test_options_overrule_the_defaults() -> None:
    task = parse_task("3-Push", collisions=True, gripper=True, layout="wide", reward="dense")
    assert (task.collisions, task.gripper, task.layout, task.reward) == (True, True, "wide", "dense")
    assert parse_task("3-Push", collisions=True).gripper is False
    assert parse_task("Stack", collisions=True, gripper=True) == parse_task("Stack")


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("3-push", "3-Push"),
        ("3Push", "3-Push"),
        ("3-Pusch", "3-Push"),
        ("4-switch", "4-Switch"),
        ("2-Push+2-Switch", "2-Switch+2-Push"),
        ("3-Push+1-Switch", "1-Switch+3-Push"),
        ("Stack+Push", "Push+Stack"),
        ("stack", "Stack"),
        ("1-Stack", "Stack"),
        ("2-push|stack", "2-Push|Stack"),
        ("2-push&stack", "2-Push&Stack"),
    ],
)
def test_an_unknown_name_shows_the_grammar_and_the_nearest_name(wrong: str, nearest: str) -> None:
    with pytest.raises(TaskError) as caught:
        parse_task(wrong)
    message = str(caught.value)
    assert repr(wrong) in message
    assert GRAMMAR in message
    assert f"Did you mean {nearest!r}?" in message
    parse_task(nearest)


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "+", "|", "3-Push|", "|3-Push", "&", "3-Push&", "&3-Push", "2-Switch+", "+2-Push", "2-Switch2-Push"),
        *("0-Push", "-1-Push", "03-Push", "1.5-Push", "9999999-Push", "\u0663-Push", "3-Push ", "3-Push\n"),
        *("2-Push+Stack", "2-Switch+2-Push+Stack", "2-Stack"),
    ],
)
def test_what_is_not_a_task_is_refused(wrong: str) -> None:
    with pytest.raises(TaskError, match="Did you mean"):
        parse_task(wrong)


@pytest.mark.parametrize(
    "name", ["7-Push", "7-Switch", "4-Switch+3-Push", "100-Push", "7-Switch|7-Push", "4-Switch&3-Push", "5-Push&Stack"]
)
def test_too_many_entities_are_refused_with_the_number_that_fits(name: str) -> None:
    with pytest.raises(
        TaskError, match=rf"'paper' layout holds {PAPER_CAPACITY} .*'wide' layout holds {WIDE_CAPACITY}"
    ):
        parse_task(name)


def test_the_wide_layout_holds_more_but_not_everything() -> None:
    assert WIDE_CAPACITY > PAPER_CAPACITY == 6
    assert parse_task(f"{WIDE_CAPACITY}-Push", layout="wide").entities == WIDE_CAPACITY
    with pytest.raises(TaskError, match=f"'wide' layout holds {WIDE_CAPACITY} entities, not {WIDE_CAPACITY + 1}$"):
        parse_task(f"{WIDE_CAPACITY + 1}-Push", layout="wide")


def test_the_wide_layout_keeps_the_density_of_six() -> None:
    assert parse_task("6-Push").half_widths == (PAPER_HALF, PAPER_HALF)
    assert parse_task("6-Push", layout="wide").half_widths == (PAPER_HALF, PAPER_HALF)
    for n in range(7, WIDE_CAPACITY + 1):
        x, y = parse_task(f"{n}-Push", layout="wide").half_widths
        assert x * y / n == pytest.approx(PAPER_HALF**2 / 6)
        assert PAPER_HALF < x <= WIDE_LIMITS[0]
        assert PAPER_HALF < y <= WIDE_LIMITS[1]


def test_a_mixture_needs_equally_many_entities() -> None:
    with pytest.raises(TaskError, match="2-Switch has 2, 3-Push has 3"):
        parse_task("2-Switch|3-Push")


def test_a_mixture_names_each_task_once() -> None:
    for name in ("2-Push|2-Push", "2-Push&Stack&2-Push"):
        with pytest.raises(TaskError, match="twice"):
            parse_task(name)


def test_a_mixture_is_of_one_kind() -> None:
    with pytest.raises(
        TaskError, match=r"^'2-Switch&2-Push\|Stack' joins tasks by '\|' and by '&': choose one of them$"
    ):
        parse_task("2-Switch&2-Push|Stack")


@pytest.mark.parametrize("name", ["Stack", "Push+Stack", "2-Push|Stack", "2-Push&Stack"])
@pytest.mark.parametrize("option", ["gripper", "collisions"])
def test_stacking_needs_gripper_and_collisions(name: str, option: str) -> None:
    with pytest.raises(TaskError, match="needs the gripper and entity collisions"):
        parse_task(name, **{option: False})


def test_unknown_options_name_the_choices() -> None:
    with pytest.raises(TaskError, match="unknown layout 'huge': choose paper or wide"):
        parse_task("3-Push", layout="huge")
    with pytest.raises(TaskError, match="unknown reward 'shaped': choose sparse or dense"):
        parse_task("3-Push", reward="shaped")
