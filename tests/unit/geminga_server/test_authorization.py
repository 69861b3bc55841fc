"""The question every handler asks, and the answer of a cluster without authentication."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from geminga_server.authorization import (
    ANONYMOUS,
    Action,
    Authorize,
    Principal,
    Resource,
    ResourceKind,
    allow_all,
)
from geminga_server.errors import NotAuthorized

RESOURCES = [
    Resource("topic", "persistent://public/default/t"),
    Resource("namespace", "public/default"),
    Resource("tenant", "public"),
    Resource("cluster", "standalone"),
    Resource("broker", "127.0.0.1:8080"),
]


async def test_without_authentication_every_principal_may_do_everything() -> None:
    ask: Authorize = allow_all
    for principal, action, resource in itertools.product(
        [ANONYMOUS, Principal("admin"), Principal("proxy", original="user")], Action, RESOURCES
    ):
        await ask(principal, action, resource)


def test_a_resource_is_shown_with_its_kind() -> None:
    assert {resource.kind for resource in RESOURCES} == set(get_args(ResourceKind))
    assert str(RESOURCES[1]) == "namespace public/default"


def test_a_principal_with_a_role_is_not_anonymous() -> None:
    assert ANONYMOUS.is_anonymous
    assert not Principal("admin").is_anonymous


@pytest.mark.parametrize(("role", "who"), [("user", "user"), ("", "an anonymous client")])
def test_a_refusal_says_who_may_not_do_what_on_what(role: str, who: str) -> None:
    refusal = NotAuthorized(role, Action.PRODUCE, str(RESOURCES[0]))
    assert str(refusal) == f"{who} may not produce on topic persistent://public/default/t"
    assert (refusal.code, refusal.retry) == ("AuthorizationError", False)
