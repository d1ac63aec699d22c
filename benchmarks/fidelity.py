"""Is the fast physics the same task? The scripted controllers in both profiles, on the same episodes.

`python -m benchmarks.fidelity` prints the table in docs/physics.md and writes results/fidelity.csv, one row an episode.
"""

import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from efmdp.env import FetchEnv
from efmdp.rollout import Outcome, run_episodes
from efmdp.scene import Profile
from efmdp.scripted import Scripted
from efmdp.tasks import parse_task

PROFILES: tuple[Profile, Profile] = ("reference", "fast")
SUCCESS_POINTS = 3.0
STEPS_PERCENT = 5.0
QUANTILES = (0.1, 0.5, 0.9)


@dataclass
class Args:
    tasks: tuple[str, ...] = ("1-Push", "3-Push", "3-Switch", "Stack")
    episodes: int = 1000
    batch: int = 100
    """episodes simulated side by side; episode i has the same layout in both profiles"""
    out: Path = Path("results/fidelity.csv")


def play(task: str, profile: Profile, args: Args, progress: Progress) -> Outcome:
    """One outcome of all episodes, batch by batch."""
    env, policy = FetchEnv(parse_task(task), args.batch, profile), Scripted(args.batch)
    bar = progress.add_task(f"{task}, {profile}", total=args.episodes)
    parts = []
    for seed in range(-(-args.episodes // args.batch)):
        parts.append(run_episodes(env, policy, seed=seed))
        progress.advance(bar, args.batch)
    return Outcome(*(np.concatenate(field)[: args.episodes] for field in zip(*parts, strict=True)))


def main(args: Args) -> None:
    table = Table(title=f"scripted controllers, {args.episodes} paired episodes (reference / fast)")
    columns = ("task", "success %", "difference", "steps to success", "difference", "final distance, 10/50/90 %", "ok")
    for column in columns:
        table.add_column(column)
    rows, summary = [], {}
    with Progress(console=Console(stderr=True)) as progress:
        for task in args.tasks:
            reference, fast = (play(task, profile, args, progress) for profile in PROFILES)
            for profile, outcome in zip(PROFILES, (reference, fast), strict=True):
                rows += [
                    (task, profile, i, int(once), steps, " ".join(f"{d:.4f}" for d in distance))
                    for i, (once, steps, distance) in enumerate(
                        zip(outcome.success_once, outcome.steps, outcome.distance, strict=True)
                    )
                ]
            success = [100 * outcome.success_once.mean() for outcome in (reference, fast)]
            both = reference.success_once & fast.success_once  # steps are compared on episodes that both solve
            steps = [outcome.steps[both].mean() for outcome in (reference, fast)]
            spread = [np.quantile(outcome.distance, QUANTILES) for outcome in (reference, fast)]
            points, percent = success[1] - success[0], 100 * (steps[1] / steps[0] - 1)
            ok = abs(points) <= SUCCESS_POINTS and abs(percent) <= STEPS_PERCENT
            table.add_row(
                task,
                " / ".join(f"{s:.1f}" for s in success),
                f"{points:+.1f} points",
                " / ".join(f"{s:.1f}" for s in steps),
                f"{percent:+.1f} %",
                " / ".join(" ".join(f"{q:.4f}" for q in quantiles) for quantiles in spread),
                "yes" if ok else "NO",
            )
            summary[task] = {
                "success": dict(zip(PROFILES, success, strict=True)),
                "steps": dict(zip(PROFILES, steps, strict=True)),
                "distance": {p: q.tolist() for p, q in zip(PROFILES, spread, strict=True)},
                "failed": int(reference.failed.sum() + fast.failed.sum()),
                "ok": bool(ok),
            }
    Console(width=140).print(table)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("task", "profile", "episode", "success_once", "steps", "distances"))
        writer.writerows(rows)
    print(json.dumps({"benchmark": "fidelity", "episodes": args.episodes, "tasks": summary}))
    sys.exit(0 if all(task["ok"] for task in summary.values()) else 1)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
