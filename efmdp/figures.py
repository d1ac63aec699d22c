"""The figures of the paper, drawn from what was measured so far. Each is a PNG."""

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from efmdp.entities import UserError
from efmdp.evidence import Curve, Point, over_seeds
from efmdp.stats import Rate, mean_over_seeds
from efmdp.tables import Row
from efmdp.tasks import FAMILIES, stitched
from efmdp.zero_shot import ORACLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {
    "mlp": "MLP",
    "deep-set": "Deep Sets",
    "deep-set-large": "Deep Sets (large)",
    "self-attention": "Self-Attention",
    ORACLE: "Oracle",
}
COLOURS = {  # told apart by those who see fewer of them, too
    "mlp": "#d55e00",
    "deep-set": "#0072b2",
    "deep-set-large": "#56b4e9",
    "self-attention": "#009e73",
    ORACLE: "#888888",
}
MARKERS = {"mlp": "s", "deep-set": "o", "deep-set-large": "D", "self-attention": "^"}
Oracle = Mapping[tuple[str, str, str], Rate]


def learning_curves(curves: Sequence[Curve], oracle: Oracle) -> bytes:
    """A panel for each task: success on the selection seeds against steps, mean and 95 % interval over seeds."""
    tasks = _in_order({curve.task for curve in curves})
    figure, panels = _grid(len(tasks), "environment steps")
    for axes, task in zip(panels, tasks, strict=True):
        for network in _networks(curve.network for curve in curves if curve.task == task):
            _curve(axes, network, [curve for curve in curves if (curve.task, curve.network) == (task, network)])
        _oracle_line(axes, oracle.get((task, task, "paper")))
        axes.set_title(task)
        axes.set_xlim(left=0)
    return _png(figure)


def _curve(axes: "Axes", network: str, curves: Sequence[Curve]) -> None:
    """Seeds that are still being trained count as far as they got."""
    longest = max(curves, key=lambda curve: len(curve.steps))
    rates = []
    for epoch in range(len(longest.steps)):
        rates.append(mean_over_seeds([curve.success[epoch] for curve in curves if len(curve.success) > epoch]))
    style: dict[str, Any] = {"color": COLOURS[network], "label": LABELS[network]}
    axes.plot(longest.steps, [rate.value for rate in rates], marker=MARKERS[network], markersize=3, **style)
    low, high = ([np.clip(getattr(rate, name), 0, 1) for rate in rates] for name in ("low", "high"))
    axes.fill_between(longest.steps, low, high, color=COLOURS[network], alpha=0.18, linewidth=0)


def demonstrations(points: Sequence[Point], oracle: Oracle) -> bytes:
    """A panel for each task: success of clones against the number of demonstrations."""
    own = [point for point in points if point.role == "train"]
    tasks = _in_order({point.trained_on for point in own})
    figure, panels = _grid(len(tasks), "demonstrations")
    for axes, task in zip(panels, tasks, strict=True):
        here = [point for point in own if point.trained_on == task]
        for network in _networks(point.network for point in here):
            counts = sorted({point.demos for point in here if point.network == network})
            rates = [over_seeds(p for p in here if (p.network, p.demos) == (network, count)) for count in counts]
            _errorbar(axes, network, counts, [rate for rate in rates if rate])
        _oracle_line(axes, oracle.get((task, task, "paper")))
        axes.set_title(task)
        axes.set_xticks(sorted({point.demos for point in here}))
    return _png(figure)


def extrapolation(points: Sequence[Point], oracle: Oracle) -> bytes:
    """A panel for each task that was trained on: bars for every number of entities, hatched where it was trained."""
    trained = _in_order({point.trained_on for point in points})
    figure, panels = _grid(len(trained), "", columns=1, height=2.6)
    for axes, task in zip(panels, trained, strict=True):
        here = [point for point in points if (point.trained_on, point.layout) == (task, "paper")]
        _bars(axes, here, oracle, task, [name for name in _family(task) if any(p.task == name for p in here)])
        axes.set_title(f"trained on {task}")
    return _png(figure)


def stitching(points: Sequence[Point], oracle: Oracle) -> bytes:
    """A panel for each mixture: its tasks hatched, and the one that needs both."""
    mixtures = list(dict.fromkeys(point.trained_on for point in points))
    figure, panels = _grid(len(mixtures), "", columns=2, height=2.8)
    for axes, mixture in zip(panels, mixtures, strict=True):
        here = [point for point in points if point.trained_on == mixture]
        tasks = [*dict.fromkeys(point.task for point in here if point.role == "train"), stitched(mixture) or ""]
        _bars(axes, here, oracle, mixture, tasks)
        axes.set_title(f"trained on {mixture}")
    return _png(figure)


