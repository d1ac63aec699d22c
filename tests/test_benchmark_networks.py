"""What the networks cost against N: the orders of growth are told apart, and the table says what was measured."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import networks
from efmdp.env import FETCH_DIMS
from efmdp.networks import DeepSetActor


def test_constants_lines_and_squares_are_told_apart() -> None:
    n = np.array([networks.COUNTS])
    assert networks.order(7 + 3 * n) == pytest.approx([1])
    assert networks.is_order(networks.order(7 + 3 * n), 1) == "yes"
    assert networks.is_order(networks.order(7 + n**2), 2) == "yes"
    assert networks.is_order(networks.order(7 + n**2), 1) == "no"
    either = np.concatenate([n, n**2])  # two sweeps that disagree
    assert networks.is_order(networks.order(either), 1) == "unclear"


def test_table_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    monkeypatch.setattr(networks, "BATCH", 2)
    monkeypatch.setattr(sys, "argv", ["networks", "--out", str(tmp_path / "x"), "--sweeps", "1", "--budget", "0.001"])
    networks.main()
    torch.set_num_threads(threads)
    with (tmp_path / "x.csv").open(newline="") as file:
        rows = {(row["network"], row["role"], int(row["entities"])): row for row in csv.DictReader(file)}
    assert len(rows) == len(networks.KINDS) * 2 * len(networks.COUNTS)
    parameters = sum(p.numel() for p in DeepSetActor(FETCH_DIMS).parameters())
    assert {int(rows["deep-set", "actor", n]["parameters"]) for n in networks.COUNTS} == {parameters}
    assert all(float(row["forward_ms_batch2"]) > 0 for row in rows.values())
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    agrees = {(c["network"], c["quantity"]): c["agrees"] for c in printed["claims"] if c["role"] == "actor"}
    assert agrees["deep-set", "parameters"] == agrees["deep-set", "activations"] == agrees["mlp", "parameters"] == "yes"
    assert (tmp_path / "x.png").stat().st_size > 1000
