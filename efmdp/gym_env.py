"""The Fetch suite for Gymnasium: goal environments, one at a time or natively vectorised."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from efmdp.entities import Array, EntityDims, EntityObs
from efmdp.env import FETCH_DIMS, FetchEnv
from efmdp.render import FRAMES_PER_SECOND, Picture
from efmdp.scene import Profile
from efmdp.tasks import Layout, RewardKind, parse_task

GymObs = dict[str, Array]
RENDER_MODES = ("rgb_array", "human")
METADATA: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": FRAMES_PER_SECOND}


def flat_obs(env: FetchEnv, obs: EntityObs) -> GymObs:
    """Structured to flat: observation (B, U + N*E), goals (B, N*G)."""
    b = len(obs.agent)
    return {
        "observation": np.concatenate([obs.agent, obs.entities.reshape(b, -1)], 1),
        "achieved_goal": env.achieved(obs.entities).reshape(b, -1),
        "desired_goal": obs.goals.reshape(b, -1),
    }


def entity_obs(flat: GymObs, dims: EntityDims = FETCH_DIMS) -> EntityObs:
    """Flat observations back to agent (..., U), entities (..., N, E) and goals (..., N, G)."""
    observation, goals = flat["observation"], flat["desired_goal"]
    batch = observation.shape[:-1]
    return EntityObs(
        observation[..., : dims.agent],
        observation[..., dims.agent :].reshape(*batch, -1, dims.entity),
        goals.reshape(*batch, -1, dims.goal),
    )


class _FetchSpaces:
    """What the single and the vectorised environment share: the simulation, its spaces and the reward function."""

    def _build(
        self,
        num_envs: int,
        task: str,
        reward: RewardKind,
        collisions: bool | None,
        gripper: bool | None,
        layout: Layout,
        profile: Profile,
        render_mode: str | None,
        width: int,
        height: int,
    ) -> tuple[gymnasium.Space[Any], gymnasium.spaces.Box]:
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise ValueError(f"unknown render_mode {render_mode!r}: choose {' or '.join(RENDER_MODES)}")
        parsed = parse_task(task, collisions=collisions, gripper=gripper, layout=layout, reward=reward)
        self.fetch = FetchEnv(parsed, num_envs, profile, seed=int(np.random.SeedSequence().generate_state(1)[0]))
        self.render_mode = render_mode
        self._picture = Picture(self.fetch, width, height) if render_mode else None
        sizes = {
            "observation": FETCH_DIMS.agent + parsed.entities * FETCH_DIMS.entity,
            "achieved_goal": parsed.entities * FETCH_DIMS.goal,
            "desired_goal": parsed.entities * FETCH_DIMS.goal,
        }
        boxes: dict[str, gymnasium.Space[Any]] = {
            name: gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32) for name, size in sizes.items()
        }
        return gymnasium.spaces.Dict(boxes), gymnasium.spaces.Box(-1, 1, (FETCH_DIMS.action,), np.float32)

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: Any = None) -> Array:
        """Rewards (...) of flat goals (..., N*G); `info` is not read."""
        achieved, desired = np.asarray(achieved_goal), np.asarray(desired_goal)
        size = self.fetch.num_entities * FETCH_DIMS.goal
        if achieved.shape[-1] != size or desired.shape[-1] != size:
            raise ValueError(
                f"goals have {achieved.shape[-1]} and {desired.shape[-1]} numbers, this task's have {size}"
            )
        pairs = (*achieved.shape[:-1], -1, FETCH_DIMS.goal)  # (..., N, G)
        return self.fetch.reward(achieved.reshape(pairs), desired.reshape(pairs))

    def _tasks(self) -> Array:
        return np.array([scene.name for scene in self.fetch.task.scenes], object)[self.fetch.member]

    def _close_picture(self) -> None:
        if self._picture is not None:
            self._picture.close()


class FetchGymEnv(_FetchSpaces, gymnasium.Env[GymObs, Array]):
    """`gymnasium.make("efmdp/Fetch3Push-v1")`, or `gymnasium.make("efmdp/Fetch-v1", task="4-Push")` for any task."""

    metadata = METADATA

    def __init__(
        self,
        task: str = "3-Push",
        reward: RewardKind = "sparse",
        collisions: bool | None = None,
        gripper: bool | None = None,
        layout: Layout = "paper",
        profile: Profile = "fast",
        render_mode: str | None = None,
        width: int = 640,
        height: int = 480,
    ) -> None:
        self.observation_space, self.action_space = self._build(
            1, task, reward, collisions, gripper, layout, profile, render_mode, width, height
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[GymObs, dict[str, Any]]:
        super().reset(seed=seed)
        obs = self._first(flat_obs(self.fetch, self.fetch.reset(seed=seed)))
        if self.render_mode == "human":
            self.render()
        return obs, {"is_success": False, "task": self.fetch.task.scenes[self.fetch.member[0]].name}

    def step(self, action: Array) -> tuple[GymObs, float, bool, bool, dict[str, Any]]:
        task = self.fetch.task.scenes[self.fetch.member[0]].name
        step = self.fetch.step(np.asarray(action)[None])
        if self.render_mode == "human":
            self.render()
        info = {"is_success": bool(step.success[0]), "failed": bool(step.failed[0]), "task": task}
        return self._first(flat_obs(self.fetch, step.obs)), float(step.reward[0]), False, bool(step.truncated[0]), info

    def render(self) -> Array | None:
        if self._picture is None:
            raise RuntimeError("make the environment with render_mode='rgb_array' or 'human' to render it")
        if self.render_mode == "human":
            self._picture.show()
            return None
        return self._picture.frame()

    def close(self) -> None:
        self._close_picture()

    @staticmethod
    def _first(obs: GymObs) -> GymObs:
        return {name: value[0] for name, value in obs.items()}


class FetchVectorEnv(_FetchSpaces, VectorEnv[GymObs, Array, Array]):
    """`gymnasium.make_vec("efmdp/Fetch3Push-v1", num_envs=16)`: all environments stepped by MuJoCo's thread pool.

    `autoreset_mode` is Gymnasium's: "NextStep" (its default), "SameStep" or "Disabled".
    """

    def __init__(
        self,
        num_envs: int = 16,
        task: str = "3-Push",
        reward: RewardKind = "sparse",
        collisions: bool | None = None,
        gripper: bool | None = None,
        layout: Layout = "paper",
        profile: Profile = "fast",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        width: int = 640,
        height: int = 480,
    ) -> None:
        if render_mode == "human":
            raise ValueError("a vector environment has no window: use render_mode='rgb_array', or a single environment")
        self.num_envs = num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = METADATA | {"autoreset_mode": self.autoreset_mode}
        self.single_observation_space, self.single_action_space = self._build(
            num_envs, task, reward, collisions, gripper, layout, profile, render_mode, width, height
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._done = np.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[GymObs, dict[str, Any]]:
        """`options={"reset_mask": (num_envs,) bool}` resets some environments only.

        A list of seeds gives environment i what a single one gets from seed[i]; an int gives all of them streams of
        their own.
        """
        mask = None if options is None else options.get("reset_mask")
        if mask is not None and (np.asarray(mask).dtype != bool or np.shape(mask) != (self.num_envs,)):
            raise ValueError(f"reset_mask must be {self.num_envs} bools, one for each environment")
        obs = self.fetch.reset(mask, seed=seed)
        chosen = np.ones(self.num_envs, bool) if mask is None else np.array(mask)
        self._done = self._done & ~chosen
        info = {"is_success": np.zeros(self.num_envs, bool), "task": self._tasks()}
        return flat_obs(self.fetch, obs), info | {f"_{name}": chosen.copy() for name in info}

    def step(self, actions: Array) -> tuple[GymObs, Array, Array, Array, dict[str, Any]]:
        tasks = self._tasks()
        step = self.fetch.step(actions)
        info: dict[str, Any] = {"is_success": step.success, "failed": step.failed, "task": tasks}
        reward, truncated, obs = step.reward, step.truncated, step.obs
        begun_anew = self._done & (self.autoreset_mode == AutoresetMode.NEXT_STEP)
        if begun_anew.any():  # their action counts for nothing: this step is their reset
            obs = self.fetch.reset(begun_anew)
            reward = np.where(begun_anew, 0, reward).astype(reward.dtype)
            truncated = truncated & ~begun_anew
            for name in ("is_success", "failed"):
                info[name] = info[name] & ~begun_anew
            info["task"] = np.where(begun_anew, self._tasks(), tasks)
        self._done = truncated.copy()
        if self.autoreset_mode == AutoresetMode.SAME_STEP and truncated.any():
            info |= self._final(flat_obs(self.fetch, obs), info, truncated)
            obs = self.fetch.reset(truncated)
            info["is_success"] = info["is_success"] & ~truncated
            info["task"] = np.where(truncated, self._tasks(), info["task"])
        info |= {f"_{name}": np.ones(self.num_envs, bool) for name in ("is_success", "failed", "task")}
        return flat_obs(self.fetch, obs), reward, np.zeros(self.num_envs, bool), truncated, info

    def _final(self, obs: GymObs, info: dict[str, Any], done: Array) -> dict[str, Any]:
        """What Gymnasium's own vector environments report of the episodes that ended in this step."""
        final_obs = np.full(self.num_envs, None, object)
        for i in np.flatnonzero(done):
            final_obs[i] = {name: value[i] for name, value in obs.items()}
        final_info = {name: value.copy() for name, value in info.items()} | {f"_{name}": done.copy() for name in info}
        masks = {"_final_obs": done.copy(), "_final_info": done.copy()}
        return {"final_obs": final_obs, "final_info": final_info} | masks

    def close_extras(self, **kwargs: Any) -> None:
        self._close_picture()

    def render(self) -> tuple[Array, ...] | None:
        if self._picture is None:
            raise RuntimeError("make the environment with render_mode='rgb_array' to render it")
        return tuple(self._picture.frame(slot) for slot in range(self.num_envs))
