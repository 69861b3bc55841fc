"""The error branches that no story can come to, and why: unit tests and those of real servers do.

A name is that of a module and all below it, of a class or a function (``module:function``), or of
one branch (``module:function:what``), as ``Branch`` prints it; the longest that fits counts. What
is entered though its name is here, ``test_sometimes.py`` finds: the reason is wrong then. It also
finds a new branch that no seed of a thousand comes to: let a story come to it, or name it here.
"""

from __future__ import annotations

from tests.simulation.coverage.error_branches import Branch

AUTH = "everything is allowed"
CLUSTERS = "what REST changes in ZooKeeper, which no story does"
CODE = "catches mistakes of the program itself, for the log"
CONFIG = "a setting, or a place in a cluster, that no story has"
CORRUPT = "bytes that no fault writes"
CRYPTO = "nothing is encrypted"
FILES = "real files"
HTTP = "no HTTP"
LIMITS = "a limit that no story comes near"
INSTANT = "another process deletes a ledger between its making and its log's naming it"
MISUSE = "what only a mistaken program asks for"
PROCESSES = "a real process"
THREADS = "no threads"
TLS = "no TLS"
USERS = "functions of users, which no story runs"
VALUES = "judges values alone: nothing fails, moves or waits there"
WIRE = "bytes that no peer sends which keeps to the protocol"

