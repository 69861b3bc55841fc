"""Schemas of single values: numbers, text, dates. Their bytes are those of Pulsar's Java client.

=================  ==========================================================================
bool               one byte, 0 or 1
int8 to int64      big-endian, two's complement
float, double      big-endian IEEE 754
string             UTF-8
date, time,        milliseconds, int64: since 1970 (date, timestamp), since midnight (time);
timestamp          ``java.util.Date``, ``java.sql.Time``, ``java.sql.Timestamp``
instant            seconds since 1970, int64, then nanoseconds, int32
local date         days since 1970, int64
local time         nanoseconds since midnight, int64
local date-time    a local date, then a local time
=================  ==========================================================================
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from struct import Struct, error
from typing import Generic, TypeVar

from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType

ValueT = TypeVar("ValueT")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = date(1970, 1, 1).toordinal()
MS = timedelta(milliseconds=1)
MICROSECOND = timedelta(microseconds=1)
NS_A_MICROSECOND = 1_000
MICROSECONDS_A_SECOND = 1_000_000
SECONDS_A_HOUR, SECONDS_A_MINUTE = 3_600, 60


class _Primitive(Generic[ValueT]):
    """A schema that is its type alone."""

    def __init__(self, kind: SchemaType, name: str) -> None:
        self.schema_info = SchemaInfo(kind, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class StringSchema(_Primitive[str]):
    """Values are ``str``."""

    def __init__(self) -> None:
        super().__init__(SchemaType.STRING, "String")

    def encode(self, value: str, /) -> bytes:
        """UTF-8. Raises ``TypeError``, ``ValueError`` for lone surrogates."""
        return _checked(value, str).encode()

    def decode(self, payload: bytes, /) -> str:
        """Raises ``ValueError`` for what is no UTF-8."""
        return payload.decode()


class BoolSchema(_Primitive[bool]):
    """Values are ``bool``."""

    def __init__(self) -> None:
        super().__init__(SchemaType.BOOLEAN, "Boolean")

    def encode(self, value: bool, /) -> bytes:  # noqa: FBT001 - it is the value
        """One byte. Raises ``TypeError``."""
        return b"\1" if _checked(value, bool) else b"\0"

    def decode(self, payload: bytes, /) -> bool:
        """Raises ``ValueError`` for anything but one byte."""
        return _sized(payload, 1) != b"\0"


class _Integer(_Primitive[int]):
    def __init__(self, kind: SchemaType, name: str, form: str) -> None:
        super().__init__(kind, name)
        self._form = Struct(form)

    def encode(self, value: int, /) -> bytes:
        """Raises ``TypeError``, ``ValueError`` for one that does not fit."""
        if isinstance(value, bool):
            raise TypeError("the value should be an int, and not a bool")
        try:
            return self._form.pack(_checked(value, int))
        except error as wrong:
            raise ValueError(
                f"{value} does not fit into the {self._form.size * 8} bits of {self!r}"
            ) from wrong

    def decode(self, payload: bytes, /) -> int:
        """Raises ``ValueError`` for another number of bytes."""
        value: int
        (value,) = self._form.unpack(_sized(payload, self._form.size))
        return value


class Int8Schema(_Integer):
    """Values are ``int`` of 8 bits."""

    def __init__(self) -> None:
        super().__init__(SchemaType.INT8, "INT8", ">b")


class Int16Schema(_Integer):
    """Values are ``int`` of 16 bits."""

    def __init__(self) -> None:
        super().__init__(SchemaType.INT16, "INT16", ">h")


class Int32Schema(_Integer):
    """Values are ``int`` of 32 bits."""

    def __init__(self) -> None:
        super().__init__(SchemaType.INT32, "INT32", ">i")


class Int64Schema(_Integer):
    """Values are ``int`` of 64 bits."""

    def __init__(self) -> None:
        super().__init__(SchemaType.INT64, "INT64", ">q")


class _Real(_Primitive[float]):
    def __init__(self, kind: SchemaType, name: str, form: str) -> None:
        super().__init__(kind, name)
        self._form = Struct(form)

    def encode(self, value: float, /) -> bytes:
        """Raises ``TypeError``, ``ValueError`` for one that is too large."""
        try:
            return self._form.pack(_checked(value, (float, int)))
        except (error, OverflowError) as wrong:
            raise ValueError(f"{value} is too large for {self!r}") from wrong

    def decode(self, payload: bytes, /) -> float:
        """Raises ``ValueError`` for another number of bytes."""
        value: float
        (value,) = self._form.unpack(_sized(payload, self._form.size))
        return value


class FloatSchema(_Real):
    """Values are ``float`` of 32 bits."""

    def __init__(self) -> None:
        super().__init__(SchemaType.FLOAT, "Float", ">f")


class DoubleSchema(_Real):
    """Values are ``float`` of 64 bits."""

    def __init__(self) -> None:
        super().__init__(SchemaType.DOUBLE, "Double", ">d")


class _Milliseconds(_Primitive[datetime]):
    """Values are ``datetime`` with a time zone; read in UTC, to the millisecond."""

    def encode(self, value: datetime, /) -> bytes:
        """Raises ``TypeError``, ``ValueError`` for one without a time zone."""
        return _INT64.pack((_aware(value) - EPOCH) // MS)

    def decode(self, payload: bytes, /) -> datetime:
        """Raises ``ValueError`` for another number of bytes, or a year that there is not."""
        return _moment(_int64(payload), MS)


class DateSchema(_Milliseconds):
    """``java.util.Date``: values are ``datetime`` with a time zone, to the millisecond."""

    def __init__(self) -> None:
        super().__init__(SchemaType.DATE, "Date")


class TimestampSchema(_Milliseconds):
    """``java.sql.Timestamp``: values are ``datetime`` with a time zone, to the millisecond."""

    def __init__(self) -> None:
        super().__init__(SchemaType.TIMESTAMP, "Timestamp")


class TimeSchema(_Primitive[time]):
    """``java.sql.Time``: values are ``time``, to the millisecond."""

    def __init__(self) -> None:
        super().__init__(SchemaType.TIME, "Time")

    def encode(self, value: time, /) -> bytes:
        """Raises ``TypeError``."""
        return _INT64.pack(_microseconds(_checked(value, time)) // 1_000)

    def decode(self, payload: bytes, /) -> time:
        """Raises ``ValueError`` for another number of bytes. A day more or less is left out, as
        Java's values have one."""
        day_ms = 24 * SECONDS_A_HOUR * 1_000
        return _time_of_day((_int64(payload) % day_ms) * 1_000)


