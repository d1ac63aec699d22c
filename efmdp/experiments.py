"""The figures of the paper as data: what is trained, demonstrated, cloned and tested for each. Nothing runs here.

Every step knows the command that does it, the steps that it needs before, and whether it is done; `launch` does the
rest. All folders are relative to where the command is given: runs/, demos/ and results/.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from efmdp import zoo
from efmdp.bc import BCConfig
from efmdp.demos import Demos, disturbance
from efmdp.entities import UserError
from efmdp.evaluate import policy_file
from efmdp.networks import Kind
from efmdp.oracle import SUBTASKS, parse_sources, subtasks
from efmdp.publish import entry_name
from efmdp.recipes import TrainConfig, fast, learning_rate, make_network, paper, places_for, smoke
from efmdp.records import RECIPES, settings_digest
from efmdp.runs import Run, as_stored, default_folder
from efmdp.scripted import SCRIPTED, Scripted, code_sha256
from efmdp.tables import read_table
from efmdp.tasks import MIXTURES, PUSH_FAMILY, SWITCH_FAMILY, SWITCH_PUSH_FAMILY, file_name, parse_task
from efmdp.timing import FIELDS as TIMING_FIELDS
from efmdp.train import short
from efmdp.zero_shot import Plan, digest, extrapolation, learning, stitching, unanswered

RecipeName = Literal["fast", "paper", "smoke"]
Study = Literal["learning", "extrapolation", "stitching", "timing"]

RESULTS = Path("results")
NETWORKS: tuple[Kind, ...] = ("mlp", "deep-set", "self-attention")  # the cheapest first
MOST_PLACES = 6  # of an MLP that is tested on up to so many entities
LEARNED = (*PUSH_FAMILY[:3], *SWITCH_FAMILY[:3], *SWITCH_PUSH_FAMILY[:2])
EXTRAPOLATED = ("3-Push", "3-Switch", "2-Switch+2-Push")
DEMONSTRATIONS = (1000, 2000, 3000, 4000, 5000)
SUBTASK_OF = dict(zip(SUBTASKS, ("1-Push", "1-Switch", "Stack"), strict=True))


@dataclass(frozen=True)
class Training:
    """A run of `efmdp train ddpg`."""

    task: str
    network: Kind
    recipe: str  # as a run's config names it: fast, fast-no-curriculum, paper-fast, paper-slow or smoke
    seed: int = 0
    places: int | None = None
    collisions: bool | None = None
    root: Path = Path("runs")

    needs: ClassVar[tuple["Step", ...]] = ()

    @property
    def config(self) -> TrainConfig:
        network = make_network(self.network, places_for(self.task, parse_task(self.task).entities), self.places)
        match self.recipe.split("-"):
            case ["fast", *others]:
                config = fast(self.task, network, self.seed, curriculum=not others)
            case ["paper", "fast" | "slow" as decay]:
                config = paper(self.task, network, self.seed, decay)
            case ["smoke"]:
                config = smoke(self.task, network, self.seed)
            case _:
                raise ValueError(self.recipe)
        return replace(config, collisions=self.collisions, threads=1)  # so that several share a machine well

    @property
    def settings(self) -> str:
        """What tells runs of this name apart, should the recipe change."""
        return settings_digest(as_stored(self.config))

    @property
    def folder(self) -> Path:
        config = self.config
        return default_folder(self.task, config.network.name, config.recipe, self.seed, self.collisions, self.root)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def is_done(self) -> bool:
        """It is finished, and is what the recipe says today, with whatever number of threads."""
        return is_whole(self.folder) and self._is_this

    @property
    def _is_this(self) -> bool:
        return _stored_settings(self.folder) == self.settings

    @property
    def in_zoo(self) -> str | None:
        """What the zoo calls its best policy, if it was put there, which outlives the run's folder."""
        name = entry_name(as_stored(self.config), _options(self.task, self.collisions))
        entry = zoo.entry(name)
        is_it = entry is not None and entry.is_finished and settings_digest(entry.config) == self.settings
        return f"{zoo.PREFIX}{name}" if is_it else None

    @property
    def best(self) -> str:
        """Where its best policy lies, or will lie, for those who need it only to play."""
        return self.in_zoo or str(self.folder)

    @property
    def command(self) -> list[str]:
        """To begin it; one that was begun goes on with as many threads as it has, and another one is refused."""
        if self._is_this:
            return ["train", "resume", str(self.folder)]
        return [
            *("train", "ddpg", "--task", self.task, "--network", self.network, *RECIPES[self.recipe]),
            *(("--max-entities", str(self.places)) if self.places else ()),
            *(("--collisions", "True") if self.collisions else ()),
            *("--seed", str(self.seed), "--threads", "1", "--out", str(self.folder)),
        ]


