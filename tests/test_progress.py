"""The bar of a training run, on a terminal and in a log file."""

import io

import pytest
from rich.console import Console

from efmdp import progress
from efmdp.recipes import TrainConfig, fast, make_network

CONFIG: TrainConfig = fast("3-Switch", make_network("deep-set", 3), 0)


def told(epoch: int, last: int, round: int = 0) -> dict[str, object]:
    where = {"epoch": epoch, "last": last, "round": round, "task": "3-Switch", "speed": "90 updates/s"}
    return where | {"success": 0.9, "success_on": "1-Switch"}


def shown_on(console: Console, monkeypatch: pytest.MonkeyPatch, epochs: int | None = None) -> str:
    monkeypatch.setattr(progress, "console", console)
    with progress.training_bar(CONFIG, epochs) as show:
        show(told(0, CONFIG.epochs, round=25))
        show(told(3, CONFIG.epochs - 1))  # the first stage ended early
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown_on(Console(file=io.StringIO(), force_terminal=True, width=150), monkeypatch)
    assert f"epoch 3/{CONFIG.epochs - 1} · 90 updates/s · success 90% on 1-Switch" in text
    limited = shown_on(Console(file=io.StringIO(), force_terminal=True, width=150), monkeypatch, epochs=4)
    assert "epoch 3/4 ·" in limited


def test_lines_in_a_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown_on(Console(file=io.StringIO()), monkeypatch)
    assert capsys.readouterr().out == "epoch 3, 90 updates/s, success 90% on 1-Switch\n"  # a line an epoch, no bar
