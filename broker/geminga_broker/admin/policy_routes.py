"""Routes made of a table of policies: what holds, what shall hold, and that nothing shall.

A row says of one policy where it stands in a level's record, what bodies it takes, and what it is
called at each level; a level says how its record is read and changed. ``policy_router`` makes the
routes of one level. A policy that is not set answers 200 with nothing; one that is set twice at the
same time ends as one of the two.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.facade import Services
from geminga_broker.admin.parameters import number_body
from geminga_broker.policies.errors import InvalidPolicy
from geminga_cluster.errors import NamespaceNotFound
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_protocol.records.cluster.topic_policies import TopicPolicies
from geminga_protocol.records.encodings.json_records import JsonRecord, of_document, to_document
from geminga_server.authorization import Action
from geminga_server.rest.access import on_namespace
from geminga_server.rest.answers import Json, empty, json_record, no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import json_body, namespace_in, object_body

# What calls about one policy say of a namespace that is not there; upstream has three texts.
MISSING = "Namespace does not exist"

# What the list of calls says, besides what the policy is.
NOT_SET = "Nothing where it is not set."
TAKEN_AWAY = "Take it away again: what is said for more holds, in the end the broker's setting."

AnyPolicies = Policies | TopicPolicies
RecordT = TypeVar("RecordT", bound=JsonRecord)
Read = Callable[[Request], Awaitable[object]]
"""Gives what a request says shall hold, None: nothing. Raises ``RestError``, ``InvalidPolicy``."""


# The table


@dataclass(frozen=True, slots=True)
class Served:
    """How a policy is served at one level: the last word of its path, and by which method it is
    set. ``read`` takes the place of the row's; ``shown_as`` is the last word of the path that shows
    it, where that is another."""

    name: str
    method: str = "POST"
    can_delete: bool = True
    read: Read | None = None
    shown_as: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """One policy: ``field`` of a level's record, which ``read`` takes from a request's body.

    ``key`` says which member of the field a request means, where the field has several;
    ``of_cluster`` does where the field of a namespace has one for each cluster. ``twins`` are
    fields of a namespace that always say the same. ``unset`` stands where nothing is set. ``check``
    is asked, with the policies there are and the key, before a value is stored. ``missing`` is said
    of a namespace that is not there when it is to be changed. ``titles`` are what OpenAPI calls
    reading, setting and taking away, where that does not follow from the path. ``in_force`` gives
    what is shown instead of nothing where nothing is set: what holds then.
    """

    words: str
    field: str
    read: Read
    namespace: Served
    topic: Served | None = None
    of_cluster: bool = False
    key: Callable[[Request], str] | None = None
    twins: tuple[str, ...] = ()
    unset: object = None
    check: Callable[[AnyPolicies, Any, str], None] | None = None
    missing: str = MISSING
    titles: tuple[str, str, str] | None = None
    in_force: Callable[[Services], object] | None = None


class Level(Protocol):
    """Where policies stand: a namespace's record, or a topic's."""

    prefix: str

    def served(self, row: PolicyRow) -> Served | None:
        """How a policy is served here; None: it is not."""
        ...

    def rights(self, action: Action) -> Any:  # noqa: ANN401 - what Depends returns has no public type
        """The dependency that asks whether ``action`` is allowed here."""
        ...

    def key(self, row: PolicyRow, request: Request) -> str | None:
        """Which member of the row's field is meant; None: all of it."""
        ...

    async def policies(self, request: Request) -> AnyPolicies:
        """The record. Raises ``RestError`` 404."""
        ...

    async def change(self, request: Request, change: Callable[[Any], Any], *, missing: str) -> None:
        """Replace the record by what ``change`` makes of it; it may be called again. Raises
        ``RestError`` 404, and what ``change`` raises."""
        ...


class NamespaceLevel:
    """The policies of a namespace."""

    prefix = "/admin/v2/namespaces/{tenant}/{namespace}"

    def served(self, row: PolicyRow) -> Served | None:
        """How a policy is served here."""
        return row.namespace

    def rights(self, action: Action) -> Any:  # noqa: ANN401 - as above
        """The dependency that asks whether ``action`` is allowed here."""
        return on_namespace(action)

    def key(self, row: PolicyRow, request: Request) -> str | None:
        """This cluster of a rate; else what the row says."""
        if row.of_cluster:
            return _services(request).cluster
        return None if row.key is None else row.key(request)

    async def policies(self, request: Request) -> AnyPolicies:
        """The namespace's record. Raises ``RestError`` 404."""
        return await policies_of(_services(request), namespace_in(request))

    async def change(
        self, request: Request, change: Callable[[Policies], Policies], *, missing: str
    ) -> None:
        """Replace the namespace's record by what ``change`` makes of it. Raises ``RestError`` 404
        with ``missing``, and what ``change`` raises."""
        await change_policies(_services(request), namespace_in(request), change, missing=missing)


