"""A run on test episodes: its last policy on its own task, its best one on fewer and more entities, the oracle beside.

python -m benchmarks.last_and_best RUN --out TABLE.csv [--episodes 500] adds rows to the table as `efmdp evaluate
extrapolation` does, which takes the best policy for its own task too. Several may add to one table at the same time.
"""

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from efmdp.evaluate import policy_file
from efmdp.oracle import parse_sources
from efmdp.tasks import parse_task
from efmdp.zero_shot import Trial, compare, extrapolation


def on_its_own_task(trained_on: str, physics: Mapping[str, Any]) -> list[Trial]:
    return [Trial(parse_task(trained_on, **physics), "train")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)  # threads of torch and of the simulation get in each other's way
    oracle = parse_sources(["scripted"])
    compare([policy_file(args.run, "last")], oracle, on_its_own_task, args.episodes, args.out)
    compare([policy_file(args.run, "best")], oracle, partial(extrapolation, wide=False), args.episodes, args.out)


if __name__ == "__main__":
    main()
