"""TLS on the server's side: the certificate that a server shows, and the clients that it trusts.

A server listens with one ``ssl.SSLContext`` for as long as it runs (``ServerTls.context``). The
files are looked at again and again; when they have changed, handshakes that begin from then on are
made with what is in them now, and connections that are open stay as they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Gt

from geminga_runtime.service import Service
from geminga_server.config import Upstream
from geminga_server.errors import ServerStartError

if TYPE_CHECKING:  # it takes 20 ms to load, and `--help` needs none of it
    from ssl import SSLContext, SSLObject

log = logging.getLogger(__name__)

TlsVersion = Literal["TLSv1.2", "TLSv1.3"]

# What a file is known by: time of change, inode, size. A Kubernetes secret that is mounted changes
# its inode.
FileState = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """What a server is told of TLS. Files are in PEM form. Raises ``ValueError`` for settings that
    make no sense together."""

    certificate_file: Annotated[str, Upstream("tlsCertificateFilePath")] = ""
    """The server's certificate, with those between it and the authority; empty: no TLS."""
    key_file: Annotated[str, Upstream("tlsKeyFilePath")] = ""
    """Its key, not encrypted; empty: it stands in the file of the certificate."""
    trust_file: Annotated[str, Upstream("tlsTrustCertsFilePath")] = ""
    """The certificates of the authorities that may sign clients' certificates; empty: clients are
    asked for none."""
    require_client_certificate: Annotated[
        bool, Upstream("tlsRequireTrustedClientCertOnConnect")
    ] = False
    """Refuse clients that show no certificate which an authority of the trust file signed."""
    protocols: Annotated[tuple[TlsVersion, ...], Upstream("tlsProtocols")] = ()
    """The versions that are spoken, of TLSv1.2 and TLSv1.3; empty: both."""
    ciphers: Annotated[tuple[str, ...], Upstream("tlsCiphers")] = ()
    """The ciphers of TLSv1.2, by OpenSSL's names; empty: Python's choice."""
    refresh_s: Annotated[float, Gt(0), Upstream("tlsCertRefreshCheckDurationSec")] = 300.0
    """How often it is looked whether the files have changed."""

    def __post_init__(self) -> None:
        others = (self.key_file, self.trust_file, self.require_client_certificate)
        if any(others) and not self.certificate_file:
            raise ValueError("tls: without certificate_file there is no TLS; give one")
        if self.require_client_certificate and not self.trust_file:
            raise ValueError(
                "tls: require_client_certificate needs trust_file, which says who may sign the "
                "certificates of clients"
            )

    @property
    def is_on(self) -> bool:
        """Whether TLS is served."""
        return bool(self.certificate_file)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are named."""
        return tuple(filter(None, (self.certificate_file, self.key_file, self.trust_file)))

    def server_context(self) -> SSLContext:
        """What handshakes are made with, from the files as they are now.

        Reads files. Raises ``ServerStartError`` where one cannot be used.
        """
        import ssl  # noqa: PLC0415 - as above

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        versions = sorted(self.protocols) or ["TLSv1.2", "TLSv1.3"]
        context.minimum_version = ssl.TLSVersion[versions[0].replace(".", "_")]
        context.maximum_version = ssl.TLSVersion[versions[-1].replace(".", "_")]
        what = "ciphers"
        try:
            if self.ciphers:
                context.set_ciphers(":".join(self.ciphers))
            what = f"certificate_file {self.certificate_file}"
            what += f" with key_file {self.key_file}" if self.key_file else " with the key in it"
            # Always with a password: without one OpenSSL asks for it at the terminal.
            context.load_cert_chain(self.certificate_file, self.key_file or None, password="")
            if self.trust_file:
                what = f"trust_file {self.trust_file}"
                context.load_verify_locations(self.trust_file)
                # A certificate that is shown has to be trusted even where none is required.
                context.verify_mode = ssl.CERT_OPTIONAL
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise ServerStartError(
                f"tls: {what} cannot be used: {error}; files are in PEM form, a key is not "
                "encrypted and belongs to its certificate"
            ) from error
        if self.require_client_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieClientTlsConfig:
    """How a server secures its connections to bookies. Files are in PEM form, and read for each
    connection. Raises ``ValueError`` for settings that make no sense together."""

    trust_file: Annotated[str, Upstream("bookkeeperTLSTrustCertsFilePath")] = ""
    """The certificates of the authorities that sign those of bookies; empty: connections to bookies
    are not secured."""
    certificate_file: Annotated[str, Upstream("bookkeeperTLSCertificateFilePath")] = ""
    """The certificate that bookies are shown; empty: none."""
    key_file: Annotated[str, Upstream("bookkeeperTLSKeyFilePath")] = ""
    """Its key, not encrypted; empty: it stands in the file of the certificate."""
    check_hostname: bool = False
    """Take a bookie's certificate only where it is for the host that the bookie is connected at."""

    def __post_init__(self) -> None:
        if (self.certificate_file or self.key_file) and not self.trust_file:
            raise ValueError("bookkeeper_tls: without trust_file there is no TLS; give one")

    @property
    def maker(self) -> Callable[[], SSLContext] | None:
        """What makes the context of each connection; None where connections are not secured."""
        return self.context if self.trust_file else None

    @property
    def is_on(self) -> bool:
        """Whether connections to bookies are secured."""
        return bool(self.trust_file)

    def context(self) -> SSLContext:
        """What a connection is made with, from the files as they are now.

        Reads files. Raises ``ServerStartError`` where one cannot be used.
        """
        import ssl  # noqa: PLC0415 - as above

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.check_hostname
        try:
            context.load_verify_locations(self.trust_file)
            if self.certificate_file:
                context.load_cert_chain(self.certificate_file, self.key_file or None, password="")
        except (OSError, ValueError) as error:
            raise ServerStartError(f"bookkeeper_tls: files cannot be used: {error}") from error
        return context


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
