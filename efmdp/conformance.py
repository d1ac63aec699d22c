"""Is this environment an Entity-Factored MDP? Checks that any `EntityEnv` can be put to, on its real dynamics."""

import io
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env
from rich.box import ASCII2
from rich.console import Console
from rich.table import Table
from rich.text import Text

from efmdp.entities import Array, EntityEnv, EntityObs, Step
from efmdp.rollout import Policy

MOVED = 0.01  # an entity whose achieved subgoal changed by more than this was touched
FRESH_EPISODES = 256


@dataclass(frozen=True)
class CheckResult:
    """What one check found, and what it requires."""

    name: str
    passed: bool
    measured: str
    requirement: str


class Episode(NamedTuple):
    """One episode of all slots, T steps. What the environment returned, and copies made the moment it did."""

    start: EntityObs
    actions: list[Array]
    steps: list[Step]
    returned: list[Step]


@dataclass
class Trial:
    """What the checks share: an environment, an episode of it that was saved right after its reset, and the same with
    nothing done."""

    make: Callable[[], EntityEnv]
    env: EntityEnv
    saved: dict[str, Any]
    horizons: Array
    episode: Episode
    idle: Episode
    tolerance: float
    window: int
    seed: int


Finding = tuple[bool, str]  # passed, measured


def check(
    make_env: Callable[[int], EntityEnv],
    policy: Policy | None = None,
    tolerance: float = 1e-6,
    seed: int = 0,
    steps: int | None = None,
    num_envs: int = 16,
) -> list[CheckResult]:
    """Put the environments that `make_env(num_envs)` builds to every check.

    Actions come from `policy`, else from `env.demonstrator()` if there is one, else they are random. `steps`: for how
    many steps after the first contact of a slot its symmetry is compared (contacts amplify rounding); all by default.
    """
    try:
        trial = _try(make_env, policy, tolerance, seed, steps, num_envs)
    except Exception as error:  # an environment under test may raise anything
        return [CheckResult("an episode runs", False, f"{type(error).__name__}: {error}", "no error")]
    results = []
    for name, (finding, requirement) in CHECKS.items():
        try:
            passed, measured = finding(trial)
        except Exception as error:  # an environment under test may raise anything, and the other checks still tell
            passed, measured = False, f"{type(error).__name__}: {error}"
        required = requirement.format(tolerance=tolerance, window=trial.window)
        results.append(CheckResult(name, bool(passed), measured, required))
    return results


def _try(
    make_env: Callable[[int], EntityEnv],
    policy: Policy | None,
    tolerance: float,
    seed: int,
    steps: int | None,
    num_envs: int,
) -> Trial:
    env = make_env(num_envs)
    if env.num_envs != num_envs:
        raise ValueError(f"{num_envs} environments were asked for, {env.num_envs} were made")
    start = _copied(env.reset(seed=seed))
    saved, horizons = env.save(), env.horizons.copy()
    count = int(horizons.max())
    source = policy or (env.demonstrator() if hasattr(env, "demonstrator") else _Random(env, seed))
    source.reset()
    episode = _run(env, start, count, source)
    idle_env = make_env(num_envs)
    idle = _run(idle_env, idle_env.reset(seed=seed), count, [np.zeros((num_envs, env.dims.action))] * count)
    window = count if steps is None else steps
    return Trial(lambda: make_env(num_envs), env, saved, horizons, episode, idle, tolerance, window, seed)


def report(results: Iterable[CheckResult], width: int = 110) -> str:
    """A table of the results, as text."""
    table = Table("check", "measured", "required", "ok", box=ASCII2)  # for any terminal and any file
    for result in results:
        cells = (result.name, result.measured, result.requirement, "yes" if result.passed else "NO")
        table.add_row(*map(Text, cells))
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    with console.capture() as text:
        console.print(table)
    return text.get()


