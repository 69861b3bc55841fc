"""Proves that an instance in a process of its own consumes, calls the user's code and publishes."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.function_instances import TIMEOUT_S, Functions, publish, results
from tests.integration.rest import rest

import geminga
from geminga_functions.instance.messages import (
    Failed,
    Lease,
    Started,
)
from geminga_functions.instance.worker_link import LEAVES_EARLIER_S
from geminga_protocol.functions.functions_pb2 import EFFECTIVELY_ONCE, MANUAL, CryptoSpec

EXCLAMATION = """
from pulsar import Function

class Exclamation(Function):
    def process(self, input, context):
        return input + "!"
"""


async def test_a_class_for_the_official_package_runs_unchanged(
    functions: Functions, client: geminga.Client
) -> None:
    await publish(client, functions.input, b"hello", b"world")
    async with functions.instance("user_code.Exclamation", EXCLAMATION) as instance:
        await instance.receive(Started)
        found = await results(client, functions.output, 2)
        assert [each.data for each in found] == [b"hello!", b"world!"]
        status = await instance.status()
        assert (status.total.received, status.total.processed) == (2, 2)
        assert found[0].properties["__pfn_input_topic__"].endswith(functions.input)
        await instance.stop()


async def test_what_is_done_is_acknowledged_and_not_done_again(
    functions: Functions, client: geminga.Client
) -> None:
    code = "def process(input):\n    return input + '?'\n"
    for value in (b"one", b"two"):
        await publish(client, functions.input, value)
        async with functions.instance("user_code", code) as instance:
            await instance.receive(Started)
            async with client.consumer(functions.output, "s", initial_position="earliest") as out:
                async with asyncio.timeout(TIMEOUT_S):
                    message = await out.receive()
                assert message.data == value + b"?"
                await out.ack_confirmed(message)
            await instance.stop()


async def test_the_traceback_of_code_that_does_not_load_is_told(functions: Functions) -> None:
    async with functions.instance("user_code", "def process(input)\n    return 1\n") as instance:
        failed = await instance.receive(Failed)
        assert failed.is_user_error
        assert "SyntaxError" in failed.trace
        assert "user_code.py" in failed.trace
        assert await instance.process.wait() == 1


async def test_an_exception_is_counted_with_its_traceback(
    functions: Functions, client: geminga.Client
) -> None:
    code = "def process(input):\n    return {'good': input}[input]\n"
    await publish(client, functions.input, b"bad", b"good")
    async with functions.instance("user_code", code) as instance:
        await instance.receive(Started)
        await results(client, functions.output, 1)
        status = await instance.status()
        assert (status.total.received, status.total.processed) == (2, 1)
        (exception,) = status.latest_user_exceptions
        assert "KeyError: 'bad'" in exception.text
        await instance.stop()


async def test_code_that_computes_for_ever_ends_with_its_lease(
    functions: Functions, client: geminga.Client
) -> None:
    code = "def process(input):\n    while True:\n        pass\n"
    await publish(client, functions.input, b"x")
    async with functions.instance("user_code", code, lease_s=3.0) as instance:
        await instance.receive(Started)
        until_s = time.monotonic() + 4.0
        await instance.send(Lease(until_s))
        async with asyncio.timeout(TIMEOUT_S):
            assert await instance.process.wait() == -signal.SIGKILL
        # It looks at the lease itself a little before the kernel would end it.
        assert time.monotonic() >= until_s - LEAVES_EARLIER_S


async def test_effectively_once_stores_every_result_once_though_instances_are_killed(
    functions: Functions, client: geminga.Client, standalone: StandaloneProcess
) -> None:
    namespace = f"public/{functions.input}"
    web = standalone.web_service_url
    assert rest(web, "PUT", f"/admin/v2/namespaces/{namespace}")[0] == 204
    path = f"/admin/v2/namespaces/{namespace}/deduplication"
    assert rest(web, "POST", path, body=True)[0] == 204
    assert rest(web, "PUT", f"/admin/v2/persistent/{namespace}/in/partitions", 3)[0] == 204
    assert rest(web, "PUT", f"/admin/v2/persistent/{namespace}/out/partitions", 2)[0] == 204
    del functions.details.source.inputSpecs[functions.input]
    functions.details.source.inputSpecs[f"{namespace}/in"].SetInParent()
    functions.details.sink.topic = f"{namespace}/out"
    functions.details.processingGuarantees = EFFECTIVELY_ONCE
    numbers = [str(number).encode() for number in range(3000)]
    async with client.producer(f"{namespace}/in") as producer:
        for number in numbers:
            producer.send_nowait(number)
            await producer.ready()
        await producer.flush()
    # Not so fast that the first life does it all.
    code = "def process(input):\n    sum(range(30_000))\n    return input\n"
    seen: list[int] = []
    lives = 0
    async with client.consumer(
        f"{namespace}/out", "s", initial_position="earliest", type="exclusive"
    ) as consumer:
        while len(set(seen)) < len(numbers):
            lives += 1
            async with functions.instance("user_code", code) as instance:
                await instance.receive(Started)
                async with asyncio.timeout(TIMEOUT_S):
                    # A few hundred results a life: kills come amid batches and acknowledgements.
                    for _ in range(min(300, len(numbers) - len(set(seen)))):
                        message = await consumer.receive()
                        seen.append(int(message.data))
                        await consumer.ack_confirmed(message)
                instance.process.kill()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                seen.append(int((await consumer.receive()).data))
    assert sorted(seen) == list(range(3000))
    assert lives > 5


async def test_what_a_function_logs_goes_to_its_log_topic(
    functions: Functions, client: geminga.Client
) -> None:
    functions.details.logTopic = f"{functions.input}-log"
    code = "def process(input, context):\n    context.get_logger().warning('saw %s', input)\n"
    await publish(client, functions.input, b"x")
    async with functions.instance("user_code", code) as instance:
        await instance.receive(Started)
        (line,) = await results(client, functions.details.logTopic, 1)
        assert line.data.endswith(b"[WARNING]: saw x")
        assert line.properties["loglevel"] == "WARNING"
        await instance.stop()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import no_such_module\n", "No module named 'no_such_module'"),
        ("import sys\n\n\ndef process(input):\n    sys.exit(3)\n", "SystemExit: 3"),
    ],
    ids=["does not load", "exits"],
)
async def test_what_ends_an_instance_goes_to_its_log_topic_too(
    functions: Functions, client: geminga.Client, code: str, told: str
) -> None:
    functions.details.logTopic = f"{functions.input}-log"
    await publish(client, functions.input, b"x")
    async with functions.instance("user_code", code) as instance:
        assert await asyncio.wait_for(instance.process.wait(), TIMEOUT_S) == 1
    (line,) = await results(client, functions.details.logTopic, 1)
    assert told in line.data.decode()
    assert line.properties["loglevel"] == "ERROR"


@pytest.mark.parametrize("is_said_by_guarantee", [True, False], ids=["MANUAL", "autoAck"])
async def test_with_manual_acknowledgements_only_the_code_acknowledges(
    functions: Functions,
    client: geminga.Client,
    is_said_by_guarantee: bool,  # noqa: FBT001 - of the parametrization
) -> None:
    if is_said_by_guarantee:
        functions.details.processingGuarantees = MANUAL
    else:
        # As before there was MANUAL.
        functions.details.autoAck = False  # pyright: ignore[reportDeprecated]  # still heeded
    code = (
        "def process(input, context):\n"
        "    if input == 'done':\n"
        "        context.ack(context.get_message_id(), context.get_current_message_topic_name())\n"
        "    return input\n"
    )
    await publish(client, functions.input, b"open", b"done")
    for life in (1, 2):
        async with functions.instance("user_code", code) as instance:
            await instance.receive(Started)
            found = await results(client, functions.output, 2 if life == 1 else 3)
            await instance.stop()
    assert [each.data for each in found] == [b"open", b"done", b"open"]


async def test_topics_that_match_a_pattern_are_inputs(
    functions: Functions, client: geminga.Client
) -> None:
    del functions.details.source.inputSpecs[functions.input]
    pattern = f"public/default/{functions.input}-[ab]"
    functions.details.source.inputSpecs[pattern].isRegexPattern = True
    for letter in "abc":
        await publish(client, f"{functions.input}-{letter}", letter.encode())
    async with functions.instance(
        "user_code", "def process(input):\n    return input\n"
    ) as instance:
        await instance.receive(Started)
        found = await results(client, functions.output, 2)
        assert sorted(each.data for each in found) == [b"a", b"b"]
        await instance.stop()


async def test_a_partition_that_moves_to_another_instance_keeps_its_results_once(
    functions: Functions, client: geminga.Client, standalone: StandaloneProcess
) -> None:
    namespace, web = f"public/{functions.input}", standalone.web_service_url
    assert rest(web, "PUT", f"/admin/v2/namespaces/{namespace}")[0] == 204
    path = f"/admin/v2/namespaces/{namespace}/deduplication"
    assert rest(web, "POST", path, body=True)[0] == 204
    assert rest(web, "PUT", f"/admin/v2/persistent/{namespace}/in/partitions", 4)[0] == 204
    del functions.details.source.inputSpecs[functions.input]
    functions.details.source.inputSpecs[f"{namespace}/in"].SetInParent()
    functions.details.sink.topic = f"{namespace}/out"
    functions.details.processingGuarantees = EFFECTIVELY_ONCE
    code = "def process(input):\n    return input\n"
    async with (
        functions.instance("user_code", code) as first,
        client.producer(f"{namespace}/in") as producer,
        client.consumer(f"{namespace}/out", "s", initial_position="earliest") as consumer,
    ):
        await first.receive(Started)
        # One message each, so that each partition has some.
        sent = [str(number).encode() for number in range(40)]
        for value in sent[:20]:
            await producer.send(value)
        async with asyncio.timeout(TIMEOUT_S):
            seen = [(await consumer.receive()).data for _ in range(20)]
            # Half of the partitions are the second instance's as soon as it consumes.
            async with functions.instance("user_code", code) as second:
                await second.receive(Started)
                for value in sent[20:]:
                    await producer.send(value)
                seen += [(await consumer.receive()).data for _ in range(20)]
                assert (await second.status()).written > 0
                await second.stop()
        await first.stop()
    assert sorted(seen) == sorted(sent)


SECRETIVE = """
from geminga_functions import SecretsProvider

