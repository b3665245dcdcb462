/** Draws one graph on a canvas, with Cytoscape.js. */

import cytoscape, { type Core, type ElementDefinition, type SingularElementArgument, type StylesheetJson } from "cytoscape";
import { h } from "./dom";
import { groupColour, typeShape } from "./groups";
import type { Graph, Instance, Payload } from "./payload";
import type { Kept } from "./state";
import { FAR_FONT, NEAR_FONT, placeLabels, roomForTexts, separate, type LabelledNode } from "./places";
import { molecule, network, SAID_MARGIN, type NodeColour } from "./styles";
import { colour, onTheme } from "./theme";
import { nodeName, plural } from "./words";

/** Colour variable of each atom; other atoms have the colour of the text. */
const ATOMS: Record<string, string> = {
  N: "nitrogen", O: "oxygen", S: "sulphur", P: "sulphur", F: "halogen", Cl: "halogen", Br: "halogen", I: "halogen", H: "soft",
};

/** Shape of a node type; other groups have colours only. */
export function groupShape(payload: Payload, group: number): string {
  return payload.grouping === "type" ? typeShape(group) : "ellipse";
}

/** Height of the buttons at the top of a drawing, in pixels. */
const BUTTONS = 44;

/** Above this number of nodes, a drawing starts zoomed to the kept part: the whole graph would be a cloud of dots. */
const MAX_NODES_AT_START = 80;

/** Above this number of highlighted nodes, they are drawn small. */
const MAX_LARGE_NODES = 40;

/** Length of a typical line in pixels at zoom 1, and the least distance of two nodes of a network. */
const LINE_LENGTH = 62;
const MIN_DISTANCE = 36;

/** Carbon atoms without a charge, with any number of hydrogen atoms. */
const CARBON = /^C(H[₂₃₄]?)?$/;

/** The method of Cytoscape's canvas renderer behind `cy.png()`, which gives the picture before it is encoded. */
interface Renderer {
  bufferCanvasImage(options: { full: boolean; scale: number; bg: string }): HTMLCanvasElement;
}

/** A graph that can be zoomed, dragged and hovered over. */
export class Drawing {
  readonly element: HTMLElement;
  private readonly canvas: HTMLElement;
  private readonly tip = h("div", { class: "tip", "aria-hidden": "true" });
  private cy: Core | null = null;
  private shown: Kept | null = null;
  private truth = false;
  private selected: string | null = null;
  private readonly info = h("div", { class: "selected", role: "status", "aria-live": "polite" });
  private hydrogens = true;
  private readonly unsubscribeTheme: () => void;
  private printImage: HTMLCanvasElement | null = null;

  constructor(
    private readonly payload: Payload,
    private readonly one: Instance,
    label: string,
    private readonly describe: { node: (index: number) => string[]; line: (line: number) => string[] },
  ) {
    const keys = "Click a node or line to see what is known of it. Drag to pan, then scroll to zoom. Keys: arrows, +, -, 0.";
    const key = (event: Event): void => this.key(event as KeyboardEvent);
    this.canvas = h("div", { class: "canvas", role: "img", "aria-label": `${label} ${keys}`, tabindex: 0, keydown: key });
    this.element = h(
      "div",
      { class: "drawing" },
      this.canvas,
      this.tip,
      this.info,
      h("p", { class: "keys", "aria-hidden": "true" }, keys),
      h(
        "div",
        { class: "zoom", role: "group", "aria-label": "Zoom" },
        h("button", { type: "button", "aria-label": "Zoom in", click: () => this.zoom(1.3) }, "+"),
        h("button", { type: "button", "aria-label": "Zoom out", click: () => this.zoom(1 / 1.3) }, "−"),
        h("button", { type: "button", title: "Show the whole graph", click: () => this.fit() }, "All"),
        h("button", { type: "button", title: "Show the kept part", click: () => this.fitKept() }, "Kept"),
      ),
    );
    this.unsubscribeTheme = onTheme(() => this.cy?.style(this.styles()));
    addEventListener("beforeprint", this.addPrintImage);
    addEventListener("afterprint", this.removePrintImage);
  }

  /** Add a sharp picture for printing. The canvas itself would be redrawn too late, and in the colours of the screen. */
  private readonly addPrintImage = (): void => {
    const renderer = (this.cy as unknown as { renderer: () => Renderer } | null)?.renderer();
    this.printImage = renderer?.bufferCanvasImage({ full: false, scale: 3, bg: colour("paper") }) ?? null;
    if (this.printImage === null) return;
    this.printImage.className = "on-paper";
    this.printImage.removeAttribute("style");
    this.element.append(this.printImage);
  };

  private readonly removePrintImage = (): void => this.printImage?.remove();

