"""``geminga admin functions``, also ``geminga functions``."""

from __future__ import annotations

import json
from http import HTTPStatus
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote

from geminga_cli.admin.components import (
    BINARY,
    GUARANTEES,
    JSON,
    LOCAL,
    Config,
    Kind,
    asks,
    config_arguments,
    inputs,
    json_map,
    names_of,
    operations_of,
    path_given,
    resources,
    sets,
    text_of,
    truth,
)
from geminga_cli.admin.errors import AdminRefused, InvalidUse
from geminga_cli.admin.operation import Given, Operation, gets, option, place, sends, switch
from geminga_cli.admin.service import AdminService, FormPart
from geminga_cli.display.text import show_value
from geminga_cli.output import print_lines

FQFN = option("--fqfn", metavar="TENANT/NAMESPACE/NAME", help="the function's whole name")
NAMES = (FQFN, *names_of("function"))
# Behind the kinds of files that a package may be.
ANY_FILE = "file, or a URL from which the worker fetches it"

# pulsar-admin's options, in both spellings where it has two, and the members of the config they
# set. A row sets one member of the config and nothing else. What members mean, and which go
# together, the worker checks: a rule here would be a second place for it.
OPTIONS = (
    # What is run: a class or a module, and the package that it is in.
    sets("className", "--classname", "--className", help="the function's class or module"),
    sets("functionType", "-t", "--function-type", help="the name of a built-in function"),
    sets("py", "--py", metavar="FILE", help=f"a Python package: a .py, .zip or .whl {ANY_FILE}"),
    sets("jar", "--jar", metavar="FILE", help="a Java archive; workers here cannot run it"),
    sets("go", "--go", metavar="FILE", help="a Go program; workers here cannot run it"),
    # Where messages come from, and where results, logs and failures go.
    sets("inputs", "-i", "--inputs", read=inputs, metavar="TOPICS", help="input topics: a,b"),
    sets(
        "topicsPattern",
        "--topics-pattern",
        "--topicsPattern",
        metavar="REGEX",
        help="a pattern of input topics in a namespace",
    ),
    sets("output", "-o", "--output", metavar="TOPIC", help="the topic of results (default: none)"),
    sets("logTopic", "--log-topic", "--logTopic", metavar="TOPIC", help="the topic of its log"),
    sets(
        "deadLetterTopic",
        "--dead-letter-topic",
        metavar="TOPIC",
        help="the topic of messages whose retries all failed",
    ),
    # How often, in which order and until when a message is processed.
    sets(
        "maxMessageRetries",
        "--max-message-retries",
        read=int,
        metavar="N",
        help="how often a message is retried",
    ),
    sets(
        "processingGuarantees",
        "--processing-guarantees",
        "--processingGuarantees",
        choices=GUARANTEES,
        help="how often a message may be processed (default: ATLEAST_ONCE)",
    ),
    sets("subName", "--subs-name", metavar="NAME", help="the name of its subscription"),
    sets(
        "subscriptionPosition",
        "--subs-position",
        choices=("Latest", "Earliest"),
        help="where a new subscription begins (default: Latest)",
    ),
    sets(
        "cleanupSubscription",
        "--cleanup-subscription",
        read=None,
        help="delete the subscription together with the function",
    ),
    sets(
        "skipToLatest",
        "--skip-to-latest",
        read=truth,
        metavar="BOOL",
        help="skip the backlog whenever an instance starts",
    ),
    sets(
        "retainOrdering",
        "--retain-ordering",
        "--retainOrdering",
        read=None,
        help="process messages in their order",
    ),
    sets(
        "retainKeyOrdering",
        "--retain-key-ordering",
        read=None,
        help="process messages of one key in their order",
    ),
    sets("autoAck", "--auto-ack", read=truth, metavar="BOOL", help="acknowledge for the function"),
    sets(
        "timeoutMs",
        "--timeout-ms",
        "--timeoutMs",
        read=int,
        metavar="MS",
        help="how long a message may stay unacknowledged",
    ),
    sets(
        "forwardSourceMessageProperty",
        "--forward-source-message-property",
        read=truth,
        metavar="BOOL",
        help="copy the properties of messages to their results",
    ),
    # What the function is given, and how values are encoded on its topics.
    sets(
        "userConfig",
        "--user-config",
        "--userConfig",
        read=json_map,
        metavar="JSON",
        help="values for the function's context",
    ),
    sets(
        "customSerdeInputs",
        "--custom-serde-inputs",
        "--customSerdeInputs",
        read=json_map,
        metavar="JSON",
        help="input topics, and the SerDe class of each",
    ),
    sets(
        "customSchemaInputs",
        "--custom-schema-inputs",
        read=json_map,
        metavar="JSON",
        help="input topics, and the schema of each",
    ),
    sets(
        "customSchemaOutputs",
        "--custom-schema-outputs",
        read=json_map,
        metavar="JSON",
        help="output topics, and the schema of each",
    ),
    sets(
        "inputSpecs",
        "--input-specs",
        read=json_map,
        metavar="JSON",
        help="input topics, and how each is consumed",
    ),
    sets("inputTypeClassName", "--input-type-class-name", help="the class of input values"),
    sets(
        "outputSerdeClassName",
        "--output-serde-classname",
        "--outputSerdeClassName",
        help="the SerDe class of results",
    ),
    sets("outputSchemaType", "-st", "--schema-type", help="the schema of results"),
    sets("outputTypeClassName", "--output-type-class-name", help="the class of results"),
    sets("batchBuilder", "--batch-builder", help="how results are batched: DEFAULT or KEY_BASED"),
    sets(
        "producerConfig",
        "--producer-config",
        read=json_map,
        metavar="JSON",
        help="how results are published",
    ),
    # Windows: by a number of messages or by time, sliding where an interval is given.
    sets(
        "windowConfig.windowLengthCount",
        "--window-length-count",
        "--windowLengthCount",
        read=int,
        metavar="N",
        help="the length of a window in messages",
    ),
    sets(
        "windowConfig.windowLengthDurationMs",
        "--window-length-duration-ms",
        "--windowLengthDurationMs",
        read=int,
        metavar="MS",
        help="the length of a window in time",
    ),
    sets(
        "windowConfig.slidingIntervalCount",
        "--sliding-interval-count",
        "--slidingIntervalCount",
        read=int,
        metavar="N",
        help="the messages after which the window slides",
    ),
    sets(
        "windowConfig.slidingIntervalDurationMs",
        "--sliding-interval-duration-ms",
        "--slidingIntervalDurationMs",
        read=int,
        metavar="MS",
        help="the time after which the window slides",
    ),
    *resources("function"),
)


