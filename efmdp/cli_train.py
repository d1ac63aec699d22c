"""efmdp train, collect and export-minari."""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import rich.progress
import tyro

from efmdp import zoo
from efmdp.cli_options import PhysicsOptions, check_seed, load_for
from efmdp.discs import DiscEnv
from efmdp.entities import EntityEnv, UserError
from efmdp.progress import console, say, training_bar, warn
from efmdp.rollout import Policy
from efmdp.scripted import SCRIPTED, Scripted, code_sha256
from efmdp.tasks import parse_task

if TYPE_CHECKING:
    from efmdp.bc import BCConfig
    from efmdp.demos import Source
    from efmdp.recipes import TrainConfig


@dataclass
class TrainDDPG:
    """Train a policy with DDPG and hindsight experience replay. On a folder that holds this run already, go on."""

    task: str
    """such as 3-Push"""
    network: Literal["deep-set", "deep-set-large", "self-attention", "mlp"] = "deep-set"
    recipe: Literal["fast", "paper", "smoke"] = "fast"
    """fast: ours, for two cores; paper: every value of the paper's tables; smoke: seconds, to see that all works"""
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
    recipe: Literal["paper", "smoke"] = "paper"
    """paper: its 60,000 gradient steps; smoke: seconds, to see that all works"""
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
    if how.minutes is not None and not 0 < how.minutes < math.inf:
        raise UserError(f"--minutes is {how.minutes:g}: choose a number above 0")
    if how.epochs is not None and how.epochs < 1:
        raise UserError(f"--epochs is {how.epochs}: choose 1 or more")
    if not isinstance(how, TrainResume):
        check_seed(how.seed)
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
    from efmdp.recipes import fast, make_network, paper, places_for, smoke  # torch takes seconds to import
    from efmdp.runs import default_folder
    from efmdp.train import train_ddpg

    if how.recipe != "fast" and not how.curriculum:
        raise UserError(f"--no-curriculum belongs to --recipe fast: {how.recipe} has no curriculum")
    if how.recipe != "paper" and how.decay:
        raise UserError("--decay belongs to --recipe paper: the exploration of the fast recipe decays with success")
    network = make_network(how.network, places_for(how.task, parse_task(how.task).entities), how.max_entities)
    match how.recipe:
        case "fast":
            config = fast(how.task, network, how.seed, how.curriculum)
        case "paper":
            config = paper(how.task, network, how.seed, how.decay or "fast")
        case "smoke":
            config = smoke(how.task, network, how.seed)
    config = replace(config, threads=how.threads, collisions=how.collisions)
    out = how.out or default_folder(how.task, network.name, config.recipe, how.seed, how.collisions)
    return config, out, partial(train_ddpg, config, out)


def _bc(how: TrainBC) -> Training:
    from efmdp.demos import Demos  # torch takes seconds to import
    from efmdp.recipes import make_network, places_for
    from efmdp.runs import default_folder
    from efmdp.train import cloning, short, train_bc

    demos = Demos(how.demos)
    if how.demos_used is None and len(demos) < demos.about["episodes"]:
        use = f"use them with --demos-used {len(demos)}, or " if len(demos) else ""
        raise UserError(f"{demos.unfinished}: {use}finish with {demos.command()}")
    places = places_for(demos.about["task"], demos.about["entities"])
    network = make_network(how.network, places, how.max_entities)
    config = replace(cloning(demos, network, how.demos_used, how.seed), threads=how.threads)
    if how.recipe == "smoke":
        config = short(config)
    out = how.out or default_folder(config.task, network.name, config.recipe, how.seed)
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


def _device(wanted: str) -> str:
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU here; use --device cpu")
    return ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted


def collect_command(
    source: Annotated[str, tyro.conf.arg(name="from")],
    out: Path,
    task: str | None = None,
    episodes: int = 5000,
    seed: int = 0,
    noise: float = 0.0,
    random: float = 0.0,
    options: Annotated[PhysicsOptions, tyro.conf.arg(name="")] = PhysicsOptions(),  # noqa: B008
) -> int:
    """Record demonstrations: episodes of a policy, successful and not. On a folder that holds some already, go on.

    Args:
        source: a run's folder, for the policy that was best on its selection seeds, a policy file, zoo:NAME, or
            scripted.
        out: the folder for the demonstrations.
        task: such as 3-Push (default: what the policy was trained on).
        episodes: how many in all, rounded up to whole chunks of 100.
        seed: of the episodes, which differ from all others of this seed.
        noise: standard deviation of what is added to the actions; recorded are those that were wanted, so that clones
            learn to recover.
        random: probability of a random action instead, to the same end.
    """
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}: collect at least one")
    if not (0 <= noise <= 1 and 0 <= random <= 1):
        raise UserError(f"--noise is {noise} and --random {random}: choose 0 to 1 for both")
    check_seed(seed)
    from efmdp.demos import Demos, collect  # torch takes seconds to import
    from efmdp.recipes import Exploration
    from efmdp.stats import success_rate

    env, policy, whose, name = _demonstrator(source, task, options)
    began = time.monotonic()

    def track(chunks: Sequence[int]) -> Iterable[int]:
        return rich.progress.track(chunks, f"collecting {name}", console=console, disable=not console.is_terminal)

    try:
        demos = collect(env, policy, whose, name, episodes, out, seed, track, warn, Exploration(noise, random))
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
    from efmdp.publish import run_name

    if source == SCRIPTED:
        if task is None:
            raise UserError("--from scripted does any task: say which with --task, such as --task 3-Push")
        env = options.make(task, CHUNK)
        controller = env.demonstrator() if isinstance(env, DiscEnv) else Scripted(CHUNK)
        return env, controller, Source(SCRIPTED, code_sha256(type(controller))), task
    if not (zoo.is_named(source) or Path(source).exists()):
        raise UserError(f"there is no run or policy file at {source}: name one with --from, or --from scripted")
    path = policy_file(Path(source), "best")
    policy, task, options = load_for(path, "best", task, options)
    env = options.make(task, CHUNK)
    if env.dims != policy.dims:
        raise UserError(f"{path} was trained on {policy.task}, whose entities and actions are not those of {task}")
    torch.set_num_threads(1)  # threads of torch and of the simulation get in each other's way
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    entry = zoo.entry(source.removeprefix(zoo.PREFIX)) if zoo.is_named(source) else None
    return env, policy, Source(source, sha256, run_name(entry)) if entry else Source(str(path), sha256), task


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
