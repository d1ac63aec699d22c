"""Training: `train_ddpg` and `train_bc`, one loop, readable top to bottom."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from efmdp.bc import BC, BCConfig
from efmdp.ddpg import DDPG
from efmdp.demos import Demos, disturbance
from efmdp.domains import make_env
from efmdp.entities import Array, EntityEnv, EntityObs, NonFinite, Objective, UserError
from efmdp.evaluate import LEARNING, TRAINING, stream_seed
from efmdp.ledger import Ledger
from efmdp.networks import NetworkConfig
from efmdp.process import Interruption, return_free_memory, tuned_process
from efmdp.recipes import Exploration, Stage, TrainConfig, learning_rate
from efmdp.replay import Episodes, Replay
from efmdp.runs import Run, RunError, as_stored, versions
from efmdp.scripted import SCRIPTED

Report = Callable[[dict[str, Any]], None]
SMOKE = "smoke-"  # how the names of such clones begin


def train_ddpg(
    config: TrainConfig,
    out: Path,
    epochs: int | None = None,
    device: str = "cpu",
    report: Report = lambda _: None,
    warn: Callable[[str], None] = print,
    minutes: float | None = None,
) -> bool:
    """Train by DDPG and hindsight in the run directory `out`, from its newest checkpoint if it has one.

    True when all epochs are done. Ctrl-C ends it after the current round, and the end of its `minutes` after the
    current epoch, with everything saved. `report` is told of every round, `warn` of damage.
    """
    with tuned_process(config.threads):
        return _train(Trainer(config, Run(out), device), {"method": "ddpg"}, epochs, report, warn, minutes)


def train_bc(
    config: BCConfig,
    demos: Demos,
    out: Path,
    epochs: int | None = None,
    device: str = "cpu",
    report: Report = lambda _: None,
    warn: Callable[[str], None] = print,
    minutes: float | None = None,
) -> bool:
    """Clone the behaviour in `demos` in the run directory `out`; everything else is as in `train_ddpg`."""
    about = {"method": "bc", "demos": str(demos.path.absolute())}  # where to resume from
    with tuned_process(config.threads):
        return _train(Cloner(config, demos, Run(out), device), about, epochs, report, warn, minutes)


def _train(
    trainer: "Trainer | Cloner",
    about: dict[str, str],
    epochs: int | None,
    report: Report,
    warn: Callable[[str], None],
    minutes: float | None,
) -> bool:
    """Rounds of collecting and learning, a test at the end of an epoch, and everything saved."""
    config, run = trainer.config, trainer.run
    last_epoch = config.epochs if epochs is None else epochs
    deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
    with run.held(), Interruption() as interruption:
        _claim(run, config, about)
        for damage in trainer.load():
            warn(damage)
        while trainer.epoch < last_epoch and not trainer.finished:
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
        return trainer.finished or trainer.epoch >= last_epoch


class Trainer(Ledger[TrainConfig]):
    """DDPG: environment, agent, replay and counters of one run, built here and advanced by the loop above."""

    COUNTERS = (*Ledger.COUNTERS, "stage_index", "stage_epoch", "steps", "next_segment")

    def __init__(self, config: TrainConfig, run: Run, device: str) -> None:
        super().__init__(config, run)
        self.rng = np.random.default_rng(stream_seed(config.seed, LEARNING))
        self.stage_index = self.stage_epoch = self.steps = 0
        self.segments: dict[int, tuple[str, int]] = {}  # replay on disk: SHA-256 and episodes of each segment
        self.next_segment = 0
        self.unsaved: list[Episodes] = []
        first = make_env(config.task, collisions=config.collisions, gripper=config.gripper)
        self.agent = DDPG(config.network, first.dims, config.ddpg, first.usable_actions, config.seed, device)
        self._enter_stage()

    @property
    def stage(self) -> Stage:
        return self.config.stages[self.stage_index]

    @property
    def known_success(self) -> float:
        """On the selection seeds of this stage's task in the last epoch; 0 before there was one."""
        return self.success if self.success is not None and self.success_on == self.stage.task else 0.0

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
        self.segments = {}
        self.unsaved = []

    def collect(self) -> None:
        """One episode in every environment, with exploration, into the replay and the normaliser."""
        with self.timed("collect"):
            factor = self.stage.exploration.factor(self.stage_epoch, self.known_success)
            episodes, success = collect_episodes(self.env, self.agent, self.stage.exploration, factor, self.rng)
            self.replay.add(episodes)
            self.unsaved.append(episodes)
            self.agent.normaliser.learn(episodes, self.env.achieved(episodes.entities))
            self.steps += int(episodes.lengths.sum())
            self.measure({"training_success": success})

    def learn(self) -> None:
        """From all entities, or as long as it does not succeed, from another number of them in every round."""
        config, steps, entities = self.config, self.config.updates_per_round, self.env.num_entities
        with self.timed("learn"):
            if config.subsets and self.rng.random() >= self.known_success:
                entities = int(self.rng.integers(1, entities, endpoint=True))
            batch = self.replay.sample(steps * config.batch_size, config.relabel_prob, self.rng, entities)
            self.measure(self.agent.update(batch, self.largest_cost(entities), steps))

    def largest_cost(self, entities: int) -> float:
        """The most that a step can cost with so many entities."""
        objective = self.config.objective
        per_entity = 1.0 if objective.kind == "sparse" else self.env.largest_distance
        return per_entity * (entities if objective.rule == "sum" else 1)

    def finish_epoch(self) -> None:
        """Evaluate and write down, and move to the next stage when it is time."""
        last_stage = self.stage_index == len(self.config.stages) - 1
        counts = {"steps": self.steps, "updates": self.agent.updates, "failures": self.env.failures}
        self.end_epoch(self.agent, self.selection_env, self.stage.task, counts, may_be_best=last_stage)
        self.stage_epoch += 1
        if self.stage_epoch >= self.stage.epochs or self.known_success >= self.stage.until:
            if last_stage:
                self.finished = True
            else:
                self.stage_index += 1
                self.stage_epoch = 0
                self._enter_stage()

    def progress(self) -> dict[str, Any]:
        steps = self.steps / max(self.clock["collect"], 1e-9)
        updates = self.agent.updates / max(self.clock["learn"], 1e-9)
        speed = f"{self.steps:,} steps, {steps:,.0f} steps/s, {updates:,.0f} updates/s"
        later = sum(stage.epochs for stage in self.config.stages[self.stage_index + 1 :])
        left = 0 if self.finished else self.stage.epochs - self.stage_epoch + later
        return self.standing(self.stage.task, speed, left) | {"steps": self.steps}

    def save(self) -> None:
        """Write everything that the next round depends on; only episodes since the last save are written anew."""
        with self.timed("save"):
            if self.unsaved:
                arrays = [np.concatenate(field) for field in zip(*self.unsaved, strict=True)]
                digest = self.run.write_segment(self.next_segment, dict(zip(Episodes._fields, arrays, strict=True)))
                self.segments[self.next_segment] = (digest, len(arrays[0]))
                self.next_segment += 1
                self.unsaved = []
            self._drop_overwritten_segments()
            state = self.counted() | {
                "updates": self.agent.updates,
                "replay_added": self.replay.added,
                "segments": self.segments,
                "rng": self.rng.bit_generator.state,
                "environments": [rng.bit_generator.state for rng in self.env.rngs],
                "failures": self.env.failures,
            }
            digests = {number: digest for number, (digest, _) in self.segments.items()}
            self.run.write_checkpoint(self.checkpoint_number, self.agent.tensors(), state, digests)
            return_free_memory()

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
        self.recount(state)
        self._enter_stage()
        self.agent.load_tensors(tensors)
        self.agent.updates = state["updates"]
        self.segments = {number: tuple(state["segments"][str(number)]) for number in segments}
        self.replay.added = state["replay_added"] - sum(len(segment["lengths"]) for segment in segments.values())
        for segment in segments.values():
            self.replay.add(Episodes(**segment))
        self.rng.bit_generator.state = state["rng"]
        for rng, rng_state in zip(self.env.rngs, state["environments"], strict=True):
            rng.bit_generator.state = rng_state
        self.env.failures = state["failures"]
        return damage


