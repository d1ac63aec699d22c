"""How good a policy is: success by the protocol, on seeds that training never sees."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from efmdp import zoo
from efmdp.ddpg import Normaliser
from efmdp.entities import Array, CannotPlay, EntityDims, EntityEnv, EntityObs, UserError
from efmdp.env import FetchEnv
from efmdp.networks import NetworkConfig, make_actor
from efmdp.rollout import Outcome, Policy, run_episodes
from efmdp.runs import RunError, read_policy

TRAINING, SELECTION, TEST, LEARNING, DEMONSTRATIONS = range(5)  # streams of random numbers derived from one seed


def stream_seed(seed: int, stream: int, part: int = 0) -> int:
    """A seed for one of the streams, or a part of one; different seeds, streams and parts do not share episodes."""
    return int(np.random.SeedSequence([seed, stream, part]).generate_state(1)[0])


def play_episodes(env: EntityEnv, policy: Policy, episodes: int, seed: int) -> Outcome:
    """The same number of episodes in every slot (rounded up), so that short episodes are not favoured."""
    rounds = -(-episodes // env.num_envs)
    parts = [run_episodes(env, policy, seed=seed if r == 0 else None) for r in range(rounds)]
    return Outcome(*(np.concatenate(field)[:episodes] for field in zip(*parts, strict=True)))


class LearnedPolicy:
    """An actor and its normaliser, from a policy file: acts on any number of entities that its network takes.

    `task` and `physics` say what it was trained on.
    """

    def __init__(self, path: Path) -> None:
        tensors, about = read_policy(path)
        try:
            self.task: str = about["task"]
            self.physics: dict[str, Any] = dict(about["physics"])
            self.dims = EntityDims(**about["dims"])
            self.actor = make_actor(NetworkConfig(**about["network"]), self.dims)
            self.normaliser = Normaliser(self.dims, **about["normaliser"])
            self.usable_actions = torch.tensor(about["usable_actions"], dtype=torch.float32)
            self.actor.load_state_dict(_part(tensors, "actor."))
            self.normaliser.load_state_dict(_part(tensors, "normaliser."))
            if self.usable_actions.shape != (self.dims.action,):
                raise ValueError("usable_actions are not as many as actions")
            if unknown := self.physics.keys() - {"collisions", "gripper"}:
                raise ValueError(f"unknown physics {sorted(unknown)}")
            if not all(tensor.isfinite().all() for tensor in tensors.values()):
                raise ValueError("weights that are not finite")
        except UserError as error:  # a network that is not known here
            raise RunError(f"{path}: {error}") from None
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise RunError(f"{path} is not a policy of efmdp ({' '.join(str(error).split())})") from None

    @torch.no_grad()
    def act(self, obs: EntityObs) -> Array:
        seen = (self.dims.agent, self.dims.entity, self.dims.goal)
        if (shown := tuple(part.shape[-1] for part in obs)) != seen:
            names = "agent, entity and subgoal"
            raise CannotPlay(f"features of {names} are {shown}, this policy of {self.task} knows {seen}: another task")
        return (self.actor(*self.normaliser(obs)) * self.usable_actions).numpy()

    def reset(self, ids: Array | None = None) -> None:
        """Nothing is remembered between steps."""


def load_policy(path: str | Path, which: str = "last") -> LearnedPolicy:
    """The policy of a run's folder, of a policy file, or of the zoo: `zoo:3-push/deep-set`."""
    return LearnedPolicy(policy_file(path, which))


def policy_file(path: str | Path, which: str = "last") -> Path:
    """Where that policy lies; `which` chooses one of a run's."""
    if zoo.is_named(path):
        return zoo.find(path)
    path = Path(path)
    return path / f"policy-{which}.safetensors" if path.is_dir() else path


class Agent(Policy, Protocol):
    """A policy that is being trained, in whatever way."""

    normaliser: Normaliser
    usable_actions: torch.Tensor

    @property
    def policy(self) -> torch.nn.Module: ...


def policy_tensors(agent: Agent) -> dict[str, torch.Tensor]:
    """What `agent.act` needs."""
    parts = (("actor.", agent.policy), ("normaliser.", agent.normaliser))
    return {prefix + name: tensor for prefix, module in parts for name, tensor in module.state_dict().items()}


def about_policy(agent: Agent, network: NetworkConfig, env: EntityEnv, task: str) -> dict[str, Any]:
    """What a policy file says about itself: enough to build its network again, and the physics it knows."""
    physics = {"collisions": env.task.collisions, "gripper": env.task.gripper} if isinstance(env, FetchEnv) else {}
    return {
        "task": task,
        "physics": physics,
        "dims": asdict(env.dims),
        "network": asdict(network),
        "normaliser": {"clip": agent.normaliser.clip, "normalised_clip": agent.normaliser.normalised_clip},
        "usable_actions": agent.usable_actions.tolist(),
    }


def _part(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
