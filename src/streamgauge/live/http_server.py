"""Transports of messages: JSON lines, and HTTP with limits on size, time, rate and connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple

from streamgauge.errors import StreamgaugeError, first_line
from streamgauge.live.access import Access
from streamgauge.live.monitoring import TEXT, metrics_text
from streamgauge.live.service import REASONS, Refused, Service

IDLE_SECONDS = 30.0  # after which an idle connection is closed
REQUEST_SECONDS = 10.0  # for a whole request, and for its response
GRACE_SECONDS = 1.0  # a connection may wait this long before it is closed in favour of a new one
LINGER_SECONDS = 0.25  # a client that sends nothing for this long has sent all
BLOCK = 1 << 16  # bytes; also the limit of a request's head
HEADERS = 100  # at most
DISCARD = 16  # times the limit of a message: what is read of a refused one
LENGTH_DIGITS = 15  # of Content-Length
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
PATHS = {"/predict": "sample", "/label": "label"}
WORDS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 409: "Conflict",
    410: "Gone", 413: "Content Too Large", 429: "Too Many Requests", 500: "Internal Server Error",
    503: "Service Unavailable",
}  # fmt: skip


def parsed(service: Service, data: bytes) -> Any:
    """A message; anything that is not JSON is refused."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        service.refuse("malformed", f"The message is not JSON ({first_line(error)[:100]}).")


def largest_message(values: int) -> int:
    """Limit in bytes for a sample: a number in JSON has about 25 characters at most."""
    return 4096 + 32 * values


class JsonLinesServer:
    """JSON lines: every line of the input is answered by one line, in order. A line is read when
    the last one was answered, so a client that writes too fast has to wait."""

    def __init__(
        self, service: Service, source: BinaryIO, answers: BinaryIO, max_bytes: int
    ) -> None:
        self._service, self._max_bytes = service, max_bytes
        self._source, self._answers = source, answers
        self.ended = threading.Event()
        self.error: Exception | None = None  # an unexpected one, not a refusal

    def run(self) -> None:
        """Until the end of the input, or until the reader of the answers is gone."""
        closed = (BrokenPipeError, ValueError)  # by the client
        try:
            while line := self._line():
                if line.strip():
                    reply = json.dumps(self._answer(line)).encode() + b"\n"
                    with contextlib.suppress(*closed):
                        self._answers.write(reply)
                        self._answers.flush()
                        continue
                    break
        except Exception as error:
            self.error = error
        finally:
            self.ended.set()

    def close(self) -> None:
        """Nothing to do: the input and the output are the caller's."""

    def _line(self) -> bytes:
        try:
            return self._source.readline(self._max_bytes + 1)
        except ValueError:  # the input was closed
            return b""

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            if len(line) > self._max_bytes:
                while line and not line.endswith(b"\n"):
                    line = self._source.readline(self._max_bytes)
                self._service.refuse("too_large", f"A line has at most {self._max_bytes} bytes.")
            return self._service.handle(parsed(self._service, line))
        except Refused as refused:
            return refused.message


