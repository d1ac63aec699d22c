"""The commands as a user types them: output, exit codes, and one clear line for what is wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import imageio_ffmpeg
import pytest

from efmdp.cli_train import TrainDDPG, _training
from efmdp.recipes import TrainConfig


def efmdp(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from efmdp.cli import main; main()", *arguments]
    env = os.environ | environment
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)


def test_check_prints_a_table_and_succeeds() -> None:
    done = efmdp("check", "1-Switch", "--num-envs", "4")
    assert done.returncode == 0, done.stderr
    assert "symmetry of dynamics" in done.stdout
    assert "gymnasium's checker" in done.stdout
    assert "NO" not in done.stdout


USER_MODULE = """
import numpy as np
from efmdp.discs import DiscEnv

class Lopsided(DiscEnv):
    def _advance(self, actions):
        before = self._discs.copy()
        failed = super()._advance(actions)
        self._discs[:, :, 0] = before[:, :, 0]  # disc 0 is nailed down
        return failed

def good(num_envs):
    return DiscEnv(num_envs, 2)

def bad(num_envs):
    return Lopsided(num_envs, 2)

def wrong(num_envs):
    return "not an environment"

def raising(num_envs):
    raise RuntimeError("out of order")
"""


@pytest.fixture
def user_folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(USER_MODULE)
    return tmp_path


def test_check_takes_an_environment_of_the_users(user_folder: Path) -> None:
    assert efmdp("check", "mine:good", cwd=user_folder).returncode == 0


def test_check_exits_non_zero_on_a_violation(user_folder: Path) -> None:
    done = efmdp("check", "mine:bad", cwd=user_folder)
    assert done.returncode == 1
    assert "NO" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("check", "3-push"), "Did you mean '3-Push'?"),
        (("check", "9-Push"), "holds 6 entities"),
        (("check", "mine:absent"), "Name a factory as module:function"),
        (("check", "absent:make"), "Name a factory as module:function"),
        (("check", "mine:wrong"), "not an efmdp.entities.EntityEnv"),
        (("check", "mine:raising"), "RuntimeError: out of order"),
        (("check", "1-Push", "--num-envs", "-4"), "at least one environment"),
        (("check", "1-Push", "--seed", "-1"), "choose 0 or more, below 2^32"),
        (("check", "99999-Disc"), "unknown task"),
        (("demo", "--episodes", "0"), "play at least one"),
        (("train", "ddpg", "--task", "Stack", "--collisions", "False"), "Stack stacks: it needs the gripper"),
        (("train", "ddpg", "--task", "1-Push", "--decay", "slow"), "--decay belongs to --recipe paper"),
        (("train", "ddpg", "--task", "1-Push", "--recipe", "paper", "--no-curriculum"), "belongs to --recipe fast"),
        (("train", "ddpg", "--task", "1-Push", "--threads", "99999999999"), "choose 1 to 256"),
        (("train", "ddpg", "--task", "1-Push", "--network", "mlp", "--max-entities", "2000"), "choose 1 to 1000"),
        (("watch", "1-Push", "--seed", "-1"), "seed"),
        (("train", "ddpg", "--task", "1-Push", "--max-entities", "6"), "deep-set takes any number, leave it out"),
        (("train", "ddpg", "--task", "3-Push", "--network", "mlp", "--max-entities", "2"), "the task has 3 entities"),
        (("evaluate", "absent", "--seed", "-1"), "--seed is -1: choose 0 or more"),
        (("train", "ddpg", "--task", "1-Push", "--minutes", "nan"), "--minutes is nan: choose a number above 0"),
        (("train", "resume", "absent", "--minutes", "-1"), "--minutes is -1: choose a number above 0"),
        (("watch", "1-Push", "--out", "film.txt"), "ends in .mp4"),
        (("watch", "1-Push", "--width", "0"), "from 1 to 4096"),
        (("watch", "3-Disc"), "no task of the robot"),
        (("watch", "1-Push", "--episodes", "0"), "film at least one"),
        (("watch", "1-Push", "--episodes", "1", "--out", "mine.py/film.mp4"), "mine.py"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], said: str, user_folder: Path
) -> None:
    done = efmdp(*arguments, cwd=user_folder)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("efmdp: ")


@pytest.mark.parametrize(("collisions", "folder"), [(None, "2-Push"), (True, "2-Push-collisions")])
def test_collisions_are_part_of_a_run(collisions: bool | None, folder: str) -> None:
    config, out, _ = _training(TrainDDPG("2-Push", collisions=collisions))
    assert isinstance(config, TrainConfig)
    assert config.collisions is collisions
    assert out == Path("runs") / f"{folder}-deep-set-fast-0"


def test_unknown_flags_and_commands_exit_with_2() -> None:
    assert efmdp("chekc", "1-Push").returncode == 2
    assert efmdp("check", "1-Push", "--colisions").returncode == 2


def test_watch_writes_a_film(tmp_path: Path) -> None:
    film = tmp_path / "deep" / "film.mp4"
    done = efmdp("watch", "1-Switch", "--episodes", "2", "--out", str(film), "--width", "320", "--height", "240")
    assert done.returncode == 0, done.stderr
    reader = imageio_ffmpeg.read_frames(str(film))
    assert next(reader)["size"] == (320, 240)
    assert len(list(reader)) > 20
    assert "2 of 2 episodes" in done.stdout.replace("\n", " ")


def test_tasks_lists_every_id() -> None:
    done = efmdp("tasks")
    assert done.returncode == 0
    assert "efmdp/Fetch2SwitchOr2Push-v1" in done.stdout


def test_a_screen_that_does_not_work_costs_no_film(tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    done = efmdp("watch", "1-Switch", "--episodes", "1", "--out", str(film), DISPLAY=":77")
    assert done.returncode == 0, done.stderr
    assert film.exists()


def test_train_interrupted_and_resumed(tmp_path: Path) -> None:
    """The real command, the real recipe, a real Ctrl-C; then the same again with `resume`."""
    out = tmp_path / "run"

    def interrupted(*arguments: object) -> str:
        command = [sys.executable, "-m", "efmdp.cli", "train", *map(str, arguments)]
        config, began = out / "config.json", time.time()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while not config.exists() or config.stat().st_mtime < began:  # written when training begins, or begins again
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
        return said

    def saved() -> int:
        return max(int(path.name) for path in (out / "checkpoints").iterdir())

    said = interrupted("ddpg", "--task", "1-Switch", "--threads", 1, "--out", out)
    assert f"{out}: stopped, all is saved. Go on with: efmdp train resume {out}" in said
    rounds = saved()
    assert 1 <= rounds < 50
    assert "stopped, all is saved" in interrupted("resume", out)
    assert saved() > rounds


TRAINED = Path(__file__).parents[1] / "results" / "policies" / "3-switch" / "deep-set.safetensors"


def test_what_evaluate_prints_is_what_was_played() -> None:
    from efmdp.domains import make_env
    from efmdp.evaluate import TEST, load_policy, play_episodes, stream_seed
    from efmdp.stats import success_rate

    done = efmdp("evaluate", str(TRAINED), "--task", "2-Switch", "--episodes", "30", "--seed", "3")
    assert done.returncode == 0, done.stderr
    played = play_episodes(make_env("2-Switch", 30), load_policy(TRAINED), 30, stream_seed(3, TEST))
    assert played.success_once.mean() > 0.8
    words = [line.split(maxsplit=2 if "success" in line else 1) for line in done.stdout.splitlines()[1:]]
    values = (played.success_once, played.success_end, played.solved)
    assert [line[-1] for line in words] == [str(success_rate(value.sum(), 30)) for value in values]
    assert [line[-2] for line in words] == ["once", "end", "entities"]


def test_film_of_a_trained_policy_on_another_task(tmp_path: Path) -> None:
    out = tmp_path / "film.mp4"
    small = ("--episodes", "1", "--width", "64", "--height", "48")
    done = efmdp("watch", str(TRAINED), "--task", "2-Switch", "--out", str(out), *small)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 episodes of 2-Switch solved" in done.stdout
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(out))
    assert 0 < frames <= 41


def test_a_film_that_fails_costs_no_older_one(tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    film.write_bytes(b"an older one")
    mlp = TRAINED.with_name("3-Switch-mlp-6-fast-0.safetensors")
    for wrong in (("--seed", "-1"), ("--task", "8-Switch", "--layout", "wide")):
        done = efmdp("watch", str(mlp), *wrong, "--out", str(film))
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert film.read_bytes() == b"an older one"
    assert list(tmp_path.iterdir()) == [film]


def test_resume_of_another_version(tmp_path: Path, write_run: Callable[..., Path]) -> None:
    """A setting that this version does not know, and one that it has but the run did not."""
    for name, change in (("newer", {"sparkle": 3}), ("older", {"redraws": None})):
        run = write_run(tmp_path / name, "1-Push")
        stored = json.loads((run / "config.json").read_text())
        stored["config"] |= change
        if name == "older":
            del stored["config"]["redraws"]
        (run / "config.json").write_text(json.dumps(stored | {"versions": {"commit": "abc"}}))
        done = efmdp("train", "resume", str(run))
        assert done.returncode == 2
        assert "was begun by another version of efmdp (commit abc)" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
