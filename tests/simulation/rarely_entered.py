"""The error branches that fewer than ten seeds of a thousand come to, each seen in some:
``test_sometimes.py`` does not demand them of its seeds.

``python -m tests.simulation --branches`` says which of them are less rare by now: they are to leave
this file. What can never come stands in ``unreachable.py``.
"""

from __future__ import annotations

RARELY: frozenset[str] = frozenset(
    {
        "geminga._channels.channel:Channel._attached_connection:except TimeoutError",
        "geminga._channels.channel:Channel._attached_connection:raise RequestTimedOut",
        "geminga._transport.connection:Connection.request:raise ConnectionLost",
        "geminga._transport.connection_pool:ConnectionPool.get:raise Closed",
        "geminga._transport.service_urls:_parse_addresses:raise InvalidServiceUrl",
        "geminga.consumers.entry_reader:EntryReader._wait:except TimeoutError",
        "geminga.consumers.entry_reader:EntryReader.open:except BaseException",
        "geminga.consumers.factory:ConsumerFactory.reader:except BaseException",
        "geminga.consumers.table_view:TableRows.wait_for:raise self.error",
        "geminga.producers.producer:Producer._watch_partitions:except ClientError",
        "geminga.producers.topic_producer:TopicProducer._start:except ClientError",
        "geminga_autorecovery.bookie_recovery:_Recovery._move:except LedgerError",
        "geminga_autorecovery.bookie_recovery:_holder:except (NodeMissing, MalformedRecord)",
        "geminga_autorecovery.controls:disable:except NodeExists",
        "geminga_autorecovery.copier:_Batch.read:raise EntriesUnreadable",
        "geminga_autorecovery.copies:_Reading.answers:except TimeoutError",
        "geminga_autorecovery.copies:_Storing.run:except TimeoutError",
        "geminga_autorecovery.copies:_Storing.run:raise self._failure",
        "geminga_autorecovery.copies:_connected:except TimeoutError",
        "geminga_autorecovery.copies:_connected:raise BookieUnavailable",
        "geminga_autorecovery.decommission:decommission:raise DecommissionStalled",
        "geminga_autorecovery.decommission:decommission:raise RecoveryDisabled",
        "geminga_autorecovery.decommission:still_on.visit:except NoSuchLedger",
        "geminga_autorecovery.election:Election._leave:except (CoordinationError, TimeoutError)",
        "geminga_autorecovery.election:Election._take_leader_node:except NodeExists",
        "geminga_autorecovery.known_bookies:cookie_names:except NodeMissing",
        "geminga_autorecovery.ledger_listing:_children:except NodeMissing",
        "geminga_autorecovery.marks:Marks._children:except NodeMissing",
        "geminga_autorecovery.marks:read_mark:except NodeMissing",
        "geminga_autorecovery.repair:LedgerRepair._mend:raise ClaimLost",
        "geminga_autorecovery.repair:LedgerRepair._try_to_mend:except (NoSuchLedger, UnsupportedLedger)",  # noqa: E501
        "geminga_autorecovery.repair:LedgerRepair.take_over:except NoSuchLedger",
        "geminga_autorecovery.repair_plan:with_replacements:raise FragmentChanged (3)",
        "geminga_autorecovery.worker:ReplicationWorker._give_back:except CoordinationError",
        "geminga_autorecovery.worker:ReplicationWorker._let_go:except (LedgerError, CoordinationError)",  # noqa: E501
        "geminga_bookie.bookie:Bookie._make_room:except OSError",
        "geminga_bookie.disks.identity:_agreed_cookie:raise CookieMismatch (2)",
        "geminga_bookie.disks.identity:_agreed_cookie:raise CookieMismatch (3)",
        "geminga_bookie.disks.identity:_bookie_id:raise BadBookieId (2)",
        "geminga_bookie.formats.log_list_v1:decode:raise CorruptFile",
        "geminga_bookie.garbage.collector:Collector._reclaim:except CorruptFile",
        "geminga_bookie.garbage.compaction:Compactor._reclaim:except CorruptFile",
        "geminga_bookie.garbage.ledger_deletion:LedgerDeletion._release:except (CoordinationError, TimeoutError)",  # noqa: E501
        "geminga_bookie.journal.replay:Replay._cut:raise CorruptFile",
        "geminga_bookie.journal.replay:Replay._cut:raise CorruptFile (2)",
        "geminga_bookie.journal.replay:Replay._groups_of:raise CorruptFile",
        "geminga_bookie.journal.replay:Replay._groups_of:raise CorruptFile (2)",
        "geminga_bookie.journal.replay:Replay._wanted_numbers:raise JournalFileMissing",
        "geminga_bookie.journal.replay:Replay._wanted_numbers:raise JournalFileMissing (2)",
        "geminga_bookie.sessions.long_polls:LongPolls.confirmed:except BookieRefusal",
        "geminga_bookie.sessions.v3:V3Requests._bookie_info:except OSError",
        "geminga_bookie.sessions.v3:V3Requests._bookie_info:raise BookieFailed",
        "geminga_bookie.sessions.v3_adds:V3Adds.force:raise BookieFailed",
        "geminga_bookie.sessions.v3_reads:_fence_failed:raise BookieFailed",
        "geminga_bookie.storage.entry_list:entry_runs:except LogRemoved",
        "geminga_bookie.storage.entry_list:entry_runs:raise BookieFailed",
        "geminga_bookie.storage.entry_log:EntryLog._check_files:raise EntryLogMissing",
        "geminga_bookie.storage.entry_log:EntryLog._open_file:raise CorruptFile",
        "geminga_bookie.storage.entry_log:EntryLog._open_file:raise LogRemoved",
        "geminga_bookie.storage.entry_log:EntryLog._open_file:raise LogRemoved (2)",
        "geminga_bookie.storage.entry_log:EntryLog.find:raise EntryLogTwice",
        "geminga_bookie.storage.entry_log:EntryLog.read_ids:except DamagedBlock",
        "geminga_bookie.storage.entry_log:EntryLog.read_whole:raise CorruptFile",
        "geminga_bookie.storage.log_lists:LogLists.losses:except CorruptFile",
        "geminga_bookie.storage.log_scan:_require_torn_tail:raise CorruptFile",
        "geminga_bookie.storage.log_scan:_scanned:raise CorruptFile",
        "geminga_bookie.storage.log_scan:scan_log:raise CorruptFile",
        "geminga_bookie.storage.rebuild:_Rebuild.read_log:except CorruptFile",
        "geminga_bookie.storage.rebuild:rebuild_index:raise loss",
        "geminga_bookie.storage.storage:Storage.load:except LogRemoved",
        "geminga_bookie.storage.storage:Storage.load:raise BookieFailed",
        "geminga_bookie.storage.storage:Storage.set_explicit_lac:raise BookieReadOnly",
        "geminga_broker.admin.bundle_calls:name_in:raise ServiceNotReady",
        "geminga_broker.compaction.compacted_ledger:CompactedLedger._ask:except (LedgerError, CoordinationError)",  # noqa: E501
        "geminga_broker.compaction.compacted_ledger:CompactedLedger._ask:except NoSuchLedger",
        "geminga_broker.compaction.compacted_ledger:CompactedLedger._ask:raise CompactedLedgerGone",
        "geminga_broker.compaction.compacted_ledger:CompactedLedger._ask:raise StorageUnavailable",
        "geminga_broker.compaction.compacted_ledger:CompactedLedger._open:except (LedgerError, CoordinationError)",  # noqa: E501
        "geminga_broker.compaction.compacted_ledger:CompactedLedger._open:raise StorageUnavailable",
        "geminga_broker.compaction.compaction:Compaction._clean_up:except FAILURES",
        "geminga_broker.compaction.compaction:Compaction._compact:except FAILURES",
        "geminga_broker.compaction.compaction:Compaction._source:except CompactedLedgerGone",
        "geminga_broker.compaction.compaction:Compaction.trigger:raise TopicFenced",
        "geminga_broker.delayed.messages:DelayedMessages._times_from:except EntryDamaged",
        "geminga_broker.delayed.messages:DelayedMessages._turn_over:except BrokerError",
        "geminga_broker.delayed.messages:DelayedMessages.delete:except (LedgerError, CoordinationError)",  # noqa: E501
        "geminga_broker.delayed.messages:DelayedMessages.delete:raise StorageUnavailable",
        "geminga_broker.delayed.messages:DelayedMessages.recover:except (LedgerError, CoordinationError)",  # noqa: E501
        "geminga_broker.delayed.messages:DelayedMessages.recover:raise StorageUnavailable",
        "geminga_broker.health:HealthCheck._check:except TimeoutError",
        "geminga_broker.health:HealthCheck._check:raise StorageUnavailable",
        "geminga_broker.load_manager.history:HistoryRecords.read_bundles.read:except (NodeMissing, MalformedRecord)",  # noqa: E501
        "geminga_broker.managed_ledger.browsing:scan_backlog:except TimeoutError",
        "geminga_broker.managed_ledger.cursor_store:CursorStore._take_over:except (EntryCorrupt, NoSuchEntry, MalformedRecord)",  # noqa: E501
        "geminga_broker.managed_ledger.cursor_store:CursorStore.load:raise VersionMismatch",
        "geminga_broker.managed_ledger.factory:ManagedLedgerFactory.cursor_names:except NodeMissing",  # noqa: E501
        "geminga_broker.managed_ledger.factory:ManagedLedgerFactory.cursor_names:raise TopicNotFound",  # noqa: E501
        "geminga_broker.managed_ledger.managed_ledger:ManagedLedger._switched:except TimeoutError",
        "geminga_broker.managed_ledger.managed_ledger:ManagedLedger._switched:raise StorageUnavailable",  # noqa: E501
        "geminga_broker.managed_ledger.managed_ledger:ManagedLedger.delete:except LedgerError",
        "geminga_broker.managed_ledger.recorded_chain:RecordedChain.terminate:except BaseException",
        "geminga_broker.managed_ledger.termination:Termination.terminate:except (LedgerError, CoordinationError, TimeoutError)",  # noqa: E501
        "geminga_broker.managed_ledger.termination:Termination.terminate:except (LedgerFenced, *OWNERSHIP_LOST)",  # noqa: E501
        "geminga_broker.managed_ledger.termination:Termination.terminate:raise StorageUnavailable",
        "geminga_broker.managed_ledger.termination:Termination.terminate:raise TopicFenced",
        "geminga_broker.managed_ledger.trimmer:Trimmer.pass_everything:except TimeoutError",
        "geminga_broker.managed_ledger.trimmer:Trimmer.pass_everything:raise StorageUnavailable",
        "geminga_broker.managed_ledger.trimmer:Trimmer.trim:except OWNERSHIP_LOST",
        "geminga_broker.managed_ledger.trimmer:Trimmer.trim:raise TopicFenced (2)",
        "geminga_broker.ownership.owned_bundles:OwnedBundles._delete_node:except NodeMissing",
        "geminga_broker.ownership.owned_bundles:OwnedBundles.acquire:raise ServiceNotReady",
        "geminga_broker.ownership.owned_bundles:OwnedBundles.split:raise NotOwned (2)",
        "geminga_broker.ownership.ownership:Ownership._find_owner:raise ServiceNotReady (3)",
        "geminga_broker.replication.remote_clusters:RemoteClusters._client_of:except (ClientError, ValueError)",  # noqa: E501
        "geminga_broker.replication.remote_clusters:RemoteClusters._client_of:raise ClusterUnreachable",  # noqa: E501
        "geminga_broker.replication.remote_clusters:RemoteClusters._client_of:raise ClusterUnreachable (2)",  # noqa: E501
        "geminga_broker.replication.remote_clusters:RemoteClusters._look_again:except ClusterUnreachable",  # noqa: E501
        "geminga_broker.replication.remote_clusters:RemoteClusters._record:except ClusterNotFound",
        "geminga_broker.replication.remote_clusters:RemoteClusters._record:raise ClusterUnreachable",  # noqa: E501
        "geminga_broker.replication.remote_clusters:RemoteClusters.rest:raise ClusterUnreachable (2)",  # noqa: E501
        "geminga_broker.replication.remote_schemas:RemoteSchemas.learn:except SchemaNotFound",
        "geminga_broker.replication.remote_schemas:RemoteSchemas.learn:raise SchemaRefused",
        "geminga_broker.replication.replicator:Replicator._check_partitions:raise PartitionsDiffer",
        "geminga_broker.schemas.registry:SchemaRegistry._change:raise ServiceNotReady",
        "geminga_broker.schemas.storage:SchemaStorage._drop_ledger:except CoordinationError",
        "geminga_broker.schemas.storage:SchemaStorage.delete:raise SchemasChanged",
        "geminga_broker.sessions.liveness:Liveness.is_alive:except TimeoutError",
        "geminga_broker.sessions.commands.publishing:ProducerCommands._append:except BrokerError",
        "geminga_broker.sessions.requests:Requests._run:except TimeoutError",
        "geminga_broker.subscriptions.acknowledging:Acknowledging.upto:raise InvalidRequest",
        "geminga_broker.subscriptions.volatile_subscription:VolatileSubscription.check:raise ConsumerBusy (2)",  # noqa: E501
        "geminga_broker.topic_policies.event_log:EventLog._follow:except GemingaError",
        "geminga_broker.topic_policies.event_log:EventLog._has_caught_up:except ClientError",
        "geminga_broker.topics.consuming.admission:Admission.check_consumers:raise ConsumerBusy (3)",  # noqa: E501
        "geminga_broker.topics.consuming.admission:check_stored_name:raise NotAllowed",
        "geminga_broker.topics.consuming.stored_subscriptions:StoredSubscriptions._ask_namesakes:except ConsumerBusy",  # noqa: E501
        "geminga_broker.topics.consuming.stored_subscriptions:StoredSubscriptions.delete_subscription:raise TopicFenced",  # noqa: E501
        "geminga_broker.topics.directory:TopicDirectory._left:raise TopicFenced",
        "geminga_broker.topics.directory:TopicDirectory.delete:raise TopicReplicated",
        "geminga_broker.topics.maintenance:TopicMaintenance._delete_unused:except GemingaError",
        "geminga_broker.topics.part:TopicPart.attempt:except GemingaError",
        "geminga_broker.topics.producing.deduplication:TopicDeduplication._catch_up:except GemingaError",  # noqa: E501
        "geminga_broker.topics.topic:Topic._close:except TimeoutError",
        "geminga_broker.topics.topic:Topic._close:except TimeoutError (2)",
        "geminga_broker.topics.topic_replication:TopicReplication._catch_up:except GemingaError",
        "geminga_broker.topics.topic_schemas:TopicSchemas.admit_producer:raise IncompatibleSchema (2)",  # noqa: E501
        "geminga_cluster.clusters:Clusters.get:raise ClusterNotFound",
        "geminga_cluster.namespaces:Namespaces.cut_bundle:except NodeMissing (2)",
        "geminga_cluster.namespaces:Namespaces.cut_bundle:raise NamespaceNotFound (2)",
        "geminga_cluster.partitioned_topics:PartitionedTopics.delete:except NodeMissing",
        "geminga_cluster.partitioned_topics:PartitionedTopics.delete:raise PartitionedTopicNotFound",  # noqa: E501
        "geminga_cluster.partitioned_topics:_create_nodes:except NodeExists",
        "geminga_cluster.partitioned_topics:_make_parents:except NodeExists",
        "geminga_functions.cleanup:Cleanup._has_done:except ServerUnreachable",
        "geminga_functions.cleanup:Cleanup._has_no_state:except geminga.ClientError",
        "geminga_functions.cluster.heartbeats:Heartbeat.of:except (KeyError, ValueError)",
        "geminga_functions.cluster.heartbeats:Heartbeats._beat:except ClientError",
        "geminga_functions.cluster.heartbeats:Heartbeats.leave:except (ClientError, TimeoutError)",
        "geminga_functions.cluster.leadership:Leadership._lead_on:except (ClientError, TimeoutError)",  # noqa: E501
        "geminga_functions.cluster.leadership:Leadership._participate:except ClientError",
        "geminga_functions.cluster.membership:Membership.members:except ServerUnreachable",
        "geminga_functions.cluster.membership:Membership.members:raise ClusterUnknown",
        "geminga_functions.cluster.membership:Membership.members:raise ClusterUnknown (2)",
        "geminga_functions.runtime.instances:Keeper._run:except (GemingaError, OSError)",
        "geminga_functions.runtime.instances:Keeper._run:except PackageError",
        "geminga_functions.worker:Worker._compact:except ClientError",
        "geminga_functions.worker:Worker._compact:except ClientError (2)",
        "geminga_functions.worker:Worker._compact:except ServerUnreachable",
        "geminga_ledger.digests:_Decoder._check:raise EntryDigestMismatch",
        "geminga_ledger.explicit_lac:ExplicitLac._tell_one:except BookieUnavailable",
        "geminga_ledger.lac_read:LacRead._hear:except EntryDigestMismatch",
        "geminga_ledger.last_entry:LastEntryPoll.read_answered:except EntryDigestMismatch",
        "geminga_ledger.ledger_view:LedgerView._try_to_watch:except (TimeoutError, CoordinationError)",  # noqa: E501
        "geminga_ledger.pipeline:AddPipeline._check_room:raise self._refusal",
        "geminga_ledger.recovery:LedgerRecovery._attempt.closed:raise RecoveryUndecided",
        "geminga_ledger.recovery:LedgerRecovery._copy_tail:raise pipeline.failure",
        "geminga_ledger.recovery:LedgerRecovery._length_at:raise RecoveryUndecided",
        "geminga_ledger.store:LedgerStore._create_as:except NoSuchLedger",
        "geminga_ledger.v3_link:V3Link._connect:raise BookieUnavailable (2)",
        "geminga_ledger.v3_link:V3Link.ask:except TimeoutError",
        "geminga_ledger.v3_link:V3Link.ask:raise BookieUnavailable",
        "geminga_ledger.writer:LedgerWriter._changed:raise LedgerFenced (2)",
        "geminga_ledger.writer:LedgerWriter._changed:raise self._closed_by_other",
        "geminga_ledger.writer:LedgerWriter._closed:raise self._closed_by_other",
        "geminga_proxy.brokers:RegisteredBrokers._look:except CoordinationError",
        "geminga_proxy.connection:ClientConnection._join:except BaseException",
        "geminga_proxy.connection:ClientConnection._join:except TargetRefused",
        "geminga_proxy.lookups:Lookups._answer:except TimeoutError",
        "geminga_proxy.lookups:Lookups._ask_any:except TimeoutError",
        "geminga_proxy.lookups:Lookups._owner:raise NotConnected (2)",
        "geminga_proxy.proxy:Proxy._close_connections:except TimeoutError",
        "geminga_proxy.targets:TargetRules.check:raise TargetRefused (3)",
    }
)
