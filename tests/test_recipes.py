import json
from dataclasses import asdict, replace

import pytest

from efmdp.ddpg import DDPGConfig
from efmdp.entities import Objective, UserError
from efmdp.networks import Kind, NetworkConfig
from efmdp.recipes import Exploration, Stage, TrainConfig, fast, from_json, make_network, paper
from efmdp.tasks import TaskError, parse_task

DEEP_SET = NetworkConfig("deep-set")

# The paper's table "Environment specific RL hyperparameters": reward, epochs, fast decay, slow decay, τ; None is the
# constant schedule. The last five rows are those of its released code.
TABLE = [
    ("1-Push", "sparse", 50, None, None, 0.95),
    ("2-Push", "dense", 150, (0.01, 75, 125), (0.01, 75, 125), 0.99),
    ("3-Push", "dense", 250, (0.01, 30, 80), (0.01, 100, 175), 0.99),
    ("1-Switch", "sparse", 10, None, None, 0.95),
    ("2-Switch", "sparse", 50, None, None, 0.95),
    ("3-Switch", "sparse", 100, None, None, 0.95),
    ("1-Switch+1-Push", "dense", 150, (0.01, 60, 100), (0.01, 60, 100), 0.99),
    ("2-Switch+2-Push", "dense", 250, (0.01, 75, 150), (0.01, 100, 150), 0.99),
    ("2-Switch|2-Push", "dense", 250, (0.01, 50, 100), (0.01, 100, 175), 0.99),
    ("2-Switch&2-Push", "dense", 250, (0.01, 50, 100), (0.01, 100, 175), 0.99),
    ("2-Push|Stack", "dense", 250, (0.01, 75, 150), (0.01, 75, 150), 0.99),
    ("2-Push&Stack", "dense", 250, (0.01, 75, 150), (0.01, 75, 150), 0.99),
    ("Stack", "dense", 250, (0.01, 75, 150), (0.01, 75, 150), 0.99),
]
TASKS = [row[0] for row in TABLE]


