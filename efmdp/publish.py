"""From a run to an entry of the zoo: its best policy, how it came about, and how good it is."""

import hashlib
import re
from pathlib import Path
from typing import Any

from efmdp import zoo
from efmdp.demos import Demos
from efmdp.domains import make_env
from efmdp.entities import EntityEnv, UserError
from efmdp.env import FetchEnv
from efmdp.evaluate import TEST, LearnedPolicy, play_episodes, policy_file, stream_seed
from efmdp.networks import NetworkConfig
from efmdp.records import training_command
from efmdp.rollout import Policy
from efmdp.runs import Run, RunError, clear_errors, default_folder, minutes, only_process_in, read_rows, replace_file
from efmdp.stats import success_rate
from efmdp.tasks import file_name, parse_task
from efmdp.zoo import Cost, Entry, Measured


def publish(run: Path, episodes: int = 500) -> Entry:
    """Put the best policy of a run into the zoo, measured on test episodes of its own task.

    An entry of another seed or run is not replaced: a name stands for one run that was chosen beforehand, not for the
    luckiest of many. The same policy again is measured and described anew.
    """
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}: play at least one")
    stored = Run(run).config() if run.is_dir() else None
    if stored is None:
        raise UserError(f"there is no run at {run}: name the folder of one that efmdp train made")
    with only_process_in(run):  # it is not being trained
        file = policy_file(run, "best")
        policy, data = LearnedPolicy(file), file.read_bytes()
        about = _describe(run, stored) | {"sha256": hashlib.sha256(data).hexdigest()}
    _check_vacant(about["name"], about["sha256"])
    env = make_env(about["task"], min(episodes, 100), **about["physics"])
    entry = Entry(**about, measured=_measure(env, policy, episodes))
    root = zoo.folder()
    with clear_errors(root):
        zoo.files(root, entry.name)[0].parent.mkdir(parents=True, exist_ok=True)
    replace_file(root, f"{entry.name}{zoo.POLICY}", data)
    replace_file(root, f"{entry.name}{zoo.PROVENANCE}", entry.to_json())  # last: what has one is whole
    return entry


def _describe(run: Path, stored: dict[str, Any]) -> dict[str, Any]:
    """The fields of an entry that the run's folder knows."""
    config, clones = stored["config"], stored.get("method") == "bc"
    options = config["options"] if clones else {name: config.get(name) for name in ("collisions", "gripper")}
    env = make_env(config["task"], **options)
    if not isinstance(env, FetchEnv):
        raise UserError(f"{run} was trained on {config['task']}, which is no task of the robot: the zoo holds those")
    physics = {name: getattr(env.task, name) for name in ("collisions", "gripper", "layout")} | {"profile": env.profile}
    cost, curve = _history(run, config["threads"])
    command = _cloned(run, stored) if clones else training_command(stored)
    return {
        "name": entry_name(config, physics),
        "task": config["task"],
        "network": config["network"],
        "recipe": config["recipe"],
        "seed": config["seed"],
        "physics": physics,
        "which": "best",
        "command": command if Run(run).is_finished else f"{command} --epochs {cost.epochs}",
        "versions": stored.get("versions", {}),
        "cost": cost,
        "curve": curve,
        "config": config,
    }


def entry_name(config: dict[str, Any], physics: dict[str, Any]) -> str:
    """TASK/NETWORK, then what is unusual about its physics and its recipe."""
    usual = parse_task(config["task"])
    parts = [
        NetworkConfig(**config["network"]).name,
        *(name for name in ("collisions", "gripper") if physics[name] != getattr(usual, name)),
        *([config["recipe"]] * (config["recipe"] != "fast")),
    ]
    return "/".join(
        re.sub("[^a-z0-9+.-]+", "-", file_name(title).lower()) for title in (config["task"], "-".join(parts))
    )


def run_name(entry: Entry) -> str:
    """What the folder of its run is called, unless told otherwise."""
    network, collisions = NetworkConfig(**entry.network).name, entry.config.get("collisions")
    return default_folder(entry.task, network, entry.recipe, entry.seed, collisions).name


def _history(run: Path, threads: int) -> tuple[Cost, list[dict[str, Any]]]:
    """What the run took, and its curve."""
    metrics, timings = read_rows(run / "metrics.csv"), read_rows(run / "timings.csv")
    if not metrics or not timings:
        raise UserError(f"{run} has finished no epoch yet: efmdp train resume {run} goes on")
    try:
        curve: list[dict[str, Any]] = [
            {
                "epoch": int(row["epoch"]),
                "task": row["task"],
                **({"steps": int(row["steps"])} if "steps" in row else {}),
                "updates": int(row["updates"]),
                "success_once": float(row["success_once"]),
            }
            for row in metrics
        ]
    except (KeyError, TypeError, ValueError) as error:
        mended = f"efmdp train resume {run} puts the copy of its newest checkpoint in its place"
        raise RunError(f"{run / 'metrics.csv'} is damaged ({error}): {mended}") from None
    last = curve[-1]
    return Cost(last["epoch"], last.get("steps"), last["updates"], round(minutes(timings[-1]), 1), threads), curve


def _cloned(run: Path, stored: dict[str, Any]) -> str:
    """What to type to have this run of behaviour cloning, and before that its demonstrations."""
    config, path = stored["config"], Path(stored["demos"])
    demos = Demos(path) if path.exists() else None
    if demos is None or demos.digest(config["demos_used"]) != config["demos"]:
        told = f"efmdp train bc --demos THEM --out {run}, with its options, tells it where they are"
        raise UserError(f"the demonstrations of {run} are no longer at {path}: {told}")
    demos.path = Path("demos") / path.name  # wherever they lie here, others may put them there
    in_zoo = {entry.sha256: f"{zoo.PREFIX}{entry.name}" for entry in zoo.entries()}
    demos.about["policy"] = in_zoo.get(demos.about["policy_sha256"], demos.about["policy"])
    return f"{demos.command(config['demos_used'])} && {training_command(stored)}"


def _check_vacant(name: str, sha256: str) -> None:
    policy, provenance = zoo.files(zoo.folder(), name)
    if policy.exists() and hashlib.sha256(policy.read_bytes()).hexdigest() != sha256:
        raise UserError(
            f"{zoo.PREFIX}{name} is another policy, and an entry is never the best of many: "
            f"to replace it, delete {policy} and {provenance} first"
        )


def _measure(env: EntityEnv, policy: Policy, episodes: int) -> Measured:
    """On the test episodes that all policies play."""
    outcome = play_episodes(env, policy, episodes, stream_seed(0, TEST))
    rate = success_rate(int(outcome.success_once.sum()), episodes)
    numbers = (*rate, float(outcome.success_end.mean()), float(outcome.solved.mean()))
    return Measured(episodes, *(round(number, 4) for number in numbers))
