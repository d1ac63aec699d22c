"""Behaviour cloning: what it learns from, that it learns, and that a run of it survives what a run of DDPG survives."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from efmdp import train
from efmdp.bc import BC, BCConfig, from_json
from efmdp.demos import Demos, Source, collect
from efmdp.discs import DiscEnv, DiscPusher
from efmdp.domains import make_env
from efmdp.entities import EntityDims, EntityObs, NonFinite, UserError
from efmdp.env import FetchEnv
from efmdp.evaluate import load_policy, play_episodes
from efmdp.networks import NetworkConfig
from efmdp.replay import Episodes
from efmdp.runs import Run, RunError, read_policy
from efmdp.scripted import Scripted
from efmdp.tasks import parse_task
from efmdp.train import Cloner, cloning, train_bc
from efmdp.zero_shot import identify

SCRIPTED = Source("scripted")
SMALL = NetworkConfig(width=32)
QUICK: dict[str, Any] = {
    "epochs": 3,
    "rounds_per_epoch": 2,
    "updates_per_round": 5,
    "batch_size": 32,
    "selection_episodes": 10,
    "threads": 1,
}

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True, scope="module")
def no_tensorboard() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("efmdp.ledger.Ledger._show_on_tensorboard", lambda *_: None)  # takes seconds to import
        yield


@pytest.fixture(scope="module")
def discs(tmp_path_factory: pytest.TempPathFactory) -> Demos:
    """40 demonstrations, of which some succeed and some do not."""
    out = tmp_path_factory.mktemp("demos") / "2-Disc"
    return collect(DiscEnv(8, 2), DiscPusher(0.3), SCRIPTED, "2-Disc", 40, out)


def tiny(demos: Demos, used: int | None = None, seed: int = 0, **changes: Any) -> BCConfig:
    return replace(cloning(demos, SMALL, used, seed), **{**QUICK, **changes})


def cloner(demos: Demos, config: BCConfig) -> Cloner:
    return Cloner(config, demos, Run(Path("nowhere")), "cpu")


def no_warning(message: str) -> None:
    raise AssertionError(message)


def go(demos: Demos, out: Path, epochs: int | None = None, config: BCConfig | None = None, **more: Any) -> Path:
    assert train_bc(config or tiny(demos), demos, out, epochs, **{"warn": no_warning, **more})
    return out


def rows(path: Path) -> list[dict[str, str]]:
    with (path / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def result(path: Path) -> tuple[bytes, dict[str, bytes], dict[str, bytes]]:
    """What must be repeatable about a run: its metrics, and both policies to the last bit."""
    policies = []
    for which in ("last", "best"):
        tensors, about = read_policy(path / f"policy-{which}.safetensors")
        policies.append({name: t.numpy().tobytes() for name, t in tensors.items()} | {"about": repr(about).encode()})
    return (path / "metrics.csv").read_bytes(), *policies


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, discs: Demos) -> Any:
    """The result of a run that nothing disturbed."""
    return result(go(discs, tmp_path_factory.mktemp("whole") / "run"))


# One update


DIMS = EntityDims(agent=3, entity=5, goal=2, action=4)
THREE_USABLE = np.array([1.0, 1.0, 1.0, 0.0])


def batch(seed: int = 0) -> tuple[EntityObs, np.ndarray]:
    rng = np.random.default_rng(seed)
    obs = EntityObs(*(rng.normal(size=(32, *size)).astype(np.float32) for size in ((3,), (2, 5), (2, 2))))
    return obs, rng.uniform(-1, 1, (32, 4)).astype(np.float32)


@pytest.mark.parametrize(
    "network",
    [SMALL, NetworkConfig("self-attention", width=16, feedforward=16), NetworkConfig("mlp", 32, max_entities=3)],
    ids=lambda network: network.kind,
)
def test_an_update_lowers_the_loss(network: NetworkConfig) -> None:
    agent, (obs, actions) = BC(network, DIMS, 1e-3, THREE_USABLE, seed=0), batch()
    losses = [agent.update(obs, actions)["loss"] for _ in range(30)]
    assert losses[1] < losses[0]
    assert losses[-1] < 0.9 * losses[0]
    assert agent.updates == 30


def test_the_loss_is_the_papers() -> None:
    """The squared distance of the actions, averaged over the batch."""
    agent, (obs, actions) = BC(SMALL, DIMS, 1e-3, np.ones(4), seed=0), batch()
    expected = np.square(agent.act(obs) - actions).sum(1).mean()
    assert agent.update(obs, actions)["loss"] == pytest.approx(expected, rel=1e-5)


def test_unusable_actions_are_neither_learned_nor_done() -> None:
    obs, actions = batch()
    other = actions.copy()
    other[:, 3] = 1 - other[:, 3]
    agents = [BC(SMALL, DIMS, 1e-3, THREE_USABLE, seed=0) for _ in range(2)]
    for agent, wanted in zip(agents, (actions, other), strict=True):
        for _ in range(3):
            agent.update(obs, wanted)
        assert (agent.act(obs)[:, 3] == 0).all()
        assert (agent.act(obs)[:, :3] != 0).all()
    first, second = (agent.tensors() for agent in agents)
    assert all(torch.equal(first[name], second[name]) for name in first)


# What it learns from


def test_failed_demonstrations_are_dropped(discs: Demos, tmp_path: Path) -> None:
    episodes, flags = discs.load(40)
    succeeded = int(flags.success_once.sum())
    assert 5 < succeeded < 35
    cloned = cloner(discs, tiny(discs))
    for kept, shown in zip(cloned.episodes, episodes, strict=True):
        assert np.array_equal(kept, shown[flags.success_once])
    good = {goal.tobytes() for goal in episodes.goals[flags.success_once]}
    obs, _ = cloned._sample(64)
    assert {goal.tobytes() for goal in obs.goals} <= good
    out = go(discs, tmp_path / "run", 1)
    assert (rows(out)[0]["demos_used"], rows(out)[0]["demos_successful"]) == ("40", str(succeeded))


def test_the_first_ones_are_used(discs: Demos) -> None:
    episodes, flags = discs.load(11)  # ends inside a chunk
    cloned = cloner(discs, tiny(discs, 11))
    assert np.array_equal(cloned.episodes.goals, episodes.goals[flags.success_once])
    assert tiny(discs, 11).demos != tiny(discs, 12).demos
    assert tiny(discs).demos_used == 40


def test_the_normaliser_comes_from_what_is_used(discs: Demos) -> None:
    for used in (11, 40):
        normaliser = cloner(discs, tiny(discs, used)).agent.normaliser
        episodes, flags = discs.load(used)
        shown = episodes.entities[flags.success_once].reshape(-1, 6).astype(np.float64)
        assert np.allclose(normaliser.entities_mean.numpy(), shown.mean(0))
        assert np.allclose(normaliser.entities_factor.numpy(), 1 / np.maximum(shown.std(0), 0.01), rtol=1e-4)
        assert normaliser.entities_count == len(shown)


def test_nothing_after_an_episodes_end_is_learned(tmp_path: Path) -> None:
    """In a mixture episodes have the length of their member."""
    mixture = "1-Switch|1-Push"
    demos = collect(make_env(mixture, 8), Scripted(8), SCRIPTED, mixture, 8, tmp_path / "demos")
    cloned = cloner(demos, tiny(demos))
    assert set(cloned.episodes.lengths) == {20, 50}
    assert len(cloned.time_of) == cloned.episodes.lengths.sum()
    assert (cloned.time_of < cloned.episodes.lengths[cloned.episode_of]).all()
    assert cloned.agent.usable_actions.tolist() == [1, 1, 1, 0]


def test_selection_is_in_the_world_that_was_demonstrated(tmp_path: Path) -> None:
    options: dict[str, Any] = {"collisions": True, "gripper": True, "layout": "wide", "profile": "reference"}
    demos = collect(make_env("1-Switch", 2, **options), Scripted(2), SCRIPTED, "1-Switch", 2, tmp_path / "demos")
    env = cloner(demos, tiny(demos)).env
    task = env.task  # type: ignore[attr-defined]
    assert (task.collisions, task.gripper, task.layout) == (True, True, "wide")
    assert env.profile == "reference"  # type: ignore[attr-defined]
    assert env.usable_actions.all()


def test_it_learns(tmp_path: Path) -> None:
    env = DiscEnv(100, 1)
    demos = collect(env, env.demonstrator(), SCRIPTED, "1-Disc", 400, tmp_path / "demos")
    longer = {"epochs": 1, "rounds_per_epoch": 1, "updates_per_round": 600, "batch_size": 256, "learning_rate": 3e-3}
    config = tiny(demos, network=NetworkConfig(width=64), **longer)
    out = go(demos, tmp_path / "run", config=config)
    untrained, cloned = cloner(demos, config).agent, load_policy(out)
    assert play_episodes(env, untrained, 200, seed=0).success_once.mean() < 0.3
    assert play_episodes(env, cloned, 200, seed=0).success_once.mean() >= 0.9


# Going on


def test_same_seed_same_result(discs: Demos, tmp_path: Path, whole: Any) -> None:
    torch.manual_seed(12345)
    assert result(go(discs, tmp_path / "again")) == whole
    other = result(go(discs, tmp_path / "other", config=tiny(discs, seed=1)))
    assert other[0] != whole[0]


def test_in_parts_is_the_same_as_at_once(discs: Demos, tmp_path: Path, whole: Any) -> None:
    for epochs in (1, 2, 2, 3, 9):
        out = go(discs, tmp_path / "run", epochs)
        assert len(rows(out)) == min(epochs, 3)
    assert result(out) == whole
    assert [int(row["updates"]) for row in rows(out)] == [10, 20, 30]


# Children of one process that has imported everything. Each kills itself at the so-manieth thing that it does to the
# disk or to its networks (in the middle of a write), or lives to its end: 0.
CHILDREN = """
import json, os, signal, sys, traceback
from pathlib import Path
import torch._dynamo  # which optimisers import at their first step: two seconds for every child otherwise
import efmdp.ledger, efmdp.runs, efmdp.train
from efmdp.bc import from_json
from efmdp.demos import Demos


