"""What topics know of a client's connection; ``sessions`` implements it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class ClientSession(Protocol):
    """What producers and consumers need of the connection they live on."""

    out: list[bytes]
    is_writable: bool
    address: str
    client_version: str
    protocol_version: int
    gets_broker_entries: bool

    def send(self, frame: bytes) -> None:
        """Queue ``frame``; it is written before the loop turns."""
        ...

    def delivered(self, size_bytes: int) -> None:
        """Messages of so many bytes were put in ``out``; they are written before the loop turns."""
        ...

    def confirmed(self, size_bytes: int) -> None:
        """So many bytes of this client's messages are durable (or given up) now."""
        ...

    def throttle(self, wait_s: Callable[[float], float]) -> None:
        """Do not read the client for as long as ``wait_s`` says at a time of the monotonic clock,
        in seconds; it is asked again when that is over."""
        ...

    async def is_alive(self) -> bool:
        """Ask the client for a sign of life; False, and closed, when none comes in time."""
        ...


def host_of(address: str) -> str:
    """The host of a session's ``address``, which ends in a port."""
    return address.rpartition(":")[0]
