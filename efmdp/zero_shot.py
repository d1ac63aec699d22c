"""Trained policies, without more training, on other numbers of entities (extrapolation) and on skills combined
(stitching), beside the oracle on the same test episodes."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from rich.progress import track
from rich.table import Table

from efmdp.entities import Array, CannotPlay, UserError
from efmdp.env import FetchEnv
from efmdp.evaluate import TEST, LearnedPolicy, play_episodes, policy_file, stream_seed
from efmdp.networks import NetworkConfig
from efmdp.oracle import SUBTASKS, make_oracle, subtasks
from efmdp.progress import console
from efmdp.rollout import Policy
from efmdp.runs import Run, read_policy
from efmdp.scripted import SCRIPTED, Scripted, code_sha256
from efmdp.stats import Rate, interquartile_mean, mean_over_seeds, probability_of_improvement, success_rate
from efmdp.tables import Row, grouped, only_writer, read_table, write_table
from efmdp.tasks import FAMILIES, STITCHED, Layout, Task, parse_task, stitched

WHO = ("network", "recipe", "seed", "policy", "sha256")
WHERE = ("trained_on", "task", "layout", "entities", "role", "collisions", "gripper", "episodes")
HOW_WELL = ("success_once", "low", "high", "success_end", "entities_solved", "reason")
FIELDS = (*WHO, *WHERE, *HOW_WELL)
# What makes a row the answer to a question that need not be asked again
IDENTITY = ("sha256", "trained_on", "task", "layout", "collisions", "gripper", "episodes")

# The table of statistics: the mean over seeds on a task, and over test tasks the other two
STUDY = ("trained_on", "collisions", "gripper", "episodes")  # what all rows of one comparison have in common
SUMMARY = (*STUDY, "statistic", "network", "recipe", "against", "task", "layout", "seeds", "value", "low", "high")
MEAN, MIDDLE, BETTER = "mean", "interquartile mean", "probability of improvement"

ORACLE = "oracle"
CAPTION = (
    "success in %: all subgoals met at the same moment; in brackets the 95 % interval over seeds (Student's t, "
    "at least as wide as that of all episodes); where there is one seed, that of its episodes (Wilson)"
)


class Trial(NamedTuple):
    """A task that every policy plays."""

    task: Task
    role: Literal["train", "test"]


class Entrant(NamedTuple):
    """A policy under test: what its rows say about it, and how to have it play an environment."""

    about: Row  # the columns WHO
    policy_for: Callable[[FetchEnv], Policy]


class Question(NamedTuple):
    """How well does it play this task?"""

    trial: Trial
    entrant: Entrant
    row: Row  # the answer but for the columns HOW_WELL


Plan = Callable[[str, dict[str, Any]], list[Trial]]


def learning(trained_on: str, physics: Mapping[str, Any]) -> list[Trial]:
    """What they were trained on."""
    return [Trial(parse_task(trained_on, **physics), "train")]


def extrapolation(trained_on: str, physics: Mapping[str, Any], wide: bool) -> list[Trial]:
    """The family of the task that the policies were trained on, with their physics."""
    family = next((family for family in FAMILIES if trained_on in family.members), None)
    if family is None:
        ranges = "; ".join(f"{family.members[0]} to {family.members[-1]}" for family in FAMILIES)
        raise UserError(f"{trained_on} has no family to extrapolate to: name runs trained on one of {ranges}")
    places: list[tuple[str, Layout]] = [(name, "paper") for name in family.members]
    if wide:
        places += [(name, "wide") for name in family.wide]
    return [
        Trial(parse_task(name, layout=layout, **physics), "train" if name == trained_on else "test")
        for name, layout in places
    ]


def stitching(trained_on: str, physics: Mapping[str, Any]) -> list[Trial]:
    """The tasks of the mixture that the policies were trained on, and the one that needs the skills of both.

    Where they all stand on one table, what was trained is the mixture itself.
    """
    test = stitched(trained_on)
    if test is None:
        raise UserError(f"{trained_on} has no skills to stitch: name runs trained on {' or '.join(STITCHED)}")
    train = trained_on.split("|")
    return [
        *(Trial(parse_task(name, **physics), "train") for name in train),
        Trial(parse_task(test, **physics), "test"),
    ]


def compare(
    runs: Sequence[Path],
    sources: Mapping[str, str],
    plan: Plan,
    episodes: int,
    out: Path | None,
    which: Literal["best", "last"] = "best",
) -> list[Row]:
    """Every policy, and last the oracle, on every task of the plan; returns their rows, task by task.

    Of a run it is the best policy on its selection seeds, or the last one. Rows that the table `out` holds already are
    not played again; new ones are added to it one by one.
    """
    if not runs:
        raise UserError("no run is named: name at least one run's folder or policy file")
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}: play at least one")
    asked = _asked(runs, sources, plan, episodes, which)
    table = _by_identity(out)
    missing = [each for each in asked if _identity(each.row) not in table]
    if missing and out is not None:
        with only_writer(out):  # what cannot be written is refused now, not after the work
            pass
    for trial, entrant, question in track(missing, "testing", console=console, disable=not console.is_terminal):
        table |= _by_identity(out)  # another process may have added some
        if _identity(question) in table:
            continue
        table[_identity(question)] = row = question | _answer(trial, entrant, episodes)
        if out is not None:
            with only_writer(out):
                write_table(out, list((_by_identity(out) | {_identity(row): row}).values()))
        if not console.is_terminal:
            said = row["reason"] or f"{100 * float(row['success_once']):.1f} % of {episodes} episodes"
            print(f"{entrant.about['network']} ({entrant.about['policy']}) on {trial.task.name}: {said}", flush=True)
    return [table[_identity(each.row)] for each in asked]


def unanswered(
    runs: Sequence[Path],
    sources: Mapping[str, str],
    plan: Plan,
    episodes: int,
    out: Path,
    which: Literal["best", "last"] = "best",
) -> int:
    """How much `compare` would play: rows that the table does not hold yet."""
    table = _by_identity(out)
    return sum(_identity(each.row) not in table for each in _asked(runs, sources, plan, episodes, which))


def _asked(
    runs: Sequence[Path], sources: Mapping[str, str], plan: Plan, episodes: int, which: Literal["best", "last"]
) -> list[Question]:
    """Every policy, and last the oracle, on every task of the plan."""
    policies = {path: LearnedPolicy(policy_file(path, which)) for path in runs}
    trained_on, physics = _what_all_know(policies)
    trials = plan(trained_on, physics)
    learned = [_learned(policy_file(path, which), policy) for path, policy in policies.items()]
    entrants = [*_different_seeds(learned), _oracle(sources, [trial.task for trial in trials])]
    return [
        Question(trial, entrant, _question(trial, entrant, trained_on, episodes))
        for trial in trials
        for entrant in entrants
    ]


def show(rows: Sequence[Row], title: str) -> Table:
    """A line a task, a column an architecture and recipe, the oracle last."""
    table = Table("task", title=title, caption=CAPTION)
    columns = grouped(rows, "network", "recipe")
    for (network, recipe), mine in columns.items():
        seeds = "" if network == ORACLE else f"seeds: {len({row['sha256'] for row in mine})}"
        table.add_column("\n".join(line for line in (network, recipe, seeds) if line), justify="right")
    for (task, layout, role), here in grouped(rows, "task", "layout", "role").items():
        remarks = (" (trained on)" if role == "train" else "") + (" (wide)" if layout == "wide" else "")
        cells = grouped(here, "network", "recipe")
        table.add_row(task + remarks, *(cell(cells[column]) for column in columns))
    return table


def summarise(rows: Sequence[Row]) -> list[Row]:
    """The statistics of these rows, tidy: the success of each architecture on each task, over the test tasks together,
    and how often one architecture beats another there."""
    study, found = [rows[0][name] for name in STUDY], list[Row]()

    def add(statistic: str, who: tuple[str, str], against: str, tasks: str, layout: str, seeds: int, r: Rate) -> None:
        numbers = [str(round(number, 4)) for number in r]
        found.append(
            dict(zip(SUMMARY, (*study, statistic, *who, against, tasks, layout, str(seeds), *numbers), strict=True))
        )

    played = [row for row in rows if not row["reason"]]
    for (task, layout, network, recipe), mine in grouped(played, "task", "layout", "network", "recipe").items():
        seeds = 0 if network == ORACLE else len(mine)
        add(MEAN, (network, recipe), "", task, layout, seeds, over_seeds(mine))
    tasks, scores = _test_scores(rows)
    rng, together = np.random.default_rng(0), " ".join(tasks)
    for who, ours in scores.items():
        add(MIDDLE, who, "", together, "paper", len(ours), interquartile_mean(ours, rng))
    for (who, ours), (other, theirs) in combinations(scores.items(), 2):
        rate = probability_of_improvement(ours, theirs, rng)
        add(BETTER, who, " ".join(other), together, "paper", min(len(ours), len(theirs)), rate)
    return found


def write_summary(out: Path, statistics: Sequence[Row]) -> Path:
    """Beside the table `out`, in the place of earlier statistics of the same studies; returns where."""
    path = out.with_stem(f"{out.stem}-summary")
    with only_writer(path):
        studies = grouped(read_table(path, SUMMARY), *STUDY) | grouped(statistics, *STUDY)
        write_table(path, [row for study in studies.values() for row in study])
    return path


def findings(rows: Sequence[Row], statistics: Sequence[Row]) -> Iterator[str]:
    """What the table does not show: who cannot play what, and the architectures over all test tasks together.

    `statistics` are those of `summarise`."""
    for network, task, reason in grouped([row for row in rows if row["reason"]], "network", "task", "reason"):
        yield f"{network} cannot play {task}: {reason}"
    over_tasks = [row for row in statistics if row["statistic"] != MEAN]
    if over_tasks:
        yield f"over {over_tasks[0]['task'].replace(' ', ', ')} (bootstrap intervals over seeds):"
    for row in over_tasks:
        rate = Rate(*(float(row[name]) for name in ("value", "low", "high")))
        who = f"{row['network']} {row['recipe']}".strip()
        if row["statistic"] == MIDDLE:
            yield f"  {who}: interquartile mean {rate}"
        else:
            yield f"  {who} better than {row['against']}: in {rate} of all pairs of seeds"


def _test_scores(rows: Sequence[Row]) -> tuple[list[str], dict[tuple[str, str], Array]]:
    """The test tasks of the paper's layout that all can play, and there the success of each network's and recipe's
    seeds (S, T), those that were tested on all of them."""
    counted = [row for row in rows if (row["role"], row["layout"]) == ("test", "paper") and row["network"] != ORACLE]
    unable = {row["task"] for row in counted if row["reason"]}
    able = [row for row in counted if row["task"] not in unable]
    tasks = list(dict.fromkeys(row["task"] for row in able))
    scores: dict[tuple[str, str], list[Array]] = {}
    for (network, recipe, _), mine in grouped(able, "network", "recipe", "sha256").items():
        played = {row["task"]: row for row in mine}
        if played.keys() == set(tasks):
            scores.setdefault((network, recipe), []).append(_successes([played[task] for task in tasks]))
    return tasks, {who: np.stack(seeds) for who, seeds in scores.items()}


def cell(rows: Sequence[Row]) -> str:
    """What a table shows of the seeds of one architecture on one task."""
    played = [row for row in rows if not row["reason"]]
    if not played:
        return "-"
    value, low, high = (100 * number for number in over_seeds(played))
    return f"{value:.1f} ({low:.0f} to {high:.0f})"


def over_seeds(rows: Sequence[Row]) -> Rate:
    """Their mean success with its 95 % interval, which is over the episodes where there is one seed.

    Of several it is at least as wide as that of all their episodes: seeds that happen to agree make nothing certain."""
    if len(rows) == 1:
        return Rate(*(float(rows[0][name]) for name in ("success_once", "low", "high")))
    value, low, high = mean_over_seeds(_successes(rows))
    episodes = sum(int(row["episodes"]) for row in rows)
    together = success_rate(round(value * episodes), episodes)
    return Rate(value, max(0.0, min(low, together.low)), min(1.0, max(high, together.high)))


def _successes(rows: Sequence[Row]) -> Array:
    return np.array([float(row["success_once"]) for row in rows])


def _what_all_know(policies: Mapping[Path, LearnedPolicy]) -> tuple[str, dict[str, Any]]:
    """The task and the physics that all were trained on."""
    known = {(policy.task, tuple(sorted(policy.physics.items()))): path for path, policy in policies.items()}
    if len(known) > 1:
        (first, path), (second, other), *_ = known.items()
        raise UserError(f"{path} was trained on {_words(*first)}, {other} on {_words(*second)}: compare like with like")
    ((task, physics),) = known
    return task, dict(physics)


def _words(task: str, physics: tuple[tuple[str, bool], ...]) -> str:
    """
    >>> _words("3-Push", (("collisions", True), ("gripper", False)))
    '3-Push (collisions on, gripper off)'
    """
    options = ", ".join(f"{name} {'on' if there else 'off'}" for name, there in physics)
    return f"{task} ({options})"


def identify(file: Path) -> Row:
    """The columns WHO of a policy, from its file, or where that does not say, from its run's folder."""
    config: dict[str, Any] = (Run(file.parent).config() or {}).get("config", {})
    about = {"recipe": "", "seed": ""} | config | read_policy(file)[1]
    who = (
        NetworkConfig(**about["network"]).name,
        about["recipe"],
        str(about["seed"]),
        f"{file.parent.name}/{file.name}" if config else file.name,
        digest(file),
    )
    return dict(zip(WHO, who, strict=True))