def arm(last):
    count = 0

    def watched(function):
        def call(*arguments, **named):
            nonlocal count
            count += 1
            if count == last:
                if function is write:
                    arguments[0].write_bytes(arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **named)
        return call

    write = efmdp.runs._write_synced
    efmdp.runs._write_synced = watched(write)
    efmdp.runs.os.rename = watched(os.rename)
    efmdp.runs.Run.append_row = watched(efmdp.runs.Run.append_row)
    efmdp.train.Cloner.learn = watched(efmdp.train.Cloner.learn)


def refuse(message):
    raise AssertionError(message)


def run(out, last):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            arm(last)
            status = 0 if efmdp.train.train_bc(config, Demos(demos), Path(out), warn=refuse) else 3
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


config, demos, tours = json.load(sys.stdin)
config, demos = from_json(config), Path(demos)
efmdp.ledger.Ledger._show_on_tensorboard = lambda *_: None
print(json.dumps([[run(out, last) for last in lasts] for out, lasts in tours]))
"""


def test_killed_runs_go_on_to_the_same_bits(discs: Demos, tmp_path: Path, whole: Any) -> None:
    tours = [(str(tmp_path / str(first)), [first, 7, 0]) for first in (2, 4, 9, 14, 22)]
    asked = json.dumps([asdict(tiny(discs)), str(discs.path), tours])
    command = [sys.executable, "-c", CHILDREN]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[-signal.SIGKILL, -signal.SIGKILL, 0]] * len(tours), done.stderr
    assert [out for out, _ in tours if result(Path(out)) != whole] == []


def test_damage_is_told_and_the_checkpoint_before_is_used(discs: Demos, tmp_path: Path, whole: Any) -> None:
    out, told = go(discs, tmp_path / "run", 2), list[str]()
    newest = sorted((out / "checkpoints").iterdir())[-1] / "tensors.safetensors"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    go(discs, out, warn=told.append)
    assert len(told) == 1
    assert str(newest) in told[0]
    assert result(out) == whole


# Identity


def test_another_run_is_refused(discs: Demos, tmp_path: Path) -> None:
    out = go(discs, tmp_path / "run", 1)
    before = result(out)
    others = collect(DiscEnv(8, 2), DiscPusher(0.3), SCRIPTED, "2-Disc", 40, tmp_path / "others", seed=1)
    for demos, config, named in (
        (others, tiny(others), "demos"),
        (discs, tiny(discs, 39), "demos_used"),
        (discs, tiny(discs, seed=1), "seed"),
        (discs, tiny(discs, network=NetworkConfig(width=64)), "network"),
    ):
        with pytest.raises(RunError, match=f"{named} was .*, now ") as caught:
            train_bc(config, demos, out)
        assert str(out) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert result(out) == before


def test_the_same_demonstrations_elsewhere_are_the_same_run(discs: Demos, tmp_path: Path, whole: Any) -> None:
    out = go(discs, tmp_path / "run", 1)
    copied = Demos(shutil.copytree(discs.path, tmp_path / "copy"))
    collect(DiscEnv(8, 2), DiscPusher(0.3), SCRIPTED, "2-Disc", 80, copied.path)  # more of them change nothing
    assert result(go(Demos(copied.path), out, config=tiny(discs))) == whole
    assert json.loads((out / "config.json").read_text())["demos"] == str(copied.path)


def test_other_demonstrations_under_the_old_name_are_noticed(discs: Demos, tmp_path: Path) -> None:
    others = collect(DiscEnv(8, 2), DiscPusher(0.3), SCRIPTED, "2-Disc", 40, tmp_path / "others", seed=1)
    with pytest.raises(UserError, match="others holds other demonstrations than those of"):
        train_bc(tiny(discs), others, tmp_path / "run")


def test_config_comes_back_from_json(discs: Demos) -> None:
    config = tiny(discs)
    assert from_json(json.loads(json.dumps(asdict(config)))) == config


# Numbers that go wrong


def test_stops_at_a_loss_that_is_not_finite(
    discs: Demos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Any
) -> None:
    out, step = tmp_path / "run", BC._step

    def failing(agent: BC, *arguments: Any) -> dict[str, torch.Tensor]:
        if agent.updates == 17:
            with torch.no_grad():
                next(agent.actor.parameters())[0, 0] = float("nan")
        return step(agent, *arguments)

    monkeypatch.setattr(BC, "_step", failing)
    with pytest.raises(NonFinite, match="loss became nan in update 18"):
        train_bc(tiny(discs), discs, out)
    monkeypatch.setattr(BC, "_step", step)
    assert len(rows(out)) == 1
    assert np.isfinite(load_policy(out).act(make_env("2-Disc").observe())).all()
    assert result(go(discs, out)) == whole


@pytest.mark.parametrize("field", ["agent", "entities", "goals", "actions"])
def test_a_demonstration_that_is_not_finite_is_named(
    discs: Demos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    load, succeeded = Demos.load, int(discs.load(40)[1].success_once.argmax())

    def broken(demos: Demos, count: int) -> Any:
        episodes, flags = load(demos, count)
        getattr(episodes, field)[succeeded].flat[-1] = np.inf
        return Episodes(*episodes), flags

    out = go(discs, tmp_path / "run", 1)
    before = result(out)
    monkeypatch.setattr(Demos, "load", broken)
    with pytest.raises(NonFinite, match=rf"a demonstration in .*2-Disc \({field}\) is not finite"):
        train_bc(tiny(discs), discs, out)
    assert result(out) == before


def test_nothing_to_learn_from(tmp_path: Path) -> None:
    class Still(DiscPusher):
        def act(self, obs: EntityObs) -> np.ndarray:
            return np.zeros((len(obs.agent), 2))

    demos = collect(DiscEnv(4, 1), Still(0.1), SCRIPTED, "1-Disc", 8, tmp_path / "demos")
    with pytest.raises(UserError, match=r"none of the 8 demonstrations in .* succeeded") as caught:
        train_bc(tiny(demos), demos, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


# The commands


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """`efmdp train bc` with few updates."""
    monkeypatch.setattr(train, "cloning", lambda *asked: replace(cloning(*asked), **QUICK))


@pytest.mark.usefixtures("quick")
def test_interrupted_and_resumed(discs: Demos, tmp_path: Path, efmdp: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def train_command(out: Path, demos: Path = discs.path) -> tuple[int, str, str]:
        return efmdp("train", "bc", "--demos", demos, "--threads", 1, "--out", out)

    code, said, err = train_command(tmp_path / "whole")
    assert code == 0, err
    assert f"{tmp_path / 'whole'}: done. Try: efmdp evaluate" in said
    demos = shutil.copytree(discs.path, tmp_path / "demos")
    out, learn = tmp_path / "run", Cloner.learn

    def interrupted(cloner: Cloner) -> None:
        if (cloner.epoch, cloner.round) == (1, 0):
            os.kill(os.getpid(), signal.SIGINT)
        learn(cloner)

    monkeypatch.setattr(Cloner, "learn", interrupted)
    code, said, err = train_command(out, demos)
    assert code == 0, err
    assert f"{out}: stopped, all is saved. Go on with: efmdp train resume {out}" in said
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["000002", "000003"]  # in round 1 of 2
    monkeypatch.setattr(Cloner, "learn", learn)
    moved = demos.rename(tmp_path / "moved")
    code, _, err = efmdp("train", "resume", out)
    assert code == 2
    assert f"no longer at {demos}: efmdp train bc --demos THEM --out {out}" in err
    assert len(err.strip().splitlines()) == 1
    assert efmdp("train", "bc", "--demos", moved, "--threads", 1, "--out", out, "--epochs", 2)[0] == 0
    code, said, err = efmdp("train", "resume", out)  # it knows the new place
    assert code == 0, err
    assert f"{out}: done" in said
    assert result(out) == result(tmp_path / "whole")


@pytest.mark.usefixtures("quick")
def test_a_cloned_policy_is_a_policy(tmp_path: Path, efmdp: Command) -> None:
    demos = collect(make_env("1-Switch", 4), Scripted(4), SCRIPTED, "1-Switch", 4, tmp_path / "demos")
    run = tmp_path / "run"
    command = ("train", "bc", "--demos", demos.path, "--demos-used", 3, "--seed", 5, "--network", "mlp")
    code, _, err = efmdp(*command, "--max-entities", 2, "--out", run)
    assert code == 0, err
    for which in ("last", "best"):
        about = read_policy(run / f"policy-{which}.safetensors")[1]
        assert (about["task"], about["recipe"], about["seed"]) == ("1-Switch", "bc-3", 5)
        assert about["demos_used"] == 3
        assert 1 <= about["demos_successful"] <= 3
        assert about["network"]["max_entities"] == 2
    who = identify(run / "policy-best.safetensors")
    assert (who["network"], who["recipe"], who["seed"]) == ("mlp-2", "bc-3", "5")
    code, said, err = efmdp("evaluate", run, "--episodes", 4, "--task", "2-Switch")
    assert code == 0, err
    assert "on 2-Switch, 4 episodes" in said
    film = tmp_path / "film.mp4"
    code, said, err = efmdp("watch", run, "--episodes", 1, "--out", film, "--width", 64, "--height", 48)
    assert code == 0, err
    assert film.stat().st_size > 0


@pytest.mark.usefixtures("quick")
def test_an_mlp_has_room_for_what_was_demonstrated(discs: Demos, tmp_path: Path, efmdp: Command) -> None:
    wide = FetchEnv(parse_task("7-Switch", layout="wide"), 2)
    many = collect(wide, Scripted(2), SCRIPTED, "7-Switch", 2, tmp_path / "wide")
    for demos, places in ((discs, discs.about["entities"]), (many, 7)):
        run = tmp_path / f"run-{places}"
        code, _, err = efmdp("train", "bc", "--demos", demos.path, "--network", "mlp", "--out", run)
        assert code == 0, err
        assert read_policy(run / "policy-last.safetensors")[1]["network"]["max_entities"] == places


@pytest.mark.usefixtures("quick")
def test_clones_of_different_demonstrators_have_different_names(tmp_path: Path, efmdp: Command) -> None:
    expert = Source("runs/expert/policy-best.safetensors", "0" * 64)
    demos = collect(make_env("1-Switch", 4), Scripted(4), expert, "1-Switch", 4, tmp_path / "demos")
    code, _, err = efmdp("train", "bc", "--demos", demos.path, "--out", tmp_path / "run")
    assert code == 0, err
    assert identify(tmp_path / "run" / "policy-best.safetensors")["recipe"] == "bc-4-of-expert"


def recipe_of(demos: Demos) -> str:
    return cloning(demos, NetworkConfig(), None, seed=0).recipe


def test_clones_of_different_demonstrations_have_different_names(tmp_path: Path) -> None:
    env = make_env("1-Switch", 4)
    last = Source("runs/expert/policy-last.safetensors", "0" * 64)
    assert recipe_of(collect(env, Scripted(4), last, "1-Switch", 4, tmp_path / "last")) == "bc-4-of-expert-last"
    seed = collect(env, Scripted(4), SCRIPTED, "1-Switch", 4, tmp_path / "seed", seed=3)
    assert recipe_of(seed) == "bc-4-seed-3"
    wide = FetchEnv(parse_task("1-Switch", layout="wide"), 4, "reference")
    demos = collect(wide, Scripted(4), SCRIPTED, "1-Switch", 4, tmp_path / "wide")
    assert recipe_of(demos) == "bc-4-wide-reference"


def test_unfinished_demonstrations_are_not_used_unawares(discs: Demos, tmp_path: Path, efmdp: Command) -> None:
    some = shutil.copytree(discs.path, tmp_path / "some")
    manifest = json.loads((some / "manifest.json").read_text())
    manifest.popitem()
    (some / "manifest.json").write_text(json.dumps(manifest))
    code, _, err = efmdp("train", "bc", "--demos", some, "--out", tmp_path / "run")
    left = len(Demos(some))
    assert 0 < left < 40
    assert code == 2
    assert f"holds {left} of the 40 episodes that were wanted: use them with --demos-used {left}, or finish with" in err
    assert len(err.strip().splitlines()) == 1


def test_what_the_user_can_mend_is_one_line_and_exit_code_2(discs: Demos, tmp_path: Path, efmdp: Command) -> None:
    out = tmp_path / "run"

    def refused(said: str, *arguments: object) -> None:
        code, _, err = efmdp("train", *arguments)
        assert code == 2
        assert said in err
        assert len(err.strip().splitlines()) == 1
        assert not out.exists()

    def cloned(*arguments: object) -> tuple[object, ...]:
        return ("bc", "--demos", discs.path, "--out", out, *arguments)

    refused("there are no demonstrations at absent", "bc", "--demos", "absent", "--out", out)
    refused("there are no demonstrations at", "bc", "--demos", __file__, "--out", out)
    refused("0 of the 40 demonstrations in", *cloned("--demos-used", 0))
    refused("-3 of the 40 demonstrations in", *cloned("--demos-used", -3))
    refused("holds 40 episodes, not 41: collect more: efmdp collect", *cloned("--demos-used", 41))
    refused("--epochs is 0: choose 1 or more", *cloned("--epochs", 0))
    refused("--seed is -1: choose 0 or more", *cloned("--seed", -1))
    refused("--threads is 0", *cloned("--threads", 0))
    refused("--minutes is 0", *cloned("--minutes", 0))
    refused("there is no run at", "resume", out)
    (tmp_path / "empty").mkdir()
    refused("there are no demonstrations at", "bc", "--demos", tmp_path / "empty", "--out", out)
