"""The command line."""

import hashlib
import importlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar

import gymnasium
import rich.progress
import tyro
from rich.table import Table

from efmdp.conformance import check, check_gymnasium, report
from efmdp.discs import DiscEnv
from efmdp.domains import make_env
from efmdp.entities import EntityEnv, UserError
from efmdp.env import FetchEnv
from efmdp.progress import console, say, training_bar, warn
from efmdp.render import Picture, has_screen
from efmdp.rollout import Policy, run_episodes
from efmdp.scene import Profile
from efmdp.scripted import SCRIPTED, Scripted, code_sha256
from efmdp.tasks import GRAMMAR, PAPER_TASKS, Layout, RewardKind, file_name, gym_id, parse_task, stitched
from efmdp.video import film_episodes

if TYPE_CHECKING:
    from efmdp.bc import BCConfig
    from efmdp.demos import Source
    from efmdp.evaluate import LearnedPolicy
    from efmdp.recipes import TrainConfig
    from efmdp.zero_shot import Plan

# Torch's threads wait for each other in a loop of so many turns before they sleep. When something else needs a core
# too, a long loop keeps the thread that it waits for from running (benchmarks.busy). Read when torch is imported.
SPINS = "10000"
DESCRIPTION = "Policies for sets of objects: the Entity-Factored MDP, the Fetch suite, and what learns on them."


@dataclass
class PhysicsOptions:
    """What can be chosen about a task's physics."""

    collisions: bool | None = None
    """whether entities collide with each other (default: where the task stacks)"""
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


@dataclass
class TaskOptions(PhysicsOptions):
    """What can be chosen about a task besides its name."""

    reward: RewardKind = "sparse"


Options = TypeVar("Options", bound=PhysicsOptions)


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
    _check_seed(seed)
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
        oracle: scripted, or who solves its subtasks: push=RUN switch=RUN, a run, a policy file or scripted each.
        episodes: how many to film, one after another.
        seed: of the first episode.
        out: the video (default: runs/watch/NAME.mp4).
        width: of the video in pixels.
        height: of the video in pixels.
    """
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}: film at least one")
    _check_seed(seed)
    policy: Policy
    if _is_oracle(Path(what)):
        policy, task, title = _make_oracle(task, oracle, options, 1), str(task), f"oracle-{task}"
    elif Path(what).exists():
        policy, task, options = _load_policy(Path(what), "last", task, options)
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


def _load_policy(path: Path, which: str, task: str | None, options: Options) -> tuple["LearnedPolicy", str, Options]:
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
    """the run's folder (default: runs/TASK-NETWORK-RECIPE-SEED, with collisions asked for runs/TASK-collisions-...)"""
    epochs: int | None = None
    """stop after so many epochs (default: the recipe's)"""
    minutes: float | None = None
    """stop at the end of the epoch after so many minutes (default: no limit)"""
    curriculum: bool = True
    """fast recipe: begin with fewer entities where that helps"""
    decay: Literal["fast", "slow"] | None = None
    """paper recipe: which of its two exploration schedules (default: fast)"""
    collisions: bool | None = None
    """whether entities collide with each other (default: where the task stacks)"""
    max_entities: int | None = None
    """mlp: room for so many entities (default: the task's; of a mixture, those of the task that it is tested on)"""
    threads: int = 2
    """of torch and of the simulation; with 1, two runs share two cores well"""
    device: Literal["auto", "cpu", "cuda"] = "auto"


