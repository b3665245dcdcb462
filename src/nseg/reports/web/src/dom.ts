/** Creates DOM elements. Texts become text nodes, so that names from a dataset are shown and never run as markup. */

import { unbreakable } from "./words";

export type Child = Node | string | null | false;
type Attribute = string | number | boolean | null | ((event: Event) => void);

/** Create an element. A function value is an event listener, `true` an empty attribute; `false` and null are left out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, Attribute> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  append(element, children);
  return element;
}

/** Create an SVG element. */
export function svg(tag: string, attributes: Record<string, Attribute> = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAttributes(element, attributes);
  append(element, children);
  return element;
}

/** Replace the content of an element. */
export function replaceContent(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

function setAttributes(element: Element, attributes: Record<string, Attribute>): void {
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

/** A sentence of which names and probabilities stay on one line. */
export function sentence(text: string): Child[] {
  return unbreakable(text).map((part) => (part.whole ? h("span", { class: "whole" }, part.text) : part.text));
}
