"""``geminga admin namespaces``."""

from __future__ import annotations

from operator import attrgetter

from geminga_cli.admin.errors import InvalidUse
from geminga_cli.admin.namespace_policies.storage import STORAGE, TOPIC_LIFE
from geminga_cli.admin.namespace_policies.traffic import CONSUMING, PUBLISHING, SCHEMAS
from geminga_cli.admin.operation import Given, Operation, gets, option, path, place, sends, switch
from geminga_cli.admin.service import AdminService
from geminga_cli.admin.values import compact, namespace, words

NAMESPACE = place("namespace", "tenant/namespace", namespace)
CLUSTERS = option("--clusters", "-c", required=True, read=words, metavar="A,B", help="the clusters")
# A bundle is a range of hashes: it has the topics whose names hash into it.
BUNDLE = option("--bundle", "-b", metavar="0xA_0xB", help="only for topics of this bundle")


def create_namespace(service: AdminService, given: Given) -> None:
    """Create a namespace in the clusters that are named, or in all that its tenant may be in."""
    # ``BundlesData``: without boundaries the broker cuts the hash range evenly.
    bundles = {"numBundles": given.bundles} if given.bundles else None
    body = compact({"replication_clusters": given.clusters, "bundles": bundles})
    service.ask("PUT", path("namespaces/{namespace}", given), content=body)


def list_topics(service: AdminService, given: Given) -> list[str]:
    """The topics of a namespace that exist."""
    query = compact(
        {
            "mode": given.mode and given.mode.upper(),
            "includeSystemTopic": given.include_system_topic or None,
        }
    )
    found: list[str] | None = service.ask(
        "GET", path("namespaces/{namespace}/topics", given), query
    )
    # The answer is empty where there are none.
    return sorted(found or ())


def unload_namespace(service: AdminService, given: Given) -> None:
    """Unload all topics of a namespace, or of one bundle."""
    # One broker for the whole namespace would undo what bundles are for.
    if given.destinationBroker is not None and given.bundle is None:
        raise InvalidUse("--destinationBroker goes with --bundle")
    # Without a bundle, all of them are unloaded, and brokers choose where they go.
    template = "namespaces/{namespace}/{bundle}/unload"
    if given.bundle is None:
        template = "namespaces/{namespace}/unload"
    query = compact({"destinationBroker": given.destinationBroker})
    service.ask("PUT", path(template, given), query)


def clear_backlog(service: AdminService, given: Given) -> None:
    """Clear the backlog of all subscriptions, or of those with one name."""
    # The bundle and the subscription are optional parts of the path.
    where = "namespaces/{namespace}" + ("/{bundle}" if given.bundle else "")
    where += "/clearBacklog" + ("/{sub}" if given.sub else "")
    service.ask("POST", path(where, given))


def delete_subscription(service: AdminService, given: Given) -> None:
    """Delete a subscription of all topics of a namespace, or of one bundle."""
    where = "namespaces/{namespace}" + ("/{bundle}" if given.bundle else "")
    service.ask("POST", path(where + "/unsubscribe/{sub}", given))


# ``Namespaces`` of Pulsar. Policies of a namespace are in ZooKeeper; brokers watch them, so a
# change holds for all its topics within moments.
OPERATIONS = (
    Operation(
        "list",
        "list a tenant's namespaces",
        (place("tenant", "the tenant's name"),),
        gets("namespaces/{tenant}"),
    ),
    Operation(
        "topics",
        "list the topics of a namespace that exist",
        (
            NAMESPACE,
            option(
                "--mode",
                "-m",
                choices=("persistent", "non_persistent", "all"),
                help="which topics (default: persistent)",
            ),
            switch("--include-system-topic", "-ist", help="with the brokers' own topics"),
        ),
        list_topics,
    ),
    Operation(
        "bundles",
        "show the bundles of a namespace",
        (NAMESPACE,),
        gets("namespaces/{namespace}/bundles"),
    ),
    Operation(
        "policies",
        "show all policies of a namespace",
        (NAMESPACE,),
        gets("namespaces/{namespace}"),
    ),
    Operation(
        "create",
        "create a namespace",
        (
            NAMESPACE,
            option(
                "--clusters", "-c", read=words, metavar="A,B", help="the clusters that it is in"
            ),
            option("--bundles", "-b", read=int, help="how many bundles it has"),
        ),
        create_namespace,
    ),
    # Without --force a namespace with topics is refused. With it, its topics are deleted until none
    # is left, although their clients reconnect; a deletion that was interrupted can be repeated.
    Operation(
        "delete",
        "delete a namespace",
        (NAMESPACE, switch("--force", "-f", help="with all its topics")),
        sends("DELETE", "namespaces/{namespace}", query={"force": "force"}),
    ),
    Operation(
        "unload",
        "unload its topics: brokers close them, and serve them again when clients return",
        (
            NAMESPACE,
            BUNDLE,
            option(
                "--destinationBroker",
                "-d",
                metavar="HOST:PORT",
                help="the broker that serves the bundle next",
            ),
        ),
        unload_namespace,
    ),
    Operation(
        "clear-backlog",
        "let subscriptions skip all messages that they have not acknowledged",
        (
            NAMESPACE,
            option("--sub", "-s", metavar="SUBSCRIPTION", help="only subscriptions of this name"),
            BUNDLE,
            switch(
                "--force", "-force", help="accepted, as in pulsar-admin; this command never asks"
            ),
        ),
        clear_backlog,
    ),
    Operation(
        "unsubscribe",
        "delete a subscription of all its topics",
        (
            NAMESPACE,
            option("--sub", "-s", required=True, metavar="SUBSCRIPTION", help="its name"),
            BUNDLE,
        ),
        delete_subscription,
    ),
    Operation(
        "set-clusters",
        "replicate its topics between these clusters, at once",
        (NAMESPACE, CLUSTERS),
        # Replaces the list: a cluster that is left out gets no more messages.
        sends("POST", "namespaces/{namespace}/replication", attrgetter("clusters")),
    ),
    Operation(
        "set-allowed-clusters",
        "set the clusters that it may be in, those of single topics included",
        (NAMESPACE, CLUSTERS),
        sends("POST", "namespaces/{namespace}/allowedClusters", attrgetter("clusters")),
    ),
    Operation(
        "get-allowed-clusters",
        "show the clusters that it may be in; none: those of its tenant",
        (NAMESPACE,),
        gets("namespaces/{namespace}/allowedClusters"),
    ),
    Operation(
        "get-clusters",
        "show the clusters between which its topics are replicated",
        (NAMESPACE,),
        gets("namespaces/{namespace}/replication"),
    ),
    # Each policy has a command to show it, one to set it, and mostly one to remove it.
    *(
        operation
        for policy in (*STORAGE, *TOPIC_LIFE, *PUBLISHING, *CONSUMING, *SCHEMAS)
        for operation in policy.operations(NAMESPACE, "namespaces/{namespace}")
    ),
)
