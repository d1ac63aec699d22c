"""A run directory: what was asked, what was measured, and checkpoints that survive anything.

    config.json                 what the run is, and the versions it began with
    metrics.csv                 one row an epoch; the same for the same seed, machine and threads
    timings.csv                 one row an epoch; not repeatable
    policy-best.safetensors     the actor that did best on the selection seeds
    policy-last.safetensors     the newest actor
    replay/000012.npz           episodes, in segments that are written once
    checkpoints/000012/         tensors.safetensors, state.json, copies of metrics, timings and policies, and last
                                manifest.json

A checkpoint is written under a temporary name, synced, renamed, read back, and only then is the one before the previous
removed. Its manifest holds the SHA-256 of its files, of the run's configuration and of the replay segments it needs. A
segment exists once: after later damage to it, a run goes on without its episodes. A policy holds its own SHA-256. No
file can run code.
"""

import csv
import errno
import fcntl
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from efmdp.entities import Array, UserError
from efmdp.tasks import file_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

CLOCK = ("collect", "learn", "evaluate", "save")  # what timings.csv tells apart, in seconds since the run began
COPIED = ("metrics.csv", "timings.csv", "policy-best.safetensors", "policy-last.safetensors")  # into every checkpoint
# For so many seconds a folder may be in use before that is an error: on shared storage a dead machine may hold it on.
PATIENCE = "EFMDP_PATIENCE"
KEPT = 2  # checkpoints: the newest, and the one before it in case the newest is damaged


class RunError(UserError):
    """What is wrong with a run directory and what to do, in one line."""


class Damaged(Exception):
    """A checkpoint whose files are not what its manifest says; the message names the file."""