  /** Draw the graph; call it once the element is on the page. */
  mount(): void {
    const cy = cytoscape({
      container: this.canvas,
      elements: this.elements(),
      style: this.styles(),
      layout: { name: "preset", padding: 24 },
      minZoom: 0.05,
      maxZoom: 6,
      boxSelectionEnabled: false,
      autounselectify: true,
      userZoomingEnabled: false, // the wheel scrolls the page until the graph has the focus
    });
    this.cy = cy;
    this.canvas.addEventListener("focus", () => cy.userZoomingEnabled(true));
    this.canvas.addEventListener("blur", () => cy.userZoomingEnabled(false));
    cy.on("tapstart", () => this.canvas.focus({ preventScroll: true }));
    cy.on("tap", "node, edge", (event) => this.select((event.target as SingularElementArgument).id()));
    cy.on("tap", (event) => event.target === cy && this.select(null));
    cy.on("mouseover", "node, edge", (event) => this.hover(event.target as SingularElementArgument));
    cy.on("mouseout viewport tapstart", () => this.tip.classList.remove("shown"));
    this.update();
    if (this.one.graph.node.length > MAX_NODES_AT_START) this.fitKept();
    else this.fit();
  }

  unmount(): void {
    this.unsubscribeTheme();
    removeEventListener("beforeprint", this.addPrintImage);
    removeEventListener("afterprint", this.removePrintImage);
    this.cy?.destroy();
    this.cy = null;
  }

  showKept(kept: Kept): void {
    this.shown = kept;
    this.update();
  }

  showTruth(on: boolean): void {
    this.truth = on;
    this.update();
  }

  showHydrogens(on: boolean): void {
    this.hydrogens = on;
    this.update();
  }

  /** Highlight one line or node, or none. */
  highlight(id: string | null): void {
    this.cy?.elements(".pointed").removeClass("pointed");
    if (id !== null) this.cy?.getElementById(id).addClass("pointed");
  }

  /** Mark the lines that a change removes. */
  markRemoved(lines: number[]): void {
    this.cy?.edges(".removed").removeClass("removed");
    for (const line of lines) this.cy?.getElementById(`e${line}`).addClass("removed");
  }

  /** Select a line or node and show what is known of it; null selects nothing. */
  select(id: string | null): void {
    this.selected = id;
    this.cy?.elements(".chosen").removeClass("chosen");
    this.info.replaceChildren();
    const chosen = id === null ? null : (this.cy?.getElementById(id) ?? null);
    if (chosen === null || chosen.empty()) return;
    chosen.addClass("chosen");
    const index = Number(chosen.data("index"));
    const [first = "", ...rest] = chosen.isNode() ? this.describe.node(index) : this.describe.line(index);
    const close = h("button", { type: "button", class: "plain", "aria-label": "Deselect", click: () => this.select(null) }, "×");
    this.info.append(h("p", {}, h("strong", {}, first), close), ...rest.map((line) => h("p", {}, line)));
  }

  private zoom(factor: number): void {
    const cy = this.cy;
    cy?.zoom({ level: cy.zoom() * factor, renderedPosition: { x: cy.width() / 2, y: cy.height() / 2 } });
  }

  private fit(): void {
    const cy = this.cy;
    if (cy === null) return;
    cy.fit(undefined, 20);
    const box = cy.elements().renderedBoundingBox();
    if (box.y1 < BUTTONS && box.x2 > cy.width() / 2) {
      const room = cy.height() - BUTTONS - 10; // nothing lies behind the buttons at the top right
      if (box.h > room) cy.zoom(cy.zoom() * (room / box.h)).center();
      cy.panBy({ x: 0, y: BUTTONS - cy.elements().renderedBoundingBox().y1 });
    }
    if (!this.payload.molecules && cy.zoom() > 1.6) cy.zoom({ level: 1.6, position: middle(cy.elements().boundingBox()) }).center();
  }

  /** Zoom to the kept part and the explained node, but not too close. */
  private fitKept(): void {
    const cy = this.cy;
    const some = cy?.elements(".kept, .target, .near, .truth");
    if (cy === null || !some?.length) return this.fit();
    cy.fit(some, 60);
    if (cy.zoom() > 1.5) cy.zoom({ level: 1.5, position: middle(some.boundingBox()) });
    cy.center(some);
  }

  private key(event: KeyboardEvent): void {
    const step = 40;
    const moves: Record<string, [number, number]> = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    const move = moves[event.key];
    if (move) this.cy?.panBy({ x: move[0], y: move[1] });
    else if (event.key === "+" || event.key === "=") this.zoom(1.3);
    else if (event.key === "-") this.zoom(1 / 1.3);
    else if (event.key === "0") this.fit();
    else if (event.key === "Escape") this.select(null);
    else return;
    event.preventDefault();
  }

