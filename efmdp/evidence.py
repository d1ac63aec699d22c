"""What was measured for each experiment: the tables in results/, joined with what the experiments ask for.

Policies are joined by their SHA-256, so that a number is never taken for that of another run, recipe or oracle.
"""

from collections.abc import Iterable, Sequence
from math import inf
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from efmdp.entities import UserError
from efmdp.evaluate import policy_file
from efmdp.experiments import SUBTASK_OF, Cloning, Evaluating, Experiment, Step, Training, in_order
from efmdp.records import CURVES, RUNS
from efmdp.scripted import SCRIPTED
from efmdp.stats import Rate
from efmdp.tables import Row, grouped, read_table
from efmdp.timing import FIELDS as TIMING_FIELDS
from efmdp.zero_shot import FIELDS, ORACLE, digest, oracle_digest
from efmdp.zero_shot import over_seeds as rate_of_rows

STUDIES = ("learning", "extrapolation", "stitching")  # of success
NUMBERS = ("success_once", "low", "high")


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
    finished: bool

    @property
    def steps_to_half(self) -> float:
        """Until half of the selection episodes succeed: infinite if that did not happen."""
        return next((step for step, value in zip(self.steps, self.success, strict=True) if value >= 0.5), inf)


class Evidence:
    """The tables of a results folder. Only runs that are finished count."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.runs = {row["run"]: row for row in read_table(results / "runs.csv", RUNS)}
        self.curves = grouped(read_table(results / "curves.csv", CURVES), "run")
        self.tables = {study: read_table(results / f"{study}.csv", FIELDS) for study in STUDIES}
        self.tables["timing"] = read_table(results / "timing.csv", TIMING_FIELDS)
        for study in STUDIES:
            _check_numbers(results / f"{study}.csv", self.tables[study], NUMBERS)
        curves = [row for own in self.curves.values() for row in own]
        _check_numbers(results / "curves.csv", curves, NUMBERS[:1])
        self._by_policy = {study: grouped(rows, "sha256") for study, rows in self.tables.items()}

    def counts(self, run: Training | Cloning) -> bool:
        return self.record_of(run) is not None and self._is_finished(run)

    def record_of(self, run: Training | Cloning) -> Row | None:
        """The row of a run of that name, if it is what its recipe says today."""
        row = self.runs.get(run.name)
        return row if row and row["settings"] == run.settings else None

    def _is_finished(self, run: Training | Cloning) -> bool:
        return self.runs[run.name]["finished"] == "True"

    def best(self, run: Training | Cloning) -> str:
        """What its best policy is told apart by."""
        return self.runs[run.name]["best_sha256"]

    def rows(self, test: Evaluating) -> list[Row]:
        """What was measured of a policy; empty when it was not tested yet."""
        if not self.counts(test.of):
            return []
        mine = self._by_policy[test.study].get((self.runs[test.of.name][f"{test.which}_sha256"],), [])
        return mine if test.study == "timing" else [row for row in mine if row["episodes"] == str(test.episodes)]

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
            if not row["reason"]
        ]

    def shown(self, experiment: Experiment) -> list[Evaluating]:
        """Of several schedules of exploration, the one with the highest success on the selection seeds at the end."""
        schedules: dict[tuple[str, ...], dict[str, list[Evaluating]]] = {}
        for test in experiment.tests:
            run = test.of
            kind = (test.study, run.task, run.network, run.recipe if isinstance(run, Cloning) else "")
            schedules.setdefault(kind, {}).setdefault(run.recipe, []).append(test)
        best = {kind: max(tests, key=lambda r: self._final_success(tests[r])) for kind, tests in schedules.items()}
        kept = {test for kind, recipe in best.items() for test in schedules[kind][recipe]}
        return [test for test in experiment.tests if test in kept]

    def _final_success(self, tests: Sequence[Evaluating]) -> float:
        curves = [self.curves.get((test.of.name,)) for test in tests if self.counts(test.of)]
        return fmean([_success(curve[-1]) for curve in curves if curve] or [-1.0])

    def oracle(self, experiment: Experiment) -> dict[tuple[str, str, str], Rate]:
        """By what it stands beside, task and layout, with its interval over episodes."""
        return {
            (row["trained_on"], row["task"], row["layout"]): rate_of_rows([row])
            for test in experiment.tests
            if test.study != "timing"
            for row in self.oracle_rows(test)
        }

    def oracle_rows(self, test: Evaluating) -> list[Row]:
        """What was measured of the oracle beside this policy."""
        collisions = str(bool(test.of.collisions or "Stack" in test.of.task))  # on as soon as something is stacked
        wanted = {"trained_on": test.of.task, "episodes": str(test.episodes), "collisions": collisions}
        if test.oracle:
            names = {task: name for name, task in SUBTASK_OF.items()}
            known = [part for part in test.oracle if part.in_zoo or self.counts(part)]
            digests = {names[p.task]: digest(policy_file(p.in_zoo)) if p.in_zoo else self.best(p) for p in known}
            found = self._by_policy[test.study].get((oracle_digest(digests),), [])
        else:
            found = [row for row in self.tables[test.study] if (row["network"], row["recipe"]) == (ORACLE, SCRIPTED)]
        return [row for row in found if all(row[name] == value for name, value in wanted.items())]

    def learning_curves(self, experiment: Experiment) -> list[Curve]:
        """Of what was trained by RL, whether it is finished or not."""
        return [
            Curve(
                run.network,
                run.task,
                run.seed,
                [int(row["steps"]) for row in own],
                [_success(row) for row in own],
                self._is_finished(run),
            )
            for run in dict.fromkeys(test.of for test in self.shown(experiment))
            if isinstance(run, Training)
            and self.record_of(run)
            and (own := [row for row in self.curves.get((run.name,), []) if row["task"] == run.task])
        ]

    def missing(self, experiment: Experiment) -> list[Evaluating]:
        """What was not tested, or not on everything."""
        return [test for test in experiment.tests if not self.has(test)]

    def has(self, test: Evaluating) -> bool:
        """Whether it was tested on everything, and the oracle beside it."""
        rows = self.rows(test)
        if test.study == "timing":
            return bool(rows)
        wanted = {(trial.task.name, trial.task.layout) for trial in test.plan(test.of.task, {})}
        played = ({(row["task"], row["layout"]) for row in each} for each in (rows, self.oracle_rows(test)))
        return all(tasks >= wanted for tasks in played)

    def runs_of(self, experiment: Experiment) -> list[Row]:
        """Its runs as far as they were made, each once."""
        rows = (self.record_of(run) for run in dict.fromkeys(test.of for test in experiment.tests))
        return [row for row in rows if row]


def steps_left(tests: Sequence[Evaluating], evidence: Evidence) -> list[Step]:
    """What is to be done for them. Where the tables have the answer nothing is, even if the run's folder is gone."""
    asked = [test for test in tests if not evidence.has(test)]
    return [step for step in in_order(asked) if not step.is_done]


def over_seeds(points: Iterable[Point]) -> Rate | None:
    """Their mean success with its interval, which is over the episodes where there is one seed; None of none."""
    rows = [point.row for point in points]
    return rate_of_rows(rows) if rows else None


def _check_numbers(path: Path, rows: Iterable[Row], names: Sequence[str]) -> None:
    """Of all rows that have them: what cannot be played has a reason instead."""
    for row in rows:
        for name in names:
            try:
                float(row[name] or 0)
            except ValueError:
                raise UserError(f"{path} is damaged: {name} is {row[name]!r} in a row; restore it") from None


def _success(row: Row) -> float:
    return float(row["success_once"])
