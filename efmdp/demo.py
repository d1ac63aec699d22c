"""The main claim of the project in minutes: trained on 3 switches, tested on 1 to 6, with and without a set network."""

import importlib.util
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from efmdp.entities import UserError
from efmdp.experiments import MOST_PLACES, Evaluating, Experiment, Study, Training
from efmdp.figures import LABELS
from efmdp.oracle import parse_sources
from efmdp.progress import console, say, training_bar, warn
from efmdp.recipes import TrainConfig
from efmdp.report import experiment_section, take_in, write_page
from efmdp.runs import minutes as trained_minutes
from efmdp.runs import read_rows
from efmdp.scripted import SCRIPTED
from efmdp.tables import Row
from efmdp.train import train_ddpg
from efmdp.zero_shot import compare, show

TASK, HARDEST = "3-Switch", "6-Switch"
TITLE = "Trained on 3 switches, tested on 1 to 6"
INTRODUCTION = (
    "A robot flips switches to their wanted sides. Two policies were trained on three switches, after a first stage "
    "with a single one, by the same recipe and for about as many minutes: Deep Sets takes the switches as a set, and "
    "at times some of them for the whole; the MLP takes them as a list with six places. Then both met other numbers of "
    "switches, without any more training. One seed each; intervals are over episodes. The oracle, a script here, flips "
    "one switch after the other."
)


def demo_runs(out: Path, recipe: str = "fast") -> list[Training]:
    """The same recipe for both; the MLP has places for all the switches that it is tested on."""
    return [
        Training(TASK, "deep-set", recipe, root=out),
        Training(TASK, "mlp", recipe, places=MOST_PLACES, root=out),
    ]


def run_demo(runs: Sequence[Training], out: Path, minutes: float, episodes: int) -> None:
    """Train each policy in its folder of `out`, test and film them, and write summary.html there."""
    if importlib.util.find_spec("matplotlib") is None:  # said now, not after the training
        raise UserError("the picture needs matplotlib: pip install 'efmdp[plots]'")
    for run in runs:
        train(replace(run.config, threads=2), run.folder, minutes)
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
    again = f"efmdp demo --out {out} --minutes {minutes:g} --episodes {episodes}"
    evidence = take_in(experiments, results, results, unfinished_too=True)  # they are stopped after some minutes
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


def train(config: TrainConfig, path: Path, minutes: float) -> None:
    """Train for so many minutes in all, however often this was stopped before; if they are over, not at all.

    A machine so slow that this does not reach the task itself goes on until there is a policy for it."""
    spent = _spent(path)
    left = minutes - spent if minutes > spent else None
    epochs = None if left else len(read_rows(path / "metrics.csv"))
    if left:
        say(f"{path}: training on {config.task} for {left:.1f} minutes")
    began, rounds = time.monotonic(), 0
    with training_bar(config, epochs, left) as show:

        def report(now: dict[str, Any]) -> None:
            nonlocal rounds
            rounds = now["round"]
            show(now)

        done = train_ddpg(config, path, epochs, report=report, warn=warn, minutes=left)
    time_is_up = left and time.monotonic() - began >= 60 * left and rounds == 0
    done = done or bool(time_is_up)
    while done and not (path / "policy-best.safetensors").exists():
        say(f"{path}: not at {config.task} after {minutes:g} minutes, so one epoch more")
        epochs = len(read_rows(path / "metrics.csv")) + 1
        with training_bar(config, epochs, None) as show:
            done = train_ddpg(config, path, epochs, report=show, warn=warn)
    if not done:
        say(f"{path}: all is saved, the same command goes on from here")
        raise KeyboardInterrupt


def _spent(path: Path) -> float:
    """Minutes that the run has been trained."""
    timings = read_rows(path / "timings.csv")
    return trained_minutes(timings[-1]) if timings else 0.0