class Checkpoint(NamedTuple):
    """What a run goes on from, and what was found damaged on the way."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]
    segments: dict[int, dict[str, Array]]  # of the replay, in order
    damage: list[str]


class Run:
    """One run directory, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def held(self) -> Iterator["Run"]:
        """Make the directory if needed and keep other processes out of it."""
        if (self.path / "config.json").exists() and not (self.path / "checkpoints").exists():
            raise RunError(self._lost())
        with clear_errors(self.path):
            (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
            (self.path / "replay").mkdir(exist_ok=True)
        with only_process_in(self.path):
            yield self

    def _lost(self) -> str:
        return f"the checkpoints of {self.path} are gone: put them back, or start anew in another --out"

    # The configuration

    def config(self) -> dict[str, Any] | None:
        """What the run was begun with, or None for a new one."""
        path = self.path / "config.json"
        try:
            stored = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise RunError(f"{path} is not readable ({error}): restore it or start anew") from None
        if not isinstance(stored, dict) or not isinstance(stored.get("config"), dict):
            raise RunError(f"{path} is not the configuration of a run: restore it or start anew")
        return stored

    def write_config(self, config: dict[str, Any]) -> None:
        replace_file(self.path, "config.json", (json.dumps(config, indent=2) + "\n").encode())

    @property
    def is_finished(self) -> bool:
        """Whether all its epochs are done: its newest checkpoint, which is written after everything else, says so."""
        checkpoints = self._checkpoints() if (self.path / "checkpoints").is_dir() else []
        try:
            state = json.loads((checkpoints[-1] / "state.json").read_text())
            return bool(state["counters"]["finished"])
        except (IndexError, OSError, ValueError, KeyError, TypeError):  # `efmdp train resume` mends or names it
            return False

    # Metrics and policies

    def append_row(self, name: str, row: dict[str, Any]) -> None:
        """Add a row to metrics.csv or timings.csv."""
        path = self.path / name
        with clear_errors(self.path):
            new = not path.exists()
            with path.open("a", newline="") as file:
                writer = csv.DictWriter(file, row)
                if new:
                    writer.writeheader()
                writer.writerow(row)

    def write_policy(self, which: str, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        said = json.dumps(about)
        data = safetensors.torch.save(tensors, {"about": said, "sha256": _sha256_of_policy(tensors, said)})
        replace_file(self.path, f"policy-{which}.safetensors", _in_order(data))

    # Checkpoints

    def write_segment(self, number: int, arrays: dict[str, Array]) -> str:
        """Write episodes once; returns the segment's SHA-256."""
        name = f"replay/{number:06d}.npz"
        digest = replace_file(self.path, name, to_npz(arrays))
        self._check_written(lambda: read_checked(self.path / name, digest))
        return digest

    def write_checkpoint(
        self, number: int, tensors: dict[str, Tensor], state: dict[str, Any], segments: dict[int, str]
    ) -> None:
        """`segments` maps the replay segments needed to their SHA-256."""
        final = self.path / "checkpoints" / f"{number:06d}"
        temporary = final.with_suffix(".tmp")
        files = {
            "tensors.safetensors": safetensors.torch.save(tensors),
            "state.json": json.dumps(state).encode(),
        }
        for name in COPIED:
            if (self.path / name).exists():
                files[name] = (self.path / name).read_bytes()
        manifest: dict[str, Any] = {
            "files": {name: _sha256(data) for name, data in files.items()},
            "segments": {str(n): digest for n, digest in segments.items()},
            "config": self._config_digest(),
        }
        manifest["checksum"] = _sha256(json.dumps(manifest).encode())
        with clear_errors(self.path):
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(final, ignore_errors=True)  # left behind by a run that was resumed from an earlier one
            temporary.mkdir()
            for name, data in files.items():
                _write_synced(temporary / name, data)
            _write_synced(temporary / "manifest.json", json.dumps(manifest).encode())
            _sync_directory(temporary)
            os.rename(temporary, final)
            _sync_directory(final.parent)
        self._check_written(lambda: self._verify(final))
        self._forget_old()

    def _config_digest(self) -> str:
        """Of what the run is; where it takes its demonstrations from may change."""
        return _digest((self.config() or {}).get("config"))

    def could_have(self, config: dict[str, Any]) -> bool:
        """Whether its checkpoints are of a run with this configuration, as far as they can be read."""
        for path in self._checkpoints():
            try:
                if self._verify(path).get("config") != _digest(config):
                    return False
            except Damaged:
                continue
        return True

    def _check_written(self, read: Callable[[], object]) -> None:
        try:
            read()
        except Damaged as error:
            raise RunError(f"{error} although just written: check the disk; the checkpoint before it is kept") from None

    def newest_checkpoint(self) -> Checkpoint:
        """The newest that is intact with all its segments, or else without some of them. FileNotFoundError if new."""
        damage: list[str] = []
        incomplete: tuple[Path, Checkpoint] | None = None
        for path in reversed(self._checkpoints()):
            try:
                found = self._read_checkpoint(path)
            except (Damaged, SafetensorError) as error:
                damage.append(str(error))
                continue
            if not found.damage:
                self._go_back_to(path)
                return found._replace(damage=[f"{what}: going on from the checkpoint before it" for what in damage])
            damage += found.damage
            incomplete = incomplete or (path, found)
        if incomplete is not None:
            path, found = incomplete
            self._go_back_to(path)
            without = "going on without its episodes, so the run is no longer the one that its seed gives"
            others = [what for what in damage if what not in found.damage]
            return found._replace(damage=[*others, *(f"{what}: {without}" for what in found.damage)])
        if damage:
            raise RunError(f"no checkpoint of {self.path} is intact ({'; '.join(damage)}): start anew in another --out")
        if len(read_rows(self.path / "metrics.csv")) > 1:
            raise RunError(self._lost())
        for name in COPIED:  # of a run that was killed before its first checkpoint
            (self.path / name).unlink(missing_ok=True)
        raise FileNotFoundError(self.path)

    def _read_checkpoint(self, path: Path) -> Checkpoint:
        """With the segments that are intact; `Damaged` if the checkpoint itself is not."""
        manifest = self._verify(path)
        if manifest.get("config") != self._config_digest():
            raise RunError(
                f"{self.path / 'config.json'} is not what the run was trained with: put that back, or start anew"
            )
        segments, damage = {}, []
        for number, digest in sorted((int(number), digest) for number, digest in manifest["segments"].items()):
            try:
                segments[number] = from_npz(read_checked(self.path / "replay" / f"{number:06d}.npz", digest))
            except Damaged as error:
                damage.append(str(error))
        tensors = safetensors.torch.load((path / "tensors.safetensors").read_bytes())
        return Checkpoint(tensors, json.loads((path / "state.json").read_text()), segments, damage)

    def _go_back_to(self, checkpoint: Path) -> None:
        """Put newer ones out of the way, and forget what was measured after this one."""
        for newer in self._checkpoints():
            if newer.name > checkpoint.name:  # damaged, but there to look at
                shutil.rmtree(newer.with_suffix(".damaged"), ignore_errors=True)
                newer.rename(newer.with_suffix(".damaged"))
        for name in COPIED:
            if (checkpoint / name).exists():
                replace_file(self.path, name, (checkpoint / name).read_bytes())
            else:
                (self.path / name).unlink(missing_ok=True)

    def _checkpoints(self) -> list[Path]:
        return sorted(p for p in (self.path / "checkpoints").iterdir() if p.name.isdigit())

    def _verify(self, checkpoint: Path) -> dict[str, Any]:
        data = _read(checkpoint / "manifest.json")
        try:
            manifest = json.loads(data)
            digests = manifest["files"]
            if manifest.pop("checksum") != _sha256(json.dumps(manifest).encode()):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Damaged(f"{checkpoint / 'manifest.json'} is damaged") from None
        for name, digest in digests.items():
            read_checked(checkpoint / name, digest)
        return manifest

    def _forget_old(self) -> None:
        checkpoints = self._checkpoints()
        for path in checkpoints[:-KEPT]:
            shutil.rmtree(path)
        needed: set[int] = set()
        for path in checkpoints[-KEPT:]:
            try:
                needed |= {int(n) for n in json.loads((path / "manifest.json").read_text())["segments"]}
            except (OSError, ValueError, KeyError):
                continue  # damaged: it cannot be resumed from anyway
        for segment in (self.path / "replay").glob("*.npz"):
            if segment.stem.isdigit() and int(segment.stem) not in needed:
                segment.unlink()


def default_folder(
    task: str, network: str, recipe: str, seed: int, collisions: bool | None = None, root: Path = Path("runs")
) -> Path:
    """Where a run lies unless told otherwise.

    >>> str(default_folder("2-Switch|2-Push", "deep-set", "fast", 0))
    'runs/2-Switch-or-2-Push-deep-set-fast-0'
    """
    title = f"{task}-collisions" if collisions else task
    return root / file_name(f"{title}-{network}-{recipe}-{seed}")


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a metrics.csv or timings.csv; none if it is not there yet, and not one whose writing was cut off."""
    if not path.exists():
        return []
    whole, newline, _ = path.read_text(errors="replace").rpartition("\n")
    return list(csv.DictReader(io.StringIO(whole + newline)))


def as_stored(config: "DataclassInstance") -> dict[str, Any]:
    """A configuration as config.json gives it back: lists for tuples."""
    return json.loads(json.dumps(asdict(config)))


def minutes(timing: dict[str, str]) -> float:
    """How long a run had been trained by its own clock at this row of its timings.csv."""
    try:
        return sum(float(timing[part]) for part in CLOCK) / 60
    except (KeyError, TypeError, ValueError):
        raise RunError(f"a row of timings.csv is damaged ({timing}): the run's newest checkpoint has a copy") from None


def read_policy(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a policy file and what it says about itself."""
    in_run = (path.parent / "config.json").exists()
    try:
        path.open("rb").close()  # safetensors says of every file that it cannot open that it is not there
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = json.loads(metadata["about"])
        if metadata["sha256"] != _sha256_of_policy(tensors, metadata["about"]):
            mended = (
                f"efmdp train resume {path.parent} puts a copy in its place" if in_run else "take another copy of it"
            )
            raise RunError(f"{path} is damaged: {mended}")
        return tensors, about
    except FileNotFoundError:
        hint = f"efmdp train resume {path.parent} makes one" if in_run else "name a run or a policy file"
        raise RunError(f"there is no policy at {path}: {hint}") from None
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise RunError(f"{path} is not a policy of efmdp ({error})") from None


def _in_order(data: bytes) -> bytes:
    """A safetensors file with sorted metadata, which safetensors writes in any order: equal policies, equal bytes."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def _sha256_of_policy(tensors: dict[str, Tensor], about: str) -> str:
    """Of everything that a policy file holds: safetensors itself has no checksum."""
    digest = hashlib.sha256(about.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def only_process_in(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, which is made if needed."""
    with clear_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    deadline = time.monotonic() + float(os.environ.get(PATIENCE, 0))
    while not _locked(lock):
        if time.monotonic() >= deadline:
            lock.close()
            raise RunError(f"{folder} is in use by another process: wait for it, or choose another --out")
        time.sleep(1)
    try:
        yield
    finally:
        lock.close()


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def replace_file(folder: Path, name: str, data: bytes) -> str:
    """Write a file of a folder so that it is either wholly old or wholly new; returns its SHA-256."""
    path = folder / name
    temporary = path.with_name(path.name + ".tmp")
    with clear_errors(folder):
        try:
            _write_synced(temporary, data)
            os.rename(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        _sync_directory(path.parent)
    return _sha256(data)


def read_checked(path: Path, digest: str) -> bytes:
    data = _read(path)
    if _sha256(data) != digest:
        raise Damaged(f"{path} is damaged")
    return data


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except PermissionError:  # it may be intact
        raise RunError(f"{path} may not be read: check its permissions") from None
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        raise Damaged(f"{path} is missing" if missing else f"{path} is damaged ({error.strerror})") from None


def to_npz(arrays: dict[str, Array]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def from_npz(data: bytes) -> dict[str, Array]:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)


def versions() -> dict[str, str]:
    """What a run depends on, for its config.json."""
    names = ("efmdp", "torch", "mujoco", "numpy", "gymnasium")
    return {name: version(name) for name in names} | {"python": platform.python_version(), "commit": _commit()}


def short_commit(commit: str) -> str:
    """
    >>> short_commit("0123456789abcdef+")  # of code that was changed since
    '0123456789+'
    """
    return commit[:10] + "+" * commit.endswith("+")


def _commit() -> str:
    """Of the checkout that this is, with a plus where its code was changed since; unknown where it is none."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():  # installed, perhaps somewhere inside another repository
        return "unknown"

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "efmdp", "benchmarks")
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):  # no git here
        return "unknown"


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Say in one line what the disk refused; what was there stays."""
    try:
        yield
    except OSError as error:
        hint = "free some space" if error.errno == errno.ENOSPC else "check its permissions, or choose another --out"
        raise RunError(f"cannot write to {path}: {error.strerror}. Nothing that was there is lost; {hint}") from None


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(config: dict[str, Any] | None) -> str:
    return _sha256(json.dumps(config).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
