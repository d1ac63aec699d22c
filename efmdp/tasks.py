"""Task names: `3-Push`, `2-Switch+2-Push`, `Push+Stack`, `2-Push|Stack`, `2-Push&Stack`. Data only."""

import difflib
import re
from dataclasses import dataclass
from typing import Literal

from efmdp.entities import UserError

Layout = Literal["paper", "wide"]
RewardKind = Literal["sparse", "dense"]

GRAMMAR = (
    "a task is N-Push, N-Switch, N-Switch+M-Push, Stack or Push+Stack; "
    "a mixture joins tasks with as many entities each by '|', as in 2-Switch|2-Push, "
    "or any tasks on one table by '&', as in 2-Switch&2-Push"
)

PUSH_STEPS = STACK_STEPS = 50
SWITCH_STEPS = 20

# Half-widths of the paper's square, which holds 6 entities comfortably, and of the largest rectangle around it that
# stays on the table and within the arm's reach.
PAPER_HALF = 0.15
PAPER_CAPACITY = 6
WIDE_LIMITS = (0.17, 0.28)
WIDE_CAPACITY = int(WIDE_LIMITS[0] * WIDE_LIMITS[1] / PAPER_HALF**2 * PAPER_CAPACITY)


class TaskError(UserError):
    """A task that cannot be; the message says why and what to ask for instead."""


@dataclass(frozen=True)
class Scene:
    """The entities of one task, by what is to be done with them."""

    switches: int = 0
    pushes: int = 0
    stacks: int = 0

    @property
    def cubes(self) -> int:
        """A stack always has two cubes; in Push+Stack the lower one must be pushed first."""
        return 2 if self.stacks else self.pushes

    @property
    def entities(self) -> int:
        return self.switches + self.cubes

    @property
    def horizon(self) -> int:
        return SWITCH_STEPS * self.switches + PUSH_STEPS * self.pushes + STACK_STEPS * self.stacks

    @property
    def name(self) -> str:
        if self.stacks:
            return "Push+Stack" if self.pushes else "Stack"
        parts = [f"{n}-{kind}" for n, kind in ((self.switches, "Switch"), (self.pushes, "Push")) if n]
        return "+".join(parts)


@dataclass(frozen=True)
class Task:
    """One scene, or a mixture from which every episode draws a scene uniformly."""

    scenes: tuple[Scene, ...]
    collisions: bool
    """whether entities collide with each other"""
    gripper: bool
    """whether the fourth action moves the fingers; where not, they are held closed"""
    layout: Layout = "paper"
    reward: RewardKind = "sparse"

    @property
    def name(self) -> str:
        return "|".join(scene.name for scene in self.scenes)

    def table(self, drawn: Scene) -> Scene:
        """All that stands on the table in an episode that draws this scene."""
        return drawn

    def places(self, drawn: Scene) -> tuple[slice, slice]:
        """Which entities on its table are the switches and which the cubes of the drawn scene."""
        return slice(0, drawn.switches), slice(drawn.switches, drawn.entities)

    @property
    def tables(self) -> tuple[Scene, ...]:
        """All different ones."""
        return tuple(dict.fromkeys(self.table(scene) for scene in self.scenes))

    @property
    def entities(self) -> int:
        """On every table."""
        return self.tables[0].entities

    @property
    def horizons(self) -> tuple[int, ...]:
        """How long an episode is, by the scene that it draws."""
        return tuple(scene.horizon for scene in self.scenes)

    @property
    def half_widths(self) -> tuple[float, float]:
        """Half-widths in x and y of the area in which entities and goals lie."""
        if self.layout == "paper" or self.entities <= PAPER_CAPACITY:
            return PAPER_HALF, PAPER_HALF
        area = PAPER_HALF**2 * self.entities / PAPER_CAPACITY  # the density of 6 entities in the paper's square
        x = min(area**0.5, WIDE_LIMITS[0])
        return x, area / x