class Request(NamedTuple):
    """The head of an HTTP request; the names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    keep: bool  # whether the connection stays open


class Connection:
    """An open connection: since when it waits for the end of a request, and how to cut it off."""

    def __init__(self, writer: asyncio.StreamWriter, since: float) -> None:
        self.writer, self.since = writer, since

    def cut(self) -> None:
        self.writer.transport.abort()


class HttpServer:
    """HTTP: `POST /predict`, `POST /label`, `GET /status`, `GET /metrics`, in one thread.

    A request is read without blocking the others, and handled when all of it has come. At most
    `connections` are open. A further client replaces the connection that has waited
    longest for a request, if that is longer than `GRACE_SECONDS`; otherwise it gets status 503.
    """

    def __init__(
        self,
        service: Service,
        host: str,
        port: int,
        connections: int,
        max_bytes: int,
        access: Access = Access(),  # noqa: B008  # it cannot be changed
    ) -> None:
        self.service, self.max_bytes, self.access = service, max_bytes, access
        self.ended = threading.Event()
        self.error: Exception | None = None  # an unexpected one, not a refusal
        self._connections = connections
        self._open: set[Connection] = set()
        self._waiting = 0  # clients that wait for others to end
        self._turned_away = 0  # clients that are being told to come back
        self._budget, self._budget_time = access.rate or 0.0, 0.0
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._finished = threading.Event()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=256)
        except (OSError, OverflowError) as error:
            self._loop.close()
            reason = getattr(error, "strerror", None) or error
            raise StreamgaugeError(
                f"Cannot serve on {host}:{port}: {str(reason).rstrip('.')}; choose another port."
            ) from None
        self.port = int(self._socket.getsockname()[1])

    def run(self) -> None:
        """Until it is closed."""
        # What asyncio reports here is the fault of clients, such as more sockets than files may be
        # open; errors of ours are caught in `_connected`.
        self._loop.set_exception_handler(lambda *_: None)
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except Exception as error:
            self._fail(error)
        finally:
            self._finished.set()

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._stop.set)
        self._finished.wait(10)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, sock=self._socket, limit=BLOCK)
        async with server:
            await self._stop.wait()
            server.close()
            for connection in list(self._open):
                connection.writer.close()  # after what is still to be sent
            await asyncio.sleep(LINGER_SECONDS if self._open else 0)
            for connection in list(self._open):
                connection.cut()

    def _fail(self, error: Exception) -> None:
        self.error = self.error or error
        self.ended.set()

    # Connections.

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await self._room():
                await self._converse(reader, writer)
            else:
                await self._turn_away(reader, writer)
        except (OSError, EOFError):  # TimeoutError is an OSError
            pass  # the client has gone, or is too slow
        except Exception as error:
            self._fail(error)
        finally:
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request after the other."""
        connection = Connection(writer, self._loop.time())
        self._open.add(connection)
        try:
            while await self._one_request(reader, writer):
                connection.since = self._loop.time()
        except TimeoutError:
            connection.cut()  # nothing waits for a client that does not read
            raise
        finally:
            self._open.discard(connection)

    async def _room(self) -> bool:
        """Whether one more connection may be open; waits a moment for others to end."""
        if self._waiting >= self._connections:
            return self._make_room()
        self._waiting += 1
        try:
            for _ in range(10):
                if self._make_room():
                    return True
                await asyncio.sleep(LINGER_SECONDS / 10)
        finally:
            self._waiting -= 1
        return False

    def _make_room(self) -> bool:
        """Close the connection that has waited longest for a request, if that is long enough and
        all are in use."""
        if len(self._open) < self._connections:
            return True
        oldest = min(self._open, key=lambda connection: connection.since)
        if self._loop.time() - oldest.since < GRACE_SECONDS:
            return False
        self._open.discard(oldest)
        oldest.cut()
        return True

    async def _turn_away(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer with status 503; without a word if there are too many of these clients, too."""
        with contextlib.suppress(Refused):
            self.service.refuse("busy", "Too many connections.")
        if self._turned_away >= self._connections:
            writer.transport.abort()
            return
        self._turned_away += 1
        try:
            text = f"There are {self._connections} connections already; try again."
            writer.write(_response(503, Refused("busy", text).message, keep=False))
            await self._linger(reader, writer)
        finally:
            self._turned_away -= 1

    async def _linger(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read and discard what the client is still sending, in blocks: closing with unread bytes
        would discard the response. Not all is worth reading."""
        with contextlib.suppress(OSError):
            writer.write_eof()
            left = DISCARD * self.max_bytes
            async with asyncio.timeout(REQUEST_SECONDS):
                while left > 0:
                    async with asyncio.timeout(LINGER_SECONDS):
                        block = await reader.read(BLOCK)
                    if not block:
                        break
                    left -= len(block)

    # Requests.

    async def _one_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Read a request, handle it, send the response; returns whether another may follow."""
        async with asyncio.timeout(IDLE_SECONDS):
            first = await reader.read(1)
        if not first:
            return False
        keep = False
        reply: dict[str, Any] | str
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await self._head(first, reader)
                body = await self._body(request, reader, writer)
        except Refused as refused:
            status, reply = REASONS[refused.reason], refused.message
        else:
            keep = request.keep
            status, reply = self._handled(request, body)
        # From here on nothing can end the service.
        with contextlib.suppress(OSError):
            writer.write(_response(status, reply, keep))
            async with asyncio.timeout(REQUEST_SECONDS):
                await writer.drain()
            if keep:
                return True
            await self._linger(reader, writer)
        return False

    async def _head(self, first: bytes, reader: asyncio.StreamReader) -> Request:
        try:
            head = first + await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            self.service.refuse("too_large", f"The head of a request has at most {BLOCK} bytes.")
        except asyncio.IncompleteReadError:
            raise EOFError from None
        request = _parsed_head(head.decode("latin-1"))
        if request is None:
            self.service.refuse("malformed", "This is not a request of HTTP/1.1.")
        return request

    async def _body(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        """The body of a POST, after all checks that need only the head."""
        self._admit(request)
        length = self._length(request)
        if request.headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = bytearray()
        while len(body) < length:
            block = await reader.read(min(BLOCK, length - len(body)))
            if not block:
                raise EOFError
            body += block
        return bytes(body)

    def _admit(self, request: Request) -> None:
        refuse, headers = self.service.refuse, request.headers
        if (problem := self.access.problem(headers)) is not None:
            refuse(*problem)
        if not self._within_rate():
            refuse("too_fast", f"At most {self.access.rate:g} messages per second are answered.")

    def _within_rate(self) -> bool:
        """A bucket that holds the messages of one second."""
        rate = self.access.rate
        if rate is None:
            return True
        now = self._loop.time()
        self._budget = min(rate, self._budget + rate * (now - self._budget_time))
        self._budget_time = now
        if self._budget < 1:
            return False
        self._budget -= 1
        return True

    def _length(self, request: Request) -> int:
        text = request.headers.get("content-length", "")
        chunked = "transfer-encoding" in request.headers  # its body would be the next request
        if request.method == "GET" and not text and not chunked:
            return 0
        if not (text.isascii() and text.isdecimal()):
            self.service.refuse("malformed", "The message needs a Content-Length.")
        if len(text) > LENGTH_DIGITS or int(text) > self.max_bytes:
            self.service.refuse("too_large", f"A message has at most {self.max_bytes} bytes.")
        return int(text)

    def _handled(self, request: Request, body: bytes) -> tuple[int, dict[str, Any] | str]:
        """Status and reply; an error that is no refusal is ours, and ends the service."""
        try:
            return 200, self._handle(request, body)
        except Refused as refused:
            return REASONS[refused.reason], refused.message
        except Exception as error:
            self._fail(error)
            return 500, Refused("failed", first_line(error)[:100]).message

    def _handle(self, request: Request, body: bytes) -> dict[str, Any] | str:
        service = self.service
        if request.method == "GET" and request.path == "/status":
            return service.status()
        if request.method == "GET" and request.path == "/metrics":
            return metrics_text(service)
        if request.method == "GET":
            raise Refused("unknown", "Ask for /status or /metrics, or post to /predict or /label.")
        if request.method != "POST" or request.path not in PATHS:
            service.refuse(
                "malformed",
                f"There is no {request.method} {request.path}; post to /predict or /label.",
            )
        act: Callable[[Any], dict[str, Any]] = getattr(service, PATHS[request.path])
        return act(parsed(service, body))


def _parsed_head(text: str) -> Request | None:
    """The request line and the headers; None if they are not of HTTP/1.

    >>> _parsed_head("GET /status HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n").headers
    {'host': 'localhost'}
    >>> _parsed_head("GET /status\\r\\n\\r\\n")
    """
    first, *lines = text.removesuffix("\r\n\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1") or len(lines) > HEADERS:
        return None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip() or name in headers:
            return None
        if _CONTROL.search(line):  # others may take a line feed for the end of a header
            return None
        headers[name] = value.strip()
    if "transfer-encoding" in headers:
        headers.pop("content-length", None)  # the length is unknown, and is asked for
    close = headers.get("connection", "").lower() == "close" or words[2] == "HTTP/1.0"
    return Request(words[0], words[1], headers, not close)


def _response(status: int, reply: dict[str, Any] | str, keep: bool) -> bytes:
    body = (reply if isinstance(reply, str) else json.dumps(reply)).encode()
    lines = [
        f"HTTP/1.1 {status} {WORDS[status]}",
        f"Content-Type: {TEXT if isinstance(reply, str) else 'application/json'}",
        f"Content-Length: {len(body)}",
        *(["Retry-After: 1"] if status in (429, 503) else []),
        *(["WWW-Authenticate: Bearer"] if status == 401 else []),
        *([] if keep else ["Connection: close"]),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body
