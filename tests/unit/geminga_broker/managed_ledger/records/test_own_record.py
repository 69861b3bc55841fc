"""Proves that an owned node is written by compare-and-set, also when an answer never came."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from geminga_broker.managed_ledger.records.own_record import OwnRecord
from geminga_runtime.coordination import (
    ConnectionLost,
    Coordination,
    NodeExists,
    NodeMissing,
    SessionExpired,
    VersionMismatch,
)
from geminga_simulation.zookeeper.interception import InterceptedSession

PATH = "/record"
Meddle = Callable[[str, bytes], None]
Session = Callable[[str], Awaitable[None]]


@pytest.fixture
def connection(coordination: Coordination) -> InterceptedSession:
    """The owner's connection, which can be told to fail."""
    return InterceptedSession(coordination)


@pytest.fixture
async def record(coordination: Coordination, connection: InterceptedSession) -> OwnRecord:
    """A node that holds ``first``, read by its owner."""
    await coordination.create(PATH, b"first")
    record = OwnRecord(connection, PATH)
    assert await record.load() == b"first"
    return record


async def value_of(coordination: Coordination) -> bytes:
    return (await coordination.get(PATH))[0]


async def test_a_record_is_made_with_its_parents_and_then_written(
    coordination: Coordination,
) -> None:
    record = OwnRecord(coordination, "/a/b/c")
    await record.create(b"1", make_parents=True)
    await record.write(b"2")
    await record.write(b"3")
    assert (await coordination.get("/a/b/c"))[0] == b"3"


async def test_what_is_missing_cannot_be_loaded_and_what_is_there_not_created(
    coordination: Coordination,
) -> None:
    record = OwnRecord(coordination, PATH)
    with pytest.raises(NodeMissing):
        await record.load()
    await record.create(b"")
    with pytest.raises(NodeExists):
        await OwnRecord(coordination, PATH).create(b"")


async def test_a_record_that_another_client_changed_is_not_written(
    record: OwnRecord, coordination: Coordination, meddle: Meddle
) -> None:
    meddle(PATH, b"theirs")
    for _ in range(2):
        with pytest.raises(VersionMismatch):
            await record.write(b"ours")
    assert await value_of(coordination) == b"theirs"


async def test_a_write_of_which_no_answer_came_is_taken_for_made(
    record: OwnRecord, coordination: Coordination, connection: InterceptedSession
) -> None:
    connection.lose("set", is_done=True)
    with pytest.raises(ConnectionLost):
        await record.write(b"second")
    await record.write(b"third")
    assert await value_of(coordination) == b"third"


async def test_a_write_that_never_arrived_is_made_again(
    record: OwnRecord, coordination: Coordination, connection: InterceptedSession
) -> None:
    connection.lose("set", is_done=False)
    with pytest.raises(ConnectionLost):
        await record.write(b"second")
    await record.write(b"second")
    assert await value_of(coordination) == b"second"


async def test_of_several_writes_in_doubt_any_may_be_the_one_that_was_made(
    record: OwnRecord, coordination: Coordination, connection: InterceptedSession
) -> None:
    connection.lose("set", is_done=True)
    with pytest.raises(ConnectionLost):
        await record.write(b"made")
    for value in (b"lost", b"lost too"):
        connection.lose("set", is_done=False)
        with pytest.raises(ConnectionLost):
            await record.write(value)
    await record.write(b"last")
    assert await value_of(coordination) == b"last"


async def test_what_another_client_wrote_while_a_write_was_in_doubt_stays(
    record: OwnRecord, coordination: Coordination, connection: InterceptedSession, meddle: Meddle
) -> None:
    connection.lose("set", is_done=False)
    with pytest.raises(ConnectionLost):
        await record.write(b"ours")
    meddle(PATH, b"theirs")
    with pytest.raises(VersionMismatch):
        await record.write(b"ours again")
    assert await value_of(coordination) == b"theirs"


async def test_a_write_stays_in_doubt_while_zookeeper_does_not_answer(
    record: OwnRecord,
    coordination: Coordination,
    connection: InterceptedSession,
    suspend: Session,
    reconnect: Session,
) -> None:
    connection.lose("set", is_done=True)
    with pytest.raises(ConnectionLost):
        await record.write(b"second")
    await suspend("broker")
    with pytest.raises(ConnectionLost):
        await record.write(b"third")
    await reconnect("broker")
    await record.write(b"fourth")
    assert await value_of(coordination) == b"fourth"


async def test_a_cancelled_write_leaves_the_same_doubt(
    record: OwnRecord, coordination: Coordination
) -> None:
    writing = asyncio.ensure_future(record.write(b"second"))
    for _ in range(2):  # the request is made, its answer not read
        await asyncio.sleep(0)
    writing.cancel()
    await asyncio.wait((writing,))
    await record.write(b"third")
    assert await value_of(coordination) == b"third"


async def test_a_record_is_not_written_in_another_session_than_the_one_it_was_loaded_in(
    record: OwnRecord, coordination: Coordination, expire: Session, reconnect: Session
) -> None:
    """Another broker may have read it in between, without a reason to write it."""
    await expire("broker")
    with pytest.raises(ConnectionLost):
        await record.write(b"second")
    await reconnect("broker")
    with pytest.raises(SessionExpired):
        await record.write(b"second")
    with pytest.raises(SessionExpired):
        await record.delete()
    assert await value_of(coordination) == b"first"
    await record.load()
    await record.write(b"second")
    assert await value_of(coordination) == b"second"


async def test_a_record_is_not_written_by_a_session_that_does_not_know_that_it_is_over(
    record: OwnRecord, coordination: Coordination, expire: Session, reconnect: Session
) -> None:
    await expire("broker")
    writing = asyncio.ensure_future(record.write(b"second"))
    await asyncio.sleep(0)
    await reconnect("broker")
    with pytest.raises(SessionExpired):
        await writing
    assert await value_of(coordination) == b"first"


async def test_a_record_that_was_asked_for_between_two_sessions_is_not_owned(
    coordination: Coordination, expire: Session, reconnect: Session
) -> None:
    """The session in which a bundle is owned is the one that counts."""
    await coordination.create(PATH, b"first")
    record = OwnRecord(coordination, PATH)
    await expire("broker")
    loading = asyncio.ensure_future(record.load())
    await asyncio.sleep(0)  # it is asked for, and answered in the next session
    await reconnect("broker")
    with pytest.raises(SessionExpired):
        await loading


async def test_a_record_is_deleted_whatever_became_of_the_last_write(
    record: OwnRecord, coordination: Coordination, connection: InterceptedSession
) -> None:
    connection.lose("set", is_done=True)
    with pytest.raises(ConnectionLost):
        await record.write(b"second")
    await record.delete()
    assert await coordination.exists(PATH) is None
    with pytest.raises(NodeMissing):
        await record.delete()


async def test_a_record_that_another_client_changed_is_not_deleted(
    record: OwnRecord, coordination: Coordination, meddle: Meddle
) -> None:
    meddle(PATH, b"theirs")
    with pytest.raises(VersionMismatch):
        await record.delete()
    assert await value_of(coordination) == b"theirs"


async def test_a_record_that_another_client_deleted_is_not_ours_any_more(
    record: OwnRecord, coordination: Coordination, connection: InterceptedSession
) -> None:
    await coordination.delete(PATH)
    with pytest.raises(VersionMismatch):
        await record.write(b"ours")
    connection.lose("set", is_done=False)
    with pytest.raises(ConnectionLost):
        await record.write(b"ours")
    with pytest.raises(VersionMismatch):
        await record.write(b"ours")
