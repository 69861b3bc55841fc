"""What an add costs a bookie: CPU of its whole process, user and system, over loopback TCP.

Starts a bookie in a process of its own (uvloop, real files, RocksDB), keeps a window of adds
outstanding on some connections, and prints one line for each load:

    python tests/performance/bookie_load.py --entry-bytes 1024 --window 5000

The CPU figure counts everything from the first add to the end of the checkpoint after the last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from struct import Struct

import uvloop

from magnetar_bookie.bookie import Bookie
from magnetar_bookie.settings import BookieSettings
from magnetar_bookie.storage.rocks_store import RocksStore
from magnetar_protocol.bookkeeper.digest import EMPTY_PASSWORD_MASTER_KEY
from magnetar_protocol.bookkeeper.v2 import encode_add_header, encode_read
from magnetar_protocol.records.ledger_metadata import INSTANCE_ID_PATH
from magnetar_runtime.clock import SystemClock
from magnetar_runtime.coordination import Coordination, NodeMissing, NodeStat, OnSession
from magnetar_runtime.disk import FileDisk
from magnetar_runtime.network import AsyncioNetwork
from magnetar_server.memory import tune_memory

RESPONSE_BYTES = 28
IDS = Struct(">qqqqI")
BURST = 64
TICK_S = 0.001


@dataclass(frozen=True, slots=True)
class Load:
    """One load: so many adds, so many outstanding on all connections together.

    With a ``rate`` (adds a second, 0 for none) new adds are sent every millisecond, window or not.
    """

    entries: int
    entry_bytes: int
    connections: int
    window: int
    rate: int


class LonelyCoordination(Coordination):
    """A ZooKeeper with one client: nodes in a dictionary, no watches."""

    def __init__(self) -> None:
        self._nodes = {INSTANCE_ID_PATH: b"bookie-load"}

    @property
    def session_id(self) -> int:
        return 1

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        del ephemeral, sequential, make_parents
        self._nodes[path] = value
        return path

    async def get(self, path: str, *, on_change: object = None) -> tuple[bytes, NodeStat]:
        del on_change
        if path not in self._nodes:
            raise NodeMissing(path)
        return self._nodes[path], NodeStat(0, 1, 1, 0)

    async def exists(self, path: str, *, on_change: object = None) -> NodeStat | None:
        del on_change
        return NodeStat(0, 1, 1, self.session_id) if path in self._nodes else None

    async def children(self, path: str, *, on_change: object = None) -> list[str]:
        raise NotImplementedError(path, on_change)

    async def set(self, path: str, value: bytes, *, version: int = -1) -> NodeStat:
        del version
        self._nodes[path] = value
        return NodeStat(0, 1, 1, 0)

    async def delete(self, path: str, *, version: int = -1) -> None:
        del version
        if self._nodes.pop(path, None) is None:
            raise NodeMissing(path)

    async def transaction(self, operations: object) -> None:
        raise NotImplementedError(operations)

    def on_session(self, callback: OnSession) -> None:
        del callback


async def serve(directory: Path, *, is_synced: bool) -> None:
    """Run a bookie until standard input ends; print its port, at the end its counts."""
    journal_disk = FileDisk(directory / "journal", is_synced=is_synced)
    ledger_disk = FileDisk(directory / "ledgers", is_synced=is_synced)
    store = RocksStore(directory / "index")
    bookie = Bookie(
        BookieSettings(port=0),
        journal_disks=[journal_disk],
        ledger_disks=[ledger_disk],
        index=store,
        network=AsyncioNetwork(),
        coordination=LonelyCoordination(),
        clock=SystemClock(),
    )
    tune_memory()
    loop = asyncio.get_running_loop()
    async with bookie:
        print(bookie.port, flush=True)
        while (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            await bookie.checkpointer.run()
            print(json.dumps(facts(bookie)), flush=True)
    store.close()


def facts(bookie: Bookie) -> dict[str, float]:
    """What the bookie counted so far."""
    used = os.times()
    return {
        "cpu_s": used.user + used.system,
        "system_s": used.system,
        "groups": bookie.journal.groups,
        "sync_s": bookie.journal.sync_latency.sum_s,
        "checkpoints": bookie.checkpointer.done,
        "holds": bookie.intake.holds,
    }


class Client(asyncio.Protocol):
    """Keeps ``window`` adds outstanding, counts answers."""

    def __init__(self, ledger_id: int, load: Load, entries: int, window: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.latencies_s: list[float] = []
        self._ledger_id = ledger_id
        self._entries = entries
        self._window = window
        self._rate = load.rate // load.connections
        self._payload = os.urandom(load.entry_bytes - IDS.size)
        self._header = encode_add_header(EMPTY_PASSWORD_MASTER_KEY, load.entry_bytes)
        self._sent = self._answered = 0
        self._held = b""
        self._burst_sent_s: list[tuple[int, float]] = []
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is one
        if self._rate:
            self._tick(time.perf_counter())
        else:
            self._send(min(self._window, self._entries))

    def _tick(self, started_s: float) -> None:
        due = min(int((time.perf_counter() - started_s) * self._rate) + 1, self._entries)
        if due > self._sent:
            self._send(due - self._sent)
        if due < self._entries:
            asyncio.get_running_loop().call_later(TICK_S, self._tick, started_s)

    def data_received(self, data: bytes) -> None:
        data = self._held + data
        count, rest = divmod(len(data), RESPONSE_BYTES)
        self._held = data[len(data) - rest :]
        for start in range(0, count * RESPONSE_BYTES, RESPONSE_BYTES):
            assert data[start + 8 : start + 12] == b"\0\0\0\0", "an add failed"
        self._answered += count
        now_s = time.perf_counter()
        while self._burst_sent_s and self._burst_sent_s[0][0] <= self._answered:
            self.latencies_s.append(now_s - self._burst_sent_s.pop(0)[1])
        if self._answered == self._entries:
            self.done.set_result(None)
            return
        left = self._entries - self._sent
        room = min(self._window - (self._sent - self._answered), left)
        if not self._rate and room and room >= min(BURST, self._window, left):
            self._send(room)

    def _send(self, count: int) -> None:
        pieces: list[bytes] = []
        for entry_id in range(self._sent, self._sent + count):
            pieces.append(self._header)
            pieces.append(IDS.pack(self._ledger_id, entry_id, entry_id - 1, 0, 0))
            pieces.append(self._payload)
        self._sent += count
        self._burst_sent_s.append((self._sent, time.perf_counter()))
        assert self._transport is not None
        self._transport.write(b"".join(pieces))


class ReadClient(asyncio.Protocol):
    """Reads ``entries`` entries of a ledger in order, ``window`` requests at a time."""

    def __init__(self, ledger_id: int, entries: int, window: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ledger_id = ledger_id
        self._entries = entries
        self._window = window
        self._bytes_left = 0
        self._sent = self.received_bytes = 0

    def start(self, transport: asyncio.WriteTransport, wanted_bytes: int) -> None:
        """Ask for everything; done when ``wanted_bytes`` have come."""
        self._bytes_left = wanted_bytes
        transport.write(
            b"".join(encode_read(self._ledger_id, entry_id) for entry_id in range(self._entries))
        )

    def data_received(self, data: bytes) -> None:
        self._bytes_left -= len(data)
        if self._bytes_left == 0:
            self.done.set_result(None)


def _itself(client: Client) -> Client:
    return client


async def run_adds(port: int, load: Load, first_ledger: int) -> tuple[float, list[float]]:
    """Run one load; returns its seconds and the latencies of its bursts."""
    loop = asyncio.get_running_loop()
    entries, window = load.entries // load.connections, max(1, load.window // load.connections)
    started_s = time.perf_counter()
    clients: list[Client] = []
    for number in range(load.connections):
        client = Client(first_ledger + number, load, entries, window)
        await loop.create_connection(partial(_itself, client), "127.0.0.1", port)
        clients.append(client)
    await asyncio.gather(*(client.done for client in clients))
    latencies_s = sorted(second for client in clients for second in client.latencies_s)
    return time.perf_counter() - started_s, latencies_s


async def run_reads(port: int, load: Load, ledger_id: int) -> float:
    """Read one ledger back from the entry logs; returns the seconds."""
    entries = load.entries // load.connections
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_connection(
        lambda: ReadClient(ledger_id, entries, load.window), "127.0.0.1", port
    )
    started_s = time.perf_counter()
    client.start(transport, entries * (load.entry_bytes + RESPONSE_BYTES))
    await client.done
    return time.perf_counter() - started_s


def ask_facts(process: subprocess.Popen[str]) -> dict[str, float]:
    """What the bookie counted, after a checkpoint."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("facts\n")
    process.stdin.flush()
    answer: dict[str, float] = json.loads(process.stdout.readline())
    return answer


