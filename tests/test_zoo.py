"""The zoo: names, provenance, and the way to the Hub and back, which is a server here with the real client."""

import base64
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from efmdp import cli, zoo
from efmdp.demos import Demos, Source, collect
from efmdp.domains import make_env
from efmdp.entities import Array, EntityObs, UserError
from efmdp.env import FetchEnv
from efmdp.evaluate import TEST, load_policy, play_episodes, policy_file, stream_seed
from efmdp.networks import NetworkConfig
from efmdp.publish import publish
from efmdp.runs import Run, as_stored, only_process_in, replace_file
from efmdp.scripted import Scripted
from efmdp.tasks import parse_task
from efmdp.train import cloning

ROOT = Path(__file__).parents[1]
METRICS = """epoch,task,steps,updates,success_once
1,1-Push,800,10,0.25
2,2-Push,1600,20,0.5
"""
TIMINGS = "epoch,collect,learn,evaluate,save,peak_mb\n1,9,9,9,9,9\n2,30,60,20,10,9\n"
COMMIT = "0123456789abcdef"

Command = Callable[..., tuple[int, str, str]]
Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def own_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(zoo, "folder", lambda: tmp_path / "zoo")
    return tmp_path / "zoo"


@pytest.fixture
def run_of(tmp_path: Path, write_run: Write) -> Write:
    """run_of(task, network, seed, ...) is the folder of a run that was stopped after two epochs."""

    def write(task: str = "2-Push", kind: str = "deep-set", seed: int = 0, **more: Any) -> Path:
        changes = {name: more.pop(name) for name in ("recipe", "threads", "collisions") if name in more}
        physics = {"collisions": changes["collisions"]} if "collisions" in changes else {}
        out = write_run(tmp_path / f"runs-{len(list(tmp_path.iterdir()))}" / "run", task, kind, seed, **more, **physics)
        (out / "metrics.csv").write_text(METRICS)
        (out / "timings.csv").write_text(TIMINGS)
        stored = Run(out).config() or {}
        config = {**stored["config"], **changes}
        Run(out).write_config({"method": "ddpg", "config": config, "versions": {"commit": COMMIT}})
        return out

    return write


def finish(run: Path) -> Path:
    """As the last checkpoint of a run says it."""
    state = run / "checkpoints" / "000002" / "state.json"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({"counters": {"finished": True}}))
    return run


def clone_of(run: Path, demos: Demos, used: int, seed: int) -> Path:
    """The run, as if it had cloned those demonstrations."""
    stored = Run(run).config() or {}
    config = as_stored(cloning(demos, NetworkConfig(**stored["config"]["network"]), used, seed))
    Run(run).write_config({**stored, "method": "bc", "demos": str(demos.path), "config": config})
    (run / "metrics.csv").write_text("epoch,task,updates,success_once\n1,1-Push,10,0.25\n")
    return run


# Adding


def test_an_entry_says_where_its_policy_comes_from(run_of: Write, own_zoo: Path) -> None:
    run = run_of("2-Push", "deep-set", seed=3)
    entry = publish(run, episodes=20)
    assert (entry.name, entry.task, entry.recipe, entry.seed, entry.which) == (
        "2-push/deep-set",
        "2-Push",
        "fast",
        3,
        "best",
    )
    best = (run / "policy-best.safetensors").read_bytes()
    assert (own_zoo / "2-push/deep-set.safetensors").read_bytes() == best
    assert entry.sha256 == hashlib.sha256(best).hexdigest()
    assert entry.network["width"] == 8
    assert entry.physics == {"collisions": False, "gripper": False, "layout": "paper", "profile": "fast"}
    assert vars(entry.cost) == {"epochs": 2, "steps": 1600, "updates": 20, "minutes": 2.0, "threads": 2}
    assert entry.curve[1] == {"epoch": 2, "task": "2-Push", "steps": 1600, "updates": 20, "success_once": 0.5}
    assert entry.config == (Run(run).config() or {})["config"]
    assert entry.commit == COMMIT[:7]
    assert entry.command == "efmdp train ddpg --task 2-Push --network deep-set --seed 3 --epochs 2"
    assert zoo.entries() == [entry]


class Choosy(Scripted):
    """Does only what is on one half of the table, so that other episodes give another success."""

    def act(self, obs: EntityObs) -> Array:
        return super().act(obs) * (obs.goals[:, 0, :1] > 1.35)


