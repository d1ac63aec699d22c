"""Hand-written controllers for push, switch and stack, from observations alone.

Every step they look again: the move follows from where hand, entity and goal are now, so a missed push or a lost grasp
is simply tried again. All they remember is which entity each hand is working on.
"""

import hashlib
import inspect
from pathlib import Path

import numpy as np

from efmdp.entities import OBJECTIVES, Array, EntityObs
from efmdp.env import ANGLE, IS_SWITCH, POSITION, REACH_PER_STEP, RELATIVE, VELOCITY
from efmdp.scene import CUBE_HALF, SWITCH_BASE_HALF, TABLE_TOP

SCRIPTED = "scripted"  # what users call them
CLOSE, OPEN = -1.0, 1.0
TRAVEL_HEIGHT = 0.53  # of the grip, clear of cubes and levers
PUSH_HEIGHT = 0.425
FLIP_HEIGHT = 0.46  # two thirds up the lever
BEHIND_CUBE = 0.065  # from the cube's centre to the grip before a push
BESIDE_LEVER = 0.045
TOUCHING = 0.05  # from a cube's centre to the grip
TABLE_CENTER, TABLE_HALF = np.array([1.3, 0.75]), np.array([0.2, 0.3])  # where a cube's centre is safe
DONE = 0.5 * OBJECTIVES["sparse"].threshold  # work on until well inside the threshold


def code_sha256(controller: type) -> str:
    """Of the module that defines a controller: what another version of it did is not mixed with what this one does."""
    return hashlib.sha256(Path(inspect.getfile(controller)).read_bytes()).hexdigest()


class Scripted:
    """`Scripted(num_envs).act(obs)` gives actions (B, 4); call `reset(ids)` for slots that begin a new episode."""

    def __init__(self, num_envs: int) -> None:
        self.target = np.full(num_envs, -1)  # the entity each hand is working on, -1 for none
        self.via = np.zeros((num_envs, 2))  # where a cube is pushed first, to keep out of the way of the others

    def reset(self, ids: Array | None = None) -> None:
        self.target[slice(None) if ids is None else ids] = -1

    def act(self, obs: EntityObs) -> Array:
        distance = np.linalg.norm(obs.entities[..., POSITION] - obs.goals, axis=-1)  # (B, N)
        self._choose(obs, distance)
        rows = np.arange(len(self.target))
        entity, goal = obs.entities[rows, self.target], obs.goals[rows, self.target]  # (B, E), (B, G)
        grip = obs.agent[:, :3]
        fingers = obs.agent[:, 3:5].mean(1)
        switch = entity[:, IS_SWITCH] == 1
        lifted = elevated(goal)

        arrived = np.linalg.norm(self.via - entity[:, :2], axis=1) < DONE
        self.via = np.where(arrived[:, None], goal[:, :2], self.via)
        wanted = _push(grip, entity, self.via)
        wanted[switch] = _flip(grip[switch], entity[switch], goal[switch])
        wanted = _back_off_before_rising(grip, wanted, obs.entities)
        finger = np.full(len(grip), CLOSE)
        if lifted.any():
            wanted[lifted], finger[lifted] = _stack(grip[lifted], fingers[lifted], entity[lifted], goal[lifted])
        finished = (distance <= DONE).all(1)
        wanted[finished] = np.where(lifted[finished, None], grip[finished], _above(grip[finished]))
        actions = np.concatenate([(wanted - grip) / REACH_PER_STEP, finger[:, None]], 1)
        return actions.clip(-1, 1)

    def _choose(self, obs: EntityObs, distance: Array) -> None:
        """Once the hand has come down, keep the target until it is done; before, take the nearest unfinished one with a
        clear way, stacking last."""
        unfinished = distance > DONE
        rows = np.arange(len(self.target))
        done = (self.target < 0) | ~unfinished[rows, self.target]
        high = elevated(obs.goals)  # to be stacked on a cube, which must be there first
        base_is_off = (unfinished & ~high).any(1) & high[rows, self.target]
        undecided = obs.agent[:, 2] > TRAVEL_HEIGHT - 0.02  # not come down yet
        choose = done | base_is_off | undecided
        if not choose.any():
            return
        reach = np.linalg.norm(obs.entities[..., RELATIVE], axis=-1)
        vias, trouble = _ways(obs)
        way = trouble.argmin(-1)  # (B, N)
        cost = reach + trouble.min(-1) + 10.0 * high + 100.0 * ~unfinished
        target = cost.argmin(1)
        self.target = np.where(choose, target, self.target)
        self.via = np.where(choose[:, None], vias[rows, target, way[rows, target]], self.via)


