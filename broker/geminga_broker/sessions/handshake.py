"""CONNECT and CONNECTED: the first exchange of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_connected
from geminga_protocol.pulsar.features import agreed_version, knows_broker_entries
from geminga_server.authorization import ANONYMOUS, Principal

if TYPE_CHECKING:
    from geminga_broker.sessions.connection import Connection


class Handshake:
    """Answers CONNECT. Until authentication is built every client is the anonymous principal,
    whatever credentials it brings: a method we do not know is no error (upstream's
    ``anonymousUserRole``)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def accept(self, command: api.CommandConnect) -> Principal:
        """Answer CONNECTED and return who the client is."""
        connection = self._connection
        connection.context.counts.connections_greeted += 1
        connection.client_version = command.client_version.replace(" ", "_")
        connection.protocol_version = agreed_version(command.protocol_version)
        connection.gets_broker_entries = connection.context.exposes_broker_entries and (
            knows_broker_entries(command)
        )
        connection.send(
            encode_connected(connection.protocol_version, connection.context.max_message_bytes)
        )
        return ANONYMOUS
