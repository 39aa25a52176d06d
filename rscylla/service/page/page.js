"use strict";
// Shows /status: asks for it every two seconds, makes the whole page from it, and changes only what differs, so that
// focus, scrolling and open parts stay. Text comes into the page as text, never as HTML.

const EVERY_MS = 2000, PATIENCE_MS = 10000, WORKS_WITH = 1;
const byId = (id) => document.getElementById(id);

// ---------------------------------------------------------------- elements

/** Describe an element. Children are descriptions and text; null and false are left out. `key` keeps it in a list. */
function h(tag, attributes, ...children) {
  const { key, ...rest } = attributes ?? {};
  const kept = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  return { tag, key, attributes: rest, children: kept };
}

const SVG_TAGS = new Set(["svg", "path", "circle", "line", "text", "title", "g"]);

/** What we know of the nodes that we made: their keys and attributes. */
const made = new WeakMap();

/** Make the children of `parent` those described by `wanted`. */
function patch(parent, wanted) {
  const keyed = new Map(), others = [], kept = new Set(wanted.map((want) => want.key));
  for (const node of [...parent.childNodes]) {
    const key = made.get(node)?.key;
    if (key === undefined) others.push(node);
    // Removed first, so that those behind it stay where they are, and keep the focus.
    else if (!kept.has(key) || keyed.has(key)) node.remove();
    else keyed.set(key, node);
  }
  let at = parent.firstChild;
  for (const want of wanted) {
    let node = want.key === undefined ? others.shift() : keyed.get(want.key);
    keyed.delete(want.key);
    if (node === undefined || !isSame(node, want)) {
      if (node === at && at !== null) at = at.nextSibling;
      node?.remove();
      node = create(want);
    }
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    update(node, want);
  }
  for (const node of [...others, ...keyed.values()]) node.remove();
}

const isSame = (node, want) => typeof want === "object" ? made.get(node)?.tag === want.tag : node.nodeType === 3;

function create(want) {
  if (typeof want !== "object") return document.createTextNode("");
  const node = SVG_TAGS.has(want.tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", want.tag)
    : document.createElement(want.tag);
  made.set(node, { tag: want.tag, key: want.key, attributes: {} });
  return node;
}

function update(node, want) {
  if (typeof want !== "object") {
    if (node.data !== String(want)) node.data = String(want);
    return;
  }
  const known = made.get(node);
  for (const name of new Set([...Object.keys(known.attributes), ...Object.keys(want.attributes)])) {
    const value = want.attributes[name];
    if (value === known.attributes[name]) continue;
    if (value === undefined || value === null || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : value);
  }
  known.attributes = want.attributes;
  patch(node, want.children);
}

// ---------------------------------------------------------------- numbers, times, words

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const small = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const count = (value) => value === null || value === undefined ? "–" : number.format(value);
const rate = (value) => value === null || value === undefined ? "–" : (value < 100 ? small : number).format(value);
const many = (n, one, several = `${one}s`) => `${count(n)} ${n === 1 ? one : several}`;

function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.max(0, seconds);
  if (s < 120) return `${small.format(s)} s`;
  if (s < 7200) return `${small.format(s / 60)} min`;
  return s < 172800 ? `${small.format(s / 3600)} h` : `${small.format(s / 86400)} d`;
}

/** A time of day in the reader's time zone, with the date if it is not today. */
function when(iso) {
  if (!iso) return "–";
  const time = new Date(iso), today = new Date();
  const clock = time.toLocaleTimeString("en-GB");
  const text = time.toDateString() === today.toDateString() ? clock : `${time.toLocaleDateString("sv-SE")} ${clock}`;
  return h("time", { datetime: iso }, text);
}

/** Slices as spans: "0–5, 9". */
function spans(indexes) {
  const found = [];
  for (const i of [...indexes].sort((a, b) => a - b)) {
    const last = found.at(-1);
    if (last && last[1] === i - 1) last[1] = i;
    else found.push([i, i]);
  }
  return found.map(([from, to]) => from === to ? `${from}` : `${from}–${to}`).join(", ") || "none";
}