@dataclass
class TrainBC:
    """Train a policy by behaviour cloning, on demonstrations of efmdp collect. On a folder that holds this run already,
    go on."""

    demos: Path
    """the folder of the demonstrations"""
    network: Literal["deep-set", "deep-set-large", "self-attention", "mlp"] = "deep-set"
    demos_used: int | None = None
    """the first so many, before those that failed are dropped (default: all)"""
    seed: int = 0
    out: Path | None = None
    """the run's folder (default: runs/TASK-NETWORK-bc-DEMOS-SEED, with -of-RUN after DEMOS that a run gave)"""
    epochs: int | None = None
    """stop after so many epochs of 10,000 gradient steps (default: 6)"""
    minutes: float | None = None
    """stop at the end of the epoch after so many minutes (default: no limit)"""
    max_entities: int | None = None
    """mlp: room for so many entities (default: the task's; of a mixture, those of the task that it is tested on)"""
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
            Annotated[TrainDDPG, tyro.conf.subcommand("ddpg")]
            | Annotated[TrainBC, tyro.conf.subcommand("bc")]
            | Annotated[TrainResume, tyro.conf.subcommand("resume")]
        ]
    ],
) -> int:
    """Train a policy, or go on with a run."""
    if how.minutes is not None:
        _check_minutes(how.minutes)
    if how.epochs is not None and how.epochs < 1:
        raise UserError(f"--epochs is {how.epochs}: choose 1 or more")
    if not isinstance(how, TrainResume):
        _check_seed(how.seed)
        if not 1 <= how.threads <= 256:
            raise UserError(f"--threads is {how.threads}: choose 1 to 256, as many as there are cores or fewer")
    config, out, train = _training(how)
    with training_bar(config, how.epochs, how.minutes) as show:
        done = train(epochs=how.epochs, device=_device(how.device), report=show, warn=warn, minutes=how.minutes)
    if done:
        say(f"{out}: done. Try: efmdp evaluate {out}")
    else:
        limit = f" --epochs {how.epochs}" if how.epochs else ""
        say(f"{out}: stopped, all is saved. Go on with: efmdp train resume {out}{limit}")
    return 0


Training: TypeAlias = "tuple[TrainConfig | BCConfig, Path, Callable[..., bool]]"  # what, where, and what does it


def _training(how: TrainDDPG | TrainBC | TrainResume) -> Training:
    match how:
        case TrainDDPG():
            return _ddpg(how)
        case TrainBC():
            return _bc(how)
        case TrainResume():
            return _resumed(how)


def _ddpg(how: TrainDDPG) -> Training:
    from efmdp.recipes import fast, make_network, paper  # torch takes seconds to import
    from efmdp.train import train_ddpg

    network = make_network(how.network, _room(how.task, parse_task(how.task).entities), how.max_entities)
    if how.recipe == "paper":
        if not how.curriculum:
            raise UserError("--no-curriculum belongs to --recipe fast: the paper's has no curriculum")
        config = paper(how.task, network, how.seed, how.decay or "fast")
    elif how.decay:
        raise UserError("--decay belongs to --recipe paper: the exploration of the fast recipe decays with success")
    else:
        config = fast(how.task, network, how.seed, how.curriculum)
    config = replace(config, threads=how.threads, collisions=how.collisions)
    title = f"{how.task}-collisions" if how.collisions else how.task
    out = how.out or _run_folder(title, how.network, config.recipe, how.seed)
    return config, out, partial(train_ddpg, config, out)


def _bc(how: TrainBC) -> Training:
    from efmdp.demos import Demos  # torch takes seconds to import
    from efmdp.recipes import make_network
    from efmdp.train import cloning, train_bc

    demos = Demos(how.demos)
    if how.demos_used is None and len(demos) < demos.about["episodes"]:
        raise UserError(
            f"{demos.unfinished}: use them with --demos-used {len(demos)}, or finish with {demos.command()}"
        )
    network = make_network(how.network, _room(demos.about["task"], demos.about["entities"]), how.max_entities)
    config = replace(cloning(demos, network, how.demos_used, how.seed), threads=how.threads)
    out = how.out or _run_folder(config.task, how.network, config.recipe, how.seed)
    return config, out, partial(train_bc, config, demos, out)


