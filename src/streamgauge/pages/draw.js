// Draws the figures in the reader's theme, again when the theme or the choice changes, and in light
// for printing and for export.
(() => {
  const { state, all } = view;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "triangle-down", "star",
    "pentagon"];
  const GREY_SYMBOLS = ["cross", "hourglass", "bowtie", "hexagram"];
  const DASHES = ["dash", "dot", "dashdot", "longdash"];
  // Student's t, 97.5 %, by degrees of freedom.
  const T = [NaN, 12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
  const unescaped = (text) => new DOMParser().parseFromString(text, "text/html")
    .documentElement.textContent;
  const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const theme = (light) => (prefersDark.matches && !light ? themes.dark : themes.light);

  // One map of names to colours for the whole page. Where more names are shown than there are
  // colours, those beyond are grey until fewer are ticked.
  function paint(key, colours) {
    const many = colours.colours.length;
    const number = names.coloured.indexOf(key);
    const shown = names.learners.filter((k) => names.coloured.includes(k) && view.shown(k));
    const grey = number < 0
      || (number >= many && names.learners.includes(key) && shown.length > many);
    return {
      colour: grey ? colours.soft : colours.colours[number % many],
      dash: number < 0 ? DASHES[Math.max(0, names.grey.indexOf(key)) % DASHES.length]
        : DASHES.concat("solid")[(Math.floor(number / many) + 4) % 5],
      symbol: number < 0 ? GREY_SYMBOLS[Math.max(0, names.grey.indexOf(key)) % GREY_SYMBOLS.length]
        : SYMBOLS[number % SYMBOLS.length],
      faint: grey && number >= 0,
    };
  }

  function styled(trace, colours) {
    const { role, key, hollow, second } = trace.meta;
    const { colour, dash, symbol, faint } = paint(key, colours);
    const bar = (error) => error && { ...error, color: colour, width: 3 };
    switch (role) {
      case "band":
        return { ...trace, mode: "lines", fill: "toself", fillcolor: colour + "26",
          line: { width: 0 }, hoverinfo: "skip" };
      case "bar":
        return { ...trace, marker: { color: colour },
          error_x: trace.error_x && { ...trace.error_x, color: colours.ink, width: 4 } };
      case "level":
        return { ...trace, line: { color: colours.ink, dash: "4px,4px", width: 1.75 } };
      case "front":
        return { ...trace, line: { color: colours.soft, width: 1.5, shape: "hv" } };
      case "point":
        return { ...trace, error_x: bar(trace.error_x), error_y: bar(trace.error_y),
          cliponaxis: false, showlegend: false,
          marker: { color: hollow ? colours.paper : colour, size: 10, symbol,
            line: { color: colour, width: 2 } } };
      case "outlines":
        return { ...trace, fill: "toself", fillcolor: colour + "2e", hoverinfo: "skip",
          line: { color: colour, width: 1 } };
      case "dots":
        return { ...trace, marker: { color: colour, size: 3 } };
      case "heat":
        return { ...trace, showscale: false, zmin: 0, xgap: 0, ygap: 1,
          colorscale: [[0, colours.tint], [1, colours.accent]] };
      default:
        return { ...trace, error_y: bar(trace.error_y),
          line: { color: colour, width: faint ? 1 : 2, dash: second ? "dot" : dash, ...trace.line },
          marker: { color: second ? colours.paper : colour, size: 8, symbol,
            line: { color: colour, width: 1.5 } } };
    }
  }

  // Accuracy in a window over the bins of a run, at the end of each full window.
  function moved(run, moving) {
    const end = moving.end[run.end], counts = moving.counts[run.counts];
    const width = Math.min(run.hits.length, Math.max(1, Math.round(run.hits.length * state.window / 100)));
    const x = [], y = [];
    let right = 0, asked = 0;
    run.hits.forEach((hits, at) => {
      right += hits;
      asked += counts[at];
      if (at >= width) { right -= run.hits[at - width]; asked -= counts[at - width]; }
      if (at >= width - 1) { x.push(end[at]); y.push(asked ? 100 * right / asked : null); }
    });
    return { x, y, samples: asked };
  }

  const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
  const deviation = (values) => {
    const middle = mean(values);
    return Math.sqrt(values.reduce((a, b) => a + (b - middle) ** 2, 0) / (values.length - 1));
  };
  const digits = (value) => Math.round(1000 * value) / 1000;

  // Mean over seeds of curves, and a band of `half` of the values at each position.
  function meanAndBand(name, key, curves, half, role, more) {
    const length = Math.min(...curves.map((curve) => curve.y.length));
    const x = curves[0].x.slice(0, length), y = [], low = [], high = [], halves = [];
    for (let at = 0; at < length; at += 1) {
      const values = curves.map((curve) => curve.y[at]);
      const middle = mean(values), around = curves.length > 1 ? half(values) : 0;
      y.push(digits(middle));
      // Accuracies end at 0 and 100; differences, on an axis of their own, do not.
      low.push(digits(more.yaxis ? middle - around : Math.max(0, middle - around)));
      high.push(digits(more.yaxis ? middle + around : Math.min(100, middle + around)));
      halves.push(digits(around));
    }
    const common = { type: "scatter", legendgroup: key, ...more };
    const line = { ...common, name, x, y, mode: "lines", meta: { role, key },
      hovertemplate: "%{y:.1f}" };
    if (curves.length < 2 || halves.every((width) => width === 0)) return [line];
    line.customdata = halves;
    line.hovertemplate += " ± %{customdata:.2g}";
    return [{ ...common, x: [...x, ...x.slice().reverse()], y: [...high, ...low.reverse()],
      showlegend: false, meta: { role: "band", key } }, line];
  }

  function grouped(series) {
    const groups = new Map();
    series.forEach((run) => groups.set(run.key, [...(groups.get(run.key) || []), run]));
    return groups;
  }

  // The traces of a figure over a moving window, and what its layout needs for them.
  function movingFigure(figure) {
    const { moving } = figure;
    const data = [], curves = new Map();
    grouped(moving.series).forEach((runs, key) => {
      curves.set(key, new Map(runs.map((run) => [run.pair, moved(run, moving)])));
    });
    const levels = new Set(moving.series.filter((run) => run.level).map((run) => run.key));
    curves.forEach((of, key) => {
      const each = [...of.values()];
      const role = levels.has(key) ? "level" : "line";
      if (state.seeds && role === "line") {
        each.forEach((curve, at) => data.push({ type: "scatter", mode: "lines", name: key,
          legendgroup: key, x: curve.x, y: curve.y.map(digits), showlegend: at === 0,
          line: { width: 1 }, hovertemplate: "%{y:.1f}", meta: { role, key } }));
      } else data.push(...meanAndBand(key, key, each, deviation, role, {}));
    });
    const widths = [...curves.values()].flatMap((of) => [...of.values()].map((c) => c.samples));
    const samples = Math.round(Math.max(...widths));
    const layout = { ...figure.layout };
    layout.yaxis = { ...layout.yaxis,
      title: { text: `accuracy in the last ${samples.toLocaleString("en")}, %` } };
    const ends = moving.end.flat();
    layout.xaxis = { ...layout.xaxis, range: [0, Math.max(...ends)] };
    layout.shapes = moving.marks.map(([x]) => ({ type: "line", x0: x, x1: x, y0: 0, y1: 1,
      yref: "paper" }));
    layout.annotations = moving.marks.map(([x, text]) => ({ x, y: 1, yref: "paper", text,
      showarrow: false, yanchor: "bottom", xanchor: "left", font: { size: 11 } }));
    if (!moving.difference) return { ...figure, data, layout };
    const base = state.base && curves.has(state.base) ? state.base
      : names.learners.find((key) => curves.has(key)) || [...curves.keys()][0];
    const against = curves.get(base);
    curves.forEach((of, key) => {
      const pairs = [...of.keys()].filter((pair) => against.has(pair));
      if (key === base || levels.has(key) || !pairs.length) return;
      const gaps = pairs.map((pair) => ({ x: of.get(pair).x,
        y: of.get(pair).y.map((value, at) => value - against.get(pair).y[at]) }));
      // Two seeds say next to nothing about the noise.
      const half = (values) => (values.length < 3 ? 0 : T[values.length - 1] || 1.96 + 2.4 / (values.length - 1))
        * deviation(values) / Math.sqrt(values.length);
      const name = `${key} − ${base}`;
      data.push(...meanAndBand(name, key, gaps, half, "line",
        { yaxis: "y2", showlegend: false, hovertemplate: "%{y:+.1f}" }));
    });
    if (moving.classes) {
      data.push({ type: "heatmap", x: moving.classes.x, y: moving.classes.names,
        z: moving.classes.shares, yaxis: "y3", meta: { role: "heat", key: "" }, name: "labels",
        zmax: Math.max(...moving.classes.shares.flat()), hoverinfo: "skip" });
    }
    const ribbon = moving.classes ? 0.24 : 0;
    layout.yaxis.domain = [ribbon + 0.34, 1];
    // By the lines alone: bands of two seeds are wide.
    const gaps = data.filter((t) => t.yaxis && t.meta.role === "line").flatMap((t) => t.y);
    const [low, high] = [Math.min(0, ...gaps), Math.max(0, ...gaps)];
    const margin = 0.2 * (high - low || 1);
    layout.yaxis2 = { domain: [ribbon + 0.04, ribbon + 0.28], zeroline: true,
      range: [low - margin, high + margin],
      title: { text: `minus ${short(unescaped(base), 16)}` } };
    if (moving.classes) {
      layout.yaxis3 = { domain: [0, ribbon - 0.03], type: "category", autorange: "reversed",
        title: { text: "labels" }, showgrid: false, dtick: 1, tickfont: { size: 10 } };
    }
    layout.xaxis = { ...layout.xaxis, anchor: moving.classes ? "y3" : "y2" };
    layout.hoversubplots = "axis";
    return { ...figure, data, layout };
  }

  // Names at the ends of lines or beside points, pushed apart where they would overlap.
  function labels(data, layout, height, colours) {
    const [low, high] = layout.yaxis.range;
    const domain = layout.yaxis.domain || [0, 1];
    const gap = 15 / (height * (domain[1] - domain[0])) * (high - low);
    const wanted = [];
    data.forEach((trace) => {
      const { role, key } = trace.meta;
      if (!["line", "level", "point"].includes(role) || trace.yaxis || trace.stackgroup) return;
      if (wanted.some((label) => label.name === trace.name) || trace.showlegend === false && role === "line") return;
      let last = trace.y.length - 1;
      while (last >= 0 && trace.y[last] === null) last -= 1;
      if (last < 0) return;
      const painted = paint(key, colours);
      if (painted.faint) return;
      wanted.push({ name: trace.name + (trace.meta.near ? " ≈" : ""), x: trace.x[last], y: trace.y[last], at: trace.y[last],
        point: role === "point", colour: role === "level" ? colours.ink : painted.colour });
    });
    wanted.sort((a, b) => a.y - b.y);
    const free = (label) => !label.point;
    const place = (group) => {
      for (let round = 0; round < 60; round += 1) {
        for (let n = 1; n < group.length; n += 1) {
          const close = gap - (group[n].at - group[n - 1].at);
          if (close > 1e-9) { group[n].at += close / 2; group[n - 1].at -= close / 2; }
        }
      }
      // None below the axis.
      group.forEach((label, n) => {
        label.at = Math.max(label.at, n ? group[n - 1].at + gap : low);
      });
    };
    place(wanted.filter(free));
    place(wanted.filter((label) => label.point));
    return wanted.map((label) => ({
      x: label.point ? (layout.xaxis.type === "log" ? Math.log10(label.x) : label.x) : 1,
      xref: label.point ? "x" : "paper", y: Math.max(low, Math.min(high, label.at)), yref: "y",
      text: short(unescaped(label.name), 24).replace(/&/g, "&amp;").replace(/</g, "&lt;"),
      hovertext: label.name, showarrow: false, xanchor: "left", align: "left",
      xshift: label.point ? 8 : 6, yshift: label.point ? 10 : 0, font: { size: 12, color: label.colour },
    }));
  }

  // Limits are computed here, so that labels know where they are before anything is drawn.
  function limits(data, axis) {
    if (axis.range) return axis.range;
    const values = data.filter((t) => !t.yaxis && t.type !== "heatmap")
      .flatMap((t) => t.y.concat(t.error_y ? t.y.map((v, at) => v + t.error_y.array[at]) : []))
      .filter((v) => typeof v === "number");
    if (!values.length) return [0, 1];
    let low = values[0], high = values[0];
    values.forEach((v) => { low = Math.min(low, v); high = Math.max(high, v); });
    const margin = 0.06 * ((axis.rangemode === "tozero" ? high : high - low) || 1);
    if (axis.rangemode === "tozero") return [low < 0 ? low - margin : 0, high > 0 ? high + margin : 0];
    return [low - margin, high + margin];
  }

  function prepared(given, colours, width, height) {
    const figure = given.moving ? movingFigure(given) : given;
    const data = figure.data.filter((trace) => view.shown(trace.meta.key))
      .map((trace) => styled(trace, colours));
    const narrow = width < 560;
    const plain = !data.some((t) => t.type === "bar" || t.stackgroup || t.type === "heatmap" && !given.moving)
      && !figure.layout.yaxis.scaleanchor;
    // A line that lies exactly on an earlier one is dashed, so that both are seen.
    data.forEach((trace, at) => {
      if (trace.meta.role !== "line" || trace.y.length < 3) return;
      if (data.slice(0, at).some((t) => t.meta.role === "line" && t.yaxis === trace.yaxis
        && t.y.length === trace.y.length && t.y.every((v, n) => v === trace.y[n]))) {
        trace.line = { ...trace.line, dash: "10px,10px" };
      }
    });
    const axis = (axisGiven) => axisGiven && ({
      gridcolor: colours.line, linecolor: colours.line, zerolinecolor: colours.soft,
      automargin: true, tickfont: { color: colours.soft, size: narrow ? 11 : 13 }, ...axisGiven,
      title: { ...axisGiven.title, font: { color: colours.soft, size: narrow ? 11 : 13 },
        standoff: 8 },
    });
    const layout = { hovermode: "x unified", ...figure.layout };
    layout.xaxis = axis(layout.xaxis);
    ["yaxis", "yaxis2", "yaxis3"].forEach((name) => { if (layout[name]) layout[name] = axis(layout[name]); });
    if (plain) layout.yaxis.range = limits(data, layout.yaxis);
    const direct = plain && !narrow && layout.showlegend !== true ? labels(data, layout, height - 80, colours) : [];
    const named = direct.length > 0 && direct.length <= 24;
    const longest = Math.max(0, ...direct.map((label) => unescaped(label.text).length));
    Object.assign(layout, {
      showlegend: layout.showlegend !== false && !named,
      annotations: [...(layout.annotations || []).map((a) => ({ ...a,
        font: { ...a.font, color: colours.soft } })), ...(named ? direct : [])],
      shapes: (layout.shapes || []).map((shape) => (shape.type === "rect"
        ? { ...shape, fillcolor: colours.soft + "2e", line: { width: 0 } }
        : { ...shape, line: { color: colours.soft, width: 1, dash: "dot" } })),
      paper_bgcolor: colours.paper, plot_bgcolor: colours.paper,
      font: { family: getComputedStyle(document.body).fontFamily, color: colours.ink,
        size: narrow ? 11 : 13 },
      margin: { l: narrow ? 40 : 56, r: named ? Math.min(170, 24 + 7 * longest) : 12,
        t: (layout.annotations || []).length ? 24 : 12, b: 44 },
      hoverlabel: { bgcolor: colours.tint, bordercolor: colours.line, font: { color: colours.ink } },
      legend: { orientation: "h", x: 0, y: 1.02, xanchor: "left", yanchor: "bottom",
        font: { size: 11 } },
      uirevision: "kept",
    });
    return { data, layout };
  }

  const drawn = new WeakSet();
  function draw(element, printed) {
    const figure = figures[Number(element.dataset.figure)];
    const width = printed ? 680 : element.clientWidth;
    const height = element.clientHeight || 400;
    const { data, layout } = prepared(figure, theme(printed), width, height);
    Object.assign(layout, { width, height });
    drawn.add(element);
    return Plotly.react(element, data, layout, { displayModeBar: false, displaylogo: false });
  }

  const visible = (element) => !element.closest("details:not([open]), [hidden]");

  function paintSwatches() {
    const colours = theme(false);
    all(".swatch").forEach((swatch) => {
      swatch.style.background = paint(swatch.dataset.key, colours).colour;
    });
  }

  let asked = 0;
  // Figures in view first, then the others, with a pause between them for the reader's events.
  async function drawAll(printed = false, only = () => true) {
    asked += 1;
    const mine = asked;
    if (!printed) paintSwatches();
    const far = (element) => Math.abs(element.getBoundingClientRect().top) > innerHeight;
    const plots = all(".plot").filter((element) => visible(element) && only(element));
    plots.sort((a, b) => far(a) - far(b));
    for (const element of plots) {
      if (mine !== asked) return;
      draw(element, printed);
      if (!printed) await new Promise((go) => { setTimeout(go); });
    }
  }

  // The numbers behind a figure, as they are drawn.
  function numbers(figure) {
    const { data, layout } = prepared(figure, themes.light, 1000, 400);
    const named = data.filter((t) => t.name && ["line", "level", "point", "bar"].includes(t.meta.role));
    const bars = named.some((t) => t.meta.role === "bar");
    const head = (layout.xaxis.title && layout.xaxis.title.text) || "x";
    if (bars || named.some((t) => t.meta.role === "point")) {
      const y = (layout.yaxis.title && layout.yaxis.title.text) || "y";
      return [["", ...(bars ? [head] : [head, y])].map(unescaped), ...named.map((t) =>
        [unescaped(t.name), ...(bars ? t.x : [t.x[0], t.y[0]])].map(String))];
    }
    const dots = data.find((t) => t.meta.role === "dots");
    if (dots) {
      return [["longitude", "latitude", "text"], ...dots.x.map((x, at) =>
        [String(x), String(dots.y[at]), unescaped(dots.text[at].replace(/<br>/g, ", "))])];
    }
    const heat = data.find((t) => t.meta.role === "heat");
    if (heat && !named.length) {
      return [["", ...heat.x.map(String)], ...heat.y.map((name, at) =>
        [unescaped(name), ...heat.z[at].map((v) => (v === null ? "" : String(v)))])];
    }
    const ticks = layout.xaxis.tickvals;
    const shownX = (x) => (ticks && ticks.includes(x) ? unescaped(layout.xaxis.ticktext[ticks.indexOf(x)])
      .replace(/\n/g, " ") : layout.meta && layout.meta.shifts ? String(Math.round(2 ** x - 1)) : String(x));
    const at = new Map();
    named.forEach((trace, column) => trace.x.forEach((x, n) => {
      if (!at.has(x)) at.set(x, named.map(() => ""));
      const error = trace.customdata && trace.customdata[n];
      at.get(x)[column] = trace.y[n] === null ? ""
        : `${trace.y[n]}${error || error === 0 ? ` ± ${error}` : ""}`;
    }));
    const rows = [...at].sort(([a], [b]) => (a > b) - (a < b));
    return [[head, ...named.map((t) => t.name)].map(unescaped),
      ...rows.map(([x, cells]) => [shownX(x), ...cells])];
  }

  function openTable(tools, figure, button) {
    const old = tools.parentElement.querySelector(".numbers");
    button.setAttribute("aria-expanded", String(!old));
    if (old) { old.remove(); return; }
    const box = document.createElement("div"), table = document.createElement("table");
    box.className = "numbers";
    numbers(figure).forEach((cells, at) => {
      const row = (at ? table.tBodies[0] || table.createTBody() : table.createTHead()).insertRow();
      cells.forEach((cell, column) => {
        const made = document.createElement(at && column ? "td" : "th");
        if (made.tagName === "TH") made.scope = at ? "row" : "col";
        if (column) made.className = "number";
        made.textContent = cell;
        row.append(made);
      });
    });
    const scroll = document.createElement("div"), copy = document.createElement("p");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.append(table);
    copy.className = "tools";
    copy.append("Copy as ");
    ["CSV", "LaTeX", "Markdown"].forEach((format) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = format;
      copy.append(made, " ");
    });
    view.copyable(copy, () => numbers(figure));
    box.append(scroll, copy);
    tools.after(box);
  }

  // On white, whatever the theme.
  async function save(figure, element, format) {
    const width = 1000, height = element.clientHeight > 450 ? 700 : 450;
    const { data, layout } = prepared(figure, themes.light, width, height);
    const image = await Plotly.toImage({ data, layout: { ...layout, width, height } },
      { format, width, height, scale: format === "png" ? 2 : 1 });
    const link = document.createElement("a");
    link.href = image;
    link.download = `${figure.title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.${format}`;
    link.click();
    return image;
  }

  function connect() {
    all("[data-export]").forEach((tools) => {
      const element = tools.previousElementSibling;
      const figure = figures[Number(element.dataset.figure)];
      tools.addEventListener("click", ({ target }) => {
        if (target.tagName !== "BUTTON") return;
        if (target.textContent === "Table") openTable(tools, figure, target);
        else save(figure, element, target.textContent.toLowerCase()).then((image) => {
          element.dataset.saved = image.slice(0, 40);
        });
      });
    });
    prefersDark.addEventListener("change", () => drawAll());
    all("details").forEach((section) => section.addEventListener("toggle", () => {
      if (section.open) drawAll(false, (element) => section.contains(element));
    }));
    let soon = 0;
    view.onChange(() => { cancelAnimationFrame(soon); soon = requestAnimationFrame(() => drawAll()); });
    let width = innerWidth;
    window.addEventListener("resize", () => {
      if (innerWidth !== width) { width = innerWidth; drawAll(); }
    });
    window.addEventListener("beforeprint", () => drawAll(true));
    window.addEventListener("afterprint", () => drawAll());
  }

  async function load() {
    const packed = document.getElementById("plotly").textContent;
    if (!packed) return;
    const bytes = Uint8Array.fromBase64 ? Uint8Array.fromBase64(packed)
      : Uint8Array.from(atob(packed), (sign) => sign.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    script.textContent = "";
  }

  paintSwatches();
  view.apply();
  load().then(async () => {
    if (window.Plotly) {
      connect();
      await drawAll();
    }
    window.pageReady = true;
  }).catch((error) => {
    all(".plot").forEach((element) => {
      element.textContent = `This browser cannot draw the plot (${error.message}).`;
    });
    window.pageReady = true;
  });
})();
