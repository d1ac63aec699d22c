"""How long the steps of an experiment take on this machine, from a short measurement: one core, one thread each."""

import time
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import torch

from efmdp.bc import BC, BCConfig
from efmdp.ddpg import DDPG, DDPGConfig
from efmdp.domains import make_env
from efmdp.entities import EntityObs
from efmdp.env import FETCH_DIMS
from efmdp.experiments import Cloning, Collecting, Evaluating, Step, Training
from efmdp.networks import Kind
from efmdp.process import tuned_process
from efmdp.recipes import make_network
from efmdp.replay import Batch
from efmdp.runs import read_rows
from efmdp.tasks import parse_task

COUNTS = (1, 3)  # of entities; what lies between and beyond is taken from the line through both
SLOTS = 16


class Machine:
    """What this machine takes for the parts of the work, measured when it is first asked for."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[object, ...], float] = {}

    def total(self, steps: Iterable[Step]) -> float:
        """Seconds of one core."""
        with tuned_process(1):
            return sum(self.seconds(step) for step in steps)

    def seconds(self, step: Step) -> float:
        match step:
            case Training():
                return _share_left(step, step.config.epochs) * self._training(step)
            case Collecting():
                return step.episodes * parse_task(step.task).horizons[0] * self._act_and_step("deep-set")
            case Cloning():
                return (
                    _share_left(step, BCConfig.epochs)
                    * _updates(step)
                    * self._line(self._clone, step.network, parse_task(step.task).entities)
                )
            case Evaluating():
                return self._evaluating(step)

    def _training(self, step: Training) -> float:
        """All epochs: a curriculum that is solved early takes less."""
        config, seconds = step.config, 0.0
        for stage in config.stages:
            task = parse_task(stage.task)
            measured = partial(self._update, config.ddpg, config.batch_size)
            learned_from = (1 + task.entities) / 2 if config.subsets else task.entities  # in the mean
            update = self._line(measured, step.network, learned_from)
            played = config.num_envs * config.rounds_per_epoch + config.selection_episodes
            acting = played * float(np.mean(task.horizons)) * self._act_and_step(step.network)
            seconds += stage.epochs * (config.rounds_per_epoch * config.updates_per_round * update + acting)
        return seconds

    def _evaluating(self, step: Evaluating) -> float:
        if step.study == "timing":
            return 5.0
        tasks = [trial.task for trial in step.plan(step.of.task, {})]
        steps = sum(step.episodes * float(np.mean(task.horizons)) for task in tasks)
        return steps * self._act_and_step(step.of.network)

    def _line(self, at: Callable[[Kind, int], float], kind: Kind, entities: float) -> float:
        low, high = (at(kind, count) for count in COUNTS)
        return max(low, low + (high - low) * (entities - COUNTS[0]) / (COUNTS[1] - COUNTS[0]))

    def _update(self, ddpg: DDPGConfig, batch_size: int, kind: Kind, entities: int) -> float:
        key = ("update", kind, ddpg.actor_every, batch_size, entities)
        if key not in self._seconds:
            agent = DDPG(make_network(kind, entities), FETCH_DIMS, ddpg, np.ones(FETCH_DIMS.action), 0)
            steps = 2 * ddpg.actor_every
            obs, actions = _observations(steps * batch_size, entities), np.zeros((steps * batch_size, 4), np.float32)
            batch = Batch(obs, actions, obs, np.zeros(steps * batch_size, np.float32))
            self._seconds[key] = _fastest(lambda: agent.update(batch, 1.0, steps)) / steps
        return self._seconds[key]

    def _clone(self, kind: Kind, entities: int) -> float:
        key = ("clone", kind, entities)
        if key not in self._seconds:
            steps, size = 4, 4 * BCConfig.batch_size
            agent = BC(make_network(kind, entities), FETCH_DIMS, 1e-4, np.ones(FETCH_DIMS.action), 0)
            obs, actions = _observations(size, entities), np.zeros((size, 4), np.float32)
            self._seconds[key] = _fastest(lambda: agent.update(obs, actions, steps)) / steps
        return self._seconds[key]

    def _act_and_step(self, kind: Kind) -> float:
        """For one step of one of several environments; how many entities there are hardly matters."""
        key = ("step", kind)
        if key not in self._seconds:
            env = make_env("3-Push", SLOTS, num_threads=1)
            agent = BC(make_network(kind, 3), env.dims, 1e-4, env.usable_actions, 0)
            obs = env.reset(seed=0)

            def play() -> None:
                for _ in range(20):
                    agent.act(obs)
                    env.step(np.random.default_rng(0).uniform(-1, 1, (SLOTS, 4)))

            self._seconds[key] = _fastest(play) / (20 * SLOTS)
        return self._seconds[key]


def _share_left(step: Training | Cloning, epochs: int) -> float:
    """Of a run that was begun."""
    return 1 - min(1.0, len(read_rows(step.folder / "metrics.csv")) / epochs)


def _updates(step: Cloning) -> int:
    return 16 if step.is_smoke else BCConfig.epochs * BCConfig.rounds_per_epoch * BCConfig.updates_per_round


def _observations(count: int, entities: int) -> EntityObs:
    dims, rng = FETCH_DIMS, np.random.default_rng(0)
    shapes = ((count, dims.agent), (count, entities, dims.entity), (count, entities, dims.goal))
    return EntityObs(*(rng.standard_normal(shape, np.float32) for shape in shapes))


def _fastest(run: Callable[[], object]) -> float:
    """Seconds of a core for the fastest of a few calls, whatever else the machine does: what disturbs it only adds."""
    torch.manual_seed(0)
    seconds = []
    for _ in range(3):
        began = time.process_time()
        run()
        seconds.append(time.process_time() - began)
    return min(seconds)
