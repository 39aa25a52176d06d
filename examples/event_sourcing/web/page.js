"use strict";
// Shows the shop: asks for the newest orders and for the state of the service every second, and changes only what
// differs, so that focus and scrolling stay. Text comes into the page as text, never as HTML.

const EVERY_MS = 1000, PATIENCE_MS = 10000;
const STATES = ["created", "confirmed", "paid", "shipped", "delivered", "cancelled"];
const byId = (id) => document.getElementById(id);

// ---------------------------------------------------------------- elements

/** Describe an element. Attributes that are functions are listeners; `key` finds the same one again in a list. */
function h(tag, attributes, ...children) {
  const { key, ...rest } = attributes ?? {};
  return { tag, key, rest, children: children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false) };
}

const made = new WeakMap();

/** Make the children of `parent` those described by `wanted`. */
function patch(parent, wanted) {
  const keyed = new Map(), others = [], kept = new Set(wanted.map((want) => want.key));
  for (const node of [...parent.childNodes]) {
    const key = made.get(node)?.key;
    if (key === undefined) others.push(node);
    else if (!kept.has(key) || keyed.has(key)) node.remove();
    else keyed.set(key, node);
  }
  let at = parent.firstChild;
  for (const want of wanted) {
    let node = want.key === undefined ? others.shift() : keyed.get(want.key);
    keyed.delete(want.key);
    const tag = want.tag ?? "";
    if (node === undefined || (made.get(node)?.tag ?? "") !== tag) {
      if (node === at && at !== null) at = at.nextSibling;
      node?.remove();
      node = tag ? document.createElement(tag) : document.createTextNode("");
      if (tag) made.set(node, { tag, key: want.key, rest: {} });
    }
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    if (tag) update(node, want);
    else if (node.data !== String(want)) node.data = String(want);
  }
  for (const node of [...others, ...keyed.values()]) node.remove();
}

function update(node, want) {
  const known = made.get(node);
  for (const name of new Set([...Object.keys(known.rest), ...Object.keys(want.rest)])) {
    const value = want.rest[name];
    if (typeof value === "function") node[name] = value;
    else if (value === known.rest[name]) continue;
    else if (value === undefined || value === null || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : value);
  }
  known.rest = want.rest;
  patch(node, want.children);
}

/** A table in a region that scrolls, also by keyboard. Columns: [title, class]. A row: {key, cells, chosen}. */
function table(label, columns, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", null,
      h("caption", null, label),
      h("thead", null, h("tr", null, columns.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
      h("tbody", null, rows.map(({ key, cells, chosen }) => h("tr", { key, class: chosen ? "chosen" : null },
        cells.map((cell, i) => i === 0
          ? h("th", { scope: "row", class: columns[i][1] }, cell)
          : h("td", { class: columns[i][1] }, cell)))))));
}

const empty = (text) => h("p", { class: "empty" }, text);

// ---------------------------------------------------------------- words

const small = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const count = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const many = (n, one) => `${count.format(n)} ${n === 1 ? one : `${one}s`}`;

function money(amount, currency) {
  try {
    const format = new Intl.NumberFormat("en", { style: "currency", currency });
    return format.format(amount / 10 ** format.resolvedOptions().maximumFractionDigits);
  } catch {
    return `${amount} ${currency}`;
  }
}

function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 120) return `${small.format(Math.max(0, seconds))} s`;
  return seconds < 7200 ? `${small.format(seconds / 60)} min` : `${small.format(seconds / 3600)} h`;
}

function when(iso) {
  if (!iso) return "–";
  const time = new Date(iso), clock = time.toLocaleTimeString("en-GB");
  const isToday = time.toDateString() === new Date().toDateString();
  return h("time", { datetime: iso }, isToday ? clock : `${time.toLocaleDateString("sv-SE")} ${clock}`);
}

// ---------------------------------------------------------------- asking and telling

async function ask(path) {
  const got = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!got.ok) throw new Error((await problem(got)).detail);
  return got.json();
}

async function problem(got) {
  try {
    return await got.json();
  } catch {
    return { detail: `the service answered ${got.status}` };
  }
}

/** Send a command. Its key makes it happen once, however often it is sent; lost answers are asked for again. */
async function command(method, path, body) {
  const key = crypto.randomUUID();
  for (let attempt = 1; ; attempt++) {
    try {
      const got = await fetch(path, {
        method,
        headers: { "Content-Type": "application/json", "Idempotency-Key": key },
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: AbortSignal.timeout(2 * PATIENCE_MS),
      });
      if (got.ok) return await got.json();
      const { detail, errors } = await problem(got);
      if (got.status !== 503 || attempt === 3) throw new Refused(errors?.length ? errors.map((one) => `${one.at.at(-1)}: ${one.what}`).join("; ") : detail);
    } catch (error) {
      if (error instanceof Refused || attempt === 3) throw error;
    }
  }
}

