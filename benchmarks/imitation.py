"""Behaviour cloning by architecture and number of demonstrations, then tested on 1 to 6 entities.

python -m benchmarks.imitation [--tasks 3-Push 3-Switch] [--demos 1000 5000] [--networks mlp deep-set self-attention]
[--seeds 0 1 2] [--experts RUN ...] [--episodes 500] [--out results/imitation] [--minutes MINUTES] has every task
demonstrated into demos/, by the expert that was trained on it, or where there is none by the scripted controller. It
trains with `efmdp train bc` in runs/imitation/, one thread each, as many at a time as there are cores, and tests every
run as soon as it is done. It goes through all of a seed before the next one, and through cheap networks first. OUT.csv,
OUT-summary.csv (means, interquartile means, who beats whom) and OUT.png grow with every run; what they hold of other
runs stays there.

Killed or stopped, the same command goes on; after --minutes no new run starts. In OUT.csv `which` says what a row was
played with: the `last` policy of a run, on its own task only, or the `best` one on the selection seeds.
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import last_and_best
from efmdp.demos import Demos
from efmdp.entities import UserError
from efmdp.evaluate import load_policy, policy_file
from efmdp.runs import Run, read_policy
from efmdp.scripted import SCRIPTED
from efmdp.tables import Row, grouped, read_table, write_table
from efmdp.tasks import parse_task
from efmdp.zero_shot import (
    CAPTION,
    FIELDS,
    ORACLE,
    STUDY,
    cell,
    extrapolation,
    identify,
    over_seeds,
    summarise,
    write_summary,
)

EFMDP = [sys.executable, "-m", "efmdp.cli"]
DEMOS = Path("demos")
RUNS = Path("runs/imitation")
TESTED = RUNS / "tested.csv"  # the rows of all runs as last_and_best writes them
MLP_PLACES = 6
NETWORKS = ("mlp", "deep-set", "deep-set-large", "self-attention")  # the cheapest first
STYLES: dict[str, Any] = {  # told apart without colours too
    f"mlp-{MLP_PLACES}": {"color": "#d55e00", "marker": "s"},
    "deep-set": {"color": "#0072b2", "marker": "o"},
    "deep-set-large": {"color": "#56b4e9", "marker": "D"},
    "self-attention": {"color": "#009e73", "marker": "^"},
    ORACLE: {"color": "#555555", "linestyle": "--"},
}

COLUMNS = (*FIELDS, "demos_used", "which")
KEY = ("trained_on", "network", "recipe", "seed", "which", "task")


class Clone(NamedTuple):
    """One run of the study."""

    seed: int
    network: str
    task: str
    demos: int
    expert: str = SCRIPTED  # or a run's folder

    @property
    def folder(self) -> Path:
        return RUNS / f"{self.task}-{self.network}-{self.demos}{whose(self.expert)}-{self.seed}"

    @property
    def log(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def shown(self) -> Path:
        """The folder of its demonstrations."""
        return DEMOS / f"{self.task.lower()}{whose(self.expert)}"

    @property
    def is_trained(self) -> bool:
        """The checkpoint of the last epoch is there: it is written after everything else.

        Whatever else is missing or damaged, `efmdp train bc` mends or names it."""
        try:
            stored = Run(self.folder).config()
            if stored is None:
                return False
            config = stored["config"]
            last = config["epochs"] * config["rounds_per_epoch"]
            done = (self.folder / "checkpoints" / f"{last:06d}").is_dir()
            for which in ("last", "best"):
                read_policy(policy_file(self.folder, which))
            return done and config["demos"] == Demos(self.shown).digest(self.demos)
        except UserError:
            return False

    def rows(self, episodes: int) -> list[Row]:
        """What was played so far: the last policy on its own task, the best one on that and the others."""
        found: list[Row] = []
        for which in ("last", "best") if self.is_trained else ():
            file = policy_file(self.folder, which)
            who = identify(file)
            for row in read_table(TESTED, FIELDS):
                wanted = which == "best" or row["role"] == "train"  # both may be the same policy
                if wanted and (row["sha256"], row["episodes"]) == (who["sha256"], str(episodes)):
                    found.append(row | who | {"demos_used": str(self.demos), "which": which})
        return found

    def is_tested(self, episodes: int) -> bool:
        return len(self.rows(episodes)) == 1 + len(extrapolation(self.task, {}, wide=False))

    def commands(self, episodes: int) -> Iterator[list[str]]:
        """What is left to do, one after the other; the next one is asked for when the one before has ended."""
        if not self.is_trained:
            yield [
                *(*EFMDP, "train", "bc", "--demos", str(self.shown), "--demos-used", str(self.demos)),
                *("--network", self.network, "--seed", str(self.seed), "--threads", "1", "--out", str(self.folder)),
                *(("--max-entities", str(MLP_PLACES)) if self.network == "mlp" else ()),
            ]
        if self.is_trained and not self.is_tested(episodes):
            script = [sys.executable, last_and_best.__file__, str(self.folder)]
            yield [*script, "--episodes", str(episodes), "--out", str(TESTED)]


class Job:
    """A clone's commands as processes; what they say goes to a file beside the run's folder."""

    def __init__(self, clone: Clone, episodes: int) -> None:
        self.clone, self.log = clone, clone.log
        self.commands = clone.commands(episodes)
        self.process: subprocess.Popen[bytes] | None = None

    def goes_on(self) -> bool:
        """Whether there is something to wait for; starts the next command when the one before has succeeded."""
        if self.process is not None and self.process.poll() is None:
            return True
        if self.failed or (command := next(self.commands, None)) is None:
            return False
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        return True

    @property
    def failed(self) -> bool:
        return self.process is not None and bool(self.process.returncode)

    def stop(self) -> None:
        """A run that is being trained saves all it has."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


