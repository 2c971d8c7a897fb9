"""Transports of messages: JSON lines, and HTTP with a limited number of connections."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO

from streamgauge.errors import StreamgaugeError, first_line
from streamgauge.live.service import REASONS, Refused, Service

IDLE_SECONDS = 30.0  # after which an idle connection is closed
PATHS = {"/predict": "sample", "/label": "label"}


def parsed(service: Service, data: bytes) -> Any:
    """A message; anything that is not JSON is refused."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        service.refuse("malformed", f"The message is not JSON ({first_line(error)[:100]}).")


def largest_message(values: int) -> int:
    """Limit in bytes for a sample: a number in JSON has about 25 characters at most."""
    return 4096 + 32 * values


class JsonLines:
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


class HttpServer(ThreadingHTTPServer):
    """HTTP: `POST /predict`, `POST /label`, `GET /status`. One thread per connection and at most
    `connections`; a further client gets status 503."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self, service: Service, host: str, port: int, connections: int, max_bytes: int
    ) -> None:
        self.service, self.max_bytes = service, max_bytes
        self.ended = threading.Event()
        self.error: Exception | None = None  # an unexpected one, not a refusal
        self._free_connections = threading.Semaphore(connections)
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

    def run(self) -> None:
        """Until it is closed."""
        self.serve_forever(0.1)

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free_connections.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with contextlib.suppress(Refused):
            self.service.refuse("busy", "Too many connections.")
        with contextlib.suppress(OSError):
            # The request is read first: closing with unread bytes would discard the response.
            request.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                request.recv(1 << 16)
            request.sendall(_busy(self._connections))
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free_connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that disconnects is not an error."""


def _busy(connections: int) -> bytes:
    refused = Refused("busy", f"There are {connections} connections already; try again.")
    body = json.dumps(refused.message).encode()
    return (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        b"Connection: close\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
    )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True
    server: HttpServer

    def do_GET(self) -> None:
        if self.path == "/status":
            self._send(200, self.server.service.status())
        else:
            hint = "Ask for /status, or post to /predict or /label."
            self._send(404, Refused("malformed", hint).message)

    def do_POST(self) -> None:
        service = self.server.service
        try:
            message = parsed(service, self._body(service))
            act: Callable[[Any], dict[str, Any]] = getattr(service, PATHS[self.path])
            self._send(200, act(message))
        except Refused as refused:
            self._send(REASONS[refused.reason], refused.message)
        except Exception as error:
            self.server.error = self.server.error or error
            self.server.ended.set()
            self._send(500, Refused("failed", first_line(error)[:100]).message)

    def _body(self, service: Service) -> bytes:
        self.close_connection = True  # unless the whole message was read
        if self.headers.get("Origin") is not None:
            service.refuse("malformed", "Web pages may not send messages here.")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            service.refuse("malformed", "The message needs a Content-Length.")
        if int(length) > self.server.max_bytes:
            # Closing with unread bytes would discard the response; but not all is worth reading.
            self._read(min(int(length), 16 * self.server.max_bytes))
            service.refuse("too_large", f"A message has at most {self.server.max_bytes} bytes.")
        data = self._read(int(length))
        if len(data) < int(length):
            service.refuse("malformed", "The message is shorter than its Content-Length.")
        self.close_connection = self.headers.get("Connection", "").lower() == "close"
        if self.path not in PATHS:
            service.refuse("malformed", f"There is no {self.path}; post to /predict or /label.")
        return data

    def _read(self, length: int) -> bytes:
        try:
            return self.rfile.read(length)
        except TimeoutError:
            return b""

    def _send(self, status: int, reply: dict[str, Any]) -> None:
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
        """Print nothing: a run has its own log."""


def require_local_host(host: str, anywhere: bool) -> None:
    """Only this machine may send messages, unless `anywhere` is set."""
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
