"""A server of `streamgauge view` in a thread, for tests that ask it or open its page."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from streamgauge.live.access import Access
from streamgauge.view.content import PageContent
from streamgauge.view.follow import RunFollower
from streamgauge.view.server import listen, serve


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)


class Watched:
    def __init__(self, content: PageContent, port: int, stop: Callable[[], None]) -> None:
        self.content, self.follower = content, content.follower
        self.port, self.stop = port, stop
        self.url = f"http://127.0.0.1:{port}/"

    def ask(self, path: str, method: str = "GET", **headers: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=given)
            reply = connection.getresponse()
            names = {name.lower(): value for name, value in reply.getheaders()}
            return Reply(reply.status, names, reply.read())
        finally:
            connection.close()


@contextmanager
def watched(*folders: Path, token: str | None = None, ledger: bool = False) -> Iterator[Watched]:
    """A server that is stopped at the end; an error of its threads is raised."""
    content = PageContent(RunFollower(list(folders)), ledger=ledger)
    listening = listen("127.0.0.1", 0, 0)
    ready, stops = threading.Event(), []
    errors: list[BaseException] = []

    def work() -> None:
        def tell(stop: Callable[[], None]) -> None:
            stops.append(stop)
            ready.set()

        try:
            serve(content, Access(token), listening, tell)
        except BaseException as error:
            errors.append(error)
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(30)
    made = Watched(content, listening.getsockname()[1], stops[0])
    try:
        yield made
    finally:
        made.stop()
        thread.join(30)
        assert not thread.is_alive()
        assert not errors, errors


def wait_for(condition: Any, seconds: float = 30) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found
