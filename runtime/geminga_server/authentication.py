"""Who a client is: what a method of authentication is asked, and what it may say.

A method looks at credentials in as many steps as it needs: it accepts them, refuses them, or asks
the client something (a challenge), looks at the answer, and so on. The same method looks at fresh
credentials when those it accepted have expired. How questions and answers travel is the
business of each protocol; what an accepted principal may do is ``authorization``'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from geminga_server.authorization import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True)
class Accepted:
    """The client is ``principal``: until ``expires_at_ms``, in milliseconds since 1970, or for as
    long as it is connected."""

    principal: Principal
    expires_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Challenge:
    """The client is to answer ``data``."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """The client is not let in. ``reason`` is for the log: clients are not told."""

    reason: str


Outcome = Accepted | Challenge | Refused


class Exchange(Protocol):
    """The steps of authenticating one client once. An exception counts as a refusal."""

    async def begin(self, credentials: bytes) -> Outcome:
        """Look at what the client brought of its own accord."""
        ...

    async def answer(self, data: bytes) -> Outcome:
        """Look at the client's answer to the challenge that was the outcome before."""
        ...


class AuthenticationMethod(Protocol):
    """One way of authenticating, under the name that clients call it by (``token``, ...)."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    def exchange(self) -> Exchange:
        """Begin with one client."""
        ...


@dataclass(frozen=True, slots=True)
class Authentication:
    """How a server authenticates: by ``methods``, by name. A client that names none of them is the
    principal ``anonymous``, or refused where there is none. Every ``refresh_check_s`` it is
    looked whether the credentials of a connected client have expired."""

    methods: Mapping[str, AuthenticationMethod]
    anonymous: Principal | None = None
    refresh_check_s: float = 60.0


AUTHENTICATION_DISABLED = Authentication({}, anonymous=ANONYMOUS)
"""Every client is anonymous, whatever credentials it brings: without authentication, upstream's
brokers do not look at them either."""
