"""The main claim of the project in minutes: trained on 3 switches, tested on 1 to 6, with and without a set network."""

import base64
import csv
import html
import importlib.util
import io
import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from rich.progress import track
from rich.table import Table

from efmdp.domains import make_env
from efmdp.entities import UserError
from efmdp.env import FetchEnv
from efmdp.evaluate import TEST, LearnedPolicy, load_policy, play_episodes, stream_seed
from efmdp.progress import console, say, training_bar, warn
from efmdp.recipes import TrainConfig, fast, make_network
from efmdp.render import Picture
from efmdp.runs import Run, read_rows
from efmdp.runs import minutes as trained_minutes
from efmdp.stats import success_rate
from efmdp.tasks import parse_task
from efmdp.train import train_ddpg
from efmdp.video import film_episodes

TRAINED = 3
SWITCHES = range(1, 7)
LABELS = {"deep-set": "Deep Sets", "mlp": "MLP"}
STYLES = {"deep-set": ("#0072b2", "o"), "mlp": ("#d55e00", "s")}  # told apart without colours too
FILM = f"{SWITCHES[-1]}-Switch.mp4"
TABLE_CAPTION = (
    "success: all switches right at the same moment (95 % interval); solved: share of the switches right at the end"
)

VIDEO = f"""<video src="{FILM}" controls loop muted playsinline preload="metadata"></video>
<p><a href="{FILM}">{FILM}</a>: Deep Sets on {SWITCHES[-1]} switches. A ball marks where each lever should be.</p>"""
PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Trained on $trained_on switches, tested on 1 to $most</title>
<style>
:root { color-scheme: light dark; --text: #1c1c1c; --page: #fff; --line: #ddd; --code: #f3f3f3; --link: #0060a0 }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e4e4; --page: #16181b; --line: #3a3d42; --code: #23262a; --link: #7cc0f0 }
}
body { max-width: 58rem; margin: 0 auto; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif;
  color: var(--text); background: var(--page) }
