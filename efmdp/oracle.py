"""The oracle: one policy per subtask, applied by hand to one entity after another.

It knows what the paper's networks must find out: which entity comes next and which skill that entity needs. What it
does not know is that entities may get in each other's way: every policy sees only the entities of its own subtask.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from efmdp.entities import OBJECTIVES, Array, EntityObs, UserError
from efmdp.env import FETCH_DIMS, FINGER_ACTION, IS_SWITCH, POSITION
from efmdp.evaluate import load_policy
from efmdp.rollout import Policy
from efmdp.scripted import CLOSE, SCRIPTED, Scripted, elevated
from efmdp.tasks import Task, parse_task

SUBTASKS = PUSH, SWITCH, STACK = "push", "switch", "stack"


class Oracle:
    """`Oracle(num_envs, {"push": policy, "switch": policy, "stack": policy})`; a task needs those of `subtasks(task)`.

    In every slot it works on the first entity, in index order, that is not at its subgoal, until it is there; then on
    the next. A cube that goes on another waits until that one is in place.
    """

    def __init__(self, num_envs: int, policies: Mapping[str, Policy]) -> None:
        for name in policies:
            _check_known(name)
        self.policies = policies
        self.target = np.full(num_envs, -1)  # the entity each hand is working on, -1 for none
        self.finger = np.full(num_envs, CLOSE)  # the last action of each hand's fingers

    def reset(self, ids: Array | None = None) -> None:
        slots = slice(None) if ids is None else ids
        self.target[slots], self.finger[slots] = -1, CLOSE
        for policy in self.policies.values():
            policy.reset(ids)

    def act(self, obs: EntityObs) -> Array:
        """Actions (B, 4): those of each slot's policy; a slot with nothing left to do keeps hand and fingers."""
        high = elevated(obs.goals)  # (B, N)
        self._choose(obs, high)
        rows = np.arange(len(self.target))
        switch = obs.entities[rows, self.target, IS_SWITCH] == 1
        subtask = np.select([self.target < 0, switch, high[rows, self.target]], [-1, 1, 2], 0)  # of SUBTASKS
        actions = np.zeros((len(rows), FETCH_DIMS.action), np.float32)
        actions[:, FINGER_ACTION] = self.finger
        for number in np.unique(subtask[subtask >= 0]):
            # A policy may remember something about every slot, so it is shown all of them. What it makes of slots that
            # are not its own is dropped, and forgotten when it gets one.
            mine = subtask == number
            actions[mine] = self._policy(SUBTASKS[number]).act(self._shown(obs, SUBTASKS[number]))[mine]
        self.finger = actions[:, FINGER_ACTION].copy()
        return actions

    def _choose(self, obs: EntityObs, high: Array) -> None:
        """Keep each target until it is solved, or until the cube it goes on is no longer in place."""
        distance = np.linalg.norm(obs.entities[..., POSITION] - obs.goals, axis=-1)  # (B, N)
        unsolved = ~OBJECTIVES["sparse"].met(distance)
        ready = unsolved & ~(high & (unsolved & ~high).any(1, keepdims=True))
        kept = (self.target >= 0) & ready[np.arange(len(ready)), self.target]
        target = np.where(kept, self.target, np.where(ready.any(1), ready.argmax(1), -1))
        changed = np.flatnonzero(target != self.target)
        self.target = target
        if changed.size:
            for policy in self.policies.values():
                policy.reset(changed)

    def _shown(self, obs: EntityObs, subtask: str) -> EntityObs:
        """What a policy of the subtask was trained to see: the target alone, or in a stack with the cube below it."""
        if subtask != STACK:
            return obs.permuted(self.target[:, None])
        rows = np.arange(len(self.target))
        apart = np.linalg.norm(obs.goals[..., :2] - obs.goals[rows, self.target][:, None, :2], axis=-1)  # (B, N)
        apart[rows, self.target] = np.inf
        base = apart.argmin(1)
        goals = obs.goals.copy()
        goals[rows, base] = obs.entities[rows, base, POSITION]  # it is in place, as the lower cube of Stack always is
        # In index order, like the cubes of Stack: a policy that is not indifferent to the order finds what it knows.
        return EntityObs(obs.agent, obs.entities, goals).permuted(np.sort(np.stack([self.target, base], 1), 1))

    def _policy(self, subtask: str) -> Policy:
        if subtask not in self.policies:
            raise UserError(f"the oracle has no policy to {subtask}: add {subtask}=RUN or {subtask}={SCRIPTED}")
        return self.policies[subtask]


class ClosedFingers:
    """A policy that was trained with the fingers held closed, for tasks in which they are not: it closes them."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def act(self, obs: EntityObs) -> Array:
        actions = self.policy.act(obs).copy()
        actions[:, FINGER_ACTION] = CLOSE
        return actions

    def reset(self, ids: Array | None = None) -> None:
        self.policy.reset(ids)


def subtasks(task: Task) -> set[str]:
    """What the entities of a task need. In a stack the lower cube is pushed too, when it was knocked away."""
    return {
        name
        for scene in task.scenes
        for name, count in zip(SUBTASKS, (scene.cubes - scene.stacks, scene.switches, scene.stacks), strict=True)
        if count
    }


def parse_sources(words: Sequence[str]) -> dict[str, str]:
    """Where the policy of each subtask comes from, as a user writes it.

    >>> parse_sources(["scripted"])
    {'push': 'scripted', 'switch': 'scripted', 'stack': 'scripted'}
    >>> parse_sources(["push=runs/1-Push", "stack=scripted"])
    {'push': 'runs/1-Push', 'stack': 'scripted'}
    """
    if list(words) == [SCRIPTED]:
        return dict.fromkeys(SUBTASKS, SCRIPTED)
    sources: dict[str, str] = {}
    for word in words:
        name, _, source = word.partition("=")
        if not source:
            raise UserError(
                f"{word!r} is no policy of an oracle: write {SCRIPTED}, or some of "
                f"{' '.join(f'{name}=RUN' for name in SUBTASKS)}, RUN being a run, a policy file or {SCRIPTED}"
            )
        _check_known(name)
        if name in sources:
            raise UserError(f"the oracle has two policies to {name}, {sources[name]} and {source}: choose one")
        sources[name] = source
    return sources


def make_oracle(num_envs: int, task: Task, sources: Mapping[str, str]) -> Oracle:
    """The oracle for a task, from a run, a policy file or `scripted` for each of its subtasks."""
    needed = subtasks(task)
    missing = " and ".join(name for name in SUBTASKS if name in needed and name not in sources)
    if missing:
        example = f"{missing.split()[0]}=RUN or =scripted"
        raise UserError(f"in {task.name} the oracle must {missing}: say who does, as in {example}")
    return Oracle(num_envs, {name: _sub_policy(name, sources[name], num_envs) for name in SUBTASKS if name in needed})


def _sub_policy(subtask: str, source: str, num_envs: int) -> Policy:
    if source == SCRIPTED:
        return Scripted(num_envs)
    policy = load_policy(Path(source), "best")
    if policy.dims != FETCH_DIMS or subtask not in subtasks(parse_task(policy.task)):
        raise UserError(f"{subtask}={source} was trained on {policy.task}, not to {subtask}: name another run")
    return policy if policy.usable_actions[FINGER_ACTION] else ClosedFingers(policy)


def _check_known(name: str) -> None:
    if name not in SUBTASKS:
        raise UserError(f"unknown subtask {name!r}: choose {', '.join(SUBTASKS)}")
