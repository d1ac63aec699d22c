import csv
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from efmdp import train
from efmdp.ddpg import DDPG, DDPGConfig
from efmdp.discs import DiscEnv
from efmdp.domains import make_env
from efmdp.entities import NonFinite, Objective, UserError
from efmdp.evaluate import SELECTION, load_policy, play_episodes, stream_seed
from efmdp.networks import NetworkConfig
from efmdp.recipes import Exploration, Stage, TrainConfig
from efmdp.replay import Batch, Episodes
from efmdp.runs import Run, RunError, read_policy
from efmdp.train import Trainer, collect_episodes, train_ddpg

TINY = TrainConfig(
    task="1-Disc",
    network=NetworkConfig(width=32),
    ddpg=DDPGConfig(actor_every=2),  # five updates a round: a resumed run must know whose turn it is
    objective=Objective("sparse", "sum"),
    stages=(Stage("1-Disc", 4, exploration=Exploration(0.2, 0.3, 0.5, 1, 3, decay_with_success=0.8)),),
    recipe="test",
    num_envs=4,
    rounds_per_epoch=2,
    updates_per_round=5,
    batch_size=64,
    replay_capacity=400,  # ten episodes: the ring is overwritten in the second epoch
    selection_episodes=10,
    threads=1,
)
CURRICULUM = replace(
    TINY, task="2-Disc", stages=(Stage("1-Disc", 3, until=0.0), Stage("2-Disc", 3)), replay_capacity=2000
)


def result(path: Path) -> tuple[bytes, dict[str, bytes], dict[str, bytes]]:
    """What must be repeatable about a run: its metrics, and both policies to the last bit."""
    policies = []
    for which in ("last", "best"):
        file = path / f"policy-{which}.safetensors"
        tensors, about = read_policy(file) if file.exists() else ({}, {})
        policies.append({name: t.numpy().tobytes() for name, t in tensors.items()} | {"about": repr(about).encode()})
    return (path / "metrics.csv").read_bytes(), *policies


def rows(path: Path, name: str = "metrics.csv") -> list[dict[str, str]]:
    with (path / name).open(newline="") as file:
        return list(csv.DictReader(file))


def no_warning(message: str) -> None:
    raise AssertionError(message)


def go(config: TrainConfig, out: Path, epochs: int | None = None, **more: Any) -> Path:
    assert train_ddpg(config, out, epochs, **{"warn": no_warning, **more})
    return out


# Repeatable


def test_same_seed_same_result(tmp_path: Path) -> None:
    first, second = (go(TINY, tmp_path / name) for name in "ab")
    assert result(first) == result(second)
    other = go(replace(TINY, seed=1), tmp_path / "c")
    assert result(other)[0] != result(first)[0]
    assert result(other)[1] != result(first)[1]


def test_nothing_outside_the_run_matters(tmp_path: Path) -> None:
    first = go(TINY, tmp_path / "a", 2)
    torch.manual_seed(12345)
    np.random.seed(12345)  # noqa: NPY002
    random.seed(12345)
    seen: list[dict[str, Any]] = []
    second = go(TINY, tmp_path / "b", 2, report=lambda progress: (torch.rand(3), seen.append(progress)))
    assert result(first) == result(second)
    assert [(p["epoch"], p["round"]) for p in seen] == [(0, 1), (1, 0), (1, 1), (2, 0)]
    assert seen[-1]["steps"] == 2 * 2 * 4 * 40


def test_the_process_is_left_as_it_was(tmp_path: Path) -> None:
    """Flushing of denormals is the whole thread's: NumPy would go on without them."""
    threads = torch.get_num_threads()
    go(replace(TINY, threads=threads + 1), tmp_path / "run", 1)
    assert torch.get_num_threads() == threads
    assert np.float64(1e-310) * np.float64(0.5) > 0


