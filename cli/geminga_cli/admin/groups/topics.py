"""``geminga admin topics``: topics as wholes; subscriptions and messages have own modules."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from geminga_cli.admin.errors import AdminRefused, InvalidUse
from geminga_cli.admin.groups.messages import MESSAGE_OPERATIONS
from geminga_cli.admin.groups.namespaces import CLUSTERS, clusters_given
from geminga_cli.admin.groups.subscriptions import SUBSCRIPTION_OPERATIONS
from geminga_cli.admin.operation import (
    Given,
    Operation,
    UrlPath,
    gets,
    option,
    path,
    place,
    sends,
    switch,
)
from geminga_cli.admin.service import AdminService
from geminga_cli.admin.values import message_id, namespace, pairs, topic
from geminga_cli.display.topic_stats import show_partitioned_stats, show_stats

TOPIC = place("topic", "its name: NAME, TENANT/NAMESPACE/NAME, persistent://…", topic)
NAMESPACE = place("namespace", "tenant/namespace", namespace)
METADATA = option("--metadata", "-m", read=pairs, metavar="A=1,B=2", help="its properties")
WITH_SYSTEM = switch("--include-system-topic", "-ist", help="the brokers' own too")
FORCE = switch("--force", "-f", help="disconnect who uses it")
SCHEMA = switch("--deleteSchema", "-d", help="as pulsar-admin; schemas go with their topic anyway")
STATS = (
    switch("--get-precise-backlog", "-gpb", help="count the backlog message by message"),
    switch("--get-subscription-backlog-size", "-sbs", help="as pulsar-admin; it is always shown"),
    switch("--get-earliest-time-in-backlog", "-etb", help="when the oldest of it was published"),
)
STATS_QUERY = {
    "getPreciseBacklog": "get_precise_backlog",
    "getEarliestTimeInBacklog": "get_earliest_time_in_backlog",
}
DOMAINS = ("persistent", "non-persistent")
POLL_S = 0.5


def _list(service: AdminService, given: Given) -> list[str]:
    wanted = given.topic_domain
    query = {"includeSystemTopic": True} if given.include_system_topic else {}
    if given.bundle is not None:
        query["bundle"] = given.bundle
    found: list[str] = []
    for domain in (wanted.replace("_", "-"),) if wanted else DOMAINS:
        found += service.ask("GET", f"{domain}/{given.namespace}", query)
    return sorted(found)


def _list_partitioned(service: AdminService, given: Given) -> list[str]:
    query = {"includeSystemTopic": True} if given.include_system_topic else {}
    found: list[str] = []
    for domain in DOMAINS:
        found += service.ask("GET", f"{domain}/{given.namespace}/partitioned", query)
    return sorted(found)


def _delete(service: AdminService, given: Given) -> None:
    """Delete one topic; with ``--regex`` those of a namespace, with ``--from-file`` those in a
    file."""
    if given.regex and given.from_file:
        raise InvalidUse("--regex and --from-file do not go together")
    if given.from_file:
        names = [
            line for each in Path(given.topic).read_text().splitlines() if (line := each.strip())
        ]
        paths = [topic(each) for each in names]
    elif given.regex:
        paths = _matching(service, given.topic)
    else:
        paths = [topic(given.topic)]
    for each in paths:
        service.ask("DELETE", each, {"force": given.force})


def _matching(service: AdminService, text: str) -> list[UrlPath]:
    whole = text if "://" in text else f"persistent://{text}"
    domain, _, rest = whole.partition("://")
    parts = rest.split("/", 2)
    if len(parts) != 3:
        raise InvalidUse(f"{text!r} should be TENANT/NAMESPACE/PATTERN")
    try:
        pattern = re.compile(parts[2])
    except re.error as error:
        raise InvalidUse(f"{parts[2]!r} is no regular expression: {error}") from None
    names: list[str] = service.ask("GET", f"{domain}/{namespace('/'.join(parts[:2]))}")
    return [topic(each) for each in names if pattern.fullmatch(each.split("/", 4)[4])]


def _lookup(service: AdminService, given: Given) -> str:
    found: dict[str, str] = service.ask("GET", path("/lookup/v2/topic/{topic}", given))
    return found.get("brokerUrl") or found["brokerUrlTls"]


def _partitioned_lookup(service: AdminService, given: Given) -> dict[str, Any]:
    record = service.ask("GET", path("{topic}/partitions", given))
    partitions = record["partitions"]
    if not partitions:
        raise InvalidUse(f"{_name(given.topic)} is not partitioned; topics lookup finds it")
    brokers: dict[str, str] = {}
    for index in range(partitions):
        found = service.ask("GET", f"/lookup/v2/topic/{given.topic}-partition-{index}")
        brokers[f"{_name(given.topic)}-partition-{index}"] = found["brokerUrl"]
    if not given.sort_by_broker:
        return brokers
    by_broker: dict[str, list[str]] = {}
    for each, broker in brokers.items():
        by_broker.setdefault(broker, []).append(each)
    return by_broker


def _name(url_path: str) -> str:
    domain, rest = url_path.split("/", 1)
    return f"{domain}://{unquote(rest)}"


def _create_missed(service: AdminService, given: Given) -> None:
    partitions = service.ask("GET", path("{topic}/partitions", given))["partitions"]
    for index in range(partitions):
        try:
            service.ask("PUT", f"{given.topic}-partition-{index}")
        except AdminRefused as error:
            if error.status != 409:
                raise


def _create_partitioned(service: AdminService, given: Given) -> None:
    if given.metadata:
        content = {"partitions": given.partitions, "properties": given.metadata}
        service.ask("PUT", path("{topic}/partitions", given), content=content)
    else:
        service.ask("PUT", path("{topic}/partitions", given), content=given.partitions)


def _compaction(service: AdminService, given: Given) -> str:
    """What became of the last compaction; ``--wait-complete``: as soon as it is over."""
    while True:
        report = service.ask("GET", path("{topic}/compaction", given))
        if not given.wait_complete or report["status"] != "RUNNING":
            break
        time.sleep(POLL_S)
    if report["status"] == "ERROR":
        raise AdminRefused(500, f"The last compaction failed: {report['lastError']}")
    return {
        "NOT_RUN": "Compaction has not been run for this topic since the broker started",
        "RUNNING": "Compaction is running",
        "SUCCESS": "Compaction was a success",
    }.get(report["status"], str(report["status"]))


def _update_partitions(service: AdminService, given: Given) -> None:
    query = {"updateLocalTopicOnly": given.update_local_only, "force": given.force}
    service.ask("POST", path("{topic}/partitions", given), query, given.partitions)


def _backlog_size(service: AdminService, given: Given) -> int:
    where = path("{topic}/backlogSize", given)
    size: int = service.ask("PUT", where, content=given.messageId)
    return size


def _json_or_text(value: Any) -> Any:  # noqa: ANN401 - JSON
    """What is JSON inside of JSON is shown as such."""
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value


LIFE = (
    Operation(
        "list",
        "list a namespace's topics, partitions one by one",
        (
            NAMESPACE,
            option(
                "--topic-domain",
                "-td",
                choices=("persistent", "non_persistent"),
                help="only these",
            ),
            option("--bundle", "-b", metavar="0xA_0xB", help="only of this bundle"),
            WITH_SYSTEM,
        ),
        _list,
    ),
    Operation(
        "list-partitioned-topics",
        "list a namespace's partitioned topics",
        (NAMESPACE, WITH_SYSTEM),
        _list_partitioned,
    ),
    Operation(
        "create",
        "make a topic without partitions",
        (TOPIC, METADATA),
        sends("PUT", "{topic}", lambda given: given.metadata),
    ),
    Operation(
        "create-partitioned-topic",
        "make a topic with partitions",
        (TOPIC, option("--partitions", "-p", read=int, required=True, help="how many"), METADATA),
        _create_partitioned,
    ),
    Operation(
        "create-missed-partitions",
        "make those of its partitions that are not there",
        (TOPIC,),
        _create_missed,
    ),
    Operation(
        "update-partitioned-topic",
        "give a topic more partitions",
        (
            TOPIC,
            option("--partitions", "-p", read=int, required=True, help="how many it then has"),
            switch("--update-local-only", "-ulo", help="in this cluster only"),
            switch("--force", "-f", help="without a look at the partitions there are"),
        ),
        _update_partitions,
    ),
    Operation(
        "get-partitioned-topic-metadata",
        "show how many partitions a topic has",
        (TOPIC,),
        gets("{topic}/partitions"),
    ),
    Operation(
        "delete",
        "delete a topic without partitions",
        (
            place("topic", "its name; with --regex TENANT/NAMESPACE/PATTERN, or a file's name"),
            FORCE,
            SCHEMA,
            switch("--regex", "-r", help="all topics whose names match"),
            switch("--from-file", help="all topics that stand in a file, a line each"),
        ),
        _delete,
    ),
    Operation(
        "delete-partitioned-topic",
        "delete a topic with its partitions",
        (TOPIC, FORCE, SCHEMA),
        sends("DELETE", "{topic}/partitions", query={"force": "force"}),
    ),
    Operation("unload", "have it served anew", (TOPIC,), sends("PUT", "{topic}/unload")),
    Operation(
        "terminate",
        "let it take no more messages, for ever; show its last one",
        (TOPIC,),
        sends("POST", "{topic}/terminate"),
    ),
    Operation(
        "partitioned-terminate",
        "the same with all partitions of a topic",
        (TOPIC,),
        sends("POST", "{topic}/terminate/partitions"),
    ),
    Operation(
        "truncate",
        "delete all its messages, acknowledged or not",
        (TOPIC,),
        sends("DELETE", "{topic}/truncate"),
    ),
    Operation(
        "trim-topic",
        "delete the ledgers that nothing needs any more",
        (TOPIC,),
        sends("POST", "{topic}/trim"),
    ),
    Operation(
        "compact", "keep the newest of each key", (TOPIC,), sends("PUT", "{topic}/compaction")
    ),
    Operation(
        "compaction-status",
        "show what became of that",
        (TOPIC, switch("--wait-complete", "-w", help="wait until it is over")),
        _compaction,
    ),
)

WHERE = (
    Operation("lookup", "show which broker serves a topic", (TOPIC,), _lookup),
    Operation(
        "partitioned-lookup",
        "show which brokers serve its partitions",
        (TOPIC, switch("--sort-by-broker", "-s", help="list partitions by broker")),
        _partitioned_lookup,
    ),
    Operation(
        "bundle-range",
        "show which bundle it is in",
        (TOPIC,),
        gets("/lookup/v2/topic/{topic}/bundle"),
    ),
)

STATS_OPERATIONS = (
    Operation(
        "stats",
        "show its producers, subscriptions, consumers and rates",
        (TOPIC, *STATS),
        gets("{topic}/stats", STATS_QUERY),
        show_stats,
    ),
    Operation(
        "partitioned-stats",
        "the same of a partitioned topic as a whole",
        (TOPIC, switch("--per-partition", help="and of each partition"), *STATS),
        gets("{topic}/partitioned-stats", STATS_QUERY | {"perPartition": "per_partition"}),
        show_partitioned_stats,
    ),
    Operation(
        "stats-internal",
        "show its ledgers and cursors",
        (TOPIC, switch("--metadata", "-m", help="with what is stored of each ledger")),
        gets("{topic}/internalStats", {"metadata": "metadata"}),
    ),
    Operation(
        "partitioned-stats-internal",
        "the same of each partition",
        (TOPIC,),
        gets("{topic}/partitioned-internalStats"),
    ),
    Operation(
        "info-internal",
        "show what is stored of it in ZooKeeper",
        (TOPIC,),
        lambda service, given: _json_or_text(
            service.ask("GET", path("{topic}/internal-info", given))
        ),
    ),
    Operation(
        "get-backlog-size",
        "show how many bytes stand from a message on",
        (
            TOPIC,
            option(
                "--messageId",
                "-m",
                read=message_id,
                default=message_id("-1:-1"),
                metavar="LEDGER:ENTRY",
                help="from which message (default: all)",
            ),
        ),
        _backlog_size,
    ),
)

REPLICATION = (
    Operation(
        "set-replication-clusters",
        "replicate it to these clusters, this one among them, whatever its namespace says",
        (TOPIC, CLUSTERS),
        sends("POST", "{topic}/replication", clusters_given),
    ),
    Operation(
        "get-replication-clusters",
        "show to which clusters it says it is replicated",
        (TOPIC, switch("--applied", "-ap", help="or, where it does not say, its namespace")),
        gets("{topic}/replication", {"applied": "applied"}),
    ),
    Operation(
        "remove-replication-clusters",
        "have it replicated as its namespace is",
        (TOPIC,),
        sends("DELETE", "{topic}/replication"),
    ),
)

OPERATIONS = (
    LIFE + WHERE + STATS_OPERATIONS + SUBSCRIPTION_OPERATIONS + MESSAGE_OPERATIONS + REPLICATION
)
