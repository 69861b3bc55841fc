"""The options of a read: what they mean, and that a wrong one says what would be right."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import geminga
from geminga import LogPosition
from pyspark_geminga.access import Access, whole_number
from pyspark_geminga.errors import InvalidOption
from pyspark_geminga.source.decisions.options import SourceOptions, Topics

GIVEN = {"service.url": "pulsar://localhost:6650", "topic": "orders"}
ORDERS = "persistent://public/default/orders"


def read(
    options: dict[str, str | None] | None = None, *, is_streaming: bool = False, **more: str
) -> SourceOptions:
    """The options with these set, or left out where they are ``None``."""
    given: dict[str, Any] = {**GIVEN, **(options or {}), **more}
    named = {name: value for name, value in given.items() if value is not None}
    return SourceOptions.of(named, is_streaming=is_streaming)


def test_defaults() -> None:
    batch, stream = read(), read(is_streaming=True)
    assert batch.topics == Topics((ORDERS,))
    assert batch.starting == {"": "earliest"}
    assert batch.ending == {"": "latest"}
    assert stream.starting == {"": "latest"}
    assert batch.fails_on_data_loss
    assert batch.poll_timeout_s == 120
    assert (batch.rows_max, batch.bytes_max, batch.subscription) == (None, None, None)
    assert batch.splits.target_bytes == 128 * 1024 * 1024
    assert not batch.pushes_filters


def test_options_have_names_without_case_and_are_picklable() -> None:
    options = read(MAXROWSPERTRIGGER="7", failondataloss="False")
    assert (options.rows_max, options.fails_on_data_loss) == (7, False)
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ({"topic": "a/b/c"}, Topics(("persistent://a/b/c",))),
        ({"topic": None, "topics": "orders, a/b/c,orders"}, Topics((ORDERS, "persistent://a/b/c"))),
        (
            {"topic": None, "topicsPattern": "or.*"},
            Topics(pattern="persistent://public/default/or.*"),
        ),
        ({"topic": None, "topicsPattern": "a/b/.*"}, Topics(pattern="persistent://a/b/.*")),
        (
            {"topic": None, "topicsPattern": "persistent://a/b/(x|y)"},
            Topics(pattern="persistent://a/b/(x|y)"),
        ),
    ],
)
def test_topics(options: dict[str, str | None], topics: Topics) -> None:
    assert read(options).topics == topics


def test_topics_cover_their_partitions() -> None:
    assert Topics((ORDERS,)).covers(f"{ORDERS}-partition-3")
    assert not Topics((ORDERS,)).covers(f"{ORDERS}2")
    pattern = Topics(pattern="persistent://public/default/or.*s")
    assert pattern.covers(f"{ORDERS}-partition-3")
    assert not pattern.covers("persistent://public/default/bills")
    assert pattern.namespace == "public/default"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-15T00:13:20.5+02:00", 1_700_000_000_500),
    ],
)
def test_times(text: str, wanted: int) -> None:
    assert read(startingTime=text).starting == {"": wanted}
    assert read(endingTime=f'{{"orders": "{text}"}}').ending == {ORDERS: wanted}


def test_offsets() -> None:
    assert read(startingOffsets="Latest").starting == {"": "latest"}
    given = read(startingOffsets='{"orders": [3, 4]}', endingOffsets=f'{{"{ORDERS}": [3, 9, 2]}}')
    assert given.starting == {ORDERS: LogPosition(3, 4)}
    assert given.ending == {ORDERS: LogPosition(3, 9, 2)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"service.url": None}, "service.url.*is missing"),
        ({"topic": None}, "exactly one of topic, topics and topicsPattern"),
        ({"topics": "a"}, "topic and topics"),
        ({"topic": "a//b"}, "topic"),
        ({"topic": "non-persistent://public/default/a"}, "nothing is kept"),
        ({"topic": None, "topicsPattern": "("}, "topicsPattern"),
        ({"startingOffset": "earliest"}, "is startingOffsets.* meant"),
        ({"maxbytespertriger": "1"}, "is maxBytesPerTrigger.* meant"),
        ({"zzz": "1"}, "there are service.url"),
        ({"pulsar.client.tlsFoo": "1"}, "not known"),
        ({"startingOffsets": "earliest", "startingTime": "1"}, "cannot be used with"),
        ({"startingOffsets": "middle"}, "no JSON"),
        ({"startingOffsets": "[1]"}, "a JSON object"),
        ({"startingOffsets": '{"orders": [1]}'}, "neither a position nor a message id"),
        ({"endingOffsets": "earliest"}, "nothing lies before"),
        ({"startingTime": "yesterday"}, "ISO 8601"),
        ({"maxRowsPerTrigger": "0"}, "whole number from 1 on"),
        (
            {"maxRowsPerTrigger": "1", "maxBytesPerTrigger": "1", "admin.url": "http://x"},
            "one limit",
        ),
        ({"maxBytesPerTrigger": "1"}, "needs admin.url"),
        ({"failOnDataLoss": "maybe"}, "neither true nor false"),
        ({"valueMode": "json"}, "none of schema, raw"),
        ({"minPartitions": "3", "maxPartitions": "2"}, "more than maxPartitions"),
        ({"maxRecordsPerPartition": "0"}, "whole number from 1 on"),
        ({"predefinedSubscription": "a", "subscriptionPrefix": "b"}, "cannot be used"),
        ({"predefinedSubscription": ""}, "has a name"),
        ({"pulsar.client.authPluginClassName": "Kerberos"}, "none of token"),
        ({"pulsar.client.authPluginClassName": "token"}, "is missing: token:"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str | None], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        read(options)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(InvalidOption, match="a stream has no end"):
        read(is_streaming=True, endingOffsets="latest")


def test_numbers_may_exceed_32_bits() -> None:
    assert whole_number("maxBytesPerTrigger", str(2**40)) == 2**40


def access(**client: str) -> Access:
    return Access.of(
        {**GIVEN, **{f"pulsar.client.{name}": value for name, value in client.items()}}
    )


JAVA = "org.apache.pulsar.client.impl.auth"


@pytest.mark.parametrize(
    ("plugin", "parameters", "kind"),
    [
        (f"{JAVA}.AuthenticationToken", "token:abc", geminga.Token),
        ("token", "file:///secrets/token", geminga.Token),
        (f"{JAVA}.AuthenticationBasic", '{"userId": "a", "password": "b"}', geminga.Basic),
        ("basic", "a:b", geminga.Basic),
        (f"{JAVA}.AuthenticationTls", "tlsCertFile:/c.pem,tlsKeyFile:/k.pem", geminga.MutualTls),
    ],
)
def test_javas_names_of_methods(plugin: str, parameters: str, kind: type) -> None:
    shown = access(authPluginClassName=plugin, authParams=parameters)
    assert isinstance(shown.authentication(), kind)


def test_the_certificate_of_mutual_tls_may_be_in_the_parameters() -> None:
    tls = access(
        authPluginClassName="tls",
        authParams="tlsCertFile:/c.pem,tlsKeyFile:/k.pem",
        tlsTrustCertsFilePath="/ca.pem",
        tlsHostnameVerificationEnable="false",
    ).tls()
    assert tls == geminga.Tls("/ca.pem", "/c.pem", "/k.pem", checks_hostname=False)


def test_accesses_that_are_alike_share_a_client() -> None:
    one = access(operationTimeoutMs="5000", listenerName="x")
    other = access(listenerName="x", operationTimeoutMs="5000")
    assert one == other
    assert len({one, other, access()}) == 2


def test_the_rest_side_has_the_clients_options_unless_it_has_its_own() -> None:
    client = {"pulsar.client.authPluginClassName": "token", "pulsar.client.authParams": "token:a"}
    shown = Access.of({**GIVEN, **client, "pulsar.admin.authParams": "token:b"})
    assert dict(shown.client_options)["authparams"] == "token:a"
    assert dict(shown.for_admin().client_options) == {
        "authpluginclassname": "token",
        "authparams": "token:b",
    }
