"""The page in a browser: while a run grows and one is killed, in both themes, on a phone, by
keyboard; and the same page from disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from watching import Watched, wait_for, watched

from browser import Browser, needs_browser, rgb
from made_runs import MadeRun, finished, made_run
from streamgauge.pages.page import THEMES
from streamgauge.record import heartbeat as beats
from streamgauge.record.heartbeat import NAME, HeartbeatWriter
from streamgauge.view import follow
from streamgauge.view.bundle import write_bundle
from streamgauge.view.follow import RunFollower

pytestmark = [pytest.mark.browser, needs_browser]
EVIL = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>&amp;\u202e"quoted" \'it\''
LIST = "[...document.querySelectorAll('#list li')]"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        for name, share in (("er", 0.7), ("mir", 0.65), ("ncm", 0.4)):
            rate = {"er": 0.1, "mir": 0.01}.get(name)
            settings = {"lr": rate} if rate else {}
            finished(folder, learner=name, seed=seed, share=share, settings=settings)
    return folder


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[Watched]:
    with watched(runs) as made:
        while made.follower.pending():
            time.sleep(0.05)
        yield made


def see(browser: Browser, server: Watched | str, fragment: str = "") -> None:
    url = server if isinstance(server, str) else server.url
    browser.open(url, fragment, ready="watchReady")
    browser.wait("document.querySelectorAll('#content > *').length > 0")


def click(browser: Browser, selector: str) -> None:
    browser.run(f"document.querySelector({json.dumps(selector)}).click()")


def type_filter(browser: Browser, text: str) -> None:
    browser.run(
        f"(() => {{ const f = document.getElementById('filter'); f.value = {json.dumps(text)};"
        "f.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def drawn(browser: Browser) -> list[str]:
    """Names of the lines of the first plot that is drawn."""
    found: list[str] = browser.run(
        "(() => { const p = document.querySelector('.plot'); return p && p.data ? p.data.filter("
        "(t) => t.name && t.meta.role === 'line' && !t.yaxis).map((t) => t.name) : []; })()"
    )
    return found


def harmless(browser: Browser, server: Watched | None = None) -> None:
    assert browser.errors == []
    assert browser.run("window.hit === undefined && document.querySelectorAll('img').length === 0")
    if server is not None:
        assert browser.requests
        assert all(url.startswith(server.url) for url in browser.requests), browser.requests


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_tab_is_drawn_in_both_themes_and_asks_nobody_else(
    browser: Browser, server: Watched, scheme: str
) -> None:
    browser.theme(scheme)
    for tab, plots in (("board", 1), ("stream", 1), ("compare", 1), ("studies", 0), ("suites", 0)):
        see(browser, server, f"#tab={tab}")
        browser.wait(f"document.querySelectorAll('.plot .main-svg').length >= {plots}")
        selected = browser.run("document.querySelector('[aria-selected=true]').dataset.tab")
        assert selected == tab
        harmless(browser, server)
    colour = browser.run("getComputedStyle(document.body).backgroundColor")
    assert colour == rgb(THEMES[scheme]["paper"])
    browser.theme("light")


def test_the_list_has_every_run_with_its_state(browser: Browser, server: Watched) -> None:
    see(browser, server)
    assert browser.run(f"{LIST}.length") == 9
    assert browser.run(f"{LIST}.every((row) => row.className === 'done')")
    assert browser.run("document.querySelector('#counts').innerText.trim()") == "✓ 9 done"
    text = browser.run("document.querySelector('#list').innerText")
    assert [text.index(name) for name in ("er ", "mir ", "ncm ")] == sorted(
        text.index(name) for name in ("er ", "mir ", "ncm ")
    )


def test_a_filter_narrows_list_and_tabs_and_stands_in_the_address(
    browser: Browser, server: Watched
) -> None:
    see(browser, server, "#tab=stream")
    browser.wait("document.querySelectorAll('.plot .main-svg').length > 0")
    wait_for(lambda: drawn(browser) == ["er", "mir", "ncm"])
    type_filter(browser, "lr>0.05 seed<2")
    assert browser.run(f"{LIST}.length") == 2
    assert browser.run("document.getElementById('number').value") == "2 of 9"
    wait_for(lambda: drawn(browser) == ["er"])
    fragment = browser.run("location.hash")
    see(browser, server, fragment)
    assert browser.run("document.getElementById('filter').value") == "lr>0.05 seed<2"
    assert browser.run(f"{LIST}.length") == 2
    wait_for(lambda: drawn(browser) == ["er"])
    # A mistake is told, and the list stays.
    type_filter(browser, "lr>high")
    assert "needs a number" in browser.run("document.getElementById('problem').innerText")
    assert browser.run(f"{LIST}.length") == 2
    type_filter(browser, "")
    assert browser.run("document.getElementById('problem').hidden")
    assert browser.run(f"{LIST}.length") == 9
    # A click on a status, and on a run.
    click(browser, "#counts button:not([hidden])")
    assert browser.run("document.getElementById('filter').value") == "status:done"
    click(browser, "#list li button")
    browser.wait("document.getElementById('number').value === '1 of 9'")
    harmless(browser, server)


def test_tables_sort_and_the_bar_ticks_as_in_a_report(browser: Browser, server: Watched) -> None:
    see(browser, server)
    names = "[...document.querySelectorAll('.sortable tbody th')].map((th) => th.innerText.trim())"
    assert browser.run(names) == ["er", "mir", "ncm"]
    click(browser, ".sortable thead th:first-child button")
    click(browser, ".sortable thead th:first-child button")
    assert browser.run(names) == ["ncm", "mir", "er"]
    fragment = browser.run("location.hash")
    see(browser, server, fragment)
    assert browser.run(names) == ["ncm", "mir", "er"]
    click(browser, ".bar input[value=mir]")
    assert browser.run("document.querySelector('tr[data-learner=mir]').hidden")
    assert "show=" in browser.run("location.hash")
    harmless(browser, server)


def test_two_are_compared_as_chosen(browser: Browser, server: Watched) -> None:
    see(browser, server, "#tab=compare")
    text = "document.getElementById('content').innerText"
    assert "er is better than mir" in browser.run(text)
    browser.run(
        "(() => { const box = document.querySelector('#pick [name=b]'); box.value = 'ncm';"
        "box.dispatchEvent(new Event('change')); })()"
    )
    browser.wait(f"{text}.includes('er is better than ncm')")
    assert "b=ncm" in browser.run("location.hash")
    assert browser.run("document.querySelector('.plot').data.some((t) => t.name === 'ncm − er')")
    harmless(browser, server)


def test_everything_is_reached_by_keyboard(browser: Browser, server: Watched) -> None:
    see(browser, server)
    browser.run("document.querySelector('[role=tab][aria-selected=true]').focus()")
    for key, tab in (("ArrowRight", "stream"), ("End", "suites"), ("Home", "board"),
                     ("ArrowLeft", "suites"), ("ArrowRight", "board")):  # fmt: skip
        browser.press(key)
        assert browser.run("document.activeElement.dataset.tab") == tab
        assert browser.run("document.querySelector('[aria-selected=true]').dataset.tab") == tab
        assert browser.run("document.querySelectorAll('[role=tab][tabindex=\"0\"]').length") == 1
    wanted = browser.run(
        "[...document.querySelectorAll('button, input, select, summary, [role=tab]')].filter((e) =>"
        " e.tabIndex < 0 && e.getAttribute('role') !== 'tab' && !e.closest('[hidden]')).length"
    )
    assert wanted == 0
    unnamed = browser.run(
        "[...document.querySelectorAll('button, input, select, progress')].filter((e) =>"
        " !(e.textContent || e.ariaLabel || e.labels && e.labels.length)).map((e) => e.outerHTML)"
    )
    assert unnamed == []


def test_a_phone_has_no_sideways_scrolling(browser: Browser, server: Watched) -> None:
    browser.resize(360, 800)
    try:
        for tab in ("board", "stream", "compare"):
            see(browser, server, f"#tab={tab}")
            assert browser.run("document.documentElement.scrollWidth") <= 360
            assert not browser.run("document.getElementById('runs').open")
            width = browser.run("document.querySelector('.plot').clientWidth")
            assert width > 300
        click(browser, "#runs > summary")
        assert browser.run("document.querySelector('#list li').offsetWidth") > 200
    finally:
        browser.resize(1200, 900)


def test_hostile_names_are_texts(browser: Browser, tmp_path: Path) -> None:
    settings = {"policy": EVIL, EVIL: 3}
    for name in (EVIL, "er"):
        finished(tmp_path, learner=name, stream=EVIL, settings=settings)
    with made_run(tmp_path, learner=EVIL, seed=2, stream=EVIL, settings=settings) as run:
        run.go_on(30)
        (run.path / "failed.txt").write_text(EVIL)
        run.writer.close()
    study = tmp_path / "study <b>x"
    finished(study / "trials", learner=EVIL, trial={"study": EVIL, "number": 0})
    (study / "study.json").write_text(json.dumps({"name": EVIL, "choice": {EVIL: EVIL},
        "value": 0.5, "search": {EVIL: "1"}, "objective": EVIL, "ends": [EVIL]}))  # fmt: skip
    bad = finished(tmp_path, seed=7)
    (bad / "run.json").write_text(EVIL)
    with watched(tmp_path) as server:
        for tab in ("board", "stream", "compare", "studies"):
            see(browser, server, f"#tab={tab}")
            browser.wait("document.querySelectorAll('#content *').length > 3")
            time.sleep(0.2)
            harmless(browser, server)
            assert browser.run("document.body.innerText.includes('<img src=x')")
            assert not browser.run("document.body.innerText.includes('\\u202e')")
        type_filter(browser, EVIL)
        time.sleep(0.5)
        assert browser.run("window.hit === undefined")


def test_without_the_token_there_is_nothing_to_see(browser: Browser, runs: Path) -> None:
    token = "a-token-of-some-length"
    with watched(runs, token=token) as server:
        browser.open(server.url, ready="watchReady")
        assert not browser.run("document.getElementById('enter').hidden")
        assert browser.run("document.getElementById('connection').value") == "token needed"
        assert browser.run("document.querySelectorAll('#list li, #content > *').length") == 0
        enter = (
            "(() => {{ const f = document.getElementById('enter');"
            "f.elements.token.value = {}; f.requestSubmit(); }})()"
        )
        browser.run(enter.format(json.dumps("not-the-right-token")))
        time.sleep(0.3)
        assert not browser.run("document.getElementById('enter').hidden")
        browser.run(enter.format(json.dumps(token)))
        browser.wait(f"{LIST}.length === 9")
        assert browser.run("document.getElementById('enter').hidden")
        assert browser.run("!location.href.includes('token') && document.cookie === ''")
        assert not any(token in url for url in browser.requests)
        # A link with the token: it leaves the address at once, and never goes out in one.
        browser.run("sessionStorage.clear()")
        see(browser, server, f"#token={token}&tab=stream")
        assert browser.run("location.hash") == "#tab=stream"
        assert browser.run(f"{LIST}.length") == 9
        browser.run("sessionStorage.clear()")


def polls(browser: Browser, seconds: float) -> int:
    before = browser.run("watch.polls()")
    time.sleep(seconds)
    return int(browser.run("watch.polls()") - before)


def test_a_hidden_page_asks_less_often(browser: Browser, server: Watched) -> None:
    """Every 2 s while visible, every 30 s while hidden; here in a tenth of the time."""
    see(browser, server)
    assert browser.run("watch.every") == {"visible": 2000, "hidden": 30000}
    browser.run("Object.assign(watch.every, {visible: 200, hidden: 3000}); watch.go()")
    assert 3 <= polls(browser, 1.5) <= 8
    show = (
        "Object.defineProperty(document, 'visibilityState', {{value: '{}', configurable: true}});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    browser.run(show.format("hidden"))
    time.sleep(0.3)  # the question that was due
    assert polls(browser, 1.5) <= 1
    before = browser.run("watch.polls()")
    browser.run(show.format("visible"))
    assert browser.run("watch.polls()") == before + 1  # at once
    # What has not changed is not sent again.
    status = browser.run(
        "(async () => { const [[address, tag]] = watch.tags; return (await fetch(address,"
        " {headers: {'If-None-Match': tag}, cache: 'no-store'})).status; })()"
    )
    assert status == 304


def test_a_lost_server_is_told_and_found_again(browser: Browser, runs: Path) -> None:
    with watched(runs) as server:
        see(browser, server)
        assert browser.run("document.getElementById('connection').value") == "live"
        fail = "window.real = window.fetch; window.fetch = () => Promise.reject(new Error('gone'))"
        browser.run(f"{fail}; watch.go()")
        browser.wait("document.getElementById('connection').value === 'not connected'")
        assert browser.run(f"{LIST}.length") == 9  # what is known stays
        browser.run("window.fetch = window.real; watch.go()")
        browser.wait("document.getElementById('connection').value === 'live'")


def test_an_answer_that_does_not_come_is_asked_for_again(browser: Browser, runs: Path) -> None:
    with watched(runs) as server:
        wait_for(lambda: not server.follower.pending())
        wait_for(lambda: b"being computed" not in server.ask("/data/board").body)
        see(browser, server)
        tag = "watch.tags.get('data/alive?')"
        now = server.content.tag
        wait_for(lambda: browser.run(f"watch.go(); {tag}") == now("alive", {}))
        fail = "window.real = window.fetch; window.fetch = () => Promise.reject(new Error('gone'))"
        browser.run(fail)
        click(browser, "[data-tab=studies]")
        browser.wait("document.getElementById('connection').value === 'not connected'")
        browser.run("window.fetch = window.real; watch.go()")
        browser.wait("document.getElementById('content').innerText.includes('no study here')")


def test_a_late_answer_to_an_earlier_filter_is_not_shown(browser: Browser, server: Watched) -> None:
    see(browser, server)
    browser.run(
        "(() => { const real = window.fetch; window.sent = 0; window.late = 0;"
        "window.fetch = async (url, options) => { const of = url.endsWith('filter=learner%3Aer');"
        "window.sent += of; const answer = await real(url, options);"
        "if (of) { await new Promise((go) => { window.release = go; }); window.late += 1; }"
        "return answer; }; })()"
    )
    type_filter(browser, "learner:er")
    browser.wait("window.release !== undefined")
    type_filter(browser, "learner:ncm")
    learners = (
        "[...document.querySelectorAll('#content tr[data-learner]')].map((r) => r.dataset.learner)"
    )
    wait_for(lambda: browser.run(learners) == ["ncm"])
    browser.run("window.release()")
    browser.wait("window.late === 1")
    time.sleep(0.3)
    assert browser.run(learners) == ["ncm"]


def test_rows_stay_those_of_their_runs_when_a_run_comes_that_the_filter_leaves_out(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LOOK", 0.1)
    finished(tmp_path, learner="mir", share=0.9)
    with watched(tmp_path) as server:
        wait_for(lambda: not server.follower.pending())
        see(browser, server, "#filter=learner%3Amir")
        text = "document.querySelector('#list li .state').innerText"
        wait_for(lambda: browser.run(text).startswith("8") or browser.run(text).startswith("9"))
        before = browser.run(text)
        finished(tmp_path, learner="er", share=0.2)
        browser.wait("watch.known.runs.numbers.length === 2", 30)
        wait_for(lambda: not server.follower.pending())
        browser.run("watch.go()")
        time.sleep(0.5)
        assert browser.run(text) == before


class Growing:
    """A run that a test advances, with a heartbeat."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.run = MadeRun(folder, **options)
        self.facts = {"step": 0, "steps": self.run.steps, "right": 0, "asked": 0}
        self.beat = HeartbeatWriter(self.run.path, lambda: self.facts)

    def go_on(self, until: int) -> None:
        self.run.go_on(until)
        asked = until * self.run.batch
        self.facts |= {"step": until, "right": int(asked * self.run.share), "asked": asked}
        self.beat._beat()

    def end(self) -> None:
        (self.run.path / NAME).unlink()
        self.run.close()


