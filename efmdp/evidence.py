"""What was measured for each experiment: the tables in results/, joined with what the experiments ask for."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from efmdp.experiments import Cloning, Evaluating, Experiment, Training
from efmdp.records import CURVES, RUNS
from efmdp.stats import Rate, mean_over_seeds
from efmdp.tables import Row, grouped, read_table
from efmdp.timing import FIELDS as TIMING_FIELDS
from efmdp.zero_shot import FIELDS, ORACLE


class Point(NamedTuple):
    """One seed of one network on one task."""

    study: str  # by which it was tested
    network: str  # whatever number of places it has
    trained_on: str
    demos: int  # 0 for what was trained by RL
    seed: int
    task: str
    layout: str
    entities: int
    role: str  # train or test
    success: float
    row: Row


class Curve(NamedTuple):
    """The success of one seed on the selection seeds, epoch by epoch, on the task itself."""

    network: str
    task: str
    seed: int
    steps: list[int]
    success: list[float]


class Evidence:
    """The tables of a results folder."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.runs = {row["run"]: row for row in read_table(results / "runs.csv", RUNS)}
        self.curves = grouped(read_table(results / "curves.csv", CURVES), "run")
        self.tables = {
            study: read_table(results / f"{study}.csv", FIELDS) for study in ("learning", "extrapolation", "stitching")
        } | {"timing": read_table(results / "timing.csv", TIMING_FIELDS)}

    def rows(self, test: Evaluating) -> list[Row]:
        """What was measured of a policy; empty when it was not tested yet."""
        run = self.runs.get(test.of.name)
        mine = run and run[f"{test.which}_sha256"]
        return [row for row in self.tables[test.study] if row["sha256"] == mine]

    def points(self, experiment: Experiment) -> list[Point]:
        """All seeds and tasks of it. Where the paper tries several schedules it is the best for each network."""
        return [
            Point(
                test.study,
                test.of.network,
                test.of.task,
                test.of.demos_used if isinstance(test.of, Cloning) else 0,
                test.of.seed,
                row["task"],
                row["layout"],
                int(row["entities"]),
                row["role"],
                float(row["success_once"]),
                row,
            )
            for test in self.shown(experiment)
            if test.study != "timing"
            for row in self.rows(test)
            if not row["reason"] and row["episodes"] == str(test.episodes)
        ]

    def shown(self, experiment: Experiment) -> list[Evaluating]:
        """Of several schedules of exploration, the one with the highest success on the selection seeds at the end."""

        def kind(test: Evaluating) -> tuple[str, ...]:
            run = test.of
            more = run.recipe if isinstance(run, Cloning) else ""
            return test.study, run.task, run.network, more

        shown: list[Evaluating] = []
        for _, same in groupby(sorted(experiment.tests, key=kind), key=kind):
            by_recipe: dict[str, list[Evaluating]] = {}
            for test in same:
                by_recipe.setdefault(test.of.recipe, []).append(test)
            shown += by_recipe[max(by_recipe, key=lambda recipe: self._final_success(by_recipe[recipe]))]
        return [test for test in experiment.tests if test in set(shown)]

    def _final_success(self, tests: Sequence[Evaluating]) -> float:
        curves = [self.curves[(test.of.name,)] for test in tests if (test.of.name,) in self.curves]
        return fmean(float(curve[-1]["success_once"]) for curve in curves) if curves else -1.0

    def oracle(self, experiment: Experiment) -> dict[tuple[str, str, str], Rate]:
        """By what it was trained on, task and layout, with its interval over episodes."""
        found: dict[tuple[str, str, str], Rate] = {}
        for test in experiment.tests:
            wanted = {"network": ORACLE, "trained_on": test.of.task, "episodes": str(test.episodes)}
            wanted |= {"recipe": "trained" if test.oracle else "scripted", "collisions": str(bool(_collisions(test)))}
            for row in self.tables[test.study] if test.study != "timing" else ():
                if all(row[name] == value for name, value in wanted.items()):
                    numbers = (float(row[name]) for name in ("success_once", "low", "high"))
                    found[row["trained_on"], row["task"], row["layout"]] = Rate(*numbers)
        return found

    def learning_curves(self, experiment: Experiment) -> list[Curve]:
        """Of what was trained by RL, whether it is finished or not."""
        return [
            Curve(run.network, run.task, run.seed, [int(row["steps"]) for row in own], [_success(row) for row in own])
            for run in dict.fromkeys(test.of for test in self.shown(experiment))
            if isinstance(run, Training)
            and (own := [row for row in self.curves.get((run.name,), []) if row["task"] == run.task])
        ]

    def missing(self, experiment: Experiment) -> list[Evaluating]:
        return [test for test in experiment.tests if not self.rows(test)]

    def runs_of(self, experiment: Experiment) -> list[Row]:
        """What is known of its runs, each once."""
        names = dict.fromkeys(test.of.name for test in experiment.tests)
        return [self.runs[name] for name in names if name in self.runs]


def over_seeds(points: Iterable[Point]) -> Rate | None:
    """Their mean success with its interval, which is over the episodes where there is one seed; None of none."""
    found = list(points)
    if not found:
        return None
    if len(found) == 1:
        return Rate(*(float(found[0].row[name]) for name in ("success_once", "low", "high")))
    return mean_over_seeds([point.success for point in found])


def _success(row: Row) -> float:
    return float(row["success_once"])


def _collisions(test: Evaluating) -> bool | None:
    """Whether entities collide where it is tested: asked for, or as soon as something is stacked."""
    return test.of.collisions or "Stack" in test.of.task
