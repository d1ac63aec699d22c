"""Every command in the blocks of README.md and docs/*.md runs, on a budget of seconds, so that none can rot.

A command is cut down by RULES; what it names (runs, demonstrations, policies) is prepared, small and untrained. What no
test can run is in NOT_RUN, with what is checked instead. A command that neither knows fails: teach it to one of them.
"""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from efmdp import launch, publish, zoo
from efmdp.experiments import Step
from efmdp.runs import Run
from efmdp.tasks import PAPER_TASKS, file_name

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
STARTS = ("efmdp", "python", "make", "pip", "ray", "source", "export", "git", "cd")
Efmdp = Callable[..., tuple[int, str, str]]
Words = tuple[str, ...]


class Rule(NamedTuple):
    """How a command is made small."""

    sets: dict[str, str] = {}  # noqa: RUF012
    """options that get this value, whether they are named or not"""
    limits: dict[str, str] = {}  # noqa: RUF012
    """options that get this value where they are named"""
    drops: Words = ()
    """options that do not go with the others; with = they have a value"""


SMOKE = {"--recipe": "smoke", "--seeds": "1", "--episodes": "2"}
RULES: dict[Words, Rule] = {  # by how the command begins; the longest that fits
    ("train", "ddpg"): Rule({"--recipe": "smoke"}, drops=("--no-curriculum", "--decay=")),
    ("train", "bc"): Rule({"--recipe": "smoke"}, {"--demos-used": "100"}),
    ("train", "resume"): Rule(),
    ("collect",): Rule({"--episodes": "100"}),  # one chunk
    ("evaluate",): Rule({"--episodes": "2"}),
    ("evaluate", "timing"): Rule(),
    ("watch",): Rule({"--episodes": "1", "--width": "64", "--height": "48"}),
    ("check",): Rule({"--num-envs": "2"}),
    ("tasks",): Rule(),
    ("export-minari",): Rule(),
    ("zoo",): Rule(),
    ("zoo", "add"): Rule({"--episodes": "2"}),
    ("report",): Rule(SMOKE),
    ("reproduce",): Rule(SMOKE),  # and `narrowed`
}
NOT_RUN = {  # why, or which test does
    "efmdp demo": "trains for minutes: tests/test_demo.py; here its options",
    "efmdp zoo upload": "needs the Hub: tests/test_zoo.py has one; here its options",
    "efmdp zoo download": "needs the Hub: tests/test_zoo.py has one; here its options",
    "python -m benchmarks.": "takes minutes to hours; here that it starts, and its options",
    "make ": "sets up, trains or tests for minutes; here that there is such a target",
    "pip install": "changes what is installed; here that there are such extras",
    "ray ": "starts or stops a cluster: tests/test_launch.py has one; here its options",
    "source .venv/bin/activate": "changes the shell",
    "export ": "changes the shell",
    "git clone": "needs the network",
    "cd ": "changes the shell",
}
# What RUN stands for, by how the command begins: a study takes runs of some tasks only.
PLACEHOLDERS: dict[Words, str] = {
    ("evaluate", "stitching"): "runs/2-Switch-or-2-Push-deep-set-fast-0",
    (): "runs/3-Switch-deep-set-fast-0",
}
SUBTASKS = {"push": "1-Push", "switch": "1-Switch", "stack": "Stack"}  # of push=RUN
# The cheapest that an experiment is made of, with one network.
TASK_OF = {
    "stitching": "2-Push|Stack",
    "deep-set-size": "2-Push|Stack",
    "collisions": "3-Push",
    "timing": "1-Push",
}
METRICS = "epoch,task,steps,updates,success_once\n1,3-Push,800,10,0.25\n"
TIMINGS = "epoch,collect,learn,evaluate,save,peak_mb\n1,9,9,9,9,9\n"


# What there is to run


def commands(page: str) -> list[Words]:
    """The commands in a page's blocks of shell, in words and without comments; where lines have a $, those lines."""
    found: dict[Words, None] = {}
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        if language not in ("", "bash", "sh", "console", "shell"):
            continue
        lines = block.replace("\\\n", " ").splitlines()
        typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for line in typed or [line for line in lines if line.split(maxsplit=1)[:1] and line.split()[0] in STARTS]:
            found.setdefault(tuple(shlex.split(line, comments=True)))
    return [words for words in found if words]