def test_metrics_and_timings_live_apart(tmp_path: Path) -> None:
    out = go(TINY, tmp_path / "run")
    metrics, timings = rows(out), rows(out, "timings.csv")
    assert [row["epoch"] for row in metrics] == [row["epoch"] for row in timings] == ["1", "2", "3", "4"]
    assert [int(row["steps"]) for row in metrics] == [320, 640, 960, 1280]
    assert [int(row["updates"]) for row in metrics] == [10, 20, 30, 40]
    assert all(0 <= float(row["success_once"]) <= 1 for row in metrics)
    timing = {"collect", "learn", "evaluate", "save", "peak_mb"}
    assert timing < timings[0].keys()
    assert not timing & metrics[0].keys()
    assert not [name for name in metrics[0] if "second" in name or "time" in name or "clock" in name]
    # Measured by the clock, hence not the same twice; the metrics are
    again = go(TINY, tmp_path / "again")
    assert (again / "metrics.csv").read_bytes() == (out / "metrics.csv").read_bytes()
    assert (again / "timings.csv").read_bytes() != (out / "timings.csv").read_bytes()


def test_config_says_what_made_it(tmp_path: Path) -> None:
    out = go(TINY, tmp_path / "run", 1)
    stored = json.loads((out / "config.json").read_text())
    assert stored["config"] == json.loads(json.dumps(asdict(TINY)))
    for name in ("efmdp", "torch", "mujoco", "numpy", "python", "commit"):
        assert stored["versions"][name]


# Going on


@pytest.mark.parametrize(
    ("network", "parts"),
    [("deep-set", [1, 4]), ("deep-set", [1, 2, 3, 4]), ("self-attention", [3, 4]), ("mlp", [3, 4])],
)
def test_in_parts_is_the_same_as_at_once(tmp_path: Path, network: str, parts: list[int]) -> None:
    sizes = {"mlp": {"max_entities": 2}, "self-attention": {"heads": 2, "feedforward": 32, "blocks": 1}}
    config = replace(TINY, network=NetworkConfig(network, width=32, **sizes.get(network, {})))  # type: ignore[arg-type]
    whole, parted = go(config, tmp_path / "whole"), tmp_path / "parted"
    for epochs in parts:
        go(config, parted, epochs)
        assert len(rows(parted)) == epochs
    assert result(parted) == result(whole)


def test_many_epochs_in_parts(tmp_path: Path) -> None:
    """More than ten segments of replay, none of which is overwritten: 9 and 10 must come back in this order."""
    config = replace(TINY, stages=(Stage("1-Disc", 14),), rounds_per_epoch=1, replay_capacity=10_000)
    whole, parted = go(config, tmp_path / "whole"), tmp_path / "parted"
    for epochs in (12, 14):
        go(config, parted, epochs)
    assert result(parted) == result(whole)


def test_finished_run_stays_as_it_is(tmp_path: Path) -> None:
    out = go(TINY, tmp_path / "run")
    before = result(out), (out / "timings.csv").read_bytes()
    for epochs in (None, 2, 100):
        go(TINY, out, epochs)
        assert (result(out), (out / "timings.csv").read_bytes()) == before


def test_replay_comes_back_as_it_was(tmp_path: Path) -> None:
    def replays(trainer: Trainer) -> list[np.ndarray]:
        return [*trainer.replay.episodes, trainer.replay.weights, np.array(trainer.replay.added)]

    out = tmp_path / "run"
    with Run(out).held() as run:
        trainer = Trainer(TINY, run, "cpu")
        for _ in range(3):
            for _ in range(TINY.rounds_per_epoch):
                trainer.collect()
                trainer.learn()
            trainer.finish_epoch()
            trainer.save()
        again = Trainer(TINY, run, "cpu")
        assert again.load() == []
        for a, b in zip(replays(trainer), replays(again), strict=True):
            assert np.array_equal(a, b)
        first, second = (t.replay.sample(64, 0.8, np.random.default_rng(0)) for t in (trainer, again))
        assert np.array_equal(first.obs.entities, second.obs.entities)
        # On the disk: only what the replay still holds, for the two newest checkpoints
        assert len(list((out / "replay").iterdir())) == 3


