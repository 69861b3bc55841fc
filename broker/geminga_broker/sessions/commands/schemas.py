"""Schemas on a connection: GET_SCHEMA and GET_OR_CREATE_SCHEMA.

Java's clients ask for a version with the second one for their dead letters and retry letters, and
for a schema that a producer begins to use later; the first one is asked for each version that a
message bears and the client does not know. Schemas of PRODUCER and SUBSCRIBE are admitted there.
"""

from __future__ import annotations

from typing import ClassVar

from geminga_broker.schemas.errors import InvalidSchema, SchemaNotFound
from geminga_broker.schemas.judging.definitions import Schema
from geminga_broker.schemas.registry import decode_version, encode_version, schema_id
from geminga_broker.sessions.commands.command_group import CommandGroup, Handlers, as_task
from geminga_broker.sessions.context import SessionContext
from geminga_broker.topics.topic import Topic
from geminga_broker.topics.topic_schemas import TopicSchemas
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_schema, encode_schema_version
from geminga_protocol.pulsar.enums import SchemaType
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_server.authorization import Action, Resource


def schema_of(message: api.Schema) -> Schema:
    """The schema that a command carries. Raises ``InvalidSchema`` for a type of newer clients."""
    try:
        kind = SchemaType(message.type)
    except ValueError:
        raise InvalidSchema(f"schemas of type {message.type} are not known here") from None
    properties = {pair.key: pair.value for pair in message.properties}
    return Schema(kind, message.schema_data, properties)


def topic_schemas(context: SessionContext, topic: Topic) -> TopicSchemas:
    """What lets clients of ``topic`` in with their schemas."""
    return TopicSchemas(topic, context.topics.services.schemas)


class SchemaCommands(CommandGroup):
    """Answers what the schemas of topics are, and which version of them a schema is."""

    async def _get(self, command: api.CommandGetSchema) -> None:
        """Any broker answers, whichever owns the topic. Clients know the text of the refusal."""
        session = self._session
        name = TopicName.parse(command.topic)
        await session.authorize(Action.LOOKUP, Resource.topic(str(name)))
        number = decode_version(command.schema_version) if command.schema_version else None
        try:
            found = await session.context.topics.services.schemas.version(name, number)
        except SchemaNotFound:
            reason = f"Topic not found or no-schema {command.topic}"
            session.refuse(command, api.TopicNotFound, reason)
            return
        info = found.info
        session.send(
            encode_schema(
                command.request_id,
                schema_id(name),
                encode_version(found.version),
                kind=info.type,
                definition=info.definition,
                properties=info.properties,
            )
        )

    async def _get_or_create(self, command: api.CommandGetOrCreateSchema) -> None:
        session = self._session
        name = TopicName.parse(command.topic)
        await session.authorize(Action.PRODUCE, Resource.topic(str(name)))
        topic = await session.context.topic(name, create=False)
        schema = schema_of(command.schema)
        # Plain bytes are no schema here, as upstream has it: Java's clients ask for them too.
        wanted = None if schema.type is SchemaType.NONE else schema
        version = await topic_schemas(session.context, topic).admit_producer(wanted)
        session.send(encode_schema_version(command.request_id, version))

    handlers: ClassVar[Handlers] = {
        api.BaseCommand.GET_SCHEMA: as_task(_get),
        api.BaseCommand.GET_OR_CREATE_SCHEMA: as_task(_get_or_create),
    }
