"""A real container engine for tests: Debian's, in namespaces of its own, gone when it is left.

It runs in a root of its release (``debian``), in a network with no way out (``namespace``), and
keeps images in the user's cache, but no container, volume or network. What is built in it asks the
index of ``package_index``.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.containers.debian import Roots
from tests.containers.namespace import NetworkNamespace
from tests.containers.package_index import NAME_SERVER_PORT, NameServer, PackageIndex
from tests.integration.waiting import eventually

CHECKOUT = Path(__file__).parents[2]
BASE_IMAGE = "python:3.13-slim"
BASE_RELEASE = "trixie"
# The engine's own address on the network where images are built.
GATEWAY = "172.17.0.1"
INDEX_PORT = 8443
START_TIMEOUT_S = 60.0
# Containers are given ten seconds to end, all at once.
STOP_TIMEOUT_S = 60.0
RUN_TIMEOUT_S = 900.0
# What is kept of images' layers, so that only what changed is built again: BuildKit's by size,
# those of the builder before it, which are images without a name, by age, unless all that an engine
# keeps is larger than this. What one build of every image leaves is 4 GB, of which Spark's is most.
LAYERS_MAX = "3GB"
UNUSED_MAX = "72h"
KEPT_MEGABYTES_MAX = 5000

# Every path is below the root that becomes /, so that dockerd and its client see the same files.
ENTER = """
set -e
mount --make-rprivate /
mount --rbind {root} {root}
for each in proc sys dev; do mount --rbind /$each {root}/$each; done
for each in run tmp; do mount -t tmpfs tmpfs {root}/$each; done
mkdir -p {root}/engine {root}/checkout {root}/outside
mount --bind {data} {root}/engine
mount --bind -o ro {checkout} {root}/checkout
cp {resolv_conf} {root}/run/resolv.conf
mount --bind {root}/run/resolv.conf {root}/etc/resolv.conf
cd {root}
pivot_root . outside
umount -l /outside
cd /
exec dockerd --data-root /engine --exec-root /run/docker --pidfile /run/docker.pid \\
    --host unix:///run/docker.sock --bip {gateway}/16
