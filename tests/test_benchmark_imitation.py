"""The imitation study: what it runs and when, that it goes on, and that its numbers are those of its runs."""

import csv
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import imitation
from benchmarks.imitation import COLUMNS, EFMDP, Clone, Job, gather, planned, work_off
from efmdp import train
from efmdp.demos import Source, collect
from efmdp.domains import make_env
from efmdp.evaluate import TEST, load_policy, play_episodes, stream_seed
from efmdp.runs import read_policy
from efmdp.scripted import Scripted
from efmdp.tables import Row
from efmdp.train import cloning
from efmdp.zero_shot import identify

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def study(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["imitation", *arguments, "--out", "results/study"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with pytest.raises(SystemExit) as ended:
        imitation.main()
    return int(ended.value.code or 0), capsys.readouterr().out


def read(path: str) -> list[Row]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


QUICK = {"epochs": 2, "rounds_per_epoch": 1, "updates_per_round": 1, "batch_size": 8, "selection_episodes": 2}


def test_a_study(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], efmdp: Command, tmp_path: Path
) -> None:
    """The training command runs in this process, with few updates, which saves seconds; the testing one as it is."""
    monkeypatch.setattr("efmdp.ledger.Ledger._show_on_tensorboard", lambda *_: None)  # takes seconds to import
    monkeypatch.setattr(train, "cloning", lambda *asked: replace(cloning(*asked), **QUICK))
    monkeypatch.setattr(imitation, "demonstrate", lambda *_: None)
    collect(make_env("2-Switch", 8), Scripted(8), Source("scripted"), "2-Switch", 8, Path("demos/2-switch"))
    clone = Clone(3, "mlp", "2-Switch", 7)
    command, *more = clone.commands(4)
    assert more == []  # not trained yet: nothing to test
    assert command[: len(EFMDP)] == EFMDP
    assert efmdp(*command[len(EFMDP) :], "--epochs", 1)[0] == 0
    assert not clone.is_trained
    assert efmdp(*command[len(EFMDP) :])[0] == 0
    assert clone.is_trained
    small = ("--tasks", "2-Switch", "--demos", "7", "--networks", "mlp", "--seeds", "3", "--episodes", "4")
    code, said = study(monkeypatch, capsys, *small)
    assert code == 0, "".join(log.read_text() for log in Path("runs/imitation").glob("*.log"))
    rows = read("results/study.csv")
    assert tuple(rows[0]) == COLUMNS
    played = [("best", f"{n}-Switch") for n in range(1, 7)] + [("last", "2-Switch")]
    assert [(row["network"], row["demos_used"], row["seed"], row["which"], row["task"]) for row in rows] == [
        *(("mlp-6", "7", "3", *what) for what in played),
        *(("oracle", "", "", "", f"{n}-Switch") for n in range(1, 7)),
    ]
    assert {row["recipe"] for row in rows} == {"bc-7", "scripted"}
    last = next(row for row in rows if row["which"] == "last")
    run = Path("runs/imitation/2-Switch-mlp-7-3")
    assert read_policy(run / "policy-last.safetensors")[1]["epoch"] == 2
    outcome = play_episodes(make_env("2-Switch", 4), load_policy(run), 4, stream_seed(0, TEST))
    assert float(last["success_once"]) == outcome.success_once.mean()
    for which in ("last", "best"):
        file = run / f"policy-{which}.safetensors"
        mine = [row for row in rows if row["which"] == which and row["network"] != "oracle"]
        assert {row["sha256"] for row in mine} == {identify(file)["sha256"]}
        assert {row["policy"] for row in mine} == {f"{run.name}/{file.name}"}
    result = json.loads(said.splitlines()[-1])
    assert (result["benchmark"], result["episodes"], result["runs"], result["of"]) == ("imitation", 4, 1, 1)
    assert [line["network"] for line in result["results"]] == ["mlp-6", "oracle"]
    assert result["results"][0]["own_task"][0] == float(last["success_once"])
    assert result["results"][1]["by_entities"]["6"] == 1
    assert Path("results/study.png").stat().st_size > 10_000
    statistics = read("results/study-summary.csv")
    assert [row["value"] for row in statistics if row["statistic"] == "mean"] == [
        row["success_once"] for row in rows if row["which"] != "last"
    ]
    assert [row["network"] for row in statistics if row["statistic"] == "interquartile mean"] == ["mlp-6"]

    # A damaged policy is for `efmdp train bc` to mend.
    before = (run / "policy-best.safetensors").read_bytes()
    (run / "policy-best.safetensors").write_bytes(before[:-1])
    assert not clone.is_trained
    assert clone.rows(4) == []
    assert efmdp(*command[len(EFMDP) :])[0] == 0
    assert (run / "policy-best.safetensors").read_bytes() == before

    # Again: nothing is left to do. Without its folder, what is known of it stays.
    monkeypatch.setattr(imitation.subprocess, "Popen", None)
    before = Path("results/study.csv").read_bytes()
    assert study(monkeypatch, capsys, *small)[0] == 0
    run.rename(tmp_path / "gone")
    gather([clone], 4, Path("results/study.csv"))
    assert Path("results/study.csv").read_bytes() == before


def test_demonstrations_are_collected_by_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "import sys; open('said', 'w').write(' '.join(sys.argv[1:])); sys.exit(len(sys.argv) - 10)"
    monkeypatch.setattr(imitation, "EFMDP", [sys.executable, "-S", "-c", said])
    imitation.demonstrate(planned(["3-Push"], [5000, 1000], ["mlp"], [0, 1]))
    assert Path("said").read_text() == "collect --task 3-Push --from scripted --episodes 5000 --out demos/3-push"
    imitation.demonstrate([Clone(0, "mlp", "3-Push", 7, "runs/expert")])
    out = "demos/3-push-of-expert"
    assert Path("said").read_text() == f"collect --task 3-Push --from runs/expert --episodes 7 --out {out}"
    monkeypatch.setattr(imitation, "EFMDP", [sys.executable, "-S", "-c", "raise SystemExit(2)"])
    with pytest.raises(SystemExit, match="2"):
        imitation.demonstrate([Clone(0, "mlp", "3-Push", 7)])


def test_bad_input_is_one_line_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    write_run: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    elsewhere = tmp_path_factory.mktemp("runs")
    ours, copy = write_run(elsewhere / "ours", "3-Push"), write_run(elsewhere / "copy", "3-Push")
    colliding = write_run(elsewhere / "colliding", "3-Push", collisions=True)
    for arguments, said in (
        (("--tasks", "Stack"), "Stack has no family to extrapolate to"),
        (("--demos", "0"), "must be above 0"),
        (("--minutes", "0"), "must be above 0"),
        (("--networks", "cnn"), "invalid choice: 'cnn'"),
        (("--experts", "absent"), "there is no policy at absent"),
        (("--experts", str(ours), str(colliding)), "colliding was trained with collisions or gripper"),
        (("--experts", str(ours), str(copy)), "were both trained on 3-Push: one at a time"),
        (("--tasks", "2-Push", "--experts", str(ours)), "was trained on 3-Push: add it to --tasks"),
    ):
        monkeypatch.setattr(sys, "argv", ["imitation", *arguments])
        with pytest.raises(SystemExit, match="2"):
            imitation.main()
        assert said in capsys.readouterr().err
    assert not list(Path().iterdir())


# Which runs, and when


def test_a_seed_is_complete_before_the_next_and_cheap_networks_come_first() -> None:
    clones = planned(["3-Push", "3-Switch"], [1000, 5000], ["self-attention", "deep-set", "mlp"], [0, 1])
    assert len(clones) == 2 * 2 * 3 * 2
    assert [clone.seed for clone in clones] == [0] * 12 + [1] * 12
    assert [clone.network for clone in clones[:12]] == ["mlp"] * 4 + ["deep-set"] * 4 + ["self-attention"] * 4
    assert len({clone.folder for clone in clones}) == 24
    assert planned(["3-Push"], [5, 5], ["mlp"], [0, 0]) == [Clone(0, "mlp", "3-Push", 5)]


def test_clones_of_different_experts_are_kept_apart() -> None:
    (push, switch) = planned(["3-Push", "3-Switch"], [5], ["mlp"], [0], {"3-Push": "policies/a.v2.safetensors"})
    assert (push.expert, switch.expert) == ("policies/a.v2.safetensors", "scripted")
    assert push.shown == Path("demos/3-push-of-a.v2")
    assert push.folder == Path("runs/imitation/3-Push-mlp-5-of-a.v2-0")
    assert push.log == Path("runs/imitation/3-Push-mlp-5-of-a.v2-0.log")


def test_a_panel_for_each_expert_with_the_oracle_in_each() -> None:
    rows = [
        {"trained_on": "3-Push", "network": network, "recipe": recipe}
        for network, recipe in (("mlp-6", "bc-5"), ("mlp-6", "bc-5-of-a"), ("deep-set", "bc-5"), ("oracle", "scripted"))
    ]
    panels = imitation.by_expert(rows)
    assert {who: [row["network"] for row in here] for who, here in panels.items()} == {
        ("3-Push", "scripted"): ["oracle", "mlp-6", "deep-set"],
        ("3-Push", "a"): ["oracle", "mlp-6"],
    }


CLONES = planned(["1-Switch"], [1], ["deep-set"], range(5))


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """Python code in the place of the two commands of a clone, by seed; every command notes when it ran."""
    codes: dict[int, str] = {}

    def commands(clone: Clone, episodes: int) -> Iterator[list[str]]:
        for step in ("train", "test"):
            note = f"open('{step}-{clone.seed}', 'w')"
            yield [sys.executable, "-S", "-c", f"import os, signal, sys, time\n{note}\n{codes.get(clone.seed, '')}"]

    monkeypatch.setattr(Clone, "commands", commands)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return codes


def test_all_are_worked_off_and_a_failure_stops_none(scripts: dict[int, str]) -> None:
    scripts[1] = "sys.exit('broken')"
    done: list[Job] = []
    work_off(CLONES, 1, math.inf, done.append)
    assert {job.clone for job in done} == set(CLONES)
    assert [job.clone.seed for job in done if job.failed] == [1]
    assert sorted(path.name for path in Path().glob("te*")) == [f"test-{n}" for n in (0, 2, 3, 4)]
    assert "broken" in CLONES[1].log.read_text()


def test_two_at_a_time(scripts: dict[int, str]) -> None:
    """Each waits for its partner: alone it would wait for ever. Three must never meet."""
    for seed in range(4):
        scripts[seed] = f"""
open('in-{seed}', 'w')
while not os.path.exists('train-{seed ^ 1}'): time.sleep(0.01)
crowded = sum(name.startswith('in-') for name in os.listdir()) > 2
os.remove('in-{seed}')
sys.exit(crowded)"""
    done: list[Job] = []
    work_off(CLONES[:4], 1, math.inf, done.append)
    assert [job.failed for job in done] == [False] * 4


def test_none_begins_after_the_deadline_but_those_that_run_go_on(scripts: dict[int, str]) -> None:
    done: list[Job] = []
    work_off(CLONES, 1, time.monotonic(), done.append)
    assert done == []
    for seed in range(5):
        scripts[seed] = "time.sleep(0.3)"
    work_off(CLONES, 1, time.monotonic() + 0.05, done.append)
    assert {job.clone.seed for job in done} == {0, 1}
    assert Path("test-1").exists()


def test_interrupted_it_has_what_it_started_save_and_end(scripts: dict[int, str]) -> None:
    save = "lambda *_: (open('saved', 'w'), sys.exit())"
    scripts[0] = f"signal.signal(signal.SIGTERM, {save}); open('ready', 'w'); time.sleep(60)"

    def interrupt(job: Job) -> None:
        while not Path("ready").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work_off(CLONES, 1, math.inf, interrupt)
    assert Path("saved").exists()
    assert not Path("train-4").exists()
