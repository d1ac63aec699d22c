"""efmdp evaluate: one policy, or several in a study."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.table import Table

from efmdp.cli_options import TaskOptions, check_seed, is_oracle, load_for, oracle_for
from efmdp.entities import UserError
from efmdp.progress import console, say
from efmdp.rollout import Policy

if TYPE_CHECKING:
    from efmdp.zero_shot import Plan


def evaluate_command(
    run: tyro.conf.Positional[Path],
    task: str | None = None,
    episodes: int = 500,
    which: Literal["last", "best"] = "last",
    seed: int = 0,
    oracle: tuple[str, ...] = ("scripted",),
    options: Annotated[TaskOptions, tyro.conf.arg(name="")] = TaskOptions(),  # noqa: B008
) -> int:
    """Success of a policy on test seeds, with 95 % intervals, on the task it was trained on or any other it can take.

    To compare several, see efmdp evaluate learning --help, extrapolation --help, stitching --help and timing --help.

    Args:
        run: a run's folder, a policy file, zoo:NAME, or oracle.
        task: the task (default: the one it was trained on).
        episodes: how many test episodes.
        which: of a run's folder the last policy, or the one that was best on the selection seeds.
        seed: test episodes differ from all training and selection episodes of the run with this seed.
        oracle: scripted, or who solves its subtasks: push=RUN switch=RUN; runs, policy files, zoo:NAME or scripted.
    """
    from efmdp.evaluate import TEST, play_episodes, stream_seed
    from efmdp.stats import success_rate

    check_seed(seed)
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}: play at least one")
    slots = min(episodes, 100)
    policy: Policy
    if is_oracle(run):
        policy, task, who = oracle_for(task, oracle, options, slots), str(task), f"{run} ({' '.join(oracle)})"
    else:
        policy, task, options = load_for(run, which, task, options)
        who = f"{run} ({which})" if run.is_dir() else str(run)
    outcome = play_episodes(options.make(task, slots), policy, episodes, stream_seed(seed, TEST))
    say(f"{who} on {task}, {episodes} episodes, {options.profile} physics")
    for label, values in (("once", outcome.success_once), ("end", outcome.success_end)):
        say(f"  success {label:5s} {success_rate(values.sum(), episodes)}")
    # Entities of one episode fare alike, so they count as one trial together.
    say(f"  entities      {success_rate(outcome.solved.sum(), episodes)}")
    return 0


Runs = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN..."), tyro.conf.Positional]


def learning_command(
    runs: Runs,
    oracle: tuple[str, ...] = ("scripted",),
    episodes: int = 500,
    out: Path | None = None,
) -> int:
    """Policies on the task that they were trained on, the oracle beside. Of a run it is the last policy.

    All play the same test episodes.

    Args:
        runs: folders of runs or policy files, of any networks and seeds, all trained on the same task.
        oracle: scripted, or who solves its subtasks: push=RUN switch=RUN; runs, policy files, zoo:NAME or scripted.
        episodes: how many test episodes for each policy.
        out: a CSV with a row for each policy. What it holds already is not played again.
    """
    from efmdp.zero_shot import learning  # torch takes seconds to import

    return _compare(runs, oracle, learning, episodes, out, "last")


def extrapolation_command(
    runs: Runs,
    oracle: tuple[str, ...] = ("scripted",),
    episodes: int = 500,
    out: Path | None = None,
    wide: bool = False,
) -> int:
    """Policies trained on one task, such as 3-Push, on fewer and more entities: 1-Push to 6-Push, the oracle beside.

    Of a run it is the policy that was best on the selection seeds. All play the same test episodes.

    Args:
        runs: folders of runs or policy files, of any networks and seeds, all trained on the same task.
        oracle: scripted, or who solves its subtasks: push=RUN switch=RUN; runs, policy files, zoo:NAME or scripted.
        episodes: how many test episodes for each policy on each task.
        out: a CSV with a row for each policy on each task. What it holds already is not played again.
        wide: go on to ten entities, which need a wider layout than the paper's.
    """
    from efmdp.zero_shot import extrapolation  # torch takes seconds to import

    return _compare(runs, oracle, partial(extrapolation, wide=wide), episodes, out)


def stitching_command(
    runs: Runs,
    oracle: tuple[str, ...] = ("scripted",),
    episodes: int = 500,
    out: Path | None = None,
) -> int:
    """Policies trained on 2-Switch|2-Push, or on 2-Push|Stack, on what needs both skills, the oracle beside.

    Or on 2-Switch&2-Push or 2-Push&Stack. Of a run it is the policy that was best on the selection seeds. All play the
    same test episodes: of the tasks that they were trained on, and of 2-Switch+2-Push or Push+Stack, which they never
    saw.

    Args:
        runs: folders of runs or policy files, of any networks and seeds, all trained on the same mixture.
        oracle: scripted, or who solves its subtasks: push=RUN stack=RUN; runs, policy files, zoo:NAME or scripted.
        episodes: how many test episodes for each policy on each task.
        out: a CSV with a row for each policy on each task. What it holds already is not played again.
    """
    from efmdp.zero_shot import stitching  # torch takes seconds to import

    return _compare(runs, oracle, stitching, episodes, out)


def _compare(
    runs: Sequence[Path],
    oracle: Sequence[str],
    plan: "Plan",
    episodes: int,
    out: Path | None,
    which: Literal["best", "last"] = "best",
) -> int:
    import torch

    from efmdp.oracle import parse_sources
    from efmdp.zero_shot import compare, findings, show, summarise, write_summary

    torch.set_num_threads(1)  # threads of torch and of the simulation get in each other's way
    rows = compare(runs, parse_sources(oracle), plan, episodes, out, which)
    console.print(show(rows, f"trained on {rows[0]['trained_on']}, {episodes} test episodes each"))
    statistics = summarise(rows)
    for line in findings(rows, statistics):
        say(line)
    if out is not None and len(runs) == 1:
        say(f"all numbers: {out}")  # one policy has no statistics, and must not replace those of many
    elif out is not None:
        say(f"all numbers: {out}, and the statistics above: {write_summary(out, statistics)}")
    return 0


def timing_command(runs: Runs, out: Path | None = None) -> int:
    """How long each policy takes for a step, one observation on one thread, and how long it was trained.

    A step is timed on the task that it was trained on and, where that has a family, on its first three members, such
    as 1-Push, 2-Push and 3-Push.

    Args:
        runs: folders of runs or policy files; hours of training are known of runs only.
        out: a CSV with a row for each policy and task. What it holds of them already is measured anew.
    """
    from efmdp.tables import grouped  # torch takes seconds to import
    from efmdp.timing import time_policies

    rows = time_policies(runs, out)
    sizes = sorted({int(row["entities"]) for row in rows})
    table = Table("network", "recipe", "seed", "trained on", "epochs", "hours", *map(str, sizes))
    table.caption = "hours of training so far, with so many threads; milliseconds for a step with 1, 2, ... entities"
    for mine in grouped(rows, "sha256").values():
        about = [mine[0][name] for name in ("network", "recipe", "seed", "trained_on", "epochs")]
        hours = f"{mine[0]['hours']} ({mine[0]['threads']})" if mine[0]["hours"] else ""
        milliseconds = {int(row["entities"]): row["milliseconds"] for row in mine}
        table.add_row(*about, hours, *(milliseconds.get(size, "") for size in sizes))
    console.print(table)
    if out is not None:
        say(f"all numbers: {out}")
    return 0


# Said after `evaluate`; a run's folder of such a name is ./extrapolation
STUDIES: dict[str, Callable[..., int]] = {
    "learning": learning_command,
    "extrapolation": extrapolation_command,
    "stitching": stitching_command,
    "timing": timing_command,
}
