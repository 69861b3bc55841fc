"""What the commands of functions, sources and sinks have in common.

A functions worker serves all three by the same paths. Options become the members of a config, which
is JSON; what no option says, a config file may, and the worker sets the rest.
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

GUARANTEES = ("ATLEAST_ONCE", "ATMOST_ONCE", "EFFECTIVELY_ONCE", "MANUAL")
JSON, BINARY = "application/json", "application/octet-stream"
# A worker fetches such a package itself.
URLS = ("http://", "https://", "file:", "function://", "source://", "sink://", "builtin://")
TENANT, NAMESPACE = "public", "default"
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
        help="their REST, for functions that ask for it (default: http://localhost:8080)",
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


def run_here(kind: Kind, given: Given) -> None:
    """Run it until Ctrl-C. Raises ``InvalidUse``, ``LocalRunFailed``."""
    # It loads the functions worker's packages.
    from geminga_cli.admin.local_functions import localrun  # noqa: PLC0415 - see above

    localrun(kind, given)


def json_map(text: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} should be a JSON object")
    return value


def inputs(text: str) -> list[str]:
    """Names of topics between commas. The readers of ``values`` load the protocol, which the help
    of these commands can do without."""
    return [name for each in text.split(",") if (name := each.strip())]


def truth(text: str) -> bool:
    """``true`` or ``false``."""
    if text.lower() not in {"true", "false"}:
        raise argparse.ArgumentTypeError(f"{text!r} should be true or false")
    return text.lower() == "true"


@dataclass(frozen=True, slots=True)
class ConfigOption:
    """An option, and the member of the config that it sets: ``resources.cpu`` is one within one."""

    argument: Argument
    member: str

    def set_in(self, config: Config, given: Given) -> None:
        """Nothing changes where the option is not given, or the command has none such."""
        value = getattr(given, attribute_of(self.argument), None)
        if value is None or (value is False and self.argument.read is None):
            return
        *outer, last = self.member.split(".")
        for each in outer:
            config = config.setdefault(each, {})
        config[last] = value


def attribute_of(argument: Argument) -> str:
    """Where argparse keeps what is given for an option."""
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
    """An option of a config; without ``read`` it is there or not."""
    if read is None:
        return ConfigOption(switch(*names, help=help), member)
    if choices:
        return ConfigOption(option(*names, help=help, choices=choices), member)
    return ConfigOption(option(*names, help=help, read=read, metavar=metavar), member)


def resources(word: str) -> tuple[ConfigOption, ...]:
    """What an instance may use, and what else every kind of component may be told."""
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
            help="names of secrets, and where the provider of secrets finds each",
        ),
        sets("runtimeFlags", "--runtime-flags", help="flags for the runtime's processes"),
        sets("customRuntimeOptions", "--custom-runtime-options", help="options of the runtime"),
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """Functions, sources or sinks.

    - ``config_part``: what the form calls the config; ``options`` are what sets it.
    - ``package_of``: the file or URL of the package in a config; None where it names none.
    """

    word: str
    config_part: str
    options: tuple[ConfigOption, ...]
    config_file: Argument
    package_of: Callable[[Config], str | None]
    names: tuple[Argument, ...]
    completed: Callable[[Config], Config] = dict
    """A new one's config with what its package says of it."""

    @property
    def root(self) -> str:
        """Where REST has them."""
        return f"/admin/v3/{self.word}s"


def names_of(word: str) -> tuple[Argument, ...]:
    """The options that name one."""
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
    """Give a config its tenant, namespace and name: by options, by itself, by its class."""
    full = getattr(given, "fqfn", None)
    if full is not None:
        parts = full.split("/")
        if len(parts) != 3 or not all(parts):
            raise InvalidUse(f"--fqfn should be tenant/namespace/name, and is {full!r}")
        if given.tenant or given.namespace or given.name:
            raise InvalidUse("--fqfn and --tenant, --namespace, --name do not go together")
        config["tenant"], config["namespace"], config["name"] = parts
    for member in ("tenant", "namespace", "name"):
        if getattr(given, member) is not None:
            config[member] = getattr(given, member)
    config.setdefault("tenant", TENANT)
    config.setdefault("namespace", NAMESPACE)
    if "name" not in config and config.get("className"):
        config["name"] = config["className"].rpartition(".")[2]
    if not config.get("name"):
        raise InvalidUse("--name is missing")


def where(kind: Kind, given: Given) -> str:
    """The path of the one that the options name."""
    config: Config = {}
    set_name(config, given)
    return path_of(kind, config)


def path_of(kind: Kind, config: Config) -> str:
    """The path of the one that the config is for."""
    parts = (config["tenant"], config["namespace"], config["name"])
    return "/".join([kind.root, *(quote(part, safe="") for part in parts)])


def text_of(file: Path) -> str:
    """The text in a file. Raises ``InvalidUse``."""
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidUse(f"{file} cannot be read: {error}") from None


def read_config(file: Path) -> Config:
    """The config in a file of JSON; of YAML where PyYAML is installed. Raises ``InvalidUse``."""
    text = text_of(file)
    try:
        value = json.loads(text)
    except ValueError as error:
        value = _read_yaml(file, text, error)
    if not isinstance(value, dict):
        raise InvalidUse(f"{file} should hold the members of a config")
    return value


