// The graph of a workflow, drawn by Cytoscape: zoom, fit, search, a legend, and one box for all tasks of a handler or name.
"use strict";
(() => {
  const part = document.getElementById("sw-flow-graph");
  if (!part) return;
  const [EACH, HUGE, SWEEPS, LETTERS, LEGIBLE, ROUND] = [150, 1200, 6, 24, 0.6, 8];
  const SIZE = { width: 170, height: 36, gapX: 70, gapY: 14 };
  const [by, search, told, stage, strip, legend] = ["by", "search", "told", "stage", "strip", "legend"].map((name) => part.querySelector(`[data-${name}]`));
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  let [cy, flow, drawn, matches, at, faded] = [null, null, "", [], -1, false];

  // A colour of the style sheet as the canvas takes it, whatever its notation.
  function colour(name) {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = getComputedStyle(part).getPropertyValue(name).trim() || "#888";
    pen.fillRect(0, 0, 1, 1);
    return `rgb(${[...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).join(",")})`;
  }

  const cut = (text) => (text.length > LETTERS ? `${text.slice(0, LETTERS - 1)}…` : text);

  // -- what is drawn --------------------------------------------------------------------------------------------
  function depths() {
    const [children, open] = [flow.tasks.map(() => []), flow.tasks.map((task) => task.parents.length)];
    for (const task of flow.tasks) for (const parent of task.parents) children[parent].push(task.n);
    const depth = flow.tasks.map(() => 0);
    const queue = flow.tasks.filter((task) => !task.parents.length).map((task) => task.n);
    for (let n = 0; n < queue.length; n++)
      for (const child of children[queue[n]]) {
        depth[child] = Math.max(depth[child], depth[queue[n]] + 1);
        if (!--open[child]) queue.push(child);
      }
    return depth;
  }
  function content() {
    const depth = depths();
    if (by.value === "task") {
      const nodes = flow.tasks.map((task) => ({ key: task.id, label: cut(task.name), states: { [task.state]: 1 }, tasks: [task], depth: depth[task.n] }));
      const edges = flow.tasks.flatMap((task) => task.parents.map((parent) => [parent, task.n, 1]));
      return { nodes, edges };
    }
    const groups = SW.groups(by.value);
    const [of, count] = [[], new Map()];
    groups.forEach((group, n) => group.tasks.forEach((task) => (of[task.n] = n)));
    for (const task of flow.tasks)
      for (const parent of task.parents)
        if (of[parent] !== of[task.n]) {
          const edge = `${of[parent]} ${of[task.n]}`;
          count.set(edge, (count.get(edge) || 0) + 1);
        }
    const nodes = groups.map((group) => ({
      ...group, label: `${cut(group.key)}\n${cut(SW.counted(group.states))}`, depth: group.tasks.reduce((least, task) => Math.min(least, depth[task.n]), Infinity),
    }));
    return { nodes, edges: [...count].map(([edge, times]) => [...edge.split(" ").map(Number), times]) };
  }
  // Columns by depth; in each, rows by the mean row of the neighbours. A column too tall to be read is folded.
  function places(nodes, edges) {
    const near = nodes.map(() => [[], []]);
    for (const [parent, child] of edges) {
      near[child][0].push(parent);
      near[parent][1].push(child);
    }
    const used = [...new Set(nodes.map((node) => node.depth))].sort((a, b) => a - b);
    const layers = used.map((depth) => nodes.map((node, n) => n).filter((n) => nodes[n].depth === depth));
    const row = [];
    layers.forEach((layer) => layer.forEach((n, place) => (row[n] = place)));
    for (let sweep = 0; sweep < SWEEPS; sweep++)
      for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
        const middle = new Map(layer.map((n) => {
          const others = near[n][sweep % 2];
          return [n, others.length ? others.reduce((sum, other) => sum + row[other], 0) / others.length : row[n]];
        }));
        layer.sort((a, b) => middle.get(a) - middle.get(b));
        layer.forEach((n, place) => (row[n] = place));
      }
    const most = Math.max(12, Math.ceil(Math.sqrt(nodes.length * 2.4)));
    const [found, columns, step] = [[], [], (by.value === "task" ? SIZE.height : 52) + SIZE.gapY];
    let x = 0;
    for (const layer of layers) {
      const rows = Math.ceil(layer.length / Math.ceil(layer.length / most));
      const first = -((Math.min(rows, layer.length) - 1) / 2) * step;
      for (let from = 0; from < layer.length; from += rows, x += SIZE.width + 18) {
        const column = layer.slice(from, from + rows);
        column.forEach((n, place) => (found[n] = { x, y: first + place * step, column: columns.length }));
        columns.push({ x, top: first - step / 2, boxes: column.length });
      }
      x += SIZE.gapX - 18;
    }
    return { spots: found, columns, step };
  }
  // Where an edge bends: through the columns between its ends it goes between their boxes. Told as Cytoscape takes it, by
  // how far along the straight line and how far beside it.
  function bends(from, to, { columns, step }) {
    if (to.column - from.column < 2) return {};
    const [half, beside] = [SIZE.width / 2, SIZE.width / 2 + ROUND];
    const points = [];
    let y = from.y;
    for (let n = from.column + 1; n < to.column; n++) {
      y += (to.y - y) / (to.column - n + 1);
      const [{ x, top, boxes }, row] = [columns[n], (y - columns[n].top) / step];
      if (row > 0 && row < boxes) y = top + Math.round(row) * step;
      points.push([x - beside, y], [x + beside, y]);
    }
    const [x0, dx, dy] = [from.x + half, to.x - from.x - SIZE.width, to.y - from.y];
    const length = Math.hypot(dx, dy);
    return {
      weights: points.map(([x, at]) => ((x - x0) * dx + (at - from.y) * dy) / length ** 2),
      distances: points.map(([x, at]) => ((at - from.y) * dx - (x - x0) * dy) / length),
    };
  }

  // -- how it looks ---------------------------------------------------------------------------------------------
  function style(huge) {
    const [text, line, card, accent] = ["--sw-text", "--sw-quiet", "--sw-card", "--color-primary-600"].map(colour);
    const group = by.value !== "task";
    const rules = [
      { selector: "node", style: {
        shape: huge ? "rectangle" : "round-rectangle", width: SIZE.width, height: group ? 52 : SIZE.height, label: "data(label)", color: text,
        "font-size": 12, "font-family": "inherit", "text-valign": "center", "text-wrap": group ? "wrap" : "none",
        "min-zoomed-font-size": 6, "border-width": huge ? 0 : 1.5, "background-color": card, "background-opacity": huge ? 0.6 : 0.3,
      } },
      { selector: "edge", style: {
        width: huge ? 1.2 : "data(width)", "line-color": line, "line-opacity": 0.7, "target-arrow-color": line, "arrow-scale": 0.8, events: "no",
        "curve-style": huge ? "haystack" : "bezier", "target-arrow-shape": huge ? "none" : "triangle",
        ...(huge ? {} : { "source-endpoint": "90deg", "target-endpoint": "270deg" }),
      } },
    ];
    for (const chip of legend.querySelectorAll("[data-state]")) {
      const shade = colour(`--sw-${chip.dataset.state}`);
      rules.push({ selector: `node[state = "${chip.dataset.state}"]`, style: { "border-color": shade, "background-color": shade } });
    }
    rules.push(
      { selector: ".critical", style: { "border-width": 4, "line-color": accent, "target-arrow-color": accent, "line-opacity": 1, width: 3 } },
      { selector: "node.critical", style: { width: SIZE.width, "border-style": "double" } },
      { selector: "edge[weights]", style: {
        "curve-style": "round-segments", "edge-distances": "endpoints", "segment-radii": ROUND,
        "segment-weights": (edge) => edge.data("weights"), "segment-distances": (edge) => edge.data("distances"),
      } },
      { selector: ".faded", style: { opacity: 0.15 } },
      { selector: "node:selected", style: { "border-width": 5, "border-color": accent, "background-opacity": 0.5 } },
    );
    return rules;
  }
  function key(states) {
    const chips = Object.entries(states).map(([state, count]) => {
      const badge = SW.badge(state);
      badge.dataset.state = state;
      return SW.el("span", {}, badge, ` ${count}`);
    });
    if (flow.critical.size > 1) chips.push(SW.el("span", {}, SW.el("span", { class: "sw-key-critical", "aria-hidden": "true" }), " critical path"));
    legend.replaceChildren(...chips);
  }

  function draw() {
    const { nodes, edges } = content();
    const states = {};
    for (const task of flow.tasks) states[task.state] = (states[task.state] || 0) + 1;
    key(states);
    const shape = `${by.value} ${nodes.length} ${edges.length}`;
    const critical = (node) => node.tasks.some((task) => flow.critical.has(task.n));
    if (cy && shape === drawn) {
      cy.batch(() => nodes.forEach((node, n) => {
        const box = cy.getElementById(`n${n}`);
        box.data({ label: node.label, state: SW.worst(node.states), of: node });
        box.toggleClass("critical", critical(node));
      }));
      cy.style(style(cy.scratch("huge")));
      describe();
      return;
    }
    drawn = shape;
    const [grid, huge] = [places(nodes, edges), nodes.length + edges.length > HUGE];
    const { spots } = grid;
    cy?.destroy();
    cy = cytoscape({
      container: stage, layout: { name: "preset" }, style: style(huge), minZoom: 0.01, maxZoom: 3, boxSelectionEnabled: false, autoungrabify: true,
      wheelSensitivity: 0.6, hideEdgesOnViewport: huge, textureOnViewport: huge, pixelRatio: huge ? 1 : "auto", selectionType: "single",
      elements: [
        ...nodes.map((node, n) => ({ data: { id: `n${n}`, label: node.label, state: SW.worst(node.states), of: node }, position: { x: spots[n].x, y: spots[n].y }, classes: critical(node) ? "critical" : "" })),
        ...edges.map(([parent, child, times], n) => ({
          data: {
            id: `e${n}`, source: `n${parent}`, target: `n${child}`, width: 1.2 + Math.log2(times) / 2,
            ...(huge ? {} : bends(spots[parent], spots[child], grid)),
          },
          classes: onPath(nodes[parent], nodes[child]) ? "critical" : "",
        })),
      ],
    });
    cy.scratch("huge", huge);
    part.cy = cy; // for whoever looks at what is drawn
    cy.on("select unselect", "node", describe);
    cy.on("dbltap", "node", (event) => event.target.data("of").tasks.length === 1 && (location.href = SW.link(event.target.data("of").tasks[0])));
    begin();
    faded = false;
    find();
    describe();
  }
  function onPath(parent, child) {
    if (by.value !== "task" || !flow.critical.has(child.tasks[0].n)) return false;
    const path = [...flow.critical];
    return path[path.indexOf(child.tasks[0].n) - 1] === parent.tasks[0].n;
  }

  // -- what a reader does ---------------------------------------------------------------------------------------
  function fit() {
    cy.fit(undefined, 16);
    if (cy.zoom() > 1.1) {
      cy.zoom(1.1);
      cy.center();
    }
  }
  function begin() {
    fit();
    if (cy.width() >= 600 || cy.zoom() >= LEGIBLE) return;
    cy.zoom(LEGIBLE); // on a phone: the first tasks, to be read; the rest is a drag away
    const first = cy.nodes().min((node) => node.position("x")).ele.position();
    cy.pan({ x: 64 - first.x * LEGIBLE, y: cy.height() / 2 - first.y * LEGIBLE });
  }
  const zoom = (factor) => cy.zoom({ level: cy.zoom() * factor, renderedPosition: { x: cy.width() / 2, y: cy.height() / 2 } });
  function find() {
    const wanted = search.value.trim().toLowerCase();
    const hit = (node) => node.data("label").toLowerCase().includes(wanted) || node.data("of").tasks.some((task) => task.name.toLowerCase().includes(wanted) || task.id.startsWith(wanted));
    const found = wanted ? cy.nodes().filter(hit) : cy.nodes();
    if (wanted || faded)
      cy.batch(() => {
        cy.elements().toggleClass("faded", Boolean(wanted));
        found.removeClass("faded");
      });
    faded = Boolean(wanted);
    [matches, at] = [wanted ? found.toArray() : [], -1];
    told.textContent = wanted ? `${matches.length} found${matches.length ? "; Enter shows the next" : ""}` : "";
  }
  function next() {
    if (!matches.length) return;
    at = (at + 1) % matches.length;
    cy.$(":selected").unselect();
    matches[at].select();
    cy.zoom(Math.max(cy.zoom(), 0.9));
    cy.center(matches[at]);
    told.textContent = `${at + 1} of ${matches.length}`;
  }
  function describe() {
    const box = cy.$("node:selected")[0];
    if (!box) return strip.replaceChildren(SW.el("span", { class: "sw-quiet" }, "Choose a box to see what it is. Drag moves, the wheel zooms, arrow keys and + − do the same."));
    const { tasks, states, key: name } = box.data("of");
    if (tasks.length > 1 || by.value !== "task") {
      const where = encodeURIComponent(`workflow:${SW.root.dataset.id} ${by.value}:"${name}"`);
      const list = SW.root.dataset.tasks ? SW.el("a", { href: `${SW.root.dataset.tasks}?q=${where}` }, "list them") : "";
      const longest = Math.max(...tasks.map(SW.ran));
      return strip.replaceChildren(SW.el("b", {}, name), ` ${SW.many(tasks.length, "task")}: ${SW.counted(states)}; the longest ran ${SW.took(longest)} `, list);
    }
    const [task] = tasks;
    const facts = `${task.what}; waited ${SW.took(SW.waited(task))}, ran ${SW.took(SW.ran(task))}${task.attempts.length > 1 ? ` in ${SW.many(task.attempts.length, "attempt")}` : ""}`;
    strip.replaceChildren(SW.badge(task.state), " ", SW.el("a", { href: SW.link(task) }, task.name), ` ${facts} `);
    const form = document.getElementById("sw-rerun");
    if (form && task.end !== null) {
      const own = form.cloneNode(true);
      own.removeAttribute("id");
      own.hidden = false;
      const there = form.dataset.action;
      own.action = there ? there.replace("00000000-0000-0000-0000-000000000000", task.id) : SW.link(task).replace(/change\/$/, "do/rerun-from/");
      strip.append(own);
    }
  }
  const ACTS = { in: () => zoom(1.35), out: () => zoom(1 / 1.35), fit };
  const KEYS = {
    "+": ACTS.in, "-": ACTS.out, 0: fit, ArrowLeft: () => cy.panBy({ x: 60, y: 0 }), ArrowRight: () => cy.panBy({ x: -60, y: 0 }),
    ArrowUp: () => cy.panBy({ x: 0, y: 60 }), ArrowDown: () => cy.panBy({ x: 0, y: -60 }),
  };
  part.addEventListener("click", (event) => cy && ACTS[event.target.closest("[data-act]")?.dataset.act]?.());
  by.addEventListener("change", drawAndTell);
  search.addEventListener("input", () => cy && find());
  search.addEventListener("keydown", (event) => event.key === "Enter" && cy && (event.preventDefault(), next()));
  stage.addEventListener("keydown", (event) => cy && KEYS[event.key] && (event.preventDefault(), KEYS[event.key]()));
  new MutationObserver(() => cy && cy.style(style(cy.scratch("huge")))).observe(document.documentElement, { attributes: true, attributeFilter: ["class"] });
  new ResizeObserver(() => cy && (cy.resize(), begin())).observe(stage);

  function drawAndTell() {
    draw();
    part.dataset.drawn = by.value; // for whoever waits for it
  }

  SW.show((now) => {
    const first = !flow;
    flow = now;
    if (first) by.value = SW.grouping(EACH);
    drawAndTell();
  });
})();
