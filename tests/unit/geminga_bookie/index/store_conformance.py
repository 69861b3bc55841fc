"""What every ``SortedStore`` must do: RocksDB's, and the one in memory that simulations use.

Derive a test class and give it a fixture ``store``: an empty store.
"""

from __future__ import annotations

from geminga_bookie.index.index import SortedStore


def pairs_of(store: SortedStore, high: bytes = b"\xff", low: bytes = b"") -> list[bytes]:
    """Key and value of each pair that a descent gives, in its order."""
    return [key + b"=" + value for key, value in store.descend(high, low)]


class StoreConformance:
    """See the module's text."""

    def test_what_was_written_is_read(self, store: SortedStore) -> None:
        assert store.get(b"a") is None
        store.write([(b"a", b"1"), (b"b", b""), (b"", b"no key")])
        store.write([(b"a", b"2")])
        assert (store.get(b"a"), store.get(b"b"), store.get(b"")) == (b"2", b"", b"no key")
        assert store.get(b"aa") is None

    def test_a_descent_has_both_its_ends(self, store: SortedStore) -> None:
        store.write([(key, key) for key in (b"d", b"a", b"c", b"b")])
        assert pairs_of(store, b"c", b"b") == [b"c=c", b"b=b"]
        assert pairs_of(store, b"bb", b"ba") == []
        assert pairs_of(store, b"a", b"b") == []
        assert pairs_of(store) == [b"d=d", b"c=c", b"b=b", b"a=a"]

    def test_keys_are_compared_as_bytes(self, store: SortedStore) -> None:
        keys = [b"\x00", b"\x00\x00", b"\x7f", b"\x80", b"\xff", b"\xff\x00"]
        store.write([(key, b"") for key in reversed(keys)])
        assert [key for key, _ in store.descend(b"\xff\xff", b"")] == keys[::-1]

    def test_what_is_removed_is_gone(self, store: SortedStore) -> None:
        store.write([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
        store.write([], [b"b", b"never was"])
        assert pairs_of(store) == [b"c=1", b"a=1"]
        store.write([(b"b", b"2")])
        assert store.get(b"b") == b"2"

    def test_of_a_pair_and_a_removal_at_once_the_removal_holds(self, store: SortedStore) -> None:
        store.write([(b"a", b"1"), (b"b", b"1")], [b"a"])
        assert pairs_of(store) == [b"b=1"]

    def test_the_last_of_two_pairs_holds(self, store: SortedStore) -> None:
        store.write([(b"a", b"1"), (b"a", b"2")])
        assert pairs_of(store) == [b"a=2"]

    async def test_a_flush_changes_nothing_that_is_read(self, store: SortedStore) -> None:
        store.write([(b"a", b"1"), (b"b", b"1")])
        await store.flush()
        store.write([(b"b", b"2")], [b"a"])
        assert pairs_of(store) == [b"b=2"]
        await store.flush()
        assert pairs_of(store) == [b"b=2"]

    def test_a_descent_sees_what_there_was_when_it_began(self, store: SortedStore) -> None:
        store.write([(b"%d" % number, b"1") for number in range(5)])
        descent = store.descend(b"9", b"")
        assert next(descent) == (b"4", b"1")
        store.write([(b"2", b"2")], [b"1"])
        assert [key + b"=" + value for key, value in descent] == [b"3=1", b"2=1", b"1=1", b"0=1"]
