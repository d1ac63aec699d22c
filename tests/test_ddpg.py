import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efmdp.ddpg import DDPG, VARIANCE_FLOOR, DDPGConfig, Normaliser, flatten
from efmdp.entities import EntityDims, EntityObs, NonFinite, UserError
from efmdp.networks import NetworkConfig
from efmdp.replay import Batch, Episodes

DIMS = EntityDims(agent=4, entity=6, goal=3, action=2)
ALL = np.array([True, True])
SMALL = NetworkConfig("deep-set", width=16)
NEVER = 10**9  # updates between those of the targets: for stubs, whose weights are not the networks'
KINDS = [
    SMALL,
    NetworkConfig("deep-set-large", width=16),
    NetworkConfig("self-attention", width=16, heads=2, feedforward=16, blocks=1),
    NetworkConfig("mlp", width=16, max_entities=3),
]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def make_obs(rng: np.random.Generator, batch: int, entities: int = 2) -> EntityObs:
    sizes = ((batch, DIMS.agent), (batch, entities, DIMS.entity), (batch, entities, DIMS.goal))
    return EntityObs(*(rng.standard_normal(size).astype(np.float32) for size in sizes))


def make_batch(seed: int, batch: int = 32, entities: int = 2) -> Batch:
    rng = np.random.default_rng(seed)
    obs, next_obs = make_obs(rng, batch, entities), make_obs(rng, batch, entities)
    actions = rng.uniform(-1, 1, (batch, DIMS.action)).astype(np.float32)
    rewards = -rng.integers(0, 2, batch).astype(np.float32)
    return Batch(obs, actions, next_obs._replace(goals=obs.goals), rewards)


def make_agent(network: NetworkConfig = SMALL, usable: np.ndarray = ALL, seed: int = 0, **config: float) -> DDPG:
    return DDPG(network, DIMS, DDPGConfig(**config), usable, seed)  # type: ignore[arg-type]


def make_episodes(
    rng: np.random.Generator, lengths: list[int], horizon: int, entities: int, padding: float
) -> Episodes:
    k = len(lengths)
    agent = rng.normal(3, 2, (k, horizon + 1, DIMS.agent)).astype(np.float32)
    things = rng.normal(-1, 0.5, (k, horizon + 1, entities, DIMS.entity)).astype(np.float32)
    for row, length in enumerate(lengths):
        agent[row, length + 1 :] = padding
        things[row, length + 1 :] = padding
    goals = rng.normal(5, 1, (k, entities, DIMS.goal)).astype(np.float32)
    actions = np.zeros((k, horizon, DIMS.action), np.float32)
    return Episodes(agent, things, goals, actions, np.array(lengths))


