"""What is kept of runs when their folders are gone."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from efmdp.entities import UserError
from efmdp.records import CURVES, RUNS, record, record_all, settings_digest, training_command
from efmdp.runs import Run

Efmdp = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/ with one run of RL and one that is called otherwise."""
    import sys

    from efmdp.cli import main

    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for more in ([], ["--out", "runs/mine"]):
            patch.setattr(sys, "argv", ["efmdp", "train", "ddpg", "--task", "1-Switch", "--recipe", "smoke", *more])
            with pytest.raises(SystemExit) as ended:
                main()
            assert ended.value.code == 0
    return folder / "runs"


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_both_tables(trained: Path, tmp_path: Path) -> None:
    record_all(trained, tmp_path)
    (run,) = read(tmp_path / "runs.csv")  # not the one that is called otherwise
    assert tuple(run) == RUNS
    metrics = read(trained / "1-Switch-deep-set-smoke-0" / "metrics.csv")
    assert (run["run"], run["finished"], run["epochs"]) == ("1-Switch-deep-set-smoke-0", "True", "2")
    assert (run["steps"], run["updates"]) == (metrics[-1]["steps"], metrics[-1]["updates"])
    assert len(run["best_sha256"]) == len(run["last_sha256"]) == 12
    curve = read(tmp_path / "curves.csv")
    assert tuple(curve[0]) == CURVES
    assert [(row["epoch"], row["steps"], row["success_once"]) for row in curve] == [
        (row["epoch"], row["steps"], row["success_once"]) for row in metrics
    ]


def test_a_run_replaces_itself_and_leaves_the_others(trained: Path, tmp_path: Path) -> None:
    other = tmp_path / "runs" / "another"
    shutil.copytree(trained / "mine", other)
    record([trained / "mine"], tmp_path)
    record([other], tmp_path)
    before = [(tmp_path / name).read_bytes() for name in ("runs.csv", "curves.csv")]
    assert [row["run"] for row in read(tmp_path / "runs.csv")] == ["another", "mine"]
    record([trained / "mine"], tmp_path)
    assert [(tmp_path / name).read_bytes() for name in ("runs.csv", "curves.csv")] == before
    metrics = other / "metrics.csv"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:2]))  # as after its first epoch
    record([other], tmp_path)
    assert [row["epochs"] for row in read(tmp_path / "runs.csv")] == ["1", "2"]
    assert [row["run"] for row in read(tmp_path / "curves.csv")] == ["another", "mine", "mine"]


def test_a_run_before_its_first_epoch_is_left_out(trained: Path, tmp_path: Path) -> None:
    begun = tmp_path / "runs" / "begun"
    begun.mkdir(parents=True)
    shutil.copy(trained / "mine" / "config.json", begun)
    record([begun], tmp_path)
    assert not (tmp_path / "runs.csv").exists()


def test_a_part_does_not_replace_the_whole(trained: Path, tmp_path: Path) -> None:
    record([trained / "mine"], tmp_path)
    before = [(tmp_path / name).read_bytes() for name in ("runs.csv", "curves.csv")]
    part = tmp_path / "runs" / "mine"
    shutil.copytree(trained / "mine", part)
    shutil.rmtree(part / "checkpoints")
    (part / "metrics.csv").write_text("".join((part / "metrics.csv").read_text().splitlines(keepends=True)[:2]))
    record([part], tmp_path)
    assert [(tmp_path / name).read_bytes() for name in ("runs.csv", "curves.csv")] == before


def test_what_cannot_be_read_is_left_out(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "runs"
    shutil.copytree(trained, root)
    for name, text in (("damaged", "{"), ("old", '{"config": {}}')):
        (root / name).mkdir()
        (root / name / "config.json").write_text(text)
    record_all(root, tmp_path)
    assert [row["run"] for row in read(tmp_path / "runs.csv")] == ["1-Switch-deep-set-smoke-0"]
    said = capsys.readouterr().err
    assert f"{root / 'damaged'} is left out: " in said
    assert f"{root / 'old'} is left out: " in said


def test_no_command_is_made_up(trained: Path) -> None:
    stored = Run(trained / "mine").config()
    assert stored is not None
    assert training_command(stored) == "efmdp train ddpg --task 1-Switch --recipe smoke --network deep-set --seed 0"
    stored["config"]["recipe"] = "mine"
    with pytest.raises(UserError, match="no option asks for the recipe 'mine': known are fast, "):
        training_command(stored)


def test_runs_from_before_there_were_subsets_are_what_they_are_without() -> None:
    older = {"task": "3-Push", "threads": 2}
    assert settings_digest(older) == settings_digest(older | {"subsets": False, "threads": 1})
    assert settings_digest(older) != settings_digest(older | {"subsets": True})
