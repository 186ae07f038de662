// The charts of the live page: a span of time, by a dimension, drawn by Chart.js, which the theme brings.
"use strict";
(() => {
  const root = document.getElementById("sw-charts");
  if (!root || !window.Chart) return;
  const byId = (id) => document.getElementById(id);
  const PALETTE = ["running", "succeeded", "scheduled", "blocked", "failed", "queued", "expired", "cancelled"];
  const PERIOD = { "5min": 5000, "1h": 15000, "24h": 60000, "7d": 120000 };
  const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
  const fine = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
  const made = {};
  const chosen = { window: "1h", by: "all", ...Object.fromEntries(new URLSearchParams(location.hash.slice(1))) };
  let asked = 0;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function seconds(value, most = value) { // most: the greatest of those that are told in the same unit
    if (value === null || value === undefined) return "–";
    if (most < 1) return `${Math.round(value * 1000)} ms`;
    if (most < 120) return `${fine.format(value)} s`;
    return most < 7200 ? `${fine.format(value / 60)} min` : `${fine.format(value / 3600)} h`;
  }
  function step(say, lines) { // ticks stand at round numbers of the unit that they are told in
    const most = say === seconds ? Math.max(0, ...lines.flatMap(([, data]) => data)) : 0;
    return most < 120 ? undefined : most < 7200 ? 60 : 3600;
  }
  const percent = (value) => (value === null ? "–" : `${fine.format(100 * value)} %`);
  const plain = (value) => (value === null ? "–" : fine.format(value));
  function label(at, step) {
    const day = { month: "short", day: "numeric" }, time = { hour: "2-digit", minute: "2-digit", hour12: false };
    const shown = step >= 3600 ? { ...day, ...time } : step >= 60 ? time : { ...time, second: "2-digit" };
    return new Date(at * 1000).toLocaleString("en-GB", { ...shown, timeZone: "UTC" }); // as everywhere on the page
  }
  function draw(id, labels, lines, say) {
    const quiet = colour("--sw-quiet"), grid = colour("--sw-line");
    const datasets = lines.map(([name, data], n) => ({
      label: name, data, borderColor: colour(`--sw-${PALETTE[n % PALETTE.length]}`), backgroundColor: colour(`--sw-${PALETTE[n % PALETTE.length]}`),
      borderWidth: 1.5, pointRadius: data.filter((one) => one !== null).length < 3 ? 2 : 0, tension: 0.2, spanGaps: false,
    }));
    const axis = { ticks: { color: quiet, maxTicksLimit: 6, maxRotation: 0, autoSkip: true, autoSkipPadding: 14 }, grid: { color: grid } };
    const options = {
      animation: false, responsive: true, maintainAspectRatio: false, interaction: { mode: "index", intersect: false },
      scales: { x: { ...axis, grid: { display: false } }, y: { ...axis, beginAtZero: true, ticks: { ...axis.ticks, stepSize: step(say, lines), callback: (value, _, ticks) => say(value, ticks.at(-1).value) } } },
      plugins: {
        legend: { display: lines.length > 1, position: "bottom", labels: { color: quiet, boxWidth: 10, boxHeight: 2 } },
        tooltip: { callbacks: { label: (item) => `${item.dataset.label}: ${say(item.parsed.y)}` } },
      },
    };
    if (made[id]) {
      made[id].data = { labels, datasets };
      made[id].options = options;
      made[id].update();
    } else made[id] = new window.Chart(byId(id), { type: "line", data: { labels, datasets }, options });
  }
  function totals(found) {
    const row = (tag, values) => {
      const line = document.createElement("tr");
      values.forEach((value, n) => {
        const cell = document.createElement(tag);
        if (n) cell.className = "sw-num";
        cell.textContent = value;
        line.append(cell);
      });
      return line;
    };
    const both = (times) => (times ? `${seconds(times.p50)} / ${seconds(times.p95)}` : "–");
    byId("sw-totals-head").replaceChildren(row("th", [chosen.by === "all" ? "" : chosen.by, "Ended", "Failed", "Start delay p50 / p95", "Run time p50 / p95"]));
    byId("sw-totals").replaceChildren(...found.series.map((one) => row("td", [
      one.key, whole.format(one.total.ended), whole.format(one.total.failed), both(one.total.start_delay), both(one.total.run_time),
    ])));
  }
  function show(found) {
    const labels = found.at.map((at) => label(at, found.step_s));
    const each = (name) => found.series.map((one) => [one.key, one[name]]);
    const [all] = found.series, alone = found.by === "all";
    const times = (name) => (alone ? [["half within", all[`${name}_p50`]], ["95 % within", all[`${name}_p95`]]] : each(`${name}_p95`));
    draw("sw-chart-ended", labels, each("ended"), plain);
    draw("sw-chart-failed", labels, each("failed"), plain);
    draw("sw-chart-waiting", labels, each("waiting"), plain);
    draw("sw-chart-delay", labels, times("delay"), seconds);
    draw("sw-chart-run", labels, times("run"), seconds);
    draw("sw-chart-slots", labels, found.slots.map((one) => [one.key, one.used]), percent);
    totals(found);
    root.dataset.shown = `${found.window} ${found.by}`;
  }
  async function ask() {
    const mine = ++asked;
    try {
      const answer = await fetch(`${root.dataset.url}?${new URLSearchParams(chosen)}`, { credentials: "same-origin", headers: { Accept: "application/json" } });
      if (mine !== asked) return; // another window was chosen meanwhile
      if (answer.ok && !answer.redirected) show(await answer.json());
    } catch (error) {
      root.dataset.shown = `not read: ${error.message}`; // the numbers above say how old they are
    }
  }
  function mark() {
    for (const button of root.querySelectorAll("button[data-name]")) {
      button.setAttribute("aria-pressed", String(chosen[button.dataset.name] === button.value));
    }
  }
  root.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-name]");
    if (!button) return;
    chosen[button.dataset.name] = button.value;
    history.replaceState(null, "", `#${new URLSearchParams(chosen)}`);
    mark();
    ask();
  });
  if (!(chosen.window in PERIOD)) chosen.window = "1h";
  if (!root.querySelector(`button[data-name="by"][value="${CSS.escape(chosen.by)}"]`)) chosen.by = "all";
  for (const name of Object.keys(chosen)) if (!["window", "by"].includes(name)) delete chosen[name];
  new MutationObserver(ask).observe(document.documentElement, { attributes: true, attributeFilter: ["class"] });
  mark();
  async function loop() {
    if (!document.hidden) await ask();
    setTimeout(loop, PERIOD[chosen.window]);
  }
  loop();
})();
