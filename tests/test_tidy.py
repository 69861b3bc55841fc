"""Proves that the tree keeps the house rules that no linter knows: what is only text is forgotten.

What each rule is for stands at its test; exceptions are listed with their reasons in
`tidy_exceptions.py`, and an exception that is no longer needed fails too.
"""

from __future__ import annotations

import ast
import gc
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest
from tests.density import measure, modules_by_folder
from tests.project_files import (
    ROOT,
    SOURCE_FOLDERS,
    imports_of,
    is_file,
    python_files,
    sources,
    text_of,
    tracked,
    tree_of,
)
from tests.tidy_exceptions import (
    MAY_IMPORT_THE_CLIENTS_INSIDE,
    MAY_IMPORT_TIME,
    MAY_OPEN_FILES,
    MAY_STAY_UNIMPORTED,
    MIRRORS_NO_MODULE,
    MODULES_OF,
)

# What users of the client import.
CLIENT_FACES = {"geminga", "geminga.arrow", "geminga.sync"}
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
# A reader keeps so many names in mind; 15 are better.
FOLDER_MODULES_MAX = 20
# How often a reader has to jump, and how much is explained (``density.py``).
FUNCTIONS_A_THOUSAND_LINES_MAX = 50
CALLED_ONCE_PERCENT_MAX = 8
COMMENTS_PERCENT_MIN = 11

# Everything at the top; see CONTRIBUTING.md for what goes where.
TOP_LEVEL = {
    *SOURCE_FOLDERS,
    *("docs", "tests", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    *("LICENSE", "Makefile", "pyproject.toml", "Dockerfile"),
    *("docker-compose.yml", "docker-compose.geo.yml"),
    *(".ci", ".gitignore", ".dockerignore", "docker"),
}
TEST_FOLDERS = {
    *("unit", "integration", "simulation", "performance", "torture", "bookkeeper", "golden"),
    *("histories", "differential", "compat", "apache_java", "java_client", "containers"),
}

# What decides must not ask: a module whose description calls it pure imports none of these.
IMPURE = {"asyncio", "time", "random", "socket", "threading"}
MUST_BE_PURE = {
    "bookie/geminga_ledger/replication/placement.py",
    "bookie/geminga_ledger/replication/quorum.py",
    "bookie/geminga_ledger/replication/recovery_rules.py",
    "bookie/geminga_bookie/decisions/garbage.py",
    "bookie/geminga_bookie/decisions/group_pacing.py",
    "bookie/geminga_bookie/decisions/disk_space.py",
    "broker/geminga_broker/managed_ledger/acknowledgement/acknowledged.py",
    "broker/geminga_broker/managed_ledger/ledger_chain/chain.py",
    "broker/geminga_broker/ownership/assignment/bundles.py",
    "broker/geminga_broker/ownership/assignment/load_report.py",
    "broker/geminga_broker/ownership/assignment/placement.py",
    "broker/geminga_broker/ownership/rings.py",
    "broker/geminga_broker/subscriptions/distribution/active_consumer.py",
    "cli/geminga_cli/supervisor/lifecycle/fleet.py",
    "runtime/geminga_cluster/claims.py",
}
FILE_CALLS = {"open", "io.open", "os.open", "tarfile.open", "zipfile.ZipFile"}
FILE_METHODS = {"read_text", "write_text", "read_bytes", "write_bytes"}
FILE_MODE = re.compile(r"^[rwax][bt]?\+?$")
TODO = re.compile(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))")
# Paths of a developer's machine, and hosts of package registries and mirrors.
MACHINE = re.compile(
    r"/(root|home/\w+|opt/wheels|Users/\w+|work/(main|scratch|shared))\b"
    r"|pypi\.org|pythonhosted\.org|registry\.npmjs|repo\d?\.maven|proxy\.golang|crates\.io"
)
CHANGE_HEADINGS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def unexpected(found: set[str], excepted: Mapping[str, str]) -> list[str]:
    """What breaks a rule without being excepted, and exceptions that nothing needs."""
    missing = sorted(found - excepted.keys())
    unused = sorted(name for name in excepted.keys() - found if is_file(name))
    return missing + [f"{name}: no exception is needed any more" for name in unused]


