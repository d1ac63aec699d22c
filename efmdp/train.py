"""Training: `train_ddpg` is the whole loop, readable top to bottom."""

import ctypes
import importlib.util
import json
import math
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from efmdp.ddpg import DDPG, NonFinite
from efmdp.domains import make_env
from efmdp.entities import Array, EntityEnv, Objective
from efmdp.evaluate import LEARNING, SELECTION, TRAINING, about_policy, play_episodes, policy_tensors, stream_seed
from efmdp.recipes import Exploration, Stage, TrainConfig
from efmdp.replay import Episodes, Replay
from efmdp.runs import CLOCK, Run, RunError

M_MMAP_THRESHOLD = -3  # of glibc's malloc.h

Report = Callable[[dict[str, Any]], None]


def train_ddpg(
    config: TrainConfig,
    out: Path,
    epochs: int | None = None,
    device: str = "cpu",
    report: Report = lambda _: None,
    warn: Callable[[str], None] = print,
    minutes: float | None = None,
) -> bool:
    """Train in the run directory `out`, from its newest checkpoint if it has one. True when all epochs are done.

    Ctrl-C ends it after the current round, and the end of its `minutes` after the current epoch, with everything saved.
    `report` is told of every round, `warn` of damage.
    """
    deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
    with _tuned_process(config.threads), Run(out).held() as run, _Interruption() as interruption:
        _claim(run, config)
        trainer = Trainer(config, run, device)
        for damage in trainer.load():
            warn(f"{damage}: going on from the checkpoint before it")
        last = sum(stage.epochs for stage in config.stages) if epochs is None else epochs
        while trainer.epoch < last and not trainer.finished:
            trainer.collect()
            trainer.learn()
            trainer.round += 1
            if trainer.round == config.rounds_per_epoch:
                trainer.finish_epoch()
            stop = interruption.wanted
            if trainer.round == 0 or stop:
                trainer.save()
            report(trainer.progress())
            if stop or (trainer.round == 0 and time.monotonic() >= deadline):
                break
        return trainer.finished or trainer.epoch >= last


