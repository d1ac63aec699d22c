"""The page is made of the tables alone, whatever they hold; every claim can hold and can fail."""

import csv
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from efmdp import gallery, zoo
from efmdp.claims import CLAIMS, Measured
from efmdp.evidence import Evidence
from efmdp.experiments import Cloning, Evaluating, Experiment, Training, experiments
from efmdp.records import CURVES, RUNS
from efmdp.report import judged, missing, numbers_as_markdown, write_report
from efmdp.tables import Row, write_table
from efmdp.tasks import parse_task
from efmdp.timing import FIELDS as TIMING_FIELDS
from efmdp.zero_shot import FIELDS, oracle_digest

SEEDS = range(2)
EPISODES = 100
Success = Callable[[str, str, str, int, bool], float]  # network, trained on, task, demonstrations, collisions


def size(task: str) -> int:
    return parse_task(task, layout="wide").entities


def as_the_paper_says(network: str, trained_on: str, task: str, demos: int, collisions: bool) -> float:
    if demos:
        return {"mlp": 0.0, "deep-set": 0.95, "self-attention": 0.96}[network]
    if "|" in trained_on or "&" in trained_on:
        if network == "mlp" and task in ("2-Push", "Stack"):
            return 0.4
        return {"mlp": 0.05, "deep-set": 0.4, "self-attention": 0.6, "deep-set-large": 0.5, "oracle": 0.8}[network]
    if network == "oracle":
        return 0.95 - 0.08 * size(task)
    if network == "mlp":
        if trained_on == "3-Switch":
            return {1: 0.6, 2: 0.7, 3: 0.9}.get(size(task), 0.0)
        return 0.95 if size(trained_on) == 1 else 0.0
    if network == "deep-set-large":
        return 0.95 if task == trained_on else 0.4
    value = 0.93 if task == trained_on else 0.85
    if network == "self-attention":
        if task == trained_on == "3-Push":
            value = 0.96
        else:
            value = 0.3 if size(task) == 1 and size(trained_on) > 1 else value - 0.02
    return value - (0.15 if network == "deep-set" else 0.1) * collisions


def otherwise(network: str, trained_on: str, task: str, demos: int, collisions: bool) -> float:
    if demos:
        return {"mlp": 0.6, "deep-set": 0.1, "self-attention": 0.5}[network]
    if network == "oracle":
        return 1.0
    if task == trained_on == "3-Push" and not collisions:
        return 0.2
    if network == "self-attention":
        return 0.195 if collisions else 0.205  # hardly a drop, but from above Deep Sets to below
    if network == "mlp":
        return 0.9 if task == trained_on == "3-Switch" else 0.3
    return 0.2 if network == "deep-set" else 0.1


def steps_of(network: str, paper: bool) -> int:
    """After how many steps half of the selection episodes succeed; the MLP never gets there in the paper's world."""
    slow = {"mlp": 10_000, "deep-set": 1_000, "self-attention": 2_000}
    fast = {"mlp": 1_000, "deep-set": 3_000, "self-attention": 2_000}
    return (slow if paper else fast).get(network, 1_000)


def tables_of(everything: list[Experiment], success: Success, results: Path, paper: bool) -> None:
    """What `efmdp reproduce` would leave behind, with made-up numbers."""
    runs: dict[str, Row] = {}
    curves: list[Row] = []
    tables: dict[str, dict[tuple[str, ...], Row]] = {}
    for test in {test: None for experiment in everything for test in experiment.tests}:
        for run in (test.of, *test.oracle):
            name = run.name
            if name in runs:
                continue
            curves += curve_of(run, name, paper)
            blank = dict.fromkeys(RUNS, "1") | {"run": name, "commit": "0123456789abcdef+", "command": f"train {name}"}
            runs[name] = blank | {
                "task": run.task,
                "network": run.network,
                "recipe": run.recipe,
                "seed": str(run.seed),
                "settings": run.settings,
                "finished": "True",
                "best_sha256": f"{name} best",
                "last_sha256": f"{name} last",
            }
        rows = timing_rows(test, paper) if test.study == "timing" else success_rows(test, success)
        for row in rows:
            key = tuple(row.get(column, "") for column in ("sha256", "trained_on", "task", "layout", "collisions"))
            tables.setdefault(test.study, {})[key] = row
    write_table(results / "runs.csv", list(runs.values()))
    write_table(results / "curves.csv", curves)
    for study, found in tables.items():
        write_table(results / f"{study}.csv", list(found.values()))