"""


@dataclass(frozen=True, slots=True)
class Release:
    """An engine as a release of Debian has it, and how its compose is called."""

    name: str
    packages: tuple[str, ...]
    compose: tuple[str, ...]


# Engine 26.1 and Compose 2.26; Engine 20.10 and Compose 1.29.
TRIXIE = Release(
    "trixie",
    ("docker.io", "docker-cli", "docker-compose", "docker-buildx", "iptables"),
    ("docker", "compose"),
)
BOOKWORM = Release("bookworm", ("docker.io", "docker-compose", "iptables"), ("docker-compose",))


class Engine:
    """One engine. Entered, it runs and has the base image; ``run`` runs its client."""

    def __init__(self, release: Release, cache: Path, scratch: Path) -> None:
        self.release = release
        self._cache = cache
        self._scratch = scratch
        self._roots = Roots(cache, scratch)
        self._network = NetworkNamespace(f"geminga-{release.name}-{os.getpid()}")
        self._process: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()
        self.log = scratch / f"dockerd-{release.name}.log"
        self.index: PackageIndex

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._cache.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((self._cache / f"{self.release.name}.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)  # two engines on the same data would spoil it
            self._root = self._roots.of(self.release.name, self.release.packages)
            base = self._roots.python_image(BASE_RELEASE)
            stack.enter_context(self._network)
            names = self._network.socket(socket.SOCK_DGRAM, NAME_SERVER_PORT)
            stack.enter_context(NameServer(names, GATEWAY))
            bound = self._network.socket(socket.SOCK_STREAM, INDEX_PORT)
            self.index = stack.enter_context(PackageIndex(bound, self._cache))
            stack.callback(self.stop)
            self.start()
            self.clear()
            stack.callback(self._limit_cache)
            stack.callback(self.clear)
            self._import_base(base)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    # The engine's life

    def start(self) -> None:
        """Start the engine and wait until it answers, as a booting machine does."""
        data = self._cache / f"{self.release.name}-data"
        data.mkdir(exist_ok=True)
        resolv_conf = self._scratch / "resolv.conf"
        resolv_conf.write_text(f"nameserver {GATEWAY}\n")
        script = ENTER.format(
            root=self._root,
            data=data,
            checkout=CHECKOUT,
            resolv_conf=resolv_conf,
            gateway=GATEWAY,
        )
        with self.log.open("ab") as log:
            # It ends with us, whatever ends us.
            words = ["setpriv", "--pdeathsig", "TERM", "unshare", "--mount", "sh", "-c", script]
            self._process = subprocess.Popen(
                self._network.inside(words),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        eventually(self._answers, bool, START_TIMEOUT_S)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"dockerd ended: {self.log.read_text()[-2000:]}")
        return self.try_to("docker", "version").returncode == 0

    def stop(self) -> None:
        """End the engine as a machine that is shut down does: it ends its containers first."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None

    def clear(self) -> None:
        """Remove every container, volume and network that is not the engine's own."""
        for container in self.words("docker", "ps", "-aq"):
            self.run("docker", "rm", "--force", "--volumes", container)
        for volume in self.words("docker", "volume", "ls", "-q"):
            self.run("docker", "volume", "rm", volume)
        self.run("docker", "network", "prune", "--force")

    def _limit_cache(self) -> None:
        """Forget layers that no build has used for long, or that are too many."""
        is_too_large = int(self.words("du", "-smx", "/engine")[0]) > KEPT_MEGABYTES_MAX
        unused = () if is_too_large else ("--filter", f"until={UNUSED_MAX}")
        self.run("docker", "image", "prune", "--force", *unused)
        # After the images: BuildKit keeps each layer that one of them has.
        self.run("docker", "builder", "prune", "--force", "--keep-storage", LAYERS_MAX)

    def _import_base(self, archive: Path) -> None:
        self._import(archive, BASE_IMAGE, 'CMD ["python3"]')

    def import_prometheus(self, image: str) -> None:
        """Let Debian's Prometheus stand for ``image``, with the same entrypoint and arguments."""
        archive = self._roots.prometheus_image(BASE_RELEASE)
        arguments = (
            "--config.file=/etc/prometheus/prometheus.yml",
            "--storage.tsdb.path=/prometheus",
        )
        entrypoint = 'ENTRYPOINT ["/usr/bin/prometheus"]'
        self._import(archive, image, entrypoint, f"CMD {json.dumps(arguments)}")

    def _import(self, archive: Path, image: str, *changes: str) -> None:
        if self.try_to("docker", "image", "inspect", image).returncode == 0:
            return
        options = [word for change in changes for word in ("--change", change)]
        with archive.open("rb") as content:
            self.run("docker", "import", *options, "-", image, stdin=content)

    # Its client

    def try_to(
        self,
        *words: str,
        variables: Mapping[str, str] | None = None,
        stdin: Any = subprocess.DEVNULL,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the engine's root, at the checkout, with these variables only."""
        assert self._process is not None
        known = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", **(variables or {})}
        return subprocess.run(
            [
                *("nsenter", f"--target={self._process.pid}", "--mount", "--net"),
                *("env", "-i", *(f"{name}={value}" for name, value in known.items())),
                *("sh", "-c", f"cd /checkout && exec {shlex.join(words)}"),
            ],
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )

    def run(
        self, *words: str, variables: Mapping[str, str] | None = None, stdin: Any = None
    ) -> str:
        """The same for a program that succeeds; what it prints."""
        ended = self.try_to(*words, variables=variables, stdin=stdin or subprocess.DEVNULL)
        assert ended.returncode == 0, f"{shlex.join(words)}:\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    def words(self, *words: str) -> list[str]:
        """What a program prints, word by word."""
        return self.run(*words).split()

    def inspect(self, kind: str, name: str) -> dict[str, Any]:
        """What the engine knows of an image, a container, a volume."""
        (found,) = json.loads(self.run("docker", kind, "inspect", name))
        return dict(found)

    @property
    def build_variables(self) -> dict[str, str]:
        """What lets a build use the index."""
        return {"PIP_INDEX_URL": self.index.url, "CA_CERTIFICATE": self.index.certificate}

    def build_arguments(self) -> list[str]:
        """The same for ``docker build``."""
        pairs = self.build_variables.items()
        return [word for name, value in pairs for word in ("--build-arg", f"{name}={value}")]

    # The machine around it

    def on_the_machine(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a program of this machine in the engine's network: a client of published ports."""
        return subprocess.run(
            self._network.inside(words),
            capture_output=True,
            text=True,
            cwd=CHECKOUT,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
