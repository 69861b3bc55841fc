"""Access to a cluster: the options that sources and sinks share, and the client they make.

``service.url`` and ``admin.url`` say where the cluster is; ``pulsar.client.*`` who connects, and
how. Their names are the Java connector's, so that its users keep theirs. Values are picklable:
tasks open clients of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import geminga
from pyspark_geminga.errors import InvalidOption

_CLIENT = "pulsar.client."
_ADMIN = "pulsar.admin."
# Methods by the last part of a name, in lower case: Java's classes, or our own words. Java users
# write org.apache.pulsar.client.impl.auth.AuthenticationToken and the like.
_METHODS = {
    "authenticationtoken": "token",
    "token": "token",
    "authenticationtls": "tls",
    "tls": "tls",
    "authenticationbasic": "basic",
    "basic": "basic",
    "authenticationoauth2": "oauth2",
    "oauth2": "oauth2",
}
# Below pulsar.client. (and pulsar.admin., which may repeat them); Spark makes all names lower case.
# Of upstream's ClientConfigurationData those that this client has, too.
CLIENT_OPTIONS = (
    # Who connects.
    "authPluginClassName",
    "authParams",
    # How the connection is secured, and how the client knows the broker.
    "tlsTrustCertsFilePath",
    "tlsCertificateFilePath",
    "tlsKeyFilePath",
    "tlsAllowInsecureConnection",
    "tlsHostnameVerificationEnable",
    # How long it waits, and which of a broker's addresses it takes.
    "operationTimeoutMs",
    "connectionTimeoutMs",
    "listenerName",
)
ACCESS_OPTIONS = (
    "service.url",
    "admin.url",
    *(_CLIENT + name for name in CLIENT_OPTIONS),
    *(_ADMIN + name for name in CLIENT_OPTIONS),
)


@dataclass(frozen=True, slots=True)
class Access:
    """Where the cluster is and who connects. Hashable: reads and writes with equal accesses share a
    client."""

    # All fields are texts, or tuples of them: a dict could not be hashed, and this is the key of
    # clients.
    service_url: str
    admin_url: str | None
    # Names in lower case without ``pulsar.client.``, and values, sorted.
    client_options: tuple[tuple[str, str], ...] = ()
    # Those without ``pulsar.admin.``, which override the others for the REST side.
    admin_options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Access:
        """The access that the options of a reader or writer describe.

        Ignores the options of the source or sink itself (see ``check_names``). Raises
        ``InvalidOption``.
        """
        # Spark keeps options in a map that ignores case, and hands their names over in lower case.
        lower = {name.lower(): value for name, value in options.items()}
        service_url = lower.get("service.url")
        if not service_url:
            raise InvalidOption(
                "service.url", "is missing: pulsar://host:6650 is what it looks like"
            )
        admin_url = lower.get("admin.url") or None
        # Without the last slash: paths are appended to it.
        access = cls(
            service_url,
            admin_url.rstrip("/") if admin_url else None,
            _below(_CLIENT, lower),
            _below(_ADMIN, lower),
        )
        # Both raise for options that are wrong: when the query is planned, not in its tasks.
        access.authentication()
        access.for_admin().authentication()
        return access

    def for_admin(self) -> Access:
        """The access to the REST side, with the client's options where it has none of its own."""
        # Both have had their prefixes taken away, so that equal names meet.
        options = {**dict(self.client_options), **dict(self.admin_options)}
        return Access(self.service_url, self.admin_url, tuple(sorted(options.items())))

    def connect(self) -> geminga.Opening[geminga.Client]:
        """A client of the cluster. Raises ``InvalidOption`` for options that contradict others."""
        given = dict(self.client_options)
        # The URL decides, as in Java's client: TLS options alone do not turn it on.
        is_secure = self.service_url.startswith(("pulsar+ssl:", "https:"))
        options: dict[str, Any] = {}
        # Absent ones keep the defaults of the client library. Milliseconds in Java's configuration,
        # seconds in the client's.
        for name, parameter in (
            ("operationtimeoutms", "operation_timeout_s"),
            ("connectiontimeoutms", "connect_timeout_s"),
        ):
            if name in given:
                options[parameter] = whole_number(_CLIENT + name, given[name]) / 1000
        try:
            return geminga.connect(
                self.service_url,
                tls=self.tls() if is_secure else None,
                authentication=self.authentication(),
                listener_name=given.get("listenername"),
                **options,
            )
        except (ValueError, geminga.InvalidServiceUrl) as error:
            raise InvalidOption("service.url", str(error)) from error

    def tls(self) -> geminga.Tls:
        """The TLS options, for connections whose URL asks for TLS."""
        given = dict(self.client_options)
        parameters = self._auth_parameters()
        # Java's clients name the certificate of mutual TLS in authParams.
        certificate = given.get("tlscertificatefilepath") or parameters.get("tlsCertFile")
        key = given.get("tlskeyfilepath") or parameters.get("tlsKeyFile")
        try:
            return geminga.Tls(
                trust_file=given.get("tlstrustcertsfilepath"),
                certificate_file=certificate,
                key_file=key,
                checks_hostname=flag(
                    _CLIENT + "tlsHostnameVerificationEnable",
                    given.get("tlshostnameverificationenable", "true"),
                ),
                allows_untrusted=flag(
                    _CLIENT + "tlsAllowInsecureConnection",
                    given.get("tlsallowinsecureconnection", "false"),
                ),
            )
        except ValueError as error:
            raise InvalidOption(_CLIENT + "tls*", str(error)) from error

    def authentication(self) -> geminga.Authentication | None:
        """Who connects, by ``authPluginClassName`` and ``authParams``."""
        given = dict(self.client_options)
        name = given.get("authpluginclassname")
        # Without a method nothing is authenticated, whatever ``authParams`` say.
        if not name:
            return None
        # The last part of a class name; our own words have no dots.
        method = _METHODS.get(name.rpartition(".")[2].lower())
        if method is None:
            raise InvalidOption(
                _CLIENT + "authPluginClassName",
                f"{name!r} is none of token, tls, basic and oauth2, or Java's classes for them",
            )
        text, parameters = given.get("authparams", ""), self._auth_parameters()
        # The certificate itself is among the TLS options.
        if method == "tls":
            return geminga.MutualTls()
        if method == "token":
            return geminga.Token(_token(text))
        if method == "oauth2":
            return _oauth2(parameters)
        # Basic: Java's JSON with userId and password, or user:password.
        if "userId" in parameters:
            return geminga.Basic(parameters["userId"], parameters.get("password", ""))
        user, colon, password = text.partition(":")
        if not colon:
            raise InvalidOption(_CLIENT + "authParams", "basic needs user:password")
        return geminga.Basic(user, password)

    def _auth_parameters(self) -> dict[str, str]:
        """``authParams`` as JSON or as ``key:value,key:value``."""
        # Also called for methods whose ``authParams`` is no list: what comes out is ignored then.
        text = dict(self.client_options).get("authparams", "").strip()
        if text.startswith("{"):
            try:
                document: dict[str, object] = json.loads(text)
            except ValueError as error:
                raise InvalidOption(_CLIENT + "authParams", f"is no JSON: {error}") from error
            return {name: str(value) for name, value in document.items()}
        # The first colon only: values are URLs and paths, too. As in upstream's
        # AuthenticationUtil.configureFromPulsar1AuthParamString.
        pairs = (pair.partition(":") for pair in text.split(",") if ":" in pair)
        return {name.strip(): value.strip() for name, _, value in pairs}


