"""Learning from nothing to nearly always: minutes, so only `make test-slow` runs it."""

from pathlib import Path

import pytest

from efmdp.ddpg import DDPGConfig
from efmdp.domains import make_env
from efmdp.entities import Objective
from efmdp.evaluate import TEST, load_policy, play_episodes, stream_seed
from efmdp.networks import NetworkConfig
from efmdp.recipes import Exploration, Stage, TrainConfig, fast, make_network
from efmdp.train import train_ddpg


@pytest.mark.slow
def test_the_fast_recipe_learns_to_flip_a_switch(tmp_path: Path) -> None:
    """As `efmdp train ddpg --task 1-Switch` does it."""
    run = tmp_path / "run"
    assert train_ddpg(fast("1-Switch", make_network("deep-set", 1), seed=0), run)
    outcome = play_episodes(make_env("1-Switch", 100), load_policy(run), 300, stream_seed(0, TEST))
    assert outcome.success_once.mean() >= 0.9


@pytest.mark.slow
def test_one_disc_is_learned(tmp_path: Path) -> None:
    """The fast recipe's algorithm, with smaller networks and batches, from sparse rewards alone.

    The action penalty is smaller than the recipe's.
    """
    config = TrainConfig(
        task="1-Disc",
        network=NetworkConfig("deep-set", width=128),
        ddpg=DDPGConfig(action_l2=0.1),
        objective=Objective("sparse", "sum"),
        stages=(Stage("1-Disc", 40, until=0.9, exploration=Exploration(0.2, 0.3)),),
        recipe="test",
        rounds_per_epoch=10,
        batch_size=256,
        threads=1,
    )
    assert train_ddpg(config, tmp_path / "run")
    env = make_env("1-Disc", 100)
    outcome = play_episodes(env, load_policy(tmp_path / "run"), 300, stream_seed(0, TEST))
    assert outcome.success_once.mean() >= 0.8