class InstantSchema(_Primitive[datetime]):
    """``java.time.Instant``: values are ``datetime`` with a time zone, to the microsecond."""

    def __init__(self) -> None:
        super().__init__(SchemaType.INSTANT, "Instant")

    def encode(self, value: datetime, /) -> bytes:
        """Raises ``TypeError``, ``ValueError`` for one without a time zone."""
        whole, part = divmod((_aware(value) - EPOCH) // MICROSECOND, MICROSECONDS_A_SECOND)
        return _INSTANT.pack(whole, part * NS_A_MICROSECOND)

    def decode(self, payload: bytes, /) -> datetime:
        """Raises ``ValueError`` for another number of bytes, or a year that there is not."""
        whole, part_ns = _INSTANT.unpack(_sized(payload, _INSTANT.size))
        microseconds = whole * MICROSECONDS_A_SECOND + part_ns // NS_A_MICROSECOND
        return _moment(microseconds, MICROSECOND)


class LocalDateSchema(_Primitive[date]):
    """``java.time.LocalDate``: values are ``date``."""

    def __init__(self) -> None:
        super().__init__(SchemaType.LOCAL_DATE, "LocalDate")

    def encode(self, value: date, /) -> bytes:
        """Raises ``TypeError``."""
        return _INT64.pack(_checked(value, date).toordinal() - EPOCH_DAY)

    def decode(self, payload: bytes, /) -> date:
        """Raises ``ValueError`` for another number of bytes, or a year that there is not."""
        return _day(_int64(payload))


class LocalTimeSchema(_Primitive[time]):
    """``java.time.LocalTime``: values are ``time``, to the microsecond."""

    def __init__(self) -> None:
        super().__init__(SchemaType.LOCAL_TIME, "LocalTime")

    def encode(self, value: time, /) -> bytes:
        """Raises ``TypeError``."""
        return _INT64.pack(_microseconds(_checked(value, time)) * NS_A_MICROSECOND)

    def decode(self, payload: bytes, /) -> time:
        """Raises ``ValueError`` for another number of bytes, or what is no time of day."""
        return _time_of_day(_int64(payload) // NS_A_MICROSECOND)


class LocalDateTimeSchema(_Primitive[datetime]):
    """``java.time.LocalDateTime``: values are ``datetime`` without a time zone."""

    def __init__(self) -> None:
        super().__init__(SchemaType.LOCAL_DATE_TIME, "LocalDateTime")

    def encode(self, value: datetime, /) -> bytes:
        """Raises ``TypeError``, ``ValueError`` for one with a time zone."""
        if _checked(value, datetime).tzinfo is not None:
            raise ValueError(f"{value} should have no time zone, as local times have none")
        nanoseconds = _microseconds(value.time()) * NS_A_MICROSECOND
        return _LOCAL.pack(value.toordinal() - EPOCH_DAY, nanoseconds)

    def decode(self, payload: bytes, /) -> datetime:
        """Raises ``ValueError`` for another number of bytes, or what is no date or time."""
        day, nanoseconds = _LOCAL.unpack(_sized(payload, _LOCAL.size))
        return datetime.combine(_day(day), _time_of_day(nanoseconds // NS_A_MICROSECOND))


_INT64 = Struct(">q")
_INSTANT = Struct(">qi")
_LOCAL = Struct(">qq")


def _checked(value: ValueT, kind: type[ValueT] | tuple[type[object], ...]) -> ValueT:
    if not isinstance(value, kind):
        names = kind.__name__ if isinstance(kind, type) else " or ".join(k.__name__ for k in kind)
        raise TypeError(f"the value should be of type {names}, and not {type(value).__name__}")
    return value


def _sized(payload: bytes, size: int) -> bytes:
    if len(payload) != size:
        raise ValueError(f"the payload should have {size} bytes, and has {len(payload)}")
    return payload


def _int64(payload: bytes) -> int:
    value: int
    (value,) = _INT64.unpack(_sized(payload, _INT64.size))
    return value


def _aware(value: datetime) -> datetime:
    if _checked(value, datetime).tzinfo is None:
        raise ValueError(f"{value} should have a time zone: without one it is no point in time")
    return value


def _moment(number: int, unit: timedelta) -> datetime:
    try:
        return EPOCH + number * unit
    except OverflowError as wrong:
        raise ValueError(f"{number} x {unit} since 1970 is beyond the years of datetime") from wrong


def _day(number: int) -> date:
    try:
        return date.fromordinal(number + EPOCH_DAY)
    except (OverflowError, ValueError) as wrong:
        raise ValueError(f"day {number} since 1970 is beyond the years of date") from wrong


def _microseconds(value: time) -> int:
    seconds = value.hour * SECONDS_A_HOUR + value.minute * SECONDS_A_MINUTE + value.second
    return seconds * MICROSECONDS_A_SECOND + value.microsecond


def _time_of_day(microseconds: int) -> time:
    if not 0 <= microseconds < 24 * SECONDS_A_HOUR * MICROSECONDS_A_SECOND:
        raise ValueError(f"{microseconds} microseconds are no time of day")
    seconds, part = divmod(microseconds, MICROSECONDS_A_SECOND)
    hours, rest = divmod(seconds, SECONDS_A_HOUR)
    return time(hours, *divmod(rest, SECONDS_A_MINUTE), part)
