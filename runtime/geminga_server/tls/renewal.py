"""TLS on the server's side: a certificate that is renewed while the server runs.

A server listens with one ``ssl.SSLContext`` as long as it runs (``ServerTls.context``). The files
are checked periodically. When they have changed, new handshakes use their new content, and open
connections stay as they are.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from ssl import SSLContext, SSLObject

from geminga_runtime.service import Service
from geminga_server.errors import ServerStartError
from geminga_server.tls.config import TlsConfig

log = logging.getLogger(__name__)

# Time of change in nanoseconds, inode, size: one of them differs in a file that has changed. A
# mounted secret of Kubernetes changes its inode.
FileState = tuple[int, int, int]


class ServerTls(Service):
    """The ``context`` with which a server's listeners make handshakes, renewed from its files.

    Opening it raises ``ServerStartError`` where the files cannot be used. Files that cannot be used
    later, as when only one of two has been replaced yet, change nothing: they are logged once, and
    checked again.
    """

    def __init__(self, config: TlsConfig) -> None:
        super().__init__()
        assert config.is_on, "there is no certificate to show"
        self._config = config
        # The files that are in use, and those that could not be used, as they were when checked.
        self._states: tuple[FileState | None, ...] = ()
        self._refused: tuple[FileState | None, ...] = ()
        # The context that listeners have, and the one made last, which handshakes switch to.
        self._context: SSLContext | None = None
        self._current: SSLContext | None = None

    @property
    def context(self) -> SSLContext:
        """The context for listeners, the same as long as the service is open."""
        assert self._context is not None, "the service is not open"
        return self._context

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack  # contexts need no closing
        # Before the files are read: a change while they are read shows at the next check.
        self._states = _states_of(self._config.files)
        self._context = self._current = await asyncio.to_thread(self._config.server_context)
        # OpenSSL calls this in every handshake, also where the client names no host. It takes the
        # certificate, its key and the authorities from the context that is set there; versions, and
        # whether a certificate is required, from the first one: files change neither.
        self._context.sni_callback = self._choose
        self.spawn_every(self._config.refresh_s, self.refresh, name="renew tls certificates")

    def _choose(self, connection: SSLObject, name: str | None, first: SSLContext) -> None:
        del name
        # Not before the first renewal: until then the context in use is the listener's own.
        if self._current is not None and self._current is not first:
            connection.context = self._current

    async def refresh(self) -> None:
        """Check whether the files have changed, and use their new content."""
        # A few calls of ``stat`` on the loop; reading and parsing is done in a thread.
        states = _states_of(self._config.files)
        if states == self._states:
            return
        try:
            self._current = await asyncio.to_thread(self._config.server_context)
        except ServerStartError as error:
            # The states in use stay, so that the files are read again at the next check: the second
            # of two files may be on its way.
            if states != self._refused:
                self._refused = states
                log.warning("tls files not taken over", extra={"why": str(error)})
        else:
            # Files that changed while they were read differ from ``states``, and are read again.
            self._states = states
            log.info("tls files taken over", extra={"files": list(self._config.files)})


async def accepting_tls(config: TlsConfig, stack: AsyncExitStack) -> SSLContext | None:
    """The context for a server's listeners, renewed until ``stack`` is closed; None where no
    certificate is set. Raises ``ServerStartError``."""
    if not config.is_on:
        return None
    tls = await stack.enter_async_context(ServerTls(config))
    return tls.context


def _states_of(files: tuple[str, ...]) -> tuple[FileState | None, ...]:
    """The states of the files; None for one that cannot be found."""
    states: list[FileState | None] = []
    for file in files:
        try:
            found = Path(file).stat()
        except OSError:
            states.append(None)
        else:
            states.append((found.st_mtime_ns, found.st_ino, found.st_size))
    return tuple(states)