@dataclass(frozen=True)
class Collecting:
    """Demonstrations of a task by an agent that was trained on it, or by the scripted controller."""

    task: str
    episodes: int
    expert: Training | None = None

    @property
    def needs(self) -> tuple["Step", ...]:
        return (self.expert,) if self.expert and not self.expert.in_zoo else ()

    @property
    def whose(self) -> str:
        return f"-of-{self.expert.folder.name}" if self.expert else ""

    @property
    def folder(self) -> Path:
        return Path("demos") / f"{file_name(self.task).lower()}{self.whose}"

    @property
    def name(self) -> str:
        return f"demonstrations-{self.folder.name}"

    @property
    def is_done(self) -> bool:
        """There are as many as wanted, and they are what this would collect."""
        about = self._about()
        wanted = {"task": self.task, "options": _options(self.task, self.collisions), "seed": 0}
        is_it = about | wanted == about and not any(disturbance(about).values())
        if not (is_it and all(step.is_done for step in self.needs)):
            return False
        return len(Demos(self.folder)) >= self.episodes and self._is_by(self._source(), about)

    @property
    def collisions(self) -> bool | None:
        return self.expert.collisions if self.expert else None

    @property
    def command(self) -> list[str]:
        wanted = ("--task", self.task, "--from", self._source(), "--episodes", str(self.episodes))
        return ["collect", *wanted, "--out", str(self.folder)]

    def _about(self) -> dict[str, Any]:
        """Of what lies there; nothing if that is nothing."""
        try:
            return Demos(self.folder).about
        except UserError:
            return {}

    def _source(self) -> str:
        """Who shows it, or goes on with it: the zoo may have another policy of the same settings than the run."""
        if self.expert is None:
            return SCRIPTED
        own = str(self.expert.folder)
        return own if self.expert.is_done and self._is_by(own, self._about()) else self.expert.best

    @staticmethod
    def _is_by(source: str, about: dict[str, Any]) -> bool:
        sha256 = code_sha256(Scripted) if source == SCRIPTED else digest(policy_file(source, "best"))
        return str(about.get("policy_sha256")).startswith(sha256)


@dataclass(frozen=True)
class Cloning:
    """A run of `efmdp train bc`."""

    shown: Collecting
    demos_used: int
    network: Kind
    seed: int = 0
    places: int | None = None
    is_smoke: bool = False

    @property
    def needs(self) -> tuple["Step", ...]:
        return (self.shown,)

    @property
    def recipe(self) -> str:
        return self.config.recipe

    @property
    def task(self) -> str:
        return self.shown.task

    @property
    def collisions(self) -> bool | None:
        return self.shown.collisions

    @property
    def config(self) -> BCConfig:
        """But for the demonstrations themselves."""
        network = make_network(self.network, parse_task(self.task).entities, self.places)
        config = BCConfig(
            task=self.task,
            network=network,
            options=_options(self.task, self.collisions),
            demos="",
            demos_used=self.demos_used,
            recipe=f"bc-{self.demos_used}{self.shown.whose}",
            learning_rate=learning_rate(network),
            seed=self.seed,
        )
        return short(config) if self.is_smoke else config

    @property
    def settings(self) -> str:
        """What tells runs of this name apart, should the recipe change."""
        return settings_digest(as_stored(self.config))

    @property
    def folder(self) -> Path:
        config = self.config
        return default_folder(self.task, config.network.name, config.recipe, self.seed)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def is_done(self) -> bool:
        """It is finished, with the demonstrations that are there now."""
        if not (is_whole(self.folder) and self._is_this and self.shown.is_done):
            return False
        return self._stored["demos"] == Demos(self.shown.folder).digest(self.demos_used)

    @property
    def _is_this(self) -> bool:
        return _stored_settings(self.folder) == self.settings

    @property
    def _stored(self) -> dict[str, Any]:
        return (Run(self.folder).config() or {}).get("config", {})

    @property
    def command(self) -> list[str]:
        return [
            *("train", "bc", "--demos", str(self.shown.folder), "--demos-used", str(self.demos_used)),
            *("--network", self.network, "--seed", str(self.seed), "--out", str(self.folder)),
            *("--threads", str(self._stored.get("threads", 1))),  # as it was begun
            *(("--max-entities", str(self.places)) if self.places else ()),
            *(("--recipe", "smoke") if self.is_smoke else ()),
        ]


