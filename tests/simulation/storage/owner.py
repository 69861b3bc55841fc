"""Processes that own, write, take over and read ledgers, as brokers do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from dataclasses import replace
from typing import Any

from tests.simulation.storage.history import History
from tests.simulation.storage.v3_adds import AddsOverV3

from geminga_ledger import (
    LedgerConfig,
    LedgerError,
    LedgerFenced,
    LedgerReader,
    Ledgers,
    LedgerWriter,
    NoSuchEntry,
    NoSuchLedger,
)
from geminga_ledger.reading.range_read import RangeRead
from geminga_ledger.replication.quorum import Quorum, Verdict
from geminga_protocol.records.ledgers.ledger_metadata import Fragment, LedgerMetadata
from geminga_runtime.coordination import CoordinationError
from geminga_scenarios.cluster import Sizes
from geminga_scenarios.storage import Storage
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.host import Host

READ_BYTES = 64 * 1024
# A burst now and then is bigger than what a stream takes at once.
BURST_ENTRIES_MAX = 12
PAYLOAD_BYTES_MAX = 2_000
PAUSE_S_MAX = 0.1
RETRY_S = 0.1
# How often a reader looks for more before it opens another ledger, and how long it waits for it.
LOOKS_MAX = 5
WAIT_S = 1.0
ANSWER_TIMEOUT_S = 10.0


class Witness:
    """Listens to one writer and writes down what it is told."""

    def __init__(self, history: History) -> None:
        self.failure: LedgerError | None = None
        self.ledger_id = -1
        self._history = history

    def entries_confirmed(self, last_confirmed: int) -> None:
        self._history.confirm(self.ledger_id, last_confirmed)

    def writer_failed(self, error: LedgerError) -> None:
        assert self.failure is None, "a writer fails once"
        self.failure = error


class Owner:
    """One broker's worth of work: take over every ledger there is, then write new ones for ever.

    An owner is not told that another took over: it finds itself fenced, and stops. The ledgers
    there are, and those it adds, are those in ``history``. ``config`` says how patient it is. With
    ``v3_answers`` it adds over V3, as a Java client does, and they count what bookies answer.
    """

    def __init__(
        self,
        storage: Storage,
        history: History,
        sizes: Sizes,
        config: LedgerConfig | None = None,
        v3_answers: Counter[int] | None = None,
    ) -> None:
        self._storage = storage
        self._history = history
        self._sizes = sizes
        self._config = config
        self._v3_answers = v3_answers

    async def run(self, host: Host) -> None:
        """The main of an owner's process."""
        await keep_up(lambda: self._own(host))

    async def _own(self, host: Host) -> None:
        answers = self._v3_answers
        network = host.network if answers is None else AddsOverV3(host.network, answers)
        async with self._storage.ledgers(host, self._config, network) as ledgers:
            for ledger_id in list(self._history.ledgers):
                await take_over(ledgers, self._history, ledger_id)
            is_owner = True
            while is_owner:
                is_owner = await self.write_one(host, ledgers)
                await asyncio.sleep(RETRY_S)

    async def write_one(self, host: Host, ledgers: Ledgers) -> bool:
        """Write one ledger until it fails or is long enough; whether to go on with another."""
        witness = Witness(self._history)
        try:
            writer = await ledgers.create(
                listener=witness,
                ensemble_size=self._sizes.ensemble,
                write_quorum=self._sizes.write_quorum,
                ack_quorum=self._sizes.ack_quorum,
            )
        except (LedgerError, CoordinationError):
            return True
        witness.ledger_id = writer.ledger_id
        self._history.begin(writer.ledger_id)
        entries_max = host.random.randrange(1, 200)
        while witness.failure is None and writer.last_pushed < entries_max:
            self._append_some(host, writer)
            await asyncio.sleep(host.random.random() * PAUSE_S_MAX)
        return await self._close(writer)

    def _append_some(self, host: Host, writer: LedgerWriter) -> None:
        for _ in range(host.random.randrange(BURST_ENTRIES_MAX)):
            size = int(PAYLOAD_BYTES_MAX * host.random.random() ** 4)
            payload = b"%d/%d " % (writer.ledger_id, writer.last_pushed + 1) + bytes(size)
            try:
                entry_id = writer.append(payload)
            except LedgerError:
                return
            pushed = self._history.pushed[writer.ledger_id]
            assert entry_id == len(pushed)
            pushed.append(payload)

    async def _close(self, writer: LedgerWriter) -> bool:
        while True:
            try:
                await writer.close()
            except LedgerFenced:
                return False
            except CoordinationError:
                await asyncio.sleep(RETRY_S)
            else:
                self._history.end(writer.ledger_id, writer.last_confirmed)
                return True


