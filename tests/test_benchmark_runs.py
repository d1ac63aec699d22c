"""What is kept of finished runs: the numbers of their own files, one row each, however often they are added."""

import csv
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import runs
from efmdp.ddpg import DDPGConfig
from efmdp.entities import Objective
from efmdp.networks import NetworkConfig
from efmdp.recipes import Stage, TrainConfig
from efmdp.train import train_ddpg

TINY = TrainConfig(
    task="2-Disc",
    network=NetworkConfig("mlp", width=16, max_entities=4),
    ddpg=DDPGConfig(),
    objective=Objective("sparse", "sum"),
    stages=(Stage("1-Disc", 1), Stage("2-Disc", 2)),
    recipe="test",
    num_envs=2,
    rounds_per_epoch=1,
    updates_per_round=1,
    batch_size=8,
    replay_capacity=1000,
    selection_episodes=2,
    threads=1,
)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_runs_are_kept_once_and_say_what_their_files_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("efmdp.ledger.Ledger._show_on_tensorboard", lambda *_: None)  # takes seconds to import
    folders = []
    for seed in (0, 1):
        folders.append(str(tmp_path / f"run{seed}"))
        train_ddpg(replace(TINY, seed=seed), tmp_path / f"run{seed}")
    out = tmp_path / "results" / "runs"
    for given in (folders, folders[:1]):  # the first one twice
        monkeypatch.setattr(sys, "argv", ["runs", *given, "--episodes", "20", "--out", str(out)])
        runs.main()
    table, curves = rows(Path(f"{out}.csv")), rows(Path(f"{out}-curves.csv"))
    assert [(row["task"], row["network"], row["seed"]) for row in table] == [("2-Disc", "mlp-4", s) for s in "01"]
    for row in table:
        assert float(row["low"]) <= float(row["success_once"]) <= float(row["high"])
        assert row["episodes"] == "20"
        assert 0 < float(row["peak_mb"]) < 2000
        mine = [point for point in curves if point["seed"] == row["seed"]]
        assert [point["stage"] for point in mine] == ["1-Disc", "2-Disc", "2-Disc"]
        assert (mine[-1]["steps"], mine[-1]["updates"]) == (row["steps"], row["updates"])
        minutes = [float(point["minutes"]) for point in mine]
        assert minutes == sorted(minutes)
    metrics = rows(tmp_path / "run0" / "metrics.csv")
    assert [point["success_once"] for point in curves[:3]] == [row["success_once"] for row in metrics]
    kept = (tmp_path / "results" / "policies" / "2-Disc-mlp-4-test-0.safetensors").read_bytes()
    assert kept == (tmp_path / "run0" / "policy-last.safetensors").read_bytes()
    assert Path(f"{out}.png").stat().st_size > 1000


def test_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no run at"):
        runs.about(tmp_path)
