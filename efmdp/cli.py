"""The command line."""

import importlib
import math
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import gymnasium
import tyro
from rich.table import Table

from efmdp.conformance import check, check_gymnasium, report
from efmdp.domains import make_env
from efmdp.entities import EntityEnv, UserError
from efmdp.env import FetchEnv
from efmdp.progress import console, say, training_bar, warn
from efmdp.render import Picture, has_screen
from efmdp.rollout import Policy, run_episodes
from efmdp.scene import Profile
from efmdp.scripted import Scripted
from efmdp.tasks import GRAMMAR, PAPER_TASKS, Layout, RewardKind, gym_id, parse_task
from efmdp.video import film_episodes

if TYPE_CHECKING:
    from efmdp.evaluate import LearnedPolicy

DESCRIPTION = "Policies for sets of objects: the Entity-Factored MDP, the Fetch suite, and what learns on them."


@dataclass
class TaskOptions:
    """What can be chosen about a task besides its name."""

    collisions: bool | None = None
    """whether entities collide with each other (default: where the task stacks)"""
    reward: RewardKind = "sparse"
    layout: Layout = "paper"
    """paper: up to 6 entities in the paper's square; wide: up to 12 in a larger one"""
    profile: Profile = "fast"
    """physics: fast, or the reference it is measured against"""
    gripper: bool | None = None
    """whether the fourth action moves the fingers (default: where the task stacks)"""

    def make(self, name: str, num_envs: int = 1) -> EntityEnv:
        return make_env(name, num_envs, **asdict(self))

    def make_fetch(self, name: str, num_envs: int = 1) -> FetchEnv:
        """For what needs the robot, such as pictures."""
        env = self.make(name, num_envs)
        if not isinstance(env, FetchEnv):
            raise UserError(f"{name} is no task of the robot: {GRAMMAR}")
        return env


def check_command(
    task: tyro.conf.Positional[str],
    options: Annotated[TaskOptions, tyro.conf.arg(name="")] = TaskOptions(),  # noqa: B008
    num_envs: int = 16,
    seed: int = 0,
) -> int:
    """Put an environment to the conformance check: permutation symmetry, rewards, seeds, values, Gymnasium's checker.

    Args:
        task: a name such as 3-Push or 3-Disc, or module:factory for your own: factory(num_envs) makes an EntityEnv.
        num_envs: environments checked side by side.
        seed: of the episodes.
    """
    if num_envs < 1:
        raise UserError(f"--num-envs is {num_envs}: at least one environment is needed")
    if seed < 0:
        raise UserError(f"--seed {seed} is negative: choose 0 or more")
    if ":" in task:
        results = check(_user_factory(task), num_envs=num_envs, seed=seed)
    elif isinstance(options.make(task), FetchEnv):
        results = check(lambda count: options.make(task, count), Scripted(num_envs), num_envs=num_envs, seed=seed)
        results.append(check_gymnasium(lambda: gymnasium.make("efmdp/Fetch-v1", task=task, **asdict(options))))
    else:
        results = check(lambda count: options.make(task, count), num_envs=num_envs, seed=seed)
    say(f"{task}: is it an Entity-Factored MDP?")
    say(report(results))
    return 0 if all(result.passed for result in results) else 1


def watch_command(
    what: tyro.conf.Positional[str],
    task: str | None = None,
    options: Annotated[TaskOptions, tyro.conf.arg(name="")] = TaskOptions(),  # noqa: B008
    episodes: int = 3,
    seed: int = 0,
    out: Path | None = None,
    width: int = 640,
    height: int = 480,
) -> int:
    """Film a policy, or the scripted controller, and write an mp4; with a screen, show a window as well.

    Args:
        what: a run's folder or a policy file, or for the scripted controller a task name such as 2-Switch+2-Push.
        task: what a policy is to do (default: what it was trained on).
        episodes: how many to film, one after another.
        seed: of the first episode.
        out: the video (default: runs/watch/NAME.mp4).
        width: of the video in pixels.
        height: of the video in pixels.
    """
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}: film at least one")
    policy: Policy
    if Path(what).exists():
        policy, task, options = _load_policy(Path(what), "last", task, options)
        title = f"{Path(what).stem}-{task}"
    elif task is not None:
        raise UserError(f"there is no run at {what}; to film the scripted controller, name the task alone")
    else:
        policy, task, title = Scripted(1), what, what
    env = options.make_fetch(task)
    path = out or Path("runs") / "watch" / f"{title.replace('|', '-or-')}.mp4"
    frames, outcomes = film_episodes(env, policy, episodes, seed, path, width, height)
    solved = sum(int(outcome.success_once[0]) for outcome in outcomes)
    say(f"{path}: {frames} frames, {solved} of {episodes} episodes of {task} solved")
    if has_screen():
        picture = Picture(env)
        for episode in range(episodes):
            run_episodes(env, policy, seed=seed + episode, watch=lambda _: picture.show())
        picture.close()
    return 0


