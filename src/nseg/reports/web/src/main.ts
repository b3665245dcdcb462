/** The page: the list of instances beside the overview or an instance, depending on the address. */

import { h } from "./dom";
import { InstanceView, type DisplayOptions, type Neighbours } from "./instance";
import { InstanceList } from "./list";
import { overview } from "./overview";
import { patternsView } from "./patterns";
import type { Payload } from "./payload";
import { linkedInstance } from "./state";
import { start as startTheme, theme, toggle, onTheme } from "./theme";
import { instanceName, number } from "./words";

const payload = JSON.parse(document.getElementById("data")?.textContent ?? "null") as Payload;
const options: DisplayOptions = { methods: new Set(payload.methods.keys()), truth: false, hydrogens: true };
const main = h("main", { id: "main" });
const list = new InstanceList(payload, () => refreshNeighbours());
let view: InstanceView | null = null;
let open: number | null = null;

/** Show the view that the address names; the first answer if it names none. */
function route(focus: boolean): void {
  const id = linkedInstance(location.hash);
  const patterns = location.hash === "#patterns" ? payload.patterns : undefined;
  const numbers = location.hash === "#numbers" || patterns !== undefined;
  const one = numbers ? null : id === null ? (payload.instances[0] ?? null) : (payload.instances.find((instance) => instance.id === id) ?? null);
  view?.unmount();
  view = null;
  open = one?.id ?? null;
  list.mark(open);
  document.body.classList.toggle("at-instance", one !== null);
  document.body.classList.toggle("at-patterns", patterns !== undefined);
  document.title = one === null ? payload.title : `${instanceName(payload, one)} – ${payload.title}`;
  if (one !== null) {
    view = new InstanceView(payload, one, options, neighbours());
    main.replaceChildren(view.element);
    view.mount();
  } else if (patterns) {
    main.replaceChildren(patternsView(payload, patterns));
  } else {
    const notFound = id !== null && h("p", { role: "alert" }, `There is no prediction ${id} in this report.`);
    main.replaceChildren(...(notFound ? [notFound] : []), overview(payload));
  }
  if (focus) main.querySelector<HTMLElement>("h2")?.focus({ preventScroll: true });
  if (focus) main.scrollIntoView({ block: "start" });
  if (focus) main.scrollTop = 0;
}

/** The instances before and after the open one in the list. */
function neighbours(): Neighbours {
  const order = list.order;
  const at = open === null ? -1 : order.indexOf(open);
  if (at < 0) return { previous: null, next: null, position: "not in the list" };
  return { previous: order[at - 1] ?? null, next: order[at + 1] ?? null, position: `${number(at + 1, 0)} of ${order.length}` };
}

/** Update the links to the neighbours after the list has changed. */
function refreshNeighbours(): void {
  view?.showNeighbours(neighbours());
}

function header(): HTMLElement {
  const button = h("button", { type: "button", click: toggle });
  const updateButton = (): void => {
    button.textContent = theme() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Use ${theme() === "dark" ? "light" : "dark"} colours`);
  };
  onTheme(updateButton);
  const skip = h("a", { class: "skip", href: "#main", click: (event) => (event.preventDefault(), main.querySelector<HTMLElement>("h2")?.focus()) }, "Skip to content");
  return h(
    "header",
    {},
    skip,
    h("h1", {}, payload.title),
    h("nav", { "aria-label": "Page" }, h("a", { href: "#" }, "Answers"), payload.patterns !== undefined && h("a", { href: "#patterns" }, "What the model looks at"), h("a", { href: "#numbers" }, "Numbers"), button, h("button", { type: "button", click: () => print() }, "Print")),
  );
}

/** Open all folded sections while printing. */
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