def test_it_is_measured_on_the_test_episodes_of_all(run_of: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of("1-Push", seed=4)
    monkeypatch.setattr("efmdp.publish.LearnedPolicy", lambda _: Choosy(100))
    entry = publish(run, episodes=100)
    env = FetchEnv(parse_task("1-Push"), 100)
    ours, others = (
        play_episodes(env, Choosy(100), 100, stream_seed(seed, TEST)).success_once.mean() for seed in (0, 4)
    )
    assert entry.measured.episodes == 100
    assert entry.measured.success_once == ours != others
    assert 0.2 < ours < 0.8
    assert entry.measured.low < ours < entry.measured.high


@pytest.mark.parametrize(
    ("made", "name", "command"),
    [
        (("3-Switch", "mlp", 0, {"places": 6}), "3-switch/mlp-6", "--network mlp --seed 0 --max-entities 6"),
        (("2-Push", "deep-set", 0, {"collisions": True}), "2-push/deep-set-collisions", "--seed 0 --collisions True"),
        (("Stack", "deep-set", 0, {"collisions": True}), "stack/deep-set", "--seed 0 --collisions True"),
        (
            ("2-Switch|2-Push", "self-attention", 1, {"recipe": "fast-no-curriculum", "threads": 1}),
            "2-switch-or-2-push/self-attention-fast-no-curriculum",
            "--task '2-Switch|2-Push' --no-curriculum --network self-attention --seed 1 --threads 1",
        ),
        (
            ("2-Switch+2-Push", "deep-set", 0, {"recipe": "paper-slow"}),
            "2-switch+2-push/deep-set-paper-slow",
            "--recipe paper --decay slow --network deep-set --seed 0",
        ),
    ],
)
def test_names_and_commands(run_of: Write, made: Any, name: str, command: str) -> None:
    task, kind, seed, more = made
    entry = publish(finish(run_of(task, kind, seed, **more)), episodes=1)
    assert entry.name == name
    assert entry.command.endswith(command)
    assert zoo.NAME.fullmatch(name)


def test_the_commands_are_commands(run_of: Write, monkeypatch: pytest.MonkeyPatch, efmdp: Command) -> None:
    """Each of them trains what the entry says, or the command line would refuse it."""
    asked: list[Any] = []
    monkeypatch.setitem(cli.COMMANDS, "train", _spy(cli.COMMANDS["train"], asked))
    for more in ({"collisions": True, "threads": 1}, {"recipe": "paper-slow"}, {"recipe": "fast-no-curriculum"}):
        entry = publish(run_of("2-Push", **more), episodes=1)
        code, _, errors = efmdp(*shlex.split(entry.command)[1:])
        assert code == 0, errors
        how = asked.pop()
        assert (how.task, how.network, how.seed, how.epochs) == ("2-Push", "deep-set", 0, 2)
        assert how.collisions == more.get("collisions")
        assert how.threads == more.get("threads", 2)
        assert how.curriculum == (entry.recipe != "fast-no-curriculum")
        assert (how.recipe, how.decay) == (("paper", "slow") if entry.recipe == "paper-slow" else ("fast", None))


def _spy(command: Callable[..., int], asked: list[Any]) -> Callable[..., int]:
    def spy(how: Any) -> int:
        asked.append(how)
        return 0

    spy.__annotations__ = command.__annotations__
    return spy


def test_clones_say_how_their_demonstrations_were_collected(run_of: Write, tmp_path: Path) -> None:
    demos = collect(
        make_env("1-Push", 4), Scripted(4), Source("scripted"), "1-Push", 8, tmp_path / "some" / "1-push", seed=5
    )
    run = clone_of(run_of("1-Push"), demos, 6, seed=2)
    entry = publish(finish(run), episodes=1)
    assert entry.name == "1-push/deep-set-bc-6-seed-5"
    assert entry.cost.steps is None
    assert entry.curve == [{"epoch": 1, "task": "1-Push", "updates": 10, "success_once": 0.25}]
    first, second = entry.command.split(" && ")
    assert first.startswith("efmdp collect --task 1-Push --from scripted --episodes 6 --seed 5 --out demos/1-push ")
    assert second == "efmdp train bc --demos demos/1-push --demos-used 6 --network deep-set --seed 2"
    shutil.rmtree(demos.path)
    with pytest.raises(UserError, match=r"no longer at .*1-push: efmdp train bc --demos THEM"):
        publish(run, episodes=1)


def test_demonstrations_of_an_entry_name_it(run_of: Write, tmp_path: Path) -> None:
    teacher = publish(finish(run_of("1-Push")), episodes=1)
    source = Source("runs/gone/policy-best.safetensors", teacher.sha256)
    demos = collect(make_env("1-Push", 4), Scripted(4), source, "1-Push", 4, tmp_path / "1-push")
    run = clone_of(run_of("1-Push"), demos, 4, seed=0)
    assert "--from zoo:1-push/deep-set --episodes 4" in publish(run, episodes=1).command


def test_a_policy_in_the_place_of_another_is_noticed(run_of: Write, own_zoo: Path) -> None:
    for task in ("1-Push", "1-Switch"):
        publish(run_of(task), episodes=1)
    load_policy("zoo:1-push/deep-set")
    shutil.copy(own_zoo / "1-switch/deep-set.safetensors", own_zoo / "1-push/deep-set.safetensors")
    with pytest.raises(UserError, match=r"1-push/deep-set.safetensors is damaged: it has not the SHA-256"):
        load_policy("zoo:1-push/deep-set")


def test_clones_of_an_entry_are_named_after_its_run(run_of: Write, tmp_path: Path, efmdp: Command) -> None:
    teacher = publish(finish(run_of("1-Switch", seed=3)), episodes=1)
    code, _, errors = efmdp("collect", "--from", f"zoo:{teacher.name}", "--episodes", "1", "--out", tmp_path / "shown")
    assert code == 0, errors
    demos = Demos(tmp_path / "shown")
    assert demos.about["policy"] == "zoo:1-switch/deep-set"
    assert cloning(demos, NetworkConfig(), 100, seed=0).recipe == "bc-100-of-1-Switch-deep-set-fast-3"


def test_an_entry_is_never_the_best_of_many(run_of: Write, own_zoo: Path, efmdp: Command) -> None:
    first, second = run_of("1-Push", seed=0), run_of("1-Push", seed=1)
    publish(first, episodes=2)
    before = {path.name: path.read_bytes() for path in own_zoo.glob("*/*")}
    code, _, errors = efmdp("zoo", "add", second, "--episodes", 2)
    assert code == 2
    assert re.fullmatch(
        r"efmdp: zoo:1-push/deep-set is another policy.*delete .*set.safetensors and .*set.json first\n", errors
    )
    assert {path.name: path.read_bytes() for path in own_zoo.glob("*/*")} == before
    for path in own_zoo.glob("*/*"):
        path.unlink()
    assert efmdp("zoo", "add", second, "--episodes", 2)[0] == 0
    assert zoo.entries()[0].seed == 1


def test_the_same_policy_again_is_measured_anew(run_of: Write, own_zoo: Path) -> None:
    run = run_of("1-Push")
    publish(run, episodes=2)
    _, provenance = zoo.files(own_zoo, "1-push/deep-set")
    written = provenance.read_bytes()
    publish(run, episodes=2)
    assert provenance.read_bytes() == written
    provenance.unlink()  # as if killed between the two files
    assert publish(run, episodes=3).measured.episodes == 3
    assert [entry.measured.episodes for entry in zoo.entries()] == [3]


def test_runs_that_cannot_be_added(run_of: Write, tmp_path: Path, efmdp: Command, own_zoo: Path) -> None:
    def refused(*arguments: object) -> str:
        code, _, errors = efmdp("zoo", "add", *arguments)
        assert code == 2
        assert errors.count("\n") == 1
        return errors

    assert "no run is named" in refused()
    assert "there is no run at" in refused(tmp_path)
    assert "there is no run at" in refused(tmp_path / "nothing")
    run = run_of("1-Push")
    assert "--episodes is 0" in refused(run, "--episodes", 0)
    with only_process_in(run):
        assert "is in use by another process: wait for it" in refused(run)
    assert "no option asks for the recipe 'mine': known are fast," in refused(run_of("1-Push", recipe="mine"))
    (run / "metrics.csv").write_text("epoch,task,steps,updates,success_once\n1,1-Push,,10,0.25\n")
    assert "metrics.csv is damaged" in refused(run)
    (run / "metrics.csv").write_text("epoch,task,steps,updates,success_once\n")
    assert "has finished no epoch yet" in refused(run)
    (run / "policy-best.safetensors").unlink()
    assert "there is no policy at" in refused(run)
    assert not list(own_zoo.glob("*/*"))


# Finding


def test_names_are_taken_wherever_runs_are(run_of: Write, efmdp: Command, tmp_path: Path) -> None:
    run = run_of("1-Push")
    publish(run, episodes=1)
    import efmdp as package

    obs = make_env("1-Push").observe()
    expected = load_policy(run, "best").act(obs)
    for what in ("zoo:1-push/deep-set", Path("zoo:1-push/deep-set"), str(run / "policy-best.safetensors")):
        assert np.array_equal(package.load_policy(what).act(obs), expected)
    assert np.array_equal(package.load_policy(str(run), "best").act(obs), expected)
    assert not np.array_equal(package.load_policy(str(run)).act(obs), expected)
    code, said, errors = efmdp("evaluate", "zoo:1-push/deep-set", "--episodes", 2, "--task", "2-Push")
    assert code == 0, errors
    assert "on 2-Push, 2 episodes" in said
    code, said, errors = efmdp("evaluate", "extrapolation", "zoo:1-push/deep-set", "--episodes", 1)
    assert code == 0, errors


def test_a_wrong_name_is_told_the_nearest(run_of: Write, efmdp: Command) -> None:
    publish(run_of("1-Push"), episodes=1)
    for wrong in ("zoo:1-Push/deep-set", "zoo:1-push/depset"):
        code, _, errors = efmdp("evaluate", wrong)
        assert code == 2
        assert errors.endswith("did you mean zoo:1-push/deep-set? efmdp zoo lists all\n")
    for wrong in ("zoo:", "zoo:elephant", "zoo:../zoo/1-push/deep-set"):
        with pytest.raises(UserError, match="efmdp zoo lists all"):
            policy_file(wrong)


def test_the_list(run_of: Write, own_zoo: Path, efmdp: Command) -> None:
    code, said, _ = efmdp("zoo")
    assert code == 0
    assert "there are no policies" in said
    publish(run_of("2-Push"), episodes=2)
    publish(run_of("1-Push"), episodes=2)
    shutil.copy(own_zoo / "1-push/deep-set.safetensors", own_zoo / "1-Push-flat.safetensors")
    shutil.copytree(own_zoo / "1-push", own_zoo / ".download-of-a-killed-process" / "1-push")
    assert [entry.name for entry in zoo.entries()] == ["1-push/deep-set", "2-push/deep-set"]
    code, said, _ = efmdp("zoo")
    assert code == 0
    assert said == efmdp("zoo", "list")[1]
    for word in ("1-push/deep-set", "2-push/deep-set", "0.0 (0 to 66)", "0.00 M", "2.0", COMMIT[:7]):
        assert word in said
    assert COMMIT not in said


def _remove(field: str) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        stored = json.loads(path.read_text())
        del stored[field]
        path.write_text(json.dumps(stored))

    return damage


def _set(field: str, value: Any) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))

    return damage


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (Path.unlink, "set.json is missing"),
        (lambda path: path.write_bytes(b'{"name": \xff'), "set.json is damaged"),
        (lambda path: path.write_text("[]"), "set.json is damaged"),
        (_remove("sha256"), "set.json is damaged"),
        (_remove("measured"), "set.json is damaged"),
        (_set("name", "2-push/deep-set"), "set.json is damaged"),
        (_set("cost", {"epochs": 1}), "set.json is damaged"),
        (_set("seed", "none"), "set.json is damaged (TypeError: seed is 'none')"),
        (lambda path: path.with_suffix(".safetensors").unlink(), "set.safetensors is missing"),
    ],
)
def test_damage_is_one_line_with_the_file(
    run_of: Write, own_zoo: Path, efmdp: Command, damage: Callable[[Path], object], said: str
) -> None:
    publish(run_of("1-Push"), episodes=1)
    damage(own_zoo / "1-push/deep-set.json")
    code, _, errors = efmdp("zoo")
    assert code == 2
    assert errors.count("\n") == 1
    assert f"{own_zoo}/1-push/deep-{said}" in errors


