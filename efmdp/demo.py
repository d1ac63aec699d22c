"""The main claim of the project in minutes: trained on 3 switches, tested on 1 to 6, with and without a set network."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import torch

from efmdp.entities import UserError
from efmdp.experiments import MOST_PLACES, Evaluating, Experiment, Study, Training, check_unhindered
from efmdp.figures import LABELS
from efmdp.launch import Here, Told, available_cores, do, lines_of, log_of
from efmdp.oracle import parse_sources
from efmdp.progress import console, say
from efmdp.report import experiment_section, take_in, write_page
from efmdp.scripted import SCRIPTED
from efmdp.tables import Row
from efmdp.zero_shot import compare, show

TASK, HARDEST = "3-Switch", "6-Switch"
TITLE = "Trained on 3 switches, tested on 1 to 6"
INTRODUCTION = (
    "A robot flips switches to their wanted sides. Two policies were trained on three switches, after a first stage "
    "with a single one, by the same recipe: Deep Sets takes the switches as a set, and at times some of them for the "
    "whole; the MLP takes them as a list with six places. Then both met other numbers of switches, without any more "
    "training. One seed each; intervals are over episodes. The oracle, a script here, flips one switch after the other."
)


def demo_runs(out: Path, recipe: str = "fast") -> list[Training]:
    """The same recipe for both; the MLP has places for all the switches that it is tested on."""
    return [
        Training(TASK, "deep-set", recipe, root=out),
        Training(TASK, "mlp", recipe, places=MOST_PLACES, root=out),
    ]


def run_demo(runs: Sequence[Training], out: Path, episodes: int) -> None:
    """Train each policy in its folder of `out`, test and film them, and write summary.html there."""
    if importlib.util.find_spec("matplotlib") is None:  # said now, not after the training
        raise UserError("the picture needs matplotlib: pip install 'efmdp[plots]'")
    train(runs)
    results = out / "results"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads of torch and of the simulation get in each other's way
    shows: dict[Study, str] = {"learning": "What they were trained on", "extrapolation": "Other numbers of switches"}
    experiments = [
        Experiment(study, text, tuple(Evaluating(study, run, episodes) for run in runs))
        for study, text in shows.items()
    ]
    folders, oracle = [run.folder for run in runs], parse_sources([SCRIPTED])
    for test in (experiment.tests[0] for experiment in experiments):
        rows = compare(folders, oracle, test.plan, episodes, results / test.out.name, test.which)
    torch.set_num_threads(threads)
    said = conclusion(rows)
    again = f"efmdp demo --out {out} --episodes {episodes}"
    evidence = take_in(experiments, results, results)
    sections = [experiment_section(experiment, evidence, out) for experiment in experiments]
    write_page(out / "summary.html", TITLE, f"<strong>{said}.</strong> {INTRODUCTION}", again, sections)
    console.print(show(rows, f"{episodes} test episodes each"))
    say(said)
    say(f"all on one page: {out / 'summary.html'}")


def conclusion(rows: Sequence[Row]) -> str:
    success = {(row["network"].split("-")[0], row["task"]): 100 * float(row["success_once"]) for row in rows}
    return "; ".join(
        f"{LABELS[network]}: {success[name, TASK]:.0f} % on 3 switches, {success[name, HARDEST]:.0f} % on 6, "
        "which it never saw"
        for network, name in (("deep-set", "deep"), ("mlp", "mlp"))
    )


def train(runs: Sequence[Training]) -> None:
    """Those that are not trained yet, side by side, a core each."""
    left = [run for run in runs if not run.is_done]
    check_unhindered(left)
    heard = {run.name: len(lines_of(run)) for run in left}  # a log goes on after those before it

    def tell(told: Told) -> None:
        name = told.step.name
        for line in lines_of(told.step)[heard[name] :]:
            say(f"{name}: {line}")
            heard[name] += 1

    if left:
        say(f"{' and '.join(heard)}: training on {TASK}; stopped, the same command goes on")
    with console.status("training"):
        if not do(left, Here(available_cores()), float("inf"), tell):
            raise UserError(f"the training failed: see {' and '.join(str(log_of(run)) for run in left)}")