def test_what_a_command_is() -> None:
    page = """
```
efmdp train ddpg --task 3-Push   # Deep Sets, the paper's
                                 # efmdp nothing
efmdp collect --task '2-Push|Stack' \\
    --from scripted
3-Push: 98 %
```
```console
$ efmdp tasks
efmdp prints this
```
```python
import efmdp
```
efmdp is prose
"""
    assert commands(page) == [
        ("efmdp", "train", "ddpg", "--task", "3-Push"),
        ("efmdp", "collect", "--task", "2-Push|Stack", "--from", "scripted"),
        ("efmdp", "tasks"),
    ]


def documented() -> list[tuple[str, Words]]:
    return [(page, words) for page in PAGES for words in commands((ROOT / page).read_text())]


# How it is made small


def rule_of(arguments: Words) -> Rule:
    fitting = [start for start in RULES if arguments[: len(start)] == start]
    assert fitting, f"teach tests/test_doc_commands.py this command: efmdp {shlex.join(arguments)}"
    return RULES[max(fitting, key=len)]


def small(arguments: Words) -> Words:
    """The arguments of efmdp, cut down to seconds."""
    if "--help" in arguments:
        return arguments
    rule = rule_of(arguments)
    left = without(arguments, *(f"{name}=" for name in rule.sets), *rule.drops)
    left = tuple(rule.limits.get(before, word) for before, word in zip(("", *left), left, strict=False))
    if arguments[0] == "reproduce":
        left = narrowed(left)
    if arguments[:2] == ("train", "resume"):  # what is resumed has checkpoints, which only training writes
        left = tuple(re.sub(r"^(runs/.+)-[a-z][a-z-]*-(\d+)$", r"\1-smoke-\2", word) for word in left)
    options = tuple(word for option in rule.sets.items() for word in option)
    return apart(tuple(filled(word, arguments) for word in left) + options)


def narrowed(arguments: Words) -> Words:
    """efmdp reproduce with one experiment, one task and one network; on a cluster it only lists them."""
    names = values(arguments)
    rest = without(arguments[1 + len(names) :], "--tasks=", "--networks=", "--demos=")
    if "--demos" in arguments:
        rest = (*rest, "--demos", "20")  # the most of the smoke recipe
    if "ray" in rest and "--list" not in rest:
        rest = (*rest, "--list")
    name = names[0] if names else "learning"
    return ("reproduce", name, *rest, "--tasks", TASK_OF.get(name, "3-Switch"), "--networks", "deep-set")


def values(arguments: Words) -> Words:
    """What follows the first word, up to the next option."""
    end = next((at for at, word in enumerate(arguments[1:], 1) if word.startswith("--")), len(arguments))
    return arguments[1:end]


def without(arguments: Words, *names: str) -> Words:
    """Options left out; of name= also all of its values."""
    left: list[str] = []
    at = 0
    while at < len(arguments):
        if f"{arguments[at]}=" in names:
            at += 1 + len(values(arguments[at:]))
        else:
            if arguments[at] not in names:
                left.append(arguments[at])
            at += 1
    return tuple(left)


def filled(word: str, arguments: Words) -> str:
    """A run in the place of RUN, of RUN... and of push=RUN."""
    part, _, name = word.rpartition("=")
    if name not in ("RUN", "RUN..."):
        return word
    if part:
        return f"{part}=runs/{SUBTASKS[part]}-deep-set-fast-0"
    return next(run for start, run in PLACEHOLDERS.items() if arguments[: len(start)] == start)


def apart(arguments: Words) -> Words:
    """What a command writes lies apart from what others write, and from what is prepared."""
    own = f"made/{zlib.crc32(shlex.join(arguments).encode()):08x}"
    return tuple(
        f"{own}/{word}" if before == "--out" else word
        for before, word in zip(("", *arguments), arguments, strict=False)
    )


@pytest.mark.parametrize(
    ("typed", "run"),
    [
        ("train ddpg --task 3-Push --no-curriculum --seed 1", "train ddpg --task 3-Push --seed 1 --recipe smoke"),
        ("train ddpg --task 3-Push --recipe paper --decay slow", "train ddpg --task 3-Push --recipe smoke"),
        ("train bc --demos demos/a --demos-used 1000", "train bc --demos demos/a --demos-used 100 --recipe smoke"),
        ("train resume runs/3-Push-mlp-6-fast-0", "train resume runs/3-Push-mlp-6-smoke-0"),
        ("evaluate learning RUN...", "evaluate learning runs/3-Switch-deep-set-fast-0 --episodes 2"),
        ("evaluate oracle --oracle push=RUN", "evaluate oracle --oracle push=runs/1-Push-deep-set-fast-0 --episodes 2"),
        ("train ddpg --help", "train ddpg --help"),
        (
            "reproduce extrapolation learning --seeds 5 --tasks 3-Push 3-Switch --demos 1000 5000 --budget 2h",
            "reproduce extrapolation --budget 2h --demos 20 --tasks 3-Switch --networks deep-set "
            "--recipe smoke --seeds 1 --episodes 2",
        ),
        (
            "reproduce --backend ray --address auto",
            "reproduce learning --backend ray --address auto --list --tasks 3-Switch --networks deep-set "
            "--recipe smoke --seeds 1 --episodes 2",
        ),
    ],
)
def test_what_is_made_of_a_command(typed: str, run: str) -> None:
    assert shlex.join(small(tuple(typed.split()))) == run


