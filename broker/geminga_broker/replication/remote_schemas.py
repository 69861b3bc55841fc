"""The versions that a remote cluster has for the schemas of a topic's messages.

The metadata of a message has the version of its schema in the registry of its own cluster, which
means nothing elsewhere. The remote cluster is asked which version it has for that schema, and
stores the schema where it has none; so schemas arrive there in the order of the messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

from geminga import BrokerRefused
from geminga_broker.replication.errors import SchemaRefused
from geminga_broker.schemas.errors import SchemaNotFound
from geminga_broker.schemas.registry import SchemaRegistry, decode_version, schema_id
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.topics.topic_names import TopicName

NO_SCHEMA = b""
# Far more than a topic has. Beyond that all are forgotten, and asked for again.
VERSIONS_KEPT_MAX = 1_000

Store = Callable[[api.Schema], Awaitable[bytes]]


@dataclass(slots=True, eq=False)
class RemoteSchemas:
    """The schema versions of ``topic`` in the remote cluster ``target``."""

    topic: TopicName
    target: str
    # That of this cluster.
    registry: SchemaRegistry
    # By version in this cluster: the version there, as messages have them. ``NO_SCHEMA`` for a
    # message without a schema, and where the schema was deleted in this cluster.
    versions: dict[bytes, bytes] = field(default_factory=lambda: {NO_SCHEMA: NO_SCHEMA}, init=False)

    def forget(self) -> None:
        """Forget all versions, since the remote cluster may be another one from now on."""
        # A remote registry may also have been deleted and begun anew; each new connection asks
        # again.
        self.versions = {NO_SCHEMA: NO_SCHEMA}

    async def learn(self, version: bytes, store: Store) -> None:
        """Learn the remote version of the schema from ``store``, which stores it there if it is
        new. Raises ``SchemaRefused``, ``ClientError``, ``StorageUnavailable``,
        ``CoordinationError``."""
        if len(self.versions) >= VERSIONS_KEPT_MAX:
            self.forget()
        try:
            # From the ledgers of this cluster, whichever broker serves the topic.
            found = await self.registry.version(self.topic, decode_version(version))
        except SchemaNotFound:
            # Deleted here: its messages are replicated as messages without a schema.
            self.versions[version] = NO_SCHEMA
            return
        info = found.info
        schema = api.Schema(
            name=schema_id(self.topic),
            type=cast(api.Schema.Type.ValueType, info.type),
            schema_data=info.definition,
            properties=[api.KeyValue(key=key, value=each) for key, each in info.properties.items()],
        )
        try:
            self.versions[version] = await store(schema)
        except BrokerRefused as error:
            # A refusal that may pass (the broker is busy, the topic moves) is no verdict on the
            # schema. Both end the channel. The replicator logs the second one once, and tries
            # again: an operator has to act.
            if error.retry:
                raise
            raise SchemaRefused(str(self.topic), found.version, self.target, str(error)) from error