  private hover(element: SingularElementArgument): void {
    const index = Number(element.data("index"));
    const lines = element.isNode() ? this.describe.node(index) : this.describe.line(index);
    const box = element.renderedBoundingBox({});
    this.tip.replaceChildren(...lines.map((line) => h("div", {}, line)));
    this.tip.classList.add("shown");
    const left = Math.min(Math.max((box.x1 + box.x2) / 2, 8), this.canvas.clientWidth - this.tip.offsetWidth - 8);
    const above = (box.y1 + box.y2) / 2 - this.tip.offsetHeight - 12;
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${above < 4 ? (box.y1 + box.y2) / 2 + 12 : above}px`;
  }

  /** Set the classes of kept elements, of nodes at kept lines, and of the ground truth. */
  private update(): void {
    const { cy, shown } = this;
    if (cy === null || shown === null) return;
    const graph = this.one.graph;
    const touched = new Set(graph.target);
    for (const line of shown.lines.keys()) touched.add(graph.source[line] ?? -1).add(graph.end[line] ?? -1);
    const crowded = graph.name === null && touched.size > MAX_LARGE_NODES;
    const truth = new Set(this.truth ? graph.truth_nodes : []);
    cy.batch(() => {
      cy.edges(".band").style("display", this.truth ? "element" : "none");
      for (const edge of cy.edges().not(".extra")) {
        const line = Number(edge.data("index"));
        const direction = shown.lines.get(line);
        edge.toggleClass("kept", direction !== undefined);
        edge.toggleClass("forward", direction === "forward").toggleClass("backward", direction === "backward");
      }
      for (const node of cy.nodes()) {
        const index = Number(node.data("index"));
        const highlighted = shown.nodes.has(index) || touched.has(index);
        const share = shown.nodes.get(index) ?? 0;
        node.data("share", 100 * share).toggleClass("partial", share > 0 && share < 1);
        node.toggleClass("kept", share > 0).toggleClass("near", highlighted).toggleClass("truth", truth.has(index)).toggleClass("crowded", crowded);
        if (node.data("symbol") === "H") node.style("display", this.hydrogens || highlighted || truth.has(index) ? "element" : "none");
      }
    });
    if (!this.payload.molecules) cy.batch(() => this.placeLabels(touched)); // sizes of nodes are known after the first batch
    if (this.selected !== null) this.select(this.selected);
  }

  /** Write names where they cover neither each other nor nodes; those of highlighted nodes first. */
  private placeLabels(touched: Set<number>): void {
    const { cy, shown } = this;
    const { graph } = this.one;
    if (cy === null || shown === null) return;
    const named = graph.name !== null;
    const target = new Set(graph.target);
    const items = cy.nodes().map((node): LabelledNode => {
      const index = Number(node.data("index"));
      const near = touched.has(index) || shown.nodes.has(index);
      const { x, y } = node.position();
      const rank = target.has(index) ? 2 : near ? 1 : 0;
      const text = rank > 0 || named ? String(node.data("label")) : "";
      return { x, y, radius: node.width() / 2, text, font: rank > 0 ? NEAR_FONT : FAR_FONT, rank };
    });
    const places = placeLabels(items);
    cy.nodes().forEach((node, n) => {
      const place = places[n] ?? null;
      node.toggleClass("unlabelled", place === null);
      if (place !== null) node.data({ halign: place.halign, valign: place.valign, mx: place.mx, my: place.my });
    });
    const said = cy.edges(".kept[said != '']");
    const texts = said.map((edge) => ({ from: edge.source().position(), to: edge.target().position(), text: String(edge.data("said")), font: FAR_FONT, margin: SAID_MARGIN }));
    const room = roomForTexts(texts, items, places);
    said.forEach((edge, n) => void edge.toggleClass("unsaid", !room[n]));
  }

  private elements(): ElementDefinition[] {
    const { graph } = this.one;
    const scale = layoutScale(graph);
    const target = new Set(graph.target);
    const bound = new Set([...graph.source, ...graph.end]);
    const mistaken = new Map(graph.mistaken ?? []);
    const raw = graph.node.map((_, index) => ({ x: scale * (graph.x[index] ?? 0), y: scale * (graph.y[index] ?? 0) }));
    const points = graph.atom === null ? separate(raw, MIN_DISTANCE) : raw;
    const nodes = graph.node.map((id, index): ElementDefinition => {
      const group = graph.group?.[index] ?? -1;
      const name = this.payload.names[graph.name?.[index] ?? -1] ?? "";
      const atom = this.payload.names[graph.atom?.[index] ?? -1] ?? "";
      const symbol = /^[A-Z][a-z]?/.exec(atom)?.[0] ?? "";
      const hidden = CARBON.test(atom) && bound.has(index); // chemists draw carbon atoms as corners
      return {
        data: { id: `n${index}`, index, group, symbol, shape: target.has(index) && this.payload.grouping !== "type" ? "diamond" : groupShape(this.payload, group), other: mistaken.get(index) ?? -1, label: graph.atom !== null ? (hidden ? "" : atom) : name || String(id), halign: "center", valign: "bottom", mx: 0, my: 3 },
        position: points[index] ?? { x: 0, y: 0 },
        classes: `${target.has(index) ? "target" : ""}${mistaken.has(index) ? " mistaken" : ""}`,
      };
    });
    const lines = graph.source.flatMap((source, index): ElementDefinition[] => {
      const order = graph.order?.[index] ?? 1;
      const said = this.payload.grouping === "type" ? (this.payload.names[graph.edge?.[index] ?? -1] ?? "") : "";
      const data = { source: `n${source}`, target: `n${graph.end[index]}`, index, order, said };
      const found: ElementDefinition[] = [{ data: { id: `e${index}`, ...data } }];
      if (order === 3) found.push({ data: { id: `m${index}`, ...data, order: 1 }, classes: "extra" }); // the middle line of a triple bond
      if (graph.truth?.includes(index)) found.unshift({ data: { id: `t${index}`, ...data, order: 0 }, classes: "extra band" });
      return found;
    });
    return [...nodes, ...lines];
  }

  private styles(): StylesheetJson {
    const { payload } = this;
    const [ink, paper, faint, kept, truth, accent] = ["ink", "paper", "faint", "kept", "truth", "accent"].map(colour) as [
      string, string, string, string, string, string,
    ];
    const groupFill: NodeColour = (element) => groupColour(Number(element.data("group")));
    const trueFill: NodeColour = (element) => groupColour(Number(element.data("other")));
    const atomFill: NodeColour = (element) => colour(ATOMS[String(element.data("symbol"))] ?? "ink");
    const shared: StylesheetJson = [
      { selector: "core", style: { "active-bg-opacity": 0 } as never },
      { selector: "edge", style: { "curve-style": "straight", "overlay-opacity": 0, "loop-direction": "0deg" } },
      { selector: "edge:loop", style: { "curve-style": "bezier" } },
      { selector: "node", style: { "overlay-opacity": 0, color: ink, "font-family": "system-ui, sans-serif", "text-wrap": "ellipsis", "text-max-width": "110px" } },
    ];
    const last: StylesheetJson = [
      { selector: ".extra", style: { events: "no", "underlay-opacity": 0 } },
      { selector: ".band", style: { width: 18, "line-color": truth, "line-opacity": 0.45, "line-outline-width": 0, "z-index": 0 } as never },
      { selector: "node.truth", style: { "outline-color": truth, "outline-width": 5, "outline-offset": 2, "outline-opacity": 0.6 } as never },
      { selector: "node.mistaken", style: { "outline-color": trueFill as never, "outline-width": 3, "outline-offset": 3, "outline-opacity": 1 } as never },
      { selector: "edge.removed", style: { "line-color": colour("bad"), "line-style": "dashed", width: 5, opacity: 1, "z-index": 6 } },
      { selector: ".chosen", style: { "overlay-color": accent, "overlay-opacity": 0.25, "overlay-padding": 8 } },
      { selector: ".pointed", style: { "overlay-color": accent, "overlay-opacity": 0.35, "overlay-padding": 6 } },
    ];
    return [...shared, ...(payload.molecules ? molecule(ink, paper, kept, atomFill) : network(ink, paper, faint, kept, groupFill)), ...last];
  }
}

/** The factor that gives a typical line its length on the screen. */
function layoutScale(graph: Graph): number {
  const lengths = graph.source
    .map((source, n) => {
      const end = graph.end[n] ?? 0;
      return Math.hypot((graph.x[source] ?? 0) - (graph.x[end] ?? 0), (graph.y[source] ?? 0) - (graph.y[end] ?? 0));
    })
    .filter((length) => length > 0)
    .sort((a, b) => a - b);
  const typical = lengths[Math.floor(lengths.length / 2)];
  return typical === undefined ? 0.3 : Math.min(Math.max(LINE_LENGTH / typical, 0.3), 3);
}

function middle(box: { x1: number; x2: number; y1: number; y2: number }): { x: number; y: number } {
  return { x: (box.x1 + box.x2) / 2, y: (box.y1 + box.y2) / 2 };
}

/** A description of a graph for screen readers. */
export function describeGraph(payload: Payload, one: Instance): string {
  const { graph } = one;
  const targets = graph.target.map((index) => nodeName(payload, graph, index)).join(", ");
  return `${plural(graph.node.length, "node")} and ${plural(graph.source.length, "line")} are drawn${targets && `, explained: ${targets}`}. The kept part is listed below.`;
}
