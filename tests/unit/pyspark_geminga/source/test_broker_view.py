"""Which topics a query reads, and where they end, as brokers tell; and that brokers may be away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self, cast

import pytest

from geminga import (
    LOG_START,
    Client,
    ConsumerBusy,
    LogPosition,
    MessageId,
    NotAuthorized,
    ServiceNotReady,
    TopicNotFound,
)
from pyspark_geminga.errors import AdminRefused, ConnectorError
from pyspark_geminga.log_layout import Ledger, LogLayout
from pyspark_geminga.source import broker_view
from pyspark_geminga.source.broker_view import TOPICS_REFRESH_S, Begin, BrokerView, patiently
from pyspark_geminga.source.decisions.options import SourceOptions

ORDERS = "persistent://public/default/orders"
BILLS = "persistent://public/default/bills"


class FakeReader:
    """Knows the last message of one topic."""

    def __init__(self, cluster: FakeClient, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic

    async def last_message_ids(self) -> dict[str, MessageId]:
        return {self._topic: MessageId(*self._cluster.logs[self._topic])}


class FakeEntries:
    """Reads one entry of what is stored from ``start`` on, and looks no further."""

    def __init__(self, stored: list[LogPosition], start: LogPosition) -> None:
        self._stored = stored
        self._start = start
        self.first_position: LogPosition | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing stays behind."""

    async def read(self, max_messages: int) -> list[LogPosition]:
        assert max_messages == 1
        found = [each for each in self._stored if each >= self._start][:1]
        self.first_position = found[0] if found else None
        return found


class FakeClient:
    """Topics by whole names with the ids of their last messages, and counts of partitions."""

    def __init__(self, **partitions: int) -> None:
        self.logs: dict[str, tuple[int, int]] = {}
        self.partition_counts: dict[str, int] = {}
        self.asked: list[str] = []
        self.readers = 0
        self.may_list = True
        self.stored: list[LogPosition] = []
        for name, count in partitions.items():
            self.create(f"persistent://public/default/{name}", count)

    def create(self, topic: str, partitions: int) -> None:
        self.partition_counts[topic] = partitions
        for name in [f"{topic}-partition-{each}" for each in range(partitions)] or [topic]:
            self.logs.setdefault(name, (-1, -1))

    async def topics(self, namespace: str) -> list[str]:
        if not self.may_list:
            raise NotAuthorized("AuthorizationError", "no")
        assert namespace == "public/default"
        return sorted(self.logs)

    async def partitions(self, topic: str) -> int:
        self.asked.append(topic)
        return self.partition_counts.get(topic, 0)

    async def reader(self, topic: str, start: object, **options: Any) -> FakeReader:
        del start, options
        if topic not in self.logs:
            raise TopicNotFound("TopicNotFound", topic)
        self.readers += 1
        return FakeReader(self, topic)

    def entries(
        self, topic: str, start: LogPosition, end: LogPosition, **options: Any
    ) -> FakeEntries:
        assert topic == ORDERS
        assert options["read_ahead_messages"] == 1
        return FakeEntries([each for each in self.stored if each < end], start)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


MakeView = Callable[..., BrokerView]


@pytest.fixture
def view_of(clock: Clock) -> MakeView:
    def view_of(client: FakeClient, **options: str) -> BrokerView:
        read = SourceOptions.of({"service.url": "pulsar://x", **options}, is_streaming=True)
        return BrokerView(cast(Client, client), read, monotonic_s=clock)

    return view_of


async def test_topics_are_seen_by_their_partitions(view_of: MakeView) -> None:
    client = FakeClient(orders=2, bills=0)
    client.logs[f"{ORDERS}-partition-1"] = (7, 3)
    snapshot = await view_of(client, topics="orders,bills").snapshot()
    assert {topic: layout.end for topic, layout in snapshot.layouts.items()} == {
        f"{ORDERS}-partition-0": LOG_START,
        f"{ORDERS}-partition-1": LogPosition(7, 4),
        BILLS: LogPosition(-1, -1),
    }


