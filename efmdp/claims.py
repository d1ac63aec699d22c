"""What the paper claims, beside what was measured, with a plain verdict.

A claim in words leaves room: the bound that decides here stands in its `means`. Means over seeds decide, and where
their intervals reach across the bound, the measured text shows it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf
from statistics import fmean
from typing import NamedTuple

from efmdp.evidence import Evidence, Point, over_seeds
from efmdp.experiments import EXTRAPOLATED, LEARNED, Experiment
from efmdp.stats import Rate

SETS = ("deep-set", "self-attention")
ALL = ("mlp", *SETS)
SHORT = {"mlp": "MLP", "deep-set": "DS", "deep-set-large": "large DS", "self-attention": "SA"}


class Finding(NamedTuple):
    """What was measured, and whether the claim holds; None while there is not enough to say."""

    measured: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        return "not enough data" if self.holds is None else "holds" if self.holds else "does not hold"


NOTHING = Finding("", None)


class Measured:
    """Success by experiment, for the claims to ask."""

    def __init__(self, evidence: Evidence, experiments: Sequence[Experiment]) -> None:
        self.evidence = evidence
        self.experiments = {experiment.name: experiment for experiment in experiments}
        self.points = {experiment.name: evidence.points(experiment) for experiment in experiments}
        self.oracles = {experiment.name: evidence.oracle(experiment) for experiment in experiments}

    def rate(
        self, experiment: str, network: str, task: str, trained_on: str | None = None, demos: int = 0
    ) -> Rate | None:
        """The mean over seeds, of what was trained on the task itself unless told otherwise."""
        wanted = (network, trained_on or task, task, "paper", demos)
        found = [point for point in self._points(experiment) if _key(point) == wanted]
        quoted = [point for point in found if point.study == "learning"]  # the last policy, where both were tested
        return over_seeds(quoted or found)

    def oracle(self, experiment: str, task: str, trained_on: str | None = None) -> float | None:
        rate = self.oracles.get(experiment, {}).get((trained_on or task, task, "paper"))
        return rate.value if rate else None

    def tested(self, experiment: str, trained_on: str) -> list[str]:
        """The tasks that policies of this one were tested on without training, in the paper's layout."""
        return list(
            dict.fromkeys(
                p.task
                for p in self._points(experiment)
                if (p.trained_on, p.role, p.layout) == (trained_on, "test", "paper")
            )
        )

    def steps_to_half(self, network: str, task: str) -> tuple[float, bool] | None:
        """Steps until half of the selection episodes succeed, mean over seeds; and whether all seeds got there.

        A seed that did not counts with all its steps: then it is a lower bound."""
        experiment = self.experiments.get("learning")
        curves = self.evidence.learning_curves(experiment) if experiment else []
        reached = [
            next((step for step, success in zip(c.steps, c.success, strict=True) if success >= 0.5), inf)
            for c in curves
            if (c.network, c.task) == (network, task)
        ]
        if not reached:
            return None
        most = [c.steps[-1] for c in curves if (c.network, c.task) == (network, task)]
        return fmean(min(*pair) for pair in zip(reached, most, strict=True)), max(reached) < inf

    def _points(self, experiment: str) -> list[Point]:
        return self.points.get(experiment, [])


def _key(point: Point) -> tuple[str, str, str, str, int]:
    return point.network, point.trained_on, point.task, point.layout, point.demos


