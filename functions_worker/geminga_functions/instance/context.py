"""The ``Context`` that the user's code is called with.

It tells about the message and the function, publishes, and reads and changes the state. The methods
are those of upstream's ``pulsar.Context`` (pulsar-client 3.x) and of its instance. The user's code
calls them in its own thread, or on the loop where it is asynchronous; whatever needs a broker goes
through ``services``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, cast

import geminga
from geminga_functions.api import SerDe
from geminga_functions.instance.code_loader import Loader, instantiate
from geminga_functions.instance.services import FunctionMessageId, PublishCallback, Publisher
from geminga_functions.instance.spec import InstanceSpec
from geminga_functions.instance.status import Counters
from geminga_functions.state.changes import Changes

# Upstream's default of ``publish``; ``Loader`` knows this name, which no package need have.
IDENTITY_SERDE = "serde.IdentitySerDe"
# Bits of the entry id in what `get_message_sequence_id` returns, as upstream's.
ENTRY_BITS = 28


class Context:
    """The message that is being processed, the function, and what the code may do.

    One context serves all messages of a plain function, one after the other: ``begin`` makes it
    that of the next message. Asynchronous code gets a copy for each message.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        publisher: Publisher,
        loader: Loader,
        changes: Changes,
        counters: Counters,
        logger: logging.Logger,
        secrets: Callable[[str, Any], str | None],
    ) -> None:
        details = spec.details
        self._spec = spec
        # Everything but the message, its changes and its publishes is shared by all copies of the
        # context.
        self._publisher = publisher
        self._loader = loader
        self._counters = counters
        self._logger = logger
        self._secrets = secrets
        # None before the first message, as in the ``open`` of a source or a sink.
        self._message: geminga.Message[Any] | None = None
        # By the names of their classes; copies of the context share them.
        self._serdes: dict[str, SerDe] = {}
        # One object for all messages: what the code changes in it stays until the instance ends.
        self._user_config: dict[str, Any] = json.loads(details.userConfig or "{}")
        # By the name of a secret: its path or value, which only the provider of secrets reads.
        self._secrets_map: dict[str, Any] = json.loads(details.secretsMap or "{}")
        # What the code published for this message, which is acknowledged once these are stored.
        self.published: list[Future[geminga.MessageId]] = []
        # What the code changed in the state: applied once the message is processed successfully.
        self.changes = changes

    def begin(self, message: geminga.Message[Any], changes: Changes) -> None:
        """Begin with a message; the code records in ``changes`` what it changes in the state."""
        self._message = message
        self.changes = changes
        # A new list, not an empty one: the outcome of the message before keeps the old one.
        self.published = []

    @property
    def current(self) -> geminga.Message[Any]:
        """The message that is being processed. Raises ``RuntimeError`` outside of processing."""
        if self._message is None:
            raise RuntimeError("no message is being processed")
        return self._message

    # ---- the message

    def get_message_id(self) -> FunctionMessageId:
        """The id of the message."""
        return FunctionMessageId(self.current.id)

    def get_message_key(self) -> str:
        """The key of the message, empty if it has none."""
        return self.current.key or ""

    # Upstream has both names.
    get_partition_key = get_message_key

    def get_ordering_key(self) -> str:
        """The ordering key of the message, empty if it has none."""
        return (self.current.ordering_key or b"").decode(errors="replace")

    def get_message_eventtime(self) -> int:
        """Its event time in milliseconds since 1970, 0 if it has none."""
        return self.current.event_time_ms or 0

    def get_message_properties(self) -> dict[str, str]:
        """The properties of the message."""
        # A copy: what the code changes in it does not reach the message.
        return dict(self.current.properties)

    def get_current_message_topic_name(self) -> str:
        """The whole name of its topic, with the partition."""
        return self.current.topic

    def get_message_sequence_id(self) -> int:
        """A number made of the ledger and entry of the message, as upstream makes it."""
        # Messages of one batch have the same number, as upstream's have.
        ledger_id, entry_id = self.current.position
        return ledger_id << ENTRY_BITS | entry_id

    def get_message_partition_index(self) -> int:
        """The partition of its topic, -1 without one."""
        return self.current.id.partition

    # ---- the function

    def get_function_tenant(self) -> str:
        """The tenant of the function."""
        return self._spec.details.tenant

    def get_function_namespace(self) -> str:
        """The namespace of the function."""
        return self._spec.details.namespace

    def get_function_name(self) -> str:
        """The name of the function."""
        return self._spec.details.name

    def get_function_id(self) -> str:
        """The whole name of the function."""
        return str(self._spec.name.function)

    def get_instance_id(self) -> int:
        """The number of this instance, from 0."""
        return self._spec.number

    def get_function_version(self) -> str:
        """The version of the function, which grows with each update."""
        return str(self._spec.version)

    def get_input_topics(self) -> list[str]:
        """The topics or patterns that the function consumes."""
        return sorted(self._spec.details.source.inputSpecs)

    def get_output_topic(self) -> str:
        """The topic that results go to, empty without one."""
        return self._spec.details.sink.topic

    def get_output_serde_class_name(self) -> str:
        """The class that serializes results, empty for the default."""
        return self._spec.details.sink.serDeClassName

    def get_logger(self) -> logging.Logger:
        """The function's logger.

        Its records go to the output of the instance, and to the log topic if the function has one.
        """
        return self._logger

    def get_user_config_value(self, key: str) -> Any:  # noqa: ANN401 - any JSON
        """A value of the user's configuration, None if it is missing."""
        return self._user_config.get(key)

    def get_user_config_map(self) -> dict[str, Any]:
        """All of the user's configuration."""
        return self._user_config

    def get_secret(self, secret_name: str) -> str | None:
        """A secret, None if the function has none of this name."""
        # A function gets only the secrets that its own config names.
        if secret_name not in self._secrets_map:
            return None
        return self._secrets(secret_name, self._secrets_map[secret_name])

    def get_pulsar_client(self) -> Any:  # noqa: ANN401 - which one depends on the environment
        """A client of the cluster whose calls block: that of ``geminga.sync``."""
        return self._publisher.sync_client()

    # ---- what the code may do

    def record_metric(self, metric_name: str, metric_value: float) -> None:
        """Add a value to a metric of the function."""
        self._counters.record_metric(metric_name, float(metric_value))

    def get_metrics(self) -> dict[str, float]:
        """The sum and the count of each metric of the function."""
        return dict(self._counters.status().user_metrics)

    def publish(
        self,
        topic_name: str,
        message: Any,  # noqa: ANN401 - whatever the serde takes
        serde_class_name: str = IDENTITY_SERDE,
        properties: Mapping[str, str] | None = None,
        compression_type: object = None,
        callback: PublishCallback | None = None,
        message_conf: Mapping[str, Any] | None = None,
    ) -> None:
        """Publish ``message`` to a topic.

        The message that is being processed is acknowledged only after this one is stored.
        ``callback(result, message_id)`` is called in another thread.
        """
        # The class is named with each message, and created once.
        serde = self._serdes.get(serde_class_name)
        if serde is None:
            serde = instantiate(self._loader.find(serde_class_name))
            self._serdes[serde_class_name] = serde
        options = message_options({**(message_conf or {})}, properties)
        # The official client passes an enum; its names are those of Geminga's client in capitals.
        compression = str(getattr(compression_type, "name", compression_type) or "none").lower()
        # In the thread of the code, which gets the error if this fails: nothing has been sent then.
        payload = bytes(serde.serialize(message))
        self.published.append(
            # In the end the message that is being processed waits for this future.
            self._publisher.publish(str(topic_name), payload, options, compression, callback)
        )

    def ack(self, msgid: FunctionMessageId | geminga.MessageId, topic: str) -> None:
        """Acknowledge a message, for functions that do that themselves (MANUAL)."""
        # The official client's id, or Geminga's: code for either client may call this.
        message_id = msgid.id if isinstance(msgid, FunctionMessageId) else msgid
        self._publisher.acknowledge(message_id, topic)

    # ---- state

    def incr_counter(self, key: str, amount: int) -> None:
        """Add to a counter of the function's state."""
        self.changes.increment(key, amount)

    def get_counter(self, key: str) -> int:
        """The value of a counter of the function's state, 0 if there is no such counter."""
        # In the state a counter that was removed is None, which 0 is not.
        return self.changes.sum_of(key) or 0

    def del_counter(self, key: str) -> None:
        """Remove a counter."""
        # A value of the same key goes with it, as with upstream, whose state has one entry for a
        # key.
        self.changes.delete(key)

    def put_state(self, key: str, value: bytes | str) -> None:
        """Set a value of the function's state; text is stored as UTF-8."""
        self.changes.put(key, value.encode() if isinstance(value, str) else bytes(value))

    def get_state(self, key: str) -> bytes | None:
        """A value of the function's state, None if it has none."""
        return self.changes.get(key)


# The names that options of a message have in the official client, and in Geminga's client.
OPTIONS = {
    "properties": "properties",
    "partition_key": "key",
    "ordering_key": "ordering_key",
    "sequence_id": "sequence_id",
    "replication_clusters": "replicate_to",
    "event_timestamp": "event_time",
    "deliver_at": "deliver_at",
    "deliver_after": "deliver_after",
}


def message_options(
    conf: dict[str, Any], properties: Mapping[str, str] | None
) -> geminga.MessageOptions:
    """Translate ``message_conf`` into options of Geminga's producers, without empty values.

    Raises ``ValueError`` for an option that producers of the official client do not have.
    """
    if properties:
        conf["properties"] = properties
    # An empty list of clusters to replicate to is how a producer disables replication.
    options: dict[str, Any] = {"replicate_to": []} if conf.pop("disable_replication", False) else {}
    for name, value in conf.items():
        if name not in OPTIONS:
            raise ValueError(f"message_conf has no {name!r}")
        if value is not None and value != "":
            # Geminga's client takes bytes as an ordering key, the official client also text.
            is_text = name == "ordering_key" and isinstance(value, str)
            options[OPTIONS[name]] = value.encode() if is_text else value
    return cast(geminga.MessageOptions, options)
