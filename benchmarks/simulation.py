"""Speed and memory of the simulation, side by side with Gymnasium-Robotics and with the bare limit of MuJoCo.

python -m benchmarks.simulation [--seconds 8] [--num-envs 64] [--out results/simulation.json] prints a table, then one
JSON line. The peer gets its own virtual environment, built once in .benchmarks/peer-venv. Contestants run interleaved
in rounds, so that noise hits all alike; numbers are medians over the rounds. The time to choose actions never counts.
"""

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import mujoco
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import efmdp  # noqa: F401 (registers the environments)
from benchmarks.peer import Act, Contestant, Vector, random_actions, rate
from efmdp.discs import DiscEnv
from efmdp.entities import EntityEnv
from efmdp.env import REACH_PER_STEP, FetchEnv
from efmdp.rollout import Policy
from efmdp.scene import Profile
from efmdp.scripted import Scripted
from efmdp.tasks import parse_task

ROUNDS = 12
CALIBRATION_SECONDS = 1.0
DISC_ENVS = 4096
PEER_PINS = ["gymnasium-robotics==1.4.2", "gymnasium==1.4.0", "mujoco==3.11.0", "numpy==2.4.6"]
PEER_HOME = Path(".benchmarks/peer-venv")

MEMORY = """
import json, resource, sys
import numpy as np
from efmdp.env import FetchEnv
from efmdp.tasks import parse_task
env = FetchEnv(parse_task("6-Push"), 16)
rng = np.random.default_rng(0)
for _ in range(int(env.horizons[0])):
    env.step(rng.uniform(-1, 1, (16, 4)))
unit = 2**20 if sys.platform == "darwin" else 2**10
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
print(json.dumps({"peak_mb": peak, "torch_imported": "torch" in sys.modules}))
"""


class RandomPolicy:
    def __init__(self, num_envs: int, size: int) -> None:
        self.act: Act = random_actions(num_envs, size)

    def reset(self, ids: np.ndarray | None = None) -> None:
        pass


class Ours:
    """Our batched environment: observations, rewards and resets included."""

    def __init__(self, env: EntityEnv, policy: Policy) -> None:
        self.env, self.policy = env, policy
        self.num_envs, self.horizon = env.num_envs, int(env.horizons[0])
        self.obs = env.reset(seed=0)

    def act(self) -> np.ndarray:
        self.policy.reset(np.flatnonzero(self.env.elapsed == 0))
        return self.policy.act(self.obs)

    def advance(self, actions: np.ndarray) -> None:
        step = self.env.step(actions)
        self.obs = self.env.reset(step.truncated) if step.truncated.any() else step.obs


class Limit:
    """The least that must be done: the same model, substeps and hand motion, episodes that begin in prepared states.

    No observations, rewards, checks or layouts; what a scripted controller looks at is computed off the clock.
    """

    STAGE, NOTHING = int(mujoco.mjtStage.mjSTAGE_VEL), int(mujoco.mjtStage.mjSTAGE_NONE)

    def __init__(self, env: FetchEnv, policy: Policy) -> None:
        self.env, self.policy = env, policy
        self.num_envs, self.horizon = env.num_envs, int(env.horizons[0])
        starts = []
        for seed in range(8):
            env.reset(seed=seed)
            starts.append(env._save())
        self.starts = itertools.cycle(starts)
        (simulations,) = env._tables
        self.batch, self.substeps = simulations.batch, simulations.scene.substeps
        self.hand, self.hand_target = simulations.hand, simulations.hand_target
        self.begin()

    def begin(self) -> None:
        start = next(self.starts)
        self.batch.reset(stage=self.NOTHING)
        self.batch.state[:] = start["state0"]
        self.batch.forward(stage=self.STAGE)
        self.env._goals = start["goals"]
        self.elapsed = 0

    def act(self) -> np.ndarray:
        if self.elapsed == 0:
            self.policy.reset()
        return self.policy.act(self.env.observe())

    def advance(self, actions: np.ndarray) -> None:
        self.hand_target[:] = self.hand + REACH_PER_STEP * actions[:, :3]
        self.batch.step(nstep=self.substeps, stage=self.STAGE)
        self.elapsed += 1
        if self.elapsed == self.horizon:
            self.begin()


