"""What each piece of the `fast` recipe buys: the recipe with one piece taken out, same seeds, same epochs.

python -m benchmarks.ablation [--task 1-Push] [--epochs 5] [--seeds 0 1] [--out results/ablation] trains every variant
with every seed from scratch, one process and one thread each, as many at a time as there are cores. It writes OUT.csv
(one row an epoch) and OUT.png, and prints the success on the selection seeds after the last epoch and the time taken.
"""

import argparse
import csv
import json
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from statistics import mean

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from efmdp.recipes import TrainConfig, fast, make_network
from efmdp.runs import read_rows
from efmdp.train import train_ddpg

Change = Callable[[TrainConfig], TrainConfig]


def unpenalised(config: TrainConfig) -> TrainConfig:
    return replace(config, stages=tuple(replace(stage, action_l2=0.1) for stage in config.stages))


def steady(config: TrainConfig) -> TrainConfig:
    calm = [replace(s, exploration=replace(s.exploration, decay_with_success=0.0)) for s in config.stages]
    return replace(config, stages=tuple(calm))


VARIANTS: dict[str, Change] = {
    "fast": lambda config: config,
    "no redraws": lambda config: replace(config, redraws=0),
    "episodes alike": lambda config: replace(config, by_movement=False),
    "no redraws, episodes alike": lambda config: replace(config, redraws=0, by_movement=False),
    "steady exploration": steady,
    "action penalty 0.1": unpenalised,
    "targets as in the paper": lambda config: replace(
        config, ddpg=replace(config.ddpg, target_keep=0.95, target_every=40)
    ),
    "actor at every update": lambda config: replace(config, ddpg=replace(config.ddpg, actor_every=1)),
}


def run(variant: str, task: str, seed: int, epochs: int) -> list[dict[str, str]]:
    """Train one variant; its metrics and timings, one row an epoch."""
    config = fast(task, make_network("deep-set", task, None), seed, curriculum=False)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        train_ddpg(VARIANTS[variant](replace(config, threads=1)), out, epochs)
        rows = list(zip(read_rows(out / "metrics.csv"), read_rows(out / "timings.csv"), strict=True))
    return [
        {
            "task": task,
            "variant": variant,
            "seed": str(seed),
            **{name: row[name] for name in ("epoch", "steps", "updates", "success_once")},
            "seconds": f"{float(timing['collect']) + float(timing['learn']):.1f}",
        }
        for row, timing in rows
    ]


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Success against steps: a line for each variant, the mean over its seeds."""
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for variant in VARIANTS:
        steps = sorted({int(row["steps"]) for row in rows if row["variant"] == variant})
        success = [
            mean(float(r["success_once"]) for r in rows if r["variant"] == variant and int(r["steps"]) == step)
            for step in steps
        ]
        axis.plot(steps, success, "o-", label=variant, linewidth=3 if variant == "fast" else 1.2)
    seeds = sorted({row["seed"] for row in rows})
    axis.set(xlabel="environment steps", ylabel="success", title=f"{rows[0]['task']}, mean of seeds {', '.join(seeds)}")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="1-Push")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--out", type=Path, default=Path("results/ablation"))
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    jobs = [(variant, args.task, seed, args.epochs) for seed in args.seeds for variant in VARIANTS]
    rows: list[dict[str, str]] = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), spawn) as pool, Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("runs", total=len(jobs))
        for done in as_completed([pool.submit(run, *job) for job in jobs]):
            rows += done.result()
            progress.advance(bar)
    rows.sort(key=lambda row: (list(VARIANTS).index(row["variant"]), int(row["seed"]), int(row["epoch"])))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{args.out}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    draw(rows, Path(f"{args.out}.png"))
    last = [row for row in rows if row["epoch"] == str(args.epochs)]
    table = Table("variant", *[f"success, seed {seed}" for seed in args.seeds], "seconds", title=args.task)
    summary = {}
    for variant in VARIANTS:
        mine = [row for row in last if row["variant"] == variant]
        seconds = mean(float(row["seconds"]) for row in mine)
        table.add_row(variant, *[f"{float(row['success_once']):.0%}" for row in mine], f"{seconds:.0f}")
        summary[variant] = {"success": [float(row["success_once"]) for row in mine], "seconds": round(seconds, 1)}
    Console().print(table)
    print(json.dumps({"benchmark": "ablation", "task": args.task, "epochs": args.epochs, "variants": summary}))


if __name__ == "__main__":
    main()
