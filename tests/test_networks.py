import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import efmdp
from efmdp import networks
from efmdp.demos import Demos
from efmdp.entities import EntityDims, UserError
from efmdp.evaluate import load_policy
from efmdp.networks import (
    Actor,
    DeepSetActor,
    MLPActor,
    NetworkConfig,
    SelfAttentionActor,
    SelfAttentionCritic,
    make_actor,
    make_critic,
    per_entity,
    register,
)
from efmdp.recipes import smoke
from efmdp.runs import RunError
from efmdp.train import cloning, short, train_bc, train_ddpg
from efmdp.zero_shot import compare, extrapolation

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
@pytest.mark.parametrize("kind", KINDS)
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
        NetworkConfig("transformer")
    with pytest.raises(ValueError, match="heads"):
        SelfAttentionCritic(DIMS, width=10, heads=4)


def test_docs_example_runs_and_learns(capsys):
    page = Path(__file__).parents[1] / "docs" / "networks-in-your-loop.md"
    [code] = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile(code, str(page), "exec"), {})
    lines = re.findall(r"reward (-[\d.]+), doing nothing (-[\d.]+)", capsys.readouterr().out)
    assert len(lines) == 2
    assert all(float(trained) > 0.3 * float(nothing) for trained, nothing in lines)


class Mean(torch.nn.Module):
    """A user's network, about as small as one can be."""

    def __init__(self, dims, n_action, n_out):
        super().__init__()
        self.layer = torch.nn.Linear(dims.agent + dims.entity + dims.goal + n_action, n_out)

    def forward(self, agent, entities, goals, action, mask):
        return self.layer(per_entity(agent, entities, goals, action)).mean(1)


@pytest.fixture
def own(monkeypatch):
    """Mean, registered for one test."""
    monkeypatch.setattr(networks, "_OWN", {})
    efmdp.register_network("mean", Mean)
    return NetworkConfig("mean")


@pytest.fixture(scope="module")
def own_run(tmp_path_factory):
    """The folder of a finished run of Mean."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "_OWN", {"mean": Mean})
        out = tmp_path_factory.mktemp("runs") / "whole"
        assert train_ddpg(own_smoke(), out)
    return out


def own_smoke():
    return replace(smoke("1-Switch", NetworkConfig("mean"), seed=3), threads=1)


def test_own_bodies_are_made_for_both_roles(own):
    obs = observations(2, 3, 0)
    for make, n_out in ((make_actor, DIMS.action), (make_critic, 1)):
        net = make(own, DIMS).double()
        assert isinstance(net.body, Mean)
        assert net.body.layer.out_features == n_out
        assert len(call(net, obs)) == 2


def test_own_network_trains_and_resumes_bit_for_bit(own, own_run, tmp_path, efmdp):
    out = tmp_path / "in-parts"
    train_ddpg(own_smoke(), out, epochs=1)
    first = (out / "policy-last.safetensors").read_bytes()
    code, _, errors = efmdp("train", "resume", out)
    assert code == 0, errors
    last = (out / "policy-last.safetensors").read_bytes()
    assert last != first
    assert last == (own_run / "policy-last.safetensors").read_bytes()


def test_policy_of_own_network_plays_other_numbers(own, own_run, efmdp):
    code, out, errors = efmdp("evaluate", own_run, "--task", "2-Switch", "--episodes", 2)
    assert code == 0, errors
    assert "on 2-Switch, 2 episodes" in out
    rows = compare([own_run], {"switch": "scripted"}, partial(extrapolation, wide=False), 1, None)
    assert [row["task"] for row in rows if row["network"] == "mean"] == [f"{n}-Switch" for n in range(1, 7)]
    assert not any(row["reason"] for row in rows)


def test_own_network_clones(own, tmp_path, efmdp):
    shown, out = tmp_path / "demos", tmp_path / "run"
    code, _, errors = efmdp("collect", "--task", "2-Disc", "--from", "scripted", "--episodes", 100, "--out", shown)
    assert code == 0, errors
    demos = Demos(shown)
    assert train_bc(replace(short(cloning(demos, own, None, seed=0)), threads=1), demos, out)
    assert isinstance(load_policy(out).actor.body, Mean)


def test_a_fresh_process_says_what_it_needs(own_run):
    code = f"""
import sys, efmdp
assert "torch" not in sys.modules
try:
    efmdp.load_policy({str(own_run)!r})
except efmdp.entities.UserError as error:
    print(error)
efmdp.register_network("mean", lambda dims, n_action, n_out: None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    (line,) = done.stdout.splitlines()
    assert "unknown network 'mean'" in line
    assert "your own needs efmdp.networks.register('mean', ...) before it is loaded" in line


def test_commands_say_what_an_own_network_needs(own_run, efmdp):
    for command in (("train", "resume"), ("evaluate",), ("evaluate", "extrapolation")):
        code, _, errors = efmdp(*command, own_run)
        assert code == 2
        (line,) = errors.splitlines()
        assert "efmdp.networks.register('mean', ...)" in line


def test_another_network_of_the_same_name_does_not_take_the_weights(own_run, monkeypatch):
    monkeypatch.setattr(networks, "_OWN", {})
    register("mean", partial(networks.DeepSet, width=8, n_phi=1, n_rho=0))
    with pytest.raises(RunError, match="Missing key"):
        load_policy(own_run)


def test_registered_networks_have_names_of_their_own(own):
    register("mean", Mean)  # again the same
    with pytest.raises(UserError, match="registered already"):
        register("mean", lambda dims, n_action, n_out: Mean(dims, n_action, n_out))
    with pytest.raises(UserError, match="is a network of efmdp"):
        register("deep-set", Mean)
    for name in ("mlp-6", "oracle", "Mean", "a/b", "a b", "", "-mean", "..", "mean\n"):
        with pytest.raises(UserError, match="cannot be called"):
            register(name, Mean)
    with pytest.raises(UserError, match="max_entities"):
        NetworkConfig("mean", max_entities=3)
    with pytest.raises(UserError, match="choose mlp, deep-set, deep-set-large, self-attention, mean;"):
        NetworkConfig("median")


def test_a_critic_that_forgets_to_pool_is_no_critic(monkeypatch):
    """Values of each entity would broadcast against those that are wanted, and something else would be learned."""
    monkeypatch.setattr(networks, "_OWN", {})

    class Each(Mean):
        def forward(self, agent, entities, goals, action, mask):
            return self.layer(per_entity(agent, entities, goals, action))  # (B, N, 1)

    register("each", Each)
    with pytest.raises(RuntimeError, match="invalid"):
        call(make_critic(NetworkConfig("each"), DIMS).double(), observations(2, 3, 0))
    assert call(make_critic(NetworkConfig("each"), DIMS).double(), observations(2, 1, 0)).shape == (2,)
