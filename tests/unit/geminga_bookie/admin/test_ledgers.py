"""Ledgers are listed, shown, read and deleted with upstream's paths, pages and JSON."""

from __future__ import annotations

from tests.unit.geminga_bookie.admin.cluster import Cluster, run

from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata, ledger_path


def test_the_ids_of_all_ledgers_are_listed() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert (await cluster.get("/api/v1/ledger/list")).json == {}
        for _ in range(3):
            await cluster.write(b"one")
        answer = await cluster.get("/api/v1/ledger/list")
        assert answer.status == 200
        assert answer.json == {"0": None, "1": None, "2": None}
        assert list(answer.json) == ["0", "1", "2"]

    run(scenario)


def test_metadata_is_listed_in_upstreams_pages_and_shapes() -> None:
    async def scenario(cluster: Cluster) -> None:
        ledger_id = await cluster.write(b"one")
        value, _ = await cluster.coordination.get(ledger_path(ledger_id))
        for number in range(1, 150):
            await cluster.coordination.create(ledger_path(number), value, make_parents=True)
        path = "/api/v1/ledger/list?print_metadata=true"
        everything = (await cluster.get(path)).json
        assert len(everything) == 150
        assert everything["7"].startswith("BookieMetadataFormatVersion\t3\n")
        first = (await cluster.get(f"{path}&page=1&decode_meta=true")).json
        second = (await cluster.get(f"{path}&page=2&decode_meta=true")).json
        assert [int(each) for each in (*first, *second)] == list(range(150))
        assert (len(first), second["149"]["ledgerId"]) == (99, 149)
        assert (await cluster.get(f"{path}&page=3")).json == {}

    run(scenario)


def test_a_record_that_cannot_be_decoded_does_not_hide_the_others() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.write(b"one")
        await cluster.coordination.create(ledger_path(1), b"garbage \xff", make_parents=True)
        answer = await cluster.get("/api/v1/ledger/list?print_metadata=true&decode_meta=true")
        assert answer.json["1"] == "garbage \ufffd"
        assert answer.json["0"]["state"] == "CLOSED"

    run(scenario)


def test_the_metadata_of_a_ledger_has_upstreams_names() -> None:
    async def scenario(cluster: Cluster) -> None:
        ledger_id = await cluster.write(b"one", b"three")
        answer = await cluster.get(f"/api/v1/ledger/metadata?ledger_id={ledger_id}")
        value, stat = await cluster.coordination.get(ledger_path(ledger_id))
        stored, created_ms = LedgerMetadata.decode(value), stat.created_ms
        ensemble = [{"id": bookie} for bookie in stored.fragments[0].ensemble]
        shown = answer.json[str(ledger_id)]
        assert (shown["lastEntryId"], shown["length"], shown["closed"]) == (1, 8, True)
        assert shown["allEnsembles"] == {"0": ensemble}
        assert shown["ctoken"] == stored.creation_token
        assert stored.creation_time_ms is None
        assert shown["ctime"] == created_ms > 0
        listed = await cluster.get("/api/v1/ledger/list?print_metadata=true&decode_meta=true")
        assert listed.json[str(ledger_id)]["ctime"] == created_ms
        for missing in ("", "?ledger_id=99"):
            assert (await cluster.get(f"/api/v1/ledger/metadata{missing}")).status == 404
        for wrong in ("abc", "-1", "9" * 20):
            answer = await cluster.get(f"/api/v1/ledger/metadata?ledger_id={wrong}")
            assert answer.status == 400

    run(scenario)


def test_entries_are_read_as_text_in_ranges_and_pages() -> None:
    async def scenario(cluster: Cluster) -> None:
        ledger_id = await cluster.write(*(f"m{number}".encode() for number in range(1003)))
        path = f"/api/v1/ledger/read?ledger_id={ledger_id}"
        answer = await cluster.get(f"{path}&start_entry_id=3&end_entry_id=5")
        assert answer.json == {"3": "m3", "4": "m4", "5": "m5"}
        assert len((await cluster.get(path)).json) == 1003
        second = (await cluster.get(f"{path}&page=2")).json
        assert second == {
            "Entries for page: ": "2",
            "1000": "m1000",
            "1001": "m1001",
            "1002": "m1002",
        }
        assert (await cluster.get(f"{path}&start_entry_id=2000")).json == {}
        answer = await cluster.get(f"{path}&page=2&end_entry_id=1")
        assert (answer.status, "conflict with page=2" in answer.text) == (500, True)
        assert (await cluster.get(f"{path}&start_entry_id=-1")).status == 400
        assert (await cluster.get("/api/v1/ledger/read?ledger_id=77")).status == 404

    run(scenario)


def test_what_is_no_ascii_is_replaced() -> None:
    async def scenario(cluster: Cluster) -> None:
        ledger_id = await cluster.write(b"a\xffb")
        answer = await cluster.get(f"/api/v1/ledger/read?ledger_id={ledger_id}")
        assert answer.json == {"0": "a\ufffdb"}

    run(scenario)


def test_a_deleted_ledger_is_gone_and_deleting_it_again_is_no_error() -> None:
    async def scenario(cluster: Cluster) -> None:
        ledger_id = await cluster.write(b"one")
        for _ in range(2):
            target = f"/api/v1/ledger/delete?ledger_id={ledger_id}"
            answer = await cluster.ask("DELETE", target)
            assert (answer.status, answer.json) == (200, f"Deleted ledger: {ledger_id}")
        assert (await cluster.get("/api/v1/ledger/list")).json == {}
        assert (await cluster.ask("DELETE", "/api/v1/ledger/delete")).status == 404
        assert (await cluster.get("/api/v1/ledger/delete?ledger_id=0")).status == 404

    run(scenario)
