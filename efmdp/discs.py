"""A second, tiny domain in plain NumPy: a point agent shoves discs to their subgoals on a square.

It costs next to nothing to simulate, so it is for quick experiments and for tests that need an environment.
Positions are stored as (2, B, N), coordinate first: NumPy's loops then run over long rows instead of pairs.
"""

from dataclasses import replace

import numpy as np

from efmdp.entities import OBJECTIVES, Array, EntityDims, EntityEnv, EntityObs, Objective, UserError

THRESHOLD = 0.1
SPEED = 0.1  # the agent's largest move in a step: less than CONTACT, so it cannot jump over a disc
INERTIA = 0.5  # the fraction of its velocity that the agent keeps in a step
RADIUS = 0.1  # of a disc
CONTACT = 0.15  # distance of agent and disc centres at which they touch
EDGE = 1 - CONTACT  # discs stay within this, so the agent always fits behind one
SPREAD = 0.7  # everything begins within this, clear of the walls, and so are the subgoals
STEPS_PER_DISC = 40
CANDIDATES = 16  # places tried for one object before its layout is given up
ATTEMPTS = 50  # layouts tried before an episode cannot begin


class DiscEnv(EntityEnv):
    """B squares [-1, 1]^2 with an agent and N discs each, `num_goals` of which have a subgoal (all by default).

    agent (4): position, velocity. Entity (6): position, position relative to the agent, velocity. Subgoal (3): x, y
    and 1, or zeros where the disc may be anywhere. Action (2): wanted velocity. Velocities are per step.

    The agent is never pushed back. Friction is quasi-static: a disc moves only while something shoves it.
    """

    def __init__(
        self,
        num_envs: int,
        num_discs: int,
        num_goals: int | None = None,
        collisions: bool = False,
        reward: str | Objective = "sparse",
        seed: int = 0,
    ) -> None:
        if num_discs < 1:
            raise UserError(f"num_discs is {num_discs}: at least one disc is needed")
        self.num_goals = num_discs if num_goals is None else num_goals
        if not 1 <= self.num_goals <= num_discs:
            raise UserError(f"num_goals is {num_goals}: choose 1 to {num_discs}, the number of discs")
        if isinstance(reward, str):
            if reward not in OBJECTIVES:
                raise ValueError(f"unknown reward {reward!r}: choose {' or '.join(OBJECTIVES)}, or give an Objective")
            reward = replace(OBJECTIVES[reward], threshold=THRESHOLD)
        super().__init__(num_envs, num_discs, EntityDims(agent=4, entity=6, goal=3, action=2), reward, seed)
        self.collisions = collisions
        self._horizons = np.full(num_envs, STEPS_PER_DISC * num_discs)
        self._agent = np.zeros((2, num_envs))
        self._agent_velocity = np.zeros((2, num_envs))
        self._discs = np.zeros((2, num_envs, num_discs))
        self._disc_velocity = np.zeros((2, num_envs, num_discs))
        self._goals = np.zeros((num_envs, num_discs, 3))
        self.reset()

    @property
    def horizons(self) -> Array:
        return self._horizons.copy()

    @property
    def largest_distance(self) -> float:
        return 2 * 2**0.5

    def demonstrator(self) -> "DiscPusher":
        return DiscPusher(self.objective.threshold)

    def _begin(self, ids: Array) -> None:
        pending, most = ids, 0
        for _ in range(ATTEMPTS):
            agent, discs, goals, placed = self._draw(pending)
            ok = placed == 1 + self.num_entities + self.num_goals
            done = pending[ok]
            self._agent[:, done] = agent[ok].T
            self._discs[:, done] = discs[ok].transpose(2, 0, 1)
            self._goals[done] = goals[ok]
            self._agent_velocity[:, done] = 0
            self._disc_velocity[:, done] = 0
            if ok.all():
                return
            most = max(most, int(placed[~ok].max()))
            pending = pending[~ok]
        fitted = min(max(most - 1, 0), self.num_entities)
        raise UserError(
            f"no room for {self.num_entities} discs and {self.num_goals} subgoals in {ATTEMPTS} attempts: at most "
            f"{fitted} discs and {max(most - 1 - fitted, 0)} subgoals fitted"
        )

    def _draw(self, ids: Array) -> tuple[Array, Array, Array, Array]:
        """Layouts for S slots: agent (S, 2), discs (S, N, 2), goals (S, N, 3), number of objects placed (S,)."""
        n, m, rows = self.num_entities, self.num_goals, np.arange(len(ids))
        size = 2 * CANDIDATES * (1 + n + m)
        numbers = np.stack([self.rngs[i].random(size + n) for i in ids])
        # (S, 1+N+M, K, 2): K candidate places each for the agent, the discs and the subgoals, in this order
        places = SPREAD * (2 * numbers[:, :size].reshape(len(ids), 1 + n + m, CANDIDATES, 2) - 1)
        owners = numbers[:, size:].argsort(1)[:, :m]  # (S, M): which discs have a subgoal
        chosen = np.empty((len(ids), 1 + n + m, 2))
        fits = np.empty((len(ids), 1 + n + m), bool)
        apart = 2 * RADIUS  # agent and discs from each other, and subgoals from each other
        for k in range(1 + n + m):
            others = chosen[:, :k] if k <= n else chosen[:, 1 + n : k]
            free = np.all(_lengths(places[:, k, :, None] - others[:, None]) > apart, axis=2)  # (S, K)
            if k > n:  # a subgoal: its disc must not begin there
                own = chosen[rows, 1 + owners[:, k - 1 - n]]
                free &= _lengths(places[:, k] - own[:, None]) > self.objective.threshold
            chosen[:, k] = places[rows, k, free.argmax(1)]  # the first free one
            fits[:, k] = free.any(1)
        goals = np.zeros((len(ids), n, 3))
        goals[rows[:, None], owners, :2] = chosen[:, 1 + n :]
        goals[rows[:, None], owners, 2] = 1
        placed = np.cumprod(fits, 1).sum(1)
        return chosen[:, 0], chosen[:, 1 : 1 + n], goals, placed

    def _advance(self, actions: Array) -> Array:
        velocity = INERTIA * self._agent_velocity + (1 - INERTIA) * SPEED * actions.T
        agent = np.clip(self._agent + velocity, -1, 1)
        self._agent_velocity = agent - self._agent
        self._agent = agent
        away = self._discs - agent[:, :, None]  # (2, B, N)
        discs = self._discs + away * _excess(CONTACT, away)
        if self.collisions and self.num_entities > 1:
            gaps = discs[:, :, :, None] - discs[:, :, None, :]  # (2, B, N, N): from the last to the one before
            discs += 0.5 * (gaps * _excess(2 * RADIUS, gaps)).sum(-1)
        np.clip(discs, -EDGE, EDGE, out=discs)
        self._disc_velocity = discs - self._discs
        self._discs = discs
        return np.zeros(self.num_envs, bool)

    def observe(self) -> EntityObs:
        agent = np.empty((self.num_envs, 4), np.float32)
        agent[:, :2] = self._agent.T
        agent[:, 2:] = self._agent_velocity.T
        entities = np.empty((self.num_envs, self.num_entities, 6), np.float32)
        for axis in range(2):
            entities[:, :, axis] = self._discs[axis]
            entities[:, :, 2 + axis] = self._discs[axis] - self._agent[axis, :, None]
            entities[:, :, 4 + axis] = self._disc_velocity[axis]
        return EntityObs(agent, entities, self._goals.astype(np.float32))

    def achieved(self, entities: Array) -> Array:
        goals = np.ones((*entities.shape[:-1], 3), entities.dtype)
        goals[..., :2] = entities[..., :2]
        return goals

    def distance(self, achieved: Array, desired: Array) -> Array:
        return _lengths(achieved[..., :2] - desired[..., :2])

    def has_goal(self, desired: Array) -> Array:
        return desired[..., 2] > 0.5

    def permute(self, order: Array) -> None:
        self._discs = np.take_along_axis(self._discs, order[None], 2)
        self._disc_velocity = np.take_along_axis(self._disc_velocity, order[None], 2)
        self._goals = np.take_along_axis(self._goals, order[:, :, None], 1)

    def exchangeable(self) -> Array:
        return np.zeros((self.num_envs, self.num_entities), np.int64)

    def _save(self) -> dict[str, Array]:
        return {name: getattr(self, f"_{name}").copy() for name in _STATE}

    def _restore(self, saved: dict[str, Array]) -> None:
        for name in _STATE:
            setattr(self, f"_{name}", np.array(saved[name]))


