"""The Python of README and docs runs as it stands there (docs/your-own-environment.md and networks-in-your-loop.md have
tests of their own)."""

import re
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch

from efmdp import networks
from efmdp.bc import BCConfig
from efmdp.entities import EntityDims
from efmdp.evidence import Evidence
from efmdp.experiments import experiments
from efmdp.networks import NetworkConfig
from efmdp.recipes import FAST_EPOCHS, FROM_SCRATCH_EPOCHS, PAPER_TABLE, TrainConfig, fast, paper, smoke
from efmdp.report import claims_as_markdown, judged, numbers_as_markdown
from efmdp.train import short

ROOT = Path(__file__).parents[1]


def python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_readme() -> None:
    names: dict[str, object] = {}
    blocks = python_blocks("README.md")
    assert len(blocks) == 2
    for block in blocks:
        exec(block, names)  # one after the other, as a reader would type them


def test_tasks() -> None:
    names: dict[str, object] = {}
    (block,) = python_blocks("docs/tasks.md")
    exec(block, names)
    assert names["solved"].all()  # type: ignore[attr-defined]


def test_reading_demonstrations(
    efmdp: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, errors = efmdp(
        "collect", "--task", "3-Push", "--from", "scripted", "--episodes", 100, "--out", "demos/3-push"
    )
    assert code == 0, errors
    reading, minari = python_blocks("docs/demonstrations.md")
    exec(reading, {})
    assert capsys.readouterr().out.splitlines()[-1] == "3-Push 100"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    code, _, errors = efmdp("export-minari", "demos/3-push", "--name", "efmdp/3-push/scripted-v0")
    assert code == 0, errors
    names: dict[str, Any] = {}
    exec(minari, names)
    assert 90 <= names["good"].total_episodes <= names["dataset"].total_episodes == 100


def test_your_own_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(networks, "_OWN", {})
    threads = torch.get_num_threads()
    names: dict[str, Any] = {}
    (block,) = python_blocks("docs/your-own-network.md")
    exec(block, names)
    torch.set_num_threads(threads)
    tested = re.findall(r"^(\d-Switch) [\d.]+ % \(", capsys.readouterr().out, re.MULTILINE)
    assert tested == ["1-Switch", "2-Switch", "4-Switch"]
    body = names["Relational"](EntityDims(agent=2, entity=3, goal=1, action=2), 2, 4)
    agent, entities, goals, action = (torch.randn(size) for size in ((5, 2), (5, 3, 3), (5, 3, 1), (5, 2)))
    out = body(agent, entities, goals, action, None)
    order, mask = [2, 0, 1], torch.tensor([True, False, True]).expand(5, 3)
    torch.testing.assert_close(body(agent, entities[:, order], goals[:, order], action, None), out)
    hidden = body(agent, entities[:, [0, 2]], goals[:, [0, 2]], action, None)
    torch.testing.assert_close(body(agent, entities, goals, action, mask), hidden)
    assert (hidden - out).abs().max() > 1e-6


def test_sizes_of_networks(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = python_blocks("docs/networks.md")
    exec(block, {})
    (shown,) = tables("docs/networks.md", "parameters of the actor")
    assert capsys.readouterr().out.splitlines() == [f"| {' | '.join(row)} |" for row in shown]


def tables(page: str, heading: str) -> list[list[list[str]]]:
    """The cells below the heads of the tables that have this heading."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", (ROOT / page).read_text(), re.MULTILINE):
        head, _, *rows = (re.split(r" ?(?<!\\)\| ?", line)[1:-1] for line in table.splitlines())
        if heading in head:
            found.append([[cell.replace("\\|", "|") for cell in row] for row in rows])
    return found


def written(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def test_settings_of_recipes() -> None:
    network = NetworkConfig()
    made: dict[str, list[TrainConfig]] = {
        "paper": [paper(task, network, 0) for task in PAPER_TABLE],
        "fast": [fast(task, network, 0) for task in PAPER_TABLE],
        "smoke": [smoke(task, network, 0) for task in PAPER_TABLE],
    }

    def common(configs: list[TrainConfig], field: str) -> str:
        get = attrgetter(field.strip("`"))
        values = {written(get(config.stages[-1]) if "exploration" in field else get(config)) for config in configs}
        return values.pop() if len(values) == 1 else "by task"

    shown, cloning = tables("docs/recipes.md", "setting")
    for field, *values, _ in shown:
        assert [field, *values] == [field, *(common(configs, field) for configs in made.values())]
    assert len(shown) == 25
    whole = BCConfig("3-Push", network, {}, "", 1, "bc-1", made["fast"][0].ddpg.learning_rate)
    for field, *values, _ in cloning:
        assert [field, *values] == [field, *(written(getattr(c, field.strip("`"))) for c in (whole, short(whole)))]
    assert len(cloning) == 6


def test_tasks_of_the_paper_recipe() -> None:
    def row(task: str) -> list[str]:
        reward, epochs, decays, keep = PAPER_TABLE[task]
        spans = [f"{span[0]} to {span[1]}" if span else "-" for span in (decays["fast"], decays["slow"])]
        return [task, reward, str(epochs), *spans, str(keep)]

    (shown,) = tables("docs/recipes.md", "`--decay fast`")
    assert shown == [row(task) for task in PAPER_TABLE]


def test_epochs_of_the_fast_recipe() -> None:
    def row(task: str, called: str) -> list[str]:
        *before, own = fast(task, NetworkConfig(), 0).stages
        networks = (NetworkConfig(), NetworkConfig("self-attention"), NetworkConfig("mlp", max_entities=6))
        alone = [fast(task, network, 0, curriculum=False).epochs for network in networks]
        stages = ", ".join(f"{stage.task} {stage.epochs}" for stage in before)
        return [called, stages or "none", str(own.epochs), *map(str, alone)]

    (shown,) = tables("docs/recipes.md", "epochs on it")
    named = {cells[0] for cells in shown}
    assert named >= FAST_EPOCHS.keys() | FROM_SCRATCH_EPOCHS.keys()
    meant = {
        "4-Push and more": ("4-Push", "6-Push"),
        "4-Switch and more": ("4-Switch", "6-Switch"),
        "any other": ("Stack", "1-Switch+1-Push", "2-Switch|2-Push", "2-Push&Stack"),
    }
    for cells in shown:
        for task in meant.get(cells[0], (cells[0],)):
            assert cells == row(task, cells[0])


def test_results_are_those_of_the_tables() -> None:
    """Numbers over seeds and costs in the text are lines of numbers.md, which is what the tables beside it give; so are
    those of the README. Of the claims none that was measured is left out."""
    shown = (ROOT / "docs" / "results.md").read_text()
    wanted, evidence = experiments("fast", range(5), 500), Evidence(ROOT / "results")
    numbers, claims = numbers_as_markdown(wanted, evidence), claims_as_markdown(judged(wanted, evidence), "")
    assert (ROOT / "results" / "numbers.md").read_text() == numbers, "efmdp report"
    assert (ROOT / "results" / "claims.md").read_text() == claims, "efmdp report"
    successes, costs = r"^\|.*\d seeds? \|.*$", r"^\|.* \| \d+ \| \d+\.\d[\d., ]* \|$"
    for page, quotes in ((shown, successes), (shown, costs), ((ROOT / "README.md").read_text(), successes)):
        quoted = re.findall(quotes, page, re.MULTILINE)
        assert quoted
        assert set(quoted) <= set(numbers.splitlines())
    assert tables("docs/results.md", "thousands of steps to 50 %") == tables(
        "results/numbers.md", "thousands of steps to 50 %"
    )
    measured = [line for line in claims.splitlines() if " |  | " not in line]
    assert measured[2:]
    assert "\n".join(measured) in shown


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert broken == []
