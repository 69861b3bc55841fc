"""The states of a connection, and which commands a client may send in each. Pure.

    STARTED ──CONNECT──▶ AUTHENTICATING ──accepted──▶ CONNECTED
       │                  ▲    │ challenge    │
       │                  └────┘ AUTH_RESPONSE│ refused, too late
       ▼                                      ▼
    REFUSED (one connection too many) ─────▶ CLOSED

Every command in every state is answered, or ends the connection. What needs no answer by the
protocol (PONG, FLOW, REDELIVER_UNACKNOWLEDGED_MESSAGES, an ACK without request id) counts as
answered once the client is connected. Nothing is read after the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from geminga_protocol.pulsar.api_pb2 import BaseCommand


# Only the session and its handshake change it, along the arrows above and never back.
class State(Enum):
    """How far a connection is."""

    # The client has not sent a command yet.
    STARTED = auto()
    # It sent CONNECT; its credentials are being examined, or it was sent a challenge.
    AUTHENTICATING = auto()
    # It was sent CONNECTED. Credentials are refreshed in this state, while all else goes on.
    CONNECTED = auto()
    # The connection exceeds a limit, and is refused with the first command of the client.
    REFUSED = auto()
    # The connection ends as soon as what was written is sent.
    CLOSED = auto()


# Looked up once: an attribute of an Enum or of a protobuf class takes 0.3 us.
CONNECTED = State.CONNECTED
_CONNECT = BaseCommand.CONNECT

# Before CONNECTED only these commands are taken. A client that is not authenticated must not reach
# topics or storage: any other command ends its connection, with the rule as the reason in the log.
_BEFORE_CONNECTED: Mapping[State, tuple[frozenset[int], str]] = {
    State.STARTED: (
        frozenset({BaseCommand.CONNECT}),
        "the first command must be CONNECT",
    ),
    State.AUTHENTICATING: (
        frozenset({BaseCommand.AUTH_RESPONSE, BaseCommand.PING, BaseCommand.PONG}),
        "a client that is being authenticated waits for CONNECTED",
    ),
    State.REFUSED: (frozenset(), "the connection is refused"),
    State.CLOSED: (frozenset(), "the connection is closed"),
}


def objection(state: State, kind: BaseCommand.Type.ValueType) -> str | None:
    """Why a command of type ``kind`` ends a connection in ``state``; None where it does not: then
    it is handled, or refused in an answer."""
    if state is CONNECTED:
        if kind == _CONNECT:
            return "CONNECT is the first command of a connection, and comes once"
        return None
    taken, rule = _BEFORE_CONNECTED[state]
    return None if kind in taken else f"{rule}, not {BaseCommand.Type.Name(kind)}"