def curve_of(run: Training | Cloning, name: str, paper: bool) -> Iterator[Row]:
    for epoch in range(1, 11):
        reached = 0.9 if 1000 * epoch >= steps_of(run.network, paper) else 0.1
        row = dict.fromkeys(CURVES, "0") | {"run": name, "epoch": str(epoch), "task": run.task}
        yield row | {"steps": str(1000 * epoch), "success_once": str(reached)}


def success_rows(test: Evaluating, success: Success) -> Iterator[Row]:
    run = test.of
    demos = run.demos_used if isinstance(run, Cloning) else 0
    known = parse_task(run.task, collisions=run.collisions)
    for trial in test.plan(run.task, {"collisions": known.collisions}):
        for network in (run.network, "oracle"):
            value = success(network, run.task, trial.task.name, demos * (network != "oracle"), bool(run.collisions))
            where = {
                "trained_on": run.task,
                "task": trial.task.name,
                "layout": trial.task.layout,
                "entities": str(trial.task.entities),
                "role": trial.role,
                "collisions": str(trial.task.collisions),
                "episodes": str(EPISODES),
            }
            who = {
                "network": network,
                "recipe": "trained" if test.oracle else "scripted",
                "sha256": f"{run.name} {test.which}" if network != "oracle" else oracle_of(test),
            }
            numbers = {"success_once": str(value), "low": str(max(0.0, value - 0.05)), "high": str(value + 0.05)}
            yield dict.fromkeys(FIELDS, "") | who | where | numbers


def oracle_of(test: Evaluating) -> str:
    parts = {"1-Push": "push", "1-Switch": "switch", "Stack": "stack"}
    return oracle_digest({parts[run.task]: f"{run.name} best" for run in test.oracle}) if test.oracle else "scripted"


def timing_rows(test: Evaluating, paper: bool) -> Iterator[Row]:
    milliseconds = {"mlp": 0.1, "deep-set": 0.15, "self-attention": 0.5 if paper else 0.1}[test.of.network]
    hours = {"mlp": 1.0, "deep-set": 1.1, "self-attention": 1.2 if paper else 3.0}[test.of.network]
    about = {"network": test.of.network, "sha256": f"{test.of.name} best", "trained_on": test.of.task}
    yield (
        dict.fromkeys(TIMING_FIELDS, "")
        | about
        | {
            "task": test.of.task,
            "entities": str(size(test.of.task)),
            "milliseconds": str(milliseconds),
            "hours": str(hours * (0.4 if paper and test.of.task == "1-Push" else 1)),
            "threads": "1",
        }
    )


@pytest.fixture
def everything() -> list[Experiment]:
    return experiments("fast", SEEDS, EPISODES)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without runs, without the zoo, and without the seconds that rendering takes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(zoo, "folder", lambda: tmp_path / "zoo")
    for name in ("teaser", "tasks", "stitching"):
        monkeypatch.setattr(gallery, name, lambda name=name: name.encode())


@pytest.mark.parametrize(("success", "paper"), [(as_the_paper_says, True), (otherwise, False)])
def test_every_claim_can_hold_and_can_fail(everything: list[Experiment], success: Success, paper: bool) -> None:
    tables_of(everything, success, Path("results"), paper)
    found = judged(everything, Evidence(Path("results")))
    assert [claim for claim, _ in found] == list(CLAIMS)
    wrong = [(claim.says, finding) for claim, finding in found if finding.holds is not paper]
    assert wrong == []


def test_without_data_no_claim_is_judged(everything: list[Experiment]) -> None:
    assert {finding.verdict for _, finding in judged(everything, Evidence(Path("results")))} == {"not enough data"}


