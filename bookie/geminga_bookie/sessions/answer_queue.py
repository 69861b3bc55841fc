"""Requests of one connection that are answered later and off the hot path, one after the other.

For what needs the disk and is not a plain V2 read (``reads`` has those): V3 reads, batches of
entries, lists of entries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from geminga_bookie.sessions.later_answers import WRITE_BYTES, LaterAnswers, Spawn

# Makes the pieces of an answer; raises nothing.
MakeAnswer = Callable[[], Awaitable[Sequence[bytes]]]


class AnswerQueue(LaterAnswers[MakeAnswer]):
    """Makes answers in the order of ``push``."""

    def __init__(
        self,
        spawn: Spawn,
        *,
        queued_max: int,
        write: Callable[[list[bytes]], None],
        on_drained: Callable[[], None],
    ) -> None:
        super().__init__(
            spawn, name="answers", queued_max=queued_max, write=write, on_drained=on_drained
        )
        self._is_closed = False

    def push(self, make_answer: MakeAnswer) -> None:
        """Make this answer later; nothing is made once the connection is gone."""
        if not self._is_closed:
            self._add(make_answer)

    def close(self) -> None:
        """The connection is gone: make nothing more."""
        self._is_closed = True
        super().close()

    async def _answers(self) -> list[bytes]:
        pieces: list[bytes] = []
        size = 0
        while self._pending and size < WRITE_BYTES:
            answer = await self._pending.popleft()()
            pieces += answer
            size += sum(map(len, answer))
        return pieces