@pytest.fixture(scope="module", autouse=True)
def trees() -> Generator[None]:
    """The syntax trees of all files are millions of objects: the garbage collector stays away while
    they are needed, which halves the time, and other tests do not keep them in memory."""
    gc.disable()
    yield
    tree_of.cache_clear()
    gc.enable()


def test_no_file_is_longer_than_a_few_screens() -> None:
    lengths = {name: text_of(name).count("\n") for name in python_files()}
    assert {name: count for name, count in lengths.items() if count > FILE_LINES_MAX} == {}


def test_every_function_fits_on_a_screen() -> None:
    found = [
        f"{name}:{node.lineno} {node.name}"
        for name in python_files()
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and lines_of(node) > FUNCTION_LINES_MAX
    ]
    assert found == []


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How long a function is, without its docstring: explaining must not cost anything."""
    first = function.body[0]
    described = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if described else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("def f():\n    return 1", 2),
        ("def f():\n    'It explains.'\n    return 1", 2),
        ("async def f():\n    '''It\n    explains.\n    '''\n    a()\n    b()", 3),
    ],
)
def test_docstrings_do_not_make_a_function_longer(code: str, lines: int) -> None:
    (function,) = ast.parse(code).body
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    assert lines_of(function) == lines


def test_no_folder_has_more_modules_than_a_reader_keeps_in_mind() -> None:
    folders = modules_by_folder()
    assert {name: n for name, n in folders.items() if n > FOLDER_MODULES_MAX} == {}


def test_a_reader_seldom_jumps_and_is_told_why() -> None:
    density = measure(sources())
    assert density.functions_a_thousand_lines <= FUNCTIONS_A_THOUSAND_LINES_MAX, density
    assert density.once_percent <= CALLED_ONCE_PERCENT_MAX, density
    assert density.comments_percent >= COMMENTS_PERCENT_MIN, density


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name in python_files() if not ast.get_docstring(tree_of(name))] == []


def test_every_folder_of_source_is_a_package_with_a_description() -> None:
    """A folder without ``__init__.py`` imports all the same, until it is built into a wheel."""
    folders = {name.rpartition("/")[0] for name in sources() if name.count("/") >= 2}
    assert [folder for folder in sorted(folders) if not is_file(f"{folder}/__init__.py")] == []


def test_a_test_file_begins_with_what_it_proves() -> None:
    tests = [name for name in python_files() if name.rpartition("/")[2].startswith("test_")]
    assert [name for name in tests if not text_of(name).startswith(('"""', 'r"""'))] == []


def test_every_file_stands_in_a_folder_we_know() -> None:
    assert {name.split("/")[0] for name in tracked()} - TOP_LEVEL == set()


def test_tests_stand_in_the_folders_of_their_kind() -> None:
    folders = {name.split("/")[1] for name in tracked() if name.startswith("tests/")}
    assert {name for name in folders if not name.endswith(".py")} - TEST_FOLDERS == set()


def packages() -> list[str]:
    """``runtime/geminga_runtime`` and so on."""
    return sorted({"/".join(name.split("/")[:2]) for name in sources() if name.count("/") >= 2})


def test_every_package_tells_type_checkers_that_it_is_typed() -> None:
    assert [package for package in packages() if not is_file(f"{package}/py.typed")] == []


def test_nothing_is_left_to_do_without_an_issue() -> None:
    mine = Path(__file__).relative_to(ROOT).as_posix()
    found = [
        f"{name}:{number}"
        for name in python_files()
        if name != mine
        for number, line in enumerate(text_of(name).splitlines(), 1)
        if TODO.search(line)
    ]
    assert found == []


def test_only_the_clock_asks_for_the_time() -> None:
    found = {name for name in sources() if "time" in imports_of(name)}
    assert unexpected(found, MAY_IMPORT_TIME) == []


def test_every_dependency_is_imported() -> None:
    """What is installed for nothing costs every user its download and its disk space."""
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    optional = project["optional-dependencies"].values()
    wanted = [one for group in (project["dependencies"], *optional) for one in group]
    distributions = {re.split(r"[\[<>=]", one)[0] for one in wanted} - {project["name"]}
    imported = set().union(*map(imports_of, sources()))
    unused = {
        name
        for name in distributions
        if MODULES_OF.get(name, name.replace("-", "_")) not in imported
    }
    assert unexpected(unused, MAY_STAY_UNIMPORTED) == []


def test_only_the_client_and_its_tests_look_inside_the_client() -> None:
    found = {
        name
        for name in python_files()
        if not name.startswith(("client/geminga/", "tests/unit/geminga/"))
        for node in ast.walk(tree_of(name))
        if is_import_from_inside(node)
    }
    assert unexpected(found, MAY_IMPORT_THE_CLIENTS_INSIDE) == []


def is_import_from_inside(node: ast.AST) -> bool:
    """Is it an import of a module of the client's, instead of what users import?"""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    return any(name.startswith("geminga.") and name not in CLIENT_FACES for name in names)


