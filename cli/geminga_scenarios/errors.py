"""What can be wrong with a scenario, or with what was asked for, before anything is judged."""

from __future__ import annotations

from geminga_runtime.errors import GemingaError


class NoScenario(GemingaError):
    """A file holds no scenario; the text says why, and what a scenario is."""


class NoSuchHost(GemingaError):
    """A scenario named a host that does not exist; the text says which there are."""


class UnknownFault(GemingaError):
    """A menu named a fault that does not exist; the text says which there are."""
