"""Where entities start and where they should go, for many episodes at once, each drawn from its own generator."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from efmdp.entities import OBJECTIVES, Array
from efmdp.scene import CUBE_HALF, CUBE_REST_HEIGHT, GRIPPER_START, SWITCH_RANGE
from efmdp.tasks import Scene, Task, TaskError

SEPARATION = 0.1  # between entities, from an entity to the gripper, between goals, from a goal to a switch
THRESHOLD = OBJECTIVES["sparse"].threshold
DARTS = 24  # candidate places for each entity; a layout in which none of them is free is begun anew
ATTEMPTS = 1000  # layouts begun before giving up; the paper's need a handful


class Layouts(NamedTuple):
    """S episodes of N entities, switches first."""

    starts: Array  # (S, N, 2) on the table
    goals: Array  # (S, N, 3) cube positions in metres, or (wanted angle, 0, 0)


def sample_layouts(task: Task, scene: Scene, rngs: Sequence[np.random.Generator]) -> Layouts:
    """Draw one layout from each generator; no push or switch starts within the threshold of its goal, no stack solved.

    A generator's layout depends on it alone, not on the others.
    """
    starts, goals = np.empty((len(rngs), scene.entities, 2)), np.empty((len(rngs), scene.entities, 3))
    pending = np.arange(len(rngs))
    for _ in range(ATTEMPTS):
        drawn, fits = _attempt(task, scene, [rngs[int(i)] for i in pending])
        starts[pending[fits]], goals[pending[fits]] = drawn.starts[fits], drawn.goals[fits]
        pending = pending[~fits]
        if not pending.size:
            return Layouts(starts, goals)
    raise TaskError(f"{task.name} does not fit the {task.layout!r} layout: no room found in {ATTEMPTS} attempts")


def _attempt(task: Task, scene: Scene, rngs: Sequence[np.random.Generator]) -> tuple[Layouts, Array]:
    """One try from each of S generators, and which of them came out right, (S,) bool."""
    s, n, switches = len(rngs), scene.entities, scene.switches
    goal_spots = min(scene.pushes, 1) if scene.stacks else scene.pushes  # a stack's two goals share one spot
    darts = 2 * DARTS * (n + goal_spots)
    numbers = np.array([rng.random(darts + switches + 1) for rng in rngs])  # (S, darts, then coins)
    half = np.array(task.half_widths)
    spots = GRIPPER_START[:2] + half * (2 * numbers[:, :darts].reshape(s, n + goal_spots, DARTS, 2) - 1)
    coins = numbers[:, darts:] < 0.5  # (S, switches + 1)

    gripper = np.broadcast_to(GRIPPER_START[:2], (s, 1, 2))
    starts, fits = _place(spots[:, :n], gripper)
    cubes = starts[:, switches:]
    goals = np.zeros((s, n, 3))
    goals[:, :switches, 0] = SWITCH_RANGE * np.where(coins[:, :switches], 1, -1)
    cube_goals = goals[:, switches:]  # a view
    cube_goals[:, :, 2] = CUBE_REST_HEIGHT
    if scene.stacks:
        top = coins[:, -1].astype(int)
        cube_goals[np.arange(s), top, 2] += 2 * CUBE_HALF
        cube_goals[:, :, :2] = cubes[np.arange(s), 1 - top][:, None]
    if goal_spots:
        not_at = cubes[:, None] if scene.stacks else cubes[:, :, None]  # (S, spots, cubes that must not start there, 2)
        cube_goals[:, :, :2], goals_fit = _place(spots[:, n:], starts[:, :switches], not_at)
        fits &= goals_fit
    return Layouts(starts, goals), fits


def _place(spots: Array, keep_clear: Array, not_at: Array | None = None) -> tuple[Array, Array]:
    """The first free one of each point's spots (S, P, DARTS, 2), point by point: (S, P, 2), and whether all were free.

    Free is SEPARATION from earlier points and from keep_clear (S, K, 2), and further than the success threshold from
    not_at[:, p] (S, P, M, 2).
    """
    rows, fits = np.arange(len(spots)), np.ones(len(spots), bool)
    placed = keep_clear
    for p in range(spots.shape[1]):
        free = np.all(_distances(spots[:, p], placed) > SEPARATION, axis=2)  # (S, DARTS)
        if not_at is not None:
            free &= np.all(_distances(spots[:, p], not_at[:, p]) > THRESHOLD, axis=2)
        fits &= free.any(1)
        chosen = spots[rows, p, free.argmax(1)]
        placed = np.concatenate([placed, chosen[:, None]], 1)
    return placed[:, keep_clear.shape[1] :], fits


def _distances(a: Array, b: Array) -> Array:
    """(S, A, 2) and (S, B, 2) to (S, A, B)."""
    return np.hypot(a[:, :, None, 0] - b[:, None, :, 0], a[:, :, None, 1] - b[:, None, :, 1])