def check_gymnasium(make: Callable[[], "gymnasium.Env[Any, Any]"]) -> CheckResult:
    """Gymnasium's own checker. Its warnings fail too, except about an unbounded observation space."""
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            env = make()
            try:
                check_env(env.unwrapped, skip_render_check=True)
            finally:
                env.close()
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
    said = sorted({str(w.message) for w in caught if "gymnasium" in w.filename or "WARN: " in str(w.message)})
    serious = [text for text in said if "observation space" not in text or "infinity" not in text]
    measured = "; ".join([*([error] if error else []), *serious]) or "passed"
    return CheckResult(
        "gymnasium's checker", not error and not serious, measured, "no error; no warning but unbounded observations"
    )


# The checks


def _symmetry(trial: Trial) -> Finding:
    """Property 1: the permuted state, under the same actions, goes to the permuted next state with the same reward."""
    env, ep = trial.make(), trial.episode
    env.reset(seed=trial.seed)
    order = _shuffled(env.exchangeable(), np.random.default_rng(trial.seed))
    swapped = int((order != np.arange(env.num_entities)).any(1).sum())
    env.permute(order)
    other = _run(env, env.observe(), len(ep.actions), ep.actions)
    contact = _displacements(trial) > MOVED  # (T, B)
    first = np.where(contact.any(0), contact.argmax(0), len(contact))
    worst, wrong, alive = _gap(other.start, ep.start.permuted(order)), 0, np.ones(env.num_envs, bool)
    for t, (a, b) in enumerate(zip(ep.steps, other.steps, strict=True)):
        alive &= ~(a.failed | b.failed) & (t <= first + trial.window)
        expected = a.obs.permuted(order)
        one, two = (env.distance(env.achieved(obs.entities), obs.goals) for obs in (expected, b.obs))
        pairs = zip([*expected, one], [*b.obs, two], strict=True)
        worst = max(worst, *(_gap([x[alive]], [y[alive]]) for x, y in pairs))
        # A reward may jump only where rounding carried a distance over the threshold
        sure = alive & (env.objective.met(one) == env.objective.met(two)).all(1)
        scale = env.num_entities if env.objective.rule == "sum" else 1
        wrong += int((np.abs(a.reward - b.reward)[sure] > trial.tolerance * scale).sum())
    # Hindsight goals as well: most of them are met, where the goals of the episode may never be
    achieved = env.achieved(np.stack([s.obs.entities for s in ep.steps])).astype(np.float64)  # (T, B, N, G)
    permuted = np.take_along_axis(achieved, np.broadcast_to(order[None, :, :, None], (*achieved.shape[:3], 1)), 2)
    rewards, permuted_rewards = env.reward(achieved, achieved[::-1]), env.reward(permuted, permuted[::-1])
    wrong += int((np.abs(rewards - permuted_rewards) > trial.tolerance * env.num_entities).sum())
    failures = int(sum(s.failed.sum() for s in ep.steps))
    measured = f"off by {worst:.1e}, {wrong} rewards differ; {swapped} of {env.num_envs} slots permuted"
    measured += f"; {failures} simulations failed" if failures else ""
    return worst <= trial.tolerance and wrong == 0 and failures == 0, measured


def _contact(trial: Trial) -> Finding:
    """Without contact the symmetry check proves nothing."""
    touched, slots = int((_displacements(trial).max(0) > MOVED).sum()), trial.env.num_envs
    return 2 * touched > slots, f"in {touched} of {slots} slots"


def _reward(trial: Trial) -> Finding:
    env, steps = trial.env, trial.episode.steps
    achieved = env.achieved(np.stack([s.obs.entities for s in steps]))  # (T, B, N, G), as relabelling does it
    goals = np.stack([s.obs.goals for s in steps])
    rewards, successes = np.stack([s.reward for s in steps]), np.stack([s.success for s in steps])
    wrong = ~_same(env.reward(achieved, goals), rewards) | (env.success(achieved, goals) != successes)
    return not wrong.any(), f"{int(wrong.sum())} of {wrong.size} differ"


def _determinism(trial: Trial) -> Finding:
    env, ep = trial.make(), trial.episode
    if _equal(env.reset(seed=trial.seed + 1), ep.start):
        return False, "another seed gives the same start"
    _run(env, env.observe(), 1, ep.actions)  # nothing of this episode may be left after the next reset
    first = _first_difference(ep, _run(env, env.reset(seed=trial.seed), len(ep.actions), ep.actions))
    return first is None, "identical" if first is None else f"differs at step {first}"


