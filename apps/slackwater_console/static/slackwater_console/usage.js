// The charts of usage: bars by day or month, one upon the other by tier or category, drawn by Chart.js, which the theme brings.
"use strict";
(() => {
  const root = document.getElementById("co-charts");
  if (!root || !window.Chart) return;
  const found = JSON.parse(document.getElementById("co-usage").textContent);
  const PALETTE = ["running", "succeeded", "scheduled", "blocked", "failed", "queued", "expired", "cancelled"];
  const number = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });
  const made = new Map();
  let by = "tier";

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function draw(canvas) {
    const quiet = colour("--sw-quiet"), grid = colour("--sw-line");
    const groups = Object.entries(found.by[by]).sort(([a], [b]) => (a < b ? -1 : 1));
    const datasets = groups.map(([name, sums], n) => ({ label: name, data: sums[canvas.dataset.measure], backgroundColor: colour(`--sw-${PALETTE[n % PALETTE.length]}`) }));
    const axis = { stacked: true, ticks: { color: quiet, maxTicksLimit: 6, maxRotation: 0, autoSkip: true } };
    const options = {
      animation: false, responsive: true, maintainAspectRatio: false, interaction: { mode: "index", intersect: false },
      scales: { x: { ...axis, grid: { display: false } }, y: { ...axis, grid: { color: grid }, beginAtZero: true } },
      plugins: {
        legend: { display: groups.length > 1, position: "bottom", labels: { color: quiet, boxWidth: 10, boxHeight: 10 } },
        tooltip: { filter: (item) => item.parsed.y !== 0, callbacks: { label: (item) => `${item.dataset.label}: ${number.format(item.parsed.y)}` } },
      },
    };
    made.get(canvas)?.destroy();
    made.set(canvas, new window.Chart(canvas, { type: "bar", data: { labels: found.at, datasets }, options }));
  }
  function show() {
    for (const button of root.querySelectorAll("button[value]")) button.setAttribute("aria-pressed", String(button.value === by));
    root.querySelectorAll("canvas").forEach(draw);
    root.dataset.shown = by; // for whoever waits for it
  }
  root.addEventListener("click", (event) => {
    const button = event.target.closest("button[value]");
    if (!button) return;
    by = button.value;
    show();
  });
  new MutationObserver(show).observe(document.documentElement, { attributes: true, attributeFilter: ["class"] });
  show();
})();