def package_of(config: Config) -> str | None:
    """The package: one of ``py``, ``jar``, ``go``, or the type of a built-in function."""
    given = [config[member] for member in ("py", "jar", "go") if config.get(member)]
    if len(given) > 1:
        raise InvalidUse("a function is made of one package: --py, --jar or --go")
    # Its package is on the workers already.
    if not given and config.get("functionType"):
        return f"builtin://{config['functionType']}"
    return str(given[0]) if given else None


def with_definition(config: Config) -> Config:
    """Add what a function's module says of itself, such as its inputs. Raises ``InvalidUse``."""
    # Only a single module can be read without running it; archives have no definition of ours.
    module = Path(config.get("py") or "")
    if module.suffix != ".py" or not module.is_file():
        return config
    # Imported now: they load packages of the functions worker.
    from geminga_functions.definitions.decorated import read_definition  # noqa: PLC0415
    from geminga_functions.errors import InvalidDefinition  # noqa: PLC0415

    try:
        return read_definition(text_of(module), module.stem, config)
    except InvalidDefinition as error:
        raise InvalidUse(f"{module}: {error}") from None


KIND = Kind(
    "function",
    "functionConfig",
    OPTIONS,
    option(
        "--function-config-file",
        "--functionConfigFile",
        metavar="FILE",
        help="a JSON or YAML file with a config; options overwrite it",
    ),
    package_of,
    NAMES,
    with_definition,
)


