"""Every record of a real tree comes back as the same bytes; no bytes give other than WireError."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.project_files import GOLDEN

from geminga_protocol.errors import WireError
from geminga_protocol.records.bookies.bookie_info import BookieInfo
from geminga_protocol.records.bookies.cookies import Cookie
from geminga_protocol.records.bookies.racks import BookieRacks
from geminga_protocol.records.cluster.brokers import (
    BundleData,
    BundleStats,
    LeaderBroker,
    LocalBrokerData,
    TimeAverageBrokerData,
)
from geminga_protocol.records.cluster.clusters import ClusterData
from geminga_protocol.records.cluster.dynamic_configuration import (
    decode_configuration,
    encode_configuration,
)
from geminga_protocol.records.cluster.namespaces import LocalPolicies, Policies
from geminga_protocol.records.cluster.ownership import BundleOwner
from geminga_protocol.records.cluster.partitioned_topics import PartitionedTopicMetadata
from geminga_protocol.records.cluster.tenants import TenantInfo
from geminga_protocol.records.encodings.json_records import MEMBERS_PER_PART, JsonRecord
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.ledgers import underreplication
from geminga_protocol.records.ledgers.layout import LedgerLayout
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata
from geminga_protocol.records.topics.cursor import CursorRecord, PositionRecord
from geminga_protocol.records.topics.managed_ledger import ManagedLedgerRecord
from geminga_protocol.records.topics.schemas import SchemaEntry, SchemaLocator

WRITTEN = GOLDEN / "records"

Again = Callable[[bytes], bytes]
"""Decodes a record and encodes it again."""


def layout_again(value: bytes) -> bytes:
    underreplication.check_layout(value)
    return underreplication.encode_layout()


def last_check_again(value: bytes) -> bytes:
    return underreplication.encode_last_check(underreplication.decode_last_check(value))


def mark_again(value: bytes) -> bytes:
    return underreplication.UnderreplicatedLedger.decode(value).encode()


def bookie_info_again(value: bytes) -> bytes:
    return BookieInfo.decode(value, "127.0.0.1:3181").encode()


def configuration_again(value: bytes) -> bytes:
    return encode_configuration(decode_configuration(value))


# The kinds of records that stand in ZooKeeper, by their paths.
KINDS: dict[str, Again] = {
    r"/admin/clusters/[^/]+": lambda value: ClusterData.decode(value).encode(),
    r"/admin/configuration": configuration_again,
    r"/admin/policies/[^/]+": lambda value: TenantInfo.decode(value).encode(),
    r"/admin/policies/[^/]+/[^/]+": lambda value: Policies.decode(value).encode(),
    r"/admin/local-policies/.+": lambda value: LocalPolicies.decode(value).encode(),
    r"/admin/partitioned-topics/.+": lambda value: PartitionedTopicMetadata.decode(value).encode(),
    r"/bookies": lambda value: BookieRacks.decode(value).encode(),
    r"/ledgers/\d\d/\d{4}/L\d{4}": lambda value: LedgerMetadata.decode(value).encode(),
    r"/ledgers/available/.+": bookie_info_again,
    r"/ledgers/cookies/.+": lambda value: Cookie.decode(value).encode(),
    r"/ledgers/underreplication/LAYOUT": layout_again,
    r"/ledgers/underreplication/checkallledgersctime": last_check_again,
    r"/loadbalance/brokers/.+": lambda value: LocalBrokerData.decode(value).encode(),
    r"/loadbalance/broker-time-average/.+": lambda value: TimeAverageBrokerData.decode(
        value
    ).encode(),
    r"/loadbalance/bundle-data/.+": lambda value: BundleData.decode(value).encode(),
    r"/loadbalance/leader": lambda value: LeaderBroker.decode(value).encode(),
    r"/managed-ledgers/.+/persistent/[^/]+": lambda value: ManagedLedgerRecord.decode(
        value
    ).encode(),
    r"/managed-ledgers/.+/persistent/[^/]+/[^/]+": lambda value: CursorRecord.decode(
        value
    ).encode(),
    r"/namespace/.+": lambda value: BundleOwner.decode(value).encode(),
    r"/schemas/.+": lambda value: SchemaLocator.decode(value).encode(),
}
# What stands elsewhere, or stands in no recorded tree.
OTHER_KINDS: dict[str, Again] = {
    "cursor": lambda value: PositionRecord.decode(value).encode(),
    "schema": lambda value: SchemaEntry.decode(value).encode(),
    "layout": lambda value: LedgerLayout.decode(value).encode(),
    "mark": mark_again,
}
# Plain words and numbers, which need no codec.
PLAIN = {
    "/ledgers/INSTANCEID",
    "/ledgers/underreplication/leader",
    "/ledgers/underreplication/lostBookieRecoveryDelay",
}


def lines_of(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (WRITTEN / name).read_text().splitlines()]


def bytes_of(line: dict[str, str]) -> bytes:
    return bytes.fromhex(line["hex"]) if "hex" in line else line["text"].encode()


def kind_of(path: str) -> Again:
    (again,) = (again for pattern, again in KINDS.items() if re.fullmatch(pattern, path))
    return again


NODES = lines_of("zookeeper.jsonl") + lines_of("load.jsonl")
RECORDED = [
    (kind_of(line["path"]), bytes_of(line)) for line in NODES if line["path"] not in PLAIN
] + [
    (OTHER_KINDS[line["kind"]], bytes.fromhex(line["payload"]))
    for line in lines_of("ledger-entries.jsonl")
]


@pytest.mark.parametrize("line", NODES, ids=lambda line: line["path"])
def test_a_recorded_node_encodes_to_the_same_bytes(line: dict[str, str]) -> None:
    if line["path"] not in PLAIN:
        assert kind_of(line["path"])(bytes_of(line)) == bytes_of(line)


@pytest.mark.parametrize("bundles", [0, 1, MEMBERS_PER_PART, 10 * MEMBERS_PER_PART + 1])
@pytest.mark.parametrize("other", [{}, {"later": [1, {"a": None}], "last": "ä"}])
def test_a_record_in_parts_has_the_same_bytes_and_its_parts_are_small(
    bundles: int, other: dict[str, object]
) -> None:
    stats = {f"t/n/{number}": BundleStats(msg_rate_in=number / 7) for number in range(bundles)}
    record = LocalBrokerData(last_stats=stats, other=other)
    parts = list(record.encode_in_parts())
    assert b"".join(parts) == record.encode()
    assert max(part.count(b"msgRateIn") for part in parts) <= MEMBERS_PER_PART
    assert b"".join(JsonRecord(other=other).encode_in_parts()) == JsonRecord(other=other).encode()


@pytest.mark.parametrize("bundles", [0, MEMBERS_PER_PART, 10 * MEMBERS_PER_PART + 1])
@pytest.mark.parametrize("other", [{}, {"later": {str(number): 1 for number in range(200)}}])
def test_a_record_is_decoded_in_parts_that_are_small(
    bundles: int, other: dict[str, object]
) -> None:
    stats = {f"t/n/{number}": BundleStats(msg_rate_in=number / 7) for number in range(bundles)}
    record = LocalBrokerData(last_stats=stats, other=other)
    decoded: list[LocalBrokerData] = []

    def steps() -> Iterator[None]:
        decoded.append((yield from LocalBrokerData.decode_in_parts(record.encode())))

    # The text as JSON, then a hundred bundles each.
    assert len(list(steps())) == 1 + (0 if bundles <= MEMBERS_PER_PART else 11)
    assert decoded == [record]


@pytest.mark.parametrize("text", [b"", b"[]", b'{"lastStats":3}', b'{"lastStats":{"a":1}}'])
@pytest.mark.parametrize("count", [1, 1000])
def test_what_is_no_record_is_refused_in_parts_as_in_one(text: bytes, count: int) -> None:
    more = b"".join(b',"%d":1' % number for number in range(count))
    with pytest.raises(MalformedRecord):
        list(LocalBrokerData.decode_in_parts(text.replace(b'"a":1', b'"a":1' + more)))


@pytest.mark.parametrize("line", lines_of("ledger-entries.jsonl"))
def test_a_recorded_ledger_entry_encodes_to_the_same_bytes(line: dict[str, str]) -> None:
    payload = bytes.fromhex(line["payload"])
    assert OTHER_KINDS[line["kind"]](payload) == payload


UPSTREAM_KINDS: dict[str, Again] = {
    "policies": KINDS[r"/admin/policies/[^/]+/[^/]+"],
    "policies-new": KINDS[r"/admin/policies/[^/]+/[^/]+"],
    "local": KINDS[r"/admin/local-policies/.+"],
    "cluster": KINDS[r"/admin/clusters/[^/]+"],
    "owner": KINDS[r"/namespace/.+"],
    "broker": KINDS[r"/loadbalance/brokers/.+"],
    "partitioned": KINDS[r"/admin/partitioned-topics/.+"],
    "racks": KINDS[r"/bookies"],
}


@pytest.mark.parametrize("kind", UPSTREAM_KINDS)
def test_what_upstreams_classes_write_encodes_to_the_same_bytes(kind: str) -> None:
    (text,) = (line["text"] for line in lines_of("jackson.jsonl") if line["kind"] == kind)
    assert UPSTREAM_KINDS[kind](text.encode()) == text.encode()


def expect_a_value_or_a_wire_error(again: Again, value: bytes) -> None:
    try:
        encoded = again(value)
    except WireError:
        return
    # A bookie without endpoints is empty, and an empty one is an old bookie with an address.
    assert again(encoded) == encoded or not encoded


@pytest.mark.parametrize("again", [*KINDS.values(), *OTHER_KINDS.values()])
@given(value=st.binary(max_size=200))
def test_garbage_gives_a_wire_error_and_nothing_else(again: Again, value: bytes) -> None:
    expect_a_value_or_a_wire_error(again, value)


@given(
    st.sampled_from(RECORDED),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_a_damaged_record_gives_a_wire_error_or_another_record(
    recorded: tuple[Again, bytes], changes: list[tuple[int, int]]
) -> None:
    again, value = recorded
    damaged = bytearray(value)
    for position, byte in changes:
        damaged[position % len(damaged)] = byte
    expect_a_value_or_a_wire_error(again, bytes(damaged))


@given(st.sampled_from(RECORDED), st.integers(0, 5000))
def test_a_cut_record_gives_a_wire_error_or_another_record(
    recorded: tuple[Again, bytes], end: int
) -> None:
    again, value = recorded
    expect_a_value_or_a_wire_error(again, value[: end % len(value)])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
JSON_RECORDED = [(again, value) for again, value in RECORDED if value.startswith(b"{")]


@given(st.sampled_from(JSON_RECORDED), json_values, st.integers(0, 100))
def test_a_member_of_any_other_type_gives_a_wire_error_or_another_record(
    recorded: tuple[Again, bytes], replacement: object, which: int
) -> None:
    again, value = recorded
    document: dict[str, object] = json.loads(value) or {"member": None}
    document[list(document)[which % len(document)]] = replacement
    expect_a_value_or_a_wire_error(again, json.dumps(document).encode())


@pytest.mark.parametrize("again", [*KINDS.values(), *OTHER_KINDS.values()])
def test_json_nested_without_end_gives_a_wire_error(again: Again) -> None:
    with pytest.raises(WireError):
        again(b"[" * 100_000)
    with pytest.raises(WireError):
        again(b'{"a":' * 100_000)
