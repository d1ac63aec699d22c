"""A scene as a MuJoCo model: the Fetch robot at its table, cubes, and switches whose bases move per episode.

The robot's MJCF and meshes come from the gymnasium-robotics wheel. Everything else is built here, for any number of
entities. Two profiles of the same physics:

- `reference`: the robot with all its joints, meshes and contacts, 20 substeps of 2 ms, as Gymnasium-Robotics has it;
- `fast`: joints that never move are welded, only the fingers collide, resting bodies sleep, substeps are larger.

The reference model is also what gets rendered, whatever profile is simulated.
"""

import functools
import importlib.util
import pathlib
from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np

from efmdp.entities import UserError
from efmdp.tasks import Scene

Profile = Literal["reference", "fast"]
SUBSTEPS = {"reference": (20, 0.002), "fast": (8, 0.005)}  # substeps per control step, seconds per substep

GRIPPER_START = np.array([1.3419, 0.7491, 0.42])  # over the table, where FetchPush starts
GRIPPER_QUATERNION = np.array([0.5**0.5, 0, 0.5**0.5, 0])  # fingers down
TABLE_TOP = 0.4
CUBE_HALF = 0.025
CUBE_MASS = 2.0
CUBE_REST_HEIGHT = TABLE_TOP + CUBE_HALF - 0.00011  # a cube at rest sinks 0.11 mm into the table
SWITCH_BASE_HALF = np.array([0.02, 0.02, 0.01])
SWITCH_RANGE = 0.7
LEVER_LENGTH = 0.08
LEVER_RADIUS = 0.008

HAND = "robot0:gripper_link"
FINGER_JOINTS = ("robot0:l_gripper_finger_joint", "robot0:r_gripper_finger_joint")
FINGERS = ("robot0:l_gripper_finger_link", "robot0:r_gripper_finger_link")
MOUNT_JOINTS = {  # position of the mobile robot at the table; held there by huge damping, so welded in `fast`
    "robot0:slide0": 0.405,
    "robot0:slide1": 0.48,
    "robot0:slide2": 0.0,
    "robot0:torso_lift_joint": 0.0386,  # its lower limit: from 0, below it, the arm would start with a jolt
    "robot0:head_pan_joint": 0.0,
    "robot0:head_tilt_joint": 0.06,
}
UNUSED_BODIES = (
    "robot0:head_pan_link",
    "robot0:estop_link",
    "robot0:laser_link",
    "robot0:torso_fixed_link",
    "robot0:gripper_camera_link",
)

PALETTE = (  # one colour per entity, readable side by side
    (0.90, 0.30, 0.24, 1),
    (0.16, 0.50, 0.73, 1),
    (0.95, 0.77, 0.06, 1),
    (0.18, 0.70, 0.44, 1),
    (0.56, 0.27, 0.68, 1),
    (0.90, 0.49, 0.13, 1),
    (0.10, 0.74, 0.75, 1),
    (0.93, 0.45, 0.70, 1),
    (0.48, 0.33, 0.24, 1),
    (0.68, 0.82, 0.25, 1),
    (0.20, 0.25, 0.40, 1),
    (0.60, 0.62, 0.64, 1),
)

# Robot, table and floor collide with everything; entities with each other only when the task says so.
WORLD_BIT, ENTITY_BIT = 1, 2


def color(entity: int) -> tuple[float, float, float, float]:
    return PALETTE[entity % len(PALETTE)]


@dataclass(frozen=True)
class SceneModel:
    """A compiled scene and where its parts are, resolved once."""

    scene: Scene
    model: mujoco.MjModel
    substeps: int
    switch_qpos: slice  # one angle each
    cube_qpos: slice  # 7 numbers each: position, quaternion
    cube_qvel: slice  # 6 numbers each: linear velocity, angular velocity in the cube's frame
    cube_bodies: slice
    finger_qpos: np.ndarray  # empty where the fingers are welded
    finger_qvel: np.ndarray
    start_qpos: np.ndarray  # the robot at GRIPPER_START
    hand_start: np.ndarray  # position of the hand body there

    @property
    def control_dt(self) -> float:
        return self.substeps * self.model.opt.timestep


