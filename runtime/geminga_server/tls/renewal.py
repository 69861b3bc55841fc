"""TLS on the server's side: a certificate that is renewed while the server runs.

A server listens with one ``ssl.SSLContext`` for as long as it runs (``ServerTls.context``). The
files are looked at again and again; when they have changed, handshakes that begin from then on are
made with what is in them now, and connections that are open stay as they are.
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

# What a file is known by: time of change, inode, size. A Kubernetes secret that is mounted changes
# its inode.
FileState = tuple[int, int, int]


class ServerTls(Service):
    """Gives a server's listeners the ``context`` that they make handshakes with, and renews what it
    shows when the files change.

    Opening it raises ``ServerStartError`` where the files cannot be used. Files that cannot be used
    later, because only one of them has been replaced yet, change nothing: they are logged once, and
    looked at again.
    """

    def __init__(self, config: TlsConfig) -> None:
        super().__init__()
        assert config.is_on, "there is no certificate to show"
        self._config = config
        self._states: tuple[FileState | None, ...] = ()
        self._refused: tuple[FileState | None, ...] = ()
        self._context: SSLContext | None = None
        self._current: SSLContext | None = None

    @property
    def context(self) -> SSLContext:
        """The same for as long as the service is open."""
        assert self._context is not None, "it is not open"
        return self._context

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack  # contexts need no closing
        self._states = _states_of(self._config.files)
        self._context = self._current = await asyncio.to_thread(self._config.server_context)
        # OpenSSL asks in every handshake, also where the client names no host. The certificate,
        # its key and the authorities are taken from the context given here; which versions are
        # spoken, and whether a certificate is asked for, from the first one: files change neither.
        self._context.sni_callback = self._choose
        self.spawn_every(self._config.refresh_s, self.refresh, name="renew tls certificates")

    def _choose(self, connection: SSLObject, name: str | None, first: SSLContext) -> None:
        del name
        if self._current is not None and self._current is not first:
            connection.context = self._current

    async def refresh(self) -> None:
        """Look whether the files have changed, and take over what is in them now."""
        states = _states_of(self._config.files)
        if states == self._states:
            return
        try:
            self._current = await asyncio.to_thread(self._config.server_context)
        except ServerStartError as error:
            if states != self._refused:
                self._refused = states
                log.warning("tls files not taken over", extra={"why": str(error)})
        else:
            # Files that changed while they were read differ from ``states``, and are read again.
            self._states = states
            log.info("tls files taken over", extra={"files": list(self._config.files)})


async def accepting_tls(config: TlsConfig, stack: AsyncExitStack) -> SSLContext | None:
    """What a server's listeners make handshakes with, renewed until ``stack`` is closed; None where
    there is no certificate. Raises ``ServerStartError``."""
    if not config.is_on:
        return None
    tls = await stack.enter_async_context(ServerTls(config))
    return tls.context


def _states_of(files: tuple[str, ...]) -> tuple[FileState | None, ...]:
    return tuple(map(_state_of, files))


def _state_of(file: str) -> FileState | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
