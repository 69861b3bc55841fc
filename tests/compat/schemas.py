"""The same schemas and values as each of the two clients has them.

``SCHEMAS[name][client]`` is a schema of that client and values of it; the values of both are the
same ones, in the same order. These are the schemas that the official client has: no numbers, dates
or key-value pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, NamedTuple

import pulsar.schema as theirs
from google.protobuf.struct_pb2 import ListValue, Value
from google.protobuf.struct_pb2 import Struct as ProtoStruct

import geminga
from geminga import AvroType


class Shade(Enum):
    """Names are values: the official client writes values to JSON, and reads names."""

    LIGHT = "LIGHT"
    DARK = "DARK"


@dataclass
class Bean:
    origin: str
    shade: Shade


@dataclass
class Order:
    """One field of each type that both clients have."""

    id: int
    cups: Annotated[int, AvroType("int")]
    is_paid: bool
    price: float
    discount: Annotated[float, AvroType("float")]
    drink: str
    code: bytes
    bean: Bean
    notes: list[str]
    stock: dict[str, int]
    table: str | None = None


class OfficialBean(theirs.Record):  # type: ignore[misc]  # the official client ships no types
    """``Bean``."""

    origin = theirs.String(required=True)
    shade = theirs.CustomEnum(Shade, required=True)


# The official client forgives another name of the outermost record alone.
OfficialBean.__name__ = Bean.__name__


class OfficialOrder(theirs.Record):  # type: ignore[misc]  # as above
    """``Order``."""

    id = theirs.Long(required=True)
    cups = theirs.Integer(required=True)
    is_paid = theirs.Boolean(required=True)
    price = theirs.Double(required=True)
    discount = theirs.Float(required=True)
    drink = theirs.String(required=True)
    code = theirs.Bytes(required=True)
    bean = OfficialBean(required=True)
    notes = theirs.Array(theirs.String(), required=True)
    stock = theirs.Map(theirs.Long(), required=True)
    table = theirs.String()


class Typed(NamedTuple):
    """A schema of one client and values of it."""

    schema: Any
    values: Sequence[Any]


def same(ours: Any, official: Any, *values: Any) -> Mapping[str, Typed]:
    """Schemas whose values both clients have alike."""
    return {"ours": Typed(ours, values), "official": Typed(official, values)}


ORDERS: list[dict[str, Any]] = [
    {
        "id": 1,
        "cups": 2,
        "is_paid": True,
        "price": 2.2,
        "discount": 0.5,
        "drink": "café ☕",
        "code": b"code",
        "notes": ["hot", ""],
        "stock": {"cups": -3, "é": 2**40},
        "table": "7",
    },
    {
        "id": -(2**63),
        "cups": 2**31 - 1,
        "is_paid": False,
        "price": -0.0,
        "discount": -(2.0**100),
        "drink": "",
        "code": b"",
        "notes": [],
        "stock": {},
        "table": None,
    },
]
BEANS: list[dict[str, Any]] = [
    {"origin": "Harrar", "shade": Shade.DARK},
    {"origin": "", "shade": Shade.LIGHT},
]
OUR_ORDERS = [Order(**o, bean=Bean(**b)) for o, b in zip(ORDERS, BEANS, strict=True)]
make_official: Any = OfficialOrder  # the official client ships no types
OFFICIAL_ORDERS = [
    make_official(**o, bean=OfficialBean(**b)) for o, b in zip(ORDERS, BEANS, strict=True)
]
PROTOS = [
    ProtoStruct(fields={"a": Value(number_value=1.5), "é": Value(list_value=ListValue())}),
    ProtoStruct(),
]
SCHEMAS: Mapping[str, Mapping[str, Typed]] = {
    "bytes": same(None, theirs.BytesSchema(), b"\0\xff", b"", bytes(1000)),
    "string": same(geminga.StringSchema(), theirs.StringSchema(), "", "é ☕ 𝄞", "a" * 1000),
    "json": {
        "ours": Typed(geminga.JsonSchema(Order), OUR_ORDERS),
        "official": Typed(theirs.JsonSchema(OfficialOrder), OFFICIAL_ORDERS),
    },
    "avro": {
        "ours": Typed(geminga.AvroSchema(Order), OUR_ORDERS),
        "official": Typed(theirs.AvroSchema(OfficialOrder), OFFICIAL_ORDERS),
    },
    "protobuf": same(
        geminga.ProtobufNativeSchema(ProtoStruct),
        theirs.ProtobufNativeSchema(ProtoStruct),
        *PROTOS,
    ),
}
