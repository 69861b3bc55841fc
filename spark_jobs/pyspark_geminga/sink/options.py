"""The options of ``df.write.format("pulsar")`` and ``df.writeStream.format("pulsar")``.

Names and meanings are the Java connector's where it has them. Everything is checked when the query
is planned; an option that is not known is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from geminga import InvalidTopicName
from geminga.arrow import PayloadKind
from geminga.compression import CompressionName
from geminga.producers.outgoing.routing import HashName
from geminga_protocol.pulsar.topics.topic_names import TopicName
from pyspark_geminga.access import ACCESS_OPTIONS, Access, check_names, whole_number
from pyspark_geminga.errors import InvalidOption

ChoiceT = TypeVar("ChoiceT")

_PRODUCER = "pulsar.producer."
SINK_OPTIONS = (
    "topic",
    "semantics",
    "dedupKey",
    "orderWithinTask",
    "valueMode",
    "recordFormat",
    "batchMaxRows",
    "batchMaxBytes",
    "maxInFlight",
    *(_PRODUCER + name for name in ("compressionType", "hashingScheme", "sendTimeoutMs")),
)
# Options of Spark itself, which it also passes on to data sources.
SPARK_OPTIONS = ("checkpointLocation", "queryName", "path")

COMPRESSIONS: Mapping[str, CompressionName] = {
    "none": "none",
    "lz4": "lz4",
    "zlib": "zlib",
    "zstd": "zstd",
    "snappy": "snappy",
}
RECORD_FORMATS: Mapping[str, PayloadKind] = {"auto": "auto", "avro": "avro", "json": "json"}
# Names of Java's and C++'s clients, and ours.
HASHES: Mapping[str, HashName] = {
    "javastringhash": "java_string",
    "java_string": "java_string",
    "murmur3_32hash": "murmur3",
    "murmur3": "murmur3",
    "boosthash": "boost",
    "boost": "boost",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How large entries get. Time plays no part: a task that runs again cuts at the same rows."""

    # As Java's producers batch by default (``batchingMaxMessages``, and ``batchingMaxBytes``
    # below).
    rows_max: int = 1000
    bytes_max: int = 128 * 1024  # a larger row is alone in its entry


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of a writer."""

    access: Access
    topic: str | None = None  # a whole name; None where each row names its own in ``__topic``
    deduplicates: bool = False  # the repeat of a task stores nothing twice
    # Identifies a batch write that is repeated; a streaming query has an id of its own.
    dedup_key: str | None = None
    is_sorted: bool = (
        False  # a task stores its rows in an order that does not depend on how they came
    )
    is_raw: bool = False  # the one value column is the payload
    # What the value columns become: a record, or with ``auto`` a simple value if there is only one.
    record_format: PayloadKind = "auto"
    # A repeat with other limits is still exactly once: see ``cutting``.
    cut: Cut = Cut()
    in_flight_max: int = 256  # entries of a destination that wait for the broker's receipt
    compression: CompressionName = "none"
    hashing: HashName = "java_string"
    send_timeout_s: float = 120.0

    @classmethod
    def of(cls, options: Mapping[str, str], *, is_streaming: bool) -> SinkOptions:
        """Read the options that a user gave. Raises ``InvalidOption``."""
        # First of all: a misspelt option would otherwise look like one that is missing.
        check_names(options, (*ACCESS_OPTIONS, *SINK_OPTIONS, *SPARK_OPTIONS))
        given = {name.lower(): value for name, value in options.items()}
        access = Access.of(options)
        deduplicates = _choice(given, "semantics", {"at-least-once": False, "dedup": True})
        dedup_key, topic = given.get("dedupkey"), given.get("topic")
        if topic is not None:
            try:
                # The whole name, so that routes, checks and errors speak of the same topic.
                topic = str(TopicName.parse(topic))
            except InvalidTopicName as error:
                raise InvalidOption("topic", str(error)) from error
        if deduplicates:
            _check_deduplication(access, topic, dedup_key, is_streaming=is_streaming)
        elif dedup_key is not None:
            raise InvalidOption("dedupKey", "is for semantics=dedup")
        elif "orderwithintask" in given:
            raise InvalidOption(
                "orderWithinTask", "is for semantics=dedup: only repeats need an order"
            )
        cut = Cut()  # the defaults
        return cls(
            access=access,
            topic=topic,
            deduplicates=deduplicates,
            dedup_key=dedup_key,
            is_sorted=deduplicates
            and _choice(given, "orderWithinTask", {"value": True, "none": False}),
            is_raw=_choice(given, "valueMode", {"schema": False, "raw": True}),
            record_format=_choice(given, "recordFormat", RECORD_FORMATS),
            cut=Cut(
                rows_max=_number(given, "batchMaxRows", cut.rows_max),
                bytes_max=_number(given, "batchMaxBytes", cut.bytes_max),
            ),
            in_flight_max=_number(given, "maxInFlight", 256),
            compression=_choice(given, _PRODUCER + "compressionType", COMPRESSIONS),
            hashing=_choice(given, _PRODUCER + "hashingScheme", HASHES),
            # Longer than the 30 s of Java's producers: an attempt that waits for a broker costs
            # less than one that begins anew.
            send_timeout_s=_number(given, _PRODUCER + "sendTimeoutMs", 120_000) / 1000,
        )


def _choice(given: Mapping[str, str], name: str, choices: Mapping[str, ChoiceT]) -> ChoiceT:
    """What the chosen word stands for; the first word is the default."""
    text = given.get(name.lower(), next(iter(choices))).lower()
    if text not in choices:
        raise InvalidOption(name, f"{text!r} is none of {', '.join(choices)}")
    return choices[text]


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name.lower())
    return default if text is None else whole_number(name, text)


def _check_deduplication(
    access: Access, topic: str | None, dedup_key: str | None, *, is_streaming: bool
) -> None:
    """Refuse options that cannot be exactly-once. Raises ``InvalidOption``."""
    if access.admin_url is None:
        raise InvalidOption(
            "semantics",
            "dedup needs admin.url: brokers tell only there whether a topic deduplicates",
        )
    if topic is not None and not TopicName.parse(topic).is_persistent:
        raise InvalidOption("topic", "nothing is remembered of non-persistent topics")
    if is_streaming and dedup_key is not None:
        raise InvalidOption("dedupKey", "is for batch writes: a streaming query has an id")
    if not is_streaming and not dedup_key:
        raise InvalidOption(
            "dedupKey",
            "is missing: a batch write has no id by which its repeat is known; name what is "
            "written, and write it once under this name (semantics=at-least-once needs none)",
        )
