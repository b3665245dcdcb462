/** The page: a list beside an overview or an instance, whichever the address names. */

import { h } from "./dom";
import { InstanceView, type Choice, type Neighbours } from "./instance";
import { InstanceList } from "./list";
import { overview } from "./overview";
import type { Payload } from "./payload";
import { linked } from "./state";
import { start as startTheme, theme, toggle, onTheme } from "./theme";
import { instanceName, number } from "./words";

const payload = JSON.parse(document.getElementById("data")?.textContent ?? "null") as Payload;
const choice: Choice = { methods: new Set(payload.methods.keys()), truth: false, hydrogens: true };
const main = h("main", { id: "main" });
const list = new InstanceList(payload, () => refresh());
let view: InstanceView | null = null;
let open: number | null = null;

/** Show what the address names. */
function route(focus: boolean): void {
  const id = linked(location.hash);
  const one = payload.instances.find((instance) => instance.id === id) ?? null;
  view?.stop();
  view = null;
  open = one?.id ?? null;
  list.mark(open);
  document.body.classList.toggle("at-instance", one !== null);
  document.title = one === null ? payload.title : `${instanceName(payload, one)} – ${payload.title}`;
  if (one !== null) {
    view = new InstanceView(payload, one, choice, neighbours());
    main.replaceChildren(view.element);
    view.start();
  } else {
    const lost = id !== null && h("p", { role: "alert" }, `There is no instance ${id} in this report.`);
    main.replaceChildren(...(lost ? [lost] : []), overview(payload));
  }
  if (focus) main.querySelector<HTMLElement>("h2")?.focus({ preventScroll: true });
  if (focus) main.scrollIntoView({ block: "start" });
}

/** What comes before and after the open instance in the list. */
function neighbours(): Neighbours {
  const order = list.order;
  const at = open === null ? -1 : order.indexOf(open);
  if (at < 0) return { before: null, after: null, place: "not in the list as it is filtered" };
  return { before: order[at - 1] ?? null, after: order[at + 1] ?? null, place: `${number(at + 1, 0)} of ${order.length}` };
}

/** The list has changed: so may have what comes before and after. */
function refresh(): void {
  view?.steps(neighbours());
}

function header(): HTMLElement {
  const button = h("button", { type: "button", click: toggle });
  const say = (): void => {
    button.textContent = theme() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Use ${theme() === "dark" ? "light" : "dark"} colours`);
  };
  onTheme(say);
  const skip = h("a", { class: "skip", href: "#main", click: (event) => (event.preventDefault(), main.querySelector<HTMLElement>("h2")?.focus()) }, "Skip the list");
  return h(
    "header",
    {},
    skip,
    h("h1", {}, payload.title),
    h("nav", { "aria-label": "Page" }, h("a", { href: "#overview" }, "Overview"), button, h("button", { type: "button", click: () => print() }, "Print")),
  );
}

/** On paper everything is unfolded. */
function unfoldForPrint(): void {
  let folded: HTMLDetailsElement[] = [];
  addEventListener("beforeprint", () => {
    folded = [...main.querySelectorAll<HTMLDetailsElement>("details:not([open])")];
    for (const one of folded) one.open = true;
  });
  addEventListener("afterprint", () => folded.forEach((one) => (one.open = false)));
}

document.getElementById("page")?.replaceChildren(header(), h("div", { class: "columns" }, list.element, main));
startTheme();
unfoldForPrint();
addEventListener("hashchange", () => route(true));
route(false);
