// Draws the figures in the reader's theme, again when the theme or the choice changes, and in light
// for printing and for export.
const plots = (() => {
  const { state, all } = view;
  let figures = JSON.parse(document.getElementById("figures").textContent);
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "triangle-down", "star",
    "pentagon"];
  const GREY_SYMBOLS = ["cross", "hourglass", "bowtie", "hexagram"];
  const DASHES = ["dash", "dot", "dashdot", "longdash"];
  const MARKERS = 8; // on a curve of hundreds of points, for eyes that cannot tell its colour
  // Student's t, 97.5 %, by degrees of freedom.
  const T = [NaN, 12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
  const unescaped = (text) => new DOMParser().parseFromString(text, "text/html")
    .documentElement.textContent;
  const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  // In lines of about so many characters.
  const wrapped = (text, most) => text.split(" ").reduce((lines, word) => {
    const last = lines.pop();
    return last && `${last} ${word}`.length > most ? [...lines, last, word]
      : [...lines, last ? `${last} ${word}` : word];
  }, []).join("<br>");
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
      // Beyond the colours, another symbol in the same colour.
      symbol: number < 0 ? GREY_SYMBOLS[Math.max(0, names.grey.indexOf(key)) % GREY_SYMBOLS.length]
        : SYMBOLS[(number + 3 * Math.floor(number / many)) % SYMBOLS.length],
      faint: grey && number >= 0,
    };
  }

  function styled(trace, colours) {
    const { role, key, hollow, second, share, few } = trace.meta;
    const { colour, dash, symbol, faint } = paint(key, colours);
    const bar = (error) => error && { ...error, color: colour, width: 3 };
    switch (role) {
      case "band":
        return { ...trace, mode: "lines", fill: "toself", fillcolor: colour + "26",
          line: { width: 0 }, hoverinfo: "skip" };
      case "bar":
        return { ...trace, marker: { color: colour + "80", line: { color: colour, width: 1.5 } },
          error_x: trace.error_x && { ...trace.error_x, color: colours.ink, width: 4 } };
      case "level":
        return { ...trace, line: { color: colours.ink, dash: "4px,4px", width: 1.75 } };
      case "front":
        return { ...trace, line: { color: colours.soft, width: 1.5, shape: "hv" } };
      case "point":
        return { ...trace, error_x: bar(trace.error_x), error_y: bar(trace.error_y),
          cliponaxis: false,
          marker: { color: hollow ? colours.paper : colour, size: 10, symbol,
            line: { color: colour, width: 2 } } };
      case "outlines":
        return { ...trace, fill: "toself", hoverinfo: "skip", line: { color: colours.accent, width: 1 },
          fillcolor: colours.accent + Math.round(200 * share).toString(16).padStart(2, "0") };
      case "reported":
        return { ...trace, marker: { color: colour, size: 9, symbol: "triangle-up" } };
      case "dots":
        return { ...trace, marker: { color: colours.ink, size: 3 } };
      case "heat":
        return { ...trace, showscale: false, zmin: 0, xgap: 0, ygap: 1,
          // An empty cell is not one of 0.
          colorscale: [[0, trace.yaxis ? colours.tint : colours.line], [1, colours.accent]] };
      default:
        return { ...trace, error_y: bar(trace.error_y), mode: few && faint ? "lines" : trace.mode,
          line: { color: colour, width: faint ? 1 : 2, dash: second ? "dot" : dash, ...trace.line },
          marker: { color: second ? colours.paper : colour, size: few ? 7 : 8, symbol,
            ...(few && { maxdisplayed: MARKERS }), line: { color: colour, width: 1.5 } } };
    }
  }

  // Accuracy in a window over the bins of a run, at the end of each full window.
  function moved(run, moving) {
    const end = moving.end[run.end], counts = moving.counts[run.counts];
    const bins = run.whole || run.hits.length;
    const width = Math.min(run.hits.length, Math.max(1, Math.round(bins * state.window / 100)));
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
  const digits = (value) => (value === null ? null : Math.round(1000 * value) / 1000);

  // Mean over seeds of curves, and a band of `half` of the values at each position.
  function meanAndBand(name, key, curves, half, role, more) {
    const length = Math.min(...curves.map((curve) => curve.y.length));
    const x = curves[0].x.slice(0, length), y = [], known = [], low = [], high = [], halves = [];
    for (let at = 0; at < length; at += 1) {
      const values = curves.map((curve) => curve.y[at]).filter((value) => value !== null);
      if (!values.length) { y.push(null); halves.push(0); continue; }
      const middle = mean(values), around = values.length > 1 ? half(values) : 0;
      known.push(x[at]);
      y.push(digits(middle));
      // Accuracies end at 0 and 100; differences, on an axis of their own, do not.
      low.push(digits(more.yaxis ? middle - around : Math.max(0, middle - around)));
      high.push(digits(more.yaxis ? middle + around : Math.min(100, middle + around)));
      halves.push(digits(around));
    }
    const common = { type: "scatter", legendgroup: key, ...more };
    const few = role === "line";
    const line = { ...common, name, x, y, mode: few ? "lines+markers" : "lines",
      meta: { role, key, few },
      hovertemplate: "%{y:.1f}" };
    if (curves.length < 2 || halves.every((width) => width === 0)) return [line];
    line.customdata = halves;
    line.hovertemplate += " ± %{customdata:.2g}";
    return [{ ...common, x: [...known, ...known.slice().reverse()], y: [...high, ...low.reverse()],
      showlegend: false, meta: { role: "band", key } }, line];
  }

  function grouped(series) {
    const groups = new Map();
    series.forEach((run) => groups.set(run.key, [...(groups.get(run.key) || []), run]));
    return groups;
  }

  // Lines at tasks and changes; triangles where a learner reported drift.
  function mark(marks, data, layout, pixels) {
    const lines = marks.filter(([, , kind]) => kind !== "reported");
    layout.shapes = lines.map(([x, , kind]) => ({ type: "line", name: kind, x0: x, x1: x, y0: 0,
      y1: 1, yref: "paper" }));
    // A text that would run into the one before is left out; the table has all.
    let free = -Infinity;
    layout.annotations = lines.filter(([x, text]) => {
      if (x * pixels < free) return false;
      free = x * pixels + 6.5 * unescaped(text).length + 6;
      return true;
    }).map(([x, text]) => ({ x, y: 1, yref: "paper", text, showarrow: false, yanchor: "bottom",
      xanchor: "left", font: { size: 11 } }));
    const reported = marks.filter(([, , kind]) => kind === "reported");
    [...new Set(reported.map((one) => one[3]))].forEach((key, n) => {
      const x = reported.filter((one) => one[3] === key).map(([at]) => at);
      data.push({ type: "scatter", mode: "markers", name: key, legendgroup: key, x,
        y: x.map(() => 3 * n), showlegend: false, cliponaxis: false,
        hovertemplate: "drift reported", meta: { role: "reported", key } });
    });
  }

  // The traces of a figure over a moving window, and what its layout needs for them.
  function movingFigure(figure, wide) {
    const { moving } = figure;
    const data = [], curves = new Map();
    const alone = moving.series.filter((run) => run.alone);
    grouped(moving.series.filter((run) => !run.alone)).forEach((runs, key) => {
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
    // Runs that go on: dotted, with a hollow end, and in no mean.
    alone.forEach((run) => {
      const { x, y, samples } = moved(run, moving);
      const common = { type: "scatter", name: run.alone, legendgroup: run.key, showlegend: false,
        hovertemplate: "%{y:.1f}", meta: { role: "line", key: run.key, label: run.key, second: true } };
      widths.push(samples);
      // Named where no complete run of the learner is.
      const named = !curves.has(run.key) && !data.some((t) => t.showlegend && t.legendgroup === run.key);
      data.push({ ...common, mode: "lines", x, y: y.map(digits), line: { width: 1.5 } },
        { ...common, mode: "markers", x: x.slice(-1), y: y.slice(-1).map(digits), hoverinfo: "skip",
          showlegend: named });
    });
    const samples = Math.round(Math.max(...widths));
    const layout = { ...figure.layout };
    layout.yaxis = { ...layout.yaxis,
      title: { text: `accuracy in the last ${samples.toLocaleString("en")}, %` } };
    const ends = moving.end.flat();
    const most = Math.max(moving.until || 0, ...ends);
    layout.xaxis = { ...layout.xaxis, range: [0, most] };
    mark(moving.marks, data, layout, wide / most);
    if (!moving.difference) return { ...figure, data, layout };
    const base = state.base && curves.has(state.base) ? state.base
      : names.learners.find((key) => curves.has(key)) || [...curves.keys()][0];
    const against = curves.get(base);
    curves.forEach((of, key) => {
      const pairs = [...of.keys()].filter((pair) => against.has(pair));
      if (key === base || levels.has(key) || !pairs.length) return;
      const gaps = pairs.map((pair) => {
        const mine = of.get(pair), other = against.get(pair).y; // one may have got less far
        const minus = (value, at) => (value === null || other[at] === null ? null : value - other[at]);
        return { x: mine.x, y: mine.y.slice(0, other.length).map(minus) };
      });
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
    layout.yaxis2 = { domain: [ribbon + 0.04, ribbon + 0.28], zeroline: true, automargin: false,
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

  // Names at the ends of lines or next to points, pushed apart where they would overlap.
  function labels(data, layout, width, height, colours) {
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
      wanted.push({ name: (trace.meta.label || trace.name) + (trace.meta.near ? " ≈" : ""), x: trace.x[last], y: trace.y[last], at: trace.y[last],
        point: role === "point", colour: role === "level" ? colours.ink : painted.colour });
    });
    wanted.sort((a, b) => a.y - b.y);
    const free = (label) => !label.point;
    const putNames = (group) => {
      for (let round = 0; round < 60; round += 1) {
        for (let n = 1; n < group.length; n += 1) {
          const close = gap - (group[n].at - group[n - 1].at);
          if (close > 1e-9) { group[n].at += close / 2; group[n - 1].at -= close / 2; }
        }
      }
      // None above or below the axis.
      [...group].reverse().forEach((label, n, downward) => {
        label.at = Math.min(label.at, n ? downward[n - 1].at - gap : high);
      });
      group.forEach((label, n) => {
        label.at = Math.max(label.at, n ? group[n - 1].at + gap : low);
      });
    };
    putNames(wanted.filter(free));
    // Points side by side have room for their names.
    const points = wanted.filter((label) => label.point);
    const place = (label) => (layout.xaxis.type === "log" ? Math.log10(label.x) : label.x);
    const [first, last] = layout.xaxis.range
      || [Math.min(...points.map(place)), Math.max(...points.map(place))];
    const left = (label) => width * (place(label) - first) / (last - first || 1);
    const meet = (a, b) => Math.abs(left(a) - left(b))
      < 12 + 7 * short(unescaped((left(a) < left(b) ? a : b).name), 24).length;
    for (let round = 0; round < 60; round += 1) {
      points.forEach((below, n) => points.slice(n + 1).forEach((above) => {
        const close = gap - (above.at - below.at);
        if (close > 1e-9 && meet(below, above)) { above.at += close / 2; below.at -= close / 2; }
      }));
    }
    return wanted.map((label) => ({
      x: label.point ? place(label) : 1,
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

  // Texts at an axis may be of any length. The library measures them by drawing twice, which numbers
  // do not need.
  const texts = (axis) => Boolean(axis.ticktext || axis.type === "category"
    || !/%/.test((axis.title || {}).text || ""));

  function prepared(given, colours, width, height) {
    const figure = given.moving ? movingFigure(given, width) : given;
    const data = figure.data.filter(({ meta }) => view.shown(meta.key)
      && !(meta.role === "band" && paint(meta.key, colours).faint))
      .map((trace) => styled(trace, colours));
    const narrow = width < 560;
    const plain = !data.some((t) => t.type === "bar" || t.stackgroup || t.type === "heatmap" && !given.moving)
      && !figure.layout.yaxis.scaleanchor;
    // A line that lies on an earlier one, as far as eyes can tell, is dashed, so that both are seen.
    data.forEach((trace, at) => {
      if (trace.meta.role !== "line" || trace.y.length < 3) return;
      const near = (Math.max(...trace.y) - Math.min(...trace.y)) / 500;
      if (data.slice(0, at).some((t) => t.meta.role === "line" && t.yaxis === trace.yaxis
        && t.y.length === trace.y.length
        && t.y.every((v, n) => v === trace.y[n] || Math.abs(v - trace.y[n]) <= near))) {
        trace.line = { ...trace.line, dash: "10px,10px" };
      }
    });
    const axis = (axisGiven) => axisGiven && ({
      gridcolor: colours.line, linecolor: colours.line, zerolinecolor: colours.soft,
      automargin: texts(axisGiven), tickfont: { color: colours.soft, size: narrow ? 11 : 13 },
      ...axisGiven,
      title: { ...axisGiven.title, font: { color: colours.soft, size: narrow ? 11 : 13 },
        standoff: 8 },
    });
    const layout = { hovermode: "x unified", ...figure.layout };
    layout.xaxis = { ...axis(layout.xaxis), automargin: Boolean(layout.xaxis.ticktext) };
    ["yaxis", "yaxis2", "yaxis3"].forEach((name) => { if (layout[name]) layout[name] = axis(layout[name]); });
    if (plain) layout.yaxis.range = limits(data, layout.yaxis);
    // Names of rows leave room for what is drawn.
    const bars = data.filter((t) => t.type === "bar").flatMap((t) => t.y);
    const rows = layout.yaxis.ticktext || [...new Set(bars)];
    if (narrow && rows.length) {
      layout.yaxis = { ...layout.yaxis, tickvals: layout.yaxis.tickvals || rows,
        ticktext: rows.map((name) => wrapped(name, 14)) };
    }
    const direct = plain && !narrow && layout.showlegend !== true ? labels(data, layout, width - 160, height - 80, colours) : [];
    const named = direct.length > 0 && direct.length <= 24;
    const longest = Math.max(0, ...direct.map((label) => unescaped(label.text).length));
    Object.assign(layout, {
      showlegend: layout.showlegend !== false && !named,
      annotations: [...(layout.annotations || []).map((a) => ({ ...a,
        font: { ...a.font, color: colours.soft } })), ...(named ? direct : [])],
      shapes: (layout.shapes || []).map((shape) => (shape.type === "rect"
        ? { ...shape, fillcolor: colours.soft + "2e", line: { width: 0 } }
        : { ...shape, line: { width: 1, ...(["labels", "accuracy"].includes(shape.name)
          ? { color: colours.warn, dash: "dashdot" }
          : shape.name === "scale" ? { color: colours.ink, width: 3 }
            : { color: colours.soft, dash: "dot" }) } })),
      paper_bgcolor: colours.paper, plot_bgcolor: colours.paper,
      font: { family: getComputedStyle(document.body).fontFamily, color: colours.ink,
        size: narrow ? 11 : 13 },
      margin: { l: narrow ? 44 : 60, r: named ? Math.min(190, 24 + 7 * longest) : 12,
        t: (layout.annotations || []).length ? 24 : 12, b: 44 },
      hoverlabel: { bgcolor: colours.tint, bordercolor: colours.line, font: { color: colours.ink } },
      legend: { orientation: "h", x: 0, y: 1.02, xanchor: "left", yanchor: "bottom",
        font: { size: 11 } },
      uirevision: "kept",
    });
    return { data, layout };
  }

  // Figures in or near the view. The others are drawn when they come near it.
  const near = new Set();
  const current = new WeakSet(); // drawn as the reader now wants them

  // Rows of a legend in so many pixels: a long one takes no room from what is drawn.
  function legendRows(data, width) {
    let rows = 1, taken = 0;
    data.filter((t) => t.name && t.showlegend !== false).forEach((trace) => {
      const wide = 50 + 6.5 * unescaped(trace.name).length;
      if (taken && taken + wide > width) { rows += 1; taken = 0; }
      taken += wide;
    });
    return rows;
  }

  function draw(element, printed) {
    const figure = figures[Number(element.dataset.figure)];
    const width = printed ? 680 : element.clientWidth;
    // Paper takes the height that is drawn (style.css), and less of it.
    element.style.height = "";
    let height = Math.round((element.clientHeight || 400) * (printed ? 0.75 : 1));
    const { data, layout } = prepared(figure, theme(printed), width, height);
    const more = layout.showlegend && !printed ? 22 * Math.max(0, legendRows(data, width - 56) - 2) : 0;
    if (more) {
      height += more;
      element.style.height = `${height}px`;
    }
    Object.assign(layout, { width, height });
    if (printed) current.delete(element);
    else current.add(element);
    Plotly.react(element, data, layout, { displayModeBar: false, displaylogo: false });
  }

  const visible = (element) => element.clientWidth > 0
    && !element.closest("details:not([open]), [hidden]");

  function paintSwatches() {
    const colours = theme(false);
    all(".swatch").forEach((swatch) => {
      swatch.style.background = swatch.style.borderColor = paint(swatch.dataset.key, colours).colour;
    });
  }

  let asked = 0;
  // With a pause between figures for the reader's events.
  async function drawMissing(elements) {
    asked += 1;
    const mine = asked;
    for (const element of elements) {
      if (mine !== asked) return;
      if (visible(element) && !current.has(element)) {
        draw(element, false);
        await new Promise((go) => { setTimeout(go); });
      }
    }
  }

  function drawAgain() {
    paintSwatches();
    all(".plot").forEach((element) => current.delete(element));
    return drawMissing(near);
  }

  const print = () => all(".plot").filter(visible).forEach((element) => draw(element, true));

  const numbers = (figure) => numbersOf(prepared(figure, themes.light, 1000, 400));

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

  function connect(root) {
    all("[data-export]", root).forEach((tools) => {
      const element = tools.previousElementSibling;
      tools.addEventListener("click", ({ target }) => {
        const figure = figures[Number(element.dataset.figure)];
        if (target.tagName !== "BUTTON") return;
        if (target.textContent === "Table") openTable(tools, figure, target);
        else save(figure, element, target.textContent.toLowerCase()).then((image) => {
          element.dataset.saved = image.slice(0, 40);
        });
      });
    });
  }

  function follow() {
    prefersDark.addEventListener("change", drawAgain);
    let soon = 0;
    view.onChange(() => { cancelAnimationFrame(soon); soon = requestAnimationFrame(drawAgain); });
    let width = innerWidth;
    window.addEventListener("resize", () => {
      if (innerWidth !== width) { width = innerWidth; drawAgain(); }
    });
    window.addEventListener("beforeprint", print);
    window.addEventListener("afterprint", drawAgain);
  }

  const MARGIN = 400; // pixels around the view
  const observer = new IntersectionObserver((entries) => {
    entries.forEach(({ target, isIntersecting }) => {
      if (isIntersecting) near.add(target);
      else near.delete(target);
    });
    drawMissing(near);
  }, { rootMargin: `${MARGIN}px 0px` });

  // Follow figures that are new. Those near the view are known at once.
  function watch(root) {
    near.forEach((element) => { if (!element.isConnected) near.delete(element); });
    all(".plot", root).forEach((element) => {
      const { top, bottom } = element.getBoundingClientRect();
      if (bottom > -MARGIN && top < innerHeight + MARGIN) near.add(element);
      observer.observe(element);
    });
  }

  // Five signs of 85 are four bytes (RFC 1924, with a comma for <).
  const SIGNS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";
  function decoded(text) {
    const value = new Uint8Array(128);
    [...SIGNS].forEach((sign, at) => { value[sign.charCodeAt(0)] = at; });
    const bytes = new DataView(new ArrayBuffer(Math.ceil(text.length / 5) * 4));
    for (let at = 0; at < text.length; at += 5) {
      let number = 0;
      for (let n = at; n < at + 5; n += 1) {
        number = number * 85 + (n < text.length ? value[text.charCodeAt(n)] : 84);
      }
      bytes.setUint32(at / 5 * 4, number);
    }
    return bytes.buffer.slice(0, Math.floor(text.length * 4 / 5));
  }

  async function load() {
    const packed = document.getElementById("plotly").textContent;
    if (!packed) return;
    const stream = new Blob([decoded(packed)]).stream()
      .pipeThrough(new DecompressionStream("gzip"));
    // From an address, so that browsers parse it next to their other work.
    const text = await new Response(stream).blob();
    const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    const script = document.createElement("script");
    await new Promise((loaded, failed) => {
      Object.assign(script, { src: url, onload: loaded,
        onerror: () => failed(new Error("the plotting library does not load")) });
      document.head.append(script);
    });
    URL.revokeObjectURL(url);
  }

  paintSwatches();
  view.apply();
  load().then(async () => {
    if (window.Plotly) {
      connect(document);
      follow();
      watch(document);
      await drawMissing(near);
      window.drawEverything = () => drawMissing(all(".plot"));
    }
    window.pageReady = true;
  }).catch((error) => {
    all(".plot").forEach((element) => {
      element.textContent = `This browser cannot draw the plot (${error.message}).`;
    });
    window.pageReady = true;
  });

  // Other figures, and the elements that are new (`streamgauge view` replaces its content).
  function show(given, roots) {
    figures = given;
    roots.forEach((root) => { connect(root); watch(root); });
    return drawAgain();
  }
  return { show };
})();
