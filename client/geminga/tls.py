"""TLS: what a client trusts, how it shows who it is, and what a failed handshake means."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass

from geminga.errors import TlsFailed

# What OpenSSL's verification says, by its numbers (X509_V_ERR_*, x509_vfy.h).
_EXPIRED = 10
_NOT_YET_VALID = 9
# In this order: the issuer's certificate is missing; the certificate signs itself; one in the chain
# signs itself; the issuer's is missing in the trust store; the first one cannot be verified.
_UNKNOWN_ISSUERS = frozenset((2, 18, 19, 20, 21))
_OTHER_HOST = frozenset((62, 64))  # another name, another IP address

CERTIFICATE_WANTED = (
    "a broker that asks for a certificate needs certificate_file and key_file, signed by an "
    "authority that the broker trusts"
)


@dataclass(frozen=True, slots=True)
class Tls:
    """How connections to ``pulsar+ssl://`` and ``https://`` are secured (``tls`` of ``connect``):

        Tls(trust_file="ca.pem", certificate_file="me.pem", key_file="me-key.pem")

    Files are in PEM form. Each connection reads them again, so that a certificate may be replaced
    while the client runs.

    - ``trust_file``: the certificates of the authorities that may sign a broker's; by default the
      system's.
    - ``certificate_file``, ``key_file``: the client's own certificate and its key, for brokers that
      ask for one. The key may be in the file of the certificate.
    - ``key_password``: what the key is encrypted with.
    - ``checks_hostname``: whether the broker's certificate must be for the host that the client
      connects to.
    - ``allows_untrusted``: whether any certificate will do. Such a connection is safe from hosts
      that only listen, and not from one that poses as the broker.
    - ``ciphers``: OpenSSL's list of ciphers for TLS 1.2; by default Python's.

    Raises ``ValueError`` for options that contradict each other.
    """

    trust_file: str | os.PathLike[str] | None = None
    certificate_file: str | os.PathLike[str] | None = None
    key_file: str | os.PathLike[str] | None = None
    key_password: str | None = None
    checks_hostname: bool = True
    allows_untrusted: bool = False
    ciphers: str | None = None

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for options that contradict each other."""
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("key_file is of no use without certificate_file")
        if self.allows_untrusted and self.trust_file is not None:
            raise ValueError("allows_untrusted trusts every certificate: leave trust_file out")

    def context(self) -> ssl.SSLContext:
        """Make what secures a connection, from the files as they are now: it blocks.

        Raises ``TlsFailed`` for a file that cannot be used, or a list without a known cipher.
        """
        # Made for each connection: a context keeps what it has read, and would keep a certificate
        # that was replaced since.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # TLS 1.2 at least
        # Set first: OpenSSL refuses to trust every certificate while the name of the host is
        # checked.
        context.check_hostname = self.checks_hostname and not self.allows_untrusted
        if self.allows_untrusted:
            context.verify_mode = ssl.CERT_NONE
        elif self.trust_file is None:
            context.load_default_certs()
        else:
            try:
                context.load_verify_locations(self.trust_file)
            except (OSError, ValueError) as error:
                raise TlsFailed(
                    f"trust_file {os.fspath(self.trust_file)!r} cannot be used: {error}; "
                    "it has to hold certificates in PEM form"
                ) from error
        if self.ciphers is not None:
            try:
                context.set_ciphers(self.ciphers)
            except ssl.SSLError as error:
                raise TlsFailed(f"no cipher of {self.ciphers!r} is known to OpenSSL") from error
        if self.certificate_file is not None:
            try:
                # Always with a password: without one OpenSSL asks for it at the terminal.
                context.load_cert_chain(
                    self.certificate_file, self.key_file, password=self.key_password or ""
                )
            except (OSError, ValueError) as error:
                key = "the key in it"
                if self.key_file is not None:
                    key = f"key_file {os.fspath(self.key_file)!r}"
                if self.key_password is not None:
                    key += " and key_password"
                raise TlsFailed(
                    f"certificate_file {os.fspath(self.certificate_file)!r} cannot be used with "
                    f"{key}: {error}; both have to be in PEM form and belong together"
                ) from error
        return context


def handshake_failed(host: str, error: ssl.SSLError) -> TlsFailed:
    """The error for a handshake that failed, which says what can be done about it."""
    reason = (error.reason or str(error)).lower().replace("_", " ")
    # In this order: the client's refusal of the broker, bytes that are no TLS, the broker's refusal
    # of the client.
    if isinstance(error, ssl.SSLCertVerificationError):
        # The client does not accept the broker's certificate.
        meaning = f"its certificate is refused: {error.verify_message}"
        if error.verify_code in _OTHER_HOST:
            meaning = (
                f"its certificate is for another host: connect by a name that the certificate "
                f"holds instead of {host}, or set checks_hostname=False ({error.verify_message})"
            )
        elif error.verify_code in (_EXPIRED, _NOT_YET_VALID):
            meaning = (
                "its certificate is not valid at this time: it has to be renewed, or a clock is "
                f"wrong ({error.verify_message})"
            )
        elif error.verify_code in _UNKNOWN_ISSUERS:
            meaning = (
                "its certificate is signed by an authority that is not trusted here: name the "
                f"authority's certificate with trust_file ({error.verify_message})"
            )
    elif "wrong version number" in reason or "record layer failure" in reason:
        # The bytes that came are no TLS.
        meaning = f"no TLS is spoken there: use its TLS port, or a URL without TLS ({reason})"
    elif "alert" in reason:
        # The broker ended the handshake, mostly for the client's certificate.
        meaning = f"it refuses this client: {reason}; {CERTIFICATE_WANTED}"
    else:
        meaning = reason
    return TlsFailed(f"TLS with {host} failed: {meaning}")
