"""``geminga admin topics``, except its commands for subscriptions and for single messages."""

from __future__ import annotations

import json
import re
import time
from http import HTTPStatus
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from geminga_cli.admin.components import text_of
from geminga_cli.admin.errors import AdminRefused, InvalidUse
from geminga_cli.admin.groups.messages import MESSAGE_OPERATIONS
from geminga_cli.admin.groups.namespaces import CLUSTERS
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
METADATA = option("--metadata", "-m", read=pairs, metavar="A=1,B=2", help="the topic's properties")
WITH_SYSTEM = switch("--include-system-topic", "-ist", help="with the brokers' own topics")
FORCE = switch("--force", "-f", help="disconnect its clients")
SCHEMA = switch(
    "--deleteSchema",
    "-d",
    help="accepted, as in pulsar-admin; schemas are deleted with their topic anyway",
)
STATS = (
    switch("--get-precise-backlog", "-gpb", help="count the backlog message by message"),
    switch(
        "--get-subscription-backlog-size",
        "-sbs",
        help="accepted, as in pulsar-admin; it is always shown",
    ),
    switch(
        "--get-earliest-time-in-backlog",
        "-etb",
        help="show when the oldest message of the backlog was published",
    ),
)
# Parameters of REST, and the switches above that set them.
STATS_QUERY = {
    "getPreciseBacklog": "get_precise_backlog",
    "getEarliestTimeInBacklog": "get_earliest_time_in_backlog",
}
DOMAINS = ("persistent", "non-persistent")
# How often `compaction-status --wait-complete` asks.
POLL_S = 0.5


def list_topics(service: AdminService, given: Given) -> list[str]:
    """The topics of a namespace, of both domains unless one is given."""
    query = {"includeSystemTopic": True} if given.include_system_topic else {}
    if given.bundle is not None:
        query["bundle"] = given.bundle
    wanted = given.topic_domain
    # REST lists one domain at a time.
    found: list[str] = []
    for domain in (wanted.replace("_", "-"),) if wanted else DOMAINS:
        found += service.ask("GET", f"{domain}/{given.namespace}", query)
    return sorted(found)


def list_partitioned_topics(service: AdminService, given: Given) -> list[str]:
    """The partitioned topics of a namespace."""
    query = {"includeSystemTopic": True} if given.include_system_topic else {}
    found: list[str] = []
    for domain in DOMAINS:
        found += service.ask("GET", f"{domain}/{given.namespace}/partitioned", query)
    return sorted(found)


def delete_topics(service: AdminService, given: Given) -> None:
    """Delete one topic, those whose names match (``--regex``), or those in a file."""
    if given.regex and given.from_file:
        raise InvalidUse("--regex and --from-file do not go together")
    if given.from_file:
        lines = text_of(Path(given.topic)).splitlines()
        names = [line for each in lines if (line := each.strip())]
        paths = [topic(each) for each in names]
    elif given.regex:
        paths = _matching(service, given.topic)
    else:
        paths = [topic(given.topic)]
    # One after the other: the first that is refused ends the command, and the others stay.
    for each in paths:
        service.ask("DELETE", each, {"force": given.force})


def _matching(service: AdminService, text: str) -> list[UrlPath]:
    """The topics whose last part of the name matches, in one namespace."""
    whole = text if "://" in text else f"persistent://{text}"
    # The pattern may have slashes; the first two end tenant and namespace.
    domain, _, rest = whole.partition("://")
    parts = rest.split("/", 2)
    if len(parts) != 3:
        raise InvalidUse(f"{text!r} should be TENANT/NAMESPACE/PATTERN")
    try:
        # Python's expressions, where pulsar-admin has Java's: what both have in common is what
        # people write.
        pattern = re.compile(parts[2])
    except re.error as error:
        raise InvalidUse(f"{parts[2]!r} is no regular expression: {error}") from None
    names: list[str] = service.ask("GET", f"{domain}/{namespace('/'.join(parts[:2]))}")
    # persistent://tenant/namespace/NAME
    return [topic(each) for each in names if pattern.fullmatch(each.split("/", 4)[4])]


def look_up(service: AdminService, given: Given) -> str:
    """The URL of the broker that serves a topic."""
    return _broker_of(service, path("/lookup/v2/topic/{topic}", given))


def _broker_of(service: AdminService, lookup: str) -> str:
    found: dict[str, str] = service.ask("GET", lookup)
    # A broker may serve TLS only.
    return found.get("brokerUrl") or found["brokerUrlTls"]


def look_up_partitions(service: AdminService, given: Given) -> dict[str, Any]:
    """By partition, the URL of its broker; with ``--sort-by-broker`` by broker, its partitions."""
    # 0 for a topic without partitions, and for one that does not exist.
    count = service.ask("GET", path("{topic}/partitions", given))["partitions"]
    # The argument is a part of a URL, the answer has names of topics.
    domain, rest = given.topic.split("/", 1)
    name = f"{domain}://{unquote(rest)}"
    if not count:
        raise InvalidUse(f"{name} is not partitioned; topics lookup finds it")
    brokers: dict[str, str] = {}
    for index in range(count):
        # A lookup loads the partition's bundle, where no broker owns it yet.
        lookup = f"/lookup/v2/topic/{given.topic}-partition-{index}"
        brokers[f"{name}-partition-{index}"] = _broker_of(service, lookup)
    if not given.sort_by_broker:
        return brokers
    by_broker: dict[str, list[str]] = {}
    for each, broker in brokers.items():
        by_broker.setdefault(broker, []).append(each)
    return by_broker