async def test_partitions_and_topics_that_come_are_seen_after_a_while(
    view_of: MakeView, clock: Clock
) -> None:
    client = FakeClient(orders=1)
    view = view_of(client, topicsPattern=".*")
    assert len((await view.snapshot()).layouts) == 1
    client.create(ORDERS, 3)
    client.create(BILLS, 0)
    clock.now_s += TOPICS_REFRESH_S
    assert set((await view.snapshot()).layouts) == {
        *(f"{ORDERS}-partition-{each}" for each in range(3)),
        BILLS,
    }


async def test_a_pattern_chooses_topics_by_their_whole_names(view_of: MakeView) -> None:
    client = FakeClient(orders=1, bills=0)
    snapshot = await view_of(client, topicsPattern="or.*s").snapshot()
    assert list(snapshot.layouts) == [f"{ORDERS}-partition-0"]


async def test_each_topic_has_one_reader_however_often_it_is_asked(view_of: MakeView) -> None:
    client = FakeClient(orders=3)
    view = view_of(client, topic="orders")
    for _ in range(3):
        await view.snapshot()
    assert client.readers == 3


async def test_a_topic_that_is_missing_is_named_and_not_asked_for(view_of: MakeView) -> None:
    client = FakeClient(orders=1)
    said = f"there is no topic {BILLS}: create it first.*before it was deleted"
    with pytest.raises(ConnectorError, match=said):
        await view_of(client, topics="orders,bills").snapshot()
    assert client.asked == []  # which could create it


async def test_a_topic_may_be_waited_for(view_of: MakeView, clock: Clock) -> None:
    client = FakeClient(orders=1)
    view = view_of(client, topics="orders,bills", waitingForNonExistedTopic="true")
    assert list((await view.snapshot()).layouts) == [f"{ORDERS}-partition-0"]
    client.create(BILLS, 0)
    clock.now_s += TOPICS_REFRESH_S
    assert BILLS in (await view.snapshot()).layouts


async def test_a_topic_that_is_deleted_later_is_left_out(view_of: MakeView, clock: Clock) -> None:
    client = FakeClient(orders=0, bills=0)
    view = view_of(client, topics="orders,bills")
    await view.snapshot()
    del client.logs[BILLS]
    clock.now_s += TOPICS_REFRESH_S
    assert list((await view.snapshot()).layouts) == [ORDERS]


async def test_a_role_that_may_not_list_topics_reads_those_it_names(view_of: MakeView) -> None:
    client = FakeClient(orders=0)
    client.may_list = False
    assert list((await view_of(client, topic="orders").snapshot()).layouts) == [ORDERS]


class FakeAdmin:
    """The REST side: five entries are stored in each log."""

    def __init__(self, *, has_transactions: bool) -> None:
        self._has_transactions = has_transactions
        self.questions = 0

    async def has_transactions(self) -> bool:
        self.questions += 1
        return self._has_transactions

    async def layouts(self, topic: str, partitions: int) -> dict[str, LogLayout | None]:
        names = [f"{topic}-partition-{each}" for each in range(partitions)] or [topic]
        return {name: LogLayout((Ledger(7, 5, 50),), LogPosition(7, 5)) for name in names}


@pytest.mark.parametrize(
    ("has_transactions", "readers", "end"),
    [(True, 2, LogPosition(7, 3)), (False, 0, LogPosition(7, 5))],
)
async def test_messages_of_open_transactions_are_not_read_yet(
    view_of: MakeView,
    monkeypatch: pytest.MonkeyPatch,
    has_transactions: bool,  # noqa: FBT001 - a parameter of the test
    readers: int,
    end: LogPosition,
) -> None:
    admin = FakeAdmin(has_transactions=has_transactions)
    monkeypatch.setattr(broker_view, "AdminClient", lambda _: admin)
    client = FakeClient(orders=2)
    client.logs[PARTITION] = (7, 2)  # the last that can be read
    client.logs[f"{ORDERS}-partition-1"] = (7, 4)
    view = view_of(client, topic="orders", **{"admin.url": "http://x"})
    await view.snapshot()
    snapshot = await view.snapshot()
    assert snapshot.layouts[PARTITION].end == end
    assert snapshot.layouts[PARTITION].ledgers == (Ledger(7, 5, 50),)
    assert snapshot.layouts[f"{ORDERS}-partition-1"].end == LogPosition(7, 5)
    assert (client.readers, admin.questions) == (readers, 1)


