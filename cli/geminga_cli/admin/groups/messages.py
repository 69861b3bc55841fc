"""Single messages, shown without being acknowledged: commands of ``geminga admin topics``."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from geminga_cli.admin.errors import AdminRefused
from geminga_cli.admin.operation import Given, Operation, gets, option, path, place, switch
from geminga_cli.admin.service import AdminService, Answer
from geminga_cli.admin.values import moment_ms, topic
from geminga_cli.display.text import hex_lines, plain_text

TOPIC = place("topic", "the topic's name", topic)
# Brokers send the metadata of a message in headers with this prefix.
SHOWN = "x-pulsar-"
# The names in headers, and those in our answers. ``PersistentTopicsBase.generateResponseWithEntry``
# of Pulsar writes the headers; fields that are empty have none.
FIELDS = {
    "message-id": "messageId",
    "publish-time": "publishTime",
    "event-time": "eventTime",
    "producer-name": "producerName",
    "sequence-id": "sequenceId",
    "partition-key": "key",
    "replicated-from": "replicatedFrom",
    "deliver-at-time": "deliverAt",
    "compression": "compression",
}


def read_messages(answer: Answer) -> list[dict[str, Any]]:
    """The messages of an entry that a broker returned: one, or those of a batch."""
    headers = {
        name.removeprefix(SHOWN): value
        for name, value in answer.headers.items()
        if name.startswith(SHOWN)
    }
    head: dict[str, Any] = {FIELDS[name]: headers[name] for name in FIELDS if name in headers}
    properties = json.loads(headers.get("property", "{}"))
    # A batch has the header whatever its size.
    if "num-batch-message" not in headers:
        return [{**head, "properties": properties, **_content(answer.body)}]
    # The broker sends the content of a batch uncompressed.
    from geminga_protocol.pulsar.messages.payload import (  # noqa: PLC0415 - 60 ms to load
        split_batch,
    )

    messages: list[dict[str, Any]] = []
    for index, (single, body) in enumerate(
        split_batch(answer.body, int(headers["num-batch-message"]))
    ):
        messages.append(
            {
                **head,
                # pulsar-admin shows the index in the batch as a third part.
                "messageId": f"{head.get('messageId', '')}:{index}",
                **({"key": single.partition_key} if single.partition_key else {}),
                "properties": {each.key: each.value for each in single.properties},
                **_content(body),
            }
        )
    return messages


def _content(body: bytes) -> Mapping[str, str]:
    """The body as text; bytes that are no text in base64, which JSON can hold."""
    try:
        return {"data": body.decode()}
    except UnicodeDecodeError:
        return {"dataBase64": b64encode(body).decode()}


def show_messages(messages: list[dict[str, Any]]) -> Iterator[str]:
    """The lines of messages: of each its metadata in one line, its properties, its content."""
    for number, message in enumerate(messages):
        if number:
            yield "-" * 72
        rest = ("properties", "data", "dataBase64")
        head = (f"{name}: {value}" for name, value in message.items() if name not in rest)
        yield plain_text("  ".join(head))
        for name, value in message["properties"].items():
            yield plain_text(f"  {name} = {value}")
        # Others as a hex dump, which no terminal obeys.
        if "data" in message and message["data"].isprintable():
            yield message["data"]
        else:
            text = message.get("data")
            yield from hex_lines(
                b64decode(message["dataBase64"]) if text is None else text.encode()
            )


def peek_messages(service: AdminService, given: Given) -> list[dict[str, Any]]:
    """The first messages that the subscription has not acknowledged, up to ``--count``."""
    found: list[dict[str, Any]] = []
    template = "{topic}/subscription/{subscription}/position/"
    # REST counts unacknowledged entries from 1: one request for each of them. An entry that is
    # acknowledged meanwhile shifts those behind it, so the next one may be skipped.
    position = 1
    while len(found) < given.count:
        try:
            answer = service.fetch(path(template, given) + str(position))
        except AdminRefused as error:
            # There are no more; without any, the broker's reason is shown.
            if error.status == HTTPStatus.NOT_FOUND and found:
                break
            raise
        found += read_messages(answer)
        position += 1
    # An entry may be a batch, of which not all messages are wanted.
    return found[: given.count]


def get_message(service: AdminService, given: Given) -> list[dict[str, Any]]:
    """The messages of one entry."""
    return read_messages(service.fetch(path("{topic}/ledger/{ledgerId}/entry/{entryId}", given)))


def examine_message(service: AdminService, given: Given) -> list[dict[str, Any]]:
    """The message at a distance from the first or the last."""
    query = {"initialPosition": given.initialPosition, "messagePosition": given.messagePosition}
    return read_messages(service.fetch(path("{topic}/examinemessage", given), query))


# ``PersistentTopicsBase`` of Pulsar: these read from the topic's ledgers, and leave no trace in it.
# The broker that owns the topic answers them.
MESSAGE_OPERATIONS = (
    Operation(
        "peek-messages",
        "show the first messages that a subscription has not acknowledged",
        (
            TOPIC,
            option("-s", "--subscription", required=True, metavar="NAME", help="the subscription"),
            option("-n", "--count", read=int, default=1, help="how many (default: 1)"),
            switch(
                "-ssm",
                "--show-server-marker",
                help="accepted, as in pulsar-admin; brokers here write no markers",
            ),
        ),
        peek_messages,
        show_messages,
    ),
    Operation(
        "get-message-by-id",
        "show the messages of an entry",
        (
            TOPIC,
            option("-l", "--ledgerId", read=int, required=True, help="the entry's ledger"),
            option("-e", "--entryId", read=int, required=True, help="the entry's id in the ledger"),
        ),
        get_message,
        show_messages,
    ),
    Operation(
        "examine-messages",
        "show a message by its distance from the first or the last",
        (
            TOPIC,
            option(
                "-i",
                "--initialPosition",
                default="latest",
                choices=("latest", "earliest"),
                help="where to begin counting (default: latest)",
            ),
            option(
                "-m",
                "--messagePosition",
                read=int,
                default=1,
                help="the message's number, counted from there (1)",
            ),
        ),
        examine_message,
        show_messages,
    ),
    # The broker searches by publish time, which rises with few exceptions: producers have clocks of
    # their own.
    Operation(
        "get-message-id",
        "show the first message that was published at or after a time",
        (
            TOPIC,
            option(
                "-d",
                "--datetime",
                read=moment_ms,
                required=True,
                metavar="TIME",
                help="2026-01-31T16:53:08Z",
            ),
        ),
        gets("{topic}/messageid/{datetime}"),
    ),
    Operation(
        "last-message-id",
        "show the id of a topic's last message",
        (TOPIC,),
        gets("{topic}/lastMessageId"),
    ),
)
