"""Films of what policies do on tasks that they were not trained on, kept beside the report when runs are gone."""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from efmdp.domains import make_env
from efmdp.entities import UserError
from efmdp.env import FetchEnv
from efmdp.evaluate import load_policy, policy_file
from efmdp.evidence import Evidence
from efmdp.experiments import Experiment, Training
from efmdp.figures import LABELS
from efmdp.tasks import FAMILIES, file_name, stitched
from efmdp.video import film_episodes

WIDTH, HEIGHT = 320, 240
EPISODES = 2


class Film(NamedTuple):
    path: Path
    caption: str


def films_of(experiment: Experiment, evidence: Evidence, where: Path) -> list[Film]:
    """Of the first seed of each set network: with the most entities, or on what needs both skills.

    Those whose runs are still there are filmed now, unless they were before."""
    wanted: dict[tuple[str, str], Training] = {}
    for test in evidence.shown(experiment) if experiment.name in ("extrapolation", "stitching") else ():
        if test.of.network != "mlp" and isinstance(test.of, Training) and evidence.rows(test):
            wanted.setdefault((test.of.task, test.of.network), test.of)
    films = []
    for run in wanted.values():
        network, trained_on, seed = LABELS[run.network], run.task, run.seed
        path = where / "films" / f"{run.name}-on-{file_name(hardest(trained_on))}-{evidence.best(run)}.mp4"
        _film(run, hardest(trained_on), path)
        if path.exists():
            told = f"{network}, trained on {trained_on}, on {hardest(trained_on)}: seed {seed}, {EPISODES} episodes"
            films.append(Film(path, told))
    return films


def hardest(trained_on: str) -> str:
    """What its film shows: the most entities of its family, or what needs all skills of a mixture."""
    family = next((family.members for family in FAMILIES if trained_on in family.members), (trained_on,))
    return stitched(trained_on) or family[-1]


def _film(run: Training, task: str, path: Path) -> None:
    """Unless it is there, or the run is not, or nothing can be rendered here, which the tasks' pictures say too."""
    if path.exists() or not policy_file(run.best, "best").exists():
        return
    with suppress(UserError):
        policy = load_policy(run.best, "best")
        env = make_env(task, **policy.physics)
        assert isinstance(env, FetchEnv)
        film_episodes(env, policy, EPISODES, 0, path, WIDTH, HEIGHT)
