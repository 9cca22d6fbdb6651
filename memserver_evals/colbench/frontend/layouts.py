"""Small web pages with hidden attributes, and what can be read of the attributes in a page's picture.

A layout is a header, an optional sidebar, a row of cards and a footer, at places that are agreed on.
`read_layout` looks at pixels only, so it reads anybody's page: what isn't where it should be is "none".
"""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Literal

from PIL import Image

from memserver_evals.colbench.frontend.examples import FrontendExample
from memserver_evals.colbench.frontend.rendering import Viewport

VIEWPORT = Viewport(640, 480, 480)
"""Of all generated pages."""
Sidebar = Literal["none", "left", "right"]
COLOURS: Mapping[str, tuple[int, int, int]] = {
    "white": (255, 255, 255),
    "black": (0, 0, 0),
    "gray": (128, 128, 128),
    "red": (220, 38, 38),
    "orange": (249, 115, 22),
    "yellow": (250, 204, 21),
    "green": (22, 163, 74),
    "teal": (13, 148, 136),
    "blue": (37, 99, 235),
    "purple": (147, 51, 234),
    "pink": (236, 72, 153),
    "brown": (120, 63, 4),
}
_BARS = ("black", "red", "orange", "green", "blue", "purple", "teal", "brown")
_PAGES = ("white", "yellow", "gray", "pink")
_CARDS = ("red", "orange", "green", "blue", "purple", "black")
_NOUNS = (
    "bakery", "library", "museum", "garden", "cinema", "hotel", "gym", "school", "clinic", "farm",
)  # fmt: skip
_HEADER, _FOOTER, _SIDEBAR, _GAP = 80, 60, 120, 16


@dataclass(frozen=True, slots=True)
class Layout:
    """What the human has in mind. The fields stand in the order in which differences stand out."""

    page: str = "white"
    header: str = "gray"
    sidebar: Sidebar = "none"
    cards: int = 1
    card: str = "teal"
    footer: str = "gray"

    def page_text(self) -> str:
        width = VIEWPORT.width - (_SIDEBAR if self.sidebar != "none" else 0)
        left = _SIDEBAR if self.sidebar == "left" else 0
        bottom = VIEWPORT.height - _FOOTER
        boxes = [
            _box(0, 0, VIEWPORT.width, _HEADER, self.header),
            _box(0, bottom, VIEWPORT.width, _FOOTER, self.footer),
        ]
        if self.sidebar != "none":
            side = 0 if self.sidebar == "left" else VIEWPORT.width - _SIDEBAR
            boxes.append(_box(side, _HEADER, _SIDEBAR, bottom - _HEADER, self.header))
        each = (width - _GAP * (self.cards + 1)) // self.cards
        boxes += [
            _box(left + _GAP + number * (each + _GAP), 140, each, 200, self.card)
            for number in range(self.cards)
        ]
        return (
            f'<html><body style="margin:0;background:{_css(self.page)}">{"".join(boxes)}'
            f'<h1 style="position:absolute;left:20px;top:4px;color:white">Welcome</h1></body></html>'
        )


def _css(colour: str) -> str:
    return "rgb({},{},{})".format(*COLOURS[colour])


def _box(left: int, top: int, width: int, height: int, colour: str) -> str:
    return (
        f'<div style="position:absolute;left:{left}px;top:{top}px;width:{width}px;'
        f'height:{height}px;background:{_css(colour)}"></div>'
    )


def read_layout(picture: bytes) -> Mapping[str, str | int]:
    """The attributes of a page's picture, by the names of `Layout`'s fields."""
    with Image.open(io.BytesIO(picture)) as opened:
        image = opened.convert("RGB")
    canvas = Image.new("RGB", (VIEWPORT.width, VIEWPORT.height), "white")
    canvas.paste(image, (0, 0))
    bottom = VIEWPORT.height - _FOOTER
    page = _main_colour(_row(canvas, 110, _SIDEBAR + 8, VIEWPORT.width - _SIDEBAR - 8))
    sides = {
        "left": _main_colour(_row(canvas, 390, 10, _SIDEBAR - 10)),
        "right": _main_colour(
            _row(canvas, 390, VIEWPORT.width - _SIDEBAR + 10, VIEWPORT.width - 10)
        ),
    }
    coloured = [side for side, colour in sides.items() if colour != page]
    sidebar = coloured[0] if len(coloured) == 1 else "none"
    start = _SIDEBAR if sidebar == "left" else 0
    end = VIEWPORT.width - (_SIDEBAR if sidebar == "right" else 0)
    cards = [run for run in _runs(_row(canvas, 240, start, end)) if run[0] != page and run[1] >= 20]
    return {
        "page": page,
        "header": _main_colour(_row(canvas, 70, 0, VIEWPORT.width)),
        "sidebar": sidebar,
        "cards": len(cards),
        "card": Counter(colour for colour, _ in cards).most_common(1)[0][0] if cards else "none",
        "footer": _main_colour(_row(canvas, bottom + 30, 0, VIEWPORT.width)),
    }


def _row(image: Image.Image, y: int, start: int, end: int) -> list[str]:
    known: dict[tuple[int, ...], str] = {}
    names = []
    for x in range(start, end):
        pixel = image.getpixel((x, y))
        if not isinstance(pixel, tuple):
            continue
        if pixel not in known:
            known[pixel] = min(
                COLOURS,
                key=lambda name: sum(
                    (a - b) ** 2 for a, b in zip(COLOURS[name], pixel, strict=True)
                ),
            )
        names.append(known[pixel])
    return names


def _main_colour(names: Sequence[str]) -> str:
    return Counter(names).most_common(1)[0][0]


def _runs(names: Sequence[str]) -> list[tuple[str, int]]:
    runs: list[tuple[str, int]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + 1)
        else:
            runs.append((name, 1))
    return runs


@dataclass(frozen=True, slots=True)
class LayoutTask:
    example: FrontendExample
    layout: Layout


def generate_layouts(split: str, count: int, *, seed: int = 0) -> tuple[LayoutTask, ...]:
    """So many pages of a split; each depends on seed, split and number alone.

    The description says where things are and none of the attributes; some attribute always differs
    from the plain page that an agent would begin with.
    """
    return tuple(_layout_task(f"{split}_{seed}_{number:05d}") for number in range(count))


def _layout_task(name: str) -> LayoutTask:
    chance = Random(f"layout {name}")
    page = chance.choice(_PAGES)
    layout = Layout(
        page=page,
        header=chance.choice(_BARS),
        sidebar=chance.choice(("none", "left", "right")),
        cards=chance.randint(2, 4),
        card=chance.choice(_CARDS),
        footer=chance.choice(_BARS),
    )
    noun = chance.choice(_NOUNS)
    description = (
        f"I want a web page of 640 x 480 pixels for a {noun}: a header of 80 pixels that says Welcome, a footer of 60 at "
        "the bottom, and a row of cards of one colour between them. There may be a sidebar of 120 pixels at one side, "
        "in the header's colour."
    )
    example = FrontendExample(f"layout_{name}", description, layout.page_text(), "layout")
    return LayoutTask(example, layout)


def attributes(layout: Layout) -> Mapping[str, str | int]:
    return asdict(layout)
