"""Policies for sets of objects: the Entity-Factored MDP, the Fetch suite, and what learns on them.

Importing this package registers its Gymnasium environments. Networks and trained policies load torch only when they are
asked for.
"""

import os
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Any

import gymnasium

from efmdp.tasks import PAPER_TASKS, gym_id

__version__ = version("efmdp")

if sys.platform == "linux":
    os.environ.setdefault("MUJOCO_GL", "egl")  # works without a screen too; MuJoCo must be told before it is imported


_LATER = {  # torch takes seconds to import, and the environments do without it
    "MLPActor": "networks",
    "MLPCritic": "networks",
    "DeepSetActor": "networks",
    "DeepSetCritic": "networks",
    "SelfAttentionActor": "networks",
    "SelfAttentionCritic": "networks",
    "load_policy": "evaluate",
    "register_network": "networks:register",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'efmdp' has no attribute {name!r}")
    module, _, called = _LATER[name].partition(":")
    return getattr(import_module(f"efmdp.{module}"), called or name)


def _register() -> None:
    ids: dict[str, dict[str, str]] = {"efmdp/Fetch-v1": {}} | {gym_id(task): {"task": task} for task in PAPER_TASKS}
    for name, kwargs in ids.items():
        # The environments truncate themselves, so that a mixture can give each episode its own length.
        gymnasium.register(
            name,
            entry_point="efmdp.gym_env:FetchGymEnv",
            vector_entry_point="efmdp.gym_env:FetchVectorEnv",
            kwargs=kwargs,
        )


_register()
