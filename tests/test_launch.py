"""Experiments are done step by step: in order, once, side by side, here and on a Ray cluster, and survive kills."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from efmdp import launch, zoo
from efmdp.experiments import Cloning, Collecting, Evaluating, Training
from efmdp.launch import Told, do
from efmdp.publish import publish
from efmdp.runs import as_stored

Efmdp = Callable[..., tuple[int, str, str]]
SMALL = ("--recipe", "smoke", "--seeds", "1", "--episodes", "2", "--tasks", "3-Switch", "--networks", "deep-set")


class Fake:
    """Runs nothing: a step ends when it is looked at, well unless it is one of `bad`."""

    def __init__(self, places: int, bad: tuple[str, ...] = ()) -> None:
        self.places, self.bad = places, bad
        self.working: list[Step] = []
        self.most, self.stopped = 0, False

    def start(self, step: "Step") -> None:
        self.working.append(step)
        self.most = max(self.most, len(self.working))

    def ended(self) -> Iterator[tuple["Step", bool]]:
        working, self.working = self.working, []
        for step in working:
            step.is_done = step.name not in self.bad
            yield step, step.is_done

    def stop(self) -> None:
        self.stopped = True


class Step:
    def __init__(self, name: str, *needs: "Step") -> None:
        self.name, self.needs, self.is_done = name, needs, False


def told(steps: list[Step], backend: Fake, seconds: float = 60) -> list[tuple[str, str]]:
    heard: list[Told] = []
    do(steps, backend, time.monotonic() + seconds, heard.append)  # type: ignore[arg-type]
    assert backend.stopped
    return [(each.step.name, each.outcome) for each in heard]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "OLDEST_STATE", 0.01)


def test_what_is_needed_comes_first_and_as_many_work_as_there_are_places() -> None:
    train = Step("train")
    steps = [train, Step("test", train), *(Step(f"other {n}") for n in range(5))]
    backend = Fake(3)
    heard = told(steps, backend)
    assert backend.most == 3
    assert heard.index(("train", "done")) < heard.index(("test", "started"))
    assert sorted(name for name, outcome in heard if outcome == "done") == sorted(step.name for step in steps)


def test_what_needs_a_failed_step_is_skipped_and_the_rest_is_done() -> None:
    train = Step("train")
    test = Step("test", train)
    steps = [train, test, Step("picture", test), Step("other")]
    heard = told(steps, Fake(1, bad=("train",)))
    assert [each for each in heard if each[1] != "started"] == [
        ("train", "failed"),
        ("test", "skipped"),
        ("picture", "skipped"),
        ("other", "done"),
    ]
    assert not do([Step("train")], Fake(1, bad=("train",)), time.monotonic() + 9, lambda _: None)  # type: ignore


def test_at_the_deadline_what_works_is_stopped() -> None:
    class Slow(Fake):
        def ended(self) -> Iterator[tuple[Step, bool]]:
            yield from ()

    started, *later = told([Step("train"), Step("other")], Slow(1), seconds=0.05)
    assert started == ("train", "started")
    assert set(later) == {("train", "working")}


def test_what_is_timed_is_alone() -> None:
    run, other = (Training(task, "mlp", "smoke") for task in ("1-Push", "2-Push"))
    timed = [Evaluating("timing", Training("1-Push", "mlp", "smoke", seed), 1) for seed in range(2)]
    needs = {step: step.needs for step in (run, other, *timed)}
    assert launch._next([timed[0], other], {run: 0.0}, needs) == other
    assert launch._next(timed, {run: 0.0}, needs) is None
    assert launch._next([run], {timed[0]: 0.0}, needs) is None
    assert launch._next(timed[:1], {}, needs) == timed[0]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_of_another_recipe_is_not_taken_for_this_one(
    efmdp: Efmdp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Training("3-Switch", "deep-set", "smoke")
    assert efmdp("train", "ddpg", "--task", "3-Switch", "--recipe", "smoke", "--epochs", "1")[0] == 0
    assert not run.is_done  # half of it
    assert run.command == ["train", "resume", str(run.folder)]
    assert efmdp(*run.command)[0] == 0
    assert run.is_done  # although it has two threads
    config = run.folder / "config.json"
    config.write_text(config.read_text().replace('"batch_size": 256', '"batch_size": 128'))
    assert not run.is_done


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("extrapolaton",), "there is no experiment 'extrapolaton': did you mean extrapolation?"),
        (("--tasks", "9-Push"), "there is no task '9-Push': did you mean"),
        (("timing", "--tasks", "3-Switch"), "timing has no runs with 3-Switch: see efmdp reproduce --list"),
        (("--demos", "7"), "there is no number of demonstrations '7': choose 1000, 2000, 3000, 4000, 5000"),
        (("learning", "--demos", "1000"), "learning has no runs with 1000: see efmdp reproduce --list"),
        (("--budget", "soon"), "--budget is 'soon': write it as 2h, 90m or 1h30m"),
        (("--budget", "0h"), "--budget is '0h'"),
        (("--seeds", "0"), "--seeds is 0: choose 1 or more"),
        (("--address", "auto"), "--address belongs to --backend ray"),
        (("--backend", "ray", "--address", "127.0.0.1:1", *SMALL), "no Ray cluster answers at 127.0.0.1:1"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], said: str, efmdp: Efmdp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, errors = efmdp("reproduce", *arguments)
    assert code == 2
    assert said in errors
    assert len(errors.strip().splitlines()) == 1


@contextmanager
def reproducing(folder: Path, *more: str) -> Iterator["subprocess.Popen[bytes]"]:
    """`efmdp reproduce` as a process; its training is slow enough to be caught."""
    command = [sys.executable, "-m", "efmdp.cli", "reproduce", "extrapolation", *SMALL, *more]
    environment = os.environ | {"RAY_worker_niceness": "0"}  # on a busy machine they would wait for minutes
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where an experiment was done and nothing happened."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with reproducing(folder) as process:
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out.decode()
    assert b"3 of 3 steps are to be done" in out
    return folder


def test_an_experiment_is_done_once(efmdp: Efmdp, undisturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(undisturbed)
    rows = read(Path("results/extrapolation.csv"))
    assert {row["task"] for row in rows} == {f"{n}-Switch" for n in range(1, 11)}
    assert {(row["network"], row["recipe"]) for row in rows} == {("deep-set", "smoke"), ("oracle", "trained")}
    (mine,) = [row for row in read(Path("results/runs.csv")) if row["task"] == "3-Switch"]
    assert (mine["finished"], mine["epochs"], mine["network"]) == ("True", "2", "deep-set")
    assert mine["command"] == "efmdp train ddpg --task 3-Switch --recipe smoke --network deep-set --seed 0 --threads 1"
    assert {row["sha256"] for row in rows if row["network"] != "oracle"} == {mine["best_sha256"]}
    assert [row["epoch"] for row in read(Path("results/curves.csv")) if row["run"] == mine["run"]] == ["1", "2"]
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*") if path.is_file()}
    code, said, _ = efmdp("reproduce", "extrapolation", *SMALL)
    assert (code, said.strip()) == (0, "all 3 steps are done: efmdp report draws them")
    assert before == {path: path.stat().st_mtime_ns for path in Path().rglob("*") if path.is_file()}
    code, said, _ = efmdp("reproduce", "extrapolation", "--list", *SMALL)
    assert code == 0
    assert said.count("1 of 1") == 2  # trained and tested


def test_what_the_tables_hold_is_done_when_its_folder_is_gone(
    efmdp: Efmdp, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(undisturbed / "results", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    code, said, _ = efmdp("reproduce", "extrapolation", *SMALL)
    assert (code, said.strip()) == (0, "all 3 steps are done: efmdp report draws them")
    table = Path("results/extrapolation.csv")
    lines = [
        line for line in table.read_text().splitlines() if not line.startswith("deep-set") or "6-Switch" not in line
    ]
    table.write_text("\n".join(lines) + "\n")
    code, said, _ = efmdp("reproduce", "extrapolation", "--list", *SMALL)
    assert code == 0
    assert said.count("0 of 1") == 2  # to be trained anew and tested on six switches


def test_the_zoo_stands_in_for_runs_that_are_gone(
    write_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(zoo, "folder", lambda: tmp_path / "zoo")
    clone = Cloning(Collecting("1-Push", 100, Training("1-Push", "deep-set", "fast")), 100, "deep-set")
    test = Evaluating(
        "extrapolation", Training("3-Push", "deep-set", "fast"), 10, (Training("1-Push", "deep-set", "fast"),)
    )
    assert test.needs == (test.of, *test.oracle)
    assert clone.shown.needs == (clone.shown.expert,)
    assert test.sources == ["push=runs/1-Push-deep-set-fast-0"]
    run = write_run(Path("runs/1-Push-deep-set-fast-0"), "1-Push")
    (run / "metrics.csv").write_text("epoch,task,steps,updates,success_once\n1,1-Push,800,10,0.25\n")
    (run / "timings.csv").write_text("epoch,collect,learn,evaluate,save,peak_mb\n1,9,9,9,9,9\n")
    publish(run, episodes=1)
    about = Path("zoo/1-push/deep-set.json")
    stored = json.loads(about.read_text())
    whole, recipe = stored["command"].replace(" --epochs 1", ""), as_stored(test.oracle[0].config) | {"threads": 2}
    for other in (stored | {"command": whole}, stored | {"config": recipe}):  # a smaller network, a run stopped early
        about.write_text(json.dumps(other))
        assert test.needs == (test.of, *test.oracle)
    about.write_text(json.dumps(stored | {"command": whole, "config": recipe}))
    shutil.rmtree(run)
    assert test.needs == (test.of,)
    of_zoo = replace(test, of=test.oracle[0])
    assert of_zoo.needs == ()
    assert of_zoo.command[:3] == ["evaluate", "extrapolation", "zoo:1-push/deep-set"]
    assert replace(of_zoo, study="learning").needs == (of_zoo.of,)  # its last policy
    assert clone.shown.needs == ()
    assert test.sources == ["push=zoo:1-push/deep-set"]
    assert clone.shown.command[:5] == ["collect", "--task", "1-Push", "--from", "zoo:1-push/deep-set"]
    assert Training("1-Push", "deep-set", "fast", seed=1).in_zoo is None


def test_other_demonstrations_are_not_taken_for_these(
    efmdp: Efmdp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = Collecting("1-Switch", 100)
    for other in (("--seed", "7"), ("--layout", "wide"), ("--collisions", "True")):
        assert (
            efmdp(
                "collect",
                "--task",
                "1-Switch",
                "--from",
                "scripted",
                "--episodes",
                "100",
                *other,
                "--out",
                wanted.folder,
            )[0]
            == 0
        )
        assert not wanted.is_done
        shutil.rmtree(wanted.folder)
    assert efmdp(*wanted.command)[0] == 0
    assert wanted.is_done
    assert not replace(wanted, episodes=101).is_done


def test_a_run_of_other_settings_in_the_way_is_named(
    efmdp: Efmdp, tmp_path: Path, write_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(Path("runs/3-Switch-deep-set-smoke-0"), "3-Switch")
    code, _, errors = efmdp("reproduce", "extrapolation", *SMALL)
    assert code == 2
    assert errors == (
        "efmdp: runs/3-Switch-deep-set-smoke-0: trained with other settings than those of today; move it away\n"
    )


def test_runs_that_are_not_in_the_tables_are_put_there(
    efmdp: Efmdp, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    before = Path("results/runs.csv").read_bytes()
    Path("results/runs.csv").unlink()
    code, said, _ = efmdp("reproduce", "extrapolation", *SMALL)
    assert (code, said.strip()) == (0, "all 3 steps are done: efmdp report draws them")
    assert Path("results/runs.csv").read_bytes() == before


FIRST_EPOCH = "runs/{}/checkpoints/000002"


def training_of(run: str) -> int | None:
    """The process that trains a run of that name, once it has saved its first epoch."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if (
                b"train" in words
                and f"runs/{run}".encode() in words
                and (folder / "cwd" / FIRST_EPOCH.format(run)).is_dir()
            ):
                return int(folder.name)
        except OSError:
            continue
    return None