def copied(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


# The normaliser


@settings(max_examples=25)
@given(
    pieces=st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=4),
    entities=st.integers(1, 3),
    seed=st.integers(0, 2**32),
    padding=st.sampled_from([0.0, 1e30, np.nan]),
)
def test_normaliser_is_numpys_mean_and_std_over_all_pieces(
    pieces: list[list[int]], entities: int, seed: int, padding: float
) -> None:
    rng = np.random.default_rng(seed)
    normaliser = Normaliser(DIMS)
    seen: dict[str, list[np.ndarray]] = {"agent": [], "entities": [], "goals": []}
    for lengths in pieces:
        episodes = make_episodes(rng, lengths, 6, entities, padding)
        achieved = episodes.entities[..., :3]
        normaliser.learn(episodes, achieved)
        for row, length in enumerate(lengths):
            inside = slice(0, length + 1)
            seen["agent"].append(episodes.agent[row, inside])
            seen["entities"].append(episodes.entities[row, inside].reshape(-1, DIMS.entity))
            seen["goals"] += [achieved[row, inside].reshape(-1, DIMS.goal), episodes.goals[row]]
    for name, parts in seen.items():
        rows = np.concatenate(parts).astype(np.float64)
        assert getattr(normaliser, f"{name}_count") == len(rows)
        mean, squares = (getattr(normaliser, f"{name}_{part}").numpy() for part in ("mean", "squares"))
        assert mean.dtype == squares.dtype == np.float64
        np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(squares / len(rows), rows.var(0), rtol=1e-9, atol=1e-12)
        shift, factor = (getattr(normaliser, f"{name}_{part}").numpy() for part in ("shift", "factor"))
        np.testing.assert_allclose(shift, rows.mean(0), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(factor, np.maximum(rows.var(0), VARIANCE_FLOOR) ** -0.5, rtol=1e-6)


def test_normaliser_normalises() -> None:
    rng = np.random.default_rng(0)
    normaliser = Normaliser(DIMS)
    episodes = make_episodes(rng, [50] * 20, 50, 2, 0)
    normaliser.learn(episodes, episodes.entities[..., :3])
    flat = EntityObs(
        episodes.agent.reshape(-1, 4), episodes.entities.reshape(-1, 2, 6), np.zeros((1020, 2, 3), np.float32)
    )
    agent, entities, _ = normaliser(flat)
    for normal in (agent, entities.flatten(0, 1)):
        assert normal.dtype == torch.float32
        torch.testing.assert_close(normal.mean(0), torch.zeros(normal.shape[1]), atol=0.01, rtol=0)
        torch.testing.assert_close(normal.std(0), torch.ones(normal.shape[1]), atol=0.01, rtol=0)


def test_normaliser_of_nothing_seen_changes_nothing() -> None:
    obs = make_obs(np.random.default_rng(0), 8)
    for before, after in zip(obs, Normaliser(DIMS)(obs), strict=True):
        assert np.array_equal(before, after.numpy())


def test_normaliser_floor_and_clips() -> None:
    normaliser = Normaliser(DIMS, clip=10.0, normalised_clip=3.0)
    constant = Episodes(
        np.full((1, 5, 4), 2.0, np.float32),
        np.full((1, 5, 1, 6), 1000.0, np.float32),  # beyond the clip: counts as 10
        np.zeros((1, 1, 3), np.float32),
        np.zeros((1, 4, 2), np.float32),
        np.array([4]),
    )
    normaliser.learn(constant, np.zeros((1, 5, 1, 3), np.float32))
    assert VARIANCE_FLOOR == 1e-4
    assert torch.allclose(normaliser.agent_factor, torch.full((4,), 100.0))  # a deviation of 0.01 at least
    assert torch.allclose(normaliser.entities_shift, torch.full((6,), 10.0))
    obs = EntityObs(
        np.array([[2.0, 2.01, 3.0, -1e9]], np.float32),
        np.array([[[10.0, 9.99, 1e9, 11.0, 9.98, 0.0]]], np.float32),
        np.zeros((1, 1, 3), np.float32),
    )
    given = obs.agent.copy()
    agent, entities, goals = normaliser(obs)
    assert agent[0].tolist() == pytest.approx([0, 1, 3, -3], abs=1e-3)
    assert entities[0, 0].tolist() == pytest.approx([0, -1, 0, 0, -2, -3], abs=1e-3)
    assert (goals == 0).all()
    assert np.array_equal(obs.agent, given)  # in place on nobody else's array


def test_normaliser_shares_over_entities() -> None:
    rng = np.random.default_rng(0)
    normaliser = Normaliser(DIMS)
    episodes = make_episodes(rng, [6, 3], 6, 2, 0)
    normaliser.learn(episodes, episodes.entities[..., :3])
    obs = make_obs(rng, 4, entities=5)
    _, entities, goals = normaliser(obs)
    _, one, its_goal = normaliser(EntityObs(obs.agent, obs.entities[:, 3:4], obs.goals[:, 3:4]))
    assert torch.equal(entities[:, 3:4], one)
    assert torch.equal(goals[:, 3:4], its_goal)


def test_normaliser_survives_a_round_without_episodes() -> None:
    """Every simulation of a round may fail: nothing is learned then, and nothing is spoiled."""
    rng = np.random.default_rng(0)
    normaliser = Normaliser(DIMS)
    none = make_episodes(rng, [], 6, 2, 0)
    some = make_episodes(rng, [6, 3], 6, 2, 0)
    normaliser.learn(some, some.entities[..., :3])
    before = copied(normaliser.state_dict())
    normaliser.learn(none, none.entities[..., :3])
    assert_same(normaliser.state_dict(), before)


# Acting


@pytest.mark.parametrize("network", KINDS, ids=lambda network: network.kind)
def test_unusable_actions_are_exactly_zero(network: NetworkConfig) -> None:
    agent = make_agent(network, np.array([True, False]))
    actions = agent.act(make_obs(np.random.default_rng(0), 64))
    assert actions.shape == (64, 2)
    assert actions.dtype == np.float32
    assert (actions[:, 1] == 0).all()
    assert (actions[:, 0] != 0).all()
    assert (np.abs(actions) <= 1).all()
    both = make_agent(network).act(make_obs(np.random.default_rng(0), 64))
    assert np.array_equal(actions[:, 0], both[:, 0])
    assert (both[:, 1] != 0).all()


def test_unusable_actions_are_not_learned_and_not_penalised() -> None:
    """Whatever the actor would do with them, value, penalty and gradients are the same."""
    agent = make_agent(usable=np.array([True, False]))
    last = agent.actor.body.rho[-1]
    before = last.weight[1].clone()
    batch = make_batch(0)
    batch.actions[:, 1] = 0
    measured = agent.update(batch, 1.0)
    assert torch.equal(last.weight[1], before)
    chosen = make_agent(usable=np.array([True, False])).act(batch.obs)[:, 0]
    assert measured["action_size"] == pytest.approx(float((chosen**2).mean()), rel=1e-5)


# Updating


class Constant(torch.nn.Module):
    """A network whose answers are given, whatever it is asked; it notes what it was asked."""

    def __init__(self, answer: list[float] | list[list[float]]) -> None:
        super().__init__()
        self.answer = torch.nn.Parameter(torch.tensor(answer))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        self.asked = inputs
        return self.answer


def test_critic_target_by_hand() -> None:
    """Discount 0.9, scale 2, largest cost 0.5: targets are within [-10, 0]."""
    agent = make_agent(discount=0.9, reward_scale=2.0, target_every=NEVER)
    rewards = np.array([-0.5, 0.0, -0.25, -0.5], np.float32)
    batch = make_batch(0, 4)._replace(rewards=rewards)
    agent.target_critic = Constant([-3.0, 2.0, -1.0, -50.0])
    agent.target_actor = Constant([[0.25, -0.5]] * 4)
    batch_value = agent.critic(*agent.normaliser(batch.obs), torch.from_numpy(batch.actions)).detach()
    # 2 * -0.5 + 0.9 * -3 = -3.7;  2 * 0 + 0.9 * 2 = 1.8, clipped to 0;  -0.5 - 0.9 = -1.4;  -1 - 45, clipped to -10
    wanted = torch.tensor([-3.7, 0.0, -1.4, -10.0])
    agent.target_actor.requires_grad_(False)
    agent.target_critic.requires_grad_(False)
    measured = agent.update(batch, 0.5)
    assert measured["critic_loss"] == pytest.approx(float((batch_value - wanted).square().mean()), rel=1e-5)
    assert measured["value"] == pytest.approx(float(batch_value.mean()), rel=1e-5)
    *asked_obs, asked_action = agent.target_critic.asked
    for asked, expected in zip(asked_obs, batch.next_obs, strict=True):
        assert np.array_equal(asked.numpy(), expected)  # the next observations, with the transition's own goals
    assert asked_action.tolist() == [[0.25, -0.5]] * 4


@pytest.mark.parametrize(("scale", "cost"), [(1.0, 1.0), (5.0, 1.0), (1.0, 3.0), (2.0, 0.7)])
def test_targets_are_clipped_to_what_costs_can_add_up_to(scale: float, cost: float) -> None:
    worst = -scale * cost / (1 - 0.98)
    agent = make_agent(reward_scale=scale, target_every=NEVER)
    batch = make_batch(0, 8)
    for far, limit in ((-1e6, worst), (1e6, 0.0)):
        agent.target_critic = Constant([far] * 8)
        agent.target_critic.requires_grad_(False)
        value = agent.critic(*agent.normaliser(batch.obs), torch.from_numpy(batch.actions)).detach()
        measured = agent.update(batch, cost)
        assert measured["critic_loss"] == pytest.approx(float((value - limit).square().mean()), rel=1e-4)


@pytest.mark.parametrize("network", KINDS, ids=lambda network: network.kind)
def test_one_update_recomputed(network: NetworkConfig) -> None:
    """The whole update written out once more, with torch's plain Adam."""
    agent, again = make_agent(network, action_l2=0.3), make_agent(network, action_l2=0.3)
    batch = make_batch(1)
    measured = agent.update(batch, 1.0)
    obs, next_obs = again.normaliser(batch.obs), again.normaliser(batch.next_obs)
    with torch.no_grad():
        future = again.target_critic(*next_obs, again.target_actor(*next_obs))
        wanted = (torch.from_numpy(batch.rewards) + 0.98 * future).clamp(-50, 0)
    optimiser = torch.optim.Adam(again.critic.parameters(), 1e-3)
    loss = torch.nn.functional.mse_loss(again.critic(*obs, torch.from_numpy(batch.actions)), wanted)
    loss.backward()
    optimiser.step()
    assert measured["critic_loss"] == pytest.approx(loss.item(), rel=1e-4)
    again.actor.zero_grad()
    optimiser = torch.optim.Adam(again.actor.parameters(), 1e-3)
    actions = again.actor(*obs)
    loss = -again.critic(*obs, actions).mean() + 0.3 * actions.square().mean()
    loss.backward()
    optimiser.step()
    assert measured["actor_loss"] == pytest.approx(loss.item(), rel=1e-4)
    for part in ("actor", "critic"):
        for (name, got), want in zip(
            getattr(agent, part).named_parameters(), getattr(again, part).parameters(), strict=True
        ):
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-5, msg=f"{part}.{name}")


