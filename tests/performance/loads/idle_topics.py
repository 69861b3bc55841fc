"""Very many idle topics: what each takes of a broker's memory, and what loading costs.

Topics with one durable subscription each are made by consumers that come and go. Then all are
unloaded and used once more, and where the broker has a process of its own, it is killed and all are
used again, twice: first their ledgers are recovered, then they are only loaded. The client is a
plain socket: what is measured is what the broker can do.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.integration.raw_client import RawClient
from tests.performance.loads.measure import Figures, LoadFailed, Measure, Phases
from tests.performance.loads.official_client import NAMESPACE, SUBSCRIPTION
from tests.performance.rivals.processes import process_cpu_s, process_pss_mb
from tests.performance.rivals.servers import Rival, Server, started, wait_until_ready

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.commands import encode_command

TOPICS = 5_000
# So many consumers are about to come, or to go, at any time.
AT_ONCE = 200
ANSWER_S_MAX = 120.0
# So long may a bundle of very many topics be on its way from one split or unload to its next owner.
MOVE_S_MAX = 60.0
RESTART_S_MAX = 60.0
UNLOAD_S_MAX = 600.0
POLL_S = 0.1
MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class BrokerAlone:
    """The process that serves topics, or all there is where nothing is apart."""

    server: Server

    def cpu_s(self) -> float:
        """Seconds of its CPU used so far."""
        pid = self.server.broker_pid()
        return self.server.all_cpu_s() if pid is None else process_cpu_s(pid)

    def all_cpu_s(self) -> float:
        """The other parts' too, which work for it."""
        return self.server.all_cpu_s()

    def pss_mb(self) -> float:
        """Memory in MB."""
        pid = self.server.broker_pid()
        return self.server.program.processes.pss_mb() if pid is None else process_pss_mb(pid)


def idle_topics(rival: Rival, directory: Path, scale: float) -> Phases:
    """What they take, and what making and loading them costs."""
    topics = [f"persistent://{NAMESPACE}/idle-{each}" for each in range(int(TOPICS * scale))]
    with started(rival, directory) as server:
        wait_until_ready(rival, server)
        phases = {"made": _used(server, topics)}
        path = f"/admin/v2/namespaces/{NAMESPACE}/unload"
        status, body = server.web("PUT", path, timeout_s=UNLOAD_S_MAX)
        if status != 204:
            raise LoadFailed(f"the topics could not be unloaded: {status} {body!r}")
        phases["loaded"] = _used(server, topics)
        if server.broker_pid() is not None:
            for phase in ("killed", "again"):
                _kill_broker(server)
                phases[phase] = _used(server, topics)
    return phases


def _used(server: Server, topics: Sequence[str]) -> Figures:
    """CPU a topic, topics a second, and the bytes that each takes then."""
    broker = BrokerAlone(server)
    _use_all(server, topics[:1])  # the broker is there, and has the first bundle
    before_mb = broker.pss_mb()
    with Measure(broker) as measure:
        _use_all(server, topics)
    after_mb = broker.pss_mb()
    memory = {"bytes": (after_mb - before_mb) * MB / len(topics), "broker_mb": after_mb}
    return measure.figures(len(topics)) | memory


def _kill_broker(server: Server) -> None:
    """And wait for the next one."""
    pid = server.broker_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline = time.perf_counter() + RESTART_S_MAX
    while server.broker_pid() in (pid, None) or not _answers(server):
        if time.perf_counter() > deadline:
            raise LoadFailed(f"the broker did not come back in {RESTART_S_MAX} s")
        time.sleep(POLL_S)


def _answers(server: Server) -> bool:
    return server.web("GET", f"/admin/v2/namespaces/{NAMESPACE}")[0] == 200


def _use_all(server: Server, topics: Sequence[str]) -> None:
    """Have a consumer come to each topic and go again; a topic that is new is made by it."""
    with RawClient(server.service_url) as client:
        client.set_timeout(ANSWER_S_MAX)
        client.connect()
        for start in range(0, len(topics), AT_ONCE):
            _use(client, topics[start : start + AT_ONCE])


def _use(client: RawClient, topics: Sequence[str]) -> None:
    """A broker may split a bundle of topics, or give it up, at any time: then they are looked up
    again, as all clients do."""
    deadline = time.perf_counter() + MOVE_S_MAX
    while topics := _come_and_go(client, topics):
        if time.perf_counter() > deadline:
            raise LoadFailed(f"{topics[0]} is served by no broker, however often it is looked up")
        _look_up(client, topics)


def _look_up(client: RawClient, topics: Sequence[str]) -> None:
    """Have the broker take the topics' bundles; it may not be able to yet."""
    time.sleep(POLL_S)
    for number, topic in enumerate(topics):
        lookup = api.CommandLookupTopic(topic=topic, request_id=number)
        client.send(api.BaseCommand(type=api.BaseCommand.LOOKUP, lookupTopic=lookup))
        client.expect(api.BaseCommand.LOOKUP_RESPONSE)


def _come_and_go(client: RawClient, topics: Sequence[str]) -> list[str]:
    """Returns the topics that have to be looked up again."""
    coming = [
        api.CommandSubscribe(
            topic=topic,
            subscription=SUBSCRIPTION,
            subType=api.CommandSubscribe.Exclusive,
            consumer_id=number,
            request_id=number,
        )
        for number, topic in enumerate(topics)
    ]
    refused = _answers_to(
        client,
        [api.BaseCommand(type=api.BaseCommand.SUBSCRIBE, subscribe=each) for each in coming],
    )
    for error in refused.values():
        if error.error != api.ServiceNotReady:
            raise LoadFailed(f"a consumer was refused: {error}")
    going = [
        api.CommandCloseConsumer(consumer_id=number, request_id=number)
        for number in range(len(topics))
        if number not in refused
    ]
    # One whose bundle was given up meanwhile is gone already: that is an error, and well.
    _answers_to(
        client,
        [
            api.BaseCommand(type=api.BaseCommand.CLOSE_CONSUMER, close_consumer=each)
            for each in going
        ],
    )
    return [topics[number] for number in refused]


def _answers_to(
    client: RawClient, commands: Sequence[api.BaseCommand]
) -> dict[int, api.CommandError]:
    """Send all, and wait for as many answers; the errors among them, by request."""
    client.write(b"".join(map(encode_command, commands)))
    refused: dict[int, api.CommandError] = {}
    answered = 0
    while answered < len(commands):
        command = client.receive().command
        if command.type == api.BaseCommand.ERROR:
            refused[command.error.request_id] = command.error
        answered += command.type in (api.BaseCommand.ERROR, api.BaseCommand.SUCCESS)
    return refused
