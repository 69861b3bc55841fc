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
# Texts that belong to the cursor (``cursor_properties``), not to its position.
PROPERTY = option(
    "--property", "-p", read=pair, repeated=True, metavar="KEY=VALUE", help="may be given again"
)
# ``isExcluded`` of ``ResetCursorData``: the message was processed, and the next one is wanted.
EXCLUDED = switch(
    "-e", "--exclude-reset-position", help="begin after that message instead of with it"
)
# The path of one subscription.
ONE = "{topic}/subscription/{subscription}"
MS_A_SECOND = 1_000


def create_subscription(service: AdminService, given: Given) -> None:
    """Create a subscription at a message."""
    # REST takes the position, with the properties as one more member of it.
    body: dict[str, Any] = dict(given.messageId)
    if given.property:
        body["properties"] = dict(given.property)
    # ``replicated`` (PIP-33) is decided at the creation.
    query = {"replicated": True} if given.replicated else {}
    service.ask("PUT", path(ONE, given), query, body)


def update_properties(service: AdminService, given: Given) -> None:
    """Replace the properties of a subscription; with ``--clear`` by none."""
    # Replacing by nothing has its own word: a forgotten --property must not delete all.
    if bool(given.property) == given.clear:
        raise InvalidUse("one of --property and --clear is needed")
    service.ask("PUT", path(f"{ONE}/properties", given), content=dict(given.property or ()))


def expire_messages(service: AdminService, given: Given) -> None:
    """Let the subscription skip messages by their age, or up to a message."""
    if (given.expireTime is None) == (given.position is None):
        raise InvalidUse("one of --expireTime and --position is needed")
    if given.position is None:
        service.ask("POST", path(f"{ONE}/expireMessages/{{expireTime}}", given))
    else:
        # ``ResetCursorData``.
        body = {**given.position, "isExcluded": given.exclude_reset_position}
        service.ask("POST", path(f"{ONE}/expireMessages", given), content=body)


def reset_cursor(service: AdminService, given: Given) -> None:
    """Move the subscription to a time, or to a message."""
    if (given.time is None) == (given.messageId is None):
        raise InvalidUse("one of --time and --messageId is needed")
    if given.messageId is not None:
        body = {**given.messageId, "isExcluded": given.exclude_reset_position}
        service.ask("POST", path(f"{ONE}/resetcursor", given), content=body)
        return
    # REST takes a moment, the command line a span before now. That is the time of this machine, not
    # of the broker: an error of this clock moves the position.
    moment_ms = int((time.time() - given.time) * MS_A_SECOND)
    service.ask("POST", path(f"{ONE}/resetcursor/{moment_ms}", given))


def analyze_backlog(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
    """Count the entries and messages of the backlog."""
    # The broker reads the whole backlog for it: with a large one this takes long.
    return service.ask("POST", path(f"{ONE}/analyzeBacklog", given), content=given.position)


# ``PersistentTopicsBase`` of Pulsar. On a partitioned topic, the broker does most of these for all
# partitions; where one fails, the others may be done already, and the command can be repeated.
SUBSCRIPTION_OPERATIONS = (
    Operation(
        "subscriptions",
        "list a topic's subscriptions",
        (TOPIC,),
        gets("{topic}/subscriptions"),
    ),
    Operation(
        "create-subscription",
        "create a subscription",
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
            switch("-r", "--replicated", help="replicate its position to other clusters"),
            PROPERTY,
        ),
        create_subscription,
    ),
    Operation(
        "unsubscribe",
        "delete a subscription",
        (TOPIC, SUBSCRIPTION, switch("-f", "--force", help="disconnect its consumers")),
        # ``force`` also disconnects consumers; without it a subscription in use is refused (412).
        sends("DELETE", ONE, query={"force": "force"}),
    ),
    Operation(
        "skip",
        "let a subscription skip some messages",
        (
            TOPIC,
            SUBSCRIPTION,
            option("-n", "--count", read=int, required=True, metavar="NUMBER", help="how many"),
        ),
        sends("POST", f"{ONE}/skip/{{count}}"),
    ),
    Operation(
        "clear-backlog",
        "let a subscription skip all messages",
        (TOPIC, SUBSCRIPTION),
        # Up to the end of the topic at this moment.
        sends("POST", f"{ONE}/skip_all"),
    ),
    # What is skipped counts as acknowledged: it is deleted once all subscriptions have it
    # acknowledged.
    Operation(
        "expire-messages",
        "let a subscription skip old messages",
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
        expire_messages,
    ),
    Operation(
        "expire-messages-all-subscriptions",
        "let all subscriptions of a topic skip old messages",
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
    # Backwards as well: messages that were acknowledged are delivered again, as far as retention
    # has kept them. Consumers are disconnected and come back.
    Operation(
        "reset-cursor",
        "move a subscription to a time or a message",
        (
            TOPIC,
            SUBSCRIPTION,
            option(
                "--time",
                "-t",
                read=minutes_or_unit,
                metavar="TIME",
                help="to messages that were published this long ago: 10 (minutes), 100m, 3h, 2d",
            ),
            option(
                "--messageId",
                "-m",
                read=message_id,
                metavar="WHERE",
                help="to a message: earliest, latest or LEDGER:ENTRY",
            ),
            EXCLUDED,
        ),
        reset_cursor,
    ),
    Operation(
        "analyze-backlog",
        "count the backlog of a subscription, entry by entry",
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
        analyze_backlog,
    ),
    Operation(
        "get-subscription-properties",
        "show a subscription's properties",
        (TOPIC, SUBSCRIPTION),
        gets(f"{ONE}/properties"),
    ),
    Operation(
        "update-subscription-properties",
        "replace the properties of a subscription",
        (TOPIC, SUBSCRIPTION, PROPERTY, switch("--clear", "-c", help="remove all")),
        update_properties,
    ),
)

# The same commands in a group of their own, where shorter words suffice.
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