def _finite(trial: Trial) -> Finding:
    env, ep = trial.env, trial.episode
    b, n, d = env.num_envs, env.num_entities, env.dims
    shapes = {"agent": (b, d.agent), "entities": (b, n, d.entity), "goals": (b, n, d.goal), "reward": (b,)}
    for t, values in enumerate([[*ep.start, np.zeros(b)], *([*s.obs, s.reward] for s in ep.steps)]):
        for (name, shape), array in zip(shapes.items(), values, strict=True):
            if array.shape != shape:
                return False, f"step {t}: {name} has shape {array.shape}, not {shape}"
            if array.dtype not in (np.float32, np.float64):
                return False, f"step {t}: {name} is {array.dtype}"
            if not np.isfinite(array).all():
                return False, f"step {t}: {name} is not finite"
    flags = [flag for s in ep.steps for flag in (s.success, s.truncated, s.failed)]
    good = all(flag.shape == (b,) and flag.dtype == bool for flag in flags)
    return good, "all finite" if good else f"a flag is not bool of shape {(b,)}"


def _fresh(trial: Trial) -> Finding:
    ep = trial.episode
    changed = sum(not _equal(_arrays(a), _arrays(b)) for a, b in zip(ep.returned, ep.steps, strict=True))
    return changed == 0, f"{changed} of {len(ep.steps)} steps overwritten"


def _unsolved(trial: Trial) -> Finding:
    env = trial.make()
    obs, solved, total = env.reset(seed=trial.seed + 2), 0, 0
    while total < FRESH_EPISODES:
        success, has_goal = env.success(env.achieved(obs.entities), obs.goals), env.has_goal(obs.goals)
        solved += int((success if has_goal is None else success & has_goal.any(-1)).sum())
        total += env.num_envs
        obs = env.reset()
    return solved == 0, f"{solved} of {total} solved"


def _horizon(trial: Trial) -> Finding:
    failed = np.zeros(trial.env.num_envs, bool)
    for t, step in enumerate(trial.episode.steps, 1):
        failed |= step.failed
        wrong = (step.truncated != (t >= trial.horizons)) & ~failed
        if wrong.any():
            slot = int(wrong.argmax())
            word = "truncated" if step.truncated[slot] else "not truncated"
            return False, f"{word} at step {t} of {trial.horizons[slot]}"
    return True, " or ".join(str(h) for h in np.unique(trial.horizons)) + " steps"


def _save_restore(trial: Trial) -> Finding:
    env, ep = trial.env, trial.episode
    env.restore(trial.saved)
    _run(env, env.observe(), len(ep.actions), ep.actions)
    following = _copied(env.reset())
    _run(env, env.observe(), min(5, len(ep.actions)), ep.actions)  # so that there is something to put back
    for who, target in (("the same environment", env), ("a new environment", trial.make())):
        first = _first_difference(ep, _run(target, target.restore(trial.saved), len(ep.actions), ep.actions))
        if first is not None:
            return False, f"{who} differs at step {first}"
        if not _equal(target.reset(), following):
            return False, f"{who}: the next reset differs"
    return True, "identical"


def _bad_actions(trial: Trial) -> Finding:
    env = trial.make()
    before, shape = _copied(env.reset(seed=trial.seed)), (env.num_envs, env.dims.action)
    wide, whole, nan = np.zeros((shape[0], shape[1] + 1)), np.zeros(shape, np.int64), np.full(shape, np.nan)
    problems = []
    for name, actions in (("wrong shape", wide), ("integers", whole), ("NaN", nan)):
        try:
            env.step(actions)
            problems.append(f"{name} accepted")
        except (ValueError, TypeError):
            if env.elapsed.any() or not _equal(env.observe(), before):
                problems.append(f"{name} rejected too late")
    return not problems, ", ".join(problems) or "all rejected"


