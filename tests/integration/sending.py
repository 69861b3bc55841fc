"""Numbered messages, sent and read back with the official client; and their ledgers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulsar
from tests.integration.official_client import SEND_TIMEOUT_MS
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.waiting import eventually

NAMESPACE = "persistent://public/default"
RECEIVE_TIMEOUT_MS = 60_000


class Sending:
    """A producer's messages and what became of them: message number → id, or a failure."""

    def __init__(self, client: Any, topic: str) -> None:
        self.confirmed: dict[int, pulsar.MessageId] = {}
        self.failures: list[object] = []
        self._count = 0
        self._producer = client.create_producer(
            f"{NAMESPACE}/{topic}",
            batching_enabled=False,
            block_if_queue_full=True,
            send_timeout_millis=SEND_TIMEOUT_MS,
        )

    def send(self, count: int, size: int = 0) -> None:
        """Send so many messages. The payload of each is its number, with spaces behind it up to
        ``size`` bytes."""
        for number in range(self._count, self._count + count):
            content = (b"%d" % number).ljust(size)
            self._producer.send_async(content, self._callback(number))
        self._count += count

    def send_all(self, count: int, size: int = 0) -> None:
        """Send so many messages, and wait for their receipts."""
        self.send(count, size)
        self.flush()

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()

    def flush(self) -> None:
        """Wait for the receipts. None may be missing, and no send may have failed."""
        self._producer.flush()
        # The client calls back in a thread of its own, perhaps a moment after `flush` has returned.
        eventually(
            lambda: len(self.confirmed) + len(self.failures), lambda told: told >= self._count
        )
        assert self.failures == []
        assert set(self.confirmed) == set(range(self._count))

    def _callback(self, number: int) -> Callable[[object, pulsar.MessageId], None]:
        def answered(result: object, message_id: pulsar.MessageId) -> None:
            if result == pulsar.Result.Ok:
                self.confirmed[number] = message_id
            else:
                self.failures.append(result)

        return answered


def read_all(client: Any, topic: str, last: int) -> list[int]:
    """The numbers in a topic, from its beginning to the first occurrence of ``last``."""
    reader = client.create_reader(f"{NAMESPACE}/{topic}", pulsar.MessageId.earliest)
    numbers: list[int] = []
    while last not in numbers[-1:]:
        numbers.append(int(reader.read_next(RECEIVE_TIMEOUT_MS).data()))
    reader.close()
    return numbers


def ledgers_of(cluster: StandaloneProcess, topic: str) -> list[int]:
    """The ledgers of a topic, oldest first."""
    path = f"/admin/v2/persistent/public/default/{topic}/internalStats"
    status, stats = rest(cluster.web_service_url, "GET", path)
    assert status == 200, stats
    return [each["ledgerId"] for each in stats["ledgers"]]
