"""A policy as a row of a table, and the commands that the row makes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from geminga_cli.admin.operation import Argument, Given, Operation, gets, option, sends, switch
from geminga_cli.display.text import show_policy

APPLIED = switch("--applied", "-ap", help="where nothing is set, show what applies instead")
ON_OR_OFF = (switch("--enable", "-e", help="yes"), switch("--disable", "-d", help="no"))


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy of a namespace."""

    # The name in the commands: ``get-<word>``, ``set-<word>``, ``remove-<word>``.
    word: str
    # What the policy decides, as a clause for the help: "show <what>".
    what: str
    # The last part of the path in REST, below the namespace.
    at: str
    arguments: Sequence[Argument]
    # Makes the JSON that REST takes of what was given on the command line.
    body: Callable[[Given], Any]
    method: str = "POST"
    # Where the policy is read, if not where it is written.
    shown_at: str = ""
    # The name in ``get-<plural>``, where upstream's differs from ``word``.
    plural: str = ""
    can_remove: bool = True
    # Pairs of a parameter of the query and the argument that sets it. Writing and removing have
    # them, reading has not: one answer lists all values.
    query: tuple[tuple[str, str], ...] = ()
    # Whether brokers can answer what applies where nothing is set (``--applied``).
    shows_applied: bool = False

    def operations(self, subject: Argument, prefix: str) -> Iterator[Operation]:
        """The two or three commands for what ``subject`` names, whose path is ``prefix``."""
        yield Operation(
            # Where a policy has several values, the answer is a map of all of them.
            f"get-{self.plural or self.word}",
            f"show {self.what}",
            (subject, APPLIED) if self.shows_applied else (subject,),
            gets(
                f"{prefix}/{self.shown_at or self.at}",
                {"applied": "applied"} if self.shows_applied else {},
            ),
            show_policy,
        )
        yield Operation(
            f"set-{self.word}",
            f"set {self.what}",
            (subject, *self.arguments),
            sends(self.method, f"{prefix}/{self.at}", self.body, dict(self.query)),
        )
        if self.can_remove:
            # Of the arguments, removing needs only the one that says which value goes.
            kept = [each for each in self.arguments if self.query and each.names[-1] == "--type"]
            yield Operation(
                f"remove-{self.word}",
                f"let the broker's settings decide {self.what}",
                (subject, *kept),
                sends("DELETE", f"{prefix}/{self.at}", query=dict(self.query)),
            )


def is_on(given: Given) -> bool:
    """Whether ``--enable`` was given; raises ``ArgumentTypeError`` unless one of the two was."""
    # Neither of the two must not mean --disable: a command that lacks its word would switch a
    # policy off.
    if given.enable == given.disable:
        raise argparse.ArgumentTypeError("one of --enable and --disable is needed")
    return bool(given.enable)


def limit(word: str, at: str, what: str, *names: str) -> Policy:
    """A policy whose value is one number, given by the option of these ``names``."""
    # argparse names the value after the first long option.
    attribute = next(each for each in names if each.startswith("--"))[2:].replace("-", "_")
    number = option(*names, read=int, required=True, metavar="NUMBER", help=f"{what}; 0: no limit")
    return Policy(word, what, at, (number,), lambda given: getattr(given, attribute))


def rate(*names: str, what: str) -> Argument:
    """An option for a rate, which is unlimited unless it is given."""
    return option(*names, read=int, default=-1, metavar="NUMBER", help=f"{what}; -1: no limit")
