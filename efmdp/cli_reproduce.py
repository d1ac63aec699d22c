"""efmdp reproduce and report."""

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from efmdp.entities import UserError
from efmdp.progress import console, say, warn

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from efmdp.experiments import Evaluating, Experiment, Step
    from efmdp.launch import Backend, Told

Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="EXPERIMENT..."), tyro.conf.Positional]


def reproduce_command(
    names: Names = (),
    list_: Annotated[bool, tyro.conf.arg(name="list"), tyro.conf.FlagCreatePairsOff] = False,
    recipe: Literal["fast", "paper", "smoke"] = "fast",
    seeds: int = 5,
    tasks: tuple[str, ...] = (),
    networks: tuple[str, ...] = (),
    demos: tuple[int, ...] = (),
    episodes: int = 500,
    budget: str | None = None,
    jobs: int | None = None,
    backend: Literal["local", "ray"] = "local",
    address: str | None = None,
) -> int:
    """Train and test what the figures of the paper are made of; what is done already is not done again.

    Stopped or killed at any moment, the same command goes on. Runs go to runs/, demonstrations to demos/, tables to
    results/; efmdp report makes figures of them.

    Args:
        names: which figures (default: all; --list names them).
        list_: only list the experiments, what is done of them and what the rest would take here.
        recipe: fast: ours, for two cores; paper: every value of the paper's tables; smoke: seconds a run, to see
            that everything works where it runs.
        seeds: so many runs of each kind, with seeds 0, 1, ...
        tasks: only what is trained on these tasks.
        networks: only these networks.
        demos: only clones of so many demonstrations.
        episodes: test episodes for each policy on each task.
        budget: stop after this time, such as 2h, 90m or 1h30m; all is saved.
        jobs: so many steps side by side on this machine, one core each (default: as many as there are cores).
        backend: this machine, or a Ray cluster.
        address: of the Ray cluster, such as auto or 10.0.0.1:6379 (default: one on this machine, for this command).
    """
    deadline = time.monotonic() + (_seconds(budget) if budget else float("inf"))
    _check_positive({"--seeds": seeds, "--episodes": episodes} | ({} if jobs is None else {"--jobs": jobs}))
    if address is not None and backend != "ray":
        raise UserError("--address belongs to --backend ray")
    if jobs is not None and backend == "ray":
        raise UserError("--jobs belongs to this machine: Ray does as many steps side by side as its cluster has cores")
    from efmdp.experiments import chosen, experiments, in_order  # torch takes seconds to import
    from efmdp.launch import available_cores

    wanted = chosen(experiments(recipe, range(seeds), episodes), names, tasks, networks, demos)
    cores = jobs or available_cores()
    if list_:
        _list(wanted, cores)
        return 0
    tests = [test for experiment in wanted for test in experiment.tests]
    tests.sort(key=lambda test: test.of.seed)  # a seed of all of them before the next one
    everything, missing = in_order(tests), _missing(tests)
    if not missing:
        say(f"all {len(everything)} steps are done: efmdp report draws them")
        return 0
    say(f"{len(missing)} of {len(everything)} steps are to be done")
    well = _do(everything, missing, _backend(backend, address, cores), deadline)
    left = len(_missing(tests))
    if not well:
        warn(f"{left} of {len(everything)} steps are left; of what failed, the logs say why")
        return 1
    say(
        f"{left} of {len(everything)} steps are left: the same command goes on" if left else "all is done: efmdp report"
    )
    return 0


def _missing(tests: "Sequence[Evaluating]") -> "list[Step]":
    """What is left to do for these tests, after all finished runs are in the tables, whoever trained them."""
    from efmdp.evidence import Evidence, steps_left
    from efmdp.experiments import RESULTS, Cloning, Training, check_unhindered, in_order
    from efmdp.records import record

    runs = [step for step in in_order(tests) if isinstance(step, Training | Cloning)]
    evidence = Evidence(RESULTS)
    if unknown := [run.folder for run in runs if not evidence.counts(run) and run.is_done]:
        record(unknown, RESULTS)
        evidence = Evidence(RESULTS)
    missing = steps_left(tests, evidence)
    check_unhindered(missing)
    return missing


