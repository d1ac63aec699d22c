import hashlib
import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from efmdp.ddpg import DDPG, DDPGConfig
from efmdp.demos import CHUNK, Demos, Source, collect, record
from efmdp.discs import DiscEnv, DiscPusher
from efmdp.domains import make_env
from efmdp.entities import EntityObs, UserError
from efmdp.env import FINGER_ACTION, IS_SWITCH, FetchEnv
from efmdp.evaluate import DEMONSTRATIONS, TEST, TRAINING, about_policy, policy_tensors, stream_seed
from efmdp.gym_env import FetchGymEnv, entity_obs
from efmdp.minari_export import export_minari
from efmdp.networks import NetworkConfig
from efmdp.recipes import Exploration
from efmdp.rollout import run_episodes
from efmdp.runs import Run, only_process_in
from efmdp.scripted import Scripted, code_sha256
from efmdp.train import cloning

SCRIPTED = Source("scripted")
DISCS_SCRIPTED = Source("scripted", code_sha256(DiscPusher))


def collect_discs(out: Path, episodes: int, chunk: int = 8, **more: object) -> Demos:
    env = DiscEnv(chunk, 1)
    return collect(env, env.demonstrator(), DISCS_SCRIPTED, "1-Disc", episodes, out, **more)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def flip(path: Path, where: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 4
    path.write_bytes(data)


Command = Callable[..., tuple[int, str, str]]


# What is recorded


class HalfStill(Scripted):
    """Every other hand only hovers; the others want to open the fingers, and more than an action can be."""

    def act(self, obs: EntityObs) -> np.ndarray:
        actions = super().act(obs)
        actions[::2] = 0
        actions[1::2, FINGER_ACTION] = 3
        return actions


@pytest.mark.parametrize("task", ["1-Push", "2-Switch|2-Push", "Stack"])
def test_recorded_actions_are_what_was_done(task: str) -> None:
    """Done again from the same seed they lead to the same observations, bit for bit."""
    env = make_env(task, 6)
    episodes, _ = record(env, HalfStill(6), seed=3)
    gripper = task == "Stack"
    assert set(np.unique(episodes.actions[1::2, :20, FINGER_ACTION])) == {1.0 if gripper else 0.0}
    assert (np.abs(episodes.actions[..., :3]) > 0).any()
    again = make_env(task, 6)
    obs = again.reset(seed=3)
    assert np.array_equal(obs.goals, episodes.goals)
    for t in range(env.max_horizon + 1):
        inside = t <= episodes.lengths
        assert np.array_equal(obs.agent[inside], episodes.agent[inside, t])
        assert np.array_equal(obs.entities[inside], episodes.entities[inside, t])
        if t < env.max_horizon:
            obs = again.step(episodes.actions[:, t]).obs


def test_of_a_disturbed_demonstrator_it_is_what_was_wanted() -> None:
    env = make_env("1-Push", 6)
    clear, disturbed = (record(env, Scripted(6), 3, how)[0] for how in (Exploration(0, 0), Exploration(0.1, 0.2)))
    assert not np.array_equal(clear.entities, disturbed.entities)
    controller, states = Scripted(6), (disturbed.agent, disturbed.entities)
    for t in range(50):
        wanted = controller.act(EntityObs(*(part[:, t] for part in states), disturbed.goals)) * env.usable_actions
        np.testing.assert_allclose(disturbed.actions[:, t], wanted, atol=2e-3)  # seen in float32
    np.testing.assert_array_equal(record(env, Scripted(6), 3, Exploration(0.1, 0.2))[0].actions, disturbed.actions)


def test_disturbed_demonstrations_are_others(tmp_path: Path, efmdp: Command) -> None:
    command = ("collect", "--task", "1-Switch", "--from", "scripted", "--episodes", "100", "--out", tmp_path / "shown")
    assert efmdp(*command, "--noise", "0.1", "--random", "0.05")[0] == 0
    demos = Demos(tmp_path / "shown")
    assert cloning(demos, NetworkConfig(), None, seed=0).recipe == "bc-100-noise-0.1-random-0.05"
    assert demos.command().endswith("--noise 0.1 --random 0.05")
    before = contents(tmp_path / "shown")
    for arguments, said in (
        (command, "holds other demonstrations (noise was 0.1, now 0.0; random was 0.05, now 0.0)"),
        ((*command, "--noise", "-1"), "--noise is -1.0 and --random 0.0: choose 0 to 1 for both"),
        (("export-minari", tmp_path / "shown", "--name", "a/b-v0"), "not those that were done"),
    ):
        code, _, err = efmdp(*arguments)
        assert code == 2
        assert said in err
        assert len(err.strip().splitlines()) == 1
    assert contents(tmp_path / "shown") == before
    assert efmdp(*command, "--noise", "0.1", "--random", "0.05")[0] == 0
    assert contents(tmp_path / "shown") == before


def test_flags_are_the_outcome_of_the_same_episodes() -> None:
    env = DiscEnv(64, 2)
    outcome = run_episodes(env, DiscPusher(0.3), seed=5)  # leaves many discs too far from their subgoals
    episodes, flags = record(env, DiscPusher(0.3), seed=5)
    assert 0 < outcome.success_once.mean() < 1
    for name, values in flags._asdict().items():
        assert np.array_equal(values, getattr(outcome, name)), name
    success = env.success(env.achieved(episodes.entities), episodes.goals[:, None])  # (K, T + 1)
    assert np.array_equal(success[:, 1:].any(1), flags.success_once)
    assert np.array_equal(success[:, -1], flags.success_end)
    half = record(make_env("1-Push", 10), HalfStill(10), seed=0)[1]
    assert not half.success_once[::2].any()


class Wandering(DiscPusher):
    """Shoves the disc on after it has arrived."""

    def act(self, obs: EntityObs) -> np.ndarray:
        away = np.array([1.0, 0.3])
        self.steps = getattr(self, "steps", 0) + 1
        return super().act(obs) if self.steps < 35 else np.broadcast_to(away, (len(obs.agent), 2))


def test_success_once_is_not_success_at_the_end() -> None:
    _, flags = record(DiscEnv(64, 1), Wandering(), seed=1)
    assert (flags.success_once & ~flags.success_end).any()
    assert not (flags.success_end & ~flags.success_once).any()


class Failing(DiscEnv):
    """Slot 1 blows up in its third step."""

    def _advance(self, actions: np.ndarray) -> np.ndarray:
        super()._advance(actions)
        return (np.arange(self.num_envs) == 1) & (self.elapsed == 2)


def test_an_episode_that_blew_up_ends_before_that() -> None:
    good, _ = record(DiscEnv(3, 1), DiscPusher(), seed=2)
    episodes, flags = record(Failing(3, 1), DiscPusher(), seed=2)
    assert flags.failed.tolist() == [False, True, False]
    assert not flags.success_once[1]
    assert episodes.lengths.tolist() == [40, 2, 40]
    for field, whole, end in zip(episodes[:2], good[:2], (3, 3), strict=True):
        assert np.array_equal(field[1, :end], whole[1, :end])
        assert not field[1, end:].any()
        assert np.array_equal(field[[0, 2]], whole[[0, 2]])
    assert np.array_equal(episodes.actions[1, :2], good.actions[1, :2])
    assert not episodes.actions[1, 2:].any()
    assert np.array_equal(episodes.goals, good.goals)


def test_a_mixture_has_the_lengths_of_its_members() -> None:
    episodes, flags = record(make_env("2-Switch|2-Push", 12), Scripted(12), seed=0)
    switches = (episodes.entities[:, 0, :, IS_SWITCH] == 1).all(1)
    assert 0 < switches.sum() < 12
    assert np.array_equal(episodes.lengths, np.where(switches, 40, 100))
    assert episodes.agent.shape[1] == 101
    assert not episodes.agent[switches, 41:].any()
    assert not episodes.actions[switches, 40:].any()
    assert episodes.agent[:, 40, :3].all()
    assert flags.success_once.mean() > 0.8


# Folders


@pytest.fixture(scope="module")
def pushes(tmp_path_factory: pytest.TempPathFactory) -> Demos:
    """Two chunks of 10 episodes of one cube."""
    out = tmp_path_factory.mktemp("demos") / "1-Push"
    return collect(make_env("1-Push", 10), Scripted(10), SCRIPTED, "1-Push", 15, out, seed=4)


def test_round_trip(pushes: Demos) -> None:
    demos = Demos(pushes.path)
    assert len(demos) == len(pushes) == 20  # 15, in whole chunks
    played = [record(make_env("1-Push", 10), Scripted(10), stream_seed(4, DEMONSTRATIONS, i)) for i in range(2)]
    for part, chunk in zip(played, demos.chunks(), strict=True):
        assert all(
            np.array_equal(a, b) and a.dtype == b.dtype for x in (0, 1) for a, b in zip(part[x], chunk[x], strict=True)
        )
    episodes, flags = demos.load(13)
    for which, loaded in enumerate((episodes, flags)):
        for number, field in enumerate(loaded):
            assert np.array_equal(field, np.concatenate([part[which][number] for part in played])[:13])
    assert [field.dtype.name for field in episodes] == ["float32"] * 4 + ["int64"]
    assert {field.dtype.name for field in flags} == {"bool"}
    assert not np.array_equal(played[0][0].goals, played[1][0].goals)  # each chunk has a seed of its own


def test_scripted_demonstrations_mostly_succeed(pushes: Demos) -> None:
    _, flags = pushes.load(20)
    assert flags.success_once.mean() >= 0.9


def test_about_says_how_to_make_the_environment_again(pushes: Demos) -> None:
    about = Demos(pushes.path).about
    assert about["policy"] == "scripted"
    assert (about["seed"], about["chunk"], about["episodes"]) == (4, 10, 20)
    assert about["versions"]["mujoco"]
    env = make_env(about["task"], **about["options"])
    assert isinstance(env, FetchEnv)
    assert env.task == make_env("1-Push").task  # type: ignore[attr-defined]
    assert (about["entities"], about["horizon"]) == (env.num_entities, env.max_horizon)
    options = {"collisions": True, "gripper": True, "layout": "wide", "profile": "reference"}
    odd = make_env("1-Switch", 2, **options)  # type: ignore[arg-type]
    assert collect(odd, Scripted(2), SCRIPTED, "1-Switch", 1, pushes.path.parent / "odd").about["options"] == options


def test_streams_stay_what_they_were() -> None:
    """Results that were published depend on them."""
    assert stream_seed(7, TEST) == int(np.random.SeedSequence([7, TEST]).generate_state(1)[0])
    parts = {stream_seed(7, DEMONSTRATIONS, part) for part in range(100)}
    assert len(parts | {stream_seed(7, TRAINING), stream_seed(8, DEMONSTRATIONS)}) == 102


def test_growing_gives_what_collecting_at_once_gives(tmp_path: Path) -> None:
    for episodes in (8, 30, 16):
        grown = collect_discs(tmp_path / "grown", episodes)
    at_once = collect_discs(tmp_path / "at_once", 30)
    assert len(grown) == len(at_once) == 32
    assert contents(grown.path) == contents(at_once.path)
    other = collect_discs(tmp_path / "other", 30, seed=1)
    assert contents(other.path)["chunks/000000.npz"] != contents(grown.path)["chunks/000000.npz"]


def test_what_is_there_is_not_played_again(tmp_path: Path) -> None:
    asked: list[list[int]] = []
    for episodes in (16, 30, 30, 5):
        collect_discs(tmp_path, episodes, track=lambda missing: asked.append(list(missing)) or missing)  # type: ignore[func-returns-value]
    assert asked == [[0, 1], [2, 3], [], []]


COLLECT = ["--task", "1-Switch", "--from", "scripted", "--episodes", "400"]


def test_killed_collection_goes_on_to_the_same_files(tmp_path: Path, efmdp: Command) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-c", "from efmdp.cli import main; main()", "collect", *COLLECT, "--out", str(killed)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while not (killed / "chunks/000001.npz").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert 100 <= len(Demos(killed)) < 400
    assert efmdp("collect", *COLLECT, "--out", killed)[0] == 0
    code, said, _ = efmdp("collect", *COLLECT, "--out", whole)
    assert code == 0
    assert re.search(r"400 episodes of 1-Switch, success \d.*%.*, \d+ MB, collected in \d+ s", said)
    assert contents(killed) == contents(whole)
    assert len(Demos(killed)) == 400


def test_interrupted_collection_says_how_to_go_on(
    tmp_path: Path, efmdp: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("collect", "--task", "1-Disc", "--from", "scripted", "--episodes", "300", "--out", tmp_path / "demos")
    act, calls = DiscPusher.act, 0

    def interrupted(self: DiscPusher, obs: EntityObs) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 90:  # in the third chunk
            raise KeyboardInterrupt
        return act(self, obs)

    monkeypatch.setattr(DiscPusher, "act", interrupted)
    code, said, _ = efmdp(*command)
    assert code == 130
    assert f"{tmp_path / 'demos'}: stopped with 200 of 300 episodes; the same command goes on from here" in said
    assert efmdp(*command)[0] == 0
    assert contents(tmp_path / "demos") == contents(collect_discs(tmp_path / "other", 300, chunk=CHUNK).path)


# Damage


@pytest.fixture
def discs(tmp_path: Path) -> Demos:
    return collect_discs(tmp_path / "discs", 24)


@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "missing"])
def test_damaged_chunk_is_named_and_collected_anew(discs: Demos, damage: str) -> None:
    before, chunk = contents(discs.path), discs.path / "chunks/000001.npz"
    match damage:
        case "flipped":
            flip(chunk, 0.6)
        case "truncated":
            chunk.write_bytes(chunk.read_bytes()[:-1])
        case "empty":
            chunk.write_bytes(b"")
        case "missing":
            chunk.unlink()
    demos = Demos(discs.path)
    demos.load(8)  # what is intact can be read
    for read in (lambda: demos.load(9), lambda: list(demos.chunks())):
        with pytest.raises(UserError, match=re.escape(str(chunk))) as caught:
            read()
        assert "efmdp collect --task 1-Disc --from scripted --episodes 24" in str(caught.value)
        assert "\n" not in str(caught.value)
    warnings: list[str] = []
    collect_discs(discs.path, 8, warn=warnings.append)
    assert len(warnings) == 1
    assert str(chunk) in warnings[0]
    assert contents(discs.path) == before
    collect_discs(discs.path, 24, warn=warnings.append)
    assert len(warnings) == 1


