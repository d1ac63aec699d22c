"""The Python of README and docs runs as it stands there (docs/your-own-environment.md and networks-in-your-loop.md have
tests of their own)."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_readme() -> None:
    names: dict[str, object] = {}
    blocks = python_blocks("README.md")
    assert len(blocks) == 2
    for block in blocks:
        exec(block, names)  # one after the other, as a reader would type them


def test_tasks() -> None:
    names: dict[str, object] = {}
    (block,) = python_blocks("docs/tasks.md")
    exec(block, names)
    assert names["solved"].all()  # type: ignore[attr-defined]


def test_reading_demonstrations(
    efmdp: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, errors = efmdp(
        "collect", "--task", "3-Push", "--from", "scripted", "--episodes", 100, "--out", "demos/3-push"
    )
    assert code == 0, errors
    reading, minari = python_blocks("docs/demonstrations.md")
    exec(reading, {})
    assert capsys.readouterr().out.splitlines()[-1] == "3-Push 100"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    code, _, errors = efmdp("export-minari", "demos/3-push", "--name", "efmdp/3-push/scripted-v0")
    assert code == 0, errors
    names: dict[str, Any] = {}
    exec(minari, names)
    assert 90 <= names["good"].total_episodes <= names["dataset"].total_episodes == 100
