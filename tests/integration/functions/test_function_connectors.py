"""Proves sources and sinks: the user's own, and those that are built in."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.integration.processes.function_instances import TIMEOUT_S, Functions, publish, results

import geminga
from geminga_functions.instance.messages import Failed, Started
from geminga_protocol.functions.functions_pb2 import FunctionDetails


@pytest.fixture
def source(functions: Functions) -> Functions:
    functions.details.componentType = FunctionDetails.SOURCE
    functions.details.source.ClearField("inputSpecs")
    return functions


@pytest.fixture
def sink(functions: Functions) -> Functions:
    functions.details.componentType = FunctionDetails.SINK
    functions.details.sink.ClearField("topic")
    return functions


NUMBERS = """
from geminga_functions import Record, Source

class Numbers(Source):
    def open(self, config, context):
        self.left = list(range(config["count"]))
        self.name = context.get_function_name()

    def read(self):
        if not self.left:
            return None
        return Record(f"{self.name} {self.left.pop(0)}", key="k", properties={"p": "q"})
"""


async def test_records_of_a_source_are_stored_with_what_is_said_of_them(
    source: Functions, client: geminga.Client
) -> None:
    source.details.source.className = "user_code.Numbers"
    source.details.source.configs = json.dumps({"count": 3})
    async with source.instance("", NUMBERS) as instance:
        await instance.receive(Started)
        found = await results(client, source.output, 3)
        name = source.details.name
        assert [each.data.decode() for each in found] == [f"{name} {n}" for n in range(3)]
        assert (found[0].key, found[0].properties) == ("k", {"p": "q"})
        # A record can be received before its receipt is counted.
        async with asyncio.timeout(TIMEOUT_S):
            while (await instance.status()).written != 3:
                pass
        await instance.stop()


async def test_the_data_generator_makes_as_many_records_as_it_is_told(
    source: Functions, client: geminga.Client
) -> None:
    source.details.source.builtin = "data-generator"
    source.details.source.configs = json.dumps({"count": 4, "sleepBetweenMessages": 1})
    async with source.instance("", "") as instance:
        await instance.receive(Started)
        found = await results(client, source.output, 4)
        assert [json.loads(each.data) for each in found] == [{"number": n} for n in range(4)]
        await instance.stop()


async def test_the_lines_of_a_file_are_stored_and_the_file_is_removed(
    source: Functions, client: geminga.Client, tmp_path: Path
) -> None:
    directory = tmp_path / "in"
    directory.mkdir()
    (directory / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    (directory / ".hidden").write_text("not me\n", encoding="utf-8")
    source.details.source.builtin = "file"
    source.details.source.configs = json.dumps(
        {"inputDirectory": str(directory), "pollingInterval": 10}
    )
    async with source.instance("", "") as instance:
        await instance.receive(Started)
        found = await results(client, source.output, 2)
        assert [each.data for each in found] == [b"one", b"two"]
        assert found[1].properties == {"file": "a.txt", "line": "2"}
        await instance.stop()
    assert [path.name for path in directory.iterdir()] == [".hidden"]


async def test_a_source_that_cannot_open_says_why(source: Functions) -> None:
    source.details.source.builtin = "file"
    source.details.source.configs = json.dumps({"inputDirectory": "/not/there"})
    async with source.instance("", "") as instance:
        failed = await instance.receive(Failed)
        assert failed.is_user_error
        assert "NotADirectoryError: /not/there" in failed.trace


async def test_a_name_that_is_not_built_in_is_refused_with_those_that_are(sink: Functions) -> None:
    sink.details.sink.builtin = "oracle"
    async with sink.instance("", "") as instance:
        assert "data-generator, file, http" in (await instance.receive(Failed)).trace


class Posts(ThreadingHTTPServer):
    """Keeps what is posted; its first answer is an error."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), PostHandler)
        self.bodies: list[tuple[bytes, str | None]] = []
        self.answers = [503]


class PostHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Posts)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = server.answers.pop() if server.answers else 200
        if status == 200:
            server.bodies.append((body, self.headers["PulsarKey"]))
        self.send_response(status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        pass


@pytest.fixture
def posts() -> Generator[Posts]:
    server = Posts()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def test_the_http_sink_posts_again_what_was_not_taken(
    sink: Functions, client: geminga.Client, posts: Posts
) -> None:
    await publish(client, sink.input, b"hello")
    sink.details.sink.builtin = "http"
    sink.details.sink.configs = json.dumps({"url": f"http://127.0.0.1:{posts.server_port}/"})
    sink.details.source.negativeAckRedeliveryDelayMs = 100
    async with sink.instance("", "") as instance:
        await instance.receive(Started)
        async with asyncio.timeout(TIMEOUT_S):
            while not posts.bodies:
                status = await instance.status()
        status = await instance.status()
        assert "503" in status.latest_user_exceptions[0].text
        await instance.stop()
    assert posts.bodies == [(b"hello", None)]
