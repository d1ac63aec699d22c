"""How to train, as data: the paper's settings, and ours for two cores."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from efmdp.ddpg import DDPGConfig
from efmdp.entities import OBJECTIVES, Array, Objective
from efmdp.networks import Kind, NetworkConfig
from efmdp.tasks import TaskError, parse_task, stitched

Decay = Literal["fast", "slow"]


@dataclass(frozen=True)
class Exploration:
    """Gaussian noise on the actions, and now and then a random action instead."""

    noise: float = 0.2
    """standard deviation of the noise, η"""
    random: float = 0.3
    """probability of a uniformly random action, ε"""
    decay_to: float = 1.0
    """both shrink linearly to this fraction of themselves"""
    decay_from_epoch: int = 0
    decay_until_epoch: int = 0
    decay_with_success: float = 0.0
    """both shrink by this fraction of the success on the selection seeds"""

    def factor(self, epoch: int, success: float) -> float:
        """What both are multiplied by in this epoch of their stage, after this success in the one before.

        >>> Exploration(decay_to=0.01, decay_from_epoch=100, decay_until_epoch=200).factor(150, success=0.7)
        0.505
        >>> Exploration(decay_with_success=0.8).factor(3, success=0.5)
        0.6
        """
        shrunk = 1 - self.decay_with_success * success
        if self.decay_to == 1 or epoch <= self.decay_from_epoch:
            return shrunk
        done = (epoch - self.decay_from_epoch) / max(1, self.decay_until_epoch - self.decay_from_epoch)
        return shrunk * (1 + min(done, 1.0) * (self.decay_to - 1))

    def disturb(self, wanted: Array, factor: float, rng: np.random.Generator) -> Array:
        """What is done instead of the wanted actions (B, A), with both multiplied by this factor."""
        noise = self.noise * factor * rng.standard_normal(wanted.shape)
        random = rng.uniform(-1, 1, wanted.shape)
        coin = rng.random(len(wanted)) < self.random * factor
        return np.where(coin[:, None], random, wanted + noise).clip(-1, 1)


@dataclass(frozen=True)
class Stage:
    """One task of a curriculum, trained until it is solved well enough or for so many epochs."""

    task: str
    epochs: int
    until: float = 2.0
    """success on the selection seeds at which the next stage begins; above 1 for never"""
    exploration: Exploration = field(default_factory=Exploration)


@dataclass(frozen=True)
class TrainConfig:
    """Everything that makes a run what it is."""

    task: str
    network: NetworkConfig
    ddpg: DDPGConfig
    objective: Objective
    """the reward that is learned from; success is the same for all"""
    stages: tuple[Stage, ...]
    """the last one is the task itself"""
    recipe: str
    seed: int = 0
    num_envs: int = 16
    rounds_per_epoch: int = 50
    """a round is one episode of every environment, then updates"""
    updates_per_round: int = 40
    batch_size: int = 256
    relabel_prob: float = 0.8
    replay_capacity: int = 1_000_000
    """transitions"""
    by_movement: bool = True
    """sample episodes by how many of their entities moved"""
    redraws: int = 3
    """how often a relabelled transition whose goal already holds is drawn anew"""
    subsets: bool = False
    """in rounds that become rarer with success on the selection seeds, learn from some of the entities at a time"""
    selection_episodes: int = 100
    collisions: bool | None = None
    gripper: bool | None = None
    threads: int = 2

    @property
    def epochs(self) -> int:
        """The most that all stages together may take."""
        return sum(stage.epochs for stage in self.stages)

    def __post_init__(self) -> None:
        if self.updates_per_round < self.ddpg.actor_every:
            raise ValueError(
                f"{self.updates_per_round} updates a round, but the actor's only every {self.ddpg.actor_every}"
            )


# The paper's table of environments: reward, epochs, exploration decay (from epoch, until epoch), target keep.
# Where it is silent (mixtures of either kind, stacking), the values of its released code.
_CONSTANT: dict[Decay, tuple[int, int] | None] = {"fast": None, "slow": None}
PAPER_TABLE: dict[str, tuple[Literal["sparse", "dense"], int, dict[Decay, tuple[int, int] | None], float]] = {
    "1-Push": ("sparse", 50, _CONSTANT, 0.95),
    "2-Push": ("dense", 150, {"fast": (75, 125), "slow": (75, 125)}, 0.99),
    "3-Push": ("dense", 250, {"fast": (30, 80), "slow": (100, 175)}, 0.99),
    "1-Switch": ("sparse", 10, _CONSTANT, 0.95),
    "2-Switch": ("sparse", 50, _CONSTANT, 0.95),
    "3-Switch": ("sparse", 100, _CONSTANT, 0.95),
    "1-Switch+1-Push": ("dense", 150, {"fast": (60, 100), "slow": (60, 100)}, 0.99),
    "2-Switch+2-Push": ("dense", 250, {"fast": (75, 150), "slow": (100, 150)}, 0.99),
    "2-Switch|2-Push": ("dense", 250, {"fast": (50, 100), "slow": (100, 175)}, 0.99),
    "2-Switch&2-Push": ("dense", 250, {"fast": (50, 100), "slow": (100, 175)}, 0.99),
    "2-Push|Stack": ("dense", 250, {"fast": (75, 150), "slow": (75, 150)}, 0.99),
    "2-Push&Stack": ("dense", 250, {"fast": (75, 150), "slow": (75, 150)}, 0.99),
    "Stack": ("dense", 250, {"fast": (75, 150), "slow": (75, 150)}, 0.99),
}
PAPER_DECAY_TO = 0.01

# Epochs on the task itself in the fast recipe, after its curriculum and without one: docs/fast-recipe.md.
FAST_EPOCHS = {"1-Push": 10, "2-Push": 15, "3-Push": 22, "1-Switch": 6, "2-Switch": 5, "3-Switch": 5}
FROM_SCRATCH_EPOCHS = {"2-Push": 25, "3-Push": 40, "2-Switch": 6, "3-Switch": 8}
MLP_FROM_SCRATCH_EPOCHS = {"2-Switch": 16, "3-Switch": 16}  # enough to see whether it is 4 times slower
ATTENTION_FROM_SCRATCH_EPOCHS = {"2-Push": 40}
OTHER_EPOCHS = 60


def places_for(task: str, entities: int) -> int:
    """How many entities an MLP must have places for: those of its task, or of the one that a mixture is tested on."""
    test = stitched(task)
    return entities if test is None else max(entities, parse_task(test).entities)


def make_network(kind: Kind, entities: int, max_entities: int | None = None) -> NetworkConfig:
    """An MLP has room for the task's entities unless more are asked for."""
    if kind != "mlp":
        return NetworkConfig(kind, max_entities=max_entities)
    if max_entities is not None and max_entities < entities:
        raise TaskError(f"the task has {entities} entities: an mlp with room for {max_entities} cannot learn it")
    return NetworkConfig(kind, max_entities=max_entities or entities)


