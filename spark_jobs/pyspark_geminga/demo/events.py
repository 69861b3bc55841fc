"""Publishes the lines of all Python source files that this Python can import, an event each.

A program of its own, which runs while the job reads what it publishes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import geminga

# Events that are sent before the producer is asked for room, and the event loop gets a turn. Larger
# turns send no faster, and delay receipts, which the same loop reads.
EVENTS_A_TURN = 200
TAB_COLUMNS = 4
# The lines of minified files are longer, and would stretch every chart.
LENGTH_MAX = 2_000
SCHEMA = geminga.AvroSchema[dict[str, object]](
    dict,
    definition={
        "type": "record",
        "name": "SourceLine",
        "fields": [
            {"name": "package", "type": "string"},
            {"name": "is_standard", "type": "boolean"},
            {"name": "file", "type": "string"},
            {"name": "line", "type": "int"},
            {"name": "length", "type": "int"},
            {"name": "indent", "type": "int"},
            {"name": "kind", "type": "string"},
            {"name": "word", "type": ["null", "string"]},
        ],
    },
)
# Lines are classified by regular expressions and not by Python's parser, which refuses whole files
# of other versions of Python. ASCII names: others are rare, and count as expressions.
WORD = re.compile(r"[A-Za-z_]\w*")
# A target, an operator before "=" or none, and "=" that is not "==". The lazy part stops at the
# first one.
ASSIGNMENT = re.compile(r"[\w.,\[\]\"' *:()|]+?[-+*/%&|^@]?=(?!=)")
QUOTES = re.compile(r'"""|\'\'\'')
# By the first word of the line. "async" may also begin a loop or a with: most of these lines are
# functions.
KINDS = {
    **dict.fromkeys(("import", "from"), "import"),
    **dict.fromkeys(("def", "async"), "def"),
    "class": "class",
    **dict.fromkeys(("return", "yield", "raise", "break", "continue", "pass"), "leaving"),
    **dict.fromkeys(("if", "elif", "else", "match", "case"), "condition"),
    **dict.fromkeys(("for", "while"), "loop"),
    **dict.fromkeys(("try", "except", "finally", "with"), "guard"),
    **dict.fromkeys(("assert", "del", "global", "nonlocal"), "other"),
}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A source file of a package."""

    path: Path
    name: str  # relative to the folder of all packages, with "/"
    is_standard: bool  # the package comes with Python

    @property
    def package(self) -> str:
        """The topmost name that is imported."""
        return self.name.partition("/")[0].removesuffix(".py")


def source_files() -> list[SourceFile]:
    """All source files, in an order that mixes the packages and is the same each time.

    With fewer events than lines, every package then has its share of them.
    """
    standard = Path(sysconfig.get_paths()["stdlib"])
    others = Path(sysconfig.get_paths()["purelib"])
    found = [
        SourceFile(path, path.relative_to(root).as_posix(), root == standard)
        for root in (standard, others)
        for path in root.rglob("*.py")
        # Where libraries lie in the folder of the standard library, they are found by the other
        # root.
        if root == others or "site-packages" not in path.parts
    ]
    # A hash of the name sorts as if by chance, and alike on each run.
    return sorted(found, key=lambda file: hashlib.sha256(file.name.encode()).digest())


def lines_of(file: SourceFile) -> Iterator[dict[str, object]]:
    """The events of one file; none if it cannot be read as UTF-8."""
    try:
        text = file.path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    is_quoted = False
    for number, line in enumerate(text.splitlines(), 1):
        kind, is_quoted = kind_of(line, is_quoted=is_quoted)
        stripped = line.expandtabs(TAB_COLUMNS).rstrip()
        # Texts and comments begin with words of a language, which are no Python.
        word = WORD.match(line.lstrip())
        yield {
            "package": file.package,
            "is_standard": file.is_standard,
            "file": file.name,
            "line": number,
            "length": min(len(stripped), LENGTH_MAX),
            "indent": len(stripped) - len(stripped.lstrip()),
            "kind": kind,
            "word": word[0] if word and kind not in {"text", "comment"} else None,
        }


def kind_of(line: str, *, is_quoted: bool) -> tuple[str, bool]:
    """What a line is, and whether the next one is inside a text of three quotes."""
    quotes = len(QUOTES.findall(line))
    # An odd number of triple quotes begins a text or ends it. Quotes within comments are not told
    # apart: the error ends with the file.
    is_next_quoted = is_quoted ^ bool(quotes % 2)
    stripped = line.strip()
    if is_quoted or (quotes and QUOTES.match(stripped.lstrip("rRfFbBuU"))):
        return "text", is_next_quoted
    if not stripped:
        return "blank", is_next_quoted
    if stripped[0] in "#@":
        return ("comment" if stripped[0] == "#" else "decorator"), is_next_quoted
    word = WORD.match(stripped)
    kind = KINDS.get(word[0]) if word else None
    if kind is None:
        kind = "assignment" if ASSIGNMENT.match(stripped) else "expression"
    return kind, is_next_quoted


async def publish(service_url: str, topic: str, count: int) -> int:
    """Send at most ``count`` events; returns how many were stored.

    Closing the producer waits for all receipts, and raises if an event was not stored.
    """
    # A generator all the way: a million events are never in memory together.
    events = islice((event for file in source_files() for event in lines_of(file)), count)
    sent = 0
    async with (
        geminga.connect(service_url) as client,
        client.producer(topic, schema=SCHEMA) as producer,
    ):
        while turn := list(islice(events, EVENTS_A_TURN)):
            for event in turn:
                # By file: the lines of a file stay in one partition, and in their order.
                producer.send_nowait(event, key=str(event["file"]))
            sent += len(turn)
            await producer.ready()
    return sent


def main(arguments: Sequence[str]) -> int:
    """Publish; the only line of standard output is the number of events that were stored."""
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_geminga.demo.events",
        description="Publishes each line of the Python source files on this machine as an event.",
    )
    parser.add_argument("--service-url", required=True, metavar="URL")
    parser.add_argument("--topic", required=True, metavar="TOPIC")
    parser.add_argument("--count", type=int, default=1_200_000, metavar="N", help="at most")
    parsed = parser.parse_args(arguments)
    print(asyncio.run(publish(parsed.service_url, parsed.topic, parsed.count)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
