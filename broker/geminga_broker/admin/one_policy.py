"""Routes for one policy of a namespace each: what holds, what shall hold, and that nothing shall.

A policy that is not set answers 200 with nothing; one that is set twice at the same time ends as
one of the two. Which policies there are, and what bodies they take, is in the routes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.access import on_namespace
from geminga_broker.admin.answers import Json, empty, json_record, no_content
from geminga_broker.admin.errors import RestError
from geminga_broker.admin.facade import Services
from geminga_broker.admin.parameters import (
    NamespaceArg,
    ServicesArg,
    json_body,
    number_body,
    object_body,
)
from geminga_broker.metadata.errors import NamespaceNotFound
from geminga_protocol.pulsar.topic_names import NamespaceName
from geminga_protocol.records.json_records import JsonRecord, of_document
from geminga_protocol.records.namespaces import Policies
from geminga_server.authorization import Action

PREFIX = "/admin/v2/namespaces/{tenant}/{namespace}"
READ = [on_namespace(Action.READ)]
ADMINISTER = [on_namespace(Action.ADMINISTER)]

# What calls about one policy say of a namespace that is not there; upstream has three texts.
MISSING = "Namespace does not exist"

RecordT = TypeVar("RecordT", bound=JsonRecord)
Read = Callable[[Request], Awaitable[object]]
"""Gives what a body says shall hold. Raises ``RestError``, ``InvalidPolicy``."""


# One policy


def serve_policy(
    router: APIRouter,
    path: str,
    field: str,
    read: Read,
    *,
    method: str = "POST",
    can_delete: bool = True,
) -> None:
    """Serve the policy ``field`` of ``Policies``; where that is None, it is not set."""

    async def get(namespace: NamespaceArg, services: ServicesArg) -> Response:
        return answer_of(getattr(await policies_of(services, namespace), field))

    async def put(request: Request, namespace: NamespaceArg, services: ServicesArg) -> Response:
        changed = {field: await read(request)}
        return await change_policies(services, namespace, setting(changed))

    async def delete(namespace: NamespaceArg, services: ServicesArg) -> Response:
        return await change_policies(services, namespace, setting({field: None}))

    serve(router, path, get, put, delete if can_delete else None, method=method)


def serve_rate(
    router: APIRouter,
    path: str,
    fields: tuple[str, ...],
    read: Callable[[Request], Awaitable[JsonRecord | None]],
) -> None:
    """Serve a policy of which a namespace has one for each cluster; this cluster's. The first of
    ``fields`` is read, all are written."""

    async def get(namespace: NamespaceArg, services: ServicesArg) -> Response:
        rates = getattr(await policies_of(services, namespace), fields[0])
        return answer_of(rates.get(services.cluster))

    async def put(request: Request, namespace: NamespaceArg, services: ServicesArg) -> Response:
        change = _rating(fields, services.cluster, await read(request))
        return await change_policies(services, namespace, change)

    async def delete(namespace: NamespaceArg, services: ServicesArg) -> Response:
        return await change_policies(services, namespace, _rating(fields, services.cluster, None))

    serve(router, path, get, put, delete)


def serve(
    router: APIRouter,
    path: str,
    get: Callable[..., Awaitable[Response]],
    put: Callable[..., Awaitable[Response]],
    delete: Callable[..., Awaitable[Response]] | None,
    *,
    method: str = "POST",
) -> None:
    """Serve ``path`` by these; ``put`` by ``method``."""
    name = path.removeprefix("/")

    def add(
        method: str, endpoint: Callable[..., Awaitable[Response]], verb: str, words: str
    ) -> None:
        router.add_api_route(
            path,
            endpoint,
            methods=[method],
            dependencies=READ if method == "GET" else ADMINISTER,
            name=f"{verb} {name}",
            description=words,
        )

    add("GET", get, "get", f"The namespace's policy ``{name}``; nothing where it has none.")
    add(method, put, "set", f"Give the namespace a policy ``{name}``.")
    if delete is not None:
        add("DELETE", delete, "delete", "Take it away again: the broker's setting holds.")


def _rating(
    fields: tuple[str, ...], cluster: str, rate: JsonRecord | None
) -> Callable[[Policies], Policies]:
    def change(policies: Policies) -> Policies:
        changed: dict[str, object] = {}
        for field in fields:
            rates = {key: each for key, each in getattr(policies, field).items() if key != cluster}
            changed[field] = rates if rate is None else {**rates, cluster: rate}
        return setting(changed)(policies)

    return change


# What bodies say


def record(
    kind: type[RecordT], check: Callable[[RecordT], None], *, missing: str | None = None
) -> Callable[[Request], Awaitable[RecordT | None]]:
    """A record that ``check`` lets pass. No body is None, or refused as ``missing`` (400)."""

    async def read(request: Request) -> RecordT | None:
        body = await object_body(request)
        if body is not None:
            return _checked(kind, check, body)
        if missing is not None:
            raise RestError(400, missing)
        return None

    return read


def record_or_nothing(
    kind: type[RecordT], check: Callable[[RecordT], None]
) -> Callable[[Request], Awaitable[RecordT]]:
    """A record that ``check`` lets pass; no body is one in which nothing is said."""

    async def read(request: Request) -> RecordT:
        return _checked(kind, check, await object_body(request) or {})

    return read


def _checked(
    kind: type[RecordT], check: Callable[[RecordT], None], body: Mapping[str, Any]
) -> RecordT:
    policy = replace(of_document(kind, body), other={})
    check(policy)
    return policy


def number(refusal: str) -> Callable[[Request], Awaitable[int | None]]:
    """A number; ``refusal`` is what somebody is told who gives one below 0."""

    async def read(request: Request) -> int | None:
        return await number_body(request, refusal)

    return read


async def flag(request: Request) -> bool | None:
    """True, false, or ``null``."""
    value = await json_body(request)
    if value is None or isinstance(value, bool):
        return value
    raise RestError(400, "The body should be true or false")


# Policies as a whole


def answer_of(policy: JsonRecord | int | None) -> Response:
    """The policy, or nothing where it is not set."""
    if policy is None:
        return empty()
    return json_record(policy) if isinstance(policy, JsonRecord) else Json(policy)


def setting(changed: Mapping[str, object]) -> Callable[[Policies], Policies]:
    """Replaces these fields."""
    return lambda policies: replace(policies, **cast(dict[str, Any], changed))


async def policies_of(services: Services, namespace: NamespaceName) -> Policies:
    """The namespace's policies. Raises ``RestError`` 404."""
    with _said_of_missing(MISSING):
        return await services.namespaces.policies(namespace)


async def change_policies(
    services: Services,
    namespace: NamespaceName,
    change: Callable[[Policies], Policies],
    *,
    missing: str = MISSING,
) -> Response:
    """Replace the namespace's policies by what ``change`` makes of them; the answer to that.

    Raises ``RestError`` 404 with ``missing`` where there is no such namespace."""
    with _said_of_missing(missing):
        await services.namespaces.update(namespace, change)
    return no_content()


@contextmanager
def _said_of_missing(reason: str) -> Generator[None, None, None]:
    """Say ``reason`` (404) where there is no such namespace."""
    try:
        yield
    except NamespaceNotFound:
        raise RestError(404, reason) from None
