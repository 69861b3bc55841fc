"""Proves how an instance hears its worker, wherever it runs."""

from __future__ import annotations

import asyncio
import fcntl
import resource
import socket
from collections.abc import Iterator
from contextlib import closing
from queue import SimpleQueue

import pytest

from geminga_functions.instance.messages import (
    INSTANCE_CHANNEL,
    Expired,
    Lease,
    Start,
    StatusAnswer,
    StatusRequest,
)
from geminga_functions.instance.worker_link import WorkerChannel
from geminga_runtime.clock import SystemClock
from geminga_runtime.control_codec import MessageReader

TIMEOUT_S = 10.0
# The descriptors that select(2) knows end before it.
HIGH = 1024


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a channel, that of the instance with a descriptor as a worker has them that
    runs hundreds of instances in threads."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * HIGH, hard), hard))
    worker, instance = socket.socketpair()
    try:
        with worker, instance:
            descriptor = fcntl.fcntl(instance.fileno(), fcntl.F_DUPFD_CLOEXEC, HIGH)
            with socket.socket(fileno=descriptor) as high:
                yield worker, high
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def start_until(lease_until_s: float) -> Start:
    return Start(b"", 0, 1, "w", "c", "", "", "", "", "", lease_until_s)


def test_an_instance_with_a_high_descriptor_hears_its_worker_until_that_is_gone(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    worker, instance = sockets
    worker.settimeout(TIMEOUT_S)
    clock, left = SystemClock(), SimpleQueue[str]()
    channel = WorkerChannel(instance, clock, left.put)
    begin = start_until(clock.monotonic() + TIMEOUT_S)
    worker.sendall(INSTANCE_CHANNEL.encode(begin))
    assert channel.receive_start() == begin
    with closing(asyncio.new_event_loop()) as loop:
        channel.serve(loop, loop.create_future())
        worker.sendall(INSTANCE_CHANNEL.encode(StatusRequest(7)))
        answers = MessageReader(INSTANCE_CHANNEL).feed(worker.recv(4096))
        assert list(answers) == [StatusAnswer(7, "")]
        worker.shutdown(socket.SHUT_RDWR)
        assert left.get(timeout=TIMEOUT_S) == "the worker is gone"


def test_an_instance_that_begins_late_has_the_lease_that_was_extended_meanwhile(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    worker, instance = sockets
    clock, left, leases = SystemClock(), SimpleQueue[str](), list[float]()
    channel = WorkerChannel(instance, clock, left.put, leases.append)
    begin = start_until(clock.monotonic() - 1)
    extended = [Lease(clock.monotonic() + 1), Lease(clock.monotonic() + TIMEOUT_S)]
    for each in (begin, *extended):
        worker.sendall(INSTANCE_CHANNEL.encode(each))
    assert channel.receive_start() == begin
    assert leases == [extended[-1].until_s]
    assert channel.may_run()


def test_a_lease_that_is_older_than_the_last_one_changes_nothing(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    worker, instance = sockets
    worker.settimeout(TIMEOUT_S)
    clock, left, leases = SystemClock(), SimpleQueue[str](), list[float]()
    channel = WorkerChannel(instance, clock, left.put, leases.append)
    until_s = clock.monotonic() + TIMEOUT_S
    worker.sendall(INSTANCE_CHANNEL.encode(start_until(until_s)))
    channel.receive_start()
    with closing(asyncio.new_event_loop()) as loop:
        channel.serve(loop, loop.create_future())
        for message in (Lease(until_s - 1), Lease(until_s - 0.01), StatusRequest(7)):
            worker.sendall(INSTANCE_CHANNEL.encode(message))
        # The answer: by now the thread has taken what was sent before.
        assert worker.recv(4096)
        assert leases == [until_s]
        worker.shutdown(socket.SHUT_RDWR)
        assert left.get(timeout=TIMEOUT_S) == "the worker is gone"


def test_an_instance_leaves_at_the_end_of_its_lease(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    worker, instance = sockets
    clock, left = SystemClock(), SimpleQueue[str]()
    channel = WorkerChannel(instance, clock, left.put)
    worker.sendall(INSTANCE_CHANNEL.encode(start_until(clock.monotonic() + 0.05)))
    channel.receive_start()
    with closing(asyncio.new_event_loop()) as loop:
        channel.serve(loop, loop.create_future())
        assert left.get(timeout=TIMEOUT_S) == "the lease has ended"
    assert not channel.may_run()
    # Whatever comes of that, the lease is what its worker is told.
    channel.fail(ValueError("the consumer is closed"))
    told = MessageReader(INSTANCE_CHANNEL).feed(worker.recv(4096))
    assert list(told) == [Expired(), Expired()]
