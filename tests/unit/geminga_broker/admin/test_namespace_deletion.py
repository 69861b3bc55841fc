"""A namespace goes with its topics, or stays as it was; nothing is left that cannot be deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx
import pytest

from geminga_broker.admin.app import create_app
from geminga_broker.admin.config import AdminConfig
from geminga_broker.admin.services import Services
from geminga_broker.errors import ServiceNotReady, StorageUnavailable
from geminga_broker.ownership.ownership import Ownership
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_runtime.coordination import Coordination

if TYPE_CHECKING:
    from typing import Protocol

    class RememberingBroker(Protocol):
        """The broker behind the application, whose methods are replaced here."""

        busy: set[str]
        volatile: set[TopicName]

        async def delete(self, topic: TopicName, *, force: bool) -> None: ...
        async def create(self, topic: TopicName, properties: dict[str, str]) -> None: ...
        async def settled(self, namespace: NamespaceName) -> None: ...


NS = "/admin/v2/namespaces/public/full"
FULL = NamespaceName("public", "full")
USED = TopicName.parse("persistent://public/full/used")


@pytest.fixture
async def forcing(services: Services) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that may delete by force."""
    forcing = AdminConfig(force_deletes_namespaces=True, force_deletes_tenants=True)
    app = create_app(replace(services, config=forcing))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:28080") as opened:
        yield opened


@pytest.fixture
async def full(forcing: httpx.AsyncClient, broker: RememberingBroker) -> None:
    """A namespace with a topic in use, a partitioned one, a volatile one and one of Pulsar's."""
    await forcing.put(NS)
    for path in ("used", "__change_events"):
        await forcing.put(f"/admin/v2/persistent/public/full/{path}")
    await forcing.put("/admin/v2/persistent/public/full/parts/partitions", json=3)
    await forcing.put("/admin/v2/non-persistent/public/full/volatile")
    broker.busy.add(str(USED))


async def left(coordination: Coordination) -> list[str]:
    """Nodes of the namespace that are still there."""
    roots = ("managed-ledgers", "admin/partitioned-topics", "admin/policies", "namespace")
    paths = [f"/{root}/public/full" for root in (*roots, "admin/local-policies")]
    return [path for path in paths if await coordination.exists(path) is not None]


@pytest.mark.usefixtures("full")
async def test_a_namespace_goes_with_everything_in_it(
    forcing: httpx.AsyncClient,
    services: Services,
    broker: RememberingBroker,
    coordination: Coordination,
) -> None:
    assert (await forcing.delete(NS)).status_code == 409
    assert (await forcing.delete(f"{NS}?force=true")).status_code == 204
    assert await left(coordination) == []
    assert broker.volatile == set()
    assert list(services.ownership.owned.generations) == []
    assert (await forcing.delete(f"{NS}?force=true")).status_code == 404
    assert (await forcing.put(NS)).status_code == 204
    assert (await forcing.get(f"{NS}/topics?mode=ALL")).json() == []


