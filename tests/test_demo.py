import base64
import csv
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import pytest

from efmdp import films
from efmdp.ddpg import DDPGConfig
from efmdp.demo import conclusion, demo_runs, run_demo, train
from efmdp.entities import Objective, UserError
from efmdp.networks import NetworkConfig
from efmdp.recipes import Stage, TrainConfig

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
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(films, "WIDTH", 64)
        patch.setattr(films, "HEIGHT", 48)
        out = Path("runs") / "demo"
        run_demo(demo_runs(out, "smoke"), out, minutes=1, episodes=4)
    return folder / "runs" / "demo"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


NAMES = {"deep-set": "3-Switch-deep-set-smoke-0", "mlp-6": "3-Switch-mlp-6-smoke-0"}


def test_table_of_both_networks_on_all_numbers_of_switches(finished: Path) -> None:
    table = rows(finished / "results" / "extrapolation.csv")
    assert {(row["network"], row["task"]) for row in table} == {
        (network, f"{n}-Switch") for network in (*NAMES, "oracle") for n in range(1, 7)
    }
    assert {row["episodes"] for row in table} == {"4"}


def test_picture_film_and_page(finished: Path) -> None:
    for name in ("learning", "extrapolation"):
        assert (finished / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    (film,) = (finished / "films").glob(f"{NAMES['deep-set']}-on-6-Switch-*.mp4")
    reader = imageio_ffmpeg.read_frames(str(film))
    assert next(reader)["size"] == (64, 48)
    assert len(list(reader)) > 30
    page = (finished / "summary.html").read_text()
    for row in rows(finished / "results" / "extrapolation.csv"):
        if row["network"] != "oracle":
            success, low, high = (100 * float(row[name]) for name in ("success_once", "low", "high"))
            assert f"<td class=number>{success:.1f} % ({low:.1f} to {high:.1f}), 1 seed</td>" in page
    assert base64.b64encode(film.read_bytes()).decode() in page
    assert "efmdp demo --out runs/demo --minutes 1 --episodes 4" in page
    assert "efmdp train ddpg --task 3-Switch --recipe smoke --network mlp --seed 0 --max-entities 6" in page
    assert 'class="claims"' not in page  # two runs of minutes decide nothing
    assert str(finished.parents[1]) not in page
    assert "$" not in page
    assert not list(finished.rglob("*.tmp"))


def test_again_nothing_is_trained_and_no_film_is_no_failure(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise UserError("no OpenGL here")

    monkeypatch.chdir(finished.parents[1])
    monkeypatch.setattr(films, "film_episodes", broken)
    out = Path("runs") / "demo"
    for film in (out / "films").iterdir():
        film.unlink()
    trained = [out / name / file for name in NAMES.values() for file in ("metrics.csv", "policy-last.safetensors")]
    before = [path.read_bytes() for path in trained]
    run_demo(demo_runs(out, "smoke"), out, minutes=1, episodes=2)
    assert [path.read_bytes() for path in trained] == before
    assert "<video" not in (out / "summary.html").read_text()
    assert capsys.readouterr().out.strip().endswith("summary.html")


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
        run_demo(demo_runs(tmp_path, "smoke"), tmp_path, minutes=1, episodes=2)
    assert list(tmp_path.iterdir()) == []


def test_both_are_trained_alike_and_fit_all_tests() -> None:
    sets, mlp = (run.config for run in demo_runs(Path("demo")))
    assert mlp.network.max_entities == 6
    assert mlp == replace(sets, network=mlp.network, subsets=False)
    assert (sets.task, sets.recipe) == ("3-Switch", "fast")


def test_conclusion() -> None:
    success = {("deep-set", 3): 0.97, ("deep-set", 6): 0.81, ("mlp-6", 3): 0.9, ("mlp-6", 6): 0.0}
    results = [
        {"network": network, "task": f"{count}-Switch", "success_once": str(rate)}
        for (network, count), rate in success.items()
    ]
    assert conclusion(results) == (
        "Deep Sets: 97 % on 3 switches, 81 % on 6, which it never saw; "
        "MLP: 90 % on 3 switches, 0 % on 6, which it never saw"
    )
