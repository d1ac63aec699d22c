"""Demonstrations: episodes of any policy and how they went, in chunks that are written once.

    about.json            what they are: task, options, policy, seed, sizes, the versions they were begun with
    chunks/000012.npz     the fields of `replay.Episodes` and of `Flags`; zeros after an episode's length
    manifest.json         the SHA-256 of every chunk, written after the chunk

Every chunk has a seed of its own, and every file is either wholly there or not at all. A collection that was killed
therefore goes on when it is asked for again, one that is asked for more episodes grows, and both end in the files that
an undisturbed one writes. No file can run code.
"""

import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from efmdp.discs import DiscEnv
from efmdp.entities import Array, EntityEnv, EntityObs, UserError
from efmdp.env import FetchEnv
from efmdp.evaluate import DEMONSTRATIONS, stream_seed
from efmdp.recipes import Exploration
from efmdp.replay import Episodes
from efmdp.rollout import Policy, run_episodes
from efmdp.runs import Damaged, clear_errors, from_npz, only_process_in, read_checked, replace_file, to_npz, versions
from efmdp.scripted import SCRIPTED

FORMAT = 1
UNDISTURBED = Exploration(noise=0.0, random=0.0)
CHUNK = 100  # episodes, played side by side: more are no faster, and this is what a kill can cost


class Flags(NamedTuple):
    """How each of K episodes went, as in `rollout.Outcome`."""

    success_once: Array  # (K,) bool
    success_end: Array  # (K,) bool
    failed: Array  # (K,) bool: the simulation blew up; the episode ends before that step and is no success


class Source(NamedTuple):
    """Whose episodes they are."""

    policy: str  # the policy file, an entry of the zoo, or `scripted`
    sha256: str | None = None  # of that file, or of the controller's code
    run: str | None = None  # which the entry of the zoo was


