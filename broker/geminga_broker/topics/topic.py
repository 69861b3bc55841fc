"""A topic: the parts that make it up, and a log if it is persistent.

The topic opens and closes log and parts in order, gives each stored cursor to the part that claims
it, and refuses clients once it is fenced. Clients connect to two of its parts, ``publishing`` and
``subscribing``, which decide what happens to messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from geminga_broker.errors import TopicTerminated
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.policies.effective import EffectivePolicies
from geminga_broker.topics.part import OwningTopic, TopicServices, overriding
from geminga_broker.topics.parts import NON_PERSISTENT, PERSISTENT
from geminga_broker.topics.producers.publish_path import PublishPath
from geminga_broker.topics.subscriptions.non_persistent_subscriptions import (
    NonPersistentSubscriptions,
)
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic_compaction import TopicCompaction
from geminga_protocol.pulsar.topics.topic_names import TopicName

log = logging.getLogger(__name__)


# What a topic goes through. No arrow leads back: a topic that was closed is loaded as a new object.
#
#     __init__ ─▶ __aenter__ ──all parts opened──▶ in the directory's ``loaded``, serves clients
#                    │                                │
#                    │ fails, or the bundle is lost   │ unloaded, deleted, or fenced
#                    ▼                                ▼
#                __aexit__ ◀────────────────── disconnect_all (``is_fenced`` from here on)
class Topic(OwningTopic):
    """Topic ``name``, which follows ``policies`` until ``apply`` brings others.

    ``create_with`` and ``on_fenced`` are as in ``OwningTopic``.
    """

    __slots__ = ("close_by_s", "created_at_ms", "publishing", "subscribing")

    def __init__(
        self,
        name: TopicName,
        services: TopicServices,
        policies: EffectivePolicies,
        *,
        create_with: Mapping[str, str] | None,
        on_fenced: Callable[[OwningTopic], None],
    ) -> None:
        kinds = PERSISTENT if name.is_persistent else NON_PERSISTENT
        super().__init__(
            name, services, policies, kinds, create_with=create_with, on_fenced=on_fenced
        )
        self.created_at_ms = services.clock.wall_ms()
        # When closing must be over, by the event loop's time. The next owner recovers what is still
        # open then, as after a crash. None: no deadline.
        self.close_by_s: float | None = None
        # The two parts that clients connect to.
        self.publishing = self.part(PublishPath)
        self.subscribing: PersistentSubscriptions | NonPersistentSubscriptions
        if name.is_persistent:
            self.subscribing = self.part(PersistentSubscriptions)
        else:
            self.subscribing = self.part(NonPersistentSubscriptions)
        # Last: parts may look each other up from now on. There are no cursors, clients or
        # readership yet, so that here it only sets what the log and the parts begin with.
        self.apply(policies)

    def apply(self, policies: EffectivePolicies) -> None:
        """Follow ``policies`` from now on: the log with its next ledgers and its next trimming, the
        parts as each of them says."""
        # Before the parts, which read it from the topic. All of this in one turn of the event loop:
        # no message comes between two parts that follow different policies. What takes requests
        # (turning deduplication on, starting a replicator) follows in the background.
        self.policies = policies
        if self._log is not None:
            # Cursors that are opened later get the configuration in ``enter_cursor``.
            self._log.config = policies.log
            for cursor in self.cursors():
                cursor.configure(policies.log)
            # Only where the retention differs: each change of any policy comes through here, for
            # every topic of a namespace, and trimming looks at all cursors.
            trimmer = self._log.trimmer
            if trimmer.retention != policies.retention:
                trimmer.retention = policies.retention
                trimmer.trim_soon()
        # The last part first, for the reason that ``TopicPart.apply`` gives.
        for part in reversed(self.parts):
            part.apply(policies)

    # Loading

    async def _open_parts(self) -> None:
        # The log first: what cursors name are positions in it. All parts adopt their cursors before
        # ``opened`` is called for the first one.
        if self._log is not None:
            # Opening takes the log over: it fences the last ledger of a former owner, whose pending
            # messages fail there. Raises ``NodeMissing`` for a log that may not be created.
            await self._log.__aenter__()
            for cursor in await self._services.factory.load_cursors(
                self._log.name, self._log.chain
            ):
                # A cursor that no part claims belongs to a subscription.
                claimers = (part for part in self.parts if part.claims(cursor.name))
                await next(claimers, self.subscribing).adopt(cursor)
        # What a part raises ends the opening; ``Service`` then closes what was opened so far.
        for part in self.parts:
            await part.opened()
        if self._log is not None:
            # Last: the log may delete ledgers from now on, as all cursors are known. Until here
            # trimming found no readership and chose no ledger, whatever timer asked for it: a
            # cursor that is not loaded yet could not have held its ledger back.
            self._log.trimmer.readership = self
            self._log.trimmer.trim_soon()

    # Clients

    @property
    def connected_count(self) -> int:
        """How many producers and consumers are connected."""
        # Producers that wait for exclusive access are not counted by themselves. They wait only
        # while another one is connected, so the sum is above 0 then anyway.
        return len(self.publishing.producers.by_name) + self.subscribing.connected_count

    # Rates

    def tick(self, now_s: float) -> None:
        """A stats period ended: compute the rates of the topic and of its clients."""
        # Parts first, which use the period that the topic's own meter ends below.
        period_s = self.meter.elapsed_s(now_s)
        for part in self.parts:
            part.tick(now_s, period_s)
        # Of the present subscriptions: what a deleted one has sent is counted no more.
        sent = [each.sent() for each in self.subscribing.subscriptions.values()]
        self.meter.tick(
            now_s,
            self.publishing.messages_in,
            self.publishing.bytes_in,
            sum(each.messages for each in sent),
            sum(each.size_bytes for each in sent),
        )

    # What is done to messages

    async def terminate(self) -> Position:
        """Take no more messages from now on, and return the position of the last one.

        Consumers still read. Producers are disconnected once all that they sent is confirmed, and
        refused when they reconnect. Raises ``StorageUnavailable``.
        """
        # Producers are refused even if it fails: the log may be terminated all the same.
        try:
            # Waits until everything that was taken is durable, so the receipts of all producers are
            # sent before ``refuse_all`` closes them.
            position = await self.managed_ledger.termination.terminate()
        finally:
            self.publishing.refuse_all(TopicTerminated())
        # Those without a backlog tell their consumers now: no entry comes after which they would.
        for subscription in self.part(PersistentSubscriptions).subscriptions.values():
            subscription.membership.tell_end()
        return position

    async def truncate(self) -> None:
        """Delete all present messages, compacted ones too, whether or not they are acknowledged.

        Raises ``TopicFenced``, ``StorageUnavailable``.
        """
        managed_ledger = self.managed_ledger
        # Compacted entries before the log: their readers go to the log from now on. The cursor of
        # compaction stays, which goes on with the messages that come. A crash between the two steps
        # leaves the log whole and nothing compacted: readers of the compacted topic then get the
        # messages from the log, and the request can be repeated.
        compaction = self.part(TopicCompaction).compaction
        if compaction is not None:
            await compaction.forget()
        try:
            await managed_ledger.truncate()
        finally:
            # Also after an error: some cursors may have moved, and dispatchers still hold entries
            # that they have passed.
            self.cursors_moved()

    # Ending

    def disconnect_all(self) -> None:
        """Disconnect all clients; they look the topic up again."""
        # First. A client that is just connecting checks this after each of its waits: if it were
        # let in after its part has disconnected the others, it would stay with a topic that is
        # closed.
        self.is_fenced = True
        for part in self.parts:
            part.disconnect()

    async def _close(self) -> None:
        # The stages: no new work; the parts store what the next owner needs; background tasks of
        # the topic end and the log closes its ledger (``Service._close``, then ``_close_parts``).
        # Clients first: nothing new comes while the parts store what they have.
        self.disconnect_all()
        closing = overriding(PERSISTENT if self.name.is_persistent else NON_PERSISTENT, "close")
        try:
            # A moment, not a duration: all topics of a broker that ends share one. A topic whose
            # turn comes after it still gets here, and finds the time over at its first wait.
            async with asyncio.timeout_at(self.close_by_s):
                # Side by side; a part that fails does not keep the others, and the log, open.
                results = await asyncio.gather(
                    *(self.parts[index].close() for index in closing), return_exceptions=True
                )
                for error in results:
                    if error is not None:
                        log.error(
                            "part not closed", exc_info=error, extra={"topic": str(self.name)}
                        )
        except TimeoutError:
            # The cursors' last writes are missing. What was acknowledged since the last one that is
            # durable is delivered again; no receipt was sent for it.
            log.warning("cursors left open", extra={"topic": str(self.name)})
        # Now the log, by the same deadline; what stays open is recovered by the next owner.
        try:
            async with asyncio.timeout_at(self.close_by_s):
                await super()._close()
        except TimeoutError:
            log.warning("topic left open", extra={"topic": str(self.name)})

    async def _close_parts(self) -> None:
        if self._log is not None:
            await self._log.__aexit__(None, None, None)
        # Not earlier: while the log closes, it still asks the parts what it may trim.
        for part in self.parts:
            part.release()

    async def delete(self) -> None:
        """Disconnect all clients and delete everything stored. Close the topic after that."""
        # The log last: as long as it exists, a deletion that failed can be repeated.
        self.disconnect_all()
        for part in reversed(self.parts):
            # The reverse of the list: replicators and subscriptions go before the path of
            # publishing. Cursors are nodes below that of the log, which ZooKeeper deletes only
            # without children.
            await part.delete()
        if self._log is not None:
            await self._log.delete()
