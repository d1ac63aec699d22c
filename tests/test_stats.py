from functools import partial

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from efmdp.stats import interquartile_mean, mean_over_seeds, probability_of_improvement, success_rate, t95

RNG = partial(np.random.default_rng, 0)


# Wilson's score interval without continuity correction, z = 1.959964, as R's
# prop.test(successes, episodes, correct = FALSE) prints it.
@pytest.mark.parametrize(
    ("successes", "episodes", "low", "high"),
    [
        (0, 10, 0.0, 0.27753),
        (10, 10, 0.72247, 1.0),
        (5, 10, 0.23659, 0.76341),
        (1, 2, 0.09453, 0.90547),
        (81, 263, 0.25535, 0.36621),  # Newcombe 1998, table I
        (15, 148, 0.06238, 0.16054),
        (0, 20, 0.0, 0.16113),
        (1, 29, 0.00611, 0.17176),
    ],
)
def test_known_intervals(successes: int, episodes: int, low: float, high: float) -> None:
    rate = success_rate(successes, episodes)
    assert rate.value == successes / episodes
    assert rate.low == pytest.approx(low, abs=1e-4)
    assert rate.high == pytest.approx(high, abs=1e-4)


@given(episodes=st.integers(1, 5000), data=st.data())
def test_interval_holds_the_rate_and_is_symmetric(episodes: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, episodes))
    rate, mirrored = success_rate(successes, episodes), success_rate(episodes - successes, episodes)
    assert 0 <= rate.low <= rate.value + 1e-12
    assert rate.value - 1e-12 <= rate.high <= 1
    assert rate.low == pytest.approx(1 - mirrored.high, abs=1e-9)
    assert rate.high == pytest.approx(1 - mirrored.low, abs=1e-9)


def test_more_episodes_narrow_it() -> None:
    widths = [(rate := success_rate(9 * n, 10 * n)).high - rate.low for n in (1, 10, 100)]
    assert widths[0] > widths[1] > widths[2]


def test_text() -> None:
    assert str(success_rate(50, 100)) == "50.0 % (40.4 to 59.6)"


def test_mean_over_seeds_by_hand() -> None:
    """Mean 0.7, standard deviation 0.2 (ddof 1), t = 3.18245 for 3 degrees of freedom: 3.18245 * 0.2 / 2."""
    rate = mean_over_seeds([0.6, 0.6, 0.6, 1.0])
    assert rate.value == pytest.approx(0.7)
    assert rate.high - rate.value == pytest.approx(0.318245)
    assert rate.value - rate.low == pytest.approx(0.318245)


@given(st.lists(st.integers(0, 500), min_size=2, max_size=20).filter(lambda successes: len(set(successes)) > 1))
def test_mean_over_seeds_is_scipys(successes: list[int]) -> None:
    rates = np.array(successes) / 500
    low, high = scipy.stats.t.interval(0.95, len(rates) - 1, np.mean(rates), scipy.stats.sem(rates))
    assert mean_over_seeds(rates) == pytest.approx((np.mean(rates), low, high), abs=1e-4)


@pytest.mark.parametrize("freedom", [*range(1, 40), 100, 1000])
def test_students_t_is_scipys(freedom: int) -> None:
    assert t95(freedom) == pytest.approx(scipy.stats.t.ppf(0.975, freedom), abs=2e-4)


def test_a_single_seed_has_no_interval_over_seeds() -> None:
    alone, one, two = mean_over_seeds([0.4]), np.array([[0.4, 0.1]]), np.array([[0.4, 0.1], [0.2, 0.6]])
    assert alone.value == 0.4
    for rate in (alone, interquartile_mean(one, RNG()), probability_of_improvement(two, one, RNG())):
        assert np.isnan([rate.low, rate.high]).all()


def test_interquartile_mean_by_hand() -> None:
    """Of 0, 1, .. 7 tenths two go at either end, whichever task they are of: 2, 3, 4 and 5 are left."""
    assert interquartile_mean(np.array([[0.7, 0.0], [0.4, 0.1], [0.2, 0.3], [0.5, 0.6]]), RNG()).value == 0.35


def test_interquartile_mean_cuts_as_scipy_does() -> None:
    for count in range(1, 14):
        scores = RNG().random((count, 1))
        assert interquartile_mean(scores, RNG()).value == pytest.approx(scipy.stats.trim_mean(scores[:, 0], 0.25))


def test_bootstrap_draws_seeds_not_tasks() -> None:
    """All seeds agree on each task: nothing varies, however far the tasks are apart."""
    assert interquartile_mean(np.array([[0.1, 0.9]] * 3), RNG()) == pytest.approx((0.5, 0.5, 0.5))


def test_more_tasks_of_the_same_seeds_do_not_narrow_the_interval() -> None:
    """A good seed is good everywhere: ten tasks say no more about seeds than one."""
    seeds = np.array([[0.2], [0.5], [0.8], [0.6]])
    one, ten = (interquartile_mean(np.repeat(seeds, tasks, 1), RNG()) for tasks in (1, 10))
    assert ten.high - ten.low == pytest.approx(one.high - one.low, abs=0.05)
    assert one.high - one.low > 0.25


def test_bootstrap_intervals_are_scipys() -> None:
    ours, theirs = RNG().random((2, 5, 3))  # (architecture, seeds, tasks)

    def middle(*tasks: np.ndarray, axis: int) -> np.ndarray:
        return scipy.stats.trim_mean(np.concatenate(tasks, axis), 0.25, axis)

    percentiles = partial(scipy.stats.bootstrap, method="percentile", n_resamples=5000)
    expected = percentiles(list(ours.T), middle, paired=True, rng=RNG()).confidence_interval
    rate = interquartile_mean(ours, RNG())
    assert (rate.low, rate.high) == pytest.approx(expected, abs=0.02)
    assert interquartile_mean(ours, RNG()) == rate  # the same generator, the same interval

    def wins(i: np.ndarray, j: np.ndarray) -> float:
        pairs = zip(ours[i].T, theirs[j].T, strict=True)
        return float(np.mean([scipy.stats.mannwhitneyu(a, b).statistic / 25 for a, b in pairs]))

    seeds = np.arange(5)
    expected = percentiles((seeds, seeds), wins, vectorized=False, n_resamples=500, rng=RNG()).confidence_interval
    better = probability_of_improvement(ours, theirs, RNG())
    assert better.value == pytest.approx(wins(seeds, seeds))
    assert (better.low, better.high) == pytest.approx(expected, abs=0.05)


def test_probability_of_improvement_by_hand() -> None:
    """First task: of 6 pairs 3 are won and 1 is tied, 3.5 / 6. Second task: all are won."""
    ours, theirs = np.array([[0.5, 1.0], [0.9, 1.0]]), np.array([[0.9, 0.0], [0.2, 0.1], [0.6, 0.0]])
    assert probability_of_improvement(ours, theirs, RNG()).value == pytest.approx((3.5 / 6 + 1) / 2)


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3), min_size=2, max_size=5))
def test_improvement_over_each_other_adds_up_to_one(seeds: list[list[int]]) -> None:
    ours, theirs = np.array(seeds) / 5, np.array([[0.2, 0.6, 0.4], [0.6, 0.0, 1.0]])
    there, back = (probability_of_improvement(*pair, RNG()).value for pair in ((ours, theirs), (theirs, ours)))
    assert there + back == pytest.approx(1)
    assert probability_of_improvement(ours, ours, RNG()).value == pytest.approx(0.5)
