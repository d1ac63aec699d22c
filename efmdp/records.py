"""What is kept of a run when its folder is gone: two tables in results/, which the report is made from.

runs.csv      a row for each run: what it is, what it cost, its policies' SHA-256, and the command and commit;
              `settings` tells whether a run of that name is what its recipe says today
curves.csv    a row for each of its epochs: success on the selection seeds against steps, updates and minutes
"""

import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from efmdp.entities import UserError
from efmdp.networks import NetworkConfig
from efmdp.progress import warn
from efmdp.runs import Run, default_folder, minutes, read_rows
from efmdp.tables import Row, only_writer, read_table, write_table
from efmdp.zero_shot import digest, digest_of

WHAT = ("run", "method", "task", "collisions", "network", "recipe", "seed", "settings")
COST = ("finished", "threads", "epochs", "steps", "updates", "minutes", "peak_mb")
RUNS = (*WHAT, *COST, "best_sha256", "last_sha256", "commit", "command")
CURVES = ("run", "epoch", "task", "steps", "updates", "minutes", "success_once", "success_end", "entities_solved")

RECIPES = {  # what asks efmdp train ddpg for them
    "fast": [],
    "fast-no-curriculum": ["--no-curriculum"],
    "paper-fast": ["--recipe", "paper", "--decay", "fast"],
    "paper-slow": ["--recipe", "paper", "--decay", "slow"],
    "smoke": ["--recipe", "smoke"],
}


def record(folders: Iterable[Path], results: Path) -> None:
    """Put the runs into both tables, in the place of what these say of them. One that cannot be read is left out."""
    known = {row["run"]: row["finished"] == "True" for row in read_table(results / "runs.csv", RUNS)}
    runs, curves = list[Row](), list[Row]()
    for folder in folders:
        if known.get(folder.name) and not Run(folder).is_finished:
            continue  # what is known of the whole run is worth more than a part of another one
        try:
            metrics, timings = read_rows(folder / "metrics.csv"), read_rows(folder / "timings.csv")
            epochs = list(zip(metrics, timings, strict=False))  # a run that works may be between the two
            if epochs:
                runs.append(_summary(folder, *epochs[-1]))
                curves += [_point(folder.name, row, timing) for row, timing in epochs]
        except (UserError, KeyError, TypeError) as error:
            warn(f"{folder} is left out: {error}")
    if runs:
        _replace(results / "curves.csv", CURVES, curves)
        _replace(results / "runs.csv", RUNS, runs)


def record_all(root: Path, results: Path) -> None:
    """The runs in a folder that have the name which `efmdp train` gives them; others were tried for something else."""
    record([path.parent for path in sorted(root.glob("*/config.json")) if _has_usual_name(path.parent)], results)


def _has_usual_name(folder: Path) -> bool:
    try:
        config = (Run(folder).config() or {})["config"]
        network, collisions = NetworkConfig(**config["network"]).name, config.get("collisions")
        usual = default_folder(config["task"], network, config["recipe"], config["seed"], collisions)
    except (UserError, KeyError, TypeError) as error:
        warn(f"{folder} is left out: {error}")
        return False
    return folder.name == usual.name


def _point(run: str, row: Row, timing: Row) -> Row:
    measured = {name: row.get(name, "") for name in CURVES}  # cloning has no steps
    return measured | {"run": run, "minutes": f"{minutes(timing):.2f}"}


def _summary(folder: Path, last: Row, timing: Row) -> Row:
    stored = Run(folder).config()
    if stored is None:
        raise UserError(f"{folder} has no config.json: restore it")
    config = stored["config"]
    options = config.get("options", config)  # of a clone they are those of its demonstrations
    return {
        "run": folder.name,
        "method": stored.get("method", "ddpg"),
        "task": config["task"],
        "collisions": str(bool(options.get("collisions"))),
        "network": NetworkConfig(**config["network"]).name,
        "recipe": config["recipe"],
        "seed": str(config["seed"]),
        "settings": settings_digest(config),
        "finished": str(Run(folder).is_finished),
        "threads": str(config["threads"]),
        "epochs": last["epoch"],
        "steps": last.get("steps", ""),
        "updates": last["updates"],
        "minutes": f"{minutes(timing):.1f}",
        "peak_mb": f"{float(timing['peak_mb']):.0f}",
        "best_sha256": _digest(folder / "policy-best.safetensors"),
        "last_sha256": _digest(folder / "policy-last.safetensors"),
        "commit": stored["versions"]["commit"],
        "command": training_command(stored),
    }


def settings_digest(config: dict[str, Any]) -> str:
    """What tells the settings of runs apart: all of their config but what the same run may have otherwise elsewhere."""
    kept = {name: value for name, value in config.items() if name not in ("threads", "demos")}
    if not kept.get("subsets"):
        kept.pop("subsets", None)  # older runs do not know it, and are what they would be without it
    return digest_of(json.dumps(kept, sort_keys=True).encode())


def training_command(stored: dict[str, Any]) -> str:
    """What trains such a run anew, from its config.json; demonstrations are thought to lie in demos/."""
    config = stored["config"]
    if stored.get("method") == "bc":
        what = ["bc", "--demos", str(Path("demos") / Path(stored["demos"]).name)]
        what += ["--demos-used", str(config["demos_used"])]
        recipe = ["--recipe", "smoke"] if config["recipe"].startswith("smoke") else []
    elif config["recipe"] in RECIPES:
        what, recipe = ["ddpg", "--task", config["task"]], RECIPES[config["recipe"]]
    else:
        raise UserError(f"no option asks for the recipe {config['recipe']!r}: known are {', '.join(RECIPES)}")
    asked = {
        "--network": config["network"]["kind"],
        "--seed": config["seed"],
        "--collisions": config.get("collisions"),
        "--max-entities": config["network"]["max_entities"],
        "--threads": config["threads"] if config["threads"] != 2 else None,  # what efmdp train takes by itself
    }
    options = [word for name, value in asked.items() if value is not None for word in (name, str(value))]
    return shlex.join(["efmdp", "train", *what, *recipe, *options])


def _digest(policy: Path) -> str:
    return digest(policy) if policy.exists() else ""  # a curriculum has no best policy before its last stage


def _replace(path: Path, fields: Sequence[str], rows: Sequence[Row]) -> None:
    """The new rows of runs in the place of their old ones; runs are in the order of their names."""
    new = {row["run"] for row in rows}
    with only_writer(path):
        others = [row for row in read_table(path, fields) if row["run"] not in new]
        write_table(path, sorted([*others, *rows], key=lambda row: row["run"]))
