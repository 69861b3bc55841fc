"""``geminga admin brokers``."""

from __future__ import annotations

from geminga_cli.admin.operation import Given, Operation, gets, option, path, place, sends
from geminga_cli.admin.service import AdminService

# A dynamic setting: brokers read it from ZooKeeper, and apply it without a restart.
CONFIG = option("--config", "-c", required=True, metavar="NAME", help="the setting's name")


def list_brokers(service: AdminService, given: Given) -> list[str]:
    """The brokers of this cluster, or of the one that is named."""
    where = "brokers" if given.cluster is None else path("brokers/{cluster}", given)
    found: list[str] = service.ask("GET", where)
    return found


def check_health(service: AdminService, given: Given) -> str:
    """``ok``; a broker that is not healthy refuses."""
    answer: str = service.ask("GET", "brokers/health", {"topicVersion": given.topic_version})
    return answer


# ``BrokersBase`` of Pulsar. All of these are asked of the broker at --admin-url. What is in
# ZooKeeper (the list, the leader, dynamic settings) any broker answers alike; a version, a health
# check and a runtime configuration are those of the broker that is asked.
OPERATIONS = (
    Operation(
        "list",
        "list the brokers that are running",
        (place("cluster", "the cluster (default: this one)", required=False),),
        list_brokers,
    ),
    Operation("leader-broker", "show the leader of the brokers", (), gets("brokers/leaderBroker")),
    Operation(
        "healthcheck",
        "let the broker send a message to itself",
        (
            option(
                "--topic-version",
                "-tv",
                default="V2",
                choices=("V1", "V2"),
                help="which of its topics to use (default: V2)",
            ),
        ),
        check_health,
    ),
    Operation(
        "version",
        "show the version of Pulsar that the broker implements",
        (),
        gets("brokers/version"),
    ),
    Operation(
        "list-dynamic-config",
        "list the settings that can be changed while brokers run",
        (),
        gets("brokers/configuration"),
    ),
    Operation(
        "get-all-dynamic-config",
        "show the settings that were changed while brokers run",
        (),
        gets("brokers/configuration/values"),
    ),
    Operation(
        "get-runtime-config",
        "show all settings of the broker",
        (),
        gets("brokers/configuration/runtime"),
    ),
    # The broker stores the value in ZooKeeper (``records.cluster.dynamic_configuration``); all
    # brokers watch that node.
    Operation(
        "update-dynamic-config",
        "change a setting of all brokers while they run",
        (CONFIG, option("--value", "-v", required=True, metavar="TEXT", help="its new value")),
        sends("POST", "brokers/configuration/{config}/{value}"),
    ),
    Operation(
        "delete-dynamic-config",
        "let a setting have the value again that brokers were started with",
        (CONFIG,),
        sends("DELETE", "brokers/configuration/{config}"),
    ),
)