@pytest.mark.usefixtures("full")
async def test_a_topic_that_is_created_again_before_the_namespace_is_marked_is_deleted_too(
    forcing: httpx.AsyncClient,
    services: Services,
    broker: RememberingBroker,
    coordination: Coordination,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delete = broker.delete
    came_back: list[bool] = []

    async def make_again(topic: TopicName, *, force: bool) -> None:
        await delete(topic, force=force)
        if topic == USED and not came_back:
            came_back.append((await services.namespaces.policies(FULL)).deleted)
            await broker.create(topic, {})

    monkeypatch.setattr(broker, "delete", make_again)
    assert (await forcing.delete(f"{NS}?force=true")).status_code == 204
    assert came_back == [False]
    assert await left(coordination) == []


@pytest.mark.usefixtures("full")
async def test_a_topic_that_was_being_made_then_is_deleted_in_another_round(
    forcing: httpx.AsyncClient,
    services: Services,
    broker: RememberingBroker,
    coordination: Coordination,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delete = broker.delete
    attempts: list[bool] = []

    async def not_while_marked(topic: TopicName, *, force: bool) -> None:
        is_marked = (await services.namespaces.policies(FULL)).deleted
        if topic == USED:
            attempts.append(is_marked)
            if is_marked:
                raise ServiceNotReady("not served here")
        await delete(topic, force=force)
        if topic == USED and len(attempts) == 1:
            await broker.create(topic, {})

    monkeypatch.setattr(broker, "delete", not_while_marked)
    assert (await forcing.delete(f"{NS}?force=true")).status_code == 204
    assert attempts == [False, True, False]
    assert await left(coordination) == []


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("query", ["", "?force=true"])
async def test_a_topic_whose_making_takes_long_is_waited_for(
    forcing: httpx.AsyncClient,
    services: Services,
    broker: RememberingBroker,
    coordination: Coordination,
    monkeypatch: pytest.MonkeyPatch,
    query: str,
) -> None:
    """Had the namespace gone before its node stood there, its ledgers would belong to no topic."""
    late: list[bool] = []

    async def make_late(_: NamespaceName) -> None:
        if not late:
            late.append((await services.namespaces.policies(FULL)).deleted)
            await broker.create(USED, {})

    await broker.delete(USED, force=True)
    for path in ("parts/partitions", "parts"):
        await forcing.delete(f"/admin/v2/persistent/public/full/{path}?force=true")
    await forcing.delete("/admin/v2/non-persistent/public/full/volatile?force=true")
    monkeypatch.setattr(broker, "settled", make_late)
    answer = await forcing.delete(f"{NS}{query}")
    assert late == [True]
    if query:
        assert answer.status_code == 204
        assert await left(coordination) == []
    else:
        assert (answer.status_code, answer.json()) == (
            409,
            {"reason": "Cannot delete non empty namespace"},
        )
        assert not (await services.namespaces.policies(FULL)).deleted
        assert str(USED) in (await forcing.get("/admin/v2/persistent/public/full")).json()


@pytest.mark.usefixtures("full")
async def test_what_cannot_be_finished_may_be_asked_for_again(
    forcing: httpx.AsyncClient,
    services: Services,
    broker: RememberingBroker,
    coordination: Coordination,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delete = services.namespaces.delete

    async def fail(_: NamespaceName) -> None:
        raise StorageUnavailable("no bookie answers")

    monkeypatch.setattr(services.namespaces, "delete", fail)
    assert (await forcing.delete(f"{NS}?force=true")).status_code >= 500
    assert not (await services.namespaces.policies(FULL)).deleted
    await broker.create(USED, {})
    # As it is left by a broker that was killed in the middle.
    await services.namespaces.update(FULL, lambda policies: replace(policies, deleted=True))
    monkeypatch.setattr(services.namespaces, "delete", delete)
    assert (await forcing.delete(f"{NS}?force=true")).status_code == 204
    assert await left(coordination) == []


@pytest.mark.usefixtures("full")
async def test_topics_of_another_broker_go_too(
    forcing: httpx.AsyncClient, services: Services, rival: Ownership, coordination: Coordination
) -> None:
    await services.ownership.unload_namespace(FULL)
    await rival.owner(USED)
    answer = await forcing.delete(f"{NS}?force=true")
    assert (answer.status_code, answer.text) == (204, "")
    assert await left(coordination) == []
    assert list(rival.owned.generations) == []


@pytest.mark.usefixtures("full")
async def test_a_tenant_goes_with_its_namespaces(forcing: httpx.AsyncClient) -> None:
    assert (await forcing.delete("/admin/v2/tenants/public")).status_code == 409
    assert (await forcing.delete("/admin/v2/tenants/public?force=true")).status_code == 204
    assert "public" not in (await forcing.get("/admin/v2/tenants")).json()
    assert (await forcing.delete("/admin/v2/tenants/public?force=true")).status_code == 404
