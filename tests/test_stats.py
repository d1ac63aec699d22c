import pytest
from hypothesis import given
from hypothesis import strategies as st

from efmdp.stats import success_rate


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