async def policies_of(services: Services, namespace: NamespaceName) -> Policies:
    """The record of a namespace. Raises ``RestError`` 404."""
    try:
        return await services.namespaces.policies(namespace)
    except NamespaceNotFound:
        raise RestError(404, MISSING) from None


async def change_policies(
    services: Services,
    namespace: NamespaceName,
    change: Callable[[Policies], Policies],
    *,
    missing: str = MISSING,
) -> None:
    """Replace the record of a namespace by what ``change`` makes of it. Raises ``RestError`` 404
    with ``missing``, and what ``change`` raises."""
    try:
        await services.namespaces.update(namespace, change)
    except NamespaceNotFound:
        raise RestError(404, missing) from None


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


# Routes


def policy_router(level: Level, rows: Iterable[PolicyRow]) -> APIRouter:
    """The routes of ``rows`` at ``level``."""
    router = APIRouter(prefix=level.prefix)
    for row in rows:
        served = level.served(row)
        if served is not None:
            _add(router, level, row, served)
    return router


def _add(router: APIRouter, level: Level, row: PolicyRow, served: Served) -> None:
    async def get(request: Request) -> Response:
        value = getattr(await level.policies(request), row.field)
        if isinstance(value, Mapping) and not served.shown_as:
            value = value.get(level.key(row, request))
        if value is None and row.in_force is not None:
            value = row.in_force(_services(request))
        return _answer_of(value)

    async def put(request: Request) -> Response:
        key = level.key(row, request)
        value = await (served.read or row.read)(request)

        def change(policies: AnyPolicies) -> AnyPolicies:
            if row.check is not None and value is not None:
                row.check(policies, value, key or "")
            return _with(policies, row, key, value)

        await level.change(request, change, missing=row.missing)
        return no_content()

    async def delete(request: Request) -> Response:
        key = level.key(row, request)
        await level.change(
            request, lambda policies: _with(policies, row, key, None), missing=row.missing
        )
        return no_content()

    shown_as = served.shown_as or served.name
    titles = row.titles or (f"get {shown_as}", f"set {served.name}", f"delete {served.name}")
    routes = [
        (shown_as, get, "GET", Action.READ, titles[0], f"{row.words} {NOT_SET}"),
        (served.name, put, served.method, Action.ADMINISTER, titles[1], row.words),
    ]
    if served.can_delete:
        routes.append((served.name, delete, "DELETE", Action.ADMINISTER, titles[2], TAKEN_AWAY))
    for name, endpoint, method, action, title, words in routes:
        router.add_api_route(
            f"/{name}",
            endpoint,
            methods=[method],
            dependencies=[level.rights(action)],
            name=title,
            description=words,
        )


def _with(policies: AnyPolicies, row: PolicyRow, key: str | None, value: object) -> AnyPolicies:
    """``policies`` in which the row's policy is ``value``, None: not set."""
    changed: dict[str, object] = {}
    for field in (row.field, *(row.twins if isinstance(policies, Policies) else ())):
        if key is None:
            changed[field] = row.unset if value is None else value
        else:
            members = {name: each for name, each in getattr(policies, field).items() if name != key}
            changed[field] = members if value is None else {**members, key: value}
    return replace(policies, **cast(dict[str, Any], changed))


def _answer_of(value: object) -> Response:
    """The policy, or nothing where it is not set."""
    if value is None:
        return empty()
    if isinstance(value, JsonRecord):
        return json_record(value)
    if isinstance(value, Mapping):
        return Json({name: to_document(each) for name, each in value.items()})
    return Json(value)


# What requests say


def record(
    kind: type[RecordT],
    check: Callable[[RecordT], None] | None = None,
    *,
    missing: str | None = None,
    status: int = 400,
) -> Callable[[Request], Awaitable[RecordT | None]]:
    """A record that ``check`` lets pass, or is refused with ``status``. No body is None, or refused
    as ``missing`` (400)."""

    async def read(request: Request) -> RecordT | None:
        body = await object_body(request)
        if body is not None:
            return _checked(kind, check, body, status)
        if missing is not None:
            raise RestError(400, missing)
        return None

    return read


def record_or_nothing(
    kind: type[RecordT], check: Callable[[RecordT], None] | None = None
) -> Callable[[Request], Awaitable[RecordT]]:
    """A record that ``check`` lets pass; no body is one in which nothing is said."""

    async def read(request: Request) -> RecordT:
        return _checked(kind, check, await object_body(request) or {})

    return read


def _checked(
    kind: type[RecordT],
    check: Callable[[RecordT], None] | None,
    body: Mapping[str, Any],
    status: int = 400,
) -> RecordT:
    policy = replace(of_document(kind, body), other={})
    if check is not None:
        try:
            check(policy)
        except InvalidPolicy as error:
            raise RestError(status, str(error)) from None
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
