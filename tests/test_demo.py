import csv
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import pytest

from efmdp import demo
from efmdp.ddpg import DDPGConfig
from efmdp.demo import LABELS, Result, conclusion, demo_configs, run_demo, train
from efmdp.entities import Objective, UserError
from efmdp.env import FetchEnv
from efmdp.networks import NetworkConfig
from efmdp.recipes import Stage, TrainConfig
from efmdp.rollout import Outcome, Policy
from efmdp.runs import RunError
from efmdp.video import film_episodes

TINY = TrainConfig(
    task="3-Switch",
    network=NetworkConfig(width=16),
    ddpg=DDPGConfig(),
    objective=Objective("sparse", "sum"),
    stages=(Stage("3-Switch", 2),),
    recipe="test",
    num_envs=2,
    rounds_per_epoch=1,
    updates_per_round=1,
    batch_size=8,
    replay_capacity=1000,
    selection_episodes=2,
    threads=1,
)
CONFIGS = {"deep-set": TINY, "mlp": replace(TINY, network=NetworkConfig("mlp", width=16, max_entities=6))}
DISCS = replace(TINY, task="1-Disc", stages=(Stage("1-Disc", 3),))  # quick, for what is not about switches


@pytest.fixture(scope="module", autouse=True)
def no_tensorboard() -> Iterator[None]:
    """It takes seconds to import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("efmdp.ledger.Ledger._show_on_tensorboard", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole demo at runs/demo of a folder, with a small and short film."""

    def film(env: FetchEnv, policy: Policy, episodes: int, seed: int, path: Path) -> tuple[int, list[Outcome]]:
        return film_episodes(env, policy, 1, seed, path, 64, 48)

    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(demo, "film_episodes", film)
        run_demo(CONFIGS, folder / "runs" / "demo", minutes=1, episodes=4)
    return folder / "runs" / "demo"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_table_of_both_networks_on_all_numbers_of_switches(finished: Path) -> None:
    table = rows(finished / "extrapolation.csv")
    assert tuple(table[0]) == Result._fields
    assert {(row["network"], int(row["entities"])) for row in table} == {(n, e) for n in LABELS for e in range(1, 7)}
    assert len(table) == 12
    for row in table:
        assert row["task"] == f"{row['entities']}-Switch"
        success, low, high = (float(row[name]) for name in ("success_once", "low", "high"))
        assert 0 <= low <= success <= high <= 1
        assert low < high
        assert 0 <= float(row["success_end"]) <= success
        assert 0 <= float(row["entities_solved"]) <= 1


def test_picture_film_and_page(finished: Path) -> None:
    assert (finished / "extrapolation.png").read_bytes().startswith(b"\x89PNG")
    reader = imageio_ffmpeg.read_frames(str(finished / "6-Switch.mp4"))
    assert next(reader)["size"] == (64, 48)
    assert len(list(reader)) > 30
    page = (finished / "summary.html").read_text()
    for row in rows(finished / "extrapolation.csv"):
        success, low, high = (100 * float(row[name]) for name in ("success_once", "low", "high"))
        assert f"<td>{success:.0f} ({low:.0f} to {high:.0f})</td>" in page
    assert '<video src="6-Switch.mp4"' in page
    assert "efmdp watch runs/demo/deep-set/policy-best.safetensors --task 6-Switch" in page
    assert "efmdp demo --out runs/demo --minutes 1 --episodes 4" in page
    assert "torch 2" in page
    assert "<td>240</td>" in page  # steps
    assert str(finished.parents[1]) not in page
    assert "$" not in page
    left_over = [path for path in finished.rglob("*") if path.suffix == ".tmp" or "unfinished" in path.name]
    assert left_over == []


def test_again_nothing_is_trained_and_no_film_is_no_failure(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise UserError("no OpenGL here")

    monkeypatch.setattr(demo, "Picture", broken)
    trained = [finished / network / name for network in LABELS for name in ("metrics.csv", "policy-last.safetensors")]
    before = [path.read_bytes() for path in trained]
    run_demo(CONFIGS, finished, minutes=1, episodes=2)
    assert [path.read_bytes() for path in trained] == before
    assert "<video" not in (finished / "summary.html").read_text()
    said = capsys.readouterr().out
    assert "no film: no OpenGL here" in said
    assert said.strip().endswith("summary.html")
    with pytest.raises(RunError, match=r"deep-set holds a different run \(seed was 0, now 1\): choose another --out"):
        run_demo({"deep-set": replace(TINY, seed=1)}, finished, minutes=1, episodes=2)


def test_minutes_are_for_all_calls_together(tmp_path: Path) -> None:
    def epochs() -> int:
        return len(rows(tmp_path / "metrics.csv"))

    for _ in range(2):
        train(DISCS, tmp_path, 1e-9)
        assert epochs() == 1
    train(DISCS, tmp_path, 1)
    assert epochs() == 3


def test_asked_to_stop_it_stops_and_goes_on_when_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("efmdp.train.Trainer.learn", lambda _: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            train(DISCS, tmp_path, 1)
    assert len(rows(tmp_path / "metrics.csv")) == 1
    train(DISCS, tmp_path, 1)
    assert len(rows(tmp_path / "metrics.csv")) == 3


def test_too_slow_for_the_curriculum_it_goes_on_to_the_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = replace(DISCS, task="2-Disc", stages=(Stage("1-Disc", 2), Stage("2-Disc", 2)))
    train(config, tmp_path, 1e-9)
    assert "not at 2-Disc after 1e-09 minutes, so one epoch more" in capsys.readouterr().out.replace("\n", " ")
    assert [row["task"] for row in rows(tmp_path / "metrics.csv")] == ["1-Disc", "1-Disc", "2-Disc"]
    train(config, tmp_path, 1e-9)
    assert len(rows(tmp_path / "metrics.csv")) == 3


def test_matplotlib_is_missed_before_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'efmdp\[plots\]'"):
        run_demo(CONFIGS, tmp_path, minutes=1, episodes=2)
    assert list(tmp_path.iterdir()) == []


def test_both_are_trained_alike_and_fit_all_tests() -> None:
    configs = demo_configs()
    assert configs["mlp"].network.max_entities == 6
    assert configs["mlp"] == replace(configs["deep-set"], network=configs["mlp"].network)
    assert configs["deep-set"].task == "3-Switch"


def test_conclusion() -> None:
    success = {("deep-set", 3): 0.97, ("deep-set", 6): 0.81, ("mlp", 3): 0.9, ("mlp", 6): 0.0}
    results = [Result(network, "", count, 100, rate, 0, 1, 0, 0) for (network, count), rate in success.items()]
    assert conclusion(results) == (
        "Deep Sets: 97 % on 3 switches, 81 % on 6, which it never saw; "
        "MLP: 90 % on 3 switches, 0 % on 6, which it never saw"
    )
