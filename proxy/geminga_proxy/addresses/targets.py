"""The address that a client named, and whether it may be connected to it.

Without rules a proxy would connect any client to any address that it reaches itself. So the address
must be one of the hosts and ports that are allowed, and a living broker's where the living brokers
are known.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from geminga_proxy.errors import TargetRefused

# Where a broker's URL names no port.
DEFAULT_PORT = 6650
DEFAULT_PORT_TLS = 6651
# The longest name of a host (DNS), a scheme and a port: what is longer is not parsed.
TARGET_LENGTH_MAX = 300


# Compared as it is written: no name is resolved, so two names of one host are two targets.
@dataclass(frozen=True, slots=True)
class Target:
    """Where a broker listens."""

    # In lower case, as ``urlsplit`` gives it: names of hosts are compared without regard to case.
    host: str
    port: int

    def __str__(self) -> str:
        """``host:port``, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parse ``host:port``, with or without a scheme in front. Raises ``TargetRefused``."""
        if len(text) > TARGET_LENGTH_MAX:
            raise TargetRefused(text[:TARGET_LENGTH_MAX], "it is too long")
        # ``rpartition``: without ``://`` the whole text is in its last part.
        scheme, separator, address = text.rpartition("://")
        # The scheme only says which port is meant where none is named.
        try:
            # With ``//`` in front ``urlsplit`` reads it as an address, and not as a path.
            split = urlsplit(f"//{address if separator else text}")
            host, port = split.hostname, split.port
        except ValueError as error:
            raise TargetRefused(text, str(error)) from None
        # Users, paths and queries have no place in a broker's address: something else is meant.
        if not host or split.username is not None or split.path.strip("/") or split.query:
            raise TargetRefused(text, "it is not host:port")
        if port is None:
            port = DEFAULT_PORT_TLS if scheme == "pulsar+ssl" else DEFAULT_PORT
        return cls(host, port)


@dataclass(frozen=True, slots=True)
class TargetRules:
    """What the settings allow."""

    # Patterns, in which ``*`` stands for any characters.
    hosts: tuple[str, ...]
    # Empty: any port.
    ports: frozenset[int]

    def check(self, target: Target, living: Collection[Target] | None) -> None:
        """Raise ``TargetRefused`` where clients may not be connected to ``target``.

        ``living`` are the addresses of the living brokers, None where they are not known.
        """
        # Patterns may be written in capitals; the host is in lower case already.
        if not any(fnmatchcase(target.host, each.lower()) for each in self.hosts):
            raise TargetRefused(str(target), "its host is not among the allowed ones")
        if self.ports and target.port not in self.ports:
            raise TargetRefused(str(target), "its port is not among the allowed ones")
        # Last: it also holds where the settings allow more.
        if living is not None and target not in living:
            raise TargetRefused(str(target), "it is no living broker's address")
