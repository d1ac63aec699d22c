"""Do the steps of experiments: on this machine, several side by side, or on a Ray cluster.

Every step is a process of its own, which dies with the one that started it. What was done is never done again, and a
training that was killed goes on from its last epoch, so all of this may be stopped at any moment and started again.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from efmdp.entities import UserError
from efmdp.experiments import Evaluating, Step
from efmdp.runs import PATIENCE

LOGS = Path("runs") / "logs"
RETRIES = 3  # of a step whose Ray worker died
# The first argument is the process that it must not outlive.
CHILD = (
    "import sys; from efmdp.process import die_with; die_with(int(sys.argv.pop(1))); from efmdp.cli import main; main()"
)
OLDEST_STATE = 0.2  # seconds between looks at what works


class Told(NamedTuple):
    """What became of a step, for whoever follows."""

    step: Step
    outcome: str  # started, working, done, failed, or skipped as something that it needs failed
    seconds: float = 0.0


Tell = Callable[[Told], None]


class Backend(Protocol):
    """Where steps are done: started and watched, one name each."""

    places: int

    def start(self, step: Step) -> None: ...
    def ended(self) -> Iterator[tuple[Step, bool]]: ...
    def stop(self) -> None: ...


def do(steps: Sequence[Step], backend: Backend, deadline: float, tell: Tell) -> bool:
    """All steps, each after what it needs; whether none failed. At the deadline what works is stopped, and saved."""
    waiting, working, broken = list(steps), dict[Step, float](), set[Step]()
    needs = {step: step.needs for step in steps}  # worked out once: it takes a look at files
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is a Ctrl-C
    try:
        while (waiting or working) and time.monotonic() < deadline:
            for step in list(waiting):
                if broken.intersection(needs[step]):
                    waiting.remove(step)
                    broken.add(step)
                    tell(Told(step, "skipped"))
            while len(working) < backend.places and (ready := _next(waiting, working, needs)) is not None:
                waiting.remove(ready)
                working[ready] = time.monotonic()
                tell(Told(ready, "started"))
                backend.start(ready)
            for step, well in backend.ended():
                seconds = time.monotonic() - working.pop(step)
                outcome = "done" if well and step.is_done else "failed"
                if outcome == "failed":
                    broken.add(step)
                tell(Told(step, outcome, seconds))
            for step in working:
                tell(Told(step, "working"))
            time.sleep(OLDEST_STATE)
    finally:
        backend.stop()
        signal.signal(signal.SIGTERM, before)
    return not broken


def _next(waiting: Sequence[Step], working: dict[Step, float], needs: Mapping[Step, Sequence[Step]]) -> Step | None:
    """The first whose needs are met. What is timed comes last, and has the machine for itself."""
    if any(_is_timed(step) for step in working):
        return None
    unfinished = {*waiting, *working}
    ready = [step for step in waiting if not unfinished.intersection(needs[step])]
    untimed = [step for step in ready if not _is_timed(step)]
    return untimed[0] if untimed else ready[0] if ready and not working else None


def _is_timed(step: Step) -> bool:
    return isinstance(step, Evaluating) and step.study == "timing"


class Here:
    """Processes of this machine; what they say goes to a file each."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.processes: dict[Step, subprocess.Popen[bytes]] = {}

    def start(self, step: Step) -> None:
        self.processes[step] = _process(step.command, log_of(step))

    def ended(self) -> Iterator[tuple[Step, bool]]:
        for step in [step for step, process in self.processes.items() if process.poll() is not None]:
            yield step, self.processes.pop(step).returncode == 0

    def stop(self) -> None:
        """A training saves all that it has."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait()


class OnRay:
    """Tasks of a Ray cluster whose machines all see this folder under the same path."""

    def __init__(self, address: str | None) -> None:
        self.ray = _ray()
        quiet = {"log_to_driver": False, "logging_level": "error", "include_dashboard": False}
        if address is not None:
            quiet.pop("include_dashboard")
        _check_reachable(address)
        try:
            self.ray.init(address=address or "local", **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise _no_cluster(address, error) from None
        self.places = 10**6  # Ray itself lets them wait for a free core
        self.references: dict[Step, Any] = {}

    def start(self, step: Step) -> None:
        remote = self.ray.remote(num_cpus=1, max_retries=RETRIES)(work)
        log = log_of(step).absolute()
        self.references[step] = remote.options(name=step.name).remote(step.command, str(log), str(Path.cwd()))

    def ended(self) -> Iterator[tuple[Step, bool]]:
        steps = {reference: step for step, reference in self.references.items()}
        ready, _ = self.ray.wait(list(steps), num_returns=len(steps), timeout=0) if steps else ([], [])
        for reference in ready:
            step = steps[reference]
            del self.references[step]
            try:
                yield step, self.ray.get(reference) == 0
            except self.ray.exceptions.RayError as error:
                LOGS.mkdir(parents=True, exist_ok=True)
                with log_of(step).open("a") as log:
                    print(error, file=log)
                yield step, False

    def stop(self) -> None:
        for reference in self.references.values():
            self.ray.cancel(reference)
        with suppress(self.ray.exceptions.RayError):  # what was cancelled says so
            self.ray.wait(list(self.references.values()), num_returns=len(self.references), timeout=60)
        self.ray.shutdown()


def work(command: Sequence[str], log: str, folder: str) -> int:
    """What a Ray worker does: one step, in a process of its own, in the shared folder; its exit code."""
    process = _process(command, Path(log), folder)
    try:
        while process.poll() is None:  # Ray cannot interrupt a longer wait
            time.sleep(OLDEST_STATE)
        return process.returncode
    finally:  # cancelled: a training saves all that it has
        process.terminate()
        process.wait()


def available_cores() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def log_of(step: Step) -> Path:
    return LOGS / f"{step.name}.log"


def lines_of(step: Step) -> list[str]:
    """What a step has said, and those of its name before it."""
    log = log_of(step)
    return log.read_text().splitlines() if log.exists() else []


def _process(command: Sequence[str], log: Path, folder: str | None = None) -> "subprocess.Popen[bytes]":
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        return subprocess.Popen(
            [sys.executable, "-c", CHILD, str(os.getpid()), *command],
            stdout=file,
            stderr=file,
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", PATIENCE: "300"},
        )


def _check_reachable(address: str | None) -> None:
    """Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            raise _no_cluster(address, error) from None


def _no_cluster(address: str | None, error: Exception) -> UserError:
    reason = " ".join(str(error).split())
    where = address or "this machine"
    return UserError(f"no Ray cluster answers at {where} ({reason}): docs/cluster.md shows how to start one")


def _ray() -> Any:
    try:
        import ray  # an extra: all but clusters works without it
    except ImportError:
        raise UserError("clusters need Ray: pip install 'efmdp[ray]'") from None
    return ray
