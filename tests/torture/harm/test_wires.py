"""Proves that a broker's wire to ZooKeeper holds back what it is told to, and loses none of it."""

from __future__ import annotations

import select
import socket
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from tests.torture.harm.wires import LOCALHOST, Wires

TIMEOUT_S = 30.0
CUT, WHOLE = "broker", "broker-2"


@dataclass
class Wire:
    """Both ends of a wire: that of the broker, and that of ZooKeeper."""

    broker: socket.socket
    zookeeper: socket.socket


@dataclass
class Stage:
    """Two brokers' wires to one ZooKeeper."""

    wires: Wires
    cut: Wire
    whole: Wire

    def carries_the_other_way(self) -> None:
        """What the other broker says, and is told, arrives: so ours would have, too."""
        for _ in range(3):
            self.whole.broker.sendall(b"ask")
            assert self.whole.zookeeper.recv(3) == b"ask"
            self.whole.zookeeper.sendall(b"say")
            assert self.whole.broker.recv(3) == b"say"


@pytest.fixture
def stage() -> Generator[Stage]:
    with ExitStack() as stack:
        wires = stack.enter_context(Wires([CUT, WHOLE]))
        port = int(wires.options[-1])
        server = stack.enter_context(socket.create_server((LOCALHOST, port)))
        server.settimeout(TIMEOUT_S)
        ends: list[Wire] = []
        for name in (CUT, WHOLE):
            address = (LOCALHOST, int(wires.addresses[name].rpartition(":")[2]))
            broker = stack.enter_context(socket.create_connection(address, TIMEOUT_S))
            zookeeper = stack.enter_context(server.accept()[0])
            zookeeper.settimeout(TIMEOUT_S)
            ends.append(Wire(broker, zookeeper))
        yield Stage(wires, *ends)


def has_something(end: socket.socket) -> bool:
    return bool(select.select([end], [], [], 0)[0])


@pytest.mark.parametrize("held", [{"requests", "answers"}, {"requests"}, {"answers"}])
def test_what_a_cut_wire_holds_back_arrives_once_it_is_healed(stage: Stage, held: set[str]) -> None:
    stage.wires.cut(CUT, requests="requests" in held, answers="answers" in held)
    stage.carries_the_other_way()
    stage.cut.broker.sendall(b"?")
    stage.cut.zookeeper.sendall(b"!")
    stage.carries_the_other_way()
    assert has_something(stage.cut.zookeeper) is ("requests" not in held)
    assert has_something(stage.cut.broker) is ("answers" not in held)
    stage.wires.heal(CUT)
    assert stage.cut.zookeeper.recv(1) == b"?"
    assert stage.cut.broker.recv(1) == b"!"