def wait_for(what: Callable[[], Any], seconds: float = 90) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.01)
    return found


def is_gone(process: int) -> bool:
    return not Path(f"/proc/{process}").exists()


NAME = "3-Switch-deep-set-smoke-0"


def first_epoch(folder: Path) -> int:
    """When it was saved: later, if it was trained twice."""
    return (folder / FIRST_EPOCH.format(NAME) / "manifest.json").stat().st_mtime_ns


def test_killed_it_leaves_no_process_behind_and_goes_on(tmp_path: Path) -> None:
    with reproducing(tmp_path) as process:
        training = wait_for(lambda: training_of(NAME))
        os.kill(training, signal.SIGSTOP)  # it must not end before it is killed
        process.kill()
        wait_for(lambda: is_gone(training))
    saved = first_epoch(tmp_path)
    with reproducing(tmp_path) as process:
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out.decode()
    assert b"all is done" in out
    assert first_epoch(tmp_path) == saved


def test_asked_to_stop_it_saves_what_works(tmp_path: Path) -> None:
    with reproducing(tmp_path) as process:
        training = wait_for(lambda: training_of(NAME))
        process.terminate()
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out.decode()
    assert is_gone(training)
    assert "stopped, all is saved" in (tmp_path / "runs" / "logs" / f"{NAME}.log").read_text()


def test_a_worker_of_a_ray_cluster_may_die(tmp_path: Path, undisturbed: Path) -> None:
    """The run ends in the same bytes as one that nothing happened to."""
    disturbed = tmp_path
    with reproducing(disturbed, "--backend", "ray") as process:
        training = wait_for(lambda: training_of(NAME))
        os.kill(training, signal.SIGSTOP)
        worker = int(Path(f"/proc/{training}/stat").read_text().rpartition(")")[2].split()[1])
        assert b"ray::" in Path(f"/proc/{worker}/cmdline").read_bytes()
        os.kill(worker, signal.SIGKILL)
        saved = first_epoch(disturbed)
        wait_for(lambda: is_gone(training))
        out, _ = process.communicate(timeout=180)
    assert process.returncode == 0, out.decode()
    assert first_epoch(disturbed) == saved
    for name in ("metrics.csv", "policy-best.safetensors", "policy-last.safetensors"):
        assert (disturbed / "runs" / NAME / name).read_bytes() == (undisturbed / "runs" / NAME / name).read_bytes()
    tables = [read(folder / "results" / "extrapolation.csv") for folder in (disturbed, undisturbed)]
    assert [sorted(row.items()) for row in tables[0]] == [sorted(row.items()) for row in tables[1]]
