import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efmdp.entities import EntityDims
from efmdp.networks import (
    Actor,
    DeepSetActor,
    MLPActor,
    NetworkConfig,
    SelfAttentionActor,
    SelfAttentionCritic,
    make_actor,
    make_critic,
)

DIMS = EntityDims(agent=3, entity=5, goal=2, action=4)
SETS = ["deep-set", "deep-set-large", "self-attention"]
KINDS = ["mlp", *SETS]
MOST = 11

quick = settings(max_examples=25)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Tiny tensors gain nothing from a second thread, and on a busy machine they wait for it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def network(kind, role, seed=0, most=MOST):
    torch.manual_seed(seed)
    max_entities = most if kind == "mlp" else None
    config = NetworkConfig(kind, width=16, heads=2, feedforward=24, max_entities=max_entities)
    return (make_actor if role == "actor" else make_critic)(config, DIMS).double()


def observations(batch, n, seed):
    g = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    return draw(batch, DIMS.agent), draw(batch, n, DIMS.entity), draw(batch, n, DIMS.goal), draw(batch, DIMS.action)


def call(net, obs, mask=None):
    agent, entities, goals, action = obs
    return net(agent, entities, goals, mask) if isinstance(net, Actor) else net(agent, entities, goals, action, mask)


def padded(obs, n, value):
    agent, entities, goals, action = obs
    mask = torch.arange(n).expand(len(agent), n) < entities.shape[1]
    extra = n - entities.shape[1]
    grown = [torch.nn.functional.pad(x, (0, 0, 0, extra), value=value) for x in (entities, goals)]
    return (agent, *grown, action), mask


roles = pytest.mark.parametrize("role", ["actor", "critic"])
counts = st.integers(1, 8)
batches = st.integers(1, 4)
seeds = st.integers(0, 1000)


@roles
@pytest.mark.parametrize("kind", SETS)
@quick
@given(n=counts, batch=batches, seed=seeds, data=st.data())
def test_order_of_entities_does_not_matter(kind, role, n, batch, seed, data):
    assert_order_does_not_matter(kind, role, data.draw(st.permutations(range(n))), batch, seed)


def assert_order_does_not_matter(kind, role, order, batch, seed):
    net = network(kind, role, seed)
    agent, entities, goals, action = obs = observations(batch, len(order), seed)
    torch.testing.assert_close(call(net, (agent, entities[:, order], goals[:, order], action)), call(net, obs))


@roles
@pytest.mark.parametrize("kind", SETS)
def test_which_goal_belongs_to_which_entity_matters(kind, role):
    net = network(kind, role)
    agent, entities, goals, action = obs = observations(4, 3, 0)
    swapped = call(net, (agent, entities, goals[:, [1, 0, 2]], action))
    assert (swapped - call(net, obs)).abs().min() > 1e-6


@roles
@quick
@given(n=st.integers(2, 8), batch=batches, seed=seeds, data=st.data())
def test_order_of_entities_matters_to_an_mlp(role, n, batch, seed, data):
    order = data.draw(st.permutations(range(n)).filter(lambda order: order != list(range(n))))
    with pytest.raises(AssertionError, match="not close"):
        assert_order_does_not_matter("mlp", role, order, batch, seed)


@roles
@pytest.mark.parametrize("kind", KINDS)
@quick
@given(n=counts, extra=st.integers(1, 3), seed=seeds, garbage=st.sampled_from([0.0, 1.0, -1e9, 1e30, float("nan")]))
def test_what_the_mask_hides_has_no_influence(kind, role, n, extra, seed, garbage):
    net = network(kind, role, seed)
    obs = observations(3, n, seed)
    torch.testing.assert_close(call(net, *padded(obs, n + extra, garbage)), call(net, obs))


@roles
@pytest.mark.parametrize("kind", KINDS)
@quick
@given(n=st.lists(counts, min_size=2, max_size=4), seed=seeds)
def test_one_batch_of_mixed_counts_equals_separate_calls(kind, role, n, seed):
    net = network(kind, role, seed)
    single = [observations(1, count, seed + i) for i, count in enumerate(n)]
    grown, masks = zip(*(padded(obs, max(n), 7.0) for obs in single), strict=True)
    mixed = call(net, tuple(torch.cat(parts) for parts in zip(*grown, strict=True)), torch.cat(masks))
    torch.testing.assert_close(mixed, torch.cat([call(net, obs) for obs in single]))


@roles
@pytest.mark.parametrize("kind", SETS)
def test_hidden_entities_may_stand_anywhere(kind, role):
    net = network(kind, role)
    agent, entities, goals, action = obs = observations(4, 5, 0)
    kept = [0, 2, 3]
    mask = torch.zeros(4, 5, dtype=torch.bool)
    mask[:, kept] = True
    torch.testing.assert_close(call(net, obs, mask), call(net, (agent, entities[:, kept], goals[:, kept], action)))


