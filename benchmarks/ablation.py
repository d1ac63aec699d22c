"""What each piece of the `fast` recipe buys: the recipe with one piece taken out, same seeds.

python -m benchmarks.ablation [--task 1-Push] [--network deep-set] [--max-entities N] [--epochs 5] [--seeds 0 1]
[--variants NAME ...] [--out OUT] trains every variant with every seed, one process and one thread each, as many at a
time as there are cores. The runs are kept in runs/ablation, so that the same command goes on where it was stopped. It
writes OUT.csv (one row an epoch) and OUT.png, and prints the success on the selection seeds after the last epoch and
the time taken.
"""

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import get_args

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from efmdp.entities import Objective, UserError
from efmdp.networks import Kind, NetworkConfig
from efmdp.recipes import TrainConfig, fast, make_network
from efmdp.runs import read_rows
from efmdp.tables import write_table
from efmdp.tasks import parse_task
from efmdp.train import train_ddpg

Change = Callable[[TrainConfig], TrainConfig]


def steady(config: TrainConfig) -> TrainConfig:
    calm = [replace(s, exploration=replace(s.exploration, decay_with_success=0.0)) for s in config.stages]
    return replace(config, stages=tuple(calm))


def averaged(config: TrainConfig) -> TrainConfig:
    """For one entity that is the same."""
    return config if parse_task(config.task).entities == 1 else replace(config, objective=Objective("sparse", "mean"))


def uncurricular(config: TrainConfig) -> TrainConfig:
    """Only the task itself, for as many epochs as the stages together may take."""
    return replace(config, stages=(replace(config.stages[-1], epochs=config.epochs),))


def penalised(config: TrainConfig, weight: float) -> TrainConfig:
    """With this penalty on large actions."""
    return replace(config, ddpg=replace(config.ddpg, action_l2=weight))


def lengthened(config: TrainConfig, epochs: int) -> TrainConfig:
    """The last stage lasts until there are so many, if the stages together have fewer."""
    *before, last = config.stages
    more = max(0, epochs - config.epochs)
    return replace(config, stages=(*before, replace(last, epochs=last.epochs + more)))


VARIANTS: dict[str, Change] = {
    "fast": lambda config: config,
    "no redraws": lambda config: replace(config, redraws=0),
    "episodes alike": lambda config: replace(config, by_movement=False),
    "no redraws, episodes alike": lambda config: replace(config, redraws=0, by_movement=False),
    "steady exploration": steady,
    "action penalty 0.1": lambda config: penalised(config, 0.1),
    "targets as in the paper": lambda config: replace(
        config, ddpg=replace(config.ddpg, target_keep=0.95, target_every=40)
    ),
    "actor at every update": lambda config: replace(config, ddpg=replace(config.ddpg, actor_every=1)),
    "averaged rewards": averaged,
    "no curriculum": uncurricular,
    "no curriculum, action penalty 3": lambda config: penalised(uncurricular(config), 3),
    "no subsets, no curriculum": lambda config: replace(uncurricular(config), subsets=False),
}
RUNS = Path("runs/ablation")


def recipe(task: str, network: NetworkConfig, seed: int) -> TrainConfig:
    return replace(fast(task, network, seed), threads=1)


def different(task: str, network: NetworkConfig) -> list[str]:
    """The variants that change something for this task, and not the same."""
    configs = [change(recipe(task, network, 0)) for change in VARIANTS.values()]
    return [name for i, name in enumerate(VARIANTS) if configs.index(configs[i]) == i]


def run(variant: str, task: str, network: NetworkConfig, seed: int, epochs: int | None) -> list[dict[str, str]]:
    """Train one variant; its metrics and timings, one row an epoch."""
    config = lengthened(VARIANTS[variant](recipe(task, network, seed)), epochs or 0)
    out = RUNS / f"{task}-{network.name}-{variant.replace(',', '').replace(' ', '-')}-{seed}"
    train_ddpg(config, out, epochs)
    rows = list(zip(read_rows(out / "metrics.csv"), read_rows(out / "timings.csv"), strict=True))[:epochs]
    return [
        {
            "task": task,
            "network": network.name,
            "variant": variant,
            "seed": str(seed),
            "trained_on": row["task"],
            **{name: row[name] for name in ("epoch", "steps", "updates", "success_once")},
            "seconds": f"{float(timing['collect']) + float(timing['learn']):.1f}",
        }
        for row, timing in rows
    ]


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Success on the task itself against steps: a line for each variant and seed."""
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for index, variant in enumerate(dict.fromkeys(row["variant"] for row in rows)):
        mine = [row for row in rows if row["variant"] == variant and row["trained_on"] == row["task"]]
        for number, seed in enumerate(dict.fromkeys(row["seed"] for row in mine)):
            points = [(int(row["steps"]), float(row["success_once"])) for row in mine if row["seed"] == seed]
            (line,) = axis.plot(*zip(*points, strict=True), "o-", color=f"C{index}", label="_" * number + variant)
            line.set_linewidth(3 if variant == "fast" else 1.2)
    seeds = ", ".join(dict.fromkeys(row["seed"] for row in rows))
    axis.set(xlabel="environment steps", ylabel="success", title=f"{rows[0]['task']}, seeds {seeds}")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="1-Push")
    parser.add_argument("--network", default="deep-set", choices=get_args(Kind))
    parser.add_argument("--max-entities", type=int, help="mlp: room for so many (default: the task's)")
    parser.add_argument("--epochs", type=int, help="so many, also beyond the recipe's (default: the recipe's)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, metavar="NAME", help="all that differ if not given")
    parser.add_argument("--out", type=Path, help="results/ablation-TASK if not given")
    args = parser.parse_args()
    out = args.out or Path(f"results/ablation-{args.task}")
    try:
        network = make_network(args.network, parse_task(args.task).entities, args.max_entities)
    except UserError as error:
        parser.error(str(error))
    variants = args.variants or different(args.task, network)
    os.environ["OMP_NUM_THREADS"] = "1"
    jobs = [(variant, args.task, network, seed, args.epochs) for seed in args.seeds for variant in variants]
    rows: list[dict[str, str]] = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), spawn) as pool, Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("runs", total=len(jobs))
        try:
            for done in as_completed([pool.submit(run, *job) for job in jobs]):
                rows += done.result()
                progress.advance(bar)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            sys.exit("interrupted: the same command goes on")
    rows.sort(key=lambda row: (variants.index(row["variant"]), int(row["seed"]), int(row["epoch"])))
    write_table(Path(f"{out}.csv"), rows)
    draw(rows, Path(f"{out}.png"))
    own = [row for row in rows if row["trained_on"] == args.task]
    last = list({(row["variant"], row["seed"]): row for row in own}.values())
    seeds = [f"success, seed {seed}" for seed in args.seeds]
    table = Table("variant", *seeds, "steps", "seconds", title=f"{args.task}, {network.name}")
    summary = {}
    for variant in variants:
        mine = [row for row in last if row["variant"] == variant]
        steps, seconds = (round(mean(float(row[name]) for row in mine)) for name in ("steps", "seconds"))
        table.add_row(variant, *[f"{float(r['success_once']):.0%}" for r in mine], f"{steps:,}", str(seconds))
        success = [float(row["success_once"]) for row in mine]
        summary[variant] = {"success": success, "steps": steps, "seconds": seconds}
    Console().print(table)
    settings = {"task": args.task, "network": network.name, "epochs": args.epochs}
    print(json.dumps({"benchmark": "ablation", **settings, "variants": summary}))


if __name__ == "__main__":
    main()
