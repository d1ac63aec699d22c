"""One self-contained page of what was measured: pictures, claims and verdicts, figures, tables, films, commands.

It is made of the tables in results/ alone; runs that are still there are added to them first. What is missing it says.
"""

import base64
import html
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from string import Template
from typing import NamedTuple

from efmdp import diagrams, figures, gallery
from efmdp.claims import CLAIMS, Claim, Finding, Measured
from efmdp.entities import UserError
from efmdp.evidence import STUDIES, Curve, Evidence, Point, over_seeds
from efmdp.experiments import Experiment
from efmdp.figures import LABELS, ORACLE
from efmdp.films import Film, films_of
from efmdp.records import record_all
from efmdp.runs import replace_file, short_commit, versions
from efmdp.stats import Rate
from efmdp.tables import Row, grouped
from efmdp.zero_shot import STUDY, summarise, write_summary

STYLE = """
:root { color-scheme: light dark; --text: #1c1c1c; --page: #fff; --line: #ddd; --code: #f3f3f3; --link: #0060a0;
  --accent: #0072b2; --accent-2: #c24e00; --soft: #eef3f7; --good: #1a7f37; --bad: #b3261e; --dim: #666 }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e4e4; --page: #16181b; --line: #3a3d42; --code: #23262a; --link: #7cc0f0;
    --accent: #5fb4e6; --accent-2: #f08c4a; --soft: #20262c; --good: #6fd08c; --bad: #ff8a80; --dim: #9a9a9a }
}
body { max-width: 72rem; margin: 0 auto; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif;
  color: var(--text); background: var(--page) }
h1 { font-size: 1.7rem; line-height: 1.2 }
h2 { font-size: 1.3rem; margin-top: 2.5rem; padding-top: .5rem; border-top: 1px solid var(--line) }
h3 { font-size: 1.05rem }
a { color: var(--link) }
figure { margin: 1rem 0 }
img, video { display: block; max-width: 100%; height: auto; border-radius: 6px; background: #fff }
figure img { margin: 0 auto }
img.png { min-width: 34rem } /* a phone scrolls sideways instead of showing tiny letters */
video { width: 100%; max-width: 480px }
.side { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: 1.5rem }
.wide, pre { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem }
th, td { padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line) }
td.number, th.number { text-align: right; white-space: nowrap }
.claims td:nth-last-child(-n+2) { white-space: nowrap }
.holds { color: var(--good); font-weight: 600 }
.does-not-hold { color: var(--bad); font-weight: 600 }
.not-enough-data { color: var(--dim) }
.dim, figcaption, small { color: var(--dim); font-size: .9rem }
details { margin: .6rem 0 }
summary { cursor: pointer; color: var(--link) }
.wide td { white-space: nowrap }
li, .claims td { overflow-wrap: anywhere }
pre { padding: .8rem; border-radius: 6px; background: var(--code) }
nav { columns: 2 12rem }
@media (max-width: 40rem) {
  .claims tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--line) }
  .claims th { display: none }
  .claims td { display: block; border: 0; padding: 0 }
}
"""

PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style>
<h1>$title</h1>
$body
</html>
""")


TITLE = "Policies for sets of objects: what was measured"
INTRODUCTION = (
    "The experiments of <em>Policy Architectures for Compositional Generalization in Control</em> (Zhou, Kumar, Finn, "
    "Rajeswaran, 2022), run with efmdp. Success means that all subgoals are met at the same moment. Numbers are means "
    "over seeds with 95 % intervals (Student's t, but at least as wide as that of all episodes together); of a single "
    "seed the interval is over its episodes (Wilson). The oracle solves one entity after the other with a policy for "
    "each subtask."
)
CAPTIONS = {
    "learning": "Success on the selection episodes, mean and 95 % interval over seeds; dashed: the oracle.",
    "imitation": "Success of clones against the number of demonstrations; dashed: the oracle.",
    "scripted-imitation": "Success of clones of the scripted controllers; dashed: the scripted oracle.",
    "scripted-imitation-extrapolation": "The clones of the most demonstrations; hatched: what they were trained on.",
    "extrapolation": "Hatched: what they were trained on. In the recipe fast they have met fewer entities too, by a "
    "curriculum (cubes) and, but for the MLP, in subsets of the entities; more they have never seen.",
    "stitching": "Hatched: what they were trained on, together. The others they have never seen.",
    "deep-set-size-extrapolation": "Deep Sets with a linear map and with two layers after the sum, on cubes.",
    "deep-set-size-stitching": "The same, on stacking.",
    "collisions": "Extrapolation where cubes collide with each other; hatched: what they were trained on.",
    "timing": "A step of the policy, and the whole training of the learning curves on one thread, beside other runs.",
}


class Numbers(NamedTuple):
    """A table of them: after so many columns of words come numbers."""

    title: str
    head: Sequence[str]
    body: Sequence[Sequence[str]]
    words: int


class Section(NamedTuple):
    """Of the page: a heading and what stands under it."""

    name: str
    heading: str
    body: str


def write_report(experiments: Sequence[Experiment], results: Path, where: Path, options: str = "") -> list[str]:
    """report.html, claims.md, numbers.md and figures/ of the tables in `results`, into the folder `where`.

    `options` are what else efmdp reproduce needs for these experiments. Returns what is missing, a line for each kind
    of run."""
    evidence = take_in(experiments, results, where)
    found = judged(experiments, evidence)
    where.mkdir(parents=True, exist_ok=True)
    replace_file(where, "claims.md", claims_as_markdown(found, options).encode())
    replace_file(where, "numbers.md", numbers_as_markdown(experiments, evidence).encode())
    sections = [_pictures(where), _claims(found)]
    for experiment in experiments:
        command = f"efmdp reproduce {experiment.name}{options}"
        sections.append(experiment_section(experiment, evidence, where, command))
    write_page(where / "report.html", TITLE, INTRODUCTION, f"efmdp report{options}", sections)
    return [f"{experiment.name}: {line}" for experiment in experiments for line in missing(experiment, evidence)]


def take_in(experiments: Sequence[Experiment], results: Path, where: Path) -> Evidence:
    """What was measured of them, after their runs are written into the tables; the statistics go to `where`."""
    tests = [test for experiment in experiments for test in experiment.tests]
    for root in {test.of.folder.parent for test in tests}:
        record_all(root, results)
    evidence = Evidence(results)
    for study in STUDIES:
        own = [test for test in tests if test.study == study]
        rows = [row for test in own for row in (*evidence.rows(test), *evidence.oracle_rows(test))]
        different = list({tuple(row.values()): row for row in rows}.values())
        for here in grouped(different, *STUDY).values():
            write_summary(where / f"{study}.csv", summarise(here))
    return evidence


def write_page(out: Path, title: str, introduction: str, command: str, sections: Sequence[Section]) -> None:
    known = versions()
    commit, today = short_commit(known["commit"]), time.strftime("%Y-%m-%d")
    made = f"Made by <code>{html.escape(command)}</code>, efmdp {known['efmdp']}, commit {commit}, on {today}."
    links = "".join(f'<li><a href="#{s.name}">{html.escape(s.heading)}</a></li>' for s in sections)
    parts = [f"<p>{introduction} {made}</p><nav><ul>{links}</ul></nav>"]
    parts += [f'<h2 id="{s.name}">{html.escape(s.heading)}</h2>\n{s.body}' for s in sections]
    text = PAGE.substitute(title=html.escape(title), style=STYLE, body="\n".join(parts))
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out.parent, out.name, text.encode())


def _pictures(where: Path) -> Section:
    try:
        images = {
            "teaser": (gallery.teaser(), "Trained on three cubes, tested on three to six."),
            "tasks": (gallery.tasks(), "The tasks. A ball marks where a cube, or the end of a lever, should be."),
            "pairs": (gallery.stitching(), "Stitching: what is trained together, and what needs the skills of both."),
        }
        for name, (image, _) in images.items():
            _keep(where, f"{name}.jpg", image)
        teaser, *others = (_figure(image, caption, "jpeg") for image, caption in images.values())
        shown = f'{teaser}<div class="side">{"".join(others)}</div>'
    except UserError as error:  # nothing can be rendered here
        shown = f'<p class="dim">No pictures: {html.escape(str(error))}</p>'
    drawings = (diagrams.EFMDP, diagrams.DEEP_SETS, diagrams.SELF_ATTENTION)
    side = "".join(f"<div>{drawing}</div>" for drawing in drawings)
    return Section("tasks", "Tasks and policies", f'{shown}<div class="side">{side}</div>')


def judged(experiments: Sequence[Experiment], evidence: Evidence) -> list[tuple[Claim, Finding]]:
    """The claims about these experiments, and what was found."""
    measured = Measured(evidence, experiments)
    return [(claim, claim.judge(measured)) for claim in CLAIMS if claim.experiment in measured.experiments]


def claims_as_markdown(found: Sequence[tuple[Claim, Finding]], options: str) -> str:
    """For pages of text, which quote it."""
    body = [
        (claim.says, claim.means, finding.measured, finding.verdict, f"`efmdp reproduce {claim.experiment}{options}`")
        for claim, finding in found
    ]
    return _markdown_table(("the paper says", "taken to mean", "measured here", "verdict", "command"), body)


def numbers_as_markdown(experiments: Sequence[Experiment], evidence: Evidence) -> str:
    """The tables of the page, which other pages quote."""
    parts = []
    for experiment in experiments:
        for numbers in _numbers(experiment, evidence):
            parts.append(f"## {experiment.name}: {numbers.title}\n\n{_markdown_table(numbers.head, numbers.body)}")
        if runs := [row for row in evidence.runs_of(experiment) if row["finished"] == "True"]:
            parts.append(f"## {experiment.name}: what its runs took\n\n{_costs_as_markdown(runs)}")
    return "\n".join(parts)


def _costs_as_markdown(runs: Sequence[Row]) -> str:
    """A line for each kind of run; where its seeds differ, one after the other."""
    shared, own = ("task", "network", "recipe", "threads"), ("seed", "steps", "updates", "minutes")
    body = []
    for kind, here in grouped(runs, *shared).items():
        cells = [[row[name] for row in here] for name in own]
        body.append([*kind, *map(_once_if_alike, cells)])
    return _markdown_table((*shared, *own), body)


def _once_if_alike(cells: Sequence[str]) -> str:
    """Those of all seeds, one after the other where they differ."""
    return ", ".join(cells if len(set(cells)) > 1 else cells[:1])


def _markdown_table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *body)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _claims(found: Sequence[tuple[Claim, Finding]]) -> Section:
    rows = "".join(
        f"<tr><td>{html.escape(claim.says)}<br><small>taken to mean: {html.escape(claim.means)}</small></td>"
        f"<td>{html.escape(finding.measured)}</td>"
        f'<td><span class="{finding.verdict.replace(" ", "-")}">{finding.verdict}</span></td>'
        f'<td><a href="#{claim.experiment}">{claim.experiment}</a></td></tr>'
        for claim, finding in found
    )
    head = "".join(f"<th>{text}</th>" for text in ("the paper says", "measured here", "verdict", "from"))
    return Section("claims", "The paper's claims", f'<table class="claims"><tr>{head}</tr>{rows}</table>')


def experiment_section(experiment: Experiment, evidence: Evidence, where: Path, command: str = "") -> Section:
    """Its figures, which also go to the folder `where`, its numbers, its films, what is missing, and what it cost."""
    parts = [f"<p>{html.escape(experiment.shows)}. <code>{html.escape(command)}</code></p>"]
    for title, image in _draw(experiment, evidence).items():
        _keep(where, f"{title}.png", image)
        parts.append(_figure(image, CAPTIONS[title]))
    for numbers in _numbers(experiment, evidence):
        table = _html_table(numbers.head, numbers.body, numbers.words)
        parts.append(f"<details open><summary>{numbers.title.capitalize()}</summary>{table}</details>")
    parts += [_film(film) for film in films_of(experiment, evidence, where)]
    if lines := missing(experiment, evidence):
        items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
        parts.append(f"<details><summary>What is missing</summary><ul>{items}</ul></details>")
    if runs := evidence.runs_of(experiment):
        parts.append(f"<details><summary>The runs, their cost and commands</summary>{_costs(runs)}</details>")
    return Section(experiment.name, experiment.name.replace("-", " ").capitalize(), "\n".join(parts))


def _keep(where: Path, name: str, image: bytes) -> None:
    """For other pages."""
    folder = where / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder, name, image)


def _draw(experiment: Experiment, evidence: Evidence) -> dict[str, bytes]:
    """The figures that there are data for, by name."""
    name, points, oracle = experiment.name, evidence.points(experiment), evidence.oracle(experiment)
    drawn: dict[str, bytes] = {}
    by_study = {study: [point for point in points if point.study == study] for study in evidence.tables}
    most = max((point.demos for point in points), default=0)
    shared = len({test.study for test in experiment.tests}) > 1  # by several studies: each has a figure of its own
    if most and by_study["learning"]:
        drawn[name] = figures.demonstrations(by_study["learning"], oracle)
    elif name == "learning" and (curves := evidence.learning_curves(experiment)):
        drawn[name] = figures.learning_curves(curves, oracle)
    if far := [point for point in by_study["extrapolation"] if point.demos == most]:
        drawn[f"{name}-extrapolation" if shared else name] = figures.extrapolation(far, oracle)
    if by_study["stitching"]:
        drawn[f"{name}-stitching" if shared else name] = figures.stitching(by_study["stitching"], oracle)
    if timed := [row for test in evidence.shown(experiment) if test.study == "timing" for row in evidence.rows(test)]:
        drawn[name] = figures.timing(timed)
    return drawn


def missing(experiment: Experiment, evidence: Evidence) -> list[str]:
    """What was not tested yet: which runs, and how far those are that were begun."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for test in evidence.missing(experiment):
        run = evidence.record_of(test.of)
        state = f"{test.of.seed}" if run is None else f"{test.of.seed} (after epoch {run['epochs']})"
        seeds = lines.setdefault((test.of.task, test.of.network, test.of.recipe), [])
        seeds += [state] * (state not in seeds)
    return [
        f"{task}, {LABELS[network]}, {recipe}: {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(seeds)}"
        for (task, network, recipe), seeds in lines.items()
    ]


