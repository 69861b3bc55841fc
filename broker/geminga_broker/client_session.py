"""The connection of a client as topics see it; ``sessions`` implements it.

It stands at the bottom of the layers, so that producers and consumers can answer their client
without knowing the binary protocol's sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class ClientSession(Protocol):
    """What producers and consumers need of their connection."""

    # Frames that are written before the loop turns, in this order. Consumers append to it, and
    # report the bytes with ``delivered``.
    out: list[bytes]
    # False while the client does not take what it is sent: consumers are sent nothing then.
    is_writable: bool
    # ``/HOST:PORT``, as stats show it.
    address: str
    client_version: str
    # The highest version of the protocol that both sides speak: CONNECT names the client's,
    # CONNECTED the lower one of the two.
    protocol_version: int
    # Messages are sent with the metadata that the broker wrote in front of their entry: the broker
    # exposes it, and the client's CONNECT has the feature flag ``supports_broker_entry_metadata``.
    gets_broker_entries: bool

    def send(self, frame: bytes) -> None:
        """Queue ``frame``; it is written before the loop turns."""
        ...

    def delivered(self, size_bytes: int) -> None:
        """Report that messages of so many bytes were put in ``out``."""
        ...

    def confirmed(self, size_bytes: int) -> None:
        """Report that so many bytes of this client's messages are durable now, or given up."""
        ...

    def throttle(self, wait_s: Callable[[float], float]) -> None:
        """Do not read the client for as long as ``wait_s`` says.

        ``wait_s`` takes a time of the monotonic clock and returns seconds; it is called again when
        these are over.
        """
        ...

    async def is_alive(self) -> bool:
        """Check whether the client answers; where it does not, close it and return False."""
        ...


def host_of(address: str) -> str:
    """The host of a session's ``address``, which ends in a port."""
    # IPv6 addresses have colons, too: only the last one is before the port.
    return address.rpartition(":")[0]
