"""Demonstrations as a Minari dataset, for whoever learns from those. Minari is an optional dependency."""

import importlib.util
import shutil
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import gymnasium
import numpy as np

from efmdp.demos import Demos, disturbance
from efmdp.domains import make_env
from efmdp.entities import EntityObs, UserError
from efmdp.env import FetchEnv
from efmdp.gym_env import flat_obs

if TYPE_CHECKING:
    from minari import MinariDataset
    from minari.data_collector import EpisodeBuffer


def export_minari(demos: Demos, name: str) -> "MinariDataset":
    """Write demonstrations into Minari's folder, a chunk at a time. Episodes whose simulation failed are left out."""
    about = demos.about
    env = make_env(about["task"], **about["options"])
    if not isinstance(env, FetchEnv):
        raise UserError(f"{about['task']} is no task of the robot: Minari needs a Gymnasium environment")
    if any(disturbance(about).values()):
        raise UserError(f"{demos.path} was disturbed: its actions are those that were wanted, not those that were done")
    if len(demos) == 0:
        raise UserError(f"{demos.path} holds no episodes yet: {demos.command(about['episodes'])}")
    if any(importlib.util.find_spec(package) is None for package in ("minari", "h5py", "PIL")):
        raise UserError("Minari is not installed, or not what it needs: pip install 'efmdp[minari]'")
    import minari
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.storage import get_dataset_path

    try:
        parse_dataset_id(name)
    except (ValueError, TypeError):  # TypeError: it has no version
        raise UserError(f"{name!r} does not name a Minari dataset: choose one like efmdp/3-push/scripted-v0") from None
    folder = get_dataset_path(name)
    if folder.exists() and "dataset_size" not in minari.load_dataset(name).storage.metadata:
        shutil.rmtree(folder)  # a killed export left it: Minari writes the size last
    if folder.exists():
        raise UserError(f"the Minari dataset {name} exists already: choose another --name, or minari delete {name}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that nobody said who the author is, where the code is, ...
            return minari.create_dataset_from_buffers(
                name,
                _episodes(demos, env),
                gymnasium.make("efmdp/Fetch-v1", task=about["task"], **about["options"]),
                algorithm_name=about["policy"],
                description=f"{about['task']} of efmdp, by {about['policy']}, seed {about['seed']}; not all successful",
                requirements=[f"{package}=={about['versions'][package]}" for package in ("efmdp", "mujoco")],
            )
    except BaseException:  # Ctrl-C too: half a dataset is none
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _episodes(demos: Demos, env: FetchEnv) -> Iterator["EpisodeBuffer"]:
    """Observations, rewards and successes as the Gymnasium environment gives them."""
    from minari.data_collector import EpisodeBuffer

    for episodes, flags in demos.chunks():
        for k in np.flatnonzero(~flags.failed):
            length = episodes.lengths[k]
            entities = episodes.entities[k, : length + 1]  # (T + 1, N, E)
            goals = np.broadcast_to(episodes.goals[k], (length + 1, *episodes.goals[k].shape))  # (T + 1, N, G)
            achieved = env.achieved(entities)
            yield EpisodeBuffer(
                observations=flat_obs(env, EntityObs(episodes.agent[k, : length + 1], entities, goals)),
                actions=episodes.actions[k, :length],
                rewards=env.reward(achieved, goals)[1:],
                terminations=np.zeros(length, bool),
                truncations=np.arange(1, length + 1) == length,
                infos={"is_success": env.success(achieved, goals)},
            )