def whose(expert: str) -> str:
    """What the names of its demonstrations and clones say about an expert."""
    return "" if expert == SCRIPTED else f"-of-{Path(expert).name.removesuffix('.safetensors')}"


def demonstrate(clones: Sequence[Clone]) -> None:
    """Have all demonstrations that they need; what is there already is only checked."""
    needed: dict[Path, Clone] = {}
    for clone in sorted(clones, key=lambda clone: clone.demos):
        needed[clone.shown] = clone  # the one that needs the most
    for out, clone in needed.items():
        wanted = ["--task", clone.task, "--from", clone.expert, "--episodes", str(clone.demos)]
        done = subprocess.run([*EFMDP, "collect", *wanted, "--out", str(out)], check=False)
        if done.returncode:
            sys.exit(done.returncode)


def planned(
    tasks: Sequence[str],
    demos: Sequence[int],
    networks: Sequence[str],
    seeds: Sequence[int],
    experts: Mapping[str, str] | None = None,
) -> list[Clone]:
    """Every combination; each task has its expert, or else the scripted controller."""
    cheapest_first = sorted(networks, key=NETWORKS.index)
    parts = product(seeds, cheapest_first, tasks, demos)
    return list(dict.fromkeys(Clone(*each, (experts or {}).get(each[2], SCRIPTED)) for each in parts))


def work_off(clones: Sequence[Clone], episodes: int, deadline: float, done: Callable[[Job], None]) -> None:
    """Train and test them, side by side; `done` is told of every one. None begins after the deadline."""
    waiting, working = list(clones), list[Job]()
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=len(clones))
        try:
            while working or (waiting and time.monotonic() < deadline):
                while waiting and len(working) < (os.cpu_count() or 1) and time.monotonic() < deadline:
                    working.append(Job(waiting.pop(0), episodes))
                progress.update(bar, description=", ".join(job.clone.folder.name for job in working))
                for job in [job for job in working if not job.goes_on()]:
                    working.remove(job)
                    done(job)
                    progress.advance(bar)
                time.sleep(0.1)
        finally:
            for job in working:
                job.stop()


