"""Proves that charts are well-formed, to scale, and tell their numbers."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from pyspark_geminga.demo.charts import PLOT_HEIGHT, bars, histogram, lines, shown


def marks(chart: str, name: str) -> list[ET.Element]:
    """The elements of a class."""
    return [each for each in ET.fromstring(chart).iter() if name in each.get("class", "").split()]


def test_bars_are_as_long_as_their_numbers() -> None:
    chart = bars([("a & b", 400.0), ("<c>", 100.0), ("none", 0.0)], " %")
    widths = [float(each.get("width", "")) for each in marks(chart, "bar")]
    assert widths[1] == pytest.approx(widths[0] / 4, abs=0.1)
    assert widths[2] == 1.0
    assert [each.text for each in marks(chart, "label")] == ["a & b", "<c>", "none"]
    assert [each.text for each in marks(chart, "value")] == ["400 %", "100 %", "0 %"]


def test_a_histogram_has_a_column_for_each_value_and_round_numbers_beside_it() -> None:
    chart = histogram([(1, 10), (2, 480), (4, 240)], "characters", [(2, "two")])
    heights = [float(each.get("height", "")) for each in marks(chart, "bar")]
    assert heights == pytest.approx([PLOT_HEIGHT * n / 500 for n in (10, 480, 240)], abs=0.1)
    ticks = [each.text for each in marks(chart, "tick")]
    assert ticks[:6] == ["0", "100", "200", "300", "400", "500"]
    assert "two" in ticks
    assert len(marks(chart, "mark")) == 1


def test_lines_share_an_axis() -> None:
    chart = lines([("in", [(0, 0), (10, 100)]), ("out", [(0, 0), (20, 50)])], "seconds")
    first, second = (each.get("points", "").split()[-1] for each in marks(chart, "line"))
    (x_of_10, y_of_100), (x_of_20, y_of_50) = (map(float, p.split(",")) for p in (first, second))
    assert x_of_10 - 64 == pytest.approx((x_of_20 - 64) / 2, abs=0.1)
    assert y_of_50 - y_of_100 == pytest.approx(PLOT_HEIGHT / 2, abs=0.1)


def test_nothing_to_draw_is_an_empty_chart() -> None:
    for chart in (bars([]), histogram([], "x"), lines([("none", [])], "x")):
        assert not list(ET.fromstring(chart).iter("rect"))


@pytest.mark.parametrize(
    ("value", "words"), [(1234567, "1,234,567"), (99.96, "100"), (0.25, "0.25"), (7.0, "7")]
)
def test_numbers_are_for_people(value: float, words: str) -> None:
    assert shown(value) == words