const SIGNS = { streaming: "●", done: "✓", standby: "○", idle: "○", stopped: "□", starting: "◔" };
const CALM = new Set(["streaming", "done", "standby", "starting", "idle", "stopped"]);
const isCalm = (lane) => CALM.has(lane.state) && !lane.pause && !lane.failing;
const state = (name) => h("span", { class: CALM.has(name) ? null : "bad" }, `${SIGNS[name] ?? "▲"} ${name}`);

/** A table in a region that scrolls, also by keyboard. Columns: [title, class]. A row: {key, cells}. */
function table(label, columns, rows, caption = null) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", null,
      h("caption", null, caption ?? label),
      h("thead", null, h("tr", null, columns.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
      h("tbody", null, rows.map(({ key, cells }) => h("tr", { key },
        cells.map((cell, i) => i === 0
          ? h("th", { scope: "row", class: columns[i][1] }, cell)
          : h("td", { class: columns[i][1] }, cell)))))));
}

const empty = (text) => h("p", { class: "empty" }, text);

/** A part that opens. Its contents are made only while it is open. */
const opened = new Map();
function part(id, title, contents, isOpen = false) {
  if (!opened.has(id)) opened.set(id, isOpen);
  return h("details", { key: id, "data-part": id, open: opened.get(id) },
    h("summary", null, title), opened.get(id) ? contents() : null);
}

document.addEventListener("toggle", (event) => {
  const id = event.target.dataset?.part;
  if (id === undefined || opened.get(id) === event.target.open) return;
  opened.set(id, event.target.open);
  if (latest) show(latest);
}, true);

// ---------------------------------------------------------------- charts

const WIDTH = 320, HEIGHT = 96, LEFT = 2, RIGHT = 316, TOP = 14, BOTTOM = 80;

/** The next of 1, 2, 5, 10, … that is not below `value`. */
function ceiling(value) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((n) => n * unit).find((n) => n >= value) ?? 10 * unit;
}

function chart(label, text, times, values, marks) {
  const known = values.filter((value) => value !== null);
  const top = ceiling(Math.max(0, ...known)), end = times.at(-1) ?? 0, start = Math.min(times[0] ?? 0, end - 60);
  const x = (time) => LEFT + (RIGHT - LEFT) * (time - start) / Math.max(1, end - start);
  const y = (value) => BOTTOM - (BOTTOM - TOP) * Math.max(0, value) / top;
  const at = (i) => `${x(times[i]).toFixed(1)} ${y(values[i]).toFixed(1)}`;
  const runs = [];  // of known values
  values.forEach((value, i) => {
    if (value === null) return;
    if (i > 0 && values[i - 1] !== null) runs.at(-1).push(i);
    else runs.push([i]);
  });
  const last = values.at(-1);
  const summary = known.length
    ? `${label}: now ${text(last)}, lowest ${text(Math.min(...known))}, highest ${text(Math.max(...known))}`
    : `${label}: not known yet`;
  return h("figure", { key: label },
    h("figcaption", null, h("span", null, label), h("b", null, text(last))),
    h("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": summary },
      h("line", { class: "grid", x1: LEFT, x2: RIGHT, y1: TOP, y2: TOP }),
      h("line", { class: "grid", x1: LEFT, x2: RIGHT, y1: BOTTOM, y2: BOTTOM }),
      runs.map((run) => h("path", {
        class: "area",
        d: `M${x(times[run[0]]).toFixed(1)} ${BOTTOM}L${run.map(at).join("L")}L${x(times[run.at(-1)]).toFixed(1)} ${BOTTOM}Z`,
      })),
      runs.map((run) => h("path", { class: "line", d: `M${run.map(at).join("L")}` })),
      last === null || last === undefined ? null : h("circle", { class: "last", cx: x(end), cy: y(last), r: 3 }),
      marks.filter((mark) => mark.time >= start).map((mark) => h("g", null,
        h("title", null, mark.title),
        h("line", { class: "mark", x1: x(mark.time), x2: x(mark.time), y1: TOP, y2: BOTTOM }),
        h("text", { class: "mark-text", x: Math.min(x(mark.time) + 3, RIGHT - 8), y: TOP + 10 }, "G"))),
      h("text", { x: LEFT, y: TOP - 4 }, text(top)),
      h("text", { x: LEFT, y: HEIGHT - 3 }, `${span(end - start)} ago`),
      h("text", { x: RIGHT, y: HEIGHT - 3, "text-anchor": "end" }, "now")));
}