def from_json(stored: dict[str, Any]) -> TrainConfig:
    """The inverse of `dataclasses.asdict`, for a run's config.json."""
    stages = tuple(Stage(**{**stage, "exploration": Exploration(**stage["exploration"])}) for stage in stored["stages"])
    parts = {
        "network": NetworkConfig(**stored["network"]),
        "ddpg": DDPGConfig(**stored["ddpg"]),
        "objective": Objective(**stored["objective"]),
        "stages": stages,
    }
    return TrainConfig(**{**stored, **parts})


def paper(task: str, network: NetworkConfig, seed: int, decay: Decay = "fast") -> TrainConfig:
    """The paper's tables, and its released code where they are silent."""
    if task not in PAPER_TABLE:
        raise TaskError(f"the paper did not train on {task!r}: choose {', '.join(PAPER_TABLE)}, or --recipe fast")
    reward, epochs, decays, keep = PAPER_TABLE[task]
    span = decays[decay]
    exploration = Exploration() if span is None else Exploration(0.2, 0.3, PAPER_DECAY_TO, *span)
    return TrainConfig(
        task=task,
        network=network,
        ddpg=DDPGConfig(
            learning_rate=learning_rate(network),
            target_keep=keep,
            target_every=40,
            reward_scale=5.0 if reward == "dense" else 1.0,
        ),
        objective=OBJECTIVES[reward],
        stages=(Stage(task, epochs, exploration=exploration),),
        recipe=f"paper-{decay}",
        seed=seed,
        batch_size=2048,
        by_movement=False,
        redraws=0,
    )


def learning_rate(network: NetworkConfig, attention: float = 1e-4) -> float:
    """The paper's, or another one for Self-Attention."""
    return attention if network.kind == "self-attention" else 1e-3


def fast(task: str, network: NetworkConfig, seed: int, curriculum: bool = True) -> TrainConfig:
    """Ours, for two cores: see docs/fast-recipe.md for what each piece buys."""
    parsed, stages = parse_task(task), tuple(_fast_stages(task, network, curriculum))
    from_scratch = not curriculum and len(tuple(_fast_stages(task, network, curriculum=True))) > 1
    cubes, stacks = any(scene.cubes for scene in parsed.scenes), any(scene.stacks for scene in parsed.scenes)
    strays = len(stages) == 1 and cubes and network.kind == "self-attention"  # its hand leaves the cubes
    ddpg = DDPGConfig(learning_rate=learning_rate(network, attention=3e-4), actor_every=2)
    return TrainConfig(
        task=task,
        network=network,
        ddpg=replace(ddpg, action_l2=3.0) if strays else ddpg,
        objective=Objective("sparse", "sum"),
        stages=stages,
        recipe="fast-no-curriculum" if from_scratch else "fast",
        seed=seed,
        subsets=network.kind != "mlp" and parsed.entities > 1 and not stacks,  # what is hidden must carry nothing
    )


def smoke(task: str, network: NetworkConfig, seed: int) -> TrainConfig:
    """The fast recipe for seconds: it learns nothing, and shows that everything works where it runs."""
    config = fast(task, network, seed, curriculum=False)
    stages = tuple(replace(stage, epochs=2) for stage in config.stages)
    config = replace(config, stages=stages, recipe="smoke", num_envs=4, selection_episodes=4)
    return replace(config, rounds_per_epoch=2, updates_per_round=4)


def _fast_stages(task: str, network: NetworkConfig, curriculum: bool) -> Iterator[Stage]:
    """A task of one kind of entity begins with one of them, and three cubes and more pass through two."""
    explore = Exploration(0.2, 0.3, decay_with_success=0.8)
    scene, *others = parse_task(task).scenes
    own = {"mlp": MLP_FROM_SCRATCH_EPOCHS, "self-attention": ATTENTION_FROM_SCRATCH_EPOCHS}.get(network.kind, {})
    epochs = FAST_EPOCHS if curriculum else FAST_EPOCHS | FROM_SCRATCH_EPOCHS | own
    pushes, switches = scene.pushes, scene.switches
    alone = not others and not scene.stacks and not (pushes and switches)
    if curriculum and alone and pushes + switches > 1:
        name, most = ("1-Push", 10) if pushes else ("1-Switch", 4)
        yield Stage(name, most, until=0.9, exploration=explore)
    if curriculum and alone and pushes > 2:
        yield Stage("2-Push", 10, until=0.8, exploration=explore)
    yield Stage(task, epochs.get(task, OTHER_EPOCHS), exploration=explore)