def test_curriculum_goes_on_across_its_stages(tmp_path: Path) -> None:
    whole = go(CURRICULUM, tmp_path / "whole")
    assert [row["task"] for row in rows(whole)] == ["1-Disc", "2-Disc", "2-Disc", "2-Disc"]
    assert [int(row["steps"]) for row in rows(whole)] == [320, 960, 1600, 2240]  # earlier stages count
    for parts in ([1, 4], [1, 2, 3, 4]):
        out = tmp_path / str(parts)
        for epochs in parts:
            go(CURRICULUM, out, epochs)
        assert result(out) == result(whole)


def test_subsets_of_the_entities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every round learns from another number of them, at the cost of so many, and a resumed run goes on exactly."""
    config = replace(CURRICULUM, stages=(Stage("2-Disc", 4),), subsets=True)
    whole, learned = tmp_path / "whole", list[tuple[int, float]]()
    update = DDPG.update

    def spy(self: DDPG, batch: Batch, largest_cost: float, steps: int) -> dict[str, float]:
        learned.append((batch.obs.entities.shape[1], largest_cost))
        return update(self, batch, largest_cost, steps)

    with monkeypatch.context() as patched:
        patched.setattr(DDPG, "update", spy)
        go(config, whole)
    assert set(learned) == {(1, 1.0), (2, 2.0)}
    parted = tmp_path / "parted"
    for epochs in range(1, 5):
        go(config, parted, epochs)
    assert result(parted) == result(whole)
    assert result(whole)[1] != result(go(replace(config, subsets=False), tmp_path / "all"))[1]


def test_replay_holds_the_new_stage_only(tmp_path: Path) -> None:
    out = go(CURRICULUM, tmp_path / "run", 1)
    with Run(out).held() as run:
        trainer = Trainer(CURRICULUM, run, "cpu")
        trainer.load()
        assert (trainer.epoch, trainer.stage_index, trainer.stage_epoch, trainer.stage.task) == (1, 1, 0, "2-Disc")
        assert trainer.env.num_entities == trainer.selection_env.num_entities == 2
        assert len(trainer.replay) == trainer.replay.added == 0
        assert trainer.segments == {}
        assert trainer.largest_cost(2) == 2
        trainer.collect()
        assert len(trainer.replay) == 4
        assert trainer.replay.episodes.entities.shape[2] == 2
    go(CURRICULUM, out, 2)
    manifests = sorted((out / "checkpoints").glob("*/manifest.json"))
    assert [len(json.loads(path.read_text())["segments"]) for path in manifests] == [0, 1]


def test_best_policy_is_of_the_task_itself(tmp_path: Path) -> None:
    out = go(CURRICULUM, tmp_path / "run", 1)
    assert load_policy(out).task == "1-Disc"
    assert not (out / "policy-best.safetensors").exists()
    go(CURRICULUM, out)
    _, about = read_policy(out / "policy-best.safetensors")
    assert about["task"] == "2-Disc"
    best = max(float(row["success_once"]) for row in rows(out)[1:])
    first = next(int(row["epoch"]) for row in rows(out)[1:] if float(row["success_once"]) == best)
    assert (about["selection_success"], about["epoch"]) == (best, first)


def test_last_stage_may_end_early(tmp_path: Path) -> None:
    config = replace(TINY, stages=(Stage("1-Disc", 9, until=0.0),))
    assert len(rows(go(config, tmp_path / "run"))) == 1


def test_damage_is_told_and_the_checkpoint_before_is_used(tmp_path: Path) -> None:
    whole, out = go(TINY, tmp_path / "whole"), go(TINY, tmp_path / "run", 3)
    newest = sorted((out / "checkpoints").iterdir())[-1] / "tensors.safetensors"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    told: list[str] = []
    go(TINY, out, warn=told.append)
    assert len(told) == 1
    assert str(newest) in told[0]
    assert result(out) == result(whole)


def test_goes_on_without_episodes_that_cannot_be_read(tmp_path: Path) -> None:
    """A replay segment that both checkpoints need: the run is not lost, and says what it lost."""
    config = replace(TINY, replay_capacity=100_000)
    out = go(config, tmp_path / "run", 3)
    (out / "replay" / "000000.npz").write_bytes(b"")
    told: list[str] = []
    go(config, out, warn=told.append)
    assert len(told) == 1
    assert f"{out / 'replay' / '000000.npz'} is damaged: going on without its episodes" in told[0]
    assert [row["epoch"] for row in rows(out)] == ["1", "2", "3", "4"]
    go(config, out)  # the checkpoint after it is whole, without a warning


# Identity


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 5}, "seed"),
        ({"task": "2-Disc"}, "task"),
        ({"network": NetworkConfig(width=64)}, "network"),
        ({"ddpg": DDPGConfig(discount=0.9)}, "ddpg"),
        ({"batch_size": 65}, "batch_size"),
        ({"objective": Objective("dense", "mean")}, "objective"),
    ],
)
def test_other_config_is_refused(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    out = go(TINY, tmp_path / "run", 1)
    before = result(out)
    with pytest.raises(RunError, match=f"{named} was .*, now ") as caught:
        train_ddpg(replace(TINY, **change), out)
    assert str(out) in str(caught.value)
    assert "\n" not in str(caught.value)
    for field in ("seed", "batch_size", "relabel_prob", "num_envs"):
        assert field == named or f"{field} was" not in str(caught.value)
    assert result(out) == before


def test_number_of_epochs_and_place_are_no_part_of_it(tmp_path: Path) -> None:
    out = go(TINY, tmp_path / "run", 1)
    moved = out.rename(tmp_path / "elsewhere")
    go(TINY, moved, 3)
    assert len(rows(moved)) == 3
    assert result(go(TINY, moved)) == result(go(TINY, tmp_path / "whole"))


def test_a_lost_config_is_not_replaced_by_a_wrong_one(
    tmp_path: Path, uninterrupted: Callable[[TrainConfig], Any]
) -> None:
    out = go(TINY, tmp_path / "run", 2)
    (out / "config.json").unlink()
    with pytest.raises(RunError, match=r"a different run, without its config\.json"):
        train_ddpg(replace(TINY, seed=7), out)
    assert not (out / "config.json").exists()
    assert result(go(TINY, out)) == uninterrupted(TINY)


# Being stopped

# Trains in children of a process that has imported everything, which saves seconds for each of them. A plan says how a
# child ends: "event:3" kills itself at the third thing that it does to the disk (a write: in the middle of it),
# "after:0.2" is killed from outside so many seconds after its first checkpoint, "end" runs to its end.
CHILDREN = """
import json, os, shutil, signal, sys, time, traceback
from pathlib import Path
import torch._dynamo  # which optimisers import at their first step: two seconds for every child otherwise
import efmdp.ledger, efmdp.runs, efmdp.train
from efmdp.recipes import from_json

