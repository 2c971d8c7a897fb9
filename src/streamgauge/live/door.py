"""How messages come in: JSON lines, or HTTP on this machine. No more at once than there is room."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO

from streamgauge.errors import StreamgaugeError
from streamgauge.live.service import REASONS, Refused, Service

IDLE_SECONDS = 30.0  # after which a connection that says nothing is closed
PATHS = {"/predict": "sample", "/label": "label"}


def parsed(service: Service, data: bytes) -> Any:
    """A message; what is none is refused."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        service.refuse("malformed", f"The message is not JSON ({_short(error)}).")


def refusal(refused: Refused) -> dict[str, Any]:
    return {"error": str(refused), "reason": refused.reason}


def largest_message(values: int) -> int:
    """Bytes that a sample can need: a number in JSON has at most 25 characters or so."""
    return 4096 + 32 * values


def _short(error: Exception) -> str:
    return str(error).split("\n")[0][:100]


class Lines:
    """JSON lines: every line that comes in is answered by one line, in order.

    It reads no line before the last one is answered, so whoever writes too fast has to wait.
    """

    def __init__(self, service: Service, source: BinaryIO, answers: BinaryIO, most: int) -> None:
        self._service, self._source, self._answers, self._most = service, source, answers, most
        self.ended = threading.Event()
        self.broken: Exception | None = None  # what no message should have caused

    def run(self) -> None:
        """Until the end of the input, or until nobody reads the answers."""
        closed = (BrokenPipeError, ValueError)  # by whoever is at the other end
        try:
            while line := self._line():
                if line.strip():
                    reply = self._one(line)
                    with contextlib.suppress(*closed):
                        self._reply(reply)
                        continue
                    break
        except Exception as error:
            self.broken = error
        finally:
            self.ended.set()

    def _line(self) -> bytes:
        try:
            return self._source.readline(self._most + 1)
        except ValueError:  # it was closed
            return b""

    def _one(self, line: bytes) -> dict[str, Any]:
        try:
            if len(line) > self._most:
                while line and not line.endswith(b"\n"):
                    line = self._source.readline(self._most)
                self._service.refuse("too_large", f"A line has at most {self._most} bytes.")
            return self._service.handle(parsed(self._service, line))
        except Refused as refused:
            return refusal(refused)

    def _reply(self, reply: dict[str, Any]) -> None:
        self._answers.write(json.dumps(reply).encode() + b"\n")
        self._answers.flush()


class Door(ThreadingHTTPServer):
    """HTTP: `POST /predict`, `POST /label`, `GET /status`.

    A thread a connection and at most `connections` of them; a further one is told to try again.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, service: Service, host: str, port: int, connections: int, most: int) -> None:
        self.service, self.most = service, most
        self.broken: Exception | None = None  # what no message should have caused
        self._room = threading.Semaphore(connections)
        self._connections = connections
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise StreamgaugeError(
                f"Cannot serve on {host}:{port}: {error.strerror or error}; choose another port."
            ) from None

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with contextlib.suppress(Refused):
            self.service.refuse("busy", "Too many connections.")
        with contextlib.suppress(OSError):
            # What was sent is read first: closing on unread bytes would take the answer away.
            request.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                request.recv(1 << 16)
            request.sendall(_busy(self._connections))
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error of ours."""


def _busy(connections: int) -> bytes:
    body = json.dumps(
        {"error": f"There are {connections} connections already; try again.", "reason": "busy"}
    ).encode()
    return (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        b"Connection: close\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
    )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True
    server: Door

    def do_GET(self) -> None:
        if self.path != "/status":
            self._say(404, {"error": "Ask for /status, or post to /predict or /label.",
                            "reason": "malformed"})  # fmt: skip
            return
        self._say(200, self.server.service.status())

    def do_POST(self) -> None:
        service = self.server.service
        try:
            message = parsed(service, self._body(service))
            act: Callable[[Any], dict[str, Any]] = getattr(service, PATHS[self.path])
            self._say(200, act(message))
        except Refused as refused:
            self._say(REASONS[refused.reason], refusal(refused))
        except Exception as error:
            self.server.broken = self.server.broken or error
            self._say(500, {"error": _short(error), "reason": "failed"})

    def _body(self, service: Service) -> bytes:
        self.close_connection = True  # unless the whole message was read
        if self.headers.get("Origin") is not None:
            service.refuse("malformed", "Web pages may not send messages here.")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            service.refuse("malformed", "The message needs a Content-Length.")
        if int(length) > self.server.most:
            # Closing on unread bytes would take the answer away; but there is an end to patience.
            self._read(min(int(length), 16 * self.server.most))
            service.refuse("too_large", f"A message has at most {self.server.most} bytes.")
        data = self._read(int(length))
        if len(data) < int(length):
            service.refuse("malformed", "The message did not come to its end.")
        self.close_connection = self.headers.get("Connection", "").lower() == "close"
        if self.path not in PATHS:
            service.refuse("malformed", f"There is no {self.path}; post to /predict or /label.")
        return data

    def _read(self, length: int) -> bytes:
        try:
            return self.rfile.read(length)
        except TimeoutError:
            return b""

    def _say(self, status: int, reply: dict[str, Any]) -> None:
        body = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == 503:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Not a word: the log of a run is elsewhere."""


def refuse_far(host: str, anywhere: bool) -> None:
    """Only this machine may send messages, unless someone says otherwise in so many words."""
    if anywhere:
        return
    try:
        near = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        near = False
    if not near:
        raise StreamgaugeError(
            f"Serving on {host} would let other machines in, and there is no password: use "
            f"127.0.0.1, or allow it with --anywhere."
        )
