"""Behaviour cloning: an actor that learns to do what was demonstrated."""

from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from efmdp.ddpg import Normaliser, descend, finite_numbers, flatten, from_named_tensors, named_tensors
from efmdp.entities import Array, EntityDims, EntityObs
from efmdp.networks import NetworkConfig, make_actor


@dataclass(frozen=True)
class BCConfig:
    """Everything that makes a run of behaviour cloning what it is."""

    task: str
    network: NetworkConfig
    options: dict[str, Any]
    """of the environment in which the task was demonstrated"""
    demos: str
    """SHA-256 of the demonstrations: those that are used, successful or not"""
    demos_used: int
    """so many of them, before those that failed are dropped"""
    recipe: str
    """what tables call it: two runs of one name differ in their seeds only"""
    learning_rate: float
    """of Adam"""
    seed: int = 0
    epochs: int = 6
    rounds_per_epoch: int = 100
    updates_per_round: int = 100
    """6 x 100 x 100 are the paper's 60,000 gradient steps"""
    batch_size: int = 128
    selection_episodes: int = 100
    threads: int = 2


def from_json(stored: dict[str, Any]) -> BCConfig:
    """The inverse of `dataclasses.asdict`, for a run's config.json."""
    return BCConfig(**{**stored, "network": NetworkConfig(**stored["network"])})


class BC:
    """An actor, its normaliser and its optimiser. `usable_actions` marks which actions the task listens to."""

    def __init__(
        self,
        network: NetworkConfig,
        dims: EntityDims,
        learning_rate: float,
        usable_actions: Array,
        seed: int,
        device: str = "cpu",
    ) -> None:
        self.device = torch.device(device)
        with torch.random.fork_rng(devices=[]):  # networks draw their weights from the global generator
            torch.manual_seed(seed)
            self.actor = make_actor(network, dims).to(device)
        self.normaliser = Normaliser(dims).to(device)
        self.optimiser = torch.optim.Adam([flatten(self.actor)], learning_rate, fused=True)
        self.usable_actions = torch.from_numpy(usable_actions.astype(np.float32)).to(device)  # (A,)
        self.updates = 0

    @property
    def policy(self) -> torch.nn.Module:
        """The network that is tested and stored."""
        return self.actor

    @torch.no_grad()
    def act(self, obs: EntityObs) -> Array:
        """Actions (B, A), 0 where the task does not listen."""
        return (self.actor(*self.normaliser(obs)) * self.usable_actions).cpu().numpy()

    def reset(self, ids: Array | None = None) -> None:
        """Nothing is remembered between steps."""

    def update(self, obs: EntityObs, actions: Array, steps: int = 1) -> dict[str, float]:
        """So many gradient steps on the squared distance to the demonstrated actions (B, A), each on its share of them.

        Returns the means of what was measured."""
        wanted = torch.from_numpy(actions).to(self.device)
        parts = (tensor.unflatten(0, (steps, -1)) for tensor in (*self.normaliser(obs), wanted))
        measured = [finite_numbers(self._step(*share), self.updates) for share in zip(*parts, strict=True)]
        return {name: fmean(each[name] for each in measured) for name in measured[0]}

    def _step(self, agent: Tensor, entities: Tensor, goals: Tensor, wanted: Tensor) -> dict[str, Tensor]:
        error = (self.actor(agent, entities, goals) - wanted) * self.usable_actions
        loss = error.square().sum(-1).mean()
        gradient = descend(loss, self.actor, self.optimiser)
        self.updates += 1
        return {"loss": loss, "gradient": gradient}

    def tensors(self) -> dict[str, Tensor]:
        """Everything that learns, by name."""
        return named_tensors(self, _MODULES, _OPTIMISERS)

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        from_named_tensors(self, tensors, _MODULES, _OPTIMISERS)


_MODULES = ("actor", "normaliser")
_OPTIMISERS = ("optimiser",)
