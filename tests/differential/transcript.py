"""What happened between the clients of a scenario and a broker, as lines of plain JSON values.

["a", "> SUBSCRIBE", {...}]          client a said
["a", "< SUCCESS", {}]               client a heard
["a", "< nothing"]                   client a waited in vain
["rest", "GET /admin/...", 200, {}]  a request over REST, its status and its answer
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tests.differential.plain import Json, Plain

from geminga_protocol.pulsar import api_pb2 as api

Line = list[Any]


class Transcript:
    """Grows by one line for each thing said or heard."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.plain = Plain()
        self._quiet_depth = 0

    def add(self, *line: Json) -> None:
        """Write a line down, unless what happens is only preparation."""
        if not self._quiet_depth:
            self.lines.append(list(line))

    def said(self, client: str, command: api.BaseCommand) -> None:
        """A client sent a command."""
        name, fields = self.plain.command(command)
        self.add(client, f"> {name}", fields)

    def sent(self, client: str, producer_id: int, sequence_id: int, messages: int) -> None:
        """A client sent a SEND."""
        fields = {"producer_id": producer_id, "sequence_id": sequence_id}
        self.add(client, "> SEND", fields | ({"num_messages": messages} if messages > 1 else {}))

    def heard(self, client: str, command: api.BaseCommand | None, payload: bytes) -> None:
        """A client received a command, or the end of its connection (None)."""
        if command is None:
            self.add(client, "< end of connection")
            return
        name, fields = self.plain.command(command, payload)
        self.add(client, f"< {name}", fields)

    def heard_nothing(self, client: str) -> None:
        """A client waited for something that did not come."""
        self.add(client, "< nothing")

    @contextmanager
    def quiet(self) -> Generator[None]:
        """Write nothing down meanwhile."""
        self._quiet_depth += 1
        try:
            yield
        finally:
            self._quiet_depth -= 1

    @contextmanager
    def sorted(self) -> Generator[None]:
        """What is written down meanwhile is put into an order of its own."""
        begin = len(self.lines)
        yield
        self.lines[begin:] = sorted(self.lines[begin:], key=json.dumps)


def dump(lines: list[Line]) -> str:
    """A transcript as the text of a JSON file, one line each."""
    inner = ",\n".join(json.dumps(line, ensure_ascii=False, sort_keys=True) for line in lines)
    return f"[\n{inner}\n]\n"
