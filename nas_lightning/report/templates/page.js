"use strict";
// The page without this script has the last cell and all tables; the script adds what moves.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// Copying

async function copy(block) {
  if (navigator.clipboard) return navigator.clipboard.writeText(block.textContent);
  getSelection().selectAllChildren(block);
  document.execCommand("copy");
}

for (const block of document.querySelectorAll("pre.copy")) {
  const button = make("button", { type: "button", "aria-label": "Copy the text" }, "Copy");
  button.addEventListener("click", async () => {
    await copy(block);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  block.after(button);
}

// Tables sort by the column whose head is pressed

function sortBy(table, column, up) {
  const text = (row) => row.cells[column].textContent;
  const number = (row) => parseFloat(text(row).replaceAll(",", ""));
  const compare = (a, b) => {
    const [x, y] = [number(a), number(b)];
    if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y) || text(a).localeCompare(text(b));
    return up ? x - y : y - x;
  };
  table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
}

for (const table of document.querySelectorAll("table.sort")) {
  for (const head of table.tHead.rows[0].cells) {
    if (!head.textContent) continue;
    const button = make("button", { type: "button" }, head.textContent);
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      sortBy(table, head.cellIndex, up);
    });
  }
}

// The cell over the epochs

const source = document.getElementById("timeline");
if (source) followTimeline(JSON.parse(source.textContent));

function followTimeline({ epochs, frames, groups }) {
  const cells = document.querySelector(".cells");
  const panel = document.querySelector(".edge-weights");
  const player = document.querySelector(".player");
  const slider = player && player.querySelector("input");
  const last = frames.length - 1; // after the epochs, what came out
  let at = last;
  let edge = null; // the row whose weights the panel shows
  let timer = null;

  const epoch = () => Math.min(at, epochs.length - 1);
  const rowOf = (row) => {
    const cut = row.lastIndexOf("/");
    return [groups[row.slice(0, cut)], Number(row.slice(cut + 1))];
  };

  const template = (cell) => document.querySelector(`template[data-cell="${cell}"]`).content;
  const edgesOf = (cell) => [...template(cell).querySelectorAll("[data-edge]")].map((one) => one.dataset.edge);

  /** Show the cells of an epoch, with bold edges that the epoch before did not have. */
  function showFrame(number) {
    at = number;
    const focused = cells.contains(document.activeElement) ? edge : null;
    const before = frames[Math.max(at - 1, 0)];
    let changes = 0;
    cells.querySelectorAll("figure").forEach((figure, place) => {
      const known = edgesOf(before[place]);
      figure.replaceChildren(template(frames[at][place]).cloneNode(true));
      for (const drawn of figure.querySelectorAll("[data-edge]")) {
        const isNew = !known.includes(drawn.dataset.edge);
        drawn.classList.toggle("marked", isNew);
        changes += isNew;
      }
    });
    const what = changes ? `${changes} edge${changes > 1 ? "s" : ""} changed` : "no change";
    const name = at === last ? "result" : `${epochs[at]} of ${epochs[epochs.length - 1]}`;
    player.querySelector("output").textContent = `${name}, ${what}`;
    slider.value = at;
    slider.setAttribute("aria-valuetext", `${name}, ${what}`);
    prepareEdges();
    if (focused) edgeOf(focused)?.focus();
    if (edge) showWeights(edge);
  }

  const edgeOf = (row) => [...cells.querySelectorAll(".edge")].find((one) => one.dataset.row === row);

  function prepareEdges() {
    for (const element of cells.querySelectorAll(".edge[data-row]")) {
      const { row } = element.dataset;
      if (!rowOf(row)[0]) continue;
      const words = element.querySelector("title").textContent;
      element.setAttribute("tabindex", "0");
      element.setAttribute("role", "button");
      element.setAttribute("aria-label", `${words}: show its weights`);
      for (const event of ["pointerenter", "focus", "click"]) {
        element.addEventListener(event, () => showWeights(row));
      }
    }
  }

  function showWeights(row) {
    edge = row;
    const [group, index] = rowOf(row);
    const weights = group.scores[epoch()][index];
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    const order = weights.map((_, column) => column).sort((a, b) => weights[b] - weights[a]);
    const rows = order.map((column, place) =>
      make("tr", { style: `color: var(--${group.colors[column]})` },
        make("td", {}, `${place + 1}`),
        make("td", {}, make("i"), make("span", {}, group.ops[column])),
        make("td", {}, weights[column].toPrecision(3)),
        make("td", {}, total > 0 ? `${((100 * weights[column]) / total).toFixed(1)} %` : "")));
    const heads = ["rank", "operation", "weight", "share"].map((name) => make("th", { scope: "col" }, name));
    const table = make("table", { class: "wide" },
      make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
    const drawn = edgeOf(row);
    const title = drawn ? drawn.querySelector("title").textContent : "no operation here in this epoch";
    panel.replaceChildren(make("h3", {}, `${title}, after epoch ${epochs[epoch()]}`), ...chart(row), table);
    panel.hidden = false;
    for (const one of cells.querySelectorAll(".edge")) one.classList.toggle("active", one.dataset.row === row);
  }

  /** The chart of the section of weights, larger, with a line at the epoch. */
  function chart(row) {
    const small = [...document.querySelectorAll("svg.chart")].find((one) => one.dataset.row === row);
    if (!small) return [];
    const copied = small.cloneNode(true);
    const [left, right, top, bottom] = small.dataset.area.split(" ").map(Number);
    const share = epochs.length > 1 ? (epochs[epoch()] - epochs[0]) / (epochs[epochs.length - 1] - epochs[0]) : 0.5;
    const line = document.createElementNS(SVG, "path");
    line.setAttribute("class", "now");
    line.setAttribute("d", `M${left + share * (right - left)} ${top}V${bottom}`);
    copied.append(line);
    return [copied];
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    player.querySelector(".play").textContent = "Play";
  }

  function play() {
    if (timer) return stop();
    player.querySelector(".play").textContent = "Pause";
    if (at === last) showFrame(0);
    timer = setInterval(() => (at < last ? showFrame(at + 1) : stop()), Math.max(120, Math.min(700, 15000 / last)));
  }

  prepareEdges();
  if (!player) return;
  player.hidden = false;
  slider.addEventListener("input", () => showFrame(Number(slider.value)));
  player.querySelector(".play").addEventListener("click", play);
  showFrame(last);
}