def test_the_zoo_is_the_checkouts_or_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    assert zoo.folder() == ROOT / "results" / "policies"
    monkeypatch.setattr(zoo, "__file__", str(tmp_path / "site-packages" / "efmdp" / "zoo.py"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert zoo.folder() == tmp_path / ".cache" / "efmdp" / "policies"


def test_listing_does_without_torch() -> None:
    code = "import sys, efmdp, efmdp.cli_zoo; sys.exit('torch was imported' if 'torch' in sys.modules else 0)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_the_page(run_of: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(run_of("3-Push"), episodes=1)
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/zoo.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["actions"].shape == (16, 4)


# The Hub


class Hub:
    """Enough of the Hugging Face Hub, on this machine, for its client: repositories with one commit at a time."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"
    REVISION = "a" * 40

    def log_message(self, *_: object) -> None:
        """Quietly."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.split("?")[0]
        if path != "/api/validate-yaml" and self.headers.get("Authorization") != "Bearer hf_right":
            self.answer(401, {"error": "Invalid username or password."})
        elif path == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked['organization']}/{asked['name']}"
            there = repo in self.hub.repos
            self.hub.repos.setdefault(repo, {})
            self.answer(409 if there else 200, {"url": f"{self.hub.url}/{repo}"})
        elif path == "/api/validate-yaml":
            self.answer(200, {"errors": [], "warnings": []})
        elif match := re.fullmatch("/api/models/(.+?/.+?)/preupload/main", path):
            asked = json.loads(body)["files"]
            modes = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in asked]
            self.answer(200, {"files": modes})
        elif match := re.fullmatch("/api/models/(.+?/.+?)/commit/main", path):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    assert line["value"]["encoding"] == "base64"
                    self.hub.repos[match[1]][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self.answer(
                200, {"commitUrl": f"{self.hub.url}/{match[1]}/commit/{self.REVISION}", "commitOid": self.REVISION}
            )
        else:
            self.answer(404, {"error": path})

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        repo = "/".join(path.removeprefix("/api/models").split("/")[1:3])
        files = self.hub.repos.get(repo)
        if files is None:
            self.answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        elif path == f"/api/models/{repo}/revision/main":
            self.answer(200, {"id": repo, "sha": self.REVISION, "siblings": []})
        elif path == f"/api/models/{repo}/tree/{self.REVISION}":
            listed = [
                {"type": "file", "path": name, "size": len(data), "oid": _oid(data)} for name, data in files.items()
            ]
            self.answer(200, listed)
        elif path.startswith(start := f"/{repo}/resolve/{self.REVISION}/"):
            data = files[path.removeprefix(start).replace("%2B", "+")]
            self.answer(200, data, {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": self.REVISION})
        else:
            self.answer(404, {"error": path})

    do_HEAD = do_GET

    def answer(self, code: int, content: object, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.stop()


# The client reads its environment when it is imported, so commands run in a process of their own.
ELSEWHERE = """
import sys
from pathlib import Path
from efmdp import cli, zoo
folder = Path(sys.argv.pop(1))
zoo.folder = lambda: folder
cli.main()
"""


def at_hub(hub: Hub, own_zoo: Path, *arguments: str, token: str = "hf_right") -> tuple[int, str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(own_zoo.parent / "hf"), "HF_TOKEN": token}
    environment["NO_PROXY"] = "127.0.0.1"
    command = [sys.executable, "-c", ELSEWHERE, str(own_zoo), "zoo", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def two_entries(run_of: Write, own_zoo: Path) -> dict[str, bytes]:
    publish(run_of("1-Push"), episodes=2)
    publish(run_of("2-Switch+2-Push"), episodes=2)
    return contents(own_zoo)


def test_to_the_hub_and_back(hub: Hub, own_zoo: Path, two_entries: dict[str, bytes]) -> None:
    (own_zoo / "flat.safetensors").write_bytes(b"not an entry")
    for _ in range(2):  # the repository may be there already
        code, said, errors = at_hub(hub, own_zoo, "upload", "me/policies")
        assert (code, errors) == (0, "")
        assert "me/policies: 2 policies" in said
    card = hub.repos["me/policies"].pop("README.md").decode()
    assert hub.repos["me/policies"] == two_entries
    assert "| 2-switch+2-push/deep-set | 0.0 (0 to 66) |" in card
    assert card.startswith("---\nlicense: mit\n")
    hub.repos["me/policies"] |= {"README.md": card.encode(), "config.json": b"{}", "a/b/c.json": b"{}"}
    shutil.rmtree(own_zoo)
    for _ in range(2):  # what is there already and the same stays
        code, said, errors = at_hub(hub, own_zoo, "download", "me/policies", token="")
        assert (code, errors) == (0, "")
        assert "2 policies of me/policies. Try: efmdp watch zoo:1-push/deep-set" in said
        assert contents(own_zoo) == two_entries
        assert [path.name for path in own_zoo.iterdir() if path.name.startswith(".")] == []
    assert len(zoo.entries()) == 2


def test_what_is_damaged_is_not_taken(hub: Hub, own_zoo: Path, two_entries: dict[str, bytes]) -> None:
    name = "2-switch+2-push/deep-set.safetensors"
    flipped = bytearray(two_entries[name])
    flipped[-1] ^= 1
    damages: list[tuple[dict[str, bytes], str]] = [
        ({**two_entries, name: bytes(flipped)}, f"me/policies/{name} is damaged"),
        ({key: data for key, data in two_entries.items() if key != name}, f"me/policies/{name} is missing"),
        ({**two_entries, "1-push/deep-set.json": b"{}"}, "me/policies/1-push/deep-set.json is damaged"),
        ({**two_entries, "1-push/deep-set.json": two_entries["2-switch+2-push/deep-set.json"]}, "is damaged"),
        ({"README.md": b"nothing"}, "me/policies holds no policies of efmdp"),
    ]
    shutil.rmtree(own_zoo)
    for files, said in damages:
        hub.repos["me/policies"] = files
        code, _, errors = at_hub(hub, own_zoo, "download", "me/policies")
        assert (code, errors.count("\n")) == (2, 1)
        assert said in errors
        assert contents(own_zoo) == {}


def test_a_damaged_policy_is_not_uploaded(hub: Hub, own_zoo: Path, two_entries: dict[str, bytes]) -> None:
    (own_zoo / "1-push/deep-set.safetensors").write_bytes(b"other")
    code, _, errors = at_hub(hub, own_zoo, "upload", "me/policies")
    assert (code, errors.count("\n")) == (2, 1)
    assert f"{own_zoo}/1-push/deep-set.safetensors is damaged" in errors
    assert hub.repos == {}


@pytest.mark.parametrize("differs", ["1-push/deep-set.safetensors", "1-push/deep-set.json"])
def test_what_is_here_already_is_not_lost(hub: Hub, own_zoo: Path, two_entries: dict[str, bytes], differs: str) -> None:
    hub.repos["me/policies"] = two_entries
    shutil.rmtree(own_zoo / "2-switch+2-push")
    replace_file(own_zoo, differs, b"mine")
    before = contents(own_zoo)
    code, _, errors = at_hub(hub, own_zoo, "download", "me/policies")
    assert (code, errors.count("\n")) == (2, 1)
    assert "has other files of these names: 1-push/deep-set. Nothing was changed" in errors
    assert contents(own_zoo) == before


def test_refusals_of_the_hub_are_one_line(hub: Hub, own_zoo: Path, two_entries: dict[str, bytes]) -> None:
    def refused(*arguments: str, token: str = "hf_right") -> str:
        code, _, errors = at_hub(hub, own_zoo, *arguments, token=token)
        assert (code, errors.count("\n")) == (2, 1), errors
        assert errors.startswith("efmdp: ")
        return errors

    assert "the Hub has no model repository me/nothing" in refused("download", "me/nothing")
    for token in ("", "hf_wrong"):
        assert "sign in with hf auth login, or set HF_TOKEN" in refused("upload", "me/policies", token=token)
    assert "does not name a repository: write OWNER/NAME" in refused("upload", "me/poli/cies")
    hub.stop()
    for what in ("upload", "download"):
        assert "the exchange with the Hub about me/policies failed" in refused(what, "me/policies")
    shutil.rmtree(own_zoo)
    assert "nothing in" in refused("upload", "me/policies")
    assert contents(own_zoo.parent / "zoo") == {}


def test_the_client_is_optional(monkeypatch: pytest.MonkeyPatch, efmdp: Command) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, errors = efmdp("zoo", "download", "me/policies")
    assert code == 2
    assert errors == "efmdp: huggingface_hub is not installed: pip install 'efmdp[hub]'\n"
