import numpy as np
import pytest

from efmdp.discs import DiscEnv
from efmdp.entities import EntityDims
from efmdp.replay import MOVED, UNTOUCHED_WEIGHT, Episodes, Replay

DIMS = EntityDims(agent=2, entity=3, goal=2, action=1)
SENTINEL = 777.0  # in the padding: it must never be seen


def achieved(entities: np.ndarray) -> np.ndarray:
    return entities[..., :2]


def reward(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return -np.abs(got - wanted).sum((-1, -2))


def make_episodes(numbers: list[int], lengths: list[int], horizon: int, entities: int = 2) -> Episodes:
    """Episodes that say in every number where they come from: agent (episode, time), entities (episode, time, i),
    goals (-episode, i), actions 1000 * episode + time; padding holds the sentinel."""
    k, n = len(numbers), entities
    agent = np.full((k, horizon + 1, 2), SENTINEL, np.float32)
    things = np.full((k, horizon + 1, n, 3), SENTINEL, np.float32)
    actions = np.full((k, horizon, 1), SENTINEL, np.float32)
    goals = np.zeros((k, n, 2), np.float32)
    for row, (number, length) in enumerate(zip(numbers, lengths, strict=True)):
        times = np.arange(length + 1)
        agent[row, : length + 1] = np.stack([np.full(length + 1, number), times], 1)
        things[row, : length + 1, :, 0] = number
        things[row, : length + 1, :, 1] = times[:, None]
        things[row, : length + 1, :, 2] = np.arange(n)
        actions[row, :length, 0] = 1000 * number + times[:-1]
        goals[row] = np.stack([np.full(n, -number - 1), np.arange(n)], 1)
    return Episodes(agent, things, goals, actions, np.array(lengths))


def make_replay(capacity: int, horizon: int, by_movement: bool = False, entities: int = 2, redraws: int = 0) -> Replay:
    return Replay(capacity, horizon, entities, DIMS, achieved, reward, by_movement, redraws)


def test_capacity_is_in_transitions() -> None:
    assert make_replay(100, 10).capacity == 10
    assert make_replay(109, 10).capacity == 10
    assert make_replay(5, 10).capacity == 1  # room for one episode in any case


def test_empty_refuses() -> None:
    with pytest.raises(ValueError, match="empty"):
        make_replay(100, 10).sample(4, 0.8, np.random.default_rng(0))


@pytest.mark.parametrize("pieces", [[23], [4, 4, 4, 4, 4, 3], [1] * 23, [7, 10, 6]])
def test_ring_keeps_the_newest(pieces: list[int]) -> None:
    replay = make_replay(50, 10)  # five episodes
    first, seen = 0, set()
    for size in pieces:
        numbers = list(range(first, first + size))
        replay.add(make_episodes(numbers, [3 + n % 8 for n in numbers], 10))
        first += size
        assert replay.added == first
        assert len(replay) == min(first, 5)
        kept = replay.episodes.agent[: len(replay), 0, 0]
        assert set(kept.tolist()) == set(range(max(0, first - 5), first))
    assert len(replay) == 5
    batch = replay.sample(500, 0.8, np.random.default_rng(0))
    seen = set(batch.obs.agent[:, 0].tolist())
    assert seen == {18, 19, 20, 21, 22}


def test_the_parts_of_an_episode_stay_together_and_padding_is_never_sampled() -> None:
    lengths = [1, 2, 5, 9, 10, 3, 7]
    replay = make_replay(1000, 10)
    replay.add(make_episodes(list(range(7)), lengths, 10))
    batch = replay.sample(4000, 0.5, np.random.default_rng(1))
    for part in (*batch.obs, *batch.next_obs, batch.actions, batch.rewards):
        assert SENTINEL not in part
    number, time = batch.obs.agent.T
    assert np.array_equal(batch.next_obs.agent, np.stack([number, time + 1], 1))
    assert np.array_equal(batch.obs.entities[..., 0], np.stack([number, number], 1))
    assert np.array_equal(batch.obs.entities[..., 1], np.stack([time, time], 1))
    assert np.array_equal(batch.next_obs.entities[..., 1], np.stack([time + 1, time + 1], 1))
    assert np.array_equal(batch.actions[:, 0], 1000 * number + time)
    assert (time < np.array(lengths)[number.astype(int)]).all()
    pairs = set(zip(number.tolist(), time.tolist(), strict=True))
    assert pairs == {(n, t) for n, length in enumerate(lengths) for t in range(length)}


def test_overwritten_longer_episodes_leave_nothing_behind() -> None:
    replay = make_replay(30, 10)
    replay.add(make_episodes([0, 1, 2], [10, 10, 10], 10))
    replay.add(make_episodes([3, 4, 5], [2, 2, 2], 10))
    batch = replay.sample(500, 1.0, np.random.default_rng(1))
    assert batch.obs.agent[:, 0].min() == 3
    assert batch.next_obs.agent[:, 1].max() == 2
    assert batch.obs.goals[..., 0].min() >= 3
    assert batch.obs.goals[..., 1].max() == 2


def test_goals() -> None:
    lengths = [1, 4, 10]
    replay = make_replay(1000, 10)
    replay.add(make_episodes([0, 1, 2], lengths, 10))
    batch = replay.sample(3000, 0.8, np.random.default_rng(2))
    assert batch.obs.goals is batch.next_obs.goals or np.array_equal(batch.obs.goals, batch.next_obs.goals)
    number, time = batch.obs.agent.T
    own = batch.obs.goals[:, 0, 0] < 0
    assert 0.15 < own.mean() < 0.25
    expected = np.stack([np.stack([-number - 1, np.full_like(number, i)], 1) for i in range(2)], 1)
    assert np.array_equal(batch.obs.goals[own], expected[own])
    # A relabelled goal is that of every entity at one later moment of the same episode.
    later = batch.obs.goals[~own, :, 1]
    assert np.array_equal(batch.obs.goals[~own, :, 0], np.stack([number[~own]] * 2, 1))
    assert np.array_equal(later[:, 0], later[:, 1])
    assert (later[:, 0] > time[~own]).all()
    assert (later[:, 0] <= np.array(lengths)[number[~own].astype(int)]).all()


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_never_and_always_relabelled(probability: float) -> None:
    replay = make_replay(1000, 10)
    replay.add(make_episodes([0, 1], [10, 10], 10))
    goals = replay.sample(200, probability, np.random.default_rng(3)).obs.goals
    assert ((goals[:, 0, 0] < 0) == (probability == 0)).all()


def test_rewards_are_recomputed_for_the_goals_given() -> None:
    replay = make_replay(1000, 10)
    replay.add(make_episodes([0, 1, 2], [3, 6, 10], 10))
    batch = replay.sample(500, 0.8, np.random.default_rng(4))
    assert np.array_equal(batch.rewards, reward(achieved(batch.next_obs.entities), batch.next_obs.goals))
    at_once = (batch.obs.goals[:, 0, 0] >= 0) & (batch.obs.goals[:, 0, 1] == batch.obs.agent[:, 1] + 1)
    assert at_once.any()
    assert (batch.rewards[at_once] == 0).all()


def test_rewards_are_the_environments() -> None:
    """Real episodes: an un-relabelled reward is what `step` gave at that moment."""
    env = DiscEnv(16, 2, reward="dense", seed=3)
    rng = np.random.default_rng(0)
    horizon = env.max_horizon
    obs = env.reset(seed=1)
    agents, entities, actions, rewards = [obs.agent], [obs.entities], [], []
    goals = obs.goals
    for _ in range(horizon):
        action = rng.uniform(-1, 1, (16, 2)).astype(np.float32)
        step = env.step(action)
        agents.append(step.obs.agent)
        entities.append(step.obs.entities)
        actions.append(action)
        rewards.append(step.reward)
    episodes = Episodes(np.stack(agents, 1), np.stack(entities, 1), goals, np.stack(actions, 1), env.horizons)
    replay = Replay(10_000, horizon, 2, env.dims, env.achieved, env.reward, True, 0)
    replay.add(episodes)
    given = {
        episodes.agent[i, t].tobytes() + episodes.actions[i, t].tobytes(): rewards[t][i]
        for i in range(16)
        for t in range(horizon)
    }
    assert len(given) == 16 * horizon
    batch = replay.sample(300, 0.0, rng)
    for b in range(300):
        key = batch.obs.agent[b].tobytes() + batch.actions[b].tobytes()
        assert batch.rewards[b] == pytest.approx(given[key], abs=1e-6)
    relabelled = replay.sample(300, 1.0, rng)
    assert relabelled.rewards.dtype == np.float32
    again = env.reward(env.achieved(relabelled.next_obs.entities), relabelled.next_obs.goals)
    assert np.array_equal(relabelled.rewards, again)


def moving_episodes(how_far: list[list[float]], length: int = 4, horizon: int = 6) -> Episodes:
    """Entity i of episode k moves how_far[k][i] away in the middle, and back; the padding is far away."""
    k, n = np.shape(how_far)
    things = np.zeros((k, horizon + 1, n, 3), np.float32)
    things[:, 2, :, 0] = how_far
    things[:, length + 1 :] = SENTINEL
    agent = np.zeros((k, horizon + 1, 2), np.float32)
    agent[:, :, 0] = np.arange(k)[:, None]
    actions = np.zeros((k, horizon, 1), np.float32)
    return Episodes(agent, things, np.zeros((k, n, 2), np.float32), actions, np.full(k, length))


def test_weights_by_movement() -> None:
    assert UNTOUCHED_WEIGHT == 0.05
    replay = make_replay(600, 6, by_movement=True)
    near, far = 0.9 * MOVED, 1.1 * MOVED
    replay.add(moving_episodes([[0, 0], [far, far], [0, far], [near, near], [1.0, -1.0]]))
    assert replay.weights[:5].mean(1) == pytest.approx([0.05, 1.05, 0.55, 0.05, 1.05])
    assert replay.weights[2] == pytest.approx([0.05, 1.05])
    assert (replay.weights[5:] == 0).all()
    chosen = replay.sample(20_000, 0.8, np.random.default_rng(0)).obs.agent[:, 0].astype(int)
    expected = np.array([0.05, 1.05, 0.55, 0.05, 1.05]) / 2.75
    assert np.bincount(chosen, minlength=5) / 20_000 == pytest.approx(expected, abs=0.015)


def test_uniform_when_not_by_movement() -> None:
    replay = make_replay(600, 6)
    replay.add(moving_episodes([[0, 0], [1, 1], [0, 1]]))
    assert (replay.weights[:3] == 1).all()
    chosen = replay.sample(20_000, 0.8, np.random.default_rng(0)).obs.agent[:, 0].astype(int)
    assert np.bincount(chosen, minlength=3) / 20_000 == pytest.approx([1 / 3] * 3, abs=0.015)


def test_movement_that_is_not_of_the_subgoal_does_not_count() -> None:
    episodes = moving_episodes([[0, 0]])
    episodes.entities[:, 2, :, 2] = 5.0  # a feature that no subgoal speaks of
    replay = make_replay(600, 6, by_movement=True)
    replay.add(episodes)
    assert replay.weights[0] == pytest.approx([0.05, 0.05])


def test_weights_are_overwritten_with_their_episodes() -> None:
    replay = make_replay(12, 6, by_movement=True)  # two episodes
    replay.add(moving_episodes([[1, 1], [1, 1]]))
    replay.add(moving_episodes([[0, 0]]))
    assert replay.weights.mean(1) == pytest.approx([0.05, 1.05])


def test_same_generator_same_batch() -> None:
    replay = make_replay(1000, 10, by_movement=True)
    replay.add(make_episodes([0, 1, 2], [3, 6, 10], 10))
    first, second, other = (replay.sample(64, 0.8, np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert np.array_equal(first.obs.agent, second.obs.agent)
    assert np.array_equal(first.obs.goals, second.obs.goals)
    assert not np.array_equal(first.obs.agent, other.obs.agent)


def test_no_episodes_change_nothing() -> None:
    """A round in which every simulation failed."""
    replay = make_replay(1000, 10, by_movement=True)
    replay.add(make_episodes([0, 1], [3, 6], 10))
    replay.add(make_episodes([], [], 10))
    assert replay.added == len(replay) == 2


def test_goals_that_hold_already_are_drawn_anew() -> None:
    """Two entities rest from time 0 to 5 and then move on: a draw with its time and future both in the rest is idle.
    Each redraw leaves only the share of idle draws among those that there were."""
    share = np.mean([sum(f <= 5 for f in range(t + 1, 11)) / (10 - t) for t in range(10)])
    for redraws in (0, 1, 3):
        replay = make_replay(100, 10, redraws=redraws)
        episodes = make_episodes([0], [10], 10)
        episodes.entities[0, :6, :, 1] = 5
        replay.add(episodes)
        batch = replay.sample(4000, 1.0, np.random.default_rng(0))
        idle = np.isclose(achieved(batch.obs.entities), batch.obs.goals).all((1, 2))
        assert idle.mean() == pytest.approx(share ** (redraws + 1), abs=0.02)


def test_only_relabelled_goals_are_drawn_anew() -> None:
    """The goals wanted keep their share of the batch, and stay those of their episode."""
    replay = make_replay(1000, 10, redraws=3)
    replay.add(make_episodes(list(range(8)), [10] * 8, 10))
    batch = replay.sample(4000, 0.8, np.random.default_rng(0))
    wanted = batch.obs.goals[:, 0, 0] < 0
    assert wanted.mean() == pytest.approx(0.2, abs=0.02)
    assert np.array_equal(batch.obs.goals[wanted, 0, 0], -batch.obs.agent[wanted, 0] - 1)
    assert np.array_equal(batch.obs.goals[~wanted, 0, 0], batch.obs.agent[~wanted, 0])
    assert np.array_equal(batch.rewards, reward(achieved(batch.next_obs.entities), batch.obs.goals))


def test_an_episode_at_rest_can_still_be_sampled() -> None:
    """Nothing but idle transitions: the redraws end, and the batch is full."""
    replay = make_replay(100, 10, redraws=3)
    episodes = make_episodes([0], [10], 10)
    episodes.entities[:] = episodes.entities[:, :1]
    replay.add(episodes)
    batch = replay.sample(64, 1.0, np.random.default_rng(0))
    assert np.array_equal(batch.rewards, np.zeros(64))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_some_of_the_entities(number: int) -> None:
    """They differ, are in their order and the same in all parts of a transition, and the reward is theirs alone."""
    replay = make_replay(1000, 10, entities=3)
    replay.add(make_episodes([0, 1, 2], [3, 6, 10], 10, entities=3))
    batch = replay.sample(3000, 0.8, np.random.default_rng(0), number)
    who = batch.obs.entities[..., 2]
    assert who.shape == (3000, number)
    assert (np.diff(who) > 0).all()
    assert len(np.unique(who, axis=0)) == {1: 3, 2: 3, 3: 1}[number]
    assert np.array_equal(batch.next_obs.entities[..., 2], who)
    number_of, time = batch.obs.agent.T
    assert (batch.obs.entities[..., 0] == number_of[:, None]).all()
    assert (batch.next_obs.entities[..., 1] == time[:, None] + 1).all()
    own = batch.obs.goals[:, 0, 0] < 0
    assert np.array_equal(batch.obs.goals[own, :, 1], who[own])
    assert np.array_equal(batch.rewards, reward(achieved(batch.next_obs.entities), batch.obs.goals))


def test_all_entities_are_the_same_as_no_choice() -> None:
    replay = make_replay(1000, 10, by_movement=True, redraws=2)
    replay.add(make_episodes([0, 1, 2], [3, 6, 10], 10))
    first, second = (replay.sample(64, 0.8, np.random.default_rng(0), number) for number in (None, 2))
    assert np.array_equal(first.obs.entities, second.obs.entities)
    assert np.array_equal(first.obs.goals, second.obs.goals)


def test_entities_that_moved_are_chosen_more_often() -> None:
    replay = make_replay(600, 6, by_movement=True, entities=3)
    replay.add(moving_episodes([[0, 1, 0]]))
    one, two = (replay._some_entities(np.zeros(20_000, int), number, np.random.default_rng(0)) for number in (1, 2))
    assert np.bincount(one[:, 0]) / 20_000 == pytest.approx(np.array([0.05, 1.05, 0.05]) / 1.15, abs=0.015)
    rarely = 0.05 / 1.15 * (0.05 / 1.1 + 0.05 / 1.1)  # neither draw, one after the other, takes the one that moved
    assert (two != 1).all(1).mean() == pytest.approx(rarely, abs=0.003)


def test_what_is_idle_is_judged_by_the_chosen_entities() -> None:
    """A single entity moves: of the others alone, every relabelled goal holds already."""
    replay = make_replay(600, 6, entities=3, redraws=60)
    replay.add(moving_episodes([[0, 0, 1]]))
    batch = replay.sample(2000, 1.0, np.random.default_rng(0), 1)
    away = [np.abs(part[..., :2]).max((1, 2)) > 0 for part in (batch.obs.entities, batch.obs.goals)]
    assert (away[0] != away[1]).mean() > 0.99
