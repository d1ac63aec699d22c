"""The Fetch suite: B simulations of a task, stepped together by MuJoCo's thread pool."""

import os

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from efmdp.entities import OBJECTIVES, Array, EntityDims, EntityEnv, EntityObs
from efmdp.layout import Layouts, sample_layouts
from efmdp.scene import GRIPPER_QUATERNION, SWITCH_RANGE, TABLE_TOP, Profile, SceneModel, build_scene
from efmdp.tasks import Task

FETCH_DIMS = EntityDims(agent=10, entity=16, goal=3, action=4)
REACH_PER_STEP = 0.05  # metres that a full action moves the hand's target, per axis
FINGER_ACTION = 3

# The entity vector: a switch puts its angle where a cube has its position, so that the first three numbers are always
# what the subgoal speaks of; its base goes where a cube has its velocity.
POSITION, RELATIVE, EULER, VELOCITY, SPIN = (slice(i, i + 3) for i in range(0, 15, 3))
ANGLE, IS_SWITCH = 0, 15

_POSITIONS_AND_VELOCITIES = int(mujoco.mjtStage.mjSTAGE_VEL)
_NOTHING = int(mujoco.mjtStage.mjSTAGE_NONE)


class FetchEnv(EntityEnv):
    """`FetchEnv(parse_task("3-Push"), num_envs=16)`. A mixture holds one batch of simulations per table."""

    def __init__(
        self, task: Task, num_envs: int = 1, profile: Profile = "fast", seed: int = 0, num_threads: int | None = None
    ) -> None:
        super().__init__(num_envs, task.entities, FETCH_DIMS, OBJECTIVES[task.reward], seed)
        if num_threads is None:  # all cores, unless the machine is shared
            num_threads = int(os.environ.get("OMP_NUM_THREADS", 0))
        self.task = task
        self.profile = profile
        self._tables = [
            _Simulations(
                build_scene(table, collisions=task.collisions, gripper=task.gripper, profile=profile),
                num_envs,
                num_threads,
                task.gripper,
            )
            for table in task.tables
        ]
        self._table_of_member = np.array([task.tables.index(task.table(scene)) for scene in task.scenes])
        self._member_horizons = np.array(task.horizons)
        self.member = np.zeros(num_envs, np.int64)  # which scene of a mixture each slot plays
        self._goals = np.zeros((num_envs, task.entities, FETCH_DIMS.goal), np.float32)
        self.reset()

    @property
    def horizons(self) -> Array:
        return self._member_horizons[self.member]

    @property
    def identity(self) -> str:
        return f"{super().identity}, {self.task}, {self.profile} physics"

    @property
    def max_horizon(self) -> int:
        return int(self._member_horizons.max())

    @property
    def largest_distance(self) -> float:
        return 2 * SWITCH_RANGE  # radians, and more than a cube gets away from its goal, in metres, on the table

    @property
    def usable_actions(self) -> Array:
        return np.array([True, True, True, self.task.gripper])

    def achieved(self, entities: Array) -> Array:
        return entities[..., POSITION]

    def observe(self) -> EntityObs:
        agent, entities = self._tables[0].observe()
        for t, simulations in enumerate(self._tables[1:], start=1):
            mine = self._table == t
            table_agent, table_entities = simulations.observe()
            agent[mine], entities[mine] = table_agent[mine], table_entities[mine]
        return EntityObs(agent, entities, self._goals.copy())

    def exchangeable(self) -> Array:
        """Cubes with cubes and switches with switches: they are different bodies."""
        return self.observe().entities[..., IS_SWITCH].astype(np.int64)

    def permute(self, order: Array) -> None:
        self._goals = np.take_along_axis(self._goals, order[:, :, None], 1)
        for simulations, slots in self._playing():
            simulations.permute(slots, order[slots])

    def simulation(self, slot: int) -> tuple[SceneModel, mujoco.MjData]:
        """The table that a slot plays on and a copy of its data, to render or to look into."""
        simulations = self._tables[self._table[slot]]
        return simulations.scene, simulations.batch.get_data(slot)

    def _begin(self, ids: Array) -> None:
        scenes = self.task.scenes
        if len(scenes) > 1:
            self.member[ids] = [self.rngs[i].integers(len(scenes)) for i in ids]
        for m, scene in enumerate(scenes):
            mine = ids[self.member[ids] == m]
            if mine.size:
                layouts = sample_layouts(self.task, scene, [self.rngs[i] for i in mine])
                self._goals[mine] = layouts.goals
                self._tables[self._table_of_member[m]].begin(mine, layouts)

    def _advance(self, actions: Array) -> Array:
        failed = np.zeros(self.num_envs, bool)
        for simulations, slots in self._playing():
            failed[slots] = simulations.advance(slots, actions[slots])
        return failed

    def _playing(self) -> list[tuple["_Simulations", Array | slice]]:
        """The tables in play with their slots; all of them as a slice, so that reading them copies nothing."""
        if len(self._tables) == 1:
            return [(self._tables[0], slice(None))]
        slots = [np.flatnonzero(self._table == t) for t in range(len(self._tables))]
        return [(simulations, s) for simulations, s in zip(self._tables, slots, strict=True) if s.size]

    @property
    def _table(self) -> Array:
        """Which table each slot plays on."""
        return self._table_of_member[self.member]

    def _save(self) -> dict[str, Array]:
        rows = {f"state{t}": simulations.batch.state.copy() for t, simulations in enumerate(self._tables)}
        return {"member": self.member.copy(), "goals": self._goals.copy(), **rows}

    def _restore(self, saved: dict[str, Array]) -> None:
        self.member = saved["member"].copy()
        self._goals = saved["goals"].copy()
        for t, simulations in enumerate(self._tables):
            simulations.load(saved[f"state{t}"])