def _numbers(experiment: Experiment, evidence: Evidence) -> list[Numbers]:
    """One table for each way of testing."""
    points, oracle = evidence.points(experiment), evidence.oracle(experiment)
    by_study = {study: [point for point in points if point.study == study] for study in STUDIES}
    tables = [_table(study, here, oracle) for study, here in by_study.items() if here]
    curves = evidence.learning_curves(experiment) if experiment.name == "learning" else []
    return [*tables, _speeds(curves)] if curves else tables


def _speeds(curves: Sequence[Curve]) -> Numbers:
    """Thousands of steps until half of the selection episodes succeed: lines are tasks, columns networks."""
    networks = [network for network in LABELS if any(curve.network == network for curve in curves)]
    body = []
    for task in dict.fromkeys(curve.task for curve in curves):
        mine = [[c for c in curves if (c.network, c.task) == (network, task)] for network in networks]
        body.append([task, *(_once_if_alike([_speed(curve) for curve in cell]) for cell in mine)])
    head = ["thousands of steps to 50 %", *(LABELS[network] for network in networks)]
    return Numbers("how soon half of the selection episodes succeed, seed after seed", head, body, words=1)


def _speed(curve: Curve) -> str:
    if curve.steps_to_half < inf:
        return f"{curve.steps_to_half / 1000:.0f}"
    return f"more than {curve.steps[-1] / 1000:.0f}{'' if curve.finished else ' (not finished)'}"


