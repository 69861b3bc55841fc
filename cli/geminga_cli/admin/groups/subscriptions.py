"""Subscriptions: commands of ``geminga admin topics``, and of ``geminga admin subscriptions``."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from geminga_cli.admin.errors import InvalidUse
from geminga_cli.admin.operation import Given, Operation, gets, option, path, place, sends, switch
from geminga_cli.admin.service import AdminService
from geminga_cli.admin.values import LATEST, message_id, minutes_or_unit, pair, seconds, topic

TOPIC = place("topic", "the topic's name", topic)
SUBSCRIPTION = option(
    "-s", "--subscription", required=True, metavar="NAME", help="the subscription's name"
)
PROPERTY = option(
    "--property", "-p", read=pair, repeated=True, metavar="KEY=VALUE", help="may be given again"
)
EXCLUDED = switch("-e", "--exclude-reset-position", help="begin behind that message, not with it")
ONE = "{topic}/subscription/{subscription}"
MS_A_SECOND = 1_000


def _create(service: AdminService, given: Given) -> None:
    body: dict[str, Any] = dict(given.messageId)
    if given.property:
        body["properties"] = dict(given.property)
    query = {"replicated": True} if given.replicated else {}
    service.ask("PUT", path(ONE, given), query, body)


def _relabel(service: AdminService, given: Given) -> None:
    if bool(given.property) == given.clear:
        raise InvalidUse("one of --property and --clear is needed")
    service.ask("PUT", path(f"{ONE}/properties", given), content=dict(given.property or ()))


def _expire(service: AdminService, given: Given) -> None:
    if (given.expireTime is None) == (given.position is None):
        raise InvalidUse("one of --expireTime and --position is needed")
    if given.position is None:
        service.ask("POST", path(f"{ONE}/expireMessages/{{expireTime}}", given))
    else:
        body = {**given.position, "isExcluded": given.exclude_reset_position}
        service.ask("POST", path(f"{ONE}/expireMessages", given), content=body)


def _reset(service: AdminService, given: Given) -> None:
    if (given.time is None) == (given.messageId is None):
        raise InvalidUse("one of --time and --messageId is needed")
    if given.messageId is not None:
        body = {**given.messageId, "isExcluded": given.exclude_reset_position}
        service.ask("POST", path(f"{ONE}/resetcursor", given), content=body)
        return
    moment_ms = int((time.time() - given.time) * MS_A_SECOND)
    service.ask("POST", path(f"{ONE}/resetcursor/{moment_ms}", given))


def _analyze(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
    return service.ask("POST", path(f"{ONE}/analyzeBacklog", given), content=given.position)


SUBSCRIPTION_OPERATIONS = (
    Operation(
        "subscriptions",
        "list a topic's subscriptions",
        (TOPIC,),
        gets("{topic}/subscriptions"),
    ),
    Operation(
        "create-subscription",
        "make a subscription",
        (
            TOPIC,
            SUBSCRIPTION,
            option(
                "-m",
                "--messageId",
                read=message_id,
                default=LATEST,
                metavar="WHERE",
                help="where it begins: earliest, latest (default) or LEDGER:ENTRY",
            ),
            switch("-r", "--replicated", help="its position is replicated to other clusters"),
            PROPERTY,
        ),
        _create,
    ),
    Operation(
        "unsubscribe",
        "delete a subscription",
        (TOPIC, SUBSCRIPTION, switch("-f", "--force", help="disconnect its consumers")),
        sends("DELETE", ONE, query={"force": "force"}),
    ),
    Operation(
        "skip",
        "have a subscription pass some messages",
        (
            TOPIC,
            SUBSCRIPTION,
            option("-n", "--count", read=int, required=True, metavar="NUMBER", help="how many"),
        ),
        sends("POST", f"{ONE}/skip/{{count}}"),
    ),
    Operation(
        "clear-backlog",
        "have a subscription pass all messages there are",
        (TOPIC, SUBSCRIPTION),
        sends("POST", f"{ONE}/skip_all"),
    ),
    Operation(
        "expire-messages",
        "have a subscription pass old messages",
        (
            TOPIC,
            SUBSCRIPTION,
            option(
                "-t", "--expireTime", read=seconds, metavar="TIME", help="older than: 90, 100m, 3h"
            ),
            option(
                "--position", "-p", read=message_id, metavar="LEDGER:ENTRY", help="up to a message"
            ),
            EXCLUDED,
        ),
        _expire,
    ),
    Operation(
        "expire-messages-all-subscriptions",
        "have all subscriptions of a topic pass old messages",
        (
            TOPIC,
            option(
                "-t",
                "--expireTime",
                read=seconds,
                required=True,
                metavar="TIME",
                help="older than: 90, 100m, 3h",
            ),
        ),
        sends("POST", "{topic}/all_subscription/expireMessages/{expireTime}"),
    ),
    Operation(
        "reset-cursor",
        "have a subscription begin again somewhere",
        (
            TOPIC,
            SUBSCRIPTION,
            option(
                "--time",
                "-t",
                read=minutes_or_unit,
                metavar="TIME",
                help="with what was published so long ago: 10 (minutes), 100m, 3h, 2d",
            ),
            option(
                "--messageId",
                "-m",
                read=message_id,
                metavar="WHERE",
                help="with a message: earliest, latest or LEDGER:ENTRY",
            ),
            EXCLUDED,
        ),
        _reset,
    ),
    Operation(
        "analyze-backlog",
        "count what a subscription has before it, entry by entry",
        (
            TOPIC,
            SUBSCRIPTION,
            option(
                "-p",
                "--position",
                read=message_id,
                metavar="LEDGER:ENTRY",
                help="from a message on",
            ),
        ),
        _analyze,
    ),
    Operation(
        "get-subscription-properties",
        "show a subscription's properties",
        (TOPIC, SUBSCRIPTION),
        gets(f"{ONE}/properties"),
    ),
    Operation(
        "update-subscription-properties",
        "give a subscription other properties",
        (TOPIC, SUBSCRIPTION, PROPERTY, switch("--clear", "-c", help="take all away")),
        _relabel,
    ),
)

# The same commands in a group of their own, where a shorter word will do.
SHORTER = {
    "subscriptions": "list",
    "create-subscription": "create",
    "unsubscribe": "delete",
    "expire-messages": "expire",
    "expire-messages-all-subscriptions": "expire-all",
    "get-subscription-properties": "get-properties",
    "update-subscription-properties": "update-properties",
}
OPERATIONS = tuple(
    replace(each, word=SHORTER.get(each.word, each.word)) for each in SUBSCRIPTION_OPERATIONS
)
