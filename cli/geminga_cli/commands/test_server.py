"""``geminga test-server``: a throw-away standalone for test suites in any language.

The suite starts this command with a pipe as its standard input and reads one line: ``READY``, the
service URL, the URL of REST. The cluster ends when the suite closes the pipe, when the suite itself
ends, or with a signal. This process outlives the standalone to remove its data.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from geminga_cli.standard_input import drop_some, is_stream

# Options of `geminga standalone`. Those of the command line come after them, and the last one wins.
THROW_AWAY = (
    *("--broker-port", "0", "--web-port", "0", "--bookie-port", "0", "--zookeeper-port", "0"),
    *("--no-sync", "--quiet", "--stop-with-input"),
)


def main(arguments: Sequence[str]) -> int:
    """Run until the input ends or a signal arrives; returns the standalone's exit code."""
    options = parse(arguments)

    from geminga_runtime.clock import SystemClock  # noqa: PLC0415 - not for --help
    from geminga_server.directories import DirectoryLock  # noqa: PLC0415 - the same

    # Where the supervisor is killed, its parts may still write while the directory is being
    # removed. The order of the end: the standalone first, then its parts (the lock), then their
    # files.
    with TemporaryDirectory(prefix="geminga-test-server-", ignore_cleanup_errors=True) as folder:
        data = Path(folder) / "data"
        returncode = run_standalone(["--data-dir", str(data), *THROW_AWAY, *options])
        # Then its parts die as well. They hold the lock of the data until they have. Waiting for
        # the lock is waiting for the parts: then nothing writes into the directory any more.
        DirectoryLock(data, SystemClock()).close()
    # A shell reports the same code for a program that a signal ended.
    return returncode if returncode >= 0 else 128 - returncode


def run_standalone(options: Sequence[str]) -> int:
    """Start the standalone, forward signals and the end of our input to it, wait for its end."""
    # Only we hold the writing end, so the standalone also ends when we are killed.
    its_input, lifeline = os.pipe()
    standalone = subprocess.Popen(  # noqa: S603 - our own words, and options of our user
        [sys.executable, "-m", "geminga_cli", "standalone", *options],
        stdin=its_input,
        process_group=0,  # Ctrl-C reaches us alone: it would take a second signal for impatience
    )
    os.close(its_input)

    # A signal may arrive before the standalone has handlers of its own: it then ends the standalone
    # at once, which is what was asked for.
    def forward(number: int, _frame: FrameType | None) -> None:
        standalone.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    if is_stream():
        # A thread, because the main thread waits for the standalone, and reading the pipe waits
        # too. It ends with the process (daemon).
        threading.Thread(target=close_after_input, args=(lifeline,), daemon=True).start()
    return standalone.wait()


def close_after_input(lifeline: int) -> None:
    """Close ``lifeline`` when our input has ended."""
    while drop_some():
        pass
    os.close(lifeline)


def parse(arguments: Sequence[str]) -> list[str]:
    """The standalone's options; ``--help`` and wrong ones end the process as argparse does."""
    parser = argparse.ArgumentParser(
        prog="geminga test-server",
        usage="geminga test-server [OPTION OF geminga standalone ...]",
        description="Start a throw-away cluster on free ports and print one line: "
        "READY SERVICE_URL WEB_SERVICE_URL. Give it a pipe as standard input: the cluster ends "
        "when the pipe is closed or your program ends. SIGTERM ends it too. Its data is in a "
        "temporary directory, which is not synced to disk and is removed at the end.",
        epilog="All options of `geminga standalone` but --data-dir: --broker-port and --web-port "
        "fix the ports, --num-bookies 3 stores each message on three bookies, --sync syncs.",
        allow_abbrev=False,
    )
    parser.add_argument("--data-dir", "--data-directory", help=argparse.SUPPRESS)
    known, options = parser.parse_known_args(arguments)
    if known.data_dir is not None:
        parser.error("its data is thrown away: to keep data, use `geminga standalone --data-dir`")
    return options