def test_each_loss_moves_its_own_network() -> None:
    agent = make_agent(target_every=NEVER)
    before = copied(agent.tensors())
    steps: dict[str, list[str]] = {}

    def changed() -> list[str]:
        now = agent.tensors()
        return sorted({name.split(".")[0] for name in before if not torch.equal(now[name], before[name])})

    critic_step, actor_step = agent.critic_optimiser.step, agent.actor_optimiser.step

    def watched_critic_step() -> None:
        critic_step()
        steps["critic"] = changed()

    def watched_actor_step() -> None:
        before.update(copied(agent.tensors()))
        actor_step()
        steps["actor"] = changed()

    agent.critic_optimiser.step, agent.actor_optimiser.step = watched_critic_step, watched_actor_step  # type: ignore
    agent.update(make_batch(0), 1.0)
    assert steps["critic"] == ["critic"]
    assert [part for part in steps["actor"] if not part.endswith("optimiser")] == ["actor"]
    assert all(p.requires_grad for p in agent.critic.parameters())


def test_several_steps_are_those_on_the_shares() -> None:
    """Three steps on a batch of 48 and three updates with 16 of it each: the same in every bit."""
    together, apart = make_agent(actor_every=2), make_agent(actor_every=2)
    whole = make_batch(0, 48)
    measured: dict[str, float] = {}
    for first in (0, 16, 32):
        share = slice(first, first + 16)
        obs, next_obs = (EntityObs(*(part[share] for part in obs)) for obs in (whole.obs, whole.next_obs))
        measured |= apart.update(Batch(obs, whole.actions[share], next_obs, whole.rewards[share]), 1.0)
    assert together.update(whole, 1.0, steps=3) == measured
    assert together.updates == 3
    assert_same(together.tensors(), apart.tensors())


