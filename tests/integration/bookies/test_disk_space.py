"""Full disks: a bookie on one takes no new ledger and still serves what it has; deleted topics give
space back.

Each test has a bookie of its own, whose threshold lies a little above what is used of the disk.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.bookie_process import PartProcess, bookie_admin, bookie_process
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.sending import Sending, ledgers_of, read_all
from tests.integration.stored_ledgers import StoredLedgers, ask
from tests.integration.waiting import eventually

from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata

FILLED, EMPTIED, RELIEVED = "filled", "emptied", "relieved"
MESSAGES = 100
TOPICS_MAX = 12
MIB = 1 << 20
# Other processes write to the same disk meanwhile, and must not fill it: the bookie's threshold is
# this far away, and ``full_disk`` takes twice as much.
MARGIN_BYTES = 1 << 30
# The topic fills many small entry logs; at most so much of them may stay.
LARGE_MESSAGES, LARGE_BYTES = 200, 64 * 1024
LEFT_BYTES_MAX = 4 * MIB


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess]:
    started = StandaloneProcess.start(
        tmp_path_factory.mktemp("disk") / "data", "--num-bookies", "3"
    )
    yield started
    started.stop()


@contextmanager
def small_bookie(cluster: StandaloneProcess, name: str) -> Generator[PartProcess]:
    """A bookie with a threshold that ``full_disk`` exceeds."""
    disk = os.statvfs(cluster.data_directory)
    total_bytes, free_bytes = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
    assert free_bytes > 3 * MARGIN_BYTES, "the disk is too full to be filled by a test"
    threshold = str(1 - (free_bytes - MARGIN_BYTES) / total_bytes)
    options = (
        *("--disk-usage-threshold", threshold, "--disk-usage-warn-threshold", threshold),
        *("--disk-usage-lwm-threshold", threshold, "--disk-check-interval-s", "0.2"),
        *("--entry-log-bytes-max", str(MIB), "--compacts-when-full"),
        *("--gc-interval-s", "0", "--gc-full-disk-interval-s", "1"),
    )
    with bookie_process(cluster, name, *options) as bookie:
        yield bookie


@contextmanager
def full_disk(directory: Path) -> Generator[None]:
    """While this is open, most of the disk is allocated, though not a byte is written."""
    path = directory / "filler"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 2 * MARGIN_BYTES)
    try:
        yield
    finally:
        path.unlink()


def newest_ledger(cluster: StandaloneProcess, topic: str) -> LedgerMetadata:
    ledger_id = ledgers_of(cluster, topic)[-1]
    return ask(cluster, lambda stored: stored.ledgers.metadata(ledger_id))


def topic_on(cluster: StandaloneProcess, client: Any, bookie: str) -> tuple[str, Sending]:
    """A topic one of whose three copies is on this bookie."""
    for number in range(TOPICS_MAX):
        topic = f"on-{bookie}-{number}"
        sending = Sending(client, topic)
        sending.send_all(1)
        if bookie in newest_ledger(cluster, topic).fragments[-1].ensemble:
            return topic, sending
    raise AssertionError(f"none of {TOPICS_MAX} topics is on the bookie")


def modes(cluster: StandaloneProcess, bookie: str = FILLED) -> tuple[bool, bool]:
    """Whether the bookie is registered as writable, and as read-only."""
    live = ask(cluster, StoredLedgers.live)
    return bookie in live.writable, bookie in live.read_only


def are_on_it(cluster: StandaloneProcess, ledger_id: int) -> bool:
    """Whether the bookie has the first messages of the ledger."""
    holders = ask(cluster, lambda stored: stored.holders(ledger_id, MESSAGES))
    return all(FILLED in each for each in holders)


def test_on_a_full_disk_a_bookie_is_read_only_until_there_is_room_again(
    cluster: StandaloneProcess,
) -> None:
    with small_bookie(cluster, FILLED), client_of(cluster.service_url) as client:
        topic, sending = topic_on(cluster, client, FILLED)
        sending.send_all(MESSAGES)
        (ledger_id,) = ledgers_of(cluster, topic)
        # They are confirmed by two bookies of three: this one may still have to take them.
        eventually(lambda: are_on_it(cluster, ledger_id), bool)
        with full_disk(cluster.data_directory.parent):
            eventually(lambda: modes(cluster), lambda found: found == (False, True))
            sending.send_all(MESSAGES)
            assert ledgers_of(cluster, topic) == [ledger_id]
            # Two bookies may confirm the messages before the third is heard refusing them.
            metadata = eventually(
                lambda: newest_ledger(cluster, topic),
                lambda found: FILLED not in found.fragments[-1].ensemble,
            )
            assert FILLED in metadata.fragments[0].ensemble
            assert are_on_it(cluster, ledger_id)
            count = 1 + 2 * MESSAGES
            assert read_all(client, topic, count - 1) == list(range(count))
        eventually(lambda: modes(cluster), lambda found: found == (True, False))


def size_of(path: Path) -> int:
    """The size of a file; 0 if it was deleted just now."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def logs_bytes(cluster: StandaloneProcess, bookie: str) -> int:
    """How many bytes the bookie's entry logs take on disk."""
    ledgers = cluster.data_directory.parent / bookie / "ledgers"
    return sum(map(size_of, ledgers.glob("*.entries")))


def written_bytes(cluster: StandaloneProcess, bookie: str) -> int:
    """How many bytes they take when all is written, and space reserved ahead was given back."""
    bookie_admin(cluster, "force-gc", bookie)
    return logs_bytes(cluster, bookie)


def delete_topic(cluster: StandaloneProcess, topic: str) -> None:
    path = f"/admin/v2/persistent/public/default/{topic}"
    status, answer = rest(cluster.web_service_url, "DELETE", path)
    assert status == 204, answer


def test_on_a_full_disk_a_deleted_topic_makes_room_without_an_order(
    cluster: StandaloneProcess,
) -> None:
    with small_bookie(cluster, RELIEVED) as bookie, client_of(cluster.service_url) as client:
        topic, sending = topic_on(cluster, client, RELIEVED)
        sending.send_all(LARGE_MESSAGES, LARGE_BYTES)
        written = partial(written_bytes, cluster, RELIEVED)
        eventually(written, lambda found: found > LARGE_MESSAGES * LARGE_BYTES)
        sending.close()
        with full_disk(cluster.data_directory.parent):
            eventually(lambda: modes(cluster, RELIEVED), lambda found: found == (False, True))
            bookie.wait_for(f"geminga bookie-admin force-gc {RELIEVED}")
            delete_topic(cluster, topic)
            eventually(lambda: logs_bytes(cluster, RELIEVED), lambda found: found < LEFT_BYTES_MAX)
        eventually(lambda: modes(cluster, RELIEVED), lambda found: found == (True, False))


def test_the_space_of_a_topic_that_is_deleted_comes_back(cluster: StandaloneProcess) -> None:
    used_bytes = partial(written_bytes, cluster, EMPTIED)
    with small_bookie(cluster, EMPTIED), client_of(cluster.service_url) as client:
        topic, sending = topic_on(cluster, client, EMPTIED)
        sending.send_all(LARGE_MESSAGES, LARGE_BYTES)
        eventually(used_bytes, lambda found: found > LARGE_MESSAGES * LARGE_BYTES)
        sending.close()
        delete_topic(cluster, topic)
        eventually(used_bytes, lambda found: found < LEFT_BYTES_MAX)
