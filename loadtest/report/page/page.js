// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Draws the plots of a report: page.html has their data in #plots, and an element with
// data-plots for each group.
"use strict";
(() => {
  const {groups, bands} = JSON.parse(document.getElementById("plots").textContent);
  const root = document.documentElement;
  const printWidth = 320;
  const height = 220;
  const charts = [];

  const colour = name => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const clock = s => `${Math.floor(s / 60)}:${String(Math.floor(s % 60)).padStart(2, "0")}`;

  // Lines of hardly any points between their ends would not be seen.
  const isolated = s => s.y.filter(v => v != null).length <= 3 * (1 + s.y.filter(v => v == null).length);

  // Three significant figures, and every digit before the point.
  const number = v => {
    if (v == null) return "–";
    const a = Math.abs(v);
    const digits = a === 0 || a >= 100 ? 0 : a >= 10 ? 1 : a >= 1 ? 2 : 3;
    return v.toLocaleString("en", {maximumFractionDigits: digits});
  };

  const short = v => (v == null ? "" : v.toLocaleString("en", {notation: "compact", maximumFractionDigits: 2}));

  // 1/(1-q) as a percentile: 100 is 99 %.
  const percentile = x => {
    const nines = Math.max(0, Math.ceil(Math.log10(x) - 2));
    return (100 * (1 - 1 / x)).toFixed(nines + (x > 1 && x < 100 && x !== 10 && x !== 2 ? 1 : 0)) + "%";
  };

  // Faults lie behind the lines, with their kind at the top where there is room.
  function drawBands(u) {
    const {left, top, width, height} = u.bbox, ctx = u.ctx, ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.font = `${10 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "top";
    let free = -Infinity;
    for (const b of bands) {
      const from = u.valToPos(b.from, "x", true), until = u.valToPos(b.until, "x", true);
      ctx.fillStyle = colour("band");
      ctx.fillRect(from, top, Math.max(until - from, 2 * ratio), height);
      if (from > free && from < left + width) {
        ctx.fillStyle = colour("soft");
        ctx.fillText(b.kind, from + 3 * ratio, top + 3 * ratio);
        free = from + ctx.measureText(b.kind).width + 8 * ratio;
      }
    }
    ctx.restore();
  }

  function options(plot, width) {
    const dist = plot.kind === "distribution";
    const log = dist || plot.kind === "timelog";
    const axis = more => {
      const rule = {stroke: colour("line"), width: 1, ...(more.filter && {filter: more.filter})};
      return {stroke: colour("soft"), grid: rule, ticks: rule, font: "11px system-ui, sans-serif", ...more};
    };
    const logOnly = (u, splits) => splits.map(v => (v == null || v <= 0 || Math.abs(Math.log10(v) % 1) > 1e-6 ? null : v));
    const sparse = (u, splits) => {
      // Whole powers of ten, and 2 and 5 between them when there are few.
      const decades = Math.log10(u.scales.y.max / u.scales.y.min);
      return splits.map(v => {
        const lead = Math.round(v / 10 ** Math.floor(Math.log10(v) + 1e-9));
        return lead === 1 || decades < 2.2 && (lead === 2 || lead === 5) ? v : null;
      });
    };
    return {
      width, height,
      cursor: {sync: dist ? undefined : {key: "time"}, drag: {x: true, y: false}},
      scales: {
        x: dist ? {time: false, distr: 3, log: 10} : {time: false},
        y: log ? {distr: 3, log: 10} : {range: (u, low, high) => [Math.min(0, low ?? 0), (high ?? 0) > 0 ? high * 1.08 : 1]},
      },
      axes: [
        axis(dist ? {values: (u, splits) => splits.map(v => (v == null ? "" : percentile(v))), filter: logOnly, space: 40, size: 34}
          : {values: (u, splits) => splits.map(clock), incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400], size: 34}),
        axis(log ? {values: (u, splits) => splits.map(v => (v == null ? "" : String(+v.toPrecision(2)))), filter: sparse, size: 56}
          : {values: (u, splits) => splits.map(short), size: 56}),
      ],
      series: [
        {label: dist ? "percentile" : "time", value: (u, v) => (v == null ? "" : dist ? percentile(v) : clock(v))},
        ...plot.series.map(s => ({
          label: s.label, stroke: colour("c" + s.colour % 7), width: 1.5, dash: s.dashed ? [5, 4] : undefined,
          points: {show: isolated(s), size: 5}, value: (u, v) => number(v), spanGaps: false,
        })),
      ],
      legend: {markers: {dash: (u, i) => (i > 0 && plot.series[i - 1].dashed ? "dotted" : "solid")}},
      hooks: {drawClear: dist ? [] : [drawBands]},
    };
  }

  function chart(plot, host) {
    const title = document.createElement("h3");
    title.textContent = plot.title + " ";
    const unit = document.createElement("span");
    unit.textContent = plot.unit;
    title.append(unit);
    const place = document.createElement("div");
    host.append(title, place);
    // Lines have their own x: join puts them on one. A null ends a line, and that holds
    // up to the line's next point (mode 2, expand), past the points of other lines.
    const joined = uPlot.join(plot.series.map(s => [s.x, s.y]), plot.series.map(() => [0, 2]));
    let drawn = null;
    const draw = () => {
      const width = root.classList.contains("print") ? printWidth : place.clientWidth;
      if (width < 50) return;
      if (drawn) drawn.destroy();
      drawn = new uPlot(options(plot, width), joined, place);
    };
    new ResizeObserver(() => {
      if (root.classList.contains("print")) return;
      if (!drawn) draw();
      else if (Math.abs(drawn.width - place.clientWidth) > 1) drawn.setSize({width: place.clientWidth, height});
    }).observe(place);
    draw();
    charts.push(draw);
  }

  for (const place of document.querySelectorAll("[data-plots]")) {
    const group = groups.find(g => g.name === place.dataset.plots);
    for (const plot of group ? group.plots : []) {
      const host = document.createElement("div");
      host.className = "plot";
      place.append(host);
      chart(plot, host);
    }
  }

  const redraw = () => charts.forEach(draw => draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  const printing = on => {
    root.classList.toggle("print", on);
    redraw();
  };
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));
})();