@pytest.mark.parametrize(
    ("code", "is_inside"),
    [
        ("import geminga", False),
        ("from geminga.arrow import read_table", False),
        ("from geminga_broker.broker import Broker", False),
        ("import geminga.client", True),
        ("from geminga._channels.channel import Channels", True),
    ],
)
def test_the_clients_inside_is_told_from_what_it_exports(code: str, *, is_inside: bool) -> None:
    (node,) = ast.parse(code).body
    assert is_import_from_inside(node) is is_inside


# What only a clock has, and what only a session with ZooKeeper has, two of it at least.
OF_A_CLOCK = {"monotonic", "wall_ms"}
OF_A_COORDINATION = {"children", "exists", "on_session", "transaction"}


def stand_ins(module: ast.Module) -> list[str]:
    """The classes that are a clock or a coordination."""
    found: list[str] = []
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            methods = {getattr(each, "name", "") for each in node.body}
            if methods & OF_A_CLOCK or len(methods & OF_A_COORDINATION) >= 2:
                found.append(node.name)
    return found


def test_tests_have_one_clock_and_one_zookeeper_the_simulated_ones() -> None:
    """A second one is a second opinion of what the real one does, which no test compares."""
    tests = [name for name in python_files() if name.startswith("tests/")]
    assert [f"{name} {each}" for name in tests for each in stand_ins(tree_of(name))] == []


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("class A:\n    def monotonic(self): ...", ["A"]),
        ("def f():\n    class B(SystemClock):\n        def wall_ms(self): ...", ["B"]),
        ("class C:\n    async def exists(self): ...\n    async def children(self): ...", ["C"]),
        ("class D:\n    async def exists(self): ...\n    async def get(self): ...", []),
    ],
)
def test_a_stand_in_is_told_from_other_classes(code: str, names: list[str]) -> None:
    assert stand_ins(ast.parse(code)) == names


def opens_files(name: str) -> bool:
    calls = (node for node in ast.walk(tree_of(name)) if isinstance(node, ast.Call))
    return any(map(is_file_call, calls))


def is_file_call(call: ast.Call) -> bool:
    words = ast.unparse(call.func)
    if words in FILE_CALLS or words.rpartition(".")[2] in FILE_METHODS:
        return True
    mode = call.args[0] if call.args else None
    return (
        words.endswith(".open")
        and isinstance(mode, ast.Constant)
        and FILE_MODE.match(str(mode.value)) is not None
    )


def test_only_the_disk_opens_files() -> None:
    found = {name for name in sources() if opens_files(name)}
    assert unexpected(found, MAY_OPEN_FILES) == []


def calls_itself_pure(name: str) -> bool:
    return re.search(r"\b[Pp]ure\b", ast.get_docstring(tree_of(name)) or "") is not None