/** The last sample of each minute, newest first. */
function minutes(times) {
  const chosen = [];
  for (let i = times.length - 1; i >= 0; i--) {
    if (!chosen.length || times[chosen.at(-1)] - times[i] >= 60) chosen.push(i);
  }
  return chosen;
}

function consumerCard(one, doc) {
  const times = doc.history.times;
  const past = doc.history.consumers[one.consumer] ?? { lag_s: [], events_s: [] };
  const marks = doc.generations.filter((g) => g.consumer === one.consumer)
    .map((g) => ({ time: Date.parse(g.time) / 1000, title: `generation of ${g.to}` }));
  const name = one.consumer;
  return h("article", { class: "card", key: name, "aria-label": name },
    h("h3", null, name),
    h("p", null, `${one.source || "no source"} · ${many(one.lanes, "lane")} · ${many(one.events, "event")}`),
    chart("Lag", span, times, past.lag_s, marks),
    chart("Events a second", rate, times, past.events_s, []),
    part(`table ${name}`, `As a table, by minute`, () =>
      table(`Lag and events of ${name}`, [["time"], ["lag", "number"], ["events/s", "number"]],
        minutes(times).map((i) => ({
          key: times[i],
          cells: [when(new Date(times[i] * 1000).toISOString()), span(past.lag_s[i]), rate(past.events_s[i])],
        })))));
}

// ---------------------------------------------------------------- the group

const COLOURS = 8;
/** Members by id, in the order in which this page has seen them: a member keeps its letter and colour. */
const seen = new Map();
function badgeOf(id) {
  if (!seen.has(id)) seen.set(id, seen.size);
  const n = seen.get(id);
  const letter = String.fromCharCode(65 + n % 26) + (n < 26 ? "" : Math.floor(n / 26));
  return { letter, colour: `c${n % COLOURS}` };
}
const badge = (id) => h("span", { class: `badge ${badgeOf(id).colour}` }, badgeOf(id).letter);

const point = (radius, turn) =>
  `${(200 + radius * Math.sin(2 * Math.PI * turn)).toFixed(2)} ${(200 - radius * Math.cos(2 * Math.PI * turn)).toFixed(2)}`;

/** A piece of a ring between two radii, from one part of a turn to another. */
function piece(inner, outer, from, to) {
  const end = Math.min(to, from + 0.99999), large = end - from > 0.5 ? 1 : 0;
  return `M${point(outer, from)}A${outer} ${outer} 0 ${large} 1 ${point(outer, end)}`
    + `L${point(inner, end)}A${inner} ${inner} 0 ${large} 0 ${point(inner, from)}Z`;
}

function arc(radius, from, to) {
  const end = Math.min(to, from + 0.99999), large = end - from > 0.5 ? 1 : 0;
  return `M${point(radius, from)}A${radius} ${radius} 0 ${large} 1 ${point(radius, end)}`;
}

/** Neighbouring slices with the same holder, as [first, after the last, holder]. */
function runsOf(slices) {
  const runs = [];
  slices.forEach((one, i) => {
    if (runs.length && runs.at(-1)[2] === one.holder) runs.at(-1)[1] = i + 1;
    else runs.push([i, i + 1, one.holder]);
  });
  return runs;
}