def build_scene(scene: Scene, *, collisions: bool, gripper: bool, profile: Profile) -> SceneModel:
    """Compile the model of a scene. `gripper` says whether the fingers move at all."""
    if profile not in SUBSTEPS:
        raise UserError(f"unknown physics profile {profile!r}: choose {' or '.join(SUBSTEPS)}")
    substeps, timestep = SUBSTEPS[profile]
    spec = _load_robot()
    if not gripper:
        for actuator in list(spec.actuators):
            spec.delete(actuator)
    if profile == "fast":
        _strip(spec, keep_finger_joints=gripper)
        spec.option.enableflags |= int(mujoco.mjtEnableBit.mjENBL_SLEEP)
        spec.memory = 2**20 + 2**18 * scene.entities
    spec.option.timestep = timestep
    _add_sensors(spec)
    for i in range(scene.switches):
        _add_switch(spec, i, collisions)
    for i in range(scene.cubes):
        _add_cube(spec, i, scene.switches + i, collisions)
    model = spec.compile()

    rest, hand_start = _rest_pose()
    start = model.qpos0.copy()
    for j in range(model.njnt):
        start[model.jnt_qposadr[j]] = rest.get(model.joint(j).name, start[model.jnt_qposadr[j]])
    fingers = [model.joint(name) for name in FINGER_JOINTS if mujoco.mj_name2id(model, _JOINT, name) >= 0]
    return SceneModel(
        scene=scene,
        model=model,
        substeps=substeps,
        switch_qpos=_span([model.joint(f"switch{i}").qposadr[0] for i in range(scene.switches)], 1),
        cube_qpos=_span([model.joint(f"cube{i}").qposadr[0] for i in range(scene.cubes)], 7),
        cube_qvel=_span([model.joint(f"cube{i}").dofadr[0] for i in range(scene.cubes)], 6),
        cube_bodies=_span([model.body(f"cube{i}").id for i in range(scene.cubes)], 1),
        finger_qpos=np.array([joint.qposadr[0] for joint in fingers], int),
        finger_qvel=np.array([joint.dofadr[0] for joint in fingers], int),
        start_qpos=start,
        hand_start=hand_start,
    )


_JOINT = int(mujoco.mjtObj.mjOBJ_JOINT)


def _span(addresses: list[int], width: int) -> slice:
    """The contiguous slice that items of that width at these addresses fill: _span([9, 16], 7) is slice(9, 23)."""
    if not addresses:
        return slice(0, 0)
    assert addresses == list(range(addresses[0], addresses[0] + width * len(addresses), width))
    return slice(addresses[0], addresses[0] + width * len(addresses))


def _load_robot() -> mujoco.MjSpec:
    """The robot, its table and floor, with the hand welded to a mocap body that the actions move."""
    package = importlib.util.find_spec("gymnasium_robotics")
    if package is None or package.origin is None:
        raise UserError("the Fetch robot is part of gymnasium-robotics: pip install gymnasium-robotics==1.4.2")
    assets = pathlib.Path(package.origin).parent / "envs" / "assets" / "fetch"
    spec = mujoco.MjSpec.from_file(str(assets / "pick_and_place.xml"))
    spec.delete(spec.body("object0"))
    spec.delete(spec.body("floor0"))
    for geom in spec.body("robot0:mocap").geoms:
        geom.rgba = (0, 0, 0, 0)
    for texture in spec.textures:
        if int(texture.type) == int(mujoco.mjtTexture.mjTEXTURE_SKYBOX):
            texture.rgb1, texture.rgb2 = (0.83, 0.87, 0.92), (0.96, 0.97, 0.99)
    (weld,) = spec.equalities
    weld.data = (0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1)  # hand and mocap coincide: no offset, identity rotation
    return spec


def _strip(spec: mujoco.MjSpec, keep_finger_joints: bool) -> None:
    """Remove what never matters: joints that do not move, bodies that touch nothing, and everything only seen."""
    _weld(spec, MOUNT_JOINTS if keep_finger_joints else MOUNT_JOINTS | dict.fromkeys(FINGER_JOINTS, 0.0))
    for name in UNUSED_BODIES:
        spec.delete(spec.body(name))
    for geom in list(spec.geoms):
        if geom.name not in (*FINGERS, "floor0") and geom.parent.name != "table0":
            spec.delete(geom)
        else:
            geom.material = ""
    for asset in [*spec.meshes, *spec.textures, *spec.materials, *spec.lights, *spec.cameras]:
        spec.delete(asset)


