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
        "geminga._transport.service_urls:parse_service_url:raise InvalidServiceUrl",
        "geminga.consumers.entry_reader:EntryReader._wait:except TimeoutError",
        "geminga.consumers.entry_reader:EntryReader.open:except BaseException",
        "geminga.consumers.factory:ConsumerFactory.reader:except BaseException",
        "geminga.consumers.table_rows:TableRows.arrival:raise self.error",
        "geminga.producers.producer:Producer._watch_partitions:except ClientError",
        "geminga.producers.topic_producer:TopicProducer._start:except ClientError",
        "geminga_autorecovery.removal.bookie_recovery:_Recovery._move:except LedgerError",
        "geminga_autorecovery.removal.bookie_recovery:_holder:except (NodeMissing, MalformedRecord)",  # noqa: E501
        "geminga_autorecovery.zookeeper.controls:disable:except NodeExists",
        "geminga_autorecovery.replication.copier:_Batch.read:raise EntriesUnreadable",
        "geminga_autorecovery.replication.copies:_CopyReads.answers:except TimeoutError",
        "geminga_autorecovery.replication.copies:_CopyWrites.run:except TimeoutError",
        "geminga_autorecovery.replication.copies:_CopyWrites.run:raise self._failure",
        "geminga_autorecovery.replication.copies:_connected:except TimeoutError",
        "geminga_autorecovery.replication.copies:_connected:raise BookieUnavailable",
        "geminga_autorecovery.removal.decommission:decommission:raise DecommissionStalled",
        "geminga_autorecovery.removal.decommission:decommission:raise RecoveryDisabled",
        "geminga_autorecovery.removal.decommission:still_on.visit:except NoSuchLedger",
        "geminga_autorecovery.auditing.election:Election._leave:except (CoordinationError, TimeoutError)",  # noqa: E501
        "geminga_autorecovery.auditing.election:Election._take_leader_node:except NodeExists",
        "geminga_autorecovery.zookeeper.underreplication_marks:read_mark:except NodeMissing",
        "geminga_autorecovery.replication.repair:LedgerRepair._mend:raise ClaimLost",
        "geminga_autorecovery.replication.repair:LedgerRepair.repair:except (NoSuchLedger, UnsupportedLedger)",  # noqa: E501
        "geminga_autorecovery.replication.repair:LedgerRepair.take_over:except NoSuchLedger",
        "geminga_autorecovery.decisions.repair_plan:with_replacements:raise FragmentChanged (3)",
        "geminga_autorecovery.replication.worker:ReplicationWorker._give_back:except CoordinationError",  # noqa: E501
        "geminga_autorecovery.replication.worker:ReplicationWorker._let_go:except (LedgerError, CoordinationError)",  # noqa: E501
        "geminga_bookie.bookie:Bookie._replay_journal:except OSError",
        "geminga_bookie.disks.identity:_agreed_cookie:raise CookieMismatch (2)",
        "geminga_bookie.disks.identity:_agreed_cookie:raise CookieMismatch (3)",
        "geminga_bookie.disks.identity:_bookie_id:raise BadBookieId (2)",
        "geminga_bookie.formats.log_list_v1:decode:raise CorruptFile",
        "geminga_bookie.garbage.collector:Collector._reclaim:except CorruptFile",
        "geminga_bookie.garbage.compaction:Compactor.reclaim:except CorruptFile",
        "geminga_bookie.garbage.ledger_deletion:LedgerDeletion._delete_over_replicated:except (CoordinationError, TimeoutError)",  # noqa: E501
        "geminga_bookie.journal.replay:Replay._cut:raise CorruptFile",
        "geminga_bookie.journal.replay:Replay._cut:raise CorruptFile (2)",
        "geminga_bookie.journal.replay:Replay._groups_of:raise CorruptFile",
        "geminga_bookie.journal.replay:Replay._groups_of:raise CorruptFile (2)",
        "geminga_bookie.journal.replay:Replay._next_body:raise CorruptFile",
        "geminga_bookie.journal.replay:Replay.find:raise JournalFileMissing",
        "geminga_bookie.journal.replay:Replay.find:raise JournalFileMissing (2)",
        "geminga_bookie.sessions.long_polls:LongPolls.confirmed:except BookieRefusal",
        "geminga_bookie.sessions.v3:V3Requests._bookie_info:except OSError",
        "geminga_bookie.sessions.v3:V3Requests._bookie_info:raise BookieFailed",
        "geminga_bookie.sessions.v3_adds:V3Adds.force:raise BookieFailed",
        "geminga_bookie.sessions.v3_reads:V3Reads._fenced.fail:raise BookieFailed",
        "geminga_bookie.storage.storage:Storage.entry_runs:except LogRemoved",
        "geminga_bookie.storage.storage:Storage.entry_runs:raise BookieFailed",
        "geminga_bookie.entry_logs.entry_log:EntryLog.open:raise EntryLogMissing",
        "geminga_bookie.entry_logs.open_files:OpenFiles.get:raise CorruptFile",
        "geminga_bookie.entry_logs.open_files:OpenFiles.get:raise LogRemoved",
        "geminga_bookie.entry_logs.open_files:OpenFiles.get:raise LogRemoved (2)",
        "geminga_bookie.entry_logs.entry_log:EntryLog.find:raise EntryLogTwice",
        "geminga_bookie.entry_logs.entry_log:EntryLog.read_ids:except DamagedBlock",
        "geminga_bookie.entry_logs.entry_log:EntryLog.read_whole:raise CorruptFile",
        "geminga_bookie.entry_logs.log_lists:LogLists.losses:except CorruptFile",
        "geminga_bookie.entry_logs.log_scan:scan_log:raise CorruptFile",
        "geminga_bookie.entry_logs.log_scan:scan_log:raise CorruptFile (2)",
        "geminga_bookie.entry_logs.log_scan:scan_log:raise CorruptFile (3)",
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
        "geminga_broker.compaction.compacted_ledger:CompactedLedger.opened:except (LedgerError, CoordinationError)",  # noqa: E501
        "geminga_broker.compaction.compacted_ledger:CompactedLedger.opened:raise StorageUnavailable",  # noqa: E501
        "geminga_broker.compaction.topic_compactor:TopicCompactor._clean_up:except FAILURES",
        "geminga_broker.compaction.topic_compactor:TopicCompactor._compact:except FAILURES",
        "geminga_broker.compaction.topic_compactor:TopicCompactor._source:except CompactedLedgerGone",  # noqa: E501
        "geminga_broker.compaction.topic_compactor:TopicCompactor.trigger:raise TopicFenced",
        "geminga_broker.delayed.messages:DelayedMessages._read_again:except EntryDamaged",
        "geminga_broker.delayed.messages:DelayedMessages._roll_over:except BrokerError",
        "geminga_broker.delayed.messages:DelayedMessages.delete:except (LedgerError, CoordinationError)",  # noqa: E501
        "geminga_broker.delayed.messages:DelayedMessages.delete:raise StorageUnavailable",
        "geminga_broker.delayed.messages:DelayedMessages.recover:except (LedgerError, CoordinationError)",  # noqa: E501
        "geminga_broker.delayed.messages:DelayedMessages.recover:raise StorageUnavailable",
        "geminga_broker.health:HealthCheck.run:except TimeoutError",
        "geminga_broker.health:HealthCheck.run:raise StorageUnavailable",
        "geminga_broker.load_manager.history_records:HistoryRecords.read_bundles.read:except (NodeMissing, MalformedRecord)",  # noqa: E501
        "geminga_broker.managed_ledger.log_browser:scan_backlog:except TimeoutError",
        "geminga_broker.managed_ledger.cursors.cursor_store:CursorStore._take_over:except (EntryCorrupt, NoSuchEntry, MalformedRecord)",  # noqa: E501
        "geminga_broker.managed_ledger.cursors.cursor_store:CursorStore.load:raise VersionMismatch",
        "geminga_broker.managed_ledger.factory:ManagedLedgerFactory.cursor_names:except NodeMissing",  # noqa: E501
        "geminga_broker.managed_ledger.factory:ManagedLedgerFactory.cursor_names:raise TopicNotFound",  # noqa: E501
        "geminga_broker.managed_ledger.managed_ledger:ManagedLedger._switched:except TimeoutError",
        "geminga_broker.managed_ledger.managed_ledger:ManagedLedger._switched:raise StorageUnavailable",  # noqa: E501
        "geminga_broker.managed_ledger.managed_ledger:ManagedLedger.delete:except LedgerError",
        "geminga_broker.managed_ledger.records.recorded_chain:RecordedChain.save:except BaseException",  # noqa: E501
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
        "geminga_broker.ownership.ownership:Ownership.owner_of:raise ServiceNotReady (3)",
        "geminga_broker.replication.remote_clusters:RemoteClusters._look_again:except ClusterUnreachable",  # noqa: E501
        "geminga_broker.replication.remote_clusters:RemoteClusters._record:except ClusterNotFound",
        "geminga_broker.replication.remote_clusters:RemoteClusters._record:raise ClusterUnreachable",  # noqa: E501
        "geminga_broker.replication.remote_clusters:RemoteClusters.channels:except (ClientError, ValueError)",  # noqa: E501
        "geminga_broker.replication.remote_clusters:RemoteClusters.channels:raise ClusterUnreachable",  # noqa: E501
        "geminga_broker.replication.remote_clusters:RemoteClusters.channels:raise ClusterUnreachable (2)",  # noqa: E501
        "geminga_broker.replication.remote_clusters:RemoteClusters.rest:raise ClusterUnreachable (2)",  # noqa: E501
        "geminga_broker.replication.remote_schemas:RemoteSchemas.learn:except SchemaNotFound",
        "geminga_broker.replication.remote_schemas:RemoteSchemas.learn:raise SchemaRefused",
        "geminga_broker.replication.replicator:Replicator._connect_and_send:raise PartitionsDiffer",
        "geminga_broker.schemas.registry:SchemaRegistry._change:raise ServiceNotReady",
        "geminga_broker.schemas.storage:SchemaStorage.append:except CoordinationError",
        "geminga_broker.schemas.storage:SchemaStorage.delete:raise SchemasChanged",
        "geminga_broker.sessions.liveness:Liveness.is_alive:except TimeoutError",
        "geminga_broker.sessions.commands.producers:ProducerCommands._append:except BrokerError",
        "geminga_broker.sessions.requests:Requests._run:except TimeoutError",
        "geminga_broker.subscriptions.cursor_moves.acknowledger:Acknowledger.upto:raise InvalidRequest",  # noqa: E501
        "geminga_broker.subscriptions.non_persistent_subscription:NonPersistentSubscription.check:raise ConsumerBusy (2)",  # noqa: E501
        "geminga_broker.topic_policies.event_log:EventLog._follow:except GemingaError",
        "geminga_broker.topic_policies.event_log:EventLog._has_caught_up:except ClientError",
        "geminga_broker.topics.decisions.consumer_admission:ConsumerAdmission.check_consumers:raise ConsumerBusy (3)",  # noqa: E501
        "geminga_broker.topics.decisions.consumer_admission:check_stored_name:raise NotAllowed",
        "geminga_broker.topics.subscriptions.persistent_subscriptions:PersistentSubscriptions._admit:except ConsumerBusy",  # noqa: E501
        "geminga_broker.topics.subscriptions.persistent_subscriptions:PersistentSubscriptions.delete_subscription:raise TopicFenced",  # noqa: E501
        "geminga_broker.topics.directory:TopicDirectory._left:raise TopicFenced",
        "geminga_broker.topics.directory:TopicDirectory.delete:raise TopicReplicated",
        "geminga_broker.topics.maintenance:TopicMaintenance.delete_unused:except GemingaError",
        "geminga_broker.topics.part:TopicPart.attempt:except GemingaError",
        "geminga_broker.topics.producers.topic_deduplication:TopicDeduplication._catch_up:except GemingaError",  # noqa: E501
        "geminga_broker.topics.topic:Topic._close:except TimeoutError",
        "geminga_broker.topics.topic:Topic._close:except TimeoutError (2)",
        "geminga_broker.topics.topic_replication:TopicReplication.maintain:except GemingaError",
        "geminga_broker.topics.topic_schemas:TopicSchemas.admit_producer:raise IncompatibleSchema (2)",  # noqa: E501
        "geminga_cluster.clusters:Clusters.get:raise ClusterNotFound",
        "geminga_cluster.namespaces:Namespaces.cut_bundle:except NodeMissing (2)",
        "geminga_cluster.namespaces:Namespaces.cut_bundle:raise NamespaceNotFound (2)",
        "geminga_cluster.partitioned_topics:PartitionedTopics.delete:except NodeMissing",
        "geminga_cluster.partitioned_topics:PartitionedTopics.delete:raise PartitionedTopicNotFound",  # noqa: E501
        "geminga_cluster.partitioned_topics:_create_nodes:except NodeExists",
        "geminga_functions.cleanup:Cleanup._clean:except geminga.ClientError",
        "geminga_functions.cleanup:Cleanup._has_done:except ServerUnreachable",
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
        "geminga_ledger.entries.digests:_Decoder._check:raise EntryDigestMismatch",
        "geminga_ledger.writing.explicit_lac:ExplicitLac._tell:except BookieUnavailable",
        "geminga_ledger.reading.lac_read:LacRead._ask:except EntryDigestMismatch",
        "geminga_ledger.reading.last_entry_poll:LastEntryPoll.read_answered:except EntryDigestMismatch",  # noqa: E501
        "geminga_ledger.reading.ledger_view:LedgerView.wait:except (TimeoutError, CoordinationError)",  # noqa: E501
        "geminga_ledger.writing.pipeline:AddPipeline.append_all:raise self._refusal",
        "geminga_ledger.recovery:LedgerRecovery._attempt.closed:raise RecoveryUndecided",
        "geminga_ledger.recovery:LedgerRecovery._recover_tail:raise pipeline.failure",
        "geminga_ledger.recovery:LedgerRecovery._length_at:raise RecoveryUndecided",
        "geminga_ledger.metadata.store:LedgerStore._create_as:except NoSuchLedger",
        "geminga_ledger.connections.v3_link:V3Link._connected:raise BookieUnavailable (2)",
        "geminga_ledger.connections.v3_link:V3Link.ask:except TimeoutError",
        "geminga_ledger.connections.v3_link:V3Link.ask:raise BookieUnavailable",
        "geminga_ledger.writing.writer:LedgerWriter._change_ensemble.changed:raise LedgerFenced (2)",  # noqa: E501
        "geminga_ledger.writing.writer:LedgerWriter._change_ensemble.changed:raise self._closed_by_other",  # noqa: E501
        "geminga_ledger.writing.writer:LedgerWriter._with_end:raise self._closed_by_other",
        "geminga_proxy.brokers:RegisteredBrokers._look:except CoordinationError",
        "geminga_proxy.connection:ClientConnection._join:except BaseException",
        "geminga_proxy.connection:ClientConnection._join:except TargetRefused",
        "geminga_proxy.lookups:Lookups._answer:except TimeoutError",
        "geminga_proxy.lookups:Lookups._ask_any:except TimeoutError",
        "geminga_proxy.lookups:Lookups._owner:raise NotConnected (2)",
        "geminga_proxy.proxy:Proxy._close_connections:except TimeoutError",
        "geminga_proxy.addresses.targets:TargetRules.check:raise TargetRefused (3)",
    }
)