LAYOUT = LogLayout((Ledger(3, 10, 10), Ledger(5, 4, 4)), LogPosition(5, 4))
PARTITION = f"{ORDERS}-partition-0"


@pytest.mark.parametrize(
    ("wanted", "position"),
    [
        ({}, LogPosition(5, 4)),
        ({"": "earliest"}, LogPosition(3, 0)),
        ({"": "latest"}, LogPosition(5, 4)),
        ({ORDERS: LogPosition(3, 7), "": "latest"}, LogPosition(3, 7)),
        ({PARTITION: LogPosition(3, 8, 2), ORDERS: LogPosition(3, 7)}, LogPosition(3, 8, 2)),
        ({BILLS: LogPosition(3, 7)}, LogPosition(5, 4)),
        ({PARTITION: LogPosition(2**63 - 1, 2**63 - 1)}, LogPosition(5, 4)),
        ({PARTITION: LogPosition(-1, -1)}, LOG_START),
    ],
)
async def test_what_is_wanted_of_a_topic(
    view_of: MakeView, wanted: dict[str, Any], position: LogPosition
) -> None:
    view = view_of(FakeClient(orders=1), topic="orders")
    assert await view.resolve(wanted, "latest", PARTITION, LAYOUT) == position


def failing(*errors: Exception) -> Callable[[], Awaitable[int]]:
    """Raises these, one at each call, then returns how often it was called."""
    left = list(errors)

    async def ask() -> int:
        if left:
            raise left.pop(0)
        return len(errors) + 1

    return ask


async def test_failures_that_may_pass_are_waited_for() -> None:
    ask = failing(
        OSError("refused"),
        AdminRefused("http://x", 503, ""),
        ServiceNotReady("ServiceNotReady", ""),
        ConsumerBusy("ConsumerBusy", ""),  # of the query's earlier life
    )
    started_s = asyncio.get_running_loop().time()
    assert await patiently(ask, 60) == 5
    assert asyncio.get_running_loop().time() - started_s == pytest.approx(0.1 + 0.2 + 0.4 + 0.8)


@pytest.mark.parametrize("error", [AdminRefused("http://x", 403, ""), NotAuthorized("", "")])
async def test_refusals_are_not_waited_for(error: Exception) -> None:
    with pytest.raises(type(error)):
        await patiently(failing(error), 60)


async def test_the_wait_ends() -> None:
    started_s = asyncio.get_running_loop().time()
    with pytest.raises(OSError, match="refused"):
        await patiently(failing(*[OSError("refused")] * 100), 10)
    assert asyncio.get_running_loop().time() - started_s <= 10


@pytest.mark.parametrize(
    ("stored", "begin"),
    [
        ([(3, 4), (3, 5), (5, 0)], Begin(LogPosition(3, 5), is_lost=False)),
        ([(3, 9), (5, 0)], Begin(LogPosition(3, 9), is_lost=False)),  # a gap in ids
        ([(3, 4), (5, 0)], Begin(LogPosition(5, 0), is_lost=False)),  # the ledger ended
        ([(3, 1), (5, 0)], Begin(LogPosition(5, 0), is_lost=False)),
        ([(5, 0)], Begin(LogPosition(5, 0), is_lost=True)),
        ([(5, 7)], Begin(None, is_lost=False)),
    ],
)
async def test_a_ledger_that_still_gives_entries_has_lost_none_behind_them(
    view_of: MakeView, stored: list[tuple[int, int]], begin: Begin
) -> None:
    client = FakeClient(orders=0)
    client.stored = [LogPosition(*each) for each in stored]
    view = view_of(client, topic="orders")
    assert await view.begin(ORDERS, LogPosition(3, 5), LogPosition(5, 3)) == begin
