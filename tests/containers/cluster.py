"""The cluster that the compose file starts, and clients of it on both sides of its network."""

from __future__ import annotations

import json
import logging
import re
import sys
import time

from tests.containers.engine import CHECKOUT, Engine
from tests.integration.waiting import eventually

log = logging.getLogger(__name__)

BROKERS = ("broker-1", "broker-2")
WORKERS = ("functions-worker-1", "functions-worker-2")
PARTS = ("zookeeper", "bookie-1", "bookie-2", "bookie-3", *BROKERS, *WORKERS, "proxy")
PROFILES = ("monitoring", "spark")
NETWORK = "checkout_default"  # the folder's name as the engine sees it, and the usual network
HEALTHY_TIMEOUT_S = 90.0
README_EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
README_ADDRESS = "127.0.0.1:6650"

# Runs in the image, on the network of the cluster, with the library that is in the image.
INSIDE = """
import asyncio, json, sys
from urllib.request import urlopen
from geminga import connect

async def main():
    async with connect(sys.argv[1]) as client:
        consumer = await client.consumer("inside", "readers")
        producer = await client.producer("inside")
        await producer.send(b"from inside")
        message = await consumer.receive()
        assert message.data == b"from inside", message
        await consumer.ack_confirmed(message)

asyncio.run(main())
url = f"{sys.argv[2]}/lookup/v2/topic/persistent/public/default/inside"
print(json.load(urlopen(url))["brokerUrl"])
"""

OUTSIDE = """
import pulsar, sys
address, verb, topic, count = sys.argv[1:]
client = pulsar.Client(f"pulsar://{address}")
if verb == "send":
    client.subscribe(topic, "readers").close()
    producer = client.create_producer(topic)
    for number in range(int(count)):
        producer.send(str(number).encode())
else:
    consumer = client.subscribe(topic, "readers")
    for _ in range(int(count)):
        message = consumer.receive(timeout_millis=30000)
        consumer.acknowledge(message)
        print("got", message.data().decode())
client.close()
"""


class ComposedCluster:
    """The compose file's project in an engine, with ports of the machine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._variables: dict[str, str] = {}
        self.broker_port, self.web_port = 6650, 8080

    def compose(self, *words: str) -> str:
        """Run the engine's compose on the file; what it prints."""
        return self._engine.run(*self._engine.release.compose, *words, variables=self._variables)

    def up(self, **ports: int) -> None:
        """Build the image where it is not there, start all and wait until all are healthy."""
        self._variables = {name: str(port) for name, port in ports.items()}
        self._variables |= self._engine.build_variables
        self.broker_port = ports.get("BROKER_PORT", self.broker_port)
        self.web_port = ports.get("WEB_PORT", self.web_port)
        begun_s = time.monotonic()
        self.compose("up", "--detach", "--build")
        up_s = time.monotonic() - begun_s
        self.wait_until_healthy()
        healthy_s = time.monotonic() - begun_s
        log.info("up after %.1f s, all healthy after %.1f s", up_s, healthy_s)

    def down(self) -> None:
        """Take all of it away, volumes too, and what profiles added."""
        profiles = (word for profile in PROFILES for word in ("--profile", profile))
        self.compose(*profiles, "down", "--volumes")

    def container(self, part: str) -> str:
        """The id of a part's container."""
        return self.compose("ps", "--all", "--quiet", part).strip()

    def wait_until_healthy(self) -> None:
        """Until each part says so itself."""
        for part in PARTS:
            wait_until_healthy(self._engine, self.container(part))

    def run_inside(self, service_url: str, web_url: str) -> str:
        """A client on the cluster's network sends and receives; what a lookup over HTTP says."""
        options = ("--rm", "--network", NETWORK, "--entrypoint", "python")
        words = ("geminga", "-c", INSIDE, service_url, web_url)
        return self._engine.run("docker", "run", *options, *words).strip()

    def living_brokers(self) -> list[str]:
        """What REST says of them to a client on the machine."""
        words = ("curl", "-sS", f"http://localhost:{self.web_port}/admin/v2/brokers/standalone")
        return sorted(map(str, json.loads(on_the_machine(self._engine, *words))))

    def living_workers(self) -> list[str]:
        """The functions workers, as REST lists them to a client on the machine."""
        words = ("curl", "-sS", f"http://localhost:{self.web_port}/admin/v2/worker/cluster")
        found = json.loads(on_the_machine(self._engine, *words))
        return sorted(f"{each['workerHostname']}:{each['port']}" for each in found)

    def run_readme_example(self) -> list[str]:
        """The greetings that README's example prints on the machine."""
        return run_readme_example(self._engine, self.broker_port)

    def outside(self, verb: str, topic: str, count: int) -> list[str]:
        """``send`` or ``receive`` so many messages on the machine; those that were received."""
        address = f"localhost:{self.broker_port}"
        return client_outside(self._engine, address, verb, topic, count)


def wait_until_healthy(engine: Engine, container: str) -> None:
    """Until the engine says so of the container."""

    def health() -> object:
        return engine.inspect("container", container)["State"].get("Health", {}).get("Status")

    eventually(health, lambda status: status == "healthy", HEALTHY_TIMEOUT_S)


def client_outside(engine: Engine, address: str, verb: str, topic: str, count: int) -> list[str]:
    """The official client on the machine: the messages that it received."""
    told = on_the_machine(engine, sys.executable, "-c", OUTSIDE, address, verb, topic, str(count))
    return [line.removeprefix("got ") for line in told.splitlines() if line.startswith("got ")]


def run_readme_example(engine: Engine, port: int) -> list[str]:
    """The greetings that README's example prints on the machine, word for word but for the port."""
    example, *_ = README_EXAMPLE.findall((CHECKOUT / "README.md").read_text())
    assert example.count(README_ADDRESS) == 1
    code = example.replace(README_ADDRESS, f"127.0.0.1:{port}")
    told = on_the_machine(engine, sys.executable, "-c", code)
    return [line for line in told.splitlines() if line.startswith("hello ")]


def on_the_machine(engine: Engine, *words: str) -> str:
    """What a program of this machine prints in the engine's network, once it has succeeded."""
    ended = engine.on_the_machine(words)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout
