"use strict";
// Draws the figures in the reader's theme, again when the theme changes, and in light for printing.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");

  function styled(trace, theme) {
    const { role, colour, hollow } = trace.meta;
    const paint = colour === null ? theme.soft : theme.colours[colour % theme.colours.length];
    const bar = (error) => error && { ...error, color: paint, width: 3 };
    switch (role) {
      case "band":
        return { ...trace, mode: "lines", fill: "toself", fillcolor: paint + "2e",
          line: { width: 0 }, hoverinfo: "skip" };
      case "bar":
        return { ...trace, marker: { color: paint },
          error_x: trace.error_x && { ...trace.error_x, color: theme.ink, width: 4 } };
      case "level":
        return { ...trace, line: { color: theme.soft, dash: "dash", width: 1.75 },
          textposition: "middle right", textfont: { color: theme.soft, size: 12 },
          cliponaxis: false };
      case "front":
        return { ...trace, line: { color: theme.soft, width: 1.5, shape: "hv" } };
      case "point":
        return { ...trace, error_x: bar(trace.error_x), error_y: bar(trace.error_y),
          cliponaxis: false, textfont: { color: theme.ink, size: 12 }, showlegend: false,
          marker: { color: hollow ? theme.paper : paint, size: 10,
            line: { color: paint, width: 2 } } };
      case "outlines":
        return { ...trace, fill: "toself", fillcolor: paint + "2e", hoverinfo: "skip",
          line: { color: paint, width: 1 } };
      case "dots":
        return { ...trace, marker: { color: paint, size: 3 } };
      default: {
        // Numbers beyond the palette repeat its colours, dotted.
        const dash = colour < theme.colours.length ? "solid" : "dot";
        return { ...trace, line: { color: paint, width: 2, dash, ...trace.line },
          marker: { color: paint, size: 7 } };
      }
    }
  }

  function shape(given, theme) {
    return given.type === "rect"
      ? { ...given, fillcolor: theme.soft + "2e", line: { width: 0 } }
      : { ...given, line: { color: theme.soft, width: 1.5, dash: "dot" } };
  }

  function draw(element, theme, printed) {
    const figure = figures[Number(element.dataset.figure)];
    const axis = (given) => ({
      gridcolor: theme.line, linecolor: theme.line, zerolinecolor: theme.line, automargin: true,
      tickfont: { color: theme.soft }, ...given,
      title: { ...given.title, font: { color: theme.soft, size: 13 }, standoff: 10 },
    });
    const named = figure.data.some((trace) => trace.text && trace.meta.role !== "dots");
    const layout = {
      showlegend: true, hovermode: "x unified", ...figure.layout,
      xaxis: axis(figure.layout.xaxis), yaxis: axis(figure.layout.yaxis),
      shapes: (figure.layout.shapes || []).map((given) => shape(given, theme)),
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, color: theme.ink, size: 13 },
      margin: { l: 56, r: named ? 124 : 24, t: 12, b: 48 },
      hoverlabel: { bgcolor: theme.tint, bordercolor: theme.line, font: { color: theme.ink } },
      legend: { orientation: "h", x: 0, y: 1.02, xanchor: "left", yanchor: "bottom" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: theme.soft, activecolor: theme.ink },
      width: printed && 680, height: printed && (element.matches(".map") ? 480 : 280),
      uirevision: "kept",
    };
    const options = {
      responsive: !printed, displaylogo: false, displayModeBar: "hover",
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    };
    return Plotly.react(element, figure.data.map((t) => styled(t, theme)), layout, options);
  }

  function drawAll(printed) {
    const theme = prefersDark.matches && !printed ? themes.dark : themes.light;
    document.querySelectorAll(".plot").forEach((element) => {
      // A plot in a closed section has no width yet.
      if (!element.closest("details:not([open])")) draw(element, theme, printed);
    });
  }

  drawAll();
  prefersDark.addEventListener("change", () => drawAll());
  document.querySelectorAll("details").forEach((section) =>
    section.addEventListener("toggle", () => { if (section.open) drawAll(); }));
  window.addEventListener("beforeprint", () => drawAll(true));
  window.addEventListener("afterprint", () => drawAll());
})();
