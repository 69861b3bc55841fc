"""Proves that an attachment comes back as long as it is of use, and tells when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, until
from tests.unit.geminga.fake_network import FakeNetwork

from geminga._transport.connection import Connection, ConnectionOptions
from geminga._transport.connection_pool import ConnectionPool
from geminga._transport.lookup import Lookup
from geminga._transport.service_urls import parse_service_url
from geminga.attachment import Attachment
from geminga.errors import (
    ClientError,
    Closed,
    NotAuthorized,
    ProducerFenced,
    RequestTimedOut,
    ServiceNotReady,
)
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_runtime.backoff import Backoff


class Attached:
    """Something to attach, which a broker takes or refuses as a test says."""

    def __init__(self) -> None:
        self.errors: list[ClientError] = []
        self.attempts = 0
        self.connections: list[Connection] = []
        self.end: ClientError | None = None
        # Whose connection is to break in the turn in which the broker answers.
        self.breaks: Attachment | None = None

    async def attach(self, connection: Connection) -> None:
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        if self.breaks is not None:
            self.breaks.detached(connection, None)
            self.breaks = None

    def attached(self, connection: Connection) -> None:
        self.connections.append(connection)

    def gave_up(self, error: ClientError) -> None:
        self.end = error


@pytest.fixture
def what() -> Attached:
    return Attached()


@pytest.fixture
async def attachment(
    network: FakeNetwork, broker: FakeBroker, what: Attached
) -> AsyncIterator[Attachment]:
    """An attachment of ``what`` that was not started."""
    async with ConnectionPool(network, ConnectionOptions()) as connections:
        lookup = Lookup(connections, parse_service_url(broker.url), Random(1))
        backoff = Backoff(0.1, 5.0, Random(1))
        yield Attachment(what, "t", lookup, connections, backoff, first_timeout_s=30)


async def test_what_is_attached_hears_of_its_connection(
    attachment: Attachment, what: Attached
) -> None:
    run = asyncio.create_task(attachment.run())
    await attachment.first()
    assert what.connections == [await attachment.connection(timeout_s=1)]
    run.cancel()


async def test_a_passing_error_is_tried_again(attachment: Attachment, what: Attached) -> None:
    what.errors = [ServiceNotReady("ServiceNotReady", ""), RequestTimedOut("PRODUCER", 1)]
    run = asyncio.create_task(attachment.run())
    await attachment.first()
    assert what.attempts == 3
    run.cancel()


async def test_an_error_that_stays_ends_the_first_attempt(
    attachment: Attachment, what: Attached
) -> None:
    what.errors = [NotAuthorized("AuthorizationError", "no")]
    run = asyncio.create_task(attachment.run())
    with pytest.raises(NotAuthorized):
        await attachment.first()
    await run
    assert isinstance(what.end, NotAuthorized)
    with pytest.raises(NotAuthorized):
        await attachment.connection(timeout_s=1)


async def test_later_on_only_a_final_error_is_the_end(
    attachment: Attachment, what: Attached
) -> None:
    run = asyncio.create_task(attachment.run())
    await attachment.first()
    what.errors = [
        NotAuthorized("AuthorizationError", "for a while"),
        ProducerFenced("ProducerFenced", "for ever"),
    ]
    attachment.detached(what.connections[0], None)
    await run
    assert what.attempts == 3
    assert isinstance(what.end, ProducerFenced)


async def test_a_connection_that_broke_with_the_answer_is_none(
    attachment: Attachment, what: Attached
) -> None:
    what.breaks = attachment
    run = asyncio.create_task(attachment.run())
    await attachment.first()
    assert what.attempts == 2
    assert len(what.connections) == 1
    run.cancel()


async def test_an_old_connection_detaches_nothing(
    attachment: Attachment, what: Attached, broker: FakeBroker
) -> None:
    run = asyncio.create_task(attachment.run())
    await attachment.first()
    (old,) = what.connections
    broker.drop_connections()
    attachment.detached(old, None)
    await until(lambda: len(what.connections) == 2)
    attachment.detached(old, None)
    await asyncio.sleep(60)
    assert what.attempts == 2
    run.cancel()


async def test_who_waits_for_a_connection_does_not_wait_for_ever(
    attachment: Attachment, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.LOOKUP)
    run = asyncio.create_task(attachment.run())
    with pytest.raises(RequestTimedOut, match="attaching to t"):
        await attachment.connection(timeout_s=5)
    run.cancel()


async def test_a_next_broker_that_is_away_is_tried_once(
    attachment: Attachment, what: Attached, network: FakeNetwork
) -> None:
    run = asyncio.create_task(attachment.run())
    await attachment.first()
    attachment.detached(what.connections[0], "pulsar://away:6650")
    await until(lambda: len(what.connections) == 2)
    assert network.connects == ["broker", "away"]
    run.cancel()


async def test_behind_a_proxy_the_next_broker_is_reached_through_it_too(
    attachment: Attachment, what: Attached, broker: FakeBroker, network: FakeNetwork
) -> None:
    broker.on(
        BaseCommand.LOOKUP,
        lambda session, command, _: session.write(
            answers.encode_lookup(
                command.lookupTopic.request_id, broker_url="pulsar://a:1", is_through_proxy=True
            )
        ),
    )
    run = asyncio.create_task(attachment.run())
    await attachment.first()
    attachment.detached(what.connections[0], "pulsar://b:2")
    await until(lambda: len(what.connections) == 2)
    targets = [asked.connect.proxy_to_broker_url for asked in broker.of_type(BaseCommand.CONNECT)]
    assert targets == ["", "a:1", "b:2"]
    assert set(network.connects) == {"broker"}
    run.cancel()


async def test_a_run_that_never_began_is_an_end_too(attachment: Attachment, what: Attached) -> None:
    run = asyncio.create_task(attachment.run())
    attachment.begin(run)
    run.cancel()
    with pytest.raises(Closed):
        await attachment.first()
    assert isinstance(what.end, Closed)