@dataclass(frozen=True)
class Evaluating:
    """A trained policy by one of the studies of `efmdp evaluate`, which adds to the table of that name in results/."""

    study: Study
    of: Training | Cloning
    episodes: int
    oracle: tuple[Training, ...] = ()
    """for its subtasks, in the order of SUBTASK_OF; scripted where there are none"""
    wide: bool = False
    """extrapolation goes on to ten entities"""

    @property
    def needs(self) -> tuple["Step", ...]:
        run = () if zoo.is_named(self.policy) else (self.of,)
        return (*run, *(part for part in self.oracle if not part.in_zoo))

    @property
    def policy(self) -> str:
        """Of the run; where nothing else of it is needed, the zoo may have it."""
        if isinstance(self.of, Training) and self.study in ("extrapolation", "stitching"):
            return self.of.best
        return str(self.of.folder)

    @property
    def name(self) -> str:
        return f"{self.study}-{self.of.name}"

    @property
    def out(self) -> Path:
        return RESULTS / f"{self.study}.csv"

    @property
    def which(self) -> Literal["best", "last"]:
        """Which policy of the run, by the protocol."""
        return "last" if self.study == "learning" else "best"

    @property
    def plan(self) -> Plan:
        if self.study == "extrapolation":
            return partial(extrapolation, wide=self.wide)
        return stitching if self.study == "stitching" else learning

    @property
    def sources(self) -> list[str]:
        """Who the oracle consists of, as the command line has it."""
        names = {task: name for name, task in SUBTASK_OF.items()}
        return [f"{names[run.task]}={run.best}" for run in self.oracle] or [SCRIPTED]

    @property
    def is_done(self) -> bool:
        if not all(step.is_done for step in self.needs):
            return False
        if self.study == "timing":
            mine = digest(policy_file(self.of.folder, self.which))
            return any(row["sha256"] == mine for row in read_table(self.out, TIMING_FIELDS))
        sources = parse_sources(self.sources)
        return not unanswered([Path(self.policy)], sources, self.plan, self.episodes, self.out, self.which)

    @property
    def command(self) -> list[str]:
        return [
            *("evaluate", self.study, self.policy, "--out", str(self.out)),
            *(() if self.study == "timing" else ("--episodes", str(self.episodes), "--oracle", *self.sources)),
            *(("--wide",) if self.wide else ()),
        ]


def check_unhindered(steps: "Iterable[Step]") -> None:
    """No run of their names has other settings than theirs."""
    runs = [step for step in steps if isinstance(step, Training | Cloning)]
    hindered = [str(run.folder) for run in runs if _stored_settings(run.folder) not in (None, run.settings)]
    if hindered:
        raise UserError(f"{', '.join(hindered)}: trained with other settings than those of today; move it away")


def _options(task: str, collisions: bool | None) -> dict[str, Any]:
    """Of the environment in which it is learned and shown."""
    made = parse_task(task, collisions=collisions)
    return {"collisions": made.collisions, "gripper": made.gripper, "layout": made.layout, "profile": "fast"}


def _stored_settings(folder: Path) -> str | None:
    """Those of the run that lies there, if there is one."""
    stored = Run(folder).config()
    return settings_digest(stored["config"]) if stored else None


