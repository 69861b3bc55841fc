"""Proves that functions are created, changed, watched and deleted over REST, at any of the workers,
whichever leads and whichever runs them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.function_workers import (
    BETTER,
    GOOD,
    Workers,
    answer,
    config_of,
    form,
    two_workers,
    until_true,
)

from geminga_functions.names import FunctionName

# The workers are shared, and with them their event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

BROKEN = "import no_such_module\n\ndef process(input):\n    return input\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workers(
    standalone: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Workers]:
    """Each test leaves both running, and no function."""
    async with two_workers(standalone, tmp_path_factory.mktemp("workers")) as shared:
        yield shared


@pytest_asyncio.fixture(loop_scope="module")
async def own_workers(standalone: StandaloneProcess, tmp_path: Path) -> AsyncIterator[Workers]:
    """Those that a test may harm."""
    async with two_workers(standalone, tmp_path) as own:
        yield own


async def test_effectively_once_is_refused_where_the_output_stores_repeated_messages(
    workers: Workers,
) -> None:
    http, web = workers.http[0], workers.workers[0].config.pulsar_web_service_url
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    namespace = f"public/{name}"
    config = config_of(
        name, processingGuarantees="EFFECTIVELY_ONCE", output=f"{namespace}/{name}-out"
    )
    async with httpx.AsyncClient(base_url=f"{web}/admin/v2/namespaces/{namespace}") as brokers:
        assert (await brokers.put("")).status_code == 204
        refused = await http.post(url, files=form(GOOD, **config))
        assert refused.status_code == 400
        command = f"geminga admin namespaces set-deduplication {namespace} --enable"
        assert command in refused.json()["reason"]
        assert (await brokers.post("/deduplication", json=True)).status_code == 204
        created = await http.post(url, files=form(GOOD, **config))
        assert (created.status_code, created.text) == (204, "")
        assert (await http.delete(url)).status_code == 204


async def test_a_function_lives_and_ends_at_a_worker_that_does_not_lead(workers: Workers) -> None:
    leader, follower = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    created = await follower.post(url, files=form(GOOD, **config_of(name, parallelism=2)))
    assert (created.status_code, created.text) == (204, "")
    again = await leader.post(url, files=form(GOOD, **config_of(name)))
    assert again.status_code == 400
    assert again.json() == {"reason": f"Function {name} already exists"}
    assert await answer(workers, name, b"hello") == b"hello!"

    for http in workers.http:
        assert (await http.get("/admin/v3/functions/public/default")).json() == [name]
        assert (await http.get(url)).json()["parallelism"] == 2

        async def both_run(http: httpx.AsyncClient = http) -> bool:
            return bool((await http.get(f"{url}/status")).json()["numRunning"] == 2)

        await until_true(both_run)
        status = (await http.get(f"{url}/status")).json()
        assert {each["status"]["workerId"] for each in status["instances"]} == {"w-0", "w-1"}
        stats = (await http.get(f"{url}/stats")).json()
        assert (stats["receivedTotal"], stats["processedSuccessfullyTotal"]) == (1, 1)
        assert (await http.get(f"{url}/1/status")).json()["running"] is True
        assert (await http.get(f"{url}/2/status")).status_code == 400

    assert (await follower.get(f"{url}/download")).text == GOOD
    assert (await follower.post(f"{url}/restart")).status_code == 204
    updated = await follower.put(url, files=form(BETTER))
    assert (updated.status_code, updated.text) == (204, "")
    assert await answer(workers, name, b"hello") == b"hello?"
    refused = await leader.put(url, files=form(None, autoAck=False))
    assert (refused.status_code, refused.json()["reason"]) == (400, "AutoAck cannot be altered")

    assert (await follower.post(f"{url}/stop")).status_code == 204

    async def none_runs() -> bool:
        return bool((await follower.get(f"{url}/status")).json()["numRunning"] == 0)

    await until_true(none_runs)
    assert (await leader.post(f"{url}/0/start")).status_code == 204

    async def one_runs() -> bool:
        return bool((await follower.get(f"{url}/status")).json()["numRunning"] == 1)

    await until_true(one_runs)
    path = workers.workers[0].functions.records[FunctionName("public", "default", name)]
    package = workers.workers[0].runtime.packages.topic(path.packageLocation.packagePath)
    assert (await follower.delete(url)).status_code == 204
    gone = await follower.get(url)
    assert (gone.status_code, gone.json()) == (404, {"reason": f"Function {name} doesn't exist"})
    topics = await workers.topics()
    assert package not in topics


async def test_a_function_that_does_not_start_answers_its_traceback(workers: Workers) -> None:
    _, follower = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    created = await follower.post(url, files=form(BROKEN, **config_of(name)))
    assert created.status_code == 400
    assert "No module named 'no_such_module'" in created.json()["reason"]
    status = (await follower.get(f"{url}/0/status")).json()
    assert status["running"] is False
    assert "no_such_module" in status["error"]
    # It is stored: an update mends it.
    assert (await follower.put(url, files=form(GOOD))).status_code == 204
    assert await answer(workers, name, b"x") == b"x!"
    await follower.delete(url)


async def test_what_cannot_be_leaves_nothing_behind(workers: Workers) -> None:
    leader, _ = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    for files, reason in [
        (form(GOOD, className="user_code"), "No input topic(s) specified for the function"),
        (form(None, **config_of(name)), "Function Package is not provided"),
        ({"data": ("user_code.py", b"")}, "Function config is not provided"),
    ]:
        refused = await leader.post(url, files=files)
        assert (refused.status_code, refused.json()["reason"]) == (400, reason)
    changed = await leader.put(url, files=form(GOOD))
    assert (changed.status_code, changed.json()["reason"]) == (
        400,
        f"Function {name} doesn't exist",
    )
    refused = await leader.post(url, json={})
    assert refused.json()["reason"] == "The body should be a multipart form"
    for place, reason in [
        ("no-such/default", "Tenant does not exist"),
        ("public/no-such", "Namespace does not exist"),
    ]:
        refused = await leader.post(
            f"/admin/v3/functions/{place}/f", files=form(GOOD, **config_of(name))
        )
        assert (refused.status_code, refused.json()["reason"]) == (400, reason)
    topics = await workers.topics()
    assert not [each for each in topics if name in each]


@pytest.mark.parametrize(
    "text", ["na me", "n\u00e4me", "a?b#c", "a%2e", "a:1", "\u51fd\u6570", "x" * 200]
)
async def test_a_name_may_have_any_printable_characters(workers: Workers, text: str) -> None:
    leader, follower = workers.http
    url = f"/admin/v3/functions/public/default/{quote(text, safe='')}"
    config = config_of(f"f{uuid4().hex[:8]}")
    for http, other in ((follower, leader), (leader, follower)):
        created = await http.post(url, files=form(GOOD, **config))
        assert created.status_code == 204, created.text
        for each in (http, other):
            assert (await each.get(f"{url}/status")).json()["numRunning"] == 1
        assert (await other.post(f"{url}/restart")).status_code == 204
        assert (await http.delete(url)).status_code == 204


@pytest.mark.parametrize("text", ["%2e%2e", "a%2Fb", "a%5Cb", "a%0Ab", "a%00b", "x" * 201])
async def test_other_names_are_refused(workers: Workers, text: str) -> None:
    leader, _ = workers.http
    # As it is: clients take dots out of paths.
    url = httpx.URL(str(leader.base_url)).copy_with(
        raw_path=f"/admin/v3/functions/public/default/{text}".encode()
    )
    refused = await leader.post(url, files=form(GOOD, **config_of("f")))
    assert refused.status_code == 400
    assert "is no name of the form" in refused.json()["reason"]


@pytest.mark.parametrize(
    ("file_name", "reason"),
    [
        ("f.jar", "f.jar is a Java archive: this worker runs Python alone"),
        ("..", ".. is no package: those are .py, .zip or .whl files"),
        ("x" * 300 + ".py", "or has more than 255 bytes"),
    ],
)
async def test_a_file_that_is_no_package_is_not_stored(
    workers: Workers, file_name: str, reason: str
) -> None:
    leader, _ = workers.http
    name = f"f{uuid4().hex[:8]}"
    files = form(None, **config_of(name)) | {"data": (file_name, GOOD.encode())}
    refused = await leader.post(f"/admin/v3/functions/public/default/{name}", files=files)
    assert refused.status_code == 400
    assert reason in refused.json()["reason"]
    assert not [each for each in await workers.topics() if name in each]


async def test_an_update_that_changes_nothing_is_refused(workers: Workers) -> None:
    _, http = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    assert (await http.post(url, files=form(GOOD, **config_of(name)))).status_code == 204
    # What ``pulsar-admin`` sends where nothing is asked for but the function itself.
    unsaid = {"outputSchemaType": "", "forwardSourceMessageProperty": True}
    for config in ({}, unsaid, {"parallelism": 1}, {"className": "user_code"}):
        refused = await http.put(url, files=form(None, **config))
        assert (refused.status_code, refused.json()["reason"]) == (400, "Update contains no change")
    assert (await http.put(url, files=form(None, parallelism=2))).status_code == 204
    assert (await http.delete(url)).status_code == 204


async def test_a_name_that_is_used_again_tells_nothing_of_the_former_function(
    workers: Workers,
) -> None:
    _, http = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    for _ in range(3):
        broken = await http.post(url, files=form(BROKEN, **config_of(name)))
        assert broken.status_code == 400
        assert (await http.delete(url)).status_code == 204
        assert (await http.post(url, files=form(GOOD, **config_of(name)))).status_code == 204
        assert (await http.delete(url)).status_code == 204


async def test_every_worker_knows_the_cluster(workers: Workers) -> None:
    for http in workers.http:
        members = (await http.get("/admin/v2/worker/cluster")).json()
        assert [each["workerId"] for each in members] == ["w-0", "w-1"]
        leader = (await http.get("/admin/v2/worker/cluster/leader")).json()
        assert leader["workerId"] == workers.workers[0].me.worker_id
        assert (await http.get("/admin/v2/worker/assignments")).status_code == 200
        assert (await http.get("/admin/v2/worker/cluster/leader/ready")).text == "true"


async def test_a_worker_tells_the_numbers_of_what_it_runs_itself(workers: Workers) -> None:
    leader, follower = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    files = form(GOOD, **config_of(name, parallelism=2))
    assert (await leader.post(url, files=files)).status_code == 204
    assert await answer(workers, name, b"x") == b"x!"

    async def stats() -> list[dict[str, Any]]:
        path = "/admin/v2/worker-stats/functionsmetrics"
        return [each for http in (leader, follower) for each in (await http.get(path)).json()]

    async def both_are_told() -> bool:
        names = sorted(each["name"] for each in await stats())
        received = sum(each["metrics"]["receivedTotal"] for each in await stats())
        return names == [f"public/default/{name}:{each}" for each in (0, 1)] and received == 1

    await until_true(both_are_told)
    for http in (leader, follower):
        (own,) = (await http.get("/admin/v2/worker-stats/metrics")).json()
        assert own["metrics"]["instances"] == 1
        assert own["metrics"]["process_max_resident_bytes"] > 10_000_000
    assert (await leader.delete(url)).status_code == 204


async def test_a_built_in_source_needs_no_package(workers: Workers) -> None:
    _, follower = workers.http
    name = f"s{uuid4().hex[:8]}"
    url = f"/admin/v3/sources/public/default/{name}"
    config = {"archive": "builtin://data-generator", "topicName": f"{name}-out"}
    files = {"sourceConfig": (None, json.dumps(config), "application/json")}
    created = await follower.post(url, files=files)
    assert (created.status_code, created.text) == (204, "")

    async def has_written() -> bool:
        status = (await follower.get(f"{url}/0/status")).json()
        return bool(status["running"] and status["numWritten"] > 0)

    await until_true(has_written)
    assert (await follower.get(url)).json()["archive"] == "builtin://data-generator"
    assert (await follower.get("/admin/v3/sources/public/default")).json() == [name]
    assert (await follower.get("/admin/v3/functions/public/default")).json() == []
    other = await follower.delete(f"/admin/v3/sinks/public/default/{name}")
    assert (other.status_code, other.json()["reason"]) == (404, f"Sink {name} doesn't exist")
    unknown = {"sourceConfig": (None, json.dumps(config | {"archive": "builtin://no"}))}
    refused = await follower.post(f"{url}2", files=unknown)
    assert refused.json()["reason"] == "Built-in source is not available"
    assert (await follower.delete(url)).status_code == 204


async def test_a_drained_worker_is_left_by_its_instances(own_workers: Workers) -> None:
    _, follower = own_workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    files = form(GOOD, **config_of(name, parallelism=2))
    assert (await follower.post(url, files=files)).status_code == 204
    drained, kept = (each.me.worker_id for each in reversed(own_workers.workers))
    path = "/admin/v2/worker/leader/drain"
    asked: dict[str, Any] = {"params": {"workerId": drained}, "follow_redirects": True}
    assert (await follower.get(path, **asked)).json()["status"] == "NOT_RUN"
    assert (await follower.put(path, **asked)).status_code == 204
    assert (await follower.put(path, **asked)).status_code == 409

    async def is_drained() -> bool:
        return bool((await follower.get(path, **asked)).json()["status"] == "SUCCESS")

    await until_true(is_drained)
    # It says the same of itself, whichever worker leads.
    assert (await follower.get("/admin/v2/worker/drain")).json()["status"] == "SUCCESS"
    assert (await follower.put("/admin/v2/worker/drain")).status_code == 409

    async def all_run_elsewhere() -> bool:
        assignments = (await follower.get("/admin/v2/worker/assignments")).json()
        return bool(assignments == {kept: [f"public/default/{name}:{each}" for each in (0, 1)]})

    await until_true(all_run_elsewhere)
    no_worker = await follower.put(path, params={"workerId": "no"}, follow_redirects=True)
    assert no_worker.status_code == 400
    rebalanced = await follower.put("/admin/v2/worker/rebalance", follow_redirects=True)
    assert rebalanced.status_code == 204
    # Each worker is asked of itself, too: the leader has not been drained.
    for http, status in zip(own_workers.http, ("NOT_RUN", "SUCCESS"), strict=True):
        drain = await http.get("/admin/v2/worker/drain", follow_redirects=True)
        assert drain.json()["status"] == status
    again = await follower.put("/admin/v2/worker/drain", follow_redirects=True)
    assert again.status_code == 409
    assert (await follower.delete(url)).status_code == 204


COUNTS = """
from pulsar import Function


