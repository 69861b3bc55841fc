"""Makes what two brokers answered comparable: plain JSON values, in which what must differ between
two runs (ledger ids, addresses, times, generated names) is replaced by a symbol.

A rule replaces one value inside an answer, never the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from geminga_protocol.errors import WireError
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.commands import NO_REQUEST_ID
from geminga_protocol.pulsar.messages.payload import open_payload, split_batch

Json = Any

UINT64_MAX = 2**64 - 1
# Milliseconds since 1970 that are a moment of these years, not a count of something.
TIME_MS_MIN, TIME_MS_MAX = 1_500_000_000_000, 4_000_000_000_000

# Read even where they are 0: a client tells absent from zero.
KEPT_DEFAULTS = {"topic_epoch", "partitions", "sequence_id", "lastSequenceId", "is_active"}
# A client's own choice, different in every run; or true of every standalone of upstream's, whose
# clients are to come by the address they know.
LEFT_OUT = {"request_id", "publish_time", "proxy_through_service_url"}

ADDRESS = re.compile(r"((?<!/)/)?(127\.0\.0\.1|localhost):\d+")
GENERATED_NAME = re.compile(r"\bstandalone-\d+-\d+\b")
IDENTITY = re.compile(r"@[0-9a-f]{5,8}\b")
CHANNEL = re.compile(r"\[id: 0x[0-9a-f]+[^\]]*\]")
MOMENT = re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]?\d*(Z|[+-]\d\d:?\d\d)?")
MOMENT_MS = re.compile(r"\b1[5-9]\d{11}\b")
# What a page for people says, and where in upstream's code something happened, is no answer.
PAGE = re.compile(r"^\s*<html>.*", re.DOTALL)
STACK_TRACE = re.compile(r"\n\nStacktrace:.*", re.DOTALL)
LEDGER_PATH = re.compile(r"(?<=/ledger/)\d+(?=/)")
# The class of an error in upstream's code, which it puts before the text that says what was wrong.
JAVA_CLASS = re.compile(r"\b([a-z]+\.)+[A-Z]\w*(\$\w+)*(Exception|Error): ")
SERVER_VERSION = re.compile(r"^(Pulsar Server|Geminga).*")
POSITION = re.compile(r"(?<![\w:])(?<!\d\.)(\d+):(-?\d+)(?![\w:])")
LEDGER_KEYS = {"ledgerId", "ledger_id", "cursorLedger", "ledger"}


class Plain:
    """Replaces what differs; ledgers are numbered in the order in which they were first seen."""

    def __init__(self) -> None:
        self._ledgers: dict[int, str] = {}

    def ledger(self, ledger_id: int) -> str:
        """L0 for the first ledger, L1 for the next; -1 for the one that is none."""
        if ledger_id in (UINT64_MAX, -1):
            return "-1"
        return self._ledgers.setdefault(ledger_id, f"L{len(self._ledgers)}")

    def text(self, text: str) -> str:
        """A text without addresses, moments, generated names; ledgers as symbols."""
        text = STACK_TRACE.sub("", PAGE.sub("HTML", text))
        text = SERVER_VERSION.sub("SERVER", JAVA_CLASS.sub("", text))
        text = CHANNEL.sub("CHANNEL", ADDRESS.sub("ADDRESS", text))
        text = LEDGER_PATH.sub(lambda found: self.ledger(int(found[0])), text)
        text = GENERATED_NAME.sub("standalone-N-N", IDENTITY.sub("@HASH", text))
        text = MOMENT_MS.sub("MOMENT", MOMENT.sub("MOMENT", text))
        return POSITION.sub(lambda found: f"{self.ledger(int(found[1]))}:{found[2]}", text)

    def json(self, value: Json, key: str = "") -> Json:
        """What REST answered, as it was but for what differs."""
        if isinstance(value, dict):
            members = value
            return {self.text(name): self.json(each, name) for name, each in members.items()}
        if isinstance(value, list):
            return [self.json(each) for each in value]
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int) and not isinstance(value, bool):
            if key in LEDGER_KEYS:
                return self.ledger(value)
            if TIME_MS_MIN < value < TIME_MS_MAX:
                return "MOMENT"
        return value

    # Commands

    def command(self, command: api.BaseCommand, payload: bytes = b"") -> tuple[str, Json]:
        """The type's name and the fields that matter, of one command with its payload."""
        name = api.BaseCommand.Type.Name(command.type)
        parts = [part for field, part in command.ListFields() if field.name != "type"]
        fields: dict[str, Json] = self.fields(parts[0]) if parts else {}
        if command.type == api.BaseCommand.MESSAGE:
            fields |= self.payload(payload)
        if getattr(parts[0], "request_id", None) == NO_REQUEST_ID:
            fields["request_id"] = "none"
        return name, fields

    def fields(self, message: Message) -> Json:
        """The fields that are set to something else than their default."""
        if isinstance(message, api.MessageIdData):
            return self.message_id(message)
        if isinstance(message, api.KeyValue):
            return f"{message.key}={message.value}"
        return {
            field.name: self._value(field, value)
            for field, value in message.ListFields()
            if field.name not in LEFT_OUT and not _says_nothing(field, value)
        }

    def _value(self, field: FieldDescriptor, value: Any) -> Json:
        one: Callable[[Any], Json]
        if field.message_type is not None:
            one = self.fields
        elif field.enum_type is not None:
            names = field.enum_type.values_by_number
            one = lambda number: names[number].name  # noqa: E731
        elif field.type == FieldDescriptor.TYPE_BYTES:
            one = lambda content: self.text(content.decode("latin-1"))  # noqa: E731
        elif field.type == FieldDescriptor.TYPE_STRING:
            one = self.text
        else:
            one = lambda number: self.json(number, field.name)  # noqa: E731
        return [one(each) for each in value] if field.is_repeated else one(value)

    def message_id(self, message_id: api.MessageIdData) -> str:
        """``L0:3``, with `` partition 1``, `` batch 2/5`` and `` acks [6]`` where they are set."""
        entry = message_id.entryId
        words = [f"{self.ledger(message_id.ledgerId)}:{-1 if entry == UINT64_MAX else entry}"]
        if message_id.partition != -1:
            words.append(f"partition {message_id.partition}")
        if message_id.batch_index != -1 or message_id.batch_size:
            words.append(f"batch {message_id.batch_index}/{message_id.batch_size}")
        if message_id.ack_set:
            words.append(f"acks {list(message_id.ack_set)}")
        return " ".join(words)

    def payload(self, payload: bytes) -> dict[str, Json]:
        """What a message brings: its metadata but for the time, and its body or its batch's."""
        try:
            metadata, body_start = open_payload(payload, 0, len(payload))
            body = payload[body_start:]
            shown: dict[str, Json] = {"metadata": self.fields(metadata)}
            if not metadata.HasField("num_messages_in_batch"):
                return shown | {"body": body.decode("latin-1")}
            batch = split_batch(body, metadata.num_messages_in_batch)
        except WireError as error:
            return {"unreadable": type(error).__name__}
        return shown | {
            "batch": [
                {key: value for key, value in self.fields(each).items() if key != "payload_size"}
                | {"body": content.decode("latin-1")}
                for each, content in batch
            ]
        }


def _says_nothing(field: FieldDescriptor, value: Any) -> bool:
    if field.is_repeated or field.name in KEPT_DEFAULTS:
        return False
    # For a single message, the broker leaves there what an earlier use of a pooled object did.
    is_left_over = field.name == "highest_sequence_id" and value in (0, UINT64_MAX)
    return is_left_over or bool(value == field.default_value)


def shape(value: Json) -> Json:
    """A JSON value's form: the names and types of its members, lists by their first element."""
    if isinstance(value, dict):
        members = value
        return {key: shape(members[key]) for key in sorted(members)}
    if isinstance(value, list):
        elements = value
        return [shape(elements[0])] if elements else []
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "string"
