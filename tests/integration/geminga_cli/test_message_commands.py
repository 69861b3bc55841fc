"""``geminga produce``, ``consume``, ``read`` and ``perf`` against a real cluster, as a person with
the bare client library runs them: what only servers need cannot be imported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess

TIMEOUT_S = 60
SERVERS_NEED = (
    *("uvloop", "kazoo", "pydantic", "pydantic_settings", "fastapi", "uvicorn", "structlog"),
    *("prometheus_client", "rocksdict", "zstandard", "mmh3", "annotated_types"),
)
BARE = f"""
import sys
for name in {SERVERS_NEED!r}:
    sys.modules[name] = None
from geminga_cli.main import main
sys.exit(main())
"""
INSTALLED = "import sys; from geminga_cli.main import main; sys.exit(main())"


class Geminga:
    """Runs the command line."""

    def __init__(self, service_url: str) -> None:
        self._environment = {**os.environ, "GEMINGA_SERVICE_URL": service_url}

    def start(self, *words: str, program: str = BARE) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", program, *words],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str, code: int = 0, program: str = BARE) -> str:
        """What it shows, or complains of where ``code`` is not 0."""
        process = self.start(*words, program=program)
        shown, complaint = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == code, complaint or shown
        return (shown if code == 0 else complaint).rstrip("\n")


@pytest.fixture
def geminga(standalone: StandaloneProcess) -> Geminga:
    return Geminga(standalone.service_url)


def test_what_is_produced_is_consumed_and_read(geminga: Geminga, tmp_path: Path) -> None:
    file = tmp_path / "picture"
    file.write_bytes(b"\x1b[2J\xff")
    words = ("-m", "one,two", "-k", "k", "-p", "a=1", "-f", str(file))
    assert geminga("produce", "words", *words) == "3 messages successfully produced"
    consumed = geminga("consume", "words", "-s", "s", "-p", "Earliest", "-n", "2").splitlines()
    assert consumed[0] == consumed[2] == "----- got message -----"
    assert consumed[1].endswith("key:[k], properties:[a=1], content:one")
    read = geminga("read", "words", "-m", "earliest", "-n", "3")
    assert read.splitlines()[-1].endswith(r"content:\x1b[2J\xff")


def test_a_subscription_goes_on_where_it_was_left(
    geminga: Geminga, standalone: StandaloneProcess
) -> None:
    with client_of(standalone.service_url) as client:
        # A batch for certain: `produce` ends one after a millisecond, however few messages it has.
        producer = client.create_producer(
            "left-words", batching_enabled=True, batching_max_publish_delay_ms=60_000
        )
        for body in (b"one", b"two", b"\x1b[2J\xff"):
            producer.send_async(body, None)
        producer.flush()
    consumed = geminga("consume", "left-words", "-s", "s", "-p", "Earliest", "-n", "2")
    assert consumed.splitlines()[1].endswith("content:one")
    # The batch is acknowledged when all of it is.
    rest = geminga("consume", "left-words", "-s", "s", "-n", "3", "--json", program=INSTALLED)
    assert [json.loads(line).get("data") for line in rest.splitlines()] == ["one", "two", None]


def test_schemas_and_the_official_client_agree(
    geminga: Geminga, standalone: StandaloneProcess
) -> None:
    import pulsar

    class Order(pulsar.schema.Record):  # type: ignore[misc]  # the official client has no types
        number = pulsar.schema.Integer()

    definition = (
        '{"type":"record","name":"Order","fields":[{"name":"number","type":["null","int"]}]}'
    )
    schema = ("-vs", f"json:{definition}", "-s", "")
    geminga("produce", "word-orders", "-m", '{"number": 7}', *schema)
    refused = geminga("produce", "word-orders", "-m", "seven", *schema, code=2)
    assert "does not fit its schema" in refused
    with client_of(standalone.service_url) as client:
        consumer: Any = client.subscribe(
            "word-orders",
            "official",
            schema=pulsar.schema.JsonSchema(Order),
            initial_position=pulsar.InitialPosition.Earliest,
        )
        assert consumer.receive(TIMEOUT_S * 1000).value().number == 7
        consumer.close()
    words = ("-m", "earliest", "-st", "auto_consume", "--json")
    assert json.loads(geminga("read", "word-orders", *words))["value"] == {"number": 7}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_ends_a_consume_that_has_told_what_it_acknowledged(
    geminga: Geminga, number: signal.Signals, code: int
) -> None:
    topic = f"word-ends-{code}"
    geminga("produce", topic, "-m", "one,two", "-db")
    consuming = geminga.start("consume", topic, "-s", "s", "-p", "Earliest", "-n", "0")
    assert consuming.stdout is not None
    for body in ("one", "two"):
        assert consuming.stdout.readline() == "----- got message -----\n"
        assert consuming.stdout.readline().endswith(f"content:{body}\n")
    consuming.send_signal(number)
    assert consuming.communicate(timeout=TIMEOUT_S) == ("", "")
    assert consuming.returncode == code
    geminga("produce", topic, "-m", "three")
    assert "content:three" in geminga("consume", topic, "-s", "s")


def test_loads_tell_what_they_measured(geminga: Geminga) -> None:
    def measured(load: str, *words: str, program: str = BARE) -> Any:
        return json.loads(geminga("perf", load, "word-load", "--json", *words, program=program))

    produced = measured("produce", "-r", "0", "-m", "2000", "-s", "100")
    assert (produced["messages"], produced["failed"]) == (2000, 0)
    consumed = measured("consume", "-sp", "Earliest", "-m", "2000")
    assert (consumed["messages"], consumed["bytes"]) == (2000, 200_000)
    words = ("-r", "200", "-m", "100", "--warmup-time", "0")
    latency = measured("latency", *words, program=INSTALLED)
    assert latency["messages"] == 100
    assert 0 < latency["latencyMs"]["p50"] <= latency["latencyMs"]["max"]


def test_refusals_have_the_exit_codes_of_other_commands(geminga: Geminga) -> None:
    assert "no service URL" in geminga("read", "t", "--url", "ftp://127.0.0.1", code=2)
    assert "nothing to send" in geminga("produce", "t", code=2)
    assert "Namespace" in geminga("produce", "none/such/t", "-m", "x", code=1)
