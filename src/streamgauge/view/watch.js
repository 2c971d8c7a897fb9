"use strict";
// The page of `streamgauge view`: the list of runs, the tabs, and asking for what has changed.
// In a bundle, `bundle` names the files that stand for the server's answers.
const watch = (() => {
  const every = { visible: 2000, hidden: 30000 }; // milliseconds between two questions
  const MOST = 300; // runs in the list
  const TITLES = { board: "Leaderboard", stream: "Along the stream", compare: "Compare two",
    studies: "Studies", suites: "Suites", ledger: "Ledger" };
  const SIGNS = { running: "▶", done: "✓", stalled: "‖", failed: "✕", stopped: "■" };
  const at = (id) => document.getElementById(id);
  const known = { runs: null, alive: null, counts: {} }; // what the server said last
  const shown = { html: [], key: "" };
  const tags = new Map(); // ETags by address
  let token = "", timer = 0, polls = 0, changed = "", asking = false, again = false;
  let pending = false; // whether the server will have newer content soon

  // What the reader chose stands in the address; view.js keeps its own part there, too.
  const chosen = (name) => new URLSearchParams(location.hash.slice(1)).get(name) || "";
  function choose(values) {
    const given = new URLSearchParams(location.hash.slice(1));
    Object.entries(values).forEach(([name, value]) => {
      if (value) given.set(name, value);
      else given.delete(name);
    });
    const text = given.toString();
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  }
  const tab = () => {
    const tabs = known.runs ? known.runs.tabs : ["board"];
    return tabs.includes(chosen("tab")) ? chosen("tab") : tabs[0];
  };

  // A token stays in this tab of the browser, and out of the address.
  function takeToken() {
    const given = chosen("token");
    if (given) {
      sessionStorage.setItem("token", given);
      choose({ token: "" });
    }
    token = sessionStorage.getItem("token") || "";
  }

  const files = new Map();
  function file(name) {
    if (!files.has(name)) {
      files.set(name, new Promise((done, failed) => {
        const script = document.createElement("script");
        script.src = `data/${name}`;
        script.onload = () => done(window.given[name]);
        script.onerror = () => failed(new Error(`The file data/${name} is missing.`));
        document.head.append(script);
      }));
    }
    return files.get(name);
  }

  class Refusal extends Error {}

  // The answer, or null where it is what it was.
  async function ask(name, options = {}) {
    if (bundle) {
      const key = name === "compare" && options.a ? `compare ${options.a} | ${options.b}` : name;
      return bundle[key] ? file(bundle[key]) : { html: "<p class=\"note\">This pair is not in the bundle:"
        + " it has learners of one stream, and <code>streamgauge view</code> compares any two.</p>",
      figures: [], names: { learners: [], coloured: [], grey: [] }, choices: null };
    }
    const address = `data/${name}?${new URLSearchParams(options)}`;
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    if (tags.has(address)) headers["If-None-Match"] = tags.get(address);
    const answer = await fetch(address, { headers, cache: "no-store" });
    if (name === tab()) pending = answer.headers.has("Retry-After");
    if (answer.status === 304) return null;
    const content = await answer.json();
    at("enter").hidden = answer.status !== 401;
    if (!answer.ok) throw new Refusal(content.error);
    tags.set(address, answer.headers.get("ETag"));
    return content;
  }

  // Columns of facts.
  function value(run, name) {
    const column = known.runs.columns[name];
    if (column) return "all" in column ? column.all : column.values[column.of[run]];
    const alive = known.alive[run];
    if (name === "status") return alive.status;
    if (name === "online") return alive.online;
    if (name === "progress") return alive.steps ? alive.step / alive.steps : null;
    return null;
  }

  function matching() {
    const count = known.runs.numbers.length;
    const names = [...Object.keys(known.runs.columns), "status", "online", "progress"];
    const terms = filter.parse(chosen("filter"), names);
    return [...Array(count).keys()].filter((run) => filter.matches(terms, (name) => value(run, name)));
  }

  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  function duration(seconds) {
    if (seconds < 100) return `${seconds} s`;
    const minutes = Math.round(seconds / 60);
    return minutes < 100 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  }

  function made(tag, text, more = {}) {
    const element = Object.assign(document.createElement(tag), more);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  // The list: built anew where runs come or go, else only its numbers change.
  const rows = new Map();
  let listed = "";
  function list() {
    let runs;
    try {
      runs = matching();
      at("problem").hidden = true;
    } catch (error) {
      at("problem").textContent = error.message;
      at("problem").hidden = false;
      return;
    }
    const total = known.runs.numbers.length;
    at("number").value = runs.length === total ? `${total}` : `${runs.length} of ${total}`;
    const order = (a, b) => ["stream", "study", "learner", "trial", "seed", "run"].reduce((found, name) =>
      found || String(value(a, name) ?? "").localeCompare(String(value(b, name) ?? ""), "en", { numeric: true }), 0);
    runs.sort(order);
    const key = runs.map((run) => [run, known.runs.numbers[run]]).join();
    if (key !== listed) {
      listed = key;
      build(runs);
    }
    rows.forEach((row, run) => fill(row, run));
    all("#list details").forEach((group) => {
      const states = [...group.querySelectorAll("li")].map((row) => row.className);
      const parts = Object.keys(SIGNS).map((status) => [status, states.filter((s) => s === status).length]);
      group.querySelector("summary small").textContent = parts.filter(([, n]) => n)
        .map(([status, n]) => `${n} ${status}`).join(", ");
    });
  }
  const { all } = view;

  const groupOf = (run) => ["stream", "study", "learner"].map((name) => value(run, name)).join(" / ");
  const short = (of) => (typeof of === "number" ? Number(of.toPrecision(3)) : of);

  // The settings of a learner in which some of its runs differ, a few of them.
  function settings(runs) {
    const own = (name) => !/^(stream|protocol)\.|^(run|stream|learner|seed|device|study|trial)$/.test(name);
    return Object.entries(known.runs.columns).filter(([name, column]) => own(name) && "of" in column
      && new Set(runs.map((run) => column.of[run])).size > 1).map(([name]) => name).slice(0, 3);
  }

  function build(runs) {
    const closed = new Set(all("#list details:not([open])").map((group) => group.dataset.group));
    rows.clear();
    const found = [];
    let stream = null, learner = null, items = null;
    const groups = new Map();
    runs.forEach((run) => {
      const key = groupOf(run);
      groups.set(key, [...(groups.get(key) || []), run]);
    });
    const differing = new Map([...groups].map(([key, of]) => [key, settings(of)]));
    runs.slice(0, MOST).forEach((run) => {
      if (value(run, "stream") !== stream) {
        stream = value(run, "stream");
        found.push(made("h2", stream));
      }
      const key = groupOf(run);
      if (key !== learner) {
        learner = key;
        const group = made("details", undefined, { open: !closed.has(key) });
        group.dataset.group = key;
        const study = value(run, "study");
        const summary = made("summary", `${value(run, "learner")}${study ? `, study ${study}` : ""} `);
        summary.append(made("small", ""));
        items = made("ul");
        group.append(summary, items);
        found.push(group);
      }
      const trial = value(run, "trial");
      const parts = [trial === null ? `seed ${value(run, "seed")}` : `trial ${trial}`,
        ...differing.get(key).map((each) => `${each} ${short(value(run, each))}`)];
      const row = made("li"), name = made("button", parts.join(", "), { type: "button" });
      name.title = value(run, "run");
      name.addEventListener("click", () => setFilter(`run:"${value(run, "run")}"`));
      row.append(made("span", "", { className: "sign" }), name, made("span", "", { className: "state" }),
        made("progress", undefined, { max: 1 }), made("small", ""));
      rows.set(run, row);
      items.append(row);
    });
    if (runs.length > MOST) found.push(made("p", `${runs.length - MOST} more: filter to see them.`, { className: "note" }));
    if (!runs.length) found.push(made("p", known.runs.numbers.length ? "No run matches." : "There is no run yet.", { className: "note" }));
    at("list").replaceChildren(...found);
  }

  function fill(row, run) {
    const alive = known.alive[run];
    const [sign, name, state, progress, reason] = row.children;
    row.className = alive.status;
    sign.textContent = SIGNS[alive.status];
    sign.title = alive.status;
    const online = alive.online === null ? "" : `${percent(alive.online)} right`;
    const parts = alive.status === "done" ? [online] : [alive.status, online];
    state.textContent = parts.filter(Boolean).join(", ");
    name.setAttribute("aria-label", `${value(run, "learner")}, ${name.textContent}: ${alive.status}`);
    progress.hidden = alive.status === "done" || !alive.steps;
    if (!progress.hidden) progress.value = alive.step / alive.steps;
    progress.setAttribute("aria-label", "progress");
    const texts = [];
    if (alive.status !== "done") {
      const steps = alive.steps ? ` of ${alive.steps.toLocaleString("en")}` : "";
      texts.push(`step ${alive.step.toLocaleString("en")}${steps}`);
      if (alive.left !== null) texts.push(`${duration(alive.left)} left`);
      Object.entries(alive.more || {}).forEach(([key, number]) => {
        texts.push(`${key} ${Number(number.toPrecision(3))}`);
      });
    }
    reason.textContent = [texts.join(", "), alive.reason].filter(Boolean).join(". ");
    reason.hidden = reason.textContent === "";
  }

  function counts() {
    const pressed = chosen("filter");
    const old = all("#counts button");
    Object.entries(known.counts).forEach(([status, count], number) => {
      const button = old[number] || made("button", "", { type: "button" });
      button.textContent = `${SIGNS[status]} ${count} ${status}`;
      button.hidden = count === 0;
      button.setAttribute("aria-pressed", String(pressed === `status:${status}`));
      if (!old[number]) {
        button.addEventListener("click", () =>
          setFilter(chosen("filter") === `status:${status}` ? "" : `status:${status}`));
        at("counts").append(button);
      }
    });
  }

  let typing = 0;
  function setFilter(text) {
    at("filter").value = text;
    choose({ filter: text });
    if (known.runs) { list(); counts(); }
    clearTimeout(typing);
    typing = setTimeout(() => content().catch(complain), 300);
  }

  // Tabs.
  function tabs() {
    const names = known.runs.tabs;
    if (all("#tabs [role=tab]").map((button) => button.dataset.tab).join() !== names.join()) {
      at("tabs").replaceChildren(...names.map((name) => {
        const button = made("button", TITLES[name], { type: "button" });
        button.setAttribute("role", "tab");
        button.setAttribute("aria-controls", "content");
        button.dataset.tab = name;
        button.addEventListener("click", () => select(name));
        return button;
      }));
    }
    all("#tabs [role=tab]").forEach((button) => {
      const selected = button.dataset.tab === tab();
      button.setAttribute("aria-selected", String(selected));
      button.tabIndex = selected ? 0 : -1;
    });
    at("pick").hidden = tab() !== "compare";
    // The ledger alone: there is nothing to list and nothing to choose.
    document.body.classList.toggle("alone", names.join() === "ledger");
    at("title").hidden = names.join() !== "ledger";
  }

  function select(name) {
    choose({ tab: name === known.runs.tabs[0] ? "" : name });
    tabs();
    content().catch(complain);
  }

  function pick(choices) {
    if (!choices) return;
    ["a", "b"].forEach((name, number) => {
      const box = document.querySelector(`#pick [name=${name}]`);
      const now = [...box.options].map((option) => option.value);
      if (now.join("\n") !== choices.join("\n")) {
        box.replaceChildren(...choices.map((choice) => new Option(choice)));
      }
      const wanted = chosen(name);
      box.value = choices.includes(wanted) ? wanted
        : choices[Math.min(number, choices.length - 1)] || "";
    });
  }

  function wanted() {
    const name = tab();
    const options = name === "ledger" ? {} : { filter: chosen("filter") };
    if (name === "compare") Object.assign(options, { a: chosen("a"), b: chosen("b") });
    return { name, options, key: JSON.stringify([name, options]) };
  }

  // The content of the tab: of what the answer has, only what differs is replaced.
  async function content() {
    const { name, options, key } = wanted();
    if (key !== shown.key) tags.delete(`data/${name}?${new URLSearchParams(options)}`);
    let answer;
    try {
      answer = await ask(name, options);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (key !== wanted().key) return; // another filter was typed meanwhile
      at("problem").textContent = error.message;
      at("problem").hidden = false;
    }
    if (!answer || key !== wanted().key) return;
    await put(answer, key);
    if (name === "compare") pick(answer.choices);
  }

  async function put(answer, key) {
    const holder = document.createElement("template");
    holder.innerHTML = answer.html;
    const parts = [...holder.content.children];
    const texts = parts.map((part) => part.outerHTML);
    const place = at("content"), same = key === shown.key && texts.length === shown.html.length;
    Object.assign(names, answer.names);
    const opened = new Set(all("details[open] > summary", place).map((each) => each.textContent));
    const fresh = [];
    const replaced = (old, part) => {
      if (window.Plotly) all(".plot", old).forEach((plot) => window.Plotly.purge(plot));
      old.replaceWith(part);
      fresh.push(part);
    };
    if (same) {
      // Some of its parts may be the reader's copies of numbers; only sections of the page count.
      const old = [...place.children];
      texts.forEach((text, number) => {
        if (text !== shown.html[number]) replaced(old[number], parts[number]);
      });
    } else {
      if (window.Plotly) all(".plot", place).forEach((plot) => window.Plotly.purge(plot));
      place.replaceChildren(...parts);
      fresh.push(...parts);
    }
    fresh.forEach((part) => all("summary", part).forEach((each) => {
      if (same && opened.has(each.textContent)) each.parentElement.open = true;
    }));
    Object.assign(shown, { html: texts, key });
    at("title").textContent = answer.title;
    document.title = `${answer.title || TITLES[tab()]} – Streamgauge view`;
    view.mount(fresh);
    const drawing = plots.show(answer.figures, fresh);
    view.apply();
    await drawing;
  }

  // Asking.
  function connection(text, lost = false) {
    at("connection").value = text;
    at("connection").classList.toggle("lost", lost);
  }
  function complain(error) {
    tags.clear(); // what did not come is asked for again
    changed = "";
    if (error instanceof Refusal) {
      connection(at("enter").hidden ? "refused" : "token needed", true);
      at("problem").textContent = error.message;
      at("problem").hidden = false;
    } else {
      connection("not connected", true);
      at("connection").title = error.message;
    }
  }

  async function poll() {
    const runsBefore = known.runs;
    const alive = await ask("alive");
    if (alive) {
      const facts = alive.changed.facts;
      if (!known.runs || facts !== known.facts) {
        const runs = await ask("runs");
        if (runs) Object.assign(known, { runs, alive: runs.alive });
        known.facts = facts;
      }
      const numbers = new Map(known.runs.numbers.map((number, run) => [String(number), run]));
      // What is no longer among those that move is complete: its facts have changed, and came.
      Object.entries(alive.runs).forEach(([number, of]) => {
        if (numbers.has(number)) known.alive[numbers.get(number)] = of;
      });
      known.counts = alive.counts;
      at("when").textContent = known.runs.made ? `Written at ${known.runs.made}.`
        : alive.uncounted ? `${alive.uncounted} parts of logs are still to be read.` : "";
      list();
      counts();
      tabs();
      const now = JSON.stringify([alive.changed.facts, alive.changed.status, alive.changed.log, alive.changed.studies]);
      if (now !== changed || known.runs !== runsBefore) {
        changed = now;
        await content();
      }
    } else if (shown.key === "" || pending) await content();
    connection(bundle ? "" : "live");
  }

  async function go() {
    clearTimeout(timer);
    if (asking) { again = true; return; }
    asking = true;
    try {
      polls += 1;
      await poll();
      window.watchReady = true;
    } catch (error) {
      complain(error);
      window.watchReady = true;
    }
    asking = false;
    if (bundle) return;
    timer = setTimeout(go, again ? 0 : every[document.visibilityState] || every.hidden);
    again = false;
  }

  function connect() {
    at("filter").value = chosen("filter");
    at("filter").addEventListener("input", ({ target }) => setFilter(target.value));
    all("#pick select").forEach((box) => box.addEventListener("change", () => {
      const [a, b] = all("#pick select").map((each) => each.value);
      choose({ a, b });
      content().catch(complain);
    }));
    at("tabs").addEventListener("keydown", (event) => {
      const buttons = all("#tabs [role=tab]"), now = buttons.indexOf(document.activeElement);
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const next = event.key === "Home" ? 0 : event.key === "End" ? buttons.length - 1
        : move === undefined ? -1 : (now + move + buttons.length) % buttons.length;
      if (now < 0 || next < 0) return;
      event.preventDefault();
      buttons[next].focus();
      select(buttons[next].dataset.tab);
    });
    at("enter").addEventListener("submit", (event) => {
      event.preventDefault();
      token = event.target.elements.token.value;
      sessionStorage.setItem("token", token);
      event.target.reset();
      at("problem").hidden = true;
      go();
    });
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") go();
    });
    window.addEventListener("hashchange", () => {
      takeToken();
      at("filter").value = chosen("filter");
      if (known.runs) { list(); counts(); tabs(); content().catch(complain); }
    });
    if (matchMedia("(max-width: 900px)").matches) at("runs").open = false;
  }

  takeToken();
  connect();
  go();
  return { known, shown, every, go, polls: () => polls, tags };
})();
