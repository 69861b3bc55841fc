"""Proves that functions run on this machine beside a cluster: as a package, and as they are being
written."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from tests.integration.processes.cluster_process import StandaloneProcess

import geminga.sync

TIMEOUT_S = 60.0
PROGRAM = "import sys; from geminga_cli.main import main; sys.exit(main())"
DECORATED = """
from geminga_functions import function

@function(inputs="{name}-in", output="{name}-out", subscriptionPosition="Earliest")
def mark(value):
    return value + "{sign}"
"""


class Program:
    """``geminga ...`` in a process of its own, whose output is read as it comes."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._has_ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip())
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def shows(self, *expected: str) -> None:
        """Wait for lines that match, in this order."""

        def are_there() -> bool:
            wanted = iter(expected)
            pattern = next(wanted, None)
            for line in self.lines:
                if pattern is not None and re.fullmatch(pattern, line):
                    pattern = next(wanted, None)
            return pattern is None

        with self._changed:
            self._changed.wait_for(lambda: are_there() or self._has_ended, TIMEOUT_S)
            assert are_there(), self.lines

    def interrupt(self) -> int:
        os.kill(self.process.pid, signal.SIGINT)
        code = self.process.wait(TIMEOUT_S)
        self.close()
        return code

    def close(self) -> None:
        """All that it shows has been read when it has ended."""
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def running(*words: str) -> Generator[Program]:
    program = Program(*words)
    try:
        yield program
    finally:
        if program.process.poll() is None:
            program.interrupt()
        program.close()


@pytest.fixture
def name() -> str:
    return f"f{uuid4().hex[:8]}"


@pytest.fixture
def client(standalone: StandaloneProcess) -> Generator[geminga.sync.Client]:
    with geminga.sync.connect(standalone.service_url) as connected:
        yield connected


def result(client: geminga.sync.Client, name: str, value: bytes) -> bytes:
    with (
        client.consumer(f"{name}-out", "test", initial_position="earliest") as out,
        client.producer(f"{name}-in") as producer,
    ):
        producer.send(value)
        message = out.receive(TIMEOUT_S)
        out.ack_confirmed(message)
        return message.data


def test_a_function_that_is_saved_again_processes_the_next_message(
    standalone: StandaloneProcess, client: geminga.sync.Client, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "my.py"
    file.write_text(DECORATED.format(name=name, sign="!"))
    url = ("--broker-service-url", standalone.service_url)
    with running("functions", "dev", str(file), "--name", name, *url) as dev:
        dev.shows(f"{name} runs: {name}-in -> {name}-out")
        assert result(client, name, b"hello") == b"hello!"
        dev.shows("<- hello", "-> hello!")
        file.write_text(DECORATED.format(name=name, sign="?"))
        dev.shows("<- hello", ".* was saved: restarting", f"{name} runs: .*")
        assert result(client, name, b"hello") == b"hello?"
        # What cannot be imported is told, and mended by the next version.
        file.write_text("import no_such_module")
        dev.shows("ModuleNotFoundError: No module named 'no_such_module'")
        file.write_text(DECORATED.format(name=name, sign="").replace("value +", "1 / 0,"))
        dev.shows("ModuleNotFoundError.*", f"{name} runs: .*")
        with client.producer(f"{name}-in") as producer:
            producer.send(b"fails")
        dev.shows("<- fails", "Traceback.*", "ZeroDivisionError: .*")
        assert dev.interrupt() == 0


def test_a_package_runs_without_a_worker_until_it_is_interrupted(
    standalone: StandaloneProcess, client: geminga.sync.Client, tmp_path: Path, name: str
) -> None:
    (tmp_path / "f.py").write_text("def process(input):\n    return input + '!'\n")
    words = ["functions", "localrun", "--py", str(tmp_path / "f.py"), "--classname", "f"]
    words += ["--name", name, "-i", f"{name}-in", "-o", f"{name}-out", "--parallelism", "2"]
    words += ["--subs-position", "Earliest"]
    with running(*words, "--broker-service-url", standalone.service_url) as local:
        local.shows(f"{name} runs: {name}-in -> {name}-out")
        assert result(client, name, b"hello") == b"hello!"
        assert local.interrupt() == 0


def test_a_built_in_source_runs_without_a_worker(
    standalone: StandaloneProcess, client: geminga.sync.Client, name: str
) -> None:
    words = ["sources", "localrun", "--source-type", "data-generator", "--name", name]
    words += ["--destination-topic-name", f"{name}-out", "--source-config", '{"count": 2}']
    with (
        client.consumer(f"{name}-out", "test", initial_position="earliest") as out,
        running(*words, "--broker-service-url", standalone.service_url) as local,
    ):
        assert out.receive(TIMEOUT_S).data == b'{"number": 0}'
        assert local.interrupt() == 0


def test_what_cannot_run_ends_with_its_reason(standalone: StandaloneProcess, name: str) -> None:
    local = ["localrun", "--name", name, "--broker-service-url", standalone.service_url]
    with running("functions", *local, "--py", "no.py", "-i", "a", "--classname", "f") as run:
        run.shows("geminga: the package no.py is no file on this machine")
        assert run.process.wait(TIMEOUT_S) == 2
    with running("sinks", *local, "--sink-type", "http", "-i", f"{name}-in") as run:
        run.shows(".*KeyError: 'url'.*", f"geminga: the sink {name} has ended, as said above")
        assert run.process.wait(TIMEOUT_S) == 1