def _load_policy(
    path: Path, which: str, task: str | None, options: TaskOptions
) -> tuple["LearnedPolicy", str, TaskOptions]:
    """A trained policy, the task it is to do, and the physics it was trained with unless another is asked for."""
    from efmdp.evaluate import load_policy

    policy = load_policy(path, which)
    trained = {name: value for name, value in policy.physics.items() if getattr(options, name) is None}
    return policy, task or policy.task, replace(options, **trained)


@dataclass
class TrainDDPG:
    """Train a policy with DDPG and hindsight experience replay. On a folder that holds this run already, go on."""

    task: str
    """such as 3-Push"""
    network: Literal["deep-set", "deep-set-large", "self-attention", "mlp"] = "deep-set"
    recipe: Literal["fast", "paper"] = "fast"
    """fast: ours, for two cores; paper: every value of the paper's tables"""
    seed: int = 0
    out: Path | None = None
    """the run's folder (default: runs/TASK-NETWORK-RECIPE-SEED)"""
    epochs: int | None = None
    """stop after so many epochs (default: the recipe's)"""
    minutes: float | None = None
    """stop at the end of the epoch after so many minutes (default: no limit)"""
    curriculum: bool = True
    """fast recipe: begin with fewer entities where that helps"""
    decay: Literal["fast", "slow"] = "fast"
    """paper recipe: which of its two exploration schedules"""
    max_entities: int | None = None
    """mlp: room for so many entities, for tests with more than it is trained on"""
    threads: int = 2
    """of torch and of the simulation; with 1, two runs share two cores well"""
    device: Literal["auto", "cpu", "cuda"] = "auto"


@dataclass
class TrainResume:
    """Go on with a run from its newest checkpoint."""

    run: tyro.conf.Positional[Path]
    """the run's folder"""
    epochs: int | None = None
    """stop after so many epochs in all (default: the recipe's)"""
    minutes: float | None = None
    """stop at the end of the epoch after so many minutes (default: no limit)"""
    device: Literal["auto", "cpu", "cuda"] = "auto"


def train_command(
    how: tyro.conf.OmitSubcommandPrefixes[
        tyro.conf.OmitArgPrefixes[
            Annotated[TrainDDPG, tyro.conf.subcommand("ddpg")] | Annotated[TrainResume, tyro.conf.subcommand("resume")]
        ]
    ],
) -> int:
    """Train a policy, or go on with a run."""
    if how.minutes is not None:
        _check_minutes(how.minutes)
    from efmdp.recipes import fast, from_json, make_network, paper  # torch takes seconds to import
    from efmdp.runs import Run
    from efmdp.train import train_ddpg

    if isinstance(how, TrainResume):
        out = how.run
        stored = Run(out).config() if out.is_dir() else None
        if stored is None:
            raise UserError(f"there is no run at {out}: begin one with efmdp train ddpg --out {out}")
        config = from_json(stored["config"])
    else:
        network = make_network(how.network, how.task, how.max_entities)
        if how.recipe == "paper":
            config = paper(how.task, network, how.seed, how.decay)
        else:
            config = fast(how.task, network, how.seed, how.curriculum)
        if how.threads < 1:
            raise UserError(f"--threads is {how.threads}: choose 1 or more")
        config = replace(config, threads=how.threads)
        name = f"{how.task}-{how.network}-{config.recipe}-{how.seed}".replace("|", "-or-")
        out = how.out or Path("runs") / name
    with training_bar(config, how.epochs, how.minutes) as show:
        done = train_ddpg(config, out, how.epochs, _device(how.device), show, warn, how.minutes)
    if done:
        say(f"{out}: done. Try: efmdp evaluate {out}")
    else:
        limit = f" --epochs {how.epochs}" if how.epochs else ""
        say(f"{out}: stopped, all is saved. Go on with: efmdp train resume {out}{limit}")
    return 0


