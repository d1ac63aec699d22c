"""A policy in an environment for one episode per slot: what evaluation, demonstrations and fidelity checks share."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from efmdp.entities import Array, EntityEnv, EntityObs, Step


class Policy(Protocol):
    """Anything that acts: a network, a scripted controller, the oracle."""

    def act(self, obs: EntityObs) -> Array: ...

    def reset(self, ids: Array | None = None) -> None: ...


class Outcome(NamedTuple):
    """How each of B episodes went."""

    success_once: Array  # (B,) bool: all subgoals met at the same moment, at any step
    success_end: Array  # (B,) bool: met at the last step
    steps: Array  # (B,) steps to the first success, NaN without one
    solved: Array  # (B,) fraction of entities at their subgoal at the last step
    distance: Array  # (B, N) final distances
    failed: Array  # (B,) bool: the simulation blew up; such an episode counts as no success


def run_episodes(
    env: EntityEnv, policy: Policy, seed: int | None = None, watch: Callable[[Step], None] | None = None
) -> Outcome:
    """Play one episode in every slot, each to its own horizon. `watch` sees every step."""
    obs = env.reset(seed=seed).finite()
    policy.reset()
    playing = np.ones(env.num_envs, bool)
    once = np.zeros(env.num_envs, bool)
    end = np.zeros(env.num_envs, bool)
    failed = np.zeros(env.num_envs, bool)
    steps = np.full(env.num_envs, np.nan)
    distance = np.zeros((env.num_envs, env.num_entities))
    while playing.any():
        step = env.step(policy.act(obs))
        obs = step.obs.finite()
        failed |= playing & step.failed
        success = playing & step.success & ~step.failed
        steps[success & ~once] = env.elapsed[success & ~once]
        once |= success
        last = playing & step.truncated
        end[last] = success[last]
        distance[last] = env.distance(env.achieved(obs.entities), obs.goals)[last]
        playing &= ~step.truncated
        if watch is not None:
            watch(step)
    once &= ~failed
    steps[failed] = np.nan
    solved = env.objective.met(distance).mean(1) * ~failed
    return Outcome(once, end & ~failed, steps, solved, distance, failed)
