"""Proves that the commands of functions, sources and sinks send what ``pulsar-admin`` sends."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.unit.geminga_cli.admin.recording_service import Asked, RecordingService
from tests.unit.geminga_cli.admin.test_operation import ADDED_WORDS, UPSTREAM

from geminga_cli.admin.errors import AdminRefused, InvalidUse
from geminga_cli.admin.groups import functions
from geminga_cli.admin.service import FormPart
from geminga_cli.commands.admin import operations_of

# What Apache Pulsar 4.0.6's pulsar-admin sent to a server that noted it, line by line.
REQUESTS: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("pulsar_admin_requests.json").read_text()
)
# Upstream's client fills these in where nothing was said of them; here a worker does.
FILLED_IN: Mapping[str, object] = {
    "outputSchemaType": "",
    "forwardSourceMessageProperty": True,
    "subscriptionPosition": "Latest",
    "sourceSubscriptionPosition": "Latest",
    "parallelism": 1,
    "disk": 10 * 1024**3,
    "schemaProperties": {},
    "consumerProperties": {},
    "poolMessages": False,
    "regexPattern": False,
}
PACKAGE = "f.py"
NAME = {"tenant": "acme", "namespace": "ns"}
CONFIG_FILES: Mapping[str, dict[str, object]] = {
    "f.yaml": {
        **NAME,
        "name": "f",
        "className": "f.F",
        "inputs": ["a", "b"],
        "output": "o",
        "userConfig": {"x": 1},
        "parallelism": 2,
        "py": PACKAGE,
    },
    "so.yaml": {
        **NAME,
        "name": "s",
        "className": "s.S",
        "topicName": "o",
        "configs": {"x": 1},
        "archive": PACKAGE,
    },
    "si.yaml": {
        **NAME,
        "name": "s",
        "className": "s.S",
        "inputs": ["i"],
        "configs": {"x": 1},
        "archive": PACKAGE,
    },
}


# Of ours alone.
ADDED = {
    "create": {"--no-wait"},
    "update": {"--no-wait"},
    # Upstream has them for functions, and not for sources and sinks.
    "localrun": {"--instance-id-offset", "--instanceIdOffset", "--web-service-url"},
}
OF_WORKERS = ("functions", "sources", "sinks", "functions-worker")


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the lines name stand in the directory that they are given in."""
    monkeypatch.chdir(tmp_path)
    Path(PACKAGE).write_text("def process(input):\n    return input\n")
    Path("state.json").write_text('{"key": "k", "numberValue": 3}')
    for name, config in CONFIG_FILES.items():
        Path(name).write_text(json.dumps(config))


def done(line: str) -> Asked:
    group, word, *words = shlex.split(line)
    operation = next(each for each in operations_of(group) if each.word == word)
    parser = argparse.ArgumentParser(exit_on_error=False)
    for argument in operation.arguments:
        argument.add_to(parser)
    service = RecordingService()
    operation.does(service, parser.parse_args(words))
    (asked,) = service.asked
    return asked


def content_of(part: FormPart) -> object:
    if isinstance(part.content, Path):
        return {"file": part.content.name}
    return json.loads(part.content) if part.media_type == "application/json" else part.content


def without_filled_in(theirs: object, ours: object) -> object:
    """``theirs`` without what ``FILLED_IN`` explains and ``ours`` leaves out."""
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        return theirs
    return {
        name: without_filled_in(value, ours.get(name))
        for name, value in theirs.items()
        if name in ours or name not in FILLED_IN or FILLED_IN[name] != value
    }


@pytest.mark.parametrize("request_", [pytest.param(each, id=each["line"]) for each in REQUESTS])
def test_a_line_asks_what_pulsar_admin_asks(request_: dict[str, Any]) -> None:
    asked = done(request_["line"])
    target = urlsplit(request_["target"])
    # Workers serve /source and /sources alike. A key with a slash is one part of a path here.
    path = target.path.replace("/v3/source/", "/v3/sources/").replace("/v3/sink/", "/v3/sinks/")
    ours = asked.path if asked.path.startswith("/") else f"/admin/v2/{asked.path}"
    assert (asked.method, ours.replace("%2F", "/")) == (request_["method"], path)
    query = {name: str(value).lower() for name, value in asked.query.items()}
    assert query == dict(parse_qsl(target.query))
    parts = {part.name: content_of(part) for part in asked.parts}
    theirs = request_["parts"]
    assert parts.keys() == theirs.keys()
    for name, content in parts.items():
        assert content == without_filled_in(theirs[name], content), name


