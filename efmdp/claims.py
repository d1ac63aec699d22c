"""What the paper claims, beside what was measured, with a plain verdict.

A claim in words leaves room: the bound that decides here stands in its `means`. Means over seeds decide; their
intervals and the number of seeds stand beside them. There is no verdict while something is missing that it speaks of.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import floor, inf
from statistics import fmean
from typing import NamedTuple

from efmdp.evidence import Curve, Evidence, Point, over_seeds
from efmdp.experiments import EXTRAPOLATED, LEARNED, Experiment, Training
from efmdp.stats import Rate
from efmdp.tasks import parse_task

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


class Success(NamedTuple):
    """Of some seeds of a network on a task."""

    rate: Rate
    seeds: int

    @property
    def value(self) -> float:
        return self.rate.value

    def __str__(self) -> str:
        value, low, high = (100 * number for number in self.rate)
        seeds = f", {self.seeds} seeds" if self.seeds > 1 else ", 1 seed"
        return f"{value:.0f} % ({low:.0f} to {high:.0f}{seeds})"


class Measured:
    """Success by experiment, for the claims to ask."""

    def __init__(self, evidence: Evidence, experiments: Sequence[Experiment]) -> None:
        self.evidence = evidence
        self.experiments = {experiment.name: experiment for experiment in experiments}
        self.points = {experiment.name: evidence.points(experiment) for experiment in experiments}
        self.oracles = {experiment.name: evidence.oracle(experiment) for experiment in experiments}
        learning = self.experiments.get("learning")
        self.curves = evidence.learning_curves(learning) if learning else []

    def rate(
        self, experiment: str, network: str, task: str, trained_on: str | None = None, demos: int = 0
    ) -> Success | None:
        """The mean over seeds, of what was trained on the task itself unless told otherwise."""
        wanted = (network, trained_on or task, task, "paper", demos)
        found = [point for point in self.points.get(experiment, []) if _key(point) == wanted]
        quoted = [point for point in found if point.study == "learning"] or found  # the last policy, of two tested
        rate = over_seeds(quoted)
        return None if rate is None else Success(rate, len(quoted))

    def oracle(self, experiment: str, task: str, trained_on: str | None = None) -> float | None:
        rate = self.oracles.get(experiment, {}).get((trained_on or task, task, "paper"))
        return rate.value if rate else None

    def unseen(self, experiment: str, trained_on: str) -> list[str]:
        """The tasks in the paper's layout that its policies were tested on, without those of a curriculum, and without
        fewer entities where it learned from subsets of them."""
        tests = [test.of for test in self.experiments[experiment].tests if test.of.task == trained_on]
        configs = [run.config for run in tests if isinstance(run, Training)]
        met = {stage.task for config in configs for stage in config.stages}
        fewest = _size(trained_on) if any(config.subsets for config in configs) else 0
        tested = [p for p in self.points[experiment] if (p.trained_on, p.layout) == (trained_on, "paper")]
        return list(dict.fromkeys(p.task for p in tested if p.task not in met and p.entities >= fewest))

    def steps_to_half(self, network: str, task: str) -> float | None:
        """Steps until half of the selection episodes succeed, mean over seeds: infinite if one never gets there.

        None while a run is not finished that has not got there."""
        curves = self._curves(network, task)
        waiting = any(not curve.finished and curve.steps_to_half == inf for curve in curves)
        return fmean(curve.steps_to_half for curve in curves) if curves and not waiting else None

    def steps_of(self, network: str, task: str) -> int:
        """How many a run of this kind has in all."""
        return max(curve.steps[-1] for curve in self._curves(network, task))

    def _curves(self, network: str, task: str) -> list[Curve]:
        return [curve for curve in self.curves if (curve.network, curve.task) == (network, task)]


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


def percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"


def _all(found: dict[str, Success | None]) -> dict[str, Success] | None:
    """All of them, or nothing while one is missing."""
    there = {name: rate for name, rate in found.items() if rate is not None}
    return there if len(there) == len(found) else None


def _words(rates: dict[str, Success]) -> str:
    return ", ".join(f"{name} {rate}" for name, rate in rates.items())


def _one_entity_is_easy(measured: Measured) -> Finding:
    rates = _all(
        {
            f"{SHORT[network]} {task}": measured.rate("learning", network, task)
            for task, network in product(("1-Push", "1-Switch"), ALL)
        }
    )
    return Finding(_words(rates), min(rate.value for rate in rates.values()) >= 0.8) if rates else NOTHING


def _sets_learn_faster(measured: Measured) -> Finding:
    """An MLP that never gets to 50 % gives a lower bound, from all the steps that it had."""
    shown, ratios, open_ = [], [], False
    for task in LEARNED:
        mlp, *sets = (measured.steps_to_half(network, task) for network in ALL)
        fastest = min((steps for steps in sets if steps is not None), default=inf)
        if task in ("1-Push", "1-Switch") or mlp is None or fastest == inf:
            continue
        bound = mlp == inf
        ratios.append((measured.steps_of("mlp", task) if bound else mlp) / fastest)
        open_ |= bound
        times = f"more than {floor(10 * ratios[-1]) / 10}" if bound else f"{ratios[-1]:.1f}"
        shown.append(f"{task}: {times} times")
    if not ratios:
        return NOTHING
    return Finding("; ".join(shown), True if max(ratios) > 4 else None if open_ else False)


def _only_sets_learn(measured: Measured) -> Finding:
    """One set network that learns, beside an MLP that does not, is enough; that none learns takes both."""
    found = {SHORT[network]: measured.rate("learning", network, "3-Push") for network in ALL}
    rates = {name: rate for name, rate in found.items() if rate is not None}
    mlp, *others = (rates.get(SHORT[network]) for network in ALL)
    if mlp is None:
        return NOTHING
    learned = any(rate.value > 0.5 for rate in others if rate is not None)
    enough = learned or mlp.value >= 0.1 or None not in others
    return Finding(f"3-Push: {_words(rates)}", mlp.value < 0.1 and learned if enough else None)


def _sets_match_the_oracle(measured: Measured) -> Finding:
    shown, well, tasks = [], 0, LEARNED[:-1]  # all but 2-Switch+2-Push
    for task in tasks:
        oracle = measured.oracle("learning", task)
        rates = _all({network: measured.rate("learning", network, task) for network in SETS})
        if oracle is None or not rates:
            continue
        best = max(rates.values(), key=lambda rate: rate.value)
        well += best.value >= oracle - 0.05
        shown.append(f"{task}: {best}, oracle {percent(oracle)}")
    return Finding("; ".join(shown), well == len(tasks) if len(shown) == len(tasks) else None)


def _deep_sets_learn_faster_than_attention(measured: Measured) -> Finding:
    shown, faster = [], 0
    for task in LEARNED:
        ours, theirs = (measured.steps_to_half(network, task) for network in SETS)
        if ours is None or theirs is None or ours == theirs == inf:
            continue
        faster += ours < theirs
        shown.append(f"{task}: {_thousands(ours)} and {_thousands(theirs)} steps")
    most, open_ = len(LEARNED) / 2, len(LEARNED) - len(shown)
    return Finding("; ".join(shown), True if faster > most else False if faster + open_ <= most else None)


def _thousands(steps: float) -> str:
    return "never" if steps == inf else f"{steps / 1000:.0f} k"


def _attention_is_better_on_three_cubes(measured: Measured) -> Finding:
    found = {f"RL {SHORT[network]}": measured.rate("learning", network, "3-Push") for network in SETS}
    found |= {f"IL {SHORT[network]}": measured.rate("imitation", network, "3-Push", demos=5000) for network in SETS}
    rates = _all(found)
    if not rates:
        return NOTHING
    holds = all(rates[f"{how} SA"].value > rates[f"{how} DS"].value for how in ("RL", "IL"))
    return Finding(_words(rates), holds)


def _imitation(experiment: str, demos: int = 5000) -> Judge:
    def judge(measured: Measured) -> Finding:
        rates = _all({SHORT[network]: measured.rate(experiment, network, "3-Push", demos=demos) for network in ALL})
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
            shown.append(f"{task}: DS {ours}, SA {theirs}")
        return Finding("; ".join(shown), well == asked if asked == len(tasks) else None)

    return judge


def _mlp_fails_on_more(measured: Measured) -> Finding:
    """One that has not learned three says nothing: it may have been trained for too short."""
    found = {f"{n}-Switch": measured.rate("extrapolation", "mlp", f"{n}-Switch", "3-Switch") for n in range(1, 7)}
    rates = _all(found)
    if not rates:
        return NOTHING
    one, two, three, *more = (rate.value for rate in rates.values())
    return Finding(_words(rates), min(one, two) > 0.3 and max(more) < 0.05 if three > 0.5 else None)


def _sets_extrapolate_like_the_oracle(measured: Measured) -> Finding:
    shown, well, asked = [], 0, 0
    for trained_on in EXTRAPOLATED:
        tasks = _compared(measured, "extrapolation", trained_on, SETS)
        values = {task: max(rate.value for rate in rates.values()) for task, rates in tasks.items()}
        oracles = {task: measured.oracle("extrapolation", task, trained_on) for task in values}
        known = {task: value for task, value in oracles.items() if value is not None}
        here = sum(values[task] >= oracle - 0.1 for task, oracle in known.items())
        well, asked = well + here, asked + len(known)
        shown += [f"{trained_on}: on {here} of {len(known)} test tasks"] * bool(known)
    return Finding("; ".join(shown), well > asked / 2 if len(shown) == len(EXTRAPOLATED) else None)


def _compared(
    measured: Measured, experiment: str, trained_on: str, networks: Sequence[str]
) -> dict[str, dict[str, Success]]:
    """The unseen tasks on which all of these networks were tested, with their success."""
    found = {
        task: _all({network: measured.rate(experiment, network, task, trained_on) for network in networks})
        for task in measured.unseen(experiment, trained_on)
    }
    return {task: rates for task, rates in found.items() if rates}


def _sets_beat_the_oracle_on_six_switches(measured: Measured) -> Finding:
    oracle = measured.oracle("extrapolation", "6-Switch", "3-Switch")
    rates = _all({SHORT[n]: measured.rate("extrapolation", n, "6-Switch", "3-Switch") for n in SETS})
    if oracle is None or not rates:
        return NOTHING
    holds = all(rate.value > oracle + 0.05 for rate in rates.values())
    return Finding(f"{_words(rates)}, oracle {percent(oracle)}", holds)


def _attention_is_poor_with_one_entity(measured: Measured) -> Finding:
    tasks = ("1-Switch", "2-Switch")
    rates = _all({task: measured.rate("extrapolation", "self-attention", task, "3-Switch") for task in tasks})
    return Finding(_words(rates), rates["1-Switch"].value < rates["2-Switch"].value - 0.2) if rates else NOTHING


def _deep_sets_extrapolate_better(measured: Measured) -> Finding:
    """Where both do equally, such as never, neither is better."""
    shown, better, asked = [], 0, 0
    for trained_on in EXTRAPOLATED:
        rates = _compared(measured, "extrapolation", trained_on, SETS).values()
        leads = [r["deep-set"].value - r["self-attention"].value for r in rates]
        different = [lead for lead in leads if lead]
        better, asked = better + sum(lead > 0 for lead in different), asked + len(different)
        shown += [f"{trained_on}: on {sum(lead > 0 for lead in different)} of {len(leads)} test tasks"] * bool(leads)
    return Finding("; ".join(shown), better > asked / 2 if len(shown) == len(EXTRAPOLATED) else None)


def _size(task: str) -> int:
    return parse_task(task).entities


def _fifteen_times_the_mlp(measured: Measured) -> Finding:
    """On what has more entities than it was trained with, where all three were tested."""
    more = {
        (trained_on, task): rates
        for trained_on in EXTRAPOLATED
        for task, rates in _compared(measured, "extrapolation", trained_on, ALL).items()
        if _size(task) > _size(trained_on)
    }
    if not more:
        return NOTHING
    means = {network: fmean(rates[network].value for rates in more.values()) for network in ALL}
    best = max(means[network] for network in SETS)
    times = f"{best / means['mlp']:.0f} times" if means["mlp"] else "the MLP never succeeds"
    shown = ", ".join(f"{SHORT[network]} {percent(mean)}" for network, mean in means.items())
    families = {trained_on for trained_on, _ in more}
    holds = best > 15 * means["mlp"] and best > 0
    return Finding(f"{shown} over {len(more)} tasks: {times}", holds if len(families) == len(EXTRAPOLATED) else None)


def _stitching(mixture: str, test: str, judge: Callable[[dict[str, Success], float], bool]) -> Judge:
    def decide(measured: Measured) -> Finding:
        rates = _all({SHORT[network]: measured.rate("stitching", network, test, mixture) for network in ALL})
        oracle = measured.oracle("stitching", test, mixture)
        if not rates or oracle is None:
            return NOTHING
        return Finding(f"{_words(rates)}, oracle {percent(oracle)}", judge(rates, oracle))

    return decide


def _sets_stitch(rates: dict[str, Success], oracle: float) -> bool:
    best = max(rates["DS"].value, rates["SA"].value)
    return rates["MLP"].value <= 0.1 and best > 0.15 and best < oracle


def _attention_stitches_in_order(rates: dict[str, Success], oracle: float) -> bool:
    return rates["SA"].value >= 0.4 and rates["MLP"].value <= 0.1


def _mlp_knows_the_parts_only(measured: Measured) -> Finding:
    tasks = ("2-Push", "Stack", "Push+Stack")
    rates = _all({task: measured.rate("stitching", "mlp", task, "2-Push|Stack") for task in tasks})
    if not rates:
        return NOTHING
    *parts, both = (rate.value for rate in rates.values())
    return Finding(_words(rates), min(parts) > 0.35 and both < 0.1)


def _large_is_worse_far_away(measured: Measured) -> Finding:
    tasks = ("3-Push", "5-Push", "6-Push")
    found = {
        f"{SHORT[network]} {task}": measured.rate("deep-set-size", network, task, "3-Push")
        for task, network in product(tasks, ("deep-set", "deep-set-large"))
    }
    rates = _all(found)
    if not rates:
        return NOTHING
    small, large = ([rates[f"{name} {task}"].value for task in tasks] for name in ("DS", "large DS"))
    return Finding(_words(rates), large[0] > small[0] and large[1] < small[1] and large[2] < small[2])


def _large_stitches_better(measured: Measured) -> Finding:
    rates = _all(
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
            shown.append(f"{SHORT[network]} {without} without, {with_} with")
    return Finding("; ".join(shown), 0.02 < max(drops) < 0.3) if len(drops) == len(ALL) else NOTHING


def _attention_is_better_with_collisions(measured: Measured) -> Finding:
    own = _all({network: measured.rate("collisions", network, "3-Push") for network in SETS})
    tasks = _compared(measured, "collisions", "3-Push", SETS) | ({"3-Push": own} if own else {})
    better = sum(rates["self-attention"].value > rates["deep-set"].value for rates in tasks.values())
    return Finding(f"on {better} of {len(tasks)} numbers of cubes", better > len(tasks) / 2) if tasks else NOTHING


def _times(measured: Measured, column: str, task: str) -> dict[str, float]:
    """Means over seeds, by network; hours of runs with one thread only."""
    evidence, found = measured.evidence, dict[str, list[float]]()
    for test in evidence.shown(measured.experiments["timing"]):
        for row in evidence.rows(test) if test.of.task == task else ():
            if row["task"] == task and (column != "hours" or row["threads"] == "1"):
                found.setdefault(test.of.network, []).append(float(row[column]))
    return {network: fmean(values) for network, values in found.items()}


def _timing(column: str, unit: str, means: Callable[[dict[str, float]], bool]) -> Judge:
    def judge(measured: Measured) -> Finding:
        found = _times(measured, column, "3-Push")
        shown = ", ".join(f"{SHORT[network]} {value:.2f} {unit}" for network, value in found.items())
        return Finding(shown, means(found) if len(found) == len(ALL) else None)

    return judge


def _more_cubes_take_longer(measured: Measured) -> Finding:
    one, three = (_times(measured, "hours", task) for task in ("1-Push", "3-Push"))
    both = [network for network in ALL if network in one and network in three]
    shown = ", ".join(f"{SHORT[network]} {one[network]:.2f} and {three[network]:.2f} h" for network in both)
    return Finding(shown, all(three[n] > 2 * one[n] for n in both) if len(both) == len(ALL) else None)


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
        "Self-Attention is better on 3-Push, by RL and by imitation",
        "higher than Deep Sets from scratch, and with 5000 demonstrations of our RL agent",
        _attention_is_better_on_three_cubes,
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
        "on switches, more than 20 points worse than with two; the recipe fast shows it both, in subsets",
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
        "2-Switch+2-Push from 2-Switch and 2-Push: the MLP fails, the others do better, but not as well as the oracle",
        "MLP at 10 % or less, the better of the others above 15 % and below the oracle",
        _stitching("2-Switch|2-Push", "2-Switch+2-Push", _sets_stitch),
    ),
    Claim(
        "stitching",
        "Push+Stack from 2-Push and Stack: Self-Attention 60 %, MLP 5 %",
        "Self-Attention at 40 % or more, MLP at 10 % or less",
        _stitching("2-Push|Stack", "Push+Stack", _attention_stitches_in_order),
    ),
    Claim(
        "stitching",
        "the MLP learns 2-Push and Stack to above 35 % and still cannot do Push+Stack",
        "above 35 % on both, below 10 % on what needs both",
        _mlp_knows_the_parts_only,
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
        _timing("milliseconds", "ms", lambda t: t["self-attention"] > 2 * t["mlp"] and t["deep-set"] < 2 * t["mlp"]),
    ),
    Claim(
        "timing",
        "3-Push takes significantly longer to train than 1-Push",
        "twice as long or more, with every network",
        _more_cubes_take_longer,
    ),
    Claim(
        "timing",
        "all three train at comparable speed",
        "the slowest takes less than 1.5 times as long, 3-Push",
        _timing("hours", "h", lambda t: max(t.values()) < 1.5 * min(t.values())),
    ),
)