class Trainer:
    """Environment, agent, replay and counters of one run: built here, advanced by the loop above."""

    def __init__(self, config: TrainConfig, run: Run, device: str) -> None:
        self.config, self.run = config, run
        self.rng = np.random.default_rng(stream_seed(config.seed, LEARNING))
        self.stage_index = self.stage_epoch = self.epoch = self.round = self.steps = 0
        self.best = -1.0
        self.finished = False
        self.success: float | None = None  # on the selection seeds, in the last epoch
        self.success_on: str | None = None  # the task of that epoch
        self.sums: dict[str, float] = {}
        self.clock = dict.fromkeys(CLOCK, 0.0)
        self.segments: dict[int, tuple[str, int]] = {}  # replay on disk: SHA-256 and episodes of each segment
        self.next_segment = 0
        self.unsaved: list[Episodes] = []
        first = make_env(config.task, collisions=config.collisions, gripper=config.gripper)
        self.agent = DDPG(config.network, first.dims, config.ddpg, first.usable_actions, config.seed, device)
        self._enter_stage()

    @property
    def stage(self) -> Stage:
        return self.config.stages[self.stage_index]

    def _enter_stage(self) -> None:
        """New environments and an empty replay; the networks go on."""
        config = self.config

        def make(num_envs: int) -> EntityEnv:
            return make_env(
                self.stage.task,
                num_envs,
                collisions=config.collisions,
                gripper=config.gripper,
                num_threads=config.threads,
            )

        self.env = make(config.num_envs)
        self.env.reset(seed=stream_seed(config.seed + 1_000_003 * self.stage_index, TRAINING))
        self.selection_env = make(min(50, config.selection_episodes))
        self.agent.config = replace(config.ddpg, action_l2=self.stage.action_l2)
        self.replay = Replay(
            config.replay_capacity,
            self.env.max_horizon,
            self.env.num_entities,
            self.env.dims,
            self.env.achieved,
            _reward(self.env, config.objective),
            config.by_movement,
            config.redraws,
        )
        per_entity = 1.0 if config.objective.kind == "sparse" else self.env.largest_distance
        self.largest_cost = per_entity * (self.env.num_entities if config.objective.rule == "sum" else 1)
        self.segments = {}
        self.unsaved = []

    def collect(self) -> None:
        """One episode in every environment, with exploration, into the replay and the normaliser."""
        began = time.perf_counter()
        success = self.success if self.success is not None and self.success_on == self.stage.task else 0.0
        factor = self.stage.exploration.factor(self.stage_epoch, success)
        episodes, success = collect_episodes(self.env, self.agent, self.stage.exploration, factor, self.rng)
        self.replay.add(episodes)
        self.unsaved.append(episodes)
        self.agent.normaliser.learn(episodes, self.env.achieved(episodes.entities))
        self.steps += int(episodes.lengths.sum())
        self._sum({"training_success": success})
        self.clock["collect"] += time.perf_counter() - began

    def learn(self) -> None:
        began = time.perf_counter()
        self.agent.set_learning_rate(self.config.ddpg.learning_rate * self.stage.rate_factor(self.stage_epoch))
        losses: dict[str, float] = {}
        for _ in range(self.config.updates_per_round):
            batch = self.replay.sample(self.config.batch_size, self.config.relabel_prob, self.rng)
            losses |= self.agent.update(batch, self.largest_cost)
        self._sum(losses)
        self.clock["learn"] += time.perf_counter() - began

    def finish_epoch(self) -> None:
        """Evaluate on the selection seeds, write metrics and policies, and move to the next stage when it is time."""
        began = time.perf_counter()
        outcome = play_episodes(
            self.selection_env,
            self.agent,
            self.config.selection_episodes,
            stream_seed(self.config.seed, SELECTION),
        )
        self.clock["evaluate"] += time.perf_counter() - began
        self.success, self.success_on = float(outcome.success_once.mean()), self.stage.task
        self.epoch += 1
        self.stage_epoch += 1
        self.round = 0
        metrics = {
            "epoch": self.epoch,
            "task": self.stage.task,
            "steps": self.steps,
            "updates": self.agent.updates,
            "success_once": self.success,
            "success_end": float(outcome.success_end.mean()),
            "entities_solved": float(outcome.solved.mean()),
            "failures": self.env.failures,
            **{name: value / self.config.rounds_per_epoch for name, value in self.sums.items()},
        }
        self.run.append_row("metrics.csv", metrics)
        self._show_on_tensorboard(metrics)
        self.run.append_row("timings.csv", {"epoch": self.epoch, **self.clock, "peak_mb": _peak_megabytes()})
        self.sums = {}
        about = about_policy(self.agent, self.config.network, self.env, self.stage.task)
        about |= {"epoch": self.epoch, "steps": self.steps, "selection_success": self.success}
        self.run.write_policy("last", policy_tensors(self.agent), about)
        last_stage = self.stage_index == len(self.config.stages) - 1
        if last_stage and self.success > self.best:
            self.best = self.success
            self.run.write_policy("best", policy_tensors(self.agent), about)
        if self.stage_epoch >= self.stage.epochs or self.success >= self.stage.until:
            if last_stage:
                self.finished = True
            else:
                self.stage_index += 1
                self.stage_epoch = 0
                self._enter_stage()

    def _show_on_tensorboard(self, metrics: dict[str, Any]) -> None:
        """Scalars for TensorBoard, where it is installed; metrics.csv is what counts."""
        if importlib.util.find_spec("tensorboard") is None:
            return
        from torch.utils.tensorboard import SummaryWriter  # takes seconds to import

        with SummaryWriter(str(self.run.path / "tensorboard"), purge_step=self.epoch) as board:
            for name, value in metrics.items():
                if name not in ("epoch", "task"):
                    board.add_scalar(name, value, self.epoch)

    def progress(self) -> dict[str, Any]:
        busy = self.clock
        return {
            "epoch": self.epoch,
            "round": self.round,
            "task": self.stage.task,
            "steps": self.steps,
            "steps_per_second": self.steps / max(busy["collect"], 1e-9),
            "updates_per_second": self.agent.updates / max(busy["learn"], 1e-9),
            "success": self.success,
            "success_on": self.success_on,
        }

    def save(self) -> None:
        """Write everything that the next round depends on; only episodes since the last save are written anew."""
        began = time.perf_counter()
        if self.unsaved:
            arrays = [np.concatenate(field) for field in zip(*self.unsaved, strict=True)]
            digest = self.run.write_segment(self.next_segment, dict(zip(Episodes._fields, arrays, strict=True)))
            self.segments[self.next_segment] = (digest, len(arrays[0]))
            self.next_segment += 1
            self.unsaved = []
        self._drop_overwritten_segments()
        state = {
            "counters": {name: getattr(self, name) for name in _COUNTERS},
            "sums": self.sums,
            "clock": self.clock,
            "updates": self.agent.updates,
            "replay_added": self.replay.added,
            "segments": self.segments,
            "rng": self.rng.bit_generator.state,
            "environments": [rng.bit_generator.state for rng in self.env.rngs],
            "failures": self.env.failures,
        }
        number = self.epoch * self.config.rounds_per_epoch + self.round
        digests = {number: digest for number, (digest, _) in self.segments.items()}
        self.run.write_checkpoint(number, self.agent.tensors(), state, digests)
        self.clock["save"] += time.perf_counter() - began

    def _drop_overwritten_segments(self) -> None:
        """Keep the newest segments that together hold what the replay still holds."""
        held = 0
        for number in sorted(self.segments, reverse=True):
            if held >= len(self.replay):
                del self.segments[number]
            else:
                held += self.segments[number][1]

    def load(self) -> list[str]:
        """Go on from the newest intact checkpoint, if there is one. Returns what was damaged."""
        try:
            tensors, state, segments, damage = self.run.newest_checkpoint()
        except FileNotFoundError:
            return []
        for name, value in state["counters"].items():
            setattr(self, name, value)
        self._enter_stage()
        self.sums, self.clock = state["sums"], state["clock"]
        self.agent.load_tensors(tensors)
        self.agent.updates = state["updates"]
        self.segments = {int(number): tuple(entry) for number, entry in state["segments"].items()}
        self.replay.added = state["replay_added"] - sum(len(segment["lengths"]) for segment in segments)
        for segment in segments:
            self.replay.add(Episodes(**segment))
        self.rng.bit_generator.state = state["rng"]
        for rng, rng_state in zip(self.env.rngs, state["environments"], strict=True):
            rng.bit_generator.state = rng_state
        self.env.failures = state["failures"]
        return damage

    def _sum(self, measured: dict[str, float]) -> None:
        for name, value in measured.items():
            self.sums[name] = self.sums.get(name, 0.0) + value


