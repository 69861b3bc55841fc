"""Unpacks the files of packages into folders of modules, as Apache Pulsar's Python instance does.

- A ``.py`` file is a module; its folder is the folder of modules.
- A ``.whl`` file is unpacked, and what its metadata require is installed.
- A ``.zip`` file has a folder with the name of the file, or with any name, or has the content of
  that folder: ``src`` with modules (without it, modules are at the top), ``requirements.txt``, and
  wheels in ``deps``.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Final

from geminga_functions.errors import PackageRefused

# A package that unpacks to more than this is broken, or meant to fill the disk: it is four times
# the size of the largest package that a worker accepts by default.
UNPACKED_BYTES_MAX: Final = 8 * 1024 * 1024 * 1024
UNPACKED_FILES_MAX: Final = 200_000

PACKAGES: Final = {".py", ".zip", ".whl"}
JAVA: Final = {".jar", ".nar"}
# The limit of file systems.
NAME_BYTES_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class Unpacked:
    """An unpacked package."""

    # The folders that its modules are imported from.
    import_paths: tuple[Path, ...]
    # What is to be installed: the text of a requirements file.
    requirements: str = ""
    # Also to be installed; they may be what the requirements name.
    wheels: tuple[Path, ...] = ()


def unpack(file: Path, target: Path) -> Unpacked:
    """Unpack the package ``file`` into the new folder ``target``. Blocks.

    Raises ``PackageRefused``, ``OSError``.
    """
    check_file_name(file.name)
    match file.suffix:
        case ".py":
            return Unpacked((file.parent,))
        case ".whl":
            _extract(file, target)
            return Unpacked((target,), _required_by_wheel(target))
        case _:
            _extract(file, target)
            return _in_zip(target, file.stem)


def check_file_name(name: str) -> None:
    """Check that a file with this name can be a package. Raises ``PackageRefused``."""
    # The name must be no path: the file is created by this name.
    if not name or Path(name).name != name or len(name.encode(errors="replace")) > NAME_BYTES_MAX:
        raise PackageRefused(
            f"{name!r} is no name of a file, or has more than {NAME_BYTES_MAX} bytes"
        )
    suffix = Path(name).suffix
    if suffix in JAVA:
        raise PackageRefused(f"{name} is a Java archive: this worker runs Python alone")
    if suffix not in PACKAGES:
        raise PackageRefused(f"{name} is no package: those are .py, .zip or .whl files")


def _extract(file: Path, target: Path) -> None:
    # It must not exist: files of two packages would mix.
    target.mkdir(parents=True)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            size_bytes = sum(member.file_size for member in members)
            # By what the archive says of itself, before anything is written.
            if size_bytes > UNPACKED_BYTES_MAX or len(members) > UNPACKED_FILES_MAX:
                raise PackageRefused(
                    f"{file.name} becomes {len(members)} files of {size_bytes} bytes: "
                    f"at most {UNPACKED_FILES_MAX} of {UNPACKED_BYTES_MAX} are unpacked"
                )
            # It removes ".." and a leading "/" from names: all files end below ``target``.
            archive.extractall(target)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise PackageRefused(f"{file.name} cannot be unpacked: {error}") from error


def _required_by_wheel(target: Path) -> str:
    """The requirements in the metadata of an unpacked wheel. Raises ``PackageRefused``."""
    found = sorted(target.glob("*.dist-info/METADATA"))
    if len(found) != 1:
        raise PackageRefused("the wheel has no METADATA file, or several of them")
    headers = HeaderParser().parsestr(found[0].read_text(encoding="utf-8"))
    # A package is installed without extras, so their requirements are left out.
    required = [str(one) for one in headers.get_all("Requires-Dist", [])]
    return "".join(f"{one}\n" for one in required if "extra ==" not in one.replace('"', "'"))


def _in_zip(target: Path, stem: str) -> Unpacked:
    # macOS adds a folder of its own to archives.
    folders = [each for each in target.iterdir() if each.is_dir() and each.name != "__MACOSX"]
    base = target
    # A folder with the archive's name counts first, whatever else there is.
    if (target / stem).is_dir():
        base = target / stem
    elif len(folders) == 1 and (folders[0] / "src").is_dir():
        base = folders[0]
    source, file = base / "src", base / "requirements.txt"
    return Unpacked(
        (source if source.is_dir() else base,),
        file.read_text(encoding="utf-8") if file.is_file() else "",
        tuple(sorted((base / "deps").glob("*.whl"))),
    )