def test_what_decides_does_no_io() -> None:
    pure = {name for name in sources() if calls_itself_pure(name)} - {
        name for name in sources() if name.endswith("__init__.py")
    }
    assert {
        name: impure
        for name in sorted(pure | {name for name in MUST_BE_PURE if is_file(name)})
        if (impure := imports_of(name) & IMPURE)
    } == {}


def test_the_list_of_pure_modules_names_real_ones() -> None:
    assert [name for name in sorted(MUST_BE_PURE) if not is_file(name)] == []


def mirrored(name: str) -> str:
    """The module that ``tests/unit/<package>/.../test_<module>.py`` is about, below its folder."""
    folder, _, module = name.removeprefix("tests/unit/").rpartition("/")
    return f"{folder}/{module.removeprefix('test_')}"


def test_every_unit_test_stands_where_its_module_stands() -> None:
    modules = {name.partition("/")[2] for name in sources()}
    modules |= {f"{name.removesuffix('.proto')}.py" for name in modules}
    found = {
        name
        for name in python_files()
        if name.startswith("tests/unit/")
        and name.rpartition("/")[2].startswith("test_")
        and mirrored(name) not in modules
    }
    assert unexpected(found, MIRRORS_NO_MODULE) == []


def test_tests_that_pass_leave_nothing_in_the_temporary_folder(tmp_path: Path) -> None:
    """Clusters take hundreds of megabytes. Here small tests are run as these are, by a worker."""
    environment = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    environment["TMPDIR"] = str(tmp_path)
    words = (
        "-q",
        "-n",
        "1",
        "-p",
        "no:cacheprovider",
        "tests/unit/geminga_runtime/test_file_disk.py",
    )
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert [each for each in tmp_path.rglob("*") if not each.is_dir()] == []


def test_no_file_names_a_machine_or_a_registry() -> None:
    mine = Path(__file__).relative_to(ROOT).as_posix()
    found = [
        f"{name}:{number}: {line.strip()[:80]}"
        for name in tracked()
        if name != mine and not name.startswith("tests/golden/") and is_text(name)
        for number, line in enumerate(text_of(name).splitlines(), 1)
        if MACHINE.search(line)
    ]
    assert found == []


def is_text(name: str) -> bool:
    return b"\0" not in (ROOT / name).read_bytes()[:8192]


def test_the_changelog_has_the_shape_people_expect() -> None:
    lines = text_of("CHANGELOG.md").splitlines()
    assert lines[0] == "# Changelog"
    versions = [line for line in lines if line.startswith("## ")]
    assert versions[0] == "## [Unreleased]"
    released = re.compile(r"^## \[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}$")
    assert [line for line in versions[1:] if not released.match(line)] == []
    headings = {line.removeprefix("### ") for line in lines if line.startswith("### ")}
    assert headings <= CHANGE_HEADINGS


def test_every_documented_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    documents = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", *docs())
    named = {
        target
        for name in documents
        if is_file(name)
        for target in re.findall(r"`make ([a-z-]+)", text_of(name))
    }
    assert named - targets == set()


def docs() -> list[str]:
    return [name for name in tracked() if name.startswith("docs/") and name.endswith(".md")]


@pytest.mark.parametrize(
    ("code", "is_call"),
    [
        ("open('x')", True),
        ("path.open('rb')", True),
        ("path.read_text()", True),
        ("os.open(path, 0)", True),
        ("disk.open('journal/1')", False),
        ("await ledgers.open(7)", False),
        ("super().open(ledger)", False),
    ],
)
def test_opening_a_file_is_told_from_opening_something_else(code: str, *, is_call: bool) -> None:
    call = next(node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call))
    assert is_file_call(call) is is_call


def test_an_exception_that_nothing_needs_is_noticed() -> None:
    excepted = {"Makefile": "a file that is there"}
    assert unexpected({"Makefile"}, excepted) == []
    assert unexpected({"a.py"}, excepted) == ["a.py", "Makefile: no exception is needed any more"]
