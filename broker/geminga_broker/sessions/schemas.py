"""Schemas on a connection: GET_OR_CREATE_SCHEMA, while none is stored.

As with PRODUCER, whatever schema a client names is accepted and not looked at: the answer is the
empty version, which says that the topic has none. Java's clients ask so for their dead letters and
retry letters, plain bytes too, and send none without an answer. GET_SCHEMA is in ``unserved``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_schema_version
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_server.authorization import Action, Resource

if TYPE_CHECKING:
    from geminga_broker.sessions.connection import Connection

NO_SCHEMA = b""


class Schemas:
    """Answers which version of its topic's schemas a schema is."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.handlers: dict[int, Callable[[Any], None]] = {
            api.BaseCommand.GET_OR_CREATE_SCHEMA: self._handle_get_or_create,
        }

    def _handle_get_or_create(self, command: api.CommandGetOrCreateSchema) -> None:
        self._connection.start(command, self._get_or_create(command))

    async def _get_or_create(self, command: api.CommandGetOrCreateSchema) -> None:
        name = TopicName.parse(command.topic)
        await self._connection.authorize(Action.PRODUCE, Resource.topic(str(name)))
        await self._connection.context.topic(name, create=False)
        self._connection.send(encode_schema_version(command.request_id, NO_SCHEMA))
