"""Roots of Debian releases, made once and kept in the user's cache: what the engines run in, and
what stands for the image that ours are built on, where no registry of images is reached."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

# What images leave out too, and what only helps apt.
NOT_IN_IMAGES = (
    *("var/lib/apt/lists", "var/cache", "var/log"),
    *("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale"),
)
# Downloads 200 MB.
TIMEOUT_S = 1200.0


class DebianMissing(Exception):
    """There is no way to Debian's packages here; the message says what is missing."""


class Roots:
    """Makes roots below ``cache``; ``scratch`` is for what is not needed afterwards."""

    def __init__(self, cache: Path, scratch: Path) -> None:
        self._cache = cache
        self._scratch = scratch

    def of(self, release: str, packages: Sequence[str]) -> Path:
        """A root with these packages. Raises ``DebianMissing``."""
        root = self._cache / release
        if root.exists():
            return root
        made = self._cache / f"{release}.{os.getpid()}"
        try:
            self._bootstrap(release, made)
            install(made, packages)
            made.rename(root)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return root

    def python_image(self, release: str) -> Path:
        """An archive of a root with Python, as thin as images of it are. Raises
        ``DebianMissing``."""
        return self._image("python", release, ("python3", "python3-venv"))

    def prometheus_image(self, release: str) -> Path:
        """The same with Prometheus."""
        return self._image("prometheus", release, ("prometheus",))

    def _image(self, name: str, release: str, packages: Sequence[str]) -> Path:
        archive = self._cache / f"{name}-{release}.tar"
        if archive.exists():
            return archive
        made = self._scratch / name
        self._bootstrap(release, made)
        install(made, packages)
        if name == "python":
            (made / "usr/bin/python").symlink_to("python3")
        for folder in NOT_IN_IMAGES:
            shutil.rmtree(made / folder, ignore_errors=True)
            (made / folder).mkdir()
        partial = archive.with_suffix(f".{os.getpid()}")
        subprocess.run(["tar", "-C", str(made), "-cf", str(partial), "."], check=True)
        partial.rename(archive)
        return archive

    def _bootstrap(self, release: str, root: Path) -> None:
        program = self._debootstrap()
        subprocess.run(
            [
                *("sh", str(program), "--variant=minbase", "--include=ca-certificates,netbase"),
                *(release, str(root), mirror()),
            ],
            env={**os.environ, "DEBOOTSTRAP_DIR": str(program.parents[1] / "share/debootstrap")},
            stdout=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=True,
        )
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        refusal = root / "usr/sbin/policy-rc.d"  # no package starts a service
        refusal.write_text("#!/bin/sh\nexit 101\n")
        refusal.chmod(0o755)

    def _debootstrap(self) -> Path:
        """Its program: the one that is installed here, or one that is only unpacked."""
        installed = shutil.which("debootstrap")
        if installed is not None:
            return Path(installed)
        unpacked = self._scratch / "debootstrap"
        program = unpacked / "usr/sbin/debootstrap"
        if not program.exists():
            download = ["apt-get", "download", "debootstrap"]
            fetched = subprocess.run(
                download, cwd=self._scratch, capture_output=True, text=True, check=False
            )
            if fetched.returncode != 0:
                raise DebianMissing(f"apt-get cannot download debootstrap: {fetched.stderr}")
            (package,) = self._scratch.glob("debootstrap_*.deb")
            subprocess.run(["dpkg-deb", "-x", str(package), str(unpacked)], check=True)
        return program


def install(root: Path, packages: Sequence[str]) -> None:
    """Install packages into a root; this machine is left alone."""
    subprocess.run(
        ["chroot", str(root), "apt-get", "install", "-qy", "--no-install-recommends", *packages],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdout=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        check=True,
    )
    subprocess.run(["chroot", str(root), "apt-get", "clean"], check=True)


def mirror() -> str:
    """The mirror of Debian that this machine's apt uses. Raises ``DebianMissing``."""
    if shutil.which("apt-get") is None:
        raise DebianMissing("there is no apt-get: this is no Debian")
    told = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"^https?://\S+/debian/?$", told.stdout, re.MULTILINE)
    if found is None:
        raise DebianMissing("apt knows no mirror of Debian")
    return found[0]
