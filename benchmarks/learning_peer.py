"""Stable-Baselines3's DDPG with hindsight replay, pushing one cube: the contestants of `benchmarks.learning`.

The benchmark also runs this file as a script, `python learning_peer.py ENVIRONMENT`, in the peer's own virtual
environment, so it must not import efmdp. The environment's id names the module that registers it, as in
efmdp:efmdp/Fetch1Push-v1. One JSON line on stdout for every evaluation, until the process is ended from outside.
"""

import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DDPG, HerReplayBuffer
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

# Andrychowicz et al. 2017, "Hindsight Experience Replay", appendix A; where its authors' later released code (OpenAI
# baselines, her/experiment/config.py) is stronger, that.
LAYERS = [256, 256, 256]  # of actor and critic, ReLU; the paper: 64 units, the released code: 256
LEARNING_RATE = 1e-3  # of Adam
BATCH = 256  # the paper: 128, the released code: 256
DISCOUNT = 0.98  # also for transitions that end an episode: SB3 knows that they are only truncated
REPLAY = 1_000_000  # transitions
RELABELLED = 4  # goals for each real one, from the `future` of the episode
RANDOM = 0.2  # probability of a uniformly random action
NOISE = 0.05 * 2  # of the other actions: 5 % of their whole range, from -1 to 1
CLIP = 5.0  # of normalised observations and goals
VARIANCE_FLOOR = 1e-4  # added to variances before normalising: the released code's 0.01, squared
HORIZON = 50
EPISODES = 16  # in a cycle, one in each environment
UPDATES = 40  # gradient steps in a cycle
TARGET_STEP = 1 - 0.95 ** (1 / UPDATES)  # a decay of 0.95 a cycle, but SB3's targets follow after every gradient step
# What SB3 has no option for: a penalty on the actor's large pre-activations, clipping of the critic's targets to the
# possible returns, 8 workers that average their gradients, acting with the target network in tests.

EVALUATE_EVERY = 40_000  # steps: an epoch of ours
EVALUATION_EPISODES = 100
EVALUATION_ENVS = 20
EVALUATION_SEED = 1_000_000  # far from the seeds of the training environments


class ExploringDDPG(DDPG):
    """DDPG that now and then acts at random, each environment by its own coin; SB3 only knows noise."""

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """The actions to execute, and the same scaled to [-1, 1], which the replay stores: (n_envs, A) each."""
        _, scaled = super()._sample_action(learning_starts, action_noise, n_envs)
        coin = np.random.random((n_envs, 1)) < RANDOM  # noqa: NPY002 (the generator that SB3 seeds and uses)
        random = np.random.uniform(-1, 1, scaled.shape)  # noqa: NPY002
        scaled = np.where(coin, random, scaled).astype(np.float32)
        return self.policy.unscale_action(scaled), scaled


def make_envs(environment: str, count: int) -> VecEnv:
    """One after the other in this process, SB3's own way, without Gymnasium's checker, which only costs time."""
    return DummyVecEnv([partial(gymnasium.make, environment, disable_env_checker=True)] * count)


def make_model(environment: str, seed: int, **others: Any) -> ExploringDDPG:
    """The learner with its normalised environments; `others` replace settings."""
    keys = ["observation", "achieved_goal", "desired_goal"]
    envs = VecNormalize(
        make_envs(environment, EPISODES), norm_reward=False, clip_obs=CLIP, epsilon=VARIANCE_FLOOR, norm_obs_keys=keys
    )
    actions = gymnasium.spaces.utils.flatdim(envs.action_space)
    settings: dict[str, Any] = {
        "learning_rate": LEARNING_RATE,
        "buffer_size": REPLAY,
        "learning_starts": EPISODES * HORIZON,  # hindsight needs whole episodes
        "batch_size": BATCH,
        "tau": TARGET_STEP,
        "gamma": DISCOUNT,
        "train_freq": (HORIZON, "step"),  # of every environment: a cycle
        "gradient_steps": UPDATES,
        "action_noise": NormalActionNoise(np.zeros(actions), np.full(actions, NOISE)),
        "replay_buffer_class": HerReplayBuffer,
        "replay_buffer_kwargs": {"n_sampled_goal": RELABELLED, "goal_selection_strategy": "future"},
        "policy_kwargs": {"net_arch": LAYERS},
        "seed": seed,
        "device": "cpu",
    }
    return ExploringDDPG("MultiInputPolicy", envs, **(settings | others))


def evaluate(model: ExploringDDPG, envs: VecEnv, episodes: int) -> float:
    """The fraction of episodes in which the cube is at its goal after any step; always the same episodes."""
    normaliser = model.get_vec_normalize_env()
    assert normaliser is not None
    envs.seed(EVALUATION_SEED)
    obs: Any = envs.reset()
    succeeded = []
    for _ in range(-(-episodes // envs.num_envs)):
        once = np.zeros(envs.num_envs, bool)
        for _ in range(HORIZON):
            actions, _ = model.predict(normaliser.normalize_obs(obs), deterministic=True)
            obs, _, over, infos = envs.step(actions)
            once |= [bool(info["is_success"]) for info in infos]
        assert over.all()
        succeeded += once.tolist()
    return float(np.mean(succeeded[:episodes]))


def learn(
    environment: str, seed: int, every: int = EVALUATE_EVERY, episodes: int = EVALUATION_EPISODES
) -> Iterator[dict[str, float]]:
    """Learn without end, and evaluate after every so many steps. The clock stands still meanwhile."""
    model = make_model(environment, seed)
    envs = make_envs(environment, min(EVALUATION_ENVS, episodes))
    seconds = 0.0
    while True:
        began = time.perf_counter()
        model.learn(every, reset_num_timesteps=False)
        seconds += time.perf_counter() - began
        success = evaluate(model, envs, episodes)
        yield {"steps": model.num_timesteps, "seconds": round(seconds, 2), "success": success}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as ours does
    for evaluation in learn(sys.argv[1], seed=0):
        print(json.dumps(evaluation), flush=True)
