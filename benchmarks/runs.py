"""What finished runs achieved, kept in results/ when their folders are gone.

python -m benchmarks.runs RUN... [--episodes 500] [--out results/fast] tests the last policy of every run on its own
task, in both profiles of the physics, and adds to (or replaces in) OUT.csv one row a run and to OUT-curves.csv one row
an epoch; OUT.png shows all curves that are there. Policies are copied to the folder `policies` beside them.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from rich.console import Console
from rich.progress import track
from rich.table import Table

from efmdp.domains import make_env
from efmdp.evaluate import TEST, load_policy, play_episodes, stream_seed
from efmdp.runs import CLOCK, Run, minutes, read_rows
from efmdp.stats import success_rate
from efmdp.tables import write_table
from efmdp.tasks import file_name

KEY = ("task", "collisions", "network", "recipe", "seed")
Row = dict[str, Any]


def merged(old: list[Row], new: list[Row]) -> list[Row]:
    """The new rows in the place of the old ones of the same runs."""
    replaced = {identity(row) for row in new}
    return sorted([row for row in old if identity(row) not in replaced] + new, key=identity)


def identity(row: Row) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in KEY)


def about(path: Path) -> Row:
    """What makes the run what it is."""
    stored = Run(path).config()
    if stored is None:
        raise SystemExit(f"there is no run at {path}")
    config = stored["config"]
    kind = config["network"]["kind"]
    room = config["network"]["max_entities"]
    network = kind if room is None else f"{kind}-{room}"
    return {**{name: config[name] for name in KEY}, "collisions": bool(config["collisions"]), "network": network}


def curve(path: Path) -> list[Row]:
    metrics, timings = read_rows(path / "metrics.csv"), read_rows(path / "timings.csv")
    return [
        {
            **about(path),
            "epoch": row["epoch"],
            "stage": row["task"],
            "steps": row["steps"],
            "updates": row["updates"],
            "minutes": round(minutes(timing), 2),
            "success_once": row["success_once"],
            "entities_solved": row["entities_solved"],
        }
        for row, timing in zip(metrics, timings, strict=True)
    ]


def outcome(path: Path, episodes: int) -> Row:
    """The last policy on test episodes, and what it cost."""
    policy, made = load_policy(path), about(path)
    seed = stream_seed(int(made["seed"]), TEST)
    played = {
        profile: play_episodes(
            make_env(made["task"], min(episodes, 100), profile=profile, **policy.physics), policy, episodes, seed
        )
        for profile in ("fast", "reference")
    }
    rate = success_rate(int(played["fast"].success_once.sum()), episodes)
    metrics, timings = read_rows(path / "metrics.csv"), read_rows(path / "timings.csv")
    final, timing = metrics[-1], timings[-1]
    before = timings[-2] if len(timings) > 1 else dict.fromkeys(CLOCK, 0)
    spent = {part: float(timing[part]) - float(before[part]) for part in CLOCK}
    return {
        **made,
        "threads": (Run(path).config() or {})["config"]["threads"],
        "epochs": final["epoch"],
        "steps": final["steps"],
        "updates": final["updates"],
        "minutes": round(minutes(timing), 1),
        "episodes": episodes,
        "success_once": round(rate.value, 4),
        "low": round(rate.low, 4),
        "high": round(rate.high, 4),
        "success_end": round(float(played["fast"].success_end.mean()), 4),
        "entities_solved": round(float(played["fast"].solved.mean()), 4),
        "reference_success_once": round(float(played["reference"].success_once.mean()), 4),
        "save_share_last_epoch": round(spent["save"] / sum(spent.values()), 4),
        "peak_mb": round(float(timing["peak_mb"])),
        "commit": (Run(path).config() or {})["versions"]["commit"],
    }


def draw(rows: list[Row], path: Path) -> None:
    """One panel a task: success on the selection seeds against minutes, the earlier stages of a curriculum included."""
    tasks = sorted({row["task"] for row in rows})
    figure, axes = plt.subplots(1, len(tasks), figsize=(4.2 * len(tasks), 3.6), squeeze=False, layout="constrained")
    for axis, task in zip(axes[0], tasks, strict=True):
        here = [row for row in rows if row["task"] == task]
        for run in sorted({identity(row) for row in here}):
            mine = [row for row in here if identity(row) == run and row["stage"] == task]
            _, collisions, network, recipe, seed = run
            more = [", collisions"] * (collisions == "True") + [", from scratch"] * ("no-curriculum" in recipe)
            name = f"{network}{''.join(more)}, seed {seed}"
            x, y = [float(row["minutes"]) for row in mine], [float(row["success_once"]) for row in mine]
            axis.plot(x, y, "o-", markersize=3, label=name)
        axis.set(title=task, xlabel="minutes", ylabel="success", ylim=(-0.02, 1.02), xlim=(0, None))
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("results/fast"))
    args = parser.parse_args()
    table_path, curves_path = Path(f"{args.out}.csv"), Path(f"{args.out}-curves.csv")
    outcomes = [outcome(path, args.episodes) for path in track(args.runs, "testing", console=Console(stderr=True))]
    curves = [row for path in args.runs for row in curve(path)]
    write_table(table_path, merged(read_rows(table_path), outcomes))
    all_curves = merged(read_rows(curves_path), curves)
    write_table(curves_path, all_curves)
    draw(all_curves, Path(f"{args.out}.png"))
    policies = args.out.parent / "policies"
    policies.mkdir(exist_ok=True)
    for path, row in zip(args.runs, outcomes, strict=True):
        parts = [row["task"], *["collisions"] * row["collisions"], row["network"], row["recipe"], row["seed"]]
        name = file_name("-".join(map(str, parts)))
        shutil.copy(path / "policy-last.safetensors", policies / f"{name}.safetensors")
    table = Table(*outcomes[0])
    for row in outcomes:
        table.add_row(*map(str, row.values()))
    Console(width=200).print(table)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