function ring(group, troubled) {
  const n = group.slices.length, names = new Map(group.members.map((m) => [m.id, m.member]));
  const runs = runsOf(group.slices), here = group.members.find((m) => m.here)?.id;
  const shares = group.members.map((m) => `${badgeOf(m.id).letter}, ${m.member}, holds ${many(m.slices.length, "slice")}`);
  const label = `The token ring in ${many(n, "slice")}: ${shares.join("; ") || "nobody holds any"}`;
  const mid = (from, to) => point(149, (from + to) / 2 / n).split(" ");
  return h("svg", { class: "ring", viewBox: "0 0 400 400", role: "img", "aria-label": label },
    runs.map(([from, to, holder]) => h("g", null,
      h("title", null, `${from === to - 1 ? "slice" : "slices"} ${spans([from, to - 1])}: ${names.get(holder) ?? "free"}`),
      h("path", { class: holder ? badgeOf(holder).colour : "free", d: piece(128, 170, from / n, to / n) }))),
    n > 256 ? null : group.slices.map((_, i) => {
      const [[x1, y1], [x2, y2]] = [point(128, i / n).split(" "), point(170, i / n).split(" ")];
      return h("line", { class: "cut", x1, y1, x2, y2 });
    }),
    runs.filter((run) => run[2] && run[2] === here)
      .map(([from, to]) => h("path", { class: "here", d: arc(175, from / n, to / n) })),
    [...troubled].filter((i) => i < n).map((i) => h("path", { class: "trouble", d: arc(120, i / n, (i + 1) / n) })),
    runs.filter(([from, to]) => (to - from) / n >= 1 / 80).map(([from, to, holder]) => {
      const [x, y] = mid(from, to);
      return h("text", { x, y, class: holder ? "on-colour" : null }, holder ? badgeOf(holder).letter : "–");
    }),
    (n >= 8 ? [0, 1, 2, 3] : [0]).map((quarter) => {
      const [x, y] = point(189, quarter / 4).split(" ");
      return h("text", { class: "tick", x, y }, Math.floor(quarter * n / 4));
    }),
    h("text", { class: "big", x: 200, y: 186 }, count(n)),
    h("text", { x: 200, y: 210 }, "slices"),
    h("text", { class: "tick", x: 200, y: 230 }, many(group.members.length, "member")));
}

function groupSection(doc) {
  const group = doc.group;
  if (!group) return null;
  if (!group.slices.length) return [empty(`Group ${group.name}: no look at it has been answered yet.`)];
  const names = new Map(group.members.map((m) => [m.id, m.member]));
  const worst = new Map(), troubled = new Set();
  for (const lane of doc.lanes) {
    if (lane.slice === null) continue;
    worst.set(lane.slice, Math.max(worst.get(lane.slice) ?? 0, lane.lag_s ?? 0));
    if (!isCalm(lane)) troubled.add(lane.slice);
  }
  const holder = (one) => one.holder ? [badge(one.holder), " ", names.get(one.holder) ?? one.owner] : "free";
  const moved = group.slices.filter((one) => one.since).sort((a, b) => Date.parse(b.since) - Date.parse(a.since));
  return [
    h("p", { class: "soft" },
      `${group.name}: this process, ${group.member}, is ${group.joined ? "a" : "no"} member; ${many(group.members.length, "member")}, ${many(group.slices.length, "slice")}; `
      + `as of ${span(group.view_age_s)} ago.`,
      group.next_count ? h("b", null, ` It is being cut into ${group.next_count} slices: nobody takes any until then.`) : null),
    h("div", { class: "group" },
      h("div", null, ring(group, troubled),
        h("p", { class: "soft" }, "The outer line marks the slices of this process",
          troubled.size ? "; a dashed inner line, lanes here in trouble." : ".")),
      h("div", null,
        table("Members", [["member", "name"], ["slices", "number"], ["which"], ["since"], ["expires in", "number"]],
          group.members.map((m) => ({
            key: m.id,
            cells: [[badge(m.id), " ", m.member, m.here ? " (this process)" : "", m.drains ? " (drains)" : ""],
              count(m.slices.length), spans(m.slices), when(m.since), span(m.expires_in_s)],
          }))),
        table("Who took what", [["time"], ["slice", "number"], ["to", "name"], ["from", "name"], ["why"]],
          moved.slice(0, 8).map((one) => ({
            key: one.slice, cells: [when(one.since), one.slice, holder(one), one.before || "–", one.why || "–"],
          })), "Who took what, newest first"),
        part("slices", "All slices as a table", () =>
          table("Slices", [["slice", "number"], ["holder", "name"], ["since"], ["before", "name"], ["why"],
            ["epoch", "number"], ["lag here", "number"]],
            group.slices.map((one) => ({
              key: one.slice,
              cells: [one.slice, holder(one), when(one.since), one.before || "–", one.why || "–", one.epoch,
                span(worst.get(one.slice))],
            }))))))];
}