def gather(clones: Sequence[Clone], episodes: int, path: Path) -> list[Row]:
    """Everything that was tested so far, in the place of older rows of the same runs."""
    tasks = {clone.task for clone in clones}
    oracle = [
        row | {"demos_used": "", "which": ""}
        for row in read_table(TESTED, FIELDS)
        if row["network"] == ORACLE and row["trained_on"] in tasks and row["episodes"] == str(episodes)
    ]
    cloned = [row for clone in clones for row in clone.rows(episodes)]
    new = cloned + oracle if cloned else []  # the oracle alone is no study
    together = {tuple(row[name] for name in KEY): row for row in [*read_table(path, COLUMNS), *new]}
    rows = sorted(together.values(), key=_position)
    if rows:
        write_table(path, rows)
        best = [row for row in rows if row["which"] != "last"]
        write_summary(path, [line for here in grouped(best, *STUDY).values() for line in summarise(here)])
    return rows


def _position(row: Row) -> tuple[object, ...]:
    """By task and architecture, the oracle last; then by demonstrations, seed, policy and entities."""
    name, demos, seed = row["network"], int(row["demos_used"] or 0), int(row["seed"] or 0)
    return row["trained_on"], name == ORACLE, name, demos, row["recipe"], seed, row["which"], int(row["entities"])


def on_training_task(rows: Sequence[Row]) -> list[Row]:
    """What is quoted as the success of cloning: the last policy on its own task."""
    return [row for row in rows if row["role"] == "train" and row["which"] != "best"]


def by_entities(rows: Sequence[Row]) -> dict[int, list[Row]]:
    """The best policy, on every number of entities; those it cannot play are left out."""
    played = [row for row in rows if row["which"] != "last" and not row["reason"]]
    return {int(entities): here for (entities,), here in grouped(played, "entities").items()}


def show(rows: Sequence[Row]) -> Table:
    """A line for each task, architecture and number of demonstrations."""
    sizes = sorted({int(row["entities"]) for row in rows})
    title = "behaviour cloning: the last policy on its own task, the best one on so many entities"
    table = Table("trained on", "network", title=title, caption=CAPTION)
    for name in ("recipe", "seeds", "own task", *map(str, sizes)):
        table.add_column(name, justify="right")
    for (task, network, recipe), mine in grouped(rows, "trained_on", "network", "recipe").items():
        own, others = on_training_task(mine), by_entities(mine)
        cells = [cell(others.get(size, [])) for size in sizes]
        table.add_row(task, network, recipe, "" if network == ORACLE else str(len(own)), cell(own), *cells)
    return table