_COUNTERS = (
    "stage_index",
    "stage_epoch",
    "epoch",
    "round",
    "steps",
    "best",
    "finished",
    "success",
    "success_on",
    "next_segment",
)


def collect_episodes(
    env: EntityEnv, agent: DDPG, exploration: Exploration, factor: float, rng: np.random.Generator
) -> tuple[Episodes, float]:
    """One explored episode in every slot, and the fraction that succeeded. Failed simulations are left out."""
    obs = env.reset()
    goals, lengths = obs.goals, env.horizons.copy()
    agents, entities, actions = [obs.agent], [obs.entities], []
    succeeded, failed = np.zeros(env.num_envs, bool), np.zeros(env.num_envs, bool)
    usable = agent.usable_actions.cpu().numpy()
    for t in range(env.max_horizon):
        wanted = agent.act_newest(obs)
        if not np.isfinite(wanted).all():
            raise NonFinite("an action of the actor is not finite")
        noise = exploration.noise * factor * rng.standard_normal(wanted.shape)
        random = rng.uniform(-1, 1, wanted.shape)
        coin = rng.random(env.num_envs) < exploration.random * factor
        action = (np.where(coin[:, None], random, wanted + noise).clip(-1, 1) * usable).astype(np.float32)
        step = env.step(action)
        obs = step.obs
        agents.append(obs.agent)
        entities.append(obs.entities)
        actions.append(action)
        playing = t < lengths
        failed |= playing & step.failed
        succeeded |= playing & step.success
    episodes = Episodes(np.stack(agents, 1), np.stack(entities, 1), goals, np.stack(actions, 1), lengths)
    for name, values in zip(("agent", "entities", "goals"), episodes, strict=False):
        if not np.isfinite(values).all():
            raise NonFinite(f"an observation ({name}) is not finite")
    return Episodes(*(field[~failed] for field in episodes)), float((succeeded & ~failed).mean())


def versions() -> dict[str, str]:
    """What a run depends on, for its config.json."""
    names = ("efmdp", "torch", "mujoco", "numpy", "gymnasium")
    root = Path(__file__).parents[1]
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    commit = git.stdout.strip() if git.returncode == 0 else "unknown"
    return {name: version(name) for name in names} | {"python": platform.python_version(), "commit": commit}


def _claim(run: Run, config: TrainConfig) -> None:
    """Write the configuration of a new run, or refuse a different one on an old run."""
    wanted = json.loads(json.dumps(asdict(config)))
    existing = run.config()
    if existing is None:
        run.write_config({"config": wanted, "versions": versions()})
        return
    differences = [name for name in wanted if wanted[name] != existing["config"].get(name)]
    if differences:
        shown = "; ".join(f"{name} was {existing['config'].get(name)}, now {wanted[name]}" for name in differences)
        raise RunError(f"{run.path} holds a different run ({shown}): choose another --out, or efmdp train resume it")


def _reward(env: EntityEnv, objective: Objective) -> Callable[[Array, Array], Array]:
    """The reward that is learned from, as a function of subgoals (..., N, G)."""
    objective = replace(objective, threshold=env.objective.threshold)
    return lambda achieved, desired: objective.reward(env.distance(achieved, desired), env.has_goal(desired))


@contextmanager
def _tuned_process(threads: int) -> Iterator[None]:
    """Fixed threads, and no slow arithmetic on tiny numbers, both as before afterwards; large blocks go back."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    _return_large_blocks()
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


def _return_large_blocks() -> None:
    """Freed blocks of 4 MB and more, such as a saved segment's, go back at once: glibc would keep the larger part of
    them, and the process would grow with every epoch. Elsewhere this does nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 4 * 2**20)


def _peak_megabytes() -> float:
    """The most memory that this process ever held."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


class _Interruption:
    """Ctrl-C, or a polite kill, becomes a wish to stop that the loop grants after its round."""

    wanted = False

    def __enter__(self) -> "_Interruption":
        self.previous = {s: signal.signal(s, self._wish) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _wish(self, *_: object) -> None:
        self.wanted = True

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)
