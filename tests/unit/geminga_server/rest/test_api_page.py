"""The page of the API lists every call, and needs nothing that is not in it."""

from __future__ import annotations

from html.parser import HTMLParser

from fastapi import FastAPI

from geminga_server.rest.api_page import Call, calls_of, render_api_page

VOID = {"meta"}


class Page(HTMLParser):
    """What a browser finds: links, texts, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.elements: set[str] = set()
        self.rows: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag == "tr":
            self.rows.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "tr" in self.open:
            self.rows[-1] += f"{data} "


def test_the_page_lists_every_call_with_what_it_does(app: FastAPI) -> None:
    calls = calls_of(app.state.routers)
    page = Page(render_api_page("API", "All of it.", calls))
    assert page.open == []
    assert len(page.rows) == len(calls) > 5
    rows = [row.split(maxsplit=2) for row in page.rows]
    assert [(method, path) for method, path, _ in rows] == [
        (call.method, call.path) for call in calls
    ]
    assert ("PUT", "/topics/{domain}/{tenant}/{namespace}/{topic}") in {
        (method, path) for method, path, _ in rows
    }


def test_the_page_needs_nothing_from_elsewhere(app: FastAPI) -> None:
    text = render_api_page("API", "All of it.", calls_of(app.state.routers))
    page = Page(text)
    assert page.elements.isdisjoint({"script", "link", "img", "iframe"})
    assert page.links
    assert all(link.startswith("/") and not link.startswith("//") for link in page.links)
    assert "url(" not in text


def test_what_a_docstring_says_is_shown_as_it_is() -> None:
    call = Call("/a/{b}", "GET", "``x < y`` & more")
    page = render_api_page("<API>", "All & more.", [call])
    assert "<code>x &lt; y</code> &amp; more" in page
    assert "<title>&lt;API&gt;</title>" in page
    assert "<p>All &amp; more. " in page
