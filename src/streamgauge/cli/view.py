"""`streamgauge view`: the page of runs, while they go on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli.options import token_in
from streamgauge.errors import StreamgaugeError
from streamgauge.settings import RUNS

PORT = 8790


def view(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of runs or of studies [runs, and studies if it exists]."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help=f"Port; 0: any free port [{PORT}, or any free port].")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to serve on.")] = "127.0.0.1",
    anywhere: Annotated[
        bool,
        typer.Option(
            "--anywhere",
            help="Accept connections from other machines; needs --host and --token-file.",
        ),
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token that readers enter on the page."),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write the page into this folder as files, and serve nothing."
        ),
    ] = None,
    ledger: Annotated[
        bool,
        typer.Option("--ledger", help="Also show the ledger: published and measured numbers."),
    ] = False,
    filter_: Annotated[
        str,
        typer.Option(
            "--filter", metavar="WORDS", help="Runs in the bundle: 'learner:er status:done' [all]."
        ),
    ] = "",
    open_: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser of this machine.")
    ] = False,
) -> None:
    """Watch runs in a browser: progress, leaderboards, curves, comparisons, studies.

    The folders are only read. Only this machine can connect, except with --anywhere. Where a folder
    does not exist yet but its parent does, this command waits for the first run.

    Examples:

        streamgauge view runs/

        streamgauge view runs/ studies/ --port 8080 --open

        streamgauge view runs/ --bundle out/            # files, for a machine without ports

        streamgauge view --ledger --bundle public/
    """
    from streamgauge.errors import packages_for
    from streamgauge.view.bundle import write_bundle
    from streamgauge.view.content import PageContent
    from streamgauge.view.follow import RunFollower

    paths = folders or [p for p in (Path(RUNS), Path("studies")) if p.is_dir()]
    for path in paths:
        if path.exists() and not path.is_dir():
            raise StreamgaugeError(f"{path} is a file, not a folder of runs.")
        if not path.is_dir() and (bundle is not None or not path.absolute().parent.is_dir()):
            raise StreamgaugeError(f"There is no folder {path}.")
    if not paths and not ledger:
        raise StreamgaugeError(
            f"There is no folder {RUNS}/ here: name the folder of your runs, or start one with"
            " `streamgauge demo`."
        )
    follower = RunFollower(paths)
    if bundle is not None:
        written = write_bundle(follower, bundle, ledger=ledger, filter_text=filter_)
        print(f"Page: {written.resolve()}")
        return
    if filter_:
        raise StreamgaugeError("--filter is for --bundle; the page has a field for it.")
    with packages_for("`streamgauge view`"):
        from streamgauge.view.server import listen, serve
    from streamgauge.live.access import access_for

    access = access_for(host, anywhere, token_in(token_file), None)
    listening = listen(host, port, PORT)
    number = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{number}/"
    names = ", ".join(map(str, paths)) or "the ledger"
    try:
        for path in paths:
            if not path.is_dir():
                print(f"{path} does not exist yet; waiting for the first run.", flush=True)
        print(f"Watching {names} on {address} (Ctrl-C ends it).", flush=True)
        if open_:
            import webbrowser

            webbrowser.open(address)
        serve(PageContent(follower, ledger=ledger), access, listening)
    except KeyboardInterrupt:
        print("Ended.")
