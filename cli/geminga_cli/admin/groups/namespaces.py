"""``geminga admin namespaces``."""

from __future__ import annotations

from geminga_cli.admin.errors import InvalidUse
from geminga_cli.admin.namespace_policies.storage import STORAGE, TOPIC_LIFE
from geminga_cli.admin.namespace_policies.traffic import CONSUMING, PUBLISHING, SCHEMAS
from geminga_cli.admin.operation import Given, Operation, gets, option, path, place, sends, switch
from geminga_cli.admin.service import AdminService
from geminga_cli.admin.values import compact, namespace, words

NAMESPACE = place("namespace", "tenant/namespace", namespace)
CLUSTERS = option("--clusters", "-c", required=True, read=words, metavar="A,B", help="which")
BUNDLE = option("--bundle", "-b", metavar="0xA_0xB", help="only of this bundle's topics")


def clusters_given(given: Given) -> list[str]:
    """Those of ``CLUSTERS``, as REST takes them."""
    return list(given.clusters)


def _create(service: AdminService, given: Given) -> None:
    """A namespace is in the clusters that are named, else wherever its tenant may be."""
    bundles = {"numBundles": given.bundles} if given.bundles else None
    body = compact({"replication_clusters": given.clusters, "bundles": bundles})
    service.ask("PUT", path("namespaces/{namespace}", given), content=body)


def _topics(service: AdminService, given: Given) -> list[str]:
    query = compact(
        {
            "mode": given.mode and given.mode.upper(),
            "includeSystemTopic": given.include_system_topic or None,
        }
    )
    found: list[str] | None = service.ask(
        "GET", path("namespaces/{namespace}/topics", given), query
    )
    return sorted(found or ())


def _unload(service: AdminService, given: Given) -> None:
    if given.destinationBroker is not None and given.bundle is None:
        raise InvalidUse("--destinationBroker goes with --bundle")
    template = "namespaces/{namespace}/{bundle}/unload"
    if given.bundle is None:
        template = "namespaces/{namespace}/unload"
    query = compact({"destinationBroker": given.destinationBroker})
    service.ask("PUT", path(template, given), query)


def _clear(service: AdminService, given: Given) -> None:
    where = "namespaces/{namespace}" + ("/{bundle}" if given.bundle else "")
    where += "/clearBacklog" + ("/{sub}" if given.sub else "")
    service.ask("POST", path(where, given))


def _unsubscribe(service: AdminService, given: Given) -> None:
    where = "namespaces/{namespace}" + ("/{bundle}" if given.bundle else "")
    service.ask("POST", path(where + "/unsubscribe/{sub}", given))


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
                help="which ones (default: persistent)",
            ),
            switch("--include-system-topic", "-ist", help="the brokers' own too"),
        ),
        _topics,
    ),
    Operation(
        "bundles",
        "show into which bundles its topics are divided",
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
        "make a namespace",
        (
            NAMESPACE,
            option("--clusters", "-c", read=words, metavar="A,B", help="in which clusters it is"),
            option("--bundles", "-b", read=int, help="into how many bundles it is divided"),
        ),
        _create,
    ),
    Operation(
        "delete",
        "delete a namespace",
        (NAMESPACE, switch("--force", "-f", help="with all its topics")),
        sends("DELETE", "namespaces/{namespace}", query={"force": "force"}),
    ),
    Operation(
        "unload",
        "have brokers let go of its topics, to serve them anew",
        (
            NAMESPACE,
            BUNDLE,
            option("--destinationBroker", "-d", metavar="HOST:PORT", help="to which broker"),
        ),
        _unload,
    ),
    Operation(
        "clear-backlog",
        "have subscriptions forget what they have not acknowledged",
        (
            NAMESPACE,
            option("--sub", "-s", metavar="SUBSCRIPTION", help="only subscriptions of this name"),
            BUNDLE,
            switch("--force", "-force", help="as pulsar-admin; nothing is asked back here"),
        ),
        _clear,
    ),
    Operation(
        "unsubscribe",
        "delete a subscription of all topics",
        (
            NAMESPACE,
            option("--sub", "-s", required=True, metavar="SUBSCRIPTION", help="its name"),
            BUNDLE,
        ),
        _unsubscribe,
    ),
    Operation(
        "set-clusters",
        "replicate its topics between these clusters, at once",
        (NAMESPACE, CLUSTERS),
        sends("POST", "namespaces/{namespace}/replication", clusters_given),
    ),
    Operation(
        "set-allowed-clusters",
        "let it be in these clusters alone, those of single topics among them",
        (NAMESPACE, CLUSTERS),
        sends("POST", "namespaces/{namespace}/allowedClusters", clusters_given),
    ),
    Operation(
        "get-allowed-clusters",
        "show in which clusters it may be; none: in those of its tenant",
        (NAMESPACE,),
        gets("namespaces/{namespace}/allowedClusters"),
    ),
    Operation(
        "get-clusters",
        "show between which clusters its topics are replicated",
        (NAMESPACE,),
        gets("namespaces/{namespace}/replication"),
    ),
    *(
        operation
        for policy in (*STORAGE, *TOPIC_LIFE, *PUBLISHING, *CONSUMING, *SCHEMAS)
        for operation in policy.operations(NAMESPACE, "namespaces/{namespace}")
    ),
)
