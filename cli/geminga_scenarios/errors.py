"""What can be wrong with a scenario, or with what was asked for, before anything is judged."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_runtime.errors import GemingaError


class NoScenario(GemingaError):
    """A file holds no scenario; the text says why, and what a scenario is."""


class NoSuchHost(GemingaError):
    """A scenario named a host that does not exist."""

    def __init__(self, name: str, hosts: Sequence[str]) -> None:
        super().__init__(f"there is no host {name!r}; there are {', '.join(hosts)}")
        self.name = name


class UnknownFault(GemingaError):
    """A menu named a fault that does not exist."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"there is no fault {name!r}; there are {', '.join(known)}")
        self.name = name