def test_any_flipped_bit_of_about_and_manifest_is_found(discs: Demos) -> None:
    before = contents(discs.path)
    for name in ("about.json", "manifest.json"):
        for where in np.linspace(0, 1, 60, endpoint=False):
            flip(discs.path / name, where)
            with pytest.raises(UserError) as caught:
                Demos(discs.path).load(24)
            assert "damaged" in str(caught.value) or "missing" in str(caught.value)
            assert "\n" not in str(caught.value)
            (discs.path / name).write_bytes(before[name])
    Demos(discs.path).load(24)


def test_lost_manifest_costs_time_only(discs: Demos) -> None:
    before = contents(discs.path)
    (discs.path / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"manifest\.json is damaged: remove it, and collect again with efmdp collect"):
        collect_discs(discs.path, 24)
    (discs.path / "manifest.json").unlink()
    with pytest.raises(UserError, match="holds other demonstrations"):
        collect_discs(discs.path, 24, seed=9)
    collect_discs(discs.path, 24)
    assert contents(discs.path) == before


def test_chunks_of_unknown_origin_are_not_taken_for_others(discs: Demos) -> None:
    (discs.path / "about.json").unlink()
    before = contents(discs.path)
    with pytest.raises(UserError, match=r"without their about\.json: restore it, or choose another --out"):
        collect_discs(discs.path, 24, seed=9)
    assert contents(discs.path) == before


