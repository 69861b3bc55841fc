"""The ports that one process, or the parts of one machine, are told to listen on."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from geminga_server.errors import SettingsError


def require_distinct(ports: Mapping[str, int]) -> None:
    """Raise ``SettingsError`` where two ports are the same, and not 0, which is any free one.

    ``ports`` are by the options that choose them. Different addresses could share a port, but who
    gives one port twice has mistyped it, and would find the one service where the other should be.
    """
    for (one, port), (other, same) in combinations(ports.items(), 2):
        if port == same != 0:
            raise SettingsError(
                f"{one} and {other} are both {port}: give each a port of its own, or 0 for a free "
                "one"
            )