@dataclass(frozen=True)
class SharedTableTask(Task):
    """A mixture whose scenes all stand on one table: those that an episode does not draw are solved from its start."""

    @property
    def name(self) -> str:
        return "&".join(scene.name for scene in self.scenes)

    def table(self, drawn: Scene) -> Scene:
        """The same for all; on it a cube is a cube, whether it is to be pushed or stacked."""
        switches, cubes = sum(scene.switches for scene in self.scenes), sum(scene.cubes for scene in self.scenes)
        return Scene(switches=switches, pushes=cubes)

    def places(self, drawn: Scene) -> tuple[slice, slice]:
        """Switches come first, those of all scenes, then cubes, each in the order of the scenes.

        >>> task = parse_task("2-Push&1-Switch+1-Push")
        >>> task.places(task.scenes[0]), task.places(task.scenes[1])
        ((slice(0, 0, None), slice(1, 3, None)), (slice(0, 1, None), slice(3, 4, None)))
        """
        before = self.scenes[: self.scenes.index(drawn)]
        switch = sum(scene.switches for scene in before)
        cube = self.table(drawn).switches + sum(scene.cubes for scene in before)
        return slice(switch, switch + drawn.switches), slice(cube, cube + drawn.cubes)

    @property
    def horizons(self) -> tuple[int, ...]:
        return (max(super().horizons),) * len(self.scenes)


def parse_task(
    name: str,
    *,
    collisions: bool | None = None,
    gripper: bool | None = None,
    layout: Layout = "paper",
    reward: RewardKind = "sparse",
) -> Task:
    """The task of that name. Entity collisions and the gripper are on by default as soon as a member stacks.

    >>> parse_task("2-Switch|2-Push").entities, parse_task("2-Switch&2-Push").entities, parse_task("Stack").collisions
    (2, 4, True)
    """
    for option, value, choices in (("layout", layout, ("paper", "wide")), ("reward", reward, ("sparse", "dense"))):
        if value not in choices:
            raise TaskError(f"unknown {option} {value!r}: choose {' or '.join(choices)}")
    for option, flag in (("collisions", collisions), ("gripper", gripper)):
        if flag not in (None, True, False):
            raise TaskError(f"{option} is {flag!r}: choose True, False or None for the task's own")
    if not isinstance(name, str):
        raise TaskError(f"a task is named by a string, not {name!r}: {GRAMMAR}")
    if "|" in name and "&" in name:
        raise TaskError(f"{name!r} joins tasks by '|' and by '&': choose one of them")
    kind = SharedTableTask if "&" in name else Task
    scenes = tuple(_parse_scene(part, name) for part in re.split(r"[|&]", name))
    if kind is Task and len({scene.entities for scene in scenes}) > 1:
        counts = ", ".join(f"{scene.name} has {scene.entities}" for scene in scenes)
        raise TaskError(f"the tasks of a mixture by '|' need equally many entities: {counts}")
    if len(set(scenes)) < len(scenes):
        raise TaskError(f"{name!r} names a task twice: a mixture draws among different tasks")
    stacking = any(scene.stacks for scene in scenes)
    if stacking and not (gripper is not False and collisions is not False):
        raise TaskError(f"{name} stacks: it needs the gripper and entity collisions")
    task = kind(
        scenes,
        collisions=stacking if collisions is None else collisions,
        gripper=stacking if gripper is None else gripper,
        layout=layout,
        reward=reward,
    )
    capacity = PAPER_CAPACITY if layout == "paper" else WIDE_CAPACITY
    if task.entities > capacity:
        wider = f"; the 'wide' layout holds {WIDE_CAPACITY}" if layout == "paper" else ""
        raise TaskError(
            f"{name} does not fit: the {layout!r} layout holds {capacity} entities, not {task.entities}{wider}"
        )
    return task


