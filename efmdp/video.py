"""Episodes as files to look at."""

from collections.abc import Iterable
from pathlib import Path

import imageio_ffmpeg
import numpy as np

from efmdp.entities import Array
from efmdp.env import FetchEnv
from efmdp.render import Picture
from efmdp.rollout import Outcome, Policy, run_episodes

FRAMES_PER_SECOND = 25  # real time: a control step is 40 ms


def write_mp4(frames: Iterable[Array], path: Path) -> None:
    """Encode frames (height, width, 3) uint8; ffmpeg comes with the wheel."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = None
    for frame in frames:
        if writer is None:
            size = frame.shape[1], frame.shape[0]
            writer = imageio_ffmpeg.write_frames(str(path), size, fps=FRAMES_PER_SECOND, macro_block_size=2)
            writer.send(None)
        writer.send(np.ascontiguousarray(frame))
    if writer is None:
        raise ValueError("a video needs at least one frame")
    writer.close()


def film_episodes(
    env: FetchEnv, policy: Policy, episodes: int, seed: int, width: int = 640, height: int = 480
) -> tuple[list[Array], list[Outcome]]:
    """Play episodes one after another in an environment of one slot; all frames, and how each episode went.

    An episode's film ends half a second after its success.
    """
    picture = Picture(env, width, height)
    frames: list[Array] = []
    outcomes = []
    for episode in range(episodes):
        since_success = 0

        def watch(step: object) -> None:
            nonlocal since_success
            since_success += bool(since_success or step.success[0])  # type: ignore[attr-defined]
            if since_success <= FRAMES_PER_SECOND // 2:
                frames.append(picture.frame())

        outcomes.append(run_episodes(env, policy, seed=seed + episode, watch=watch))
    picture.close()
    return frames, outcomes
