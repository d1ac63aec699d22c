import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from efmdp import runs
from efmdp.evaluate import load_policy
from efmdp.runs import Run, RunError, read_policy, read_rows, versions


def tensors_of(number: int) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((3, 2), float(number)), "count": torch.tensor(number, dtype=torch.float64)}


def save(run: Run, number: int, keep: int = 3) -> None:
    """What a training run does at the end of an epoch: metrics, a new segment, a checkpoint that needs the last few."""
    run.append_row("metrics.csv", {"epoch": number, "success": number / 7})
    run.append_row("timings.csv", {"epoch": number, "seconds": 0.5})
    known = run.digests = getattr(run, "digests", {})  # type: ignore[attr-defined]
    known[number] = run.write_segment(number, {"lengths": np.full(2, number), "agent": np.ones((2, 3), np.float32)})
    needed = {n: known[n] for n in sorted(known)[-keep:]}
    run.write_checkpoint(number, tensors_of(number), {"number": number}, needed)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Three checkpoints written: of 1 (removed again), 2 and 3."""
    run = Run(tmp_path / "run")
    with run.held():
        run.write_config({"config": {"task": "1-Disc"}})
        for number in (1, 2, 3):
            save(run, number)
    return run


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# Checkpoints, when all is well


def test_newest_checkpoint_comes_back(run: Run) -> None:
    tensors, state, segments, damage = run.newest_checkpoint()
    assert damage == []
    assert state == {"number": 3}
    assert all(torch.equal(tensors[name], tensor) for name, tensor in tensors_of(3).items())
    assert [segment["lengths"].tolist() for segment in segments.values()] == [[1, 1], [2, 2], [3, 3]]
    assert segments[1]["agent"].dtype == np.float32


def test_new_run_has_none(tmp_path: Path) -> None:
    with Run(tmp_path / "new").held() as run, pytest.raises(FileNotFoundError):
        run.newest_checkpoint()


@pytest.mark.parametrize("last", [9, 10, 12, 101])
def test_segments_come_back_in_the_order_they_were_written(tmp_path: Path, last: int) -> None:
    with Run(tmp_path / "run").held() as run:
        digests = {n: run.write_segment(n, {"lengths": np.array([n])}) for n in range(last - 4, last + 1)}
        run.write_checkpoint(last, tensors_of(last), {}, digests)
        _, _, segments, _ = run.newest_checkpoint()
    assert [int(segment["lengths"][0]) for segment in segments.values()] == list(range(last - 4, last + 1))
    assert list(segments) == list(range(last - 4, last + 1))


def test_checkpoints_are_found_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    with Run(tmp_path / "run").held() as run:
        for number in (9, 10, 100):
            save(run, number)
        assert run.newest_checkpoint()[1] == {"number": 100}


def test_old_checkpoints_and_segments_go_and_needed_ones_stay(tmp_path: Path) -> None:
    with Run(tmp_path / "run").held() as run:
        for number in range(1, 8):
            save(run, number, keep=2)
    assert names(run.path / "checkpoints") == ["000006", "000007"]
    assert names(run.path / "replay") == ["000005.npz", "000006.npz", "000007.npz"]  # 6 needs 5 and 6; 7 needs 6 and 7
    for number in (7, 6):
        _, state, segments, _ = run.newest_checkpoint()
        assert state == {"number": number}
        assert [int(s["lengths"][0]) for s in segments.values()] == [number - 1, number]
        (run.path / "checkpoints" / f"{number:06d}" / "state.json").write_text("{")


def test_manifest_says_what_the_files_are(run: Run) -> None:
    folder = run.path / "checkpoints" / "000003"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert sorted([*manifest["files"], "manifest.json"]) == names(folder)
    for name, digest in manifest["files"].items():
        assert digest == runs._sha256((folder / name).read_bytes())
    assert sorted(manifest["segments"]) == ["1", "2", "3"]


def test_metrics_after_the_checkpoint_are_forgotten(run: Run) -> None:
    before = (run.path / "metrics.csv").read_bytes(), (run.path / "timings.csv").read_bytes()
    run.append_row("metrics.csv", {"epoch": 4, "success": 1.0})
    with (run.path / "timings.csv").open("a") as file:
        file.write("4,0.")  # killed while writing
    run.newest_checkpoint()
    assert ((run.path / "metrics.csv").read_bytes(), (run.path / "timings.csv").read_bytes()) == before


def test_metrics_without_a_checkpoint_are_forgotten(tmp_path: Path) -> None:
    """Killed between the first row and the first checkpoint: that epoch is done again, so its row must go."""
    with Run(tmp_path / "run").held() as run:
        run.append_row("metrics.csv", {"epoch": 1, "success": 0.5})
        run.append_row("timings.csv", {"epoch": 1, "seconds": 0.5})
        with pytest.raises(FileNotFoundError):
            run.newest_checkpoint()
        assert not (run.path / "metrics.csv").exists()
        assert not (run.path / "timings.csv").exists()


def test_a_run_that_lost_its_checkpoints_is_not_begun_anew(run: Run) -> None:
    before = (run.path / "metrics.csv").read_bytes()
    for checkpoint in (run.path / "checkpoints").iterdir():
        shutil.rmtree(checkpoint)
    with run.held(), pytest.raises(RunError, match=r"the checkpoints of .* are gone"):
        run.newest_checkpoint()
    assert (run.path / "metrics.csv").read_bytes() == before


def test_a_run_whose_checkpoints_were_removed_in_its_first_epoch(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    with run.held():
        run.write_config({"config": {}})
    with run.held():  # killed before its first checkpoint, it may begin again
        pass
    (run.path / "checkpoints").rmdir()
    with pytest.raises(RunError, match=r"the checkpoints of .* are gone"), run.held():
        pass


def test_a_row_whose_writing_was_cut_off_is_none(run: Run) -> None:
    whole = read_rows(run.path / "timings.csv")
    assert len(whole) > 1
    with (run.path / "timings.csv").open("a") as file:
        file.write("4,0.")
    assert read_rows(run.path / "timings.csv") == whole


# Damage

NEWEST = [
    "checkpoints/000003/tensors.safetensors",
    "checkpoints/000003/state.json",
    "checkpoints/000003/metrics.csv",
    "checkpoints/000003/timings.csv",
    "checkpoints/000003/manifest.json",
    "replay/000003.npz",
]


def flip(data: bytes, position: int, bit: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


def assert_previous_is_used(run: Run, name: str) -> None:
    tensors, state, segments, damage = run.newest_checkpoint()
    assert state == {"number": 2}
    assert tensors["count"] == 2
    assert len(segments) == 2
    assert len(damage) == 1
    assert name in damage[0]
    assert damage[0].endswith(": going on from the checkpoint before it")
    assert "\n" not in damage[0]
    assert (run.path / "metrics.csv").read_text().splitlines()[-1].startswith("2,")
    with run.held():  # and the run goes on
        save(run, 3)
        save(run, 4)
    assert run.newest_checkpoint()[1] == {"number": 4}
    assert run.newest_checkpoint()[3] == []


@pytest.mark.parametrize("where", [0.0, 0.3, 0.6, 0.999])
@pytest.mark.parametrize("name", [name for name in NEWEST if "manifest" not in name])
def test_flipped_bit_is_found(run: Run, name: str, where: float) -> None:
    path = run.path / name
    data = path.read_bytes()
    path.write_bytes(flip(data, int(where * len(data)), 2))
    assert_previous_is_used(run, name)


@pytest.mark.parametrize("left", [0, 1, 0.5, -1])
@pytest.mark.parametrize("name", NEWEST)
def test_truncated_file_is_found(run: Run, name: str, left: float) -> None:
    path = run.path / name
    data = path.read_bytes()
    path.write_bytes(data[: int(left * len(data)) if left == 0.5 else int(left)])
    assert_previous_is_used(run, name)


@pytest.mark.parametrize("name", NEWEST)
def test_missing_file_is_found(run: Run, name: str) -> None:
    (run.path / name).unlink()
    assert_previous_is_used(run, name)


def test_any_flipped_bit_of_a_manifest_is_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it turns into, also where it is JSON still: another key, another number, another digest."""
    monkeypatch.setattr(runs.os, "fsync", lambda _: None)  # hundreds of resumptions, none of which must last
    manifest = run.path / "checkpoints/000003/manifest.json"
    intact = manifest.read_bytes()
    rng = np.random.default_rng(0)
    unnoticed = []
    for position in range(len(intact)):
        broken = flip(intact, position, int(rng.integers(8)))
        manifest.write_bytes(broken)
        try:
            _, state, _, damage = run.newest_checkpoint()
            found = "nothing" if state != {"number": 2} or len(damage) != 1 else None
        except Exception as error:
            found = type(error).__name__
        if found is not None:
            unnoticed.append(f"{found} at byte {position}: {broken[position - 5 : position + 5]!r}")
        for moved in (run.path / "checkpoints").glob("*.damaged"):
            moved.rename(moved.with_suffix(""))
    assert unnoticed == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"segments"', '"sugments"'),
        ('"1": ', '"q": '),
        ('"files"', '"fales"'),
        ('"state.json"', '"stqte.json"'),
    ],
)
def test_manifest_that_is_json_still(run: Run, old: str, new: str) -> None:
    path = run.path / "checkpoints/000003/manifest.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert_previous_is_used(run, "checkpoints/000003")


