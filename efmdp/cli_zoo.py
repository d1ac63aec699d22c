"""efmdp zoo: trained policies to look at, to add to, and to share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.markup import escape
from rich.table import Table

from efmdp import zoo
from efmdp.entities import UserError
from efmdp.progress import console, say

CAPTION = "success on test episodes with its 95 % interval; steps and minutes of the whole training"


@dataclass
class ZooList:
    """List all policies, with where they come from and how good they are."""


@dataclass
class ZooAdd:
    """Put the best policies of runs into the zoo, each measured on test episodes of its own task.

    An entry of another seed or run is not replaced: remove it first."""

    runs: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN..."), tyro.conf.Positional]
    """folders of runs, finished or stopped"""
    episodes: int = 500
    """how many test episodes each"""


@dataclass
class ZooUpload:
    """Put all policies, their provenance and a model card into a model repository of the Hugging Face Hub.

    It is made if needed. Sign in first, with hf auth login, or set HF_TOKEN."""

    repo: Annotated[str, tyro.conf.arg(metavar="OWNER/NAME"), tyro.conf.Positional]
    """the repository"""


@dataclass
class ZooDownload:
    """Bring all policies of a model repository of the Hugging Face Hub into the zoo.

    Each must be what its provenance says. What is there already stays as it is."""

    repo: Annotated[str, tyro.conf.arg(metavar="OWNER/NAME"), tyro.conf.Positional]
    """the repository"""


def zoo_command(
    what: tyro.conf.OmitSubcommandPrefixes[
        tyro.conf.OmitArgPrefixes[
            Annotated[ZooList, tyro.conf.subcommand("list")]
            | Annotated[ZooAdd, tyro.conf.subcommand("add")]
            | Annotated[ZooUpload, tyro.conf.subcommand("upload")]
            | Annotated[ZooDownload, tyro.conf.subcommand("download")]
        ]
    ] = ZooList(),  # noqa: B008
) -> int:
    """Trained policies by name: zoo:3-push/deep-set is taken wherever a run or a policy file is. Alone, list them."""
    match what:
        case ZooList():
            _list()
        case ZooAdd():
            _add(what)
        case ZooUpload():
            say(f"{what.repo}: {len(zoo.upload(what.repo))} policies, as in {zoo.folder()}")
        case ZooDownload():
            found = zoo.download(what.repo)
            say(f"{zoo.folder()}: {len(found)} policies of {what.repo}. Try: efmdp watch {zoo.PREFIX}{found[0].name}")
    return 0


def _list() -> None:
    found = zoo.entries()
    if not found:
        say(f"there are no policies in {zoo.folder()} yet: efmdp zoo add RUN adds one, efmdp zoo download brings some")
        return
    table = Table(box=None, padding=(0, 1, 0, 0), caption=CAPTION)
    for column in zoo.COLUMNS:
        heading = column.replace(" ", "\n", 1)  # narrow, so that names have room; one that is cut off names nothing
        table.add_column(heading, no_wrap=column != "name", overflow="fold")
    for entry in found:
        table.add_row(*map(escape, entry.cells))
    console.print(table)
    say(f"use one: efmdp watch {zoo.PREFIX}{found[0].name}")


def _add(what: ZooAdd) -> None:
    import torch

    from efmdp.publish import publish  # torch takes seconds to import

    if not what.runs:
        raise UserError("no run is named: name at least one run's folder")
    torch.set_num_threads(1)  # threads of torch and of the simulation get in each other's way
    for run in what.runs:
        entry = publish(run, what.episodes)
        say(f"{zoo.PREFIX}{entry.name}: success {entry.success} on {what.episodes} test episodes of {entry.task}")
