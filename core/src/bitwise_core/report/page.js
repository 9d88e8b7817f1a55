"use strict";
(() => {
  const COLOURS = [
    "#8fb8ef", "#8fd3a0", "#f2b98a", "#c5aee8", "#e8d574", "#84ced4", "#ee9e9e", "#b5cf7f", "#e5a3cd", "#9fa8ea",
    "#d1b48f", "#7fc9a4",
  ];
  const NARROW = 28; // characters of a label
  const colour = (number) => (number ? COLOURS[(number - 1) % COLOURS.length] : "#b9c0cc");

  for (const each of document.querySelectorAll("[data-class]")) {
    each.style.setProperty("--c", colour(Number(each.dataset.class)));
  }

  function theme() {
    const root = document.documentElement;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const set = () => { root.dataset.theme = dark.matches ? "dark" : "light"; };
    set();
    dark.addEventListener("change", set);
    document.getElementById("theme").addEventListener("click", () => {
      root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    });
  }

  function element(parent, tag, className, text) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  }

  function select(parent, title, options, change) {
    const label = element(parent, "label", "", `${title} `);
    const made = element(label, "select");
    for (const [value, text] of options) made.append(new Option(text, value));
    made.addEventListener("change", () => change(made.value));
    return made;
  }

  // A tree that grows to the right. A click on a node folds or unfolds its operands and shows its lines.
  function drawTree(parent, record, lit) {
    const root = d3.hierarchy(record, (node) => node.c);
    root.each((node) => {
      node.key = node.data;
      if (node.children && !node.data.m && node.depth >= 3) { node.hidden = node.children; node.children = null; }
    });
    const svg = d3.select(parent).append("svg").attr("role", "tree");
    const links = svg.append("g");
    const nodes = svg.append("g");
    const text = (node) => {
      const full = node.data.t + (node.data.more ? " …" : "") + (node.hidden ? ` (+${node.hidden.length})` : "");
      return full.length > NARROW + 8 ? `${full.slice(0, NARROW + 7)}…` : full;
    };
    function update() {
      d3.tree().nodeSize([26, 1])(root);
      const all = root.descendants();
      const widest = [];
      for (const node of all) {
        node.wide = 7.3 * text(node).length + 14;
        widest[node.depth] = Math.max(widest[node.depth] || 0, node.wide);
      }
      const left = [4];
      widest.forEach((wide, depth) => { left[depth + 1] = left[depth] + wide + 26; });
      for (const node of all) node.y = left[node.depth];
      const top = d3.min(all, (node) => node.x) - 18;
      const high = d3.max(all, (node) => node.x) - top + 18;
      svg.attr("width", left[widest.length]).attr("height", high);
      links.attr("transform", `translate(0,${-top})`);
      nodes.attr("transform", `translate(0,${-top})`);
      const link = d3.linkHorizontal();
      links.selectAll("path").data(root.links(), (each) => each.target.id ?? (each.target.id = ++drawTree.ids)).join("path")
        .attr("class", (each) => `link ${each.target.data.m || ""}`)
        .attr("d", (each) => link({
          source: [each.source.y + each.source.wide, each.source.x], target: [each.target.y, each.target.x],
        }));
      const group = nodes.selectAll("g.node").data(all, (node) => node.id ?? (node.id = ++drawTree.ids)).join((enter) => {
        const made = enter.append("g").attr("tabindex", 0).attr("role", "treeitem");
        made.append("title");
        made.append("rect").attr("y", -10).attr("height", 20).attr("rx", 4);
        made.append("text").attr("x", 7).attr("y", 4);
        const act = (event, node) => {
          if (node.children || node.hidden) [node.children, node.hidden] = [node.hidden || null, node.children || null];
          update();
          lit.show(node.data.l);
        };
        made.on("click", act).on("keydown", (event, node) => { if (event.key === "Enter") act(event, node); });
        return made;
      });
      group.attr("class", (node) => `node ${node.data.k} ${node.data.m || ""} ${lit.line && lit.line === node.data.l ? "lit" : ""}`)
        .attr("transform", (node) => `translate(${node.y},${node.x})`)
        .attr("aria-expanded", (node) => (node.hidden ? "false" : node.children ? "true" : null));
      group.select("title").text((node) => node.data.t + (node.data.m === "first" ? "\nthe first node that shows the difference" : ""));
      group.select("rect").attr("width", (node) => node.wide);
      group.select("text").text(text);
    }
    update();
    lit.listen(update);
    const first = nodes.select("g.first").node();
    if (first) {
      // The divergent node and its operands are seen, and as much of the path to them as fits beside and above them.
      const place = d3.select(first).datum();
      const right = d3.max([place, ...(place.children || [])], (node) => node.y + node.wide) + 4;
      parent.scrollLeft = Math.max(Math.min(place.y - 12, right - parent.clientWidth), 0);
      const end = parent.scrollLeft + parent.clientWidth;
      const seen = root.descendants().filter((node) => node.y < end && node.y + node.wide > parent.scrollLeft);
      const above = d3.min(root.descendants(), (node) => node.x) - 18;
      const [top, bottom] = d3.extent(seen, (node) => node.x).map((x) => x - above);
      if (bottom - top < parent.clientHeight - 60) {
        parent.style.height = `${bottom - top + 44}px`;
        parent.scrollTop = top - 22;
      } else parent.scrollTop = Math.max(place.x - above - 120, 0);
    }
  }
  drawTree.ids = 0;

  // The terms of a sum from left to right: every bar is a partial sum; lower bars are computed first.
  function drawOrder(parent, order, title) {
    if (!order || order.terms < 2) return;
    element(parent, "div", "hint", title);
    const high = 13, wide = 560;
    const levels = d3.max(order.bars, (bar) => bar.level) + 1;
    const box = element(parent, "div", "order");
    const svg = d3.select(box).append("svg").attr("viewBox", `0 0 ${wide} ${levels * high}`).attr("preserveAspectRatio", "none")
      .attr("height", levels * high).attr("role", "img").attr("aria-label", title);
    const x = d3.scaleLinear([0, order.terms], [2, wide - 2]);
    const tone = d3.scaleOrdinal(COLOURS);
    order.bars.forEach((bar, number) => {
      const group = svg.append("g");
      group.append("title").text(`${d3.sum(bar.runs, (run) => run[1] - run[0] + 1)} terms: ${bar.text}`);
      const y = (levels - 1 - bar.level) * high;
      const runs = bar.runs.length > 400 ? [[bar.runs[0][0], bar.runs.at(-1)[1]]] : bar.runs;
      if (runs.length > 1) {
        group.append("line").attr("x1", x(runs[0][0])).attr("x2", x(runs.at(-1)[1] + 1)).attr("y1", y + high / 2 - 1)
          .attr("y2", y + high / 2 - 1).attr("stroke", tone(number)).attr("stroke-opacity", .5);
      }
      group.selectAll("rect").data(runs).join("rect").attr("x", (run) => x(run[0])).attr("y", y)
        .attr("width", (run) => Math.max(x(run[1] + 1) - x(run[0]) - .6, .8)).attr("height", high - 3).attr("rx", 1.5)
        .attr("fill", tone(number));
      if (bar.fused && runs.length === 1 && bar.steps > 1) {
        const step = (runs[0][1] - runs[0][0] + 1) / bar.steps;
        group.selectAll("path").data(d3.range(1, bar.steps)).join("path").attr("stroke", "#fff").attr("stroke-opacity", .8)
          .attr("d", (cut) => `M${x(runs[0][0] + cut * step)},${y}v${high - 3}`);
      }
    });
    const axis = element(box, "div", "axis hint");
    element(axis, "span", "", "term 0");
    element(axis, "span", "", `${order.terms - 1}`);
  }

  // Which line of the assembly is lit, and in consequence which nodes and lines of the source.
  function highlight() {
    const listeners = [];
    return {
      line: null,
      source: null,
      listen(heard) { listeners.push(heard); },
      show(line, source) {
        this.line = line ?? null;
        this.source = source ?? null;
        for (const each of listeners) each();
      },
    };
  }

  function scrollTo(box, line) {
    if (line) box.scrollTop = line.offsetTop - box.offsetTop - box.clientHeight / 3;
  }

  function drawListing(parent, title, record, known, click, isLit, lit) {
    element(parent, "div", "hint", title);
    const box = element(parent, "div", "listing");
    const pre = element(box, "pre");
    const lines = record.lines.map((text, index) => {
      const line = element(pre, "span", "", text || " ");
      const number = record.first + index;
      line.dataset.n = number;
      if (known(number)) {
        line.classList.add("known");
        line.addEventListener("click", () => click(number));
      }
      return [line, number];
    });
    lit.listen(() => {
      let first = null;
      for (const [line, number] of lines) {
        const on = isLit(number);
        line.classList.toggle("lit", on);
        if (on && !first) first = line;
      }
      if (first && !box.matches(":hover")) scrollTo(box, first);
    });
  }

  function drawPane(parent, side, data, title) {
    const pane = element(parent, "div", "pane");
    element(pane, "h4", "", title);
    const lit = highlight();
    drawTree(element(pane, "div", "tree"), side.tree, lit);
    drawOrder(pane, side.order, "the order of the sum along its terms (for a product: along k); the bottom row is added first");
    const assembly = data.assemblies[side.kernel];
    if (!assembly) return;
    const places = assembly.places;
    const files = [...new Set(Object.values(places).map((place) => place[0]))].filter((file) => data.sources[file]);
    const here = (number) => places[number];
    const where = element(pane, "div", "hint");
    const listings = element(pane, "div", "listings");
    for (const file of files) {
      const used = new Set(Object.values(places).filter((place) => place[0] === file).map((place) => place[1]));
      drawListing(element(listings, "div"), `source: ${file}`, data.sources[file], (number) => used.has(number),
        (number) => lit.show(null, [file, number]),
        (number) => {
          const place = lit.line ? here(lit.line) : lit.source;
          return Boolean(place) && place[0] === file && place[1] === number;
        }, lit);
    }
    lit.listen(() => {
      const place = lit.line ? here(lit.line) : null;
      const calls = (lit.line && assembly.calls[lit.line]) || [];
      where.textContent = place ? `line ${lit.line} comes from ${place[0]}:${place[1]}${calls.length ? `, which calls ${calls.join(", ")}` : ""}` : "";
    });
    drawListing(element(listings, "div"), `assembly: ${side.kernel}${assembly.left_out ? ` (${assembly.left_out} more lines)` : ""}`, assembly,
      () => true, (number) => lit.show(number),
      (number) => {
        if (lit.line) return number === lit.line;
        const place = here(number);
        return Boolean(lit.source && place && place[0] === lit.source[0] && place[1] === lit.source[1]);
      }, lit);
    const first = (node) => (node.m === "first" ? node : (node.c || []).map(first).find(Boolean));
    const divergent = first(side.tree);
    if (divergent && divergent.l) lit.show(divergent.l);
  }

  function drawCompare(box, data) {
    const controls = element(box, "div", "controls");
    const body = element(box, "div");
    const show = (number) => {
      body.replaceChildren();
      const pair = data.others.find((each) => String(each.class) === String(number));
      const panes = element(body, "div", "panes");
      if (!pair) {
        panes.classList.add("single");
        if (data.first) {
          drawPane(panes, data.first, data, `${data.first.element} of ${data.first.kernel}`);
          element(body, "div", "hint", `The upper part of a tree of ${data.first.nodes.toLocaleString("en")} nodes${data.first.complete ? "" : " and more"}.`);
        }
        return;
      }
      if (pair.meaning) panes.before(element(body, "p", "parts", pair.meaning));
      drawPane(panes, pair.left, data, `class 1: ${pair.element} of ${pair.left.kernel}`);
      drawPane(panes, pair.right, data, `class ${pair.class}: ${pair.element} of ${pair.right.kernel}`);
    };
    const options = [["1", "class 1 alone"], ...data.others.map((each) => [each.class, `class 1 beside class ${each.class}`])];
    const chosen = select(controls, "show", data.first ? options : options.slice(1), show);
    element(controls, "span", "hint", "A click on a node folds it and marks its lines; a click on a line marks its nodes.");
    if (data.others.length) chosen.value = String(data.others[0].class);
    show(chosen.value);
    return (number) => { chosen.value = String(number); show(number); box.scrollIntoView({ behavior: "smooth" }); };
  }

  const natural = (a, b) => String(a).localeCompare(String(b), "en", { numeric: true });

  function drawHeat(box, data) {
    const names = data.columns.slice(0, -1);
    const controls = element(box, "div", "controls");
    const drawing = element(box, "div", "scroll heat");
    const settings = names.map((name, index) => [String(index), name]).filter(([, name]) => name !== "class" && name !== "kernel");
    // The setting that says most: the one whose values are in the fewest classes.
    const spread = ([index]) => d3.sum(d3.rollup(data.rows, (rows) => new Set(rows.map((row) => row[0])).size, (row) => row[index]).values());
    const best = settings.length ? settings[d3.leastIndex(settings, (a, b) => spread(a) - spread(b))][0] : "1";
    const state = { row: best, column: "0", sort: "name", filter: "" };
    const draw = () => {
      drawing.replaceChildren();
      const wanted = state.filter.toLowerCase();
      const rows = data.rows.filter((row) => !wanted || row.some((cell, index) => `${data.columns[index]}=${cell}`.toLowerCase().includes(wanted)));
      const groups = d3.rollup(rows, (each) => each, (row) => row[state.row], (row) => row[state.column]);
      const order = {
        name: (a, b) => natural(a[0], b[0]),
        size: (a, b) => d3.sum(b[1].values(), (each) => each.length) - d3.sum(a[1].values(), (each) => each.length),
        spread: (a, b) => b[1].size - a[1].size || natural(a[0], b[0]),
      }[state.sort];
      const listed = [...groups].sort(order);
      const columns = [...new Set(rows.map((row) => row[state.column]))].sort(natural);
      const shown = listed.slice(0, 400);
      const left = Math.min(12 + 7 * d3.max(shown, ([name]) => String(name).length || 4) || 40, 260);
      const cell = columns.length > 24 ? 20 : 46, high = shown.length > 60 ? 16 : 26;
      const svg = d3.select(drawing).append("svg").attr("width", left + cell * columns.length + 8).attr("height", 26 + high * shown.length);
      const most = d3.max(shown, ([, own]) => d3.max(own.values(), (each) => each.length)) || 1;
      const shade = d3.scaleSequentialSqrt([0, most], d3.interpolateBlues);
      const byClass = state.column === "0";
      svg.append("g").selectAll("text").data(columns).join("text").attr("class", "axis").attr("text-anchor", "middle")
        .attr("x", (_, index) => left + cell * (index + .5)).attr("y", 16).text((name) => (byClass ? name || "?" : name || "none"));
      shown.forEach(([name, own], row) => {
        const y = 24 + row * high;
        const label = svg.append("text").attr("class", "axis").attr("x", left - 6).attr("y", y + high / 2 + 4).attr("text-anchor", "end");
        label.text(String(name || "none").slice(-34)).append("title").text(name);
        columns.forEach((column, place) => {
          const found = own.get(column);
          if (!found) return;
          const classes = [...new Set(found.map((each) => each[0]))].sort(d3.ascending);
          const group = svg.append("g");
          group.append("title").text(`${data.columns[state.row]}=${name}, ${data.columns[state.column]}=${column || "unknown"}: ${found.length} kernels of class ${classes.map((each) => each || "unknown").join(", ")}`);
          classes.forEach((number, part) => {
            group.append("rect").attr("x", left + cell * place + 1 + (part * (cell - 2)) / classes.length).attr("y", y + 1)
              .attr("width", (cell - 2) / classes.length).attr("height", high - 2).attr("rx", 2)
              .attr("fill", byClass ? shade(found.length) : colour(number));
          });
          if (cell > 30 && high > 20) {
            const dark = byClass && found.length > most / 2;
            group.append("text").attr("x", left + cell * (place + .5)).attr("y", y + high / 2 + 4).attr("text-anchor", "middle")
              .style("fill", dark ? "#fff" : "#10141b").text(byClass ? found.length : classes.length > 3 ? `${classes.length} classes` : classes.map((each) => each || "?").join(","));
          }
        });
      });
      if (listed.length > shown.length) element(drawing, "div", "hint", `${listed.length - shown.length} more rows; the filter shows fewer`);
    };
    const change = (name) => (value) => { state[name] = value; draw(); };
    select(controls, "rows", [...settings, ["1", "each kernel"]], change("row")).value = state.row;
    select(controls, "columns", [["0", "class"], ...settings], change("column"));
    select(controls, "sort rows by", [["name", "value"], ["size", "number of kernels"], ["spread", "number of columns"]], change("sort"));
    const filter = element(element(controls, "label", "", "filter "), "input");
    filter.placeholder = "num_warps=4";
    filter.addEventListener("input", () => change("filter")(filter.value));
    draw();
  }

  function drawTable(box, data, compare) {
    const chip = (cell) => gridjs.h("span", { className: "chip", style: `--c: ${colour(cell)}` }, cell || "?");
    const sort = { compare: natural };
    new gridjs.Grid({
      columns: data.columns.map((name, index) => ({
        id: String(index), name, sort: index === 0 ? true : sort,
        formatter: index === 0 ? chip : index === 1 ? (cell) => gridjs.h("code", {}, cell) : undefined,
      })),
      data: data.rows, search: true, sort: true, pagination: data.rows.length > 50 ? { limit: 50 } : false,
    }).render(box);
  }

  theme();
  for (const section of document.querySelectorAll("section[data-number]")) {
    const data = JSON.parse(document.getElementById(`data-${section.dataset.number}`).textContent);
    const box = (name) => section.querySelector(`.${name}`);
    let compare = null;
    if (data.first || data.others.length) compare = drawCompare(box("compare"), data);
    else box("compare-part").remove();
    drawHeat(box("heatmap"), data);
    drawTable(box("configurations"), data);
    for (const button of section.querySelectorAll("button[data-compare]")) {
      if (compare && data.others.some((each) => String(each.class) === button.dataset.compare)) {
        button.addEventListener("click", () => compare(button.dataset.compare));
      } else button.remove();
    }
  }
})();