def gym_id(task: str) -> str:
    """The Gymnasium id of a task; ids allow no `+`, `|` or `&`.

    >>> gym_id("2-Switch+2-Push"), gym_id("2-Push|Stack"), gym_id("2-Push&Stack")
    ('efmdp/Fetch2Switch2Push-v1', 'efmdp/Fetch2PushOrStack-v1', 'efmdp/Fetch2PushAndStack-v1')
    """
    return f"efmdp/Fetch{task.replace('-', '').replace('+', '').replace('|', 'Or').replace('&', 'And')}-v1"


def file_name(title: str) -> str:
    """A title with task names in it as a file's name, which shells leave alone.

    >>> file_name("2-Switch|2-Push-mlp"), file_name("2-Push&Stack-mlp")
    ('2-Switch-or-2-Push-mlp', '2-Push-and-Stack-mlp')
    """
    return title.replace("|", "-or-").replace("&", "-and-")


def _parse_scene(part: str, whole: str) -> Scene:
    if part == "Stack":
        return Scene(stacks=1)
    if part == "Push+Stack":
        return Scene(pushes=1, stacks=1)
    match = re.fullmatch(r"(?:([1-9]\d{0,2})-Switch)?(\+)?(?:([1-9]\d{0,2})-Push)?", part)
    if match is None or bool(match[2]) != bool(match[1] and match[3]) or not part:
        raise TaskError(f"unknown task {whole!r}: {GRAMMAR}. Did you mean {_nearest(whole)!r}?")
    return Scene(switches=int(match[1] or 0), pushes=int(match[3] or 0))


def _nearest(name: str) -> str:
    """The valid name most like this one, whatever its case and the order of its parts."""
    known = PAPER_TASKS + tuple(f"{n}-Switch+{m}-Push" for n in range(1, 6) for m in range(1, 7 - n) if n != m)
    spellings = {spelling: n for n in known for spelling in (n, "+".join(reversed(n.split("+"))))}

    def likeness(spelling: str) -> float:
        return difflib.SequenceMatcher(None, name.lower(), spelling.lower()).ratio()

    return spellings[max(spellings, key=likeness)]


# The tasks of the paper: what is trained and tested in its figures
PUSH_FAMILY = tuple(f"{n}-Push" for n in range(1, 7))
SWITCH_FAMILY = tuple(f"{n}-Switch" for n in range(1, 7))
SWITCH_PUSH_FAMILY = tuple(f"{n}-Switch+{n}-Push" for n in range(1, 4))
STACK_TASKS = ("Stack", "Push+Stack")
MIXTURES = ("2-Switch|2-Push", "2-Push|Stack", "2-Switch&2-Push", "2-Push&Stack")
PAPER_TASKS = PUSH_FAMILY + SWITCH_FAMILY + SWITCH_PUSH_FAMILY + STACK_TASKS + MIXTURES


@dataclass(frozen=True)
class Family:
    """Tasks that differ in the number of entities only: a policy trained on one is tested on the others."""

    members: tuple[str, ...]
    wide: tuple[str, ...]
    """beyond the paper, up to ten entities in the wide layout"""


FAMILIES = (
    Family(PUSH_FAMILY, tuple(f"{n}-Push" for n in range(7, 11))),
    Family(SWITCH_FAMILY, tuple(f"{n}-Switch" for n in range(7, 11))),
    Family(SWITCH_PUSH_FAMILY, tuple(f"{n}-Switch+{n}-Push" for n in range(4, 6))),
)
# A policy trained on the tasks of the mixture is tested on the one that needs the skills of both.
STITCHED = dict(zip(MIXTURES, 2 * ("2-Switch+2-Push", "Push+Stack"), strict=True))


def stitched(mixture: str) -> str | None:
    """The task that needs all skills of a mixture, in whichever order its tasks are named.

    >>> stitched("2-Push|2-Switch")
    '2-Switch+2-Push'
    """
    joined = {frozenset(re.split("([|&])", name)): test for name, test in STITCHED.items()}
    return joined.get(frozenset(re.split("([|&])", mixture)))
