"""The options of ``spark.read.format("pulsar")`` and ``spark.readStream.format("pulsar")``.

Names and meanings are the Java connector's where it has them. Everything is checked when the query
is planned; an option that is not known is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from geminga import InvalidTopicName, LogPosition
from geminga_protocol.pulsar.topics.topic_names import TopicName
from pyspark_geminga.access import ACCESS_OPTIONS, Access, check_names, flag, whole_number
from pyspark_geminga.errors import InvalidOffset, InvalidOption
from pyspark_geminga.source.decisions.offsets import parse_positions
from pyspark_geminga.source.decisions.splits import SPLITS_MAX, SplitRules

MIB = 1024 * 1024
Edge = Literal["earliest", "latest"]
# What is wanted of each topic, by its whole name; "" is for topics that are not named.
ByTopic = Mapping[str, "LogPosition | int | Edge"]

SOURCE_OPTIONS = (
    "topic",
    "topics",
    "topicsPattern",
    "startingOffsets",
    "endingOffsets",
    "startingTime",
    "endingTime",
    "failOnDataLoss",
    "pollTimeoutMs",
    "maxBytesPerTrigger",
    "maxRowsPerTrigger",
    "maxOffsetsPerTrigger",
    "predefinedSubscription",
    "subscriptionPrefix",
    "allowDifferentTopicSchemas",
    "waitingForNonExistedTopic",
    "valueMode",
    "metadataColumns",
    "badRecord",
    "privateKeys",
    "targetSplitBytes",
    "minPartitions",
    "maxPartitions",
    "maxRecordsPerPartition",
    "arrowBatchRows",
    "arrowBatchBytes",
    "pollIntervalMs",
    "idleWaitMs",
    "filterPushdown",
)


@dataclass(frozen=True, slots=True)
class Topics:
    """What is read: topics by their whole names, or all whose whole names match ``pattern``."""

    # Exactly one of the two fields is set.
    names: tuple[str, ...] = ()
    pattern: str | None = None

    def covers(self, topic: str) -> bool:
        """Is ``topic``, or the topic whose partition it is, among them?"""
        names = (topic, str(TopicName.parse(topic).base))
        if self.pattern is None:
            return any(name in self.names for name in names)
        # The whole name, as Java's consumers match it: a pattern without ``.*`` names one topic.
        return any(re.fullmatch(self.pattern, name) for name in names)

    @property
    def namespace(self) -> str:
        """The namespace that a pattern is about: ``tenant/namespace``."""
        # Only the part behind the namespace is a regular expression, which is no topic name. Any
        # other name in the namespace does for parsing.
        scheme, tenant, namespace = re.split(r"://|/", self.pattern or "", maxsplit=3)[:3]
        return str(TopicName.parse(f"{scheme}://{tenant}/{namespace}/any").namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What becomes of messages' payloads, and how rows are handed to Spark."""

    is_raw: bool = False  # one column of bytes, whatever the topic's schema is
    metadata_columns: tuple[str, ...] | None = None  # None for all of them
    # For a payload that the topic's schema cannot decode: an error, a row of nulls with the bytes
    # in ``__corrupt``, or no row at all.
    bad_record: Literal["fail", "permissive", "drop"] = "fail"
    allows_different_schemas: bool = False
    # Names that producers encrypt for, and files with the keys in PEM.
    private_keys: tuple[tuple[str, str], ...] = ()
    # An Arrow batch goes to Spark when it has either of these.
    batch_rows: int = 8192
    batch_bytes: int = 8 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a reader."""

    access: Access
    topics: Topics
    starting: ByTopic
    ending: ByTopic  # of batch reads only
    # True by default: a query that skips what was deleted must say so.
    fails_on_data_loss: bool
    # How long the planner retries, and how long a task waits for a message that it knows is stored.
    poll_timeout_s: float
    # The limits of a micro-batch, of which at most one is set.
    rows_max: int | None
    bytes_max: int | None
    subscription: str | None  # follows a stream; None for a query that acknowledges nothing
    waits_for_topic: bool
    payload: Payload
    splits: SplitRules
    poll_interval_s: float  # a younger snapshot that has unread messages is used again
    idle_wait_s: float  # between two snapshots of a stream that has nothing to read, at least
    pushes_filters: bool

    @classmethod
    def of(cls, options: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
        """Read the options that a user gave. Raises ``InvalidOption``."""
        known = (*ACCESS_OPTIONS, *SOURCE_OPTIONS)
        # Spark itself adds ``path`` for load("..."), which this source has no use for.
        check_names({name: value for name, value in options.items() if name != "path"}, known)
        given = _Given({name.lower(): value for name, value in options.items()})
        access = Access.of(options)
        # The defaults of the Java connector, and of Kafka's source: a stream begins with what
        # comes, a batch read takes what there is.
        starting = _wanted(given, "starting", "latest" if is_streaming else "earliest")
        if is_streaming and given.has("endingOffsets", "endingTime"):
            raise InvalidOption("ending*", "a stream has no end: this is for spark.read")
        bytes_max = given.number("maxBytesPerTrigger")
        # Kafka's source calls it maxOffsetsPerTrigger.
        rows_max = given.number("maxRowsPerTrigger") or given.number("maxOffsetsPerTrigger")
        if bytes_max and rows_max:
            raise InvalidOption(
                "maxRowsPerTrigger", "cannot be used with maxBytesPerTrigger: Spark has one limit"
            )
        if bytes_max and access.admin_url is None:
            raise InvalidOption(
                "maxBytesPerTrigger",
                "needs admin.url: only brokers' REST side tells how large ledgers are",
            )
        splits = SplitRules(
            given.number("targetSplitBytes") or 128 * MIB,
            given.number("minPartitions") or 1,
            given.number("maxPartitions") or SPLITS_MAX,
            given.number("maxRecordsPerPartition"),
        )
        if splits.splits_min > splits.splits_max:
            raise InvalidOption("minPartitions", "is more than maxPartitions")
        # The Java connector adds a suffix to the prefix. Here it is the whole name, since a query
        # that restarts needs the subscription that it had.
        subscription = given.text("predefinedSubscription")
        prefix = given.text("subscriptionPrefix")
        if subscription is not None and prefix is not None:
            raise InvalidOption("subscriptionPrefix", "cannot be used with predefinedSubscription")
        if subscription == "" or prefix == "":
            raise InvalidOption("predefinedSubscription", "a subscription has a name")
        return cls(
            access=access,
            topics=_topics(given),
            starting=starting,
            ending=_wanted(given, "ending", "latest"),
            fails_on_data_loss=given.flag("failOnDataLoss", default=True),
            poll_timeout_s=(given.number("pollTimeoutMs") or 120_000) / 1000,
            rows_max=rows_max,
            bytes_max=bytes_max,
            subscription=subscription or prefix,
            waits_for_topic=given.flag("waitingForNonExistedTopic", default=False),
            payload=_payload(given),
            splits=splits,
            poll_interval_s=(given.number("pollIntervalMs") or 100) / 1000,
            idle_wait_s=(given.number("idleWaitMs") or 125) / 1000,
            pushes_filters=given.flag("filterPushdown", default=False),
        )


@dataclass(frozen=True, slots=True)
class _Given:
    """The options as they were given, by names in lower case."""

    options: Mapping[str, str]

    def text(self, name: str) -> str | None:
        return self.options.get(name.lower())

    def has(self, *names: str) -> bool:
        return any(self.text(name) is not None for name in names)

    def number(self, name: str) -> int | None:
        text = self.text(name)
        return None if text is None else whole_number(name, text)

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        return default if text is None else flag(name, text)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of the ``choices``, of which the first is the default."""
        text = (self.text(name) or choices[0]).lower()
        if text not in choices:
            raise InvalidOption(name, f"{text!r} is none of {', '.join(choices)}")
        return text


