"""Builds the documentation site: `make docs`, or `python docs/build_site.py FOLDER`.

The pages of docs/, the README and CONTRIBUTING, and pages generated from the package: commands,
suites, data sets, and an API reference with every public name. The site opens from disk and loads
nothing from the network.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

# Title -> pages, in order; a page of docs/ that is not here comes under "More".
NAVIGATION: dict[str, list[str]] = {
    "Start": ["index.md", "start.md", "install.md", "glossary.md"],
    "Ideas": ["loop.md", "log.md", "time.md", "streams.md", "memory.md", "models.md", "features.md",
              "drift.md", "places.md"],
    "How to": ["your_data.md", "tables.md", "learners.md", "contributing.md", "bridges.md",
               "recorder.md", "audit.md", "check.md", "live.md", "report.md", "view.md",
               "tuning.md", "cluster.md", "pack.md", "exchange.md"],
    "Methods": ["published_code.md", "methods/*.md"],
    "Metrics": ["metrics.md", "metrics/*.md"],
    "Data sets": ["data.md", "data_sets.md", "data_sets/*.md", "real_streams.md",
                  "tables_vs_river.md"],
    "Suites": ["suites.md", "suites/*.md"],
    "Results": ["ledger.md", "calibration.md", "speed.md"],
    "Promises": ["promises.md", "versions.md", "changelog.md"],
    "Reference": ["commands.md", "api/*.md"],
    "Design": ["architecture.md", "decisions/*.md"],
}  # fmt: skip
# Pages outside docs/ -> their names in the site.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
NO_PAGE = {"README.md", "decisions/README.md"}  # lists of pages, which the navigation replaces


def stage(folder: Path) -> None:
    """All pages, copied and generated, in one folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("*.py", "*.ipynb", "__pycache__"))
    for name in NO_PAGE:
        (folder / name).unlink(missing_ok=True)
    for page in folder.rglob("*.md"):
        depth = len(page.relative_to(folder).parts) - 1
        _rewrite(page, lambda target, depth=depth: _inside(target, depth))
    for source, name in OUTSIDE.items():
        (folder / name).write_text((ROOT / source).read_text(encoding="utf-8"), encoding="utf-8")
        _rewrite(folder / name, _from_root)
    generated = {
        **command_page(), **suite_pages(), **metric_pages(), **data_pages(), **published_page(),
        **api_pages(),
    }  # fmt: skip
    for name, text in generated.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _rewrite(page: Path, change: Any) -> None:
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"\]\(([^)\s]+)\)", lambda match: f"]({change(match[1])})", text)
    page.write_text(text, encoding="utf-8")


def _from_root(target: str) -> str:
    """A link of a page at the root, as the site has it."""
    path, mark, anchor = target.partition("#")
    if path.startswith("docs/"):
        path = path.removeprefix("docs/")
        path = "index.md" if path in ("", "README.md") else path
    return OUTSIDE.get(path, path) + mark + anchor


def _inside(target: str, depth: int) -> str:
    """A link of a page in docs/, where it leads outside or to a folder."""
    up = "../" * depth
    path, mark, anchor = target.partition("#")
    if path.startswith("../" * (depth + 1)) and path.split("../")[-1] in OUTSIDE:
        return f"{up}{OUTSIDE[path.split('../')[-1]]}{mark}{anchor}"
    if path.removeprefix(up) in ("README.md", "decisions/README.md"):
        return f"{up}index.md"
    if path.endswith("/") and not path.startswith("http"):
        first = sorted((DOCS / path.removeprefix(up)).glob("[!R]*.md"))
        return f"{path}{first[0].name}" if first else target
    return target


def navigation(folder: Path) -> list[dict[str, list[str]]]:
    """The pages by section; pages that no section names come last."""
    rest = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}
    sections = []
    for title, patterns in NAVIGATION.items():
        found = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
        pages = [path.relative_to(folder).as_posix() for path in found]
        rest -= set(pages)
        sections.append({title: pages})
    return [*sections, {"More": sorted(rest)}] if rest else sections


# Generated pages.