def state(browser: Browser, name: str) -> str:
    found: str = browser.run(
        f"(() => {{ const run = watch.known.runs.columns.run; const all = run.values || [run.all];"
        f"const at = all.findIndex((each) => each.includes({json.dumps(name)}));"
        "return at < 0 ? '' : watch.known.alive[at].status; })()"
    )
    return found


def test_a_run_grows_and_ends(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LOOK", 0.1)
    for seed in (0, 1):
        finished(tmp_path, learner="er", seed=seed, share=0.9, steps=200)
    growing = Growing(tmp_path, learner="er", seed=2, share=0.3, steps=200)
    with watched(tmp_path) as server:
        growing.go_on(50)
        see(browser, server, "#tab=stream")
        browser.wait("document.querySelectorAll('#list li.running').length === 1")
        row = "document.querySelector('#list li.running')"
        browser.wait(f"{row}.innerText.includes('step 50 of 200')")
        assert browser.run(f"/\\d % right$/.test({row}.querySelector('.state').innerText)")
        assert browser.run(f"{row}.querySelector('progress').value") == 0.25
        plot = "document.querySelector('.plot').data"
        hollow = f"{plot}.filter((t) => t.meta.second && t.mode === 'lines')"
        browser.wait(f"document.querySelector('.plot').data && {hollow}.length === 1")
        before = browser.run(f"{hollow}[0].x.length")
        mean = "document.querySelector('.plot').data.find((t) => t.name === 'er').y.slice(-1)[0]"
        assert browser.run(mean) > 80  # of the two that are complete
        assert browser.run("document.querySelector('.plot').layout.xaxis.range[1]") == 2000
        heads = browser.run(
            "(() => { document.querySelector('[data-export] [aria-expanded]').click();"
            "return [...document.querySelectorAll('.numbers thead th')]"
            ".map((head) => head.textContent); })()"
        )
        assert sum(head.endswith("so far") for head in heads) == 1
        growing.go_on(120)
        browser.wait(f"{hollow}.length === 1 && {hollow}[0].x.length > {before}")
        assert browser.run(mean) > 80
        # On the leaderboard it is a ring, and in no mean.
        click(browser, "[data-tab=board]")
        browser.wait("document.querySelectorAll('#content .swatch.hollow').length === 1")
        text = "document.querySelector('#content .sortable').innerText"
        assert "running, stored up to step 120 of 200" in browser.run(text)
        assert "2\n+ 1 incomplete" in browser.run(text)
        before_board = float(browser.run("document.querySelector('td.number').dataset.value"))
        assert before_board > 0.8
        growing.go_on(200)
        growing.end()
        browser.wait("document.querySelectorAll('#list li.done').length === 3")
        browser.wait("document.querySelectorAll('#content .swatch.hollow').length === 0")
        after = float(browser.run("document.querySelector('td.number').dataset.value"))
        assert after == pytest.approx((2 * before_board + 0.3) / 3, abs=0.02)
        harmless(browser, server)


@pytest.mark.parametrize("fate", ["grows", "killed"])
def test_readers_work_while_a_run_goes_on(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    """Ticks, sorting, the address, exports, both themes, a phone, paper and keys, while one run
    grows or its process is gone."""
    monkeypatch.setattr(follow, "LOOK", 0.1)
    if fate == "killed":
        monkeypatch.setattr(follow, "STALLED", 0.5)
    for seed in (0, 1):
        for name, share in (("er", 0.9), (EVIL, 0.7)):
            finished(tmp_path, learner=name, seed=seed, share=share, steps=200)
    growing = Growing(tmp_path, learner="er", seed=2, share=0.3, steps=200)
    growing.go_on(50)
    status = "running" if fate == "grows" else "stalled"
    hollow = (
        "document.querySelector('.plot')?.data?.filter((t) => t.meta.second && t.mode === 'lines')"
    )

    def more() -> None:
        """What the run does meanwhile."""
        if fate == "grows" and growing.run.step < 190:
            growing.go_on(growing.run.step + 10)

    with watched(tmp_path) as server:
        for scheme in ("light", "dark"):
            browser.theme(scheme)
            see(browser, server, "#tab=stream")
            browser.wait(f"document.querySelectorAll('#list li.{status}').length === 1")
            browser.wait(f"{hollow}?.length === 1")
            paper = rgb(THEMES[scheme]["paper"])
            assert browser.run("getComputedStyle(document.body).backgroundColor") == paper
            drawn_on = browser.run("document.querySelector('.plot')._fullLayout.paper_bgcolor")
            assert drawn_on == THEMES[scheme]["paper"]
        harmless(browser, server)
        # A tick stays when new answers come, and stands in the address.
        browser.run(
            "[...document.querySelectorAll('.bar input[name=learner]')].find((box) =>"
            " box.value !== 'er').click()"
        )
        browser.wait(f"{hollow}?.length === 1 && watch.polls() > 0")
        before = browser.run(f"{hollow}[0].x.length")
        more()
        if fate == "grows":
            browser.wait(f"{hollow}?.length === 1 && {hollow}[0].x.length > {before}")
        wait_for(lambda: not any("img" in name for name in drawn(browser)))
        assert drawn(browser)[0] == "er"
        fragment = browser.run("location.hash")
        assert "show=er" in fragment
        see(browser, server, fragment)
        browser.wait(f"{hollow}?.length === 1")
        assert not any("img" in name for name in drawn(browser))
        # A figure as it is now, on white, and its numbers.
        browser.run(
            "window.saved = ''; HTMLAnchorElement.prototype.click = function () {"
            " saved = decodeURIComponent(this.href); }"
        )
        click(browser, "[data-export] button")
        browser.wait("saved.startsWith('data:image/svg+xml')")
        assert browser.run("saved.includes('rgb(255, 255, 255)')")
        click(browser, "[data-export] button:nth-of-type(2)")
        browser.wait("saved.startsWith('data:image/png')")
        click(browser, "[data-export] button:nth-of-type(3)")
        assert browser.run("document.querySelectorAll('.numbers tbody tr').length") > 10
        # On paper, then on a phone.
        more()
        assert len(browser.pdf()) > 10_000
        browser.resize(360, 800)
        browser.wait("document.querySelector('.plot')._fullLayout.width <= 360")
        assert browser.run("document.documentElement.scrollWidth") <= 360
        browser.resize(1200, 900)
        # The order of the leaderboard stays, too; keys reach the run that goes on.
        browser.theme("light")
        see(browser, server, "#tab=board")
        browser.wait("document.querySelectorAll('#content .sortable tbody th').length > 1")
        names = "[...document.querySelectorAll('#content tbody th')].map((th) => th.innerText)"
        for _ in range(2):
            browser.run("document.querySelector('.sortable thead button').focus()")
            browser.press("Enter", windowsVirtualKeyCode=13, text="\r")
        order = browser.run(names)
        assert len(order) == (3 if fate == "grows" else 2)
        polls_before = browser.run("watch.polls()")
        more()
        browser.wait(f"watch.polls() > {polls_before}")
        assert [name.split("\n")[0] for name in browser.run(names)] == [
            name.split("\n")[0] for name in order
        ]
        row = f"document.querySelector('#list li.{status}')"
        browser.run(f"{row}.querySelector('button').focus()")
        assert browser.run(f"document.activeElement.closest('li') === {row}")
        if fate == "killed":
            reason = browser.run(f"{row}.innerText")
            assert "No heartbeat for" in reason
            assert "Repeat the command to continue." in reason
        harmless(browser, server)


def test_a_run_that_goes_on_is_in_no_mean_of_a_comparison(browser: Browser, tmp_path: Path) -> None:
    for name, seeds in (("er", 3), ("mir", 2)):
        for seed in range(seeds):
            finished(tmp_path, learner=name, seed=seed, share=0.8)
    growing = Growing(tmp_path, learner="mir", seed=2, share=0.3)
    growing.go_on(40)
    with watched(tmp_path) as server:
        see(browser, server, "#tab=compare&a=er&b=mir")
        plot = "document.querySelector('.plot').data"
        browser.wait("document.querySelector('.plot')?.data?.length > 4")
        assert browser.run(f"{plot}.find((t) => t.name === 'mir').x.slice(-1)[0]") == 1000
        assert browser.run(f"Math.min(...{plot}.find((t) => t.name === 'mir').y)") > 50
        alone = f"{plot}.filter((t) => t.name === 'mir, seed 2, so far' && t.mode === 'lines')"
        assert browser.run(f"{alone}.length") == 1
        assert browser.run(f"Math.max(...{alone}[0].x)") == 400
        head = browser.run("document.querySelector('#content thead').innerText")
        assert "er (3 runs)" in head
        assert "mir (2 runs)" in head
        harmless(browser, server)


KILLED = """
import sys
import streamgauge as sg
from streamgauge.learners.base import Batch
stream = sg.stream("albums", length=2000)
def slow(loop):
    import time
    print(loop.step, flush=True)
    time.sleep(0.05)
sg.run(stream, "majority", out=sys.argv[1], checkpoint=0.2, progress=slow)
"""


@pytest.mark.long
def test_a_run_that_is_killed_stalls_and_one_that_fails_says_why(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LOOK", 0.1)
    monkeypatch.setattr(follow, "STALLED", 3 * beats.EVERY)
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "runs")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if int(line) > 8:
                break
        failing = Growing(tmp_path / "runs", learner="er", steps=100)
        failing.go_on(30)
        with watched(tmp_path / "runs") as server:
            see(browser, server)
            browser.wait("document.querySelectorAll('#list li.running').length === 2")
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            (failing.run.path / "failed.txt").write_text("er.py, line 3, in learn: it diverged.")
            failing.end()
            browser.wait("document.querySelectorAll('#list li.failed').length === 1")
            reason = browser.run("document.querySelector('#list li.failed').innerText")
            assert "it diverged" in reason
            browser.wait("document.querySelectorAll('#list li.stalled').length === 1")
            assert state(browser, "majority") == "stalled"
            reason = browser.run("document.querySelector('#list li.stalled').innerText")
            assert "No heartbeat for" in reason
            assert "ended without a word" in reason
            counts = browser.run("document.getElementById('counts').innerText")
            assert "1 stalled" in counts
            assert "1 failed" in counts
            browser.wait("document.getElementById('content').innerText.includes('is incomplete')")
            harmless(browser, server)
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def test_a_bundle_is_the_same_page_from_disk(browser: Browser, runs: Path, tmp_path: Path) -> None:
    page = write_bundle(RunFollower([runs]), tmp_path / "out")
    for tab in ("board", "stream", "compare"):
        see(browser, page.as_uri(), f"#tab={tab}")
        browser.wait("document.querySelectorAll('.plot .main-svg').length > 0")
        assert browser.errors == []
        assert all(url.startswith(page.parent.as_uri()) for url in browser.requests)
    assert browser.run(f"{LIST}.length") == 9
    assert "Written at" in browser.run("document.getElementById('when').innerText")
    browser.run(
        "(() => { const box = document.querySelector('#pick [name=b]'); box.value = 'ncm';"
        "box.dispatchEvent(new Event('change')); })()"
    )
    browser.wait("document.getElementById('content').innerText.includes('er is better than ncm')")
    type_filter(browser, "learner:ncm")
    assert browser.run(f"{LIST}.length") == 3
    browser.resize(360, 800)
    see(browser, page.as_uri())
    assert browser.run("document.documentElement.scrollWidth") <= 360
    browser.resize(1200, 900)


def test_a_bundle_on_a_web_server_needs_no_inline_script(
    browser: Browser, runs: Path, tmp_path: Path
) -> None:
    page = write_bundle(RunFollower([runs]), tmp_path / "out")
    assert "Content-Security-Policy" in page.read_text()
    assert "<script>" not in page.read_text()
    small = write_bundle(RunFollower([runs]), tmp_path / "out", filter_text="learner:er")
    assert small == page
    see(browser, page.as_uri())
    assert browser.run(f"{LIST}.length") == 3
    data = {file.name for file in (tmp_path / "out/data").iterdir()}
    named = json.loads(
        (tmp_path / "out/assets/themes.js").read_text().rpartition("bundle = ")[2].strip(" ;\n")
    )
    assert set(named.values()) == data  # nothing of the first one is left


@pytest.mark.long
def test_the_ledger_alone(browser: Browser, tmp_path: Path) -> None:
    page = write_bundle(RunFollower([]), tmp_path / "out", ledger=True)
    see(browser, page.as_uri())
    browser.wait("document.querySelectorAll('.plot .main-svg').length > 2")
    text = browser.run("document.body.innerText")
    assert "Claims of the papers" in text
    assert "survey-cifar100" in text
    assert browser.errors == []
    assert not browser.run("document.querySelector('aside').offsetWidth")
