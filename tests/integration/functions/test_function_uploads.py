"""Proves where packages come from over REST: forms, URLs that operators allow, and paths."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.function_workers import (
    GOOD,
    Workers,
    answer,
    config_of,
    form,
    two_workers,
)

# The workers are shared, and with them their event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

PACKAGE_BYTES_MAX = 100_000
OF_UPLOADS = "/admin/v3/functions/upload"
OF_DOWNLOADS = "/admin/v3/functions/download"


class Handler(BaseHTTPRequestHandler):
    """Has a function, and a way to what is not allowed."""

    def do_GET(self) -> None:
        if self.path == "/allowed/user_code.py":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(GOOD.encode())
        elif self.path == "/allowed/moved.py":
            self.send_response(302)
            self.send_header("Location", "/secret.py")
            self.end_headers()
        else:
            self.send_response(404)
            self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        pass


@pytest.fixture(scope="module")
def web() -> Generator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workers(
    standalone: StandaloneProcess, web: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Workers]:
    """Each test leaves both running, and no function."""
    directory = tmp_path_factory.mktemp("workers")
    async with two_workers(
        standalone,
        directory,
        package_bytes_max=PACKAGE_BYTES_MAX,
        url_patterns=(f"{web}/allowed/.*", "file:///.*/allowed/.*"),
    ) as shared:
        yield shared


def stored(content: str | None, path: str | None) -> dict[str, Any]:
    files: dict[str, Any] = {}
    if content is not None:
        files["data"] = ("user_code.py", content.encode())
    if path is not None:
        files["path"] = (None, path)
    return files


def with_url(url: str, name: str) -> dict[str, Any]:
    return {**form(None, **config_of(name)), "url": (None, url)}


@pytest.mark.parametrize("scheme", ["http", "file"])
async def test_a_package_is_fetched_from_a_url_that_is_allowed(
    workers: Workers, web: str, tmp_path: Path, scheme: str
) -> None:
    _, http = workers.http
    file = tmp_path / "allowed" / "user_code.py"
    file.parent.mkdir()
    file.write_text(GOOD)
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    package = file.as_uri() if scheme == "file" else f"{web}/allowed/user_code.py"
    created = await http.post(url, files=with_url(package, name))
    assert (created.status_code, created.text) == (204, "")
    file.unlink()
    assert await answer(workers, name, b"hello") == b"hello!"
    # It is the cluster's from then on.
    assert (await workers.http[0].get(f"{url}/download")).text == GOOD
    assert (await http.delete(url)).status_code == 204


async def test_no_other_url_is_asked(workers: Workers, web: str) -> None:
    _, http = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    not_valid = "Function Package url is not valid.supported url (http/https/file)"
    for package, reason in [
        (f"{web}/secret.py", not_valid),
        ("file:///etc/passwd", not_valid),
        ("ftp://localhost/f.py", not_valid),
        ("no-url", not_valid),
        (f"{web}/allowed/moved.py", "redirects to"),
        (f"{web}/allowed/missing.py", "cannot be fetched: HTTP Error 404"),
        ("file:///no/allowed/f.py", "cannot be fetched"),
        ("function://public/default/f@1", "packages management, which this cluster does not have"),
    ]:
        refused = await http.post(url, files=with_url(package, name))
        assert refused.status_code == 400, package
        assert reason in refused.json()["reason"]
    both = {**form(GOOD, **config_of(name)), "url": (None, f"{web}/allowed/user_code.py")}
    refused = await http.post(url, files=both)
    assert refused.json()["reason"] == "The form has more than one package"
    assert not [each for each in await workers.topics() if name in each]


async def test_a_package_beyond_the_limit_is_refused_with_both_numbers(workers: Workers) -> None:
    _, http = workers.http
    name = f"f{uuid4().hex[:8]}"
    code = GOOD + "#" * PACKAGE_BYTES_MAX
    url = f"/admin/v3/functions/public/default/{name}"
    for refused in (
        await http.post(url, files=form(code, **config_of(name))),
        await http.post(OF_UPLOADS, files=stored(code, name)),
    ):
        assert refused.status_code == 413
        numbers = [int(each) for each in re.findall(r"\b\d+\b", refused.json()["reason"])]
        has, may_have = numbers
        assert may_have == PACKAGE_BYTES_MAX < has <= len(code)
    assert not [each for each in await workers.topics() if name in each]


async def test_what_is_uploaded_under_a_path_is_downloaded_from_any_worker(
    workers: Workers,
) -> None:
    leader, follower = workers.http
    path = f"public/default/f/{uuid4().hex}/f.py"
    for content in ("first", "second " * 5000):
        created = await follower.post(OF_UPLOADS, files=stored(content, path))
        assert created.status_code == 204
        found = await leader.get(OF_DOWNLOADS, params={"path": path})
        assert (found.status_code, found.text) == (200, content)
    missing = await leader.get(OF_DOWNLOADS, params={"path": "no/such"})
    assert missing.status_code == 404
    assert missing.json() == {"reason": "No package is stored under 'no/such'"}
    for files in (stored(None, path), stored("x", None)):
        refused = await leader.post(OF_UPLOADS, files=files)
        assert refused.status_code == 400
        assert "Function Package is not provided" in refused.json()["reason"]


async def test_an_upload_never_replaces_the_package_of_a_function(workers: Workers) -> None:
    _, http = workers.http
    name = f"f{uuid4().hex[:8]}"
    url = f"/admin/v3/functions/public/default/{name}"
    assert (await http.post(url, files=form(GOOD, **config_of(name)))).status_code == 204
    (found,) = [
        metadata.packageLocation.packagePath
        for function, metadata in workers.workers[0].functions.records.items()
        if function.name == name
    ]
    assert (await http.post(OF_UPLOADS, files=stored("evil", found))).status_code == 204
    assert (await http.get(f"{url}/download")).text == GOOD
    assert (await http.delete(url)).status_code == 204