def command_page() -> dict[str, str]:
    """The help of every command."""
    from streamgauge.cli import app
    from streamgauge.cli.help import build

    lines = [
        "# Commands",
        "",
        "The help of every command, as `streamgauge COMMAND --help` prints it.",
        "",
    ]
    for name, text in _helps(build(app), "streamgauge"):
        lines += [f"## {name}", "", "```text", text.rstrip(), "```", ""]
    return {"commands.md": "\n".join(lines)}


def _helps(command: Any, name: str, parent: Any = None) -> Iterator[tuple[str, str]]:
    context = command.make_context(name.split()[-1], [], parent=parent, resilient_parsing=True)
    yield name, command.get_help(context)
    for part, below in getattr(command, "commands", {}).items():
        yield from _helps(below, f"{name} {part}", context)


def suite_pages() -> dict[str, str]:
    from streamgauge.suites import load, names

    pages = {}
    for name in names():
        suite = load(name)
        rows = list(dict.fromkeys(row.title for row in suite.rows))
        lines = [f"# {name}", "", f"**{suite.title}.** {suite.what}", "", "```",
                 f"streamgauge suite plan {name}        # what it costs",
                 f"streamgauge suite run {name}         # runs what is missing",
                 f"streamgauge suite table {name}       # ours next to the published numbers",
                 "```", "", *(f"- {note}" for note in suite.notes), "",
                 "Results so far: [the ledger](../ledger.md).", "",
                 f"## {len(rows)} rows", "", *(f"- {row}" for row in rows), ""]  # fmt: skip
        pages[f"suites/{name}.md"] = "\n".join(lines)
    return pages


def metric_pages() -> dict[str, str]:
    """One page for each name that `score` prints."""
    from streamgauge import metrics
    from streamgauge.metrics.summary import names

    pages = {}
    for name in names():
        lines = [f"# {name}", "", _plain(metrics.meaning(name)), "", "```",
                 "streamgauge score runs/          # prints it", "```", ""]  # fmt: skip
        if name in metrics.__all__:
            lines += [
                f"In Python: [`streamgauge.metrics.{name}`](../api/streamgauge.metrics.md).",
                "",
            ]
        lines += ["Conventions, and all others: [metrics.md](../metrics.md).", ""]
        pages[f"metrics/{name}.md"] = "\n".join(lines)
    return pages


