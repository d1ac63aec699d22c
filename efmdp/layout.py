"""Where entities start and where they should go: one episode's layout, drawn from one generator."""

import math
from typing import NamedTuple

import numpy as np

from efmdp.entities import OBJECTIVES, Array
from efmdp.scene import CUBE_HALF, CUBE_REST_HEIGHT, GRIPPER_START, SWITCH_RANGE
from efmdp.tasks import Scene, Task, TaskError

SEPARATION = 0.1  # between entities, from an entity to the gripper, between goals, from a goal to a switch
THRESHOLD = OBJECTIVES["sparse"].threshold
DARTS = 32  # thrown at once for each entity
ATTEMPTS = 1000  # layouts begun before giving up; a layout of the paper needs a handful


class EpisodeLayout(NamedTuple):
    starts: Array  # (N, 2) on the table, switches first
    goals: Array  # (N, 3) cube positions in metres, or (wanted angle, 0, 0)


def sample_layout(task: Task, scene: Scene, rng: np.random.Generator) -> EpisodeLayout:
    """Draw starts and goals; no push or switch starts within the threshold of its goal, no stack starts solved."""
    center = GRIPPER_START[:2]
    starts = _scatter(task, rng, scene.entities, keep_clear=center[None])
    switches, cubes = starts[: scene.switches], starts[scene.switches :]
    goals = np.zeros((scene.entities, 3))
    goals[: scene.switches, 0] = SWITCH_RANGE * rng.choice((-1, 1), scene.switches)
    cube_goals = goals[scene.switches :]  # a view
    cube_goals[:, 2] = CUBE_REST_HEIGHT
    if scene.stacks:
        base = rng.integers(2)
        cube_goals[1 - base, 2] += 2 * CUBE_HALF
        cube_goals[:, :2] = _scatter(task, rng, 1, switches, cubes[None]) if scene.pushes else cubes[base]
    elif scene.pushes:
        cube_goals[:, :2] = _scatter(task, rng, scene.pushes, switches, cubes[:, None])
    return EpisodeLayout(starts, goals)


def _scatter(task: Task, rng: np.random.Generator, count: int, keep_clear: Array, not_at: Array | None = None) -> Array:
    """`count` points (count, 2), each SEPARATION from the others and from keep_clear (K, 2), and more than the success
    threshold from not_at[i] (count, M, 2). A layout that paints itself into a corner is begun anew."""
    low, size = GRIPPER_START[:2] - task.half_widths, 2 * np.array(task.half_widths)
    fixed: list[list[float]] = keep_clear.tolist()
    avoided: list[list[list[float]]] = [[]] * count if not_at is None else not_at.tolist()
    for _ in range(ATTEMPTS):
        placed = fixed.copy()
        for own in avoided:
            darts = (low + size * rng.random((DARTS, 2))).tolist()  # plain floats: far quicker for so few points
            clear = (
                dart
                for dart in darts
                if all(math.dist(dart, other) > SEPARATION for other in placed)
                and all(math.dist(dart, start) > THRESHOLD for start in own)
            )
            if (spot := next(clear, None)) is None:
                break
            placed.append(spot)
        else:
            return np.array(placed[len(fixed) :])
    raise TaskError(f"{task.name} does not fit the {task.layout!r} layout: no room found in {ATTEMPTS} attempts")
