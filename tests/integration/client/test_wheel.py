"""Proves that the bare wheel, without any server dependency, installs and gives the client."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest
from tests.project_files import ROOT

IMPORT_ALL = """
import importlib, pkgutil, sys
import geminga, geminga_protocol, geminga_runtime
for package in (geminga, geminga_protocol, geminga_runtime):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.startswith("geminga.arrow"):  # of the extra of that name
            importlib.import_module(module.name)
heavy = {"kazoo", "pydantic", "fastapi", "uvicorn", "structlog", "prometheus_client", "rocksdict"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
print("imported", geminga.Client.__name__)
"""


@pytest.mark.full
def test_the_bare_wheel_gives_the_client_library(tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT)],
        check=True,
        timeout=300,
    )
    imported = subprocess.run(
        [python, "-W", "error", "-c", IMPORT_ALL],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert imported.stdout == "imported Client\n"


def test_this_environment_is_the_project_itself() -> None:
    """The tests test the checkout, not an installed copy."""
    shown = subprocess.run(
        [sys.executable, "-c", "import geminga; print(geminga.__file__)"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )
    assert Path(shown.stdout.strip()).is_relative_to(ROOT)
