"""The model zoo: trained policies by name, each with its provenance, in a folder of two files an entry.

    3-push/deep-set.safetensors     the policy, byte for byte as its run has it
    3-push/deep-set.json            where it comes from: an `Entry`

Whatever takes a run or a policy file takes `zoo:3-push/deep-set`. `efmdp.publish` makes entries; a model repository of
the Hugging Face Hub brings them to others. No file can run code.
"""

import difflib
import hashlib
import importlib.util
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, cast, get_origin

from efmdp.entities import UserError
from efmdp.stats import Rate

PREFIX = "zoo:"
POLICY, PROVENANCE = ".safetensors", ".json"
NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*/[a-z0-9][a-z0-9+.-]*")  # what shells, file systems and the Hub leave alone
COLUMNS = ("name", "success in %", "steps", "minutes", "seed", "commit")  # the name says task and network

Made = TypeVar("Made")


@dataclass(frozen=True)
class Cost:
    """What the whole run took, not only up to its best policy."""

    epochs: int
    steps: int | None
    """of the environment; none in behaviour cloning, which takes them from demonstrations"""
    updates: int
    minutes: float
    threads: int


@dataclass(frozen=True)
class Measured:
    """How the policy did on test episodes of its own task, which are the same for all policies."""

    episodes: int
    success_once: float
    low: float
    """the 95 % interval of success_once"""
    high: float
    success_end: float
    entities_solved: float


@dataclass(frozen=True)
class Entry:
    """The provenance of a policy."""

    name: str
    task: str
    network: dict[str, Any]
    recipe: str
    seed: int
    physics: dict[str, Any]
    """`domains.make_env(task, **physics)` is where it was trained and measured"""
    which: str
    """of the run's policies"""
    sha256: str
    """of the policy file"""
    command: str
    """trains the run anew, with the commit of `versions`"""
    versions: dict[str, Any]
    cost: Cost
    measured: Measured
    curve: list[dict[str, Any]]
    """success on the selection seeds, epoch by epoch"""
    config: dict[str, Any]
    """all settings of the run, where the command's have changed since or were changed in Python"""

    @property
    def is_finished(self) -> bool:
        """Whether its run was trained to its end: else the command says after how many epochs it was stopped."""
        return "--epochs" not in self.command.split()

    @property
    def success(self) -> Rate:
        return Rate(self.measured.success_once, self.measured.low, self.measured.high)

    @property
    def commit(self) -> str:
        """Short, with a plus where the code had been changed since."""
        commit = str(self.versions.get("commit", "unknown"))
        return commit[:7] + "+" * commit.endswith("+")

    @property
    def cells(self) -> tuple[str, ...]:
        """The columns COLUMNS of a table."""
        value, low, high = (100 * number for number in self.success)
        return (
            self.name,
            f"{value:.1f} ({low:.0f} to {high:.0f})",
            "" if self.cost.steps is None else f"{self.cost.steps / 1e6:.2f} M",
            f"{self.cost.minutes:.1f}",
            str(self.seed),
            self.commit,
        )

    def to_json(self) -> bytes:
        return (json.dumps(asdict(self), indent=2) + "\n").encode()


def folder() -> Path:
    """The zoo: that of the checkout, or where efmdp is installed without one, the user's."""
    checkout = Path(__file__).parents[1] / "results" / "policies"
    return checkout if checkout.is_dir() else Path.home() / ".cache" / "efmdp" / "policies"


def files(root: Path, name: str) -> tuple[Path, Path]:
    """The policy and the provenance of an entry."""
    return root / f"{name}{POLICY}", root / f"{name}{PROVENANCE}"


def is_named(what: str | Path) -> bool:
    """Whether this means an entry of the zoo and no file."""
    return str(what).startswith(PREFIX)


def find(what: str | Path) -> Path:
    """The policy file of `zoo:NAME`."""
    name, root = str(what).removeprefix(PREFIX), folder()
    names = [each for each in _names(root) if files(root, each)[0].exists()]
    if name in names:
        if (known := entry(name)) is not None:
            _check_policies(root, [known], str(root))
        return files(root, name)[0]
    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {PREFIX}{near[0]}? " if near else ""
    raise UserError(f"the zoo has no policy {name!r}: {hint}efmdp zoo lists all")


def entry(name: str) -> Entry | None:
    """The provenance of that name, if the zoo has it."""
    root = folder()
    return _entry(root, name, str(root)) if files(root, name)[1].exists() else None


def entries() -> list[Entry]:
    """Everything in the zoo, by name."""
    return _entries(folder())


def upload(repo: str) -> list[Entry]:
    """Put all policies with their provenance, and a model card that lists them, into a model repository of the Hub."""
    hub, root = _hub(), folder()
    found = _entries(root)
    if not found:
        raise UserError(f"there is nothing in {root} to upload: efmdp zoo add RUN adds a policy")
    _check_policies(root, found, str(root))
    additions = [
        hub.CommitOperationAdd(path_in_repo=path.relative_to(root).as_posix(), path_or_fileobj=path)
        for entry in found
        for path in files(root, entry.name)
    ]
    card = hub.CommitOperationAdd(path_in_repo="README.md", path_or_fileobj=model_card(repo, found).encode())
    with _in_one_line(repo):
        api = hub.HfApi()
        api.create_repo(repo, exist_ok=True)
        api.create_commit(repo, [*additions, card], commit_message=f"{len(found)} policies of efmdp")
    return found


