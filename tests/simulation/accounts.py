"""What parts count is what they hold. A count that is not taken back does no harm until it has come
to its bound, which takes days: so it is looked at when a story ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from geminga_ledger.entries.read_ahead_cache import ENTRY_OVERHEAD_BYTES
from geminga_ledger.ledgers import Ledgers
from geminga_scenarios.cluster import Cluster
from geminga_scenarios.storage import Storage
from geminga_simulation.errors import InvariantViolated

# Brokers and proxies have noticed so soon that all clients are gone, and are done with what these
# had asked for.
SETTLED_S = 60.0
LOOK_S = 0.5


async def check_accounts(cluster: Cluster) -> None:
    """Check, once all clients are closed and nothing fails any more, that brokers and proxies soon
    owe no client anything, and that what they and the bookies count is right."""
    await _until_none(lambda: _owed(cluster), "without clients, ")
    for broker, _ in cluster.serving():
        check_ledgers(broker.ledgers)
    check_bookies(cluster.storage)


async def until_trimmed(cluster: Cluster) -> None:
    """Return when no topic has a ledger that all of its subscriptions have passed: soon, where
    nothing fails. No client asks for that, and what keeps a topic from trimming is repaired only
    when a broker loads it."""
    await _until_none(lambda: _needless(cluster), "it is needed no more, and not deleted: ")


async def _until_none(find: Callable[[], str], complaint: str) -> None:
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + SETTLED_S
    while found := find():
        if loop.time() > deadline_s:
            raise InvariantViolated(complaint + found)
        await asyncio.sleep(LOOK_S)


def _needless(cluster: Cluster) -> str:
    """What a topic's log has that is to be deleted; empty for nothing."""
    for broker, is_alive in cluster.serving():
        for topic in broker.topics.loaded.values() if is_alive else ():
            log = topic._log
            if log is not None and not log.is_fenced:
                trimmer = log.trimmer
                needless = trimmer._trimmable(trimmer.retention)
                if needless or trimmer._recorded.store.garbage:
                    return f"{topic.name} of {broker.address.broker_id}: {needless}"
    return ""


def _owed(cluster: Cluster) -> str:
    """What a broker or a proxy still counts as asked for and not answered; empty for nothing."""
    for broker, _ in cluster.serving():
        name, context = broker.address.broker_id, broker._context
        if context.publish_buffer.pending_bytes:
            return f"{name} has {context.publish_buffer.pending_bytes} published bytes under way"
        if context.counts.lookups_pending:
            return f"{name} has {context.counts.lookups_pending} lookups in progress"
    for host, proxy in cluster.serving_proxies():
        if proxy.lookups._open_requests:
            return f"{host.name} has {proxy.lookups._open_requests} questions in progress"
    return ""


def check_bookies(storage: Storage) -> None:
    """As many readers wait at each bookie as it counts."""
    for host, bookie in storage.serving():
        waiting = sum(map(len, bookie.long_polls.waiting.values()))
        if bookie.long_polls.count != waiting:
            counted = bookie.long_polls.count
            raise InvariantViolated(f"{host.name} counts {counted} long polls, and has {waiting}")


def check_ledgers(ledgers: Ledgers) -> None:
    """What is kept of fetched entries has the size that is counted."""
    surplus = ledgers._read_ahead
    size_bytes = sum(len(each) + ENTRY_OVERHEAD_BYTES for each in surplus._entries.values())
    if surplus.size_bytes != size_bytes:
        raise InvariantViolated(f"a surplus of {size_bytes} bytes counts {surplus.size_bytes}")