Judge = Callable[[Measured], Finding]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, what it is taken to mean here, and who judges it."""

    experiment: str
    says: str
    means: str
    judge: Judge


def success(rate: Rate | float) -> str:
    return f"{100 * (rate if isinstance(rate, float) else rate.value):.0f} %"


def _rates(found: dict[str, Rate | None]) -> dict[str, Rate] | None:
    """All of them, or nothing while one is missing."""
    there = {name: rate for name, rate in found.items() if rate is not None}
    return there if len(there) == len(found) else None


def _words(rates: dict[str, Rate]) -> str:
    return ", ".join(f"{name} {success(rate)}" for name, rate in rates.items())


def _one_entity_is_easy(measured: Measured) -> Finding:
    rates = _rates(
        {
            f"{SHORT[network]} {task}": measured.rate("learning", network, task)
            for task, network in product(("1-Push", "1-Switch"), ALL)
        }
    )
    return Finding(_words(rates), min(rate.value for rate in rates.values()) >= 0.8) if rates else NOTHING


def _sets_learn_faster(measured: Measured) -> Finding:
    """On every task with several entities for which there are curves of all three."""
    shown, ratios = [], []
    for task in LEARNED:
        mlp = measured.steps_to_half("mlp", task)
        sets = [steps for network in SETS if (steps := measured.steps_to_half(network, task))]
        learned = [steps for steps, reached in sets if reached]
        if task in ("1-Push", "1-Switch") or mlp is None or not learned:
            continue
        ratios.append(mlp[0] / min(learned))
        shown.append(f"{task}: {'' if mlp[1] else 'more than '}{ratios[-1]:.1f} times")
    return Finding("; ".join(shown), max(ratios) > 4) if ratios else NOTHING


def _only_sets_learn(measured: Measured) -> Finding:
    rates = _rates({SHORT[network]: measured.rate("learning", network, "3-Push") for network in ALL})
    if not rates:
        return NOTHING
    mlp, *others = rates.values()
    return Finding(f"3-Push: {_words(rates)}", mlp.value < 0.1 and max(rate.value for rate in others) > 0.5)


def _sets_match_the_oracle(measured: Measured) -> Finding:
    shown, well, asked = [], 0, 0
    for task in LEARNED[:-1]:  # all but 2-Switch+2-Push
        oracle = measured.oracle("learning", task)
        found = [rate for network in SETS if (rate := measured.rate("learning", network, task))]
        if oracle is None or not found:
            continue
        best = max(found, key=lambda rate: rate.value)
        asked += 1
        well += best.value >= oracle - 0.05
        shown.append(f"{task}: {success(best)}, oracle {success(oracle)}")
    return Finding("; ".join(shown), well == asked if asked == len(LEARNED) - 1 else None)


def _deep_sets_learn_faster_than_attention(measured: Measured) -> Finding:
    shown, faster, asked = [], 0, 0
    for task in LEARNED:
        ours, theirs = (measured.steps_to_half(network, task) for network in SETS)
        if ours is None or theirs is None or not (ours[1] or theirs[1]):
            continue
        asked += 1
        faster += ours[0] < theirs[0]
        shown.append(f"{task}: {ours[0] / 1000:.0f} k and {theirs[0] / 1000:.0f} k steps")
    return Finding("; ".join(shown), faster > asked / 2) if asked else NOTHING


def _imitation(experiment: str, demos: int = 5000) -> Judge:
    def judge(measured: Measured) -> Finding:
        rates = _rates({SHORT[network]: measured.rate(experiment, network, "3-Push", demos=demos) for network in ALL})
        if not rates:
            return NOTHING
        return Finding(_words(rates), rates["MLP"].value < 0.05 and rates["SA"].value > 0.9)

    return judge


def _few_demonstrations(experiment: str, tasks: Sequence[str]) -> Judge:
    def judge(measured: Measured) -> Finding:
        shown, well, asked = [], 0, 0
        for task in tasks:
            ours, theirs = (measured.rate(experiment, network, task, demos=1000) for network in SETS)
            if ours is None or theirs is None:
                continue
            asked += 1
            well += ours.value >= theirs.value - 0.02
            shown.append(f"{task}: DS {success(ours)}, SA {success(theirs)}")
        return Finding("; ".join(shown), well == asked if asked == len(tasks) else None)

    return judge


def _mlp_fails_on_more(measured: Measured) -> Finding:
    found = {f"{n}-Switch": measured.rate("extrapolation", "mlp", f"{n}-Switch", "3-Switch") for n in range(1, 7)}
    rates = _rates(found)
    if not rates:
        return NOTHING
    values = [rate.value for rate in rates.values()]
    return Finding(_words(rates), values[2] > 0.5 and min(values[:2]) > 0.3 and max(values[3:]) < 0.05)


def _sets_extrapolate_like_the_oracle(measured: Measured) -> Finding:
    shown, well, asked = [], 0, 0
    for trained_on in EXTRAPOLATED:
        here = [0, 0]
        for task in measured.tested("extrapolation", trained_on):
            oracle = measured.oracle("extrapolation", task, trained_on)
            found = [r for network in SETS if (r := measured.rate("extrapolation", network, task, trained_on))]
            if oracle is None or not found:
                continue
            here[1] += 1
            here[0] += max(rate.value for rate in found) >= oracle - 0.1
        well, asked = well + here[0], asked + here[1]
        shown += [f"{trained_on}: on {here[0]} of {here[1]} test tasks"] * bool(here[1])
    return Finding("; ".join(shown), well > asked / 2) if asked else NOTHING


def _sets_beat_the_oracle_on_six_switches(measured: Measured) -> Finding:
    oracle = measured.oracle("extrapolation", "6-Switch", "3-Switch")
    rates = _rates({SHORT[n]: measured.rate("extrapolation", n, "6-Switch", "3-Switch") for n in SETS})
    if oracle is None or not rates:
        return NOTHING
    holds = all(rate.value > oracle + 0.05 for rate in rates.values())
    return Finding(f"{_words(rates)}, oracle {success(oracle)}", holds)


def _attention_is_poor_with_one_entity(measured: Measured) -> Finding:
    found: dict[str, Rate | None] = {}
    for trained_on, (one, two) in {"3-Push": ("1-Push", "2-Push"), "3-Switch": ("1-Switch", "2-Switch")}.items():
        found |= {task: measured.rate("extrapolation", "self-attention", task, trained_on) for task in (one, two)}
    there = {name: rate for name, rate in found.items() if rate is not None}
    pairs = [(a, b) for a, b in (("1-Push", "2-Push"), ("1-Switch", "2-Switch")) if a in there and b in there]
    if not pairs:
        return NOTHING
    return Finding(_words(there), all(there[one].value < there[two].value - 0.2 for one, two in pairs))


def _deep_sets_extrapolate_better(measured: Measured) -> Finding:
    better = asked = 0
    for trained_on in EXTRAPOLATED:
        for task in measured.tested("extrapolation", trained_on):
            ours, theirs = (measured.rate("extrapolation", network, task, trained_on) for network in SETS)
            if ours is not None and theirs is not None:
                asked += 1
                better += ours.value >= theirs.value
    return Finding(f"on {better} of {asked} test tasks", better > asked / 2) if asked else NOTHING


def _fifteen_times_the_mlp(measured: Measured) -> Finding:
    """On what has more entities than it was trained with."""
    means = {}
    for network in ALL:
        found = [
            rate.value
            for trained_on in EXTRAPOLATED
            for task in measured.tested("extrapolation", trained_on)
            if task > trained_on and (rate := measured.rate("extrapolation", network, task, trained_on))
        ]
        if found:
            means[network] = fmean(found)
    if len(means) < len(ALL):
        return NOTHING
    best = max(means[network] for network in SETS)
    times = f"{best / means['mlp']:.0f} times" if means["mlp"] else "the MLP never succeeds"
    shown = ", ".join(f"{SHORT[network]} {success(mean)}" for network, mean in means.items())
    return Finding(f"{shown}: {times}", best > 15 * means["mlp"] and best > 0)


def _stitching(mixture: str, test: str, judge: Callable[[dict[str, Rate], float], bool]) -> Judge:
    def decide(measured: Measured) -> Finding:
        rates = _rates({SHORT[network]: measured.rate("stitching", network, test, mixture) for network in ALL})
        oracle = measured.oracle("stitching", test, mixture)
        if not rates or oracle is None:
            return NOTHING
        return Finding(f"{_words(rates)}, oracle {success(oracle)}", judge(rates, oracle))

    return decide


def _sets_stitch(rates: dict[str, Rate], oracle: float) -> bool:
    return rates["MLP"].value <= 0.1 and max(rates["DS"].value, rates["SA"].value) > 3 * max(rates["MLP"].value, 0.05)


def _large_is_worse_far_away(measured: Measured) -> Finding:
    tasks = ("3-Push", "5-Push", "6-Push")
    found = {
        f"{SHORT[network]} {task}": measured.rate("deep-set-size", network, task, "3-Push")
        for task, network in product(tasks, ("deep-set", "deep-set-large"))
    }
    rates = _rates(found)
    if not rates:
        return NOTHING
    small, large = ([rates[f"{name} {task}"].value for task in tasks] for name in ("DS", "large DS"))
    return Finding(_words(rates), large[0] > small[0] and large[1] < small[1] and large[2] < small[2])


def _large_stitches_better(measured: Measured) -> Finding:
    rates = _rates(
        {
            SHORT[n]: measured.rate("deep-set-size", n, "Push+Stack", "2-Push|Stack")
            for n in ("deep-set", "deep-set-large")
        }
    )
    return Finding(_words(rates), rates["large DS"].value > rates["DS"].value) if rates else NOTHING


def _collisions_cost(measured: Measured) -> Finding:
    shown, drops = [], []
    for network in ALL:
        with_, without = (measured.rate(name, network, "3-Push") for name in ("collisions", "extrapolation"))
        if with_ is not None and without is not None:
            drops.append(without.value - with_.value)
            shown.append(f"{SHORT[network]} {success(without)} without, {success(with_)} with")
    return Finding("; ".join(shown), 0.02 < max(drops) < 0.3) if len(drops) == len(ALL) else NOTHING


def _attention_is_better_with_collisions(measured: Measured) -> Finding:
    better = asked = 0
    for task in ("3-Push", *measured.tested("collisions", "3-Push")):
        ours, theirs = (measured.rate("collisions", network, task, "3-Push") for network in SETS)
        if ours is not None and theirs is not None:
            asked += 1
            better += theirs.value > ours.value
    return Finding(f"on {better} of {asked} numbers of cubes", better > asked / 2) if asked else NOTHING


def _timing(column: str, means: Callable[[dict[str, float]], bool], unit: str) -> Judge:
    def judge(measured: Measured) -> Finding:
        rows = measured.evidence.tables["timing"]
        found: dict[str, float] = {}
        for network in ALL:
            names = [r for r in rows if r["task"] == r["trained_on"] == "3-Push" and r["network"].startswith(network)]
            values = [float(row[column]) for row in names if row[column]]
            if values:
                found[network] = fmean(values)
        if len(found) < len(ALL):
            return NOTHING
        return Finding(", ".join(f"{SHORT[n]} {value:.2f} {unit}" for n, value in found.items()), means(found))

    return judge


CLAIMS = (
    Claim("learning", "1-Switch and 1-Push: all methods solve them", "all at 80 % or more", _one_entity_is_easy),
    Claim(
        "learning",
        "complex tasks are learned more than 4 times faster than with an MLP",
        "MLP's steps to 50 % over those of the faster set network, on some task with several entities",
        _sets_learn_faster,
    ),
    Claim(
        "learning",
        "3-Push: only Deep Sets and Self-Attention get off the ground",
        "MLP below 10 %, one of them above 50 %, from scratch",
        _only_sets_learn,
    ),
    Claim(
        "learning",
        "both match or exceed the oracle in all environments but 2-Switch+2-Push",
        "the better of the two, up to 5 points below the oracle",
        _sets_match_the_oracle,
    ),
    Claim(
        "learning",
        "Deep Sets learn faster than Self-Attention",
        "fewer steps to 50 % on most tasks",
        _deep_sets_learn_faster_than_attention,
    ),
    Claim(
        "imitation",
        "3-Push, 5000 demonstrations: MLP nearly 0 %, Self-Attention nearly 100 %",
        "below 5 %, above 90 %; cloned from our RL agent",
        _imitation("imitation"),
    ),
    Claim(
        "imitation",
        "with 1000 demonstrations Deep Sets match or outperform Self-Attention",
        "at most 2 points worse on every task; cloned from our RL agents",
        _few_demonstrations("imitation", LEARNED),
    ),
    Claim(
        "scripted-imitation",
        "3-Push, 5000 demonstrations: MLP nearly 0 %, Self-Attention nearly 100 %",
        "below 5 %, above 90 %; cloned from the scripted controller",
        _imitation("scripted-imitation"),
    ),
    Claim(
        "scripted-imitation",
        "with 1000 demonstrations Deep Sets match or outperform Self-Attention",
        "at most 2 points worse on 3-Push and 3-Switch; cloned from the scripted controller",
        _few_demonstrations("scripted-imitation", EXTRAPOLATED[:2]),
    ),
    Claim(
        "extrapolation",
        "the MLP learns 3-Switch, does decently on fewer switches and fails completely on more",
        "above 50 % on three, 30 % on fewer, below 5 % on more",
        _mlp_fails_on_more,
    ),
    Claim(
        "extrapolation",
        "Deep Sets and Self-Attention are comparable to or exceed the oracle in most test environments",
        "the better of the two, up to 10 points below the oracle, on most test tasks",
        _sets_extrapolate_like_the_oracle,
    ),
    Claim(
        "extrapolation",
        "both well exceed the oracle on 6-Switch",
        "both more than 5 points above it",
        _sets_beat_the_oracle_on_six_switches,
    ),
    Claim(
        "extrapolation",
        "Self-Attention is poor with a single entity",
        "more than 20 points worse than with two",
        _attention_is_poor_with_one_entity,
    ),
    Claim(
        "extrapolation",
        "Deep Sets extrapolate better than Self-Attention in most environments",
        "on most test tasks",
        _deep_sets_extrapolate_better,
    ),
    Claim(
        "extrapolation",
        "more than 15 times higher success on new tasks than the MLP",
        "mean over the test tasks with more entities than trained with, the better set network",
        _fifteen_times_the_mlp,
    ),
    Claim(
        "stitching",
        "2-Switch+2-Push from 2-Switch and 2-Push: moderate success, where the MLP fails",
        "MLP at 10 % or less, one of the others at three times that or more",
        _stitching("2-Switch|2-Push", "2-Switch+2-Push", _sets_stitch),
    ),
    Claim(
        "stitching",
        "Push+Stack from 2-Push and Stack: Self-Attention 60 %, MLP 5 %",
        "MLP at 10 % or less, one of the others at three times that or more",
        _stitching("2-Push|Stack", "Push+Stack", _sets_stitch),
    ),
    Claim(
        "deep-set-size",
        "the large Deep Set is better on 3-Push but worse on 5-Push and 6-Push",
        "higher on three cubes, lower on five and on six",
        _large_is_worse_far_away,
    ),
    Claim("deep-set-size", "the large Deep Set is better on Push+Stack", "higher", _large_stitches_better),
    Claim("collisions", "collisions cost about 15 %", "the largest drop on 3-Push is 2 to 30 points", _collisions_cost),
    Claim(
        "collisions",
        "with collisions Self-Attention often outperforms Deep Sets",
        "on most numbers of cubes",
        _attention_is_better_with_collisions,
    ),
    Claim(
        "timing",
        "Self-Attention is significantly slower for a step, Deep Sets and MLP are comparable",
        "SA twice the MLP's time or more, DS less than twice, 3-Push",
        _timing(
            "milliseconds",
            lambda t: t["self-attention"] > 2 * t["mlp"] and t["deep-set"] < 2 * t["mlp"],
            "ms",
        ),
    ),
    Claim(
        "timing",
        "all three train at comparable speed",
        "the slowest takes less than 1.5 times as long, 3-Push",
        _timing("hours", lambda t: max(t.values()) < 1.5 * min(t.values()), "h"),
    ),
)
