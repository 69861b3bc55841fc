"""Proves that a table has the newest value of every key, tells what changes, and knows when it has
everything."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga.fake_broker import LEDGER, FakeBroker, Session, metadata, until

from geminga import Client, Closed, TableView, TopicNotFound
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.messages.payload import encode_payload


class Prices:
    """A broker with a topic of prices, and what is in it."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.entries: list[bytes] = []
        broker.on(BaseCommand.GET_LAST_MESSAGE_ID, self._tell_last)
        broker.on(BaseCommand.FLOW, self._deliver_all)
        self._is_delivered = False

    def publish(self, key: str | None, value: bytes | None, *, is_told: bool = True) -> None:
        said = metadata()
        if key is not None:
            said.partition_key = key
        said.null_value = value is None
        self.entries.append(encode_payload(said, value or b""))
        if is_told and self._is_delivered:
            self.broker.deliver(len(self.entries) - 1, payload=self.entries[-1])

    def _tell_last(self, session: Session, command: BaseCommand, _payload: bytes) -> None:
        entry_id = (len(self.entries) - 1) & (2**64 - 1)
        session.write(
            answers.encode_last_message_id(
                command.getLastMessageId.request_id, answers.message_id(LEDGER, entry_id)
            )
        )

    def _deliver_all(self, _session: Session, _command: BaseCommand, _payload: bytes) -> None:
        if not self._is_delivered:
            self._is_delivered = True
            for entry_id, payload in enumerate(self.entries):
                self.broker.deliver(entry_id, payload=payload)


@pytest.fixture
def prices(broker: FakeBroker) -> Prices:
    return Prices(broker)


async def test_a_table_has_the_newest_value_of_every_key_when_it_is_opened(
    client: Client, prices: Prices
) -> None:
    prices.publish("a", b"1")
    prices.publish("b", b"2")
    prices.publish(None, b"no key")
    prices.publish("a", b"3")
    prices.publish("gone", b"4")
    prices.publish("gone", None)
    async with client.table_view("prices") as view:
        assert dict(view) == {"a": b"3", "b": b"2"}
        assert ("a" in view, "gone" in view, len(view), view.get("c")) == (True, False, 2, None)
        with pytest.raises(KeyError):
            view["gone"]
    (asked,) = prices.broker.of_type(BaseCommand.SUBSCRIBE)
    assert asked.subscribe.read_compacted
    assert not asked.subscribe.durable


async def test_the_table_of_an_empty_topic_is_empty(client: Client, prices: Prices) -> None:
    assert dict(await client.table_view("prices")) == {}
    assert prices.entries == []


async def test_a_topic_that_is_not_stored_has_nothing_compacted(
    client: Client, prices: Prices
) -> None:
    await client.table_view("non-persistent://public/default/prices")
    (asked,) = prices.broker.of_type(BaseCommand.SUBSCRIBE)
    assert not asked.subscribe.read_compacted


async def test_refreshing_waits_for_what_was_published_before(
    client: Client, prices: Prices
) -> None:
    view = await client.table_view("prices")
    prices.publish("a", b"1", is_told=False)
    refreshing = asyncio.create_task(view.refresh())
    await asyncio.sleep(10)
    assert not refreshing.done()
    prices.broker.deliver(0, payload=prices.entries[0])
    await refreshing
    assert view["a"] == b"1"


async def test_changes_are_given_as_they_come_the_newest_of_a_key(
    client: Client, prices: Prices
) -> None:
    prices.publish("old", b"0")
    view = await client.table_view("prices")
    changes = aiter(view)
    waiting = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(1)
    prices.publish("a", b"1")
    assert await waiting == ("a", b"1")
    prices.publish("a", b"2")
    prices.publish("b", b"3")
    prices.publish("a", b"4")
    prices.publish("old", None)
    await until(lambda: "old" not in view)
    assert [await anext(changes) for _ in range(3)] == [("a", b"4"), ("b", b"3"), ("old", None)]
    await view.close()
    with pytest.raises(StopAsyncIteration):
        await anext(changes)


async def test_the_end_of_the_topic_ends_refreshes_and_iterators(
    client: Client, prices: Prices
) -> None:
    prices.publish("a", b"1")
    view = await client.table_view("prices")
    prices.publish("b", b"2", is_told=False)
    changes = asyncio.ensure_future(anext(aiter(view)))
    refreshing = asyncio.create_task(view.refresh())
    await asyncio.sleep(1)
    prices.broker.on(
        BaseCommand.SUBSCRIBE,
        lambda session, command, _: session.write(
            answers.encode_error(command.subscribe.request_id, api.TopicNotFound, "deleted")
        ),
    )
    prices.broker.session.write(answers.encode_close_consumer(0))
    for waiting in (changes, refreshing):
        with pytest.raises(TopicNotFound):
            await waiting
    with pytest.raises(TopicNotFound):
        await anext(aiter(view))
    assert view["a"] == b"1"


async def test_a_closed_view_is_not_refreshed(client: Client, prices: Prices) -> None:
    prices.publish("a", b"1")
    view: TableView[bytes] = await client.table_view("prices")
    await view.close()
    with pytest.raises(Closed):
        await view.refresh()


async def test_a_value_that_cannot_be_read_leaves_the_one_before(
    client: Client, prices: Prices, caplog: pytest.LogCaptureFixture
) -> None:
    class Number:
        schema_info = None

        def encode(self, value: int, /) -> bytes:
            return b"%d" % value

        def decode(self, payload: bytes, /) -> int:
            return int(payload)

    prices.publish("a", b"1")
    prices.publish("a", b"one")
    view = await client.table_view("prices", schema=Number())
    assert dict(view) == {"a": 1}
    assert "unreadable value" in caplog.messages