class _Simulations:
    """All simulations of one table. `slots` selects some of them: indices, or a slice that means all."""

    def __init__(self, scene: SceneModel, num_envs: int, num_threads: int, gripper: bool) -> None:
        self.scene = scene
        self.gripper = gripper
        self.batch = batch = Batch(scene.model, num_envs, nthread=num_threads, persistent=True)
        self.qpos, self.qvel, self.ctrl = batch.bind("qpos"), batch.bind("qvel"), batch.bind("ctrl")
        self.cube_pose = _per_cube(self.qpos, scene.cube_qpos, 7)  # (B, C, 7)
        self.cube_velocity = _per_cube(self.qvel, scene.cube_qvel, 6)  # (B, C, 6)
        self.cube_rotation = batch.bind("xmat")[:, scene.cube_bodies].reshape(num_envs, -1, 3, 3)  # (B, C, 3, 3)
        self.hand_target = batch.bind("mocap_pos")[:, 0]
        self.switch_bases = batch.bind("mocap_pos")[:, 1:]
        self.levers = self.qpos[:, scene.switch_qpos]  # (B, switches) angles
        sensors = batch.bind("sensordata")
        self.hand, self.grip, self.grip_velocity = sensors[:, 0:3], sensors[:, 3:6], sensors[:, 6:9]
        self._agent = np.zeros((num_envs, FETCH_DIMS.agent))
        self._entities = np.zeros((num_envs, scene.scene.entities, FETCH_DIMS.entity))
        self._entities[:, : scene.scene.switches, IS_SWITCH] = 1
        self.warnings = batch.warning[:, :, 1].sum(1)
        batch.reset()

    def begin(self, ids: Array, layouts: Layouts) -> None:
        """Put the robot and the entities at their starts."""
        scene, starts = self.scene, layouts.starts
        self.batch.reset(ids, stage=_NOTHING)
        self.qpos[ids] = scene.start_qpos
        self.cube_pose[ids, :, :2] = starts[:, scene.scene.switches :]
        self.hand_target[ids] = scene.hand_start
        self.batch.bind("mocap_quat")[ids, 0] = GRIPPER_QUATERNION
        self.switch_bases[ids, :, :2] = starts[:, : scene.scene.switches]
        self.switch_bases[ids, :, 2] = TABLE_TOP
        self.levers[ids] = layouts.angles
        self._look(ids)

    def advance(self, slots: Array | slice, actions: Array) -> Array:
        """Run one control step; returns which of the slots blew up. MuJoCo only counts a warning for those."""
        scene = self.scene
        self.hand_target[slots] = self.hand[slots] + REACH_PER_STEP * actions[:, :3]
        if self.gripper:
            opening = actions[:, FINGER_ACTION, None]
            self.ctrl[slots] = self.qpos[slots][:, scene.finger_qpos] + opening
        elif scene.finger_qpos.size:  # held closed
            self.qpos[:, scene.finger_qpos] = 0
            self.qvel[:, scene.finger_qvel] = 0
        ids = None if isinstance(slots, slice) else slots
        broken = np.zeros(len(self.warnings), bool)
        try:
            self.batch.step(ids, nstep=scene.substeps, stage=_POSITIONS_AND_VELOCITIES)
        except SimulationError as error:
            broken[error.ids] = True
        if self.batch.warning.any():
            warnings = self.batch.warning[:, :, 1].sum(1)
            broken |= warnings > self.warnings
            self.warnings = warnings
        return broken[slots]

    def observe(self) -> tuple[Array, Array]:
        """Features of agent (B, U) and entities (B, N, E) in new float32 arrays. Everything read here is a view."""
        scene, dt = self.scene, self.scene.control_dt
        agent, grip = self._agent, self.grip[:, None]
        agent[:, 0:3] = self.grip
        np.multiply(self.grip_velocity, dt, out=agent[:, 5:8])
        if scene.finger_qpos.size:
            agent[:, 3:5] = self.qpos[:, scene.finger_qpos]
            agent[:, 8:10] = self.qvel[:, scene.finger_qvel] * dt

        switches, cubes = self._entities[:, : scene.scene.switches], self._entities[:, scene.scene.switches :]
        if scene.scene.switches:
            switches[:, :, ANGLE] = self.levers
            np.subtract(self.switch_bases, grip, out=switches[:, :, RELATIVE])
            switches[:, :, VELOCITY] = self.switch_bases
        if scene.scene.cubes:
            position = self.cube_pose[:, :, :3]
            cubes[:, :, POSITION] = position
            np.subtract(position, grip, out=cubes[:, :, RELATIVE])
            _euler(self.cube_rotation, out=cubes[:, :, EULER])
            np.multiply(self.cube_velocity[:, :, :3], dt, out=cubes[:, :, VELOCITY])
            cubes[:, :, VELOCITY] -= agent[:, None, 5:8]
            spin = self.cube_velocity[:, :, 3:, None] * dt
            np.matmul(self.cube_rotation, spin, out=cubes[:, :, SPIN, None])
        return agent.astype(np.float32), self._entities.astype(np.float32)

    def permute(self, slots: Array | slice, order: Array) -> None:
        """order (n, N) keeps switches among switches; only exact right after a reset, when nothing moves yet."""
        switches = self.scene.scene.switches
        ids = np.arange(len(self.qpos))[slots]
        among_switches, among_cubes = order[:, :switches], order[:, switches:] - switches
        self.switch_bases[ids] = np.take_along_axis(self.switch_bases[ids], among_switches[:, :, None], 1)
        self.levers[ids] = np.take_along_axis(self.levers[ids], among_switches, 1)
        self.cube_pose[ids] = np.take_along_axis(self.cube_pose[ids], among_cubes[:, :, None], 1)
        self._look(ids)

    def load(self, rows: Array) -> None:
        self.batch.reset(stage=_NOTHING)
        self.batch.state[:] = rows
        self._look(None)

    def _look(self, ids: Array | None) -> None:
        """Make derived quantities current after the state was written."""
        self.batch.forward(ids, stage=_POSITIONS_AND_VELOCITIES)
        self.warnings = self.batch.warning[:, :, 1].sum(1)


def _per_cube(rows: Array, columns: slice, width: int) -> Array:
    """A view (B, C, width) of the columns of rows (B, columns): column 7 c + i of a cube's pose is [c, i]."""
    part = rows[:, columns]
    row, column = part.strides
    shape = (len(part), part.shape[1] // width, width)
    return np.lib.stride_tricks.as_strided(part, shape, (row, width * column, column))


def _euler(rotation: Array, out: Array) -> None:
    """Rotation matrices (..., 3, 3) to Euler angles (..., 3), in the convention of the Fetch environments."""
    r = rotation
    np.arctan2(-r[..., 1, 2], r[..., 2, 2], out=out[..., 0])
    np.arctan2(r[..., 0, 2], np.hypot(r[..., 1, 2], r[..., 2, 2]), out=out[..., 1])
    np.arctan2(-r[..., 0, 1], r[..., 0, 0], out=out[..., 2])