def _check_minutes(minutes: float) -> None:
    if not 0 < minutes < math.inf:
        raise UserError(f"--minutes is {minutes:g}: choose a number above 0")


def _device(wanted: str) -> str:
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU here; use --device cpu")
    return ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted


def evaluate_command(
    run: tyro.conf.Positional[Path],
    task: str | None = None,
    episodes: int = 500,
    which: Literal["last", "best"] = "last",
    seed: int = 0,
    options: Annotated[TaskOptions, tyro.conf.arg(name="")] = TaskOptions(),  # noqa: B008
) -> int:
    """Success of a trained policy on test seeds, with 95 % intervals, on its own task or any other it can take.

    Args:
        run: a run's folder, or a policy file.
        task: the task (default: the one it was trained on).
        episodes: how many test episodes.
        which: the run's last policy, or the one that was best on the selection seeds.
        seed: test episodes differ from all training and selection episodes of the run with this seed.
    """
    from efmdp.evaluate import TEST, play_episodes, stream_seed
    from efmdp.stats import success_rate

    policy, name, options = _load_policy(run, which, task, options)
    env = options.make(name, min(episodes, 100))
    outcome = play_episodes(env, policy, episodes, stream_seed(seed, TEST))
    say(f"{run} ({which}) on {name}, {episodes} episodes, {options.profile} physics")
    for label, values in (("once", outcome.success_once), ("end", outcome.success_end)):
        say(f"  success {label:5s} {success_rate(int(values.sum()), episodes)}")
    entities = outcome.distance.size
    say(f"  entities      {success_rate(round(outcome.solved.sum() * entities / episodes), entities)}")
    return 0


def tasks_command() -> int:
    """List the paper's tasks with their sizes, horizons and Gymnasium ids."""
    table = Table(title="the paper's tasks", caption=GRAMMAR)
    for heading in ("task", "entities", "steps", "Gymnasium id"):
        table.add_column(heading)
    for name in PAPER_TASKS:
        task = parse_task(name)
        steps = " or ".join(str(scene.horizon) for scene in task.scenes)
        table.add_row(name, str(task.entities), steps, gym_id(name))
    console.print(table)
    return 0


def demo_command(out: Path = Path("runs/demo"), minutes: float = 4, episodes: int = 100) -> int:
    """Train Deep Sets and an MLP on 3 switches, test both on 1 to 6, and write a page with a picture and a film.

    Args:
        out: where everything goes. Stopped and repeated, it goes on; what is trained already is not trained again.
        minutes: how long each of the two is trained.
        episodes: how many test episodes for each number of switches.
    """
    _check_minutes(minutes)
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}: play at least one")
    from efmdp.demo import demo_configs, run_demo  # torch takes seconds to import

    run_demo(demo_configs(), out, minutes, episodes)
    return 0


COMMANDS: dict[str, Callable[..., int]] = {
    "check": check_command,
    "train": train_command,
    "evaluate": evaluate_command,
    "watch": watch_command,
    "tasks": tasks_command,
    "demo": demo_command,
}


def _user_factory(name: str) -> Callable[[int], EntityEnv]:
    module_name, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())  # as `python -m` does, so that a file beside the user is found
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
        env = factory(1)
    except Exception as error:  # a user's module may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise UserError(
            f"cannot make an environment from {name} ({reason}). Name a factory as module:function"
        ) from error
    if not isinstance(env, EntityEnv):
        raise UserError(f"{name} made a {type(env).__name__}, not an efmdp.entities.EntityEnv")
    return factory


def main() -> None:
    try:
        code = tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="efmdp", description=DESCRIPTION)
    except KeyboardInterrupt:
        print("efmdp: stopped", file=sys.stderr)
        code = 130
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (UserError, OSError) as error:
        print(f"efmdp: {error}", file=sys.stderr)
        code = 2
    sys.exit(code)


if __name__ == "__main__":
    main()