def test_weights_are_parts_of_one_vector() -> None:
    """Also after the weights of another agent were loaded: a change of the vector is one of the network."""
    network, other = make_agent().critic, make_agent(learning_rate=0.5).critic
    weights = [weight.clone() for weight in network.parameters()]
    vector = flatten(network)
    assert all(torch.equal(now, before) for now, before in zip(network.parameters(), weights, strict=True))
    network.load_state_dict(other.state_dict())
    vector.fill_(7.0)
    assert all((weight == 7).all() for weight in network.parameters())
    assert vector.numel() == sum(weight.numel() for weight in weights)


@pytest.mark.parametrize(("keep", "every"), [(0.995, 1), (0.95, 3), (0.0, 2)])
def test_targets_follow(keep: float, every: int) -> None:
    agent = make_agent(target_keep=keep, target_every=every)
    batch = make_batch(0)
    pairs = [(agent.target_actor, agent.actor), (agent.target_critic, agent.critic)]
    for target, online in pairs:
        assert_same(target.state_dict(), online.state_dict())
    for update in range(1, 2 * every + 2):
        before = [copied(target.state_dict()) for target, _ in pairs]
        agent.update(batch, 1.0)
        for (target, online), old in zip(pairs, before, strict=True):
            for name, tensor in target.state_dict().items():
                if update % every:
                    assert torch.equal(tensor, old[name])
                else:
                    wanted = keep * old[name] + (1 - keep) * online.state_dict()[name]
                    torch.testing.assert_close(tensor, wanted, rtol=1e-5, atol=1e-7)
                    assert keep == 0 or not torch.equal(tensor, online.state_dict()[name])


