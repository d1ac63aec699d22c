from typing import Any

import numpy as np
import pytest

from efmdp.entities import EntityObs, Objective, aggregate

RULES = ("all", "any", "mean", "sum")
SUBREWARDS = np.array([[-3.0, -1.0, 0.0], [-1.0, -1.0, -1.0]])


@pytest.mark.parametrize(
    ("rule", "expected"), [("all", [-3, -1]), ("any", [0, -1]), ("mean", [-4 / 3, -1]), ("sum", [-4, -3])]
)
def test_aggregate(rule, expected):
    np.testing.assert_allclose(aggregate(SUBREWARDS, rule), expected)


@pytest.mark.parametrize(
    ("rule", "expected"), [("all", [-1, -1]), ("any", [-1, -1]), ("mean", [-1, -1]), ("sum", [-1, -2])]
)
def test_aggregate_counts_only_entities_with_a_goal(rule, expected):
    has_goal = np.array([[False, True, False], [True, False, True]])
    np.testing.assert_allclose(aggregate(SUBREWARDS, rule, has_goal), expected)


@pytest.mark.parametrize("rule", RULES)
def test_aggregate_with_every_goal_is_aggregate(rule):
    has_goal = np.ones(SUBREWARDS.shape, bool)
    np.testing.assert_allclose(aggregate(SUBREWARDS, rule, has_goal), aggregate(SUBREWARDS, rule))


@pytest.mark.parametrize("rule", RULES)
def test_aggregate_is_zero_where_nothing_has_a_goal(rule):
    has_goal = np.array([[False] * 3, [True] * 3])
    result = aggregate(SUBREWARDS, rule, has_goal)
    assert result[0] == 0
    assert result[1] == aggregate(SUBREWARDS[1], rule)


@pytest.mark.parametrize("rule", RULES)
def test_aggregate_over_leading_axes(rule):
    subrewards = -np.random.default_rng(0).random((2, 4, 3))
    result = aggregate(subrewards, rule)
    assert result.shape == (2, 4)
    assert result[1, 2] == pytest.approx(aggregate(subrewards[1, 2], rule))


@pytest.mark.parametrize("has_goal", [None, np.ones((2, 3), bool)])
def test_aggregate_rejects_an_unknown_rule(has_goal):
    unknown: Any = "most"
    with pytest.raises(ValueError, match=r"'most'.*all, any, mean or sum"):
        aggregate(SUBREWARDS, unknown, has_goal)


def test_sparse_reward_counts_met_subgoals():
    distance = np.array([[0.0, 0.2], [0.0, 0.01]])
    np.testing.assert_array_equal(Objective("sparse", "all").reward(distance), [-1, 0])
    np.testing.assert_array_equal(Objective("sparse", "mean").reward(distance), [-0.5, 0])


def test_dense_reward_is_minus_the_distance():
    np.testing.assert_allclose(Objective("dense", "mean").reward(np.array([0.1, 0.3])), -0.2)
    np.testing.assert_allclose(Objective("dense", "sum").reward(np.array([0.1, 0.3])), -0.4)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_entities_without_a_goal_change_neither_reward_nor_success(kind):
    objective = Objective(kind, "mean")
    with_padding, has_goal = np.array([0.02, 9.0]), np.array([True, False])
    assert objective.reward(with_padding, has_goal) == objective.reward(np.array([0.02]))
    assert objective.success(with_padding, has_goal)


def test_the_threshold_itself_is_met():
    objective = Objective("sparse", "all", threshold=0.05)
    beyond = np.nextafter(0.05, 1)
    np.testing.assert_array_equal(objective.met(np.array([0.0, 0.05, beyond])), [True, True, False])
    assert objective.reward(np.array([0.05])) == 0
    assert objective.reward(np.array([beyond])) == -1


@pytest.mark.parametrize("rule", RULES)
def test_nan_is_never_met(rule):
    objective = Objective("sparse", rule)
    distance = np.array([np.nan])
    assert not objective.met(distance).any()
    assert objective.reward(distance) == -1
    assert not objective.success(distance)


@pytest.mark.parametrize(("rule", "expected"), [("all", False), ("any", True), ("mean", False), ("sum", False)])
def test_one_met_subgoal_is_success_only_for_any(rule, expected):
    assert Objective("sparse", rule).success(np.array([0.0, 1.0])) == expected


@pytest.mark.parametrize("rule", ["all", "any"])
def test_a_met_entity_without_a_goal_is_no_success(rule):
    assert not Objective("sparse", rule).success(np.array([0.0, 1.0]), np.array([False, True]))


def test_permuted_moves_pairs_together_per_row():
    agent = np.arange(4.0).reshape(2, 2)
    entities = np.arange(12.0).reshape(2, 3, 2)  # (B, N, E)
    goals = entities[..., :1] + 100  # (B, N, G)
    order = np.array([[2, 0, 1], [0, 2, 1]])
    obs = EntityObs(agent, entities, goals)
    permuted = obs.permuted(order)
    np.testing.assert_array_equal(permuted.agent, agent)
    for b in range(2):
        np.testing.assert_array_equal(permuted.entities[b], entities[b, order[b]])
        np.testing.assert_array_equal(permuted.goals[b], goals[b, order[b]])
    restored = permuted.permuted(np.argsort(order, axis=1))
    np.testing.assert_array_equal(restored.entities, entities)
    np.testing.assert_array_equal(restored.goals, goals)
