"""Functions on this machine: ``localrun`` runs one, ``dev`` runs one that is being written.

A function runs in a process of its own, ``python -m geminga_functions.local``, in the environment
that its package requires. The process lives as long as its standard input is open. ``dev`` starts a
new process for each version that is saved, so that nothing of an old version is left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from geminga_cli.admin.components import Config, Kind, given_config, set_name
from geminga_cli.admin.errors import InvalidUse, LocalRunFailed
from geminga_cli.admin.operation import Given
from geminga_functions.errors import PackageError
from geminga_functions.local import MODULE, STOP_TIMEOUT_S, LocalRun
from geminga_functions.packages.archives import unpack
from geminga_functions.packages.environments import Environments

BUILT_IN = "builtin://"
# For installing the packages that a function requires.
ENVIRONMENT_TIMEOUT_S = 300.0
# How soon a saved file is noticed; a check costs a few system calls.
LOOK_PERIOD_S = 0.2
# The modules beside the function's, and those in packages beside it.
WATCHED = ("*.py", "*/*.py")


def localrun(kind: Kind, given: Given) -> None:
    """Run the function, source or sink that the options describe, until it ends or Ctrl-C.

    Raises ``InvalidUse``, ``LocalRunFailed``.
    """
    config = given_config(kind, given)
    set_name(config, given)
    package = kind.package_of(config)
    if package is None:
        raise InvalidUse(f"the file of the {kind.word}'s package is missing")
    # A built-in one has its code in this installation.
    file = None if package.startswith(BUILT_IN) else Path(package)
    with TemporaryDirectory(prefix="geminga-") as directory:
        # Here the package is unpacked and its environment is made, which may take minutes; each
        # ``start`` is quick.
        run = _Runner(Path(directory), kind, config, file, given, is_shown=False)
        with run.start() as process:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                # Ctrl-C is the usual end, and no failure.
                code = end(process)
    if code:
        raise LocalRunFailed(f"the {kind.word} {config['name']} has ended, as said above")


def dev(kind: Kind, given: Given) -> None:
    """Run the function in a file until Ctrl-C; restart it whenever a file is saved."""
    config = given_config(kind, given)
    # A function that is being written need not have a name yet: that of its file will do.
    if given.fqfn is None:
        config.setdefault("name", given.file.stem)
    set_name(config, given)
    if given.file.suffix != ".py":
        raise InvalidUse(f"{given.file} should be a module: FILE.py")
    with TemporaryDirectory(prefix="geminga-") as directory, suppress(KeyboardInterrupt):
        run = _Runner(Path(directory), kind, config, given.file, given, is_shown=True)
        # One round for each version of the files. ``finally`` ends the process of a round also at
        # Ctrl-C, so two versions never run at the same time.
        while True:
            # Before the start: a file that is saved during it causes another one.
            seen = versions(given.file)
            with run.start() as process:
                try:
                    while versions(given.file) == seen:
                        Event().wait(LOOK_PERIOD_S)
                finally:
                    end(process)
            print(f"{given.file.name} or a module beside it was saved: restarting", flush=True)


def versions(file: Path) -> Mapping[Path, int]:
    """The time of the last change of each module that the function may import."""
    found: dict[Path, int] = {}
    for pattern in WATCHED:
        for each in file.parent.glob(pattern):
            with suppress(OSError):  # an editor is replacing it
                found[each] = each.stat().st_mtime_ns
    return found


class _Runner:
    """Starts processes of one function, source or sink.

    ``is_shown`` prints its messages. Raises ``InvalidUse``.
    """

    def __init__(
        self,
        directory: Path,
        kind: Kind,
        config: Config,
        file: Path | None,
        given: Given,
        *,
        is_shown: bool,
    ) -> None:
        if file is not None and not file.is_file():
            raise InvalidUse(f"the package {file} is no file on this machine")
        state_directory = directory / "state"
        state_directory.mkdir()
        try:
            unpacked = unpack(file.resolve(), directory / "unpacked") if file else None
            # Below the temporary directory: nothing of a run on this machine is left behind.
            environments = Environments(
                directory / "environments", os.environ, ENVIRONMENT_TIMEOUT_S
            )
            self._python = (
                asyncio.run(environments.python_for(unpacked)) if unpacked else Path(sys.executable)
            )
        except (PackageError, OSError) as error:
            raise InvalidUse(f"the package cannot be used: {error}") from None
        self._run = LocalRun(
            kind.word,
            config,
            str(file.resolve()) if file else "",
            [str(each) for each in unpacked.import_paths] if unpacked else [],
            given.broker_service_url,
            given.web_service_url,
            str(state_directory),
            given.instance_id_offset,
            is_shown,
        )

    def start(self) -> subprocess.Popen[bytes]:
        """Start a process and send it what to run.

        It has a session of its own: Ctrl-C reaches this process alone, which lets the function
        finish the message that it has begun.
        """
        process = subprocess.Popen(  # noqa: S603 - our own words only
            [self._python, "-m", MODULE],
            stdin=subprocess.PIPE,
            # To Python's cache of compiled modules, a file that is saved twice in a second looks
            # unchanged.
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it ended at once, and its exit code says so
            # One line; after it the open pipe is the sign that we live.
            process.stdin.write(f"{self._run.to_json()}\n".encode())
            process.stdin.flush()
        return process


def end(process: subprocess.Popen[bytes]) -> int:
    """Let the process finish, else kill it with its children; returns its exit code."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        return process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            # The whole session: a function may have started processes.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return 0
