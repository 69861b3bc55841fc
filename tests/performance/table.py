"""The figures as a table for people: medians, the spread of the rounds, budgets, the peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from tests.performance.figures import REPORTED, Reported, Rounds


def table(results: Mapping[str, Rounds]) -> str:
    """A text table of what was measured; ``results`` by name, ours first, then the peer if any."""
    ours, *peers = results
    header = ["", ours, "", "rounds", "must", "aims at", ""]
    for peer in peers:
        header += [peer, f"{ours}/{peer}", "at most", ""]
    header.append("others' cores")
    rows = [_row(each, results) for each in REPORTED if each.values(results[ours])]
    return _aligned([header, *rows])


def _row(reported: Reported, results: Mapping[str, Rounds]) -> list[str]:
    ours, *peers = results.values()
    values = reported.values(ours)
    middle = median(values)
    cells = [reported.title, _number(middle), reported.unit, _spread(values)]
    if reported.budget is None:
        cells += ["", "", ""]
    else:
        must, aims_at = reported.budget.must, reported.budget.aims_at
        aim = "" if aims_at is None else f"{aims_at:g}"
        cells += [f"{must:g}", aim, reported.budget.verdict(middle)]
    for peer in peers:
        cells += _beside(reported, middle, reported.values(peer))
    noise = reported.other_cores(ours)
    cells.append("" if noise is None else f"{noise:.2f}")
    return cells


def _beside(reported: Reported, middle: float, theirs: Sequence[float]) -> list[str]:
    """The peer's figure, the ratio to it, and what the budget says of that."""
    if not theirs:
        return ["", "", "", ""]
    ratio = middle / median(theirs)
    cells = [_number(median(theirs)), f"{ratio:.2f}"]
    ratio_max = reported.budget.ratio_max if reported.budget else None
    if ratio_max is None:
        return [*cells, "", ""]
    return [*cells, f"{ratio_max:.2f}", "met" if ratio <= ratio_max else "MISSED"]


def _spread(values: Sequence[float]) -> str:
    return f"{_number(min(values))}..{_number(max(values))}" if len(values) > 1 else ""


def _number(value: float) -> str:
    """Three digits that count, and no more decimals than a reader needs."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Words to the left, numbers to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    is_word = [not any(cell[:1].isdigit() for cell in column) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if word else cell.rjust(width)
            for cell, width, word in zip(row, widths, is_word, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join(lines)
