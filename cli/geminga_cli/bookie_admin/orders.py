"""``force-gc``, ``set-readonly``, ``set-writable``: commands to one bookie, over its HTTP."""

from __future__ import annotations

import argparse
import json
import urllib.error
import urllib.request

from geminga_cli.bookie_admin.cluster import Cluster, run
from geminga_cli.bookie_admin.errors import HttpUnknown, OrderRefused

ANSWER_TIMEOUT_S = 30.0
# Answers have a few lines.
ANSWER_BYTES_MAX = 64 * 1024


def force_gc(options: argparse.Namespace) -> int:
    """Start a garbage collection in the bookie; returns 0 when it has begun."""
    # An empty body: the bookie compacts whatever its settings and suspensions allow.
    answer = _put(options, "/api/v1/bookie/gc", None)
    print(json.dumps(answer) if options.json else f"bookie {options.bookie} collects garbage now")
    return 0


def set_read_only(options: argparse.Namespace) -> int:
    """Let the bookie refuse entries until ``set-writable``, or until it is restarted."""
    return _set(options, is_wanted=True)


def set_writable(options: argparse.Namespace) -> int:
    """Let the bookie accept entries again; returns 1 if it has a reason of its own not to."""
    return _set(options, is_wanted=False)


def _set(options: argparse.Namespace, *, is_wanted: bool) -> int:
    answer = _put(options, "/api/v1/bookie/state/readonly", {"readOnly": is_wanted})
    if not isinstance(answer, dict) or not isinstance(answer.get("readOnly"), bool):
        raise OrderRefused(options.bookie, f"it answered {answer!r}")
    # The state may differ from the one that was asked for: a bookie whose disks are full stays
    # read-only.
    is_read_only: bool = answer["readOnly"]
    if options.json:
        print(json.dumps({"bookie": options.bookie, "readOnly": is_read_only}))
    else:
        state = "read-only" if is_read_only else "writable"
        why = "" if is_read_only is is_wanted else ", for another reason; its log says which"
        print(f"bookie {options.bookie} is {state}{why}")
    return int(is_read_only is not is_wanted)


def _put(options: argparse.Namespace, path: str, content: object) -> object:
    """The decoded answer to a PUT. Raises ``UnknownBookie``, ``HttpUnknown``, ``OrderRefused``."""
    if not options.http:
        # ZooKeeper is needed only to find the address: with --http, the command works without it.
        # This runs and ends an event loop of its own; the request after it needs none.
        run(_find_http, options)
    address = str(options.http)
    body = b"" if content is None else json.dumps(content).encode()
    # No client library: one request, and the command should start quickly.
    request = urllib.request.Request(f"http://{address}{path}", body, method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as answer:  # noqa: S310
            return json.loads(answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        with error:
            reason = error.read(ANSWER_BYTES_MAX).decode(errors="replace")
        raise OrderRefused(options.bookie, f"{error.code} {reason}") from error
    # ValueError: an answer that is no JSON, so no bookie of ours is at that address.
    except (OSError, ValueError) as error:
        raise OrderRefused(options.bookie, f"at {address}: {error}") from error


async def _find_http(cluster: Cluster, options: argparse.Namespace) -> int:
    """Set ``options.http`` to the address that the bookie has registered."""
    await cluster.require_bookie(options.bookie)
    info = await cluster.bookie_info(options.bookie)
    if info is None or info.http_address is None:
        raise HttpUnknown(options.bookie)
    host, port = info.http_address
    # A URL has an IPv6 address in brackets.
    options.http = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return 0
