"""Proves that packages of every kind become folders of modules, and what is none is refused."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from geminga_functions.errors import PackageRefused
from geminga_functions.packages import archives
from geminga_functions.packages.archives import Unpacked, unpack

METADATA = """Metadata-Version: 2.1
Name: mine
Requires-Dist: requests>=2
Requires-Dist: pytest; extra == "test"
Requires-Dist: tomli; python_version < "3.11"
"""


def archive(path: Path, members: Mapping[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def test_a_module_stays_where_it_is(tmp_path: Path) -> None:
    assert unpack(tmp_path / "f.py", tmp_path / "out") == Unpacked((tmp_path,))


@pytest.mark.parametrize(
    ("prefix", "name"), [("f/", "f.zip"), ("other/", "f.zip"), ("", "f.zip")], ids=repr
)
def test_a_zip_has_sources_requirements_and_wheels(tmp_path: Path, prefix: str, name: str) -> None:
    file = archive(
        tmp_path / name,
        {
            f"{prefix}src/f.py": "",
            f"{prefix}requirements.txt": "requests\n",
            f"{prefix}deps/b-1-py3-none-any.whl": "",
            f"{prefix}deps/a-1-py3-none-any.whl": "",
            f"{prefix}deps/notes.txt": "",
        },
    )
    base = tmp_path / "out" / prefix
    wheels = base / "deps" / "a-1-py3-none-any.whl", base / "deps" / "b-1-py3-none-any.whl"
    assert unpack(file, tmp_path / "out") == Unpacked((base / "src",), "requests\n", wheels)


def test_a_zip_of_modules_alone_is_imported_from_its_top(tmp_path: Path) -> None:
    file = archive(tmp_path / "f.zip", {"f.py": "", "helpers/__init__.py": ""})
    assert unpack(file, tmp_path / "out") == Unpacked((tmp_path / "out",))


def test_a_wheel_requires_what_its_metadata_say_without_extras(tmp_path: Path) -> None:
    file = archive(
        tmp_path / "mine-1-py3-none-any.whl", {"mine.py": "", "mine-1.dist-info/METADATA": METADATA}
    )
    required = 'requests>=2\ntomli; python_version < "3.11"\n'
    assert unpack(file, tmp_path / "out") == Unpacked((tmp_path / "out",), required)


def test_nothing_is_written_outside_of_the_folder(tmp_path: Path) -> None:
    file = archive(tmp_path / "f.zip", {"../../evil.py": "", "/evil.py": "", "f.py": ""})
    unpack(file, tmp_path / "a" / "b" / "out")
    outside = [each for each in tmp_path.rglob("evil.py") if "out" not in each.parts]
    assert outside == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("f.jar", "f.jar is a Java archive: this worker runs Python alone"),
        ("f.nar", "f.nar is a Java archive: this worker runs Python alone"),
        ("f.tar.gz", "f.tar.gz is no package: those are .py, .zip or .whl files"),
        ("f.zip", "f.zip cannot be unpacked: File is not a zip file"),
        ("f.whl", "f.whl cannot be unpacked: File is not a zip file"),
    ],
)
def test_a_file_that_is_no_package_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / name).write_bytes(b"no package")
    with pytest.raises(PackageRefused, match=f"^{reason}$"):
        unpack(tmp_path / name, tmp_path / "out")


def test_a_wheel_without_metadata_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackageRefused, match="METADATA"):
        unpack(archive(tmp_path / "f.whl", {"f.py": ""}), tmp_path / "out")


def test_an_archive_that_would_fill_the_disk_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "UNPACKED_BYTES_MAX", 1000)
    file = archive(tmp_path / "f.zip", {"f.py": "#" * 1001})
    with pytest.raises(PackageRefused, match="becomes 1 files of 1001 bytes"):
        unpack(file, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
