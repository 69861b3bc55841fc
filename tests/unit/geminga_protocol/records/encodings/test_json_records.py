"""Dataclasses stand for JSON objects, keep what they do not know, and refuse wrong types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import pytest

from geminga_protocol.records.encodings.json_records import JsonRecord, Named
from geminga_protocol.records.errors import MalformedRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel(JsonRecord):
    size_inches: float
    maker: str | None = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bicycle(JsonRecord):
    owner_name: str
    gear_count: Annotated[int, Named("gears")] = 1
    is_stolen: bool = False
    front: Wheel | None = None
    spare_wheels: tuple[Wheel, ...] = ()
    wheels_by_place: Mapping[str, tuple[Wheel, ...]] = field(default_factory=dict)
    note: Annotated[object, Named("NOTE")] = None


FULL = Bicycle(
    owner_name="Ada",
    gear_count=21,
    is_stolen=True,
    front=Wheel(size_inches=28.0, maker=None),
    spare_wheels=(Wheel(size_inches=26.5),),
    wheels_by_place={"cellar": (Wheel(size_inches=20.0, maker="x"),)},
    note={"any": ["thing", None]},
)


def test_members_have_the_fields_names_in_camel_case_or_the_given_ones() -> None:
    assert FULL.encode() == (
        b'{"ownerName":"Ada","gears":21,"isStolen":true,"front":{"sizeInches":28.0},'
        b'"spareWheels":[{"sizeInches":26.5,"maker":"unknown"}],'
        b'"wheelsByPlace":{"cellar":[{"sizeInches":20.0,"maker":"x"}]},'
        b'"NOTE":{"any":["thing",null]}}'
    )
    assert Bicycle.decode(FULL.encode()) == FULL


def test_members_without_a_field_are_kept_at_every_depth() -> None:
    value = (
        b'{"ownerName":"Ada","gears":1,"isStolen":false,"front":{"sizeInches":1.0,"new":[1]},'
        b'"spareWheels":[],"wheelsByPlace":{},"newer":{"x":null}}'
    )
    bicycle = Bicycle.decode(value)
    assert bicycle.other == {"newer": {"x": None}}
    assert bicycle.front is not None
    assert bicycle.front.other == {"new": [1]}
    assert bicycle.encode() == value


def test_a_member_that_is_not_there_is_none_where_it_can_be() -> None:
    wheel = Wheel.decode(b'{"sizeInches":28}')
    assert wheel.maker is None
    assert wheel.size_inches == 28.0


def test_a_member_that_is_not_there_is_otherwise_the_default() -> None:
    for value in (b'{"ownerName":"Ada"}', b'{"ownerName":"Ada","gears":null,"front":null}'):
        assert Bicycle.decode(value) == Bicycle(owner_name="Ada")


@pytest.mark.parametrize(
    ("written", "gears"),
    [('"7"', 7), ('" +7 "', 7), ('"-1"', -1), ('"9223372036854775807"', 2**63 - 1)],
)
def test_a_whole_number_may_be_written_as_text(written: str, gears: int) -> None:
    """As the JSON reader of Pulsar's brokers has it; the clients' own tests send such quotas."""
    value = f'{{"ownerName":"Ada","gears":{written}}}'.encode()
    assert Bicycle.decode(value).gear_count == gears


def test_a_required_member_must_be_there() -> None:
    for value in (b"{}", b'{"ownerName":null}'):
        with pytest.raises(MalformedRecord, match="ownerName is missing"):
            Bicycle.decode(value)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_words_for_numbers_are_numbers(text: str) -> None:
    value = b'{"sizeInches":"%s"}' % text.encode()
    assert Wheel.decode(value).encode() == value


@pytest.mark.parametrize(
    "members",
    [
        '"ownerName":7',
        '"gears":true',
        '"gears":1.5',
        '"gears":"1.5"',
        '"gears":"seven"',
        '"gears":""',
        '"gears":"12345678901234567890"',
        '"gears":"\u0663"',
        '"isStolen":0',
        '"front":[]',
        '"front":{"sizeInches":"large"}',
        '"front":{"sizeInches":true}',
        '"front":{"sizeInches":1' + "0" * 400 + "}",
        '"spareWheels":{}',
        '"spareWheels":[7]',
        '"wheelsByPlace":[]',
        '"wheelsByPlace":{"cellar":{}}',
    ],
)
def test_a_member_of_another_type_is_refused(members: str) -> None:
    with pytest.raises(MalformedRecord):
        Bicycle.decode(f'{{"ownerName":"Ada",{members}}}'.encode())