@pytest.mark.parametrize("network", KINDS, ids=lambda network: network.kind)
def test_tensors_round_trip(network: NetworkConfig) -> None:
    agent = make_agent(network, target_every=3)
    rng = np.random.default_rng(0)
    episodes = make_episodes(rng, [6, 3], 6, 2, 0)
    agent.normaliser.learn(episodes, episodes.entities[..., :3])
    for i in range(4):
        agent.update(make_batch(i), 1.0)
    stored, before = copied(agent.tensors()), copied(agent.tensors())
    assert all(tensor.is_contiguous() for tensor in agent.tensors().values())
    other = make_agent(network, seed=99, target_every=3)
    other.load_tensors(stored)
    other.updates = agent.updates
    assert_same(other.tensors(), stored)
    for i in range(4, 9):
        assert agent.update(make_batch(i), 1.0) == other.update(make_batch(i), 1.0)
        assert_same(agent.tensors(), other.tensors())
    obs = make_obs(rng, 16)
    assert np.array_equal(agent.act(obs), other.act(obs))
    assert_same(stored, before)  # loading copied: going on did not reach back


def test_tensors_of_another_version_are_refused() -> None:
    """One that kept the optimiser's state weight by weight: using it would write where nothing belongs to it."""
    agent = make_agent()
    agent.update(make_batch(0), 1.0)
    stored = copied(agent.tensors())
    for name in ("exp_avg", "exp_avg_sq"):
        stored[f"actor_optimiser.0.{name}"] = stored[f"actor_optimiser.0.{name}"][:100].clone()
    with pytest.raises(UserError, match="another version of efmdp"):
        make_agent().load_tensors(stored)


def test_tensors_of_a_new_agent_round_trip() -> None:
    agent, other = make_agent(), make_agent(seed=99)
    other.load_tensors(copied(agent.tensors()))
    assert agent.update(make_batch(0), 1.0) == other.update(make_batch(0), 1.0)
    assert_same(agent.tensors(), other.tensors())


def test_seed() -> None:
    assert_same(make_agent(seed=5).tensors(), make_agent(seed=5).tensors())
    assert not torch.equal(make_agent(seed=5).actor.body.rho[-1].weight, make_agent(seed=6).actor.body.rho[-1].weight)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["rewards", "agent", "entities", "goals", "next agent", "actions"])
def test_numbers_that_are_not_finite_are_named(where: str, bad: float) -> None:
    agent = make_agent()
    batch = make_batch(0)
    agent.update(batch, 1.0)
    array = {
        "rewards": batch.rewards,
        "agent": batch.obs.agent,
        "entities": batch.obs.entities,
        "goals": batch.obs.goals,
        "next agent": batch.next_obs.agent,
        "actions": batch.actions,
    }[where]
    array[3] = bad
    with pytest.raises(NonFinite, match=f"something in the {where} of the batch of update 2 is not finite"):
        agent.update(batch, 1.0)


