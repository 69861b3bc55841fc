"""Schemas on a connection: GET_OR_CREATE_SCHEMA, while none is stored.

As with PRODUCER, whatever schema a client names is accepted and not looked at: the answer is the
empty version, which says that the topic has none. Java's clients ask so for their dead letters and
retry letters, plain bytes too, and send none without an answer. GET_SCHEMA is in ``unserved``.
"""

from __future__ import annotations

from geminga_broker.sessions.command_group import CommandGroup
from geminga_broker.sessions.session import Session
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_schema_version
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_server.authorization import Action, Resource

NO_SCHEMA = b""


class SchemaCommands(CommandGroup):
    """Answers which version of its topic's schemas a schema is."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.handlers = {
            api.BaseCommand.GET_OR_CREATE_SCHEMA: self._task(self._get_or_create),
        }

    async def _get_or_create(self, command: api.CommandGetOrCreateSchema) -> None:
        name = TopicName.parse(command.topic)
        await self._session.authorize(Action.PRODUCE, Resource.topic(str(name)))
        await self._session.context.topic(name, create=False)
        self._session.send(encode_schema_version(command.request_id, NO_SCHEMA))
