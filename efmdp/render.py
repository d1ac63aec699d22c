"""Pictures of a Fetch environment: the whole robot, coloured entities, and where each of them should go."""

import warnings

import glfw
import mujoco
import mujoco.viewer
import numpy as np

from efmdp.entities import Array, UserError
from efmdp.env import FetchEnv
from efmdp.scene import LEVER_LENGTH, SWITCH_BASE_HALF, SceneModel, build_scene, color
from efmdp.tasks import Scene

CAMERA = {"lookat": (1.1, 0.78, 0.58), "distance": 1.5, "azimuth": 140.0, "elevation": -30.0}
GOAL_RADIUS = 0.018
FRAMES_PER_SECOND = 25  # real time: a control step is 40 ms
NO_OPENGL = "rendering needs OpenGL (Debian: libegl1 libegl-mesa0 libgl1-mesa-dri), and efmdp imported before mujoco"


def has_screen() -> bool:
    """Whether a window can be opened. MuJoCo's viewer ends the process where it cannot, so this asks first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bool(glfw.init())


class Picture:
    """Draws slots of one environment. What is simulated may be stripped of everything visible, so this keeps a full
    model of its own for each table and copies the state into it."""

    def __init__(self, env: FetchEnv, width: int = 640, height: int = 480) -> None:
        if not all(isinstance(n, int) and 0 < n <= 4096 for n in (width, height)):
            raise UserError(f"pictures of {width} by {height} pixels: choose whole numbers from 1 to 4096")
        self.env = env
        self.size = (height, width)
        self._tables: dict[Scene, tuple[mujoco.MjModel, mujoco.MjData]] = {}
        self._renderers: dict[Scene, mujoco.Renderer] = {}
        self._viewer: mujoco.viewer.Handle | None = None

    def frame(self, slot: int = 0) -> Array:
        """The slot as an image, (height, width, 3) uint8."""
        table = self._table(slot)
        model, data = self._pose(slot)
        if table not in self._renderers:
            try:
                self._renderers[table] = mujoco.Renderer(model, *self.size)
            except Exception as error:
                raise UserError(f"{NO_OPENGL} ({error})") from error
        renderer = self._renderers[table]
        camera = mujoco.MjvCamera()
        _aim(camera)
        renderer.update_scene(data, camera)
        self._draw_goals(renderer.scene, slot)
        return renderer.render()

    def show(self, slot: int = 0) -> None:
        """The slot in a window on the screen."""
        model, data = self._pose(slot)
        if self._viewer is not None and self._viewer.m is not model:  # a mixture changed its table
            self._viewer.close()
            self._viewer = None
        if self._viewer is None:
            if not has_screen():
                raise UserError("no window can be opened, there is no screen: use render_mode='rgb_array'")
            self._viewer = mujoco.viewer.launch_passive(model, data, show_left_ui=False, show_right_ui=False)
            _aim(self._viewer.cam)
        with self._viewer.lock():
            self._viewer.user_scn.ngeom = 0
            self._draw_goals(self._viewer.user_scn, slot)
        self._viewer.sync()

    def close(self) -> None:
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()
        if self._viewer is not None:
            self._viewer.close()
            self._viewer = None

    def _table(self, slot: int) -> Scene:
        task = self.env.task
        return task.table(task.scenes[self.env.member[slot]])

    def _pose(self, slot: int) -> tuple[mujoco.MjModel, mujoco.MjData]:
        table = self._table(slot)
        if table not in self._tables:
            full = build_scene(table, collisions=False, gripper=self.env.task.gripper, profile="reference")
            full.model.vis.headlight.ambient = (0.35, 0.35, 0.35)
            full.model.vis.global_.offheight, full.model.vis.global_.offwidth = self.size
            data = mujoco.MjData(full.model)
            data.qpos[:] = full.start_qpos
            self._tables[table] = full.model, data
        model, data = self._tables[table]
        _copy_pose(*self.env.simulation(slot), model, data)
        mujoco.mj_forward(model, data)
        return model, data

    def _draw_goals(self, scene: mujoco.MjvScene, slot: int) -> None:
        obs = self.env.observe()
        switches = self._table(slot).switches
        for i, goal in enumerate(obs.goals[slot]):
            where = _lever_tip(obs.entities[slot, i, 9:12], goal[0]) if i < switches else goal
            geom = scene.geoms[scene.ngeom]
            mujoco.mjv_initGeom(
                geom,
                mujoco.mjtGeom.mjGEOM_SPHERE,
                np.array([GOAL_RADIUS, 0, 0]),
                np.asarray(where, float),
                np.eye(3).ravel(),
                np.array([*color(i)[:3], 0.65], np.float32),
            )
            scene.ngeom += 1


def _aim(camera: mujoco.MjvCamera) -> None:
    camera.lookat[:] = CAMERA["lookat"]
    camera.distance, camera.azimuth, camera.elevation = CAMERA["distance"], CAMERA["azimuth"], CAMERA["elevation"]


def _lever_tip(base: Array, angle: float) -> Array:
    """Where the lever of a switch on that base ends at that angle."""
    reach = LEVER_LENGTH + GOAL_RADIUS
    return base + np.array([0, -reach * np.sin(angle), 2 * SWITCH_BASE_HALF[2] + reach * np.cos(angle)])


def _copy_pose(scene: SceneModel, simulated: mujoco.MjData, model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Copy joints by name, since the simulated robot may have fewer, and the mocap bodies."""
    widths = {int(mujoco.mjtJoint.mjJNT_FREE): 7}
    for j in range(scene.model.njnt):
        source, width = scene.model.jnt_qposadr[j], widths.get(int(scene.model.jnt_type[j]), 1)
        target = model.joint(scene.model.joint(j).name).qposadr[0]
        data.qpos[target : target + width] = simulated.qpos[source : source + width]
    data.mocap_pos[:], data.mocap_quat[:] = simulated.mocap_pos, simulated.mocap_quat
