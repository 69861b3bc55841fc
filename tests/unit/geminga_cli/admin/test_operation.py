"""Proves that each command asks what its words say, of a path that brokers serve, as upstream's."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from starlette.routing import Match
from tests.unit.geminga_cli.admin.recording_service import (
    Asked,
    RecordingService,
    done,
    given_for,
    operation_of,
)

from geminga_broker.admin.app import ROUTERS
from geminga_cli.admin.errors import AdminRefused, InvalidUse
from geminga_cli.admin.operation import Argument, Operation
from geminga_cli.commands.admin import GROUPS, operations_of

# pulsar-admin's commands and their options, asked of Apache Pulsar 4.0.6's own command tree.
UPSTREAM: Mapping[str, Mapping[str, list[str]]] = json.loads(
    Path(__file__).with_name("pulsar_admin_words.json").read_text()
)
# Upstream's options that are not taken here, and why.
LEFT_OUT = {
    "clusters": re.compile(
        r"--tls-(enable-keystore|trust-store|key-store|factory).*|--cluster-config-file"
    ),
    "set-persistence": re.compile(r"-c|--ml-storage-class"),  # brokers have one storage class
    "functions": re.compile(r"--autoAck"),  # it takes no value, unlike --auto-ack
    # Names of Java's classes, services that do not exist here, and the runtime of Java's threads;
    # what runs on this machine reaches brokers without TLS and credentials.
    "localrun": re.compile(
        r"--autoAck|--client-?auth.*|--hostname.verification.enabled|--metrics-port-start|--runtime"
        r"|--secrets-provider-.*|--state-?storage-?service-?url|--(use.)?tls.*",
        re.IGNORECASE,
    ),
    "peek-messages": re.compile(r"-til|--transaction-isolation-level"),  # no transactions yet
}
# Of ours alone.
ADDED_WORDS = {"functions": {"dev"}}
REFUSALS = (InvalidUse, argparse.ArgumentTypeError, argparse.ArgumentError, SystemExit)


def everything() -> Iterator[tuple[str, Operation]]:
    for group in GROUPS:
        for operation in operations_of(group):
            yield group, operation


# Those of ``subscriptions`` are those of ``topics`` with shorter words.
UPSTREAMS = [
    pytest.param(group, each, id=f"{group}-{each.word}")
    for group, each in everything()
    if group != "subscriptions" and each.word not in ADDED_WORDS.get(group, ())
]


@pytest.mark.parametrize(("group", "operation"), UPSTREAMS)
def test_words_and_options_are_upstreams(group: str, operation: Operation) -> None:
    flags = UPSTREAM[group].get(operation.word)
    assert flags is not None, "pulsar-admin has no such command"
    ours = {name for each in operation.arguments for name in each.names if name.startswith("-")}
    known = {_spelled(flag) for flag in flags}
    left_out = LEFT_OUT.get(operation.word, LEFT_OUT.get(group, re.compile("(?!)")))
    assert {each for each in known - ours if not left_out.fullmatch(each)} == set()


def _spelled(flag: str) -> str:
    """Upstream's ``regex`` is a slip: an option without its dashes."""
    return flag if flag.startswith("-") else f"--{flag}"


def test_subscriptions_have_the_commands_that_topics_have_for_them() -> None:
    theirs = {each.summary: each.arguments for each in operations_of("topics")}
    for each in operations_of("subscriptions"):
        assert theirs[each.summary] == each.arguments


