"""Stats come with the flags of the query, and partitioned ones as a sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

from geminga_broker.admin.topics.stats import StatsQuery
from geminga_broker.ownership.ownership import Ownership
from geminga_protocol.pulsar.topics.topic_names import TopicName

if TYPE_CHECKING:
    from typing import Protocol

    class RememberingBroker(Protocol):
        """What these tests read on the broker behind the application."""

        queries: list[StatsQuery]


P = "/admin/v2/persistent/public/default"


async def test_stats_have_every_field_and_no_null(client: httpx.AsyncClient) -> None:
    await client.put(f"{P}/t")
    stats = (await client.get(f"{P}/t/stats")).json()
    assert stats["msgInCounter"] == 5
    assert stats["subscriptions"]["s"]["consumers"][0]["availablePermits"] == 0
    assert "topicEpoch" not in stats


async def test_the_flags_reach_the_broker(
    client: httpx.AsyncClient, broker: RememberingBroker
) -> None:
    await client.put(f"{P}/t")
    await client.get(f"{P}/t/stats")
    await client.get(
        f"{P}/t/stats?getPreciseBacklog=true&subscriptionBacklogSize=false"
        "&getEarliestTimeInBacklog=true&excludePublishers=true&excludeConsumers=True"
    )
    assert broker.queries == [
        StatsQuery(),
        StatsQuery(
            precise_backlog=True,
            subscription_backlog_size=False,
            earliest_time_in_backlog=True,
            exclude_publishers=True,
            exclude_consumers=True,
        ),
    ]


async def test_partitions_are_added_up(client: httpx.AsyncClient) -> None:
    await client.put(f"{P}/t/partitions", json=3)
    whole = (await client.get(f"{P}/t/partitioned-stats")).json()
    assert whole["msgInCounter"] == 15
    assert whole["metadata"] == {"partitions": 3, "deleted": False}
    assert list(whole["partitions"]) == [
        f"persistent://public/default/t-partition-{index}" for index in range(3)
    ]


async def test_partitions_may_be_left_out(client: httpx.AsyncClient) -> None:
    await client.put(f"{P}/t/partitions", json=3)
    whole = (await client.get(f"{P}/t/partitioned-stats?perPartition=false")).json()
    assert (whole["msgInCounter"], whole["partitions"]) == (15, {})


async def test_a_partition_that_is_gone_is_left_out(client: httpx.AsyncClient) -> None:
    await client.put(f"{P}/t/partitions", json=3)
    await client.delete(f"{P}/t-partition-1")
    whole = (await client.get(f"{P}/t/partitioned-stats")).json()
    assert (whole["msgInCounter"], len(whole["partitions"])) == (10, 2)


async def test_stats_of_another_brokers_topic_are_there(
    client: httpx.AsyncClient, rival: Ownership
) -> None:
    await rival.owner(TopicName.parse("t"))
    answer = await client.get(f"{P}/t/stats?excludePublishers=true")
    assert answer.status_code == 307
    assert answer.headers["Location"] == (
        f"http://127.0.0.1:2{P}/t/stats?excludePublishers=true&authoritative=true"
    )