class Outline(HTMLParser):
    """What a page consists of; fails on tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images = 0
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.images += tag == "img" and (dict(attrs)["src"] or "").startswith("data:image/png")
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def outline(page: str) -> Outline:
    parsed = Outline()
    parsed.feed(page)
    assert parsed.open == []
    return parsed


def test_the_page_has_all_figures_and_numbers(everything: list[Experiment]) -> None:
    results = Path("results")
    tables_of(everything, as_the_paper_says, results, paper=True)
    assert write_report(everything, results, results, " --seeds 2") == []
    page = (results / "report.html").read_text()
    parsed = outline(page)
    assert parsed.headings[:2] == ["Tasks and policies", "The paper's claims"]
    assert len(parsed.headings) == 2 + len(everything)
    drawn = sorted(path.stem for path in (results / "figures").glob("*.png"))
    assert drawn == sorted(
        [
            *("learning", "imitation", "scripted-imitation", "scripted-imitation-extrapolation", "extrapolation"),
            *("stitching", "deep-set-size-extrapolation", "deep-set-size-stitching", "collisions", "timing"),
        ]
    )
    assert parsed.images == len(drawn)
    assert page.count('<span class="holds">') == len(CLAIMS)
    assert (results / "claims.md").read_text().count(" | holds | `efmdp reproduce ") == len(CLAIMS)
    numbers = (results / "numbers.md").read_text()
    assert numbers.count(": success on test episodes") == page.count("<summary>Success on test episodes")
    assert numbers.count(": what its runs took") == len(everything)
    tasks = re.findall(r"^\| 3-Switch \| (\d+-Switch(?: \(wide\))?) \|", numbers, re.MULTILINE)
    assert tasks == ["3-Switch", *(f"{n}-Switch" for n in range(1, 7)), *(f"{n}-Switch (wide)" for n in range(7, 11))]
    assert "<code>efmdp reproduce stitching --seeds 2</code>" in page
    assert "<code>efmdp report --seeds 2</code>" in page
    assert "What is missing" not in page
    assert "train 3-Push-deep-set-fast-0" in page  # the command behind a number
    assert "0123456789+" in page  # its commit, of code that was changed
    for word in ("http://", "https://", str(Path.cwd())):
        assert word not in re.sub("http://www.w3.org/[a-z0-9/]+", "", page)
    for study in ("learning", "extrapolation", "stitching"):
        with (results / f"{study}-summary.csv").open(newline="") as file:
            assert {row["statistic"] for row in csv.DictReader(file)} >= {"mean"}


def test_with_nothing_it_says_what_is_missing(everything: list[Experiment]) -> None:
    Path("results").mkdir()
    lines = write_report(everything, Path("results"), Path("results"))
    assert "learning: 1-Push, MLP, fast: seeds 0, 1" in lines
    assert "stitching: 2-Push|Stack, Self-Attention, fast: seeds 0, 1" in lines
    page = Path("results/report.html").read_text()
    assert outline(page).images == 0
    assert page.count("What is missing") == len(everything)


def test_what_runs_took_has_a_line_for_each_kind_and_seeds_that_differ_one_by_one(everything: list[Experiment]) -> None:
    results = Path("results")
    tables_of(everything, as_the_paper_says, results, paper=True)
    alter(results / "runs.csv", {"task": "1-Push", "network": "deep-set"}, {"steps": "400000", "minutes": "5.0"})
    alter(results / "runs.csv", {"run": "1-Push-deep-set-fast-1"}, {"minutes": "4.4"})
    alter(results / "runs.csv", {"run": "1-Push-mlp-1-fast-1"}, {"settings": "of another recipe"})
    alter(results / "runs.csv", {"run": "1-Push-self-attention-fast-1"}, {"finished": "False"})
    lines = numbers_as_markdown(everything[:1], Evidence(results)).splitlines()
    lines = lines[lines.index("## learning: what its runs took") :]
    assert "| 1-Push | deep-set | fast | 1 | 0, 1 | 400000 | 1 | 5.0, 4.4 |" in lines
    assert [line for line in lines if line.startswith("| 1-Push | mlp")] == [
        "| 1-Push | mlp | fast | 1 | 0 | 1 | 1 | 1 |"
    ]
    assert "| 1-Push | self-attention | fast | 1 | 0 | 1 | 1 | 1 |" in lines


def test_how_soon_half_succeed_says_where_that_did_not_happen(everything: list[Experiment]) -> None:
    results = Path("results")
    tables_of(everything, as_the_paper_says, results, paper=True)
    late = {"run": "2-Push-deep-set-fast-no-curriculum-1"}
    alter(results / "curves.csv", late, {"steps": "640000"})
    for never in ("2-Push-mlp-2-fast-no-curriculum-0", "2-Push-mlp-2-fast-no-curriculum-1"):
        alter(results / "curves.csv", {"run": never}, {"steps": "768000", "success_once": "0.49"})
    alter(results / "runs.csv", {"run": "2-Push-mlp-2-fast-no-curriculum-1"}, {"finished": "False"})
    lines = numbers_as_markdown(everything[:1], Evidence(results)).splitlines()
    assert "| thousands of steps to 50 % | MLP | Deep Sets | Self-Attention |" in lines
    (line,) = (line for line in lines if line.startswith("| 2-Push | more than 768, more than 768 (not finished) | "))
    assert re.fullmatch(r".* \| \d+, 640 \| \d+ \|", line)  # seeds that agree are one number


def test_a_seed_that_is_missing_is_named_with_how_far_it_got(everything: list[Experiment]) -> None:
    results = Path("results")
    tables_of(everything, as_the_paper_says, results, paper=True)
    alter(results / "runs.csv", {"run": "1-Push-deep-set-fast-1"}, {"finished": "False"})
    assert missing(everything[0], Evidence(results)) == ["1-Push, Deep Sets, fast: seed 1 (after epoch 1)"]
    gone = {"task": "6-Switch", "sha256": "3-Switch-deep-set-bc-5000-1 best"}
    alter(results / "extrapolation.csv", gone, {"task": ""})
    clones = next(experiment for experiment in everything if experiment.name == "scripted-imitation")
    assert missing(clones, Evidence(results)) == ["3-Switch, Deep Sets, bc-5000: seed 1 (after epoch 1)"]


def alter(path: Path, where: Row, to: Row) -> None:
    """Change all rows that have these values."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    chosen = [row for row in rows if all(row[name] == value for name, value in where.items())]
    assert chosen
    for row in chosen:
        row.update(to)
    write_table(path, rows)


