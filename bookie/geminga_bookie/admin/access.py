"""What the endpoints work with: the bookie, ZooKeeper, and a BookKeeper client.

The client is opened by the first endpoint that needs it. Long orders (recovering or decommissioning
a bookie, garbage collection) run on after their answer, one of each kind at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from http import HTTPStatus
from random import Random

from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_autorecovery.replication.repair import LedgerRepair
from geminga_bookie.admin.documents.messages import Refused
from geminga_bookie.bookie import Bookie
from geminga_ledger import LedgerConfig, Ledgers
from geminga_ledger.membership.registry import BookieRegistry
from geminga_ledger.metadata.store import LedgerStore
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination
from geminga_runtime.errors import GemingaError
from geminga_runtime.network import Network
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# A person waits for the answer: the endpoints give up sooner than a broker does.
_LEDGER_CONFIG = LedgerConfig(
    read_deadline_s=10.0,
    create_deadline_s=10.0,
    recovery_deadline_s=10.0,
    append_deadline_s=10.0,
    metadata_deadline_s=10.0,
    answer_timeout_s=5.0,
)


class AdminAccess(Service):
    """Open while the bookie serves HTTP.

    ``configuration`` is what ``server_config`` shows. ``index_files`` lists the index's files.
    """

    def __init__(
        self,
        bookie: Bookie,
        *,
        coordination: Coordination,
        network: Network,
        clock: Clock,
        random: Random,
        index_files: Callable[[], Sequence[str]],
        configuration: Mapping[str, str],
    ) -> None:
        super().__init__()
        self.bookie = bookie
        self.coordination = coordination
        self.network = network
        self.clock = clock
        self.index_files = index_files
        self.configuration = configuration
        self.random = random
        # Both ask only ZooKeeper; the client of ``ledgers`` also connects to bookies.
        self.store = LedgerStore(coordination, clock=clock, random=random, config=_LEDGER_CONFIG)
        self.registry = BookieRegistry(coordination, random=random, config=_LEDGER_CONFIG)
        self._ledgers: Ledgers | None = None
        # Held while the client is opened: two requests must not open it twice.
        self._opening = asyncio.Lock()
        # What is opened later is closed with this service.
        self._stack: AsyncExitStack | None = None
        # Orders that are being carried out.
        self.jobs: set[str] = set()

    async def _open(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def ledgers(self) -> Ledgers:
        """The BookKeeper client, opened by the first call. Raises ``CoordinationError``."""
        # While the first call opens the client, others wait for it here.
        async with self._opening:
            if self._ledgers is None:
                assert self._stack is not None, "used while it is open"
                self._ledgers = await self._stack.enter_async_context(
                    Ledgers(
                        self.coordination, self.network, self.clock, self.random, _LEDGER_CONFIG
                    )
                )
            return self._ledgers

    def repair(self) -> LedgerRepair:
        """Make what one recovery of a bookie works with; the caller opens it."""
        return LedgerRepair(
            self.coordination,
            self.network,
            self.clock,
            self.random,
            AutoRecoveryConfig(),
            LedgerConfig(),
        )

    def start(self, job: str, work: Coroutine[object, object, None]) -> None:
        """Carry out ``work`` after the answer. Raises ``Refused`` while the same job goes on."""
        if job in self.jobs:
            # A coroutine that is never awaited would be reported as a mistake.
            work.close()
            raise Refused(HTTPStatus.CONFLICT, f"{job} is going on already; its end is in the log")
        # Nothing is awaited since the check above: of two orders at once, the second one is
        # refused.
        self.jobs.add(job)
        self.spawn(self._run(job, work), name=job)

    async def _run(self, job: str, work: Coroutine[object, object, None]) -> None:
        log.info("order begins", extra={"order": job})
        try:
            await work
        # Only the log can tell: the client got its answer when the order began.
        except (GemingaError, OSError, TimeoutError) as error:
            log.warning("order failed", extra={"order": job, "error": repr(error)})
        else:
            log.info("order done", extra={"order": job})
        finally:
            self.jobs.discard(job)
