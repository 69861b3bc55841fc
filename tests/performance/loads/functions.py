"""What an instance of a function does beside our client, and beside Apache Pulsar's instance.

    python -m tests.performance.loads.functions               thread and process, beside our client
    python -m tests.performance.loads.functions --peer PYTHON  and the instance of PULSAR_HOME, run
                                                               by PYTHON, which has what it imports

All of them take the same backlog of 1 KB messages from one standalone of ours and send each on, one
contender after the other, each in a process of its own, in rounds. Rates and CPU are those between
the first tenth of the messages and the last message at the output topic; memory is that of the
process then. ``client`` is the consumer and the producer of our client and nothing between them,
on the event loop that instances have.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

from google.protobuf import json_format
from tests.performance.loads.measure import Figures, LoadFailed
from tests.performance.loads.official_client import FINISH_S_MAX, NAMESPACE
from tests.performance.rivals.processes import process_cpu_s, process_pss_mb
from tests.performance.rivals.program import Program, running
from tests.performance.rivals.servers import Geminga, Server, started, wait_until_ready

import geminga
from geminga_functions.instance.messages import INSTANCE_CHANNEL, Start
from geminga_functions.instance.worker_link import loop_runner, serve
from geminga_functions.names import FunctionName, InstanceName
from geminga_functions.runtime.process import INSTANCE
from geminga_functions.runtime.runner import Order
from geminga_functions.runtime.thread import ThreadRunner
from geminga_protocol.functions.functions_pb2 import EARLIEST, FunctionDetails

MESSAGES, SIZE, ROUNDS = 60_000, 1000, 3
POLL_S = 0.05
# What comes before is not counted: imports, lookups, the first batches.
WARM_SHARE = 0.1
LEASE_S = 3600.0
ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[2])}
INPUT = f"persistent://{NAMESPACE}/functions-in"
CONTEND = "contend"
MODULE = "same"
CODE = """from pulsar import Function


class Same(Function):
    def process(self, input, context):
        return input