class Cloner(Ledger[BCConfig]):
    """Behaviour cloning: demonstrations, agent and counters of one run, advanced by the same loop."""

    def __init__(self, config: BCConfig, demos: Demos, run: Run, device: str) -> None:
        super().__init__(config, run)
        if demos.digest(config.demos_used) != config.demos:
            raise UserError(f"{demos.path} holds other demonstrations than those of {run.path}: put those back")
        self.rng = np.random.default_rng(stream_seed(config.seed, LEARNING))
        slots = min(50, config.selection_episodes)
        self.env = make_env(config.task, slots, num_threads=config.threads, **config.options)
        usable = self.env.usable_actions
        self.agent = BC(config.network, self.env.dims, config.learning_rate, usable, config.seed, device)
        self.episodes = learnable_episodes(demos, config.demos_used, failed_too=config.recipe.startswith(SMOKE))
        self.agent.normaliser.learn(self.episodes, self.env.achieved(self.episodes.entities))
        inside = np.arange(self.episodes.actions.shape[1]) < self.episodes.lengths[:, None]  # (K, T)
        self.episode_of, self.time_of = inside.nonzero()  # of every transition

    def collect(self) -> None:
        """Everything was demonstrated beforehand."""

    def learn(self) -> None:
        with self.timed("learn"):
            steps = self.config.updates_per_round
            self.measure(self.agent.update(*self._sample(steps * self.config.batch_size), steps))

    def _sample(self, count: int) -> tuple[EntityObs, Array]:
        """So many observations and what was done there (count, A)."""
        chosen = self.rng.integers(len(self.time_of), size=count)
        k, t, shown = self.episode_of[chosen], self.time_of[chosen], self.episodes
        return EntityObs(shown.agent[k, t], shown.entities[k, t], shown.goals[k]), shown.actions[k, t]

    def finish_epoch(self) -> None:
        counts = {
            "updates": self.agent.updates,
            "demos_used": self.config.demos_used,
            "demos_successful": len(self.episodes.lengths),
        }
        self.end_epoch(self.agent, self.env, self.config.task, counts, may_be_best=True)
        self.finished = self.epoch >= self.config.epochs

    def progress(self) -> dict[str, Any]:
        updates = self.agent.updates / max(self.clock["learn"], 1e-9)
        return self.standing(self.config.task, f"{updates:,.0f} updates/s", self.config.epochs - self.epoch)

    def save(self) -> None:
        with self.timed("save"):
            state = self.counted() | {"updates": self.agent.updates, "rng": self.rng.bit_generator.state}
            self.run.write_checkpoint(self.checkpoint_number, self.agent.tensors(), state, {})

    def load(self) -> list[str]:
        """Go on from the newest intact checkpoint, if there is one. Returns what was damaged."""
        try:
            tensors, state, _, damage = self.run.newest_checkpoint()
        except FileNotFoundError:
            return []
        self.recount(state)
        self.agent.load_tensors(tensors)
        self.agent.updates = state["updates"]
        self.rng.bit_generator.state = state["rng"]
        return damage