efmdp.ledger.Ledger._show_on_tensorboard = lambda *_: None  # takes seconds to import


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def arm(last):
    count = 0

    def tick():
        nonlocal count
        count += 1
        return count == last

    def watched(function):
        def call(*arguments, **named):
            if tick():
                die()
            return function(*arguments, **named)
        return call

    def write(path, data):
        if tick():
            with open(path, "wb") as file:
                file.write(data[: len(data) // 2])
                file.flush()
            die()
        real_write(path, data)

    real_write = efmdp.runs._write_synced
    efmdp.runs._write_synced = write
    efmdp.runs._sync_directory = watched(efmdp.runs._sync_directory)
    efmdp.runs.os.rename = watched(os.rename)
    efmdp.runs.shutil.rmtree = watched(shutil.rmtree)
    Path.unlink = watched(Path.unlink)
    efmdp.runs.Run.append_row = watched(efmdp.runs.Run.append_row)
    efmdp.train.Trainer.learn = watched(efmdp.train.Trainer.learn)


def refuse(message):
    raise AssertionError(message)


def finished(out):
    return max((path.name for path in out.glob("checkpoints/*") if path.name.isdigit()), default="")


def run(config, out, plan):
    how, _, value = plan.partition(":")
    before = finished(out)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if how == "event":
                arm(int(value))
            status = 0 if efmdp.train.train_ddpg(config, out, warn=refuse) else 3
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    if how == "after":
        peek = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while finished(out) <= before and os.waitid(os.P_PID, child, peek) is None:
            time.sleep(0.001)
        time.sleep(float(value))
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


tours = json.load(sys.stdin)
print(json.dumps([[run(from_json(config), Path(out), plan) for plan in plans] for config, out, plans in tours]))
"""


def in_children(tours: list[tuple[TrainConfig, Path, list[str]]]) -> list[list[int]]:
    """The exit codes of children that trained as planned, tour by tour, one after the other."""
    asked = json.dumps([(asdict(config), str(out), plans) for config, out, plans in tours])
    command = [sys.executable, "-c", CHILDREN]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout)
    assert {code for tour in codes for code in tour} <= {0, -signal.SIGKILL}, done.stderr
    assert all(tour[-1] == 0 for tour in codes), done.stderr
    return codes


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[TrainConfig], Any]:
    known: dict[TrainConfig, Any] = {}

    def run(config: TrainConfig) -> Any:
        if config not in known:
            known[config] = result(go(config, tmp_path_factory.mktemp("uninterrupted") / "run"))
        return known[config]

    return run


SHORT = replace(TINY, stages=(Stage("1-Disc", 3),), replay_capacity=600)
LONG = replace(TINY, stages=(Stage("1-Disc", 12),))
STAGES = replace(CURRICULUM, stages=(Stage("1-Disc", 1), Stage("2-Disc", 1)))


def test_killed_at_any_touch_of_the_disk(tmp_path: Path, uninterrupted: Callable[[TrainConfig], Any]) -> None:
    """Killed at one event, then at another one after resuming, then left alone."""
    rng = random.Random(0)
    places = [(config, first) for config in (SHORT, STAGES) for first in range(1, 49)]
    tours = [
        (config, tmp_path / str(number), [f"event:{first}", f"event:{rng.randrange(1, 40)}", "end"])
        for number, (config, first) in enumerate(rng.sample(places, 8))
    ]
    codes = in_children(tours)
    assert all(tour[0] == -signal.SIGKILL for tour in codes)
    wrong = [(config.task, plans) for config, out, plans in tours if result(out) != uninterrupted(config)]
    assert wrong == []


def test_killed_at_random_moments(tmp_path: Path, uninterrupted: Callable[[TrainConfig], Any]) -> None:
    rng = random.Random(0)
    tours = [
        (LONG, tmp_path / str(number), [f"after:{rng.uniform(0, 0.15):.3f}" for _ in range(4)] + ["end"])
        for number in range(3)
    ]
    codes = in_children(tours)
    assert all(tour[:2] == [-signal.SIGKILL] * 2 for tour in codes)
    assert [result(out) == uninterrupted(LONG) for _, out, _ in tours] == [True] * 3


POLITE = """
import json, sys
from pathlib import Path
from efmdp.recipes import from_json
from efmdp.train import Trainer, train_ddpg

learn = Trainer.learn


def wait(where, epoch, round):
    if (where, epoch, round) == (sys.argv[3], 1, 1):
        print("waiting", flush=True)
        sys.stdin.readline()  # until the signal has been sent


def watched_learn(trainer):
    wait("in a round", trainer.epoch, trainer.round)
    learn(trainer)


def report(progress):
    print(progress["epoch"], progress["round"], flush=True)
    wait("between rounds", progress["epoch"], progress["round"])


Trainer.learn = watched_learn
done = train_ddpg(from_json(json.loads(sys.argv[1])), Path(sys.argv[2]), report=report)
print("done" if done else "stopped", flush=True)
"""


@pytest.mark.parametrize(("number", "where"), [(signal.SIGINT, "between rounds"), (signal.SIGTERM, "in a round")])
def test_asked_to_stop(
    tmp_path: Path, uninterrupted: Callable[[TrainConfig], Any], number: signal.Signals, where: str
) -> None:
    config, out = replace(TINY, stages=(Stage("1-Disc", 2),), rounds_per_epoch=6), tmp_path / "run"
    command = [sys.executable, "-c", POLITE, json.dumps(asdict(config)), str(out), where]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = []
        while not said or said[-1] != "waiting\n":
            said.append(process.stdout.readline())
            assert said[-1]
        process.send_signal(number)
        process.stdin.write("\n")
        process.stdin.close()
        said += process.stdout.readlines()
        assert process.wait(timeout=30) == 0
    assert said[-1] == "stopped\n"
    epoch, done = map(int, [line for line in said if line[0].isdigit()][-1].split())
    assert (epoch, done) in [(1, 1), (1, 2)]  # it ended its round, not its epoch
    with Run(out).held() as run:
        trainer = Trainer(config, run, "cpu")
        trainer.load()
        assert (trainer.epoch, trainer.round) == (epoch, done)  # and saved all that it had reported
    assert len(rows(out)) == 1
    go(config, out)
    assert result(out) == uninterrupted(config)


def test_signals_mean_again_what_they_meant(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def stop(progress: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "run"
    assert not train_ddpg(TINY, out, report=stop)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert result(go(TINY, out)) == result(go(TINY, tmp_path / "whole"))


def test_out_of_time_is_after_an_epoch(tmp_path: Path, uninterrupted: Callable[[TrainConfig], Any]) -> None:
    out = tmp_path / "run"
    for epochs in (1, 2):
        assert not train_ddpg(SHORT, out, minutes=1e-9)
        assert len(rows(out)) == epochs
        assert load_policy(out).task == "1-Disc"
    assert train_ddpg(SHORT, out, minutes=1e-9)  # the last epoch is done, whatever the time
    assert result(out) == uninterrupted(SHORT)
    assert train_ddpg(SHORT, tmp_path / "whole", minutes=10)
    assert result(tmp_path / "whole") == result(out)


# Numbers that go wrong


def test_stops_at_a_number_that_is_not_finite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uninterrupted: Callable[[TrainConfig], Any]
) -> None:
    out, step = tmp_path / "run", DDPG._step

    def failing(agent: DDPG, *arguments: Any) -> dict[str, torch.Tensor]:
        if agent.updates == 27:
            with torch.no_grad():
                next(agent.critic.parameters())[0, 0] = float("nan")
        return step(agent, *arguments)

    monkeypatch.setattr(DDPG, "_step", failing)
    with pytest.raises(NonFinite, match="critic loss became nan in update 28"):
        train_ddpg(TINY, out)
    monkeypatch.undo()
    with Run(out).held() as run:
        trainer = Trainer(TINY, run, "cpu")
        assert trainer.load() == []
        assert trainer.epoch == 2
        assert all(tensor.isfinite().all() for tensor in trainer.agent.tensors().values())
    assert len(rows(out)) == 2
    assert np.isfinite(load_policy(out).act(make_env("1-Disc").observe())).all()
    go(TINY, out)
    assert result(out) == uninterrupted(TINY)


@pytest.mark.parametrize(("when", "wrong"), [(0, np.nan), (17, np.nan), (40, np.inf)])
@pytest.mark.parametrize("slots", [4, TINY.selection_episodes], ids=["training", "selection"])
def test_observation_that_is_not_finite_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int, wrong: float, slots: int
) -> None:
    out = go(TINY, tmp_path / "run", 1)
    observe = DiscEnv.observe

    def failing(env: DiscEnv) -> Any:
        obs = observe(env)
        if env.elapsed[0] == when and env.num_envs == slots:
            obs.entities[2, 0, 1] = wrong
        return obs

    monkeypatch.setattr(DiscEnv, "observe", failing)
    with pytest.raises(NonFinite, match=r"observations \(entities\) of environments \[2\] are not finite"):
        train_ddpg(TINY, out)
    monkeypatch.undo()
    assert len(rows(go(TINY, out, 2))) == 2


def test_actor_that_is_not_finite_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights go wrong between updates: the next thing that shows it is an action."""
    out, collect = tmp_path / "run", Trainer.collect

    def failing(trainer: Trainer) -> None:
        if trainer.epoch == 1:
            with torch.no_grad():
                next(trainer.agent.actor.parameters())[0, 0] = float("nan")
        collect(trainer)

    monkeypatch.setattr(Trainer, "collect", failing)
    with pytest.raises(NonFinite, match="action"):
        train_ddpg(TINY, out)
    monkeypatch.undo()
    assert len(rows(go(TINY, out, 2))) == 2


# What comes out


def test_scalars_for_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = go(TINY, tmp_path / "run", 2)
    board = accumulator.EventAccumulator(str(out / "tensorboard"))
    board.Reload()
    shown = [(event.step, round(event.value, 6)) for event in board.Scalars("critic_loss")]
    assert shown == [(int(row["epoch"]), round(float(row["critic_loss"]), 6)) for row in rows(out)]


def test_policy_acts_on_other_numbers_of_entities(tmp_path: Path) -> None:
    out = go(TINY, tmp_path / "run", 2)
    for which in ("last", "best"):
        policy = load_policy(out, which)
        assert policy.task == "1-Disc"
        for task in ("1-Disc", "3-Disc"):
            env = make_env(task, 4)
            actions = policy.act(env.reset(seed=0))
            assert actions.shape == (4, 2)
            assert (np.abs(actions) <= 1).all()
            outcome = play_episodes(env, policy, 10, seed=0)
            assert outcome.success_once.shape == (10,)
            assert outcome.distance.shape == (10, env.num_entities)


def test_policy_refuses_a_task_of_another_kind(tmp_path: Path) -> None:
    policy = load_policy(go(TINY, tmp_path / "run", 2), "last")
    with pytest.raises(UserError, match=r"are \(10, 16, 3\), this policy of 1-Disc knows \(4, 6, 3\): another task"):
        play_episodes(make_env("1-Push", 2), policy, 2, seed=0)


def test_policy_file_acts_like_the_agent(tmp_path: Path) -> None:
    out = go(TINY, tmp_path / "run", 2)
    with Run(out).held() as run:
        trainer = Trainer(TINY, run, "cpu")
        trainer.load()
    obs = make_env("2-Disc", 32).reset(seed=3)
    assert np.array_equal(load_policy(out).act(obs), trainer.agent.act(obs))
    last = rows(out)[-1]
    again = play_episodes(make_env("1-Disc", 10), load_policy(out), 10, stream_seed(TINY.seed, SELECTION))
    assert float(again.success_once.mean()) == float(last["success_once"])


class Chaos:
    """A policy that goes one way."""

    usable_actions = torch.tensor([1.0, 0.0])

    def act_newest(self, obs: Any) -> np.ndarray:
        return np.full((len(obs.agent), 2), 0.5, np.float32)


def test_collected_episodes() -> None:
    env = make_env("2-Disc", 5)
    env.reset(seed=1)
    plain, _ = collect_episodes(env, Chaos(), Exploration(0.0, 0.0), 1.0, np.random.default_rng(0))  # type: ignore
    assert (plain.actions[..., 0] == 0.5).all()
    assert (plain.actions[..., 1] == 0).all()  # nobody listens to it: no noise either
    assert plain.lengths.tolist() == [80] * 5
    assert plain.agent.shape == (5, 81, 4)
    assert plain.entities.shape == (5, 81, 2, 6)
    env.reset(seed=1)
    noisy, _ = collect_episodes(env, Chaos(), Exploration(0.2, 0.3), 1.0, np.random.default_rng(0))  # type: ignore
    first = noisy.actions[..., 0]
    assert np.abs(noisy.actions).max() <= 1
    assert 0.05 < (first < -0.25).mean() < 0.18  # only a random action, of which there are 0.3 · 0.375, gets there
    env.reset(seed=1)
    calm, _ = collect_episodes(env, Chaos(), Exploration(0.2, 0.3), 0.01, np.random.default_rng(0))  # type: ignore
    usual = np.abs(calm.actions[..., 0] - 0.5) < 0.02
    assert usual.mean() > 0.97


def test_failed_simulations_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env("1-Disc", 4)
    advance = env._advance

    def failing(actions: np.ndarray) -> np.ndarray:
        failed = advance(actions)
        failed[1] = env.elapsed[0] == 10
        return failed

    monkeypatch.setattr(env, "_advance", failing)
    episodes, _ = collect_episodes(env, Chaos(), Exploration(), 1.0, np.random.default_rng(0))  # type: ignore
    assert all(len(field) == 3 for field in episodes)
    assert env.failures == 1


def test_a_round_in_which_everything_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collect = train.collect_episodes
    calls = 0

    def failing(*arguments: Any) -> tuple[Episodes, float]:
        nonlocal calls
        calls += 1
        episodes, success = collect(*arguments)
        return (Episodes(*(field[:0] for field in episodes)), 0.0) if calls == 3 else (episodes, success)

    monkeypatch.setattr(train, "collect_episodes", failing)
    out = go(TINY, tmp_path / "run", 2)
    assert int(rows(out)[-1]["steps"]) == 3 * 160


# Large enough that torch shares the work between two threads, and so does the simulation
PAPER_SIZES: dict[str, Any] = {"num_envs": 16, "batch_size": 256, "threads": 2}


@pytest.mark.parametrize(
    ("task", "more"),
    [
        ("2-Push|Stack", {}),
        ("2-Switch&2-Push", {}),
        ("2-Push&Stack", {}),
        ("2-Switch", {**PAPER_SIZES, "network": NetworkConfig("deep-set")}),
        ("2-Switch", {**PAPER_SIZES, "network": NetworkConfig("self-attention")}),
    ],
)
def test_robots_go_on_exactly(task: str, more: dict[str, Any], tmp_path: Path) -> None:
    """Every kind of mixture, and two threads."""
    small: dict[str, Any] = {"num_envs": 2, "selection_episodes": 2, "replay_capacity": 10_000}
    config = replace(TINY, task=task, stages=(Stage(task, 2),), **(small | more))
    for epochs in (1, 2):
        go(config, tmp_path / "parted", epochs)
    assert result(tmp_path / "parted") == result(go(config, tmp_path / "whole"))


def test_mixture_of_robot_tasks(tmp_path: Path) -> None:
    """Each episode has its own member's length, and going on in parts is exact here too."""
    config = replace(
        TINY,
        task="2-Switch|2-Push",
        stages=(Stage("2-Switch|2-Push", 2),),
        objective=Objective("dense", "mean"),
        num_envs=4,
        rounds_per_epoch=1,
        selection_episodes=2,
        updates_per_round=2,
        replay_capacity=10_000,
    )
    out = tmp_path / "run"
    with Run(out).held() as run:
        trainer = Trainer(config, run, "cpu")
        horizons = {scene.horizon for scene in trainer.env.task.scenes}  # type: ignore[attr-defined]
        trainer.collect()
        lengths = trainer.replay.episodes.lengths[: len(trainer.replay)]
        assert set(lengths.tolist()) <= horizons
        switches = trainer.replay.episodes.entities[: len(trainer.replay), 0, :, 15].all(1)
        for scene in trainer.env.task.scenes:  # type: ignore[attr-defined]
            assert (lengths[switches == bool(scene.switches)] == scene.horizon).all()
        assert trainer.steps == lengths.sum()
        batch = trainer.replay.sample(64, 0.8, np.random.default_rng(0))
        assert np.isfinite(batch.rewards).all()
        assert trainer.agent.usable_actions.tolist() == [1, 1, 1, 0]
    parted = tmp_path / "parted"
    for epochs in (1, 2):
        go(config, parted, epochs)
    assert result(parted) == result(go(config, tmp_path / "whole"))