class Refused extends Error {}

function say(text, isGood = true) {
  byId("said").className = isGood ? "good" : "bad";
  byId("said").textContent = text;
}

/** Do something that a person asked for; a button cannot be pressed twice meanwhile. */
async function act(button, work) {
  button.disabled = true;
  try {
    say(await work());
  } catch (error) {
    say(error instanceof Refused ? `Refused: ${error.message}` : `No answer: ${error.message}`, false);
  } finally {
    button.disabled = false;
    refresh();
  }
}

const path = (id) => `api/orders/${encodeURIComponent(id)}`;

// What can be done with an order in each state: the name, what to send, and what to say.
const ACTIONS = {
  created: [["Confirm", (o) => command("POST", `${path(o.order_id)}/confirm`), "is confirmed"], "cancel"],
  confirmed: [["Pay", (o) => command("POST", `${path(o.order_id)}/pay`, { amount: o.total, reference: `page-${o.order_id.slice(0, 8)}` }), "is paid"], "cancel"],
  paid: [["Ship", (o) => command("POST", `${path(o.order_id)}/ship`, { carrier: "DHL", tracking_number: `JD${o.order_id.slice(0, 8)}` }), "is shipped"], "cancel"],
  shipped: [["Deliver", (o) => command("POST", `${path(o.order_id)}/deliver`, {}), "is delivered"], "cancel"],
  delivered: [],
  cancelled: [],
};
const CANCEL = ["Cancel", (o) => command("POST", `${path(o.order_id)}/cancel`, { reason: "on the page" }), "is cancelled"];

function actions(order) {
  return (ACTIONS[order.status] ?? []).map((one) => {
    const [name, send, done] = one === "cancel" ? CANCEL : one;
    return h("button", {
      key: name, type: "button", class: one === "cancel" ? null : "first", "aria-label": `${name} order ${order.order_id}`,
      onclick: (event) => act(event.currentTarget, async () => {
        const { visible } = await send(order);
        return `Order ${order.order_id} ${done}${visible ? "." : "; it will show here in a moment."}`;
      }),
    }, name);
  });
}

// ---------------------------------------------------------------- sections

let chosen = "";

function choose(id) {
  chosen = id;
  byId("stream-section").hidden = !chosen;
  refresh().then(() => chosen && byId("stream-title").focus());
}

function orders(found) {
  if (!found.length) return [empty("None. Register a customer, and place an order.")];
  return [table("Newest orders", [["order", "id"], ["customer", "id"], ["state"], ["total", "number"], ["events", "number"], ["changed"], ["what next"]],
    found.map((order) => ({
      key: order.order_id,
      chosen: order.order_id === chosen,
      cells: [
        h("button", { type: "button", "aria-pressed": String(order.order_id === chosen), "aria-label": `Events of order ${order.order_id}`,
          onclick: () => choose(order.order_id === chosen ? "" : order.order_id) }, order.order_id),
        order.customer_id,
        [order.status, order.cancelled_because ? `: ${order.cancelled_because}` : "", order.payment_due_at ? [", due ", when(order.payment_due_at)] : ""],
        money(order.total, order.currency),
        order.version,
        when(order.updated_at),
        actions(order),
      ],
    })))];
}

function stream(events) {
  return [
    table(`Order ${chosen}`, [["version", "number"], ["event"], ["time"], ["data", "id"], ["because of", "id"], ["user"]],
      events.map((one) => ({
        key: one.version,
        cells: [one.version, `${one.type} (schema ${one.schema_number})`, when(one.at), JSON.stringify(one.data), one.causation_id || "–", one.user || "–"],
      }))),
  ];
}

const SIGNS = { streaming: "●", done: "✓", standby: "○", idle: "○", stopped: "□", starting: "◔" };

function lanes(doc) {
  if (!doc.consumers.length) return [empty("This process holds no slices now; another one of the group has them.")];
  return [
    table("Consumers of this process", [["consumer"], ["state"], ["lag", "number"], ["events", "number"], ["waits or fails because"]],
      doc.consumers.map((one) => ({
        key: one.consumer,
        cells: [one.consumer,
          h("span", { class: one.trouble ? "bad" : null }, Object.entries(one.states).map(([name, n]) => `${SIGNS[name] ?? "▲"} ${n} ${name}`).join(", ")),
          span(one.lag_s), count.format(one.events), one.trouble || "–"],
      }))),
    h("p", { class: "soft" }, `Queries read build ${doc.read_model.active} of the read model`,
      doc.read_model.building ? `; build ${doc.read_model.building} is being made.` : ". ",
      doc.read_model.building ? null : h("button", { key: "rebuild", type: "button",
        onclick: (event) => act(event.currentTarget, async () => {
          await command("POST", "api/operations/rebuild");
          return "The read model is being built again from all events; queries go on.";
        }) }, "Rebuild the read model")),
  ];
}

