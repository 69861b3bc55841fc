"""Messages as ``geminga consume`` and ``geminga read`` show them. Pure.

For people, the lines are those of ``pulsar-client``, except that control characters in a message
are escaped: on a terminal they could move the cursor, change the title or fake another message.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message as ProtobufMessage

from geminga import Message
from geminga_cli.display.text import plain_text

HEADING = "----- got message -----"


def message_lines(
    message: Message[Any],
    *,
    with_value: bool = False,
    in_hex: bool = False,
    with_metadata: bool = False,
) -> Iterator[str]:
    """The lines of a message for people; ``with_value`` decodes it by its schema and shows JSON."""
    properties = ",".join(f"{name}={value}" for name, value in message.properties.items())
    if in_hex:
        content = message.data.hex(" ")
    elif with_value:
        decoded = _value(message)
        # The bytes are shown all the same: the reason alone would hide the message.
        if "valueError" in decoded:
            content = f"{plain_text(message.data)} ({decoded['valueError']})"
        else:
            value = decoded["value"]
            content = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        content = plain_text(content)
    else:
        content = plain_text(message.data)
    # The names and the order of pulsar-client's fields. One line for each message, whatever is in
    # it: ``plain_text`` escapes line ends.
    said = [
        f"publishTime:[{message.publish_time_ms}]",
        # 0 is what Java's client has for a message without one.
        f"eventTime:[{message.event_time_ms or 0}]",
        f"key:[{'null' if message.key is None else plain_text(message.key)}]",
        f"properties:[{plain_text(properties)}]",
        f"content:{content}",
    ]
    if with_metadata:
        ordering_key, version = message.ordering_key, message.schema_version
        said += [
            f"message-id:{message.id}",
            f"topic:{plain_text(message.topic)}",
            f"producer-name:{plain_text(message.producer_name)}",
            f"sequence-id:{message.sequence_id}",
            f"replicated-from:{plain_text(message.replicated_from or 'null')}",
            f"redelivery-count:{message.redelivery_count}",
            f"ordering-key:{'' if ordering_key is None else plain_text(ordering_key)}",
            f"schema-version:{'' if version is None else version.hex()}",
        ]
    yield HEADING
    yield ", ".join(said)


def message_json(
    message: Message[Any], *, with_value: bool = False, with_content: bool = True
) -> str:
    """A message as a line of JSON in ASCII, with the names that ``geminga admin`` uses."""
    said: dict[str, Any] = {
        "topic": message.topic,
        "messageId": str(message.id),
        "publishTime": message.publish_time_ms,
        "eventTime": message.event_time_ms,
        "producerName": message.producer_name,
        "sequenceId": message.sequence_id,
        "redeliveryCount": message.redelivery_count,
        "key": message.key,
        "properties": dict(message.properties),
    }
    # Members that most messages do not have. An empty key or version is one, too.
    ordering_key, version = message.ordering_key, message.schema_version
    optional = {
        "orderingKey": None if ordering_key is None else b64encode(ordering_key).decode(),
        "replicatedFrom": message.replicated_from,
        "schemaVersion": None if version is None else version.hex(),
    }
    said |= {name: value for name, value in optional.items() if value is not None}
    if with_content:
        # Not the same as no bytes: in a compacted topic it deletes its key.
        if message.is_null:
            said["data"] = None
        else:
            # JSON can hold text; other bytes are written in base64.
            try:
                said["data"] = message.data.decode()
            except UnicodeDecodeError:
                said["dataBase64"] = b64encode(message.data).decode()
        if with_value:
            said |= _value(message)
    return json.dumps(said)


def _value(message: Message[Any]) -> Mapping[str, Any]:
    """The decoded value; for a message that does not fit its schema, the reason."""
    try:
        return {"value": _plain(message.value)}
    except ValueError as error:
        return {"valueError": str(error)}


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever schemas make
    """A value that JSON can hold: of a pair its key and value, of bytes their text or base64."""
    if isinstance(value, tuple) and len(value) == 2:
        return {"key": _plain(value[0]), "value": _plain(value[1])}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, ProtobufMessage):
        # The names of the .proto file, which is what the schema shows too.
        return MessageToDict(value, preserving_proto_field_name=True)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return value if isinstance(value, str | int | float | None) else str(value)