def _ways(obs: EntityObs) -> tuple[Array, Array]:
    """Ways to push each cube: straight to its goal, or first to one of eight points around it.

    Returns those points, (B, N, W, 2), and the trouble of each way, (B, N, W): how badly the hand would hit
    other entities, plus the length of the detour in metres. Switches are flipped, not pushed: nothing is in their way.
    """
    is_switch = obs.entities[..., IS_SWITCH] == 1
    place = np.where(is_switch[..., None], obs.entities[..., VELOCITY], obs.entities[..., POSITION])
    where = place[..., :2]  # (B, N, 2)
    angles = np.arange(8) * np.pi / 4
    detours = 0.1 * np.concatenate([np.zeros((1, 2)), np.stack([np.cos(angles), np.sin(angles)], 1)])  # (W, 2)
    goals = np.broadcast_to(obs.goals[:, :, None, :2], (*is_switch.shape, len(detours), 2))
    vias = goals + detours
    starts = np.broadcast_to(where[:, :, None], goals.shape)
    trouble = _in_the_way(starts, vias, where)
    trouble[..., 1:] += _in_the_way(vias[..., 1:, :], goals[..., 1:, :], where)
    trouble += np.linalg.norm(vias - starts, axis=-1) + np.linalg.norm(goals - vias, axis=-1)
    off_table = (np.abs(vias - TABLE_CENTER) > TABLE_HALF).any(-1)
    return vias, np.where(is_switch[..., None], 0.0, trouble + 10.0 * off_table)


def _in_the_way(starts: Array, ends: Array, entities: Array) -> Array:
    """How badly a hand hits entities (B, N, 2) when it pushes cube i from starts to ends (B, N, W, 2); (B, N, W)."""
    path = ends - starts
    length = np.linalg.norm(path, axis=-1, keepdims=True)
    forward = path / np.maximum(length, 1e-6)
    offsets = entities[:, None, None] - (starts - BEHIND_CUBE * forward)[:, :, :, None]  # (B, N, W, N, 2)
    progress = (offsets * forward[:, :, :, None]).sum(-1).clip(0, length)
    gap = np.linalg.norm(offsets - progress[..., None] * forward[:, :, :, None], axis=-1)  # (B, N, W, N)
    others = ~np.eye(entities.shape[1], dtype=bool)[:, None]
    landing = np.linalg.norm(offsets, axis=-1) < TOUCHING  # coming down on a cube squeezes it away, off the table even
    return (((gap < TOUCHING) + 4.0 * landing) * others).sum(-1)


def elevated(goals: Array) -> Array:
    """Which subgoals lie on top of a cube; a switch's never does."""
    return goals[..., 2] > TABLE_TOP + 2 * CUBE_HALF


def _back_off_before_rising(grip: Array, wanted: Array, entities: Array) -> Array:
    """A hand that rises along a cube drags it up by friction: leave the nearest cube sideways first."""
    offsets = -entities[..., RELATIVE]  # (B, N, 3) from each entity to the grip
    gaps = np.linalg.norm(offsets[..., :2], axis=-1) + 10.0 * (entities[..., IS_SWITCH] == 1)
    rows, nearest = np.arange(len(grip)), gaps.argmin(1)
    gap, offset = gaps[rows, nearest], offsets[rows, nearest]
    stuck = (wanted[:, 2] > grip[:, 2] + 0.02) & (gap < TOUCHING) & (offset[:, 2] < 2 * CUBE_HALF)
    away = offset / np.maximum(gap, 1e-6)[:, None]
    away[:, 2] = 0
    return np.where(stuck[:, None], grip + 0.03 * away, wanted)


def _above(point: Array) -> Array:
    return np.concatenate([point[:, :2], np.full((len(point), 1), TRAVEL_HEIGHT)], 1)


