"""The state of a function, kept in topics: what instances use, and what REST reads.

Lanes are topics in the namespace of the workers' own topics. A lane is created by its first change,
has one writer, and is followed by all others. The state is what all lanes together say (``table``).
Opening it reads each lane to its end, from where a local copy of the lane ends, if there is one.

An instance writes the lane of its number; with EFFECTIVELY_ONCE it writes instead the lanes of the
input partitions that it consumes. Such a lane moves with its partition: an instance that claims the
partition becomes the writer of the lane, which fences the writer before it, and then reads what
that one has committed.
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
# How often an instance looks for new lanes: of other instances that change the state for the first
# time, or of REST.
REFRESH_S = 1.0


@dataclass(slots=True)
class FollowedLane:
    """A lane that others write, and the task that reads what they write."""

    reader: geminga.Reader[bytes]
    task: asyncio.Task[object]


class ChangelogState(Service):
    """The state of ``function`` as the writer of ``lane`` sees it.

    Reading and applying do not wait for a broker, and may be done in any thread. Changes of other
    lanes are seen a moment later. ``is_alone`` says that the function has no other instance: an
    earlier one that still runs is fenced when this is opened. ``directory`` is for the local copy,
    and used by nothing else; None: the records are held in memory.
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
        # The name of a lane follows it in that of the lane's topic.
        self._prefix = lane_prefix(namespace, function)
        self._lane = lane
        self._is_alone = is_alone
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        # Done with the error after which this state cannot be relied on any more: a followed lane
        # or the local copy is damaged, or it is unknown whether something was stored. Nothing is
        # stored from then on.
        self.failure: asyncio.Future[Any] = self._loop.create_future()
        # How many records were read from lanes, since the local copy did not have them.
        self.records_read = 0
        self._table = StateTable(lane)
        # Guards the table, which threads of user code read and change.
        self._lock = threading.Lock()
        self._writers: dict[str, LaneWriter] = {}
        # Lanes with a writer here whose earlier records are not read yet.
        self._behind: set[str] = set()
        # Lanes that were read to their ends, and are followed from there.
        self._followed: dict[str, FollowedLane] = {}
        # Lanes that this state has created. As long as it writes them they need not be read.
        self._made: set[str] = set()
        # Held while lanes are opened, read to their ends, or released.
        self._moving = asyncio.Lock()
        # Whether new lanes are looked for: most functions have no state.
        self._is_used = False
        self._loop_thread = threading.get_ident()

    # --- what instances and REST do with it

    def sum_of(self, key: str) -> int | None:
        """As ``StateView.sum_of``."""
        self._use()
        with self._reading():
            return self._table.sum_of(key)

    def get(self, key: str) -> bytes | None:
        """As ``StateView.get``."""
        self._use()
        with self._reading():
            return self._table.get(key)

    def version(self, key: str) -> int:
        """The version of a value, 0 if it never had one."""
        with self._reading():
            return self._table.value(key)[0]

    def apply(self, changes: Changes) -> None:
        """As ``State.apply``; stored by ``commit``."""
        if changes.values or changes.counters:
            # All lanes must be known by now: a version or an epoch that is not higher than those of
            # an unknown lane would never count.
            self._use()
        with self._reading():
            # From now on code of this instance reads them; others do so once they are stored.
            self._table.staged |= self._table.records_of(self._lane, changes)

    def _use(self) -> None:
        """Look for new lanes from now on.

        In a thread of user code, the first use waits until the lanes that were created since this
        was opened are read. Code on the loop cannot wait: unless ``begin_use`` was called before,
        it sees them a moment later.
        """
        if not self._is_used:
            # On the loop, to wait for the loop would never end.
            if threading.get_ident() != self._loop_thread:
                asyncio.run_coroutine_threadsafe(self.begin_use(), self._loop).result()
            self._is_used = True

    async def begin_use(self) -> None:
        """Read what all instances have stored by now, and follow what they store from now on.

        The first use in the thread of the user's code does that by itself. Code on the loop cannot
        wait for it, so this must be called before. Raises ``GemingaError``.
        """
        await self.refresh()
        self._is_used = True

    @contextmanager
    def _reading(self) -> Generator[None, None, None]:
        """Lock the table. An error of it fails the whole state, even if user code catches it."""
        try:
            with self._lock:
                yield
        except (LocalCopyFailed, StateDamaged) as error:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._fail, error)
            raise

    async def commit(self) -> None:
        """Store all applied changes: after a crash all of them are there, or none.

        Raises ``GemingaError``: ``ProducerFenced`` if another instance has taken the lane.
        """
        # Even if nothing was changed: results may rest on something that was read wrong.
        self._check()
        # Records stay staged until they are stored. So this also waits for those that another
        # commit is storing at this moment.
        if not self._table.staged:
            return
        await self._store(self._lane, lambda: dict(self._table.staged))

    async def claim(self, partition: str) -> Commit | None:
        """Become the only instance that commits inputs of a partition.

        Returns the last commit of its inputs, whichever instance made it, None if there is none.
        After that the state has all that any instance had stored. Raises ``GemingaError``.
        """
        lane = lane_of_partition(partition)
        async with self._moving:
            self._check()
            lanes = await self._lanes()
            if lane in lanes and lane not in self._writers:
                # First the earlier owner is fenced, then what it has committed is read.
                await self._open_writer(lane)
            await _all(map(self._catch_up, sorted(self._of_others(lanes) | self._behind)))
        with self._lock:
            return self._table.commit_of(lane)

    async def commit_inputs(self, partition: str, changes: Changes, commit: Commit) -> None:
        """Store and apply the changes of inputs of a partition, together with ``commit``.

        Raises ``GemingaError``: ``ProducerFenced`` where another instance has claimed the
        partition; then nothing is changed.
        """
        lane = lane_of_partition(partition)
        if not self._is_used and (changes.values or changes.counters):
            await self.begin_use()
        try:
            await self._store(
                lane,
                lambda: {**self._table.records_of(lane, changes), COMMIT: commit.encode()},
            )
        except geminga.ProducerFenced:
            # The partitions are being distributed anew: all of their lanes are given up, and
            # followed as lanes of others.
            async with self._moving:
                partitions = [each for each in self._writers if each.startswith(PARTITION_PREFIX)]
                # First of all, since a writer that cannot be closed must not be used again either.
                writers = [self._writers.pop(each) for each in partitions]
                self._behind.difference_update(partitions)
                # What another instance adds to them from now on has to be read.
                self._made.difference_update(partitions)
                await _all(writer.producer.close() for writer in writers)
                await _all(map(self._catch_up, partitions))
            raise

    async def refresh(self) -> None:
        """Read everything that lanes of others have by now.

        Raises ``StateDamaged``, ``ClientError``.
        """
        async with self._moving:
            self._check()
            await _all(map(self._catch_up, sorted(self._of_others(await self._lanes()))))

    async def _store(self, lane: str, make: Callable[[], dict[str, bytes]]) -> None:
        """Store the records that ``make`` returns, if any, in a lane that is written here."""
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
            # The lane certainly has nothing of it.
            raise
        except BaseException as error:
            # If it is stored nevertheless, the next count in the lane would lack it. If it is not,
            # staged records that code has read already are never stored. Either way the state ends.
            doubt = StateInDoubt(self._prefix + lane)
            self._fail(error if isinstance(error, Exception) else doubt)
            raise

    def _fail(self, error: Exception) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)
            # Retrieved, so that asyncio does not complain of a future that is never awaited.
            self.failure.exception()

    def _check(self) -> None:
        """Raise the error that has failed the state, if one has."""
        if self.failure.done():
            self.failure.result()

    # --- lanes

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._directory is not None:
            # This blocks the loop for some milliseconds, as does closing it: nothing else is to be
            # done at these moments.
            copy = LocalCopy(self._directory)

            def close_copy() -> None:
                # User code that does not return may be using it in its thread.
                with self._lock:
                    copy.close()

            stack.callback(close_copy)
            self._table = StateTable(self._lane, copy)
        stack.push_async_callback(self._close_lanes)
        async with self._moving:
            lanes = await self._lanes()
            # The topics of these lanes were deleted since the copy was made.
            for lane in self._table.records.summaries.keys() - lanes.keys():
                self._table.forget(lane)
            for lane in sorted(lanes):
                # First earlier writers are fenced, then what they have stored is read.
                if lane == self._lane or (self._is_alone and lane.startswith(PARTITION_PREFIX)):
                    await self._open_writer(lane)
            await _all(map(self._catch_up, sorted(self._of_others(lanes) | self._behind)))
        if lanes:
            log.info("state read", extra={"lanes": len(lanes), "records_read": self.records_read})
        self.spawn_every(REFRESH_S, self._refresh, name="lanes of state")

    async def _close_lanes(self) -> None:
        closing = [each.producer.close() for each in self._writers.values()]
        closing += [each.reader.close() for each in self._followed.values()]
        await _all(closing)

    def _of_others(self, lanes: Mapping[str, str]) -> frozenset[str]:
        """Those of ``lanes`` that others write. REST's always is: it has several writers."""
        own = self._writers.keys() - {REST_LANE}
        return frozenset(lanes.keys() - own - self._made)

    async def _refresh(self) -> None:
        """Follow new lanes, and those that could not be read any further."""
        if self._is_used and not self.failure.done():
            async with self._moving:
                new = self._of_others(await self._lanes()) - self._followed.keys()
                await _all(map(self._catch_up, sorted(new)))

    async def _catch_up(self, lane: str) -> None:
        """Read a lane to its end, and follow it from there if others write it.

        A lane that cannot be read is not followed, and the next refresh reads it anew. A damaged
        lane or local copy fails the state. Raises these errors, and ``ClientError``.
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
            self._followed[lane] = FollowedLane(reader, task)

    async def _read_anew(self, lane: str) -> geminga.Reader[bytes]:
        """Read a lane to its end, starting where the records that are held end; returns the reader.

        If those records turn out to be of an older topic of the same name, the lane is read from
        its beginning. A topic without any record may be new, or may have lost everything; this
        cannot be told apart, so ``StateDamaged`` is raised.
        """
        with self._lock:
            is_held = lane in self._table.records.summaries
            position = self._table.begin(lane)
        try:
            return await self._read_from(lane, position)
        except StateDamaged as error:
            if not is_held:
                raise
            if not await self._has_records(lane):
                # The copy is kept: without it the next instance would take the lane for a new one.
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
            self._prefix + lane, start, start_inclusive=True, read_compacted=True
        )

    async def _read_whole(self, lane: str, reader: geminga.Reader[bytes]) -> None:
        """Read to the end. Raises ``StateDamaged``, ``ClientError``."""
        messages: list[geminga.Message[bytes]] = []
        while await reader.has_message_available():
            # A counted lane is taken in as it is read: none is held in memory as a whole.
            messages += await reader.read_many(READ_AT_ONCE)
            if lane != REST_LANE:
                self._take(lane, messages)
                messages = []
        # REST's lane is read from its beginning each time, so it is applied in one step: halfway
        # through, values would go back to what they once were.
        self._take(lane, messages)
        with self._lock:
            self._table.check(lane)

    async def _follow(self, lane: str, reader: geminga.Reader[bytes]) -> None:
        """Take in what others write to a lane, until it fails or this is cancelled."""
        try:
            while True:
                # There is no wait between reading and taking: a cancellation loses no record.
                self._take(lane, [await reader.read()])
                self._take(lane, await reader.read_many(READ_AT_ONCE - 1, 0))
                with self._lock:
                    self._table.check(lane, is_at_end=False)
        except (StateDamaged, LocalCopyFailed) as error:
            self._fail(error)
        except geminga.ClientError as error:
            # The next refresh reads the lane anew.
            log.warning(
                "a lane of state is not read any more, and soon read anew",
                extra={"lane": lane, "error": str(error)},
            )
            self._followed.pop(lane, None)
            await reader.close()

    def _take(self, lane: str, messages: Sequence[geminga.Message[bytes]]) -> None:
        """Apply messages that were read from a lane. Raises ``StateDamaged``."""
        read: list[tuple[str, bytes, tuple[int, int]]] = []
        for message in messages:
            if message.key is None:
                raise StateDamaged(lane, "", f"message {message.id} has no key")
            read.append((message.key, message.data, message.id.position))
        self.records_read += len(read)
        with self._lock:
            self._table.take(lane, read)

    async def _writer(self, lane: str) -> LaneWriter:
        """The writer of a lane; a lane without one did not exist at the last refresh: create it.

        Raises ``StateChanged`` if the lane has records nevertheless, which an earlier writer that
        was slow has stored since then.
        """
        if lane in self._writers:
            return self._writers[lane]
        async with self._moving:
            if lane not in self._writers:
                topic = self._prefix + lane
                writer = await LaneWriter.open(self._client, lane, topic)
                try:
                    if lane != REST_LANE:
                        await writer.write({MARK: MARK_RECORD})
                        # What an earlier writer had in flight is stored by now, or never will be.
                        if await self._has_records(lane):
                            raise StateChanged(topic)  # noqa: TRY301 - closes the producer, too
                        self._made.add(lane)
                except BaseException:
                    await writer.producer.close()
                    raise
                self._writers[lane] = writer
        return self._writers[lane]

    async def _has_records(self, lane: str) -> bool:
        """Whether a lane has records other than the marks of its writers."""
        async with await self._reader(lane, None) as reader:
            while await reader.has_message_available():
                keys = {each.key for each in await reader.read_many(READ_AT_ONCE)}
                if keys - {MARK}:
                    return True
        return False

    async def _open_writer(self, lane: str) -> None:
        """Become the writer of a lane that exists; what it has is to be read after that."""
        writer = await LaneWriter.open(self._client, lane, self._prefix + lane)
        self._writers[lane] = writer
        if lane != REST_LANE:
            self._behind.add(lane)
            # The lane now ends with a record of this writer: what an earlier writer had in flight
            # comes before the mark, or is refused.
            await writer.write({MARK: MARK_RECORD})

    async def _lanes(self) -> dict[str, str]:
        return await lanes_of(self._client, self._namespace, self._function)


async def _all(works: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Run all coroutines side by side; raises the first error once all of them have ended."""
    # Not one error at once: what the others open or close must not be left halfway.
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