def is_whole(folder: Path) -> bool:
    """A finished run with both its policies."""
    return Run(folder).is_finished and all(policy_file(folder, which).exists() for which in ("best", "last"))


Step: TypeAlias = Training | Collecting | Cloning | Evaluating


class Experiment(NamedTuple):
    """A figure of the paper: what it shows, and the tests that it is drawn from, in a sensible order."""

    name: str
    shows: str
    tests: tuple[Evaluating, ...]


def experiments(recipe: RecipeName = "fast", seeds: Iterable[int] = range(5), episodes: int = 500) -> list[Experiment]:
    """All figures. A seed comes before the next one, and cheap networks first: what is stopped can be looked at."""
    plan = _Plan(recipe, tuple(seeds), episodes)
    described = {
        "learning": "RL from scratch: success against steps, eight tasks",
        "imitation": "Behaviour cloning of our RL agents: success against demonstrations, eight tasks",
        "scripted-imitation": "Behaviour cloning of the scripted controllers, tested on 1 to 6 entities",
        "extrapolation": "Trained on one number of entities, tested on others, RL",
        "stitching": "Trained on two tasks, tested on one that needs both, RL",
        "deep-set-size": "Deep Sets small and large: N-Push extrapolation and Push+Stack stitching",
        "collisions": "N-Push extrapolation where cubes collide",
        "timing": "Milliseconds a step and hours of training, N-Push",
    }
    return [
        Experiment(name, shows, tuple(dict.fromkeys(getattr(plan, name.replace("-", "_"))())))
        for name, shows in described.items()
    ]


def chosen(
    everything: Sequence[Experiment],
    names: Sequence[str],
    tasks: Sequence[str] = (),
    networks: Sequence[str] = (),
    demos: Sequence[int] = (),
) -> list[Experiment]:
    """The experiments of those names, with the tests of runs on those tasks, networks and numbers of demonstrations;
    nothing named means all."""
    tests = [test for experiment in everything for test in experiment.tests]
    counts = [str(_demos(test)) for test in tests if _demos(test)]
    check_names("experiment", names, [experiment.name for experiment in everything])
    check_names("task", tasks, [test.of.task for test in tests])
    check_names("network", networks, [test.of.network for test in tests])
    check_names("number of demonstrations", list(map(str, demos)), counts)

    def wanted(test: Evaluating) -> bool:
        asked: tuple[tuple[Sequence[object], object], ...]
        asked = (tasks, test.of.task), (networks, test.of.network), (demos, _demos(test))
        return all(not some or value in some for some, value in asked)

    kept = [
        experiment._replace(tests=tuple(filter(wanted, experiment.tests)))
        for experiment in everything
        if not names or experiment.name in names
    ]
    if not any(experiment.tests for experiment in kept):
        where = ", ".join(map(str, (*tasks, *networks, *demos)))
        raise UserError(f"{', '.join(names) or 'what there is'} has no runs with {where}: see efmdp reproduce --list")
    return kept


def _demos(test: Evaluating) -> int:
    return test.of.demos_used if isinstance(test.of, Cloning) else 0


