"""EFFECTIVELY_ONCE with state: what inputs change, their results and their position are committed
together, as one entry of the lane of their partition.

The order of events is what makes it once:

1. The partition is claimed: whoever had it before commits nothing more. What its last commit has
   of results that are not stored is sent; inputs up to its position are done.
2. Inputs are processed; nothing of it counts yet.
3. All results that were sent before for this partition are stored.
4. The commit is written. Now it counts.
5. The results are sent, and inputs are acknowledged as their results are stored.

A crash before 4 leaves nothing. After it, the next claim goes on with 5. So a lane needs to keep
the results of its last commit alone, by 3, and compaction may drop what is before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import geminga
from geminga_functions.errors import InstanceFailed
from geminga_functions.instance.outputs import Outputs, sequence_id_of
from geminga_functions.instance.settling import Outcome, result_of
from geminga_functions.instance.state import StateStore
from geminga_functions.state.changes import Changes
from geminga_functions.state.table import Commit


class Committer:
    """Commits for one instance. ``failure`` is done when a result could not be stored."""

    def __init__(
        self, state: StateStore, outputs: Outputs, failure: asyncio.Future[object]
    ) -> None:
        self._state = state
        self._outputs = outputs
        self._failure = failure
        # By claimed partition: the sequence id of its last input that is committed, -1 for none.
        self._committed: dict[str, int] = {}
        self._lost: set[str] = set()

    def is_lost(self, partition: str) -> bool:
        """Whether another instance may have claimed it since this one did last."""
        return partition in self._lost

    async def claim(self, partition: str) -> int:
        """Be the one that commits inputs of a partition; returns up to which sequence id they are
        committed, -1 for none. Raises ``GemingaError``."""
        if partition not in self._committed:
            commit = await self._state.claim(partition)
            if commit is not None:
                await self._send_again(partition, commit)
            self._committed[partition] = -1 if commit is None else commit.position
            self._lost.discard(partition)
        return self._committed[partition]

    async def _send_again(self, partition: str, commit: Commit) -> None:
        numbered = await self._outputs.of_partition(partition)
        errors: list[Exception] = []

        def stored(_: geminga.MessageId | None, error: Exception | None) -> None:
            if error is not None:
                errors.append(error)

        for result in commit.results:
            if result.sequence_id > numbered.stored:
                await numbered.producer.ready()
                numbered.producer.send_nowait(
                    result.payload,
                    stored,
                    sequence_id=result.sequence_id,
                    properties=result.properties,
                )
        await numbered.producer.flush()
        if errors:
            raise InstanceFailed(f"a committed result could not be stored: {errors[0]}")

    async def commit(self, partition: str, outcomes: Sequence[Outcome], changes: Changes) -> None:
        """Commit what came of inputs that follow each other; the last one may have failed.

        Where nothing has used the state there is nothing to commit: what is processed again comes
        to the same. Raises ``GemingaError``: ``ProducerFenced`` where another instance has claimed
        the partition; then nothing counts.
        """
        good = [each for each in outcomes if each.error is None]
        if not good or not changes.is_used:
            return
        # Inputs up to the position are not processed again: what they have published is stored.
        published = [asyncio.wrap_future(future) for each in good for future in each.published]
        await asyncio.gather(*published)
        await self._outputs.confirm(partition)
        if self._failure.done():
            raise InstanceFailed("an earlier result could not be stored")
        results = [result_of(each.message, result) for each in good for result in each.results]
        commit = Commit(sequence_id_of(good[-1].message.id), results)
        try:
            await self._state.commit_inputs(partition, changes, commit)
        except geminga.ProducerFenced:
            # Other partitions may have moved too, and their lanes have what this instance never
            # read. Their next owners need the names of the producers.
            self._lost.update(self._committed)
            self._committed.clear()
            await asyncio.gather(*[self._outputs.release(each) for each in self._lost])
            raise
        self._committed[partition] = commit.position