def _topics(given: _Given) -> Topics:
    chosen = [name for name in ("topic", "topics", "topicsPattern") if given.has(name)]
    # Even an empty text counts as chosen: it is more likely a mistake than a wish for nothing.
    if len(chosen) != 1:
        found = " and ".join(chosen) or "none of them"
        raise InvalidOption(
            "topic", f"exactly one of topic, topics and topicsPattern is wanted, and not {found}"
        )
    text = given.text(chosen[0]) or ""
    try:
        if chosen[0] == "topicsPattern":
            # Patterns may be ``tenant/namespace/...`` or within ``public/default``, as consumers'.
            local = text.partition("://")[2] if "://" in text else text
            if local.count("/") < 2:
                local = f"public/default/{local}"
            pattern = f"persistent://{local}"
            # Both raise for a pattern that no snapshot could use, before the query starts.
            re.compile(pattern)
            topics = Topics(pattern=pattern)
            _ = topics.namespace
            return topics
        names = text.split(",") if chosen[0] == "topics" else [text]
        # A name that is given twice is read once.
        return Topics(tuple(dict.fromkeys(_whole_name(name) for name in names)))
    except (InvalidTopicName, re.error) as error:
        raise InvalidOption(chosen[0], str(error)) from error


def _whole_name(name: str) -> str:
    topic = TopicName.parse(name.strip())
    if not topic.is_persistent:
        raise InvalidTopicName(name, "nothing is kept of non-persistent topics")
    return str(topic)


