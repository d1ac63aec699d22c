"""What several commands ask for and check."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from efmdp.domains import make_env
from efmdp.entities import EntityEnv, UserError
from efmdp.env import FetchEnv
from efmdp.rollout import Policy
from efmdp.scene import Profile
from efmdp.tasks import GRAMMAR, Layout, RewardKind

if TYPE_CHECKING:
    from efmdp.evaluate import LearnedPolicy


@dataclass
class PhysicsOptions:
    """What can be chosen about a task's physics."""

    collisions: bool | None = None
    """whether entities collide with each other (default: where the task stacks)"""
    layout: Layout = "paper"
    """paper: up to 6 entities in the paper's square; wide: up to 12 in a larger one"""
    profile: Profile = "fast"
    """physics: fast, or the reference it is measured against"""
    gripper: bool | None = None
    """whether the fourth action moves the fingers (default: where the task stacks)"""

    def make(self, name: str, num_envs: int = 1) -> EntityEnv:
        return make_env(name, num_envs, **asdict(self))

    def make_fetch(self, name: str, num_envs: int = 1) -> FetchEnv:
        """For what needs the robot, such as pictures."""
        env = self.make(name, num_envs)
        if not isinstance(env, FetchEnv):
            raise UserError(f"{name} is no task of the robot: {GRAMMAR}")
        return env


@dataclass
class TaskOptions(PhysicsOptions):
    """What can be chosen about a task besides its name."""

    reward: RewardKind = "sparse"


Options = TypeVar("Options", bound=PhysicsOptions)


def load_for(path: Path, which: str, task: str | None, options: Options) -> tuple["LearnedPolicy", str, Options]:
    """A trained policy, the task it is to do, and the physics it was trained with unless another is asked for."""
    from efmdp.evaluate import load_policy

    policy = load_policy(path, which)
    trained = {name: value for name, value in policy.physics.items() if getattr(options, name) is None}
    return policy, task or policy.task, replace(options, **trained)


def is_oracle(path: Path) -> bool:
    """A run's folder of that name is ./oracle."""
    return str(path) == "oracle"


def oracle_for(task: str | None, sources: Sequence[str], options: PhysicsOptions, num_envs: int) -> Policy:
    from efmdp.oracle import make_oracle, parse_sources  # torch takes seconds to import

    if task is None:
        raise UserError("the oracle does any task: say which with --task, such as --task 2-Switch+2-Push")
    return make_oracle(num_envs, options.make_fetch(task).task, parse_sources(sources))


def check_seed(seed: int) -> None:
    if not 0 <= seed < 2**32:  # beyond that NumPy would mix it up with a seed of another stream
        raise UserError(f"--seed is {seed}: choose 0 or more, below 2^32")
