"""Proves that what a package requires is installed beside what the worker has, once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from geminga_functions.errors import EnvironmentNotBuilt
from geminga_functions.packages import environments as module
from geminga_functions.packages.archives import Unpacked
from geminga_functions.packages.environments import Environments

pytestmark = pytest.mark.real_loop


def wheel(folder: Path, name: str, content: str, version: str = "1") -> Path:
    """A wheel with one module."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", content)
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return path


def said_by(python: Path, code: str) -> str:
    return subprocess.run(
        [python, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def environments(tmp_path: Path, timeout_s: float = 120) -> Environments:
    # No index is asked: what is there is what a test puts there.
    return Environments(tmp_path / "environments", {**os.environ, "PIP_NO_INDEX": "1"}, timeout_s)


async def test_a_package_that_requires_nothing_runs_in_the_workers_environment(
    tmp_path: Path,
) -> None:
    python = await environments(tmp_path).python_for(Unpacked((tmp_path,), " \n"))
    assert python == Path(sys.executable)


async def test_wheels_are_installed_once_and_stand_before_the_workers_own(tmp_path: Path) -> None:
    wheels = (
        wheel(tmp_path / "deps", "mine", "WORD = 'mine'"),
        wheel(tmp_path / "deps", "msgpack", "WORD = 'the one of the function'"),
    )
    package = Unpacked((tmp_path,), "", wheels)
    mine = environments(tmp_path)
    both = await asyncio.gather(mine.python_for(package), mine.python_for(package))
    assert both[0] == both[1]
    assert len(os.listdir(tmp_path / "environments")) == 1  # noqa: PTH208 - no await in between
    code = "import mine, msgpack, geminga_functions.names; print(mine.WORD, msgpack.WORD)"
    assert said_by(both[0], code) == "mine the one of the function"
    again = await environments(tmp_path, timeout_s=0.001).python_for(package)
    assert again == both[0]


async def test_requirements_are_looked_for_among_the_wheels_too(tmp_path: Path) -> None:
    wheels = (wheel(tmp_path / "deps", "mine", "WORD = 'mine'"),)
    python = await environments(tmp_path).python_for(Unpacked((), "mine>=1\n", wheels))
    assert said_by(python, "import mine; print(mine.WORD)") == "mine"


async def test_the_output_of_pip_is_the_error_and_no_environment_is_left(tmp_path: Path) -> None:
    mine = environments(tmp_path)
    package = Unpacked((), "there-is-no-such-distribution==4711\n")
    with pytest.raises(EnvironmentNotBuilt, match="there-is-no-such-distribution") as first:
        await mine.python_for(package)
    assert "cannot be installed" in first.value.reason
    with pytest.raises(EnvironmentNotBuilt):  # it is tried anew
        await mine.python_for(package)


async def test_pip_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotBuilt, match=r"did not end within 0\.01 s"):
        await environments(tmp_path, 0.01).python_for(Unpacked((), "mine\n"))


async def test_environments_that_are_no_longer_used_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNUSED_MAX", 2)
    directory = tmp_path / "environments"
    for number in range(4):
        (directory / str(number)).mkdir(parents=True)
        os.utime(directory / str(number), (number, number))
    wheels = (wheel(tmp_path / "deps", "mine", ""),)
    mine = environments(tmp_path)
    python = await mine.python_for(Unpacked((), "", wheels))
    first = python.parent.parent.name
    assert set(os.listdir(directory)) == {"2", "3", first}  # noqa: PTH208
    # What is used stays, however old it is; what is not used any more goes, the oldest first.
    os.utime(directory / first, (0, 0))
    (tmp_path / "deps" / wheels[0].name).unlink()
    others = (wheel(tmp_path / "deps", "mine", "WORD = 'other'"),)
    other = await mine.python_for(Unpacked((), "", others))
    second = other.parent.parent.name
    assert set(os.listdir(directory)) == {"2", "3", first, second}  # noqa: PTH208
    mine.release(python)
    (tmp_path / "deps" / wheels[0].name).unlink()
    others = (wheel(tmp_path / "deps", "mine", "WORD = 'third'"),)
    third = (await mine.python_for(Unpacked((), "", others))).parent.parent.name
    assert set(os.listdir(directory)) == {"2", "3", second, third}  # noqa: PTH208