def _resumed(how: TrainResume) -> Training:
    from efmdp import bc, recipes  # torch takes seconds to import
    from efmdp.demos import Demos
    from efmdp.runs import Run, as_stored
    from efmdp.train import train_bc, train_ddpg

    out = how.run
    stored = Run(out).config() if out.is_dir() else None
    if stored is None:
        raise UserError(f"there is no run at {out}: begin one with efmdp train ddpg --out {out}")
    module = bc if stored.get("method") == "bc" else recipes
    try:
        config = module.from_json(stored["config"])
        unknown = as_stored(config) != stored["config"]
    except (KeyError, TypeError):
        unknown = True
    if unknown:
        commit = stored.get("versions", {}).get("commit", "unknown")
        raise UserError(f"{out} was begun by another version of efmdp (commit {commit}): use that, or start anew")
    if isinstance(config, recipes.TrainConfig):
        return config, out, partial(train_ddpg, config, out)
    demos = Path(stored["demos"])
    if not demos.exists():
        again = f"efmdp train bc --demos THEM --out {out}"
        raise UserError(f"the demonstrations of {out} are no longer at {demos}: {again}, with its options, goes on")
    return config, out, partial(train_bc, config, Demos(demos), out)


def _room(task: str, entities: int) -> int:
    """For how many entities an MLP is made: those of its task, or of the one that a mixture's policies then play."""
    test = stitched(task)
    return entities if test is None else max(entities, parse_task(test).entities)


def _run_folder(task: str, network: str, recipe: str, seed: int) -> Path:
    return Path("runs") / file_name(f"{task}-{network}-{recipe}-{seed}")


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**32:  # beyond that NumPy would mix it up with a seed of another stream
        raise UserError(f"--seed is {seed}: choose 0 or more, below 2^32")


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
    oracle: tuple[str, ...] = ("scripted",),
    options: Annotated[TaskOptions, tyro.conf.arg(name="")] = TaskOptions(),  # noqa: B008
) -> int:
    """Success of a policy on test seeds, with 95 % intervals, on the task it was trained on or any other it can take.

    To compare several, see efmdp evaluate extrapolation --help, stitching --help and timing --help.

    Args:
        run: a run's folder, a policy file, or oracle.
        task: the task (default: the one it was trained on).
        episodes: how many test episodes.
        which: the run's last policy, or the one that was best on the selection seeds.
        seed: test episodes differ from all training and selection episodes of the run with this seed.
        oracle: scripted, or who solves its subtasks: push=RUN switch=RUN, a run, a policy file or scripted each.
    """
    from efmdp.evaluate import TEST, play_episodes, stream_seed
    from efmdp.stats import success_rate

    _check_seed(seed)
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}: play at least one")
    slots = min(episodes, 100)
    policy: Policy
    if _is_oracle(run):
        policy, task, version = _make_oracle(task, oracle, options, slots), str(task), " ".join(oracle)
    else:
        (policy, task, options), version = _load_policy(run, which, task, options), which
    outcome = play_episodes(options.make(task, slots), policy, episodes, stream_seed(seed, TEST))
    say(f"{run} ({version}) on {task}, {episodes} episodes, {options.profile} physics")
    for label, values in (("once", outcome.success_once), ("end", outcome.success_end)):
        say(f"  success {label:5s} {success_rate(values.sum(), episodes)}")
    # Entities of one episode fare alike, so they count as one trial together.
    say(f"  entities      {success_rate(outcome.solved.sum(), episodes)}")
    return 0


def _is_oracle(path: Path) -> bool:
    """A run's folder of that name is ./oracle."""
    return str(path) == "oracle"


def _make_oracle(task: str | None, sources: Sequence[str], options: PhysicsOptions, num_envs: int) -> Policy:
    from efmdp.oracle import make_oracle, parse_sources  # torch takes seconds to import

    if task is None:
        raise UserError("the oracle does any task: say which with --task, such as --task 2-Switch+2-Push")
    return make_oracle(num_envs, options.make_fetch(task).task, parse_sources(sources))


Runs = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN..."), tyro.conf.Positional]