class Single:
    """One Gymnasium environment."""

    num_envs = 1

    def __init__(self, env: gymnasium.Env, horizon: int) -> None:
        self.env, self.horizon = env, horizon
        self._act = random_actions(1, 4)
        env.reset(seed=0)

    def act(self) -> np.ndarray:
        return self._act(None)[0]

    def advance(self, actions: np.ndarray) -> None:
        _, _, _, truncated, _ = self.env.step(actions)
        if truncated:
            self.env.reset()


class Peer:
    """FetchPush-v4 in a process of its own; see peer.py."""

    def __init__(self) -> None:
        python = build_peer(PEER_HOME, PEER_PINS)
        script = Path(__file__).with_name("peer.py")
        self.log = PEER_HOME / "log.txt"
        with self.log.open("w") as log:
            command = [str(python), str(script), str(CALIBRATION_SECONDS)]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.info = self._answer()

    def rate(self, policy: str, seconds: float) -> float:
        assert self.process.stdin is not None
        print(json.dumps({"policy": policy, "seconds": seconds}), file=self.process.stdin, flush=True)
        return float(self._answer()["rate"])

    def close(self) -> None:
        self.process.communicate()  # closes its stdin, which ends it

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the peer ended unexpectedly: see {self.log}")
        return json.loads(line)


def build_peer(home: Path, pins: list[str]) -> Path:
    """A peer's interpreter; its virtual environment is built when missing or pinned otherwise."""
    python, stamp = home / "bin" / "python", home / "stamp.txt"
    wanted = "\n".join([platform.python_version(), *pins])
    if not stamp.exists() or stamp.read_text() != wanted:
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins]
        for command in ([sys.executable, "-m", "venv", "--clear", str(home)], install):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"building the peer's virtual environment failed:\n{done.stdout}{done.stderr}")
        stamp.write_text(wanted)
    return python


def our_contestants(num_envs: int) -> dict[str, Contestant]:
    def fetch(task: str, profile: Profile = "fast") -> FetchEnv:
        return FetchEnv(parse_task(task), num_envs, profile)

    found: dict[str, Contestant] = {}
    for task in ("1-Push", "3-Push", "6-Push"):
        found[f"ours {task}"] = Ours(fetch(task), RandomPolicy(num_envs, 4))
        found[f"limit {task}"] = Limit(fetch(task), RandomPolicy(num_envs, 4))
    for task in ("1-Push", "3-Push"):
        found[f"ours {task} scripted"] = Ours(fetch(task), Scripted(num_envs))
        found[f"limit {task} scripted"] = Limit(fetch(task), Scripted(num_envs))
    for name, task in (("efmdp/Fetch1Push-v1", "1-Push"), ("efmdp/Fetch3Push-v1", "3-Push")):
        found[f"ours {task} gymnasium.make"] = Single(gymnasium.make(name), parse_task(task).scenes[0].horizon)
    vector = gymnasium.make_vec(name, num_envs, autoreset_mode="SameStep")
    horizon = parse_task(task).scenes[0].horizon
    found[f"ours {task} gymnasium.make_vec"] = Vector(vector, horizon, random_actions(num_envs, 4))
    found["ours 3-Push, 16 environments"] = Ours(FetchEnv(parse_task("3-Push"), 16), RandomPolicy(16, 4))
    found["ours 1-Push reference profile"] = Ours(fetch("1-Push", "reference"), RandomPolicy(num_envs, 4))
    found["discs, 3, batch 4096"] = Ours(DiscEnv(DISC_ENVS, 3), RandomPolicy(DISC_ENVS, 2))
    return found


def measure_memory() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Ratio:
    name: str
    over: str
    under: str
    target: float | None = None
    at_most: bool = False

    def row(self, rates: dict[str, list[float]]) -> dict[str, Any]:
        """The median over rounds of the ratio within a round."""
        value = median(a / b for a, b in zip(rates[self.over], rates[self.under], strict=True))
        return verdict(self.name, value, self.target, self.at_most)


def verdict(name: str, value: float, target: float | None, at_most: bool) -> dict[str, Any]:
    ok = None if target is None else value <= target if at_most else value >= target
    return {"name": name, "measured": round(value, 4), "target": target, "at_most": at_most, "ok": ok}


