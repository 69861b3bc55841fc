"""Proves that the layout of a batch is what protobuf makes of its messages, one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.arrow import layout as layout_module
from geminga.arrow.layout import RUN_FIRST, BatchLayout, batch_layout
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.api_pb2 import KeyValue, SingleMessageMetadata
from geminga_protocol.pulsar.messages.payload import (
    encode_batch,
    encode_numbered_batch,
    split_batch,
)

# Few of each, so that runs of the same come about.
PAYLOADS = st.sampled_from([b"", b"a", b"b" * 127, b"c" * 128, b"\x40\x01" * 5])
KEYS = st.sampled_from([None, "", "k", "l", "käse", "x" * 127, "y" * 128])


@st.composite
def messages(draw: st.DrawFn) -> list[tuple[SingleMessageMetadata, bytes]]:
    """A few sizes and keys, each often several times in a row."""
    made: list[tuple[SingleMessageMetadata, bytes]] = []
    number = draw(st.sampled_from([0, 100, 16_300, 2**40]))
    for _ in range(draw(st.integers(1, 4))):
        payload, key, more = draw(PAYLOADS), draw(KEYS), draw(st.integers(0, 9))
        for _ in range(draw(st.sampled_from([1, 2, 3, RUN_FIRST + 3, 3 * RUN_FIRST]))):
            single = SingleMessageMetadata(payload_size=0, partition_key=key, sequence_id=number)
            if more == 1:
                single.ClearField("sequence_id")
            elif more == 2:
                single.properties.append(KeyValue(key="p", value="q"))
            elif more == 3:
                single.null_value = True
            elif more == 4:
                single.event_time = 2**50
            elif more == 5:
                single.partition_key_b64_encoded = True
            made.append((single, payload))
            number += draw(st.sampled_from([1, 1, 1, 0, 40]))
    return made


@given(messages(), st.binary(max_size=10), st.sampled_from([0, 1000]))
def test_the_layout_is_what_protobuf_sees(
    made: list[tuple[SingleMessageMetadata, bytes]], before: bytes, base: int
) -> None:
    body = encode_batch(made)
    layout = batch_layout(before + body, len(before), len(made), base)
    whole = bytes(base) + before + body
    bounds = zip(layout.bounds[::2], layout.bounds[1::2], strict=True)
    assert [whole[start:end] for start, end in bounds] == [payload for _, payload in made]
    for place, (single, _) in enumerate(split_batch(body, len(made))):
        if place in layout.singles:
            assert layout.singles[place] == single
            continue
        said = {each.name for each, _ in single.ListFields()}
        assert said - {"partition_key"} == {"payload_size", "sequence_id"}
        key = single.partition_key.encode() if single.HasField("partition_key") else None
        assert layout.keys.get(place) == key


@pytest.mark.parametrize("size", [127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_payloads_of_every_size_are_found(size: int) -> None:
    payloads = [b"x" * size, b"y" * size, b"z"]
    body = encode_numbered_batch(payloads, [b""] * 3, [7, 8, 9])
    layout = batch_layout(body, 0, 3)
    assert [body[a:b] for a, b in zip(layout.bounds[::2], layout.bounds[1::2], strict=True)] == (
        payloads
    )
    assert len(layout.singles) == (2 if size >= 2_097_152 else 0)


def test_runs_of_messages_of_one_size_are_looked_at_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 10 * RUN_FIRST
    looked_at: list[int] = []
    usual = layout_module._usual

    def counted(buffer: bytes, position: int, end: int) -> tuple[int, int, int, int] | None:
        looked_at.append(position)
        return usual(buffer, position, end)

    monkeypatch.setattr(layout_module, "_usual", counted)
    body = encode_numbered_batch([b"x" * 1000] * count, [b""] * count, range(count))
    assert batch_layout(body, 0, count).singles == {}
    assert len(looked_at) < 10
    looked_at.clear()
    keyed = [
        (SingleMessageMetadata(payload_size=0, partition_key=f"{n:04}", sequence_id=5), b"x")
        for n in range(count)
    ]
    layout = batch_layout(encode_batch(keyed), 0, count)
    assert layout.keys == {n: b"%04d" % n for n in range(count)}
    assert len(looked_at) < 10
    some = layout.of([1, 7])
    assert some == BatchLayout(layout.bounds[2:4] + layout.bounds[14:16], {0: b"0001", 1: b"0007"})


def test_metadata_of_one_size_may_say_something_else() -> None:
    number = SingleMessageMetadata(payload_size=1, sequence_id=20_000)
    null = SingleMessageMetadata(payload_size=1, sequence_id=5, null_value=True)
    assert number.ByteSize() == null.ByteSize()
    singles = [number, number, null, number, null, null, number]
    body = encode_batch([(single, b"x") for single in singles])
    layout = batch_layout(body, 0, len(singles))
    assert list(layout.singles) == [2, 4, 5]
    assert all(single.null_value for single in layout.singles.values())


@given(messages(), st.data())
def test_what_is_no_batch_raises_a_wire_error(
    made: list[tuple[SingleMessageMetadata, bytes]], data: st.DataObject
) -> None:
    body = bytearray(encode_batch(made))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(body[: data.draw(st.integers(0, len(body)))])
    try:
        expected = [payload for _, payload in split_batch(damaged, len(made))]
    except WireError:
        with pytest.raises(WireError):
            batch_layout(damaged, 0, len(made))
    else:
        bounds = batch_layout(damaged, 0, len(made)).bounds
        assert [damaged[a:b] for a, b in zip(bounds[::2], bounds[1::2], strict=True)] == expected
