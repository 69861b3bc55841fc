"""Connects to bookies, wherever each of them listens at the moment.

Every attempt looks up the address anew, so that a bookie that came back on another port is found.
Trying again is the business of the links.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from geminga_ledger.connections.single_request import connect_with_tls
from geminga_ledger.errors import BookieUnavailable
from geminga_runtime.errors import GemingaError
from geminga_runtime.network import Network

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger(__name__)

# Why a link that is closed for good has no connection.
CLOSING = "this process is closing its connections"

# Host and port of a bookie, by its id. Raises ``BookieUnavailable``, ``CoordinationError``.
Resolve = Callable[[str], Awaitable[tuple[str, int]]]

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)

# What a connection is secured with, from the files as they are now. Raises ``GemingaError``.
MakeTls = Callable[[], "SSLContext"]


@dataclass(frozen=True, slots=True)
class Dialer:
    """Makes connections to bookies."""

    # The registry of the cluster's bookies knows where they listen.
    resolve: Resolve
    network: Network
    # The longest that one attempt takes, from the look-up to the end of the handshake.
    timeout_s: float
    # With it every connection is secured.
    tls: MakeTls | None = None

    async def dial(
        self, bookie_id: str, factory: Callable[[], ProtocolT]
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """A new connection. Raises ``BookieUnavailable``."""
        try:
            async with asyncio.timeout(self.timeout_s):
                host, port = await self.resolve(bookie_id)
                if self.tls is None:
                    connected = await self.network.connect(factory, host, port)
                else:
                    context = await asyncio.to_thread(self.tls)  # it reads files
                    connected = await connect_with_tls(self.network, factory, (host, port), context)
        # The deadline above, or the kernel's own (ETIMEDOUT).
        except TimeoutError as error:
            raise BookieUnavailable(bookie_id, "no answer to connecting") from error
        except BookieUnavailable:
            raise  # a ``GemingaError`` too, with its own reason
        except (OSError, ValueError, GemingaError) as error:
            # ValueError: a registered host name that no name server can be asked for.
            raise BookieUnavailable(bookie_id, str(error)) from error
        log.info("bookie connected", extra={"bookie": bookie_id, "host": host, "port": port})
        return connected
