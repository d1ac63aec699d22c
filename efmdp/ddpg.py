"""Deep deterministic policy gradient over entity sets: the networks, how they act and one update of them."""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from efmdp.entities import Array, EntityDims, EntityObs, NonFinite, UserError
from efmdp.networks import Actor, NetworkConfig, make_actor, make_critic
from efmdp.replay import Batch, Episodes

VARIANCE_FLOOR = 1e-4


@dataclass(frozen=True)
class DDPGConfig:
    """How the networks learn."""

    learning_rate: float = 1e-3
    """of Adam, for actor and critic"""
    discount: float = 0.98
    """the discount factor gamma"""
    target_keep: float = 0.995
    """fraction of the target networks kept at each of their updates (the paper's τ)"""
    target_every: int = 1
    """gradient steps between updates of the target networks"""
    actor_every: int = 1
    """gradient steps of the critic for each of the actor"""
    action_l2: float = 1.0
    """weight of the actor's penalty on large actions"""
    reward_scale: float = 1.0
    """rewards are multiplied by this"""
    observation_clip: float = 200.0
    """observations are clipped to ± this before normalisation"""
    normalised_clip: float = 5.0
    """and to ± this after it"""


class Normaliser(torch.nn.Module):
    """Running mean and standard deviation of every agent, entity and subgoal feature, shared by all entities."""

    def __init__(self, dims: EntityDims, clip: float = 200.0, normalised_clip: float = 5.0) -> None:
        super().__init__()
        self.clip, self.normalised_clip = clip, normalised_clip  # to ± this before normalisation, and after it
        for name, size in (("agent", dims.agent), ("entities", dims.entity), ("goals", dims.goal)):
            self.register_buffer(f"{name}_count", torch.zeros((), dtype=torch.float64))
            self.register_buffer(f"{name}_mean", torch.zeros(size, dtype=torch.float64))
            self.register_buffer(f"{name}_squares", torch.zeros(size, dtype=torch.float64))  # sum of squared deviations
            self.register_buffer(f"{name}_shift", torch.zeros(size))  # the mean and
            self.register_buffer(f"{name}_factor", torch.ones(size))  # 1 / deviation, ready to apply

    def learn(self, episodes: Episodes, achieved: Array) -> None:
        """Take in the features of new episodes; goals are both those wanted and those achieved (K, T + 1, N, G)."""
        if not episodes.lengths.size:  # every simulation failed
            return
        inside = np.arange(episodes.agent.shape[1]) <= episodes.lengths[:, None]  # (K, T + 1)
        goals = np.concatenate([achieved[inside].reshape(-1, achieved.shape[-1]), *episodes.goals])
        self._absorb("agent", episodes.agent[inside])
        self._absorb("entities", episodes.entities[inside].reshape(-1, episodes.entities.shape[-1]))
        self._absorb("goals", goals)

    def _absorb(self, name: str, rows: Array) -> None:
        """Chan's parallel update of mean and squares by rows (n, features)."""
        x = rows.astype(np.float64).clip(-self.clip, self.clip)
        count, mean, squares = (getattr(self, f"{name}_{part}") for part in ("count", "mean", "squares"))
        n, new_mean = len(x), torch.from_numpy(x.mean(0)).to(mean.device)
        new_squares = torch.from_numpy(((x - x.mean(0)) ** 2).sum(0)).to(mean.device)
        total, delta = count + n, new_mean - mean
        squares += new_squares + delta**2 * count * n / total
        mean += delta * n / total
        count.fill_(total)
        getattr(self, f"{name}_shift").copy_(mean)
        getattr(self, f"{name}_factor").copy_((squares / total).clamp_min(VARIANCE_FLOOR).rsqrt())

    def forward(self, obs: EntityObs) -> tuple[Tensor, Tensor, Tensor]:
        """Normalised (agent, entities, goals)."""
        return *self.state(obs), self._apply_to("goals", obs.goals)

    def state(self, obs: EntityObs) -> tuple[Tensor, Tensor]:
        """Normalised (agent, entities)."""
        return self._apply_to("agent", obs.agent), self._apply_to("entities", obs.entities)

    def _apply_to(self, name: str, values: Array) -> Tensor:
        shift, factor = getattr(self, f"{name}_shift"), getattr(self, f"{name}_factor")
        x = torch.from_numpy(values).to(shift.device, torch.float32).clamp(-self.clip, self.clip)
        return ((x - shift) * factor).clamp_(-self.normalised_clip, self.normalised_clip)


