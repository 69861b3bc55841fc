"""Readers of values on the command line: times, sizes, names, message ids.

Times and sizes are written as for ``pulsar-admin``: ``90``, ``100m``, ``3h``; ``4096``, ``10M``,
``3T``. Each reader raises ``ArgumentTypeError``, which argparse reports.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from geminga_cli.admin.operation import UrlPath
from geminga_protocol.pulsar.errors import InvalidTopicName
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName

# A number, and a unit or none; letter case does not matter.
_SPAN = re.compile(r"(-?[0-9]+)([smhdwy]?)", re.IGNORECASE)
_SPAN_S = {
    "": 1,
    "s": 1,
    "m": 60,
    "h": 3_600,
    "d": 86_400,
    "w": 7 * 86_400,
    "y": 365 * 86_400,
}
_SIZE = re.compile(r"(-?[0-9]+)([kmgt]?)", re.IGNORECASE)
# Powers of 1,024, as in pulsar-admin.
_SIZE_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# Negative ids stand for positions before the first message.
_MESSAGE_ID = re.compile(r"(-?[0-9]+):(-?[0-9]+)")
# Java's largest long.
LONG_MAX = (1 << 63) - 1
SECONDS_A_MINUTE = 60
# Ids before the first message and behind the last one, in the JSON of REST.
EARLIEST: Mapping[str, int] = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
LATEST: Mapping[str, int] = {"ledgerId": LONG_MAX, "entryId": LONG_MAX, "partitionIndex": -1}


def topic(text: str) -> UrlPath:
    """``orders``, ``tenant/namespace/orders`` or ``persistent://…`` as part of a URL."""
    try:
        name = TopicName.parse(text)
    except InvalidTopicName as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    # ``persistent/tenant/namespace/local``: how REST writes a topic.
    parts = (name.domain, name.tenant, name.namespace.local, name.local)
    return UrlPath("/".join(quote(part, safe="") for part in parts))


def namespace(text: str) -> UrlPath:
    """``tenant/namespace`` as part of a URL."""
    try:
        return UrlPath(str(NamespaceName.parse(text)))
    except InvalidTopicName as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def seconds(text: str) -> int:
    """Read a time span in seconds; a number without a unit is seconds."""
    return _read(_SPAN, _SPAN_S, text, "a span of time, as 90, 100m, 3h, 2d or 5w")


def minutes_or_unit(text: str) -> int:
    """Read a time span in seconds; a number without a unit is minutes."""
    # As pulsar-admin's reset-cursor: the unit of old scripts was minutes.
    return seconds(f"{text}m" if text.lstrip("-").isdecimal() else text)


def size_bytes(text: str) -> int:
    """Read a size in bytes; a number without a unit is bytes."""
    return _read(_SIZE, _SIZE_BYTES, text, "a size, as 4096, 10M, 16G or 3T")


def _read(form: re.Pattern[str], units: Mapping[str, int], text: str, what: str) -> int:
    found = form.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} should be {what}")
    number, unit = int(found[1]), found[2].lower()
    # A negative number stands for something else, such as "no limit": it has no unit.
    return number if number < 0 else number * units[unit]


def words(text: str) -> list[str]:
    """Read words between commas."""
    # Empty words are left out: "a,,b" and "a, b" are two words each.
    return [word for each in text.split(",") if (word := each.strip())]


def pair(text: str) -> tuple[str, str]:
    """Read ``key=value``."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} should be written key=value")
    return key, value


def pairs(text: str) -> dict[str, str]:
    """Read ``a=1,b=2``."""
    return dict(pair(each) for each in words(text))


def message_id(text: str) -> Mapping[str, int]:
    """Read ``LEDGER:ENTRY``, ``earliest`` or ``latest``, into the JSON of REST."""
    known = {"earliest": EARLIEST, "latest": LATEST}
    if text in known:
        return known[text]
    found = _MESSAGE_ID.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} should be LEDGER:ENTRY, as 12:3, or earliest, or latest"
        )
    # ``MessageIdImpl`` in the JSON of REST. The partition is that of the path.
    return {"ledgerId": int(found[1]), "entryId": int(found[2]), "partitionIndex": -1}


def moment_ms(text: str) -> int:
    """Read a moment of ISO 8601 with its offset, in milliseconds since 1970."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    # Without an offset it would mean another moment on each machine.
    if moment is None or moment.tzinfo is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} should be a date and time with its offset, as 2026-01-31T16:53:08Z"
        )
    return int(moment.timestamp() * 1_000)


def compact(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without members that are None."""
    return {name: value for name, value in document.items() if value is not None}
