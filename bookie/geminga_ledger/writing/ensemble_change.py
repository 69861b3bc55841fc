"""Replaces bookies that fail while a ledger is written or recovered.

The steps of one change: choose who comes for whom (``placement``), get a connection to each, stop
counting what the replaced ones say, write the new ensemble into the metadata (``commit``: by
compare-and-set for a writer, into the end it will write for a recovery), send the newcomers all
that is not confirmed. Bookies that fail while a change is under way are the next change's. The new
fragment begins at ``last_confirmed + 1``, and nothing is confirmed in between, so that everything
from there on is on the new ensemble. What is confirmed while ZooKeeper keeps us waiting counts only
bookies that are in both ensembles, and so is safe under either metadata.

Where there is nobody to come, nothing changes: the ledger goes on as long as Qa bookies store each
entry, and whoever failed is looked at again, as are new bookies, at each of the pipeline's checks.

Facts: ``LedgerHandle.handleBookieFailure`` and ``ensembleChangeLoop``, ``EnsembleUtils``,
``ReadOnlyLedgerHandle.handleBookieFailure`` of Apache BookKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.links import BookieLink, Purpose
from geminga_ledger.counters import LedgerCounters
from geminga_ledger.errors import BookieUnavailable, LedgerError
from geminga_ledger.membership.bookies import Bookies
from geminga_ledger.replication.ensembles import with_replaced
from geminga_ledger.replication.quorum import Quorum
from geminga_runtime.coordination import CoordinationError

log = logging.getLogger(__name__)

Commit = Callable[[tuple[str, ...]], Awaitable[None]]
"""Makes an ensemble that of a new fragment from the ledger's first unconfirmed entry on. Raises
``LedgerError`` where the ledger is not ours to change (any more), ``CoordinationError``."""


class Changeable(Protocol):
    """The pipeline whose bookies are replaced."""

    ledger_id: int

    @property
    def quorum(self) -> Quorum:
        """E, Qw and Qa."""
        ...

    @property
    def ensemble(self) -> tuple[str, ...]:
        """The bookies as they are now, by slot."""
        ...

    @property
    def failing(self) -> list[int]:
        """The slots whose bookies should be replaced."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nothing is sent to bookies any more."""
        ...

    def retire(self, slots: Mapping[int, BookieLink]) -> None:
        """Count no more what these slots' bookies say, and confirm nothing for the moment."""
        ...

    def release(self) -> None:
        """Confirm again."""
        ...

    def admit(self, newcomers: Mapping[int, BookieLink]) -> None:
        """These are the slots' bookies from now on."""
        ...

    def nobody_comes(self) -> None:
        """There is no replacement now."""
        ...

    def fail(self, error: LedgerError) -> None:
        """Give up."""
        ...


class EnsembleChange:
    """Keeps one pipeline's ensemble working. At most one change is under way at a time."""

    __slots__ = ("_bookies", "_commit", "_config", "_counters", "_purpose", "_task")

    def __init__(
        self,
        bookies: Bookies,
        purpose: Purpose,
        commit: Commit,
        *,
        counters: LedgerCounters,
        config: LedgerConfig,
    ) -> None:
        self._bookies = bookies
        self._purpose = purpose
        self._commit = commit
        self._counters = counters
        self._config = config
        self._task: asyncio.Task[object] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a bookie is being replaced."""
        return self._task is not None

    def look(self, pipeline: Changeable) -> None:
        """Some of the pipeline's bookies fail: begin to replace them, where that can be done."""
        if self._task is not None or pipeline.is_over:
            return
        chosen = self._choose(pipeline)
        if chosen:
            self._counters.ensemble_changes += 1
            work = self._replace_all(pipeline, chosen)
            name = f"change ensemble of ledger {pipeline.ledger_id}"
            self._task = self._bookies.links.spawn(work, name=name)
        else:
            pipeline.nobody_comes()

    def stop(self) -> None:
        """Leave it as it is, for good. A change of the metadata may still be done by this."""
        task, self._task = self._task, None
        self._commit = _change_nothing  # the pipeline's own: it would keep what is over alive
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _choose(self, pipeline: Changeable) -> dict[int, str]:
        failing = pipeline.failing
        if not failing:
            return {}
        return self._bookies.replacements(pipeline.ensemble, failing, pipeline.quorum)

    async def _replace_all(self, pipeline: Changeable, chosen: dict[int, str]) -> None:
        try:
            while chosen:
                newcomers = await self._reach(chosen)
                if newcomers:
                    await self._replace(pipeline, newcomers)
                if pipeline.is_over:
                    return
                chosen = self._choose(pipeline)
        except LedgerError as error:
            pipeline.fail(error)
            return
        finally:
            if self._task is asyncio.current_task():
                self._task = None
        if pipeline.failing:
            pipeline.nobody_comes()

    async def _reach(self, chosen: Mapping[int, str]) -> dict[int, BookieLink]:
        """Those of the chosen that can be connected to; the others count as down from now on."""
        links = {
            slot: self._bookies.links.link(bookie_id, self._purpose)
            for slot, bookie_id in chosen.items()
        }
        attempts = (_is_reachable(link) for link in links.values())
        reached = await asyncio.gather(*attempts)
        return {
            slot: link for (slot, link), is_up in zip(links.items(), reached, strict=True) if is_up
        }

    async def _replace(self, pipeline: Changeable, newcomers: Mapping[int, BookieLink]) -> None:
        if pipeline.is_over:
            return
        before = pipeline.ensemble
        names = {slot: link.bookie_id for slot, link in newcomers.items()}
        pipeline.retire(newcomers)
        loop = asyncio.get_running_loop()
        deadline = loop.call_later(self._config.change_pause_s, pipeline.release)
        try:
            is_done = await self._commit_surely(pipeline, with_replaced(before, names))
        finally:
            deadline.cancel()
        if not is_done:
            return
        pipeline.admit(newcomers)
        self._counters.bookies_replaced += len(newcomers)
        log.info(
            "bookies replaced",
            extra={
                "ledger": pipeline.ledger_id,
                "replaced": [before[slot] for slot in newcomers],
                "by": list(names.values()),
            },
        )

    async def _commit_surely(self, pipeline: Changeable, ensemble: tuple[str, ...]) -> bool:
        """Once a change was tried, nobody knows but ZooKeeper whether it was made: ask on.

        Whether the pipeline still wants to know.
        """
        while not pipeline.is_over:
            try:
                await self._commit(ensemble)
            except CoordinationError as error:
                log.warning(
                    "ensemble change waits",
                    extra={"ledger": pipeline.ledger_id, "error": str(error)},
                )
                await asyncio.sleep(self._config.retry_limit_s)
            else:
                break
        return not pipeline.is_over


async def _change_nothing(_: tuple[str, ...]) -> None:
    """For a pipeline that is over."""


async def _is_reachable(link: BookieLink) -> bool:
    try:
        await link.connected()
    except BookieUnavailable:
        return False
    return True
