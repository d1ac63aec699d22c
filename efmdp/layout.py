"""Where entities start and where they should go, for many episodes at once, each drawn from its own generator."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from efmdp.entities import OBJECTIVES, Array
from efmdp.scene import CUBE_HALF, CUBE_REST_HEIGHT, GRIPPER_START, LEVER_LENGTH, SWITCH_RANGE
from efmdp.tasks import Scene, Task, TaskError

SEPARATION = 0.1  # between entities, from an entity to the gripper, between goals, from a goal to a switch
LEAN_CLEARANCE = 0.08  # between tips of levers that start tipped over, and to the hand, whose palm reaches 0.075
THRESHOLD = OBJECTIVES["sparse"].threshold
DARTS = 24  # candidate places for each entity; a layout in which none of them is free is begun anew
ATTEMPTS = 1000  # layouts begun before giving up; the paper's need a handful


class Layouts(NamedTuple):
    """S episodes of N entities, switches first."""

    starts: Array  # (S, N, 2) on the table
    angles: Array  # (S, switches) of the levers
    goals: Array  # (S, N, 3) cube positions in metres, or (wanted angle, 0, 0)


def sample_layouts(task: Task, drawn: Scene, rngs: Sequence[np.random.Generator]) -> Layouts:
    """Draw one layout from each generator. In the drawn scene no push or switch starts within the threshold of its
    goal, and no stack is solved; what else stands on the table starts at its goal.

    A generator's layout depends on it alone, not on the others.
    """
    s, n, switches = len(rngs), task.entities, task.table(drawn).switches
    layouts = Layouts(np.empty((s, n, 2)), np.empty((s, switches)), np.empty((s, n, 3)))
    pending = np.arange(s)
    for _ in range(ATTEMPTS):
        tried, fits = _attempt(task, drawn, [rngs[int(i)] for i in pending])
        for array, new in zip(layouts, tried, strict=True):
            array[pending[fits]] = new[fits]
        pending = pending[~fits]
        if not pending.size:
            return layouts
    raise TaskError(f"{task.name} does not fit the {task.layout!r} layout: no room found in {ATTEMPTS} attempts")


def _attempt(task: Task, drawn: Scene, rngs: Sequence[np.random.Generator]) -> tuple[Layouts, Array]:
    """One try from each of S generators, and which of them came out right, (S,) bool."""
    s, n, switches = len(rngs), task.entities, task.table(drawn).switches
    own_switches, own_cubes = task.places(drawn)
    goal_spots = min(drawn.pushes, 1) if drawn.stacks else drawn.pushes  # a stack's two goals share one spot
    darts = 2 * DARTS * (n + goal_spots)
    numbers = np.array([rng.random(darts + switches + 1) for rng in rngs])  # (S, darts, then coins)
    half = np.array(task.half_widths)
    spots = GRIPPER_START[:2] + half * (2 * numbers[:, :darts].reshape(s, n + goal_spots, DARTS, 2) - 1)
    coins = numbers[:, darts:] < 0.5  # (S, switches + 1)

    gripper = np.broadcast_to(GRIPPER_START[:2], (s, 1, 2))
    starts, fits = _place(spots[:, :n], gripper)
    goals = np.zeros((s, n, 3))
    goals[:, :switches, 0] = SWITCH_RANGE * np.where(coins[:, :switches], 1, -1)
    goals[:, switches:, :2], goals[:, switches:, 2] = starts[:, switches:], CUBE_REST_HEIGHT
    angles = goals[:, :switches, 0].copy()
    # By now all are solved. What follows gives the drawn scene something to do.
    angles[:, own_switches] = 0
    solved_tips = np.delete(_lever_tips(starts[:, :switches], angles), own_switches, 1)
    fits &= _all_apart(np.concatenate([gripper, solved_tips], 1), LEAN_CLEARANCE)
    cubes, cube_goals = starts[:, own_cubes], goals[:, own_cubes]  # views
    if drawn.stacks:
        top = coins[:, -1].astype(int)
        cube_goals[np.arange(s), top, 2] += 2 * CUBE_HALF
        cube_goals[:, :, :2] = cubes[np.arange(s), 1 - top][:, None]
    if goal_spots:
        not_at = cubes[:, None] if drawn.stacks else cubes[:, :, None]  # (S, spots, cubes that must not start there, 2)
        staying = np.delete(starts, own_cubes, 1)  # switches and solved cubes
        cube_goals[:, :, :2], goals_fit = _place(spots[:, n:], staying, not_at)
        fits &= goals_fit
    return Layouts(starts, angles, goals), fits


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


def _lever_tips(bases: Array, angles: Array) -> Array:
    """Over which points of the table, (S, K, 2), levers on bases (S, K, 2) end; θ > 0 tips them towards -y."""
    return np.stack([bases[..., 0], bases[..., 1] - LEVER_LENGTH * np.sin(angles)], -1)


def _all_apart(points: Array, gap: float) -> Array:
    """In which of S layouts any two of the points (S, P, 2) are further apart than that, (S,) bool."""
    first, second = np.triu_indices(points.shape[1], 1)
    return np.all(_distances(points, points)[:, first, second] > gap, axis=1)


def _distances(a: Array, b: Array) -> Array:
    """(S, A, 2) and (S, B, 2) to (S, A, B)."""
    return np.hypot(a[:, :, None, 0] - b[:, None, :, 0], a[:, :, None, 1] - b[:, None, :, 1])
