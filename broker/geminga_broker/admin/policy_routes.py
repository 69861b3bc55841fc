"""Makes the routes that get, set and delete one policy each of a table with a row per policy.

A row says of one policy which field of a level's record it is, what bodies it takes, and what it is
called at each level; a level says how its record is read and changed. ``policy_router`` makes the
routes of one level. A policy that is not set answers 200 with an empty body. Of two requests that
set one at the same time, either wins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.services import Services
from geminga_broker.policies.errors import InvalidPolicy
from geminga_broker.policies.levels import INT_MAX
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

# The text for a namespace that does not exist, in most calls about one policy; upstream has three.
MISSING = "Namespace does not exist"

# What the descriptions of the routes say, beside what the policy is.
NOT_SET = "Nothing where it is not set."
TAKEN_AWAY = "Remove the policy: that of the next level counts, or the broker's setting."

AnyPolicies = Policies | TopicPolicies
# A record of upstream's that is kept as JSON, such as a rate or retention.
RecordT = TypeVar("RecordT", bound=JsonRecord)
# Reads the value that a request sets; None: no value. Raises ``RestError``, ``InvalidPolicy``. Run
# before the record is read for the change: what the body asks for is checked once, whether or not
# the change has to be repeated.
Read = Callable[[Request], Awaitable[object]]


# The table


@dataclass(frozen=True, slots=True)
class Served:
    """How a policy is served at one level."""

    # The last segment of its path.
    name: str
    # The method that sets it.
    method: str = "POST"
    can_delete: bool = True
    # How a request is read at this level, where that differs from the row.
    read: Read | None = None
    # The last segment of the path that shows it, where that differs from ``name``.
    shown_as: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """One policy, and how it is served."""

    # What it is, for the description of the routes.
    words: str
    # The field of a level's record that has it, and how a request's body is read. The name of the
    # field in ``Policies`` and in ``TopicPolicies``.
    field: str
    read: Read
    # How it is served below namespaces and below topics; None: not at all.
    namespace: Served
    topic: Served | None = None
    # The field of a namespace has a member for each cluster, of which this cluster's is meant.
    of_cluster: bool = False
    # Which member of the field a request means, where it has several for another reason.
    key: Callable[[Request], str] | None = None
    # Fields of a namespace that always have the same value: older names of the policy.
    twins: tuple[str, ...] = ()
    # What the field has where the policy is not set.
    unset: object = None
    # Called with the present policies, the new value and the key, before the value is stored.
    # Inside the compare-and-set: the policies that it sees are those that the new value joins.
    check: Callable[[AnyPolicies, Any, str], None] | None = None
    # The text of the 404 for a namespace that does not exist, when it is to be changed.
    missing: str = MISSING
    # The names of the three routes in OpenAPI, where they do not follow from the path.
    titles: tuple[str, str, str] | None = None
    # What is shown where the policy is not set, where that is not an empty body.
    in_force: Callable[[Services], object] | None = None


class Level(Protocol):
    """A level that has policies: namespaces, or topics."""

    prefix: str

    def served(self, row: PolicyRow) -> Served | None:
        """How a policy is served at this level; None: not at all."""
        ...

    def rights(self, action: Action) -> Any:  # noqa: ANN401 - what Depends returns has no public type
        """The dependency that authorizes ``action`` at this level."""
        ...

    def key(self, row: PolicyRow, request: Request) -> str | None:
        """Which member of the row's field is meant; None: the whole field."""
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
        """How a policy is served below namespaces."""
        return row.namespace

    def rights(self, action: Action) -> Any:  # noqa: ANN401 - as above
        """The dependency that authorizes ``action`` on the namespace in the path."""
        return on_namespace(action)

    def key(self, row: PolicyRow, request: Request) -> str | None:
        """This cluster, for rates by cluster; else the row's key."""
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
        # A field with several members: one is shown, unless the whole field is shown under another
        # path.
        if isinstance(value, Mapping) and not served.shown_as:
            value = value.get(level.key(row, request))
        if value is None and row.in_force is not None:
            value = row.in_force(_services(request))
        return _answer_of(value)

    async def put(request: Request) -> Response:
        # Before the body is read: a wrong word in the query is refused in any case.
        key = level.key(row, request)
        value = await (served.read or row.read)(request)

        # Called with the record as it is now, and again where another request changed it meanwhile.
        def change(policies: AnyPolicies) -> AnyPolicies:
            if row.check is not None and value is not None:
                # None removes the policy, which can contradict no other.
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

    # Three routes: get, set, and mostly delete.
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
    # The older names too: Java's brokers may read the policy by any of them.
    changed: dict[str, object] = {}
    # Only namespaces have the older names.
    for field in (row.field, *(row.twins if isinstance(policies, Policies) else ())):
        if key is None:
            changed[field] = row.unset if value is None else value
        else:
            # A new mapping: records are values, which other readers hold.
            members = {name: each for name, each in getattr(policies, field).items() if name != key}
            changed[field] = members if value is None else {**members, key: value}
    return replace(policies, **cast(dict[str, Any], changed))


def _answer_of(value: object) -> Response:
    """Answer a policy; an empty body where it is not set."""
    if value is None:
        return empty()
    # In the form of its record, with upstream's names.
    if isinstance(value, JsonRecord):
        return json_record(value)
    if isinstance(value, Mapping):
        return Json({name: to_document(each) for name, each in value.items()})
    return Json(value)


# Bodies of requests


def record(
    kind: type[RecordT],
    check: Callable[[RecordT], None] | None = None,
    *,
    missing: str | None = None,
    or_default: bool = False,
    status: int = 400,
) -> Callable[[Request], Awaitable[RecordT | None]]:
    """Reads a record. One that ``check`` rejects is refused with ``status``; no body is None, or
    refused with the text ``missing`` (400), or with ``or_default`` a record of default values."""

    async def read(request: Request) -> RecordT | None:
        body = await object_body(request)
        if body is None:
            if missing is not None:
                raise RestError(400, missing)
            if not or_default:
                return None
        # Members of the body that the record does not know are not stored. ``other`` holds unknown
        # members, which would stay in the record for ever.
        policy = replace(of_document(kind, body or {}), other={})
        if check is not None:
            try:
                check(policy)
            except InvalidPolicy as error:
                raise RestError(status, str(error)) from None
        return policy

    return read


def number(refusal: str) -> Callable[[Request], Awaitable[int | None]]:
    """Reads a number of 0 or more, or ``null``; ``refusal`` is the text for one below 0 (412)."""

    async def read(request: Request) -> int | None:
        value = await json_body(request)
        if value is None:
            return None
        # A larger number would make the record unreadable for Java.
        if not isinstance(value, int) or isinstance(value, bool) or value > INT_MAX:
            raise RestError(400, f"The body should be a number up to {INT_MAX}")
        if value < 0:
            raise RestError(412, refusal)
        return value

    return read


async def flag(request: Request) -> bool | None:
    """Read ``true``, ``false`` or ``null``."""
    # ``isinstance`` of bool before anything else: 0 and 1 are no flags.
    value = await json_body(request)
    if value is None or isinstance(value, bool):
        return value
    raise RestError(400, "The body should be true or false")
