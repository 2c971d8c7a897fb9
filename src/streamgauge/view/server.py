"""The server of `streamgauge view`: files of the page, and its content as JSON with ETags.

It only reads. Every request is checked first: its method, its length, and who asks
(`live/access.py`).
"""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamgauge.errors import StreamgaugeError
from streamgauge.live.access import Access
from streamgauge.view import assets
from streamgauge.view.content import COMPRESSED, DEPENDS, PageContent
from streamgauge.view.follow import RunFollower

METHODS = ("GET", "HEAD")
LONGEST = 4096  # bytes of the part of an address after the host
HEAD = 16384  # bytes of the head of a request
REQUEST_SECONDS = 10.0  # for the head of a request
RESPONSE_SECONDS = 60.0  # until a client has read most of a response
CONNECTIONS = 256
HEADERS = {
    "content-security-policy": f"{assets.POLICY}; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "board": ("filter",), "stream": ("filter",), "studies": ("filter",), "suites": ("filter",),
    "compare": ("filter", "a", "b"),
}  # fmt: skip
STATUS = {"denied": 401}  # of reasons why a request is refused; others are 403


class Guard:
    """Refuses what this server is not for, and adds headers to every response."""

    def __init__(self, app: ASGIApp, access: Access, follower: RunFollower) -> None:
        self.app, self.access, self.follower = app, access, follower

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                added = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        problem = self._problem(scope, headers)
        if problem is not None:
            await _refusal(*problem)(scope, receive, send_with_headers)
            return
        self.follower.touch()
        await self.app(scope, receive, send_with_headers)

    def _problem(self, scope: Scope, headers: Mapping[str, str]) -> tuple[int, str] | None:
        if scope["method"] not in METHODS:
            return 405, "This server is only read: GET or HEAD."
        if len(scope["path"]) + len(scope["query_string"]) > LONGEST:
            return 414, f"An address has at most {LONGEST} bytes."
        refused = self.access.problem(headers, pages=True)
        if refused is None:
            return None
        reason, sentence = refused
        # The page itself has nothing of the runs; it asks the reader for the token.
        if reason == "denied" and not scope["path"].startswith("/data/"):
            return None
        return STATUS.get(reason, 403), sentence


def _our_error(error: Exception) -> Response:
    return _refusal(500, f"This is an error of Streamgauge itself ({type(error).__name__}).")


def _refusal(status: int, sentence: str) -> Response:
    body = json.dumps({"error": sentence}).encode()
    headers = {"www-authenticate": "Bearer"} if status == 401 else {}
    return Response(body, status, headers, "application/json")


def application(content: PageContent, access: Access) -> ASGIApp:
    """The ASGI application."""
    files = dict(assets.assets())
    packed = {
        name: gzip.compress(each.data, 6, mtime=0)
        for name, each in files.items()
        if len(each.data) >= COMPRESSED
    }
    html = assets.page().encode()
    boot = content.follower.boot

    def index(request: Request) -> Response:
        return Response(html, media_type="text/html; charset=utf-8")

    def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            return _refusal(404, "There is no such file.")
        tag = f'"{boot}-{name}"'
        if _same(request, tag):
            return Response(status_code=304, headers={"etag": tag})
        return _packed(request, files[name].data, packed.get(name, b""), tag, files[name].kind)

    async def data(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in DEPENDS or (name == "ledger" and not content.ledger):
            return _refusal(404, "There is no such content.")
        options = {k: request.query_params.get(k, "") for k in OPTIONS.get(name, ())}
        made = content.current(name, options)
        if content.follower.error is not None:  # what is known is no longer true
            return _our_error(content.follower.error)
        try:
            if made is None or not made.body:
                made = await run_in_threadpool(content.answer, name, options)
        except StreamgaugeError as error:  # of the request
            return _refusal(400, str(error))
        except Exception as error:
            traceback.print_exception(error, file=sys.stderr)
            return _our_error(error)
        # Content is made at a bounded rate: this may be a little older than the counts.
        older = made.tag != content.tag(name, options)
        if _same(request, made.tag):
            answer = Response(status_code=304, headers={"etag": made.tag})
        else:
            answer = _packed(request, made.body, made.packed, made.tag, "application/json")
        if older:
            answer.headers["retry-after"] = "1"
        return answer

    routes = [
        Route("/", index),
        Route("/assets/{name}", asset),
        Route("/data/{name}", data),
    ]
    missing = {404: lambda *_: _refusal(404, "There is no such page.")}
    return Guard(Starlette(routes=routes, exception_handlers=missing), access, content.follower)


def _same(request: Request, tag: str) -> bool:
    given = request.headers.get("if-none-match", "")
    return tag in (each.strip().removeprefix("W/") for each in given.split(","))


def _packed(request: Request, body: bytes, packed: bytes, tag: str, kind: str) -> Response:
    headers = {"etag": tag, "vary": "accept-encoding"}
    if packed and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(packed, headers={**headers, "content-encoding": "gzip"}, media_type=kind)
    return Response(body, headers=headers, media_type=kind)


class Patient(H11Protocol):
    """A connection that is closed when the head of a request takes too long, when its client does
    not read, or when others wait for room and it has been idle the longest."""

    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    since = 0.0  # when it was opened, or its last response was complete
    cut = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.since = self.loop.time()
        self._make_room()
        self._expect()

    @property
    def idle(self) -> bool:
        """Whether it waits for a request."""
        return self.cycle is None or self.cycle.response_complete

    def _make_room(self) -> None:
        """Where there are too many connections, cut the one that has been idle the longest."""
        others = [each for each in self.connections if isinstance(each, Patient) and not each.cut]
        if len(others) < CONNECTIONS:
            return
        idle = (each for each in others if each.idle and each is not self)
        oldest = min(idle, key=lambda each: each.since, default=None)
        if oldest is not None:
            oldest.cut = True
            oldest.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(RESPONSE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._has_read()

    def _has_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()  # a request has come
        elif self._late is None:
            self._expect()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.since = self.loop.time()
        self._forget()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._has_read()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._late = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def listen(host: str, port: int | None, usual: int) -> socket.socket:
    """A socket; without a port the usual one, or any if that is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tries = [usual, 0] if port is None else [port]
    for number in tries:
        try:
            return socket.create_server((host, number), family=family, backlog=256)
        except (OSError, OverflowError) as error:
            reason = str(getattr(error, "strerror", None) or error).rstrip(".")
            if number == tries[-1]:
                raise StreamgaugeError(
                    f"Cannot serve on {host}:{number}: {reason}; choose another port."
                ) from None
    raise AssertionError("unreachable")


def serve(
    content: PageContent,
    access: Access,
    listening: socket.socket,
    ready: Callable[[Callable[[], None]], None] | None = None,
) -> None:
    """Serve until it is stopped by a signal; `ready` is given a function that stops it, too."""
    config = uvicorn.Config(
        application(content, access),
        http=Patient,
        ws="none",
        lifespan="off",
        loop="asyncio",
        access_log=False,
        log_level="critical",
        log_config=None,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS + 1,  # the one that comes is counted, too
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=HEAD,
    )
    server = uvicorn.Server(config)

    def stop() -> None:
        server.should_exit = True

    content.follower.start()
    try:
        if ready is not None:
            ready(stop)
        server.run(sockets=[listening])
    finally:
        content.follower.stop()
        content.close()
    if content.follower.error is not None:
        raise content.follower.error