class Vault(SecretsProvider):
    def init(self, config):
        self.prefix = config["prefix"]

    def provide_secret(self, name, path):
        return self.prefix + path["path"]

def process(input, context):
    return f"{context.get_secret('USER')} {context.get_secret('no such')}"
"""


@pytest.mark.parametrize(
    ("provider", "given", "secret"),
    [
        ("", "clear", "clear"),
        ("org.apache.pulsar.functions.secretsprovider.ClearTextSecretsProvider", "x", "x"),
        ("secretsprovider.EnvironmentBasedSecretsProvider", "ignored", "of the environment"),
        ("user_code.Vault", {"path": "a/b"}, "vault:a/b"),
    ],
)
async def test_secrets_come_from_the_provider_that_the_worker_names(
    functions: Functions,
    client: geminga.Client,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    given: object,
    secret: str,
) -> None:
    monkeypatch.setenv("USER", "of the environment")
    functions.details.secretsMap = json.dumps({"USER": given})
    functions.secrets_provider, functions.secrets_config = provider, '{"prefix": "vault:"}'
    await publish(client, functions.input, b"?")
    async with functions.instance("user_code", SECRETIVE) as instance:
        await instance.receive(Started)
        (found,) = await results(client, functions.output, 1)
        assert found.data == f"{secret} None".encode()
        await instance.stop()


def pems() -> tuple[bytes, bytes]:
    """The public and the private part of a new key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = serialization.Encoding.PEM
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    kind, open_ = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return public, key.private_bytes(pem, kind, open_)