def download(repo: str) -> list[Entry]:
    """Bring all policies of a model repository into the zoo: all of them, or none where something is wrong."""
    hub, root = _hub(), folder()
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as temporary:
        brought = Path(temporary)
        with _in_one_line(repo):
            hub.snapshot_download(repo, local_dir=brought, allow_patterns=[f"*/*{POLICY}", f"*/*{PROVENANCE}"])
        try:
            found = _entries(brought, repo)
            _check_policies(brought, found, repo)
        except UserError as error:
            raise UserError(f"{error}. Nothing was taken from {repo}") from None
        if not found:
            raise UserError(f"{repo} holds no policies of efmdp: check the name")
        pairs = {e.name: list(zip(files(brought, e.name), files(root, e.name), strict=True)) for e in found}
        others = [name for name, moves in pairs.items() if any(_differ(new, old) for new, old in moves)]
        if others:
            raise UserError(
                f"{root} has other files of these names: {', '.join(others)}. Nothing was changed; "
                f"to take those of {repo}, delete the {POLICY} and the {PROVENANCE} of each first"
            )
        for moves in pairs.values():
            for new, old in moves:  # the provenance last: what has one is whole
                old.parent.mkdir(exist_ok=True)
                os.replace(new, old)
    return found


def model_card(repo: str, found: list[Entry]) -> str:
    """The README.md of a repository of the Hub."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(entry.cells for entry in found)]
    table = "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    first = found[0].name
    return f"""---
license: mit
library_name: efmdp
tags:
- reinforcement-learning
- robotics
- compositional-generalization
---

# Policies of efmdp

Policies for sets of objects, trained with efmdp on the tasks of *Policy Architectures for Compositional Generalization
in Control* (Zhou, Kumar, Finn, Rajeswaran, 2022).

```
efmdp zoo download {repo}
efmdp evaluate {PREFIX}{first}
efmdp watch {PREFIX}{first}
```

{table}

Success: all subgoals met at the same moment, with its 95 % interval, on episodes that no policy was trained or
selected on. Steps and minutes are those of the whole training. The JSON beside each policy says how it was trained: the
command, the commit and versions, the seed, all settings, and the curve.
"""


def _names(root: Path) -> list[str]:
    """Of all that is there, even half of an entry. Files at the top are none, nor is what a killed download left."""
    found = (path for path in root.glob("*/*") if path.suffix in (POLICY, PROVENANCE))
    return sorted({f"{path.parent.name}/{path.stem}" for path in found})


def _entries(root: Path, where: str | None = None) -> list[Entry]:
    """Those of a folder, which messages may call something else."""
    return [_entry(root, name, where or str(root)) for name in _names(root)]


def _entry(root: Path, name: str, where: str) -> Entry:
    mend = "restore it, or remove both files of the entry"
    for path in files(root, name):
        if not path.exists():
            raise UserError(f"{where}/{name}{path.suffix} is missing: {mend}")
    try:
        stored = json.loads(files(root, name)[1].read_text())
        parts = {"cost": _made(Cost, stored["cost"]), "measured": _made(Measured, stored["measured"])}
        entry = _made(Entry, {**stored, **parts})
        if not NAME.fullmatch(name) or entry.name != name:
            raise ValueError(f"it is of {entry.name!r}")
    except (ValueError, KeyError, TypeError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{where}/{name}{PROVENANCE} is damaged ({reason}): {mend}") from None
    return entry


def _made(kind: type[Made], stored: dict[str, Any]) -> Made:
    """A dataclass with these fields, all there and all of their types."""
    made = kind(**stored)
    for field in fields(kind):  # type: ignore[arg-type]
        value, wanted = getattr(made, field.name), cast(type, field.type)
        container = next((each for each in (dict, list) if get_origin(wanted) is each), None)
        if not isinstance(value, int | float if wanted is float else container or wanted):
            raise TypeError(f"{field.name} is {value!r}")
    return made


def _check_policies(root: Path, found: list[Entry], where: str) -> None:
    for entry in found:
        if hashlib.sha256(files(root, entry.name)[0].read_bytes()).hexdigest() != entry.sha256:
            raise UserError(f"{where}/{entry.name}{POLICY} is damaged: it has not the SHA-256 that its provenance says")


def _differ(new: Path, old: Path) -> bool:
    return old.exists() and old.read_bytes() != new.read_bytes()


def _hub() -> Any:
    """The client of the Hub, an optional dependency."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise UserError("huggingface_hub is not installed: pip install 'efmdp[hub]'")
    import huggingface_hub
    from huggingface_hub.utils import disable_progress_bars, logging

    logging.set_verbosity_error()  # what matters is an error, and said in one line
    if not sys.stderr.isatty():
        disable_progress_bars()
    return huggingface_hub


@contextmanager
def _in_one_line(repo: str) -> Iterator[None]:
    """Say what the Hub, or the way to it, refused."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    sign_in = "sign in with hf auth login, or set HF_TOKEN"
    try:
        yield
    except HFValidationError:
        raise UserError(f"{repo!r} does not name a repository: write OWNER/NAME") from None
    except RepositoryNotFoundError:
        raise UserError(f"the Hub has no model repository {repo}, or not for you: check the name, {sign_in}") from None
    except HfHubHTTPError as error:
        if error.response.status_code in (401, 403):
            raise UserError(f"the Hub does not let you use {repo}: {sign_in} to a token that may") from None
        raise UserError(f"the Hub refuses {repo} ({_first_line(error)}): try again later") from None
    except Exception as error:  # the client, its HTTP library and its storage raise many kinds
        reason = _first_line(error.__cause__ or error)
        hint = "check the network and the disk, and try again"
        raise UserError(f"the exchange with the Hub about {repo} failed ({reason}): {hint}") from None


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