def cloning(demos: Demos, network: NetworkConfig, demos_used: int | None, seed: int) -> BCConfig:
    """The paper's settings, for the first `demos_used` of these demonstrations, or all of them."""
    used = len(demos) if demos_used is None else demos_used
    whose = "" if demos.demonstrator == SCRIPTED else f"-of-{demos.demonstrator}"
    where = "".join(f"-{word}" for word in _unusual(demos.about))
    if used < 1:
        raise UserError(f"{used} of the {len(demos)} demonstrations in {demos.path} are to be used: choose 1 or more")
    return BCConfig(
        task=demos.about["task"],
        network=network,
        options=demos.about["options"],
        demos=demos.digest(used),
        demos_used=used,
        recipe=f"bc-{used}{whose}{where}",
        learning_rate=learning_rate(network),
        seed=seed,
    )


def short(config: BCConfig) -> BCConfig:
    """The same for seconds: it learns nothing, from failures too, and shows that everything works where it runs."""
    config = replace(config, recipe=f"{SMOKE}{config.recipe}", epochs=2, selection_episodes=4)
    return replace(config, rounds_per_epoch=2, updates_per_round=4)


def _unusual(about: dict[str, Any]) -> Iterator[str]:
    """What tells demonstrations of one task and demonstrator apart, but for their physics, which tables show."""
    if about["seed"]:
        yield f"seed-{about['seed']}"
    for name, value in disturbance(about).items():
        if value:
            yield f"{name}-{value:g}"
    for name, usual in (("layout", "paper"), ("profile", "fast")):
        if about["options"].get(name, usual) != usual:
            yield about["options"][name]