def create_missed_partitions(service: AdminService, given: Given) -> None:
    """Create each partition that does not exist."""
    partitions = service.ask("GET", path("{topic}/partitions", given))["partitions"]
    # Partitions are created one by one; a creation that was interrupted leaves gaps.
    for index in range(partitions):
        try:
            service.ask("PUT", f"{given.topic}-partition-{index}")
        except AdminRefused as error:
            if error.status != HTTPStatus.CONFLICT:  # it exists
                raise


def create_partitioned_topic(service: AdminService, given: Given) -> None:
    """Create a topic with partitions. REST takes their number alone, or an object."""
    # A bare number is the older form, which every broker knows.
    content = given.partitions
    if given.metadata:
        content = {"partitions": given.partitions, "properties": given.metadata}
    service.ask("PUT", path("{topic}/partitions", given), content=content)


def compaction_status(service: AdminService, given: Given) -> str:
    """The result of the last compaction; with ``--wait-complete``, once it has ended."""
    while True:
        report = service.ask("GET", path("{topic}/compaction", given))
        # It may take hours: there is no deadline, as in pulsar-admin.
        if not given.wait_complete or report["status"] != "RUNNING":
            break
        time.sleep(POLL_S)
    # Refused, so that a script sees it by the exit code.
    if report["status"] == "ERROR":
        raise AdminRefused(500, f"The last compaction failed: {report['lastError']}")
    # The words are those of pulsar-admin.
    return {
        "NOT_RUN": "Compaction has not been run for this topic since the broker started",
        "RUNNING": "Compaction is running",
        "SUCCESS": "Compaction was a success",
    }.get(report["status"], str(report["status"]))


def update_partitions(service: AdminService, given: Given) -> None:
    """Give a topic more partitions."""
    # More only: fewer would leave messages where no consumer looks for them.
    query = {"updateLocalTopicOnly": given.update_local_only, "force": given.force}
    service.ask("POST", path("{topic}/partitions", given), query, given.partitions)


def backlog_size(service: AdminService, given: Given) -> int:
    """The bytes of a topic from a message on."""
    where = path("{topic}/backlogSize", given)
    # PUT, although it changes nothing: the message id is a body, which GET has not.
    size: int = service.ask("PUT", where, content=given.messageId)
    return size