CHECKS: dict[str, tuple[Callable[[Trial], Finding], str]] = {
    "symmetry of dynamics": (_symmetry, "within {tolerance:.0e}, same rewards, up to {window} steps after contact"),
    "contact was made": (_contact, f"entities moved by more than {MOVED} in most slots"),
    "reward recomputed": (_reward, "reward and success of every step exactly"),
    "seed determinism": (_determinism, "same seed and actions: identical bits; another seed: another start"),
    "finite values": (_finite, "finite floats and bool flags, shapes as dims say"),
    "fresh arrays": (_fresh, "returned arrays never change"),
    "no episode starts solved": (_unsolved, "none of the fresh episodes"),
    "horizon": (_horizon, "truncated at the horizon, not before"),
    "save and restore": (_save_restore, "identical bits, and the same next reset"),
    "rejects bad actions": (_bad_actions, "ValueError or TypeError, environment unchanged"),
}


# What they are made of


class _Random:
    """Random actions, each held for a while: white noise would go nowhere and touch nothing."""

    def __init__(self, env: EntityEnv, seed: int) -> None:
        self.rng, self.shape, self.calls = np.random.default_rng(seed), (env.num_envs, env.dims.action), 0

    def act(self, obs: EntityObs) -> Array:
        if self.calls % 10 == 0:
            self.actions = self.rng.uniform(-1, 1, self.shape)
        self.calls += 1
        return self.actions

    def reset(self, ids: Array | None = None) -> None:
        self.calls = 0


def _run(env: EntityEnv, obs: EntityObs, count: int, source: Policy | list[Array]) -> Episode:
    ep = Episode(_copied(obs), [], [], [])
    for t in range(count):
        action = source[t] if isinstance(source, list) else source.act(obs)
        step = env.step(action)
        ep.actions.append(np.array(action))
        ep.returned.append(step)
        ep.steps.append(step._replace(obs=_copied(step.obs), **{k: getattr(step, k).copy() for k in Step._fields[1:]}))
        obs = step.obs
    return ep


def _copied(obs: EntityObs) -> EntityObs:
    return EntityObs(*(a.copy() for a in obs))


def _shuffled(labels: Array, rng: np.random.Generator) -> Array:
    """A random order of the entities of each slot, (B, N), within labels (B, N), and never the old one if avoidable."""
    order = np.empty_like(labels, dtype=np.int64)
    places = labels.argsort(1, kind="stable")
    np.put_along_axis(order, places, np.lexsort((rng.random(labels.shape), labels)), 1)
    swappable = np.array([len(set(row)) < len(row) for row in labels.tolist()], bool)
    unchanged = swappable & (order == np.arange(labels.shape[1])).all(1)
    if unchanged.any():
        order[unchanged] = _shuffled(labels[unchanged], rng)
    return order


def _arrays(step: Step) -> list[Array]:
    return [*step.obs, *cast(tuple[Array, ...], step[1:])]


def _same(a: Array, b: Array) -> Array:
    return (a == b) | ((a != a) & (b != b))  # NaN is the business of the check for finite values alone


def _equal(a: Iterable[Array], b: Iterable[Array]) -> bool:
    return all(x.shape == y.shape and bool(_same(x, y).all()) for x, y in zip(a, b, strict=True))


def _gap(a: Iterable[Array], b: Iterable[Array]) -> float:
    """The largest difference of two lists of arrays; infinite where only one of two values is a number."""
    gaps = (np.where(_same(x, y), 0, np.nan_to_num(np.abs(x - y), nan=np.inf)) for x, y in zip(a, b, strict=True))
    return max(float(gap.max(initial=0)) for gap in gaps)


def _first_difference(a: Episode, b: Episode) -> int | None:
    if not _equal(a.start, b.start):
        return 0
    pairs = zip(a.steps, b.steps, strict=True)
    return next((t for t, (x, y) in enumerate(pairs, 1) if not _equal(_arrays(x), _arrays(y))), None)


def _displacements(trial: Trial) -> Array:
    """(T, B): how far the entity that moved most is from where it would be, had nothing been done."""
    env = trial.env
    moved, idle = (env.achieved(np.stack([s.obs.entities for s in ep.steps])) for ep in (trial.episode, trial.idle))
    return env.distance(moved, idle).max(-1)
