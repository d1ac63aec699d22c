import re
from xml.etree import ElementTree

import pytest

from efmdp.diagrams import DEEP_SETS, EFMDP, SELF_ATTENTION

SVG = "{http://www.w3.org/2000/svg}"
PAGE_COLOR = re.compile(r"none|currentColor|var\(--(accent|accent-2|soft), [^()]+(\([^()]+\))?\)")
every_diagram = pytest.mark.parametrize(
    "diagram", [EFMDP, DEEP_SETS, SELF_ATTENTION], ids=["efmdp", "deep-sets", "self-attention"]
)


def read(diagram: str) -> list[str]:
    """Its lines of text, without the title."""
    return ["".join(text.itertext()) for text in ElementTree.fromstring(diagram).iter(f"{SVG}text")]


@every_diagram
def test_it_is_an_image_with_a_title_as_wide_as_its_place(diagram: str) -> None:
    root = ElementTree.fromstring(diagram)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root[0].tag == f"{SVG}title"
    assert root[0].text
    assert "width:100%" in root.attrib["style"]
    assert not {"width", "height"} & set(root.attrib)


@every_diagram
def test_all_colors_are_the_pages(diagram: str) -> None:
    root = ElementTree.fromstring(diagram)
    assert root.get("fill") == "currentColor"
    for element in root.iter():
        assert "color" not in element.get("style", "")
        for use in ("fill", "stroke"):
            assert PAGE_COLOR.fullmatch(element.get(use, "none"))
        if element.tag in (f"{SVG}text", f"{SVG}tspan"):
            assert not {"fill", "stroke", "opacity", "class", "style"} & set(element.attrib)


@every_diagram
def test_several_stand_on_one_page(diagram: str) -> None:
    """Nothing in one of them refers by id to what another might have, and none of them styles the others."""
    for element in ElementTree.fromstring(diagram).iter():
        assert "id" not in element.attrib
        assert element.tag != f"{SVG}style"


@every_diagram
def test_nothing_reaches_over_the_edge(diagram: str) -> None:
    root = ElementTree.fromstring(diagram)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    seen = 0
    for element in root.iter():
        at = {name: float(value) for name, value in element.attrib.items() if re.fullmatch(r"-?[\d.]+", value)}
        match element.tag.removeprefix(SVG):
            case "rect":
                box = at["x"], at["y"], at["x"] + at["width"], at["y"] + at["height"]
            case "circle":
                box = at["cx"] - at["r"], at["cy"] - at["r"], at["cx"] + at["r"], at["cy"] + at["r"]
            case "text":
                box = at["x"], at["y"] - 15, at["x"], at["y"] + 5
            case _:
                continue
        seen += 1
        assert box[0] >= 0
        assert box[1] >= 0
        assert box[2] <= width
        assert box[3] <= height
    assert seen > 10


@every_diagram
def test_text_can_be_read_on_a_phone(diagram: str) -> None:
    width = float(ElementTree.fromstring(diagram).attrib["viewBox"].split()[2])
    sizes = [float(size) for size in re.findall(r'font-size="(.+?)"', diagram)]
    assert min(sizes) * 328 / width >= 12.5  # subscripts, on 360 pixels with margins
    assert sizes[0] * 328 / width >= 14


def test_the_decision_process_names_its_parts() -> None:
    lines = read(EFMDP)
    assert {"u", "e1", "e2", "eN", "g1", "g2", "gN", "agent", "action a"} <= set(lines)
    assert lines.count("r̃") == 3
    assert "reward r = aggregate of r̃(ei, gi, u)" in lines
    assert "dynamics and reward stay the same." in lines


@pytest.mark.parametrize(
    ("diagram", "first", "last"),
    [(DEEP_SETS, "φ", "ρ"), (SELF_ATTENTION, "embed", "linear")],  # noqa: RUF001
)
def test_a_network_goes_from_all_entities_to_one_action(diagram: str, first: str, last: str) -> None:
    lines = read(diagram)
    for name in "12N":
        assert lines.index(f"y{name}") < lines.index(f"u, e{name}, g{name}") < lines.index("Σ")
    assert lines.count(first) == 3
    assert lines.index(first) < lines.index("Σ") < lines.index(last) < lines.index("action a")
    assert lines.count("Σ") == lines.count(last) == lines.count("action a") == 1


def test_what_tells_the_networks_apart() -> None:
    assert "the same φ for every entity" in read(DEEP_SETS)
    assert {"transformer block × 2:", "every entity attends to all"} <= set(read(SELF_ATTENTION))  # noqa: RUF001
