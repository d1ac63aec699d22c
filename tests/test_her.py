import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from efmdp.her import draw_transitions, relabel

LENGTHS = hnp.arrays(np.int64, st.integers(1, 200), elements=st.integers(1, 300))


@given(lengths=LENGTHS, probability=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_times_stay_inside_their_episode(lengths: np.ndarray, probability: float, seed: int) -> None:
    draw = draw_transitions(lengths, probability, np.random.default_rng(seed))
    assert draw.time.shape == draw.future.shape == draw.relabelled.shape == lengths.shape
    assert (draw.time >= 0).all()
    assert (draw.time < lengths).all()
    assert (draw.future > draw.time).all()
    assert (draw.future <= lengths).all()


class Extreme:
    """A generator whose every number is the smallest or the largest that a real one can give."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, self.value)


@given(lengths=LENGTHS, value=st.sampled_from([0.0, 1 - 2.0**-53]))
def test_rounding_never_leaves_the_episode(lengths: np.ndarray, value: float) -> None:
    draw = draw_transitions(lengths, 0.5, Extreme(value))  # type: ignore[arg-type]
    assert (draw.time == (0 if value == 0 else lengths - 1)).all()
    assert (draw.future == (1 if value == 0 else lengths)).all()


@given(lengths=LENGTHS, seed=st.integers(0, 2**32))
def test_the_same_generator_draws_the_same(lengths: np.ndarray, seed: int) -> None:
    first, second = (draw_transitions(lengths, 0.8, np.random.default_rng(seed)) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert np.array_equal(a, b)


def test_another_generator_draws_otherwise() -> None:
    lengths = np.full(100, 50)
    first, second = (draw_transitions(lengths, 0.8, np.random.default_rng(seed)) for seed in (0, 1))
    assert not np.array_equal(first.time, second.time)


@settings(max_examples=20)
@given(probability=st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]), seed=st.integers(0, 2**32))
def test_fraction_relabelled(probability: float, seed: int) -> None:
    number = 20_000
    draw = draw_transitions(np.full(number, 50), probability, np.random.default_rng(seed))
    spread = np.sqrt(probability * (1 - probability) / number)
    assert abs(draw.relabelled.mean() - probability) <= 5 * spread


@settings(max_examples=10)
@given(length=st.integers(1, 8), seed=st.integers(0, 2**32))
def test_every_pair_of_times_is_drawn(length: int, seed: int) -> None:
    draw = draw_transitions(np.full(5000, length), 0.8, np.random.default_rng(seed))
    drawn = set(zip(draw.time.tolist(), draw.future.tolist(), strict=True))
    assert drawn == {(time, future) for time in range(length) for future in range(time + 1, length + 1)}


def test_times_are_uniform_and_so_is_the_future_after_each() -> None:
    draw = draw_transitions(np.full(60_000, 5), 0.8, np.random.default_rng(0))
    assert np.allclose(np.bincount(draw.time) / 60_000, 1 / 5, atol=0.01)
    for time in range(5):
        futures = draw.future[draw.time == time]
        assert np.allclose(np.bincount(futures - time - 1) / len(futures), 1 / (5 - time), atol=0.02)


def test_relabelling_depends_on_neither_time() -> None:
    draw = draw_transitions(np.full(60_000, 5), 0.8, np.random.default_rng(0))
    for time in range(5):
        assert abs(draw.relabelled[draw.time == time].mean() - 0.8) < 0.02
        assert abs(draw.relabelled[draw.future == time + 1].mean() - 0.8) < 0.02


@given(data=st.data(), batch=st.integers(1, 6), entities=st.integers(1, 4), size=st.integers(1, 3))
def test_relabel_replaces_whole_goals_only_where_told(
    data: st.DataObject, batch: int, entities: int, size: int
) -> None:
    shape = (batch, entities, size)
    goals = np.arange(batch * entities * size, dtype=np.float32).reshape(shape)
    later = -1 - goals
    told = data.draw(hnp.arrays(bool, batch))
    before = goals.copy(), later.copy()
    new = relabel(goals, later, told)
    assert new.dtype == np.float32
    for b in range(batch):
        assert np.array_equal(new[b], later[b] if told[b] else goals[b])
    assert np.array_equal(goals, before[0])
    assert np.array_equal(later, before[1])


def test_worked_example() -> None:
    # Three transitions with two entities and one number each; only the middle one is relabelled.
    goals = np.array([[[1.0], [2.0]], [[3.0], [4.0]], [[5.0], [6.0]]])
    later = np.array([[[10.0], [20.0]], [[30.0], [40.0]], [[50.0], [60.0]]])
    new = relabel(goals, later, np.array([False, True, False]))
    assert new.tolist() == [[[1.0], [2.0]], [[30.0], [40.0]], [[5.0], [6.0]]]

    class Dice:
        def random(self, shape: tuple[int, ...]) -> np.ndarray:
            return np.array([[0.65], [0.9], [0.79]])

    # Length 5: time is floor(0.65 * 5) = 3; of the 2 observations after it, floor(0.9 * 2) = 1 is the second, 5.
    draw = draw_transitions(np.array([5]), 0.8, Dice())  # type: ignore[arg-type]
    assert (draw.time.item(), draw.future.item(), draw.relabelled.item()) == (3, 5, True)