def test_an_option_goes_before_the_config_file() -> None:
    asked = done("functions create --function-config-file f.yaml --parallelism 7 --name g")
    (config,) = (json.loads(str(part.content)) for part in asked.parts if part.name != "data")
    assert config == CONFIG_FILES["f.yaml"] | {"parallelism": 7, "name": "g"}


@pytest.mark.parametrize("group", OF_WORKERS)
def test_workers_are_asked_by_all_words_of_upstream_and_few_more(group: str) -> None:
    words = {each.word for each in operations_of(group)}
    assert words == set(UPSTREAM[group]) | ADDED_WORDS.get(group, set())
    for each in operations_of(group):
        if each.word in ADDED_WORDS.get(group, ()):
            continue
        ours = {name for known in each.arguments for name in known.names}
        assert ours - set(UPSTREAM[group][each.word]) <= ADDED.get(each.word, set())


@pytest.mark.parametrize("word", ["create", "update"])
def test_a_worker_waits_unless_it_is_told_not_to(word: str) -> None:
    line = f"functions {word} --function-config-file f.yaml"
    path = "/admin/v3/functions/acme/ns/f"
    assert (done(line).path, done(f"{line} --no-wait").path) == (path, f"{path}?wait=false")


def test_a_watched_state_is_shown_when_it_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    operation = next(each for each in operations_of("functions") if each.word == "querystate")
    parser = argparse.ArgumentParser()
    for argument in operation.arguments:
        argument.add_to(parser)
    missing = AdminRefused(404, "key 'k' doesn't exist.")
    answers: list[Any] = [missing, {"numberValue": 1}, {"numberValue": 1}, {"numberValue": 2}]

    def answer(*_: object) -> Any:
        if isinstance(found := answers.pop(0), Exception):
            raise found
        return found

    service = RecordingService()
    monkeypatch.setattr(service, "ask", answer)

    def no_wait(_: object) -> None:
        if not answers:
            raise KeyboardInterrupt

    monkeypatch.setattr(functions, "pause", no_wait)
    with pytest.raises(KeyboardInterrupt):
        operation.does(service, parser.parse_args(["--name", "f", "-k", "k", "-w"]))
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "key 'k' doesn't exist. (HTTP 404)"
    assert [line.split()[-1] for line in shown[1:]] == ["1", "2"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [("[1]", "should hold the members"), ("name: f\n", "install PyYAML"), ("{", "install PyYAML")],
)
def test_a_file_that_holds_no_config_is_refused(content: str, reason: str) -> None:
    Path("c.yaml").write_text(content)
    with pytest.raises(InvalidUse, match=reason):
        done("functions create --function-config-file c.yaml")


@pytest.mark.parametrize(
    "line",
    [
        "functions create --classname f.F -i a",
        "functions create --py nothere.py --classname f.F -i a",
        "functions create --py http://a/f.py --jar http://a/f.jar --name f",
        "functions create --jar http://a/f.jar --user-config [1] --name f",
        "functions create --py http://a/f.py",
        "functions create --function-config-file nothere.json",
        "functions delete",
        "functions delete --fqfn a/b",
        "functions delete --fqfn a/b/c --name d",
        "functions delete --fqfn a//c",
        "functions trigger --name f",
        "functions trigger --name f --trigger-value a --trigger-file b",
        "functions putstate --name f -s {}",
        "functions create --py http://a/f.py --name f --skip-to-latest maybe",
        "sources create --name s",
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(line: str) -> None:
    with pytest.raises((InvalidUse, argparse.ArgumentTypeError, argparse.ArgumentError)):
        done(line)


def test_a_function_s_module_says_what_it_consumes(tmp_path: Path) -> None:
    module = tmp_path / "bills.py"
    module.write_text(
        "from geminga_functions import function\n"
        "@function(inputs='orders', output='bills')\ndef bill(order): ...\n"
    )
    asked = done(f"functions create --py {module} -o b")
    assert asked.path.endswith("/functions/public/default/bill")
    config = {"py": str(module), "className": "bills.bill", "inputs": ["orders"], "output": "b"}
    place = {"tenant": "public", "namespace": "default", "name": "bill"}
    assert [content_of(part) for part in asked.parts] == [config | place, {"file": "bills.py"}]
    module.write_text("a b")
    with pytest.raises(InvalidUse, match=r"bills.py is no Python"):
        done(f"functions create --py {module}")