def test_an_unknown_command_fails() -> None:
    with pytest.raises(AssertionError, match=r"teach tests/test_doc_commands.py this command: efmdp sing --loud"):
        small(("sing", "--loud"))


# What it needs


class Folder:
    """Where all commands are given, with what they name."""

    def __init__(self, path: Path, write_run: Callable[..., Path]) -> None:
        self.path, self.write_run = path, write_run
        self.reproduced = path / "reproduced"
        self.reproduced.mkdir()
        self.done: dict[Words, tuple[int, str, str]] = {}

    def prepare(self, arguments: Words, efmdp: Efmdp) -> None:
        for word in arguments:
            path = word.rpartition("=")[2]
            if path.startswith("runs/"):
                self.run(path, efmdp)
            elif path.startswith("demos/"):
                self.demos(path, efmdp)
            elif path.startswith("results/policies/"):
                self.policy(path, efmdp)
            elif zoo.is_named(path):
                self.named(path, efmdp)
            elif arguments[0] == "check" and ":" in path:
                self.module(path)

    def run(self, path: str, efmdp: Efmdp) -> Path:
        """runs/TASK-NETWORK-RECIPE-SEED, untrained but for the smoke recipe, which others may want to go on with."""
        folder = self.path / path
        if folder.exists():
            return folder
        match = re.fullmatch(
            r"(.+?)(-collisions)?-(deep-set-large|deep-set|self-attention|mlp)(?:-(\d+))?-([a-z].*)-(\d+)", folder.name
        )
        assert match, f"{path} is not TASK-NETWORK-RECIPE-SEED"
        written, collisions, network, places, recipe, seed = match.groups()
        task = task_of(written)
        if recipe == "smoke":
            options = ("--max-entities", places) if places else ()
            trained = ("--task", task, "--network", network, "--recipe", recipe, "--seed", seed, *options)
            code, _, errors = efmdp("train", "ddpg", *trained, "--epochs", "1", "--out", folder)
            assert code == 0, errors
        else:
            physics = {"collisions": True} if collisions else {}
            self.write_run(folder, task, network, int(seed), int(places) if places else None, **physics)
            run = Run(folder)
            run.write_config({"method": "ddpg", "versions": {"commit": "0123456"}} | (run.config() or {}))
            (folder / "metrics.csv").write_text(METRICS)
            (folder / "timings.csv").write_text(TIMINGS)
        return folder

    def demos(self, path: str, efmdp: Efmdp) -> None:
        """demos/TASK..., whoever is said to have shown it."""
        if not (self.path / path).exists():
            wanted = ("--from", "scripted", "--episodes", "100", "--out", self.path / path)
            code, _, errors = efmdp("collect", "--task", task_of(Path(path).name), *wanted)
            assert code == 0, errors

    def policy(self, path: str, efmdp: Efmdp) -> None:
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.run(f"runs/{target.stem}", efmdp) / "policy-best.safetensors", target)

    def named(self, name: str, efmdp: Efmdp) -> None:
        """zoo:TASK/NETWORK, of the run that an example adds."""
        task, _, network = name.removeprefix(zoo.PREFIX).partition("/")
        run = self.run(f"runs/{file_name(task_of(task))}-{network}-fast-0", efmdp)
        if not zoo.files(zoo.folder(), f"{task}/{network}")[0].exists():
            assert publish.publish(run, 2).name == f"{task}/{network}"

    def module(self, name: str) -> None:
        """The example that defines such a factory, as the file that the reader puts it into."""
        module, _, factory = name.partition(":")
        texts = [(ROOT / page).read_text() for page in PAGES]
        blocks = [block for text in texts for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
        example = next(block for block in blocks if f"def {factory}(" in block)
        (self.path / f"{module}.py").write_text(example)


def task_of(name: str) -> str:
    """The task that a name of a file begins with, in whatever case."""
    known = [task for task in PAPER_TASKS if re.match(rf"{re.escape(file_name(task))}(-|$)", name, re.IGNORECASE)]
    assert known, f"{name} begins with no task"
    return max(known, key=len)


class InThisProcess:
    """Does the steps of efmdp reproduce without the seconds that a process takes to start (tests/test_launch.py has
    processes)."""

    places = 1

    def __init__(self, efmdp: Efmdp) -> None:
        self.efmdp = efmdp
        self.results: list[tuple[Step, bool]] = []

    def start(self, step: Step) -> None:
        code, _, errors = self.efmdp(*step.command)
        print(errors, file=sys.stderr)
        self.results.append((step, code == 0))

    def ended(self) -> list[tuple[Step, bool]]:
        results, self.results = self.results, []
        return results

    def stop(self) -> None:
        pass


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, write_run: Callable[..., Path]) -> Folder:
    return Folder(tmp_path_factory.mktemp("documented"), write_run)


