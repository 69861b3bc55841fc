"""Who gets in: counts a server's open connections, in all and by client address.

Decides only. A server asks ``admit`` for each connection that it accepted, refuses in its own
protocol, and calls ``leave`` when one that was admitted is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum

from geminga_server.config import ConnectionConfig
from geminga_server.open_files import OpenFiles

log = logging.getLogger(__name__)

LOG_PERIOD_S = 10.0


class RefusalLog:
    """Logs refusals of one kind: the first at once, what follows in a line every ``LOG_PERIOD_S``,
    for a flood of them must not become a flood of lines. ``refused`` in a line is how many there
    were since the line before."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._facts: Callable[[], Mapping[str, object]] = dict
        self._unsaid = 0
        self._timer: asyncio.TimerHandle | None = None

    def note(self, facts: Callable[[], Mapping[str, object]]) -> None:
        """One more refusal; ``facts`` are asked for only where they make a line."""
        self._unsaid += 1
        self._facts = facts
        if self._timer is None:
            self._say()

    def _say(self) -> None:
        self._timer = None
        if self._unsaid:
            log.warning(self._event, extra={"refused": self._unsaid, **self._facts()})
            self._unsaid = 0
            self._timer = asyncio.get_running_loop().call_later(LOG_PERIOD_S, self._say)


class Limit(StrEnum):
    """The limit that a refused connection would have exceeded; a label of metrics."""

    ALL = "all"
    ADDRESS = "address"


def connections_allowed(config: ConnectionConfig, files: OpenFiles) -> ConnectionConfig:
    """As many clients as ``config`` says; for 0, or too many, as ``files`` have room for."""
    wanted = config.connections_max
    if wanted > files.clients:
        log.warning(
            "fewer connections are allowed than were set: too few files may be open",
            extra={"wanted": wanted, "allowed": files.clients, "open_files": files.limit},
        )
    allowed = min(wanted, files.clients) if wanted else files.clients
    return replace(config, connections_max=allowed)


class ConnectionLimits:
    """At most as many connections as ``config`` says, in all and of one address; 0: any number.

    ``refused`` counts those that were too many, by limit.
    """

    def __init__(self, config: ConnectionConfig | None = None) -> None:
        config = config or ConnectionConfig()
        self.connections_max = config.connections_max
        self.per_address_max = config.connections_per_address_max
        self.refused = dict.fromkeys(Limit, 0)
        self._open = 0
        # One number for each address with an open connection: no more than there are connections.
        self._open_by_address: dict[str, int] = {}
        self._log = RefusalLog("connections refused: there are too many")

    def __len__(self) -> int:
        return self._open

    def admit(self, address: str) -> Limit | None:
        """Count a new connection from ``address``, a host without a port; or say which limit it
        exceeds, and do not count it."""
        of_address = self._open_by_address.get(address, 0)
        if self.connections_max and self._open >= self.connections_max:
            return self._refuse(Limit.ALL, address)
        if self.per_address_max and of_address >= self.per_address_max:
            return self._refuse(Limit.ADDRESS, address)
        self._open += 1
        self._open_by_address[address] = of_address + 1
        return None

    def leave(self, address: str) -> None:
        """A connection from ``address`` that was admitted is over."""
        self._open -= 1
        left = self._open_by_address[address] - 1
        if left:
            self._open_by_address[address] = left
        else:
            del self._open_by_address[address]

    def _refuse(self, limit: Limit, address: str) -> Limit:
        self.refused[limit] += 1
        self._log.note(lambda: self._facts(limit, address))
        return limit

    def _facts(self, limit: Limit, address: str) -> dict[str, object]:
        """For the operator, who wants to know whose connections they are."""
        by_address = self._open_by_address
        most_from = max(by_address, key=by_address.__getitem__, default="")
        return {
            "limit": limit.value,
            "last_from": address,
            "open": self._open,
            "connections_max": self.connections_max,
            "per_address_max": self.per_address_max,
            "most_from": most_from,
            "most": by_address.get(most_from, 0),
        }
