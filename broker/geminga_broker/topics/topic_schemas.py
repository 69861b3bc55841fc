"""A topic's schema as its clients see it: which clients register one, and which are checked.

This is not a part of the topic, because there is no state: the registry, which all topics share,
keeps it. So a topic without a schema costs no memory. A client without a schema costs no request to
ZooKeeper, unless the topic's policies want producers to have one.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga_broker.schemas.errors import IncompatibleSchema
from geminga_broker.schemas.registry import SchemaRegistry, encode_version
from geminga_broker.schemas.rules.definitions import Schema
from geminga_broker.topics.part import OwningTopic
from geminga_broker.topics.producers.publish_path import PublishPath
from geminga_broker.topics.subscriptions.subscription_registry import SubscriptionRegistry
from geminga_protocol.pulsar.enums import SchemaType
from geminga_protocol.pulsar.messages.replication import is_replicator

NO_SCHEMA = b""


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """Admits clients of a topic with their schemas, as ``AbstractTopic`` of Apache Pulsar does.
    Made for each client."""

    _topic: OwningTopic
    # All topics of the broker share it.
    _registry: SchemaRegistry

    async def admit_producer(self, schema: Schema | None) -> bytes:
        """The version of a producer's schema, which is registered if the policies allow that;
        ``NO_SCHEMA`` for none. Raises ``InvalidSchema``, ``IncompatibleSchema``."""
        topic, policies = self._topic, self._topic.policies.schemas
        if schema is None:
            # The request to the registry is made only if its answer matters. As upstream, the
            # absence of a schema is an error only where the topic has one: a topic of plain bytes
            # stays usable with validation enforced.
            if policies.is_validation_enforced and await self._registry.versions(topic.name):
                raise IncompatibleSchema(
                    "Producers cannot connect or send message without a schema to topics with a "
                    "schema when SchemaValidationEnforced is enabled"
                )
            return NO_SCHEMA
        # The registry compares and stores in one step (its lock, and compare-and-set on the node):
        # of two clients that register at once, the second is compared with the schema of the first.
        if policies.allows_auto_update:
            number = await self._registry.put(topic.name, schema, policies.strategy)
            return encode_version(number)
        # Without the right to add one, a schema that is known already still gets its version.
        found = await self._registry.find(topic.name, schema)
        if found is None:
            raise IncompatibleSchema("Schema not found and schema auto updating is disabled.")
        return encode_version(found)

    async def admit_consumer(self, schema: Schema | None) -> None:
        """Check a consumer's schema against the topic's; in a topic that was never used it becomes
        the first version. Raises ``InvalidSchema``, ``IncompatibleSchema``."""
        # AUTO_CONSUME takes whatever schema a message has, so there is nothing to compare.
        if schema is None or schema.type is SchemaType.AUTO_CONSUME:
            return
        topic = self._topic
        publishing = topic.part(PublishPath)
        parts = (part for part in topic.parts if isinstance(part, SubscriptionRegistry))
        # A topic is used if it has messages, or clients that may send or expect some without a
        # schema. A replicator connects without one, and registers each before its first message.
        is_used = (
            bool(publishing.messages_in)
            or any(not is_replicator(each.name) for each in publishing.producers.by_name.values())
            or bool(topic.name.is_persistent and topic.managed_ledger.chain.total_bytes)
            or any(
                not consumer.takes_any_schema
                for part in parts
                for subscription in part.subscriptions.values()
                for consumer in subscription.consumers
            )
        )
        # Another client may register a schema meanwhile: then the registry compares both.
        if not is_used and not await self._registry.versions(topic.name):
            await self.admit_producer(schema)
            return
        # Read here and not at the start: the policies may have changed while the versions were
        # read.
        strategy = topic.policies.schemas.strategy
        await self._registry.check(topic.name, schema, strategy, of_consumer=True)
