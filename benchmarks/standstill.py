"""How policies of cubes fail: by standing still, or by leaving the cubes?

python -m benchmarks.standstill RUN... [--episodes 100] [--out OUT.json] has the scripted controller and then the last
policy of each run (a folder, a policy file or zoo:NAME) play the same selection episodes of the task that the first was
trained on. It prints a table, then one JSON line:

success             in %
standing still      of the failed episodes, those whose actions in their last third are on average below 0.2 of 1, in %
halfway down        of the steps before success, those with the hand between the heights of travelling and of pushing
away                of the steps before success, those with the hand more than 30 cm away from every cube
untouched           the episodes in which no cube moved by a centimetre
"""

import argparse
import json
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from efmdp.demos import record
from efmdp.domains import make_env
from efmdp.entities import Array, EntityEnv, UserError
from efmdp.evaluate import SELECTION, load_policy, stream_seed
from efmdp.rollout import Policy
from efmdp.runs import versions
from efmdp.scripted import PUSH_HEIGHT, SCRIPTED, TRAVEL_HEIGHT, Scripted

STILL = 0.2
MARGIN = 0.02  # metres: this near to a height, the hand is at it
AWAY, MOVED = 0.3, 0.01  # metres


def measure(env: EntityEnv, policy: Policy, seed: int) -> dict[str, float]:
    """What the table shows, of one episode in every slot."""
    episodes, flags = record(env, policy, seed)
    size = np.linalg.norm(episodes.actions[..., :3], axis=-1)  # (B, T) of what moves the hand
    last = size[:, -size.shape[1] // 3 :].mean(1)
    failed = ~flags.success_once
    cubes = env.achieved(episodes.entities)  # (B, T + 1, N, 3)
    goals = np.broadcast_to(episodes.goals[:, None], cubes.shape)
    success = env.success(cubes, goals)  # (B, T + 1)
    before = ~np.logical_or.accumulate(success, axis=1)
    height = episodes.agent[..., 2]
    halfway = (height > PUSH_HEIGHT + MARGIN) & (height < TRAVEL_HEIGHT - MARGIN)
    nearest = np.linalg.norm(cubes - episodes.agent[:, :, None, :3], axis=-1).min(2)  # (B, T + 1)
    moved = np.linalg.norm(cubes - cubes[:, :1], axis=-1).max((1, 2)) > MOVED  # (B,)
    return {
        "success": _percent(flags.success_once),
        "standing still": _percent(last[failed] < STILL),
        "halfway down": _percent(halfway[before]),
        "away": _percent(nearest[before] > AWAY),
        "untouched": _percent(~moved),
    }


def _percent(which: Array) -> float:
    return round(100 * float(which.mean()), 1) if which.size else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    args = parser.parse_args()
    try:
        learned = {run: load_policy(run) for run in args.runs}
        task = learned[args.runs[0]].task
        env = make_env(task, args.episodes)
    except UserError as error:
        parser.error(str(error))
    policies: dict[str, Policy] = {SCRIPTED: Scripted(args.episodes), **learned}
    measured = {name: measure(env, policy, stream_seed(0, SELECTION)) for name, policy in policies.items()}
    table = Table("policy", *measured[SCRIPTED], title=f"{task}, {args.episodes} episodes, in %")
    for name, numbers in measured.items():
        table.add_row(name, *(f"{number:.1f}" for number in numbers.values()))
    Console().print(table)
    line = json.dumps({"benchmark": "standstill", "task": task, "measured": measured, "versions": versions()})
    print(line)
    if args.out is not None:
        args.out.write_text(line + "\n")


if __name__ == "__main__":
    main()