class Transitions(NamedTuple):
    """A batch as the networks see it: normalised, and on their device."""

    agent: Tensor  # (B, U)
    entities: Tensor  # (B, N, E)
    goals: Tensor  # (B, N, G)
    actions: Tensor  # (B, A)
    next_agent: Tensor  # (B, U)
    next_entities: Tensor  # (B, N, E)
    rewards: Tensor  # (B,)

    @property
    def obs(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.agent, self.entities, self.goals

    @property
    def next_obs(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.next_agent, self.next_entities, self.goals  # the goals hold for both

    def shares(self, number: int) -> Iterator["Transitions"]:
        """As many equal parts."""
        for share in zip(*(tensor.unflatten(0, (number, -1)) for tensor in self), strict=True):
            yield Transitions(*share)


class DDPG:
    """Actor, critic, their targets and optimisers. `usable_actions` marks which actions the task listens to."""

    def __init__(
        self,
        network: NetworkConfig,
        dims: EntityDims,
        config: DDPGConfig,
        usable_actions: Array,
        seed: int,
        device: str = "cpu",
    ) -> None:
        self.config = config
        self.device = torch.device(device)
        with torch.random.fork_rng(devices=[]):  # networks draw their weights from the global generator
            torch.manual_seed(seed)
            self.actor, self.critic = make_actor(network, dims).to(device), make_critic(network, dims).to(device)
        self.target_actor, self.target_critic = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        for target in (self.target_actor, self.target_critic):
            target.requires_grad_(False)
        self.normaliser = Normaliser(dims, config.observation_clip, config.normalised_clip).to(device)
        self._weights = [flatten(self.actor), flatten(self.critic)]
        self._target_weights = [flatten(self.target_actor), flatten(self.target_critic)]
        self.actor_optimiser, self.critic_optimiser = (
            torch.optim.Adam([vector], config.learning_rate, fused=True) for vector in self._weights
        )
        self.usable_actions = torch.from_numpy(usable_actions.astype(np.float32)).to(device)  # (A,)
        self.updates = 0

    @property
    def policy(self) -> Actor:
        """The network that is tested and stored: in the target actor the errors of single updates average out."""
        return self.target_actor

    def act(self, obs: EntityObs) -> Array:
        """What the policy does (B, A)."""
        return self._actions(self.policy, obs)

    def act_newest(self, obs: EntityObs) -> Array:
        """What the actor that is being trained does (B, A), to explore from."""
        return self._actions(self.actor, obs)

    @torch.no_grad()
    def _actions(self, actor: Actor, obs: EntityObs) -> Array:
        """0 where the task does not listen."""
        return (actor(*self.normaliser(obs)) * self.usable_actions).cpu().numpy()

    def reset(self, ids: Array | None = None) -> None:
        """Nothing is remembered between steps."""

    def update(self, batch: Batch, largest_cost: float, steps: int = 1) -> dict[str, float]:
        """So many gradient steps, each on its share of the batch. Returns what was last measured.

        `largest_cost` is the most that one step of an episode can cost, unscaled.
        """
        measured: dict[str, float] = {}
        for share in self._prepare(batch).shares(steps):
            measured |= finite_numbers(self._step(share, largest_cost), self.updates)
        return measured

    def _prepare(self, batch: Batch) -> Transitions:
        parts = batch.obs._asdict() | {f"next {name}": part for name, part in batch.next_obs._asdict().items()}
        for name, part in (parts | {"actions": batch.actions, "rewards": batch.rewards}).items():
            if not np.isfinite(part).all():  # clipping would hide it
                raise NonFinite(f"something in the {name} of the batch of update {self.updates + 1} is not finite")
        actions, rewards = (torch.from_numpy(part).to(self.device) for part in (batch.actions, batch.rewards))
        agent, entities, goals = self.normaliser(batch.obs)
        next_agent, next_entities = self.normaliser.state(batch.next_obs)
        return Transitions(agent, entities, goals, actions, next_agent, next_entities, rewards)

    def _step(self, batch: Transitions, largest_cost: float) -> dict[str, Tensor]:
        """One gradient step of the critic and, when it is its turn, of the actor; then the targets follow."""
        measured = self._improve_critic(batch, largest_cost)
        if self.updates % self.config.actor_every == 0:
            measured |= self._improve_actor(batch)
        self.updates += 1
        if self.updates % self.config.target_every == 0:
            for target, online in zip(self._target_weights, self._weights, strict=True):
                target.lerp_(online, 1 - self.config.target_keep)
        return measured

    def _improve_critic(self, batch: Transitions, largest_cost: float) -> dict[str, Tensor]:
        """Towards the reward and the discounted value of what the target actor would do next."""
        config = self.config
        with torch.no_grad():
            next_actions = self.target_actor(*batch.next_obs) * self.usable_actions
            next_value = self.target_critic(*batch.next_obs, next_actions)
            worst = -config.reward_scale * largest_cost / (1 - config.discount)
            wanted = (config.reward_scale * batch.rewards + config.discount * next_value).clamp_(worst, 0)
        value = self.critic(*batch.obs, batch.actions)
        loss = (value - wanted).square().mean()
        gradient = descend(loss, self.critic, self.critic_optimiser)
        return {"critic_loss": loss, "critic_gradient": gradient, "value": value.mean()}

    def _improve_actor(self, batch: Transitions) -> dict[str, Tensor]:
        """Towards actions that the critic values, and small ones."""
        chosen = self.actor(*batch.obs) * self.usable_actions
        penalty = chosen.square().sum() / (len(chosen) * self.usable_actions.sum())
        loss = self.config.action_l2 * penalty - self.critic(*batch.obs, chosen).mean()
        gradient = descend(loss, self.actor, self.actor_optimiser)  # without the critic's, which cost as much
        return {"actor_loss": loss, "actor_gradient": gradient, "action_size": penalty}

    def tensors(self) -> dict[str, Tensor]:
        """Everything that learns, by name."""
        return named_tensors(self, _MODULES, _OPTIMISERS)

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        from_named_tensors(self, tensors, _MODULES, _OPTIMISERS)


_MODULES = ("actor", "critic", "target_actor", "target_critic", "normaliser")
_OPTIMISERS = ("actor_optimiser", "critic_optimiser")


def named_tensors(agent: object, modules: Sequence[str], optimisers: Sequence[str]) -> dict[str, Tensor]:
    """The tensors of these attributes of an agent."""
    found = {f"{part}.{name}": t for part in modules for name, t in getattr(agent, part).state_dict().items()}
    for part in optimisers:
        for index, state in getattr(agent, part).state_dict()["state"].items():
            found |= {f"{part}.{index}.{name}": tensor for name, tensor in state.items()}
    return found


def from_named_tensors(
    agent: object, tensors: dict[str, Tensor], modules: Sequence[str], optimisers: Sequence[str]
) -> None:
    """The inverse of `named_tensors`."""
    for part in modules:
        named = {name.removeprefix(f"{part}."): t for name, t in tensors.items() if name.startswith(f"{part}.")}
        getattr(agent, part).load_state_dict(named)
    for part in optimisers:
        states: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith(f"{part}."):
                _, index, key = name.split(".")
                states.setdefault(int(index), {})[key] = tensor.clone()
        optimiser = getattr(agent, part)
        shapes = dict(enumerate(weights.shape for weights in optimiser.param_groups[0]["params"]))
        if states and {index: state["exp_avg"].shape for index, state in states.items()} != shapes:
            raise UserError("the checkpoint is of another version of efmdp: use that, or choose another --out")
        optimiser.load_state_dict({**optimiser.state_dict(), "state": states})


def finite_numbers(measured: dict[str, Tensor], update: int) -> dict[str, float]:
    """What an update measured; `NonFinite` if something of it went wrong."""
    numbers = {name: value.item() for name, value in measured.items()}
    for name, number in numbers.items():
        if not math.isfinite(number):
            raise NonFinite(f"{name.replace('_', ' ')} became {number} in update {update}")
    return numbers


def flatten(network: torch.nn.Module) -> Tensor:
    """Lay all weights of a network out in one vector, so that one operation changes them all."""
    vector = parameters_to_vector(network.parameters()).detach()
    vector_to_parameters(vector, network.parameters())
    return vector


def descend(loss: Tensor, network: torch.nn.Module, optimiser: torch.optim.Optimizer) -> Tensor:
    """One step of the network's weights, and no others, down the gradient of the loss; returns the gradient's size.

    The optimiser is that of the weights as one vector."""
    gradient = parameters_to_vector(torch.autograd.grad(loss, list(network.parameters())))
    (vector,) = optimiser.param_groups[0]["params"]
    vector.grad = gradient
    optimiser.step()
    return gradient.norm()
