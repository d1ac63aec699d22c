"""What is said while something works: lines, and a bar for training."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from efmdp.bc import BCConfig  # torch takes seconds to import
    from efmdp.recipes import TrainConfig

console = Console()


def say(text: str) -> None:
    _print(console, text)


def warn(text: str) -> None:
    _print(Console(stderr=True), text, "bold red")


def _print(where: Console, text: str, style: str | None = None) -> None:
    """A line as it is: names may hold brackets, and paths must not be broken."""
    where.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def training_bar(
    config: "TrainConfig | BCConfig", epochs: int | None = None, minutes: float | None = None
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar that fills with the epochs, or the minutes where these are over first; yields what tells it of a round.

    In a log file there is no bar but a line an epoch.
    """
    began = time.monotonic()
    with Progress(
        TextColumn("{task.fields[now]}"),
        BarColumn(),
        TextColumn("epoch {task.fields[epoch]}/{task.fields[last]} · {task.fields[speed]} · {task.fields[success]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        start: dict[str, Any] = {
            "now": config.task,
            "epoch": 0,
            "last": epochs or config.epochs,
            "speed": "starting",
            "success": "",
        }
        bar = progress.add_task("", total=1.0, **start)

        def show(now: dict[str, Any]) -> None:
            success = "" if now["success"] is None else f"success {now['success']:.0%} on {now['success_on']}"
            last = min(epochs or now["last"], now["last"])  # fewer than planned when a stage is solved early
            completed = (now["epoch"] + now["round"] / config.rounds_per_epoch) / last
            if minutes is not None:
                completed = min(1.0, max(completed, (time.monotonic() - began) / (60 * minutes)))
            shown = {"now": now["task"], "epoch": now["epoch"], "last": last, "speed": now["speed"], "success": success}
            progress.update(bar, completed=completed, **shown)
            if now["round"] == 0 and not console.is_terminal:
                print(f"epoch {now['epoch']}, {now['speed']}, {success}", flush=True)

        yield show
