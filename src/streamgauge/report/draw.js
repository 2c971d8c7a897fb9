"use strict";
// Draws the figures in the reader's theme, again when the theme changes, and in light for printing.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const themes = {
    light: {
      ink: "#1d2328", soft: "#5b6670", line: "#e3e7ea", paper: "#ffffff",
      colours: ["#0b6aa8", "#c8510a", "#0a8460", "#a8488a", "#9a7400", "#5b5bd6", "#b3303c", "#4f6f1c"],
    },
    dark: {
      ink: "#e4e8eb", soft: "#9aa6b0", line: "#2a3238", paper: "#1c2227",
      colours: ["#5cb5ee", "#ff9557", "#3fcb9c", "#e796c9", "#e3bf4f", "#a5a5ff", "#ff8a92", "#b2d27a"],
    },
  };
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");

  function coloured(trace, theme) {
    const { colour = 0, band, blind, front, point, hollow, map } = trace.meta;
    const line = theme.colours[colour % theme.colours.length];
    if (map) {
      return { ...trace, fillcolor: line + "2e", line: { ...trace.line, color: line },
        marker: { ...trace.marker, color: line } };
    }
    if (blind) {
      return {
        ...trace, line: { color: theme.soft, dash: "dash", width: 1.75 },
        textposition: "middle right", textfont: { color: theme.soft, size: 12 }, cliponaxis: false,
      };
    }
    if (band) {
      return {
        ...trace, mode: "lines", fill: "toself", fillcolor: line + "2e", line: { width: 0 },
        hoverinfo: "skip", showlegend: false,
      };
    }
    if (front) {
      return { ...trace, line: { color: theme.soft, width: 1.5, shape: "hv" }, showlegend: true };
    }
    if (point) {
      const bar = (given) => given && { ...given, color: line, width: 3 };
      return {
        ...trace, error_x: bar(trace.error_x), error_y: bar(trace.error_y), cliponaxis: false,
        textfont: { color: theme.ink, size: 12 }, showlegend: false,
        marker: { color: hollow ? theme.paper : line, size: 10, line: { color: line, width: 2 } },
      };
    }
    // Beyond the colours there are, the same again, dotted.
    const dash = colour < theme.colours.length ? "solid" : "dot";
    return { ...trace, line: { color: line, width: 2, dash }, marker: { color: line, size: 7 } };
  }

  function draw(element, theme, width) {
    const figure = figures[Number(element.dataset.figure)];
    const axis = (given) => ({
      gridcolor: theme.line, linecolor: theme.line, zerolinecolor: theme.line, automargin: true,
      tickfont: { color: theme.soft }, ...given,
      title: { ...given.title, font: { color: theme.soft, size: 13 }, standoff: 10 },
    });
    const layout = {
      xaxis: axis(figure.layout.xaxis), yaxis: axis(figure.layout.yaxis),
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, color: theme.ink, size: 13 },
      margin: { l: 56, r: 124, t: 12, b: 48 }, showlegend: true,
      hovermode: figure.layout.hovermode || "x unified",
      hoverlabel: { bgcolor: theme.paper, bordercolor: theme.line, font: { color: theme.ink } },
      legend: { orientation: "h", x: 0, y: 1.02, xanchor: "left", yanchor: "bottom" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: theme.soft, activecolor: theme.ink },
      width: width, height: width && 280, uirevision: "kept",
    };
    const options = {
      responsive: !width, displaylogo: false, displayModeBar: "hover",
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    };
    return Plotly.react(element, figure.data.map((t) => coloured(t, theme)), layout, options);
  }

  function visible() {
    // A plot in a closed section has no width yet.
    return [...document.querySelectorAll(".plot")].filter((e) => !e.closest("details:not([open])"));
  }

  const drawAll = (dark, width) =>
    visible().forEach((e) => draw(e, dark ? themes.dark : themes.light, width));
  drawAll(prefersDark.matches);
  prefersDark.addEventListener("change", () => drawAll(prefersDark.matches));
  document.querySelectorAll("details").forEach((section) =>
    section.addEventListener("toggle", () => { if (section.open) drawAll(prefersDark.matches); }));
  window.addEventListener("beforeprint", () => drawAll(false, 680));
  window.addEventListener("afterprint", () => drawAll(prefersDark.matches));
})();