def _below(prefix: str, options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(
        sorted(
            (name.removeprefix(prefix), value)
            for name, value in options.items()
            if name.startswith(prefix)
        )
    )


def check_names(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Refuse options with other names than these, which would otherwise be ignored in silence.

    Raises ``InvalidOption``.
    """
    import difflib  # noqa: PLC0415  # for errors alone

    names = {name.lower(): name for name in known}
    for option in options:
        if option.lower() in names:
            continue
        close = [names[each] for each in difflib.get_close_matches(option.lower(), names, n=3)]
        meant = f"is {' or '.join(close)} meant?" if close else f"there are {', '.join(known)}"
        raise InvalidOption(option, f"is not known; {meant}")


def whole_number(option: str, text: str, *, least: int = 1) -> int:
    """An option that is a whole number, ``least`` or more. Raises ``InvalidOption``."""
    try:
        number = int(text)
    except ValueError:
        # A number that is refused below, with the same words.
        number = least - 1
    if number < least:
        raise InvalidOption(option, f"{text!r} is no whole number from {least} on")
    return number


def flag(option: str, text: str) -> bool:
    """An option that is ``true`` or ``false``. Raises ``InvalidOption``."""
    if text.lower() not in {"true", "false"}:
        raise InvalidOption(option, f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _token(text: str) -> str | Callable[[], str]:
    """A token, with or without ``token:`` before it; or a function that reads it out of a file.

    The client calls the function for each connection: the file may get a new token meanwhile.
    """
    if text.startswith("file:"):
        # file:///path and file:/path alike, as Java's URI has them.
        path = unquote(urlsplit(text).path)

        def read() -> str:
            with open(path, encoding="utf-8") as file:  # noqa: PTH123  # as short as it gets
                return file.read()

        return read
    if not text:
        raise InvalidOption(_CLIENT + "authParams", "is missing: token:... or file:///path")
    return text.removeprefix("token:")


def _oauth2(parameters: Mapping[str, str]) -> geminga.OAuth2:
    secrets = dict(parameters)
    key_file = parameters.get("privateKey", "")
    # Read on each machine that connects: the file must be on the executors, too.
    if key_file:  # as Java has it: a JSON file with client_id and client_secret
        with open(unquote(urlsplit(key_file).path), encoding="utf-8") as file:  # noqa: PTH123
            secrets |= {name: str(value) for name, value in json.load(file).items()}
    try:
        return geminga.OAuth2(
            secrets["issuerUrl"],
            secrets["client_id"],
            secrets["client_secret"],
            audience=parameters.get("audience"),
            scope=parameters.get("scope"),
        )
    except KeyError as error:
        raise InvalidOption(_CLIENT + "authParams", f"oauth2 needs {error.args[0]}") from error


def pems_of(files: Iterable[tuple[str, str]]) -> dict[str, bytes]:
    """Read keys, by their names, from files on this machine. Raises ``OSError``."""
    # Called by each task, not by the planner: keys must not be in what Spark sends around.
    pems: dict[str, bytes] = {}
    for name, path in files:
        with open(path, "rb") as file:  # noqa: PTH123  # as short as it gets
            pems[name] = file.read()
    return pems