def draw(rows: Sequence[Row], path: Path) -> None:
    """For each task and expert: success on it against demonstrations, and with the most of them against entities."""
    panels = by_expert(rows)
    figure, axes = plt.subplots(len(panels), 2, figsize=(10, 3.8 * len(panels)), squeeze=False, layout="constrained")
    for (left, right), ((task, expert), here) in zip(axes, panels.items(), strict=True):
        counts = sorted({int(row["demos_used"]) for row in here if row["demos_used"]})
        for (network,), mine in grouped(here, "network").items():
            if network == ORACLE:
                own = on_training_task(mine)
                left.axhline(over_seeds(own).value, label=ORACLE, **STYLES[ORACLE])
                _line(right, by_entities(mine), ORACLE)
                continue
            cloned = {int(demos): some for (demos,), some in grouped(on_training_task(mine), "demos_used").items()}
            _line(left, cloned, network)
            _line(right, by_entities([row for row in mine if row["demos_used"] == str(counts[-1])]), network)
        left.set(
            title=f"{task}, shown by {expert}, last policy", xlabel="demonstrations", ylabel="success", xticks=counts
        )
        right.set(title=f"trained on {task}, best policy, {counts[-1]} demonstrations", xlabel="entities")
        right.axvline(int(on_training_task(here)[0]["entities"]), color="#cccccc", zorder=0)
        for axis in (left, right):
            axis.set_ylim(-0.03, 1.03)
            axis.grid(alpha=0.3)
    labelled = {
        label: line for axis in axes.flat for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(labelled.values(), labelled, loc="outside lower center", ncols=len(labelled))
    figure.suptitle("behaviour cloning; mean over seeds with its 95 % interval (one seed: over its episodes)")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def by_expert(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """The clones by task and who demonstrated it, with the oracle's rows among each."""
    panels: dict[tuple[str, str], list[Row]] = {}
    for (task,), here in grouped(rows, "trained_on").items():
        oracle = [row for row in here if row["network"] == ORACLE]
        for row in here:
            if row["network"] != ORACLE:
                expert = row["recipe"].partition("-of-")[2] or SCRIPTED
                panels.setdefault((task, expert), [*oracle]).append(row)
    return panels


def _line(axis: Axes, points: dict[int, list[Row]], network: str) -> None:
    """Success with its interval, cut at 0 and 1."""
    rates = [over_seeds(rows) for _, rows in sorted(points.items())]
    below = [rate.value - max(rate.low, 0) for rate in rates]
    above = [min(rate.high, 1) - rate.value for rate in rates]
    values = [rate.value for rate in rates]
    axis.errorbar(sorted(points), values, [below, above], capsize=3, label=network, **STYLES[network])


def summary(rows: Sequence[Row]) -> list[dict[str, object]]:
    """The table's numbers."""
    lines: list[dict[str, object]] = []
    for (task, network, recipe), mine in grouped(rows, "trained_on", "network", "recipe").items():
        own, others = on_training_task(mine), by_entities(mine)
        lines.append(
            {
                "trained_on": task,
                "network": network,
                "recipe": recipe,
                "seeds": [row["seed"] for row in own if row["seed"]],
                "own_task": [round(number, 4) for number in over_seeds(own)],
                "by_entities": {size: round(over_seeds(others[size]).value, 4) for size in sorted(others)},
            }
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["3-Push", "3-Switch"])
    parser.add_argument("--demos", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=["mlp", "deep-set", "self-attention"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--experts", type=Path, nargs="+", default=[], metavar="RUN", help="who demonstrates its task")
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("results/imitation"))
    parser.add_argument("--minutes", type=float, default=math.inf)
    args = parser.parse_args()
    if min(*args.demos, args.episodes) < 1 or args.minutes <= 0:
        parser.error("--demos, --episodes and --minutes must be above 0")
    table_path = Path(f"{args.out}.csv")
    try:
        if others := {row["episodes"] for row in read_table(table_path, COLUMNS)} - {str(args.episodes)}:
            raise UserError(f"{table_path} has {', '.join(others)} episodes a test, not {args.episodes}: another --out")
        for task in args.tasks:
            extrapolation(task, {}, wide=False)
        experts: dict[str, str] = {}
        for run in args.experts:
            policy = load_policy(run, "best")
            task, usual = policy.task, parse_task(policy.task)
            if policy.physics != {"collisions": usual.collisions, "gripper": usual.gripper}:
                raise UserError(f"--experts: {run} was trained with collisions or gripper, which {task} has not here")
            if (other := experts.setdefault(task, str(run))) != str(run):
                raise UserError(f"--experts: {other} and {run} were both trained on {task}: one at a time")
        if unused := experts.keys() - set(args.tasks):
            raise UserError(f"--experts: {experts[min(unused)]} was trained on {min(unused)}: add it to --tasks")
    except UserError as error:
        parser.error(str(error))
    deadline = time.monotonic() + 60 * args.minutes
    clones = planned(args.tasks, args.demos, args.networks, args.seeds, experts)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through `finally`, which stops what was started
    os.environ["OMP_NUM_THREADS"] = "1"
    failed: list[Job] = []

    def publish() -> list[Row]:
        rows = gather(clones, args.episodes, table_path)
        if rows:
            draw(rows, Path(f"{args.out}.png"))
        return rows

    def done(job: Job) -> None:
        if job.failed:
            failed.append(job)
            print(f"{job.clone.folder} failed: see {job.log}", file=sys.stderr)
        if job.process is not None:
            publish()

    interrupted = False
    try:
        demonstrate(clones)
        work_off(clones, args.episodes, deadline, done)
    except KeyboardInterrupt:
        interrupted = True
    rows = publish()
    finished = sum(clone.is_tested(args.episodes) for clone in clones)
    Console(width=190).print(show(rows))
    if finished < len(clones):
        print(f"{finished} of {len(clones)} runs are done; the same command goes on", file=sys.stderr)
    result = {"benchmark": "imitation", "episodes": args.episodes, "runs": finished, "of": len(clones)}
    print(json.dumps(result | {"results": summary(rows)}))
    sys.exit(130 if interrupted else 1 if failed else 0)


if __name__ == "__main__":
    main()
