"""The figures of the paper as lists of runs and tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from efmdp.experiments import (
    DEMONSTRATIONS,
    LEARNED,
    Cloning,
    Collecting,
    Evaluating,
    Experiment,
    RecipeName,
    Training,
    chosen,
    experiments,
    in_order,
)
from efmdp.tasks import MIXTURES

RECIPES: tuple[RecipeName, ...] = ("fast", "paper", "smoke")


def named(recipe: RecipeName = "fast", seeds: int = 5) -> dict[str, Experiment]:
    return {experiment.name: experiment for experiment in experiments(recipe, range(seeds))}


def runs(experiment: Experiment) -> list[Training | Cloning]:
    return list(dict.fromkeys(test.of for test in experiment.tests))


def test_learning_is_eight_tasks_three_networks_five_seeds_from_scratch() -> None:
    found = runs(named()["learning"])
    assert len(found) == 8 * 3 * 5
    assert {run.task for run in found} == set(LEARNED)
    assert all(isinstance(run, Training) and len(run.config.stages) == 1 for run in found)
    assert all(run.places is None for run in found)
    assert [run.seed for run in found] == sorted(run.seed for run in found)  # a seed comes before the next one


def test_imitation_is_five_sizes_of_demonstrations_by_an_agent_of_each_task() -> None:
    found = runs(named()["imitation"])
    assert len(found) == 8 * 3 * 5 * len(DEMONSTRATIONS)
    for run in found:
        assert isinstance(run, Cloning)
        assert run.shown.expert is not None
        assert (run.shown.expert.task, run.shown.expert.seed, run.shown.episodes) == (run.task, 0, 5000)


def test_the_paper_sweeps_exploration_where_its_table_has_two_schedules() -> None:
    by_task: dict[str, set[str]] = {}
    for run in runs(named("paper")["learning"]):
        by_task.setdefault(run.task, set()).add(run.recipe)
    both = {"paper-fast", "paper-slow"}
    assert {task for task, recipes in by_task.items() if recipes == both} == {"3-Push", "2-Switch+2-Push"}


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_mlp_that_is_tested_on_more_has_places_for_them(recipe: RecipeName) -> None:
    checked = 0
    for test in (test for experiment in named(recipe, seeds=1).values() for test in experiment.tests):
        elsewhere = test.study in ("extrapolation", "stitching")
        if elsewhere and test.of.network == "mlp" and isinstance(test.of, Training):
            tasks = [trial.task for trial in test.plan(test.of.task, {}) if trial.task.layout == "paper"]
            assert test.of.config.network.max_entities == max(task.entities for task in tasks)
            checked += 1
    assert checked >= 3 + 4 + 1


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_step_has_a_name_and_a_command_and_comes_after_what_it_needs(recipe: RecipeName) -> None:
    steps = in_order(test for experiment in named(recipe, seeds=2).values() for test in experiment.tests)
    assert len({step.name for step in steps}) == len(steps)
    assert len({step.folder for step in steps if not isinstance(step, Evaluating)}) == sum(
        not isinstance(step, Evaluating) for step in steps
    )
    place = {step: number for number, step in enumerate(steps)}
    assert all(place[needed] < place[step] for step in steps for needed in step.needs)
    assert {step.command[0] for step in steps} == {"train", "collect", "evaluate"}


def test_stitching_has_both_ways_of_joint_training() -> None:
    assert {run.task for run in runs(named()["stitching"])} == set(MIXTURES)
    (oracle,) = {test.oracle for test in named(seeds=1)["stitching"].tests if test.of.task == "2-Push|Stack"}
    assert [run.task for run in oracle] == ["1-Push", "Stack"]


def test_only_what_is_asked_for() -> None:
    (imitation,) = chosen(experiments("fast", range(2)), ["imitation"], ["3-Push"], ["mlp"], [1000, 5000])
    assert [(run.task, run.network, run.recipe, run.seed) for run in runs(imitation)] == [
        ("3-Push", "mlp", f"bc-{demos}-of-3-Push-deep-set-fast-no-curriculum-0", seed)
        for seed in range(2)
        for demos in (1000, 5000)
    ]
    switches = chosen(experiments("fast", range(1)), [], ["3-Switch"])
    assert {test.of.task for experiment in switches for test in experiment.tests} == {"3-Switch"}


def test_collisions_and_sizes() -> None:
    assert {(run.task, run.collisions) for run in runs(named()["collisions"])} == {("3-Push", True)}
    sizes = {(run.task, run.network) for run in runs(named()["deep-set-size"])}
    assert sizes == {(task, kind) for task in ("3-Push", "2-Push|Stack") for kind in ("deep-set", "deep-set-large")}


COMMANDS = [
    Training("2-Push|Stack", "mlp", "fast", 3),
    Training("3-Push", "mlp", "fast-no-curriculum", 1, places=6),
    Training("3-Push", "self-attention", "paper-slow", 0, collisions=True),
    Training("1-Switch", "deep-set", "smoke", 2),
]


@pytest.mark.parametrize("run", COMMANDS, ids=lambda run: run.name)
def test_the_command_of_a_run_trains_what_it_says(
    run: Training, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command line makes the same configuration and chooses the same folder."""
    import sys

    from efmdp import cli_train
    from efmdp.cli import main

    asked = []

    def train(config: object, out: Path, **_: object) -> bool:
        asked.append((config, out))
        return True

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("efmdp.train.train_ddpg", train)
    for command in (run.command, run.command[: run.command.index("--out")]):
        monkeypatch.setattr(sys, "argv", ["efmdp", *command])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
    assert asked == [(run.config, run.folder)] * 2
    assert cli_train.TrainDDPG.threads == 2  # so one thread was asked for


def test_demonstrations_are_done_when_they_are_all_there_and_of_the_right_one(
    efmdp: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    step = Collecting("1-Switch", 100)
    assert not step.is_done
    assert efmdp(*step.command)[0] == 0
    assert step.is_done
    assert not Collecting("1-Switch", 200).is_done
    monkeypatch.setattr("efmdp.experiments.code_sha256", lambda _: "another controller")
    assert not step.is_done


def test_costs_follow_what_there_is_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from efmdp.costs import Machine

    monkeypatch.chdir(tmp_path)
    machine = Machine()

    def seconds(*step: object) -> float:
        return machine.total([Training(*step)])  # type: ignore[arg-type]

    assert 0 < seconds("1-Switch", "deep-set", "fast") < seconds("3-Switch", "deep-set", "fast-no-curriculum")
    assert seconds("1-Switch", "deep-set", "fast") < seconds("1-Switch", "self-attention", "fast")
    assert 0 < seconds("1-Switch", "mlp", "smoke") < 60
    whole, begun = seconds("1-Switch", "deep-set", "fast"), Training("1-Switch", "deep-set", "fast").folder
    begun.mkdir(parents=True)
    (begun / "metrics.csv").write_text("epoch,task\n" + "1,1-Switch\n" * 3)  # half of its six epochs
    assert seconds("1-Switch", "deep-set", "fast") == pytest.approx(whole / 2)
    shown = Collecting("3-Switch", 1000)
    clones = [Cloning(shown, used, "mlp") for used in (100, 1000)]
    assert machine.total(clones[:1]) == machine.total(clones[1:]) > 10
    tests = [Evaluating("extrapolation", clones[0], 500, wide=wide) for wide in (False, True)]
    assert 0 < machine.total(tests[:1]) < machine.total(tests[1:])
    assert machine.total([*clones, *tests]) == pytest.approx(sum(machine.total([step]) for step in (*clones, *tests)))
