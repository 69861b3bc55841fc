"""The options that name the broker to ask, and the credentials."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from geminga_cli.admin.service import AdminService, TlsOptions

# Environment variables with the defaults of --admin-url and --auth-params.
URL_VARIABLE = "GEMINGA_ADMIN_URL"
AUTH_VARIABLE = "GEMINGA_AUTH_PARAMS"
DEFAULT_URL = "http://localhost:8080"
DEFAULT_TIMEOUT_S = 60.0


def add_service_options(parser: argparse.ArgumentParser) -> None:
    """Add the options, under the names of pulsar-admin."""
    parser.add_argument(
        "--admin-url",
        default=os.environ.get(URL_VARIABLE, DEFAULT_URL),
        metavar="URL",
        help=f"a broker's REST (default: {DEFAULT_URL}; variable {URL_VARIABLE})",
    )
    parser.add_argument(
        "--auth-params",
        # From the environment, because other users of the machine see command lines.
        default=os.environ.get(AUTH_VARIABLE, ""),
        metavar="token:TEXT",
        help=f"the token to authenticate with, or token:file:///PATH (variable {AUTH_VARIABLE})",
    )
    parser.add_argument(
        "--request-timeout",
        type=float,
        default=DEFAULT_TIMEOUT_S,
        metavar="SECONDS",
        help="how long to wait for each answer (default: 60)",
    )
    parser.add_argument(
        "--tls-trust-cert-path",
        type=Path,
        metavar="FILE",
        help="the authorities to trust (default: the system's)",
    )
    parser.add_argument("--tls-allow-insecure", action="store_true", help="accept any certificate")
    parser.add_argument(
        "--tls-skip-hostname-verification",
        action="store_true",
        help="accept a certificate that is for another host",
    )


def service_of(options: argparse.Namespace) -> AdminService:
    """A service that asks the broker of the options. Raises ``InvalidUse``."""
    tls = TlsOptions(
        options.tls_trust_cert_path,
        allow_insecure=options.tls_allow_insecure,
        checks_hostname=not options.tls_skip_hostname_verification,
    )
    return AdminService(
        options.admin_url,
        auth_params=options.auth_params,
        tls=tls,
        timeout_s=options.request_timeout,
    )