// ---------------------------------------------------------------- the other sections

function overview(doc) {
  const sum = (name) => doc.consumers.reduce((total, one) => total + (one[name] ?? 0), 0);
  const lags = doc.consumers.map((one) => one.lag_s).filter((lag) => lag !== null);
  const streaming = doc.lanes.filter((lane) => lane.state === "streaming").length;
  const tiles = [
    ["Events a second", rate(sum("events_s"))],
    ["Highest lag", lags.length ? span(Math.max(...lags)) : "–"],
    ["Lanes streaming", `${count(streaming)} of ${count(doc.lanes.length)}`],
    ["Events", count(sum("events"))],
    ["Restarts", count(sum("restarts"))],
    ["Parked or failed", count(doc.lanes.filter((lane) => lane.state === "parked" || lane.state === "failed").length)],
    doc.dead_letters && ["Dead letters", doc.dead_letters.counts ? count(sum("dead_letters")) : "not known"],
  ];
  return [h("dl", { class: "tiles" },
    tiles.filter(Boolean).map(([name, value]) => h("div", { key: name }, h("dt", null, name), h("dd", null, value))))];
}

function failed(doc) {
  const lines = ["healthz", "readyz"].flatMap((page) => doc.checks[page].failed.map((one) =>
    h("li", { key: page + one.check }, h("b", null, `/${page}: `), `${one.check}: ${one.why}`)));
  return lines.length ? [h("ul", { class: "plain" }, lines)] : null;
}

function lanes(doc) {
  if (!doc.lanes.length) return [empty("This process has no lanes now.")];
  return doc.consumers.map((one) => {
    const mine = doc.lanes.filter((lane) => lane.consumer === one.consumer);
    const states = Object.entries(one.states).map(([name, n]) => `${n} ${name}`).join(", ");
    return part(`lanes ${one.consumer}`, `${one.consumer}: ${states}`, () =>
      table(`Lanes of ${one.consumer}`,
        [["lane", "name"], ["state"], ["lag", "number"], ["events", "number"], ["last event", "number"],
          ["restarts", "number"], ["generation"], ["in trouble because"]],
        mine.map((lane) => ({
          key: lane.lane,
          cells: [lane.lane, state(lane.state), span(lane.lag_s), count(lane.events),
            lane.last_event_age_s === null ? "–" : span(lane.last_event_age_s), count(lane.restarts),
            when(lane.generation), trouble(lane) || "–"],
        }))), mine.length <= 8 || !mine.every(isCalm));
  });
}

function trouble(lane) {
  const parts = [lane.why, lane.pause && `waits: ${lane.pause}`];
  if (lane.failing) parts.push(`an event has failed ${many(lane.failing, "time")} in a row`);
  if (lane.busy_s > 30) parts.push(`has worked on ${lane.event_id} for ${span(lane.busy_s)}`);
  return parts.filter(Boolean).join("; ");
}

function generations(doc) {
  if (!doc.generations.length) return [empty("None seen since this process started. A switch follows when nodes or tablets come and go.")];
  return [table("Switches", [["time"], ["consumer", "name"], ["from generation"], ["to generation"], ["lanes", "number"]],
    doc.generations.map((one) => ({
      key: `${one.consumer} ${one.to}`,
      cells: [when(one.time), one.consumer, when(one.from), when(one.to), one.lanes],
    })), "Switches, newest first")];
}