function guards(doc) {
  const rows = doc.breakers.map((one) => ({
    key: one.name,
    cells: [one.name, h("span", { class: one.state === "closed" ? "good" : "bad" }, `${one.state === "closed" ? "●" : "▲"} ${one.state}`)],
  }));
  const group = doc.group;
  return [
    rows.length ? table("Circuit breakers", [["guards"], ["state"]], rows) : null,
    h("p", { class: "soft" }, group
      ? `Group ${group.name}: ${many(group.members, "process").replace("processs", "processes")}; this one, ${group.member}, holds ${group.held} of ${many(group.slices, "slice")}.`
      : "This process is in no group."),
  ].filter(Boolean);
}

function letters(doc) {
  if (!doc.letters.length) return [empty("None: each event was handled.")];
  return [table("Events that could not be handled", [["consumer"], ["of", "id"], ["failed"], ["attempts", "number"], ["error"], ["what next"]],
    doc.letters.map((one) => ({
      key: `${one.consumer} ${one.event_id}`,
      cells: [one.consumer, one.key, when(one.failed_at), one.attempts, one.error,
        h("button", { type: "button", "aria-label": `Replay the dead letters of ${one.consumer}, with that of ${one.key}`,
          onclick: (event) => act(event.currentTarget, async () => {
            const { replayed, failed } = await command("POST", "api/operations/replay", { consumer: one.consumer });
            if (failed) throw new Refused(`${many(failed, "event")} failed again; ${replayed} handled`);
            return `${many(replayed, "dead letter")} replayed.`;
          }) }, "Replay all of it")],
    })))];
}

// ---------------------------------------------------------------- the page

let isPaused = false, timer = 0, asked = 0;

async function refresh() {
  clearTimeout(timer);
  const turn = ++asked;
  try {
    const state = byId("state").value, of = chosen;
    const [found, doc, events] = await Promise.all([
      ask(`api/orders?limit=50${state ? `&status=${state}` : ""}`),
      ask("api/operations"),
      of ? ask(`${path(of)}/events`) : [],
    ]);
    if (turn !== asked) return;  // a later question is on its way
    patch(byId("orders"), orders(found));
    patch(byId("stream"), of ? stream(events) : []);
    patch(byId("lanes"), lanes(doc));
    patch(byId("guards"), guards(doc));
    patch(byId("letters"), letters(doc));
    patch(byId("customers"), [...new Set([...registered, ...found.map((order) => order.customer_id)])].map((id) => h("option", { key: id, value: id })));
    patch(byId("updated"), ["updated ", when(doc.time)]);
    tell(doc.failed.length ? `▲ ${doc.failed[0].check}: ${doc.failed[0].why}` : "● ready", !doc.failed.length);
  } catch (error) {
    if (turn !== asked) return;
    tell(`▲ ${error.name === "TimeoutError" || error instanceof TypeError ? "no answer from the service; asking again" : error.message}`, false);
  }
  if (!isPaused && !document.hidden) timer = setTimeout(refresh, EVERY_MS);
}

/** Say how the service is; a screen reader reads it only when it changes. */
function tell(text, isGood) {
  patch(byId("health"), [text]);
  byId("health").className = isGood ? "good" : "bad";
}

const registered = [];

byId("new-customer").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.currentTarget;
  act(form.querySelector("button"), async () => {
    const { id } = await command("POST", "api/customers", Object.fromEntries(new FormData(form)));
    registered.push(id);
    byId("new-order").elements.customer_id.value = id;
    form.reset();
    return `Customer ${id} is registered.`;
  });
});

byId("new-order").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.currentTarget, { customer_id, product_id, quantity } = form.elements;
  act(form.querySelector("button"), async () => {
    const items = [{ product_id: product_id.value, quantity: Number(quantity.value) }];
    const { id, visible } = await command("POST", "api/orders", { customer_id: customer_id.value, items });
    return `Order ${id} is placed${visible ? "." : "; it will show here in a moment."}`;
  });
});

byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  byId("pause").setAttribute("aria-pressed", String(isPaused));
  if (isPaused) clearTimeout(timer);
  else refresh();
});
byId("state").addEventListener("change", refresh);
document.addEventListener("visibilitychange", () => document.hidden || isPaused || refresh());

byId("health").textContent = "";
patch(byId("state"), [h("option", { value: "" }, "all"), ...STATES.map((state) => h("option", { value: state }, state))]);
ask("api/products").then((products) => patch(byId("new-order").elements.product_id,
  products.map((one) => h("option", { value: one.product_id }, `${one.name}, ${money(one.price, "EUR")}`))), () => refresh());
refresh();
