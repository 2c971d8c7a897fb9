"""The documentation site: every page is in the navigation, and every public name in the API."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

import streamgauge as sg

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "docs" / "build_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def staged(site: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    site.stage(folder)
    return folder


def test_every_page_is_in_the_navigation_once(site: ModuleType, staged: Path) -> None:
    listed = [
        page for entry in site.navigation(staged) for pages in entry.values() for page in pages
    ]
    pages = {path.relative_to(staged).as_posix() for path in staged.rglob("*.md")}
    assert sorted(listed) == sorted(pages)
    assert len(listed) > 100


def test_every_public_name_has_a_heading(site: ModuleType, staged: Path) -> None:
    names = site.public_names()
    assert set(names["streamgauge"]) == set(sg.__all__)
    assert {"streamgauge.metrics", "streamgauge.report", "streamgauge.record"} <= set(names)
    for package, public in names.items():
        page = (staged / "api" / f"{package}.md").read_text()
        headings = re.findall(r"(?m)^(?:## |      heading: )(\w+)$", page)
        assert headings == public


def test_every_command_and_suite_has_its_page(staged: Path) -> None:
    commands = (staged / "commands.md").read_text()
    for command in ("run", "compare", "power", "audit", "suite table", "data list"):
        assert f"\n## streamgauge {command}\n" in commands
    assert "survey-cifar100" in {page.stem for page in (staged / "suites").iterdir()}
    assert str(ROOT) not in commands
    assert str(Path.home()) not in commands


def test_what_published_codes_do_differently_is_on_one_page(staged: Path) -> None:
    page = (staged / "published_code.md").read_text()
    assert page.count("\n## ") == 4  # one per published code
    for method in ("scr", "mir", "gss", "slda", "adrep", "rwalk"):
        assert f"| [`{method}`](methods/{method}.md) | " in page
    assert "has no factor T^2" in page


def test_every_method_metric_and_data_set_has_its_page(staged: Path) -> None:
    from streamgauge.catalogue import names
    from streamgauge.metrics import summary
    from streamgauge.streams.datasets import data_set

    def pages(folder: str) -> set[str]:
        return {page.stem for page in (staged / folder).iterdir()}

    assert pages("methods") >= set(names("learners"))
    assert pages("metrics") == set(summary.names())
    assert pages("data_sets") == set(data_set.names())
    assert "Source: Ghunaim" in (staged / "metrics" / "online_accuracy.md").read_text()
    cifar = (staged / "data_sets" / "cifar10.md").read_text()
    assert "| licence |" in cifar
    assert str(Path.home()) not in cifar  # nothing of the machine that built it


def test_links_between_pages_of_the_site_lead_somewhere(staged: Path) -> None:
    for page in staged.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(staged)}: {target}"


@pytest.mark.long
def test_the_site_is_built_and_loads_nothing_from_the_network(
    site: ModuleType, tmp_path: Path
) -> None:
    pytest.importorskip("zensical")
    pytest.importorskip("mkdocstrings")
    index = site.build(tmp_path)
    assert "believed" in index.read_text()
    pages = list(index.parent.rglob("*.html"))
    markdown = list((tmp_path / "docs").rglob("*.md"))
    assert {page.relative_to(index.parent).with_suffix("") for page in pages} >= {
        page.relative_to(tmp_path / "docs").with_suffix("") for page in markdown
    }
    for page in pages:
        text = page.read_text()
        loads = re.findall(r"<(?:script|img|iframe|source)[^>]*?src=\"?([^\" >]+)", text)
        loads += re.findall(r"<link[^>]*?href=\"?([^\" >]+)", text)
        assert not [target for target in loads if re.match(r"(https?:)?//", target)]
        for target in loads:
            path = unquote(target.partition("?")[0].partition("#")[0])
            if path and not path.startswith("data:") and page.name != "404.html":
                assert (page.parent / path).exists(), f"{page}: {target}"
    api = (index.parent / "api" / "streamgauge.html").read_text()
    assert "Compare the runs of two learners" in api
    assert ":::" not in api
    assert 'id="streamgauge.report.scores.compare"' in api
    words = re.sub(r"<[^>]+>", "", api)
    assert re.search(r"compare\(\s*a: Runs", words)  # its signature
    assert "<blockquote>" not in api  # examples are code
