"""`streamgauge list`: streams, learners and settings by name."""

from __future__ import annotations

from typing import Annotated

import typer

from streamgauge.cli.options import AsJson, no_settings, print_json
from streamgauge.errors import StreamgaugeError, nearest


def list_(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="streams, learners, protocol or all.")] = "all",
    as_json: AsJson = False,
) -> None:
    """List the streams and learners there are, with their settings.

    Examples:

        streamgauge list

        streamgauge list learners --json
    """
    no_settings(context)
    from streamgauge.catalogue import names, summary

    rooms = ("streams", "learners", "protocol")
    if what not in (*rooms, "all"):
        raise StreamgaugeError(f"There is no list of '{what}'; {nearest(what, (*rooms, 'all'))}")
    summaries = {
        room: [summary(room, name) for name in names(room)]
        for room in rooms
        if what in (room, "all")
    }
    if as_json:
        print_json(summaries)
        return
    for room, entries in summaries.items():
        print(f"{room}:")
        width = max(len(entry["name"]) for entry in entries)
        for entry in entries:
            print(f"  {entry['name']:<{max(width, 11)}} {entry['what']}")
            if "source" in entry:
                print(f"              from: {entry['source']}; cost, er = 1: {entry['cost']}")
            known = ", ".join(f"{k}={v}" for k, v in entry["settings"].items())
            if known:
                print(f"              settings: {known}")
            if entry.get("presets"):
                print(f"              presets: {', '.join(entry['presets'])}")
            if entry.get("needs"):
                print(f"              needs: {', '.join(entry['needs'])}")
        print()
