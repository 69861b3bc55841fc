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
from typing import Any, ClassVar, Generic, TypeVar

from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType

ValueT = TypeVar("ValueT")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = date(1970, 1, 1).toordinal()
MS = timedelta(milliseconds=1)
MICROSECOND = timedelta(microseconds=1)
# Python's times have microseconds; nanoseconds of other clients' values are cut off.
NS_A_MICROSECOND = 1_000
MICROSECONDS_A_MS = 1_000
MICROSECONDS_A_SECOND = 1_000_000
SECONDS_A_HOUR, SECONDS_A_MINUTE = 3_600, 60
DAY_MS = 24 * SECONDS_A_HOUR * 1_000

_INT64 = Struct(">q")
_INSTANT = Struct(">qi")
_LOCAL_DATE_TIME = Struct(">qq")


class _Primitive(Generic[ValueT]):
    """A schema that needs no definition: its type says everything."""

    # The schema as the broker's registry has it; the names are those of the Java client.
    schema_info: SchemaInfo

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class StringSchema(_Primitive[str]):
    """Values are ``str``."""

    schema_info = SchemaInfo(SchemaType.STRING, "String")

    def encode(self, value: str, /) -> bytes:
        """UTF-8. Raises ``TypeError``, or ``ValueError`` for lone surrogates."""
        # ``UnicodeEncodeError`` is a ``ValueError``.
        return _checked(value, str).encode()

    def decode(self, payload: bytes, /) -> str:
        """The text; raises ``ValueError`` for bytes that are not UTF-8."""
        return payload.decode()


class _Number(_Primitive[ValueT]):
    """One number of a fixed size."""

    # The type and the byte order of the number.
    _form: ClassVar[Struct]

    def decode(self, payload: bytes, /) -> ValueT:
        """The value; raises ``ValueError`` for another number of bytes."""
        value: ValueT
        (value,) = _unpacked(self._form, payload)
        return value


class BoolSchema(_Number[bool]):
    """Values are ``bool``. Any byte but 0 is read as true."""

    schema_info = SchemaInfo(SchemaType.BOOLEAN, "Boolean")
    _form = Struct(">?")

    def encode(self, value: bool, /) -> bytes:  # noqa: FBT001 - it is the value
        """One byte. Raises ``TypeError``."""
        return self._form.pack(_checked(value, bool))


class _Integer(_Number[int]):
    def encode(self, value: int, /) -> bytes:
        """The number in its fixed size. Raises ``TypeError``, or ``ValueError`` where it does not
        fit."""
        if isinstance(value, bool):  # which Python takes for an int
            raise TypeError("the value should be an int, and not a bool")
        try:
            return self._form.pack(_checked(value, int))
        except error as wrong:
            raise ValueError(
                f"{value} does not fit into the {self._form.size * 8} bits of {self!r}"
            ) from wrong


class Int8Schema(_Integer):
    """Values are ``int`` of 8 bits: -128 to 127."""

    schema_info = SchemaInfo(SchemaType.INT8, "INT8")
    _form = Struct(">b")


class Int16Schema(_Integer):
    """Values are ``int`` of 16 bits: -32,768 to 32,767."""

    schema_info = SchemaInfo(SchemaType.INT16, "INT16")
    _form = Struct(">h")


class Int32Schema(_Integer):
    """Values are ``int`` of 32 bits, signed."""

    schema_info = SchemaInfo(SchemaType.INT32, "INT32")
    _form = Struct(">i")


class Int64Schema(_Integer):
    """Values are ``int`` of 64 bits, signed."""

    schema_info = SchemaInfo(SchemaType.INT64, "INT64")
    _form = Struct(">q")


class _Real(_Number[float]):
    def encode(self, value: float, /) -> bytes:
        """The number in its fixed size. Raises ``TypeError``, or ``ValueError`` where it is too
        large."""
        # Whole numbers as well, as everywhere in Python.
        try:
            return self._form.pack(_checked(value, (float, int)))
        # ``struct`` raises the second for a number beyond the range of the form.
        except (error, OverflowError) as wrong:
            raise ValueError(f"{value} is too large for {self!r}") from wrong


