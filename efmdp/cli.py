"""The command line."""

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import gymnasium
import tyro
from rich.table import Table

from efmdp import zoo
from efmdp.cli_evaluate import STUDIES, evaluate_command
from efmdp.cli_options import TaskOptions, check_seed, is_oracle, load_for, oracle_for
from efmdp.cli_reproduce import report_command, reproduce_command
from efmdp.cli_train import collect_command, export_minari_command, train_command
from efmdp.cli_zoo import zoo_command
from efmdp.conformance import check, check_gymnasium, report
from efmdp.entities import EntityEnv, UserError
from efmdp.env import FetchEnv
from efmdp.progress import console, say
from efmdp.render import Picture, has_screen
from efmdp.rollout import Policy, run_episodes
from efmdp.scripted import Scripted
from efmdp.tasks import GRAMMAR, PAPER_TASKS, file_name, gym_id, parse_task
from efmdp.video import film_episodes

# Torch's threads wait for each other in a loop of so many turns before they sleep. When something else needs a core
# too, a long loop keeps the thread that it waits for from running (benchmarks.busy). Read when torch is imported.
SPINS = "10000"
DESCRIPTION = "Policies for sets of objects: the Entity-Factored MDP, the Fetch suite, and what learns on them."


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
    check_seed(seed)
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
    oracle: tuple[str, ...] = ("scripted",),
    options: Annotated[TaskOptions, tyro.conf.arg(name="")] = TaskOptions(),  # noqa: B008
    episodes: int = 3,
    seed: int = 0,
    out: Path | None = None,
    width: int = 640,
    height: int = 480,
) -> int:
    """Film a policy, or the scripted controller, and write an mp4; with a screen, show a window as well.

    Args:
        what: a run's folder, a policy file, oracle, or for the scripted controller a task name such as 2-Switch+2-Push.
        task: what a policy is to do (default: what it was trained on).
        oracle: scripted, or who solves its subtasks: push=RUN switch=RUN; runs, policy files, zoo:NAME or scripted.
        episodes: how many to film, one after another.
        seed: of the first episode.
        out: the video (default: runs/watch/NAME.mp4).
        width: of the video in pixels.
        height: of the video in pixels.
    """
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}: film at least one")
    check_seed(seed)
    policy: Policy
    if is_oracle(Path(what)):
        policy, task, title = oracle_for(task, oracle, options, 1), str(task), f"oracle-{task}"
    elif zoo.is_named(what) or Path(what).exists():
        policy, task, options = load_for(Path(what), "last", task, options)
        title = f"{Path(what).stem}-{task}"
    elif task is not None:
        raise UserError(f"there is no run at {what}; to film the scripted controller, name the task alone")
    else:
        policy, task, title = Scripted(1), what, what
    env = options.make_fetch(task)
    path = out or Path("runs") / "watch" / f"{file_name(title)}.mp4"
    frames, outcomes = film_episodes(env, policy, episodes, seed, path, width, height)
    solved = sum(int(outcome.success_once[0]) for outcome in outcomes)
    say(f"{path}: {frames} frames, {solved} of {episodes} episodes of {task} solved")
    if has_screen():
        picture = Picture(env)
        for episode in range(episodes):
            run_episodes(env, policy, seed=seed + episode, watch=lambda _: picture.show())
        picture.close()
    return 0


def tasks_command() -> int:
    """List the paper's tasks with their sizes, horizons and Gymnasium ids."""
    table = Table(title="the paper's tasks", caption=GRAMMAR)
    for heading in ("task", "entities", "steps", "Gymnasium id"):
        table.add_column(heading)
    for name in PAPER_TASKS:
        task = parse_task(name)
        steps = " or ".join(map(str, dict.fromkeys(task.horizons)))
        table.add_row(name, str(task.entities), steps, gym_id(name))
    console.print(table)
    return 0


def demo_command(out: Path = Path("runs/demo"), episodes: int = 100) -> int:
    """Train Deep Sets and an MLP on 3 switches, test both on 1 to 6, and write a page with a picture and a film.

    Args:
        out: where everything goes. Stopped and repeated, it goes on; what is trained already is not trained again.
        episodes: how many test episodes for each number of switches.
    """
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}: play at least one")
    from efmdp.demo import demo_runs, run_demo  # torch takes seconds to import

    run_demo(demo_runs(out), out, episodes)
    return 0


COMMANDS: dict[str, Callable[..., int]] = {
    "check": check_command,
    "train": train_command,
    "evaluate": evaluate_command,
    "collect": collect_command,
    "export-minari": export_minari_command,
    "reproduce": reproduce_command,
    "report": report_command,
    "zoo": zoo_command,
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
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    commands, prog, arguments = COMMANDS, "efmdp", sys.argv[1:]
    if arguments[:1] == ["evaluate"] and arguments[1:] and arguments[1] in STUDIES:
        commands, prog, arguments = STUDIES, "efmdp evaluate", arguments[1:]
    try:
        code = tyro.extras.subcommand_cli_from_dict(commands, prog=prog, description=DESCRIPTION, args=arguments)
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