UNREACHABLE: dict[str, str] = {
    "geminga._channels.registry:Channels.__init__": MISUSE,
    "geminga._channels.pending.sends": WIRE,
    "geminga._channels.producer_channel:ProducerChannel._answer": CODE,
    "geminga._channels.producer_channel:ProducerChannel._settle": WIRE,
    "geminga._http": HTTP,
    "geminga._loop_thread": THREADS,
    "geminga._transport.connection:Connection._answer": AUTH,
    "geminga._transport.connection:Connection.data_received": WIRE,
    "geminga._transport.connection:Connection.request:raise RequestTooLarge": LIMITS,
    "geminga._transport.connection_pool:ConnectionPool._connect_tls": TLS,
    "geminga._transport.connection_pool:ConnectionPool._shake_hands:except ssl.SSLError": TLS,
    "geminga._transport.connection_pool:ConnectionPool._shake_hands:raise handshake_failed": TLS,
    "geminga._transport.http_lookup": HTTP,
    "geminga._transport.lookup:Lookup._route:raise NotConnected": CONFIG,
    "geminga._transport.lookup:Lookup._route:raise BrokerFailed": WIRE,
    "geminga._transport.lookup:Lookup.partitions:raise BrokerFailed": WIRE,
    "geminga._transport.requests": LIMITS,
    "geminga._transport.service_urls": VALUES,
    "geminga.arrow": VALUES,
    "geminga.authentication": AUTH,
    "geminga.compression": VALUES,
    "geminga.consumers.incoming.chunks:PendingChunks.add": LIMITS,
    "geminga.consumers.incoming.entries": WIRE,
    "geminga.consumers.incoming.entries:BodyOpener.open:raise DecryptionFailed": CRYPTO,
    "geminga.consumers.incoming.entries:EntryOpener.open:except DecryptionFailed": CRYPTO,
    "geminga.consumers.entry_reader:EntryReader._arrived": WIRE,
    "geminga.consumers.table_rows:TableRows.put": CODE,
    "geminga.consumers.topic_consumer:TopicConsumer.acknowledge": MISUSE,
    "geminga.consumers.topic_consumer:TopicConsumer.acknowledge_up_to": MISUSE,
    "geminga.consumers.topic_group:TopicGroup._join": CODE,
    "geminga.consumers.topic_group:TopicGroup.topic_of": MISUSE,
    "geminga.consumers.topic_sources:namespace_and_rest": VALUES,
    "geminga.consumers.incoming.values": WIRE,
    "geminga.crypto.decryption": CRYPTO,
    "geminga.crypto.encryption": CRYPTO,
    "geminga.crypto.key_wrapping": CRYPTO,
    "geminga.message_ids": VALUES,
    "geminga.producers.topic_producer:TopicProducer._check_size": MISUSE,
    "geminga.producers.topic_producer:TopicProducer._tell": CODE,
    "geminga.producers.topic_producer:TopicProducer.submit_batch:raise MessageTooLarge": MISUSE,
    "geminga.schemas": VALUES,
    "geminga.sync": THREADS,
    "geminga.tls": TLS,
    "geminga_autorecovery.zookeeper.controls:last_check_ms:except MalformedRecord": CORRUPT,
    "geminga_autorecovery.zookeeper.controls:lost_bookie_delay_of": CORRUPT,
    "geminga_autorecovery.replication.copies:_refused": CORRUPT,
    "geminga_autorecovery.decisions.fragments": CORRUPT,
    "geminga_autorecovery.zookeeper.underreplication_marks:_decode": CORRUPT,
    "geminga_autorecovery.part": PROCESSES,
    "geminga_autorecovery.decisions.repair_plan:with_replacements:raise FragmentChanged": MISUSE,
    "geminga_autorecovery.replication.worker:ReplicationWorker._repair_claimed:except Exception": CODE,  # noqa: E501
    "geminga_bookie.admin": HTTP,
    "geminga_bookie.bookie:Bookie._require_index": FILES,
    "geminga_bookie.bookie:Bookie.force_gc": HTTP,
    "geminga_bookie.disks.identity:_agreed_cookie:raise CookieMismatch": CONFIG,
    "geminga_bookie.disks.identity:_bookie_id": CONFIG,
    "geminga_bookie.disks.identity:_require_no_data": CONFIG,
    "geminga_bookie.disks.identity:establish_identity:except MalformedRecord (2)": CORRUPT,
    "geminga_bookie.disks.identity:establish_identity:except NodeMissing": CONFIG,
    "geminga_bookie.disks.identity:establish_identity:raise ClusterNotInitialized": CONFIG,
    "geminga_bookie.disks.identity:establish_identity:raise CorruptFile (2)": CORRUPT,
    "geminga_bookie.disks.identity:establish_identity:raise DirectoriesChanged": CONFIG,
    "geminga_bookie.disks.identity:establish_identity:raise DirectoriesChanged (2)": CONFIG,
    "geminga_bookie.disks.directories": FILES,
    "geminga_bookie.disks.space_watch": FILES,
    "geminga_bookie.formats": CORRUPT,
    "geminga_bookie.garbage.collector:Collector._reclaim:except UnknownFormat": CORRUPT,
    "geminga_bookie.garbage.ledger_deletion:LedgerDeletion.run:raise StrangeCluster": CONFIG,
    "geminga_bookie.journal.journal:Journal._write_groups:except Exception": CODE,
    "geminga_bookie.journal.journals:ordered_directories:raise CorruptFile": CORRUPT,
    "geminga_bookie.journal.journals:ordered_directories:raise JournalsChanged": CONFIG,
    "geminga_bookie.part": PROCESSES,
    "geminga_bookie.registration:Registration._register_when_wanted:except Exception": CODE,
    "geminga_bookie.sessions.long_polls:LongPolls.wait": LIMITS,
    "geminga_bookie.sessions.rare_requests": WIRE,
    "geminga_bookie.sessions.connection:ClientConnection._authorize": AUTH,
    "geminga_bookie.sessions.session:Session._decide": WIRE,
    "geminga_bookie.sessions.connection:ClientConnection._secure": TLS,
    "geminga_bookie.sessions.connection:ClientConnection.data_received": WIRE,
    "geminga_bookie.sessions.v3:V3Requests.take:raise BadRequest": WIRE,
    "geminga_bookie.sessions.v3:V3Requests.take:raise VersionRefused": WIRE,
    "geminga_bookie.sessions.v3_adds:V3Adds.add:raise BadRequest": WIRE,
    "geminga_bookie.sessions.v3_adds:V3Adds.write_lac:raise BadRequest": WIRE,
    "geminga_bookie.sessions.v3_adds:_require_master_key": MISUSE,
    "geminga_bookie.sessions.v3_reads:V3Reads.read:raise WrongMasterKey": MISUSE,
    "geminga_bookie.sessions.v3_reads:V3Reads.read:raise BadRequest": WIRE,
    "geminga_bookie.storage.checkpoint:Checkpointer._run_when_wanted:except Exception": CODE,
    "geminga_bookie.index.rocks_store": FILES,
    "geminga_bookie.storage.storage:Storage._open": MISUSE,
    "geminga_broker.admin": HTTP,
    "geminga_broker.compaction.selection.entries": WIRE,
    "geminga_broker.delayed.schedule.deliver_at": WIRE,
    "geminga_broker.functions_worker": PROCESSES,
    "geminga_broker.health": HTTP,
    "geminga_broker.managed_ledger.writing.broker_entry_metadata:index_of": WIRE,
    "geminga_broker.managed_ledger.cursors.cursor_store:CursorStore.create": MISUSE,
    "geminga_broker.managed_ledger.managed_ledger:ManagedLedger._append_all:except EntryTooLarge": MISUSE,  # noqa: E501
    "geminga_broker.managed_ledger.managed_ledger:ManagedLedger._append_all:raise NotAllowed": MISUSE,  # noqa: E501
    "geminga_broker.managed_ledger.managed_ledger:ManagedLedger._use": INSTANT,
    "geminga_broker.managed_ledger.reading.payloads": WIRE,
    "geminga_broker.ownership.addresses.address": CONFIG,
    "geminga_broker.ownership.assignment.bundles": VALUES,
    "geminga_broker.ownership.clusters": CONFIG,
    "geminga_broker.ownership.addresses.listeners": CONFIG,
    "geminga_broker.ownership.assignment.split:split_boundaries:raise UnknownSplitAlgorithm": VALUES,  # noqa: E501
    "geminga_broker.part": PROCESSES,
    "geminga_broker.policies.auto_creation": VALUES,
    "geminga_broker.policies.backlog": VALUES,
    "geminga_broker.policies.delayed": VALUES,
    "geminga_broker.policies.dispatch": VALUES,
    "geminga_broker.policy_follower:PolicyFollower._bring:except MalformedRecord": WIRE,
    "geminga_broker.policies.inactivity": VALUES,
    "geminga_broker.policies.publish": VALUES,
    "geminga_broker.policies.storage": VALUES,
    "geminga_broker.policies.subscriptions": VALUES,
    "geminga_broker.replication.remote_clusters:RemoteClusters._record:except MalformedRecord": CORRUPT,  # noqa: E501
    "geminga_broker.replication.remote_clusters:RemoteClusters._record:raise ClusterUnreachable (2)": CORRUPT,  # noqa: E501
    "geminga_broker.replication.remote_clusters:RemoteClusters.rest": HTTP,
    "geminga_broker.replication.remote_topics": HTTP,
    "geminga_broker.replication.replicator:Replicator._take": WIRE,
    "geminga_broker.schemas.avro_binary": VALUES,
    "geminga_broker.schemas.rules": VALUES,
    "geminga_broker.sessions.connection": WIRE,
    "geminga_broker.sessions.commands.consumers:ConsumerCommands._authorized:raise InvalidRequest (2)": AUTH,  # noqa: E501
    "geminga_broker.sessions.commands.consumers:ConsumerCommands.flow": WIRE,
    "geminga_broker.sessions.commands.consumers:ConsumerCommands.last_message_id:raise NotAllowed": MISUSE,  # noqa: E501
    "geminga_broker.sessions.commands.consumers:ConsumerCommands.seek:raise NotAllowed": MISUSE,
    "geminga_broker.sessions.commands.handshake": AUTH,
    "geminga_broker.sessions.commands.lookups": LIMITS,
    "geminga_broker.sessions.commands.producers:ProducerCommands._find": WIRE,
    "geminga_broker.sessions.commands.producers:ProducerCommands._hand_over": LIMITS,
    "geminga_broker.sessions.commands.producers:ProducerCommands.publish_unusual": WIRE,
    "geminga_broker.sessions.commands.producers:ProducerCommands.take_sends": WIRE,
    "geminga_broker.sessions.requests:Requests._run:except Exception": CODE,
    "geminga_broker.sessions.commands.schemas:schema_of": VALUES,
    "geminga_broker.sessions.session:Session.send_when_moved": CONFIG,
    "geminga_broker.sessions.commands.topic_listing": VALUES,
    "geminga_broker.subscriptions.distribution.chunk_receivers": WIRE,
    "geminga_broker.subscriptions.decisions.key_shared_policy": MISUSE,
    "geminga_broker.subscriptions.dispatch.rate_limiter:RateLimiter._call": CODE,
    "geminga_broker.subscriptions.membership:Membership.make_room:raise ConsumerNotAssigned": MISUSE,  # noqa: E501
    "geminga_broker.subscriptions.subscribe_request:SubscribeRequest.check": MISUSE,
    "geminga_broker.subscriptions.non_persistent_subscription": MISUSE,
    "geminga_broker.topic_policies": HTTP,
    "geminga_broker.topics.decisions.consumer_admission:ConsumerAdmission.check": CONFIG,
    "geminga_broker.topics.decisions.consumer_admission:ConsumerAdmission.check_consumers:raise ConsumerBusy": CONFIG,  # noqa: E501
    "geminga_broker.topics.decisions.consumer_admission:ConsumerAdmission.check_consumers:raise ConsumerBusy (2)": CONFIG,  # noqa: E501
    "geminga_broker.topics.decisions.consumer_admission:ConsumerAdmission.check_subscriptions": CONFIG,  # noqa: E501
    "geminga_broker.topics.decisions.consumer_admission:ConsumerAdmission.check_use": CONFIG,
    "geminga_broker.topics.subscriptions.non_persistent_subscriptions": MISUSE,
    "geminga_broker.topics.producers.deduplication:Deduplication._replay": WIRE,
    "geminga_broker.topics.producers.deduplication:Deduplication.take": LIMITS,
    "geminga_broker.topics.producers.internal_publisher:InternalPublisher.publish:raise StorageUnavailable": LIMITS,  # noqa: E501
    "geminga_broker.topics.producers.publish_gate:PublishGate.check:raise InvalidRequest": CRYPTO,
    "geminga_broker.topics.producers.publish_gate:PublishGate.check:raise ProducerBusy": CONFIG,
    "geminga_broker.topics.producers.publish_gate:PublishGate.check:raise ProducerBusy (2)": CONFIG,
    "geminga_broker.topics.producers.publish_gate:_take_allowed:except NotAllowed": LIMITS,
    "geminga_broker.topics.producers.replicator_producer:_take": LIMITS,
    "geminga_broker.topics.producers.replicator_producer:take_positions": WIRE,
    "geminga_broker.topics.decisions.sequence_ids": WIRE,
    "geminga_broker.topics.part:OwningTopic.managed_ledger": MISUSE,
    "geminga_broker.topics.part:OwningTopic.part": MISUSE,
    "geminga_broker.topics.topic_schemas": VALUES,
    "geminga_cluster.clusters": CLUSTERS,
    "geminga_cluster.initialize:check_initialized": PROCESSES,
    "geminga_cluster.namespaces:Namespaces.create": CLUSTERS,
    "geminga_cluster.namespaces:Namespaces.delete": CLUSTERS,
    "geminga_cluster.namespaces:Namespaces.names": CLUSTERS,
    "geminga_cluster.namespaces:Namespaces.update:raise RecordContended": CLUSTERS,
    "geminga_cluster.partitioned_topics": CLUSTERS,
    "geminga_cluster.persistent_topics:topics_named": WIRE,
    "geminga_cluster.tenants": CLUSTERS,
    "geminga_functions.admin": HTTP,
    "geminga_functions.api": USERS,
    "geminga_functions.cleanup:deletions": HTTP,
    "geminga_functions.cluster.heartbeats:Heartbeat.of": WIRE,
    "geminga_functions.cluster.keyed_log:KeyedLog._apply": WIRE,
    "geminga_functions.definitions": VALUES,
    "geminga_functions.instance": USERS,
    "geminga_functions.local": PROCESSES,
    "geminga_functions.names": VALUES,
    "geminga_functions.namespace": HTTP,
    "geminga_functions.packages": FILES,
    "geminga_functions.runtime.channel": USERS,
    "geminga_functions.runtime.instances:Keeper._run:except Exception": CODE,
    "geminga_functions.runtime.output": FILES,
    "geminga_functions.runtime.process": PROCESSES,
    "geminga_functions.runtime.thread": THREADS,
    "geminga_functions.state": USERS,
    "geminga_functions.state.local_copy": FILES,
    "geminga_functions.worker:Worker.check_health": PROCESSES,
    "geminga_ledger.connections.v2_connection": WIRE,
    "geminga_ledger.entries.digests:_Decoder._check:raise EntryDigestMismatch (3)": CORRUPT,
    "geminga_ledger.entries.digests:_Decoder.explicit_lac": CORRUPT,
    "geminga_ledger.metadata.ids:LedgerIds._next_long_id": LIMITS,
    "geminga_ledger.reading.last_entry_poll:LastEntryPoll.run:raise WrongPassword": CONFIG,
    "geminga_ledger.ledgers:Ledgers.open:raise UnsupportedLedger": CORRUPT,
    "geminga_ledger.ledgers:Ledgers._read_metadata": CORRUPT,
    "geminga_ledger.connections.link_base:BookieStream.data_received": WIRE,
    "geminga_ledger.connections.links:BookieLink._keep_trying:except Exception": CODE,
    "geminga_ledger.writing.ensemble_change:EnsembleChange._reach:raise result": CODE,
    "geminga_ledger.writing.pipeline:AddPipeline.append_all:raise EntryTooLarge": LIMITS,
    "geminga_ledger.connections.single_request:SingleRequest.data_received": WIRE,
    "geminga_ledger.connections.single_request:connect_with_tls": TLS,
    "geminga_ledger.reading.reader:LedgerReader.read_entries:except EntryDigestMismatch": CORRUPT,
    "geminga_ledger.reading.reader:LedgerReader.read_entries:raise NoSuchEntry": MISUSE,
    "geminga_ledger.reading.reader:LedgerReader.read_entries:raise UnsupportedLedger": CORRUPT,
    "geminga_ledger.membership.registry:BookieRegistry._keep_fresh:except Exception": CODE,
    "geminga_ledger.membership.registry:BookieRegistry._refresh_racks:except MalformedRecord": CORRUPT,  # noqa: E501
    "geminga_ledger.membership.registry:BookieRegistry.resolve:raise BookieUnavailable (2)": CORRUPT,  # noqa: E501
    "geminga_ledger.membership.registry:BookieRegistry.resolve:raise BookieUnavailable (3)": CORRUPT,  # noqa: E501
    "geminga_ledger.connections.v3_connection:V3Connection.ask:raise BookieUnavailable": LIMITS,
    "geminga_proxy.brokers:RegisteredBrokers._look:except MalformedRecord": CORRUPT,
    "geminga_proxy.config": TLS,
    "geminga_proxy.broker_handshake:BrokerHandshake.data_received": WIRE,
    "geminga_proxy.connection:ClientConnection._take": WIRE,
    "geminga_proxy.connection:ClientConnection._begin": WIRE,
    "geminga_proxy.connection:ClientConnection.data_received": WIRE,
    "geminga_proxy.lookups:Lookups._owner:raise BrokerRefused": WIRE,
    "geminga_proxy.lookups:Lookups._owner:raise NotConnected": CONFIG,
    "geminga_proxy.part": PROCESSES,
    "geminga_proxy.proxy:Proxy.check_health": PROCESSES,
    "geminga_proxy.addresses.targets:Target": CONFIG,
    "geminga_proxy.addresses.targets:TargetRules.check:raise TargetRefused": CONFIG,
    "geminga_proxy.addresses.targets:TargetRules.check:raise TargetRefused (2)": CONFIG,
    "geminga_proxy.workers": HTTP,
}


