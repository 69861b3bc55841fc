"""To which topic or partition a row goes. Pure.

The choice depends on nothing but the rows before and the number of partitions: a task that runs
again chooses the same. Rows with a key go where the official clients send them.
"""

from __future__ import annotations

from geminga.producers.outgoing.routing import HASHES, HashName
from geminga_protocol.pulsar.topics.topic_names import TopicName

# The partitions of so many keys are cached, as a hash takes 3 us. A full cache is emptied.
KEYS_MAX = 100_000


class TopicRoute:
    """Where the rows of one task for one topic go: to the topic itself, or to its partitions.

    Rows without a key go to the partitions in turn, ``turn_rows`` to each, as many as fill an
    entry. ``task`` is the number of the Spark partition: tasks begin at different partitions.
    """

    def __init__(
        self, topic: TopicName, partitions: int, *, hashing: HashName, turn_rows: int, task: int
    ) -> None:
        self._hash = HASHES[hashing]
        self._turn_rows = turn_rows
        self._task = task
        # It counts rows with no key only: rows with one do not shift the turns.
        self._rows = 0  # without a key, so far
        self._by_key: dict[str, str] = {}
        self._names = [str(topic.partition(index)) for index in range(partitions)]
        # The whole name of a topic without partitions, or of one partition.
        self.only = None if partitions else str(topic)

    def destination(self, key: str | None) -> str:
        """The whole name of the topic or partition for the next row."""
        if self.only is not None:
            return self.only
        if key is None:
            turn = self._rows // self._turn_rows + self._task
            self._rows += 1
            return self._names[turn % len(self._names)]
        name = self._by_key.get(key)
        if name is None:
            if len(self._by_key) >= KEYS_MAX:
                self._by_key.clear()
            name = self._by_key[key] = self._names[self._hash(key) % len(self._names)]
        return name
