"""Modules import in one direction only, the environments work without torch, and nothing can run code from a file."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "efmdp"
FILES = sorted(PACKAGE.glob("*.py"))
MODULES = [file for file in FILES if file.stem != "__init__"]

# A module may import only those before it.
LAYERS = [
    "entities",
    "tasks",
    "scene",
    "layout",
    "env",
    "discs",
    "domains",
    "render",
    "gym_env",
    "rollout",
    "networks",
    "her",
    "replay",
    "ddpg",
    "recipes",
    "bc",
    "scripted",
    "conformance",
    "runs",
    "tables",
    "stats",
    "zoo",
    "evaluate",
    "oracle",
    "demos",
    "minari_export",
    "process",
    "ledger",
    "train",
    "video",
    "gallery",
    "diagrams",
    "progress",
    "zero_shot",
    "timing",
    "records",
    "publish",
    "experiments",
    "costs",
    "launch",
    "evidence",
    "figures",
    "claims",
    "films",
    "report",
    "demo",
    "cli_options",
    "cli_train",
    "cli_evaluate",
    "cli_reproduce",
    "cli_zoo",
    "cli",
]

UNSAFE_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def imported_siblings(tree: ast.AST) -> set[str]:
    """The names of the efmdp modules that a module imports, wherever in it; `efmdp` is the package itself."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            paths = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = ".".join(filter(None, ["efmdp" if node.level else "", node.module]))
            paths = [f"{source}.{alias.name}" for alias in node.names] if source == "efmdp" else [source]
        else:
            continue
        found |= {
            path.partition(".")[2].partition(".")[0] or "efmdp" for path in paths if path.split(".")[0] == "efmdp"
        }
    return found


def layering_errors(name: str, source: str) -> list[str]:
    if name not in LAYERS:
        return [f"efmdp/{name}.py is not in LAYERS of {Path(__file__).name}: add it below everything it imports"]
    below = LAYERS[: LAYERS.index(name)]
    return [
        f"efmdp/{name}.py imports {sibling!r}: only modules above it in LAYERS may be imported ({', '.join(below)})"
        for sibling in sorted(imported_siblings(ast.parse(source)))
        if sibling not in below
    ]


def unsafe_uses(source: str) -> list[str]:
    """Whatever could run code hidden in a file that is loaded."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [alias.name for alias in names if alias.name.split(".")[0] in UNSAFE_MODULES]
            case ast.ImportFrom(module=str(module), names=names):
                if module.split(".")[0] in UNSAFE_MODULES:
                    found.append(module)
                if module == "torch":
                    found += ["torch.load" for alias in names if alias.name == "load"]
            case ast.Attribute(value=ast.Name(id="torch"), attr="load"):
                found.append("torch.load")
            case ast.keyword(arg="allow_pickle", value=value):
                if not (isinstance(value, ast.Constant) and value.value is False):
                    found.append("allow_pickle")
            case ast.Call(func=ast.Name(id="eval" | "exec" as name)):
                found.append(name)
    return found


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.stem)
def test_a_module_imports_only_modules_above_it(file):
    assert not layering_errors(file.stem, file.read_text())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_nothing_loads_code_from_data(file):
    assert not unsafe_uses(file.read_text())


@pytest.mark.parametrize("module", ["efmdp", "efmdp.env", "efmdp.gym_env"])
def test_environments_do_not_import_torch(module):
    code = f"import sys, {module}; sys.exit('torch was imported' if 'torch' in sys.modules else 0)"
    result = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "source",
    [
        "import efmdp.cli",
        "import efmdp",
        "from efmdp import cli",
        "from efmdp.cli import main",
        "from . import cli",
        "from .cli import main",
        "def later():\n    from efmdp import cli",
        "from efmdp import env",
    ],
)
def test_the_layering_check_catches(source):
    assert layering_errors("env", source)


@pytest.mark.parametrize(
    "source", ["from efmdp import scene", "from .tasks import parse", "import efmdp.entities as e"]
)
def test_the_layering_check_allows(source):
    assert not layering_errors("env", source)


def test_an_unlisted_module_is_an_error():
    assert "add it" in layering_errors("utils", "")[0]


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "torch.load(path, weights_only=True)",
        "from torch import load",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "eval('1')",
        "exec('1')",
    ],
)
def test_the_safety_check_catches(source):
    assert unsafe_uses(source)


@pytest.mark.parametrize("source", ["network.eval()", "np.load(path, allow_pickle=False)", "json.load(file)"])
def test_the_safety_check_allows(source):
    assert not unsafe_uses(source)