def _wanted(given: _Given, edge: Literal["starting", "ending"], default: Edge) -> ByTopic:
    """``startingOffsets`` or ``startingTime``, or ``endingOffsets`` or ``endingTime``."""
    offsets, time = given.text(f"{edge}Offsets"), given.text(f"{edge}Time")
    if offsets is not None and time is not None:
        raise InvalidOption(f"{edge}Time", f"cannot be used with {edge}Offsets")
    if time is not None:
        document = _json(f"{edge}Time", time) if time.lstrip().startswith("{") else {"": time}
        # One time is that of all topics; an object has times by topic.
        return {
            _topic_key(f"{edge}Time", topic): _time_ms(f"{edge}Time", each)
            for topic, each in document.items()
        }
    if offsets is None:
        return {"": default}
    word = offsets.strip().lower()
    if word in ("earliest", "latest"):
        if edge == "ending" and word == "earliest":
            raise InvalidOption("endingOffsets", "nothing lies before the earliest message")
        return {"": "earliest" if word == "earliest" else "latest"}
    try:
        positions = parse_positions(_json(f"{edge}Offsets", offsets))
    except InvalidOffset as error:
        raise InvalidOption(f"{edge}Offsets", str(error)) from error
    return {_topic_key(f"{edge}Offsets", topic): each for topic, each in positions.items()}


def _topic_key(option: str, topic: str) -> str:
    try:
        return _whole_name(topic) if topic else ""
    except InvalidTopicName as error:
        raise InvalidOption(option, str(error)) from error


def _json(option: str, text: str) -> dict[str, object]:
    try:
        document: object = json.loads(text)
    except ValueError as error:
        raise InvalidOption(option, f"is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise InvalidOption(option, "a JSON object is wanted")
    return document


def _time_ms(option: str, value: object) -> int:
    """Milliseconds since 1970, or ISO 8601; without a zone it is UTC."""
    text = str(value).strip()
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(
            option, f"{text!r} is neither milliseconds since 1970 nor a time of ISO 8601"
        ) from None
    # Not the zone of the machine: a query means the same wherever its driver runs.
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _payload(given: _Given) -> Payload:
    text = given.text("metadataColumns")
    # None for all, an empty tuple for none: the columns of the payload are there in either case.
    columns: tuple[str, ...] | None = None
    if text is not None and text.strip().lower() == "none":
        columns = ()
    elif text is not None and text.strip().lower() != "all":
        columns = tuple(name.strip() for name in text.split(",") if name.strip())
    bad_record = given.choice("badRecord", ("fail", "permissive", "drop"))
    # Names of files, not the keys: options end up in plans and logs of Spark's.
    private_keys = _json("privateKeys", given.text("privateKeys") or "{}")
    return Payload(
        is_raw=given.choice("valueMode", ("schema", "raw")) == "raw",
        metadata_columns=columns,
        bad_record=bad_record,  # type: ignore[arg-type]  # one of the choices
        allows_different_schemas=given.flag("allowDifferentTopicSchemas", default=False),
        private_keys=tuple(sorted((name, str(file)) for name, file in private_keys.items())),
        batch_rows=given.number("arrowBatchRows") or 8192,
        batch_bytes=given.number("arrowBatchBytes") or 8 * MIB,
    )
