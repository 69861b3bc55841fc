"""Schemas on a connection: GET_SCHEMA and GET_OR_CREATE_SCHEMA.

Clients send GET_SCHEMA for each version that a message names and they do not know. Java's clients
send GET_OR_CREATE_SCHEMA for their dead letters and retry letters, and for a schema that a producer
begins to use later. The schemas that PRODUCER and SUBSCRIBE carry are admitted with these commands.
"""

from __future__ import annotations

from typing import ClassVar

from geminga_broker.schemas.errors import InvalidSchema, SchemaNotFound
from geminga_broker.schemas.registry import decode_version, encode_version, schema_id
from geminga_broker.schemas.rules.definitions import Schema
from geminga_broker.sessions.commands.command_group import CommandGroup, Handlers, as_task
from geminga_broker.topics.topic_schemas import TopicSchemas
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_schema, encode_schema_version
from geminga_protocol.pulsar.enums import SchemaType
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_server.authorization import Action, Resource


def schema_of(message: api.Schema) -> Schema:
    """The schema that a command carries. Raises ``InvalidSchema`` for a type of newer clients."""
    try:
        kind = SchemaType(message.type)
    except ValueError:
        # Protobuf keeps numbers of newer enums as they are.
        raise InvalidSchema(f"schemas of type {message.type} are not known here") from None
    properties = {pair.key: pair.value for pair in message.properties}
    return Schema(kind, message.schema_data, properties)


class SchemaCommands(CommandGroup):
    """Answers which schemas a topic has, and which version of them a given schema is."""

    async def get(self, command: api.CommandGetSchema) -> None:
        """GET_SCHEMA: one version of a topic's schema, the newest where none is named.

        Any broker answers, whichever owns the topic: versions are read from the stored schemas.
        """
        session = self.session
        name = TopicName.parse(command.topic)
        await session.authorize(Action.LOOKUP, Resource("topic", str(name)))
        # None stands for the newest version.
        number = decode_version(command.schema_version) if command.schema_version else None
        try:
            found = await session.context.topics.services.schemas.version(name, number)
        except SchemaNotFound:
            # Clients compare this text.
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

    async def get_or_create(self, command: api.CommandGetOrCreateSchema) -> None:
        """GET_OR_CREATE_SCHEMA: the version of a schema, which is registered where it is new."""
        session = self.session
        name = TopicName.parse(command.topic)
        await session.authorize(Action.PRODUCE, Resource("topic", str(name)))
        # The topic has to be loaded here, unlike for GET_SCHEMA: its policies decide whether a
        # schema is added.
        topic = await session.context.topic(name, create=False)
        schema = schema_of(command.schema)
        # As upstream, plain bytes are no schema here: Java's clients ask for them, too.
        wanted = None if schema.type is SchemaType.NONE else schema
        schemas = TopicSchemas(topic, session.context.topics.services.schemas)
        version = await schemas.admit_producer(wanted)
        session.send(encode_schema_version(command.request_id, version))

    handlers: ClassVar[Handlers] = {
        api.BaseCommand.GET_SCHEMA: as_task(get),
        api.BaseCommand.GET_OR_CREATE_SCHEMA: as_task(get_or_create),
    }
