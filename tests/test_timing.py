import csv
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from efmdp.entities import UserError
from efmdp.env import FetchEnv
from efmdp.evaluate import load_policy
from efmdp.tasks import parse_task
from efmdp.timing import FIELDS, milliseconds_to_act, time_policies


def test_rows_of_runs_and_policy_files_on_what_they_can_play(tmp_path: Path, write_run: Callable[..., Path]) -> None:
    run = write_run(tmp_path / "run", "2-Push", "mlp", seed=5)
    (run / "timings.csv").write_text("epoch,collect,learn,evaluate,save,peak_mb\n1,9,9,9,9,9\n2,1800,1000,500,300,9\n")
    bare = tmp_path / "bare.safetensors"
    bare.write_bytes((write_run(tmp_path / "other", "3-Push") / "policy-best.safetensors").read_bytes())
    out = tmp_path / "timing.csv"
    first, second, *third = time_policies([run, bare], out)
    assert tuple(first) == FIELDS
    assert (first["network"], first["recipe"], first["seed"]) == ("mlp-2", "fast", "5")
    assert (first["trained_on"], first["hours"], first["threads"]) == ("2-Push", "1.000", "2")
    assert [(row["task"], row["entities"]) for row in (first, second)] == [("1-Push", "1"), ("2-Push", "2")]
    assert [row["task"] for row in third] == ["1-Push", "2-Push", "3-Push"]
    assert {(row["network"], row["hours"], row["threads"]) for row in third} == {("deep-set", "", "")}
    assert 0.001 < float(first["milliseconds"]) < 100
    again = time_policies([run], out)
    with out.open(newline="") as file:
        assert list(csv.DictReader(file)) == [*again, *third]
    with pytest.raises(UserError, match="no run is named"):
        time_policies([], out)


def test_one_thread_while_measuring(tmp_path: Path, write_run: Callable[..., Path]) -> None:
    policy, threads, seen = load_policy(write_run(tmp_path / "run", "1-Push")), torch.get_num_threads(), set()
    act = policy.act
    policy.act = lambda obs: seen.add(torch.get_num_threads()) or act(obs)  # type: ignore[method-assign, func-returns-value]
    assert milliseconds_to_act(policy, FetchEnv(parse_task("1-Push")).observe()) > 0
    assert seen == {1}
    assert torch.get_num_threads() == threads
