"""Stable-Baselines3 as a client: its hindsight replay trains on our environments without adapters."""

import gymnasium
import numpy as np
import pytest

import efmdp

torch = pytest.importorskip("torch")
sb3 = pytest.importorskip("stable_baselines3")


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("algorithm", ["DDPG", "SAC"])
@pytest.mark.parametrize("name", [efmdp.gym_id("1-Push"), efmdp.gym_id("2-Switch|2-Push")])
def test_hindsight_replay_trains(algorithm: str, name: str) -> None:
    env = gymnasium.make(name)
    model = getattr(sb3, algorithm)(
        "MultiInputPolicy",
        env,
        replay_buffer_class=sb3.HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
        learning_starts=120,  # beyond the longest horizon, 100
        batch_size=32,
        buffer_size=2000,
        policy_kwargs={"net_arch": [32, 32]},
        seed=0,
        device="cpu",
    )
    before = {key: value.clone() for key, value in model.policy.state_dict().items()}
    model.learn(300)
    after = model.policy.state_dict()
    assert model.num_timesteps >= 300
    assert all(torch.isfinite(value).all() for value in after.values())
    for part in ("actor", "critic"):
        assert any(not torch.equal(before[key], after[key]) for key in after if key.startswith(f"{part}."))
    batch = model.replay_buffer.sample(256)
    rewards = batch.rewards.numpy()
    assert set(np.unique(rewards)) == {-1.0, 0.0}  # relabelling found goals that were met
    action, _ = model.predict(env.reset(seed=0)[0], deterministic=True)
    assert action in env.action_space
    env.close()
