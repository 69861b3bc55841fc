"""Schemas are registered once, numbered, deleted, and found again by any broker."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from typing import cast

import pytest
from tests.project_files import GOLDEN
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers

from geminga_broker.errors import StorageUnavailable
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.writing.confirmation_waiter import ConfirmationWaiter
from geminga_broker.policies.schemas import SchemaStrategy
from geminga_broker.schemas.counts import NAMESPACES_MAX, Operation
from geminga_broker.schemas.errors import IncompatibleSchema, InvalidSchema, SchemaNotFound
from geminga_broker.schemas.registry import SchemaRegistry, schema_id
from geminga_broker.schemas.rules.definitions import Schema
from geminga_broker.schemas.storage import SchemaStorage
from geminga_ledger import Ledgers, NotEnoughBookies
from geminga_protocol.pulsar.enums import SchemaType
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.topics.schemas import (
    NO_POSITION,
    SchemaEntry,
    SchemaIndex,
    SchemaInfo,
    SchemaLocator,
    schema_path,
)
from geminga_runtime.coordination import ConnectionLost, Coordination
from geminga_simulation.event_loop.clock import SimulatedClock

TOPIC = TopicName.parse("t/n/a b")
PATH = "/schemas/t/n/a+b"
FREELY = SchemaStrategy.ALWAYS_COMPATIBLE
STRING = Schema(SchemaType.STRING)

RECORDED = GOLDEN / "records"

Session = Callable[[str], Coordination]
Tree = Callable[[], dict[str, bytes]]


def avro(*fields: str, kind: str = "int") -> Schema:
    described = [{"name": each, "type": kind} for each in fields]
    record = {"type": "record", "name": "R", "fields": described}
    return Schema(SchemaType.AVRO, json.dumps(record).encode(), {"made": "here"})


def registry_over(coordination: Coordination, ledgers: MemoryLedgers) -> SchemaRegistry:
    storage = SchemaStorage(coordination, cast(Ledgers, ledgers), ManagedLedgerConfig())
    return SchemaRegistry(storage, SimulatedClock())


@pytest.fixture
def registry(coordination: Coordination, ledgers: MemoryLedgers) -> SchemaRegistry:
    return registry_over(coordination, ledgers)


async def numbers(registry: SchemaRegistry) -> list[int]:
    return [each.version for each in await registry.versions(TOPIC)]


async def test_a_new_schema_is_a_new_version_and_a_known_one_is_found(
    registry: SchemaRegistry,
) -> None:
    assert await registry.put(TOPIC, avro("a"), FREELY) == 0
    assert await registry.put(TOPIC, avro("a", "b"), FREELY) == 1
    assert await registry.put(TOPIC, avro("a"), FREELY) == 0
    assert await numbers(registry) == [0, 1]
    found = await registry.version(TOPIC, 0)
    assert found.info.definition == avro("a").definition
    assert (found.info.type, found.info.properties) == (SchemaType.AVRO, {"made": "here"})
    assert (await registry.version(TOPIC)).version == 1
    assert await registry.find(TOPIC, avro("c")) is None


async def test_what_may_not_follow_changes_nothing(registry: SchemaRegistry, tree: Tree) -> None:
    await registry.put(TOPIC, avro("a"), FREELY)
    before = tree()
    with pytest.raises(IncompatibleSchema):
        await registry.put(TOPIC, avro("a", "b"), SchemaStrategy.BACKWARD)
    with pytest.raises(InvalidSchema):
        await registry.put(TOPIC, Schema(SchemaType.AVRO, b"{"), FREELY)
    assert tree() == before
    with pytest.raises(IncompatibleSchema):
        await registry.check(TOPIC, STRING, SchemaStrategy.FULL)


async def test_a_version_stands_in_a_ledger_as_upstream_writes_it(
    registry: SchemaRegistry, ledgers: MemoryLedgers, tree: Tree
) -> None:
    await registry.put(TOPIC, avro("a"), FREELY)
    await registry.put(TOPIC, avro("b"), FREELY)
    hashes = [hashlib.sha256(avro(name).definition).digest() for name in "ab"]
    versions = tuple(SchemaIndex(at, (at, 0), hashes[at]) for at in (0, 1))
    assert SchemaLocator.decode(tree()[PATH]) == SchemaLocator(versions[1], versions)
    entries = [SchemaEntry.decode(ledgers.entries[at][0]) for at in (0, 1)]
    assert entries[0].versions == (SchemaIndex(0, NO_POSITION, hashes[0]),)
    assert entries[1].versions == versions[:1]
    assert all(each.is_closed for each in ledgers.writers)


async def test_what_is_stored_equals_what_a_real_broker_stored(
    coordination: Coordination, ledgers: MemoryLedgers, tree: Tree
) -> None:
    """Byte for byte: the node and the entry that Apache Pulsar 4.0.6 wrote for a producer."""
    nodes = map(json.loads, (RECORDED / "zookeeper.jsonl").read_text().splitlines())
    (node,) = (each["hex"] for each in nodes if each["path"] == "/schemas/acme/shop/orders")
    locator = SchemaLocator.decode(bytes.fromhex(node))
    place = dict(zip(("ledger", "entry"), locator.newest.position, strict=True))
    entries = map(json.loads, (RECORDED / "ledger-entries.jsonl").read_text().splitlines())
    (payload,) = (
        bytes.fromhex(each["payload"]) for each in entries if place.items() <= each.items()
    )
    info = SchemaInfo.decode(SchemaEntry.decode(payload).schema)
    for at in range(place["ledger"]):  # so that the ledger gets the same number
        ledgers.writers.append(ledgers.new_writer(at, ConfirmationWaiter()))
    storage = SchemaStorage(coordination, cast(Ledgers, ledgers), ManagedLedgerConfig())
    clock = SimulatedClock()
    clock.set_wall(info.created_ms)
    registry = SchemaRegistry(storage, clock)
    schema = Schema(info.type, info.definition, info.properties)
    assert await registry.put(TopicName.parse("acme/shop/orders"), schema, FREELY) == 0
    assert tree()["/schemas/acme/shop/orders"] == bytes.fromhex(node)
    assert ledgers.entries[place["ledger"]] == [payload]


async def test_a_deleted_schema_leaves_a_tombstone_and_numbers_go_on(
    registry: SchemaRegistry,
) -> None:
    await registry.put(TOPIC, avro("a"), FREELY)
    assert await registry.delete(TOPIC) == 1
    assert await numbers(registry) == []
    for number in (None, 0, 1):
        with pytest.raises(SchemaNotFound):
            await registry.version(TOPIC, number)
    assert await registry.put(TOPIC, STRING, SchemaStrategy.FULL) == 2
    assert await numbers(registry) == [2]
    assert await registry.delete(TOPIC) == 3
    assert await registry.delete(TOPIC) == 4


async def test_a_schema_that_is_deleted_for_good_leaves_nothing(
    registry: SchemaRegistry, ledgers: MemoryLedgers, tree: Tree
) -> None:
    for name in "abc":
        await registry.put(TOPIC, avro(name), FREELY)
    assert await registry.delete_all(TOPIC)
    assert ledgers.entries == {}
    assert PATH not in tree()
    assert not await registry.delete_all(TOPIC)
    assert await registry.put(TOPIC, STRING, FREELY) == 0


async def test_a_deletion_that_was_cut_short_is_finished_by_the_next(
    registry: SchemaRegistry,
    coordination: Coordination,
    ledgers: MemoryLedgers,
    tree: Tree,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node names the ledgers until the last is gone: none is left that nothing names."""
    for name in "abc":
        await registry.put(TOPIC, avro(name), FREELY)
    delete = ledgers.delete

    async def once(ledger_id: int) -> None:
        await delete(ledger_id)
        monkeypatch.setattr(ledgers, "delete", lost)

    async def lost(ledger_id: int) -> None:
        raise ConnectionLost(f"no answer about {ledger_id}")

    monkeypatch.setattr(ledgers, "delete", once)
    with pytest.raises(ConnectionLost):
        await registry.delete_all(TOPIC)
    assert len(ledgers.entries) == 2
    assert len(SchemaLocator.decode(tree()[PATH]).versions) == 3
    monkeypatch.setattr(ledgers, "delete", delete)
    other_broker = registry_over(coordination, ledgers)
    assert len(await numbers(other_broker)) == 2
    assert await other_broker.delete_all(TOPIC)
    assert ledgers.entries == {}
    assert PATH not in tree()


