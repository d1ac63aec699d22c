"""Whatever a test imports first, MuJoCo is told how to render before it is imported."""

from collections.abc import Callable
from pathlib import Path

import pytest

import efmdp  # noqa: F401


@pytest.fixture(scope="session")
def write_run() -> Callable[..., Path]:
    """write_run(path, task, network, seed) writes a run's folder with a small policy that was never trained."""
    from dataclasses import asdict, replace

    from efmdp.ddpg import DDPG, DDPGConfig
    from efmdp.domains import make_env
    from efmdp.evaluate import about_policy, policy_tensors
    from efmdp.networks import Kind
    from efmdp.recipes import fast, make_network
    from efmdp.runs import Run

    def write(path: Path, task: str, kind: Kind = "deep-set", seed: int = 0, places: int | None = None) -> Path:
        network = replace(make_network(kind, task, places), width=8, feedforward=8)
        env = make_env(task)
        agent = DDPG(network, env.dims, DDPGConfig(), env.usable_actions, seed)
        path.mkdir(parents=True)
        run = Run(path)
        run.write_config({"config": asdict(fast(task, network, seed))})
        for which in ("best", "last"):
            run.write_policy(which, policy_tensors(agent), about_policy(agent, network, env, task))
        return path

    return write