@pytest.mark.parametrize("manifest", ["[]", "null", "3", '{"files": [], "segments": {}}', '{"files": {}}'])
def test_manifest_of_another_shape(run: Run, manifest: str) -> None:
    (run.path / "checkpoints/000003/manifest.json").write_text(manifest)
    assert_previous_is_used(run, "checkpoints/000003/manifest.json")


def test_the_same_checkpoint_may_be_damaged_twice(run: Run) -> None:
    for _ in range(2):
        (run.path / "checkpoints/000003/state.json").write_text("{")
        assert run.newest_checkpoint()[1] == {"number": 2}
        with run.held():
            save(run, 3)


def test_all_damaged_is_one_line(run: Run) -> None:
    for number in (2, 3):
        (run.path / f"checkpoints/{number:06d}/state.json").write_text("{")
    before = contents(run.path)
    with pytest.raises(RunError) as caught:
        run.newest_checkpoint()
    message = str(caught.value)
    assert "\n" not in message
    assert str(run.path / "checkpoints/000003/state.json") in message
    assert str(run.path / "checkpoints/000002/state.json") in message
    assert contents(run.path) == before  # nothing is thrown away


def test_without_a_segment_that_both_need(run: Run) -> None:
    """The newest checkpoint with the other segments, and a line that says what that means."""
    (run.path / "replay/000001.npz").write_bytes(b"")
    found = run.newest_checkpoint()
    assert found.state == {"number": 3}
    assert list(found.segments) == [number for number in (1, 2, 3) if number != 1]
    (said,) = found.damage
    assert "000001.npz is damaged: going on without its episodes" in said
    assert "\n" not in said


