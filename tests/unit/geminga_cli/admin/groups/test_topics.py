"""Proves what commands of topics do with brokers of TLS alone, and with an unreadable list."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.geminga_cli.admin.recording_service import (
    RecordingService,
    done,
    given_for,
    operation_of,
)

from geminga_cli.admin.errors import InvalidUse


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_list_of_topics_that_cannot_be_read_is_refused(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "names"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidUse, match="cannot be read"):
        done(f"topics delete {file} --from-file")


def test_partitions_are_found_at_brokers_that_serve_tls_only() -> None:
    topic = "persistent/public/default/orders"
    url = "pulsar+ssl://broker:6651"
    service = RecordingService(
        {
            f"{topic}/partitions": {"partitions": 1},
            f"/lookup/v2/topic/{topic}-partition-0": {"brokerUrlTls": url},
        }
    )
    operation, words = operation_of("topics partitioned-lookup orders")
    found = operation.does(service, given_for(operation, words))
    assert found == {"persistent://public/default/orders-partition-0": url}
