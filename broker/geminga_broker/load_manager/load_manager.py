"""The load manager: on the broker that leads, it places, moves and splits bundles; on all others it
does nothing.

Whether this broker leads is checked before each act, never remembered: a leader that takes itself
for a follower would balance nothing as long as it lives. What it knows comes from the reports that
all brokers write, so that a new leader knows it at once; the costs of bundles that no broker owns
any more come from the averages that the leader before stored (``history_records``). What that one
had decided and not seen in reports yet is lost, which costs a move at worst.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from geminga_broker.load_manager.balancing.cluster_load import ClusterLoad
from geminga_broker.load_manager.balancing.load_history import LoadHistory, cost_of_average
from geminga_broker.load_manager.balancing.placement import LeastLoaded
from geminga_broker.load_manager.balancing.shedding import Move, Shedder
from geminga_broker.load_manager.balancing.splitting import bundles_to_split
from geminga_broker.load_manager.config import LoadManagerConfig
from geminga_broker.load_manager.history_records import HistoryRecords
from geminga_broker.ownership.addresses.address import Owner
from geminga_broker.ownership.ownership import ViewBrokers
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import CoordinationError
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_runtime.work_pool import WorkPool

log = logging.getLogger(__name__)

# Bundles that are handed on side by side: each closes and opens its topics, and asks ZooKeeper.
MOVES_AT_ONCE_MAX = 4
# A bundle that was split stays in the reports until its owner has measured again: two periods of
# rates and a report, as ``EXPECTED_S``.
SPLIT_PAUSE_S = 150.0
# How often a broker checks whether it has become the leader. A leader that has died leaves bundles
# without an owner, which the next one places by their stored costs: it reads these before most
# clients have found their brokers gone.
LEADERSHIP_CHECK_S = 1.0

CountBundles = Callable[[NamespaceName], Awaitable[int]]


class BundleMover(Protocol):
    """Asks the owners of bundles over REST. Bundles are named ``tenant/namespace/0x…_0x…``,
    destinations by their broker's id. All methods raise ``GemingaError``, also where that owner no
    longer owns the bundle."""

    async def unload(self, owner: Owner, bundle: str, destination: str) -> None:
        """Return when the owner has handed the bundle on to the broker ``destination``."""
        ...

    async def split(self, owner: Owner, bundle: str, *, unload: bool) -> None:
        """Return when the owner has split the bundle, and with ``unload`` given up its halves."""
        ...


@dataclass(frozen=True, slots=True)
class LoadCounts:
    """What the load manager has done since its broker started."""

    # Only ever counted up: the metrics show them as counters. A broker that led before keeps its
    # counts.

    # Bundles that were moved, by the broker that they left.
    moves: Counter[str] = field(default_factory=Counter[str])
    # By the limit that was exceeded.
    splits: Counter[str] = field(default_factory=Counter[str])


class LoadManager(Service):
    """One broker's load manager. ``placement`` is for its ``Ownership``.

    ``view_brokers()`` gives the living brokers' reports; ``count_bundles(namespace)`` how many
    bundles a namespace has now.
    """

    def __init__(
        self,
        clock: Clock,
        config: LoadManagerConfig,
        *,
        is_leader: Callable[[], bool],
        view_brokers: ViewBrokers,
        mover: BundleMover,
        count_bundles: CountBundles,
        records: HistoryRecords,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._config = config
        self._is_leader = is_leader
        self._view_brokers = view_brokers
        self._mover = mover
        self._count_bundles = count_bundles
        self._records = records
        self._history = LoadHistory()
        # Whether it leads since it has read what the leader before wrote down. A broker that loses
        # the lead and wins it again reads anew: the leader in between has written.
        self._has_taken_over = False
        # One view for all three parties that decide, so that what one has decided the others count:
        # placements and moves call ``expect`` on it.
        self.load = ClusterLoad()
        self.placement = LeastLoaded(self.load, config, clock)
        self._shedder = Shedder(self.load, config)
        # When each bundle was last split, or was tried to be (monotonic). Only of the last
        # ``SPLIT_PAUSE_S``: ``split`` forgets the older ones.
        self._split_s: dict[str, float] = {}
        self._pool = WorkPool(MOVES_AT_ONCE_MAX)
        self.counts = LoadCounts()

    async def _open(self, stack: AsyncExitStack) -> None:
        # All of these run on every broker, and do nothing where it does not lead. So there is
        # nothing to start or to stop when the leader changes, and nothing to forget.
        del stack  # nothing but the periodic work, which the service itself ends
        config = self._config
        if not config.load_balancer_enabled:
            return
        # Its period is the shortest, so what is stored is read before the other work begins.
        self.spawn_every(LEADERSHIP_CHECK_S, self.take_over, name="take over load history")
        self.spawn_every(
            config.load_balancer_history_interval_s, self.write_history, name="write load history"
        )
        if config.load_balancer_shedding_enabled:
            self.spawn_every(config.load_balancer_shedding_interval_s, self.shed, name="shed load")
        if config.load_balancer_auto_bundle_split_enabled:
            self.spawn_every(
                config.load_balancer_split_interval_s, self.split, name="split bundles"
            )

    async def take_over(self) -> None:
        """Read the averages that the leader before this one stored, once each time that this broker
        becomes the leader."""
        if not self._is_leader():
            self._has_taken_over = False
            return
        # Cheap: nearly all checks end here.
        if self._has_taken_over:
            return
        try:
            bundles = await self._records.read_bundles()
        except CoordinationError:
            return  # ZooKeeper is away: done when it is back
        # No await from here on: what is written next has these averages in it.
        self._has_taken_over = True
        # Both need it: the history goes on from these averages, and placements use their costs.
        self._history.restore(bundles)
        for bundle, data in bundles.items():
            self.load.remember(bundle, cost_of_average(data))

    async def write_history(self) -> None:
        """Store the average loads of bundles and brokers, if this broker leads."""
        # Before the stored averages were read, they would be overwritten by those of one report.
        # ``_renew`` also samples the reports into the history: it is called first in any case.
        if not await self._renew() or not self._has_taken_over:
            return
        history = self._history
        try:
            # ``take_changes`` empties what is due before the requests are sent. Where they fail,
            # the averages are written with the next report that has the bundle among its heaviest.
            await self._records.write(
                history.take_changes(), history.brokers(), is_allowed=self._is_leader
            )
        except CoordinationError as error:
            log.info("load history not written", extra={"why": str(error)})

    async def shed(self) -> None:
        """Move bundles that should be moved, if this broker leads."""
        if await self._renew():
            # Decided on one consistent view: there is no ``await`` between the reports and the
            # moves.
            moves = self._shedder.decide(self._clock.monotonic())
            # Waits until all moves are done or have failed, so that the next round sees no
            # half-done ones.
            await self._pool.run(self._move, deque(moves))

    async def _move(self, move: Move) -> None:
        # Moves before this one took their time: a broker may have gone meanwhile. Its present
        # record, as its addresses may have changed since the plan was made.
        source = self.load.brokers.get(move.source)
        if source is None or move.destination not in self.load.brokers or not self._is_leader():
            return
        now_s = self._clock.monotonic()
        facts = {"bundle": move.bundle, "from": move.source, "to": move.destination}
        # Before it is done: lookups of the bundle that come meanwhile lead there, too.
        self.load.expect(move.bundle, move.destination, now_s)
        self.load.note_moved(move.bundle, now_s)
        try:
            await self._mover.unload(source.owner, move.bundle, move.destination)
        except GemingaError as error:
            # Counted where it is reported again. If the bundle did move, and only the answer was
            # lost, the next reports say so.
            self.load.cancel(move.bundle)
            log.warning("bundle not moved by load", extra={**facts, "why": str(error)})
        else:
            self.counts.moves[move.source] += 1
            log.info("bundle moved by load", extra=facts)

    async def split(self) -> None:
        """Split bundles that are too large, if this broker leads."""
        if not await self._renew():
            return
        # Monotonic, as all times that are compared here: a wall clock that is set would end all
        # pauses.
        now_s = self._clock.monotonic()
        self._split_s = {
            bundle: split_s
            for bundle, split_s in self._split_s.items()
            if now_s - split_s < SPLIT_PAUSE_S
        }
        # Those that were split lately are still in the reports, with the load of the whole bundle.
        found = bundles_to_split(self.load, self._config, fixed=self._split_s)
        # The generator is cut off here, so that no more bundles are examined than are split.
        chosen = list(islice(found, self._config.load_balancer_splits_max))
        # One after the other: those of one namespace change the same record.
        for bundle, broker_id, reason in chosen:
            namespace, _, _ = bundle.rpartition("/")
            facts = {"bundle": bundle, "broker": broker_id, "reason": reason}
            # Before it is done: where it fails, other bundles are tried first the next time.
            self._split_s[bundle] = self._clock.monotonic()
            try:
                # In the ring as it is now: other splits of this round count.
                count = await self._count_bundles(NamespaceName.parse(namespace))
                # The splits before this one took their time: the broker may have gone, or another
                # broker may lead now.
                owner = self.load.brokers.get(broker_id)
                if owner is None or not self._is_leader():
                    # The pause of this bundle is kept all the same: the next leader, or the next
                    # round, decides anew.
                    continue
                if count >= self._config.load_balancer_namespace_bundles_max:
                    log.info("bundle not split: its namespace has enough", extra=facts)
                    continue
                unload = self._config.load_balancer_auto_unload_split_bundles_enabled
                await self._mover.split(owner.owner, bundle, unload=unload)
            except GemingaError as error:
                log.warning("bundle not split by load", extra={**facts, "why": str(error)})
            else:
                self.counts.splits[reason] += 1
                log.info("bundle split by load", extra=facts)

    async def _renew(self) -> bool:
        """Take in the present reports; False where this broker does not lead, or ZooKeeper does not
        answer."""
        if not self._is_leader():
            return False
        try:
            # From memory where no broker has written since the last time; see ``Brokers.view``.
            loads = (await self._view_brokers()).loads
        except CoordinationError:
            return False  # ZooKeeper is away: nothing is moved by what was true before
        for broker_id, report in loads.items():
            # Taken in one by one, so that a cluster of 100 brokers does not block the loop for 0.3
            # seconds. ``renew`` below then finds the same objects, and counts nothing twice.
            is_new = self.load.take(broker_id, report)
            self._history.sample(broker_id, report)
            if is_new:
                # Others get a turn: a large report takes three milliseconds.
                await asyncio.sleep(0)
        # Removes the brokers that are gone, which ``take`` cannot know of.
        self.load.renew(loads, self._clock.monotonic())
        self._history.keep_brokers(loads)
        # Checked again: another broker may have become the leader while reports were taken in.
        return self._is_leader()