def timing(rows: Sequence[Row]) -> bytes:
    """Milliseconds of a step, and hours of training, for one to three cubes."""
    figure, (left, right) = _grid(2, "", columns=2, height=2.7)
    for axes, value, title in (
        (left, "milliseconds", "milliseconds a step (one observation, one thread)"),
        (right, "hours", "hours of training (one thread)"),
    ):
        own = [row for row in rows if row["task"] == row["trained_on"] and (value != "hours" or row["threads"] == "1")]
        kinds = _networks(_kind(row["network"]) for row in own)
        sizes = sorted({int(row["entities"]) for row in own})
        for index, network in enumerate(kinds):
            mine = [
                [float(r[value]) for r in own if (_kind(r["network"]), r["entities"]) == (network, str(n))]
                for n in sizes
            ]
            x = np.arange(len(sizes)) + (index - (len(kinds) - 1) / 2) * 0.8 / len(kinds)
            heights = [float(np.mean(values)) if values else 0.0 for values in mine]
            axes.bar(x, heights, 0.8 / len(kinds), color=COLOURS[network], label=LABELS[network])
        axes.set_xticks(range(len(sizes)), [f"{n}-Push" for n in sizes])
        axes.set_title(title, fontsize=10)
        axes.set_ylim(auto=True)
        axes.yaxis.set_major_formatter("{x:g}")
    return _png(figure)


def _bars(axes: "Axes", points: Sequence[Point], oracle: Oracle, trained_on: str, tasks: Sequence[str]) -> None:
    """A group for each task, in it a bar for each network, the oracle last; none where nothing was measured."""
    networks = [*_networks(point.network for point in points), ORACLE]
    width = 0.84 / len(networks)
    for index, network in enumerate(networks):
        for place, task in enumerate(tasks):
            mine = [point for point in points if (point.network, point.task) == (network, task)]
            rate = oracle.get((trained_on, task, "paper")) if network == ORACLE else over_seeds(mine)
            if rate is None:
                continue
            hatched = bool(mine) and mine[0].role == "train"
            axes.bar(
                place + (index - (len(networks) - 1) / 2) * width,
                rate.value,
                width,
                yerr=_error([rate]),
                color=COLOURS[network],
                hatch="///" if hatched else None,
                edgecolor="white",
                error_kw={"elinewidth": 1, "capsize": 2},
                label=LABELS[network],
            )
    axes.set_xticks(range(len(tasks)), tasks)


def _errorbar(axes: "Axes", network: str, x: Sequence[float], rates: Sequence[Rate]) -> None:
    style: dict[str, Any] = {"color": COLOURS[network], "marker": MARKERS[network], "label": LABELS[network]}
    axes.errorbar(x, [rate.value for rate in rates], _error(rates), capsize=3, markersize=5, **style)


def _error(rates: Sequence[Rate]) -> Any:
    """Distances to the ends of the intervals: (2, K)."""
    return np.array([[rate.value - rate.low for rate in rates], [rate.high - rate.value for rate in rates]])


def _oracle_line(axes: "Axes", rate: Rate | None) -> None:
    if rate is not None:
        axes.axhline(rate.value, color=COLOURS[ORACLE], linestyle="--", label=LABELS[ORACLE])


def _grid(panels: int, label: str, columns: int = 3, height: float = 2.5) -> tuple["Figure", list["Axes"]]:
    try:
        from matplotlib.figure import Figure  # an extra: all but figures works without it
        from matplotlib.ticker import EngFormatter, PercentFormatter
    except ImportError:
        raise UserError("figures need matplotlib: pip install 'efmdp[plots]'") from None

    columns = min(columns, panels)
    rows = -(-panels // columns)
    figure = Figure(
        figsize=(max(5.0, 3.4 * columns) if columns > 1 else 8.0, height * rows + 0.5), layout="constrained"
    )
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in axes[panels:]:
        unused.remove()
    for axis in axes[:panels]:
        axis.set_ylim(-0.02, 1.02)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        if label:
            axis.set_xlabel(label)
        if label == "environment steps":
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        _plain(axis)
    return figure, list(axes[:panels])


def _plain(axes: "Axes") -> None:
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: "Figure", panels: Iterable["Axes"]) -> None:
    found = {text: line for axes in panels for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    shown = {text: found[text] for text in LABELS.values() if text in found}
    figure.legend(shown.values(), shown, loc="outside upper center", ncols=len(shown), frameon=False)


def _png(figure: "Figure") -> bytes:
    _legend(figure, figure.axes)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=130)
    return image.getvalue()


def _networks(found: Iterable[str]) -> list[str]:
    present = set(found)
    return [network for network in MARKERS if network in present]


def _in_order(tasks: set[str]) -> list[str]:
    """As the paper has them: family by family, then by size."""
    known = [name for family in FAMILIES for name in family.members]
    return sorted(tasks, key=lambda task: (known.index(task) if task in known else len(known), task))


def _family(task: str) -> Sequence[str]:
    return next((family.members for family in FAMILIES if task in family.members), (task,))


def _kind(network: str) -> str:
    """
    >>> _kind("mlp-6"), _kind("deep-set")
    ('mlp', 'deep-set')
    """
    return "mlp" if network.startswith("mlp-") else network
