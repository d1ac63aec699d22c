"""Environments by name, whichever domain they are of: the robot's tasks, and discs for quick experiments."""

import re

from efmdp.discs import DiscEnv
from efmdp.entities import EntityEnv
from efmdp.env import FetchEnv
from efmdp.scene import Profile
from efmdp.tasks import Layout, RewardKind, parse_task


def make_env(
    name: str,
    num_envs: int = 1,
    *,
    collisions: bool | None = None,
    gripper: bool | None = None,
    layout: Layout = "paper",
    reward: RewardKind = "sparse",
    profile: Profile = "fast",
    num_threads: int | None = None,
) -> EntityEnv:
    """`3-Push` and the like give a FetchEnv, `3-Disc` a DiscEnv, for which the robot's options mean nothing."""
    if match := re.fullmatch(r"([1-9]\d?)-Disc", name):
        return DiscEnv(num_envs, int(match[1]), collisions=bool(collisions), reward=reward)
    task = parse_task(name, collisions=collisions, gripper=gripper, layout=layout, reward=reward)
    return FetchEnv(task, num_envs, profile, num_threads=num_threads)