def _approach(grip: Array, spot: Array, height: float) -> Array:
    """Where to move next to get to spot (n, 2) at that height from above: up, across, then down."""
    away = np.linalg.norm(spot - grip[:, :2], axis=1)
    there = np.concatenate([spot, np.full((len(grip), 1), height)], 1)
    across = np.concatenate([spot, np.full((len(grip), 1), TRAVEL_HEIGHT)], 1)
    high_enough = grip[:, 2] > TRAVEL_HEIGHT - 0.02
    return np.where((away < 0.012)[:, None], there, np.where(high_enough[:, None], across, _above(grip)))


def _push(grip: Array, cube: Array, goal: Array) -> Array:
    """Go behind the cube, seen from its goal (n, 2), and push it there."""
    to_goal = goal - cube[:, :2]
    remaining = np.linalg.norm(to_goal, axis=1, keepdims=True)
    forward = to_goal / np.maximum(remaining, 1e-6)
    sideways = np.stack([-forward[:, 1], forward[:, 0]], 1)
    offset = grip[:, :2] - cube[:, :2]
    along, across = (offset * forward).sum(1), (offset * sideways).sum(1)
    lined_up = (along < -0.03) & (along > -0.1) & (np.abs(across) < 0.02) & (grip[:, 2] < PUSH_HEIGHT + 0.02)
    ahead = np.clip(0.6 * remaining, 0.01, 0.035)  # slow enough that the cube does not slide on by itself
    push = grip[:, :2] + forward * ahead - sideways * across[:, None]
    push = np.concatenate([push, np.full((len(grip), 1), PUSH_HEIGHT)], 1)
    behind = cube[:, :2] - BEHIND_CUBE * forward
    return np.where(lined_up[:, None], push, _approach(grip, behind, PUSH_HEIGHT))


def _flip(grip: Array, switch: Array, goal: Array) -> Array:
    """Go beside the lever and push it over; θ > 0 tips it towards -y."""
    base, angle = switch[:, VELOCITY], switch[:, ANGLE]
    direction = -np.sign(goal[:, 0] - angle)  # of the push, along y
    reach_up = FLIP_HEIGHT - TABLE_TOP - 2 * SWITCH_BASE_HALF[2]
    lever = base[:, 1] - np.tan(angle) * reach_up  # the lever's y at that height
    behind = (lever - grip[:, 1]) * direction  # > 0 when the hand is on the side to push from
    lined_up = (np.abs(grip[:, 0] - base[:, 0]) < 0.015) & (behind > 0) & (grip[:, 2] < FLIP_HEIGHT + 0.02)
    push = np.stack([base[:, 0], grip[:, 1] + 0.05 * direction, np.full(len(grip), FLIP_HEIGHT)], 1)
    spot = np.stack([base[:, 0], lever - BESIDE_LEVER * direction], 1)
    return np.where(lined_up[:, None], push, _approach(grip, spot, FLIP_HEIGHT))


def _stack(grip: Array, fingers: Array, cube: Array, goal: Array) -> tuple[Array, Array]:
    """Open, lower over the cube, close, lift, carry over the goal, lower. Returns positions and finger actions."""
    offset = cube[:, RELATIVE]
    centred = np.linalg.norm(offset[:, :2], axis=1) < 0.015
    around = centred & (np.abs(offset[:, 2]) < 0.015)
    held = around & (fingers < CUBE_HALF + 0.001)
    opened = fingers > 0.045

    ready = centred & opened
    down = np.where(ready[:, None], cube[:, :3], _approach(grip, cube[:, :2], TRAVEL_HEIGHT))
    near_goal = np.linalg.norm(goal[:, :2] - cube[:, :2], axis=1) < 0.015
    lifted = cube[:, 2] > goal[:, 2] + 0.01
    over_goal = goal + np.array([0, 0, 0.04])
    carry = np.where(near_goal[:, None], goal, np.where(lifted[:, None], over_goal, _above(grip)))
    wanted = np.where(held[:, None], carry, np.where(around[:, None], grip, down))
    # Fingers open with a snap that flings a cube away: only high up, or when already over the one to grasp.
    may_open = ready | (grip[:, 2] > TRAVEL_HEIGHT - 0.02)
    return wanted, np.where(may_open & ~around, OPEN, CLOSE)
