"""``geminga admin sinks``, also ``geminga sinks``."""

from __future__ import annotations

from geminga_cli.admin.components import (
    GUARANTEES,
    Kind,
    inputs,
    json_map,
    names_of,
    operations_of,
    resources,
    sets,
    truth,
)
from geminga_cli.admin.groups.sources import package_of
from geminga_cli.admin.operation import Operation, gets, option, sends

# pulsar-admin's options, in both spellings where it has two, and the members of the config they
# set.
OPTIONS = (
    # What is run.
    sets("archive", "-a", "--archive", metavar="FILE", help="its package: a file or a URL"),
    sets(
        "sinkType", "-t", "--sink-type", metavar="NAME", help="the type of a built-in sink instead"
    ),
    sets("className", "--classname", "--className", help="the sink's class"),
    # Where messages come from, and how they are read.
    sets("inputs", "-i", "--inputs", read=inputs, metavar="TOPICS", help="input topics: a,b"),
    sets(
        "topicsPattern",
        "--topics-pattern",
        "--topicsPattern",
        metavar="REGEX",
        help="a pattern of input topics in a namespace",
    ),
    sets(
        "sourceSubscriptionName",
        "--subs-name",
        "--subsName",
        metavar="NAME",
        help="the name of its subscription",
    ),
    sets(
        "sourceSubscriptionPosition",
        "--subs-position",
        choices=("Latest", "Earliest"),
        help="where a new subscription begins (default: Latest)",
    ),
    sets(
        "cleanupSubscription",
        "--cleanup-subscription",
        read=None,
        help="delete the subscription together with the sink",
    ),
    sets(
        "topicToSerdeClassName",
        "--custom-serde-inputs",
        "--customSerdeInputs",
        read=json_map,
        metavar="JSON",
        help="input topics, and the SerDe class of each",
    ),
    sets(
        "topicToSchemaType",
        "--custom-schema-inputs",
        read=json_map,
        metavar="JSON",
        help="input topics, and the schema of each",
    ),
    sets(
        "inputSpecs",
        "--input-specs",
        read=json_map,
        metavar="JSON",
        help="input topics, and how each is consumed",
    ),
    # What becomes of a message that the sink does not take.
    sets(
        "maxMessageRetries",
        "--max-redeliver-count",
        read=int,
        metavar="N",
        help="how often a message is delivered again",
    ),
    sets(
        "deadLetterTopic",
        "--dead-letter-topic",
        metavar="TOPIC",
        help="the topic of messages whose deliveries all failed",
    ),
    sets(
        "processingGuarantees",
        "--processing-guarantees",
        "--processingGuarantees",
        choices=GUARANTEES,
        help="how often a message may be written (default: ATLEAST_ONCE)",
    ),
    sets(
        "retainOrdering",
        "--retain-ordering",
        "--retainOrdering",
        read=None,
        help="write messages in their order",
    ),
    sets(
        "retainKeyOrdering",
        "--retain-key-ordering",
        read=None,
        help="write messages of one key in their order",
    ),
    sets("autoAck", "--auto-ack", read=truth, metavar="BOOL", help="acknowledge for the sink"),
    sets(
        "timeoutMs",
        "--timeout-ms",
        read=int,
        metavar="MS",
        help="how long a message may stay unacknowledged",
    ),
    sets(
        "negativeAckRedeliveryDelayMs",
        "--negative-ack-redelivery-delay-ms",
        read=int,
        metavar="MS",
        help="after how long a message that failed is delivered again",
    ),
    sets(
        "configs",
        "--sink-config",
        "--sinkConfig",
        read=json_map,
        metavar="JSON",
        help="the configuration of the sink",
    ),
    # A function in front of the sink (PIP-193).
    sets(
        "transformFunction",
        "--transform-function",
        metavar="FILE",
        help="a function that changes messages before they reach the sink",
    ),
    sets(
        "transformFunctionClassName",
        "--transform-function-classname",
        help="the class of that function",
    ),
    sets(
        "transformFunctionConfig",
        "--transform-function-config",
        metavar="JSON",
        help="the configuration of that function",
    ),
    sets("logTopic", "--log-topic", metavar="TOPIC", help="the topic of its log"),
    *resources("sink"),
)

KIND = Kind(
    "sink",
    "sinkConfig",
    OPTIONS,
    option(
        "--sink-config-file",
        "--sinkConfigFile",
        metavar="FILE",
        help="a JSON or YAML file with a config; options overwrite it",
    ),
    lambda config: package_of(config, "sinkType"),
    names_of("sink"),
)

OPERATIONS = (
    *operations_of(KIND),
    Operation("available-sinks", "list the built-in sinks", (), gets(f"{KIND.root}/builtinsinks")),
    Operation(
        "reload",
        "let workers look for built-in sinks again",
        (),
        sends("POST", f"{KIND.root}/reloadBuiltInSinks"),
    ),
)