@pytest.fixture
def folder(prepared: Folder, efmdp: Efmdp, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(prepared.path)
    monkeypatch.setattr(launch, "Here", lambda _: InThisProcess(efmdp))
    monkeypatch.setattr(launch, "OLDEST_STATE", 0)
    monkeypatch.setattr(zoo, "folder", lambda: prepared.path / "results" / "policies")
    monkeypatch.setattr(sys, "path", list(sys.path))  # efmdp check puts the folder there
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(prepared.path / "minari"))
    return prepared


# The tests


@pytest.mark.parametrize(
    "words", [pytest.param(words, id=f"{page}:{shlex.join(words)}") for page, words in documented()]
)
def test_documented_command(words: Words, folder: Folder, efmdp: Efmdp, monkeypatch: pytest.MonkeyPatch) -> None:
    line = shlex.join(words)
    start = next((start for start in NOT_RUN if f"{line} ".startswith(start)), None)
    if start is not None:
        check_not_run(words, start, efmdp)
        return
    assert words[0] == "efmdp", f"teach tests/test_doc_commands.py this command: {line}"
    arguments = small(words[1:])
    folder.prepare(arguments, efmdp)
    for name in ("teaser", "tasks", "stitching"):  # rendered by tests/test_gallery.py; they take seconds each
        monkeypatch.setattr(f"efmdp.gallery.{name}", lambda: b"a picture")
    if arguments[0] in ("reproduce", "report"):  # their runs have one thread, those of efmdp train two
        monkeypatch.chdir(folder.reproduced)
    if arguments not in folder.done:
        folder.done[arguments] = efmdp(*arguments)
    code, said, errors = folder.done[arguments]
    assert code == 0, f"efmdp {shlex.join(arguments)}\n{said}\n{errors}"


def check_not_run(words: Words, start: str, efmdp: Efmdp) -> None:
    """All that can be said about a command without running it."""
    match words:
        case ["efmdp", *_]:
            code, help_, errors = efmdp(*start.split()[1:], "--help")
            assert code == 0, errors
            check_options(words, help_)
        case ["python", "-m", module, *_]:
            check_options(words, help_of(sys.executable, "-m", module))
        case ["ray", command, *_]:
            pytest.importorskip("ray")
            check_options(words, help_of(sys.executable, "-m", "ray.scripts.scripts", command))
        case ["make", *targets]:
            known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert {target for target in targets if "=" not in target} <= set(known)
        case ["pip", "install", *what]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            named = re.findall(r"(?:efmdp|\.)\[(.*?)\]", " ".join(what))
            assert {extra for extras in named for extra in extras.split(",")} <= set(project["optional-dependencies"])
        case _:
            pass  # NOT_RUN says why


@pytest.mark.parametrize(
    "line",
    [
        "make song",
        "pip install 'efmdp[plots,song]'",
        "efmdp demo --song",
        "efmdp zoo upload OWNER/NAME --song",
        "python -m benchmarks.song",
        "python -m benchmarks.busy --song 2",
    ],
)
def test_what_is_not_run_can_fail(line: str, efmdp: Efmdp) -> None:
    start = next(start for start in NOT_RUN if line.startswith(start))
    with pytest.raises(AssertionError):
        check_not_run(tuple(shlex.split(line)), start, efmdp)


def help_of(*command: str) -> str:
    answer = subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def check_options(words: Words, help_: str) -> None:
    for word in words:
        option = word.partition("=")[0]
        assert not option.startswith("--") or re.search(rf"{option}(?![\w-])", help_), f"it has no {option}"


@pytest.mark.parametrize("page", PAGES)
def test_modules_named_in_prose_exist(page: str) -> None:
    for name in re.findall(r"python -m ([\w.]+\w)", (ROOT / page).read_text()):
        assert importlib.util.find_spec(name) is not None, f"{page} speaks of python -m {name}"