class Demos:
    """What was collected into a folder so far; `about` is its about.json."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.about: dict[str, Any] = json.loads((path / "about.json").read_text())
            intact = self.about.pop("checksum") == _checksum(self.about)
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(f"there are no demonstrations at {path}: efmdp collect --out {path} makes some") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            intact = False
        if not intact:
            raise UserError(f"{path / 'about.json'} is damaged: restore it, or collect anew in another folder")
        if self.about["format"] != FORMAT:
            raise UserError(f"{path} has format {self.about['format']}, not {FORMAT}: use the efmdp that wrote it")
        self.digests = self._read_manifest()

    @property
    def demonstrator(self) -> str:
        """`scripted`, or the name of the run or policy file."""
        policy = Path(self.about["policy"])
        return self.about.get("run") or {
            "policy-best.safetensors": policy.parent.name,
            "policy-last.safetensors": f"{policy.parent.name}-last",
        }.get(policy.name, policy.stem)

    def __len__(self) -> int:
        return self.about["chunk"] * len(self.digests)

    def chunks(self) -> Iterator[tuple[Episodes, Flags]]:
        """All episodes, a chunk at a time."""
        for name in self.digests:
            try:
                arrays = from_npz(self.verify(name))
            except Damaged as error:
                raise UserError(f"{error}: collect it anew with {self.command(len(self))}") from None
            yield Episodes(*(arrays[f] for f in Episodes._fields)), Flags(*(arrays[f] for f in Flags._fields))

    def load(self, count: int) -> tuple[Episodes, Flags]:
        """The first `count` episodes."""
        if count > len(self):
            raise UserError(f"{self.path} holds {len(self)} episodes, not {count}: collect more: {self.command(count)}")
        parts: list[tuple[Episodes, Flags]] = []
        for part in self.chunks():
            parts.append(part)
            if len(parts) * self.about["chunk"] >= count:
                break
        episodes, flags = zip(*parts, strict=True)
        return (
            Episodes(*(np.concatenate(field)[:count] for field in zip(*episodes, strict=True))),
            Flags(*(np.concatenate(field)[:count] for field in zip(*flags, strict=True))),
        )

    def digest(self, count: int) -> str:
        """A SHA-256 that the first `count` episodes have to themselves, wherever they lie."""
        chunks = list(self.digests.values())[: -(-count // self.about["chunk"])]
        return hashlib.sha256(" ".join([str(count), *chunks]).encode()).hexdigest()

    def verify(self, name: str) -> bytes:
        """The bytes of a chunk; `Damaged` where they are not those that were written."""
        return read_checked(self.path / name, self.digests[name])

    @property
    def unfinished(self) -> str:
        """What to say of a collection that was stopped."""
        return f"{self.path} holds {len(self)} of the {self.about['episodes']} episodes that were wanted"

    def command(self, episodes: int | None = None) -> str:
        """What to type to have so many, or all that were wanted."""
        about = self.about
        episodes = episodes or about["episodes"]
        words = ["efmdp", "collect", "--task", about["task"], "--from", about["policy"], "--episodes", str(episodes)]
        words += ["--seed", str(about["seed"]), "--out", str(self.path)]
        for name, value in {**about["options"], **{n: v for n, v in disturbance(about).items() if v}}.items():
            words += [f"--{name}", str(value)]
        return shlex.join(words)

    def _read_manifest(self) -> dict[str, str]:
        """The SHA-256 of each chunk by its name; none before the first chunk."""
        path = self.path / "manifest.json"
        try:
            digests = json.loads(path.read_text())
        except FileNotFoundError:
            return {}
        except ValueError:
            digests = None
        if not isinstance(digests, dict) or list(digests) != [_chunk_name(i) for i in range(len(digests))]:
            again = self.command(self.about["episodes"])
            raise UserError(f"{path} is damaged: remove it, and collect again with {again}")
        return digests


def collect(
    env: EntityEnv,
    policy: Policy,
    source: Source,
    task: str,
    episodes: int,
    out: Path,
    seed: int = 0,
    track: Callable[[Sequence[int]], Iterable[int]] = iter,
    warn: Callable[[str], None] = print,
    disturbed: Exploration = UNDISTURBED,
) -> Demos:
    """Have at least so many episodes of `task` in the folder `out`: play what is missing there or damaged.

    A chunk is one episode in every slot of `env`, so the number of episodes is rounded up to whole chunks. Where the
    policy is `disturbed`, what it wanted is recorded, and what followed from what was done instead.
    `track` may follow the chunks that are to be played, `warn` is told of damage.
    """
    wanted = -(-episodes // env.num_envs)
    with only_process_in(out):
        with clear_errors(out):
            (out / "chunks").mkdir(exist_ok=True)
        about = _describe(env, source, task, seed) | {"noise": disturbed.noise, "random": disturbed.random}
        demos = _claim(out, about, wanted * env.num_envs)
        digests = demos.digests
        missing = [i for i in range(max(wanted, len(digests))) if not _is_intact(demos, _chunk_name(i), warn)]
        for number in track(missing):
            played = record(env, policy, stream_seed(seed, DEMONSTRATIONS, number), disturbed)
            arrays = {name: values for part in played for name, values in part._asdict().items()}
            digests[_chunk_name(number)] = replace_file(out, _chunk_name(number), to_npz(arrays))
            replace_file(out, "manifest.json", _to_json(digests))
    return demos


def record(env: EntityEnv, policy: Policy, seed: int, disturbed: Exploration = UNDISTURBED) -> tuple[Episodes, Flags]:
    """One episode in every slot."""
    recorder = _Recorder(policy, env.usable_actions, disturbed, np.random.default_rng(seed))
    ends: list[Array] = []
    outcome = run_episodes(env, recorder, seed, watch=lambda step: ends.append(step.truncated))
    lengths = np.stack(ends).argmax(0) + 1 - outcome.failed  # to the first end; a step into a failure means nothing
    seen = [*recorder.seen, env.observe()]
    k, t, n, dims = env.num_envs, env.max_horizon, env.num_entities, env.dims
    agent = np.zeros((k, t + 1, dims.agent), np.float32)
    entities = np.zeros((k, t + 1, n, dims.entity), np.float32)
    actions = np.zeros((k, t, dims.action), np.float32)
    for time, obs in enumerate(seen):
        inside = time <= lengths
        agent[inside, time] = obs.agent[inside]
        entities[inside, time] = obs.entities[inside]
    for time, action in enumerate(recorder.actions):
        inside = time < lengths
        actions[inside, time] = action[inside]
    episodes = Episodes(agent, entities, seen[0].goals.astype(np.float32), actions, lengths)
    return episodes, Flags(outcome.success_once, outcome.success_end, outcome.failed)


class _Recorder:
    """A policy that remembers what it was shown, and what it wanted to do as the environment listens to it.

    It acts in float32, so that what is recorded is exactly what was done, unless it was disturbed.
    """

    def __init__(self, policy: Policy, usable_actions: Array, disturbed: Exploration, rng: np.random.Generator) -> None:
        self.policy, self.usable_actions, self.disturbed, self.rng = policy, usable_actions, disturbed, rng
        self.seen: list[EntityObs] = []
        self.actions: list[Array] = []

    def act(self, obs: EntityObs) -> Array:
        action = (self.policy.act(obs).clip(-1, 1) * self.usable_actions).astype(np.float32)
        self.seen.append(obs)
        self.actions.append(action)
        if self.disturbed == UNDISTURBED:
            return action
        return self.disturbed.disturb(action, 1.0, self.rng) * self.usable_actions

    def reset(self, ids: Array | None = None) -> None:
        self.policy.reset(ids)


def _describe(env: EntityEnv, source: Source, task: str, seed: int) -> dict[str, Any]:
    """about.json but for the number of episodes; `domains.make_env(task, **options)` makes the environment again."""
    options: dict[str, Any] = {}
    if isinstance(env, FetchEnv):
        options = {name: getattr(env.task, name) for name in ("collisions", "gripper", "layout")}
        options["profile"] = env.profile
    elif isinstance(env, DiscEnv):
        options = {"collisions": env.collisions}
    return {
        "format": FORMAT,
        "task": task,
        "options": options,
        "policy": source.policy,
        "policy_sha256": source.sha256,
        "run": source.run,
        "seed": seed,
        "chunk": env.num_envs,
        "entities": env.num_entities,
        "horizon": env.max_horizon,
        "dims": asdict(env.dims),
        "versions": versions(),
    }


def _claim(out: Path, about: dict[str, Any], episodes: int) -> Demos:
    """Write the about.json of a new collection or a growing one, or refuse another one on an old folder."""
    holds_some = any((out / "chunks").glob("*.npz"))
    if (out / "about.json").exists():
        existing = Demos(out).about
        was, now = _identity(existing), _identity(about)
        differences = [f"{name} was {was.get(name)}, now {now[name]}" for name in now if was.get(name) != now[name]]
        if differences and holds_some:
            raise UserError(f"{out} holds other demonstrations ({'; '.join(differences)}): choose another --out")
        if not differences:
            about, episodes = existing, max(episodes, existing["episodes"])
    elif holds_some:
        raise UserError(f"{out} holds demonstrations without their about.json: restore it, or choose another --out")
    about = {**about, "episodes": episodes}
    replace_file(out, "about.json", _to_json({**about, "checksum": _checksum(about)}))
    return Demos(out)


def _identity(about: dict[str, Any]) -> dict[str, Any]:
    """What episodes of one folder have in common. A policy is known by its contents: its file may be moved."""
    digest = about["policy_sha256"]
    who = SCRIPTED if about["policy"] == SCRIPTED else "the one"
    policy = f"{who} of SHA-256 {digest[:16]}" if digest else who
    common = {name: about[name] for name in ("task", "seed", "chunk")}
    return common | {"policy": policy} | disturbance(about) | about["options"]


def disturbance(about: dict[str, Any]) -> dict[str, float]:
    """Of what was done, by noise and by random actions; collections from before there was one do not say."""
    return {name: about.get(name, 0.0) for name in ("noise", "random")}


def _is_intact(demos: Demos, name: str, warn: Callable[[str], None]) -> bool:
    if name not in demos.digests:
        return False
    try:
        demos.verify(name)
    except Damaged as error:
        warn(f"{error}: collecting it anew")
        return False
    return True


def _chunk_name(number: int) -> str:
    return f"chunks/{number:06d}.npz"


def _checksum(about: dict[str, Any]) -> str:
    return hashlib.sha256(_to_json(about)).hexdigest()


def _to_json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()
