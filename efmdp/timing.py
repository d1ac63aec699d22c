"""How long a policy takes to act, and how long it took to train."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from efmdp.domains import make_env
from efmdp.entities import CannotPlay, EntityObs, UserError
from efmdp.evaluate import load_policy, policy_file
from efmdp.rollout import Policy
from efmdp.runs import Run, minutes, read_rows
from efmdp.tables import Row, only_writer, read_table, write_table
from efmdp.tasks import FAMILIES
from efmdp.zero_shot import WHO, identify

FIELDS = (*WHO, "trained_on", "epochs", "hours", "threads", "task", "entities", "milliseconds")
PASSES = 500
SIZES = 3  # so many members of the family of a policy's task, the smallest


def time_policies(runs: Sequence[Path], out: Path | None) -> list[Row]:
    """A row for each policy and task; in the table `out` they replace those of the same policy and task."""
    if not runs:
        raise UserError("no run is named: name at least one run's folder or policy file")
    if out is not None:
        with only_writer(out):  # what cannot be read or written is refused now, not after the work
            read_table(out, FIELDS)
    rows = [row for path in runs for row in _rows(path)]
    if out is not None:
        with only_writer(out):
            write_table(out, list((_by_policy_and_task(read_table(out, FIELDS)) | _by_policy_and_task(rows)).values()))
    return rows


def _by_policy_and_task(rows: Sequence[Row]) -> dict[tuple[str, str], Row]:
    return {(row["sha256"], row["task"]): row for row in rows}


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


def _rows(path: Path) -> Iterator[Row]:
    """The policy on its own task and on the smallest of its family; those that it cannot play are left out."""
    policy, folder = load_policy(path, "best"), policy_file(path, "best").parent
    config: dict[str, Any] = (Run(folder).config() or {}).get("config", {})
    timings = read_rows(folder / "timings.csv") if config else []
    about = identify(policy_file(path, "best")) | {
        "trained_on": policy.task,
        "epochs": timings[-1]["epoch"] if timings else "",
        "hours": f"{minutes(timings[-1]) / 60:.3f}" if timings else "",
        "threads": str(config.get("threads", "")),
    }
    family = next((family.members for family in FAMILIES if policy.task in family.members), ())
    for task in dict.fromkeys((*family[:SIZES], policy.task)):
        env = make_env(task, **policy.physics)
        try:
            milliseconds = milliseconds_to_act(policy, env.reset(seed=0))
        except CannotPlay:
            continue
        yield about | {"task": task, "entities": str(env.num_entities), "milliseconds": f"{milliseconds:.3f}"}
