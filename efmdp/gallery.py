"""Pictures of the tasks, for a page: what they look like, which are trained on and which only tested on.

Drawn at twice their size and then halved, which smooths text and arrows as well. JPEGs on white, with text that can
still be read where a phone shows them.
"""

import io
from typing import NamedTuple

import numpy as np

from efmdp.entities import Array, UserError
from efmdp.env import FINGER_ACTION, FetchEnv
from efmdp.render import Picture
from efmdp.tasks import parse_task

# Episodes in which no entity and no goal hides another, nor the hand them: chosen by how far apart everything is
# in the picture, for six cubes among 6000.
SEEDS = {
    "1-Push": 555,
    "2-Push": 527,
    "3-Push": 394,
    "4-Push": 3675,
    "5-Push": 1294,
    "6-Push": 1593,
    "2-Switch": 217,
    "3-Switch": 1017,
    "2-Switch+2-Push": 931,
    "Stack": 3,
    "Push+Stack": 215,
}
RAISING, SETTLING = 4, 8  # steps in which the hand goes up, away from what it hides at the start, and comes to rest

FRAME = (1920, 1440)
WIDTH = 2400  # of a figure as it is drawn
GAP = 40
TEXT = 80
LINE = 112  # height of a line of text with the space around it
HEADING = LINE + 8
INK, BORDER = "#1c1c1c", "#c8c8c8"
QUALITY = 88


class View(NamedTuple):
    """A part of the rendered frame, as fractions of its sides."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def aspect(self) -> float:
        """Width to height."""
        return (self.right - self.left) * FRAME[0] / ((self.bottom - self.top) * FRAME[1])


TABLE = View(0.405, 0.512, 0.77, 0.877)  # everything that is to be moved, and the fingers
ROBOT = View(0.16, 0.0, 0.92, 0.92)


def tasks() -> bytes:
    """Six tasks in two rows, each under its name."""
    names = ("1-Push", "3-Push", "3-Switch", "2-Switch+2-Push", "Stack", "Push+Stack")
    columns = 3
    width = (WIDTH - (columns - 1) * GAP) // columns
    height = round(width / TABLE.aspect)
    sheet = _Sheet(2 * (LINE + height) + GAP)
    for i, name in enumerate(names):
        where = i % columns * (width + GAP), i // columns * (LINE + height + GAP)
        sheet.scene(name, TABLE, where, (width, height))
    return sheet.jpeg()


def teaser() -> bytes:
    """A large picture of three cubes, an arrow, and pictures of three to six."""
    width = 540
    height = round(width / TABLE.aspect)
    large_height = 2 * height + LINE + GAP  # so that both sides end together
    large_width = round(large_height * ROBOT.aspect)
    right = WIDTH - 2 * width - GAP
    sheet = _Sheet(HEADING + LINE + large_height)
    sheet.heading("Trained on three cubes", 0, large_width)
    sheet.heading("Tested on three to six", right, WIDTH)
    sheet.scene("3-Push", ROBOT, (0, HEADING), (large_width, large_height))
    sheet.arrow((large_width + right) // 2, HEADING + LINE + large_height // 2)
    for i, name in enumerate(("3-Push", "4-Push", "5-Push", "6-Push")):
        where = right + i % 2 * (width + GAP), HEADING + i // 2 * (LINE + height + GAP)
        sheet.scene(name, TABLE, where, (width, height))
    return sheet.jpeg()


def stitching() -> bytes:
    """Two rows: two tasks that are trained on, an arrow, and the one that needs the skills of both."""
    plus, arrow = 120, 200
    width = (WIDTH - plus - arrow) // 3
    height = round(width / TABLE.aspect)
    lefts = 0, width + plus, 2 * width + plus + arrow
    sheet = _Sheet(HEADING + 2 * (LINE + height) + GAP)
    sheet.heading("Trained on", lefts[0], lefts[1] + width)
    sheet.heading("Tested on", lefts[2], lefts[2] + width)
    for i, names in enumerate((("2-Switch", "2-Push", "2-Switch+2-Push"), ("2-Push", "Stack", "Push+Stack"))):
        top = HEADING + i * (LINE + height + GAP)
        for name, left in zip(names, lefts, strict=True):
            sheet.scene(name, TABLE, (left, top), (width, height))
        sheet.plus(lefts[1] - plus // 2, top + LINE + height // 2)
        sheet.arrow(lefts[2] - arrow // 2, top + LINE + height // 2)
    return sheet.jpeg()


def scene(task: str) -> Array:
    """The task's chosen episode with the hand raised, as a whole frame, uint8."""
    env = FetchEnv(parse_task(task))
    env.reset(seed=SEEDS[task])
    for step in range(RAISING + SETTLING):
        action = np.zeros((1, env.dims.action))
        action[0, 2] = step < RAISING
        action[0, FINGER_ACTION] = 1  # open, which tells tasks with the gripper from the others
        env.step(action)
    picture = Picture(env, *FRAME)
    try:
        return picture.frame()
    finally:
        picture.close()


class _Sheet:
    """A white figure, drawn on in pixels from its top left."""

    def __init__(self, height: int) -> None:
        try:
            from PIL import Image, ImageDraw  # an extra: all but pictures and films works without it
        except ImportError:
            raise UserError("the pictures of the tasks need Pillow: pip install 'efmdp[video]'") from None
        self._image = Image.new("RGB", (WIDTH, height), "white")
        self._draw = ImageDraw.Draw(self._image)

    def scene(self, task: str, view: View, where: tuple[int, int], size: tuple[int, int]) -> None:
        """A task under its name, which begins there; the size is that of the picture."""
        from PIL import Image

        left, top, right, bottom = where[0], where[1] + LINE, where[0] + size[0], where[1] + LINE + size[1]
        self._text(task, (left + right) // 2, where[1])
        part = (view.left * FRAME[0], view.top * FRAME[1], view.right * FRAME[0], view.bottom * FRAME[1])
        shown = Image.fromarray(scene(task)).resize(size, Image.Resampling.LANCZOS, box=part)
        self._image.paste(shown, (left, top))
        self._draw.rectangle((left, top, right - 1, bottom - 1), outline=BORDER, width=4)  # a table is white as well

    def heading(self, text: str, left: int, right: int) -> None:
        """Across all that it is about, with a line under it."""
        self._text(text, (left + right) // 2, 0)
        self._draw.line((left, LINE, right - 1, LINE), INK, width=5)

    def _text(self, text: str, middle: int, top: int) -> None:
        self._draw.text((middle, top + LINE // 2), text, INK, anchor="mm", font_size=TEXT)

    def arrow(self, x: int, y: int) -> None:
        """Pointing right, around that point."""
        self._draw.line((x - 70, y, x + 40, y), INK, width=14)
        self._draw.polygon([(x + 70, y), (x + 14, y - 38), (x + 14, y + 38)], INK)

    def plus(self, x: int, y: int) -> None:
        self._draw.line((x - 36, y, x + 36, y), INK, width=14)
        self._draw.line((x, y - 36, x, y + 36), INK, width=14)

    def jpeg(self) -> bytes:
        file = io.BytesIO()
        self._image.reduce(2).save(file, "JPEG", quality=QUALITY, optimize=True)
        return file.getvalue()
