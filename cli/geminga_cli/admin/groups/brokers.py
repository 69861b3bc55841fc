"""``geminga admin brokers``."""

from __future__ import annotations

from geminga_cli.admin.operation import Given, Operation, gets, option, path, place, sends
from geminga_cli.admin.service import AdminService

CONFIG = option("--config", "-c", required=True, metavar="NAME", help="the setting's name")


def _list(service: AdminService, given: Given) -> list[str]:
    where = "brokers" if given.cluster is None else path("brokers/{cluster}", given)
    found: list[str] = service.ask("GET", where)
    return found


def _health(service: AdminService, given: Given) -> str:
    answer: str = service.ask("GET", "brokers/health", {"topicVersion": given.topic_version})
    return answer


OPERATIONS = (
    Operation(
        "list",
        "list the brokers that are alive",
        (place("cluster", "of which cluster (default: this one)", required=False),),
        _list,
    ),
    Operation("leader-broker", "show which broker leads", (), gets("brokers/leaderBroker")),
    Operation(
        "healthcheck",
        "have the broker send a message to itself",
        (
            option(
                "--topic-version",
                "-tv",
                default="V2",
                choices=("V1", "V2"),
                help="by which of its topics (default: V2)",
            ),
        ),
        _health,
    ),
    Operation("version", "show which Pulsar's version it speaks", (), gets("brokers/version")),
    Operation(
        "list-dynamic-config",
        "list the settings that change while brokers run",
        (),
        gets("brokers/configuration"),
    ),
    Operation(
        "get-all-dynamic-config",
        "show the settings that were changed so",
        (),
        gets("brokers/configuration/values"),
    ),
    Operation(
        "get-runtime-config",
        "show all settings of the broker",
        (),
        gets("brokers/configuration/runtime"),
    ),
    Operation(
        "update-dynamic-config",
        "change a setting of all brokers while they run",
        (CONFIG, option("--value", "-v", required=True, metavar="TEXT", help="its new value")),
        sends("POST", "brokers/configuration/{config}/{value}"),
    ),
    Operation(
        "delete-dynamic-config",
        "let a setting be again as brokers were started with it",
        (CONFIG,),
        sends("DELETE", "brokers/configuration/{config}"),
    ),
)
