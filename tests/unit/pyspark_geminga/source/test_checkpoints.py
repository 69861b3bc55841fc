"""Where a query has got to, as its checkpoint says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geminga import LogPosition, MessageId
from pyspark_geminga.errors import InvalidOffset, InvalidOption
from pyspark_geminga.source.checkpoints import commit_from_checkpoint, committed_offset, last_before
from pyspark_geminga.source.decisions.offsets import Place, SourceOffset
from pyspark_geminga.source.decisions.options import SourceOptions

GIVEN = {"service.url": "pulsar://x", "topic": "orders"}
ORDERS = "persistent://public/default/orders-partition-0"
OTHER = "persistent://public/default/other"


def offset(topic: str, entry: int) -> str:
    return json.dumps(SourceOffset({topic: Place(LogPosition(1, entry))}).to_json())


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """As Spark 4.3 writes it: two batches planned, one done; three sources, one of files."""
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    for batch, entry in ((0, 5), (1, 9)):
        lines = ["v1", '{"batchWatermarkMs":0}', offset(OTHER, 77), '{"logOffset":3}', "-"]
        lines.insert(3, offset(ORDERS, entry))
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(lines))
    (tmp_path / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    (tmp_path / "commits" / ".0.crc").write_text("")
    return tmp_path


def read(checkpoint: Path, **options: str) -> SourceOffset | None:
    return committed_offset(checkpoint, SourceOptions.of({**GIVEN, **options}, is_streaming=True))


def test_the_last_batch_that_is_done_counts(checkpoint: Path) -> None:
    found = read(checkpoint)
    assert found is not None
    assert found.places == {ORDERS: Place(LogPosition(1, 5))}


def test_the_source_is_found_by_its_topics(checkpoint: Path) -> None:
    found = read(checkpoint, topic="other")
    assert found is not None
    assert found.places == {OTHER: Place(LogPosition(1, 77))}
    with pytest.raises(InvalidOffset, match="no source in"):
        read(checkpoint, topic="third")


def test_sources_with_names_are_read_too(checkpoint: Path) -> None:
    lines = ["v2", '{"batchWatermarkMs":0}', f"one:{offset(OTHER, 77)}", f"two:{offset(ORDERS, 5)}"]
    (checkpoint / "offsets" / "0").write_text("\n".join(lines))
    found = read(checkpoint)
    assert found is not None
    assert found.places == {ORDERS: Place(LogPosition(1, 5))}


def test_without_a_batch_that_is_done_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    (tmp_path / "commits").mkdir()
    assert read(tmp_path) is None
    assert commit_from_checkpoint(tmp_path, {**GIVEN, "predefinedSubscription": "s"}) == {}


def test_a_query_without_a_subscription_has_nothing_to_acknowledge(checkpoint: Path) -> None:
    with pytest.raises(InvalidOption, match="predefinedSubscription"):
        commit_from_checkpoint(checkpoint, GIVEN)


def test_everything_before_the_first_entry_of_a_ledger_is_the_entry_before_it() -> None:
    assert last_before(LogPosition(7, 3)) == MessageId(7, 2)
    assert last_before(LogPosition(7, 0)) == MessageId(7, -1)
