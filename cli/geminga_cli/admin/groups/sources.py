"""``geminga admin sources``, also ``geminga sources``."""

from __future__ import annotations

from geminga_cli.admin.components import (
    GUARANTEES,
    Config,
    Kind,
    json_map,
    names_of,
    operations_of,
    resources,
    sets,
)
from geminga_cli.admin.operation import Operation, gets, option, sends

BUILTIN = "builtin://"

# pulsar-admin's options, in both spellings where it has two, and the members of the config they
# set.
OPTIONS = (
    # What is run.
    sets("archive", "-a", "--archive", metavar="FILE", help="its package: a file or a URL"),
    sets(
        "sourceType",
        "-t",
        "--source-type",
        metavar="NAME",
        help="the type of a built-in source instead",
    ),
    sets("className", "--classname", "--className", help="the source's class"),
    # Where its messages go, and how they are made.
    sets(
        "topicName",
        "-o",
        "--destination-topic-name",
        "--destinationTopicName",
        metavar="TOPIC",
        help="the topic of the messages",
    ),
    sets(
        "configs",
        "--source-config",
        "--sourceConfig",
        read=json_map,
        metavar="JSON",
        help="the configuration of the source",
    ),
    sets(
        "batchSourceConfig",
        "--batch-source-config",
        read=json_map,
        metavar="JSON",
        help="the configuration of batches, for a source that reads in batches",
    ),
    sets(
        "processingGuarantees",
        "--processing-guarantees",
        "--processingGuarantees",
        choices=GUARANTEES,
        help="how often a message may be published (default: ATLEAST_ONCE)",
    ),
    sets(
        "serdeClassName",
        "--deserialization-classname",
        "--deserializationClassName",
        help="the SerDe class of messages",
    ),
    sets("schemaType", "-st", "--schema-type", help="the schema of messages"),
    sets("batchBuilder", "--batch-builder", help="how messages are batched: DEFAULT or KEY_BASED"),
    sets(
        "producerConfig",
        "--producer-config",
        read=json_map,
        metavar="JSON",
        help="how messages are published",
    ),
    sets("logTopic", "--log-topic", metavar="TOPIC", help="the topic of its log"),
    *resources("source"),
)


def package_of(config: Config, kind_member: str) -> str | None:
    """The package of a source or sink; the type of a built-in one becomes its archive."""
    # No member of the config that workers know: only the archive reaches them.
    kind = config.pop(kind_member, None)
    if kind is not None:
        config["archive"] = f"{BUILTIN}{kind}"
    archive = config.get("archive")
    return None if archive is None else str(archive)


# The command line's sourceType is taken out of the config by ``package_of``, so it must be called
# before the config is sent (``components.submits``).
KIND = Kind(
    "source",
    "sourceConfig",
    OPTIONS,
    option(
        "--source-config-file",
        "--sourceConfigFile",
        metavar="FILE",
        help="a JSON or YAML file with a config; options overwrite it",
    ),
    lambda config: package_of(config, "sourceType"),
    names_of("source"),
)

OPERATIONS = (
    *operations_of(KIND),
    Operation(
        "available-sources", "list the built-in sources", (), gets(f"{KIND.root}/builtinsources")
    ),
    Operation(
        "reload",
        "let workers look for built-in sources again",
        (),
        sends("POST", f"{KIND.root}/reloadBuiltInSources"),
    ),
)
