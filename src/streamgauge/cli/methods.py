"""`streamgauge list`, `check`, `cost` and `pretrain`: learners and streams by themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

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
            help="streams, learners, protocol, metrics, suites or all; or the name of a learner, "
            "stream, metric or suite."
        ),
    ] = "all",
    as_json: AsJson = False,
) -> None:
    """List streams and learners, or explain a learner, stream, metric or suite.

    Examples:

        streamgauge list

        streamgauge list er

        streamgauge list learners --json
    """
    from streamgauge.catalogue import names, summary

    rooms = ("streams", "learners", "protocol")
    if what in _INDEXES:
        index = {name: _explained(name)["what"].partition(". ")[0] for name in _INDEXES[what]()}
        print_json({what: index}) if as_json else print(_index_text(what, index))
        return
    if what not in (*rooms, "all") or (what == "protocol" and not as_json):
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


def _metric_names() -> list[str]:
    from streamgauge.metrics.summary import names

    return names()


def _suite_names() -> list[str]:
    from streamgauge.suites import spec

    return list(spec.names())


_INDEXES = {"metrics": _metric_names, "suites": _suite_names}


def _index_text(what: str, index: dict[str, str]) -> str:
    width = max(map(len, index))
    lines = [f"  {name:<{width}} {text.rstrip('.')}." for name, text in index.items()]
    return "\n".join([f"{what}:", *lines, "", f"One of them: streamgauge list {next(iter(index))}"])


def _explained(name: str) -> dict[str, Any]:
    """What a learner, stream, metric or suite is, with an example and its page."""
    from streamgauge import metrics
    from streamgauge.bridges.named import prefix_of
    from streamgauge.catalogue import foreign_summary, names, summary
    from streamgauge.suites import spec as suites

    if prefix_of(name):
        example = f"streamgauge run --stream blobs --learner {name}"
        facts = foreign_summary(name)
        return {"kind": "learner", **facts, "example": example, "page": "docs/bridges.md"}
    plain = name.partition("@")[0]
    if name == "protocol":
        example = "streamgauge run --stream albums --learner er --protocol.shifts 200"
        facts = summary("protocol", name)
        return {"kind": "protocol", **facts, "example": example, "page": "docs/loop.md"}
    if plain in names("learners"):
        page = f"docs/methods/{plain}.md"
        example = f"streamgauge run --stream albums --learner {name}"
        return {"kind": "learner", **summary("learners", plain), "example": example, "page": page}
    if name in names("streams"):
        facts = summary("streams", name)
        path = " --stream.path PATH" if "path" in facts["settings"] else ""
        page = "docs/your_data.md" if path else "docs/streams.md"
        where = "openml:151" if name == "openml" else f"{name}{path}"
        example = f"streamgauge run --stream {where} --learner er"
        return {"kind": "stream", **facts, "example": example, "page": page}
    if name in suites.names():
        about = suites.read(name)
        what = f"{about['title']}. {about.get('what', '')}".strip()
        example = f"streamgauge suite run {name}"
        return {"kind": "suite", "name": name, "what": what, "example": example,
                "page": "docs/suites.md"}  # fmt: skip
    if what := metrics.meaning(name):
        return {"kind": "metric", "name": name, "what": what,
                "example": "streamgauge score runs/", "page": "docs/metrics.md"}  # fmt: skip
    lists = ["streams", "learners", "protocol", "metrics", "suites", "all"]
    known = [*lists, *names("learners"), *names("streams"), *suites.names(), *metrics.__all__]
    hint = nearest(name, known)
    hint = hint if hint.startswith("did") else "`streamgauge list` shows all."
    raise StreamgaugeError(f"There is no list of '{name}', nor anything of that name; {hint}")


def _explanation(facts: dict[str, Any]) -> str:
    owner = "stream" if facts["kind"] == "stream" else facts["name"]
    lines = [f"{facts['name']} ({facts['kind']})", f"  {facts['what']}", ""]
    if "library" in facts:
        lines += [f"  of {facts['library']}; cost in seconds: FLOPs are unknown", ""]
    elif "source" in facts:
        lines += [f"  from {facts['source']}; cost, er = 1: {facts['cost']}", ""]
    notes = facts.get("notes", {})
    for setting, default in facts.get("settings", {}).items():
        choices = ", ".join(facts.get("choices", {}).get(setting, ()))
        note = "; ".join(
            filter(None, (notes.get(setting, "").rstrip("."), choices and f"one of {choices}"))
        )
        lines.append(f"  --{owner}.{setting} {default}  {note}")
    lines += [""] * bool(facts.get("settings"))
    if facts.get("presets"):
        lines += [f"  presets: {', '.join(facts['name'] + '@' + p for p in facts['presets'])}"]
    lines += [f"  example: {facts['example']}", f"  page:    {facts['page']}"]
    return "\n".join(lines)


AnswerKind = Literal[
    "auto",
    "classes",
    "scores",
    "probabilities",
    "log-probabilities",
    "label-log-probabilities",
]


def check(
    context: typer.Context,
    learner: Annotated[str | None, typer.Argument(help="Learner: FILE.py:Class or a name.")] = None,
    loop: Annotated[
        str | None,
        typer.Option(help="Loop to test for leaks: FILE.py:FUNCTION or a learner (docs/check.md)."),
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(
            help="Stream whose samples are used: a name, your data or FILE.py; images or vectors: "
            "generated samples [images; vectors for a loop, and if the learner does not use torch "
            "or cannot take images]."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=8, help="With --loop: samples per run.")] = 300,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="With --loop: samples per batch [10, or the stream's]."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="With --loop: seed of the streams.")] = 0,
    seconds: Annotated[
        float, typer.Option(help="With --loop: time for all checks; more time allows more pairs.")
    ] = 20,
    answers: Annotated[
        AnswerKind,
        typer.Option(help="With --loop: form of the answers; auto: by shape and values."),
    ] = "auto",
    tolerance: Annotated[
        float, typer.Option(min=0, help="With --loop: difference of scores that counts as none.")
    ] = 0.0,
    length_known: Annotated[
        bool,
        typer.Option(
            "--length-known", help="With --loop: the loop may use the length of the stream."
        ),
    ] = False,
    pretrained: Annotated[
        bool,
        typer.Option(
            "--pretrained", help="With --loop: the loop's model was trained before, on other data."
        ),
    ] = False,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Test a learner against its contract, or any training loop for leaks (--loop).

    A loop is a function from a stream to answers. The check calls the loop on pairs of streams that
    differ after some sample; an answer before that sample may not differ. Prints each result as
    soon as there is one. Exit code 1 if a check fails; each failure says what to change.

    Examples:

        streamgauge check my_file.py:MyLearner --MyLearner.lr 0.1

        streamgauge check my_file.py:MyLearner --stream blobs --stream.classes 5

        streamgauge check --loop my_file.py:train_and_predict --stream mine.csv
    """
    if (learner is None) == (loop is None):
        raise StreamgaugeError("Name a learner, or a loop with --loop FILE.py:FUNCTION.")
    given = [name for name in _OF_LOOPS if _is_given(context, name)]
    if loop is None and given:
        option = given[0].replace("_", "-")
        raise StreamgaugeError(f"--{option} has a meaning with --loop only.")
    if loop is not None:
        options: dict[str, Any] = {"samples": samples, "batch": batch, "seed": seed}
        options |= {"seconds": seconds, "answers": answers, "tolerance": tolerance}
        options |= {"length_known": length_known, "pretrained": pretrained}
        _check_loop(context, loop, stream, device, options, as_json)
    else:
        _check_learner(context, str(learner), stream, device, as_json)


