"""The files of the page: its HTML, styles, scripts and the plotting library, the same for a server
and for a bundle. Nothing is inline, so that a page may load from its own server alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib import resources
from typing import NamedTuple

from streamgauge.pages.page import SCRIPTS, THEMES
from streamgauge.versions import VERSION

# Images that the reader exports are made of data. Nothing else comes from elsewhere.
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none';"
    " form-action 'none'"
)
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<path d="M1 12 5 7l3 3 6-8" fill="none" stroke="#0b6aa8" stroke-width="2"/></svg>'
)
OURS = ("filter.js", "watch.js")


class Asset(NamedTuple):
    kind: str
    data: bytes


@cache
def assets() -> Mapping[str, Asset]:
    """All files but the page itself, by name."""
    from plotly.offline import get_plotlyjs

    pages, here = resources.files("streamgauge.pages"), resources.files("streamgauge.view")
    script, style = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
    files = {
        "icon.svg": Asset("image/svg+xml", ICON.encode()),
        "themes.css": Asset(style, _themes().encode()),
        "themes.js": Asset(script, _constants(None).encode()),
        "plotly.js": Asset(script, get_plotlyjs().encode()),
    }
    for folder, name in [(pages, "style.css"), (here, "watch.css")]:
        files[name] = Asset(style, (folder / name).read_bytes())
    for folder, names in [(pages, SCRIPTS), (here, OURS)]:
        files |= {name: Asset(script, (folder / name).read_bytes()) for name in names}
    return files


def constants(bundle: Mapping[str, str]) -> bytes:
    """`themes.js` of a bundle, which has these files by name."""
    return _constants(bundle).encode()


def _constants(bundle: Mapping[str, str] | None) -> str:
    names: dict[str, list[str]] = {"learners": [], "coloured": [], "grey": []}
    return (
        f'"use strict";\nconst themes = {json.dumps(THEMES)};\nconst names = {json.dumps(names)};\n'
        f"const bundle = {json.dumps(bundle)};\n"
    )


def _themes() -> str:
    rules = []
    for theme, colours in THEMES.items():
        values = " ".join(f"--{n}: {c};" for n, c in colours.items() if isinstance(c, str))
        rule = f":root {{ {values} }}"
        dark = "@media screen and (prefers-color-scheme: dark)"
        rules.append(f"{dark} {{ {rule} }}" if theme == "dark" else rule)
    return "\n".join(rules)


def page(*, policy: bool = False) -> str:
    """The HTML; with `policy` it says itself what it may load, as a file has no headers."""
    text = (resources.files("streamgauge.view") / "index.html").read_text(encoding="utf-8")
    meta = f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
    marks = "".join(f'<span hidden id="{each}"></span>' for each in _styles_of_plotly())
    return (
        text.replace("<!-- policy -->", meta if policy else "")
        .replace("<!-- version -->", VERSION)
        .replace("<!-- marks -->", marks)
    )


def _styles_of_plotly() -> list[str]:
    """The plotting library puts styles of its maps into a page unless an element has this id. We
    draw no such maps, and the policy would refuse it with a message on the console."""
    script = assets()["plotly.js"].data.decode()
    return re.findall(r'getElementById\("([0-9a-f]{64})"\)', script)
