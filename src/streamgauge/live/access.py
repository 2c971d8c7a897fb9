"""Who may connect to a server of ours: loopback, a token, and the headers Host and Origin."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from typing import NamedTuple

from streamgauge.errors import StreamgaugeError

TOKEN_LENGTH = 16  # characters, at least
RATE_ELSEWHERE = 1000.0  # messages per second, where other machines may send them


class Access(NamedTuple):
    """Who may send messages, and how many per second (None: as many as can be answered)."""

    token: str | None = None
    rate: float | None = None

    @property
    def anywhere(self) -> bool:
        """Whether requests may be for any name of this machine; then each needs the token."""
        return self.token is not None

    def problem(self, headers: Mapping[str, str], pages: bool = False) -> tuple[str, str] | None:
        """Why a request is refused, as a reason and a sentence; the names of headers are in lower
        case. With `pages`, those of this server may ask, too, and no others."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.token is not None:
            given = headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode("latin-1", "replace"), self.token.encode()):
                return "denied", "Send the token of this service: Authorization: Bearer TOKEN."
        if origin is not None and not (pages and origin == f"http://{host}"):
            return "malformed", "Web pages may not send messages here."
        if not self.anywhere and not is_local(without_port(host)):
            return "malformed", "The header Host must name a loopback address or localhost."
        return None


def without_port(host: str) -> str:
    """
    >>> [without_port(host) for host in ("localhost:80", "127.0.0.1", "[::1]:80", "::1")]
    ['localhost', '127.0.0.1', '::1', '::1']
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host


def is_local(host: str) -> bool:
    """Whether a name or an address is of this machine only.

    >>> [is_local(host) for host in ("localhost", "127.3.2.1", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def access_for(host: str, anywhere: bool, token: str | None, rate: float | None) -> Access:
    """The rules for a host: only this machine may send messages, unless `anywhere` is set and there
    is a token."""
    require_local_host(host, anywhere)
    if token is not None and (len(token) < TOKEN_LENGTH or not token.isascii()):
        raise StreamgaugeError(f"A token has at least {TOKEN_LENGTH} characters, all of ASCII.")
    if rate is not None and not rate >= 1:
        raise StreamgaugeError(f"A limit of messages per second is at least 1, not {rate:g}.")
    if is_local(host):
        return Access(token, rate)
    if token is None:
        raise StreamgaugeError(
            f"Serving on {host} lets other machines in: give a token (--token-file FILE, or `token`"
            f" in Python), or use 127.0.0.1."
        )
    return Access(token, RATE_ELSEWHERE if rate is None else rate)


def require_local_host(host: str, anywhere: bool) -> None:
    """Only this machine may send messages, unless `anywhere` is set."""
    if not anywhere and not is_local(host):
        raise StreamgaugeError(
            f"Serving on {host} would let other machines in: use 127.0.0.1, or allow it with "
            f"--anywhere and a token."
        )
