// The live page: ask for the numbers every two seconds and draw them. Text goes in as text, never as markup.
"use strict";
(() => {
  const root = document.getElementById("sw-live");
  if (!root) return;
  const PERIOD = 2000;
  const SVG = "http://www.w3.org/2000/svg";
  const whole = new Intl.NumberFormat("en-US");
  const byId = (id) => document.getElementById(id);
  let lastGood = Date.now();

  function el(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    for (const child of children) node.append(child);
    return node;
  }
  function svg(name, attributes = {}, ...children) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    for (const child of children) node.append(child);
    return node;
  }
  function seconds(value) {
    if (value === null || value === undefined) return "–";
    if (value < 1) return `${Math.round(value * 1000)} ms`;
    if (value < 120) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
    if (value < 7200) return `${Math.round(value / 60)} min`;
    return value < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} d`;
  }
  const many = (number, noun) => `${whole.format(number)} ${noun}${number === 1 ? "" : "s"}`;
  const bounded = (value) => whole.format(value.count) + (value.more ? "+" : "");
  const badge = (text, kind) => el("span", { class: `sw-badge sw-${kind}` }, text);
  function bar(permille) {
    const level = permille >= 800 ? " sw-high" : "";
    const meter = svg("svg", { class: `sw-bar${level}`, viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" });
    meter.append(svg("rect", { class: "sw-bar-back", width: 100, height: 8, rx: 2 }));
    meter.append(svg("rect", { class: "sw-bar-fill", width: permille / 10, height: 8, rx: 2 }));
    return el("span", { class: "sw-meter" }, meter, `${Math.round(permille / 10)} %`);
  }
  function table(headers, rows, empty) {
    if (!rows.length) return el("p", { class: "sw-quiet" }, empty);
    const cell = (tag, value, header) => el(tag, header.endsWith("#") ? { class: "sw-num" } : {}, value);
    const head = el("tr", {}, ...headers.map((header) => cell("th", header.replace("#", ""), header)));
    const body = rows.map((row) => el("tr", {}, ...row.map((value, n) => cell("td", value, headers[n]))));
    return el("table", { class: "sw-table" }, el("thead", {}, head), el("tbody", {}, ...body));
  }
  const fill = (id, ...children) => byId(id).replaceChildren(...children);

  function tile(label, value, note, href) {
    const inside = [el("span", { class: "sw-tile-label" }, label), el("b", {}, value), el("span", { class: "sw-quiet" }, note)];
    return href ? el("a", { class: "sw-tile", href }, ...inside) : el("div", { class: "sw-tile" }, ...inside);
  }
  function tiles(now) {
    const states = now.states.by_state;
    const nodes = now.nodes.filter((node) => node.state === "active").length;
    const about = now.states.exact ? "" : "≈ ";
    const waiting = (states.blocked || 0) + (states.scheduled || 0) + (states.ready || 0);
    const link = (state) => `${root.dataset.tasks}?state=${state}`;
    const delay = now.start_delay;
    const short = (each) => each.wanted / Math.max(1, each.slots);
    const tight = now.demand.reduce((most, each) => (short(each) > short(most) ? each : most), now.demand[0] || { kind: "", slots: 0, demand: 0, wanted: 0 });
    const slots = (number) => whole.format(Math.ceil(number));
    fill(
      "sw-tiles",
      tile("Waiting", about + whole.format(waiting), `${many(now.states.tenants, "tenant")} with work`, link("live")),
      tile("Queued", whole.format(states.queued || 0), "claimed for a node", link("queued")),
      tile("Running", whole.format(states.running || 0), `on ${many(nodes, "active node")}`, link("running")),
      tile("Dead letters", bounded(now.dead_letters), "attempts used up", root.dataset.dead),
      tile("Demand", slots(tight.demand), `of ${slots(tight.slots)} ${tight.kind} slots; ${slots(tight.wanted)} wanted`),
      tile("Throughput", now.rate >= 10 ? whole.format(Math.round(now.rate)) : now.rate.toFixed(1), `ended a second; ${whole.format(now.failed)} failed in ${Math.round(now.over_s / 60)} min`),
      tile("Start delay", delay ? seconds(delay.p50) : "–", delay ? `p95 ${seconds(delay.p95)}, first attempts` : "no attempt yet"),
      tile("Run time", now.run_time ? seconds(now.run_time.p50) : "–", now.run_time ? `p95 ${seconds(now.run_time.p95)}` : "no attempt yet"),
    );
  }
  function states(now) {
    const counts = Object.entries(now.states.by_state);
    const most = Math.max(1, ...counts.map(([, count]) => count));
    byId("sw-exact").textContent = now.states.exact ? "" : "waiting ones by the database's statistics";
    const rows = counts.map(([state, count]) => {
      const shown = el("a", { href: `${root.dataset.tasks}?state=${state}` }, badge(state, state));
      const meter = svg("svg", { class: "sw-bar sw-wide", viewBox: "0 0 100 8", preserveAspectRatio: "none" });
      meter.append(svg("rect", { class: `sw-state-fill sw-${state}`, width: (100 * count) / most, height: 8, rx: 1 }));
      const waits = ["blocked", "scheduled", "ready"].includes(state);
      return [shown, meter, (now.states.exact || !waits ? "" : "≈ ") + whole.format(count)];
    });
    fill("sw-states", table(["State", "", "Tasks#"], rows, ""));
  }
  function nodes(now) {
    const kind = { active: "succeeded", starting: "scheduled", draining: "scheduled", silent: "failed", lost: "failed" };
    const rows = now.nodes.map((node) => [
      el("a", { href: `${root.dataset.nodes}${node.id}/change/` }, node.name),
      node.cell,
      badge(node.state, kind[node.state] || "cancelled"),
      Object.entries(node.slots).map(([name, count]) => `${count} ${name}`).join(", "),
      whole.format(node.queued),
      whole.format(node.running),
      bar(node.slots_permille),
      bar(node.cpu_permille),
      bar(node.memory_permille),
      `${seconds(node.silent_s)} ago`,
    ]);
    const headers = ["Node", "Cell", "State", "Slots", "Queued#", "Running#", "Slots used", "CPU given", "Memory given", "Heartbeat#"];
    fill("sw-nodes", table(headers, rows, "No node is registered: start a worker."));
    byId("sw-scaling-card").hidden = !now.scaling.length;
    const calls = now.scaling.map((call) => [
      call.cell, call.labels, `${call.action}: ${whole.format(call.wanted)} wanted, ${whole.format(call.have)} there`, `${seconds(call.called_s_ago)} ago`,
      call.error ? badge(call.error, "failed") : badge("done", "succeeded"), whole.format(call.calls), whole.format(call.failures),
    ]);
    fill("sw-scaling", table(["Cell", "Labels", "Asked for", "Called#", "Outcome", "Calls#", "Failed#"], calls, ""));
  }
  /** A link to the tasks that a search finds. */
  function found(text, search) {
    return el("a", { href: `${root.dataset.tasks}?${new URLSearchParams(search)}` }, text);
  }
  /** A link to a row of a list. */
  function row(list, id, text) {
    return el("a", { href: `${list}${id}/change/` }, text);
  }
  function lists(now) {
    const lines = now.lines.map((line) => [
      found(line.tenant, { state: "ready", q: `tenant:${line.tenant}` }), line.category, line.tier, line.paused ? badge("paused", "scheduled") : "", bounded(line.ready), seconds(line.head_waits_s),
    ]);
    fill("sw-lines", table(["Tenant", "Category", "Tier", "", "Ready#", "Its head waits#"], lines, "Nothing is ready: all that can run, runs."));
    const tenants = now.tenants.map((tenant) => [
      row(root.dataset.tenants, tenant.id, tenant.tenant), tenant.paused ? badge("paused", "scheduled") : "", row(root.dataset.plans, tenant.plan, whole.format(tenant.weight)), whole.format(tenant.urgent), whole.format(tenant.unfinished), tenant.on_time === null ? "–" : `${(100 * tenant.on_time).toFixed(1)} %`,
    ]);
    fill("sw-tenants", table(["Tenant", "", "Weight#", "Urgent#", "Unfinished#", "On time today#"], tenants, "No tenant has unfinished tasks."));
    const leaders = now.leaders.map((leader) => [
      leader.cell, leader.leads ? badge("leads", "succeeded") : badge("lapsed", "failed"), leader.holder, whole.format(leader.epoch), `${seconds(leader.renewed_s_ago)} ago`, whole.format(leader.stolen),
    ]);
    fill("sw-leaders", table(["Cell", "State", "Leader", "Epoch#", "Renewed#", "Claims stolen#"], leaders, "No dispatcher has led yet: nothing is started."));
  }
  function shares(now) {
    const part = (number) => whole.format(Math.round(10 * number) / 10);
    const percent = (part) => `${(100 * part).toFixed(1)} %`;
    const policies = now.shares.flatMap((cell) => [
      `${cell.cell}: `, el("a", { href: root.dataset.policies }, cell.policy.replaceAll("_", " ")),
      `, ${percent(cell.utilization)} in use, Jain's index ${cell.jain.toFixed(3)}. `,
    ]);
    fill("sw-policy", ...policies);
    const held = now.shares.flatMap((cell) => cell.tenants.map((one) => [
      cell.cell, one.waits ? found(one.tenant, { state: "ready", q: `tenant:${one.tenant}` }) : found(one.tenant, { state: "running", q: `tenant:${one.tenant}` }), bar(Math.min(1000, 1000 * one.held)), percent(one.entitled), one.waits ? badge("waits", "scheduled") : "", one.waited_for ? `${whole.format(Math.ceil(100 * one.waited_for))} %` : "–",
    ]));
    fill("sw-shares", table(["Cell", "Tenant", "Holds", "Entitled to#", "", "Waits for#"], held, "No tenant holds or waits for anything."));
    const busiest = (cell) => `${cell.cell}: ${cell.claimed} claimed (at most ${cell.limit}), ${part(cell.could)} slots that its work can use were free; of ${whole.format(cell.claims)} claims so far ${whole.format(cell.ahead || 0)} took room given ahead. `;
    fill("sw-round", ...now.rounds.map(busiest));
    const says = (cell, why) => el("span", { title: cell.says[why] || "" }, why.replaceAll("_", " "));
    const rows = now.rounds.flatMap((cell) => [
      ...cell.plans.map((one) => [
        cell.cell, `plan ${one.plan}`, "", whole.format(one.claimed),
        el("span", {}, ...Object.entries(one.left).flatMap(([why, count]) => [`${whole.format(count)} `, says(cell, why), " "])),
      ]),
      ...cell.nodes.map((one) => [
        cell.cell, `node ${one.node}`, `${part(one.took)} of ${part(one.could)}`, whole.format(one.claimed), says(cell, one.why),
      ]),
    ]);
    fill("sw-rounds", table(["Cell", "", "Slots taken#", "Claimed#", "Why not more"], rows, "No dispatcher has told of a round."));
  }
  function components(now) {
    const rows = now.components.map((one) => [
      one.kind, one.cell, one.where, one.alive ? badge("alive", "succeeded") : badge("silent", "failed"), seconds(one.up_s), `${seconds(one.silent_s)} ago`,
    ]);
    fill("sw-components", table(["Component", "Cell", "Process", "State", "Up#", "Heard#"], rows, "No component has told of itself."));
  }
  function alerts(now) {
    byId("sw-alerts-card").hidden = !now.alerts.length;
    const rows = now.alerts.map((alert) => [
      el("a", { href: `${root.dataset.alerts}${alert.id}/change/` }, alert.says || alert.rule),
      alert.cell,
      alert.subject,
      alert.detail,
      `${seconds(now.now - alert.raised_at)} ago`,
      alert.acknowledged_by ? badge(alert.acknowledged_by, "scheduled") : badge("nobody looks after it", "failed"),
    ]);
    fill("sw-alerts", table(["What is wrong", "Cell", "Where", "", "Raised#", "Acknowledged"], rows, ""));
  }
  function stale(text) {
    const note = byId("sw-stale");
    note.hidden = !text;
    note.textContent = text;
  }
  async function ask() {
    const answer = await fetch(root.dataset.url, { credentials: "same-origin", headers: { Accept: "application/json" } });
    if (answer.redirected || answer.status === 403) {
      location.reload();
      return;
    }
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const now = await answer.json();
    alerts(now); tiles(now); states(now); nodes(now); lists(now); shares(now); components(now);
    root.dataset.at = now.now;
    lastGood = Date.now();
    stale("");
  }
  async function loop() {
    if (!document.hidden) {
      try {
        await ask();
      } catch (error) {
        stale(`These numbers are ${Math.round((Date.now() - lastGood) / 1000)} s old: the server does not answer (${error.message}).`);
      }
    }
    setTimeout(loop, PERIOD);
  }
  loop();
})();
