"""Updates are counted in a process of its own, with and without a busy one beside it."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import busy


def test_table_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "busy.json"
    command = ["busy", "--spins", "0", "--rounds", "1", "--seconds", "0.1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", command)
    busy.main()
    stored = json.loads(out.read_text())
    assert stored == json.loads(capsys.readouterr().out.splitlines()[-1])
    rates = stored["updates_per_second"]["0"]
    assert [len(rates[how]) for how in ("alone", "busy")] == [1, 1]
    assert all(rate > 0 for how in rates.values() for rate in how)
