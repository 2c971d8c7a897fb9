"use strict";
// What the reader chose, kept in the address; the bar, tables that sort, and copies of them.
const view = (() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  let bar = null, boxes = [], tables = [];
  const field = (name) => bar && bar.querySelector(`[name=${name}]`);
  const state = { show: null, base: "", window: 5, seeds: false, board: "", sort: "" };
  const listeners = [];

  // An address that was cut or typed may hold a name that cannot be decoded.
  const decoded = (name) => { try { return decodeURIComponent(name); } catch { return name; } };

  // The part of the address behind "#" works from disk and can be sent.
  function read() {
    const given = new URLSearchParams(location.hash.slice(1));
    const shown = given.get("show");
    state.show = shown === null ? null : new Set(shown.split(",").map(decoded));
    state.base = names.learners.includes(given.get("base")) ? given.get("base") : "";
    const width = Number(given.get("window"));
    state.window = width >= 1 && width <= 25 ? width : 5;
    state.seeds = given.get("seeds") === "1";
    state.board = given.get("board") || "";
    state.sort = given.get("sort") || "";
  }

  function write() {
    const given = new URLSearchParams(location.hash.slice(1));
    Object.keys(state).forEach((name) => given.delete(name));
    if (state.show) given.set("show", [...state.show].map(encodeURIComponent).join(","));
    if (state.base) given.set("base", state.base);
    if (state.window !== 5) given.set("window", state.window);
    if (state.seeds) given.set("seeds", 1);
    if (state.board) given.set("board", state.board);
    if (state.sort) given.set("sort", state.sort);
    const text = given.toString();
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  }

  const shown = (key) => !state.show || !names.learners.includes(key) || state.show.has(key);

  function apply() {
    if (bar) {
      boxes.forEach((box) => { box.checked = shown(box.value); });
      const count = boxes.filter((box) => box.checked).length;
      field("count").value = `${count} of ${boxes.length}`;
      if (field("baseline")) field("baseline").value = state.base || names.learners[0];
      if (field("window")) {
        field("window").value = state.window;
        field("width").value = `${state.window} % of the stream`;
        field("seeds").checked = state.seeds;
      }
      field("board").value = state.board;
    }
    all("[data-learner]").forEach((row) => { row.hidden = !shown(row.dataset.learner); });
    all("[data-board]").forEach((section) => {
      section.hidden = state.board !== "" && section.dataset.board !== state.board;
    });
    listeners.forEach((listener) => listener());
  }

  function changed() { write(); apply(); }

  function connect() {
    const boards = all("[data-board]").map((section) => section.dataset.board);
    bar.hidden = false;
    if (boards.length > 1) {
      field("board").append(new Option("all", ""), ...boards.map((title) => new Option(title)));
      bar.querySelector(".board").hidden = false;
    }
    const tick = (keys) => {
      state.show = keys.length === boxes.length ? null : new Set(keys);
      changed();
    };
    const shown = () => boxes.filter((box) => !box.closest("li").hidden);
    bar.addEventListener("change", ({ target }) => {
      if (target.name === "learner") tick(boxes.filter((b) => b.checked).map((b) => b.value));
      if (target.name === "baseline") state.base = target.value;
      if (target.name === "seeds") state.seeds = target.checked;
      if (target.name === "board") state.board = target.value;
      if (["baseline", "seeds", "board"].includes(target.name)) changed();
    });
    bar.addEventListener("input", ({ target }) => {
      if (target.name === "window") { state.window = Number(target.value); changed(); }
      if (target.name === "search") {
        const text = target.value.toLowerCase();
        boxes.forEach((box) => {
          const item = box.closest("li");
          item.hidden = !item.textContent.toLowerCase().includes(text);
        });
      }
    });
    // Those that the search leaves; the others keep their ticks.
    const set = (ticked) => {
      shown().forEach((box) => { box.checked = ticked; });
      tick(boxes.filter((box) => box.checked).map((box) => box.value));
    };
    field("all").addEventListener("click", () => set(true));
    field("none").addEventListener("click", () => set(false));
    const menu = bar.querySelector(".menu");
    menu.addEventListener("keydown", ({ key }) => {
      if (key === "Escape") { menu.open = false; menu.querySelector("summary").focus(); }
    });
  }

  // Tables.
  const text = (cell) => {
    const copy = cell.cloneNode(true);
    all("svg, small, .swatch", copy).forEach((part) => part.remove());
    return copy.textContent.trim().replace(/\s+/g, " ");
  };

  function sort(table, column, down) {
    const body = table.tBodies[0];
    const value = (row) => {
      const cell = row.cells[column];
      if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
      const plain = text(cell), number = Number(plain.replace(/,|\s?%$/g, "").replace("−", "-"));
      return plain === "" || Number.isNaN(number) ? plain : number;
    };
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (typeof x === "number" && typeof y === "number") return x - y;
      if (typeof x !== typeof y) return typeof x === "number" ? 1 : -1;
      return x.localeCompare(y, undefined, { numeric: true });
    };
    const rows = [...body.rows].sort((a, b) => (down ? order(b, a) : order(a, b)));
    body.append(...rows);
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      if (at === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  function sortable(table) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = head.querySelector("button"); // a column of names may have none
      if (button) button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "descending" ? false
          : head.getAttribute("aria-sort") === "ascending" || column > 0;
        state.sort = `${tables.indexOf(table)}.${column}.${down ? "down" : "up"}`;
        sort(table, column, down);
        write();
      });
    });
  }

  function sortAsAsked() {
    const [number, column, way] = state.sort.split(".");
    const table = tables[Number(number)];
    if (state.sort && table && table.tHead.rows[0].cells[Number(column)]) {
      sort(table, Number(column), way === "down");
    }
  }

  // What LaTeX reads as a command.
  const latex = (cell) => cell.replace(/[\\&%$#_{}~^]/g, (sign) => ({
    "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}",
  }[sign] || `\\${sign}`)).replace(/±/g, "$\\pm$").replace(/–/g, "--");
  const formats = {
    CSV: (rows) => rows.map((row) => row.map((cell) =>
      (/[",\n]/.test(cell) ? `"${cell.replace(/"/g, '""')}"` : cell)).join(",")).join("\n"),
    LaTeX: (rows) => [
      `\\begin{tabular}{l${"r".repeat(rows[0].length - 1)}}`, "\\hline",
      ...rows.map((row, at) => `${row.map(latex).join(" & ")} \\\\${at ? "" : " \\hline"}`),
      "\\hline", "\\end{tabular}"].join("\n"),
    Markdown: (rows) => [rows[0], rows[0].map((_, at) => (at ? "--:" : ":--")), ...rows.slice(1)]
      .map((row) => `| ${row.map((cell) => cell.replace(/[\\|]/g, "\\$&")).join(" | ")} |`)
      .join("\n"),
  };

  // A text that is selected, so that it can be copied where the clipboard is closed to pages.
  function show(tools, content, done) {
    let area = tools.querySelector("textarea");
    if (!area) {
      area = document.createElement("textarea");
      area.readOnly = true;
      area.rows = 6;
      area.setAttribute("aria-label", "to be copied");
      tools.append(area);
    }
    area.value = content;
    area.focus();
    area.select();
    if (navigator.clipboard) navigator.clipboard.writeText(content).then(done, () => {});
  }

  function copyable(tools, rows) {
    all("button", tools).forEach((button) => button.addEventListener("click", () =>
      show(tools, formats[button.textContent](rows()), () => {
        button.dataset.done = "copied";
        setTimeout(() => delete button.dataset.done, 1500);
      })));
  }

  // Take up elements that are new: all of them, or those below some that were put into the page.
  function mount(roots = [document]) {
    const added = (selector) => roots.flatMap((root) =>
      [...(root.matches && root.matches(selector) ? [root] : []), ...all(selector, root)]);
    tables = all("table.sortable");
    added("table.sortable").forEach(sortable);
    added("[data-copy]").forEach((tools) => {
      const table = tools.previousElementSibling.querySelector("table");
      copyable(tools, () => [...table.rows].filter((row) => !row.hidden)
        .map((row) => [...row.cells].map(text)));
    });
    read();
    const bars = added(".bar");
    bar = document.querySelector(".bar");
    boxes = bar ? all("[name=learner]", bar) : [];
    if (bars.length) connect();
    sortAsAsked();
  }

  mount();
  document.addEventListener("click", ({ target }) => {
    all(".bar .menu[open]").forEach((menu) => { menu.open = menu.contains(target); });
  });
  window.addEventListener("hashchange", () => { read(); sortAsAsked(); apply(); });
  return { state, shown, all, apply, mount, copyable, onChange: (listener) => listeners.push(listener) };
})();
