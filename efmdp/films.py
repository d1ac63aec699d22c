"""Films of what policies do on tasks that they were not trained on, kept in results/films when runs are gone."""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from efmdp.domains import make_env
from efmdp.entities import UserError
from efmdp.env import FetchEnv
from efmdp.evaluate import load_policy
from efmdp.evidence import Evidence
from efmdp.experiments import Evaluating, Experiment, Training
from efmdp.figures import LABELS
from efmdp.tasks import FAMILIES, file_name, stitched
from efmdp.video import film_episodes

WIDTH, HEIGHT = 320, 240
EPISODES = 2


class Film(NamedTuple):
    path: Path
    caption: str


def films_of(experiment: Experiment, evidence: Evidence) -> list[Film]:
    """Of the first seed of each set network: with the most entities, or on what needs both skills.

    Those whose runs are still there are filmed now, unless they were before."""
    wanted: dict[tuple[str, str], Evaluating] = {}
    for test in evidence.shown(experiment) if experiment.name in ("extrapolation", "stitching") else ():
        if test.of.network != "mlp" and isinstance(test.of, Training) and evidence.rows(test):
            wanted.setdefault((test.of.task, test.of.network), test)
    made = [(_film(test, evidence.results / "films"), test) for test in wanted.values()]
    return [
        Film(
            path,
            f"{LABELS[test.of.network]}, trained on {test.of.task}, on {hardest(test.of.task)}: seed {test.of.seed}, "
            f"the first {EPISODES} episodes.",
        )
        for path, test in made
        if path.exists()
    ]


def hardest(trained_on: str) -> str:
    """What its film shows: the most entities of its family, or what needs all skills of a mixture."""
    family = next((family.members for family in FAMILIES if trained_on in family.members), (trained_on,))
    return stitched(trained_on) or family[-1]


def _film(test: Evaluating, folder: Path) -> Path:
    task = hardest(test.of.task)
    path = folder / f"{test.of.name}-on-{file_name(task)}.mp4"
    if not path.exists() and (test.of.folder / "policy-best.safetensors").exists():
        policy = load_policy(test.of.folder, "best")
        env = make_env(task, **policy.physics)
        assert isinstance(env, FetchEnv)
        with suppress(UserError):  # nothing can be rendered here, which the pictures of the tasks say too
            film_episodes(env, policy, EPISODES, 0, path, WIDTH, HEIGHT)
    return path
