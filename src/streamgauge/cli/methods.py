"""`streamgauge list`, `check`, `cost` and `pretrain`: learners and streams by themselves."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgauge.cli.options import (
    AsJson,
    Device,
    StreamName,
    Threads,
    learner_settings,
    print_json,
    settings_of,
)
from streamgauge.errors import StreamgaugeError, nearest


def list_(
    what: Annotated[
        str,
        typer.Argument(
            help="streams, learners, protocol or all; or the name of a learner, stream, metric or"
            " suite."
        ),
    ] = "all",
    as_json: AsJson = False,
) -> None:
    """List the streams and learners there are, or explain one by its name.

    Examples:

        streamgauge list

        streamgauge list er

        streamgauge list learners --json
    """
    from streamgauge.catalogue import names, summary

    rooms = ("streams", "learners", "protocol")
    if what not in (*rooms, "all"):
        facts = _explained(what)
        print_json(facts) if as_json else print(_explanation(facts))
        return
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


def _explained(name: str) -> dict[str, Any]:
    """What a learner, stream, metric or suite is, with an example and its page."""
    from streamgauge import metrics
    from streamgauge.catalogue import names, summary
    from streamgauge.suites import spec as suites

    plain = name.partition("@")[0]
    if plain in names("learners"):
        page = f"docs/methods/{plain}.md"
        example = f"streamgauge run --stream albums --learner {name}"
        return {"kind": "learner", **summary("learners", plain), "example": example, "page": page}
    if name in names("streams"):
        facts = summary("streams", name)
        path = " --stream.path PATH" if "path" in facts["settings"] else ""
        page = "docs/your_data.md" if path else "docs/streams.md"
        example = f"streamgauge run --stream {name}{path} --learner er"
        return {"kind": "stream", **facts, "example": example, "page": page}
    if name in suites.names():
        about = suites.read(name)
        what = f"{about['title']}. {about.get('what', '')}".strip()
        example = f"streamgauge suite run {name}"
        return {"kind": "suite", "name": name, "what": what, "example": example,
                "page": "docs/suites.md"}  # fmt: skip
    measure = getattr(metrics, plain, None) if plain in metrics.__all__ else None
    if measure is not None and inspect.isfunction(measure):
        text = inspect.getdoc(measure) or ""
        what = " ".join(text.partition(">>>")[0].split())
        return {"kind": "metric", "name": name, "what": what,
                "example": "streamgauge score runs/", "page": "docs/metrics.md"}  # fmt: skip
    known = ["streams", "learners", "protocol", "all", *names("learners"), *names("streams")]
    hint = nearest(name, [*known, *suites.names(), *metrics.__all__])
    hint = hint if hint.startswith("did") else "`streamgauge list` shows all."
    raise StreamgaugeError(f"There is no list of '{name}', nor anything of that name; {hint}")


def _explanation(facts: dict[str, Any]) -> str:
    owner = {"stream": "stream", "learner": facts["name"]}.get(facts["kind"], "")
    lines = [f"{facts['name']} ({facts['kind']})", f"  {facts['what']}", ""]
    if "source" in facts:
        lines += [f"  from {facts['source']}; cost, er = 1: {facts['cost']}", ""]
    notes = facts.get("notes", {})
    for setting, default in facts.get("settings", {}).items():
        note = f"  {notes[setting]}" if setting in notes else ""
        lines.append(f"  --{owner}.{setting} {default}{note}")
    lines += [""] * bool(facts.get("settings"))
    if facts.get("presets"):
        lines += [f"  presets: {', '.join(facts['name'] + '@' + p for p in facts['presets'])}"]
    lines += [f"  example: {facts['example']}", f"  page:    {facts['page']}"]
    return "\n".join(lines)


def check(
    context: typer.Context,
    learner: Annotated[str, typer.Argument(help="FILE.py:Class, or the name of a learner.")],
    stream: Annotated[
        str | None,
        typer.Option(
            help="Stream whose samples are used, or images, or vectors (both generated) [images; "
            "vectors if the learner does not use torch or cannot take images]."
        ),
    ] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Test a learner against the contract that every learner here keeps.

    Prints each result as it comes. Exit code 1 if a check fails; each failure says what to change.

    Examples:

        streamgauge check my_file.py:MyLearner --MyLearner.lr 0.1

        streamgauge check my_file.py:MyLearner --stream blobs --stream.classes 5
    """
    from streamgauge import catalogue
    from streamgauge.models.features import device_named
    from streamgauge.running import conformance

    name = catalogue.learner(learner).name
    given = learner_settings(context, [learner])
    settings = settings_of(context, name, "stream", given=given)
    recipe = catalogue.learner(learner, **settings[name])
    samples = None
    if stream in ("images", "vectors"):
        samples = conformance.images() if stream == "images" else conformance.vectors()
    elif stream is not None:
        samples = conformance.samples_of(catalogue.stream(stream, **settings["stream"]))
    results = []
    for result in conformance.check_learner(recipe, str(device_named(device)), samples):
        results.append(result)
        if not as_json:
            mark = {True: "pass", False: "FAIL", None: "skip"}[result.passed]
            print(f"{mark}  {result.name}" + (f": {result.why}" if result.why else ""), flush=True)
    passed = all(result.passed is not False for result in results)
    if as_json:
        checks = [result._asdict() for result in results]
        print_json({"learner": name, "passed": passed, "checks": checks})
    raise typer.Exit(0 if passed else 1)