# Of what is named above, stories come to these all the same.
REACHED: frozenset[str] = frozenset(
    {
        "geminga._transport.service_urls:parse_service_url:raise InvalidServiceUrl",
        "geminga.producers.topic_producer:TopicProducer._check_size:raise MessageTooLarge (2)",
        "geminga_bookie.disks.identity:_bookie_id:raise BadBookieId (2)",
        "geminga_bookie.disks.space_watch:SpaceWatch.look:except OSError",
        "geminga_bookie.formats.log_list_v1:decode:raise CorruptFile",
        "geminga_bookie.sessions.long_polls:LongPolls.wait:raise BookieOverloaded",
        "geminga_bookie.sessions.session:Session._decide:except BookieRefusal",
        "geminga_bookie.sessions.session:Session._decide:except (UnsupportedOperation, UnsupportedVersion)",  # noqa: E501
        "geminga_bookie.storage.storage:Storage._open:raise WrongMasterKey",
        "geminga_broker.admin.bundle_calls:_require_success:raise ServiceNotReady",
        "geminga_broker.admin.bundle_calls:name_in:raise ServiceNotReady",
        "geminga_broker.admin.administration:Administration.unload_topic:raise TopicNotFound",
        "geminga_broker.delayed.schedule.deliver_at:_times:except WireError",
        "geminga_broker.health:HealthCheck.run:except TimeoutError",
        "geminga_broker.health:HealthCheck.run:raise StorageUnavailable",
        "geminga_broker.health:HealthCheck.run:except GemingaError",
        "geminga_broker.managed_ledger.reading.payloads:publish_time_ms:except WireError",
        "geminga_broker.policy_follower:PolicyFollower._bring:except NamespaceNotFound",
        "geminga_broker.policies.resolver:PolicyResolver.of:except NamespaceNotFound",
        "geminga_broker.replication.remote_clusters:RemoteClusters.rest:raise ClusterUnreachable (2)",  # noqa: E501
        "geminga_broker.schemas.rules.compatibility:_refuse:raise IncompatibleSchema",
        "geminga_broker.sessions.commands.lookups:LookupCommands._admitted:raise TooManyRequests",
        "geminga_broker.sessions.commands.topic_listing:TopicListCommands._open_watcher:except BaseException",  # noqa: E501
        "geminga_broker.sessions.commands.topic_listing:TopicListCommands.watch:raise NotAllowed (2)",  # noqa: E501
        "geminga_broker.subscriptions.non_persistent_subscription:NonPersistentSubscription.check:raise ConsumerBusy (2)",  # noqa: E501
        "geminga_broker.topic_policies.event_log:EventLog._follow:except GemingaError",
        "geminga_broker.topic_policies.event_log:EventLog._has_caught_up:except ClientError",
        "geminga_broker.topic_policies.store:TopicPolicyStore.delete:except NamespaceNotFound",
        "geminga_broker.topics.decisions.consumer_admission:ConsumerAdmission.check:raise NotAllowed (2)",  # noqa: E501
        "geminga_broker.topics.topic_schemas:TopicSchemas.admit_producer:raise IncompatibleSchema (2)",  # noqa: E501
        "geminga_cluster.clusters:Clusters.get:raise ClusterNotFound",
        "geminga_cluster.partitioned_topics:PartitionedTopics.delete:except NodeMissing",
        "geminga_cluster.partitioned_topics:PartitionedTopics.delete:raise PartitionedTopicNotFound",  # noqa: E501
        "geminga_cluster.partitioned_topics:_create_nodes:except NodeExists",
        "geminga_cluster.partitioned_topics:_create_nodes:except NodeMissing",
        "geminga_functions.cluster.heartbeats:Heartbeat.of:except (KeyError, ValueError)",
    }
)


def reason(branch: Branch) -> str | None:
    """Why no story comes to a branch; None where one should."""
    name = str(branch)
    if name in REACHED:
        return None
    while name not in UNREACHABLE:
        cut = max(name.rfind(":"), name.rfind("."))
        if cut < 0:
            return None
        name = name[:cut]
    return UNREACHABLE[name]