_STATE = ("agent", "agent_velocity", "discs", "disc_velocity", "goals")


def _lengths(vectors: Array) -> Array:
    """(..., 2) to (...)."""
    return np.sqrt(vectors[..., 0] ** 2 + vectors[..., 1] ** 2)


def _excess(wanted: float, gaps: Array) -> Array:
    """By which multiple gaps (2, ...) must grow to be as long as wanted; 0 where they are, and where they are zero.

    >>> _excess(0.2, np.array([[0.1, 0.3], [0.0, 0.0]]))
    array([1., 0.])
    """
    # The floor is for centres that nearly coincide, where direction, and so the result, is next to arbitrary
    return np.maximum(wanted / np.maximum(np.sqrt(gaps[0] ** 2 + gaps[1] ** 2), 1e-3) - 1, 0)


class DiscPusher:
    """A scripted controller: goes behind the first disc that is not at its subgoal and pushes. It keeps no state."""

    def __init__(self, threshold: float = THRESHOLD) -> None:
        self.tolerance = 0.5 * threshold  # stricter than success: a solved disc may be brushed later

    def reset(self, ids: Array | None = None) -> None:
        """Nothing is remembered between steps."""

    def act(self, obs: EntityObs) -> Array:
        """(B, 2) actions."""
        rows = np.arange(len(obs.agent))
        missing = obs.goals[..., :2] - obs.entities[..., :2]  # (B, N, 2)
        unsolved = (_lengths(missing) > self.tolerance) & (obs.goals[..., 2] > 0.5)
        disc = unsolved.argmax(1)
        wanted = _unit(missing[rows, disc])  # (B, 2): where the disc should go
        from_disc = -obs.entities[rows, disc, 2:4]
        length = _lengths(from_disc)[:, None]
        along = (from_disc * wanted).sum(1, keepdims=True)
        sideways = from_disc - along * wanted
        # Behind the disc, push it, leaning against its drift; near it, circle round it; else go where pushing begins
        push = wanted - 4 * sideways / CONTACT
        tangent = -wanted + from_disc * along / np.maximum(length, 1e-3) ** 2
        circle = _unit(tangent) + _unit(from_disc) * 8 * (1.3 * CONTACT - length)
        travel = -1.3 * CONTACT * wanted - from_disc
        near = length < 2 * CONTACT
        move = np.where(near & (-along > 0.9 * length), push, np.where(near, circle, travel))
        return _unit(move) * unsolved.any(1, keepdims=True)


def _unit(vectors: Array) -> Array:
    return vectors / np.maximum(_lengths(vectors), 1e-9)[..., None]
