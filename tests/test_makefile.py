"""Proves what make says without a Python, and while pip works; by a Python that does nothing."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 60
# `make test` runs these tests, and tells each make below it so; the one here stands alone.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
# A Python as make sees it: makes an "environment" of itself, and notes how pip is called.
FAKE_PYTHON = """#!/bin/sh
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip "*) echo "pip:$*:" ;;
esac
"""

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="there is no make here")


@pytest.fixture
def python(tmp_path: Path) -> Path:
    path = tmp_path / "python"
    path.write_text(FAKE_PYTHON)
    path.chmod(0o755)
    return path


def make(directory: Path, python: Path | str, *targets: str) -> subprocess.CompletedProcess[str]:
    """Run make with an environment of its own below ``directory``."""
    return subprocess.run(
        words(directory, python, *targets),
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def words(directory: Path, python: Path | str, *targets: str) -> list[str]:
    return ["make", f"VENV={directory / 'env'}", f"PYTHON={python}", *targets]


def test_a_python_that_there_is_not_is_named(tmp_path: Path) -> None:
    ended = make(tmp_path, "/nope", "run")
    assert ended.returncode != 0
    assert "make: there is no program /nope" in ended.stderr
    assert "venv and pip" not in ended.stderr


def test_a_program_that_is_no_new_python_is_named(tmp_path: Path) -> None:
    ended = make(tmp_path, "false", "run")
    assert ended.returncode != 0
    assert "make: false is no Python 3.11 or newer" in ended.stderr


def test_what_takes_time_is_said_before_it_is_done(tmp_path: Path, python: Path) -> None:
    ended = make(tmp_path, python, f"{tmp_path}/env/bin/.runs")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0].startswith(f"make: making {tmp_path}/env with {python}")
    assert lines[1].startswith("make: installing Geminga and the packages it needs")
    assert lines[2].startswith("pip:-m pip install")
    assert "--quiet" in lines[2]


def test_people_are_shown_pips_progress(tmp_path: Path, python: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        words(tmp_path, python, f"{tmp_path}/env/bin/.runs"),
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=theirs,
    ) as made:
        os.close(theirs)
        shown = b""
        while not shown.endswith(b":\r\n"):
            shown += os.read(ours, 4096)
        os.close(ours)
        assert made.wait(TIMEOUT_S) == 0
    assert b"pip:-m pip install" in shown
    assert b"--quiet" not in shown
