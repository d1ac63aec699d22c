import mujoco
import numpy as np
import pytest

from efmdp.scene import (
    CUBE_REST_HEIGHT,
    GRIPPER_QUATERNION,
    GRIPPER_START,
    TABLE_TOP,
    SceneModel,
    build_scene,
)
from efmdp.tasks import Scene

PROFILES = ("reference", "fast")
ROBOT_DOFS = {  # the reference robot has all its joints; in the fast one mount, torso and head are welded
    ("reference", True): 15,
    ("reference", False): 15,
    ("fast", True): 9,
    ("fast", False): 7,
}
SCENES = {
    "1 push": Scene(pushes=1),
    "6 push": Scene(pushes=6),
    "12 push": Scene(pushes=12),
    "6 switch": Scene(switches=6),
    "12 mixed": Scene(switches=6, pushes=6),
    "stack": Scene(stacks=1),
}


def build(scene: Scene, profile: str, collisions: bool = False, gripper: bool = False) -> SceneModel:
    return build_scene(scene, collisions=collisions, gripper=gripper, profile=profile)


def at_start(scene: SceneModel) -> mujoco.MjData:
    data = mujoco.MjData(scene.model)
    data.qpos[:] = scene.start_qpos
    data.mocap_pos[0], data.mocap_quat[0] = scene.hand_start, GRIPPER_QUATERNION
    mujoco.mj_forward(scene.model, data)
    return data


def touching(model: mujoco.MjModel, data: mujoco.MjData) -> set[frozenset[str]]:
    """The names of the bodies that are in contact, in pairs."""
    return {frozenset(model.body(model.geom_bodyid[g]).name for g in contact.geom) for contact in data.contact}


def test_substeps() -> None:
    reference, fast = (build(Scene(pushes=1), profile) for profile in PROFILES)
    assert reference.substeps == 20
    assert reference.model.opt.timestep == 0.002
    assert fast.substeps < 20
    assert fast.control_dt == pytest.approx(reference.control_dt) == pytest.approx(0.04)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("gripper", [False, True])
@pytest.mark.parametrize("name", SCENES)
def test_degrees_of_freedom(profile: str, gripper: bool, name: str) -> None:
    scene = SCENES[name]
    model = build(scene, profile, gripper=gripper).model
    assert model.nv == ROBOT_DOFS[profile, gripper] + 6 * scene.cubes + scene.switches
    assert model.nu == (2 if gripper else 0)
    assert model.nmocap == 1 + scene.switches


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", SCENES)
def test_slices_point_at_the_entities(profile: str, name: str) -> None:
    scene = build(SCENES[name], profile)
    model, kinds = scene.model, mujoco.mjtObj
    for i in range(scene.scene.cubes):
        joint = model.joint(f"cube{i}")
        assert joint.qposadr[0] == scene.cube_qpos.start + 7 * i
        assert joint.dofadr[0] == scene.cube_qvel.start + 6 * i
        assert model.body(f"cube{i}").id == scene.cube_bodies.start + i
    for i in range(scene.scene.switches):
        assert model.joint(f"switch{i}").qposadr[0] == scene.switch_qpos.start + i
        assert model.body(f"switch{i}").mocapid[0] == 1 + i
    assert model.nq == len(scene.start_qpos)
    assert mujoco.mj_name2id(model, int(kinds.mjOBJ_BODY), f"cube{scene.scene.cubes}") == -1


def test_the_fast_profile_drops_what_is_only_seen() -> None:
    reference, fast = (build(Scene(switches=1, pushes=1), profile).model for profile in PROFILES)
    assert reference.nmesh > 10
    assert fast.nmesh == fast.ntex == fast.nmat == fast.nlight == fast.ncam == 0
    assert fast.ngeom < reference.ngeom
    assert fast.opt.enableflags & int(mujoco.mjtEnableBit.mjENBL_SLEEP)
    assert not reference.opt.enableflags & int(mujoco.mjtEnableBit.mjENBL_SLEEP)


