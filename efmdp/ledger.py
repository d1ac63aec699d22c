"""What every run counts and writes down, however it learns: epochs, success on the selection seeds, time, policies."""

import importlib.util
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from efmdp.entities import EntityEnv
from efmdp.evaluate import SELECTION, Agent, about_policy, play_episodes, policy_tensors, stream_seed
from efmdp.networks import NetworkConfig
from efmdp.process import peak_megabytes
from efmdp.runs import CLOCK, Run, clear_errors


class RunConfig(Protocol):
    """What all kinds of runs have in their configuration."""

    @property
    def network(self) -> NetworkConfig: ...
    @property
    def recipe(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def rounds_per_epoch(self) -> int: ...
    @property
    def selection_episodes(self) -> int: ...


Config = TypeVar("Config", bound=RunConfig)


class Ledger(Generic[Config]):
    """Counters of one run, and the row that ends an epoch. `COUNTERS` are what a checkpoint has of them."""

    COUNTERS: tuple[str, ...] = ("epoch", "round", "best", "finished", "success", "success_on")

    def __init__(self, config: Config, run: Run) -> None:
        self.config, self.run = config, run
        self.epoch = self.round = 0
        self.best = -1.0
        self.finished = False
        self.success: float | None = None  # on the selection seeds, in the last epoch
        self.success_on: str | None = None  # the task of that epoch
        self.sums: dict[str, float] = {}  # of what was measured in the rounds of this epoch
        self.clock = dict.fromkeys(CLOCK, 0.0)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.clock[part] += time.perf_counter() - began

    def measure(self, measured: dict[str, float]) -> None:
        """Take in what one round measured."""
        for name, value in measured.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def end_epoch(self, agent: Agent, env: EntityEnv, task: str, counts: dict[str, int], may_be_best: bool) -> None:
        """Play the selection episodes, write the row of this epoch, and the policies."""
        config = self.config
        with self.timed("evaluate"):
            outcome = play_episodes(env, agent, config.selection_episodes, stream_seed(config.seed, SELECTION))
        self.success, self.success_on = float(outcome.success_once.mean()), task
        self.epoch += 1
        self.round = 0
        metrics = {
            "epoch": self.epoch,
            "task": task,
            **counts,
            "success_once": self.success,
            "success_end": float(outcome.success_end.mean()),
            "entities_solved": float(outcome.solved.mean()),
            **{name: value / config.rounds_per_epoch for name, value in self.sums.items()},
        }
        self.sums = {}
        self.run.append_row("metrics.csv", metrics)
        self._show_on_tensorboard(metrics)
        self.run.append_row("timings.csv", {"epoch": self.epoch, **self.clock, "peak_mb": peak_megabytes()})
        about = about_policy(agent, config.network, env, task)
        about |= {"recipe": config.recipe, "seed": config.seed, "epoch": self.epoch, **counts}
        about["selection_success"] = self.success
        self.run.write_policy("last", policy_tensors(agent), about)
        if may_be_best and self.success > self.best:
            self.best = self.success
            self.run.write_policy("best", policy_tensors(agent), about)

    def _show_on_tensorboard(self, metrics: dict[str, Any]) -> None:
        """Scalars for TensorBoard, where it is installed; metrics.csv is what counts."""
        if importlib.util.find_spec("tensorboard") is None:
            return
        from torch.utils.tensorboard import SummaryWriter  # takes seconds to import

        folder = str(self.run.path / "tensorboard")
        with clear_errors(self.run.path), SummaryWriter(folder, purge_step=self.epoch) as board:
            for name, value in metrics.items():
                if name not in ("epoch", "task"):
                    board.add_scalar(name, value, self.epoch)

    def standing(self, task: str, speed: str, epochs_left: int) -> dict[str, Any]:
        """Where the run is, for whoever follows it."""
        return {
            "epoch": self.epoch,
            "last": self.epoch + epochs_left,
            "round": self.round,
            "task": task,
            "speed": speed,
            "success": self.success,
            "success_on": self.success_on,
        }

    @property
    def checkpoint_number(self) -> int:
        return self.epoch * self.config.rounds_per_epoch + self.round

    def counted(self) -> dict[str, Any]:
        """What a checkpoint keeps of all this."""
        return {
            "counters": {name: getattr(self, name) for name in self.COUNTERS},
            "sums": self.sums,
            "clock": self.clock,
        }

    def recount(self, state: dict[str, Any]) -> None:
        """The inverse of `counted`."""
        for name, value in state["counters"].items():
            setattr(self, name, value)
        self.sums, self.clock = state["sums"], state["clock"]
