"""Diagrams for a page, as inline SVG: the decision process and two networks over sets.

Lines and text have the colour of the text around them; the page may set --accent, --accent-2 and --soft, and the
colours without them do on light and on dark pages. Drawn for a column of 340 pixels, a phone's.
"""

# ruff: noqa: RUF001 - Greek letters are meant

import math
import re

ACCENT, ACCENT_2 = "var(--accent, #3f86c6)", "var(--accent-2, #d9772b)"
SOFT = "var(--soft, rgba(128, 128, 128, .16))"
STYLE = "display:block;width:100%;height:auto;max-width:30rem;margin:0 auto"
SERIF = "Georgia, Times New Roman, serif"

WIDTH = 340
MIDDLE = WIDTH // 2
COLUMNS = (("1", 46), ("2", 146), ("N", 294))  # entities and where they stand
DOTS = 220  # where those between them would


def _svg(title: str, height: int, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {height}" style="{STYLE}" '
        f'font-family="system-ui, sans-serif" font-size="15" fill="currentColor">'
        f"<title>{title}</title>{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'


def _formula(formula: str, size: int = 19) -> str:
    """Within a text, in italics; an underscore lowers the letter after it.

    >>> re.findall(r'dy="(.*?)".*?>(.*?)<', _formula("e_1, u"))
    [('0', 'e'), ('4', '1'), ('-4', ', u')]
    """
    spans = []
    for i, part in enumerate(re.split(r"_(\w)", formula)):  # every second part is a subscript
        if i % 2:
            spans.append(f'<tspan dy="4" font-size="13">{part}</tspan>')
        elif part:
            spans.append(f'<tspan dy="{-4 if i else 0}">{part}</tspan>')  # browsers do not agree on baseline-shift
    return f'<tspan font-family="{SERIF}" font-style="italic" font-size="{size}">{"".join(spans)}</tspan>'


def _box(x: float, y: float, width: float, height: float, color: str = "currentColor", more: str = "") -> str:
    """Centred at x, from y down."""
    return (
        f'<rect x="{x - width / 2}" y="{y}" width="{width}" height="{height}" rx="8" fill="{SOFT}" '
        f'stroke="{color}" stroke-width="1.5" {more}/>'
    )


def _circle(x: float, y: float, radius: float, color: str, fill: str = SOFT) -> str:
    return (
        f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{fill}" fill-opacity="{1 if fill == SOFT else 0.25}" '
        f'stroke="{color}" stroke-width="1.5"/>'
    )


def _cube(x: float, y: float) -> str:
    return (
        f'<path d="M{x} {y - 24}l22 11v26l-22 11l-22 -11v-26z" fill="{ACCENT}" fill-opacity="0.25" '
        f'stroke="{ACCENT}" stroke-width="1.5" stroke-linejoin="round"/>'
    )


def _near(x: float, y: float, to_x: float, to_y: float, distance: float) -> tuple[float, float]:
    """The point that far from (x, y), towards the other one."""
    share = distance / math.hypot(to_x - x, to_y - y)
    return round(x + share * (to_x - x), 1), round(y + share * (to_y - y), 1)


def _line(x: float, y: float, to_x: float, to_y: float, color: str = "currentColor") -> str:
    return f'<path d="M{x} {y}L{to_x} {to_y}" stroke="{color}" stroke-width="1.5"/>'


def _arrow(x: float, y: float, to_x: float, to_y: float, color: str = "currentColor") -> str:
    """The head is drawn too: a marker would need an id of which there is no other on the page."""
    angle = math.degrees(math.atan2(to_y - y, to_x - x))
    head = f'<path d="M0 0L-8 4V-4Z" transform="translate({to_x} {to_y}) rotate({angle:.1f})" fill="{color}"/>'
    return _line(x, y, *_near(to_x, to_y, x, y, 5), color) + head


def _exchange(x: float, y: float, reach: float) -> str:
    return _arrow(x, y, x - reach, y, ACCENT_2) + _arrow(x, y, x + reach, y, ACCENT_2)


def _dots(y: float) -> str:
    return "".join(f'<circle cx="{DOTS + d}" cy="{y}" r="2"/>' for d in (-9, 0, 9))


def _inputs(first: str) -> list[str]:
    """What a network sees of each entity, and what it does to each first; to 122 down."""
    parts = [_dots(46), _dots(105)]
    for name, x in COLUMNS:
        parts += [
            _text(x, 20, _formula(f"y_{name}")),
            _box(x, 30, 88, 32),
            _text(x, 51, _formula(f"u, e_{name}, g_{name}", 17)),
            _arrow(x, 62, x, 88),
            _box(x, 88, 70, 34, ACCENT),
            _text(x, 110, first),
        ]
    return parts


def _outputs(y: float, last: str) -> list[str]:
    """From the columns, which end at y, to the action; 206 high."""
    middle = y + 74
    parts = [_arrow(x, y, *_near(MIDDLE, middle, x, y, 24)) for _, x in COLUMNS]
    return [
        *parts,
        _circle(MIDDLE, middle, 22, ACCENT_2),
        _text(MIDDLE, middle + 8, '<tspan font-size="22">Σ</tspan>'),
        _text(MIDDLE + 32, middle + 4, "sum: any order,", "start"),
        _text(MIDDLE + 32, middle + 23, "any number", "start"),
        _arrow(MIDDLE, middle + 22, MIDDLE, middle + 46),
        _box(MIDDLE, middle + 46, 88, 34, ACCENT),
        _text(MIDDLE, middle + 68, last),
        _arrow(MIDDLE, middle + 80, MIDDLE, middle + 104),
        _text(MIDDLE, middle + 122, f"action {_formula('a')}"),
    ]


def _efmdp() -> str:
    agent, top, reward = 30, 96, 290
    parts = [
        _circle(MIDDLE, agent, 24, ACCENT),
        _text(MIDDLE, agent + 6, _formula("u")),
        _text(MIDDLE - 34, agent + 5, "agent", "end"),
        _arrow(252, agent, MIDDLE + 26, agent),
        _text(258, agent + 5, f"action {_formula('a')}", "start"),
    ]
    for name, x in COLUMNS:
        parts += [
            _line(*_near(MIDDLE, agent, x, top, 24), x, top),
            _box(x, top, 76, 122),
            _cube(x, top + 32),
            _text(x, top + 37, _formula(f"e_{name}")),
            _arrow(x, top + 56, x, top + 76),
            _circle(x, top + 96, 19, ACCENT_2, ACCENT_2),
            _text(x, top + 101, _formula(f"g_{name}")),
            _arrow(x, top + 122, x, top + 146),
            _text(x, top + 166, _formula("r̃")),
            _arrow(x, top + 173, x, reward),
        ]
    parts += [
        _dots(top + 32),
        _dots(top + 161),
        _exchange(96, top + 64, 11),
        _exchange(DOTS, top + 64, 35),
        _box(MIDDLE, reward, 332, 36),
        _text(MIDDLE, reward + 23, f"reward {_formula('r')} = aggregate of {_formula('r̃(e_i, g_i, u)', 18)}"),
        _exchange(16, reward + 59, 12),
        _text(36, reward + 64, "Exchange entities and their subgoals:", "start"),
        _text(36, reward + 84, "dynamics and reward stay the same.", "start"),
        _text(36, reward + 112, _formula("P(σs′ | σs, a) = P(s′ | s, a)", 17), "start"),
        _text(36, reward + 137, _formula("r(σs, σg) = r(s, g)", 17), "start"),
    ]
    return _svg("An Entity-Factored MDP: an agent, and entities with a subgoal each, in any order", 440, parts)


def _deep_sets() -> str:
    bottom = 154
    shared = _box(MIDDLE, 78, 338, bottom - 78, ACCENT, 'fill-opacity="0" stroke-dasharray="4 4"')
    return _svg(
        "Deep Sets: the same φ for every entity, the sum of the results, ρ, and the action",
        bottom + 206,
        [
            *_inputs(_formula("φ", 21)),
            shared,
            _text(MIDDLE, bottom - 11, f"the same {_formula('φ')} for every entity"),
            *_outputs(bottom, _formula("ρ", 21)),
        ],
    )


def _self_attention() -> str:
    top, before, after, bottom = 144, 166, 228, 294  # of the block, and of the entities in it
    parts = [_box(MIDDLE, top, 336, bottom - top)]
    for _, x in COLUMNS:
        parts.append(_arrow(x, 122, x, before - 9))
        parts += [_line(x, before + 8, other, after - 8, ACCENT) for _, other in COLUMNS]
        parts += [_circle(x, y, 8, ACCENT, ACCENT) for y in (before, after)]
    return _svg(
        "Self-Attention: an embedding of every entity, two transformer blocks, the sum, a linear layer, and the action",
        bottom + 206,
        [
            *_inputs("embed"),
            *parts,
            _dots(before),
            _dots(after),
            _text(MIDDLE, bottom - 34, "transformer block × 2:"),
            _text(MIDDLE, bottom - 13, "every entity attends to all"),
            *_outputs(bottom, "linear"),
        ],
    )


EFMDP = _efmdp()
DEEP_SETS = _deep_sets()
SELF_ATTENTION = _self_attention()
