"""Multipart forms (RFC 7578), read part by part as they arrive.

A package is a part of a form, and is never held in memory as a whole.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from email.message import Message
from email.parser import BytesHeaderParser
from typing import Final

from geminga_server.rest.errors import BodyTooLarge, RestError

# A form on the wire; head and content make a part:
#
#   preamble CRLF --boundary CRLF head CRLF CRLF content CRLF --boundary ... CRLF --boundary--
#
# The headers of a part: names, file names and content types.
HEAD_BYTES_MAX: Final = 16 * 1024
# A part that is read as a whole: a config, which goes into one record.
TEXT_BYTES_MAX: Final = 1024 * 1024
# Forms of upstream's clients have at most four.
PARTS_MAX: Final = 20


class Part:
    """One part of a form; its content can be read once, before the next part is requested."""

    def __init__(self, head: bytes, chunks: AsyncGenerator[bytes]) -> None:
        # The headers of a part are those of mail (RFC 7578, section 4.8).
        headers = BytesHeaderParser().parsebytes(head)
        name = headers.get_param("name", "", header="content-disposition")
        self.name = name if isinstance(name, str) else ""
        self.file_name = headers.get_filename("")
        self.chunks = chunks

    async def read(self) -> bytes:
        """The whole content. Raises ``BodyTooLarge``."""
        content = bytearray()
        async for chunk in self.chunks:
            content += chunk
            if len(content) > TEXT_BYTES_MAX:
                raise BodyTooLarge(TEXT_BYTES_MAX)
        return bytes(content)


async def parts_of(content_type: str, body: AsyncIterator[bytes]) -> AsyncGenerator[Part]:
    """The parts of a form, in their order. Raises ``RestError`` 400 for a body that is no form."""
    message = Message()
    message["content-type"] = content_type
    boundary = message.get_boundary()
    if message.get_content_type() != "multipart/form-data" or not boundary:
        raise RestError(400, "The body should be a multipart form")
    # Headers are latin-1 in ASGI, so the bytes of the boundary come out as they were sent.
    reader = _Reader(body, b"\r\n--" + boundary.encode("latin-1", "replace"))
    async for _ in reader.until_delimiter():
        pass  # a preamble before the first part has no meaning
    for _ in range(PARTS_MAX):
        if await reader.line() == b"--":
            return
        # Made before the caller reads it, and read to its end after: the reader is at a delimiter
        # when the next part begins.
        chunks = reader.until_delimiter()
        yield Part(await reader.head(), chunks)
        async for _ in chunks:
            pass  # skip what the caller has not read
    raise RestError(400, f"The form has more than {PARTS_MAX} parts")


class _Reader:
    """Cuts a body at delimiters, which may be spread over chunks."""

    def __init__(self, body: AsyncIterator[bytes], delimiter: bytes) -> None:
        self._body = body
        self._delimiter = delimiter
        # What was received and not yet returned. It begins with a line break, since a delimiter
        # does, and the first one may come at the very beginning of the body.
        self._held = bytearray(b"\r\n")

    async def _more(self) -> None:
        """Receive another chunk. Raises ``RestError`` 400 at the end of the body."""
        chunk = await anext(self._body, None)
        if chunk is None:
            raise RestError(400, "The form ends before its last part does")
        self._held += chunk

    async def until_delimiter(self) -> AsyncGenerator[bytes]:
        """The bytes before the next delimiter, which is skipped."""
        while (end := self._held.find(self._delimiter)) < 0:
            # The last bytes may be the beginning of a delimiter.
            safe = len(self._held) - len(self._delimiter) + 1
            if safe > 0:
                chunk = bytes(self._held[:safe])
                del self._held[:safe]
                yield chunk
            await self._more()
        chunk = bytes(self._held[:end])
        del self._held[: end + len(self._delimiter)]
        if chunk:
            yield chunk

    async def line(self) -> bytes:
        """The rest of a delimiter's line: empty, or two dashes at the end of the form."""
        while len(self._held) < 2:
            await self._more()
        if self._held.startswith(b"--"):
            return b"--"
        return await self._cut(b"\r\n")

    async def head(self) -> bytes:
        """The headers of a part."""
        # A part without headers begins with an empty line.
        while len(self._held) < 2:
            await self._more()
        if self._held.startswith(b"\r\n"):
            return await self._cut(b"\r\n")
        return await self._cut(b"\r\n\r\n")

    async def _cut(self, end: bytes) -> bytes:
        while (position := self._held.find(end)) < 0:
            # The only place where the body decides how much is held.
            if len(self._held) > HEAD_BYTES_MAX:
                raise RestError(400, "The form has a part without an end of its headers")
            await self._more()
        cut = bytes(self._held[:position])
        del self._held[: position + len(end)]
        return cut