async def test_a_version_that_comes_while_all_are_deleted_is_deleted_too(
    session: Session, ledgers: MemoryLedgers, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (registry_over(session(name), ledgers) for name in ("one", "other"))
    await one.put(TOPIC, avro("a"), FREELY)
    delete = ledgers.delete

    async def register_meanwhile(ledger_id: int) -> None:
        monkeypatch.setattr(ledgers, "delete", delete)
        assert await other.put(TOPIC, avro("b"), FREELY) == 1
        await delete(ledger_id)

    monkeypatch.setattr(ledgers, "delete", register_meanwhile)
    assert await one.delete_all(TOPIC)
    assert ledgers.entries == {}
    assert PATH not in tree()


async def test_partitions_have_the_schema_of_their_topic(registry: SchemaRegistry) -> None:
    await registry.put(TOPIC.partition(3), STRING, FREELY)
    assert (await registry.version(TOPIC)).version == 0
    assert schema_id(TOPIC.partition(3)) == schema_id(TOPIC) == PATH.removeprefix("/schemas/")


async def test_many_producers_with_a_new_schema_store_it_once(
    registry: SchemaRegistry, ledgers: MemoryLedgers
) -> None:
    puts = (registry.put(TOPIC, avro("a"), SchemaStrategy.FULL) for _ in range(50))
    assert set(await asyncio.gather(*puts)) == {0}
    assert len(ledgers.writers) == 1


async def test_two_brokers_lose_no_version(
    session: Session, ledgers: MemoryLedgers, registry: SchemaRegistry
) -> None:
    """Both read before either writes: one write fails, is repeated, and leaves no ledger."""
    brokers = [registry_over(session(name), ledgers) for name in ("one", "other")]
    schemas = [avro(f"f{at}") for at in range(10)]
    for pair in zip(schemas[::2], schemas[1::2], strict=True):
        both = zip(brokers, pair, strict=True)
        await asyncio.gather(*(broker.put(TOPIC, each, FREELY) for broker, each in both))
    stored = [each.info.definition for each in await registry.versions(TOPIC)]
    assert sorted(stored) == sorted(each.definition for each in schemas)
    assert await numbers(registry) == list(range(10))
    assert len(ledgers.writers) > len(ledgers.entries) == 10


async def test_two_brokers_agree_on_what_may_follow(
    session: Session, ledgers: MemoryLedgers
) -> None:
    """The one that comes second is compared with what the first one stored meanwhile."""
    brokers = [registry_over(session(name), ledgers) for name in ("one", "other")]
    results = await asyncio.gather(
        brokers[0].put(TOPIC, avro("a"), SchemaStrategy.FULL),
        brokers[1].put(TOPIC, avro("a", kind="string"), SchemaStrategy.FULL),
        return_exceptions=True,
    )
    assert [each for each in results if isinstance(each, int)] == [0]
    assert sum(isinstance(each, IncompatibleSchema) for each in results) == 1


async def test_a_lost_ledger_costs_its_version_and_no_other(
    registry: SchemaRegistry, coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    for name in "abc":
        await registry.put(TOPIC, avro(name), FREELY)
    del ledgers.entries[1]
    fresh = registry_over(coordination, ledgers)
    assert await numbers(fresh) == [0, 2]
    assert await fresh.put(TOPIC, avro("d"), FREELY) == 3


async def test_without_bookies_the_refusal_can_be_retried(
    registry: SchemaRegistry, ledgers: MemoryLedgers, tree: Tree
) -> None:
    before = tree()
    ledgers.create_error = NotEnoughBookies(1, 0)
    with pytest.raises(StorageUnavailable) as refusal:
        await registry.put(TOPIC, STRING, FREELY)
    assert refusal.value.retry
    assert tree() == before


async def test_what_is_done_to_schemas_is_counted_by_namespace(
    registry: SchemaRegistry, ledgers: MemoryLedgers
) -> None:
    await registry.put(TOPIC, avro("a"), FREELY)
    with pytest.raises(IncompatibleSchema):
        await registry.put(TOPIC, avro("a", "b"), SchemaStrategy.BACKWARD)
    await registry.put(TOPIC, avro("b"), FREELY)
    with pytest.raises(SchemaNotFound):
        await registry.version(TOPIC, 9)
    await registry.delete(TOPIC)
    ledgers.create_error = NotEnoughBookies(1, 0)
    with pytest.raises(StorageUnavailable):
        await registry.put(TOPIC, STRING, FREELY)
    counts = registry.counts.by_namespace["t/n"]
    done = {each: counts.durations[each].count for each in Operation}
    assert done == {Operation.GET: 1, Operation.PUT: 4, Operation.DELETE: 1}
    assert counts.failed == {Operation.GET: 0, Operation.PUT: 1, Operation.DELETE: 0}
    assert (counts.compatible, counts.incompatible) == (1, 1)
    for at in range(NAMESPACES_MAX):
        registry.counts.of(f"many/{at}")
    assert len(registry.counts.by_namespace) == NAMESPACES_MAX


async def test_versions_are_read_from_bookies_once(
    registry: SchemaRegistry, coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    await registry.put(TOPIC, avro("a"), FREELY)
    await registry.put(TOPIC, avro("b"), FREELY)
    assert ledgers.opened == []
    fresh = registry_over(coordination, ledgers)
    for _ in range(3):
        assert await fresh.find(TOPIC, avro("b")) == 1
    assert sorted(ledgers.opened) == [0, 1]


async def test_a_namespace_that_goes_takes_schemas_without_topics_with_it(
    registry: SchemaRegistry, ledgers: MemoryLedgers, tree: Tree
) -> None:
    await registry.put(TOPIC, STRING, FREELY)
    await registry.put(TopicName.parse("t/n/other"), STRING, FREELY)
    await registry.put(TopicName.parse("t/kept/a"), STRING, FREELY)
    await registry.delete_namespace(TOPIC.namespace)
    assert [path for path in tree() if path.startswith("/schemas/t/n")] == []
    assert schema_path("t/kept/a") in tree()
    assert len(ledgers.entries) == 1
    await registry.delete_namespace(TOPIC.namespace)
