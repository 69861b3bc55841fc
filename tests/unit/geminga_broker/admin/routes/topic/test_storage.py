"""Topics are unloaded, trimmed and truncated, partitioned ones partition by partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from geminga_broker.ownership.ownership import Ownership
from geminga_protocol.pulsar.topics.topic_names import TopicName

if TYPE_CHECKING:
    from typing import Protocol

    class RememberingBroker(Protocol):
        """What these tests read on the broker behind the application."""

        done: list[tuple[str, str]]

        async def delete(self, topic: TopicName, *, force: bool) -> None: ...

    class MemoryCalls(Protocol):
        """The brokers' applications by ``host:port``."""

        apps: dict[str, object]


P = "/admin/v2/persistent/public/default"
NAME = "persistent://public/default"
OPERATIONS = [("PUT", "unload", 204), ("POST", "trim", 200), ("DELETE", "truncate", 204)]


@pytest.mark.parametrize(("method", "operation", "status"), OPERATIONS)
async def test_one_topic_is_worked_on(
    method: str,
    operation: str,
    status: int,
    client: httpx.AsyncClient,
    broker: RememberingBroker,
) -> None:
    await client.put(f"{P}/t")
    answer = await client.request(method, f"{P}/t/{operation}")
    assert (answer.status_code, answer.content) == (status, b"")
    assert broker.done == [(operation, f"{NAME}/t")]


@pytest.mark.parametrize(("method", "operation", "status"), OPERATIONS)
async def test_of_a_partitioned_topic_every_partition_that_is_there(
    method: str,
    operation: str,
    status: int,
    client: httpx.AsyncClient,
    broker: RememberingBroker,
) -> None:
    await client.put(f"{P}/t/partitions", json=3)
    await client.delete(f"{P}/t-partition-1")
    answer = await client.request(method, f"{P}/t/{operation}")
    assert answer.status_code == status
    assert broker.done == [
        (operation, f"{NAME}/t-partition-0"),
        (operation, f"{NAME}/t-partition-2"),
    ]


END = {"ledgerId": 7, "entryId": 11, "partitionIndex": -1, "batchSize": 0, "batchIndex": -1}


async def test_one_topic_is_terminated(client: httpx.AsyncClient) -> None:
    await client.put(f"{P}/t")
    answer = await client.post(f"{P}/t/terminate")
    assert (answer.status_code, answer.json()) == (200, END)
    assert (await client.post(f"{P}/missing/terminate")).status_code == 404


async def test_a_partitioned_topic_is_terminated_as_a_whole(client: httpx.AsyncClient) -> None:
    await client.put(f"{P}/t/partitions", json=2)
    answer = await client.post(f"{P}/t/terminate/partitions")
    assert answer.json() == {str(each): {**END, "partitionIndex": each} for each in range(2)}


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("persistent/public/default/parted/terminate", 405, "of a partitioned topic"),
        ("persistent/public/default/t/terminate/partitions", 405, "of a non-partitioned topic"),
        ("non-persistent/public/default/t/terminate", 406, "a persistent topic name"),
    ],
)
async def test_what_cannot_be_terminated_is_refused(
    client: httpx.AsyncClient, path: str, status: int, reason: str
) -> None:
    await client.put(f"{P}/t")
    await client.put(f"{P}/parted/partitions", json=2)
    answer = await client.post(f"/admin/v2/{path}")
    assert answer.status_code == status
    assert reason in answer.json()["reason"]


async def test_another_brokers_topic_is_there(client: httpx.AsyncClient, rival: Ownership) -> None:
    await rival.owner(TopicName.parse("t"))
    answer = await client.put(f"{P}/t/unload")
    assert answer.status_code == 307
    assert answer.headers["Location"].startswith(f"http://127.0.0.1:2{P}/t/unload")
    stats = await client.get(f"{P}/t/internalStats")
    assert stats.status_code == 307


