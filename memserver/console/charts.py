"""The geometry of pictures that templates draw as SVG, without a script and without inline styles."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

WIDE = 1000.0
"""Of a bar, in units of its picture."""
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Segment:
    name: str
    value: float
    x: float
    width: float


def stacked(values: Mapping[str, float], whole: float | None = None) -> list[Segment]:
    """One bar of all values, in their order; of `whole`, where that is more, the rest stays free."""
    whole = max(sum(values.values()), whole or 0.0) or 1.0
    made: list[Segment] = []
    x = 0.0
    for name, value in values.items():
        width = WIDE * value / whole
        made.append(Segment(name, value, round(x, 2), round(width, 2)))
        x += width
    return made


@dataclass(frozen=True, slots=True)
class Frame:
    """What part of the plane a picture shows, and how large it is drawn."""

    left: float
    right: float
    low: float
    high: float
    width: float = 320.0
    height: float = 120.0

    @classmethod
    def around(cls, lines: Iterable[Sequence[Point]], *, width: float, height: float) -> "Frame":
        """All points of the lines, with a little room above and below."""
        points = [point for line in lines for point in line] or [(0.0, 0.0)]
        xs, ys = [x for x, _ in points], [y for _, y in points]
        room = (max(ys) - min(ys)) * 0.05 or abs(max(ys)) * 0.05 or 1.0
        return cls(min(xs), max(xs), min(ys) - room, max(ys) + room, width, height)

    def x(self, value: float) -> float:
        share = (value - self.left) / ((self.right - self.left) or 1.0)
        return round(self.width * min(max(share, 0.0), 1.0), 2)

    def y(self, value: float) -> float:
        return round(self.height * (1 - (value - self.low) / ((self.high - self.low) or 1.0)), 2)

    def line(self, points: Iterable[Point]) -> str:
        return " ".join(f"{self.x(x)},{self.y(y)}" for x, y in points)


@dataclass(frozen=True, slots=True)
class Bar:
    """One of a row of bars: where it is, and what it says when it is pointed at."""

    x: float
    y: float
    width: float
    height: float
    label: str


def row_of_bars(
    values: Sequence[float], labels: Sequence[str], *, width: float = 600.0, height: float = 80.0
) -> list[Bar]:
    """A bar for each value; the largest one is as high as the picture."""
    most = max(values, default=0.0) or 1.0
    step = width / (len(values) or 1)
    return [
        Bar(
            round(number * step + 0.1 * step, 2),
            round(height - height * value / most, 2),
            round(0.8 * step, 2),
            round(height * value / most, 2),
            label,
        )
        for number, (value, label) in enumerate(zip(values, labels, strict=True))
    ]


def seconds(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 0.001:
        return f"{value * 1_000_000:.0f} \u00b5s"
    if value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s" if value < 120 else f"{value / 60:.3g} min"


def short(value: float) -> str:
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.2e}"
    return f"{value:.4g}"
