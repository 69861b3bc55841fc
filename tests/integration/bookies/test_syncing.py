"""A bookie confirms an entry only when its disk has synced it.

The test holds up the syncs of all bookies: no receipt comes until it lets them go, however long
that takes.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from tests.integration.conftest import StartStandalone
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.held_bookie import HOLD_VARIABLE, waiting_path
from tests.integration.raw_client import TIMEOUT_S, RawClient, send_frame
from tests.integration.waiting import eventually

from geminga_protocol.pulsar import api_pb2 as api

TOPIC = "persistent://public/default/synced"
HELD = ("tests.integration.processes.standalone_with", "tests.integration.processes.held_bookie")
PRODUCER_ID = 1
# A sync takes a millisecond; a bookie that does not wait for it answers long before.
HELD_S = 0.5


@pytest.fixture
def hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """While this file exists, the bookies do not sync."""
    path = tmp_path / "hold"
    monkeypatch.setenv(HOLD_VARIABLE, str(path))
    yield path
    path.unlink(missing_ok=True)  # or the bookie could not be stopped


@pytest.fixture
def cluster(hold: Path, start_standalone: StartStandalone) -> StandaloneProcess:
    assert not hold.exists()
    return start_standalone(module=HELD)


def test_a_receipt_comes_after_the_sync_of_its_entry(
    cluster: StandaloneProcess, hold: Path
) -> None:
    with RawClient(cluster.service_url) as client:
        client.connect()
        client.create_producer(TOPIC, PRODUCER_ID)
        client.publish(PRODUCER_ID, 0, b"nothing is held up")
        hold.touch()
        client.write(send_frame(PRODUCER_ID, 1, b"this one is"))
        eventually(waiting_path(hold).exists, bool)
        client.set_timeout(HELD_S)
        with pytest.raises(TimeoutError):
            client.receive()
        hold.unlink()
        client.set_timeout(TIMEOUT_S)
        receipt = client.expect(api.BaseCommand.SEND_RECEIPT).command.send_receipt
        assert receipt.sequence_id == 1