def extrapolation_command(
    runs: Runs,
    oracle: tuple[str, ...] = ("scripted",),
    episodes: int = 500,
    out: Path | None = None,
    wide: bool = False,
) -> int:
    """Policies trained on one task, such as 3-Push, on fewer and more entities: 1-Push to 6-Push, the oracle beside.

    Of a run it is the policy that was best on the selection seeds. All play the same test episodes.

    Args:
        runs: folders of runs or policy files, of any networks and seeds, all trained on the same task.
        oracle: scripted, or who solves its subtasks: push=RUN switch=RUN, a run, a policy file or scripted each.
        episodes: how many test episodes for each policy on each task.
        out: a CSV with a row for each policy on each task. What it holds already is not played again.
        wide: go on to ten entities, which need a wider layout than the paper's.
    """
    from efmdp.zero_shot import extrapolation  # torch takes seconds to import

    return _compare(runs, oracle, partial(extrapolation, wide=wide), episodes, out)


def stitching_command(
    runs: Runs,
    oracle: tuple[str, ...] = ("scripted",),
    episodes: int = 500,
    out: Path | None = None,
) -> int:
    """Policies trained on 2-Switch|2-Push, or on 2-Push|Stack, on what needs both skills, the oracle beside.

    Or on 2-Switch&2-Push or 2-Push&Stack. Of a run it is the policy that was best on the selection seeds. All play the
    same test episodes: of the tasks that they were trained on, and of 2-Switch+2-Push or Push+Stack, which they never
    saw.

    Args:
        runs: folders of runs or policy files, of any networks and seeds, all trained on the same mixture.
        oracle: scripted, or who solves its subtasks: push=RUN stack=RUN, a run, a policy file or scripted each.
        episodes: how many test episodes for each policy on each task.
        out: a CSV with a row for each policy on each task. What it holds already is not played again.
    """
    from efmdp.zero_shot import stitching  # torch takes seconds to import

    return _compare(runs, oracle, stitching, episodes, out)


def _compare(runs: Sequence[Path], oracle: Sequence[str], plan: "Plan", episodes: int, out: Path | None) -> int:
    import torch

    from efmdp.oracle import parse_sources
    from efmdp.zero_shot import compare, findings, show, summarise, write_summary

    torch.set_num_threads(1)  # threads of torch and of the simulation get in each other's way
    rows = compare(runs, parse_sources(oracle), plan, episodes, out)
    console.print(show(rows, f"trained on {rows[0]['trained_on']}, {episodes} test episodes each"))
    statistics = summarise(rows)
    for line in findings(rows, statistics):
        say(line)
    if out is not None:
        say(f"all numbers: {out}, and the statistics above: {write_summary(out, statistics)}")
    return 0


def timing_command(runs: Runs, out: Path | None = None) -> int:
    """How long each policy takes for a step, one observation on one thread, and how long it was trained.

    A step is timed on the task that it was trained on and, where that has a family, on its first three members, such
    as 1-Push, 2-Push and 3-Push.

    Args:
        runs: folders of runs or policy files; hours of training are known of runs only.
        out: a CSV with a row for each policy and task.
    """
    from efmdp.tables import grouped  # torch takes seconds to import
    from efmdp.timing import time_policies

    rows = time_policies(runs, out)
    sizes = sorted({int(row["entities"]) for row in rows})
    table = Table("network", "recipe", "seed", "trained on", "epochs", "hours", *map(str, sizes))
    table.caption = "hours of training so far, with so many threads; milliseconds for a step with 1, 2, ... entities"
    for mine in grouped(rows, "sha256").values():
        about = [mine[0][name] for name in ("network", "recipe", "seed", "trained_on", "epochs")]
        hours = f"{mine[0]['hours']} ({mine[0]['threads']})" if mine[0]["hours"] else ""
        milliseconds = {int(row["entities"]): row["milliseconds"] for row in mine}
        table.add_row(*about, hours, *(milliseconds.get(size, "") for size in sizes))
    console.print(table)
    return 0


