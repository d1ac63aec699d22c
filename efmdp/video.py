"""Episodes as films."""

from pathlib import Path

import numpy as np

from efmdp.entities import Array, Step, UserError
from efmdp.env import FetchEnv
from efmdp.render import FRAMES_PER_SECOND, Picture
from efmdp.rollout import Outcome, Policy, run_episodes

AFTER_SUCCESS = FRAMES_PER_SECOND // 2  # frames that an episode goes on after its success


class Film:
    """An mp4 that grows frame by frame and replaces an older one when it is complete. Sizes are even.

    ffmpeg comes with the wheel."""

    def __init__(self, path: Path, width: int, height: int) -> None:
        if path.suffix != ".mp4" or path.is_dir():
            raise UserError(f"cannot film to {path}: name a file that ends in .mp4")
        if width % 2 or height % 2:
            raise UserError(f"cannot film {width} by {height} pixels: both must be even")
        try:
            import imageio_ffmpeg  # an extra: all but films works without it
        except ImportError:
            raise UserError("films need imageio-ffmpeg: pip install 'efmdp[video]'") from None
        self.path, self.frames = path, 0
        self._part = path.with_name(f".{path.stem}.part.mp4")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._part.open("wb").close()
        except OSError as error:  # now, not after all episodes
            raise UserError(f"cannot film to {path}: {error.strerror}; choose another --out") from None
        self._writer = imageio_ffmpeg.write_frames(
            str(self._part), (width, height), fps=FRAMES_PER_SECOND, macro_block_size=2, ffmpeg_log_level="quiet"
        )

    def add(self, frame: Array) -> None:
        """A frame (height, width, 3) uint8."""
        try:
            if not self.frames:
                self._writer.send(None)  # starts ffmpeg
            self._writer.send(np.ascontiguousarray(frame))
        except OSError:
            raise UserError(f"cannot film to {self.path}: ffmpeg gave up; is the disk full?") from None
        self.frames += 1

    def __enter__(self) -> "Film":
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._writer.close()
        if error is None:
            self._part.rename(self.path)
        else:
            self._part.unlink(missing_ok=True)


def film_episodes(
    env: FetchEnv, policy: Policy, episodes: int, seed: int, path: Path, width: int = 640, height: int = 480
) -> tuple[int, list[Outcome]]:
    """Film episodes one after another in an environment of one slot; the number of frames and how each episode went."""
    picture = Picture(env, width, height)
    outcomes = []
    with Film(path, width, height) as film:
        for episode in range(episodes):
            since_success = 0

            def watch(step: Step) -> None:
                nonlocal since_success
                since_success += bool(since_success or step.success[0])
                if since_success <= AFTER_SUCCESS:
                    film.add(picture.frame())

            outcomes.append(run_episodes(env, policy, seed=seed + episode, watch=watch))
    picture.close()
    return film.frames, outcomes