"""


def main() -> int:
    """Measure in rounds, and print the medians."""
    parser = argparse.ArgumentParser(description="What an instance of a function does.")
    parser.add_argument("--peer", metavar="PYTHON", help="runs the instance of PULSAR_HOME")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    contenders = ["client", "thread", "process"] + (["apache"] if options.peer else [])
    found: dict[str, list[Figures]] = {name: [] for name in contenders}
    with tempfile.TemporaryDirectory(prefix="geminga-functions-", dir="/var/tmp") as path:
        directory = Path(path)
        (directory / f"{MODULE}.py").write_text(CODE, encoding="utf-8")
        rival = Geminga([str(Path(sys.executable).parent / "geminga")])
        with started(rival, directory / "server") as server:
            wait_until_ready(rival, server)
            topic = INPUT
            asyncio.run(fill(server.service_url, topic, options.messages))
            for number in range(options.rounds):
                for name in contenders:
                    function = f"{name}{number}"
                    command = command_of(name, options.peer, server, directory, function)
                    with running(command, _made(directory / function), ENVIRONMENT) as program:
                        found[name].append(measured(server, function, options.messages, program))
                    print(name, found[name][-1], file=sys.stderr)
    print(table(found))
    return 0


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


async def fill(service_url: str, topic: str, messages: int) -> None:
    """Publish the backlog, which a subscription keeps."""
    async with geminga.connect(service_url) as client:
        async with client.consumer(topic, "holder", initial_position="earliest"):
            pass
        async with client.producer(topic) as producer:
            for number in range(messages):
                await producer.ready()
                producer.send_nowait(f"{number:010}".encode() + b"x" * (SIZE - 10))


def details_of(function: str) -> FunctionDetails:
    """A function that sends on what it gets."""
    details = FunctionDetails(
        tenant="public",
        namespace="default",
        name=function,
        className=f"{MODULE}.Same",
        runtime=FunctionDetails.PYTHON,
        autoAck=True,
        parallelism=1,
    )
    details.source.inputSpecs[INPUT].SetInParent()
    details.source.subscriptionPosition = EARLIEST
    details.sink.topic = output_of(function)
    return details


def output_of(function: str) -> str:
    """The topic that it sends to."""
    return f"persistent://{NAMESPACE}/functions-out-{function}"


def command_of(
    name: str, peer: str, server: Server, directory: Path, function: str
) -> Sequence[str]:
    """What starts one contender."""
    if name != "apache":
        return (
            sys.executable,
            "-m",
            "tests.performance.loads.functions",
            CONTEND,
            name,
            server.service_url,
            str(directory),
            function,
        )
    home = Path(os.environ["PULSAR_HOME"])
    logs = directory / function
    return (
        *(peer, str(home / "instances" / "python-instance" / "python_instance_main.py")),
        *("--function_details", json_format.MessageToJson(details_of(function), indent=None)),
        *("--py", str(directory / f"{MODULE}.py"), "--instance_id", "0", "--function_id", function),
        *("--function_version", "1", "--pulsar_serviceurl", server.service_url),
        *("--port", "0", "--metrics_port", "0", "--max_buffered_tuples", "1024"),
        *("--logging_directory", str(logs), "--logging_file", function),
        *("--logging_config_file", str(home / "conf" / "functions-logging" / "logging_config.ini")),
        *("--expected_healthcheck_interval", "-1", "--cluster_name", "standalone"),
    )


def measured(server: Server, function: str, messages: int, program: Program) -> Figures:
    """What a contender does with the backlog, from its first tenth on."""
    deadline = time.perf_counter() + FINISH_S_MAX
    pid = program.process.pid
    begun: tuple[float, float, int] | None = None
    while True:
        written, now, cpu_s = _written(server, function), time.perf_counter(), process_cpu_s(pid)
        if begun is None and written >= messages * WARM_SHARE:
            begun = now, cpu_s, written
        if begun is not None and written >= messages:
            count = written - begun[2]
            return {
                "per_s": count / (now - begun[0]),
                "cpu_us": (cpu_s - begun[1]) / count * 1e6,
                "pss_mb": process_pss_mb(pid),
            }
        if now > deadline:
            raise LoadFailed(f"{function} has sent {written} of {messages} messages")
        program.check_alive()
        time.sleep(POLL_S)


def _written(server: Server, function: str) -> int:
    path = output_of(function).replace("://", "/")
    status, body = server.web("GET", f"/admin/v2/{path}/stats")
    return int(json.loads(body)["msgInCounter"]) if status == 200 else 0


def table(found: dict[str, list[Figures]]) -> str:
    """The medians of the rounds, and how the contenders stand beside the client. Pure."""
    medians = {
        name: {key: median(each[key] for each in rounds) for key in rounds[0]}
        for name, rounds in found.items()
    }
    client = medians["client"]
    lines = [
        f"{'':8} {'messages/s':>11} {'of client':>10} {'CPU us':>7} {'of client':>10} {'MB':>6}"
    ]
    lines += [
        f"{name:8} {each['per_s']:11.0f} {each['per_s'] / client['per_s']:10.2f} "
        f"{each['cpu_us']:7.1f} {client['cpu_us'] / each['cpu_us']:10.2f} {each['pss_mb']:6.1f}"
        for name, each in medians.items()
    ]
    return "\n".join(lines)


# ---- the contenders that are ours, in a process of their own


async def pass_on(service_url: str, function: str) -> None:
    """What a user of our client would write."""
    async with (
        geminga.connect(service_url) as client,
        client.consumer(
            INPUT, function, type="shared", initial_position="earliest", batch_index_acks=True
        ) as consumer,
        client.producer(output_of(function)) as producer,
    ):

        def acknowledge(
            message: geminga.Message[bytes], _: object, error: geminga.ClientError | None
        ) -> None:
            assert error is None
            consumer.ack(message)

        while True:
            for message in [await consumer.receive(), *await consumer.receive_many(199, 0)]:
                await producer.ready()
                producer.send_nowait(message.data, partial(acknowledge, message))


def contend(name: str, service_url: str, path: str, function: str) -> None:
    """Be a contender, until the process is killed."""
    if name == "client":
        with loop_runner() as runner:
            runner.run(pass_on(service_url, function))
        return
    start = Start(
        details_of(function).SerializeToString(),
        *(0, 1, "worker", "standalone", service_url, "", "", path, path),
        time.monotonic() + LEASE_S,
    )
    if name == "thread":
        asyncio.run(run_thread(function, start))
        return
    ours, theirs = socket.socketpair()
    ours.sendall(INSTANCE_CHANNEL.encode(start))
    for each in (ours, theirs):  # the instance holds the worker's end, too
        each.set_inheritable(True)
    instance = ("-m", INSTANCE, str(theirs.fileno()), str(os.getppid()))
    os.execv(sys.executable, (sys.executable, *instance))


async def run_thread(function: str, start: Start) -> None:
    """Run an instance as a worker does in one of its threads."""
    name = InstanceName(FunctionName("public", "default", function), 0)
    async with ThreadRunner(serve) as runner:
        await (await runner.start(Order(name, start, Path(sys.executable), 0))).ended


if __name__ == "__main__":
    if sys.argv[1:2] == [CONTEND]:
        contend(*sys.argv[2:])
    else:
        sys.exit(main())
