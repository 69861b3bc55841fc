"""Ask a broker all that the scenarios ask, and keep the answers or show how they differ.

    python -m tests.differential record --service-url pulsar://127.0.0.1:6650 \\
        --web-url http://127.0.0.1:8080           keep what a real Apache Pulsar 4.0.6 answers
    python -m tests.differential compare ...      show where a broker answers otherwise
    python -m tests.differential list

The real broker wants these settings besides its defaults:
acknowledgmentAtBatchIndexLevelEnabled=true, brokerDeleteInactiveTopicsEnabled=false,
forceDeleteNamespaceAllowed=true, backlogQuotaCheckIntervalInSeconds=2,
activeConsumerFailoverDelayTimeMillis=100. ``record`` twice, the second time with ``compare`` on a
broker started anew: nothing may differ.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from tests.differential.comparison import differences, expected
from tests.differential.scenario import Scenario, run_all, scenarios
from tests.differential.transcript import Line, dump
from tests.differential.world import prepare, warm_up


def main() -> int:
    """Do as told; 1 if anything failed or differed."""
    options = _options()
    chosen = [
        each
        for each in scenarios()
        if any(word in f"{each.group}/{each.name}" for word in options.only.split(","))
    ]
    if options.what == "list":
        for each in chosen:
            print(f"{each.group}/{each.name}", each.not_yet and f"(not yet: {each.not_yet})")
        return 0
    prepare(options.web_url)
    asyncio.run(warm_up(options.service_url, options.web_url))
    results = asyncio.run(run_all(chosen, options.service_url, options.web_url))
    good = sum(_is_good(each, results[each.name], options) for each in chosen)
    print(f"{good} of {len(chosen)} as wanted")
    return int(good < len(chosen))


def _is_good(each: Scenario, result: list[Line] | Exception, options: argparse.Namespace) -> bool:
    if isinstance(result, Exception):
        print(f"=== {each.group}/{each.name} failed: {type(result).__name__}: {result}")
        return False
    if options.what == "record":
        return _keep(each, result)
    return _compare(each, result, is_ours=options.ours)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["record", "compare", "list"])
    parser.add_argument("--service-url", default="pulsar://127.0.0.1:6650")
    parser.add_argument("--web-url", default="http://127.0.0.1:8080")
    parser.add_argument("--only", default="", help="names, or parts of them, with commas between")
    parser.add_argument("--ours", action="store_true", help="compare: mind what is meant to differ")
    return parser.parse_args()


def _keep(each: Scenario, lines: list[Line]) -> bool:
    each.path.parent.mkdir(exist_ok=True, parents=True)
    each.path.write_text(dump(lines), encoding="utf-8")
    return True


def _compare(each: Scenario, lines: list[Line], *, is_ours: bool) -> bool:
    if not each.path.exists():
        print(f"=== {each.group}/{each.name}\nnot recorded yet")
        return False
    recorded: list[Line] = json.loads(each.path.read_text(encoding="utf-8"))
    found = differences(expected(recorded, each.wanted if is_ours else ()), lines)
    if found:
        print(f"=== {each.group}/{each.name}\n{found}")
    return not found


if __name__ == "__main__":
    sys.exit(main())
