/** Elements from data. Texts become text nodes, so that whatever a dataset calls its nodes is shown and never run. */

export type Child = Node | string | null | false;
type Attribute = string | number | boolean | null | ((event: Event) => void);

/** An element; a function is a listener, `true` an empty attribute, `false` and null none. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, Attribute> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  set(element, attributes);
  append(element, children);
  return element;
}

/** An SVG element. */
export function svg(tag: string, attributes: Record<string, Attribute> = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(element, attributes);
  append(element, children);
  return element;
}

/** Put these in the place of what an element holds. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

function set(element: Element, attributes: Record<string, Attribute>): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false && value !== null) element.setAttribute(name, value === true ? "" : String(value));
  }
}

function append(element: Element, children: Child[]): void {
  for (const child of children) if (child !== null && child !== false) element.append(child);
}

let count = 0;

/** A control with its label. */
export function labelled(text: string, control: HTMLElement): HTMLElement {
  control.id ||= `control-${++count}`;
  return h("div", { class: "field" }, h("label", { for: control.id }, text), control);
}
