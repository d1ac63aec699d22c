"""Speed of learning: updates per second, floating-point efficiency, and a race to 90 % on 1-Push.

python -m benchmarks.learning [--parts updates efficiency race] [--threads 2] [--give-up 10] [--out OUT.json] prints a
table, then one JSON line. With --out, the parts that are not measured stay in the file as they are. The peer
is Stable-Baselines3's DDPG with hindsight replay, in learning_peer.py.

- Updates: sampling, relabelling and one gradient step of actor and critic, in rounds that take turns.
- Efficiency: the matrix products of an update, over its time, against the fastest of three sizes of matrix products by
  its median over rounds; the ratio is the median of those within a round.
- Race: wall-clock from the start of learning to a success of 90 % in 100 episodes, evaluations and imports excluded,
  our checkpoints included. Every learner has one core and one thread. The peer runs twice: on our environment, and
  on Gymnasium-Robotics' FetchPush in a virtual environment built once in .benchmarks/learning-peer-venv. It is given
  up at the first evaluation after --give-up times our time; what is then shown of it is a lower bound.
"""

import argparse
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Any, Literal

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import learning_peer
from benchmarks.simulation import Ratio, add_verdicts, build_peer, verdict
from efmdp.env import FETCH_DIMS
from efmdp.networks import Kind
from efmdp.recipes import fast, make_network
from efmdp.runs import Run, read_rows, versions
from efmdp.tasks import parse_task
from efmdp.train import Trainer, train_ddpg

PARTS = ("updates", "efficiency", "race")
ROUNDS = 16
TRANSITIONS = 20_000  # in the replays of the updates
BATCHES: list[tuple[Kind, int]] = [
    ("deep-set", 2048),
    ("deep-set", 256),
    ("mlp", 2048),
    ("mlp", 256),
    ("self-attention", 256),
]
LARGEST_ROUND = 4096  # transitions that a round of updates uses where the efficiency is measured
EFFICIENCY = {"deep-set, batch 2048": 0.6}  # targets
PRODUCTS = (1024, 1536, 2048)  # sizes of the square matrices that measure the machine
OUR_ENVIRONMENT = "efmdp:efmdp/Fetch1Push-v1"
PEER_ENVIRONMENT = "gymnasium_robotics:FetchPush-v4"
PEER_PINS = [
    "gymnasium-robotics==1.4.2",
    "gymnasium==1.4.0",
    "mujoco==3.11.0",
    "numpy==2.4.6",
    "torch==2.13.0",
    "stable-baselines3==2.9.2",
]
PEER_HOME = Path(".benchmarks/learning-peer-venv")
GOAL = 0.9
OURS = "import sys, pathlib; from benchmarks.learning import learn_ours; learn_ours(pathlib.Path(sys.argv[1]))"

Tell = Callable[[str], None]


def rate(run: Callable[[], object], count: int, seconds: float) -> float:
    """How often a second something happens, of which a call does `count`."""
    done, began = 0, time.perf_counter()
    while True:
        run()
        done += count
        spent = time.perf_counter() - began
        if spent >= seconds:
            return done / spent


def take_turns(
    runs: dict[str, tuple[Callable[[], object], int]], rounds: int, seconds: float, tell: Tell
) -> dict[str, list[float]]:
    """The rates of every run in every round, after a call of each to warm up."""
    for run, _ in runs.values():
        run()
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds):
        for name in list(runs)[:: -1 if turn % 2 else 1]:
            tell(f"round {turn + 1} of {rounds}: {name}")
            rates[name].append(round(rate(*runs[name], seconds), 2))
    return rates


def our_trainer(kind: Kind, task: str, threads: int, transitions: int, **settings: Any) -> Trainer:
    """Our learner with so many explored transitions; its `learn` makes `updates_per_round` whole updates."""
    recipe = fast(task, make_network(kind, parse_task(task).entities), seed=0, curriculum=False)
    every_update = replace(recipe.ddpg, actor_every=1)  # both networks each time, as the peer
    nowhere = Run(Path(os.devnull))  # nothing is saved
    trainer = Trainer(replace(recipe, ddpg=every_update, threads=threads, **settings), nowhere, "cpu")
    while trainer.steps < transitions:
        trainer.collect()
    return trainer


