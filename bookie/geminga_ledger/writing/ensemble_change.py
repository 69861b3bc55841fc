"""Replaces bookies that fail while a ledger is written or recovered.

The steps of one change:

1. Choose a replacement for each failing bookie (``placement``), and connect to it.
2. Stop counting the acknowledgements of the bookies that leave, and confirm nothing for the moment.
3. Write the new ensemble into the metadata (``commit``: by compare-and-set for a writer; into the
   end that it will write, for a recovery).
4. Send the newcomers all that is not confirmed, and confirm again.

The new fragment begins at ``last_confirmed + 1``. Nothing is confirmed between steps 2 and 4, so
that everything from there on is on the new ensemble. Where ZooKeeper takes too long for step 3,
entries are confirmed meanwhile by bookies that are in both ensembles alone; that is safe under
either metadata. Bookies that fail during a change are replaced by the next one.

Where no other bookie is available, nothing changes: the ledger goes on as long as Qa bookies store
each entry, and each of the pipeline's periodic checks tries again, with bookies that have come or
come back.

Facts: ``LedgerHandle.handleBookieFailure`` and ``ensembleChangeLoop``, ``EnsembleUtils``,
``ReadOnlyLedgerHandle.handleBookieFailure`` of Apache BookKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.links import BookieLink, Purpose
from geminga_ledger.counters import LedgerCounters
from geminga_ledger.errors import BookieUnavailable, LedgerError
from geminga_ledger.membership.bookies import Bookies
from geminga_runtime.coordination import CoordinationError

if TYPE_CHECKING:
    from geminga_ledger.writing.pipeline import AddPipeline

log = logging.getLogger(__name__)

# A ledger on a, b, c (Qw = 3, Qa = 2) is confirmed up to entry 41 when b fails, and d replaces it:
#
#     fragments before    0: a b c                   42 and 43 are on their way; b has stored 42
#     fragments after     0: a b c,  42: a d c       d is sent 42 and 43
#
# b's copy of 42 does not count any more: those who read the new metadata look for 42 on a, d and c.
# And while ZooKeeper writes them, nothing is confirmed: were 42 confirmed by a and c meanwhile, d
# would not be sent it.

Commit = Callable[[tuple[str, ...]], Awaitable[None]]
"""Makes an ensemble that of a new fragment from the ledger's first unconfirmed entry on. Raises
``LedgerError`` where the ledger is not ours to change (any more), ``CoordinationError``."""


@dataclass(eq=False, slots=True)
class EnsembleChange:
    """Keeps one pipeline's ensemble working. At most one change is under way at a time.

    The pipeline is passed with each call, not kept: it holds this object, and a cycle would keep
    both alive until the garbage collector runs.
    """

    bookies: Bookies
    # Of the connections to newcomers.
    purpose: Purpose
    commit: Commit
    counters: LedgerCounters = field(kw_only=True)
    config: LedgerConfig = field(kw_only=True)
    # The change that is under way; None while no bookie is being replaced.
    task: asyncio.Task[object] | None = field(default=None, init=False)

    def replace_failing(self, pipeline: AddPipeline) -> None:
        """Begin to replace the pipeline's failing bookies, unless a change is under way already."""
        if self.task is not None or pipeline.is_over:
            return
        # No ``await`` from the test of ``task`` to its setting: two callers never begin a change
        # each.
        chosen = self._choose(pipeline)
        if chosen:
            self.counters.ensemble_changes += 1
            work = self._replace_all(pipeline, chosen)
            name = f"change ensemble of ledger {pipeline.ledger_id}"
            self.task = self.bookies.links.spawn(work, name=name)
        else:
            # May fail the pipeline before this returns: callers look at ``is_over`` afterwards.
            pipeline.no_replacement()

    def stop(self) -> None:
        """Leave the ensemble as it is, for good. A request to ZooKeeper that is on its way may
        still change the metadata."""
        task, self.task = self.task, None
        # The commit is a method of the pipeline's owner: it would keep what is over alive.
        self.commit = _change_nothing
        # The change itself may be what ends the pipeline (``_replace_all`` fails it): it runs on.
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _choose(self, pipeline: AddPipeline) -> dict[int, str]:
        """A bookie for each failing slot that one can be found for."""
        if not pipeline.failing:
            return {}
        return self.bookies.replacements(pipeline.ensemble, pipeline.failing, pipeline.quorum)

    async def _replace_all(self, pipeline: AddPipeline, chosen: dict[int, str]) -> None:
        """Replace bookies until none fails, or until no other one can be reached."""
        try:
            while chosen:
                newcomers = await self._reach(chosen)
                # Those that were reached replace theirs; for the others the next turn chooses anew.
                if newcomers and not pipeline.is_over:
                    await self._replace(pipeline, newcomers)
                if pipeline.is_over:
                    return
                # More may have failed meanwhile. A chosen bookie that could not be reached counts
                # as down now and is not chosen again, so that this ends.
                chosen = self._choose(pipeline)
        except LedgerError as error:
            pipeline.fail(error)
            return
        finally:
            # ``stop`` may have taken the task out already.
            if self.task is asyncio.current_task():
                self.task = None
        if pipeline.failing:
            # Only now: ``task`` is None, so that failing the pipeline finds no change to stop.
            pipeline.no_replacement()

    async def _reach(self, chosen: Mapping[int, str]) -> dict[int, BookieLink]:
        """Those of the chosen that can be connected to; the others count as down from now on."""
        links = {
            slot: self.bookies.links.link(bookie_id, self.purpose)
            for slot, bookie_id in chosen.items()
        }
        # All at once: one that hangs takes the whole connect timeout, and the others need not wait
        # longer than that.
        attempts = (link.connected() for link in links.values())
        results = await asyncio.gather(*attempts, return_exceptions=True)
        reached: dict[int, BookieLink] = {}
        for (slot, link), result in zip(links.items(), results, strict=True):
            if result is None:
                reached[slot] = link
            elif not isinstance(result, BookieUnavailable):
                raise result
        return reached

    async def _replace(self, pipeline: AddPipeline, newcomers: Mapping[int, BookieLink]) -> None:
        before = pipeline.ensemble
        names = {slot: link.bookie_id for slot, link in newcomers.items()}
        ensemble = tuple(names.get(slot, bookie_id) for slot, bookie_id in enumerate(before))
        # Step 2. It stands before the first ``await`` of the commit: an entry that was confirmed by
        # a leaving bookie's copy after ``commit`` chose the fragment's first entry would be looked
        # for on bookies that do not have it.
        pipeline.retire(newcomers)
        # The longest time in which nothing is confirmed, however long ZooKeeper takes.
        pause = asyncio.get_running_loop().call_later(self.config.change_pause_s, pipeline.release)
        try:
            # Step 3. No deadline of its own: meanwhile the bookies that stay confirm entries, or
            # the pipeline fails by ``append_deadline_s``. An attempt whose answer was lost may have
            # changed the metadata. Only ZooKeeper knows, so neither the old ensemble nor the new
            # one is sure until it answers: ask on.
            while not pipeline.is_over:
                try:
                    await self.commit(ensemble)
                except CoordinationError as error:
                    log.warning(
                        "ensemble change waits",
                        extra={"ledger": pipeline.ledger_id, "error": str(error)},
                    )
                    await asyncio.sleep(self.config.retry_limit_s)
                else:
                    break
        finally:
            pause.cancel()
        # The metadata may name the newcomers already. They got nothing: all that was confirmed is
        # on bookies that were there before.
        if pipeline.is_over:
            return
        # Step 4.
        pipeline.admit(newcomers)
        self.counters.bookies_replaced += len(newcomers)
        log.info(
            "bookies replaced",
            extra={
                "ledger": pipeline.ledger_id,
                "replaced": [before[slot] for slot in newcomers],
                "by": list(names.values()),
            },
        )


async def _change_nothing(_: tuple[str, ...]) -> None:
    """The commit of a pipeline that is over."""
