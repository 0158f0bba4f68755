"""Cost against size: what was measured of a dimension, its slope on a log scale, a table and a picture of it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Figures = Mapping[str, float]
WIDTH, HEIGHT, MARGIN, GAP = 420, 260, 48, 24
COLOURS: Final = ("#176b2c", "#b3261e", "#1f5fa8", "#8a5a00", "#6a3d9a")
_LEAST: Final = 1e-4  # what is less is shown as this


@dataclass(frozen=True, slots=True)
class Dimension:
    """What grows.

    Attributes
    ----------
    sizes : with which it is measured, from the smallest on.
    measure : figures of one size, by name; a name ends in its unit (`_s`, `_ms`, `_mb`, `_statements`, `_bytes`).
    most : the slope up to which each of these figures may grow: 1 is in proportion to the size, 0 not at all. The
        others are only shown.
    """

    name: str
    sizes: tuple[int, ...]
    measure: Callable[[int], Figures]
    most: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Curve:
    """A dimension as it was measured."""

    dimension: Dimension
    points: tuple[tuple[int, Figures], ...]

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(name for _, figures in self.points for name in figures))

    def values(self, name: str) -> list[tuple[int, float]]:
        return [(size, figures[name]) for size, figures in self.points if name in figures]

    def slope(self, name: str) -> float | None:
        """Between the two largest sizes, where what does not grow weighs least; None if there is one size."""
        values = self.values(name)[-2:]
        if len(values) < 2:
            return None
        (size, before), (larger, after) = values
        return math.log(max(after, _LEAST) / max(before, _LEAST)) / math.log(larger / size)

    def defects(self, tolerance: float) -> list[str]:
        """The figures that grow faster than they may."""
        found = []
        for name, most in self.dimension.most.items():
            slope = self.slope(name)
            if slope is not None and slope > most + tolerance:
                found.append(f"{self.dimension.name}: {name} grows with slope {slope:.2f}, at most {most:g}")
        return found


def measured(dimension: Dimension, told: Callable[[str], None]) -> Curve:
    """Each size, one after the other."""
    points = []
    for size in dimension.sizes:
        figures = dimension.measure(size)
        told(f"{dimension.name} {size:,}: " + " ".join(f"{name}={value:g}" for name, value in figures.items()))
        points.append((size, figures))
    return Curve(dimension, tuple(points))


def table(curves: Sequence[Curve]) -> str:
    """As Markdown: a line a dimension, with the figures of its largest size, and the slope of each in brackets."""
    lines = ["| up to | figures (slope) |", "| --- | --- |"]
    for curve in curves:
        size, figures = curve.points[-1]
        shown = ", ".join(f"{name} {_cell(value)}{_slope(curve.slope(name))}" for name, value in figures.items())
        lines.append(f"| {size:,} {curve.dimension.name} | {shown} |")
    return "\n".join(lines)


def _slope(slope: float | None) -> str:
    return "" if slope is None else f" ({slope:.2f})"


def svg(curves: Sequence[Curve]) -> str:
    """One panel a dimension, both axes logarithmic, two panels a row."""
    panels = [_panel(curve, number) for number, curve in enumerate(curves)]
    width, height = 2 * (WIDTH + GAP), math.ceil(len(curves) / 2) * (HEIGHT + GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11">\n<rect width="{width}" height="{height}" fill="#fff"/>\n' + "\n".join(panels) + "\n</svg>\n"
    )


def _cell(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _panel(curve: Curve, number: int) -> str:
    left, top = (number % 2) * (WIDTH + GAP) + MARGIN, (number // 2) * (HEIGHT + GAP) + MARGIN / 2
    across, down = WIDTH - MARGIN - GAP, HEIGHT - 2 * MARGIN
    sizes = [size for size, _ in curve.points]
    every = [max(value, _LEAST) for name in curve.names for _, value in curve.values(name)]
    x_range, y_range = _decades(sizes), _decades(every)

    def place(size: float, value: float) -> tuple[float, float]:
        x = left + across * _share(size, x_range)
        return round(x, 1), round(top + down * (1 - _share(max(value, _LEAST), y_range)), 1)

    parts = [f'<text x="{left}" y="{top - 8}" font-weight="bold">{curve.dimension.name}</text>']
    for exponent in range(y_range[0], y_range[1] + 1):
        _, y = place(1, 10.0**exponent)
        parts.append(f'<line x1="{left}" y1="{y}" x2="{left + across}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{10.0**exponent:g}</text>')
    for size in sizes:
        x, _ = place(size, 1.0)
        parts.append(f'<text x="{x}" y="{top + down + 14}" text-anchor="middle">{size:,}</text>')
    for order, name in enumerate(curve.names):
        colour = COLOURS[order % len(COLOURS)]
        points = [place(size, value) for size, value in curve.values(name)]
        line = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points]
        across_legend = left + (order % 3) * across / 3
        down_legend = top + down + 28 + (order // 3) * 13
        parts.append(f'<text x="{across_legend:.0f}" y="{down_legend}" fill="{colour}">{name}</text>')
    return "\n".join(parts)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _share(value: float, decades: tuple[int, int]) -> float:
    return (math.log10(value) - decades[0]) / (decades[1] - decades[0])
