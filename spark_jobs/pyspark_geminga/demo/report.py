"""The demo's report: one HTML file that needs nothing besides itself. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# Colours as variables: charts use them by class, so that they follow the theme without a script.
# Class names are those that ``charts`` writes.
STYLE = """
:root { --page: #fff; --ink: #1c1e21; --soft: #6a7078; --grid: #e4e6ea; --bar: #3b6fd4;
  --other: #d9822b; --card: #f6f7f9; }
@media (prefers-color-scheme: dark) { :root { --page: #16181c; --ink: #e8eaed; --soft: #9aa0a8;
  --grid: #2c3036; --bar: #6f9bf0; --other: #f0a860; --card: #1e2126; } }
body { background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  margin: 2rem auto; max-width: 760px; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .2rem; }
p { color: var(--soft); margin: .2rem 0 .8rem; }
.figures { display: grid; gap: .6rem; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
.figures div { background: var(--card); border-radius: 6px; padding: .6rem .8rem; }
.figures b { display: block; font-size: 1.25rem; } .figures span { color: var(--soft); }
svg { display: block; height: auto; width: 100%; }
svg text { fill: var(--ink); font: 11px system-ui, sans-serif; }
svg .label, svg .name { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .tick, svg .value { fill: var(--soft); }
svg .bar { fill: var(--bar); } svg .grid { stroke: var(--grid); }
svg .mark { stroke: var(--other); stroke-dasharray: 3 3; }
svg .line { fill: none; stroke: var(--bar); stroke-width: 1.6; } svg .dot { fill: var(--bar); }
svg .line.s1 { stroke: var(--other); } svg .dot.s1, svg .name.s1 { fill: var(--other); }
svg .name.s0 { fill: var(--bar); }
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, a sentence on what is seen, and an SVG of ``charts``."""

    title: str
    words: str
    chart: str


def page(
    title: str, words: str, figures: Sequence[tuple[str, str]], sections: Sequence[Section]
) -> str:
    """The whole document. ``figures`` are numbers and what they count."""
    # Everything that comes from files on this machine is escaped; charts are already.
    tiles = "".join(
        f"<div><b>{escape(number)}</b><span>{escape(what)}</span></div>" for number, what in figures
    )
    parts = "".join(
        f"<section><h2>{escape(each.title)}</h2><p>{escape(each.words)}</p>{each.chart}</section>\n"
        for each in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f'<body><h1>{escape(title)}</h1><p>{escape(words)}</p><div class="figures">{tiles}</div>\n'
        f"{parts}</body></html>\n"
    )
