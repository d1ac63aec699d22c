import base64
import csv
import fcntl
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import pytest

from efmdp import films
from efmdp.demo import conclusion, demo_runs, run_demo
from efmdp.entities import UserError
from efmdp.runs import Run, as_stored


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole demo at runs/demo of a folder, with a small and short film."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(films, "WIDTH", 64)
        patch.setattr(films, "HEIGHT", 48)
        out = Path("runs") / "demo"
        run_demo(demo_runs(out, "smoke"), out, episodes=4)
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
    assert "efmdp demo --out runs/demo --episodes 4" in page
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
    run_demo(demo_runs(out, "smoke"), out, episodes=2)
    assert [path.read_bytes() for path in trained] == before
    assert "<video" not in (out / "summary.html").read_text()
    assert capsys.readouterr().out.strip().endswith("summary.html")


def test_asked_to_stop_it_stops_and_goes_on_when_repeated(tmp_path: Path) -> None:
    """The real demo and a real Ctrl-C, as soon as both are at work; each time they get a round further."""
    command = [sys.executable, "-m", "efmdp.cli", "demo", "--out", "runs/demo"]
    folders = [tmp_path / run.folder for run in demo_runs(Path("runs") / "demo")]
    rounds = [0, 0]
    for _ in range(2):
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as demo:
            while not all((folder / "config.json").exists() and is_held(folder) for folder in folders):
                assert demo.poll() is None
                time.sleep(0.1)
            demo.send_signal(signal.SIGINT)
            assert demo.wait(60) == 130
            assert demo.stderr
            assert demo.stderr.read() == "efmdp: stopped\n"
        assert not any(is_held(folder) for folder in folders)
        before, rounds = rounds, [Run(folder).newest_checkpoint()[1]["counters"]["round"] for folder in folders]
        assert all(now > then for now, then in zip(rounds, before, strict=True))


def is_held(folder: Path) -> bool:
    """By a process that trains there."""
    with (folder / "lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_run_with_other_settings_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = Path("runs") / "demo"
    sets, mlp = demo_runs(out, "smoke")
    stored = {"config": as_stored(replace(sets.config, batch_size=3))}
    sets.folder.mkdir(parents=True)
    (sets.folder / "config.json").write_text(json.dumps(stored))
    with pytest.raises(UserError, match="deep-set-smoke-0: trained with other settings than those of today; move it"):
        run_demo([sets, mlp], out, episodes=2)
    assert not mlp.folder.exists()


def test_a_failed_training_says_where_it_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = Path("runs") / "demo"
    sets, _ = demo_runs(out, "smoke")
    (sets.folder / "lock").mkdir(parents=True)  # a folder where a file has to be
    with pytest.raises(UserError, match=r"the training failed: see runs/logs/3-Switch-deep-set-smoke-0\.log"):
        run_demo([sets], out, episodes=2)
    assert "efmdp: " in Path("runs/logs/3-Switch-deep-set-smoke-0.log").read_text()


def test_matplotlib_is_missed_before_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'efmdp\[plots\]'"):
        run_demo(demo_runs(tmp_path, "smoke"), tmp_path, episodes=2)
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