async def test_inputs_are_decrypted_and_results_encrypted(
    functions: Functions, client: geminga.Client, tmp_path: Path
) -> None:
    public, private = pems()
    paths = {"public_key_path": tmp_path / "public.pem", "private_key_path": tmp_path / "key.pem"}
    for path, pem in zip(paths.values(), (public, private), strict=True):
        path.write_bytes(pem)
    crypto = CryptoSpec(
        cryptoKeyReaderClassName="pulsar.CryptoKeyReader",
        cryptoKeyReaderConfig=json.dumps({name: str(path) for name, path in paths.items()}),
        producerEncryptionKeyName=["ours"],
    )
    functions.details.source.inputSpecs[functions.input].cryptoSpec.CopyFrom(crypto)
    functions.details.sink.producerSpec.cryptoSpec.CopyFrom(crypto)
    encryption = geminga.Encryption(["theirs"], geminga.PublicKeys({"theirs": public}))
    decryption = geminga.PrivateKeys({"ours": private})
    async with client.producer(functions.input, encryption=encryption) as producer:
        await producer.send(b"secret")
    async with (
        functions.instance("user_code.Exclamation", EXCLAMATION) as instance,
        client.consumer(
            functions.output, "blind", initial_position="earliest", crypto_failure_action="consume"
        ) as blind,
        client.consumer(
            functions.output, "reader", initial_position="earliest", decryption=decryption
        ) as reader,
        asyncio.timeout(TIMEOUT_S),
    ):
        await instance.receive(Started)
        assert (await reader.receive()).data == b"secret!"
        assert b"secret" not in (await blind.receive()).data
        await instance.stop()


@pytest.mark.parametrize(
    ("reader", "names", "said"),
    [
        ("pulsar.CryptoKeyReader", ["ours"], "No such file"),
        ("user_code.Exclamation", ["ours"], "has no method 'public_key'"),
        ("org.apache.Keys", ["ours"], "No module named 'org'"),
        ("pulsar.CryptoKeyReader", [], "no encryption key is named"),
    ],
)
async def test_results_are_never_sent_in_clear_where_keys_cannot_be_read(
    functions: Functions, reader: str, names: list[str], said: str
) -> None:
    config = {"public_key_path": "/none", "private_key_path": "/none"}
    crypto = functions.details.sink.producerSpec.cryptoSpec
    crypto.cryptoKeyReaderClassName = reader
    crypto.cryptoKeyReaderConfig = json.dumps(config if reader.startswith("pulsar") else {})
    crypto.producerEncryptionKeyName.extend(names)
    async with functions.instance("user_code.Exclamation", EXCLAMATION) as instance:
        failed = await instance.receive(Failed)
        assert said in failed.trace
        assert failed.is_user_error