async def rival(host: Host, storage: Storage, history: History) -> None:
    """The main of a process that takes over all ledgers, as the next owner does, and writes none:
    two that recover a ledger at once, of which its writer may not have heard."""

    async def take_over_all() -> None:
        async with storage.ledgers(host) as ledgers:
            for ledger_id in history.ledgers[::-1]:
                await take_over(ledgers, history, ledger_id)

    await keep_up(take_over_all)


async def take_over(ledgers: Ledgers, history: History, ledger_id: int) -> None:
    """Recover a ledger, until that succeeds, and read all of it.

    A bookie that is away makes that fail, and is waited for; bookies that are there and together
    say that they never had an entry break the promise.
    """
    while True:
        try:
            reader = await ledgers.open(ledger_id, recover=True)
            history.end(ledger_id, reader.last_confirmed)
            first = 0
            while first <= reader.last_confirmed:
                payloads = await reader.read(first, reader.last_confirmed, bytes_max=READ_BYTES)
                history.read(ledger_id, first, payloads)
                first += len(payloads)
            history.check_metadata(ledger_id, reader.view.metadata)
        except NoSuchEntry as error:
            raise InvariantViolated(f"an entry of a closed ledger is gone: {error}") from error
        except NoSuchLedger:
            if ledger_id not in history.ledgers:
                return  # it was deleted meanwhile
            await asyncio.sleep(RETRY_S)
        except (LedgerError, CoordinationError):
            await asyncio.sleep(RETRY_S)
        else:
            return


async def check_copies(ledgers: Ledgers, ledger_id: int, lost: Collection[str]) -> None:
    """Every entry of a closed ledger is on an ack quorum of its ensemble, whichever client says so.

    Asks each bookie for all it should have. One that is ``lost`` is believed to have had it.
    """
    metadata = await ledgers.metadata(ledger_id)
    quorum = Quorum(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    copies = Counter[int]()
    ends = [each.first_entry for each in metadata.fragments[1:]] + [metadata.last_entry + 1]
    for fragment, end in zip(metadata.fragments, ends, strict=True):
        for slot, bookie_id in enumerate(fragment.ensemble):
            wanted = range(fragment.first_entry, end)
            stored = (
                wanted
                if bookie_id in lost
                else await _stored(ledgers, metadata, ledger_id, bookie_id, wanted)
            )
            copies.update(each for each in stored if slot in quorum.write_set(each))
    short = [each for each in range(metadata.last_entry + 1) if copies[each] < quorum.ack_quorum]
    if short:
        raise InvariantViolated(f"ledger {ledger_id}: too few copies of {short} in {metadata}")


async def _stored(
    ledgers: Ledgers, metadata: LedgerMetadata, ledger_id: int, bookie_id: str, wanted: range
) -> list[int]:
    """Which of the entries a bookie has."""
    if not wanted:
        return []
    alone = replace(
        metadata,
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        fragments=(Fragment(0, (bookie_id,)),),
    )
    while True:
        results = await RangeRead(
            ledger_id,
            alone,
            ledgers._links.link,
            entry_ids=wanted,
            absences_proving=1,
            answer_timeout_s=ANSWER_TIMEOUT_S,
        ).run()
        if Verdict.UNDECIDED not in results:
            return [
                each
                for each, found in zip(wanted, results, strict=True)
                if found is not Verdict.ABSENT
            ]
        await asyncio.sleep(RETRY_S)


async def keep_up(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it until it ends well: a process that cannot start is started again."""
    while True:
        try:
            await work()
        except (LedgerError, CoordinationError):
            await asyncio.sleep(RETRY_S)
        else:
            return


async def tail(host: Host, storage: Storage, history: History) -> None:
    """The main of a process that reads along, never taking over."""
    await keep_up(lambda: _tail(host, storage, history))


async def _tail(host: Host, storage: Storage, history: History) -> None:
    async with storage.ledgers(host) as ledgers:
        while True:
            await asyncio.sleep(host.random.random() * PAUSE_S_MAX)
            if not history.ledgers:
                continue
            ledger_id = history.ledgers[-1]
            try:
                reader = await ledgers.open(ledger_id, recover=False)
                await _read_along(host, history, reader)
            except (LedgerError, CoordinationError):
                continue


async def _read_along(host: Host, history: History, reader: LedgerReader) -> None:
    """Read what there is, wait for more, and read that: from the same reader it only grows."""
    ledger_id = reader.ledger_id
    name = object()
    for _ in range(host.random.randrange(1, LOOKS_MAX)):
        history.see(name, ledger_id, reader.last_confirmed)
        if reader.last_confirmed >= 0:
            first = host.random.randrange(reader.last_confirmed + 1)
            payloads = await reader.read(first, first + 20, bytes_max=READ_BYTES)
            history.read(ledger_id, first, payloads)
        await reader.wait_for_confirmed(reader.last_confirmed, timeout_s=WAIT_S)
