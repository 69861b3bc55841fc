"""Charts as inline SVG, without a library, a script or a network. Pure.

They take their colours from the page (``report.STYLE``), so that they follow its light or dark
theme. Each mark has a ``<title>``: browsers show it where the mouse is.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

# In units of the SVG, which the page scales to its own width. Text in an SVG does not tell its
# width before it is drawn, so there is a fixed room for labels.
WIDTH = 720
LABEL_WIDTH = 170
ROW_HEIGHT = 22
PLOT_HEIGHT = 240
MARGIN_LEFT, MARGIN_BOTTOM, MARGIN_TOP = 64, 34, 16
TICKS = 5  # parts of the vertical axis; ``_round_up`` makes them round

# In the units of the series, not of the drawing: each chart scales them itself.
Point = tuple[float, float]


def bars(rows: Sequence[tuple[str, float]], unit: str = "") -> str:
    """Horizontal bars, one for each row, in the given order."""
    widest = max((value for _, value in rows), default=0) or 1
    room = WIDTH - LABEL_WIDTH - 96  # the value is printed behind its bar
    marks: list[str] = []
    for number, (label, value) in enumerate(rows):
        top = number * ROW_HEIGHT
        length = max(1.0, room * value / widest)  # a bar that is too small to see has a pixel
        words = f"{shown(value)}{unit}"
        marks.append(
            f"<g><title>{escape(label)}: {words}</title>"
            f'<text class="label" x="{LABEL_WIDTH - 8}" y="{top + 15}">{escape(label)}</text>'
            f'<rect class="bar" x="{LABEL_WIDTH}" y="{top + 3}" rx="2" '
            f'width="{length:.1f}" height="{ROW_HEIGHT - 6}"/>'
            f'<text class="value" x="{LABEL_WIDTH + length + 6:.1f}" y="{top + 15}">{words}</text>'
            "</g>"
        )
    return _svg(len(rows) * ROW_HEIGHT, marks)


def histogram(
    counts: Sequence[tuple[int, int]], x_name: str, marks: Sequence[tuple[int, str]] = ()
) -> str:
    """A column for each value that was counted; ``marks`` are named lines at values."""
    if not counts:
        return _svg(PLOT_HEIGHT, [])
    # The query has sorted them.
    first, last = counts[0][0], counts[-1][0]
    # Columns are as wide as the smallest distance of two values: absent values leave gaps.
    step = min((b[0] - a[0] for a, b in itertools.pairwise(counts)), default=1)
    # The scale begins at 0: columns would lie about their proportions otherwise.
    high = _round_up(max(count for _, count in counts))
    width = (WIDTH - MARGIN_LEFT) / (last - first + step)

    def x_of(value: float) -> float:
        return MARGIN_LEFT + (value - first) * width

    drawn = _scale(high)
    for value, count in counts:
        height = PLOT_HEIGHT * count / high
        drawn.append(
            f'<rect class="bar" x="{x_of(value):.1f}" y="{MARGIN_TOP + PLOT_HEIGHT - height:.1f}" '
            f'width="{max(width * step - 0.6, 0.6):.1f}" height="{height:.1f}">'
            f"<title>{value}: {shown(count)}</title></rect>"
        )
    for value, name in marks:
        x = x_of(value + step)  # at the right edge of the value's column
        drawn.append(
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{MARGIN_TOP}" '
            f'y2="{MARGIN_TOP + PLOT_HEIGHT}"/>'
            f'<text class="tick" x="{x + 3:.1f}" y="{MARGIN_TOP + 9}">{escape(name)}</text>'
        )
    drawn += _below([(x_of(value), shown(value)) for value in _round_steps(first, last)], x_name)
    return _svg(PLOT_HEIGHT + MARGIN_TOP + MARGIN_BOTTOM, drawn)


def lines(series: Sequence[tuple[str, Sequence[Point]]], x_name: str) -> str:
    """A line for each named series of points; all have the same axes."""
    points = [point for _, each in series for point in each]
    if not points:
        return _svg(PLOT_HEIGHT, [])
    last = max(x for x, _ in points) or 1.0
    # Both axes begin at 0, and end at what the longest series needs.
    high = _round_up(max(y for _, y in points))
    room = WIDTH - MARGIN_LEFT - 10

    def place(point: Point) -> Point:
        x, y = point
        return MARGIN_LEFT + room * x / last, MARGIN_TOP + PLOT_HEIGHT * (1 - y / high)

    drawn = _scale(high)
    for number, (name, each) in enumerate(series):
        # A tenth of a unit is finer than a pixel, and keeps the page small.
        path = " ".join("{:.1f},{:.1f}".format(*place(point)) for point in each)
        drawn.append(f'<polyline class="line s{number}" points="{path}"/>')
        for point in each:
            x, y = place(point)
            words = f"{escape(name)}: {shown(point[1])} at {shown(point[0])} s"
            drawn.append(
                f'<circle class="dot s{number}" cx="{x:.1f}" cy="{y:.1f}" r="2.5">'
                f"<title>{words}</title></circle>"
            )
        drawn.append(
            f'<text class="name s{number}" x="{WIDTH - 12}" y="{MARGIN_TOP + 14 + 16 * number}">'
            f"{escape(name)}</text>"
        )
    seconds = [(place((value, 0))[0], shown(value)) for value in _round_steps(0, last)]
    return _svg(PLOT_HEIGHT + MARGIN_TOP + MARGIN_BOTTOM, drawn + _below(seconds, x_name))


def shown(value: float) -> str:
    """A number for people: 1,234,567 or 0.25."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _svg(height: float, marks: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img">{"".join(marks)}</svg>'


def _scale(high: float) -> list[str]:
    """Horizontal lines at round numbers, with the numbers beside them."""
    drawn: list[str] = []
    for tick in range(TICKS + 1):
        y = MARGIN_TOP + PLOT_HEIGHT * (1 - tick / TICKS)
        drawn.append(
            f'<line class="grid" x1="{MARGIN_LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="label tick" x="{MARGIN_LEFT - 6}" y="{y + 4:.1f}">'
            f"{shown(high * tick / TICKS)}</text>"
        )
    return drawn


def _below(places: Sequence[tuple[float, str]], name: str) -> list[str]:
    # The baseline of the text: below the lowest line of the grid.
    y = MARGIN_TOP + PLOT_HEIGHT + 15
    ticks = [f'<text class="middle tick" x="{x:.1f}" y="{y}">{words}</text>' for x, words in places]
    middle = (WIDTH + MARGIN_LEFT) / 2
    return [*ticks, f'<text class="middle tick" x="{middle}" y="{y + 15}">{escape(name)}</text>']


def _round_up(value: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten, so that five parts of it are round too."""
    # The largest power of ten that is not above the value.
    power = 10.0 ** floor(log10(value)) if value > 0 else 1.0
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= value)


def _round_steps(first: float, last: float) -> list[float]:
    """Round numbers from ``first`` to ``last``, evenly spaced, nine at most."""
    step = _round_up((last - first) / 8) if last > first else 1
    return [step * number for number in range(ceil(first / step), floor(last / step) + 1)]
