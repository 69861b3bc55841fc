"""Limits on a server's open connections, in all and for each client address.

Only decides. A server calls ``admit`` for each connection that it accepted, refuses in its own
protocol, and calls ``leave`` when an admitted one is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from geminga_server.config import ConnectionConfig
from geminga_server.open_files import OpenFiles

log = logging.getLogger(__name__)

# Refusals of so many seconds share a line in the log.
LOG_PERIOD_S = 10.0


@dataclass(slots=True, eq=False)
class RefusalLog:
    """Logs refusals of one kind: the first at once, later ones in a line every ``LOG_PERIOD_S``, so
    that a flood of refusals is not a flood of lines. ``refused`` in a line counts the refusals
    since the line before."""

    event: str
    # Of the last refusal.
    facts: Callable[[], Mapping[str, object]] = dict
    # Refusals since the last line.
    unlogged: int = 0
    # Set while a line may follow; None: the next refusal is logged at once.
    timer: asyncio.TimerHandle | None = None

    def note(self, facts: Callable[[], Mapping[str, object]]) -> None:
        """Count a refusal; ``facts`` is only called for a line."""
        self.unlogged += 1
        # Those of the last refusal are shown for all of the period.
        self.facts = facts
        if self.timer is None:
            self._log()

    def _log(self) -> None:
        # Called by the first refusal of a series, and by the timer at the end of each period after
        # it.
        self.timer = None
        # A period without refusals ends the series: no timer follows.
        if self.unlogged:
            log.warning(self.event, extra={"refused": self.unlogged, **self.facts()})
            self.unlogged = 0
            self.timer = asyncio.get_running_loop().call_later(LOG_PERIOD_S, self._log)


class Limit(StrEnum):
    """The limit that a refused connection would have exceeded; a label of metrics."""

    ALL = "all"
    ADDRESS = "address"


def connections_allowed(config: ConnectionConfig, files: OpenFiles) -> ConnectionConfig:
    """The limits of ``config``, with as many clients as there are files for where it says 0 or
    more than that."""
    wanted = config.connections_max
    if wanted > files.clients:
        log.warning(
            "fewer connections are allowed than were set: too few files may be open",
            extra={"wanted": wanted, "allowed": files.clients, "open_files": files.limit},
        )
    # Never 0, which would mean "any number": a process without files for clients does not start.
    allowed = min(wanted, files.clients) if wanted else files.clients
    return replace(config, connections_max=allowed)


class ConnectionLimits:
    """Counts connections, at most as many as ``config`` says, in all and of one address; 0: any
    number."""

    def __init__(self, config: ConnectionConfig | None = None) -> None:
        config = config or ConnectionConfig()
        self.connections_max = config.connections_max
        self.per_address_max = config.connections_per_address_max
        # How many connections were too many, by limit.
        self.refused = dict.fromkeys(Limit, 0)
        self.open_count = 0
        # One number for each address with an open connection: no more than there are connections.
        self._open_by_address: dict[str, int] = {}
        self._log = RefusalLog("connections refused: there are too many")

    def admit(self, address: str) -> Limit | None:
        """Count a new connection from ``address``, a host without a port, and return None; or
        return the limit that it exceeds, and do not count it."""
        # No ``await`` between the comparison and the count: no two connections take the last place.
        of_address = self._open_by_address.get(address, 0)
        # The limit on all comes first: where both are reached, it is the one to report.
        limit: Limit | None = None
        if self.connections_max and self.open_count >= self.connections_max:
            limit = Limit.ALL
        elif self.per_address_max and of_address >= self.per_address_max:
            limit = Limit.ADDRESS
        if limit is not None:
            self.refused[limit] += 1
            self._log.note(partial(self._facts, limit, address))
            return limit
        self.open_count += 1
        # A refused connection is not counted: an address that is refused all the time takes no
        # memory and no room from others.
        self._open_by_address[address] = of_address + 1
        return None

    def leave(self, address: str) -> None:
        """A connection from ``address`` that was admitted is over."""
        self.open_count -= 1
        # Once for each connection that ``admit`` counted: a second call may raise ``KeyError``, and
        # is a mistake of the server's.
        left = self._open_by_address[address] - 1
        if left:
            self._open_by_address[address] = left
        else:
            del self._open_by_address[address]

    def _facts(self, limit: Limit, address: str) -> dict[str, object]:
        """Facts for operators, who want to know which clients have the connections."""
        by_address = self._open_by_address
        # A walk over all addresses, at most once in ``LOG_PERIOD_S``.
        most_from = max(by_address, key=by_address.__getitem__, default="")
        return {
            "limit": limit.value,
            "last_from": address,
            "open": self.open_count,
            "connections_max": self.connections_max,
            "per_address_max": self.per_address_max,
            "most_from": most_from,
            "most": by_address.get(most_from, 0),
        }