def _do(everything: "list[Step]", missing: "list[Step]", backend: "Backend", deadline: float) -> bool:
    """Do what is missing, and keep what the report needs of every run as soon as it is done; whether nothing failed."""
    from efmdp.experiments import RESULTS, Cloning, Training
    from efmdp.launch import do, lines_of, log_of
    from efmdp.records import record

    bars = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*bars, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=len(everything), completed=len(everything) - len(missing))
        working: dict[str, str] = {}

        def tell(told: "Told") -> None:
            step, name = told.step, told.step.name
            if told.outcome in ("started", "working"):
                *_, last = "", *lines_of(step)
                success = last.rpartition(", ")[2]
                working[name] = f"{name} ({success})" if success.startswith("success ") else name
            else:
                working.pop(name, None)
                progress.advance(bar)
            if told.outcome == "done":
                if isinstance(step, Training | Cloning):
                    record([step.folder], RESULTS)
                say(f"{name}: done in {told.seconds / 60:.1f} minutes")
            elif told.outcome == "failed":
                warn(f"{name} failed: see {log_of(step)}")
            elif told.outcome == "skipped":
                warn(f"{name} skipped: something that it needs failed")
            progress.update(bar, description=", ".join(working.values()))

        return do(missing, backend, deadline, tell)


def _backend(name: str, address: str | None, cores: int) -> "Backend":
    from efmdp.launch import Here, OnRay

    return OnRay(address) if name == "ray" else Here(cores)


def _list(wanted: "list[Experiment]", cores: int) -> None:
    """What there is, what is done of it, and what is left to do on this machine."""
    from efmdp.costs import Machine

    machine = Machine()
    table = Table(caption=CAPTION.format(cores=cores))
    table.add_column("experiment")
    for heading in ("trained", "tested", "core-hours left", f"hours on {cores}"):
        table.add_column(heading, justify="right", no_wrap=True)

    def numbers(tests: "Sequence[Evaluating]") -> list[str]:
        left = set(_missing(tests))
        steps: tuple[Collection[Step], ...] = ({test.of for test in tests}, tests)
        done = [f"{sum(step not in left for step in some)} of {len(some)}" for some in steps]
        hours = machine.total(left) / 3600
        return [*done, f"{hours:.1f}", f"{hours / cores:.1f}"]

    with console.status("measuring this machine"):
        for experiment in wanted:
            table.add_row(f"{experiment.name}\n[dim]{experiment.shows}", *numbers(experiment.tests))
        if len(wanted) > 1:
            table.add_section()
            everything = [test for experiment in wanted for test in experiment.tests]
            table.add_row("all together\n[dim]what several need is done once", *numbers(everything))
    console.print(table)


def report_command(
    recipe: Literal["fast", "paper", "smoke"] = "fast",
    seeds: int = 5,
    episodes: int = 500,
    results: Path = Path("results"),
) -> int:
    """Figures, tables and one page of all that was measured, with the paper's claims and what became of them.

    It works with whatever there is, and says what is missing. What it makes of the recipe fast is in the folder of the
    tables, of another recipe in a folder of its name there.

    Args:
        recipe: whose runs: fast, paper or smoke.
        seeds: so many runs of each kind are wanted.
        episodes: so many test episodes of each policy on each task are wanted.
        results: the folder of the tables.
    """
    from efmdp.experiments import experiments  # torch takes seconds to import
    from efmdp.report import write_report

    _check_positive({"--seeds": seeds, "--episodes": episodes})
    where = results if recipe == "fast" else results / recipe
    usual = {"--recipe": "fast", "--seeds": 5, "--episodes": 500}
    asked = {"--recipe": recipe, "--seeds": seeds, "--episodes": episodes}
    options = "".join(f" {name} {value}" for name, value in asked.items() if value != usual[name])
    with console.status("drawing"):
        missing = write_report(experiments(recipe, range(seeds), episodes), results, where, options)
    if missing:
        say(f"missing: {len(missing)} kinds of runs, which the page names; efmdp reproduce --list shows their cost")
    say(f"{where / 'report.html'}, and figures in {where / 'figures'}")
    return 0


def _check_positive(numbers: dict[str, int]) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise UserError(f"{name} is {number}: choose 1 or more")


CAPTION = "measured just now, one thread a step, {cores} side by side; curricula that are solved early take less"


def _seconds(text: str) -> float:
    """
    >>> _seconds("1h30m"), _seconds("90m"), _seconds("2h")
    (5400.0, 5400.0, 7200.0)
    """
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?", text)
    hours, minutes = (float(part or 0) for part in match.groups()) if match else (0.0, 0.0)
    if hours + minutes == 0:
        raise UserError(f"--budget is {text!r}: write it as 2h, 90m or 1h30m")
    return 3600 * hours + 60 * minutes
