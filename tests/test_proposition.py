"""The paper's Proposition 1 on a small Entity-Factored MDP, with exact tables. docs/proposition.md explains it.

An agent walks a ring of CELLS cells. Every entity on the cell that it enters is pushed one cell further, and each of
them, independently, slips and stays with probability SLIP. A subgoal is a cell. The subgoal reward is minus the number
of cells from entity to subgoal, counted in one direction around the ring.

Tables keep one axis per variable, so that permuting entity-subgoal pairs is permuting axes (N is 3):
transitions (u, e1, e2, e3, a, u', e1', e2', e3'), rewards (g1, g2, g3, u, e1, e2, e3), and Q is rewards with a last
axis a.
"""

from collections.abc import Iterator
from itertools import permutations, product

import numpy as np
import pytest

from efmdp.entities import Array, Rule, aggregate

N = 3
CELLS = 3
MOVES = (-1, 0, 1)
SLIP = 0.25
DISCOUNT = 0.9
SIGMAS = list(permutations(range(N)))
RULES: tuple[Rule, ...] = ("all", "any", "mean", "sum")
EVEN = (1.0, 1.0, 1.0)

STATES = CELLS ** (1 + N)
GOALS = CELLS**N
Q_SHAPE = (CELLS,) * (N + 1 + N) + (len(MOVES),)

ROUNDING = 1e-12
CONVERGED = 1e-10
TIE = 1e-7


def transition_table(movable: tuple[bool, ...] = (True,) * N) -> Array:
    state_shape = (CELLS,) * (1 + N)
    table = np.zeros((*state_shape, len(MOVES), *state_shape))
    for agent, *entities in np.ndindex(state_shape):
        for action, move in enumerate(MOVES):
            target = (agent + move) % CELLS
            pushed = [i for i in range(N) if move and movable[i] and entities[i] == target]
            for slips in product((False, True), repeat=len(pushed)):
                after = list(entities)
                for i, slipped in zip(pushed, slips, strict=True):
                    after[i] = entities[i] if slipped else (entities[i] + move) % CELLS
                probability = np.prod([SLIP if slipped else 1 - SLIP for slipped in slips])
                table[(agent, *entities, action, target, *after)] += probability
    return table


def reward_table(rule: Rule, weights: tuple[float, ...] = EVEN) -> Array:
    goals, entities = np.indices((CELLS,) * (2 * N)).reshape(2, N, -1)  # each (N, GOALS * CELLS**N)
    subrewards = -((goals - entities) % CELLS) * np.array(weights)[:, None]
    rewards = aggregate(subrewards.T, rule).reshape(GOALS, 1, CELLS**N)
    return rewards.repeat(CELLS, 1).reshape((CELLS,) * (N + 1 + N))


def value_iteration(transitions: Array, rewards: Array) -> Iterator[Array]:
    """Q_0 = 0, Q_1, ... until it converges, by the standard backup r + discount * sum_s' P(s'|s,a) max_a' Q(s',a')."""
    flat_transitions = transitions.reshape(STATES * len(MOVES), STATES)
    q = np.zeros(Q_SHAPE)
    change = np.inf
    while change > CONVERGED:
        yield q
        values = q.max(-1).reshape(GOALS, STATES)
        # einsum, not @: BLAS threads waiting for each other on a busy machine would dominate so small a product.
        future = np.einsum("gt,st->gs", values, flat_transitions).reshape(Q_SHAPE)
        updated = rewards[..., None] + DISCOUNT * future
        change = np.abs(updated - q).max()
        q = updated
    yield q


def pairs_permuted(table: Array, sigma: tuple[int, ...]) -> Array:
    """The table with entity-subgoal pairs permuted: axes (goals, agent, entities, ...) in the order sigma."""
    rest = range(2 * N + 1, table.ndim)
    return table.transpose(*sigma, N, *(N + 1 + i for i in sigma), *rest)


def asymmetry(table: Array) -> float:
    """The largest change that any permutation of entity-subgoal pairs makes."""
    return max(np.abs(pairs_permuted(table, sigma) - table).max() for sigma in SIGMAS)


def transition_asymmetry(transitions: Array) -> float:
    def permuted(sigma: tuple[int, ...]) -> Array:
        before = [0, *(1 + i for i in sigma)]
        return transitions.transpose(*before, N + 1, *(N + 2 + axis for axis in before))

    return max(np.abs(permuted(sigma) - transitions).max() for sigma in SIGMAS)


def optimal_actions(q: Array) -> Array:
    """Which actions are optimal, ties included: a bool table shaped like Q."""
    return q >= q.max(-1, keepdims=True) - TIE


@pytest.fixture(scope="module")
def transitions() -> Array:
    return transition_table()


@pytest.fixture(scope="module")
def optimal_q(transitions: Array) -> Array:
    *_, q = value_iteration(transitions, reward_table("mean"))
    return q


def test_the_dynamics_are_symmetric_and_stochastic(transitions):
    np.testing.assert_allclose(transitions.reshape(-1, STATES).sum(-1), 1)
    assert ((transitions > 0) & (transitions < 1)).any()
    assert transition_asymmetry(transitions) == 0


@pytest.mark.parametrize("rule", RULES)
def test_every_iterate_and_the_set_of_optimal_actions_are_invariant(rule, transitions):
    rewards = reward_table(rule)
    assert asymmetry(rewards) < ROUNDING
    for k, q in enumerate(value_iteration(transitions, rewards)):
        assert asymmetry(q) < ROUNDING * (k + 1), f"Q_{k}"
    best = optimal_actions(q)
    assert best.sum(-1).max() > 1, "the problem must have ties for sets of actions to matter"
    assert not best.all(), "the problem must prefer some actions for the check to mean anything"
    assert asymmetry(best.astype(float)) == 0


def test_ties_are_exact_ties(optimal_q):
    gaps = optimal_q.max(-1, keepdims=True) - optimal_q
    assert not ((gaps > TIE / 10) & (gaps < TIE * 1000)).any()


def test_a_single_optimal_action_need_not_be_invariant(optimal_q):
    best = optimal_actions(optimal_q)  # (g1, g2, g3, u, e1, e2, e3, a)
    first = best.argmax(-1)
    last = len(MOVES) - 1 - best[..., ::-1].argmax(-1)
    e1, e2 = np.indices(first.shape)[N + 1 : N + 3]
    # Breaking ties by comparing the entities in slots 1 and 2 costs no value, but depends on their order.
    chosen = np.where(e1 < e2, first, last)
    value_of_chosen = np.take_along_axis(optimal_q, chosen[..., None], -1)[..., 0]
    np.testing.assert_allclose(value_of_chosen, optimal_q.max(-1), atol=TIE)
    assert asymmetry(chosen) > 0


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("broken", ["slot 1 cannot be pushed", "slot 1 weighs double"])
def test_the_check_fails_when_the_symmetry_is_broken(rule, broken, transitions):
    if broken == "slot 1 cannot be pushed":
        transitions = transition_table(movable=(False, True, True))
        rewards = reward_table(rule)
        assert transition_asymmetry(transitions) > 0
    else:
        rewards = reward_table(rule, weights=(2.0, 1.0, 1.0))
        assert asymmetry(rewards) > 0
    *_, q = value_iteration(transitions, rewards)
    assert asymmetry(q) > 0.01
    assert asymmetry(optimal_actions(q).astype(float)) > 0
