"""Connects to bookies, wherever each of them listens at the moment.

Every attempt looks that up anew, so that a bookie that came back on another port is found. Who
tries again, and when, is for the links to say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from geminga_ledger.connections.single_request import connect_with_tls
from geminga_ledger.errors import BookieUnavailable
from geminga_runtime.errors import GemingaError
from geminga_runtime.network import Network

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger(__name__)

# Why a link that is closed for good has no connection.
CLOSING = "this process is closing its connections"

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)

# What a connection is secured with, from the files as they are now. Raises ``GemingaError``.
MakeTls = Callable[[], "SSLContext"]


class Resolver(Protocol):
    """Where bookies listen; ``registry`` knows."""

    async def resolve(self, bookie_id: str) -> tuple[str, int]:
        """Host and port. Raises ``BookieUnavailable``, ``CoordinationError``."""
        ...


class Dialer:
    """One attempt takes at most ``timeout_s`` seconds. With ``tls`` every connection is secured."""

    def __init__(
        self,
        resolver: Resolver,
        network: Network,
        *,
        timeout_s: float,
        tls: MakeTls | None = None,
    ) -> None:
        self._resolver = resolver
        self._network = network
        self._timeout_s = timeout_s
        self._tls = tls

    async def dial(
        self, bookie_id: str, factory: Callable[[], ProtocolT]
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """A new connection. Raises ``BookieUnavailable``."""
        try:
            async with asyncio.timeout(self._timeout_s):
                host, port = await self._resolver.resolve(bookie_id)
                if self._tls is None:
                    connected = await self._network.connect(factory, host, port)
                else:
                    context = await asyncio.to_thread(self._tls)  # it reads files
                    connected = await connect_with_tls(
                        self._network, factory, (host, port), context
                    )
        except TimeoutError as error:
            raise BookieUnavailable(bookie_id, "no answer to connecting") from error
        except BookieUnavailable:
            raise
        except (OSError, ValueError, GemingaError) as error:
            # ValueError: a registered host name that no name server can be asked for.
            raise BookieUnavailable(bookie_id, str(error)) from error
        log.info("bookie connected", extra={"bookie": bookie_id, "host": host, "port": port})
        return connected