def collect_command(
    source: Annotated[str, tyro.conf.arg(name="from")],
    out: Path,
    task: str | None = None,
    episodes: int = 5000,
    seed: int = 0,
    options: Annotated[PhysicsOptions, tyro.conf.arg(name="")] = PhysicsOptions(),  # noqa: B008
) -> int:
    """Record demonstrations: episodes of a policy, successful and not. On a folder that holds some already, go on.

    Args:
        source: a run's folder, for the policy that was best on its selection seeds, a policy file, or scripted.
        out: the folder for the demonstrations.
        task: such as 3-Push (default: what the policy was trained on).
        episodes: how many in all, rounded up to whole chunks of 100.
        seed: of the episodes, which differ from all others of this seed.
    """
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}: collect at least one")
    _check_seed(seed)
    from efmdp.demos import Demos, collect  # torch takes seconds to import
    from efmdp.stats import success_rate

    env, policy, whose, name = _demonstrator(source, task, options)
    began = time.monotonic()

    def track(chunks: Sequence[int]) -> Iterable[int]:
        return rich.progress.track(chunks, f"collecting {name}", console=console, disable=not console.is_terminal)

    try:
        demos = collect(env, policy, whose, name, episodes, out, seed, track, warn)
    except KeyboardInterrupt:
        there = len(Demos(out)) if (out / "about.json").exists() else 0
        say(f"{out}: stopped with {there} of {episodes} episodes; the same command goes on from here")
        raise
    seconds = time.monotonic() - began
    rate = success_rate(sum(int(flags.success_once.sum()) for _, flags in demos.chunks()), len(demos))
    size = sum(chunk.stat().st_size for chunk in (out / "chunks").iterdir()) / 1e6
    say(f"{out}: {len(demos)} episodes of {name}, success {rate}, {size:.0f} MB, collected in {seconds:.0f} s")
    return 0


def _demonstrator(source: str, task: str | None, options: PhysicsOptions) -> tuple[EntityEnv, Policy, "Source", str]:
    """Where to collect, who acts there and what that is called, and the task."""
    import torch

    from efmdp.demos import CHUNK, Source
    from efmdp.evaluate import policy_file

    if source == SCRIPTED:
        if task is None:
            raise UserError("--from scripted does any task: say which with --task, such as --task 3-Push")
        env = options.make(task, CHUNK)
        controller = env.demonstrator() if isinstance(env, DiscEnv) else Scripted(CHUNK)
        return env, controller, Source(SCRIPTED, code_sha256(type(controller))), task
    if not Path(source).exists():
        raise UserError(f"there is no run or policy file at {source}: name one with --from, or --from scripted")
    path = policy_file(Path(source), "best")
    policy, task, options = _load_policy(path, "best", task, options)
    env = options.make(task, CHUNK)
    if env.dims != policy.dims:
        raise UserError(f"{path} was trained on {policy.task}, whose entities and actions are not those of {task}")
    torch.set_num_threads(1)  # threads of torch and of the simulation get in each other's way
    return env, policy, Source(str(path), hashlib.sha256(path.read_bytes()).hexdigest()), task


def export_minari_command(demos: tyro.conf.Positional[Path], name: str) -> int:
    """Write demonstrations as a dataset that Minari loads.

    Args:
        demos: a folder that efmdp collect made.
        name: of the dataset, such as efmdp/3-push/scripted-v0.
    """
    from efmdp.demos import Demos  # torch takes seconds to import
    from efmdp.minari_export import export_minari

    collected = Demos(demos)
    if len(collected) < collected.about["episodes"]:
        raise UserError(f"{collected.unfinished}: finish with {collected.command()}")
    dataset = export_minari(collected, name)
    say(f"{dataset.total_episodes} episodes, {dataset.total_steps} steps: minari.load_dataset({name!r})")
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
    "collect": collect_command,
    "export-minari": export_minari_command,
    "watch": watch_command,
    "tasks": tasks_command,
    "demo": demo_command,
}

# Said after `evaluate`; a run's folder of such a name is ./extrapolation
STUDIES: dict[str, Callable[..., int]] = {
    "extrapolation": extrapolation_command,
    "stitching": stitching_command,
    "timing": timing_command,
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
