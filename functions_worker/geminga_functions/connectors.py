"""The built-in sources and sinks, by the names in ``BUILTIN``."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from geminga_functions.api import Record, Sink, Source

# How long a server may take to answer the sink `http`.
HTTP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class ConnectorSetting:
    """A setting of a built-in connector, as REST describes it."""

    name: str
    kind: type
    help: str
    default: object = None
    is_required: bool = False
    is_secret: bool = False


class DataGenerator(Source):
    """Numbered JSON records, to try a pipeline with."""

    settings: ClassVar = (
        ConnectorSetting("sleepBetweenMessages", int, "Milliseconds between two messages", 50),
        ConnectorSetting("count", int, "How many messages there are (default: without end)"),
        ConnectorSetting("padding", int, "How many characters each message has besides", 0),
    )

    async def open(self, config: Mapping[str, Any], context: Any) -> None:  # noqa: ANN401, ARG002
        """Read the settings. Raises ``ValueError`` for one that is not a number."""
        self._pause_s = float(config.get("sleepBetweenMessages", 50)) / 1000
        self._count = int(config["count"]) if "count" in config else None
        self._padding = "x" * int(config.get("padding", 0))
        self._numbers = count()

    async def read(self) -> Record | None:
        """The next record, after a pause."""
        # From 0 with each start: a source has no memory of what it has read.
        number = next(self._numbers)
        # None as the count: without end.
        if number == self._count:
            return None
        if number:
            await asyncio.sleep(self._pause_s)
        value = (
            {"number": number, "padding": self._padding} if self._padding else {"number": number}
        )
        return Record(json.dumps(value), key=str(number))


# What becomes of a file:
#
#   appears -> begun, its lines are read -> its last line is stored -> removed
#                         ^                                              |
#                         +--- a crash in between: all lines once more --+
class FileSource(Source):
    """The lines of files that appear in a directory.

    A file is removed once its last line is stored. A file should be moved into the directory, not
    written there, or it may be read before it is complete. Names that begin with a dot are ignored.
    """

    settings: ClassVar = (
        ConnectorSetting("inputDirectory", str, "The directory", is_required=True),
        ConnectorSetting(
            "keepFile", bool, "Keep files, and read them again after a restart", default=False
        ),
        ConnectorSetting("pollingInterval", int, "Milliseconds between looks for new files", 1000),
    )

    async def open(self, config: Mapping[str, Any], context: Any) -> None:  # noqa: ANN401, ARG002
        """Read the settings. Raises ``KeyError`` without a directory, ``NotADirectoryError``."""
        self._directory = Path(config["inputDirectory"])
        if not self._directory.is_dir():
            raise NotADirectoryError(str(self._directory))
        self._keep = bool(config.get("keepFile", False))
        self._pause_s = float(config.get("pollingInterval", 1000)) / 1000
        # Files that were opened and are still there: they are not read a second time.
        self._begun: set[Path] = set()
        # The lines of the current file.
        self._records: Iterator[Record] = iter(())

    async def read(self) -> Record:
        """The next line, with the properties ``file`` and ``line`` (from 1)."""
        while True:
            # A file is read further only when its next line is wanted.
            record = next(self._records, None)
            if record is not None:
                return record
            # Not on the loop: a directory on a network may take long to answer.
            path = await asyncio.to_thread(self._next_file)
            if path is None:
                await asyncio.sleep(self._pause_s)
            else:
                self._begun.add(path)
                self._records = self._lines(path)

    def _next_file(self) -> Path | None:
        # The first by name: files with a date in their names are read in that order.
        found = (path for path in self._directory.iterdir() if not path.name.startswith("."))
        return min(
            (path for path in found if path.is_file() and path not in self._begun), default=None
        )

    def _lines(self, path: Path) -> Iterator[Record]:
        # A file may be large, so it is read line by line; one line ahead, to know the last one.
        with path.open(encoding="utf-8", errors="replace") as file:
            line, number = file.readline(), 1
            # An empty file has no record whose receipt could remove it.
            if not line:
                self._done(path)
            while line:
                following = file.readline()
                yield Record(
                    line.rstrip("\n"),
                    properties={"file": path.name, "line": str(number)},
                    on_stored=None if following else partial(self._done, path),
                )
                line, number = following, number + 1

    def _done(self, path: Path) -> None:
        if not self._keep:
            # Only now are all of its lines stored. After a crash before that they are read, and
            # stored, again.
            path.unlink(missing_ok=True)
            self._begun.discard(path)


class HttpSink(Sink):
    """Posts each message to a URL; after an answer other than 2xx the message is redelivered.

    The topic and the key of the message are in the headers ``PulsarTopic`` and ``PulsarKey``, its
    properties in ``PulsarProperties-NAME``.
    """

    settings: ClassVar = (
        ConnectorSetting("url", str, "Where messages are posted to", is_required=True),
        # Headers may contain credentials.
        ConnectorSetting("headers", dict, "More headers of each request", is_secret=True),
    )

    def open(self, config: Mapping[str, Any], context: Any) -> None:  # noqa: ANN401, ARG002
        """Read the settings. Raises ``KeyError`` without a URL, ``ValueError`` without HTTP."""
        self._url = str(config["url"])
        # Nothing else: urllib also opens files, which are the worker's.
        if not self._url.startswith(("http://", "https://")):
            raise ValueError(f"the sink http posts to an http or https URL, and not to {self._url}")
        self._headers = {str(name): str(value) for name, value in config.get("headers", {}).items()}

    # A plain method, for the thread of the user's code: urllib blocks.
    def write(self, record: Record) -> None:
        """Post one message. Raises ``OSError``."""
        value = record.value
        headers = {"Content-Type": "application/octet-stream", **self._headers}
        if isinstance(value, (dict, list)):
            headers["Content-Type"] = "application/json"
            value = json.dumps(value)
        # The names are those of upstream's sink. After the configured headers, which cannot replace
        # them.
        headers["PulsarTopic"] = record.topic or ""
        if record.key is not None:
            headers["PulsarKey"] = record.key
        headers |= {f"PulsarProperties-{name}": text for name, text in record.properties.items()}
        body = value if isinstance(value, bytes) else str(value).encode()
        request = urllib.request.Request(self._url, body, headers, method="POST")  # noqa: S310
        # It raises for any answer that is no success, and the message is delivered again.
        with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_S):  # noqa: S310 - checked above
            pass


Connector = type[DataGenerator] | type[FileSource] | type[HttpSink]

BUILTIN: Mapping[str, Connector] = {
    "data-generator": DataGenerator,
    "file": FileSource,
    "http": HttpSink,
}