def linear_layers(*modules: nn.Module) -> list[nn.Linear]:
    return [layer for module in modules for layer in module.modules() if isinstance(layer, nn.Linear)]


def parameters(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


def measure_updates(
    threads: int, transitions: int, rounds: int, seconds: float, tell: Tell
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Updates a second, and how many parameters they update."""
    count = learning_peer.UPDATES
    runs: dict[str, tuple[Callable[[], object], int]] = {}
    sizes = {}
    for kind in ("mlp", "deep-set"):
        tell(f"filling the replay of our {kind}")
        batch = learning_peer.BATCH
        ours = our_trainer(kind, "1-Push", threads, transitions, batch_size=batch, updates_per_round=count)
        runs[f"ours {kind}"] = (ours.learn, count)
        sizes[f"ours {kind}"] = parameters(ours.agent.actor, ours.agent.critic)
        if kind == "mlp":
            our_layers = linear_layers(ours.agent.actor, ours.agent.critic)
    for name, optimiser in (("SB3", {}), ("SB3, fused Adam", {"fused": True})):
        tell(f"filling the replay of {name}")
        policy = {"net_arch": learning_peer.LAYERS, "optimizer_kwargs": optimiser}
        peer = learning_peer.make_model(OUR_ENVIRONMENT, 0, learning_starts=transitions, policy_kwargs=policy)
        peer.learn(transitions)
        runs[name] = (lambda peer=peer: peer.train(count, learning_peer.BATCH), count)  # type: ignore[misc]
        sizes[name] = parameters(peer.actor, peer.critic)
        assert (peer.policy_delay, peer.critic.n_critics) == (1, 1)  # all of TD3's additions are off
        assert same_layers(our_layers, linear_layers(peer.actor, peer.critic))
    return take_turns(runs, rounds, seconds, tell), sizes


def same_layers(ours: list[nn.Linear], theirs: list[nn.Linear]) -> bool:
    """The same but for the peer's first layers, which also see the achieved goal, a part of the observation."""
    return [(layer.out_features, layer.in_features) for layer in ours] == [
        (layer.out_features, layer.in_features - (FETCH_DIMS.goal if index in (0, len(theirs) // 2) else 0))
        for index, layer in enumerate(theirs)
    ]


def count_flops(trainer: Trainer) -> int:
    """Operations in the matrix products of one update."""
    config = trainer.config
    batch = trainer.replay.sample(config.batch_size, config.relabel_prob, trainer.rng)
    with FlopCounterMode(display=False) as counter:
        trainer.agent.update(batch, trainer.largest_cost(trainer.env.num_entities))
    return counter.get_total_flops()


def measure_efficiency(
    batches: list[tuple[Kind, int]], threads: int, transitions: int, rounds: int, seconds: float, tell: Tell
) -> dict[str, list[float]]:
    """Operations a second of matrix products and of whole updates on 3-Push."""
    runs: dict[str, tuple[Callable[[], object], int]] = {}
    for n in PRODUCTS:
        matrix, out = torch.randn(n, n), torch.empty(n, n)
        runs[f"product of {n}"] = (lambda m=matrix, out=out: torch.mm(m, m, out=out), 2 * n**3)  # type: ignore[misc]
    for kind, batch in batches:
        tell(f"filling the replay of {kind}")
        count = LARGEST_ROUND // batch
        trainer = our_trainer(kind, "3-Push", threads, transitions, batch_size=batch, updates_per_round=count)
        runs[f"{kind}, batch {batch}"] = (trainer.learn, count * count_flops(trainer))
    return take_turns(runs, rounds, seconds, tell)


def efficiency_rows(rates: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Against the size that is fastest as a rule: the fastest of each round would be the luckiest."""
    best = max((f"product of {n}" for n in PRODUCTS), key=lambda name: median(rates[name]))
    updates = [name for name in rates if not name.startswith("product")]
    return [Ratio(f"efficiency: {name}", name, best, EFFICIENCY.get(name)).row(rates) for name in updates]


def learn_ours(out: Path) -> None:
    """Our contestant, for a process of its own: the fast recipe in the run directory `out`, in the peer's lines.

    The clock includes building environments and networks, which the peer's does not.
    """
    if importlib.util.find_spec("tensorboard") is not None:
        import torch.utils.tensorboard  # noqa: F401 (which training would import on the clock)
    config = replace(fast("1-Push", make_network("deep-set", 1), seed=0), threads=1)
    began = time.perf_counter()

    def report(progress: dict[str, Any]) -> None:
        if progress["round"] == 0:  # an epoch is over
            now = time.perf_counter()
            evaluating = float(read_rows(out / "timings.csv")[-1]["evaluate"])
            seconds = round(now - began - evaluating, 2)
            line = {"steps": progress["steps"], "seconds": seconds, "success": progress["success"]}
            print(json.dumps(line), flush=True)

    train_ddpg(config, out, report=report)


Outcome = Literal["waiting", "learning", "reached", "given up", "ended", "called off"]


@dataclass(eq=False)
class Contestant:
    """A learner in a process of its own, on one core: its evaluations arrive as JSON lines."""

    name: str
    command: list[str]
    log: Path
    outcome: Outcome = "waiting"
    curve: list[dict[str, float]] = field(default_factory=list)

    def start(self, core: int, lines: SimpleQueue[tuple["Contestant", str]]) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self.command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        os.sched_setaffinity(self.process.pid, {core})  # before it has had time to start threads
        self.core, self.outcome = core, "learning"
        threading.Thread(target=self._listen, args=(lines,), daemon=True).start()

    def _listen(self, lines: SimpleQueue[tuple["Contestant", str]]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            lines.put((self, line))
        lines.put((self, ""))  # it has ended

    def stop(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.process.kill()
        self.process.wait()

    @property
    def last(self) -> dict[str, float]:
        return self.curve[-1] if self.curve else {"steps": 0, "seconds": 0.0, "success": 0.0}

    def __str__(self) -> str:
        last = self.last
        return f"{100 * last['success']:.0f} % at {last['steps']:,} steps, {last['seconds']:,.0f} s ({self.outcome})"


def race(contestants: list[Contestant], cores: list[int], give_up: float, tell: Tell) -> None:
    """Start everyone as cores become free, stop whoever reaches the goal or takes too long: the first sets the pace.

    If the first ends without having reached the goal, the race is called off.
    """
    leader, waiting, running = contestants[0], list(contestants), list[Contestant]()
    free, limit = list(cores), float("inf")
    lines: SimpleQueue[tuple[Contestant, str]] = SimpleQueue()
    try:
        while (waiting or running) and leader.outcome != "ended":
            while waiting and free:
                running.append(waiting.pop(0))
                running[-1].start(free.pop(0), lines)
            tell("; ".join(f"{contestant.name}: {contestant}" for contestant in running))
            contestant, line = lines.get()
            if contestant not in running:
                continue  # its last words, after it was stopped
            if line:
                contestant.curve.append(json.loads(line))
            if not line:
                contestant.stop("ended")
            elif contestant.last["success"] >= GOAL:
                contestant.stop("reached")
            elif contestant.last["seconds"] > limit:
                contestant.stop("given up")
            else:
                continue
            running.remove(contestant)
            free.append(contestant.core)
            if contestant is leader:
                limit = give_up * leader.last["seconds"]
    finally:
        for contestant in running:
            contestant.stop("called off")


def run_race(give_up: float, tell: Tell) -> list[Contestant]:
    """Ours, the peer on our environment, the peer on FetchPush."""
    tell("the peer's virtual environment")
    peer_python = build_peer(PEER_HOME, PEER_PINS)
    script, logs = str(Path(learning_peer.__file__)), PEER_HOME.parent
    with tempfile.TemporaryDirectory() as out:
        contestants = [
            Contestant("ours", [sys.executable, "-c", OURS, out], logs / "learning-ours.log"),
            Contestant("SB3 on ours", [sys.executable, script, OUR_ENVIRONMENT], logs / "learning-sb3-on-ours.log"),
            Contestant("SB3 on FetchPush", [str(peer_python), script, PEER_ENVIRONMENT], logs / "learning-sb3.log"),
        ]
        race(contestants, sorted(os.sched_getaffinity(0)), give_up, tell)
    return contestants


def race_rows(ours: Contestant, *peers: Contestant) -> list[dict[str, Any]]:
    """How much longer the peers took; `bound` marks what is only known to be more."""
    rows = []
    for peer in peers if ours.outcome == "reached" else ():
        if peer.outcome not in ("reached", "given up"):
            continue
        bound = peer.outcome == "given up"
        for what, key, target in (("seconds", "seconds", 5), ("steps", "steps", None)):
            row = verdict(
                f"{what} to {100 * GOAL:.0f} %: {peer.name} / ours", peer.last[key] / ours.last[key], target, False
            )
            if bound and not row["ok"]:
                row["ok"] = None  # a bound below the target says nothing
            rows.append(row | {"bound": bound})
    return rows


def update_rows(rates: dict[str, list[float]]) -> list[dict[str, Any]]:
    return [
        Ratio("updates/s: ours mlp / SB3", "ours mlp", "SB3", 1.3).row(rates),
        Ratio("updates/s: ours mlp / SB3, fused Adam", "ours mlp", "SB3, fused Adam").row(rates),
    ]


def spread(values: list[float], unit: float, what: str) -> str:
    middle, low, high = (f"{value / unit:,.1f}" for value in (median(values), min(values), max(values)))
    return f"{middle} {what} ({low} to {high})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="all if not given; the race is long")
    parser.add_argument("--threads", type=int, default=2, help="of torch, but for the race")
    parser.add_argument("--seconds", type=float, default=12, help="for each rate, over all rounds")
    parser.add_argument("--give-up", type=float, default=10, help="on a peer after so many times our time")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    args = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an orderly end, which stops the contestants
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    table = Table(title=f"Learning, {args.threads} threads, {os.cpu_count()} CPUs; one core each in the race")
    table.add_column("")
    for column in ("measured", "target", "ok"):
        table.add_column(column, justify="right")
    ended: list[Contestant] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("")

        def tell(what: str) -> None:
            progress.update(task, description=what)

        measured: dict[str, dict[str, Any]] = {}
        how = (args.threads, TRANSITIONS, ROUNDS, args.seconds / ROUNDS, tell)
        if "updates" in args.parts:
            rates, sizes = measure_updates(*how)
            for name, values in rates.items():
                table.add_row(f"{name}, {sizes[name]:,} parameters", spread(values, 1, "updates/s"))
            measured["updates"] = {"parameters": sizes, "per_second": rates, "results": update_rows(rates)}
        if "efficiency" in args.parts:
            flops = measure_efficiency(BATCHES, *how)
            for name, values in flops.items():
                table.add_row(name, spread(values, 1e9, "GFLOP/s"))
            measured["efficiency"] = {"flops_per_second": flops, "results": efficiency_rows(flops)}
        if "race" in args.parts:
            try:
                contestants = run_race(args.give_up, tell)
            except KeyboardInterrupt:
                sys.exit("interrupted: every contestant was stopped")
            for one in contestants:
                table.add_row(one.name, str(one))
            curves = {one.name: {"outcome": one.outcome, "curve": one.curve} for one in contestants}
            measured["race"] = {"give_up": args.give_up, "contestants": curves, "results": race_rows(*contestants)}
            ended = [contestant for contestant in contestants if contestant.outcome == "ended"]
    table.add_section()
    add_verdicts(table, [row for part in measured.values() for row in part["results"]])
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    for part in measured.values():
        part |= circumstances(args.threads, args.seconds)
    if args.out is not None and args.out.exists():
        measured = json.loads(args.out.read_text())["parts"] | measured
    line = json.dumps({"benchmark": "learning", "parts": measured})
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(line + "\n")
    print(line)
    for contestant in ended:
        print(f"{contestant.name} ended without reaching {100 * GOAL:.0f} %: see {contestant.log}", file=sys.stderr)
    sys.exit(1 if ended else 0)


def circumstances(threads: int, seconds: float) -> dict[str, Any]:
    return {
        "threads": threads,
        "seconds": seconds,
        "rounds": ROUNDS,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "versions": versions() | {"stable-baselines3": version("stable-baselines3")},
        "peer": PEER_PINS,
    }


if __name__ == "__main__":
    main()
