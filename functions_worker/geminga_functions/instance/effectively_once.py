"""EFFECTIVELY_ONCE with state: changes, results and position of inputs are committed together.

A commit is one entry of the lane of an input partition, a topic that the state is kept in. The
order of events gives the guarantee:

1. The instance claims the partition: an earlier owner can commit nothing more. The results of the
   last commit that are not stored yet are sent; inputs up to its position are done.
2. Inputs are processed; nothing of it counts yet.
3. All results that were sent before for this partition become stored.
4. The commit is written. From now on it counts.
5. The results are sent, and inputs are acknowledged as their results are stored.

A crash before step 4 leaves nothing. After a later crash, the next claim repeats step 5. Because of
step 3 only the results of the last commit can be missing: a lane need not keep those of earlier
commits, and compaction may drop them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import geminga
from geminga_functions.errors import InstanceFailed
from geminga_functions.instance.outputs import Outputs, sequence_id_of
from geminga_functions.instance.settlement import Outcome, result_of
from geminga_functions.instance.state import StateStore
from geminga_functions.state.changes import Changes
from geminga_functions.state.table import Commit


@dataclass(slots=True, eq=False)
class Committer:
    """Commits inputs for one instance, partition by partition."""

    state: StateStore
    outputs: Outputs
    # Done once a result of this instance could not be stored: nothing may be committed then.
    failure: asyncio.Future[Any]
    # Partitions that were claimed once, and may have been claimed by another instance since. Only
    # ``claim`` and ``commit`` change them. A partition is never in both ``lost`` and
    # ``_committed``.
    lost: set[str] = field(default_factory=set[str], init=False)
    # By claimed partition: the sequence id of its last input that is committed, -1 for none.
    _committed: dict[str, int] = field(default_factory=dict[str, int], init=False)

    async def claim(self, partition: str) -> int:
        """Become the only instance that commits inputs of a partition, if this one is not yet.

        Returns the sequence id of the last input that is committed, -1 for none. Raises
        ``GemingaError``.
        """
        if partition not in self._committed:
            commit = await self.state.claim(partition)
            if commit is not None:
                # Before the partition counts as claimed: inputs after the commit may be processed
                # only once its results are stored (step 3 relies on that).
                await self._send_again(partition, commit)
            self._committed[partition] = -1 if commit is None else commit.position
            self.lost.discard(partition)
        return self._committed[partition]

    async def _send_again(self, partition: str, commit: Commit) -> None:
        """Store the results of a commit that its instance did not live to store."""
        # It waits until the former owner's producer of that name is gone. From then on ``stored``
        # is final: that owner can have no further result stored.
        numbered = await self.outputs.of_partition(partition)
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
        # ``flush`` does not raise for messages with a callback, which keep their errors here.
        await numbered.producer.flush()
        if errors:
            raise InstanceFailed(f"a committed result could not be stored: {errors[0]}")

    async def commit(self, partition: str, outcomes: Sequence[Outcome], changes: Changes) -> None:
        """Commit the outcomes of inputs that follow each other; the last one may have failed.

        Inputs that have not used the state need no commit: if they are processed again, their
        results are the same, and are not stored twice. Raises ``GemingaError``: ``ProducerFenced``
        where another instance has claimed the partition; then nothing of it counts.
        """
        good = [each for each in outcomes if each.error is None]
        if not good or not changes.is_used:
            return
        # After the commit these inputs are not processed again: what they have published must be
        # stored before.
        published = [asyncio.wrap_future(future) for each in good for future in each.published]
        # An error of any of them is raised, and ends the instance before the commit: its next run
        # processes these inputs again.
        await asyncio.gather(*published)
        # Step 3. A result that could not be stored has called ``PendingMessage.fail`` by the end of
        # the flush, and with it set ``failure``.
        await self.outputs.confirm(partition)
        if self.failure.done():
            raise InstanceFailed("an earlier result could not be stored")
        results = [result_of(each.message, result) for each in good for result in each.results]
        commit = Commit(sequence_id_of(good[-1].message.id), results)
        try:
            await self.state.commit_inputs(partition, changes, commit)
        except geminga.ProducerFenced:
            # Other partitions may have moved too, and their lanes may hold commits that this
            # instance has not read: each is claimed anew. Their producers are closed, since the
            # next owners open producers of the same names.
            self.lost.update(self._committed)
            self._committed.clear()
            await asyncio.gather(*[self.outputs.release(each) for each in self.lost])
            raise
        # Only after the lane has the commit. If this instance ends between the two, the next claim
        # reads the position from the lane.
        self._committed[partition] = commit.position