class Count(Function):
    def process(self, input, context):
        for word in input.split():
            context.incr_counter(word, 1)
        return str(context.get_state("greeting"))
"""


async def test_state_is_read_and_set_at_any_worker(workers: Workers) -> None:
    leader, follower = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    config = config_of(name, className="user_code.Count")
    assert (await follower.post(url, files=form(COUNTS, **config))).status_code == 204
    missing = await leader.get(f"{url}/state/a%2Fb")
    assert missing.json() == {"reason": "key 'a/b' doesn't exist."}

    state = {"state": (None, json.dumps({"key": "greeting", "stringValue": "hello"}))}
    assert (await follower.post(f"{url}/state/greeting", files=state)).status_code == 204
    shown = {"key": "greeting", "stringValue": "hello", "version": 1}
    assert (await leader.get(f"{url}/state/greeting")).json() == shown

    async def is_greeted() -> bool:
        return await answer(workers, name, b"one two one") == b"b'hello'"

    await until_true(is_greeted)
    counted = (await follower.get(f"{url}/state/one")).json()
    two = (await leader.get(f"{url}/state/two")).json()["numberValue"]
    assert counted["numberValue"] == 2 * two > 0
    for wrong in ("nothing", json.dumps({"key": "other"}), json.dumps({"byteValue": "?"})):
        refused = await leader.post(f"{url}/state/greeting", files={"state": (None, wrong)})
        assert refused.status_code == 400

    async def has_state() -> bool:
        return any("/state-" in each and name in each for each in await workers.topics())

    async def has_no_state() -> bool:
        return not await has_state()

    assert await has_state()
    assert (await follower.delete(url)).status_code == 204
    # Another function of the name begins with none.
    await until_true(has_no_state)


async def test_what_is_built_in_is_listed_as_java_s_client_asks(workers: Workers) -> None:
    _, http = workers.http
    sources = (await http.get("/admin/v3/source/builtinsources")).json()
    assert [each["name"] for each in sources] == ["data-generator", "file"]
    assert all(each["description"] and each["sourceClass"] for each in sources)
    sinks = (await http.get("/admin/v3/sink/builtinsinks")).json()
    assert [each["name"] for each in sinks] == ["http"]
    assert (await http.get("/admin/v3/functions/connectors")).json() == sources + sinks
    for path in ("/admin/v2/worker/connectors", "/admin/v2/functions/connectors"):
        assert (await http.get(path)).json() == sources + sinks
    assert (await http.post("/admin/v3/sources/reloadBuiltInSources")).status_code == 204


async def test_the_settings_of_what_is_built_in_are_told(workers: Workers) -> None:
    _, http = workers.http
    fields = (await http.get("/admin/v3/sources/builtinsources/file/configdefinition")).json()
    assert fields[0] == {
        "fieldName": "inputDirectory",
        "typeName": "str",
        "attributes": {
            "required": "true",
            "defaultValue": "",
            "sensitive": "false",
            "help": "The directory",
        },
    }
    fields = (await http.get("/admin/v3/sink/builtinsinks/http/configdefinition")).json()
    assert [each["fieldName"] for each in fields] == ["url", "headers"]
    for path in ("sources/builtinsources/http", "sinks/builtinsinks/no"):
        assert (await http.get(f"/admin/v3/{path}/configdefinition")).status_code == 404


async def test_a_function_is_triggered_and_its_result_answered(workers: Workers) -> None:
    _, http = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    assert (await http.post(url, files=form(GOOD, **config_of(name)))).status_code == 204
    shown = await http.post(f"{url}/trigger", files={"data": (None, "hello")})
    assert (shown.status_code, shown.text) == (200, "hello!")
    topic = {"data": (None, "hello"), "topic": (None, "another")}
    refused = await http.post(f"{url}/trigger", files=topic)
    assert refused.status_code == 400
    assert "another" in refused.json()["reason"]
    no_data = await http.post(f"{url}/trigger", files={"topic": (None, f"{name}-in")})
    assert (no_data.status_code, no_data.json()["reason"]) == (400, "Trigger Data is not provided")
    assert (await http.delete(url)).status_code == 204


async def test_the_subscription_goes_with_the_function_unless_it_is_to_be_kept(
    workers: Workers, standalone: StandaloneProcess
) -> None:
    http = workers.http[1]  # it asks the leader, which cleans up
    async with httpx.AsyncClient(base_url=standalone.web_service_url) as broker:

        async def subscriptions(name: str) -> list[str]:
            listed = await broker.get(
                f"/admin/v2/persistent/public/default/{name}-in/subscriptions"
            )
            found: list[str] = listed.json()
            return found

        kept, cleaned = (f"f{uuid4().hex[:8]}" for _ in range(2))
        for name, more in ((kept, {"cleanupSubscription": False}), (cleaned, {})):
            path = f"/admin/v3/functions/public/default/{name}"
            created = await http.post(path, files=form(GOOD, **config_of(name, **more)))
            assert created.status_code == 204, created.text
            assert await subscriptions(name) == [f"public/default/{name}"]
            assert (await http.delete(path)).status_code == 204

        async def is_gone() -> bool:
            return not await subscriptions(cleaned)

        await until_true(is_gone)
        assert await subscriptions(kept) == [f"public/default/{kept}"]
