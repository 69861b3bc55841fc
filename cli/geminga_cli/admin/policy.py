"""Policies by their words: ``get-X``, ``set-X`` and ``remove-X``, made of a row each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from geminga_cli.admin.operation import (
    Argument,
    Given,
    Operation,
    gets,
    sends,
    switch,
)
from geminga_cli.text import show_policy

APPLIED = switch("--applied", "-ap", help="what holds, where nothing is set")


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy: its word, what it is, where it is below a namespace, what sets it.

    ``shown_at`` is where it is read, if not where it is written; with ``shows_applied`` brokers
    tell what holds where nothing is set.
    """

    word: str
    what: str
    at: str
    arguments: Sequence[Argument]
    body: Callable[[Given], Any]
    method: str = "POST"
    shown_at: str = ""
    plural: str = ""
    can_remove: bool = True
    query: tuple[tuple[str, str], ...] = ()
    shows_applied: bool = False

    def operations(self, subject: Argument, prefix: str) -> Iterator[Operation]:
        """Its two or three commands for what ``subject`` names, below ``prefix``."""
        kept = [each for each in self.arguments if self.query and each.names[-1] == "--type"]
        yield Operation(
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
            yield Operation(
                f"remove-{self.word}",
                f"let the broker's settings say {self.what}",
                (subject, *kept),
                sends("DELETE", f"{prefix}/{self.at}", query=dict(self.query)),
            )