def learnable_episodes(demos: Demos, count: int, failed_too: bool = False) -> Episodes:
    """Those of the first `count` demonstrations that reached their goal, or all."""
    episodes, flags = demos.load(count)
    good = flags.success_once | failed_too
    if not good.any():
        raise UserError(f"none of the {count} demonstrations in {demos.path} succeeded: there is nothing to learn from")
    kept = Episodes(*(field[good] for field in episodes))
    for name, values in kept._asdict().items():
        if not np.isfinite(values).all():
            raise NonFinite(f"a demonstration in {demos.path} ({name}) is not finite")
    return kept


def collect_episodes(
    env: EntityEnv, agent: DDPG, exploration: Exploration, factor: float, rng: np.random.Generator
) -> tuple[Episodes, float]:
    """One explored episode in every slot, and the fraction that succeeded. Failed simulations are left out."""
    obs = env.reset().finite()
    goals, lengths = obs.goals, env.horizons.copy()
    agents, entities, actions = [obs.agent], [obs.entities], []
    succeeded, failed = np.zeros(env.num_envs, bool), np.zeros(env.num_envs, bool)
    usable = agent.usable_actions.cpu().numpy()
    for t in range(env.max_horizon):
        wanted = agent.act_newest(obs)
        if not np.isfinite(wanted).all():
            raise NonFinite("an action of the actor is not finite")
        action = (exploration.disturb(wanted, factor, rng) * usable).astype(np.float32)
        step = env.step(action)
        obs = step.obs.finite()
        agents.append(obs.agent)
        entities.append(obs.entities)
        actions.append(action)
        playing = t < lengths
        failed |= playing & step.failed
        succeeded |= playing & step.success
    episodes = Episodes(np.stack(agents, 1), np.stack(entities, 1), goals, np.stack(actions, 1), lengths)
    return Episodes(*(field[~failed] for field in episodes)), float((succeeded & ~failed).mean())


def _claim(run: Run, config: TrainConfig | BCConfig, about: dict[str, str]) -> None:
    """Write the configuration of a new run, or refuse a different one on an old run.

    `about` is no part of what a run is: demonstrations may be moved.
    """
    wanted = as_stored(config)
    stored = run.config()
    if stored is None:
        if not run.could_have(wanted):
            raise RunError(f"{run.path} holds a different run, without its config.json: choose another --out")
        stored = {**about, "config": wanted, "versions": versions()}
    existing = stored["config"]
    differences = [name for name in wanted if wanted[name] != existing.get(name)]
    if differences:
        shown = "; ".join(f"{name} was {existing.get(name)}, now {wanted[name]}" for name in differences)
        raise RunError(f"{run.path} holds a different run ({shown}): choose another --out, or efmdp train resume it")
    run.write_config({**stored, **about})


def _reward(env: EntityEnv, objective: Objective) -> Callable[[Array, Array], Array]:
    """The reward that is learned from, as a function of subgoals (..., N, G)."""
    objective = replace(objective, threshold=env.objective.threshold)
    return lambda achieved, desired: objective.reward(env.distance(achieved, desired), env.has_goal(desired))