def cost(
    context: typer.Context,
    learners: Annotated[list[str], typer.Argument(help="[ALIAS=]NAME, or FILE.py:Class.")],
    model: Annotated[
        str | None, typer.Option(help="Network of all of them [slim_resnet18, or the preset's].")
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(help="Samples in memory; filled first [100, or the preset's up to 1000]."),
    ] = None,
    batch: Annotated[int, typer.Option(help="Samples per batch.")] = 10,
    jobs: Annotated[int, typer.Option(help="Training jobs measured.")] = 4,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Measure what one training job of a method costs, relative to ER on the same network.

    FLOPs forward and backward, seconds, bytes of memory, and energy where the machine can tell.
    The result can drive the clock: --protocol.cost 8/3. As many samples are recalled as are new,
    or as many as a preset says.

    Examples:

        streamgauge cost lwf mir gss

        streamgauge cost mir@survey-cifar100

        streamgauge cost rwalk --rwalk.passes 2 --json
    """
    from streamgauge import catalogue
    from streamgauge.running.job_cost import as_dict, cost_text, measure

    plain_recipes = [catalogue.learner(text) for text in learners]
    given = settings_of(context, *(plain.name for plain in plain_recipes))
    recipes = []
    for text, plain in zip(learners, plain_recipes, strict=True):
        preset = catalogue.presets().get(plain.where, {}).get(text.partition("@")[2], {})
        defaults = {
            "model": model or preset.get("model", "slim_resnet18"),
            "memory": min(preset.get("memory", 100), 1000) if memory is None else memory,
            "recall": preset.get("recall", batch),
            "warmup": 0,
        }
        settings = {k: v for k, v in defaults.items() if k in plain.known_settings}
        recipes.append(catalogue.learner(text, **settings | given[plain.name]))
    costs = measure(recipes, batch=batch, jobs=jobs, device=device)
    if as_json:
        print_json({"costs": [as_dict(cost) for cost in costs]})
    else:
        print(cost_text(costs))


def pretrain(
    context: typer.Context,
    stream: StreamName,
    out: Annotated[Path, typer.Option(help="Folder for the weights.")] = Path("backbones"),
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a network on the part of a stream that is never scored, and store its weights.

    Settings are --stream.X and --pretrain.X (model, epochs, lr, embedding, ...). The same command
    again finds the file and trains nothing.

    Example:

        streamgauge pretrain --stream albums --stream.preparation 0.2 --pretrain.model cnn4
    """
    from streamgauge import catalogue
    from streamgauge.models.pretrain import pretrain as train
    from streamgauge.running.determinism import user_threads
    from streamgauge.running.execution import Execution

    settings = settings_of(context, "stream", "pretrain")
    execution = Execution(device=device, threads=threads)
    built = catalogue.stream(stream, **settings["stream"])
    with user_threads(execution.threads):
        file = train(built, out=out, device=device, **settings["pretrain"])
    print(f"Weights: {file}")