LINES = {
    "tenants list": [Asked("GET", "tenants")],
    "tenants get acme": [Asked("GET", "tenants/acme")],
    "tenants create acme -r a,b -c east": [
        Asked("PUT", "tenants/acme", {}, {"adminRoles": ["a", "b"], "allowedClusters": ["east"]})
    ],
    "tenants delete acme -f": [Asked("DELETE", "tenants/acme", {"force": True})],
    "clusters get a/b": [Asked("GET", "clusters/a%2Fb")],
    "clusters create east --url http://e:8080 --broker-url pulsar://e:6650": [
        Asked(
            "PUT",
            "clusters/east",
            {},
            {
                "serviceUrl": "http://e:8080",
                "brokerServiceUrl": "pulsar://e:6650",
                "brokerClientTlsEnabled": False,
                "tlsAllowInsecureConnection": False,
            },
        )
    ],
    "clusters delete east": [Asked("DELETE", "clusters/east")],
    "schemas get orders": [Asked("GET", "schemas/public/default/orders/schema")],
    "schemas get acme/ns/orders -v 3": [Asked("GET", "schemas/acme/ns/orders/schema/3")],
    "schemas metadata acme/ns/a%b": [Asked("GET", "schemas/acme/ns/a%25b/metadata")],
    "schemas delete acme/ns/orders -f": [
        Asked("DELETE", "schemas/acme/ns/orders/schema", {"force": True})
    ],
    "brokers list": [Asked("GET", "brokers")],
    "brokers list east": [Asked("GET", "brokers/east")],
    "brokers healthcheck": [Asked("GET", "brokers/health", {"topicVersion": "V2"})],
    "brokers update-dynamic-config -c a -v 1/2": [Asked("POST", "brokers/configuration/a/1%2F2")],
    "namespaces list acme": [Asked("GET", "namespaces/acme")],
    "namespaces set-clusters acme/ns -c east,west": [
        Asked("POST", "namespaces/acme/ns/replication", {}, ["east", "west"])
    ],
    "namespaces set-allowed-clusters acme/ns --clusters east,west": [
        Asked("POST", "namespaces/acme/ns/allowedClusters", {}, ["east", "west"])
    ],
    "namespaces get-allowed-clusters acme/ns": [Asked("GET", "namespaces/acme/ns/allowedClusters")],
    "namespaces get-clusters acme/ns": [Asked("GET", "namespaces/acme/ns/replication")],
    "namespaces create acme/ns -b 4 -c east,west": [
        Asked(
            "PUT",
            "namespaces/acme/ns",
            {},
            {"replication_clusters": ["east", "west"], "bundles": {"numBundles": 4}},
        )
    ],
    "namespaces topics acme/ns -m all -ist": [
        Asked("GET", "namespaces/acme/ns/topics", {"mode": "ALL", "includeSystemTopic": True})
    ],
    "namespaces unload acme/ns": [Asked("PUT", "namespaces/acme/ns/unload")],
    "namespaces unload acme/ns -b 0x0_0x1 -d b:1": [
        Asked("PUT", "namespaces/acme/ns/0x0_0x1/unload", {"destinationBroker": "b:1"})
    ],
    "namespaces clear-backlog acme/ns": [Asked("POST", "namespaces/acme/ns/clearBacklog")],
    "namespaces clear-backlog acme/ns -s a/b -b 0x0_0x1": [
        Asked("POST", "namespaces/acme/ns/0x0_0x1/clearBacklog/a%2Fb")
    ],
    "namespaces unsubscribe acme/ns -s sub": [Asked("POST", "namespaces/acme/ns/unsubscribe/sub")],
    "namespaces set-retention acme/ns -t 3h -s 10G": [
        Asked(
            "POST",
            "namespaces/acme/ns/retention",
            {},
            {"retentionTimeInMinutes": 180, "retentionSizeInMB": 10_240},
        )
    ],
    "namespaces set-retention acme/ns -t -1 -s -1": [
        Asked(
            "POST",
            "namespaces/acme/ns/retention",
            {},
            {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
        )
    ],
    "namespaces set-persistence acme/ns -e 3 -w 3 -a 2 -r 0.5": [
        Asked(
            "POST",
            "namespaces/acme/ns/persistence",
            {},
            {
                "bookkeeperEnsemble": 3,
                "bookkeeperWriteQuorum": 3,
                "bookkeeperAckQuorum": 2,
                "managedLedgerMaxMarkDeleteRate": 0.5,
            },
        )
    ],
    "namespaces get-backlog-quotas acme/ns": [Asked("GET", "namespaces/acme/ns/backlogQuotaMap")],
    "namespaces set-backlog-quota acme/ns -lt 1h -t message_age -p producer_exception": [
        Asked(
            "POST",
            "namespaces/acme/ns/backlogQuota",
            {"backlogQuotaType": "message_age"},
            {"limitSize": -1, "limitTime": 3_600, "policy": "producer_exception"},
        )
    ],
    "namespaces remove-backlog-quota acme/ns": [
        Asked(
            "DELETE",
            "namespaces/acme/ns/backlogQuota",
            {"backlogQuotaType": "destination_storage"},
        )
    ],
    "namespaces set-message-ttl acme/ns -ttl 2d": [
        Asked("POST", "namespaces/acme/ns/messageTTL", {}, 172_800)
    ],
    "namespaces set-compaction-threshold acme/ns -t 10M": [
        Asked("PUT", "namespaces/acme/ns/compactionThreshold", {}, 10 << 20)
    ],
    "namespaces set-delayed-delivery acme/ns -e -t 500 -md 3d": [
        Asked(
            "POST",
            "namespaces/acme/ns/delayedDelivery",
            {},
            {"active": True, "tickTime": 500, "maxDeliveryDelayInMillis": 259_200_000},
        )
    ],
    "namespaces set-auto-topic-creation acme/ns -e -t partitioned -n 3": [
        Asked(
            "POST",
            "namespaces/acme/ns/autoTopicCreation",
            {},
            {
                "allowAutoTopicCreation": True,
                "topicType": "partitioned",
                "defaultNumPartitions": 3,
            },
        )
    ],
    "namespaces set-auto-topic-creation acme/ns -d": [
        Asked("POST", "namespaces/acme/ns/autoTopicCreation", {}, {"allowAutoTopicCreation": False})
    ],
    "namespaces set-auto-subscription-creation acme/ns": [
        Asked(
            "POST",
            "namespaces/acme/ns/autoSubscriptionCreation",
            {},
            {"allowAutoSubscriptionCreation": False},
        )
    ],
    "namespaces set-inactive-topic-policies acme/ns -e -t 1h -m delete_when_no_subscriptions": [
        Asked(
            "POST",
            "namespaces/acme/ns/inactiveTopicPolicies",
            {},
            {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 3_600,
                "deleteWhileInactive": True,
            },
        )
    ],
    "namespaces set-deduplication acme/ns -d": [
        Asked("POST", "namespaces/acme/ns/deduplication", {}, content=False)
    ],
    "namespaces set-publish-rate acme/ns -m 10": [
        Asked(
            "POST",
            "namespaces/acme/ns/publishRate",
            {},
            {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1},
        )
    ],
    "namespaces set-dispatch-rate acme/ns -md 10 -dt 2 -rp": [
        Asked(
            "POST",
            "namespaces/acme/ns/dispatchRate",
            {},
            {
                "dispatchThrottlingRateInMsg": 10,
                "dispatchThrottlingRateInByte": -1,
                "ratePeriodInSecond": 2,
                "relativeToPublishRate": True,
            },
        )
    ],
    "namespaces set-subscribe-rate acme/ns -sr 5": [
        Asked(
            "POST",
            "namespaces/acme/ns/subscribeRate",
            {},
            {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 30},
        )
    ],
    "namespaces set-subscription-types-enabled acme/ns -t Shared,Failover": [
        Asked("POST", "namespaces/acme/ns/subscriptionTypesEnabled", {}, ["Shared", "Failover"])
    ],
    "topics set-replication-clusters orders -c east,west": [
        Asked("POST", "persistent/public/default/orders/replication", {}, ["east", "west"])
    ],
    "topics remove-replication-clusters orders": [
        Asked("DELETE", "persistent/public/default/orders/replication")
    ],
    "topics get-replication-clusters a -ap": [
        Asked("GET", "persistent/public/default/a/replication", {"applied": True})
    ],
    "namespaces set-max-producers-per-topic acme/ns -p 7": [
        Asked("POST", "namespaces/acme/ns/maxProducersPerTopic", {}, 7)
    ],
    "namespaces set-max-unacked-messages-per-consumer acme/ns -c 8": [
        Asked("POST", "namespaces/acme/ns/maxUnackedMessagesPerConsumer", {}, 8)
    ],
    "topics create orders -m a=1,b=2": [
        Asked("PUT", "persistent/public/default/orders", {}, {"a": "1", "b": "2"})
    ],
    "topics create non-persistent://acme/ns/a?b": [Asked("PUT", "non-persistent/acme/ns/a%3Fb")],
    "topics create-partitioned-topic acme/ns/orders -p 3": [
        Asked("PUT", "persistent/acme/ns/orders/partitions", {}, 3)
    ],
    "topics update-partitioned-topic acme/ns/orders -p 5": [
        Asked(
            "POST",
            "persistent/acme/ns/orders/partitions",
            {"updateLocalTopicOnly": False, "force": False},
            5,
        )
    ],
    "topics delete acme/ns/orders -f": [
        Asked("DELETE", "persistent/acme/ns/orders", {"force": True})
    ],
    "topics terminate acme/ns/orders": [Asked("POST", "persistent/acme/ns/orders/terminate")],
    "topics compact acme/ns/orders": [Asked("PUT", "persistent/acme/ns/orders/compaction")],
    "topics stats acme/ns/orders -gpb": [
        Asked(
            "GET",
            "persistent/acme/ns/orders/stats",
            {"getPreciseBacklog": True, "getEarliestTimeInBacklog": False},
        )
    ],
    "topics skip acme/ns/orders -s a/b -n 5": [
        Asked("POST", "persistent/acme/ns/orders/subscription/a%2Fb/skip/5")
    ],
    "subscriptions skip acme/ns/orders -s sub -n 5": [
        Asked("POST", "persistent/acme/ns/orders/subscription/sub/skip/5")
    ],
    "topics create-subscription acme/ns/orders -s sub -m earliest -p a=1": [
        Asked(
            "PUT",
            "persistent/acme/ns/orders/subscription/sub",
            {},
            {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "properties": {"a": "1"}},
        )
    ],
    "topics expire-messages acme/ns/orders -s sub -t 1m": [
        Asked("POST", "persistent/acme/ns/orders/subscription/sub/expireMessages/60")
    ],
    "topics expire-messages acme/ns/orders -s sub -p 3:4 -e": [
        Asked(
            "POST",
            "persistent/acme/ns/orders/subscription/sub/expireMessages",
            {},
            {"ledgerId": 3, "entryId": 4, "partitionIndex": -1, "isExcluded": True},
        )
    ],
    "topics reset-cursor acme/ns/orders -s sub -m 3:4": [
        Asked(
            "POST",
            "persistent/acme/ns/orders/subscription/sub/resetcursor",
            {},
            {"ledgerId": 3, "entryId": 4, "partitionIndex": -1, "isExcluded": False},
        )
    ],
    "topics get-message-id acme/ns/orders -d 1970-01-01T00:00:02Z": [
        Asked("GET", "persistent/acme/ns/orders/messageid/2000")
    ],
    "topics bundle-range acme/ns/orders": [
        Asked("GET", "/lookup/v2/topic/persistent/acme/ns/orders/bundle")
    ],
}


@pytest.mark.parametrize("line", LINES)
def test_a_command_asks_what_its_words_say(line: str) -> None:
    assert done(line) == LINES[line]


WRONG = [
    "namespaces set-deduplication acme/ns",
    "namespaces set-deduplication acme/ns -e -d",
    "namespaces set-backlog-quota acme/ns -p producer_exception",
    "namespaces set-auto-topic-creation acme/ns -e -t partitioned",
    "namespaces set-auto-topic-creation acme/ns -e -n 3",
    "namespaces unload acme/ns -d b:1",
    "namespaces set-retention acme/ns -t soon -s 1",
    "namespaces list a -x",
    "namespaces policies acme",
    "topics stats a/b",
    "topics delete a --regex --from-file",
    "topics reset-cursor orders -s sub",
    "topics expire-messages orders -s sub -t 1m -p 3:4",
    "topics update-subscription-properties orders -s sub",
    "topics get-message-id orders -d 2026-01-31",
    "topics create orders -m a",
]


@pytest.mark.parametrize("line", WRONG)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(line: str) -> None:
    operation, words = operation_of(line)
    service = RecordingService()
    with pytest.raises(
        (InvalidUse, argparse.ArgumentTypeError, argparse.ArgumentError, SystemExit)
    ):
        operation.does(service, given_for(operation, words))
    assert service.asked == []


def test_a_new_tenant_is_allowed_where_the_clusters_are() -> None:
    asked = done("tenants create acme", {"clusters": ["here"]})
    assert asked[-1].content == {"adminRoles": [], "allowedClusters": ["here"]}


def test_what_is_not_said_of_a_tenant_stays() -> None:
    current = {"adminRoles": ["a"], "allowedClusters": ["east"]}
    asked = done("tenants update acme -c west", {"tenants/acme": current})
    assert asked[-1].content == {"adminRoles": ["a"], "allowedClusters": ["west"]}


def test_all_topics_that_match_are_deleted() -> None:
    names = [f"persistent://acme/ns/{each}" for each in ("a1", "a2", "b1")]
    asked = done("topics delete acme/ns/a. --regex", {"persistent/acme/ns": names})
    assert [each.path for each in asked if each.method == "DELETE"] == [
        "persistent/acme/ns/a1",
        "persistent/acme/ns/a2",
    ]


def test_all_topics_in_a_file_are_deleted(tmp_path: Path) -> None:
    file = tmp_path / "names"
    file.write_text("acme/ns/a\n\norders\n")
    asked = done(f"topics delete {file} --from-file")
    assert [each.path for each in asked] == [
        "persistent/acme/ns/a",
        "persistent/public/default/orders",
    ]


def test_missing_partitions_are_made_and_those_there_are_left() -> None:
    where = "persistent/acme/ns/orders"
    asked = done(
        "topics create-missed-partitions acme/ns/orders",
        {
            f"{where}/partitions": {"partitions": 2},
            f"{where}-partition-0": AdminRefused(409, "It exists"),
        },
    )
    assert [each.path for each in asked[1:]] == [f"{where}-partition-0", f"{where}-partition-1"]


def served(asked: Asked) -> bool:
    path = asked.path if asked.path.startswith("/") else f"/admin/v2/{asked.path}"
    scope = {"type": "http", "method": asked.method, "path": path, "root_path": ""}
    return any(
        route.matches(scope)[0] is Match.FULL for router in ROUTERS for route in router.routes
    )


@pytest.mark.parametrize("line", LINES)
def test_brokers_serve_what_is_asked(line: str) -> None:
    for asked in done(line):
        assert served(asked), asked


STAND_INS = {
    "cluster": "east",
    "tenant": "acme",
    "namespace": "acme/ns",
    "topic": "acme/ns/orders",
    "--filename": str(Path(__file__).with_name("a_schema.json")),
}


def needed_words(operation: Operation) -> list[str]:
    """Every argument that the command cannot do without, with some value."""
    words: list[str] = []
    for argument in operation.arguments:
        if argument.is_required:
            first = argument.names[0]
            known = [STAND_INS[name] for name in argument.names if name in STAND_INS]
            words += [first] if first.startswith("-") else []
            words.append(next(iter([*known, *argument.choices]), "1"))
    return words


@pytest.mark.parametrize(
    "operation", [pytest.param(each, id=f"{group}-{each.word}") for group, each in everything()]
)
def test_brokers_serve_what_any_command_asks_first(operation: Operation) -> None:
    service = RecordingService()
    # Some want one of two options besides, and some cannot go on from an empty answer.
    with suppress(*REFUSALS, TypeError, AttributeError):
        operation.does(service, given_for(operation, needed_words(operation)))
    assert all(served(asked) for asked in service.asked), service.asked


def test_no_two_arguments_of_a_command_have_one_name() -> None:
    for _, operation in everything():
        names = [name for each in operation.arguments for name in each.names]
        assert len(names) == len(set(names)), operation.word


def test_arguments_say_what_they_are() -> None:
    arguments: list[Argument] = [a for _, each in everything() for a in each.arguments]
    assert all(argument.help for argument in arguments)