def internal_info(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
    """The records of a topic; brokers send this JSON as text inside JSON."""
    value = service.ask("GET", path("{topic}/internal-info", given))
    # ``ManagedLedgerInfo`` as ``PersistentTopicsBase`` writes it.
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value


# Topics from their creation to their end.
LIFE = (
    Operation(
        "list",
        "list a namespace's topics, each partition by itself",
        (
            NAMESPACE,
            option(
                "--topic-domain",
                "-td",
                choices=("persistent", "non_persistent"),
                help="only topics of this domain",
            ),
            option("--bundle", "-b", metavar="0xA_0xB", help="only topics of this bundle"),
            WITH_SYSTEM,
        ),
        list_topics,
    ),
    Operation(
        "list-partitioned-topics",
        "list a namespace's partitioned topics",
        (NAMESPACE, WITH_SYSTEM),
        list_partitioned_topics,
    ),
    # Creating a topic that exists is refused (409), so that a script that is run twice notices it.
    Operation(
        "create",
        "create a topic without partitions",
        (TOPIC, METADATA),
        sends("PUT", "{topic}", lambda given: given.metadata),
    ),
    Operation(
        "create-partitioned-topic",
        "create a topic with partitions",
        (TOPIC, option("--partitions", "-p", read=int, required=True, help="how many"), METADATA),
        create_partitioned_topic,
    ),
    Operation(
        "create-missed-partitions",
        "create the partitions of a topic that do not exist",
        (TOPIC,),
        create_missed_partitions,
    ),
    # Messages stay in the partitions where they are. With keys, later messages of one key may go to
    # another partition than the earlier ones.
    Operation(
        "update-partitioned-topic",
        "give a topic more partitions",
        (
            TOPIC,
            option(
                "--partitions", "-p", read=int, required=True, help="how many it has afterwards"
            ),
            switch("--update-local-only", "-ulo", help="in this cluster only"),
            switch("--force", "-f", help="without a check of the partitions that exist"),
        ),
        update_partitions,
    ),
    Operation(
        "get-partitioned-topic-metadata",
        "show how many partitions a topic has",
        (TOPIC,),
        gets("{topic}/partitions"),
    ),
    # Without --force a topic with connected clients is refused.
    Operation(
        "delete",
        "delete a topic without partitions",
        (
            place("topic", "its name; with --regex TENANT/NAMESPACE/PATTERN, or a file's name"),
            FORCE,
            SCHEMA,
            switch("--regex", "-r", help="all topics whose names match"),
            switch("--from-file", help="all topics that a file lists, one in a line"),
        ),
        delete_topics,
    ),
    Operation(
        "delete-partitioned-topic",
        "delete a topic with its partitions",
        (TOPIC, FORCE, SCHEMA),
        sends("DELETE", "{topic}/partitions", query={"force": "force"}),
    ),
    # Nothing is lost: the broker closes producers and consumers, and their clients look the topic
    # up again.
    Operation(
        "unload",
        "close a topic; it is served again when clients return",
        (TOPIC,),
        sends("PUT", "{topic}/unload"),
    ),
    # From then on producers are refused for good (TopicTerminated), and consumers that have read
    # all are told so (REACHED_END_OF_TOPIC).
    Operation(
        "terminate",
        "let a topic accept no more messages, which cannot be undone; show its last one",
        (TOPIC,),
        sends("POST", "{topic}/terminate"),
    ),
    Operation(
        "partitioned-terminate",
        "terminate all partitions of a topic",
        (TOPIC,),
        sends("POST", "{topic}/terminate/partitions"),
    ),
    # Also of subscriptions that have not read them: their positions move to the end.
    Operation(
        "truncate",
        "delete all messages of a topic, acknowledged or not",
        (TOPIC,),
        sends("DELETE", "{topic}/truncate"),
    ),
    Operation(
        "trim-topic",
        "delete the ledgers of a topic that are no longer needed",
        (TOPIC,),
        sends("POST", "{topic}/trim"),
    ),
    # It only begins here; ``compaction-status`` shows whether it has ended.
    Operation(
        "compact",
        "compact a topic: keep the newest message of each key",
        (TOPIC,),
        sends("PUT", "{topic}/compaction"),
    ),
    Operation(
        "compaction-status",
        "show the result of the last compaction",
        (TOPIC, switch("--wait-complete", "-w", help="wait until it has ended")),
        compaction_status,
    ),
)

# A lookup as clients do it: a bundle without an owner gets one.
WHERE = (
    Operation("lookup", "show which broker serves a topic", (TOPIC,), look_up),
    Operation(
        "partitioned-lookup",
        "show which brokers serve the partitions of a topic",
        (TOPIC, switch("--sort-by-broker", "-s", help="list partitions by broker")),
        look_up_partitions,
    ),
    Operation(
        "bundle-range",
        "show the bundle of a topic",
        (TOPIC,),
        gets("/lookup/v2/topic/{topic}/bundle"),
    ),
)

# The broker that owns the topic answers from memory; of a partitioned topic, the broker that is
# asked collects the answers of all owners.
STATS_OPERATIONS = (
    Operation(
        "stats",
        "show the producers, subscriptions, consumers and rates of a topic",
        (TOPIC, *STATS),
        gets("{topic}/stats", STATS_QUERY),
        show_stats,
    ),
    Operation(
        "partitioned-stats",
        "show the statistics of a partitioned topic as a whole",
        (TOPIC, switch("--per-partition", help="and those of each partition"), *STATS),
        gets("{topic}/partitioned-stats", STATS_QUERY | {"perPartition": "per_partition"}),
        show_partitioned_stats,
    ),
    Operation(
        "stats-internal",
        "show the ledgers and cursors of a topic",
        (TOPIC, switch("--metadata", "-m", help="with the metadata of each ledger")),
        gets("{topic}/internalStats", {"metadata": "metadata"}),
    ),
    Operation(
        "partitioned-stats-internal",
        "show the ledgers and cursors of each partition",
        (TOPIC,),
        gets("{topic}/partitioned-internalStats"),
    ),
    Operation(
        "info-internal",
        "show the records of a topic in ZooKeeper",
        (TOPIC,),
        internal_info,
    ),
    Operation(
        "get-backlog-size",
        "show how many bytes a topic has from a message on",
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
        backlog_size,
    ),
)

REPLICATION = (
    Operation(
        "set-replication-clusters",
        "replicate a topic between these clusters, this one included, whatever its namespace says",
        (TOPIC, CLUSTERS),
        sends("POST", "{topic}/replication", attrgetter("clusters")),
    ),
    Operation(
        "get-replication-clusters",
        "show the clusters that are set for a topic itself",
        (TOPIC, switch("--applied", "-ap", help="where none are set, show those of its namespace")),
        gets("{topic}/replication", {"applied": "applied"}),
    ),
    Operation(
        "remove-replication-clusters",
        "replicate a topic as its namespace says",
        (TOPIC,),
        sends("DELETE", "{topic}/replication"),
    ),
)

# Subscriptions and messages have modules of their own; in pulsar-admin they are commands of topics.
OPERATIONS = (
    LIFE + WHERE + STATS_OPERATIONS + SUBSCRIPTION_OPERATIONS + MESSAGE_OPERATIONS + REPLICATION
)