def _table(study: str, points: Sequence[Point], oracle: dict[tuple[str, str, str], Rate]) -> Numbers:
    """A line for each task and number of demonstrations, a column for each network, the oracle last."""
    networks = [network for network in LABELS if any(point.network == network for point in points)]
    cloned, layouts = any(point.demos for point in points), {point.layout for point in points}
    head = [
        "trained on",
        *["demonstrations"] * cloned,
        "task",
        *(LABELS[network] for network in networks),
        LABELS[ORACLE],
    ]
    families = list(dict.fromkeys(point.trained_on for point in points))
    ordered = sorted(points, key=lambda p: (families.index(p.trained_on), p.demos, p.layout, p.entities))
    lines = dict.fromkeys((p.trained_on, p.demos, p.task, p.layout) for p in ordered)
    body = []
    for trained_on, demos, task, layout in lines:
        mine = [p for p in points if (p.trained_on, p.demos, p.task, p.layout) == (trained_on, demos, task, layout)]
        shown = f"{task} (wide)" if layout == "wide" and len(layouts) > 1 else task
        cells = [_cell([point for point in mine if point.network == network]) for network in networks]
        beside = oracle.get((trained_on, task, layout))
        body.append(
            [trained_on, *[f"{demos}"] * cloned, shown, *cells, f"{100 * beside.value:.1f} %" if beside else ""]
        )
    which = "last policy" if study == "learning" else "best policy on the selection seeds"
    return Numbers(f"success on test episodes, {which}", head, body, len(head) - len(networks) - 1)


def _cell(points: Sequence[Point]) -> str:
    """In percent, with the interval and the number of seeds."""
    rate = over_seeds(points)
    return "" if rate is None else f"{rate}, {len(points)} {'seed' if len(points) == 1 else 'seeds'}"


def _costs(runs: Sequence[Row]) -> str:
    names = ("run", "finished", "epochs", "steps", "updates", "minutes", "threads", "commit", "command")
    return _html_table(
        names, [[short_commit(row[name]) if name == "commit" else row[name] for name in names] for row in runs], 1
    )


def _html_table(head: Sequence[str], body: Sequence[Sequence[str]], words: int) -> str:
    """After so many columns of words come numbers."""

    def line(tag: str, cells: Sequence[str]) -> str:
        marked = (
            f"<{tag}{' class=number' if place >= words else ''}>{html.escape(text)}</{tag}>"
            for place, text in enumerate(cells)
        )
        return f"<tr>{''.join(marked)}</tr>"

    return f'<div class="wide"><table>{line("th", head)}{"".join(line("td", row) for row in body)}</table></div>'


def _figure(image: bytes, caption: str, kind: str = "png") -> str:
    data = base64.b64encode(image).decode()
    text = html.escape(caption)
    shown = f'<div class="wide"><img class="{kind}" src="data:image/{kind};base64,{data}" alt="{text}"></div>'
    return f"<figure>{shown}<figcaption>{text}</figcaption></figure>"


def _film(film: Film) -> str:
    data = base64.b64encode(film.path.read_bytes()).decode()
    shown = f'<video src="data:video/mp4;base64,{data}" controls loop muted playsinline preload="metadata"></video>'
    return f"<figure>{shown}<figcaption>{html.escape(film.caption)}</figcaption></figure>"
