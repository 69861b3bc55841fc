"""Several bookies: each message is on all that should have it, though some of them die or stand
still.

The tests of this file share a cluster of four bookies, with each message on three of them. Where an
entry is the tests ask of ZooKeeper and of each bookie, and not of the broker.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from itertools import permutations

import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.bookie_process import PartProcess, bookie_admin, bookie_process
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.sending import NAMESPACE, Sending, ledgers_of, read_all
from tests.integration.stored_ledgers import StoredLedgers, ask, should_hold
from tests.integration.waiting import eventually

from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata, LedgerState

MESSAGES = 100
# 5,000 a second, for a second.
BURST, BURST_S, BURSTS = 50, 0.01, 100
FIFTH = "fifth"
# How long the last copy may take: auto-recovery waits half a minute before it copies a ledger that
# is still being written, and a busy machine is slow.
RECOVERED_S = 120.0
IDLE_TOPICS = 8
NONE_MARKED = "no ledger is marked as under-replicated\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess]:
    started = StandaloneProcess.start(
        tmp_path_factory.mktemp("bookies") / "data", "--num-bookies", "4"
    )
    yield started
    started.stop()


@pytest.fixture
def fifth(cluster: StandaloneProcess) -> Generator[PartProcess]:
    """A bookie that the supervisor does not start again."""
    with bookie_process(cluster, FIFTH) as bookie:
        yield bookie


def metadata_of(cluster: StandaloneProcess, ledger_id: int) -> LedgerMetadata:
    return ask(cluster, lambda stored: stored.ledgers.metadata(ledger_id))


def part_of(cluster: StandaloneProcess, bookie_id: str) -> str:
    """The supervisor's name for a bookie."""
    address = ask(cluster, lambda stored: stored.address(bookie_id))
    return next(
        name
        for name, part in cluster.endpoints.items()
        if isinstance(part, dict) and part.get("bookie") == address
    )


def load(sending: Sending) -> None:
    """Send many messages, and wait for no receipt."""
    begun_s = time.monotonic()
    for burst in range(BURSTS):
        sending.send(BURST)
        # The pause makes the rate of the load.
        time.sleep(max(begun_s + (burst + 1) * BURST_S - time.monotonic(), 0))


def first_receipts(numbers: list[int]) -> list[int]:
    """The receipts without those of messages that the client sent again because a receipt had not
    reached it."""
    return list(dict.fromkeys(numbers))


def test_each_message_is_on_exactly_its_three_bookies(cluster: StandaloneProcess) -> None:
    with client_of(cluster.service_url) as client:
        Sending(client, "copies").send_all(MESSAGES)
        (ledger_id,) = ledgers_of(cluster, "copies")
        metadata = metadata_of(cluster, ledger_id)
        sizes = metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum
        assert sizes == (3, 3, 2)
        wanted = should_hold(metadata, MESSAGES)
        # The third copy may come after the receipt.
        eventually(
            lambda: ask(cluster, lambda stored: stored.holders(ledger_id, MESSAGES)),
            lambda holders: holders == wanted,
        )


def test_no_send_fails_when_a_bookie_is_killed_under_load(cluster: StandaloneProcess) -> None:
    with client_of(cluster.service_url) as client:
        sending = Sending(client, "killed")
        sending.send_all(1)
        (ledger_id,) = ledgers_of(cluster, "killed")
        victim = metadata_of(cluster, ledger_id).fragments[-1].ensemble[0]
        part = part_of(cluster, victim)
        load(sending)
        old_pid = cluster.kill_part(part)
        load(sending)
        sending.flush()
        assert ledgers_of(cluster, "killed") == [ledger_id]
        # Two bookies may have confirmed the last message before a third has taken the dead one's
        # place.
        metadata = eventually(
            lambda: metadata_of(cluster, ledger_id), lambda found: len(found.fragments) > 1
        )
        # A bookie that a busy machine keeps from answering in time is replaced, too, which begins
        # another fragment.
        assert victim in metadata.fragments[0].ensemble
        assert victim not in metadata.fragments[1].ensemble
        count = 1 + 2 * BURSTS * BURST
        assert read_all(client, "killed", count - 1) == list(range(count))
    cluster.wait_restarted(part, old_pid)