def _read_yaml(file: Path, text: str, error: ValueError) -> object:
    try:
        yaml = import_module("yaml")
    except ModuleNotFoundError:
        raise InvalidUse(
            f"{file} holds no JSON: {error}. To read YAML, install PyYAML: pip install pyyaml"
        ) from None
    try:
        value: object = yaml.safe_load(text)
    except yaml.YAMLError as wrong:
        raise InvalidUse(f"{file} holds neither JSON nor YAML: {wrong}") from None
    return value


def given_config(kind: Kind, given: Given) -> Config:
    """The config that a file and the options before it give, yet without a name."""
    file = getattr(given, attribute_of(kind.config_file))
    config = read_config(Path(file)) if file is not None else {}
    for each in kind.options:
        each.set_in(config, given)
    return config


def _config_parts(
    kind: Kind, given: Given, *, is_new: bool
) -> tuple[Config, list[FormPart], list[FormPart]]:
    """The config, and the parts of a form that hold it and its package, if it names one."""
    config = given_config(kind, given)
    if is_new:
        config = kind.completed(config)
    set_name(config, given)
    package = kind.package_of(config)
    parts: list[FormPart] = []
    if package is None:
        if is_new:
            raise InvalidUse(f"the file or URL of the {kind.word}'s package is missing")
    elif package.startswith(URLS):
        if not package.startswith("builtin://"):
            parts = [FormPart("url", package)]
    elif not Path(package).is_file():
        raise InvalidUse(f"the package {package} is no file")
    else:
        parts = [FormPart("data", Path(package), BINARY)]
    return config, [FormPart(kind.config_part, json.dumps(config), JSON)], parts


def _create(kind: Kind) -> Do:
    def do(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
        config, form, package = _config_parts(kind, given, is_new=True)
        path = path_of(kind, config) + _waiting(given)
        return service.submit("POST", path, [*form, *package])

    return do


def _update(kind: Kind) -> Do:
    def do(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
        config, form, package = _config_parts(kind, given, is_new=False)
        how = json.dumps({"updateAuthData": given.update_auth_data})
        options = FormPart("updateOptions", how, JSON)
        path = path_of(kind, config) + _waiting(given)
        return service.submit("PUT", path, [*form, options, *package])

    return do


def _waiting(given: Given) -> str:
    """Of the query: by default the worker answers once the first instance runs, or cannot."""
    return "?wait=false" if given.no_wait else ""


def asks(kind: Kind, method: str, rest: str = "") -> Do:
    """Ask at the path of the one that is named, or of one instance of it."""

    def do(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
        number = getattr(given, "instance_id", None)
        instance = "" if number is None else f"/{number}"
        return service.ask(method, f"{where(kind, given)}{instance}{rest}")

    return do


def _list(kind: Kind) -> Do:
    def do(service: AdminService, given: Given) -> Any:  # noqa: ANN401 - JSON
        parts = (given.tenant or TENANT, given.namespace or NAMESPACE)
        return service.ask("GET", "/".join([kind.root, *(quote(each, safe="") for each in parts)]))

    return do


def config_arguments(kind: Kind) -> tuple[Argument, ...]:
    """The options that make a config."""
    return (kind.config_file, *(each.argument for each in kind.options), *kind.names)


def operations_of(kind: Kind) -> Sequence[Operation]:
    """The commands that functions, sources and sinks have alike."""
    word, names = kind.word, kind.names
    config = (*config_arguments(kind), switch("--no-wait", help="do not wait until it runs"))
    credentials = switch("--update-auth-data", help="hand over the caller's credentials anew")

    def one_or_all(what: str) -> tuple[Argument, ...]:
        number = option(
            "--instance-id", read=int, metavar="N", help=f"{what} this instance alone, from 0 on"
        )
        return (*names, number)

    status = asks(kind, "GET", "/status")
    orders: Mapping[str, str] = {
        "restart": "end and start instances anew",
        "stop": "stop instances; they stay as they are otherwise",
        "start": "start instances that were stopped",
    }
    return (
        Operation(
            "localrun",
            f"run a {word} on this machine until Ctrl-C, beside a cluster and without a worker",
            (*config_arguments(kind), *LOCAL),
            lambda _, given: run_here(kind, given),
        ),
        Operation("create", f"create a {word} and start it", config, _create(kind)),
        Operation(
            "update",
            f"change a {word}: what is not said of it stays",
            (*config, credentials),
            _update(kind),
        ),
        Operation("delete", f"stop a {word} and delete it", names, asks(kind, "DELETE")),
        Operation("get", f"show the config of a {word}", names, asks(kind, "GET")),
        Operation("list", f"list the {word}s of a namespace", names_of(word)[:2], _list(kind)),
        Operation("status", f"show how the instances of a {word} do", one_or_all("show"), status),
        Operation("getstatus", "the same as status", one_or_all("show"), status),
        *(
            Operation(order, summary, one_or_all(order), asks(kind, "POST", f"/{order}"))
            for order, summary in orders.items()
        ),
    )