def measure_adds(process: subprocess.Popen[str], port: int, load: Load, first_ledger: int) -> None:
    """Run one load of adds and print what it cost."""
    before = ask_facts(process)
    seconds, latencies_s = uvloop.run(run_adds(port, load, first_ledger))
    after = ask_facts(process)
    groups = after["groups"] - before["groups"]
    cpu_us, system_us = (
        (after[key] - before[key]) / load.entries * 1e6 for key in ("cpu_s", "system_s")
    )
    p50, p99 = (latencies_s[int(len(latencies_s) * share)] * 1e3 for share in (0.5, 0.99))
    shape = f"rate {load.rate:5d}" if load.rate else f"window {load.window:5d}"
    print(
        f"{load.entry_bytes:7d} B x {load.entries:7d}, {shape} on {load.connections:2d}: "
        f"{cpu_us:6.2f} us CPU/add ({system_us:5.2f} system), "
        f"{load.entries / seconds:8.0f} adds/s, {load.entries / groups:6.1f} adds/sync, "
        f"sync {(after['sync_s'] - before['sync_s']) / groups * 1e3:5.2f} ms, "
        f"p50 {p50:5.2f} ms, p99 {p99:6.2f} ms, {after['holds'] - before['holds']:.0f} holds",
        flush=True,
    )