@pytest.mark.parametrize("decay", ["fast", "slow"])
@pytest.mark.parametrize(("task", "reward", "epochs", "quick", "slow", "tau"), TABLE, ids=TASKS)
def test_paper_table_of_environments(
    task: str,
    reward: str,
    epochs: int,
    quick: tuple[float, int, int] | None,
    slow: tuple[float, int, int] | None,
    tau: float,
    decay: str,
) -> None:
    config = paper(task, DEEP_SET, seed=3, decay=decay)  # type: ignore[arg-type]
    assert config.task == task
    assert config.seed == 3
    assert len(config.stages) == 1  # the paper has no curriculum
    stage = config.stages[0]
    assert (stage.task, stage.epochs) == (task, epochs)
    assert stage.until > 1  # nor does it stop early
    rule = {"sparse": "all", "dense": "mean"}[reward]
    assert (config.objective.kind, config.objective.rule) == (reward, rule)
    assert config.ddpg.reward_scale == {"sparse": 1, "dense": 5}[reward]
    assert config.ddpg.target_keep == tau
    exploration, schedule = stage.exploration, quick if decay == "fast" else slow
    assert (exploration.noise, exploration.random) == (0.2, 0.3)
    if schedule is None:
        assert {exploration.factor(epoch, 0.7) for epoch in range(epochs)} == {1.0}
    else:
        to, start, end = schedule
        assert exploration.factor(0, 0.7) == exploration.factor(start, 0.7) == 1
        assert exploration.factor(start + 1, 0.7) < 1
        assert exploration.factor((start + end) // 2, 0.7) == pytest.approx(
            1 - (1 - to) * ((start + end) // 2 - start) / (end - start)
        )
        assert exploration.factor(end - 1, 0.7) > to
        assert exploration.factor(end, 0.7) == exploration.factor(epochs, 0.7) == pytest.approx(to)


@pytest.mark.parametrize("task", TASKS)
def test_paper_table_of_shared_values(task: str) -> None:
    config = paper(task, DEEP_SET, seed=0)
    assert config.ddpg.discount == 0.98
    assert config.num_envs == 16
    assert config.replay_capacity == 1_000_000
    assert config.relabel_prob == 0.8
    assert config.num_envs * 5 == config.updates_per_round * 2  # 2 episodes for 5 updates
    assert config.rounds_per_epoch == 50  # an epoch is 50 x parallel envs episodes
    # The released code's, where the paper is silent
    assert config.batch_size == 2048
    assert config.ddpg.target_every == 40
    assert config.ddpg.action_l2 == 1
    assert config.ddpg.observation_clip == 200
    assert config.ddpg.normalised_clip == 5
    assert not config.by_movement
    assert config.redraws == 0
    assert not config.subsets


@pytest.mark.parametrize(
    ("kind", "rate", "fast_rate"),
    [
        ("mlp", 0.001, 0.001),
        ("deep-set", 0.001, 0.001),
        ("deep-set-large", 0.001, 0.001),
        ("self-attention", 0.0001, 0.0003),
    ],
)
def test_learning_rates(kind: Kind, rate: float, fast_rate: float) -> None:
    network = make_network(kind, 3)
    assert paper("3-Push", network, 0).ddpg.learning_rate == rate
    assert paper("3-Push", network, 0).network == network
    assert fast("3-Push", network, 0).ddpg.learning_rate == fast_rate


def test_stronger_action_penalty() -> None:
    """For Self-Attention where there are cubes and no curriculum, and nothing else."""
    attention = make_network("self-attention", 3)
    for task in ("2-Push", "3-Push"):
        assert fast(task, attention, 0).ddpg.action_l2 == 1
    for task in ("1-Push", "3-Push", "2-Switch+2-Push", "2-Switch|2-Push", "2-Push|Stack", "Stack"):
        assert fast(task, attention, 0, curriculum=False).ddpg.action_l2 == 3
        assert fast(task, DEEP_SET, 0, curriculum=False).ddpg.action_l2 == 1
    assert fast("3-Switch", attention, 0, curriculum=False).ddpg.action_l2 == 1


def test_paper_architectures() -> None:
    network = make_network("self-attention", 3)
    assert (network.width, network.feedforward, network.heads, network.blocks) == (256, 256, 4, 2)
    assert make_network("deep-set", 3).width == 256
    assert make_network("mlp", 3).width == 256


def test_decay_by_hand() -> None:
    schedule = Exploration(decay_to=0.01, decay_from_epoch=100, decay_until_epoch=150)  # Lin(.01, 100, 150)
    expected = {0: 1.0, 99: 1.0, 100: 1.0, 101: 0.9802, 110: 0.802, 125: 0.505, 149: 0.0298, 150: 0.01, 500: 0.01}
    assert {epoch: schedule.factor(epoch, 0.7) for epoch in expected} == pytest.approx(expected)
    assert {Exploration().factor(epoch, 0.7) for epoch in range(1000)} == {1.0}


def test_decay_in_no_time() -> None:
    """From and until the same epoch: at once, not a division by zero."""
    schedule = Exploration(decay_to=0.1, decay_from_epoch=5, decay_until_epoch=5)
    assert schedule.factor(5, 0.7) == 1
    assert schedule.factor(6, 0.7) == pytest.approx(0.1)


def test_unknown_task_lists_choices() -> None:
    with pytest.raises(TaskError) as caught:
        paper("4-Push", DEEP_SET, 0)
    message = str(caught.value)
    assert "\n" not in message
    assert "4-Push" in message
    for task in TASKS:
        assert task in message


CONFIGS = [
    *(
        paper(task, make_network(kind, parse_task(task).entities), 1)
        for task in TASKS
        for kind in ("mlp", "self-attention")
    ),
    *(fast(task, DEEP_SET, 2, curriculum) for task in ("1-Push", "3-Push", "3-Switch") for curriculum in (True, False)),
    TrainConfig(
        task="2-Disc",
        network=NetworkConfig("mlp", width=32, max_entities=4),
        ddpg=DDPGConfig(target_every=7, observation_clip=10.0),
        objective=Objective("dense", "sum", 0.07),
        stages=(
            Stage("1-Disc", 3, 0.5, Exploration(0.1, 0.2, 0.3, 4, 5)),
            Stage("2-Disc", 4, exploration=Exploration(0.3)),
        ),
        recipe="own",
        collisions=True,
        gripper=False,
    ),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.recipe}-{c.task}-{c.network.kind}")
def test_json_round_trip(config: TrainConfig) -> None:
    stored = json.loads(json.dumps(asdict(config)))
    again = from_json(stored)
    assert again == config
    assert isinstance(again.stages, tuple)
    assert hash(again) == hash(config)
    assert json.loads(json.dumps(asdict(again))) == stored
    assert from_json(json.loads(json.dumps(asdict(replace(config, seed=9))))) != config


@pytest.mark.parametrize(
    ("task", "room", "expected"),
    [
        ("1-Push", None, 1),
        ("3-Push", None, 3),
        ("3-Push", 6, 6),
        ("2-Switch+2-Push", None, 4),
        ("2-Switch|2-Push", None, 2),
        ("2-Switch|2-Push", 4, 4),
        ("2-Switch&2-Push", None, 4),
    ],
)
def test_mlp_is_padded(task: str, room: int | None, expected: int) -> None:
    assert make_network("mlp", parse_task(task).entities, room).max_entities == expected


@pytest.mark.parametrize("kind", ["deep-set", "deep-set-large", "self-attention"])
def test_other_networks_have_room_for_any_number(kind: Kind) -> None:
    assert make_network(kind, 3).max_entities is None
    with pytest.raises(UserError, match=r"max_entities is 6: .* takes any number, leave it out"):
        make_network(kind, 3, 6)


def test_an_mlp_needs_room_for_the_task() -> None:
    with pytest.raises(UserError, match="the task has 3 entities: an mlp with room for 2 cannot learn it"):
        make_network("mlp", 3, 2)


@pytest.mark.parametrize("task", ["1-Push", "2-Push", "3-Push", "3-Switch", "2-Switch+2-Push", "2-Switch|2-Push"])
def test_fast_ends_with_the_task_itself(task: str) -> None:
    for curriculum in (True, False):
        config = fast(task, DEEP_SET, 0, curriculum)
        assert config.stages[-1].task == config.task == task
        assert config.stages[-1].until > 1
        assert curriculum or len(config.stages) == 1


def test_fast_differs_between_architectures_in_nothing_but_network_rate_and_subsets() -> None:
    networks = [make_network(kind, 3) for kind in ("mlp", "deep-set", "self-attention")]
    configs = [fast("3-Push", network, 0) for network in networks]
    plain = [replace(c, network=DEEP_SET, ddpg=replace(c.ddpg, learning_rate=1.0), subsets=False) for c in configs]
    assert plain[0] == plain[1] == plain[2]


@pytest.mark.parametrize(
    ("task", "stages"),
    [
        ("1-Push", ["1-Push"]),
        ("2-Push", ["1-Push", "2-Push"]),
        ("3-Push", ["1-Push", "2-Push", "3-Push"]),
        ("5-Push", ["1-Push", "2-Push", "5-Push"]),
        ("1-Switch", ["1-Switch"]),
        ("3-Switch", ["1-Switch", "3-Switch"]),
        ("2-Switch+2-Push", ["2-Switch+2-Push"]),
        ("2-Switch|2-Push", ["2-Switch|2-Push"]),
        ("2-Switch&2-Push", ["2-Switch&2-Push"]),
        ("2-Push&Stack", ["2-Push&Stack"]),
        ("1-Push&2-Push", ["1-Push&2-Push"]),
        ("Stack", ["Stack"]),
        ("Push+Stack", ["Push+Stack"]),
    ],
)
def test_fast_curriculum(task: str, stages: list[str]) -> None:
    assert [stage.task for stage in fast(task, DEEP_SET, 0).stages] == stages
    assert [stage.task for stage in fast(task, DEEP_SET, 0, curriculum=False).stages] == [task]


@pytest.mark.parametrize(
    ("task", "curriculum", "subsets"),
    [
        ("1-Push", False, False),
        ("3-Push", True, True),
        ("3-Push", False, True),
        ("3-Switch", False, True),
        ("2-Switch+2-Push", True, True),
        ("2-Switch|2-Push", True, True),
        ("2-Push|Stack", True, False),
        ("Push+Stack", False, False),
    ],
)
def test_fast_subsets(task: str, curriculum: bool, subsets: bool) -> None:
    """For networks that take sets, and not where one may stand on a hidden one."""
    assert fast(task, DEEP_SET, 0, curriculum).subsets == subsets
    assert fast(task, make_network("self-attention", 4), 0, curriculum).subsets == subsets
    assert not fast(task, make_network("mlp", 4), 0, curriculum).subsets


def test_fast_explores_less_where_it_succeeds() -> None:
    for stage in fast("3-Push", DEEP_SET, 0).stages:
        factors = [stage.exploration.factor(epoch=7, success=success) for success in (0, 0.5, 1)]
        assert factors == pytest.approx([1, 0.6, 0.2])
