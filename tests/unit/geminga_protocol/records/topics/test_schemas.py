"""Schema locators lead to the entries that hold the schemas."""

from __future__ import annotations

import hashlib
import json

from tests.project_files import GOLDEN

from geminga_protocol.pulsar.enums import SchemaType
from geminga_protocol.records.topics.schemas import (
    NO_POSITION,
    SchemaEntry,
    SchemaIndex,
    SchemaInfo,
    SchemaLocator,
    schema_path,
)

RECORDED = GOLDEN / "records"


def recorded_node(path: str) -> bytes:
    lines = map(json.loads, (RECORDED / "zookeeper.jsonl").read_text().splitlines())
    (text,) = (line["hex"] for line in lines if line["path"] == path)
    return bytes.fromhex(text)


def recorded_entry(ledger_id: int, entry_id: int) -> bytes:
    lines = map(json.loads, (RECORDED / "ledger-entries.jsonl").read_text().splitlines())
    place = {"ledger": ledger_id, "entry": entry_id}
    (text,) = (line["payload"] for line in lines if place.items() <= line.items())
    return bytes.fromhex(text)


def test_a_recorded_locator_leads_to_the_recorded_entry() -> None:
    locator = SchemaLocator.decode(recorded_node(schema_path("acme/shop/orders")))
    assert locator.newest.version == 0
    assert locator.versions == (locator.newest,)
    payload = recorded_entry(*locator.newest.position)
    entry = SchemaEntry.decode(payload)
    info = SchemaInfo.decode(entry.schema)
    assert (info.schema_id, info.type) == ("acme/shop/orders", SchemaType.AVRO)
    assert b'"name": "Order"' in info.definition
    assert locator.newest.hash == hashlib.sha256(info.definition).digest()
    # Before the first version there is none: the entry says so with a position that cannot be.
    assert entry.versions == (SchemaIndex(0, NO_POSITION, locator.newest.hash),)
    assert SchemaEntry(info.encode(), entry.versions).encode() == payload


def test_all_versions_come_back() -> None:
    versions = tuple(SchemaIndex(number, (9, number), bytes([number])) for number in range(3))
    locator = SchemaLocator(versions[-1], versions)
    assert SchemaLocator.decode(locator.encode()) == locator
    entry = SchemaEntry(b"schema", versions)
    assert SchemaEntry.decode(entry.encode()) == entry


def test_every_type_is_stored_and_read_back() -> None:
    for kind in SchemaType:
        if kind is not SchemaType.AUTO_CONSUME:
            info = SchemaInfo("a/b/c", kind, b"{}", 7, "me", properties={"x": "y"})
            assert SchemaInfo.decode(info.encode()) == info