def digest(file: Path) -> str:
    """What tables tell policies apart by."""
    return digest_of(file.read_bytes())


def _learned(file: Path, policy: Policy) -> Entrant:
    return Entrant(identify(file), lambda _: policy)


def _different_seeds(learned: Sequence[Entrant]) -> Iterable[Entrant]:
    """A policy that is named twice counts once; two policies of one seed are no two seeds."""
    different = {entrant.about["sha256"]: entrant for entrant in learned}
    by_seed: dict[tuple[str, ...], Entrant] = {}
    for entrant in different.values():
        about = entrant.about
        other = by_seed.setdefault((about["network"], about["recipe"], about["seed"]), entrant)
        if other is not entrant and about["seed"]:
            which = f"{about['network']} {about['recipe']}, seed {about['seed']}"
            raise UserError(f"{other.about['policy']} and {about['policy']} are both {which}: name one of them")
    return different.values()


def _oracle(sources: Mapping[str, str], tasks: Sequence[Task]) -> Entrant:
    """The oracle, after making sure that it has all that the tasks need."""
    for task in tasks:
        make_oracle(1, task, sources)
    used = {name: sources[name] for name in SUBTASKS if any(name in subtasks(task) for task in tasks)}
    scripted = [source == SCRIPTED for source in used.values()]
    recipe = SCRIPTED if all(scripted) else "partly scripted" if any(scripted) else "trained"
    files = {name: policy_file(Path(source), "best") for name, source in used.items() if source != SCRIPTED}
    digests = {name: code_sha256(Scripted) for name in used}
    digests |= {name: digest(file) for name, file in files.items()}
    who = (ORACLE, recipe, "", _equations(used), oracle_digest(digests))
    return Entrant(dict(zip(WHO, who, strict=True)), lambda env: make_oracle(env.num_envs, env.task, sources))


