"""Who a client is: the interface of methods of authentication.

A method checks credentials in as many steps as it needs: it accepts them, refuses them, or sends
the client a challenge, checks the answer, and so on. The same method checks fresh credentials when
those it accepted have expired. How challenges and answers travel is up to each protocol; what an
accepted principal may do is decided by ``authorization``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from geminga_server.authorization import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True)
class Accepted:
    """The client is ``principal``: until ``expires_at_ms``, in milliseconds since 1970, or as long
    as it is connected."""

    principal: Principal
    expires_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Challenge:
    """The client must answer ``data``."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """The client is refused. ``reason`` is for the log; clients do not get it."""

    reason: str


Outcome = Accepted | Challenge | Refused


# The caller's side of one exchange:
#
#     begin --> Accepted or Refused                       the end
#           --> Challenge --> answer --> Accepted, ...    as often as the method wants
#
# An exchange belongs to one client and one attempt: a method may keep secrets in it.
class Exchange(Protocol):
    """The steps of authenticating one client once. An exception counts as a refusal."""

    async def begin(self, credentials: bytes) -> Outcome:
        """Check the credentials that the client sent first."""
        ...

    async def answer(self, data: bytes) -> Outcome:
        """Check the client's answer to the challenge that was the outcome before."""
        ...


class AuthenticationMethod(Protocol):
    """One way of authenticating."""

    # The name that clients call it by (``token``, ...).
    name: str

    def exchange(self) -> Exchange:
        """Begin to authenticate one client."""
        ...


@dataclass(frozen=True, slots=True)
class Authentication:
    """How a server authenticates its clients."""

    # By the names that clients call them by.
    methods: Mapping[str, AuthenticationMethod]
    # The principal of clients that name no method; None: they are refused.
    anonymous: Principal | None = None
    # Seconds between checks whether the credentials of a connected client have expired.
    refresh_check_s: float = 60.0


AUTHENTICATION_DISABLED = Authentication({}, anonymous=ANONYMOUS)
"""Every client is anonymous, whatever credentials it brings: without authentication, upstream's
brokers do not look at them either."""
