"""Proves what ``geminga produce`` sends, what it says, and what it refuses before it connects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.geminga.fake_broker import FakeBroker

from geminga import Client, KeyValueSchema, ProducerFenced, SendTimedOut, StringSchema
from geminga_cli.admin.errors import InvalidUse
from geminga_cli.commands.produce import make_parser
from geminga_cli.messaging.produce import Production
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar.api_pb2 import BaseCommand, ServerError
from geminga_protocol.pulsar.messages.payload import open_payload
from geminga_simulation.event_loop.clock import SimulatedClock

RECORD = '{"type":"record","name":"A","fields":[{"name":"a","type":"int"}]}'


def production(*words: str) -> Production:
    return Production(make_parser().parse_args(["orders", *words]))


async def shown_by(client: Client, *words: str) -> list[str]:
    shown: list[str] = []
    await production(*words).run(client, SimulatedClock(), shown.append)
    return shown


async def test_texts_are_split_and_sent_before_files(
    client: Client, broker: FakeBroker, tmp_path: Path
) -> None:
    file = tmp_path / "message"
    file.write_bytes(b"\xff,\x00")
    shown = await shown_by(client, "-m", "one,two", "-m", "three", "-f", str(file), "-n", "2")
    assert broker.stored_bodies == [b"one", b"two", b"three", b"\xff,\x00"] * 2
    assert shown == ["8 messages successfully produced"]


async def test_another_separator_or_none(client: Client, broker: FakeBroker) -> None:
    await shown_by(client, "-m", "a,b#c", "-s", "#")
    await shown_by(client, "-m", "a,b", "-s", "")
    assert broker.stored_bodies == [b"a,b", b"c", b"a,b"]


async def test_programs_get_the_id_of_every_message(client: Client, broker: FakeBroker) -> None:
    shown = await shown_by(client, "-m", "one,two", "--json", "-db")
    assert [json.loads(line) for line in shown] == [
        {"messageId": "3:0:-1"},
        {"messageId": "3:1:-1"},
    ]
    assert broker.stored_bodies == [b"one", b"two"]


async def test_key_properties_and_clusters_go_with_every_message(
    client: Client, broker: FakeBroker
) -> None:
    await shown_by(client, "-m", "x", "-k", "k", "-p", "a=1", "-dr", "-db")
    metadata, _ = open_payload(broker.payloads[0], 0, len(broker.payloads[0]))
    assert metadata.partition_key == "k"
    assert [(each.key, each.value) for each in metadata.properties] == [("a", "1")]
    assert list(metadata.replicate_to) == ["__local__"]


async def test_a_rate_is_kept(client: Client, broker: FakeBroker) -> None:
    clock = SimulatedClock()
    before_s = clock.monotonic()
    await production("-m", "x", "-n", "11", "-r", "2").run(client, clock, lambda _: None)
    assert len(broker.stored) == 11
    assert clock.monotonic() - before_s == pytest.approx(5, abs=0.1)


async def test_a_refusal_ends_it_and_says_how_many_are_stored(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.PRODUCER,
        lambda session, command, _: session.write(
            answers.encode_error(
                command.producer.request_id, ServerError.ProducerFenced, "another one"
            )
        ),
    )
    shown: list[str] = []
    with pytest.raises(ProducerFenced):
        await production("-m", "x").run(client, SimulatedClock(), shown.append)
    assert shown == ["0 messages successfully produced"]


async def test_after_a_failure_nothing_more_is_sent(client: Client, broker: FakeBroker) -> None:
    broker.on(BaseCommand.SEND)  # never answered: the client gives a message up after 30 seconds
    clock = SimulatedClock()
    with pytest.raises(SendTimedOut):
        await production("-m", "x", "-n", "100", "-r", "1").run(client, clock, lambda _: None)
    assert 30 <= clock.monotonic() < 50


def test_pairs_have_a_key_and_a_value() -> None:
    made = production("-m", "v", "-kvet", "separated", "-vs", "string", "-kvk", "k")
    assert isinstance(made._schema, KeyValueSchema)
    assert made._schema.schema_info == (
        KeyValueSchema(StringSchema(), StringSchema(), "SEPARATED").schema_info
    )
    assert made._values == [("k", "v")]


def test_records_are_written_as_json() -> None:
    for kind in ("json", "avro"):
        made = production("-m", '{"a": 1}', "-vs", f"{kind}:{RECORD}")
        assert made._values == [{"a": 1}]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "nothing to send"),
        (["-f", "/nowhere"], "file cannot be read"),
        (["-m", "x", "-vs", "protobuf"], "no schema"),
        (["-m", "x", "-vs", "json:{"], "definition of the json schema"),
        (["-m", "x", "-vs", f"json:{RECORD}"], "does not fit its schema"),
        (["-m", '{"a": "b"}', "-s", "", "-vs", f"avro:{RECORD}"], "does not fit its schema"),
        (["-m", "x", "-kvk", "k"], "are for pairs"),
        (["-m", "x", "-kvet", "inline"], "pairs need a key"),
        (["-m", "x", "-kvet", "separated", "-kvk", "k", "-k", "k"], "leave out -k"),
        (["-m", "x", "-ekn", "name"], "both or neither"),
        (["-m", "x", "-ekn", "name", "-ekv", "pem"], "should be file:"),
        (["-m", "x", "-ekn", "name", "-ekv", "data:,x"], "base64,TEXT"),
        (["-m", "x", "-ekn", "name", "-ekv", "file:///nowhere"], "file cannot be read"),
    ],
)
def test_what_does_not_go_together_is_refused(words: list[str], reason: str) -> None:
    with pytest.raises(InvalidUse, match=reason):
        production(*words)


def test_a_key_is_read_from_a_file_or_given_itself(tmp_path: Path) -> None:
    (tmp_path / "a key").write_bytes(b"pem")
    for uri in (f"file://{tmp_path}/a%20key", "data:application/x-pem-file;base64,cGVt"):
        options: dict[str, Any] = production("-m", "x", "-ekn", "n", "-ekv", uri)._options
        assert options["encryption"].keys.public_key("n").pem == b"pem"
