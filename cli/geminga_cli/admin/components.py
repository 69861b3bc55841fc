"""What the commands of functions, sources and sinks have in common.

A functions worker serves all three by the same paths. Options become members of a config, which is
a JSON object. A config file may have other members, and the worker sets the rest.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

from geminga_cli.admin.errors import InvalidUse
from geminga_cli.admin.operation import Argument, Do, Given, Operation, Read, option, switch
from geminga_cli.admin.service import AdminService, FormPart

Config = dict[str, Any]

# FunctionConfig.ProcessingGuarantees of Pulsar.
GUARANTEES = ("ATLEAST_ONCE", "ATMOST_ONCE", "EFFECTIVELY_ONCE", "MANUAL")
JSON, BINARY = "application/json", "application/octet-stream"
# The beginnings of packages that a worker fetches itself; any other is a file on this machine.
# ``Utils.isFunctionPackageUrlSupported`` of Pulsar, and the built-in ones.
URLS = ("http://", "https://", "file:", "function://", "source://", "sink://", "builtin://")
# Upstream's defaults (``FunctionConfigUtils.inferMissingTenant``).
TENANT, NAMESPACE = "public", "default"
# Options of the commands that run on this machine.
LOCAL = (
    option(
        "--broker-service-url",
        "--brokerServiceUrl",
        default="pulsar://localhost:6650",
        metavar="URL",
        help="the brokers (default: pulsar://localhost:6650)",
    ),
    option(
        "--web-service-url",
        default="http://localhost:8080",
        metavar="URL",
        help="the brokers' REST, for functions that use it (default: http://localhost:8080)",
    ),
    option(
        "--instance-id-offset",
        "--instanceIdOffset",
        read=int,
        default=0,
        metavar="N",
        help="the number of the first instance (default: 0)",
    ),
)


def json_map(text: str) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} should be a JSON object")
    return value


def inputs(text: str) -> list[str]:
    """Read names of topics between commas.

    The same as ``values.words``; but that module loads the protocol, which the help of these
    commands does not need.
    """
    return [name for each in text.split(",") if (name := each.strip())]


def truth(text: str) -> bool:
    """Read ``true`` or ``false``."""
    if text.lower() not in {"true", "false"}:
        raise argparse.ArgumentTypeError(f"{text!r} should be true or false")
    return text.lower() == "true"


@dataclass(frozen=True, slots=True)
class ConfigOption:
    """An option, and the member of the config that it sets."""

    argument: Argument
    # With dots: ``resources.cpu`` is the member ``cpu`` of the member ``resources``.
    member: str

    def set_in(self, config: Config, given: Given) -> None:
        """Set the member, if the option is given, and the command has it at all."""
        # A switch that is not given is False. ``dev`` leaves some options out, so the attribute may
        # be missing.
        value = getattr(given, attribute_of(self.argument), None)
        if value is None or (value is False and self.argument.read is None):
            return
        *outer, last = self.member.split(".")
        # A member of a member, which the config file may have already.
        for each in outer:
            config = config.setdefault(each, {})
        config[last] = value


def attribute_of(argument: Argument) -> str:
    """The attribute in which argparse keeps the value of an option."""
    long = next(name for name in argument.names if name.startswith("--"))
    return long.removeprefix("--").replace("-", "_")


def sets(
    member: str,
    *names: str,
    help: str,  # noqa: A002 - as argparse has it
    read: Read | None = str,
    metavar: str = "TEXT",
    choices: tuple[str, ...] = (),
) -> ConfigOption:
    """An option that sets ``member``; without ``read`` it is a switch."""
    if read is None:
        return ConfigOption(switch(*names, help=help), member)
    if choices:
        return ConfigOption(option(*names, help=help, choices=choices), member)
    return ConfigOption(option(*names, help=help, read=read, metavar=metavar), member)


def resources(word: str) -> tuple[ConfigOption, ...]:
    """The options of every kind: what its instances may use, secrets, and the runtime."""
    each = f"for each instance of the {word}"
    return (
        sets("parallelism", "--parallelism", read=int, metavar="N", help="how many instances run"),
        sets("resources.cpu", "--cpu", read=float, metavar="CORES", help=f"processors {each}"),
        sets("resources.ram", "--ram", read=int, metavar="BYTES", help=f"memory {each}"),
        sets("resources.disk", "--disk", read=int, metavar="BYTES", help=f"disk {each}"),
        sets(
            "secrets",
            "--secrets",
            read=json_map,
            metavar="JSON",
            help="names of secrets, and where the secrets provider finds each",
        ),
        sets("runtimeFlags", "--runtime-flags", help="flags for the processes of the runtime"),
        sets("customRuntimeOptions", "--custom-runtime-options", help="options of the runtime"),
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """Functions, sources or sinks."""

    # "function", "source" or "sink".
    word: str
    # The name of the config in the form that is sent.
    config_part: str
    # The options that set members of the config.
    options: tuple[ConfigOption, ...]
    # The option that names a file with a config.
    config_file: Argument
    # The file or URL of the package that a config names; None if it names none.
    package_of: Callable[[Config], str | None]
    # The options that name one of them.
    names: tuple[Argument, ...]
    # Adds to the config of a new one what its package says.
    completed: Callable[[Config], Config] = dict

    @property
    def root(self) -> str:
        """The path in REST below which they are."""
        return f"/admin/v3/{self.word}s"


def names_of(word: str) -> tuple[Argument, ...]:
    """The options that name one of a kind."""
    # No defaults here: an option that is not given must not overwrite what the config file has.
    # ``set_name`` adds the defaults last.
    return (
        option("--tenant", metavar="TENANT", help=f"the {word}'s tenant (default: {TENANT})"),
        option(
            "--namespace",
            metavar="NAMESPACE",
            help=f"the {word}'s namespace in its tenant (default: {NAMESPACE})",
        ),
        option("--name", metavar="NAME", help=f"the {word}'s name"),
    )


def set_name(config: Config, given: Given) -> None:
    """Set tenant, namespace and name of a config.

    Options come first, then the config itself, then the name of its class. Raises ``InvalidUse``.
    """
    # Functions alone have the option.
    full = getattr(given, "fqfn", None)
    if full is not None:
        parts = full.split("/")
        if len(parts) != 3 or not all(parts):
            raise InvalidUse(f"--fqfn should be tenant/namespace/name, and is {full!r}")
        if given.tenant or given.namespace or given.name:
            raise InvalidUse("--fqfn and --tenant, --namespace, --name do not go together")
        config["tenant"], config["namespace"], config["name"] = parts
    # Of the command line, which overwrites what the config file has.
    for member in ("tenant", "namespace", "name"):
        if getattr(given, member) is not None:
            config[member] = getattr(given, member)
    config.setdefault("tenant", TENANT)
    config.setdefault("namespace", NAMESPACE)
    # As upstream does: the last part of ``package.module.Class``.
    if "name" not in config and config.get("className"):
        config["name"] = config["className"].rpartition(".")[2]
    if not config.get("name"):
        raise InvalidUse("--name is missing")


def path_given(kind: Kind, given: Given) -> str:
    """The path of the one that the options name."""
    config: Config = {}
    set_name(config, given)
    return path_of(kind, config)


def path_of(kind: Kind, config: Config) -> str:
    """The path of the one that the config names."""
    parts = (config["tenant"], config["namespace"], config["name"])
    return "/".join([kind.root, *(quote(part, safe="") for part in parts)])


def text_of(file: Path) -> str:
    """The content of a text file. Raises ``InvalidUse``."""
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidUse(f"{file} cannot be read: {error}") from None


def read_config(file: Path) -> Config:
    """The config in a file of JSON, or of YAML where PyYAML is installed. Raises ``InvalidUse``."""
    text = text_of(file)
    try:
        # JSON first: all of it is YAML too, and PyYAML need not be there for it.
        value: object = json.loads(text)
    except ValueError as error:
        # PyYAML is no requirement of ours.
        try:
            yaml = import_module("yaml")
        except ModuleNotFoundError:
            raise InvalidUse(
                f"{file} holds no JSON: {error}. To read YAML, install PyYAML: pip install pyyaml"
            ) from None
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as wrong:
            raise InvalidUse(f"{file} holds neither JSON nor YAML: {wrong}") from None
    if not isinstance(value, dict):
        raise InvalidUse(f"{file} should hold the members of a config")
    return value


def given_config(kind: Kind, given: Given) -> Config:
    """The config of the options and the config file; it may have no name yet."""
    file = getattr(given, attribute_of(kind.config_file))
    config = read_config(Path(file)) if file is not None else {}
    # Options overwrite the file.
    for each in kind.options:
        each.set_in(config, given)
    return config


def submits(kind: Kind, method: str, *, is_new: bool) -> Do:
    """Send a form with a config and its package: to create one, or to update it."""

    def do(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
        # The name comes after ``completed``: a module may give the name of its class. The order of
        # what counts: options, then the config file, then the package, then upstream's defaults.
        config = given_config(kind, given)
        if is_new:
            config = kind.completed(config)
        set_name(config, given)
        package = kind.package_of(config)
        parts = [FormPart(kind.config_part, json.dumps(config), JSON)]
        if not is_new:
            how = json.dumps({"updateAuthData": given.update_auth_data})
            parts.append(FormPart("updateOptions", how, JSON))
        if package is None:
            # An update may leave the package as it is.
            if is_new:
                raise InvalidUse(f"the file or URL of the {kind.word}'s package is missing")
        elif package.startswith(URLS):
            # A built-in one is named in the config alone.
            if not package.startswith("builtin://"):
                parts.append(FormPart("url", package))
        # Said here: the worker would only see that a part of the form is missing.
        elif not Path(package).is_file():
            raise InvalidUse(f"the package {package} is no file")
        else:
            parts.append(FormPart("data", Path(package), BINARY))
        # By default the worker answers once the first instance runs, or has failed.
        wait = "?wait=false" if given.no_wait else ""
        return service.submit(method, path_of(kind, config) + wait, parts)

    return do


def asks(kind: Kind, method: str, rest: str = "") -> Do:
    """Send a request to the path of the one that is named, or of one of its instances."""

    def do(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
        # Not all commands have the option.
        number = getattr(given, "instance_id", None)
        instance = "" if number is None else f"/{number}"
        return service.ask(method, f"{path_given(kind, given)}{instance}{rest}")

    return do


def config_arguments(kind: Kind) -> tuple[Argument, ...]:
    """The options that make a config, with its name."""
    return (kind.config_file, *(each.argument for each in kind.options), *kind.names)


def operations_of(kind: Kind) -> Sequence[Operation]:
    """The commands that all kinds have."""
    word, names = kind.word, kind.names

    def list_names(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
        parts = (given.tenant or TENANT, given.namespace or NAMESPACE)
        return service.ask("GET", "/".join([kind.root, *(quote(each, safe="") for each in parts)]))

    def run_here(_: AdminService, given: Given) -> None:
        # Imported now: it loads packages of the functions worker.
        from geminga_cli.admin.local_functions import localrun  # noqa: PLC0415

        localrun(kind, given)

    config = (*config_arguments(kind), switch("--no-wait", help="do not wait until it runs"))
    credentials = switch(
        "--update-auth-data", help="replace the stored credentials by those of the caller"
    )

    def one_or_all(what: str) -> tuple[Argument, ...]:
        number = option(
            "--instance-id", read=int, metavar="N", help=f"{what} this instance alone, from 0 on"
        )
        return (*names, number)

    # Two words of pulsar-admin for the same.
    status = asks(kind, "GET", "/status")
    orders: Mapping[str, str] = {
        "restart": "stop instances and start them again",
        "stop": "stop instances until they are started",
        "start": "start instances that were stopped",
    }
    return (
        Operation(
            "localrun",
            f"run a {word} on this machine until Ctrl-C, beside a cluster and without a worker",
            (*config_arguments(kind), *LOCAL),
            run_here,
        ),
        Operation(
            "create", f"create a {word} and start it", config, submits(kind, "POST", is_new=True)
        ),
        Operation(
            "update",
            f"change a {word}; what is not given stays as it is",
            (*config, credentials),
            submits(kind, "PUT", is_new=False),
        ),
        Operation("delete", f"stop a {word} and delete it", names, asks(kind, "DELETE")),
        Operation("get", f"show the config of a {word}", names, asks(kind, "GET")),
        Operation("list", f"list the {word}s of a namespace", names_of(word)[:2], list_names),
        Operation(
            "status", f"show the state of the instances of a {word}", one_or_all("show"), status
        ),
        Operation("getstatus", "the same as status", one_or_all("show"), status),
        *(
            Operation(order, summary, one_or_all(order), asks(kind, "POST", f"/{order}"))
            for order, summary in orders.items()
        ),
    )
