"""Gymnasium-Robotics' FetchPush-v4 for `benchmarks.simulation`, and the timing loop that all contestants share.

The benchmark runs this file as a script in the peer's own virtual environment, so it must not import efmdp. One JSON
request per line on stdin, one JSON answer per line on stdout: {"policy": "random", "seconds": 1} gives {"rate": ...}.
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

Act = Callable[[Any], np.ndarray]  # observations to actions (B, A)

HORIZON = 50  # of FetchPush
COUNTS = (1, 2, 4, 8, 16)  # environments, which for async is also the number of worker processes
TRAVEL_HEIGHT, PUSH_HEIGHT = 0.53, 0.425


class Contestant(Protocol):
    num_envs: int
    horizon: int

    def act(self) -> np.ndarray:
        """Choose actions: not timed, whoever acts."""

    def advance(self, actions: np.ndarray) -> None:
        """Step all environments, and begin new episodes where one is over."""


def rate(contestant: Contestant, seconds: float) -> float:
    """Environment steps per second of `advance`, over whole episodes: each has its share of resets and of contacts."""
    steps, spent = 0, 0.0
    while spent < seconds or not steps:
        for _ in range(contestant.horizon):
            actions = contestant.act()
            start = time.perf_counter()
            contestant.advance(actions)
            spent += time.perf_counter() - start
        steps += contestant.horizon * contestant.num_envs
    return steps / spent


def random_actions(num_envs: int, size: int) -> Act:
    """Uniform actions, drawn beforehand."""
    rng = np.random.default_rng(0)
    pool = itertools.cycle(list(rng.uniform(-1, 1, (256, num_envs, size)).astype(np.float32)))
    return lambda obs: next(pool)


class Vector:
    """A Gymnasium vector environment that resets in the same step, so that every step is one of physics."""

    def __init__(self, env: VectorEnv, horizon: int, act: Act) -> None:
        self.env, self.horizon, self.num_envs = env, horizon, env.num_envs
        self._act = act
        self.obs, _ = env.reset(seed=0)

    def act(self) -> np.ndarray:
        return self._act(self.obs)

    def advance(self, actions: np.ndarray) -> None:
        self.obs, *_ = self.env.step(actions)


def push(obs: dict[str, np.ndarray]) -> np.ndarray:
    """Go behind the cube, come down, push it to its goal: a stateless controller of FetchPush, (B, 4)."""
    grip, cube = obs["observation"][:, :3], obs["observation"][:, 3:6]
    missing = (obs["desired_goal"] - cube)[:, :2]
    remaining = np.linalg.norm(missing, axis=1, keepdims=True)
    forward = missing / np.maximum(remaining, 1e-6)
    sideways = np.stack([-forward[:, 1], forward[:, 0]], 1)
    offset = (grip - cube)[:, :2]
    along, across = (offset * forward).sum(1, keepdims=True), (offset * sideways).sum(1, keepdims=True)

    low = grip[:, 2:] < PUSH_HEIGHT + 0.02
    lined_up = low & (along < -0.03) & (along > -0.1) & (np.abs(across) < 0.02)
    ahead = grip[:, :2] + forward * np.clip(0.6 * remaining, 0.01, 0.035) - sideways * across
    behind = cube[:, :2] - 0.065 * forward
    there = np.linalg.norm(behind - grip[:, :2], axis=1, keepdims=True) < 0.015
    high = grip[:, 2:] > TRAVEL_HEIGHT - 0.03
    done = remaining < 0.025
    place = np.where(done, grip[:, :2], np.where(lined_up, ahead, np.where(high | there, behind, grip[:, :2])))
    height = np.where(~done & (lined_up | there), PUSH_HEIGHT, TRAVEL_HEIGHT)
    wanted = np.concatenate([place, height], 1)
    finger = np.full((len(grip), 1), -1.0)
    return np.concatenate([(wanted - grip) / 0.05, finger], 1).clip(-1, 1).astype(np.float32)


def make_peer(form: str) -> VectorEnv:
    """`sync-4` or `async-4`: FetchPush without Gymnasium's passive checker, which only costs time."""
    kind, count = form.split("-")
    vectorise: Any = {"sync": SyncVectorEnv, "async": AsyncVectorEnv}[kind]
    single = partial(gymnasium.make, "FetchPush-v4", disable_env_checker=True)
    return vectorise([single] * int(count), autoreset_mode=AutoresetMode.SAME_STEP)


def calibrate(seconds: float) -> dict[str, float]:
    """Rates of every form of the peer with random actions, the best of four passes."""
    rates: dict[str, float] = {}
    for form in [f"{kind}-{count}" for kind in ("sync", "async") for count in COUNTS] * 4:
        env = make_peer(form)
        contestant = Vector(env, HORIZON, random_actions(env.num_envs, 4))
        rate(contestant, 0)
        rates[form] = max(rates.get(form, 0), round(rate(contestant, seconds), 1))
        env.close()
    return rates


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the libraries print goes to stderr
    import gymnasium_robotics  # here, for simulation.py imports this file where the peer cannot run

    gymnasium.register_envs(gymnasium_robotics)
    names = ("gymnasium-robotics", "gymnasium", "mujoco", "numpy")
    rates = calibrate(float(sys.argv[1]))
    best = max(rates, key=lambda form: rates[form])

    def answer(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    answer({"best": best, "calibration": rates, "versions": {name: version(name) for name in names}})
    env = make_peer(best)
    contestants = {
        "random": Vector(env, HORIZON, random_actions(env.num_envs, 4)),
        "scripted": Vector(env, HORIZON, push),
    }
    current = None
    for line in sys.stdin:
        request = json.loads(line)
        contestant = contestants[request["policy"]]
        if contestant is not current:  # they share the environments
            contestant.obs, _ = env.reset()
            current = contestant
        answer({"rate": rate(contestant, request["seconds"])})
    env.close()


if __name__ == "__main__":
    serve()
