"""The figures as a table for people: medians, the spread of the rounds, budgets, the peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from figures import REPORTED, Reported, Rounds


def table(results: Mapping[str, Rounds]) -> str:
    """A text table of what was measured; ``results`` by name, ours first, then the peer if any."""
    ours, *peers = results
    header = ["", ours, "", "rounds", "must", "aims at", ""]
    for peer in peers:
        header += [peer, f"{ours}/{peer}"]
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
        theirs = reported.values(peer)
        if theirs:
            cells += [_number(median(theirs)), f"{middle / median(theirs):.2f}"]
        else:
            cells += ["", ""]
    noise = reported.other_cores(ours)
    cells.append("" if noise is None else f"{noise:.2f}")
    return cells


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