@roles
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_at_all_is_finite(kind, role):
    obs = observations(2, 3, 0)
    net = network(kind, role)
    out = call(net, obs, torch.tensor([[False] * 3, [True] * 3]))
    out.sum().backward()
    assert out.isfinite().all()
    assert all(p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(n=counts, batch=batches, seed=seeds, scale=st.sampled_from([1e-3, 1.0, 1e3]))
def test_shapes_and_ranges(kind, n, batch, seed, scale):
    agent, entities, goals, action = observations(batch, n, seed)
    obs = (scale * agent, scale * entities, scale * goals, action)
    actions = call(network(kind, "actor", seed), obs)
    values = call(network(kind, "critic", seed), obs)
    assert actions.shape == (batch, DIMS.action)
    assert values.shape == (batch,)
    assert actions.abs().max() <= 1
    assert values.isfinite().all()


@roles
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_reaches_every_parameter_and_the_action(kind, role):
    net = network(kind, role, most=3)
    obs = observations(8, 3, 0)
    obs[-1].requires_grad_()
    call(net, obs).square().sum().backward()
    for name, p in net.named_parameters():
        assert p.grad is not None, name
        # queries, keys and values are one tensor: look at each
        for part in p.grad.chunk(3) if name.endswith("qkv.weight") else [p.grad]:
            assert part.abs().max() > 0, name
    if role == "critic":
        assert (obs[-1].grad.abs().amax(1) > 0).all()


def size(net):
    return sum(p.numel() for p in net.parameters())


def test_parameter_counts():
    """Counted by hand from the paper's table, with U 10, E 16, G 3, A 4 and N 3 for the MLP."""
    dims = EntityDims(agent=10, entity=16, goal=3, action=4)
    hidden = 256 * 256 + 256  # a Linear(256) on 256 inputs
    to_action = 256 * 4 + 4
    to_value = 256 * 1 + 1
    norm = 256 + 256
    block = norm + (256 * 768 + 768) + hidden + norm + hidden + hidden  # qkv, attention's output, feedforward
    y_actor = (10 + 16 + 3) * 256 + 256
    y_critic = (10 + 16 + 3 + 4) * 256 + 256
    flat_actor = (10 + 3 * 16 + 3 * 3) * 256 + 256
    flat_critic = (10 + 3 * 16 + 3 * 3 + 4) * 256 + 256
    by_hand = {
        "mlp": (flat_actor + 2 * hidden + to_action, flat_critic + 2 * hidden + to_value),
        "deep-set": (y_actor + 2 * hidden + to_action, y_critic + hidden + hidden + to_value),
        "deep-set-large": (y_actor + 2 * hidden + hidden + to_action, y_critic + hidden + 2 * hidden + to_value),
        "self-attention": (y_actor + 2 * block + to_action, y_critic + 2 * block + to_value),
    }
    assert by_hand["mlp"] == (150_020, 150_273)
    assert by_hand["deep-set"] == (140_292, 140_545)
    assert by_hand["deep-set-large"] == (206_084, 206_337)
    assert by_hand["self-attention"] == (800_260, 800_513)
    for kind, expected in by_hand.items():
        config = NetworkConfig(kind, max_entities=3 if kind == "mlp" else None)
        assert (size(make_actor(config, dims)), size(make_critic(config, dims))) == expected


def test_block_equals_torch_encoder_layer():
    ours = SelfAttentionActor(DIMS, width=16, heads=2, feedforward=24).double().body.blocks[0]
    theirs = torch.nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True, norm_first=True).double()
    pairs = {
        "norm1": "norm_attention",
        "self_attn.in_proj_": "qkv.",
        "self_attn.out_proj": "out",
        "norm2": "norm_feedforward",
        "linear1": "feedforward.0",
        "linear2": "feedforward.2",
    }
    state = ours.state_dict()
    renamed = {}
    for name in theirs.state_dict():
        old, new = next((a, b) for a, b in pairs.items() if name.startswith(a))
        renamed[name] = state[name.replace(old, new)]
    theirs.load_state_dict(renamed)
    x = torch.randn(3, 5, 16, dtype=torch.float64)
    torch.testing.assert_close(ours(x, None), theirs(x))


def test_deep_set_is_the_sum_of_what_it_sees():
    actor = DeepSetActor(DIMS, width=16)
    agent, entities, goals, _ = (x.float() for x in observations(2, 3, 0))
    y = torch.stack([torch.cat([agent, entities[:, i], goals[:, i]], -1) for i in range(3)])
    expected = actor.body.rho(sum(actor.body.phi(y_i) for y_i in y)).tanh()
    torch.testing.assert_close(actor(agent, entities, goals), expected)


def test_mlp_refuses_more_entities_than_it_was_made_for():
    with pytest.raises(ValueError, match=r"3 entities.*at most 2"):
        call(network("mlp", "actor", most=2), observations(1, 3, 0))


def test_mlp_pads_with_zeros():
    actor = MLPActor(DIMS, max_entities=5, width=16).double()
    agent, entities, goals, action = observations(2, 3, 0)
    zeros = [torch.cat([x, torch.zeros(2, 2, x.shape[-1], dtype=x.dtype)], 1) for x in (entities, goals)]
    torch.testing.assert_close(actor(agent, entities, goals), call(actor, (agent, *zeros, action)))


def test_configs_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="max_entities"):
        NetworkConfig("mlp")
    with pytest.raises(ValueError, match="max_entities"):
        NetworkConfig("deep-set", max_entities=3)
    with pytest.raises(ValueError, match="choose mlp, deep-set"):
        NetworkConfig("transformer")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="heads"):
        SelfAttentionCritic(DIMS, width=10, heads=4)


def test_docs_example_runs_and_learns(capsys):
    page = Path(__file__).parents[1] / "docs" / "networks-in-your-loop.md"
    [code] = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile(code, str(page), "exec"), {})
    lines = re.findall(r"reward (-[\d.]+), doing nothing (-[\d.]+)", capsys.readouterr().out)
    assert len(lines) == 2
    assert all(float(trained) > 0.3 * float(nothing) for trained, nothing in lines)