def test_all_damage_is_told_when_segments_are_lost_too(run: Run) -> None:
    (run.path / "checkpoints/000003/state.json").write_text("{")
    (run.path / "replay/000001.npz").write_bytes(b"")
    found = run.newest_checkpoint()
    assert found.state == {"number": 2}
    assert list(found.segments) == [2]
    assert "000003/state.json is damaged" in found.damage[0]
    assert "000001.npz is damaged: going on without its episodes" in found.damage[1]


def test_a_segment_that_only_the_newest_needs(run: Run) -> None:
    (run.path / "replay/000003.npz").unlink()
    found = run.newest_checkpoint()
    assert found.state == {"number": 2}
    assert found.damage == [f"{run.path / 'replay/000003.npz'} is missing: going on from the checkpoint before it"]


def test_metrics_stay_when_the_disk_is_full_while_going_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.append_row("metrics.csv", {"epoch": 1})
    save(run, 4)
    run.append_row("metrics.csv", {"epoch": 2})
    before = contents(run.path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("efmdp.runs._write_synced", full)
    with pytest.raises(RunError, match="No space left"):
        run.newest_checkpoint()
    assert contents(run.path) == before


def test_changed_config_is_refused(run: Run) -> None:
    """A setting that still reads well, but is not what the run was trained with."""
    run.write_config({"demos": "here", "config": {"learning_rate": 0.001}})
    save(run, 4)
    run.write_config({"demos": "moved", "config": {"learning_rate": 0.001}})
    run.newest_checkpoint()
    run.write_config({"demos": "moved", "config": {"learning_rate": 0.003}})
    before = contents(run.path)
    with pytest.raises(RunError, match=r"config\.json is not what the run was trained with"):
        run.newest_checkpoint()
    assert contents(run.path) == before


def test_commit_of_changed_code_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=me", "-c", "user.email=me@example.org")
        command = ["git", *who, *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    code = tmp_path / "efmdp" / "runs.py"
    code.parent.mkdir()
    code.write_text("1")
    monkeypatch.setattr(runs, "__file__", str(code))
    assert versions()["commit"] == "unknown"  # no checkout
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    (tmp_path / "notes").write_text("not code")
    assert versions()["commit"] == git("rev-parse", "HEAD")
    code.write_text("2")
    assert versions()["commit"] == git("rev-parse", "HEAD") + "+"


def test_versions_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert versions()["commit"] == "unknown"


def test_unfinished_checkpoint_is_not_looked_at(run: Run) -> None:
    unfinished = run.path / "checkpoints/000004.tmp"
    unfinished.mkdir()
    (unfinished / "tensors.safetensors").write_bytes(b"half")
    _, state, _, damage = run.newest_checkpoint()
    assert state == {"number": 3}
    assert damage == []
    save(run, 4)
    assert run.newest_checkpoint()[1] == {"number": 4}
    assert not unfinished.exists()


def test_damaged_config_is_one_line(run: Run) -> None:
    run.write_config({"config": {"task": "1-Disc"}})
    assert run.config() == {"config": {"task": "1-Disc"}}
    data = (run.path / "config.json").read_text()
    (run.path / "config.json").write_text(data[:10])
    with pytest.raises(RunError, match=r"config\.json is not readable") as caught:
        run.config()
    assert "\n" not in str(caught.value)


# Writing


def test_replacing_is_atomic(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks sees the old or the new, and the new only after it is safely on the disk."""
    run.write_config({"version": 1})
    path = run.path / "config.json"
    events = []
    write, sync, rename = runs._write_synced, os.fsync, os.rename

    def noted_write(where: Path, data: bytes) -> None:
        assert where != path
        assert where.parent == path.parent  # the same file system, or it would be no rename
        write(where, data)
        events.append("written")
        assert json.loads(path.read_text()) == {"version": 1}

    def noted_sync(descriptor: int) -> None:
        events.append("synced")
        sync(descriptor)

    def noted_rename(old: Path, new: Path) -> None:
        events.append("renamed")
        rename(old, new)

    monkeypatch.setattr(runs, "_write_synced", noted_write)
    monkeypatch.setattr(runs.os, "fsync", noted_sync)
    monkeypatch.setattr(runs.os, "rename", noted_rename)
    run.write_config({"version": 2})
    assert json.loads(path.read_text()) == {"version": 2}
    assert events == ["synced", "written", "renamed", "synced"]


def test_manifest_is_written_last(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    write = runs._write_synced
    monkeypatch.setattr(runs, "_write_synced", lambda path, data: (written.append(path.name), write(path, data)))
    run.write_checkpoint(4, tensors_of(4), {}, {})
    assert set(written) == {"tensors.safetensors", "state.json", "metrics.csv", "timings.csv", "manifest.json"}
    assert written[-1] == "manifest.json"


def act(run: Run, what: str) -> None:
    match what:
        case "config":
            run.write_config({"big": 1})
        case "policy":
            run.write_policy("last", tensors_of(9), {})
        case "segment":
            run.write_segment(9, {"lengths": np.zeros(3)})
        case "checkpoint":
            run.write_checkpoint(9, tensors_of(9), {}, {})


@pytest.mark.parametrize("what", ["config", "policy", "segment", "checkpoint"])
@pytest.mark.parametrize(
    ("number", "written", "hint"),
    [
        (errno.ENOSPC, 0.0, "free some space"),
        (errno.ENOSPC, 0.5, "free some space"),
        (errno.EROFS, 0.0, "check its permissions"),
        (errno.EACCES, 0.0, "check its permissions"),
    ],
)
def test_disk_that_refuses(
    run: Run, monkeypatch: pytest.MonkeyPatch, what: str, number: int, written: float, hint: str
) -> None:
    run.write_policy("last", tensors_of(1), {"task": "1-Disc"})
    before = contents(run.path)

    def refusing(path: Path, data: bytes) -> None:
        if written:
            path.write_bytes(data[: int(written * len(data))])
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(runs, "_write_synced", refusing)
    with pytest.raises(RunError) as caught:
        act(run, what)
    message = str(caught.value)
    assert str(run.path) in message
    assert os.strerror(number) in message
    assert hint in message
    assert "\n" not in message
    after = contents(run.path)
    assert {name: after[name] for name in before} == before
    monkeypatch.undo()
    assert run.newest_checkpoint()[1] == {"number": 3}
    act(run, what)  # when the disk is willing again, all is well


def test_full_disk_for_metrics(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(RunError, match="No space left"):
        run.append_row("metrics.csv", {"epoch": 4, "success": 0})


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here first")
    for path in (tmp_path / "file" / "run", tmp_path / "file"):
        with pytest.raises(RunError) as caught, Run(path).held():
            pass
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == "here first"


@pytest.fixture
def powerless() -> Iterator[None]:
    """Root may write everywhere: be nobody for a while."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    yield
    if was_root:
        os.seteuid(0)


@pytest.fixture
def read_only() -> Iterator[Run]:
    """A run that everybody may read and nobody may write; pytest's own folders are closed to others."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        run = Run(Path(place) / "run")
        with run.held():
            save(run, 1)
        folders = (run.path, run.path / "checkpoints", run.path / "replay")
        for folder in folders:
            folder.chmod(0o555)
        yield run
        for folder in folders:
            folder.chmod(0o755)


@pytest.mark.parametrize("name", ["checkpoints/000001/tensors.safetensors", "checkpoints/000001/manifest.json"])
def test_what_may_not_be_read_is_not_taken_for_damage(read_only: Run, powerless: None, name: str) -> None:
    path = read_only.path / name
    was = os.geteuid()
    os.seteuid(os.getuid())  # whoever owns it
    path.chmod(0)
    os.seteuid(was)
    with pytest.raises(RunError, match="may not be read: check its permissions"):
        read_only.newest_checkpoint()
    assert path.exists()


def test_read_only_folder(read_only: Run, powerless: None) -> None:
    before = contents(read_only.path)
    for what in ("config", "policy", "segment", "checkpoint"):
        with pytest.raises(RunError, match="Permission denied") as caught:
            act(read_only, what)
        assert str(read_only.path) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert contents(read_only.path) == before


# One process at a time

HOLDER = """
import sys
from pathlib import Path
from efmdp.runs import Run
with Run(Path(sys.argv[1])).held():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_second_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        try:
            assert first.stdout.readline() == "held\n"
            with pytest.raises(RunError, match="in use by another process") as caught, Run(path).held():
                pass
            assert str(path) in str(caught.value)
            assert "\n" not in str(caught.value)
            with Run(tmp_path / "other").held():  # another folder is free
                pass
        finally:
            first.kill()  # a killed process holds nothing
    with Run(path).held():
        pass


def test_a_run_can_be_held_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Run(tmp_path / "run").held():
        raise KeyError
    with Run(tmp_path / "run").held():
        pass


# Policy files


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_policy_file_cannot_run_code(tmp_path: Path, how: str) -> None:
    policy, trap = tmp_path / "policy-last.safetensors", tmp_path / "sprung"
    if how == "pickle":
        policy.write_bytes(pickle.dumps(Trap(trap)))
    else:
        torch.save({"actor": Trap(trap)}, policy)
    for read in (read_policy, load_policy):
        with pytest.raises(RunError, match="is not a policy of efmdp") as caught:
            read(policy)
        assert "\n" not in str(caught.value)
    assert not trap.exists()
    pickle.loads(pickle.dumps(Trap(trap)))  # it would have
    assert trap.exists()


def test_segment_cannot_run_code(run: Run, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    with pytest.raises(ValueError, match="Object arrays"):
        run.write_segment(4, {"lengths": np.array([Trap(trap)], dtype=object)})
    assert not trap.exists()


def test_equal_policies_are_equal_files(tmp_path: Path) -> None:
    """safetensors alone writes its metadata in any order."""
    found = set()
    for _ in range(20):
        Run(tmp_path).write_policy("last", tensors_of(5), {"task": "1-Disc"})
        found.add((tmp_path / "policy-last.safetensors").read_bytes())
    assert len(found) == 1


def test_policy_round_trip(run: Run) -> None:
    run.write_policy("last", tensors_of(5), {"task": "1-Disc", "numbers": [1, 2.5, None]})
    tensors, about = read_policy(run.path / "policy-last.safetensors")
    assert about == {"task": "1-Disc", "numbers": [1, 2.5, None]}
    assert all(torch.equal(tensors[name], tensor) for name, tensor in tensors_of(5).items())


def test_lost_policies_come_back_with_the_checkpoint(run: Run) -> None:
    for which in ("best", "last"):
        run.write_policy(which, tensors_of(4), {"which": which})
    save(run, 4)
    kept = contents(run.path)
    (run.path / "policy-best.safetensors").unlink()
    (run.path / "policy-last.safetensors").write_bytes(b"half")
    run.newest_checkpoint()
    assert contents(run.path) == kept


@pytest.mark.parametrize("where", [0.02, 0.3, 0.6, 0.999])
def test_a_flipped_bit_in_a_policy_is_noticed(run: Run, where: float) -> None:
    run.write_policy("last", {"weight": torch.ones(100)}, {"task": "1-Disc"})
    path = run.path / "policy-last.safetensors"
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 4
    path.write_bytes(data)
    with pytest.raises(RunError, match=r"is damaged|is not a policy of efmdp"):
        read_policy(path)


@pytest.mark.parametrize("data", [b"", b"x", b"\0" * 100, b"\xff" * 100])
def test_rubbish_is_not_a_policy(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "p.safetensors").write_bytes(data)
    with pytest.raises(RunError, match="is not a policy"):
        read_policy(tmp_path / "p.safetensors")


def test_strange_policies_are_one_line(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no policy"):
        load_policy(tmp_path / "none.safetensors")
    with pytest.raises(RunError, match="there is no policy"):
        load_policy(run.path)
    dims = {"agent": 1, "entity": 1, "goal": 1, "action": 1}
    parts = {
        "task": "1-Disc",
        "physics": {},
        "dims": dims,
        "network": {"width": 8},
        "normaliser": {},
        "usable_actions": [1],
    }
    for about in ({}, [], {**parts, "dims": 3}, {**parts, "network": {"kind": "magic"}}, parts):  # the last: no weights
        run.write_policy("last", tensors_of(1), about)  # type: ignore[arg-type]
        with pytest.raises(RunError, match=r"is not a policy of efmdp|: unknown network 'magic'") as caught:
            load_policy(run.path)
        assert "\n" not in str(caught.value)
    torch_file = tmp_path / "plain.safetensors"
    torch_file.write_bytes(safetensors.torch.save(tensors_of(1)))  # of somebody else: says nothing about itself
    with pytest.raises(RunError, match="is not a policy of efmdp"):
        load_policy(torch_file)


@pytest.mark.parametrize("what", ["weights", "usable_actions", "physics"])
def test_policy_that_would_fail_later_is_refused_at_once(
    tmp_path: Path, write_run: Callable[..., Path], what: str
) -> None:
    folder = write_run(tmp_path / "run", "1-Push")
    tensors, about = read_policy(folder / "policy-last.safetensors")
    if what == "weights":
        tensors["actor.body.rho.0.bias"][0] = float("nan")
    else:
        about[what] = {"usable_actions": [1.0], "physics": {"gravity": 9.81}}[what]
    Run(folder).write_policy("last", tensors, about)
    with pytest.raises(RunError, match=f"is not a policy of efmdp.*{what}"):
        load_policy(folder)
    load_policy(folder, "best")  # untouched