@pytest.mark.parametrize("profile", PROFILES)
def test_entities_are_those_of_the_task(profile: str) -> None:
    model = build(Scene(switches=2, pushes=2), profile).model
    for i in range(2):
        joint = model.joint(f"switch{i}")
        assert joint.range == pytest.approx([-0.7, 0.7])
        assert joint.limited
        assert model.jnt_axis[joint.id] == pytest.approx([1, 0, 0])
        assert model.dof_frictionloss[joint.dofadr[0]] == 1
        cube = model.body(f"cube{i}")
        assert cube.mass == pytest.approx(2)
        (geom,) = np.flatnonzero(model.geom_bodyid == cube.id)
        assert int(model.geom_type[geom]) == int(mujoco.mjtGeom.mjGEOM_BOX)
        assert 2 * model.geom_size[geom] == pytest.approx([0.05] * 3)


@pytest.mark.parametrize("profile", PROFILES)
def test_cubes_are_damped_like_the_cube_of_fetch_push(profile: str) -> None:
    """MuJoCo's damping is a polynomial of the speed: the Fetch cube has the linear term alone."""
    scene = build(Scene(pushes=2), profile)
    assert (scene.model.dof_damping[scene.cube_qvel] == 0.01).all()
    assert (scene.model.dof_dampingpoly[scene.cube_qvel] == 0).all()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("collisions", [False, True])
def test_entities_collide_with_each_other_only_when_asked(profile: str, collisions: bool) -> None:
    scene = build(Scene(switches=1, pushes=3), profile, collisions)
    model, data = scene.model, at_start(scene)
    cubes = data.qpos[scene.cube_qpos].reshape(3, 7).copy()
    cubes[0, :3] = 1.25, 0.6, CUBE_REST_HEIGHT
    cubes[1, :3] = 1.28, 0.6, CUBE_REST_HEIGHT  # overlaps the first
    cubes[2, :3] = 1.25, 0.9, CUBE_REST_HEIGHT  # overlaps the switch
    data.qpos[scene.cube_qpos] = cubes.ravel()
    data.mocap_pos[1] = 1.25, 0.9, TABLE_TOP
    mujoco.mj_forward(model, data)
    pairs = touching(model, data)
    assert all(frozenset({f"cube{i}", "table0"}) in pairs for i in range(3))
    assert (frozenset({"cube0", "cube1"}) in pairs) == collisions
    assert (frozenset({"cube2", "switch0"}) in pairs) == collisions
    assert (frozenset({"cube2", "lever0"}) in pairs) == collisions
    assert frozenset({"switch0", "lever0"}) not in pairs


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("collisions", [False, True])
def test_fingers_collide_with_every_entity(profile: str, collisions: bool) -> None:
    scene = build(Scene(switches=1, pushes=1), profile, collisions)
    model, data = scene.model, at_start(scene)
    data.qpos[scene.cube_qpos][:3] = *GRIPPER_START[:2], CUBE_REST_HEIGHT
    data.mocap_pos[1] = *GRIPPER_START[:2], TABLE_TOP
    mujoco.mj_forward(model, data)
    fingers = {"robot0:l_gripper_finger_link", "robot0:r_gripper_finger_link"}
    touched = {other for pair in touching(model, data) if pair & fingers for other in pair - fingers}
    assert {"cube0", "lever0"} <= touched


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("gripper", [False, True])
def test_the_grip_starts_where_fetch_push_starts(profile: str, gripper: bool) -> None:
    scene = build(Scene(pushes=1), profile, gripper=gripper)
    data = at_start(scene)
    assert np.linalg.norm(data.site("robot0:grip").xpos - GRIPPER_START) < 1e-3
    assert np.linalg.norm(data.body("robot0:gripper_link").xpos - scene.hand_start) < 1e-3
    down = data.site("robot0:grip").xmat.reshape(3, 3)[:, 0]  # the hand's x axis points along the fingers
    assert down == pytest.approx([0, 0, -1], abs=0.02)


def test_an_unknown_profile_names_the_choices() -> None:
    with pytest.raises(ValueError, match="unknown physics profile 'slow': choose reference or fast"):
        build(Scene(pushes=1), "slow")