def _weld(spec: mujoco.MjSpec, joints: dict[str, float]) -> None:
    """Remove joints, leaving their bodies where these values put them."""
    for name, value in joints.items():
        joint = spec.joint(name)
        if int(joint.type) == int(mujoco.mjtJoint.mjJNT_SLIDE):
            joint.parent.pos = joint.parent.pos + np.array(joint.axis) * value
        spec.delete(joint)


def _add_sensors(spec: mujoco.MjSpec) -> None:
    """What the agent knows of its hand: sensordata is hand position, grip position, grip velocity (3 each)."""
    kinds, objects = mujoco.mjtSensor, mujoco.mjtObj
    for kind, objtype, objname in (
        (kinds.mjSENS_FRAMEPOS, objects.mjOBJ_XBODY, HAND),
        (kinds.mjSENS_FRAMEPOS, objects.mjOBJ_SITE, "robot0:grip"),
        (kinds.mjSENS_FRAMELINVEL, objects.mjOBJ_SITE, "robot0:grip"),
    ):
        spec.add_sensor(type=kind, objtype=objtype, objname=objname)


def _add_cube(spec: mujoco.MjSpec, index: int, entity: int, collisions: bool) -> None:
    body = spec.worldbody.add_body(name=f"cube{index}", pos=(1 + 0.1 * index, 0, CUBE_REST_HEIGHT))
    joint = body.add_freejoint(name=f"cube{index}")
    joint.damping = (0.01, 0, 0)
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=np.full(3, CUBE_HALF),
        mass=CUBE_MASS,
        rgba=color(entity),
        **_entity_contacts(collisions),
    )


def _add_switch(spec: mujoco.MjSpec, index: int, collisions: bool) -> None:
    """A base that is moved per episode (a mocap body) and a lever on a hinge along x; it tips towards -y for θ > 0."""
    base = spec.worldbody.add_body(name=f"switch{index}", mocap=True, pos=(1 + 0.1 * index, 0, TABLE_TOP))
    base.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=SWITCH_BASE_HALF,
        pos=(0, 0, SWITCH_BASE_HALF[2]),
        rgba=(0.25, 0.25, 0.28, 1),
        **_entity_contacts(collisions),
    )
    lever = base.add_body(name=f"lever{index}", pos=(0, 0, 2 * SWITCH_BASE_HALF[2]))
    joint = lever.add_joint(name=f"switch{index}", type=mujoco.mjtJoint.mjJNT_HINGE, axis=(1, 0, 0))
    joint.limited = mujoco.mjtLimited.mjLIMITED_TRUE
    joint.range = (-SWITCH_RANGE, SWITCH_RANGE)
    joint.frictionloss = 1  # it stays where it is left
    joint.armature = 0.001  # little: a tapped lever would fly on, and how far would depend on the size of a substep
    joint.solref_limit, joint.solimp_limit = (0.01, 1), (0.99, 0.999, 0.001, 0.5, 2)  # the hand cannot push it further
    lever.add_geom(
        type=mujoco.mjtGeom.mjGEOM_CAPSULE,
        fromto=(0, 0, 0, 0, 0, LEVER_LENGTH),
        size=(LEVER_RADIUS, 0, 0),
        mass=0.1,
        rgba=color(index),
        **_entity_contacts(collisions),
    )
    spec.add_exclude(bodyname1=base.name, bodyname2=lever.name)


def _entity_contacts(collisions: bool) -> dict[str, int]:
    return {"contype": ENTITY_BIT, "conaffinity": WORLD_BIT | ENTITY_BIT if collisions else WORLD_BIT}


@functools.cache
def _rest_pose() -> tuple[dict[str, float], np.ndarray]:
    """Joint values of the whole robot at rest with its grip at GRIPPER_START, and the hand body's position there."""
    spec = _load_robot()
    _weld(spec, MOUNT_JOINTS)
    for geom in spec.geoms:
        geom.contype = geom.conaffinity = 0
    model = spec.compile()
    data = mujoco.MjData(model)
    hand_to_grip = np.array([0, 0, -0.02])  # the grip site, in the world frame, when the fingers point down
    data.mocap_pos[0] = GRIPPER_START - hand_to_grip
    data.mocap_quat[0] = GRIPPER_QUATERNION
    mujoco.mj_step(model, data, nstep=5000)
    joints = {model.joint(j).name: float(data.qpos[model.jnt_qposadr[j]]) for j in range(model.njnt)}
    return {**MOUNT_JOINTS, **joints, **dict.fromkeys(FINGER_JOINTS, 0.0)}, data.body(HAND).xpos.copy()
