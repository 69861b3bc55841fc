"""The state of a function, kept in topics: ``StateStore`` of instances, and what REST reads.

Lanes are topics in the namespace of the workers' own topics. A lane is made by the first change,
has one writer, and is followed by all others. What counts is what all lanes together say
(``table``). Opening reads all lanes to their ends: from where a local copy of them ends, if there
is one.

An instance writes the lane of its number; but with EFFECTIVELY_ONCE the lanes of the input
partitions that it consumes. These move with the partition: to claim it is to take its lane, which
ends the writer before it, and then to read what that one has committed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import geminga
from geminga_functions.errors import LocalCopyFailed, StateChanged, StateDamaged, StateInDoubt
from geminga_functions.names import FunctionName
from geminga_functions.state.changes import Changes
from geminga_functions.state.lanes import (
    PARTITION_PREFIX,
    LaneWriter,
    lane_of_partition,
    lane_prefix,
    lanes_of,
)
from geminga_functions.state.local_copy import LocalCopy
from geminga_functions.state.table import (
    COMMIT,
    COUNT,
    MARK,
    MARK_RECORD,
    REST_LANE,
    Commit,
    StateTable,
)
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

READ_AT_ONCE = 1000
# How soon an instance follows a lane that is new: of another instance that changes state for the
# first time, or of REST.
REFRESH_S = 1.0


@dataclass(slots=True)
class Following:
    """A lane of others that is read: by ``task`` on and on."""

    reader: geminga.Reader[bytes]
    task: asyncio.Task[object]


class ChangelogState(Service):
    """The state of ``function`` as the writer of ``lane`` sees it.

    Reading and applying take no time, and may be done in any thread. What other lanes change is
    seen a moment later. ``is_alone`` says that no other instance of the function should be there:
    whichever still is stores nothing more once this is open. ``directory`` is for the local copy:
    nothing else uses it meanwhile. None: the state is held in memory.

    ``failure`` is done with the error for which this state is not to be relied on any more: a lane
    that is followed is damaged, or the local copy, or what was to be stored may not be. Nothing is
    stored from then on.
    """

    def __init__(
        self,
        client: geminga.Client,
        namespace: str,
        function: FunctionName,
        lane: str,
        *,
        is_alone: bool = False,
        directory: Path | None = None,
    ) -> None:
        super().__init__()
        self._client = client
        self._namespace = namespace
        self._function = function
        self._lane = lane
        self._is_alone = is_alone
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[Any] = self._loop.create_future()
        # How many records were read from lanes, those that a local copy had not.
        self.records_read = 0
        self._table = StateTable(lane)
        # Guards the table.
        self._lock = threading.Lock()
        self._writers: dict[str, LaneWriter] = {}
        # Lanes that are written here, and were not read to their ends since that began.
        self._behind: set[str] = set()
        # Lanes whose followers read on, each from where it was read to its end.
        self._followed: dict[str, Following] = {}
        # Lanes that this state has made: they hold nothing of others, as long as it writes them.
        self._made: set[str] = set()
        # Lanes are opened, read to their ends, and given up by one task at a time.
        self._moving = asyncio.Lock()
        # Most functions have no state: new lanes are not looked for then.
        self._is_used = False
        self._loop_thread = threading.get_ident()

    # --- StateStore

    def counter(self, key: str) -> int:
        """As ``StateView.counter``."""
        self._use()
        with self._reading():
            return self._table.counter(key)

    def has_counter(self, key: str) -> bool:
        """As ``StateView.has_counter``."""
        with self._reading():
            return self._table.has_counter(key)

    def get(self, key: str) -> bytes | None:
        """As ``StateView.get``."""
        self._use()
        with self._reading():
            return self._table.get(key)

    def version(self, key: str) -> int:
        """The version of a value, 0 if it never had one."""
        with self._reading():
            return self._table.version(key)

    def apply(self, changes: Changes) -> None:
        """As ``State.apply``; stored by ``commit``."""
        if changes.values or changes.counters:
            # A version or an epoch that stood on fewer lanes than there are might never count.
            self._use()
        with self._reading():
            self._table.stage(self._table.records_of(self._lane, changes))

    def _use(self) -> None:
        """Lanes are looked for from now on. The first to use the state, in its thread, waits for
        those that came since this was opened; the loop cannot wait, and has them a moment later,
        if ``begin_use`` was not called before.
        """
        if not self._is_used:
            if threading.get_ident() != self._loop_thread:
                asyncio.run_coroutine_threadsafe(self.begin_use(), self._loop).result()
            self._is_used = True

    async def begin_use(self) -> None:
        """As ``StateStore.begin_use``."""
        await self.refresh()
        self._is_used = True

    @contextmanager
    def _reading(self) -> Generator[None, None, None]:
        """The table is this thread's. What the user's code is told of the local copy's failure it
        may handle as it likes: the instance ends."""
        try:
            with self._lock:
                yield
        except (LocalCopyFailed, StateDamaged) as error:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._fail, error)
            raise

    async def commit(self) -> None:
        """As ``StateStore.commit``: all changes or none of them are there after a crash. Raises
        ``ProducerFenced`` where another instance has taken the lane."""
        # Also where nothing was changed: what was read may have been wrong.
        self._check()
        # What another commit is storing is staged until it is stored: it is waited for.
        if not self._table.staged:
            return
        await self._store(self._lane, lambda: dict(self._table.staged))

    async def claim(self, partition: str) -> Commit | None:
        """As ``StateStore.claim``."""
        lane = lane_of_partition(partition)
        async with self._moving:
            self._check()
            lanes = await self._lanes()
            if lane in lanes and lane not in self._writers:
                # From now on the earlier owner commits nothing more, and what it did is read.
                await self._open_writer(lane)
            await self._catch_up_all(sorted(self._of_others(lanes) | self._behind))
        with self._lock:
            return self._table.commit_of(lane)

    async def commit_inputs(self, partition: str, changes: Changes, commit: Commit) -> None:
        """As ``StateStore.commit_inputs``."""
        lane = lane_of_partition(partition)
        if not self._is_used and (changes.values or changes.counters):
            await self.begin_use()
        try:
            await self._store(
                lane,
                lambda: {**self._table.records_of(lane, changes), COMMIT: commit.encode()},
            )
        except geminga.ProducerFenced:
            await self._release_partitions()
            raise

    async def refresh(self) -> None:
        """Read all that any lane has by now. Raises ``StateDamaged``, ``ClientError``."""
        async with self._moving:
            self._check()
            lanes = await self._lanes()
            await self._catch_up_all(sorted(self._of_others(lanes)))

    async def _store(self, lane: str, make: Callable[[], dict[str, bytes]]) -> None:
        """Store the records that ``make`` gives, if there are some, in a lane of one's own."""
        self._check()
        try:
            writer = await self._writer(lane)
            async with writer.turn:
                self._check()
                with self._lock:
                    entry = self._table.entry_of(lane, make())
                if not entry.records:
                    return
                position = await writer.write(entry.stored)
                with self._lock:
                    self._table.keep(entry, position)
        except geminga.ProducerFenced:
            raise
        except BaseException as error:
            # It may be stored all the same, which the lane's next count would lack; or what is
            # staged never is, and nobody may read it.
            topic = self._topic(lane)
            self._fail(error if isinstance(error, Exception) else StateInDoubt(topic))
            raise

    async def _release_partitions(self) -> None:
        """Follow all lanes of partitions, as lanes of others."""
        async with self._moving:
            lanes = [lane for lane in self._writers if lane.startswith(PARTITION_PREFIX)]
            # First of all: a writer that cannot be closed writes nothing more either.
            writers = [self._writers.pop(lane) for lane in lanes]
            self._behind.difference_update(lanes)
            self._made.difference_update(lanes)
            await _all(writer.close() for writer in writers)
            await self._catch_up_all(lanes)

    def _fail(self, error: Exception) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)
            self.failure.exception()  # it is no fault if nobody asks

    def _check(self) -> None:
        if self.failure.done():
            self.failure.result()

    # --- lanes

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._directory is not None:
            # The loop waits some milliseconds for it: there is nothing else to do yet, or any more.
            copy = LocalCopy(self._directory)
            stack.callback(self._close_copy, copy)
            self._table = StateTable(self._lane, copy)
        stack.push_async_callback(self._close_lanes)
        async with self._moving:
            lanes = await self._lanes()
            for lane in self._table.lanes - lanes.keys():
                self._table.forget(lane)
            for lane in sorted(lanes):
                # From now on earlier writers store nothing more, and what they stored is read.
                if lane == self._lane or (self._is_alone and lane.startswith(PARTITION_PREFIX)):
                    await self._open_writer(lane)
            await self._catch_up_all(sorted(self._of_others(lanes) | self._behind))
        if lanes:
            log.info("state read", extra={"lanes": len(lanes), "records_read": self.records_read})
        self.spawn_every(REFRESH_S, self._refresh, name="lanes of state")

    def _close_copy(self, copy: LocalCopy) -> None:
        # The thread of code that does not return may be at it.
        with self._lock:
            copy.close()

    async def _close_lanes(self) -> None:
        closing = [each.close() for each in self._writers.values()]
        closing += [each.reader.close() for each in self._followed.values()]
        await _all(closing)

    def _of_others(self, lanes: Mapping[str, str]) -> frozenset[str]:
        """Those of ``lanes`` that are followed: REST's always, since it has several writers."""
        own = self._writers.keys() - {REST_LANE}
        return frozenset(lanes.keys() - own - self._made)

    async def _refresh(self) -> None:
        """Follow lanes that have come, and those whose followers had to give up."""
        if self._is_used and not self.failure.done():
            async with self._moving:
                lanes = await self._lanes()
                await self._catch_up_all(sorted(self._of_others(lanes) - self._followed.keys()))

    async def _catch_up_all(self, lanes: Sequence[str]) -> None:
        await _all(self._catch_up(lane) for lane in lanes)

    async def _catch_up(self, lane: str) -> None:
        """Read a lane to its end; what comes later is read on and on, if others write it.

        A lane whose reading fails is not followed, so that the next look at lanes begins anew. The
        failure is that of the state where the lane is damaged. Raises it, or ``ClientError``.
        """
        following = self._followed.pop(lane, None)
        try:
            if following is None:
                reader = await self._read_anew(lane)
            else:
                reader = following.reader
                following.task.cancel()
                await asyncio.wait([following.task])
                await self._read_whole(lane, reader)
        except BaseException as error:
            if isinstance(error, (StateDamaged, LocalCopyFailed)):
                self._fail(error)
            if following is not None:
                await following.reader.close()
            raise
        if lane in self._writers and lane != REST_LANE:
            self._behind.discard(lane)
            await reader.close()
        else:
            task = self.spawn(self._follow(lane, reader), name=f"state lane {lane}")
            self._followed[lane] = Following(reader, task)

    async def _read_anew(self, lane: str) -> geminga.Reader[bytes]:
        """Read a lane to its end, from where what is held of it ends; returns the reader.

        What is held may be of an older topic of that name: then it is read from its beginning. A
        topic that holds no record may be a new one, or one that lost all it had: which of them
        nothing says, and ``StateDamaged`` is raised.
        """
        with self._lock:
            is_held = lane in self._table.lanes
            position = self._table.begin(lane)
        try:
            return await self._read_from(lane, position)
        except StateDamaged as error:
            if not is_held:
                raise
            if not await self._has_records(lane):
                # What is held stays: without it the next one would take the lane for a new one.
                reason = "its topic was emptied, and the copy on this worker's disk has it"
                raise StateDamaged(lane, COUNT, reason) from error
            log.warning(
                "what is held of a lane is not what the lane has: it is read from its beginning",
                extra={"lane": lane, "error": str(error)},
            )
            with self._lock:
                self._table.forget(lane)
            return await self._read_from(lane, None)

    async def _read_from(
        self, lane: str, position: tuple[int, int] | None
    ) -> geminga.Reader[bytes]:
        reader = await self._reader(lane, position)
        try:
            await self._read_whole(lane, reader)
        except BaseException:
            await reader.close()
            raise
        return reader

    async def _reader(self, lane: str, position: tuple[int, int] | None) -> geminga.Reader[bytes]:
        start = geminga.EARLIEST if position is None else geminga.MessageId(*position)
        return await self._client.reader(
            self._topic(lane), start, start_inclusive=True, read_compacted=True
        )

    async def _read_whole(self, lane: str, reader: geminga.Reader[bytes]) -> None:
        """Read to the end. Raises ``StateDamaged``, ``ClientError``."""
        messages: list[geminga.Message[bytes]] = []
        while await reader.has_message_available():
            messages += await reader.read_many(READ_AT_ONCE)
            if lane != REST_LANE:
                self._take(lane, messages)
                messages = []
        # What is read from REST's lane again and again is applied at once: in the midst of it a
        # value would have been what it once was.
        self._take(lane, messages)
        with self._lock:
            self._table.check(lane)

    async def _follow(self, lane: str, reader: geminga.Reader[bytes]) -> None:
        """Read on and on. Ends with what is wrong with the lane, or for the next look at lanes."""
        try:
            while True:
                # Taken one by one: whoever cancels this loses nothing.
                self._take(lane, [await reader.read()])
                self._take(lane, await reader.read_many(READ_AT_ONCE - 1, 0))
                with self._lock:
                    self._table.check(lane, is_at_end=False)
        except (StateDamaged, LocalCopyFailed) as error:
            self._fail(error)
        except geminga.ClientError as error:
            log.warning(
                "a lane of state is not read any more, and soon read anew",
                extra={"lane": lane, "error": str(error)},
            )
            self._followed.pop(lane, None)
            await reader.close()

    def _take(self, lane: str, messages: Sequence[geminga.Message[bytes]]) -> None:
        """Raises ``StateDamaged``."""
        read: list[tuple[str, bytes, tuple[int, int]]] = []
        for message in messages:
            if message.key is None:
                raise StateDamaged(lane, "", f"message {message.id} has no key")
            read.append((message.key, message.data, message.id.position))
        self.records_read += len(read)
        with self._lock:
            self._table.take(lane, read)

    async def _writer(self, lane: str) -> LaneWriter:
        """The writer of a lane: without one, the lane was not there when lanes were looked for.

        Raises ``StateChanged`` where it has something nevertheless, which an earlier writer that
        was slow has stored, or REST at the same moment.
        """
        if lane not in self._writers:
            async with self._moving:
                if lane not in self._writers:
                    await self._make_lane(lane)
        return self._writers[lane]

    async def _make_lane(self, lane: str) -> None:
        writer = await LaneWriter.open(self._client, lane, self._topic(lane))
        try:
            if lane != REST_LANE:
                await writer.write({MARK: MARK_RECORD})
                await self._check_new(lane)
                self._made.add(lane)
        except BaseException:
            await writer.close()
            raise
        self._writers[lane] = writer

    async def _check_new(self, lane: str) -> None:
        if await self._has_records(lane):
            raise StateChanged(self._topic(lane))

    async def _has_records(self, lane: str) -> bool:
        """Whether a lane has more than the marks of its writers."""
        async with await self._reader(lane, None) as reader:
            while await reader.has_message_available():
                keys = {each.key for each in await reader.read_many(READ_AT_ONCE)}
                if keys - {MARK}:
                    return True
        return False

    async def _open_writer(self, lane: str) -> None:
        writer = await LaneWriter.open(self._client, lane, self._topic(lane))
        self._writers[lane] = writer
        if lane != REST_LANE:
            self._behind.add(lane)
            # Whatever an earlier writer had under way stands before this, or is refused.
            await writer.write({MARK: MARK_RECORD})

    async def _lanes(self) -> dict[str, str]:
        return await lanes_of(self._client, self._namespace, self._function)

    def _topic(self, lane: str) -> str:
        return lane_prefix(self._namespace, self._function) + lane


async def _all(works: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Do all of it, side by side; raises the first error once nothing is under way any more."""
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