class FloatSchema(_Real):
    """Values are ``float``, stored in 32 bits: about 7 digits are kept."""

    schema_info = SchemaInfo(SchemaType.FLOAT, "Float")
    _form = Struct(">f")


class DoubleSchema(_Real):
    """Values are ``float``, stored in 64 bits."""

    schema_info = SchemaInfo(SchemaType.DOUBLE, "Double")
    _form = Struct(">d")


# ``DateSchema`` and ``TimestampSchema`` have the same bytes; they differ in the type that brokers
# compare, and in Java's class.
class _Milliseconds(_Primitive[datetime]):
    def encode(self, value: datetime, /) -> bytes:
        """Milliseconds since 1970. Raises ``TypeError``, or ``ValueError`` for a value without a
        time zone."""
        # Rounded down to the millisecond, also before 1970.
        return _INT64.pack((_aware(value) - EPOCH) // MS)

    def decode(self, payload: bytes, /) -> datetime:
        """The time in UTC; raises ``ValueError`` for another number of bytes, or a year that
        ``datetime`` does not have."""
        return _moment(_unpacked(_INT64, payload)[0], MS)


class DateSchema(_Milliseconds):
    """``java.util.Date``: values are ``datetime`` with a time zone, to the millisecond."""

    schema_info = SchemaInfo(SchemaType.DATE, "Date")


class TimestampSchema(_Milliseconds):
    """``java.sql.Timestamp``: values are ``datetime`` with a time zone, to the millisecond."""

    schema_info = SchemaInfo(SchemaType.TIMESTAMP, "Timestamp")


class TimeSchema(_Primitive[time]):
    """``java.sql.Time``: values are ``time``, to the millisecond."""

    schema_info = SchemaInfo(SchemaType.TIME, "Time")

    def encode(self, value: time, /) -> bytes:
        """Milliseconds since midnight. Raises ``TypeError``."""
        # A time zone is left out: the type has none.
        return _INT64.pack(_microseconds(_checked(value, time)) // MICROSECONDS_A_MS)

    def decode(self, payload: bytes, /) -> time:
        """The time of day; raises ``ValueError`` for another number of bytes."""
        # Java's values are points in time: whole days are left out.
        return _time_of_day(_unpacked(_INT64, payload)[0] % DAY_MS * MICROSECONDS_A_MS)


class InstantSchema(_Primitive[datetime]):
    """``java.time.Instant``: values are ``datetime`` with a time zone, to the microsecond."""

    schema_info = SchemaInfo(SchemaType.INSTANT, "Instant")

    def encode(self, value: datetime, /) -> bytes:
        """Seconds since 1970 and nanoseconds. Raises ``TypeError``, or ``ValueError`` for a value
        without a time zone."""
        # Rounded down, also before 1970: the part of a second is never negative, as in Java.
        whole, part = divmod((_aware(value) - EPOCH) // MICROSECOND, MICROSECONDS_A_SECOND)
        return _INSTANT.pack(whole, part * NS_A_MICROSECOND)

    def decode(self, payload: bytes, /) -> datetime:
        """The time in UTC; raises ``ValueError`` for another number of bytes, or a year that
        ``datetime`` does not have."""
        whole, part_ns = _unpacked(_INSTANT, payload)
        microseconds = whole * MICROSECONDS_A_SECOND + part_ns // NS_A_MICROSECOND
        return _moment(microseconds, MICROSECOND)


class LocalDateSchema(_Primitive[date]):
    """``java.time.LocalDate``: values are ``date``."""

    schema_info = SchemaInfo(SchemaType.LOCAL_DATE, "LocalDate")

    def encode(self, value: date, /) -> bytes:
        """Days since 1970. Raises ``TypeError``."""
        # A ``datetime`` is a date too: its time of day is left out.
        return _INT64.pack(_checked(value, date).toordinal() - EPOCH_DAY)

    def decode(self, payload: bytes, /) -> date:
        """The date; raises ``ValueError`` for another number of bytes, or a year that ``date`` does
        not have."""
        return _day(_unpacked(_INT64, payload)[0])


class LocalTimeSchema(_Primitive[time]):
    """``java.time.LocalTime``: values are ``time``, to the microsecond."""

    schema_info = SchemaInfo(SchemaType.LOCAL_TIME, "LocalTime")

    def encode(self, value: time, /) -> bytes:
        """Nanoseconds since midnight. Raises ``TypeError``."""
        return _INT64.pack(_microseconds(_checked(value, time)) * NS_A_MICROSECOND)

    def decode(self, payload: bytes, /) -> time:
        """The time of day; raises ``ValueError`` for another number of bytes, or a number beyond
        one day."""
        return _time_of_day(_unpacked(_INT64, payload)[0] // NS_A_MICROSECOND)


class LocalDateTimeSchema(_Primitive[datetime]):
    """``java.time.LocalDateTime``: values are ``datetime`` without a time zone, to the
    microsecond."""

    schema_info = SchemaInfo(SchemaType.LOCAL_DATE_TIME, "LocalDateTime")

    def encode(self, value: datetime, /) -> bytes:
        """Days since 1970, and nanoseconds since midnight. Raises ``TypeError``, or ``ValueError``
        for a value with a time zone."""
        # Its time zone could not be stored, and would be lost in silence.
        if _checked(value, datetime).tzinfo is not None:
            raise ValueError(f"{value} should have no time zone, as local times have none")
        nanoseconds = _microseconds(value.time()) * NS_A_MICROSECOND
        return _LOCAL_DATE_TIME.pack(value.toordinal() - EPOCH_DAY, nanoseconds)

    def decode(self, payload: bytes, /) -> datetime:
        """The date and time; raises ``ValueError`` for another number of bytes, or numbers that are
        no date or time of day."""
        day, nanoseconds = _unpacked(_LOCAL_DATE_TIME, payload)
        return datetime.combine(_day(day), _time_of_day(nanoseconds // NS_A_MICROSECOND))


def _checked(value: ValueT, kind: type[ValueT] | tuple[type[object], ...]) -> ValueT:
    """The value; raises ``TypeError`` for another type: callers without types pass anything."""
    if not isinstance(value, kind):
        names = kind.__name__ if isinstance(kind, type) else " or ".join(k.__name__ for k in kind)
        raise TypeError(f"the value should be of type {names}, and not {type(value).__name__}")
    return value


def _unpacked(form: Struct, payload: bytes) -> tuple[Any, ...]:
    """The numbers of a payload; raises ``ValueError`` unless it has just their size."""
    # ``unpack`` would raise an error of its own, which is no ``ValueError``.
    if len(payload) != form.size:
        raise ValueError(f"the payload should have {form.size} bytes, and has {len(payload)}")
    return form.unpack(payload)


def _aware(value: datetime) -> datetime:
    if _checked(value, datetime).tzinfo is None:
        raise ValueError(f"{value} should have a time zone: without one it is no point in time")
    return value


def _moment(number: int, unit: timedelta) -> datetime:
    # Java's values reach beyond the years 1 to 9999 of ``datetime``.
    try:
        return EPOCH + number * unit
    except OverflowError as wrong:
        raise ValueError(f"{number} x {unit} since 1970 is beyond the years of datetime") from wrong


def _day(number: int) -> date:
    # Python counts days from the year 1, where day 1 is the first.
    try:
        return date.fromordinal(number + EPOCH_DAY)
    except (OverflowError, ValueError) as wrong:
        raise ValueError(f"day {number} since 1970 is beyond the years of date") from wrong


def _microseconds(value: time) -> int:
    """Microseconds since midnight."""
    seconds = value.hour * SECONDS_A_HOUR + value.minute * SECONDS_A_MINUTE + value.second
    return seconds * MICROSECONDS_A_SECOND + value.microsecond


def _time_of_day(microseconds: int) -> time:
    # The end of a day is no time of it, but midnight of the next day.
    if not 0 <= microseconds < 24 * SECONDS_A_HOUR * MICROSECONDS_A_SECOND:
        raise ValueError(f"{microseconds} microseconds are no time of day")
    seconds, part = divmod(microseconds, MICROSECONDS_A_SECOND)
    hours, rest = divmod(seconds, SECONDS_A_HOUR)
    return time(hours, *divmod(rest, SECONDS_A_MINUTE), part)
