"""A command of ``geminga admin``: its word, its arguments, its request, how the answer is shown."""

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


# From a row of ``OPERATIONS`` to an answer:
#
#     Operation ── arguments ──▶ argparse ──▶ Given ── does ──▶ REST ──▶ answer ── shows ──▶ lines
#
# The rows are made when the module of a group is imported; only the one that was asked for becomes
# a parser.
@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a command, as argparse needs it."""

    # Names of an option begin with a dash. Without one, this is the name of a positional argument.
    names: tuple[str, ...]
    help: str
    # Makes a value of the text; None for a switch, which has no value.
    read: Read | None = str
    default: Any = None
    metavar: str | None = None
    is_required: bool = False
    # Whether an option may be given several times; the value is then a list.
    is_repeated: bool = False
    choices: tuple[str, ...] = ()

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add the argument to argparse's parser."""
        # argparse takes a % for a format.
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
    """An option without a value."""
    return Argument(names, help, read=None)


def place(name: str, help: str, read: Read = str, *, required: bool = True) -> Argument:  # noqa: A002
    """A positional argument."""
    return Argument((name,), help, read, metavar=name.upper(), is_required=required)


@dataclass(frozen=True, slots=True)
class Operation:
    """One command of a group."""

    word: str
    summary: str
    arguments: Sequence[Argument]
    # Sends the request; returns the answer, which ``--json`` prints as it is.
    does: Do
    # Makes lines for people of the answer.
    shows: Show = show_value


def path(template: str, given: Given) -> str:
    """``template`` with the arguments in place of their ``{names}``, encoded for a URL."""
    # "{topic}/subscription/{subscription}" becomes
    # persistent/public/default/orders/subscription/a%2Fb.
    values: dict[str, str] = {}
    # A name appears as often as it stands in the template; a piece of plain text at the end has
    # None.
    for _, name, _, _ in Formatter().parse(template):
        if name is not None:
            value = getattr(given, name)
            # Slashes of a value are encoded; those between the parts of a topic's name are not.
            values[name] = value if isinstance(value, UrlPath) else quote(str(value), safe="")
    return template.format_map(values)


class UrlPath(str):
    """Several parts of a path, already encoded: those of a topic or a namespace."""

    __slots__ = ()


# Parameters of the query, and the arguments that set them.
Query = Mapping[str, str]
NO_QUERY: Query = MappingProxyType({})


def queried(given: Given, query: Query) -> dict[str, Any]:
    """The query: the parameters whose arguments were given."""
    # A switch is False where it is not given, which is sent: REST takes it for the default.
    values = {name: getattr(given, attribute) for name, attribute in query.items()}
    return {name: value for name, value in values.items() if value is not None}


def gets(template: str, query: Query = NO_QUERY) -> Do:
    """A request to GET a path."""
    return lambda service, given: service.ask("GET", path(template, given), queried(given, query))


def sends(
    method: str,
    template: str,
    body: Callable[[Given], Any] | None = None,
    query: Query = NO_QUERY,
) -> Do:
    """A request to a path, with the JSON that ``body`` makes of the arguments."""

    def do(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
        content = None if body is None else body(given)
        return service.ask(method, path(template, given), queried(given, query), content)

    return do