def trigger(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
    """Send a message to the function; returns its result."""
    if (given.trigger_value is None) == (given.trigger_file is None):
        raise InvalidUse("one of --trigger-value and --trigger-file is needed")
    if given.trigger_value is not None:
        parts = [FormPart("data", given.trigger_value)]
    else:
        parts = [FormPart("dataStream", given.trigger_file, BINARY)]
    if given.topic is not None:
        parts.append(FormPart("topic", given.topic))
    return service.submit("POST", f"{path_given(KIND, given)}/trigger", parts)


def put_state(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
    """Set the state of the key in ``--state``."""
    key = given.state.get("key")
    if not isinstance(key, str) or not key:
        raise InvalidUse('--state should have a "key"')
    part = FormPart("state", json.dumps(given.state), JSON)
    return service.submit("POST", f"{path_given(KIND, given)}/state/{quote(key, safe='')}", [part])


def get_state(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
    """The state of a key; with ``--watch``, print each change of it until Ctrl-C."""
    path = f"{path_given(KIND, given)}/state/{quote(given.key, safe='')}"
    if not given.watch:
        return service.ask("GET", path)
    # Polling, as upstream's tool does: REST has no way to wait for a change.
    shown: object = None
    while True:
        try:
            lines = list(show_value(service.ask("GET", path)))
        except AdminRefused as refused:
            # Anything else ends the watch: a function that was deleted, a token that has expired.
            if refused.status != HTTPStatus.NOT_FOUND:
                raise
            lines = [str(refused)]  # the key may be set later
        # The lines are compared, and not the answers: a change that shows in no line is no change
        # to a reader.
        if lines != shown:
            print_lines(lines)
            shown = lines
        pause(WATCH_PERIOD_S)


def run_dev(_: AdminService, given: Given) -> None:
    """Run the function in a file, and restart it when the file is saved."""
    from geminga_cli.admin.local_functions import dev  # noqa: PLC0415 - loads the functions worker

    dev(KIND, given)


def upload_package(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
    """Store a package under a path."""
    parts = [FormPart("data", given.source_file, BINARY), FormPart("path", given.path)]
    return service.submit("POST", f"{KIND.root}/upload", parts)


def download_package(service: AdminService, given: Given) -> None:
    """Write the package of a path, or of a function, into a file."""
    if given.path is not None:
        service.download(f"{KIND.root}/download", {"path": given.path}, given.destination_file)
        return
    query = {"transform-function": given.transform_function}
    service.download(f"{path_given(KIND, given)}/download", query, given.destination_file)


# `dev` has a file instead of these.
PACKAGES = ("--py", "--jar", "--go")
# How often `querystate --watch` asks, as upstream's does.
WATCH_PERIOD_S = 1.0
# A name of its own, which tests replace.
pause = Event().wait
INSTANCE = option("--instance-id", read=int, metavar="N", help="only this instance; the first is 0")
STATE_HELP = 'JSON: {"key": "k", "stringValue": "v"}, or numberValue, or byteValue in base64'

OPERATIONS = (
    *operations_of(KIND),
    Operation(
        "dev",
        "run a function on this machine, show its messages, and restart it when it is saved",
        (
            place("file", "the module of the function, FILE.py", read=Path),
            # All others: a function that is being written is configured like any other.
            *(each for each in config_arguments(KIND) if each.names[0] not in PACKAGES),
            *LOCAL,
        ),
        run_dev,
    ),
    Operation(
        "stats",
        "show the counters of a function's instances",
        (*NAMES, INSTANCE),
        asks(KIND, "GET", "/stats"),
    ),
    # The worker publishes the message to an input topic and waits for the result on the output
    # topic, so this can take as long as the function does.
    Operation(
        "trigger",
        "send a function a message, and show its result",
        (
            *NAMES,
            option("--trigger-value", "--triggerValue", metavar="TEXT", help="the message"),
            option(
                "--trigger-file",
                "--triggerFile",
                read=Path,
                metavar="FILE",
                help="a file that holds the message",
            ),
            option("--topic", metavar="TOPIC", help="which of its input topics to use"),
        ),
        trigger,
    ),
    Operation(
        "querystate",
        "show the state of a key",
        (
            *NAMES,
            option("-k", "--key", required=True, metavar="KEY", help="the key"),
            switch("-w", "--watch", help="show each change until Ctrl-C"),
        ),
        get_state,
    ),
    Operation(
        "putstate",
        "set the state of a key",
        (
            *NAMES,
            option("-s", "--state", read=json_map, required=True, metavar="JSON", help=STATE_HELP),
        ),
        put_state,
    ),
    Operation(
        "upload",
        "store a package under a path",
        (
            option(
                "--source-file",
                "--sourceFile",
                read=Path,
                required=True,
                metavar="FILE",
                help="the package",
            ),
            option(
                "--path", required=True, metavar="PATH", help="the path under which to store it"
            ),
        ),
        upload_package,
    ),
    Operation(
        "download",
        "write the package of a function, or of a path, into a file",
        (
            *NAMES,
            option(
                "--destination-file",
                "--destinationFile",
                read=Path,
                required=True,
                metavar="FILE",
                help="the file to write",
            ),
            option("--path", metavar="PATH", help="the package under this path"),
            switch("--transform-function", help="the package of a sink's transformation"),
        ),
        download_package,
    ),
    Operation(
        "available-functions",
        "list the built-in functions",
        (),
        gets("/admin/v3/functions/builtins"),
    ),
    Operation(
        "reload",
        "let workers look for built-in functions again",
        (),
        sends("POST", "/admin/v3/functions/builtins/reload"),
    ),
)