def measure_reads(process: subprocess.Popen[str], port: int, load: Load, first_ledger: int) -> None:
    """Read back one ledger of a load, which is in the entry logs, and print what it cost."""
    before = ask_facts(process)
    seconds = uvloop.run(run_reads(port, load, first_ledger))
    after = ask_facts(process)
    reads = load.entries // load.connections
    cpu_us = (after["cpu_s"] - before["cpu_s"]) / reads * 1e6
    print(
        f"{load.entry_bytes:7d} B x {reads:7d} read back: {cpu_us:6.2f} us CPU/read, "
        f"{reads * load.entry_bytes / seconds / 1e6:4.0f} MB/s",
        flush=True,
    )


def main() -> None:
    """Measure the loads asked for."""
    logging.basicConfig(level=logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--entry-bytes", type=int, nargs="+", default=[1024])
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--window", type=int, nargs="+", default=[5000])
    parser.add_argument("--rate", type=int, default=0, help="adds a second, instead of a window")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--no-sync", action="store_true")
    parser.add_argument("--reads", action="store_true", help="read one ledger back after each load")
    parser.add_argument("--profile", type=Path, help="write a cProfile of the bookie here")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        uvloop.run(serve(options.serve, is_synced=not options.no_sync))
        return
    directory = Path(tempfile.mkdtemp(prefix="bookie-load-", dir=options.directory))
    command = [sys.executable]
    if options.profile is not None:
        command += ["-m", "cProfile", "-o", str(options.profile)]
    command += [__file__, "--serve", str(directory)] + ["--no-sync"] * options.no_sync
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        first_ledger = 1
        for entry_bytes in options.entry_bytes:
            for window in options.window:
                load = Load(options.entries, entry_bytes, options.connections, window, options.rate)
                for _ in range(options.rounds):
                    measure_adds(process, port, load, first_ledger)
                    if options.reads:
                        measure_reads(process, port, load, first_ledger)
                    first_ledger += load.connections
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