async def test_what_is_done_to_all_partitions_is_done_by_the_broker_of_each(
    client: httpx.AsyncClient,
    rival: Ownership,
    broker: RememberingBroker,
    rival_broker: RememberingBroker,
) -> None:
    await client.put(f"{P}/a%2Fb/partitions", json=8)
    names = [f"{NAME}/a/b-partition-{number}" for number in range(8)]
    await rival.owner(TopicName.parse(names[3]))
    theirs = [name for name in names if rival.owns(TopicName.parse(name))]
    ours = [name for name in names if name not in theirs]
    assert ours
    assert (await client.put(f"{P}/a%2Fb/unload")).status_code == 204
    assert broker.done == [("unload", name) for name in ours]
    assert rival_broker.done == [("unload", name) for name in theirs]
    ends = await client.post(f"{P}/a%2Fb/terminate/partitions")
    assert list(ends.json()) == [str(number) for number in range(8)]
    whole = await client.get(f"{P}/a%2Fb/partitioned-internalStats?metadata=true")
    stats = {name: {"of": name, "withMetadata": True} for name in names}
    assert whole.json() == {"metadata": {"partitions": 8, "deleted": False}, "partitions": stats}
    assert list(whole.json()["partitions"]) == names


async def test_a_missing_partition_of_another_broker_is_passed_over(
    client: httpx.AsyncClient, rival: Ownership, rival_broker: RememberingBroker
) -> None:
    await client.put(f"{P}/t/partitions", json=1)
    await rival.owner(TopicName.parse("t-partition-0"))
    await rival_broker.delete(TopicName.parse("t-partition-0"), force=True)
    assert (await client.put(f"{P}/t/unload")).status_code == 204
    assert rival_broker.done == []


async def test_a_broker_that_is_not_reached_is_named(
    client: httpx.AsyncClient, rival: Ownership, calls: MemoryCalls
) -> None:
    await client.put(f"{P}/t/partitions", json=1)
    await rival.owner(TopicName.parse("t-partition-0"))
    calls.apps.clear()
    answer = await client.put(f"{P}/t/unload")
    assert (answer.status_code, answer.json()) == (503, {"reason": "127.0.0.1:2 is away"})


async def test_internal_stats_are_those_of_the_broker(client: httpx.AsyncClient) -> None:
    await client.put(f"{P}/t")
    plain = await client.get(f"{P}/t/internalStats")
    assert plain.json() == {"of": f"{NAME}/t", "withMetadata": False}
    full = await client.get(f"{P}/t/internalStats?metadata=true")
    assert full.json() == {"of": f"{NAME}/t", "withMetadata": True}


async def test_what_is_stored_is_shown_without_loading_it(
    client: httpx.AsyncClient, rival: Ownership
) -> None:
    await client.put(f"{P}/t")
    await client.put(f"{P}/parts/partitions", json=2)
    await client.delete(f"{P}/parts-partition-0")
    await rival.owner(TopicName.parse("t"))
    assert (await client.get(f"{P}/t/internal-info")).json() == {
        "version": 0,
        "creationDate": "2025-01-01T00:00:00Z",
        "modificationDate": "2025-01-01T00:00:00Z",
        "ledgers": [],
        "cursors": {},
    }
    parts = (await client.get(f"{P}/parts/internal-info")).json()
    assert list(parts["partitions"]) == [f"{NAME}/parts-partition-1"]
    assert (await client.get(f"{P}/missing/internal-info")).status_code == 404
    volatile = f"{P}/t/internal-info".replace("/persistent/", "/non-persistent/")
    assert (await client.get(volatile)).status_code == 405


async def test_internal_stats_of_partitions_that_are_there(client: httpx.AsyncClient) -> None:
    await client.put(f"{P}/t/partitions", json=2)
    await client.delete(f"{P}/t-partition-1")
    whole = (await client.get(f"{P}/t/partitioned-internalStats")).json()
    assert whole["metadata"] == {"partitions": 2, "deleted": False}
    assert list(whole["partitions"]) == [f"{NAME}/t-partition-0"]
