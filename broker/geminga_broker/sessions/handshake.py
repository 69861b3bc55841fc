"""CONNECT and CONNECTED: the first exchange of a connection; and the refusal of one too many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_connected, encode_error
from geminga_protocol.pulsar.commands import NO_REQUEST_ID
from geminga_protocol.pulsar.features import agreed_version, knows_broker_entries
from geminga_server.authorization import ANONYMOUS, Principal
from geminga_server.connection_limits import Limit

if TYPE_CHECKING:
    from geminga_broker.sessions.connection import Connection


# A connection too many is told so when its client has said CONNECT: the Java client takes an answer
# before that for garbage, and does not show the reason. So long it has time for it, while there are
# no more than this of them, for each takes a file of the broker's own; others are told at once.
REFUSED_WAIT_S = 1.0
REFUSED_WAITING_MAX = 16


class Handshake:
    """Answers CONNECT, or refuses a connection too many. Until authentication is built every client
    is the anonymous principal, whatever credentials it brings: a method we do not know is no error
    (upstream's ``anonymousUserRole``)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._refusal = b""
        self._refusing: asyncio.TimerHandle | None = None

    @property
    def is_refused(self) -> bool:
        """Whether the client will only hear that it is one too many."""
        return bool(self._refusal)

    def refuse(self, exceeded: Limit) -> None:
        """Have the client told, in upstream's words, that it is one too many."""
        context, reason = self._connection.context, "Reached the maximum number of connections"
        if exceeded is Limit.ADDRESS:
            reason += f" on address{self._connection.address}"
        self._refusal = encode_error(NO_REQUEST_ID, api.NotAllowedError, reason)
        if context.refused_waiting < REFUSED_WAITING_MAX:
            context.refused_waiting += 1
            loop = asyncio.get_running_loop()
            self._refusing = loop.call_later(REFUSED_WAIT_S, self.tell_refused)
        else:
            self.tell_refused()

    def tell_refused(self) -> None:
        """Tell it now, and close the connection."""
        self._connection.send(self._refusal)
        self._connection.close()

    def disconnected(self) -> None:
        """The connection is over."""
        if self._refusing is not None:
            self._refusing.cancel()
            self._connection.context.refused_waiting -= 1

    def accept(self, command: api.CommandConnect) -> Principal:
        """Answer CONNECTED and return who the client is."""
        connection = self._connection
        config = connection.context.config
        connection.context.counts.connections_greeted += 1
        connection.client_version = command.client_version.replace(" ", "_")
        connection.protocol_version = agreed_version(command.protocol_version)
        is_exposed = config.exposing_broker_entry_metadata_to_client_enabled
        connection.gets_broker_entries = is_exposed and knows_broker_entries(command)
        connection.send(encode_connected(connection.protocol_version, config.max_message_bytes))
        return ANONYMOUS
