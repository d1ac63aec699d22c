"""MLP, Deep Sets and Self-Attention actors and critics over sets of entities: plain torch modules.

All of them are called alike: actor(agent, entities, goals, mask) and critic(agent, entities, goals, action, mask), on
normalised observations, with any number of entities (the MLP: up to its `max_entities`). Where `mask` is given, only
the entities marked True exist: what the others hold has no influence, so one batch may mix entity counts.

Shapes: B batch, N entities, U agent, E entity, G subgoal, A action; H heads, W width, D = W / H.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from efmdp.entities import CannotPlay, EntityDims, UserError

Kind = Literal["mlp", "deep-set", "deep-set-large", "self-attention"]
MakeBody = Callable[[EntityDims, int, int], nn.Module]

# Hides an entity from attention; finite, so that a sample without any entity sums nothing instead of giving NaN.
HIDDEN = -1e30

_OWN: dict[str, MakeBody] = {}  # registered in this process


def register(kind: str, make_body: MakeBody) -> None:
    """Let NetworkConfig(kind) mean a network of your own in this process: see docs/your-own-network.md.

    make_body(dims, n_action, n_out) makes the body of an actor (n_action 0) or of a critic. It is called as
    body(agent, entities, goals, action or None, mask or None), as the bodies below are, and gives (B, n_out).
    """
    if kind in get_args(Kind):
        raise UserError(f"{kind!r} is a network of efmdp: choose another name for yours")
    # Folders and the zoo are named after it, and tables mean something else by these two.
    if not re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", kind) or kind == "oracle" or kind.startswith("mlp-"):
        raise UserError(f"a network cannot be called {kind!r}: use a-z, 0-9 and single hyphens, not oracle or mlp-...")
    if _OWN.setdefault(kind, make_body) != make_body:
        raise UserError(f"another network {kind!r} is registered already: choose another name, or a new process")


@dataclass(frozen=True)
class NetworkConfig:
    """Which architecture, and its sizes (the paper's by default)."""

    kind: str = "deep-set"
    """architecture of actor and critic: a `Kind`, or what was registered (whose sizes are its own affair)"""
    width: int = 256
    """units of every hidden layer; the embedding size of self-attention"""
    heads: int = 4
    """attention heads (self-attention only)"""
    feedforward: int = 256
    """hidden units of a block's feedforward part (self-attention only)"""
    blocks: int = 2
    """transformer blocks (self-attention only)"""
    max_entities: int | None = None
    """entities the input is zero-padded to (mlp only, and needed there)"""

    def __post_init__(self) -> None:
        if self.kind not in (*get_args(Kind), *_OWN):
            known, own = ", ".join((*get_args(Kind), *_OWN)), f"efmdp.networks.register({self.kind!r}, ...)"
            raise UserError(f"unknown network {self.kind!r}: choose {known}; your own needs {own} before it is loaded")
        if self.kind == "mlp" and self.max_entities is None:
            raise UserError("an mlp needs max_entities: choose for how many it has room")
        if self.kind != "mlp" and self.max_entities is not None:
            raise UserError(f"max_entities is {self.max_entities}: {self.kind} takes any number, leave it out")
        if self.max_entities is not None and not 1 <= self.max_entities <= 1000:
            raise UserError(f"max_entities is {self.max_entities}: choose 1 to 1000")

    @property
    def name(self) -> str:
        """What folders and tables call it: an MLP with more places is another network.

        >>> NetworkConfig("mlp", max_entities=6).name
        'mlp-6'
        """
        return self.kind if self.max_entities is None else f"{self.kind}-{self.max_entities}"


def stack(*sizes: int) -> list[nn.Module]:
    """Linear layers between consecutive sizes, a ReLU after each, in place: backward needs only what it leaves."""
    return [module for n_in, n_out in pairwise(sizes) for module in (nn.Linear(n_in, n_out), nn.ReLU(inplace=True))]


def per_entity(agent: Tensor, entities: Tensor, goals: Tensor, action: Tensor | None) -> Tensor:
    """The vectors y_i = (u, e_i, g_i[, a]): (B, N, U + E + G [+ A])."""
    # Multiplying u and a by their part of the first layer once per sample was measured at N = 3: no clear gain.
    N = entities.shape[1]
    parts = [agent[:, None].expand(-1, N, -1), entities, goals]  # (B, N, U), (B, N, E), (B, N, G)
    if action is not None:
        parts.append(action[:, None].expand(-1, N, -1))  # (B, N, A)
    return torch.cat(parts, -1)


def pool(z: Tensor, mask: Tensor | None) -> Tensor:
    """The sum over existing entities: (B, N, W) to (B, W)."""
    return z.sum(1) if mask is None else (z * mask[:, :, None]).sum(1)


class MLP(nn.Module):
    """Everything in one vector (u, e_1.., g_1..[, a]), missing entities as zeros; three hidden layers."""

    def __init__(self, dims: EntityDims, n_action: int, n_out: int, max_entities: int, width: int) -> None:
        super().__init__()
        self.max_entities = max_entities
        n_in = dims.agent + max_entities * (dims.entity + dims.goal) + n_action
        self.layers = nn.Sequential(*stack(n_in, width, width, width), nn.Linear(width, n_out))

    def forward(
        self, agent: Tensor, entities: Tensor, goals: Tensor, action: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        missing = self.max_entities - entities.shape[1]
        if missing < 0:
            raise CannotPlay(f"{entities.shape[1]} entities: this MLP was made for at most {self.max_entities}")
        # (B, N, E) to (B, max_entities * E), and the same for goals
        flat = [F.pad(x, (0, 0, 0, missing)).flatten(1) for x in (entities, goals)]
        return self.layers(torch.cat([agent, *flat] if action is None else [agent, *flat, action], -1))


class DeepSet(nn.Module):
    """rho(sum over i of phi(y_i)): phi has `n_phi` layers, rho `n_rho` hidden ones and a linear output."""

    def __init__(self, dims: EntityDims, n_action: int, n_out: int, width: int, n_phi: int, n_rho: int) -> None:
        super().__init__()
        n_in = dims.agent + dims.entity + dims.goal + n_action
        self.phi = nn.Sequential(*stack(n_in, *[width] * n_phi))
        self.rho = nn.Sequential(*stack(width, *[width] * n_rho), nn.Linear(width, n_out))

    def forward(
        self, agent: Tensor, entities: Tensor, goals: Tensor, action: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        y = per_entity(agent, entities, goals, action)
        # Flat, because autograd would copy a view before it is changed in place.
        z = self.phi(y.flatten(0, 1)).unflatten(0, y.shape[:2])
        return self.rho(pool(z, mask))


class Block(nn.Module):
    """A transformer encoder block, LayerNorm first, no dropout."""

    def __init__(self, width: int, heads: int, feedforward: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} does not divide into {heads} heads")
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_feedforward = nn.LayerNorm(width)
        self.feedforward = nn.Sequential(*stack(width, feedforward), nn.Linear(feedforward, width))

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x (B, N, W); bias (B, 1, 1, N), added to the scores of each entity as a key; to (B, N, W)."""
        qkv = self.qkv(self.norm_attention(x)).chunk(3, -1)  # three (B, N, W)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in qkv)  # (B, H, N, D) each
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.out(attended.transpose(1, 2).flatten(2))  # (B, N, H, D) to (B, N, W)
        return x + self.feedforward(self.norm_feedforward(x).flatten(0, 1)).view_as(x)


class SelfAttention(nn.Module):
    """A linear embedding of each y_i, transformer blocks, the sum of their outputs, a linear output."""

    def __init__(
        self, dims: EntityDims, n_action: int, n_out: int, width: int, heads: int, feedforward: int, blocks: int
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(dims.agent + dims.entity + dims.goal + n_action, width)
        self.blocks = nn.ModuleList(Block(width, heads, feedforward) for _ in range(blocks))
        self.rho = nn.Linear(width, n_out)

    def forward(
        self, agent: Tensor, entities: Tensor, goals: Tensor, action: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        x = self.embed(per_entity(agent, entities, goals, action))
        bias = None
        if mask is not None:
            bias = torch.zeros_like(mask, dtype=x.dtype).masked_fill(~mask, HIDDEN)[:, None, None]  # (B, 1, 1, N)
        for block in self.blocks:
            x = block(x, bias)
        return self.rho(pool(x, mask))


class Actor(nn.Module):
    """Observations to actions in [-1, 1]."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, agent: Tensor, entities: Tensor, goals: Tensor, mask: Tensor | None = None) -> Tensor:
        """agent (B, U), entities (B, N, E), goals (B, N, G), mask (B, N) bool, True = exists; to (B, A)."""
        return self.body(agent, *existing(entities, goals, mask), None, mask).tanh()


class Critic(nn.Module):
    """Observations and actions to values."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(
        self, agent: Tensor, entities: Tensor, goals: Tensor, action: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """agent (B, U), entities (B, N, E), goals (B, N, G), action (B, A), mask (B, N) bool; to (B,)."""
        values = self.body(agent, *existing(entities, goals, mask), action, mask)  # (B, 1)
        return values.reshape(len(agent))  # values of each entity would not fit, where squeezed ones broadcast


def existing(entities: Tensor, goals: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Entities and goals with zeros where the mask says that there is nothing."""
    if mask is None:
        return entities, goals
    nothing = ~mask[:, :, None]  # (B, N, 1)
    return entities.masked_fill(nothing, 0), goals.masked_fill(nothing, 0)


class MLPActor(Actor):
    def __init__(self, dims: EntityDims, max_entities: int, width: int = 256) -> None:
        super().__init__(MLP(dims, 0, dims.action, max_entities, width))


class MLPCritic(Critic):
    def __init__(self, dims: EntityDims, max_entities: int, width: int = 256) -> None:
        super().__init__(MLP(dims, dims.action, 1, max_entities, width))


class DeepSetActor(Actor):
    def __init__(self, dims: EntityDims, width: int = 256, large: bool = False) -> None:
        super().__init__(DeepSet(dims, 0, dims.action, width, n_phi=3, n_rho=int(large)))


class DeepSetCritic(Critic):
    def __init__(self, dims: EntityDims, width: int = 256, large: bool = False) -> None:
        super().__init__(DeepSet(dims, dims.action, 1, width, n_phi=2, n_rho=1 + int(large)))


class SelfAttentionActor(Actor):
    def __init__(
        self, dims: EntityDims, width: int = 256, heads: int = 4, feedforward: int = 256, blocks: int = 2
    ) -> None:
        super().__init__(SelfAttention(dims, 0, dims.action, width, heads, feedforward, blocks))


class SelfAttentionCritic(Critic):
    def __init__(
        self, dims: EntityDims, width: int = 256, heads: int = 4, feedforward: int = 256, blocks: int = 2
    ) -> None:
        super().__init__(SelfAttention(dims, dims.action, 1, width, heads, feedforward, blocks))


def make_actor(config: NetworkConfig, dims: EntityDims) -> Actor:
    if config.kind in _OWN:
        return Actor(_OWN[config.kind](dims, 0, dims.action))
    if config.kind == "mlp":
        assert config.max_entities is not None
        return MLPActor(dims, config.max_entities, config.width)
    if config.kind == "self-attention":
        return SelfAttentionActor(dims, config.width, config.heads, config.feedforward, config.blocks)
    return DeepSetActor(dims, config.width, large=config.kind == "deep-set-large")


def make_critic(config: NetworkConfig, dims: EntityDims) -> Critic:
    if config.kind in _OWN:
        return Critic(_OWN[config.kind](dims, dims.action, 1))
    if config.kind == "mlp":
        assert config.max_entities is not None
        return MLPCritic(dims, config.max_entities, config.width)
    if config.kind == "self-attention":
        return SelfAttentionCritic(dims, config.width, config.heads, config.feedforward, config.blocks)
    return DeepSetCritic(dims, config.width, large=config.kind == "deep-set-large")