function letters(doc) {
  const found = doc.dead_letters;
  if (!found) return null;
  if (!found.counts) return [empty("Not counted yet, or the store does not answer.")];
  const counts = Object.entries(found.counts);
  if (!counts.length) return [empty("None.")];
  const columns = [["failed", ""], ["consumer", "name"], ["error", "name"], ["attempts", "number"], ["event", "id"]];
  if (found.show_values) columns.push(["key", "id"], ["traceback"]);
  return [
    table("Dead letters by consumer", [["consumer", "name"], ["letters", "number"]],
      counts.map(([name, n]) => ({ key: name, cells: [name, count(n)] }))),
    found.newest.length ? table("Newest dead letters", columns, found.newest.map((one) => ({
      key: `${one.consumer} ${one.event_id}`,
      cells: [when(one.failed_at), one.consumer, one.error, count(one.attempts), one.event_id,
        ...(found.show_values ? [one.key, part(`letter ${one.consumer} ${one.event_id}`, "show", () => h("pre", null, one.traceback))] : [])],
    })), found.listed_all ? null : "Newest of the first 1,000 dead letters") : null,
  ];
}

function guards(doc) {
  if (!doc.lease && !doc.breakers.length) return null;
  const rows = doc.breakers.map((one) => ({
    key: `breaker ${one.name}`,
    cells: [one.name, "circuit breaker", h("span", { class: one.state === "closed" ? "good" : "bad" },
      `${one.state === "closed" ? "●" : "▲"} ${one.state}`)],
  }));
  if (doc.lease) {
    rows.unshift({ key: "lease", cells: [doc.lease.name, "lease",
      doc.lease.held ? `● held, epoch ${doc.lease.epoch}` : "○ not held: this process stands by"] });
  }
  return [table("States", [["name", "name"], ["kind"], ["state"]], rows)];
}

function notes(doc) {
  if (!doc.notes.length) return [empty("Nothing since this process started: no restart, no parked lane, no change of a lease or breaker.")];
  return [table("Notes", [["time"], ["about", "name"], ["what", "name"]],
    doc.notes.map((one) => ({ key: `${one.time} ${one.about} ${one.what}`, cells: [when(one.time), one.about, one.what] })),
    "Newest first")];
}

const SECTIONS = {
  failed, overview, group: groupSection, lanes, generations, letters, guards, notes,
  consumers: (doc) => [h("div", { class: "cards" }, doc.consumers.map((one) => consumerCard(one, doc)))],
};

// ---------------------------------------------------------------- the page

let latest = null, isPaused = false, timer = 0;

function show(doc) {
  latest = doc;
  for (const [id, make] of Object.entries(SECTIONS)) {
    const contents = make(doc);
    byId(id).hidden = contents === null;
    patch(byId(id).querySelector(":scope > div"), contents ?? []);
  }
  patch(byId("sections"), [...document.querySelectorAll("main > section:not([hidden])")].map((section) =>
    h("li", { key: section.id }, h("a", { href: `#${section.id}` }, section.querySelector("h2").textContent))));
  const { host, pid, state: now, failure } = doc.service;
  patch(byId("process"), [`on ${host}, process ${pid}`]);
  const bad = doc.checks.healthz.failed.length + doc.checks.readyz.failed.length;
  const text = now !== "running" ? `▲ ${now}${failure ? `: ${failure}` : ""}` : bad ? `▲ ${many(bad, "check")} failed` : "● ready";
  tell(text, now === "running" && !bad);
  patch(byId("updated"), ["updated ", when(doc.time)]);
}

/** Say how the service is; a screen reader reads it only when it changes. */
function tell(text, isGood) {
  patch(byId("health"), [text]);
  byId("health").className = isGood ? "good" : "bad";
}

async function ask() {
  clearTimeout(timer);
  if (isPaused || document.hidden) return;
  const doc = await answer();
  clearTimeout(timer);
  timer = setTimeout(ask, EVERY_MS);
  if (doc === null) tell("▲ no answer from the service; asking again", false);
  else if (doc.version !== WORKS_WITH) tell("▲ the service has another version: reload this page", false);
  else if (!isPaused) show(doc);
}

/** The document, null without an answer. */
async function answer() {
  try {
    const got = await fetch("status", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    return got.ok ? await got.json() : null;
  } catch {
    return null;
  }
}

byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  byId("pause").setAttribute("aria-pressed", String(isPaused));
  ask();
});
document.addEventListener("visibilitychange", ask);
byId("health").textContent = "";
byId("process").textContent = "";
ask();
