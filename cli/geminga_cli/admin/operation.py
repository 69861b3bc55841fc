"""What a command of ``geminga admin`` is: its words, its arguments, what it asks, what it shows."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from geminga_cli.admin.service import AdminService
from geminga_cli.display.text import show_value

Given = argparse.Namespace
Do = Callable[[AdminService, Given], Any]
Show = Callable[[Any], Iterable[str]]
Read = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Argument:
    """One word that is given by its place, or by one of its ``names`` that begin with a dash.

    ``read`` makes a value of the text; without it an option is a flag, with ``is_repeated`` it
    may be given several times.
    """

    names: tuple[str, ...]
    help: str
    read: Read | None = str
    default: Any = None
    metavar: str | None = None
    is_required: bool = False
    is_repeated: bool = False
    choices: tuple[str, ...] = ()

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add it to argparse's."""
        how: dict[str, Any] = {"help": self.help.replace("%", "%%"), "default": self.default}
        if self.read is None:
            how["action"] = "store_true"
            how["default"] = False
        else:
            how |= {"type": self.read, "metavar": self.metavar, "choices": self.choices or None}
            how["action"] = "append" if self.is_repeated else "store"
        if self.names[0].startswith("-"):
            how["required"] = self.is_required
        elif not self.is_required:
            how["nargs"] = "?"
        parser.add_argument(*self.names, **how)


def option(
    *names: str,
    help: str,  # noqa: A002 - as argparse has it
    read: Read = str,
    default: object = None,
    metavar: str | None = None,
    required: bool = False,
    repeated: bool = False,
    choices: tuple[str, ...] = (),
) -> Argument:
    """An option with a value."""
    return Argument(names, help, read, default, metavar, required, repeated, choices)


def switch(*names: str, help: str) -> Argument:  # noqa: A002 - as argparse has it
    """An option that is there or not."""
    return Argument(names, help, read=None)


def place(name: str, help: str, read: Read = str, *, required: bool = True) -> Argument:  # noqa: A002
    """A word that is given by its place."""
    return Argument((name,), help, read, metavar=name.upper(), is_required=required)


@dataclass(frozen=True, slots=True)
class Operation:
    """One command of a group; ``does`` returns what ``shows`` makes lines of for people."""

    word: str
    summary: str
    arguments: Sequence[Argument]
    does: Do
    shows: Show = show_value


def path(template: str, given: Given) -> str:
    """``template`` with what is given in the places of its ``{names}``, encoded for a URL."""
    values: dict[str, str] = {}
    for _, name, _, _ in Formatter().parse(template):
        if name is not None:
            value = getattr(given, name)
            values[name] = value if isinstance(value, UrlPath) else quote(str(value), safe="")
    return template.format_map(values)


class UrlPath(str):
    """Several parts of a path, encoded already: a topic's, a namespace's."""

    __slots__ = ()


Query = Mapping[str, str]
"""Names of parameters of the query, and of what is given for them."""
NO_QUERY: Query = MappingProxyType({})


def queried(given: Given, query: Query) -> dict[str, Any]:
    """The parameters of the query that something was given for."""
    values = {name: getattr(given, attribute) for name, attribute in query.items()}
    return {name: value for name, value in values.items() if value is not None}


def gets(template: str, query: Query = NO_QUERY) -> Do:
    """GET that path."""
    return lambda service, given: service.ask("GET", path(template, given), queried(given, query))


def sends(
    method: str,
    template: str,
    body: Callable[[Given], Any] | None = None,
    query: Query = NO_QUERY,
) -> Do:
    """Send what ``body`` makes of the arguments, if anything, to that path."""

    def do(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
        content = None if body is None else body(given)
        return service.ask(method, path(template, given), queried(given, query), content)

    return do