def test_a_broker_that_stood_still_adds_nothing_to_a_ledger_that_was_taken_over(
    cluster: StandaloneProcess,
) -> None:
    with client_of(cluster.service_url) as client:
        client.subscribe(f"{NAMESPACE}/fenced", "all")  # else the ledger goes when another begins
        sending = Sending(client, "fenced")
        sending.send_all(MESSAGES)
        (ledger_id,) = ledgers_of(cluster, "fenced")
        broker = cluster.pid_of("broker")
        os.kill(broker, signal.SIGSTOP)
        try:
            sending.send(MESSAGES)
            ask(cluster, lambda stored: stored.ledgers.open(ledger_id, recover=True))
        finally:
            os.kill(broker, signal.SIGCONT)
        taken_over = metadata_of(cluster, ledger_id)
        assert taken_over.state is LedgerState.CLOSED
        assert taken_over.last_entry == MESSAGES - 1
        sending.flush()
        late = {sending.confirmed[number].ledger_id() for number in range(MESSAGES, 2 * MESSAGES)}
        assert ledger_id not in late
        assert metadata_of(cluster, ledger_id) == taken_over
        assert cluster.pid_of("broker") == broker
        numbers = read_all(client, "fenced", 2 * MESSAGES - 1)
        assert first_receipts(numbers) == list(range(2 * MESSAGES))


@pytest.mark.usefixtures("fifth")
def test_entries_are_striped_where_there_are_more_bookies_than_copies(
    cluster: StandaloneProcess,
) -> None:
    async def write_and_look(stored: StoredLedgers) -> None:
        ledger_id = await stored.write([b"%d" % number for number in range(MESSAGES)], (5, 3, 3))
        metadata = await stored.ledgers.metadata(ledger_id)
        holders = await stored.holders(ledger_id, MESSAGES)
        assert holders == should_hold(metadata, MESSAGES)
        assert len(set(holders)) == 5
        await stored.ledgers.delete(ledger_id)  # four bookies could never make it whole

    ask(cluster, write_and_look)


def test_what_a_bookie_held_that_is_lost_for_good_is_copied(
    cluster: StandaloneProcess, fifth: PartProcess
) -> None:
    async def write(stored: StoredLedgers) -> list[int]:
        others = sorted(await stored.bookies() - {FIFTH})
        entries = [b"%d" % number for number in range(MESSAGES)]
        ensembles = [(FIFTH, *pair) for pair in permutations(others, 2)]
        return [await stored.write(entries, (3, 3, 2), ensemble) for ensemble in ensembles]

    async def are_whole(stored: StoredLedgers) -> bool:
        for ledger_id in ledger_ids:
            metadata = await stored.ledgers.metadata(ledger_id)
            wanted = should_hold(metadata, MESSAGES)
            if FIFTH in wanted[0] or await stored.holders(ledger_id, MESSAGES) != wanted:
                return False
        return not await stored.marked()

    ledger_ids = ask(cluster, write)
    fifth.kill()
    eventually(lambda: ask(cluster, StoredLedgers.bookies), lambda found: FIFTH not in found)
    eventually(lambda: ask(cluster, are_whole), bool, RECOVERED_S)
    assert bookie_admin(cluster, "list-under-replicated") == NONE_MARKED


@pytest.mark.full
@pytest.mark.timeout(300)
def test_topics_without_traffic_live_on_when_a_bookie_is_lost(
    cluster: StandaloneProcess, fifth: PartProcess
) -> None:
    topics = [f"idle-{number}" for number in range(IDLE_TOPICS)]
    with client_of(cluster.service_url) as client:
        sendings = [Sending(client, topic) for topic in topics]
        for sending in sendings:
            sending.send_all(1)
        ledger_ids = [ledgers_of(cluster, topic)[-1] for topic in topics]
        touched = [
            each for each in ledger_ids if FIFTH in should_hold(metadata_of(cluster, each), 1)[0]
        ]
        assert touched
        fifth.kill()
        eventually(
            lambda: ask(cluster, StoredLedgers.marked),
            lambda marked: set(touched) <= set(marked),
        )
        eventually(
            lambda: ask(cluster, StoredLedgers.marked),
            lambda marked: not marked,
            RECOVERED_S,
        )
        for topic, sending, ledger_id in zip(topics, sendings, ledger_ids, strict=True):
            sending.send_all(1)
            assert ledgers_of(cluster, topic) == [ledger_id]
            metadata = metadata_of(cluster, ledger_id)
            assert metadata.state is LedgerState.OPEN
            assert all(FIFTH not in each.ensemble for each in metadata.fragments)
