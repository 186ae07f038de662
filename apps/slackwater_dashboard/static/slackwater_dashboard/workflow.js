// What the graph and the timeline of a workflow share: its tasks, asked for again while it runs, and words for them.
"use strict";
const SW = (() => {
  const root = document.getElementById("sw-flow");
  const MANY = 1000; // from so many tasks on it is asked for less often
  const shown = [];
  let flow = null;

  function el(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(key, value);
    node.append(...children.filter((child) => child !== null));
    return node;
  }
  function took(ms) {
    const s = ms / 1000;
    if (s < 1) return `${Math.round(ms)} ms`;
    if (s < 120) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
    if (s < 7200) return `${Math.round(s / 60)} min`;
    return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
  }
  const stem = (name) => name.replace(/[\s._:#/[(-]*\d+[\])]*$/, "") || name;
  const KEYS = { task: null, handler: (task) => task.what, name: (task) => stem(task.name) };
  const SEVERITY = ["failed", "expired", "cancelled", "running", "queued", "ready", "scheduled", "blocked", "skipped", "succeeded"];

  // The groups of tasks by handler or name, in the order of their first tasks; each with its tasks by state.
  function groups(by) {
    const found = new Map();
    for (const task of flow.tasks) {
      const key = KEYS[by](task);
      if (!found.has(key)) found.set(key, { key, tasks: [], states: {} });
      const group = found.get(key);
      group.tasks.push(task);
      group.states[task.state] = (group.states[task.state] || 0) + 1;
    }
    return [...found.values()];
  }
  // How many tasks are drawn is the reader's choice; at first, few enough to be read.
  function grouping(most) {
    if (flow.tasks.length <= most) return "task";
    const kinds = groups("name").length;
    return kinds > 1 && kinds <= most ? "name" : "handler";
  }
  const many = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const counted = (states) => SEVERITY.filter((state) => states[state]).map((state) => `${states[state]} ${state}`).join(", ");
  const worst = (states) => SEVERITY.find((state) => states[state]);
  const ran = (task) => task.attempts.reduce((sum, [began, ended]) => sum + (ended ?? flow.now) - began, 0);
  function waited(task) {
    const first = task.attempts.length ? task.attempts[0][0] : task.end ?? flow.now;
    return task.state === "blocked" ? 0 : Math.max(0, first - task.free);
  }
  const link = (task) => root.dataset.task.replace("00000000-0000-0000-0000-000000000000", task.id);
  const badge = (state) => el("span", { class: `sw-badge sw-${state}` }, state);

  function read(given) {
    const tasks = given.tasks.map(([id, name, what, state, free, end, parents, attempts], n) => ({ n, id, name, what, state, free, end, parents, attempts }));
    return { ...given, tasks, critical: new Set(given.critical) };
  }
  async function load() {
    let again = true;
    if (!document.hidden) {
      try {
        const answer = await fetch(root.dataset.picture, { credentials: "same-origin" });
        if (!answer.ok) return; // logged out, or gone: the next click tells
        flow = read(await answer.json());
        for (const show of shown) show(flow);
        again = !flow.final;
      } catch (error) {
        // the server is away: go on asking
        if (!(error instanceof TypeError)) throw error;
      }
    }
    if (again) setTimeout(load, flow && flow.tasks.length > MANY ? 15000 : 4000);
  }
  if (root) addEventListener("DOMContentLoaded", load);
  return { root, el, took, groups, grouping, many, counted, worst, ran, waited, link, badge, KEYS, show: (draw) => shown.push(draw) };
})();