def check_names(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"choose {', '.join(dict.fromkeys(known))}"
            raise UserError(f"there is no {what} {name!r}: {hint}")


def in_order(tests: Iterable[Evaluating]) -> list[Step]:
    """Everything that they need and they themselves, each once and after what it needs."""
    ordered: dict[Step, None] = {}

    def add(step: Step) -> None:
        for needed in step.needs:
            add(needed)
        ordered.setdefault(step)

    for test in tests:
        add(test)
    return list(ordered)


class _Plan:
    """What each figure is made of, with one recipe."""

    def __init__(self, recipe: RecipeName, seeds: tuple[int, ...], episodes: int) -> None:
        self.recipe, self.seeds, self.episodes = recipe, seeds, episodes
        self.is_smoke = recipe == "smoke"
        self.demonstrations = (10, 20) if self.is_smoke else DEMONSTRATIONS

    def learning(self) -> Iterator[Evaluating]:
        for seed, network, task in product(self.seeds, NETWORKS, LEARNED):
            for run in self._trainings(task, network, seed, scratch=True):
                yield self._test("learning", run)

    def imitation(self) -> Iterator[Evaluating]:
        for seed, network, task, used in product(self.seeds, NETWORKS, LEARNED, self.demonstrations):
            yield self._test("learning", self._clone(task, self._expert(task), network, used, seed))

    def scripted_imitation(self) -> Iterator[Evaluating]:
        few, *_, many = self.demonstrations
        for seed, network, task, used in product(self.seeds, NETWORKS, EXTRAPOLATED[:2], (few, many)):
            run = self._clone(task, None, network, used, seed, MOST_PLACES)
            yield Evaluating("learning", run, self.episodes)
            yield Evaluating("extrapolation", run, self.episodes)

    def extrapolation(self) -> Iterator[Evaluating]:
        for seed, network, task in product(self.seeds, NETWORKS, EXTRAPOLATED):
            yield from self._extrapolate(task, network, seed)

    def stitching(self) -> Iterator[Evaluating]:
        for seed, network, mixture in product(self.seeds, NETWORKS, MIXTURES):
            for run in self._trainings(mixture, network, seed):
                yield self._test("stitching", run)

    def deep_set_size(self) -> Iterator[Evaluating]:
        sizes: tuple[Kind, ...] = ("deep-set", "deep-set-large")
        for seed, network in product(self.seeds, sizes):
            yield from self._extrapolate("3-Push", network, seed)
            for run in self._trainings("2-Push|Stack", network, seed):
                yield self._test("stitching", run)

    def collisions(self) -> Iterator[Evaluating]:
        for seed, network in product(self.seeds, NETWORKS):
            yield from self._extrapolate("3-Push", network, seed, collisions=True)

    def timing(self) -> Iterator[Evaluating]:
        for seed, network, task in product(self.seeds, NETWORKS, PUSH_FAMILY[:3]):
            for run in self._trainings(task, network, seed, scratch=True):
                yield Evaluating("timing", run, self.episodes)

    def _extrapolate(self, task: str, network: Kind, seed: int, collisions: bool | None = None) -> Iterator[Evaluating]:
        """Switches are trained from scratch; cubes, for which that takes Self-Attention too long, with a curriculum."""
        scratch = task in SWITCH_FAMILY
        for run in self._trainings(task, network, seed, scratch):
            places = MOST_PLACES if network == "mlp" else None
            yield self._test("extrapolation", replace(run, places=places, collisions=collisions))

    def _trainings(self, task: str, network: Kind, seed: int, scratch: bool = False) -> Iterator[Training]:
        """One run, or where the paper tries two schedules of exploration, one with each."""
        for recipe in self._recipes(task, scratch):
            yield Training(task, network, recipe, seed)

    def _recipes(self, task: str, scratch: bool) -> list[str]:
        network = make_network("deep-set", 1)
        if self.recipe == "smoke":
            return ["smoke"]
        if self.recipe == "fast":
            return [fast(task, network, 0, curriculum=not scratch).recipe]
        same = paper(task, network, 0, "fast").stages == paper(task, network, 0, "slow").stages
        return ["paper-fast"] if same else ["paper-fast", "paper-slow"]

    def _expert(self, task: str) -> Training:
        """Deep Sets with seed 0 of the learning curves, chosen beforehand and not for its success."""
        return next(self._trainings(task, "deep-set", 0, scratch=True))

    def _clone(
        self, task: str, expert: Training | None, network: Kind, used: int, seed: int, places: int | None = None
    ) -> Cloning:
        shown = Collecting(task, max(self.demonstrations), expert)
        return Cloning(shown, used, network, seed, places if network == "mlp" else None, self.is_smoke)

    def _test(self, study: Study, run: Training | Cloning) -> Evaluating:
        """Beside the oracle of the paper, whose parts were trained by the same recipe."""
        test = Evaluating(study, run, self.episodes, wide=study == "extrapolation")
        needed = {name for trial in test.plan(run.task, {}) for name in subtasks(trial.task)}
        parts = [next(self._trainings(SUBTASK_OF[name], "deep-set", 0)) for name in SUBTASKS if name in needed]
        return replace(test, oracle=tuple(parts))
