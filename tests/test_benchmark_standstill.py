"""A hand that does nothing stands still, one that always goes on leaves the cubes, the scripted controller neither."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks import standstill
from efmdp.domains import make_env
from efmdp.entities import Array, EntityObs
from efmdp.scripted import Scripted


class Lazy(Scripted):
    def act(self, obs: EntityObs) -> Array:
        return np.zeros((len(obs.agent), 4))


class Clumsy(Scripted):
    def act(self, obs: EntityObs) -> Array:
        return np.tile([1.0, 0.0, 0.0, 0.0], (len(obs.agent), 1))


class Lost(Scripted):
    def act(self, obs: EntityObs) -> Array:
        return np.tile([0.0, 0.0, 1.0, 0.0], (len(obs.agent), 1))


def test_who_stands_still() -> None:
    env = make_env("1-Push", 4)
    well, lazy, clumsy = (standstill.measure(env, policy(4), seed=0) for policy in (Scripted, Lazy, Clumsy))
    assert (well["success"], lazy["success"], clumsy["success"]) == (100.0, 0.0, 0.0)
    assert (lazy["standing still"], clumsy["standing still"]) == (100.0, 0.0)
    assert 0 < well["halfway down"] < 50
    assert lazy["halfway down"] == 0.0  # it stays where it travels


def test_who_leaves_the_cubes() -> None:
    env = make_env("2-Push", 4)
    well, lazy, lost = (standstill.measure(env, policy(4), seed=0) for policy in (Scripted, Lazy, Lost))
    assert (well["untouched"], lazy["untouched"], lost["untouched"]) == (0.0, 100.0, 100.0)
    assert (well["away"], lazy["away"]) == (0.0, 0.0)
    assert 20 < lost["away"] < 100


def test_table_and_file(
    tmp_path: Path,
    write_run: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, out = write_run(tmp_path / "run", "1-Push"), tmp_path / "standstill.json"
    monkeypatch.setattr(sys, "argv", ["standstill", str(run), "--episodes", "2", "--out", str(out)])
    standstill.main()
    stored = json.loads(out.read_text())
    assert stored == json.loads(capsys.readouterr().out.splitlines()[-1])
    assert stored["task"] == "1-Push"
    assert list(stored["measured"]) == ["scripted", str(run)]


def test_a_run_that_is_not_there_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["standstill", "nowhere"])
    with pytest.raises(SystemExit, match="2"):
        standstill.main()
    assert "there is no policy at nowhere" in capsys.readouterr().err.splitlines()[-1]