def test_another_version_of_the_controller_is_another_demonstrator(discs: Demos) -> None:
    env = DiscEnv(8, 1)
    with pytest.raises(UserError, match="holds other demonstrations"):
        collect(env, env.demonstrator(), Source("scripted", "0" * 64), "1-Disc", 24, discs.path)
    assert code_sha256(Scripted) != code_sha256(type(env.demonstrator()))


def test_later_format_is_refused(discs: Demos, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("efmdp.demos.FORMAT", 2)
    with pytest.raises(UserError, match="has format 1, not 2"):
        Demos(discs.path)


# The commands


def test_what_the_user_can_mend_is_one_line_and_exit_code_2(tmp_path: Path, efmdp: Command) -> None:
    out = tmp_path / "demos"
    assert efmdp("collect", "--task", "1-Disc", "--from", "scripted", "--episodes", 100, "--out", out)[0] == 0
    before = contents(out)

    def refused(said: str, *arguments: object) -> None:
        code, _, err = efmdp(*arguments)
        assert code == 2
        assert said in err
        assert len(err.strip().splitlines()) == 1
        assert contents(out) == before

    disc = ("collect", "--task", "1-Disc", "--out", out, "--from")
    refused("task was 1-Disc, now 2-Disc", "collect", "--task", "2-Disc", "--from", "scripted", "--out", out)
    refused("seed was 0, now 1", *disc, "scripted", "--seed", "1")
    refused("collisions was False, now True", *disc, "scripted", "--collisions", "True")
    refused("policy was scripted of SHA-256", *disc, disc_run(tmp_path / "run"))
    refused("trained on 1-Disc", "collect", "--task", "1-Push", "--from", tmp_path / "run", "--out", out)
    refused("collect at least one", *disc, "scripted", "--episodes", "0")
    refused("--seed is -1: choose 0 or more", *disc, "scripted", "--seed", "-1")
    refused("below 2^32", *disc, "scripted", "--seed", 2**32)
    refused("no run or policy file at absent", *disc, "absent")
    refused("say which with --task", "collect", "--from", "scripted", "--out", out)
    refused("Did you mean '3-Push'?", "collect", "--task", "3-push", "--from", "scripted", "--out", out)
    refused("there are no demonstrations at", "export-minari", tmp_path, "--name", "a/b-v0")
    refused("no task of the robot", "export-minari", out, "--name", "a/b-v0")
    with only_process_in(out):
        refused("in use by another process", *disc, "scripted", "--episodes", 100)


def disc_run(path: Path, seed: int = 0) -> Path:
    """A run's folder with two untrained policies."""
    env, network, config = DiscEnv(2, 1), NetworkConfig("deep-set", width=8), DDPGConfig()
    run = Run(path)
    path.mkdir(exist_ok=True)
    for which, offset in (("last", 0), ("best", 1)):
        agent = DDPG(network, env.dims, config, env.usable_actions, seed + offset)
        run.write_policy(which, policy_tensors(agent), about_policy(agent, network, env, "1-Disc"))
    return path


def test_a_run_gives_its_best_policy_on_its_own_task(tmp_path: Path, efmdp: Command) -> None:
    run, out = disc_run(tmp_path / "run"), tmp_path / "demos"
    code, said, err = efmdp("collect", "--from", run, "--episodes", 100, "--out", out)
    assert code == 0, err
    assert "100 episodes of 1-Disc" in said
    best = run / "policy-best.safetensors"
    about = Demos(out).about
    assert about["policy"] == str(best)
    assert about["policy_sha256"] == hashlib.sha256(best.read_bytes()).hexdigest()
    episodes, _ = Demos(out).load(100)
    from_file = tmp_path / "from_file"
    moved = best.rename(tmp_path / "moved.safetensors")
    assert efmdp("collect", "--from", moved, "--episodes", 100, "--out", from_file)[0] == 0
    assert np.array_equal(Demos(from_file).load(100)[0].actions, episodes.actions)
    assert efmdp("collect", "--from", moved, "--episodes", 200, "--out", out)[0] == 0  # the same policy elsewhere
    other = disc_run(tmp_path / "run", seed=5)
    assert efmdp("collect", "--from", other, "--episodes", 200, "--out", out)[0] == 2


def test_a_collection_that_never_began_does_not_keep_the_folder(
    tmp_path: Path, efmdp: Command, write_run: Callable[..., Path]
) -> None:
    run, out = write_run(tmp_path / "mlp", "1-Switch", "mlp"), tmp_path / "demos"
    code, _, err = efmdp("collect", "--from", run, "--task", "2-Switch", "--episodes", 1, "--out", out)
    assert code == 2
    assert "made for at most 1" in err
    code, _, err = efmdp("collect", "--from", "scripted", "--task", "1-Disc", "--episodes", 1, "--out", out)
    assert code == 0, err
    assert (Demos(out).about["task"], len(Demos(out))) == ("1-Disc", 100)


def test_a_policy_brings_its_physics(tmp_path: Path, efmdp: Command) -> None:
    run, env = Run(tmp_path), FetchEnv(make_env("1-Switch", gripper=True).task)  # type: ignore[attr-defined]
    agent = DDPG(NetworkConfig(width=8), env.dims, DDPGConfig(), env.usable_actions, 0)
    run.write_policy("best", policy_tensors(agent), about_policy(agent, NetworkConfig(width=8), env, "1-Switch"))
    for more, gripper in (((), True), (("--gripper", "False"), False)):
        out = tmp_path / f"{gripper}"
        assert efmdp("collect", "--from", tmp_path, "--episodes", 1, "--out", out, *more)[0] == 0
        assert Demos(out).about["options"]["gripper"] is gripper


def test_too_few_episodes_say_what_to_type(tmp_path: Path, efmdp: Command) -> None:
    out = tmp_path / "two words"
    collect(DiscEnv(CHUNK, 1, collisions=True), DiscPusher(), DISCS_SCRIPTED, "1-Disc", 100, out, seed=3)
    with pytest.raises(UserError, match="holds 100 episodes, not 150") as caught:
        Demos(out).load(150)
    assert "\n" not in str(caught.value)
    command = shlex.split(str(caught.value).partition("collect more: ")[2])
    assert command[0] == "efmdp"
    assert efmdp(*command[1:])[0] == 0
    assert len(Demos(out).load(150)[1].failed) == 150


# Minari


@pytest.fixture
def minari(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return importlib.import_module("minari")


NAME = "efmdp/1-push/scripted-v0"


def test_minari_reads_what_was_collected(pushes: Demos, minari: Any, efmdp: Command) -> None:
    code, said, err = efmdp("export-minari", pushes.path, "--name", NAME)
    assert code == 0, err
    assert f"20 episodes, 1000 steps: minari.load_dataset('{NAME}')" in said
    assert err == ""
    dataset = minari.load_dataset(NAME)
    episodes, flags = pushes.load(20)
    assert (dataset.total_episodes, dataset.total_steps) == (20, 1000)
    env = dataset.recover_environment()
    assert isinstance(env.unwrapped, FetchGymEnv)
    assert (env.observation_space, env.action_space) == (dataset.observation_space, dataset.action_space)
    for k, episode in enumerate(dataset.iterate_episodes()):
        obs = entity_obs(episode.observations)
        assert np.array_equal(obs.agent, episodes.agent[k])
        assert np.array_equal(obs.entities, episodes.entities[k])
        assert (obs.goals == episodes.goals[k]).all()
        assert np.array_equal(episode.actions, episodes.actions[k])
        assert episode.actions.dtype == np.float32
        assert dataset.observation_space.contains({name: rows[7] for name, rows in episode.observations.items()})
        achieved, desired = episode.observations["achieved_goal"], episode.observations["desired_goal"]
        assert np.array_equal(episode.rewards, env.unwrapped.compute_reward(achieved[1:], desired[1:]))
        assert np.array_equal(episode.rewards == 0, episode.infos["is_success"][1:])
        assert episode.infos["is_success"].any() == flags.success_once[k]
        assert not episode.terminations.any()
        assert episode.truncations.tolist() == [False] * 49 + [True]


def test_minari_environment_gives_the_recorded_rewards(pushes: Demos, minari: Any, efmdp: Command) -> None:
    """Recorded actions, done in the recovered environment from the same start, give the recorded transitions."""
    assert efmdp("export-minari", pushes.path, "--name", NAME)[0] == 0
    dataset = minari.load_dataset(NAME)
    env = dataset.recover_environment()
    env.reset(seed=0)
    env.unwrapped.fetch.rngs[0] = np.random.default_rng([stream_seed(4, DEMONSTRATIONS, 1), 0])  # of episode 10
    obs, _ = env.reset()
    episode = dataset[10]
    for t, action in enumerate(episode.actions):
        assert all(np.array_equal(obs[name], rows[t]) for name, rows in episode.observations.items())
        obs, reward, _, truncated, info = env.step(action)
        assert reward == episode.rewards[t]
        assert truncated == episode.truncations[t]
        assert info["is_success"] == episode.infos["is_success"][t + 1]


def test_minari_mixture_and_failures(tmp_path: Path, minari: Any, efmdp: Command) -> None:
    env = make_env("2-Switch|2-Push", 8)
    advance = env._advance
    env._advance = lambda actions: advance(actions) | ((np.arange(8) == 2) & (env.elapsed == 4))  # type: ignore[method-assign]
    demos = collect(env, Scripted(8), SCRIPTED, "2-Switch|2-Push", 8, tmp_path / "mixed", seed=1)
    episodes, flags = demos.load(8)
    assert np.flatnonzero(flags.failed).tolist() == [2]
    assert efmdp("export-minari", demos.path, "--name", "mixed-v3")[0] == 0
    dataset = minari.load_dataset("mixed-v3")
    lengths = [len(episode) for episode in dataset.iterate_episodes()]
    assert lengths == episodes.lengths[~flags.failed].tolist()
    assert set(lengths) == {40, 100}
    assert dataset.recover_environment().unwrapped.fetch.task.name == "2-Switch|2-Push"


def test_a_killed_export_leaves_nothing_in_the_way(pushes: Demos, minari: Any, tmp_path: Path) -> None:
    command = f"import efmdp.cli, os, sys; sys.argv = ['efmdp', 'export-minari', '{pushes.path}', '--name', '{NAME}']\n"
    command += "from minari.data_collector import EpisodeBuffer as Buffer\n"
    command += "before = Buffer.__init__\n"
    command += "def dies(*args, **more): before(*args, **more); dies.n += 1; dies.n == 5 and os.kill(os.getpid(), 9)\n"
    command += "dies.n = 0; Buffer.__init__ = dies; efmdp.cli.main()"
    assert subprocess.run([sys.executable, "-c", command], capture_output=True).returncode == -signal.SIGKILL
    assert (tmp_path / "minari" / NAME).exists()
    assert export_minari(pushes, NAME).total_episodes == 20
    assert minari.load_dataset(NAME).total_episodes == 20


def test_minari_refusals(
    pushes: Demos, minari: Any, efmdp: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert efmdp("export-minari", pushes.path, "--name", NAME)[0] == 0
    before = contents(tmp_path / "minari")
    for name, said in (
        (NAME, f"minari delete {NAME}"),
        ("no-version", "choose one like"),
        ("a b-v0", "choose one like"),
    ):
        code, _, err = efmdp("export-minari", pushes.path, "--name", name)
        assert code == 2
        assert said in err
        assert len(err.strip().splitlines()) == 1
    assert contents(tmp_path / "minari") == before
    find = importlib.util.find_spec
    for missing in ("minari", "h5py", "PIL"):
        monkeypatch.setattr(
            "importlib.util.find_spec", lambda name, missing=missing: (name != missing and find(name)) or None
        )
        code, _, err = efmdp("export-minari", pushes.path, "--name", "other-v0")
        assert code == 2
        assert "pip install 'efmdp[minari]'" in err


def test_half_an_export_is_none(tmp_path: Path, minari: Any, efmdp: Command) -> None:
    demos = collect(make_env("1-Switch", 4), Scripted(4), SCRIPTED, "1-Switch", 8, tmp_path / "demos")
    flip(demos.path / "chunks/000001.npz", 0.5)
    code, _, err = efmdp("export-minari", demos.path, "--name", NAME)
    assert code == 2
    assert "000001.npz is damaged" in err
    assert NAME not in minari.list_local_datasets()
    assert json.loads((demos.path / "manifest.json").read_text())
    collect(make_env("1-Switch", 4), Scripted(4), SCRIPTED, "1-Switch", 8, demos.path)
    assert efmdp("export-minari", demos.path, "--name", NAME)[0] == 0
    assert minari.load_dataset(NAME).total_episodes == 8
