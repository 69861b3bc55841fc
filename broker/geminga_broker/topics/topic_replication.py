"""A topic's replication to other clusters: a replicator and a cursor for each of them.

A cursor is deleted only when the policies say that the topic is not replicated to its cluster any
more. While they are not known, the cursor stays: without it, messages could be trimmed unsent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.managed_ledger.reading.payloads import entry_time_ms
from geminga_broker.managed_ledger.writing.append_request import AppendRequest
from geminga_broker.policies.effective import EffectivePolicies
from geminga_broker.policies.expiry import Expiry
from geminga_broker.policies.inactivity import Inactivity
from geminga_broker.replication.replicator import Replicator, Route
from geminga_broker.topics.part import OwningTopic, TopicPart, TopicServices
from geminga_protocol.pulsar.messages.replication import remote_of_cursor, replicator_cursor
from geminga_runtime.errors import GemingaError

log = logging.getLogger(__name__)

# Read-only, so that no topic can put its replicator into the mapping of all others.
NOTHING: Mapping[str, Any] = MappingProxyType({})


class TopicReplication(TopicPart):
    """Starts and stops replicators as the policies say."""

    __slots__ = ("_changing", "_found", "_is_open", "_services", "replicators")

    has_backlog: ClassVar[bool] = True

    def __init__(self, topic: OwningTopic, services: TopicServices) -> None:
        super().__init__(topic, services)
        # By cluster. Both mappings are replaced, never changed: most topics share the empty one. A
        # cluster is in at most one of both. Its cursor begins in ``_found``, goes over to
        # ``replicators`` when its replicator starts, and back when that stops:
        #
        #     stored, or just created ─▶ _found ──_start──▶ replicators
        #                                  │  ◀──_remove──────┘
        #                                  ▼
        #                               deleted
        self.replicators: Mapping[str, Replicator] = NOTHING
        self._services = services
        # Stored cursors without a replicator, by cluster.
        self._found: Mapping[str, Cursor] = NOTHING
        # Changes are made between ``opened`` and ``close`` only. False again from the beginning of
        # ``close`` or ``delete``, so that a change which waits for the lock then does nothing.
        self._is_open = False
        # Held by every change of the replicators, and by the topic's end. Made with the first
        # change: most topics are never replicated.
        self._changing: asyncio.Lock | None = None

    # Starting and stopping

    def claims(self, cursor_name: str) -> bool:
        """Claim cursors whose names have the prefix of replicators."""
        return remote_of_cursor(cursor_name) is not None

    async def adopt(self, cursor: Cursor) -> None:
        """Open the cursor, whatever the policies say of its cluster: it keeps the log untrimmed."""
        remote = remote_of_cursor(cursor.name)
        assert remote is not None
        # A broker without a configured replication adopts such cursors too, and never deletes them:
        # its ``_wanted`` is None.
        await self._topic.enter_cursor(cursor)
        self._found = {**self._found, remote: cursor}

    async def opened(self) -> None:
        """Start replicators as the policies say; if that fails, maintenance tries again."""
        self._is_open = True
        await self.maintain()

    @property
    def _wanted(self) -> frozenset[str] | None:
        """The clusters that the policies name; None if this broker does not replicate."""
        if self._services.replication is None:
            return None
        return self._topic.policies.replication.remotes

    @property
    def needs_maintenance(self) -> bool:
        """Whether a replicator must be started or stopped, or a cursor deleted."""
        wanted = self._wanted
        # A cursor in ``_found`` has always something to be done: either its replicator is missing,
        # or it is to be deleted.
        return wanted is not None and (bool(self._found) or wanted != frozenset(self.replicators))

    def apply(self, policies: EffectivePolicies) -> None:
        """Start and stop replicators in the background; ``opened`` does so while loading."""
        # Settings of running replicators at once; starting and stopping takes requests. A
        # replicator that is started meanwhile takes both from the policies of the topic, in
        # ``_start``.
        for replicator in self.replicators.values():
            replicator.ttl_s = policies.expiry.ttl_s
            replicator.limit(policies.replication.limit)
        if self._is_open and self.needs_maintenance:
            # Each change of the policies starts a task. All but one wait for the lock, and end when
            # they find nothing left to do.
            self._topic.spawn(self.maintain(), name=f"follow the policies of {self._topic.name}")

    def _one_at_a_time(self) -> asyncio.Lock:
        self._changing = self._changing or asyncio.Lock()
        return self._changing

    async def maintain(self) -> None:
        """Start and stop replicators one by one, until they are as the policies say."""
        # Without the lock, which most topics never need; the loop below checks again.
        if not self.needs_maintenance:
            return
        async with self._one_at_a_time():
            try:
                # The policies may change during each step, and the topic may close. ``min`` makes
                # the order the same in each run of a simulation. Cursors that are not wanted go
                # first: they keep the log from being trimmed.
                while self._may_change and (wanted := self._wanted) is not None:
                    if unwanted := {*self.replicators, *self._found} - wanted:
                        await self._remove(min(unwanted))
                    elif missing := wanted - set(self.replicators):
                        await self._start(min(missing))
                    else:
                        return
            # What was done before the error stays. ``needs_maintenance`` is still true, so the next
            # round goes on; its period is the limit of the retries
            # (``parts.maintenance_periods_s``).
            except GemingaError as error:
                log.warning(
                    "replication not changed",
                    extra={"topic": str(self._topic.name), "error": str(error)},
                )

    @property
    def _may_change(self) -> bool:
        return self._is_open and not self._topic.is_fenced

    async def _start(self, remote: str) -> None:
        topic, services = self._topic, self._services
        around = services.replication
        assert around is not None
        # Three cases: the cursor is stored from before; a deletion of it has failed half way; or
        # the cluster is new for this topic.
        cursor = self._found.get(remote)
        if cursor is not None and not cursor.is_durable:
            # Its deletion has failed before: what is left of it cannot be stored any more.
            await self._remove(remote)
            cursor = None
        if cursor is None:
            managed_ledger = topic.managed_ledger
            # The log must have a ledger: a cursor is stored with a position in it.
            await managed_ledger.begin()
            chain = managed_ledger.chain
            # Upstream's ``replicationStartAt``: whether a new cluster gets what is in the log
            # already.
            is_latest = around.config.start_at == "latest"
            at = chain.last_confirmed if is_latest else chain.before_first
            cursor = await services.factory.create_cursor(
                managed_ledger.name, replicator_cursor(remote), chain, at, {}
            )
            # In ``_found`` only now that it is open: ``close`` closes whatever it finds there.
            await topic.enter_cursor(cursor)
            self._found = {**self._found, remote: cursor}
            # While the cursor was stored, the cluster may have left the policies: the loop of
            # ``maintain`` deletes the cursor then.
            if not self._may_change or remote not in (self._wanted or ()):
                return
        route = Route(topic=topic.name, source=services.cluster, target=remote)
        replicator = Replicator(route, topic.managed_ledger, cursor, services.schemas, around)
        replicator.ttl_s = topic.policies.expiry.ttl_s
        replicator.limit(topic.policies.replication.limit)
        # Registered before it is started, so that closing the topic stops it in any case. No await
        # between the two mappings: trimming, which may run at each await, always finds the cursor.
        self._found = _without(self._found, remote)
        self.replicators = {**self.replicators, remote: replicator}
        await replicator.__aenter__()

    async def _remove(self, remote: str) -> None:
        """Stop the replicator to a cluster, if there is one, and delete its cursor."""
        # At each await the cursor is in one of the two mappings, so that it keeps the log and is
        # closed with the topic.
        replicator = self.replicators.get(remote)
        if replicator is not None:
            self._found = {**self._found, remote: replicator.cursor}
            self.replicators = _without(self.replicators, remote)
            await replicator.__aexit__(None, None, None)
        cursor = self._found[remote]
        # If it fails, the cursor stays in ``_found`` without its store, and the next attempt
        # continues with the deletion (``Cursor.delete``).
        await cursor.delete()
        self._found = _without(self._found, remote)
        await cursor.__aexit__(None, None, None)
        # It may have been the last cursor to keep some ledgers.
        self._topic.managed_ledger.trimmer.trim_soon()

    def cursors(self) -> list[Cursor]:
        """The cursors of all remote clusters."""
        # HOT for idle topics: trimming and stats ask every topic, and most are not replicated.
        if not self.replicators and not self._found:
            return []
        return [*(each.cursor for each in self.replicators.values()), *self._found.values()]

    def reads_from(self) -> Position | None:
        """The least position that a replicator has still to read."""
        return min((each.reads_from for each in self.replicators.values()), default=None)

    # While it runs

    def run_appended(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        """Wake the replicators: there is something to send."""
        del ledger_id, entries, batch
        for replicator in self.replicators.values():
            # HOT: sets an event; the replicator's own task reads and sends.
            replicator.wake()

    def cursors_moved(self) -> None:
        """Wake the replicators, which do not send what the cursors have passed."""
        for replicator in self.replicators.values():
            replicator.wake()

    async def expire(self, expiry: Expiry) -> None:
        """Move the cursors past messages that are too old.

        A replicator skips such messages when it reads them; but one that cannot send, and so does
        not read, must not keep them either (upstream's #23937).
        """
        if not self.replicators and not self._found:
            return
        managed_ledger = self._topic.managed_ledger
        # One search for all clusters, from the cursor that is furthest behind; cursors that are
        # beyond the result do not move.
        limit_ms = self._services.clock.wall_ms() - expiry.ttl_s * 1000
        first_kept = await managed_ledger.reader.first_where(
            lambda payload: entry_time_ms(payload) >= limit_ms,
            after=min(cursor.mark_delete for cursor in self.cursors()),
        )
        upto = managed_ledger.chain.previous_of(first_kept)
        for cursor in self.cursors():
            if cursor.acknowledged.acknowledge_upto(upto):
                cursor.changed()
        self.cursors_moved()

    def is_used(self, rule: Inactivity) -> bool:
        """Whether entries are not replicated yet: these keep the topic, whatever the rule."""
        del rule
        return any(cursor.backlog_entries for cursor in self.cursors())

    def tick(self, now_s: float, period_s: float) -> None:
        """Compute the rates."""
        for each in self.replicators.values():
            counted = each.messages_out, each.bytes_out, each.expired
            each.meter.tick(now_s, *counted, period_s=period_s)

    # Ending

    def disconnect(self) -> None:
        """Send nothing more: another broker may have the topic."""
        for replicator in self.replicators.values():
            # Only its task is cancelled. The cursors stay open for ``close``, which stores their
            # positions.
            replicator.stop()

    def log_fenced(self) -> None:
        """Send nothing more: the broker that has the log now replicates it."""
        self.disconnect()

    async def close(self) -> None:
        """Stop the replicators, and store their positions."""
        # A running change ends first: the replicator that it starts must be stopped as well.
        self._is_open = False
        async with self._one_at_a_time():
            # First all replicators, then the cursors: a receipt that still arrives moves a cursor.
            await asyncio.gather(
                *(each.__aexit__(None, None, None) for each in self.replicators.values())
            )
            for cursor in self.cursors():
                await cursor.__aexit__(None, None, None)

    def release(self) -> None:
        """Drop replicators and cursors, which refer to the topic's log."""
        self.replicators = self._found = NOTHING

    async def delete(self) -> None:
        """Delete the cursors."""
        # Before waiting for the lock: a change that is running then ends with its present step.
        self._is_open = False
        async with self._one_at_a_time():
            # A copy, because ``_remove`` replaces both mappings.
            for remote in [*self.replicators, *self._found]:
                await self._remove(remote)


ValueT = TypeVar("ValueT")


def _without(mapping: Mapping[str, ValueT], key: str) -> Mapping[str, ValueT]:
    """A copy of ``mapping`` without ``key``; the shared empty one if nothing is left."""
    return {each: value for each, value in mapping.items() if each != key} or NOTHING
