"""Lets the broker in memory know versions of a topic's schema."""

from __future__ import annotations

from tests.unit.geminga.fake_broker import Answer, Session

from geminga import SchemaInfo
from geminga.schemas.schema import proto_of
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import encode_command


def tells(versions: dict[bytes, SchemaInfo], asked: list[bytes]) -> Answer:
    """Answer GET_SCHEMA out of ``versions``."""

    def answer(session: Session, command: BaseCommand, _payload: bytes) -> None:
        asked.append(command.getSchema.schema_version)
        info = versions.get(command.getSchema.schema_version)
        request_id = command.getSchema.request_id
        if info is None:
            words = "Topic not found or no-schema"
            session.write(answers.encode_error(request_id, api.TopicNotFound, words))
        else:
            response = api.CommandGetSchemaResponse(request_id=request_id, schema=proto_of(info))
            kind = BaseCommand.GET_SCHEMA_RESPONSE
            session.write(encode_command(BaseCommand(type=kind, getSchemaResponse=response)))

    return answer
