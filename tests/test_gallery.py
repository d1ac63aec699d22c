import colorsys
import functools
import io
import sys
from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from efmdp import gallery
from efmdp.entities import UserError
from efmdp.render import Picture
from efmdp.tasks import STITCHED, parse_task

MOST_BYTES = 250_000
SIZES = {"tasks": (1200, 712), "teaser": (1200, 597), "stitching": (1200, 712)}


@pytest.fixture(scope="module")
def opengl() -> None:
    import mujoco

    try:
        mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 16, 16).close()
    except Exception as error:
        pytest.skip(f"no OpenGL on this machine: {error}")


class Figure(NamedTuple):
    data: bytes
    shows: list[str]

    @property
    def pixels(self) -> np.ndarray:
        return np.asarray(Image.open(io.BytesIO(self.data))).astype(int)


@pytest.fixture(scope="module")
def figures(opengl: None) -> dict[str, Figure]:
    """All of them, with the tasks that each shows; every task is rendered once."""
    render = functools.cache(gallery.scene)
    shown: list[str] = []

    def scene(task: str) -> np.ndarray:
        shown.append(task)
        return render(task)

    drawn = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gallery, "scene", scene)
        for name in SIZES:
            shown.clear()
            drawn[name] = Figure(getattr(gallery, name)(), list(shown))
    return drawn


@pytest.mark.parametrize("name", SIZES)
def test_a_figure_is_a_small_jpeg(figures: dict[str, Figure], name: str) -> None:
    image = Image.open(io.BytesIO(figures[name].data))
    image.load()
    assert (image.format, image.mode, image.size) == ("JPEG", "RGB", SIZES[name])
    assert len(figures[name].data) < MOST_BYTES


def test_the_grid_shows_a_different_task_in_every_place(figures: dict[str, Figure]) -> None:
    pixels = figures["tasks"].pixels
    places = [pixels[y + 60 : y + 340, x + 5 : x + 380] for y in (0, 366) for x in (0, 406, 813)]
    for place in places:
        assert place.std() > 20
    for one, other in combinations(places, 2):
        assert (np.abs(one - other).max(-1) > 40).mean() > 0.02  # about the area of two entities
    captions = [pixels[y : y + 52, x + 5 : x + 380] for y in (4, 370) for x in (0, 406, 813)]
    for caption in captions:
        assert (caption < 80).mean() > 0.01
        assert (caption[:, [0, -1]] > 200).all()  # none is cut off


def test_the_teaser_goes_from_three_cubes_to_six(figures: dict[str, Figure]) -> None:
    assert figures["teaser"].shows == ["3-Push", "3-Push", "4-Push", "5-Push", "6-Push"]
    pixels = figures["teaser"].pixels
    large, arrow = pixels[122:590, 5:520], pixels[122:590, 545:625]
    assert large.std() > 40
    assert 0.01 < (arrow < 80).all(-1).mean() < 0.1
    assert (pixels[4:52, 5:520] < 80).any()
    assert (pixels[4:52, 645:1195] < 80).any()


def test_stitching_shows_what_is_studied(figures: dict[str, Figure]) -> None:
    shows = figures["stitching"].shows
    rows = [shows[:3], shows[3:]]
    assert {f"{one}|{other}": test for one, other, test in rows} == {
        mixture: test for mixture, test in STITCHED.items() if "|" in mixture
    }


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("task", gallery.SEEDS)
def test_every_entity_and_its_goal_are_seen(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each as one patch of its colour in the part of the frame that is shown, and most of it."""
    width, height = 960, 720
    dark = [(*colorsys.hsv_to_rgb(i / 6, 1, 0.4), 1) for i in range(6)]  # light does not change their hues
    monkeypatch.setattr("efmdp.scene.PALETTE", dark)
    monkeypatch.setattr(gallery, "FRAME", (width, height))
    view = gallery.TABLE
    rows, columns = (
        slice(round(a * side), round(b * side))
        for a, b, side in ((view.top, view.bottom, height), (view.left, view.right, width))
    )
    shown = Image.fromarray(gallery.scene(task)[rows, columns]).convert("HSV")
    hue, saturation, _ = np.moveaxis(np.asarray(shown).astype(int), -1, 0)
    for i in range(parse_task(task).entities):
        away = np.abs((hue - round(256 * i / 6) + 128) % 256 - 128)
        labels, _ = ndimage.label((away < 12) & (saturation > 90))
        areas = np.bincount(labels.ravel())[1:]
        # The lower cube of a stack that need not be pushed is at its goal: the ball is inside.
        assert (areas > 250).sum() == (1 if task == "Stack" and i == 1 else 2)


def test_every_renderer_is_closed(opengl: None, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Watched(Picture):
        def close(self) -> None:
            closed.append(bool(self._renderers))
            super().close()

    monkeypatch.setattr(gallery, "Picture", Watched)
    gallery.scene("1-Push")
    assert closed == [True]


@pytest.mark.parametrize("figure", [gallery.tasks, gallery.teaser, gallery.stitching])
def test_without_opengl_the_error_says_what_to_install(
    figure: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no display")

    monkeypatch.setattr("mujoco.Renderer", broken)
    with pytest.raises(UserError, match=r"^rendering needs OpenGL .*libegl1.* \(no display\)$"):
        figure()


def test_without_pillow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UserError, match=r"efmdp\[video\]"):
        gallery.tasks()
