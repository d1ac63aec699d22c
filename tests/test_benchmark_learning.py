"""The learning benchmark's own machinery, at a tiny scale: that it measures what it says."""

import itertools
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import learning, learning_peer


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def ignore(_: str) -> None:
    pass


def scripted(folder: Path, name: str, curve: list[tuple[int, float, float]], then: str):
    """A contestant that reports this curve and then does something else."""
    lines = "".join(f'print(\'{{"steps": {a}, "seconds": {b}, "success": {c}}}\', flush=True)\n' for a, b, c in curve)
    return learning.Contestant(
        name, [sys.executable, "-S", "-c", f"import time\n{lines}{then}"], folder / f"{name}.log"
    )


FOREVER = "time.sleep(60)"
LATE = """for _ in range(600):
    time.sleep(0.1)
    print('{"steps": 900, "seconds": 41, "success": 0.5}', flush=True)"""


@pytest.mark.parametrize("cores", [1, 2])
def test_race_stops_winners_and_gives_up_on_the_slow(tmp_path: Path, cores: int) -> None:
    ours = scripted(tmp_path, "ours", [(100, 2.0, 0.2), (200, 4.0, 0.95)], FOREVER)
    slow = scripted(tmp_path, "slow", [(100, 39.0, 0.2)], LATE)
    good = scripted(tmp_path, "good", [(100, 5.0, 0.2), (400, 12.0, 0.9)], FOREVER)
    began = time.perf_counter()
    learning.race([ours, slow, good], [min(os.sched_getaffinity(0))] * cores, 10, ignore)
    assert time.perf_counter() - began < 30
    assert [one.outcome for one in (ours, slow, good)] == ["reached", "given up", "reached"]
    assert all(one.process.poll() is not None for one in (ours, slow, good))
    rows = {row["name"]: row for row in learning.race_rows(ours, slow, good)}
    assert rows["seconds to 90 %: slow / ours"]["measured"] == 41 / 4
    assert rows["seconds to 90 %: slow / ours"]["bound"] is True
    assert rows["seconds to 90 %: slow / ours"]["ok"] is True
    assert rows["seconds to 90 %: good / ours"]["measured"] == 3
    assert rows["seconds to 90 %: good / ours"]["ok"] is False
    assert rows["steps to 90 %: good / ours"]["measured"] == 2


def test_race_is_called_off_when_ours_does_not_reach_the_goal(tmp_path: Path) -> None:
    ours = scripted(tmp_path, "ours", [(100, 2.0, 0.2)], "")
    other = scripted(tmp_path, "other", [], FOREVER)
    never = scripted(tmp_path, "never", [], FOREVER)
    learning.race([ours, other, never], [min(os.sched_getaffinity(0))] * 2, 10, ignore)
    assert [one.outcome for one in (ours, other, never)] == ["ended", "called off", "waiting"]
    assert learning.race_rows(ours, other, never) == []


def test_flops_are_those_of_the_matrix_products() -> None:
    trainer = learning.our_trainer("mlp", "1-Push", 1, 800, batch_size=32, updates_per_round=1)

    def forward(module) -> int:
        return sum(2 * 32 * layer.in_features * layer.out_features for layer in learning.linear_layers(module))

    actor, critic = trainer.agent.actor, trainer.agent.critic
    first = 2 * 32 * 256 * sum(learning.linear_layers(one)[0].in_features for one in (actor, critic))
    # Forward: both targets, critic, actor, critic of the actor. Backward: weights and inputs of critic and actor but
    # for what nobody needs, the gradient of observations; and the critic's inputs for the actor.
    wanted = 4 * forward(actor) + 6 * forward(critic) - first
    assert learning.count_flops(trainer) == wanted


def test_efficiency_is_against_the_product_that_is_fastest_as_a_rule() -> None:
    rates = {
        "product of 1024": [100.0, 100.0, 300.0],  # lucky once
        "product of 1536": [120.0, 120.0, 60.0],
        "product of 2048": [90.0, 90.0, 90.0],
        "deep-set, batch 2048": [60.0, 84.0, 54.0],
    }
    (row,) = learning.efficiency_rows(rates)
    assert row["name"] == "efficiency: deep-set, batch 2048"
    assert row["measured"] == 0.7  # the median of 60 / 120, 84 / 120 and 54 / 60
    assert row["ok"] is True


def test_other_parts_stay_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {name: [1.0, 2.0] for name in ("ours mlp", "SB3", "SB3, fused Adam")}
    monkeypatch.setattr(learning, "measure_updates", lambda *_: (rates, dict.fromkeys(rates, 5)))
    out = tmp_path / "out.json"
    out.write_text(json.dumps({"parts": {"updates": "old", "race": "kept"}}))
    monkeypatch.setattr(sys, "argv", ["learning", "--parts", "updates", "--threads", "1", "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        learning.main()
    assert ended.value.code == 0
    parts = json.loads(out.read_text())["parts"]
    assert parts["race"] == "kept"
    assert parts["updates"]["results"][0]["measured"] == 1


def test_peer_explores_and_stores_what_it_did() -> None:
    model = learning_peer.make_model(learning.OUR_ENVIRONMENT, 0, buffer_size=1600)
    model.learn(800)
    draws = [model._sample_action(0, None, 16) for _ in range(200)]
    executed, stored = (np.stack(part) for part in zip(*draws, strict=True))  # (200, 16, A)
    np.testing.assert_allclose(executed, stored, atol=1e-6)  # this task's actions are in [-1, 1] already
    usual = np.median(stored, 0)  # what the policy wants, for most actions are not random
    assert (stored != usual).any(-1).mean() == pytest.approx(learning_peer.RANDOM, abs=0.03)


def test_peer_reports_evaluations_with_the_clock_stopped() -> None:
    began = time.perf_counter()
    first, second = itertools.islice(learning_peer.learn(learning.OUR_ENVIRONMENT, 0, every=800, episodes=4), 2)
    assert (first["steps"], second["steps"]) == (800, 1600)
    assert 0 < first["seconds"] < second["seconds"] < time.perf_counter() - began
    assert 0 <= first["success"] <= 1