h1 { font-size: 1.6rem; line-height: 1.2 }
h2 { font-size: 1.2rem; margin-top: 2rem }
a { color: var(--link) }
img, video { display: block; width: 100%; height: auto; border-radius: 6px; background: #fff }
video { max-width: 640px }
.wide, pre { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap }
th, td { padding: .3rem .9rem; text-align: right; border-bottom: 1px solid var(--line) }
th:first-child, td:first-child { text-align: left; padding-left: 0 }
li { overflow-wrap: anywhere }
pre { padding: .8rem; border-radius: 6px; background: var(--code) }
</style>
<h1>Trained on $trained_on switches, tested on 1 to $most</h1>
<p><strong>$conclusion.</strong></p>
<p>A robot flips switches to their wanted sides. Two policies were trained on $trained_on switches, after a first stage
with a single one, by the same recipe and for about $minutes minutes each: Deep Sets takes the switches as a set, the
MLP as a list with $most places. Then both met other numbers of switches, without any more training.</p>
<img src="data:image/png;base64,$picture"
alt="Learning curves, and success against the number of switches; the table below has the numbers">
<h2>Success</h2>
$results
<p>In %, over $episodes test episodes for each number; $caption. The policy is the one of its run that did best on
the selection episodes; test episodes differ from those and from training.</p>
<h2>Film</h2>
$film
<h2>Training</h2>
$training
<h2>Commands</h2>
<pre>$commands</pre>
<h2>Versions</h2>
<ul>
$versions
</ul>
</html>
""")


class Result(NamedTuple):
    """One policy on one task: a row of extrapolation.csv."""

    network: str
    task: str
    entities: int
    episodes: int
    success_once: float
    low: float  # of the 95 % interval
    high: float
    success_end: float
    entities_solved: float


class Training(NamedTuple):
    """What a run directory says about how it was trained."""

    epochs: int
    steps: int
    updates: int
    minutes: float
    curve: list[tuple[int, float]]  # steps, success on the selection seeds of the task itself
    versions: dict[str, str]


def demo_configs() -> dict[str, TrainConfig]:
    """The same recipe for both; the MLP has room for all the switches that it is tested on."""
    task = f"{TRAINED}-Switch"
    networks = {"deep-set": make_network("deep-set", TRAINED), "mlp": make_network("mlp", TRAINED, SWITCHES[-1])}
    return {name: fast(task, network, seed=0) for name, network in networks.items()}


def run_demo(configs: dict[str, TrainConfig], out: Path, minutes: float, episodes: int) -> None:
    """Train each policy in its folder of `out`, test and film them, and write summary.html there."""
    if importlib.util.find_spec("matplotlib") is None:  # said now, not after the training
        raise UserError("the picture needs matplotlib: pip install 'efmdp[plots]'")
    runs = {}
    for network, config in configs.items():
        train(config, out / network, minutes)
        runs[network] = run = read_training(out / network, config.task)
        best = max(success for _, success in run.curve)
        say(
            f"{LABELS[network]}: {run.minutes:.1f} minutes of training, {run.epochs} epochs, {run.steps:,} steps, "
            f"at best {percent(best)} of the selection episodes of {config.task} solved"
        )
    policies = {network: load_policy(out / network, "best") for network in configs}
    results = extrapolate(policies, episodes)
    picture = draw(runs, results)
    write(out / "extrapolation.csv", to_csv(results).encode())
    write(out / "extrapolation.png", picture)
    say(f"table and picture: {out / 'extrapolation.csv'}, {out / 'extrapolation.png'}")
    filmed = film(policies["deep-set"], out / FILM)
    write(out / "summary.html", page(runs, results, picture, filmed, out, minutes).encode())
    table = Table(title=f"{episodes} test episodes each, %", caption=TABLE_CAPTION)
    for heading in headings():
        table.add_column(heading, justify="right")
    for row in cells(results):
        table.add_row(*row)
    console.print(table)
    say(conclusion(results))
    say(f"all on one page: {out / 'summary.html'}")


def train(config: TrainConfig, path: Path, minutes: float) -> None:
    """Train for so many minutes in all, however often this was stopped before; if they are over, not at all.

    A machine so slow that this does not reach the task itself goes on until there is a policy for it."""
    spent = _spent(path)
    left = minutes - spent if minutes > spent else None
    epochs = None if left else len(read_rows(path / "metrics.csv"))
    if left:
        say(f"{path}: training on {config.task} for {left:.1f} minutes")
    began, rounds = time.monotonic(), 0
    with training_bar(config, epochs, left) as show:

        def report(now: dict[str, Any]) -> None:
            nonlocal rounds
            rounds = now["round"]
            show(now)

        done = train_ddpg(config, path, epochs, report=report, warn=warn, minutes=left)
    time_is_up = left and time.monotonic() - began >= 60 * left and rounds == 0
    done = done or bool(time_is_up)
    while done and not (path / "policy-best.safetensors").exists():
        say(f"{path}: not at {config.task} after {minutes:g} minutes, so one epoch more")
        epochs = len(read_rows(path / "metrics.csv")) + 1
        with training_bar(config, epochs, None) as show:
            done = train_ddpg(config, path, epochs, report=show, warn=warn)
    if not done:
        say(f"{path}: all is saved, the same command goes on from here")
        raise KeyboardInterrupt


def read_training(path: Path, task: str) -> Training:
    metrics = read_rows(path / "metrics.csv")
    curve = [(int(row["steps"]), float(row["success_once"])) for row in metrics if row["task"] == task]
    config = Run(path).config() or {}
    last = metrics[-1]
    return Training(len(metrics), int(last["steps"]), int(last["updates"]), _spent(path), curve, config["versions"])


def extrapolate(policies: dict[str, LearnedPolicy], episodes: int) -> list[Result]:
    """Every policy on every number of switches, on the same test episodes."""
    results = []
    pairs = [(count, network) for count in SWITCHES for network in policies]
    for count, network in track(pairs, "testing on 1 to 6 switches", console=console, disable=not console.is_terminal):
        policy, task = policies[network], f"{count}-Switch"
        env = make_env(task, min(episodes, 100), **policy.physics)
        outcome = play_episodes(env, policy, episodes, stream_seed(0, TEST))
        rate = success_rate(int(outcome.success_once.sum()), episodes)
        end, solved = float(outcome.success_end.mean()), float(outcome.solved.mean())
        results.append(Result(network, task, count, episodes, *rate, end, solved))
        if not console.is_terminal:
            print(f"{LABELS[network]} on {task}: {percent(rate.value)} of {episodes} episodes", flush=True)
    return results


def film(policy: LearnedPolicy, path: Path) -> bool:
    """Three episodes with the most switches; where nothing can be rendered, a line that says so and no film."""
    env = FetchEnv(parse_task(path.stem, **policy.physics), 1)
    try:
        Picture(env).frame()
    except UserError as error:
        say(f"no film: {error}")
        return False
    _, outcomes = film_episodes(env, policy, 3, 0, path)
    say(f"film: {path}, {sum(int(outcome.success_once[0]) for outcome in outcomes)} of {len(outcomes)} episodes solved")
    return True


def draw(runs: dict[str, Training], results: list[Result]) -> bytes:
    """Learning curves on the left, success against the number of switches on the right, as a PNG."""
    from matplotlib.figure import Figure  # an optional dependency
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import EngFormatter, PercentFormatter

    figure = Figure(figsize=(10, 4), layout=ConstrainedLayoutEngine(wspace=0.05))
    left, right = figure.subplots(1, 2, sharey=True)
    for number, (network, run) in enumerate(runs.items()):
        color, marker = STYLES[network]
        left.plot(*zip(*run.curve, strict=True), color=color, marker=marker, markersize=5, label=LABELS[network])
        own = [result for result in results if result.network == network]
        right.errorbar(
            [result.entities + 0.08 * (2 * number - 1) for result in own],  # beside each other
            [result.success_once for result in own],
            [[r.success_once - r.low for r in own], [r.high - r.success_once for r in own]],
            color=color,
            marker=marker,
            markersize=5,
            capsize=3,
            label=LABELS[network],
        )
    left.set_title(f"Learning {TRAINED}-Switch")
    left.set_xlabel("environment steps")
    left.set_ylabel("success")
    left.xaxis.set_major_formatter(EngFormatter(sep=""))
    left.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    left.set_ylim(-0.03, 1.03)
    left.set_xlim(left=0)
    right.axvspan(TRAINED - 0.3, TRAINED + 0.3, color="0.9", zorder=0)
    right.set_title("Tested on other numbers (95 % intervals)")
    right.set_xlabel("switches")
    right.set_xticks(SWITCHES, [f"{count}\n(trained on)" if count == TRAINED else f"{count}" for count in SWITCHES])
    for axes in (left, right):
        axes.grid(axis="y", color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=150)
    return image.getvalue()


def to_csv(results: list[Result]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Result._fields)
    writer.writerows(results)
    return text.getvalue()


def headings() -> list[str]:
    return ["switches", *(text for label in LABELS.values() for text in (f"{label} success", "solved"))]


def cells(results: list[Result]) -> list[list[str]]:
    """The table for people: a row for every number of switches, two columns for every network."""
    rows = []
    for count in SWITCHES:
        row = [f"{count} (trained on)" if count == TRAINED else f"{count}"]
        for r in (_find(results, network, count) for network in LABELS):
            row.append(f"{100 * r.success_once:.0f} ({100 * r.low:.0f} to {100 * r.high:.0f})")
            row.append(f"{100 * r.entities_solved:.0f}")
        rows.append(row)
    return rows


def conclusion(results: list[Result]) -> str:
    parts = []
    for network, label in LABELS.items():
        known, unknown = (_find(results, network, count).success_once for count in (TRAINED, SWITCHES[-1]))
        parts.append(
            f"{label}: {percent(known)} on {TRAINED} switches, {percent(unknown)} on {SWITCHES[-1]}, which it never saw"
        )
    return "; ".join(parts)


def page(
    runs: dict[str, Training], results: list[Result], picture: bytes, filmed: bool, out: Path, minutes: float
) -> str:
    """One file that holds all but the film. Paths in its commands are relative to where the demo was started."""
    episodes = results[0].episodes
    here = shlex.quote(os.path.relpath(out))
    hardest = f"{SWITCHES[-1]}-Switch"
    limits = f"--minutes {minutes:g} --episodes {episodes}"
    options = f"--which best --task {hardest} --episodes {episodes}"
    commands = {
        "all of this; what is trained already is not trained again": f"demo --out {here} {limits}",
        "the film": f"watch {here}/deep-set/policy-best.safetensors --task {hardest}",
        **{f"{label} in the table": f"evaluate {here}/{network} {options}" for network, label in LABELS.items()},
    }
    trained = [
        [LABELS[network], f"{run.minutes:.1f}", f"{run.epochs}", f"{run.steps:,}", f"{run.updates:,}"]
        for network, run in runs.items()
    ]
    versions = [
        f"{LABELS[network]}: {', '.join(f'{name} {version}' for name, version in run.versions.items())}"
        for network, run in runs.items()
    ]
    return PAGE.substitute(
        trained_on=TRAINED,
        most=SWITCHES[-1],
        minutes=f"{minutes:g}",
        conclusion=html.escape(conclusion(results)),
        picture=base64.b64encode(picture).decode(),
        film=VIDEO if filmed else "<p>There is no film: nothing could be rendered on this machine.</p>",
        episodes=episodes,
        caption=TABLE_CAPTION,
        results=_table(headings(), cells(results)),
        training=_table(["network", "minutes", "epochs", "environment steps", "updates"], trained),
        commands=html.escape("\n\n".join(f"# {what}\nefmdp {command}" for what, command in commands.items())),
        versions="\n".join(f"<li>{html.escape(line)}</li>" for line in versions),
    )


def percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"


def write(path: Path, data: bytes) -> None:
    """A reader sees the old file or the new one, never half of it."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(text)}</th>" for text in headings)
    body = "\n".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{body}\n</table></div>'


def _find(results: list[Result], network: str, entities: int) -> Result:
    return next(result for result in results if (result.network, result.entities) == (network, entities))


def _spent(path: Path) -> float:
    """Minutes that the run has been trained."""
    timings = read_rows(path / "timings.csv")
    return trained_minutes(timings[-1]) if timings else 0.0