_OF_LOOPS = ("samples", "batch", "seed", "seconds", "answers", "tolerance", "length_known",
             "pretrained")  # fmt: skip


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _check_loop(
    context: typer.Context,
    loop: str,
    stream: str | None,
    device: str,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    from streamgauge import catalogue, checks

    target = checks.named_loop(loop)
    if isinstance(target, catalogue.Recipe):
        from streamgauge.models.features import device_named

        given = learner_settings(context, [loop])
        settings = settings_of(context, target.name, "stream", given=given)
        target = catalogue.learner(loop, **settings[target.name])
        if options.pop("answers") != "auto":
            raise StreamgaugeError("--answers has a meaning for a function only.")
        if not options["length_known"]:
            del options["length_known"]  # as the learner declares
        options["device"] = str(device_named(device))
    else:
        settings = settings_of(context, "stream")
        if _is_given(context, "device"):
            raise StreamgaugeError("--device has a meaning for a learner only.")
    chosen: Any = stream
    if stream not in (None, "images", "vectors"):
        chosen = catalogue.stream(stream, **settings["stream"])
    prover = checks.prover(target, chosen, **options)
    facts = _printed({"loop": loop}, prover.results(), as_json)
    if as_json:
        print_json(facts | {"runs": prover.runs, "pairs": prover.tried})
    elif facts["passed"]:
        print(
            f"No leak found in {prover.runs} runs, {facts['seconds']:.1f} s. A leak that shows at "
            f"1 of 10 positions is missed with probability {prover.missed(0.1):.2g}."
        )
    else:
        print(f"Not honest, {facts['seconds']:.1f} s: mend the first failure, then check again.")
    raise typer.Exit(0 if facts["passed"] else 1)


def _printed(facts: dict[str, Any], results: Iterator[Any], as_json: bool) -> dict[str, Any]:
    """Print results as they come; returns them as facts for --json."""
    begin, checks = time.perf_counter(), []
    for result in results:
        checks.append(result._asdict())
        if not as_json:
            print(result, flush=True)
    passed = all(check["passed"] is not False for check in checks)
    seconds = round(time.perf_counter() - begin, 2)
    return {**facts, "passed": passed, "checks": checks, "seconds": seconds}


def _check_learner(
    context: typer.Context, learner: str, stream: str | None, device: str, as_json: bool
) -> None:
    from streamgauge import catalogue
    from streamgauge.checks import conformance
    from streamgauge.models.features import device_named

    name = catalogue.learner(learner).name
    given = learner_settings(context, [learner])
    settings = settings_of(context, name, "stream", given=given)
    recipe = catalogue.learner(learner, **settings[name])
    samples = None
    if stream in ("images", "vectors"):
        samples = conformance.images() if stream == "images" else conformance.vectors()
    elif stream is not None:
        samples = conformance.samples_of(catalogue.stream(stream, **settings["stream"]))
    results = conformance.check_learner(recipe, str(device_named(device)), samples)
    facts = _printed({"learner": name}, results, as_json)
    if as_json:
        print_json(facts)
    else:
        failed = sum(check["passed"] is False for check in facts["checks"])
        print(
            f"{failed or 'None'} of {len(facts['checks'])} checks failed, {facts['seconds']:.1f} s."
        )
    raise typer.Exit(0 if facts["passed"] else 1)


def cost(
    context: typer.Context,
    learners: Annotated[
        list[str],
        typer.Argument(
            help="Learners: NAME, NAME@PRESET or FILE.py:Class, or ALIAS= and one of these."
        ),
    ],
    model: Annotated[
        str | None, typer.Option(help="Network of all learners [slim_resnet18, or the preset's].")
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            help="Samples in the memory, which is filled before the measurement [100, or the "
            "preset's up to 1000]."
        ),
    ] = None,
    batch: Annotated[int, typer.Option(help="Samples per batch.")] = 10,
    jobs: Annotated[int, typer.Option(help="Number of training jobs to measure.")] = 4,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Measure the cost of one training job of a method, relative to ER on the same network.

    Prints FLOPs forward and backward, seconds, bytes of memory, and energy where the machine can
    be measured. The result can be given as --protocol.cost, such as 8/3. As many samples are
    recalled as are new, unless a preset says otherwise.

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

    Settings are --stream.X and --pretrain.X (model, epochs, lr, embedding, ...). If the file exists
    already, the same command trains nothing.

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