def verdicts(everything: list[Experiment], experiment: str) -> dict[str, str]:
    found = judged(everything, Evidence(Path("results")))
    return {claim.says: finding.verdict for claim, finding in found if claim.experiment == experiment}


def test_an_oracle_of_other_policies_is_not_taken_for_this_one(everything: list[Experiment]) -> None:
    results = Path("results")
    tables_of(everything, as_the_paper_says, results, paper=True)
    before = Evidence(results).oracle(everything[0])
    with (results / "learning.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    others = [row | {"sha256": "another", "success_once": "0.0"} for row in rows if row["network"] == "oracle"]
    write_table(results / "learning.csv", [*rows, *others])
    assert Evidence(results).oracle(everything[0]) == before


def test_a_run_that_is_not_finished_decides_nothing(everything: list[Experiment]) -> None:
    tables_of(everything, as_the_paper_says, Path("results"), paper=True)
    faster = "Deep Sets learn faster than Self-Attention"
    alter(Path("results/runs.csv"), {"finished": "True"}, {"finished": "False"})  # all of them
    assert set(verdicts(everything, "stitching").values()) == {"not enough data"}
    assert verdicts(everything, "learning")[faster] == "holds"  # all got there, finished or not
    alter(Path("results/curves.csv"), {"success_once": "0.9"}, {"success_once": "0.2"})
    assert verdicts(everything, "learning")[faster] == "not enough data"


@pytest.mark.parametrize(
    ("left_out", "deep_sets", "verdict"),
    [
        ("self-attention", "0.9", "holds"),
        ("self-attention", "0.2", "not enough data"),  # it may be Self-Attention that learns
        (None, "0.2", "holds"),
        ("mlp", "0.9", "not enough data"),
    ],
)
def test_one_set_network_that_learns_three_cubes_is_enough(
    everything: list[Experiment], left_out: str | None, deep_sets: str, verdict: str
) -> None:
    results = Path("results")
    tables_of(everything, as_the_paper_says, results, paper=True)
    alter(results / "learning.csv", {"network": "deep-set", "trained_on": "3-Push"}, {"success_once": deep_sets})
    with (results / "learning.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["network"], row["task"]) != (left_out, "3-Push")]
    write_table(results / "learning.csv", rows)
    says = "3-Push: only Deep Sets and Self-Attention get off the ground"
    assert verdicts(everything, "learning")[says] == verdict


def test_a_run_of_another_recipe_decides_nothing(everything: list[Experiment]) -> None:
    """One of the same name, from before the recipe was changed."""
    results = Path("results")
    tables_of(everything, as_the_paper_says, results, paper=True)
    alter(results / "runs.csv", {"run": "1-Push-deep-set-fast-1"}, {"settings": "of before"})
    assert missing(everything[0], Evidence(results)) == ["1-Push, Deep Sets, fast: seed 1"]
    curves = Evidence(results).learning_curves(everything[0])
    assert [curve.seed for curve in curves if (curve.task, curve.network) == ("1-Push", "deep-set")] == [0]
    clones = next(experiment for experiment in everything if experiment.name == "scripted-imitation")
    assert missing(clones, Evidence(results)) == []
    alter(results / "runs.csv", {"run": "3-Switch-mlp-6-bc-1000-0"}, {"settings": "of before"})
    assert missing(clones, Evidence(results)) == ["3-Switch, MLP, bc-1000: seed 0"]


def test_what_was_tested_without_the_oracle_is_missing(everything: list[Experiment]) -> None:
    results = Path("results")
    tables_of(everything, as_the_paper_says, results, paper=True)
    alter(results / "learning.csv", {"network": "oracle", "task": "2-Push"}, {"episodes": "7"})
    lines = missing(everything[0], Evidence(results))
    assert [line.split(",")[0] for line in lines] == ["2-Push"] * 3


def test_statistics_of_another_recipe_leave_these_alone(everything: list[Experiment]) -> None:
    results = Path("results")
    tables_of(everything, as_the_paper_says, results, paper=True)
    write_report(everything, results, results / "other")
    assert list(results.glob("*-summary.csv")) == []
    assert len(list((results / "other").glob("*-summary.csv"))) == 3


def test_damaged_tables(everything: list[Experiment], efmdp: Callable[..., tuple[int, str, str]]) -> None:
    results = Path("results")
    tables_of(everything, as_the_paper_says, results, paper=True)
    (results / "curves.csv").unlink()
    write_report(everything, results, results)  # what is drawn of curves is missing
    alter(results / "learning.csv", {"task": "2-Push"}, {"success_once": "zero"})
    code, _, errors = efmdp("report")
    assert code == 2
    assert errors == "efmdp: results/learning.csv is damaged: success_once is 'zero' in a row; restore it\n"


def test_what_a_curriculum_showed_is_no_test(everything: list[Experiment]) -> None:
    tables_of(everything, as_the_paper_says, Path("results"), paper=True)
    measured = Measured(Evidence(Path("results")), everything)
    assert measured.unseen("extrapolation", "3-Push") == ["4-Push", "5-Push", "6-Push"]
    assert measured.unseen("extrapolation", "3-Switch") == ["4-Switch", "5-Switch", "6-Switch"]  # subsets did, too


def test_what_has_not_learned_its_task_does_not_show_how_it_extrapolates(everything: list[Experiment]) -> None:
    tables_of(everything, as_the_paper_says, Path("results"), paper=True)
    says = "the MLP learns 3-Switch, does decently on fewer switches and fails completely on more"
    assert verdicts(everything, "extrapolation")[says] == "holds"
    own = {"network": "mlp", "trained_on": "3-Switch", "task": "3-Switch"}
    alter(Path("results/extrapolation.csv"), own, {"success_once": "0.0"})
    assert verdicts(everything, "extrapolation")[says] == "not enough data"


def test_most_environments_are_not_those_of_one_family(everything: list[Experiment]) -> None:
    tables_of(everything, as_the_paper_says, Path("results"), paper=True)
    alter(Path("results/extrapolation.csv"), {"trained_on": "3-Push"}, {"episodes": "7"})
    found = verdicts(everything, "extrapolation")
    assert found["both well exceed the oracle on 6-Switch"] == "holds"
    assert found["Deep Sets extrapolate better than Self-Attention in most environments"] == "not enough data"
    assert found["more than 15 times higher success on new tasks than the MLP"] == "not enough data"


def test_times_are_of_the_experiment_and_of_one_thread(everything: list[Experiment]) -> None:
    results = Path("results")
    tables_of(everything, as_the_paper_says, results, paper=True)
    with (results / "timing.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    strange = [row | {"sha256": "of another recipe", "milliseconds": "99", "hours": "99"} for row in rows]
    write_table(results / "timing.csv", [*rows, *strange])
    assert set(verdicts(everything, "timing").values()) == {"holds"}
    alter(results / "timing.csv", {"network": "mlp", "trained_on": "3-Push"}, {"threads": "2"})
    assert sorted(verdicts(everything, "timing").values()) == ["holds", "not enough data", "not enough data"]


def test_of_two_schedules_the_better_one_is_shown() -> None:
    results = Path("results")
    both = experiments("paper", range(1), EPISODES)
    tables_of(both, as_the_paper_says, results, paper=True)
    evidence = Evidence(results)
    learning = both[0]

    def recipes() -> list[str]:
        return [t.of.recipe for t in evidence.shown(learning) if (t.of.task, t.of.network) == ("3-Push", "mlp")]

    assert recipes() == ["paper-fast"]  # the same: the first
    for row in evidence.curves["3-Push-mlp-3-paper-slow-0",]:
        row["success_once"] = "1.0"
    assert recipes() == ["paper-slow"]
    assert sum(test.of.task == "3-Push" for test in evidence.shown(learning)) == 3
