"""Settings of TLS for servers and their clients, and the contexts made of them, from PEM files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from annotated_types import Gt

from geminga_server.config import Upstream
from geminga_server.errors import ServerStartError

if TYPE_CHECKING:  # it takes 20 ms to load, and `--help` needs none of it
    from ssl import SSLContext

TlsVersion = Literal["TLSv1.2", "TLSv1.3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The TLS settings of a server. Files are in PEM form. Raises ``ValueError`` for settings that
    contradict each other."""

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
    """How often the server checks whether the files have changed."""

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
        """Whether the server speaks TLS."""
        return bool(self.certificate_file)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the settings name."""
        return tuple(filter(None, (self.certificate_file, self.key_file, self.trust_file)))

    def server_context(self) -> SSLContext:
        """The context of handshakes, made from the files as they are now.

        Reads files. Raises ``ServerStartError`` where one cannot be used.
        """
        import ssl  # noqa: PLC0415 - as above

        # Nothing is trusted at first: without a trust file no client certificate is asked for.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # There are only two, so a lowest and a highest one say it all.
        versions = sorted(self.protocols) or ["TLSv1.2", "TLSv1.3"]
        context.minimum_version = ssl.TLSVersion[versions[0].replace(".", "_")]
        context.maximum_version = ssl.TLSVersion[versions[-1].replace(".", "_")]
        # The setting that is used now, for the error.
        what = "ciphers"
        try:
            if self.ciphers:
                context.set_ciphers(":".join(self.ciphers))
            what = f"certificate_file {self.certificate_file}"
            what += f" with key_file {self.key_file}" if self.key_file else " with the key in it"
            # Always with a password: without one OpenSSL asks for it at the terminal.
            context.load_cert_chain(self.certificate_file, self.key_file or None, password="")
            # What a client has to show:
            #
            #     no trust file         nothing: it is asked for no certificate
            #     a trust file          nothing; but what it shows must be trusted
            #     ... and required      a certificate that is trusted
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
            # The trust file was loaded above: the settings are refused without one.
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieClientTlsConfig:
    """How a server secures its connections to bookies. Files are in PEM form, and read for each
    connection. Raises ``ValueError`` for settings that contradict each other."""

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
        """Makes the context of each connection; None where connections are not secured."""
        return self.context if self.trust_file else None

    def context(self) -> SSLContext:
        """The context of a connection, made from the files as they are now.

        Reads files. Raises ``ServerStartError`` where one cannot be used.
        """
        return context_at_start("bookkeeper_tls", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerClientTlsConfig:
    """How a broker asks other brokers over HTTPS. Files are in PEM form, and read for each
    connection."""

    enabled: Annotated[bool, Upstream("brokerClientTlsEnabled")] = False
    """Ask brokers over HTTPS where they serve HTTP too; those that serve HTTPS alone are asked over
    it in any case."""
    trust_file: Annotated[str, Upstream("brokerClientTrustCertsFilePath")] = ""
    """The certificates of the authorities that sign those of brokers; empty: the system's."""
    certificate_file: Annotated[str, Upstream("brokerClientCertificateFilePath")] = ""
    """The certificate that other brokers are shown; empty: none."""
    key_file: Annotated[str, Upstream("brokerClientKeyFilePath")] = ""
    """Its key, not encrypted; empty: it stands in the file of the certificate."""
    check_hostname: Annotated[bool, Upstream("tlsHostnameVerificationEnabled")] = True
    """Take a broker's certificate only where it is for the host that the broker is asked at."""

    def context(self) -> SSLContext:
        """The context of a connection, made from the files as they are now.

        Reads files. Raises ``ServerStartError`` where one cannot be used.
        """
        return context_at_start("broker_client_tls", self)


class ClientFiles(Protocol):
    """The settings that all config classes for connections to other servers have in common."""

    @property
    def trust_file(self) -> str:
        """The certificates of the authorities that sign those of servers; empty: the system's."""
        ...

    @property
    def certificate_file(self) -> str:
        """The certificate that the servers are shown; empty: none."""
        ...

    @property
    def key_file(self) -> str:
        """Its key; empty: it is in the file of the certificate."""
        ...

    @property
    def check_hostname(self) -> bool:
        """Whether a certificate has to be for the host that the server is connected at."""
        ...


def context_at_start(settings: str, files: ClientFiles) -> SSLContext:
    """As ``client_context``. Raises ``ServerStartError`` that names the ``settings`` where a file
    cannot be used."""
    try:
        return client_context(files)
    except (OSError, ValueError) as error:
        raise ServerStartError(f"{settings}: files cannot be used: {error}") from error


def client_context(files: ClientFiles) -> SSLContext:
    """The context of a connection to another server, made from the files as they are now.

    Reads files. Raises ``OSError`` or ``ValueError`` where one cannot be used.
    """
    import ssl  # noqa: PLC0415 - as above

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # TLS 1.2 at least
    # The certificate itself is always verified, against the authorities below.
    context.check_hostname = files.check_hostname
    if files.trust_file:
        context.load_verify_locations(files.trust_file)
    else:
        context.load_default_certs()
    if files.certificate_file:
        # Always with a password: without one OpenSSL asks for it at the terminal.
        context.load_cert_chain(files.certificate_file, files.key_file or None, password="")
    return context