def test_a_weight_that_is_not_finite_is_named() -> None:
    for part in ("actor", "critic", "target_critic", "target_actor"):
        agent = make_agent()
        with torch.no_grad():
            next(getattr(agent, part).parameters())[0] = float("nan")
        with pytest.raises(NonFinite, match="became nan in update 1"):
            agent.update(make_batch(0), 1.0)


@pytest.mark.parametrize("network", KINDS, ids=lambda network: network.kind)
def test_fits_a_fixed_batch(network: NetworkConfig) -> None:
    agent = make_agent(network, target_keep=1.0)
    batch = make_batch(0, 16)
    losses = [agent.update(batch, 1.0)["critic_loss"] for _ in range(150)]
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])


def test_a_step_is_as_long_as_the_learning_rate() -> None:
    batch = make_batch(0, 64)
    moved = []
    for rate in (1e-3, 1e-4):
        agent = make_agent(learning_rate=rate)
        before = [w.detach().clone() for net in (agent.actor, agent.critic) for w in net.parameters()]
        agent.update(batch, 1.0)
        after = [w for net in (agent.actor, agent.critic) for w in net.parameters()]
        moved.append([(b - a).abs().max().item() for a, b in zip(after, before, strict=True)])
    assert np.allclose(np.divide(*moved), 10, rtol=0.02)  # Adam's first step is as long as its rate


def test_the_actor_waits_for_its_turn() -> None:
    agent = make_agent(actor_every=3)
    batch = make_batch(0, 64)
    turns = []
    for _ in range(7):
        before = [w.detach().clone() for w in agent.actor.parameters()]
        measured = agent.update(batch, 1.0)
        changed = any(not torch.equal(a, b) for a, b in zip(before, agent.actor.parameters(), strict=True))
        assert changed == ("actor_loss" in measured)
        assert "critic_loss" in measured
        turns.append(changed)
    assert turns == [True, False, False, True, False, False, True]


def test_the_policy_is_the_target_actor() -> None:
    """It lags behind the actor that is trained, and catches up with it when the target is copied at once."""
    batch = make_batch(0, 64)
    slow, quick = make_agent(target_keep=0.9), make_agent(target_keep=0.0)
    before = slow.act(batch.obs)
    assert np.array_equal(before, slow.act_newest(batch.obs))  # they begin as one
    for agent in (slow, quick):
        agent.update(batch, 1.0)
    moved, newest = np.abs(slow.act(batch.obs) - before), np.abs(slow.act_newest(batch.obs) - before)
    assert 0 < moved.mean() < newest.mean()
    assert np.array_equal(quick.act(batch.obs), quick.act_newest(batch.obs))


def test_actor_finds_the_best_action() -> None:
    """A critic that wants action (0.5, -0.3) and knows no other thing; no penalty."""

    class Wish(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.offset = torch.nn.Parameter(torch.zeros(()))

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return -(inputs[-1] - torch.tensor([0.5, -0.3])).square().sum(-1) + 0 * self.offset

    agent = make_agent(action_l2=0.0, learning_rate=3e-3, target_every=NEVER)
    agent.critic = Wish()
    agent.critic_optimiser = torch.optim.Adam([flatten(agent.critic)], 1e-9)
    batch = make_batch(0, 64)
    for _ in range(400):
        agent.update(batch, 1.0)
    assert np.abs(agent.act_newest(batch.obs) - [0.5, -0.3]).mean() < 0.05


def test_penalty_shrinks_actions() -> None:
    batch = make_batch(0, 64)
    sizes = []
    for weight in (0.0, 10.0):
        agent = make_agent(action_l2=weight)
        for _ in range(100):
            measured = agent.update(batch, 1.0)
        sizes.append(measured["action_size"])
    assert sizes[1] < 0.3 * sizes[0]
