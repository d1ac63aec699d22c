"""How long a policy takes to act, and how long it took to train."""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch

from efmdp.domains import make_env
from efmdp.entities import EntityObs, UserError
from efmdp.evaluate import load_policy, policy_file
from efmdp.rollout import Policy
from efmdp.runs import minutes, read_rows
from efmdp.tables import Row, read_table, write_table
from efmdp.zero_shot import WHO, identify

FIELDS = (*WHO, "trained_on", "entities", "milliseconds", "hours")
PASSES = 500


def time_policies(runs: Sequence[Path], out: Path | None) -> list[Row]:
    """A row for each policy, on its own task; in the table `out` it replaces the policy's row."""
    if not runs:
        raise UserError("no run is named: name at least one run's folder or policy file")
    table = {row["sha256"]: row for row in read_table(out, FIELDS)}
    rows = [_row(path) for path in runs]
    if out is not None:
        write_table(out, list((table | {row["sha256"]: row for row in rows}).values()))
    return rows


def milliseconds_to_act(policy: Policy, obs: EntityObs) -> float:
    """The median time of a single step of the policy, with one thread."""
    before, spent = torch.get_num_threads(), []
    torch.set_num_threads(1)
    try:
        for _ in range(PASSES):
            began = time.perf_counter()
            policy.act(obs)
            spent.append(time.perf_counter() - began)
    finally:
        torch.set_num_threads(before)
    return 1000 * median(spent)


def _row(path: Path) -> Row:
    policy, folder = load_policy(path, "best"), policy_file(path, "best").parent
    env = make_env(policy.task, **policy.physics)
    timings = read_rows(folder / "timings.csv")
    return identify(path) | {
        "trained_on": policy.task,
        "entities": str(env.num_entities),
        "milliseconds": f"{milliseconds_to_act(policy, env.reset(seed=0)):.3f}",
        "hours": f"{minutes(timings[-1]) / 60:.3f}" if timings else "",
    }