def _plain(text: str) -> str:
    """A text that is not Markdown, but for its `code`."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*\[\]<_])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def published_page() -> dict[str, str]:
    """What each published code does differently, from the classes in `learners/published/`."""
    from streamgauge.learners import published

    lines = ["# What the papers' code does differently", "",
             "A method is what its paper defines. The setting `as_published` selects what published"
             " code does ([learners.md](learners.md#published-variants)).", ""]  # fmt: skip
    for info in pkgutil.iter_modules(published.__path__):
        module = importlib.import_module(f"{published.__name__}.{info.name}")
        title = str(module.__doc__).split("\n\n")[0].removeprefix("What ")
        title = title.replace(" does differently", "").rstrip(".\n")
        lines += [f"## {title[0].upper()}{title[1:]}", "", "| method | difference |", "|---|---|"]
        for kind in vars(module).values():
            if not inspect.isclass(kind) or kind.__module__ != module.__name__:
                continue
            names = [base.__module__.rpartition(".")[2] for base in kind.__mro__[1:]]
            method = next((name for name in names if (DOCS / f"methods/{name}.md").exists()), None)
            if method is not None:
                text = _plain(" ".join(inspect.cleandoc(str(kind.__doc__)).split()))
                lines.append(f"| [`{method}`](methods/{method}.md) | {text} |")
        lines.append("")
    return {"published_code.md": "\n".join(lines)}


def data_pages() -> dict[str, str]:
    """The list of data sets, and a page for each."""
    from streamgauge.streams.datasets import data_set

    lines = ["# List of data sets", "", "[data.md](data.md) says how to get them.", ""]
    lines += ["| name | data set |", "|---|---|"]
    pages = {}
    for name in data_set.names():
        of = data_set.find(name)
        facts = data_set.describe(of, None)
        lines.append(f"| [`{name}`](data_sets/{name}.md) | {of.title} |")
        rows = [(key, facts[key]) for key in ("revision", "licence", "citation", "home", "forms")]
        for file in facts["files"]:
            size = "" if file["megabytes"] is None else f"{file['megabytes']} MB, "
            rows.append(("file", f"{file['urls'][0]} ({size}md5 {file['md5'] or '-'})"))
        pages[f"data_sets/{name}.md"] = "\n".join([
            f"# {name}", "", f"{of.title}. [data.md](../data.md) says how to get data sets.", "",
            "```", f"streamgauge data info {name}         # this page, and what is here", "```",
            "", "| | |", "|---|---|", *(f"| {key} | {_plain(str(value))} |" for key, value in rows),
            "",
        ])  # fmt: skip
    return {"data_sets.md": "\n".join([*lines, ""]), **pages}


def public_names() -> dict[str, list[str]]:
    """Package -> its public names: the `__all__` of the package and of packages directly below."""
    import streamgauge

    found = {"streamgauge": sorted(streamgauge.__all__, key=str.lower)}
    for module in pkgutil.iter_modules(streamgauge.__path__):
        if module.ispkg:
            package = importlib.import_module(f"streamgauge.{module.name}")
            if names := getattr(package, "__all__", ()):
                found[package.__name__] = sorted(names, key=str.lower)
    return found


def api_pages() -> dict[str, str]:
    """One page per package, with every public name."""
    return {
        f"api/{package}.md": _api_page(package, names) for package, names in public_names().items()
    }


def _api_page(package: str, names: list[str]) -> str:
    module = importlib.import_module(package)
    about = (inspect.getdoc(module) or "").partition("\n\n")[0]
    lines = [f"# {package}", "", about, ""]
    for name in names:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            lines += [f"::: {value.__module__}.{value.__qualname__}", "    options:"]
            lines += [f"      heading: {name}", f"      toc_label: {name}", ""]
            continue
        lines += [f"## {name}", ""]
        if inspect.ismodule(value):
            lines += [f"A package: see [{value.__name__}]({value.__name__}.md).", ""]
        else:
            shown = repr(value)
            lines += [
                "```python",
                f"{name} = {shown if len(shown) < 200 else type(value).__name__}",
                "```",
                "",
            ]
    return "\n".join(lines)


def configuration(staged: Path) -> dict[str, Any]:
    options = {
        "show_source": False,
        "show_root_heading": True,
        "separate_signature": True,
        "show_signature_annotations": True,
        "filters": ["!^_"],
        "heading_level": 2,
        "extensions": [str(DOCS / "doctest_fences.py")],
    }
    handler = {"paths": [str(ROOT / "src")], "inventories": [], "options": options}
    light = {"scheme": "default", "toggle": {"icon": "lucide/sun", "name": "Dark"}}
    dark = {"scheme": "slate", "toggle": {"icon": "lucide/moon", "name": "Light"}}
    return {
        "site_name": "Streamgauge",
        "docs_dir": staged.name,
        "site_dir": "site",
        "use_directory_urls": False,  # so that links work from disk
        "nav": navigation(staged),
        "theme": {
            "font": False,  # no font of a web service
            "features": ["navigation.sections", "navigation.top", "content.code.copy"],
            "palette": [light, dark],
        },
        "extra": {"generator": False},
        "markdown_extensions": [
            "tables",
            "attr_list",
            "md_in_html",
            {"toc": {"permalink": True}},
            "pymdownx.superfences",
            "pymdownx.highlight",
        ],
        "plugins": ["search", {"mkdocstrings": {"handlers": {"python": handler}}}],
    }


def build(folder: Path) -> Path:
    """The pages in FOLDER/docs, the site in FOLDER/site; gives its first page."""
    staged, site, config = folder / "docs", folder / "site", folder / "mkdocs.yml"
    folder.mkdir(parents=True, exist_ok=True)
    stage(staged)
    config.write_text(json.dumps(configuration(staged), indent=1))  # JSON is YAML
    shutil.rmtree(site, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--config-file", str(config)]
    subprocess.run(command, check=True)
    return site / "index.html"


if __name__ == "__main__":
    print(f"Site: {build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / 'build').resolve())}")
