"""``geminga produce``: sends the messages that the command line describes."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from geminga import (
    AvroSchema,
    Batching,
    BytesSchema,
    Client,
    ClientError,
    Encryption,
    JsonSchema,
    KeyValueSchema,
    MessageId,
    PublicKeys,
    Schema,
    StringSchema,
)
from geminga_cli.admin.errors import InvalidUse
from geminga_cli.messaging.files import content_of, key_at
from geminga_cli.messaging.run import run_with_client
from geminga_cli.output import print_now
from geminga_cli.throughput.pace import Pace
from geminga_runtime.clock import Clock, SystemClock

Show = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SchemaOption:
    """A schema that the command line names."""

    schema: Schema[Any]
    # Makes a value of what a person wrote. Raises ``ValueError``.
    read: Callable[[bytes], Any]


def schema_option(words: str) -> SchemaOption:
    """The schema ``bytes``, ``string``, ``json:DEFINITION`` or ``avro:DEFINITION``.

    A definition is Avro's, in JSON. Values of the last two are written as JSON. Raises
    ``InvalidUse``, ``MissingExtra``.
    """
    kind, _, definition = words.partition(":")
    if words == "bytes":
        return SchemaOption(BytesSchema(), bytes)
    if words == "string":
        # UTF-8, as every client's string schema.
        return SchemaOption(StringSchema(), lambda body: body.decode())
    if kind not in ("json", "avro") or not definition:
        raise InvalidUse(
            f"{words!r} is no schema: bytes, string, json:DEFINITION or avro:DEFINITION"
        )
    try:
        # No class: values stay the dicts and numbers that JSON has.
        parsed: Mapping[str, Any] = json.loads(definition)
        if kind == "json":
            return SchemaOption(JsonSchema(object, definition=parsed), json.loads)
        return SchemaOption(AvroSchema(object, definition=parsed), json.loads)
    except (ValueError, TypeError) as error:
        raise InvalidUse(f"the definition of the {kind} schema cannot be used: {error}") from None


# The constructor reads files, keys and schemas, so that every mistake of the command line is
# reported before the client connects; ``run`` only sends.
class Production:
    """The messages of one command line. Raises ``InvalidUse``, ``MissingExtra``."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._stored = 0
        # ``_stored`` and ``_failure`` are written by ``note`` alone, which the client calls between
        # two steps of ``run``.
        #
        # The first failure of a message, which ends the command.
        self._failure: ClientError | None = None
        # The values of one round.
        self._schema, self._values = _schema_and_values(given)
        # Options of the producer.
        self._options: dict[str, Any] = {"chunking": given.chunking, "schema": self._schema}
        # A message in chunks is sent alone, as upstream's tool does.
        self._options["batching"] = None if given.chunking or given.disable_batching else Batching()
        if bool(given.encryption_key_name) != bool(given.encryption_key_value):
            raise InvalidUse("-ekn names the key that -ekv gives: both or neither")
        if given.encryption_key_name:
            keys = PublicKeys({given.encryption_key_name: key_at(given.encryption_key_value)})
            self._options["encryption"] = Encryption([given.encryption_key_name], keys)
        # Attributes of every message.
        self._attributes: dict[str, Any] = {"properties": given.properties or None}
        if given.key is not None:
            self._attributes["key"] = given.key
        if given.disable_replication:
            # To no other cluster. Absent, the message goes wherever its namespace does.
            self._attributes["replicate_to"] = []

    async def run(self, client: Client, clock: Clock, show: Show) -> None:
        """Send all messages; also after a failure, report how many are stored.

        Raises ``ClientError``.
        """
        given = self._given
        # Of all messages together, whatever the round.
        pace = Pace(given.rate, clock.monotonic())

        # Called by the client on the loop, once for each message and in the order of sending: no
        # lock guards these counters.
        def note(message_id: MessageId | None, error: ClientError | None) -> None:
            if message_id is None:
                self._failure = self._failure or error
                return
            self._stored += 1
            if given.json:
                show(json.dumps({"messageId": str(message_id)}))

        try:
            # The receipts come while the next messages are sent; leaving the block waits for the
            # last.
            async with client.producer(given.topic, **self._options) as producer:
                for _ in range(given.num_produce):
                    for value in self._values:
                        await asyncio.sleep(pace.wait_s(clock.monotonic()))
                        # Waits while the producer has as many unstored messages as it may have;
                        # ``send_nowait`` would raise then.
                        await producer.ready()
                        # Nothing more is sent after a failure.
                        self._raise_failure()
                        producer.send_nowait(value, note, **self._attributes)
                        pace.add()
                # Every message has its receipt or its failure here.
                await producer.flush()
                self._raise_failure()
        finally:
            # JSON has a line for each message that was stored, and needs no summary.
            if not given.json:
                show(f"{self._stored} messages successfully produced")

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _schema_and_values(given: argparse.Namespace) -> tuple[Schema[Any] | None, list[Any]]:
    """The schema of the messages, and the values of one round, each of which fits it."""
    # Stage 1: the bytes of every message.
    #
    # Texts first, then files, in the order of the command line.
    parts = [
        part
        for text in given.messages
        for part in (text.split(given.separator) if given.separator else [text])
    ]
    # Arguments that are not UTF-8 arrive with surrogates; the bytes are sent as they were given.
    bodies = [part.encode(errors="surrogateescape") for part in parts]
    bodies += [content_of(name) for names in given.files for name in names]
    if not bodies:
        raise InvalidUse("there is nothing to send: -m TEXT or -f FILE")

    # Stage 2: the schema, and the values that these bytes stand for.
    value = schema_option(given.value_schema)
    # Without a schema, the topic keeps the one that it has.
    schema: Schema[Any] | None = None if given.value_schema == "bytes" else value.schema
    # All values are read before anything is sent: a mistake in the last file must not leave half of
    # the messages on the topic.
    values = [_read(value.read, body) for body in bodies]
    if given.key_value_encoding_type != "none":
        key = schema_option(given.key_schema)
        pair_key = _read(key.read, _pair_key(given))
        encoding = given.key_value_encoding_type.upper()
        schema = KeyValueSchema(key.schema, value.schema, encoding)
        values = [(pair_key, each) for each in values]
    elif given.key_value_key is not None or given.key_value_key_file is not None:
        raise InvalidUse("-kvk and -kvkf are for pairs: -kvet says how these are encoded")
    # Stage 3: try each of them.
    #
    # A value that does not fit is reported before anything is sent.
    for each in values:
        _read((schema or BytesSchema()).encode, each)
    return schema, values


def _pair_key(given: argparse.Namespace) -> bytes:
    """The key of all pairs."""
    if given.key is not None and given.key_value_encoding_type == "separated":
        raise InvalidUse("the key of a separated pair is the message's key: leave out -k")
    if given.key_value_key_file is not None:
        return content_of(given.key_value_key_file)
    if given.key_value_key is None:
        raise InvalidUse("pairs need a key: -kvk TEXT or -kvkf FILE")
    text: str = given.key_value_key
    return text.encode(errors="surrogateescape")


def _read(read: Callable[[Any], Any], body: Any) -> Any:  # noqa: ANN401 - a value
    """Call ``read``, with an error that shows the beginning of what does not fit."""
    try:
        return read(body)
    except (ValueError, TypeError) as error:
        raise InvalidUse(f"{body!r:.100} does not fit its schema: {error}") from None


def run(given: argparse.Namespace) -> int:
    """Send the messages; returns the exit code."""

    async def work(client: Client) -> None:
        await Production(given).run(client, SystemClock(), print_now)

    return run_with_client(given, work)