def oracle_digest(parts: Mapping[str, str]) -> str:
    """What tables tell oracles apart by: the digests of who solves their subtasks, in the order of SUBTASKS."""
    return digest_of(_equations(parts).encode())


def _equations(pairs: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in pairs.items())


def _question(trial: Trial, entrant: Entrant, trained_on: str, episodes: int) -> Row:
    task = trial.task
    flags = (str(task.collisions), str(task.gripper))
    where = (trained_on, task.name, task.layout, str(task.entities), trial.role, *flags, str(episodes))
    return entrant.about | dict(zip(WHERE, where, strict=True))


def _answer(trial: Trial, entrant: Entrant, episodes: int) -> Row:
    """How the test episodes went, the same ones for everybody; or why this policy cannot play them."""
    env = FetchEnv(trial.task, min(episodes, 100))
    try:
        outcome = play_episodes(env, entrant.policy_for(env), episodes, stream_seed(0, TEST))
    except CannotPlay as error:
        return dict.fromkeys(HOW_WELL, "") | {"reason": str(error)}
    rate = success_rate(int(outcome.success_once.sum()), episodes)
    numbers = (*rate, float(outcome.success_end.mean()), float(outcome.solved.mean()))
    return dict(zip(HOW_WELL, (*(str(round(number, 4)) for number in numbers), ""), strict=True))


def _by_identity(out: Path | None) -> dict[tuple[str, ...], Row]:
    return {_identity(row): row for row in read_table(out, FIELDS)}


def _identity(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in IDENTITY)


def digest_of(data: bytes) -> str:
    """Enough of the SHA-256 to tell policies apart."""
    return hashlib.sha256(data).hexdigest()[:12]