RATIOS = [
    Ratio("1-Push / peer", "ours 1-Push", "peer", 12),
    Ratio("3-Push / peer (1 cube)", "ours 3-Push", "peer", 10),
    Ratio("3-Push, 16 environments / peer (1 cube)", "ours 3-Push, 16 environments", "peer"),
    *(Ratio(f"{task} / limit", f"ours {task}", f"limit {task}", 0.85) for task in ("1-Push", "3-Push", "6-Push")),
    Ratio("time of a 6-Push step / of a 1-Push step", "ours 1-Push", "ours 6-Push", 1.7, at_most=True),
    Ratio("scripted 1-Push / peer scripted", "ours 1-Push scripted", "peer scripted"),
    Ratio("scripted 3-Push / peer scripted (1 cube)", "ours 3-Push scripted", "peer scripted", 8),
    *(
        Ratio(f"scripted {task} / limit scripted", f"ours {task} scripted", f"limit {task} scripted")
        for task in ("1-Push", "3-Push")
    ),
    *(
        Ratio(f"{task} batched / gymnasium.make", f"ours {task}", f"ours {task} gymnasium.make")
        for task in ("1-Push", "3-Push")
    ),
    Ratio("3-Push gymnasium.make_vec / batched", "ours 3-Push gymnasium.make_vec", "ours 3-Push"),
    Ratio("1-Push fast / reference profile", "ours 1-Push", "ours 1-Push reference profile"),
    Ratio("discs / 3-Push", "discs, 3, batch 4096", "ours 3-Push", 100),
]


def add_verdicts(table: Table, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        target = "" if row["target"] is None else f"{'<=' if row['at_most'] else '>='} {row['target']:g}"
        ok = {None: "", True: "[green]yes", False: "[red]no"}[row["ok"]]
        sign = "> " if row.get("bound") else ""
        table.add_row(row["name"], f"{sign}{row['measured']:.2f}", target, ok)


def show(rates: dict[str, list[float]], rows: list[dict[str, Any]], best_peer: str, num_envs: int) -> None:
    table = Table(
        title=f"Simulation, {num_envs} environments, {os.cpu_count()} CPUs; the peer's best form is {best_peer}"
    )
    table.add_column("")
    for column in ("measured", "target", "ok"):
        table.add_column(column, justify="right")
    for name, values in rates.items():
        table.add_row(name, f"{median(values):,.0f} steps/s ({min(values):,.0f} to {max(values):,.0f})")
    table.add_section()
    add_verdicts(table, rows)
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8, help="of stepping for each contestant, over all rounds")
    parser.add_argument("--num-envs", type=int, default=64, help="environments in a batch of ours")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    args = parser.parse_args()

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("memory", total=None)
        # First, while this process is small: on Linux a child's peak starts from that of the process it came from.
        memory = measure_memory()
        from efmdp.runs import versions  # imports torch, which is large

        progress.update(task, description="the peer: virtual environment, best form")
        peer = Peer()
        progress.update(task, description="building ours")
        runs: dict[str, Callable[[float], float]] = {
            "peer": lambda seconds: peer.rate("random", seconds),
            "peer scripted": lambda seconds: peer.rate("scripted", seconds),
        }
        for name, contestant in our_contestants(args.num_envs).items():
            runs[name] = lambda seconds, contestant=contestant: rate(contestant, seconds)  # type: ignore[misc]
        for run in runs.values():
            run(0)  # an episode to warm up
        rates: dict[str, list[float]] = {name: [] for name in runs}
        progress.update(task, total=ROUNDS * len(runs))
        for turn in range(ROUNDS):
            for name in list(runs)[:: -1 if turn % 2 else 1]:
                progress.update(task, description=f"round {turn + 1} of {ROUNDS}: {name}")
                rates[name].append(round(runs[name](args.seconds / ROUNDS), 1))
                progress.advance(task)
        peer.close()

    rows = [ratio.row(rates) for ratio in RATIOS]
    rows.append(verdict("peak memory of 16 x 6-Push, MB", memory["peak_mb"], 500, at_most=True))
    rows.append(verdict("torch imported by it", float(memory["torch_imported"]), 0, at_most=True))
    show(rates, rows, peer.info["best"], args.num_envs)
    result = {
        "benchmark": "simulation",
        "num_envs": args.num_envs,
        "seconds": args.seconds,
        "rounds": ROUNDS,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "versions": versions(),
        "peer": peer.info,
        "steps_per_second": {name: {"median": median(values), "rounds": values} for name, values in rates.items()},
        "memory": memory,
        "results": rows,
    }
    line = json.dumps(result)
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
