// The table behind each figure: the numbers that are drawn, with their intervals.
const numbersOf = (() => {
  const unescaped = (text) => new DOMParser().parseFromString(String(text), "text/html")
    .documentElement.textContent;
  const short = (value) => (typeof value === "number" ? String(Number(value.toPrecision(5)))
    : value === null || value === undefined ? "" : String(value));
  const title = (axis, other) => unescaped((axis.title && axis.title.text) || other);

  // A value with its error bar, deviation or band.
  function bar(trace, axis, n) {
    const error = trace[`error_${axis}`], value = trace[axis][n];
    const above = error && error.array && error.array[n];
    if (!above) return short(value);
    return error.symmetric === false
      ? `${short(value)} [${short(value - error.arrayminus[n])}, ${short(value + above)}]`
      : `${short(value)} ± ${short(above)}`;
  }

  function cell(trace, n, bands) {
    if (trace.y[n] === null) return "";
    const error = trace.customdata && trace.customdata[n];
    if (typeof error === "number") return `${short(trace.y[n])} ± ${short(error)}`;
    const band = bands.get(trace.legendgroup);
    if (band && band.y.length === 2 * trace.y.length && band.yaxis === trace.yaxis) {
      return `${short(trace.y[n])} [${short(band.y[2 * trace.y.length - 1 - n])}, ${short(band.y[n])}]`;
    }
    return bar(trace, "y", n);
  }

  // Rows with a name on the vertical axis: bars, and values on one scale.
  function byRow(traces, layout) {
    const bars = traces.some((t) => t.meta.role === "bar");
    const names = bars ? [...new Set(traces.flatMap((t) => t.y))] : layout.yaxis.ticktext;
    const rows = names.map((name) => [unescaped(name), ...traces.map(() => "")]);
    traces.forEach((trace, column) => trace.x.forEach((_, n) => {
      const row = bars ? names.indexOf(trace.y[n]) : Math.round(trace.y[n]);
      rows[row][column + 1] = bar(trace, "x", n);
    }));
    return [[title(layout.xaxis, ""), ...traces.map((t) => unescaped(t.name))], ...rows];
  }

  function byPoint(traces, layout) {
    const rows = traces.flatMap((trace) => trace.x.map((_, n) =>
      [unescaped(trace.name), bar(trace, "x", n), bar(trace, "y", n)]));
    return [["", title(layout.xaxis, "x"), title(layout.yaxis, "y")], ...rows];
  }

  function byPosition(traces, data, layout) {
    const ticks = layout.xaxis.tickvals;
    const text = (x) => (ticks && ticks.includes(x)
      ? unescaped(layout.xaxis.ticktext[ticks.indexOf(x)]).replace(/\n/g, " ")
      : layout.meta && layout.meta.shifts ? String(Math.round(2 ** x - 1)) : String(x));
    const bands = new Map(data.filter((t) => t.meta.role === "band")
      .map((band) => [band.legendgroup, band]));
    const rows = new Map();
    traces.forEach((trace, column) => trace.x.forEach((x, n) => {
      if (!rows.has(x)) rows.set(x, traces.map(() => ""));
      rows.get(x)[column] = cell(trace, n, bands);
    }));
    return [[title(layout.xaxis, "x"), ...traces.map((t) => unescaped(t.name))],
      ...[...rows].sort(([a], [b]) => (a > b) - (a < b)).map(([x, cells]) => [text(x), ...cells])];
  }

  return ({ data, layout }) => {
    // The hollow end of a curve is in the curve.
    const traces = data.filter((t) => t.name && (["line", "level", "point", "bar"].includes(t.meta.role) && t.hoverinfo !== "skip"
      || t.meta.role === "band" && t.showlegend));
    const dots = data.find((t) => t.meta.role === "dots");
    if (dots) {
      return [["longitude", "latitude", "text"], ...dots.x.map((x, at) =>
        [String(x), String(dots.y[at]), unescaped(dots.text[at].replace(/<br>/g, ", "))])];
    }
    const heat = data.find((t) => t.meta.role === "heat");
    if (heat && !traces.length) {
      return [[title(layout.xaxis, ""), ...heat.x.map(short)], ...heat.y.map((name, at) =>
        [unescaped(name).trim(), ...heat.z[at].map(short)])];
    }
    if (layout.yaxis.ticktext || traces.some((t) => t.meta.role === "bar")) return byRow(traces, layout);
    if (traces.some((t) => t.meta.role === "point")) return byPoint(traces, layout);
    // Shares of labels below curves, as further columns: those of the stretch that has the position.
    const curve = traces[0];
    const stretch = (x) => heat.x.reduce((best, centre, at) =>
      (Math.abs(centre - x) < Math.abs(heat.x[best] - x) ? at : best), 0);
    const shares = heat ? heat.y.map((name, at) => ({ name: `share of label ${name}`, x: curve.x,
      y: curve.x.map((x) => heat.z[at][stretch(x)]), meta: {} })) : [];
    // The upper end of a band that has a name of its own.
    const curves = traces.map((t) => (t.meta.role === "band"
      ? { ...t, x: t.x.slice(0, t.x.length / 2), y: t.y.slice(0, t.y.length / 2), legendgroup: "" } : t));
    return byPosition([...curves, ...shares], data, layout);
  };
})();
