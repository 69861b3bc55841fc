"""The page that lists every call of the REST API: one HTML text that loads nothing else.

The usual page for an OpenAPI document loads its program from the internet, and is blank where there
is none. This one shows the paths and docstrings of the routers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from fastapi import APIRouter
from fastapi.routing import APIRoute

# The first parts of a path, so many, name its resource: /admin/v2/clusters.
RESOURCE_PARTS = 3
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}td{border-top:1px solid #ccc;padding:.3rem .6rem;"
    "vertical-align:top}td:first-child{width:4.5rem;font-weight:600}code{font-size:.9em}"
)
CODE = re.compile(r"``(.+?)``")


@dataclass(frozen=True, slots=True)
class Call:
    """One method of one path, with its handler's docstring."""

    path: str
    method: str
    words: str

    @property
    def resource(self) -> str:
        """The path that all calls about one kind of thing have in common."""
        return "/".join(self.path.split("/")[: RESOURCE_PARTS + 1])


def calls_of(routers: Iterable[APIRouter]) -> list[Call]:
    """Every call that the routers serve and document, sorted."""
    calls = [
        Call(route.path_format, method, route.description)
        for router in routers
        for route in router.routes
        # Without the framework's own routes, and those that answer with a refusal alone.
        if isinstance(route, APIRoute) and route.include_in_schema
        for method in route.methods or ()
    ]
    return sorted(calls, key=lambda call: (call.resource, call.path, call.method))


def render_api_page(title: str, introduction: str, calls: Sequence[Call]) -> str:
    """The page as HTML; ``introduction`` is a sentence about the calls."""
    sections = [
        f"<h2><code>{escape(resource)}</code></h2>\n<table>\n"
        f"{''.join(map(_row, of_resource))}</table>\n"
        for resource, of_resource in groupby(calls, key=lambda call: call.resource)
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n"
        f"<p>{escape(introduction, quote=False)} The same for programs: "
        '<a href="/openapi.json">openapi.json</a>.</p>\n'
        f"{''.join(sections)}</body>\n</html>\n"
    )


def _row(call: Call) -> str:
    path = f"<code>{escape(call.path)}</code>"
    # A browser can follow these: they need no name, and change nothing.
    if call.method == "GET" and "{" not in call.path:
        path = f'<a href="{escape(call.path)}">{path}</a>'
    words = CODE.sub(r"<code>\1</code>", escape(call.words))
    return f"<tr><td>{call.method}</td><td>{path}</td><td>{words}</td></tr>\n"
