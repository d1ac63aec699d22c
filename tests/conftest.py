"""Whatever a test imports first, MuJoCo is told how to render before it is imported."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import efmdp  # noqa: F401

settings.register_profile("busy", deadline=None)  # a machine that does something else as well is no defect
settings.load_profile("busy")


@pytest.fixture(name="efmdp")
def efmdp_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """efmdp(*arguments) is a command in this process: its exit code, output and errors."""
    import torch

    from efmdp.cli import main

    threads = torch.get_num_threads()

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["efmdp", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    yield run
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def write_run() -> Callable[..., Path]:
    """write_run(path, task, network, seed) writes a run's folder with small policies that were never trained.

    The best and the last one differ."""
    from dataclasses import asdict, replace

    from efmdp.ddpg import DDPG, DDPGConfig
    from efmdp.domains import make_env
    from efmdp.evaluate import about_policy, policy_tensors
    from efmdp.networks import Kind
    from efmdp.recipes import fast, make_network
    from efmdp.runs import Run
    from efmdp.tasks import parse_task

    def write(
        path: Path, task: str, kind: Kind = "deep-set", seed: int = 0, places: int | None = None, **physics: bool
    ) -> Path:
        network = replace(make_network(kind, parse_task(task).entities, places), width=8, feedforward=8)
        env = make_env(task, **physics)
        path.mkdir(parents=True)
        run = Run(path)
        run.write_config({"config": asdict(fast(task, network, seed))})
        for which, drawn in (("best", seed), ("last", seed + 1000)):
            agent = DDPG(network, env.dims, DDPGConfig(), env.usable_actions, drawn)
            run.write_policy(which, policy_tensors(agent), about_policy(agent, network, env, task))
        return path

    return write
