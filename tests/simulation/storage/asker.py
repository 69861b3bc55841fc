"""Processes that ask bookies themselves, over the protocol, what clients of ours hardly ask; and
that use ledgers which no client made. What they are told must be true.

A bookie may say that it has none of a ledger, or cannot read it. What it gives must be what was
written; what it says is confirmed, the writer must know to be.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from tests.simulation.storage.history import History
from tests.simulation.storage.raw_bookie_client import (
    Batch,
    RawBookieClient,
    add_request,
    connected,
    force_request,
    read_request,
    room_request,
)

from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.availability import decode_availability
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.bookkeeper.digest import (
    decode_entry,
    encode_entry_header,
    master_key,
)
from geminga_protocol.bookkeeper.v3_requests import (
    encode_explicit_lac,
    list_entries_request,
    long_poll_request,
    read_lac_request,
    write_lac_request,
)
from geminga_scenarios.storage import Storage
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.host import Host

PAUSE_S_MAX = 0.05
QUESTIONS_AT_ONCE = 4
POLL_MS = 300
BATCH_BYTES = (200, 8 * 1024, 64 * 1024)
# Ids of ledgers that no client made: far from those that ZooKeeper gives.
STRANGE_IDS_FROM = 1 << 50
STRANGE_ENTRIES = 150
STRANGE_PAUSE_S = 0.004
KEY, OTHER_KEY = master_key(b""), master_key(b"another")
NOTHING = (pb.ENOENTRY, pb.ENOLEDGER)
# Not now: its disk fails, or is full, or too many wait.
NOT_NOW = (pb.EIO, pb.EREADONLY, pb.ETOOMANYREQUESTS)

Question = Callable[[RawBookieClient], Coroutine[Any, Any, None]]


class Asker:
    """Asks all bookies of a storage about the ledgers in ``histories``. ``answers`` counts what it
    was told, by question and status."""

    def __init__(self, storage: Storage, histories: list[History]) -> None:
        self.answers = Counter[tuple[str, int]]()
        self._storage = storage
        self._histories = histories

    async def run(self, host: Host) -> None:
        """The main of a process that asks questions of all kinds, several at once."""
        while True:
            await asyncio.sleep(PAUSE_S_MAX * host.random.random())
            bookie = host.random.choice(self._storage.bookies)
            with suppress(OSError, asyncio.IncompleteReadError):
                async with connected(host.network, bookie.name) as client:
                    for _ in range(host.random.randrange(1, 5)):
                        drawn = [self._draw(host) for _ in range(QUESTIONS_AT_ONCE)]
                        await _all_of(each(client) for each in drawn)

    def _draw(self, host: Host) -> Question:
        """Any question about any ledger."""
        random = host.random
        history = random.choice(self._histories)
        if not history.pushed:
            return self._ask_room
        # The newest half the time: the others may be gone already.
        ledgers = list(history.pushed)
        ledger_id = random.choice((ledgers[-1], random.choice(ledgers)))
        entry_id = random.randrange(len(history.pushed[ledger_id]) + 2)
        questions = _Questions(self, history, ledger_id, entry_id, random.choice(BATCH_BYTES))
        return random.choice(
            (
                self._ask_room,
                questions.read,
                questions.read_what_no_entry_is,
                questions.read_several,
                questions.list_entries,
                questions.read_lac,
                questions.wait_for_more,
            )
        )

    async def _ask_room(self, client: RawBookieClient) -> None:
        response = await client.ask(room_request())
        if self.note("room", response.status, NOT_NOW):
            room = response.getBookieInfoResponse
            _require(0 <= room.freeDiskSpace <= room.totalDiskCapacity, f"it has {room}")

    def note(self, question: str, status: int, others: tuple[int, ...]) -> bool:
        """Count the answer; returns whether it says anything, for of the others only some are
        right."""
        self.answers[question, status] += 1
        _require(status == pb.EOK or status in others, f"{question}: status {status}")
        return status == pb.EOK


class _Questions:
    """Questions about one ledger and one of its entries, and what their answers must be."""

    def __init__(
        self, asker: Asker, history: History, ledger_id: int, entry_id: int, bytes_max: int
    ) -> None:
        self._asker = asker
        self._history = history
        self._ledger_id = ledger_id
        self._entry_id = entry_id
        self._bytes_max = bytes_max

    async def read(self, client: RawBookieClient) -> None:
        response = await client.ask(read_request(self._ledger_id, self._entry_id))
        if self._asker.note("read", response.status, NOTHING + NOT_NOW):
            self._check_entry(self._entry_id, response.readResponse.body)
            self._check_lac(response.readResponse.maxLAC)

    async def read_what_no_entry_is(self, client: RawBookieClient) -> None:
        response = await client.ask(read_request(self._ledger_id, -2))
        _require(response.status == pb.ENOENTRY, f"entry -2 has status {response.status}")

    async def read_several(self, client: RawBookieClient) -> None:
        """One answer has the first entry and the following ones, as far as they exist and fit."""
        batch = await client.read_batch(self._ledger_id, self._entry_id, bytes_max=self._bytes_max)
        self._asker.answers["batch", batch.code] += 1
        right = {ReturnCode.EOK, ReturnCode.ENOLEDGER, ReturnCode.ENOENTRY, ReturnCode.EIO}
        _require(batch.code in right, f"a batch has code {batch.code}")
        _require(bool(batch.entries) == (batch.code == ReturnCode.EOK), f"a batch: {batch}")
        for entry_id, entry in enumerate(batch.entries, self._entry_id):
            self._check_entry(entry_id, entry)

    async def list_entries(self, client: RawBookieClient) -> None:
        response = await client.ask(list_entries_request(self._ledger_id))
        if self._asker.note("list", response.status, NOTHING + NOT_NOW):
            listed = response.getListOfEntriesOfLedgerResponse.availabilityOfEntriesOfLedger
            pushed = len(self._history.pushed[self._ledger_id])
            for run in decode_availability(listed):
                _require(0 <= run.first <= run.last < pushed, f"of {pushed} it lists {run}")

    async def read_lac(self, client: RawBookieClient) -> None:
        response = await client.ask(read_lac_request(self._ledger_id))
        if self._asker.note("lac", response.status, NOTHING + NOT_NOW):
            newest = response.readLacResponse.lastEntryBody
            self._check_entry(decode_entry(newest, 0, len(newest), self._ledger_id)[0], newest)

    async def wait_for_more(self, client: RawBookieClient) -> None:
        previous = self._history.confirmed[self._ledger_id]
        response = await client.ask(long_poll_request(self._ledger_id, previous, POLL_MS))
        if self._asker.note("poll", response.status, NOTHING + NOT_NOW):
            answer = response.readResponse
            self._check_lac(answer.maxLAC)
            if answer.body:
                self._check_entry(previous + 1, answer.body)

    def _check_entry(self, entry_id: int, entry: bytes) -> None:
        ledger_id = self._ledger_id
        _, lac, _, payload = decode_entry(entry, 0, len(entry), ledger_id, entry_id)
        pushed = self._history.pushed[ledger_id]
        _require(
            entry_id < len(pushed) and payload == pushed[entry_id],
            f"entry {entry_id} of ledger {ledger_id} is another",
        )
        self._check_lac(lac)

    def _check_lac(self, lac: int) -> None:
        confirmed = self._history.confirmed[self._ledger_id]
        _require(lac <= confirmed, f"{lac} is said to be confirmed, the writer knows {confirmed}")


async def be_strange(host: Host, storage: Storage) -> None:
    """The main of a process that uses ledgers of which ZooKeeper does not know: it adds to them
    while they are collected, waits for more of them, fences them, and says what is confirmed."""
    while True:
        await asyncio.sleep(PAUSE_S_MAX * host.random.random())
        ledger_id = STRANGE_IDS_FROM + host.random.getrandbits(40)
        bookie = host.random.choice(storage.bookies)
        with suppress(OSError):
            async with connected(host.network, bookie.name) as client:
                await host.random.choice((_add_and_wait, _fence, _confirm))(client, ledger_id)


async def _add_and_wait(client: RawBookieClient, ledger_id: int) -> None:
    """Add for longer than garbage is left alone, while others wait for it and force it."""

    async def add() -> None:
        for entry_id in range(STRANGE_ENTRIES):
            header = encode_entry_header(ledger_id, entry_id, entry_id - 1, entry_id, b"x")
            response = await client.ask(add_request(ledger_id, entry_id, KEY, (header, b"x")))
            _require(response.status in (pb.EOK, *NOT_NOW), f"an add: {response.status}")
            await asyncio.sleep(STRANGE_PAUSE_S)

    async def wait() -> None:
        for _ in range(3):
            request = long_poll_request(ledger_id, STRANGE_ENTRIES, POLL_MS)
            status = (await client.ask(request)).status
            _require(status in (pb.EOK, *NOTHING, *NOT_NOW), f"a poll: {status}")
            status = (await client.ask(force_request(ledger_id))).status
            _require(status in (pb.EOK, pb.EIO), f"a force: {status}")

    await _all_of((add(), wait()))


async def _fence(client: RawBookieClient, ledger_id: int) -> None:
    """Fence a ledger of which there is nothing: a client with another key is refused, and once the
    bookie has said that it is fenced, it takes nothing of it any more."""
    response = await client.ask(read_request(ledger_id, 0, fence_key=KEY))
    _require(response.status in (pb.ENOENTRY, pb.EIO), f"a fence: {response.status}")
    if response.status == pb.EIO:
        return
    header = encode_entry_header(ledger_id, 0, -1, 1, b"x")
    added = await client.ask(add_request(ledger_id, 0, KEY, (header, b"x")))
    _require(added.status in (pb.EFENCED, *NOT_NOW), f"an add behind a fence: {added.status}")
    told = await client.ask(read_lac_request(ledger_id))
    _require(told.status in (pb.ENOENTRY, pb.EIO), f"nothing is confirmed: {told.status}")
    waited = await client.ask(long_poll_request(ledger_id, -1, 1))
    _require(waited.status in (*NOTHING, *NOT_NOW), f"nothing comes: {waited.status}")
    batch = await client.read_batch(ledger_id, 0, bytes_max=BATCH_BYTES[0], fence_key=OTHER_KEY)
    _require(_is_refused(batch), f"another key fences: {batch}")


def _is_refused(batch: Batch) -> bool:
    return batch.code in (ReturnCode.EUA, ReturnCode.EIO) and not batch.entries


async def _confirm(client: RawBookieClient, ledger_id: int) -> None:
    """Say what is confirmed of a ledger of which the bookie has no entry, and hear it again."""
    response = await client.ask(write_lac_request(ledger_id, 7, KEY))
    _require(response.status in (pb.EOK, *NOT_NOW), f"an explicit lac: {response.status}")
    if response.status != pb.EOK:
        return
    response = await client.ask(read_lac_request(ledger_id))
    # It may have been collected meanwhile: no bookie knows the ledger.
    if response.status == pb.EOK:
        told = response.readLacResponse.lacBody
        _require(told == encode_explicit_lac(ledger_id, 7), f"it was told something else: {told!r}")
    else:
        _require(response.status in (*NOTHING, pb.EIO), f"its lac: {response.status}")


async def _all_of(works: Any) -> None:
    """Do these at once; raises the first error, after all have ended."""
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _require(is_right: bool, what: str) -> None:  # noqa: FBT001 -- a claim
    if not is_right:
        raise InvariantViolated(what)
