"""Record what a real Apache Pulsar says of schemas that follow others.

    python -m tests.differential.schema_verdicts --web-url http://127.0.0.1:8080

writes ``tests/golden/schemas/verdicts.json``. For each strategy there is a namespace, in which each
case has a topic: it gets its history while everything is compatible; then the strategy is set, it
is asked whether the next schema is compatible, and that one is uploaded.
"""

from __future__ import annotations

import argparse
import html
import json
import re
from collections.abc import Iterator
from typing import Any

from tests.differential.schema_pairs import CASES, Case, Schema
from tests.differential.web import request
from tests.project_files import GOLDEN

FILE = GOLDEN / "schemas" / "verdicts.json"
TENANT = "public"
STRATEGIES = (
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)
PROVENANCE = (
    "Answers of Apache Pulsar 4.0.6, standalone with systemTopicEnabled=false and"
    " topicLevelPoliciesEnabled=false, recorded by tests/differential/schema_verdicts.py."
    " compatible: what POST .../compatibility says; uploaded: the version that POST .../schema"
    " answers, null where it refuses."
)


def main() -> int:
    """Record all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--web-url", required=True)
    web_url = parser.parse_args().web_url
    recorded = {each.name: _as_json(each) for each in CASES}
    assert len(recorded) == len(CASES), "two cases have one name"
    for strategy in STRATEGIES:
        for name, verdict in _verdicts(web_url, strategy):
            recorded[name]["verdicts"][strategy] = verdict
    FILE.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(each) for each in recorded.values())
    FILE.write_text(f'{{"from": {json.dumps(PROVENANCE)}, "cases": [\n{lines}\n]}}\n')
    return 0


def _as_json(case: Case) -> dict[str, Any]:
    return {
        "name": case.name,
        "history": [_body(each) for each in case.history],
        "following": _body(case.following),
        "verdicts": {},
    }


def _verdicts(web_url: str, strategy: str) -> Iterator[tuple[str, dict[str, Any]]]:
    namespace = f"{TENANT}/schemas-{strategy.lower()}"
    path = f"/admin/v2/namespaces/{namespace}"
    request(web_url, "DELETE", f"{path}?force=true")
    _expect(request(web_url, "PUT", path, {}).status, 204)
    _set(web_url, path, "ALWAYS_COMPATIBLE")
    topics = [f"/admin/v2/schemas/{namespace}/case-{at}" for at in range(len(CASES))]
    for topic, case in zip(topics, CASES, strict=True):
        request(web_url, "DELETE", f"{topic}/schema?force=true")
        for schema in case.history:
            _expect(request(web_url, "POST", f"{topic}/schema", _body(schema)).status, 200)
    _set(web_url, path, strategy)
    for topic, case in zip(topics, CASES, strict=True):
        asked = request(web_url, "POST", f"{topic}/compatibility", _body(case.following))
        uploaded = request(web_url, "POST", f"{topic}/schema", _body(case.following))
        yield (
            case.name,
            {
                "compatible": asked.status == 202 and asked.json()["compatibility"],
                "uploaded": uploaded.json()["version"]["version"]
                if uploaded.status == 200
                else None,
                "status": [asked.status, uploaded.status],
                "reason": "" if uploaded.status == 200 else _reason(uploaded.content.decode()),
            },
        )


def _reason(page: str) -> str:
    """What a refusal says, which is a page of Jetty's or upstream's JSON with a stack trace."""
    found = re.search(r"MESSAGE:</th><td>(.*?)</td>", page, re.DOTALL) or re.search(
        r"Message: (.*?)\\n", page
    )
    return html.unescape(found[1]).strip()[:300] if found else page[:200]


def _set(web_url: str, path: str, strategy: str) -> None:
    _expect(request(web_url, "PUT", f"{path}/schemaCompatibilityStrategy", strategy).status, 204)


def _body(schema: Schema) -> dict[str, Any]:
    return {"type": schema.type, "schema": schema.definition, "properties": dict(schema.properties)}


def _expect(status: int, wanted: int) -> None:
    if status != wanted:
        raise SystemExit(f"answered {status} instead of {wanted}")


if __name__ == "__main__":
    raise SystemExit(main())
