"""Every task of the suite is an Entity-Factored MDP: all of them through the conformance check."""

import pytest

from efmdp.conformance import CHECKS, check, report
from efmdp.env import FetchEnv
from efmdp.scripted import Scripted
from efmdp.tasks import PAPER_TASKS, parse_task


def assert_conforms(name: str, profile: str = "fast", num_envs: int = 8, **options) -> None:
    task = parse_task(name, **options)
    results = check(lambda n: FetchEnv(task, n, profile), Scripted(num_envs), num_envs=num_envs)
    assert len(results) == len(CHECKS)
    assert all(result.passed for result in results), "\n" + report(results)


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_every_task_of_the_paper(name: str) -> None:
    entities = parse_task(name).entities
    assert_conforms(name, num_envs=8 if entities <= 3 else 4)


def test_collisions() -> None:
    assert_conforms("3-Push", collisions=True)


def test_dense_reward() -> None:
    assert_conforms("1-Switch+1-Push", reward="dense")


def test_wide_layout() -> None:
    assert_conforms("8-Push", layout="wide", num_envs=2)


def test_reference_profile() -> None:
    assert_conforms("1-Push", profile="reference", num_envs=4)
