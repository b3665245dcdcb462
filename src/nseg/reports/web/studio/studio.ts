/** The studio: click edges, nodes and features off and on, add edges, and see at once what the model says. */

import { h, labelled, replaceContent, type Child } from "../src/dom";
import { onTheme, start as startTheme, theme, toggle } from "../src/theme";
import { number } from "../src/words";
import { edgeLabel, edgeWord, featureLabel, kindsBetween, makeCanvas, nodeLabel, nodeType, nodeWidth, nodeWord, typeSwatch, type View } from "./graph";
import { ask, download, withdraw, type Waiting } from "./server";
import { difference, few, holds, NONE, setValue, sorted, switchEdge, switchEdges, switchNode, valueOf, type Edits, type Explanation, type Pair, type Says, type Session, type Step } from "./steps";

type Features = [number, string, number, number][];

const recorded = document.getElementById("recorded")?.textContent;
let view: View | null = null;
let steps: Step[] = [{ edits: NONE }];
let step = 0;
let explanation: Explanation | null = null;
let adding: number | "first" | null = null;
let selected: number | null = null;
let features: Features = [];

const message = h("p", { role: "status", "aria-live": "polite", id: "message" });
const legend = h("figcaption");
const what = h("label", { for: "output" });
const bar = h("progress", { max: 1, "aria-label": "Progress" });
const waiting = h("div", { class: "buttons", hidden: true }, bar, h("button", { type: "button", click: () => withdraw() }, "Cancel"));
const answer = h("section", { "aria-label": "What the model says" });
const reason = h("section", { "aria-label": "The explanation" });
const table = h("section", { "aria-label": "Features of a node" });
const history = h("section", { "aria-label": "Steps" });
const [canvas, drawGraph] = makeCanvas({ edge: (pair) => void (recorded ? null : change(switchEdge(edits(), pair))), node: clickNode });
const output = h("input", { type: "number", min: 0, id: "output", change: () => void open(Number(output.value)) });
const target = h("select", { id: "target", "aria-label": "Class" });
const zero = h("input", { type: "checkbox", id: "zero" });
const more = h("input", { type: "checkbox", id: "more" });
const moreText = h("label", { for: "more" });
const hydrogens = h("input", { type: "checkbox", id: "hydrogens", change: () => draw() });
hydrogens.checked = true;
const hydrogensLine = h("div", { class: "buttons" }, hydrogens, h("label", { for: "hydrogens" }, "show hydrogen atoms"));
const relation = h("select", { "aria-label": "Kind of the new edge" });
const chooser = h("select", { "aria-label": "Node whose features are shown", change: () => void select(chooser.value === "" ? null : Number(chooser.value)) });
const undo = h("button", { type: "button", click: () => void visit(step - 1) }, "Undo");
const redo = h("button", { type: "button", click: () => void visit(step + 1) }, "Redo");
const join = h("button", { type: "button", "aria-pressed": "false", click: () => startAdding(adding === null ? "first" : null) }, "Add an edge");

const edits = (): Edits => steps[step]?.edits ?? NONE;
const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
const say = (text: string): void => void (message.textContent = text);

/** Ask a question that may take a while: progress is shown, and it can be cancelled. */
async function askSlowly<T>(name: string, doing: string, body: object): Promise<T | null> {
  say(`${doing}…`);
  const show = ({ share, asked }: Waiting): void => {
    waiting.hidden = false;
    if (share > 0 && share < 1) bar.value = share;
    else bar.removeAttribute("value");
    say(`${doing}: the model was asked ${asked} times.`);
  };
  const found = await ask<T>(name, body, say, show);
  waiting.hidden = true;
  if (found === null && message.textContent?.startsWith(doing)) say("The question was withdrawn.");
  return found;
}

// --- steps -----------------------------------------------------------------------------------------------------------------

async function open(wanted: number): Promise<boolean> {
  say("Loading…");
  const found = await ask<View>("view", { output: wanted }, say);
  if (found === null) return false;
  show(found);
  location.hash = `output=${found.output}`;
  return true;
}

function show(found: View): void {
  [view, steps, step, explanation, selected, features] = [found, [{ edits: NONE, predicted: found.predicted, probabilities: found.probabilities }], 0, null, null, []];
  what.textContent = capital(found.target !== null ? (found.types[nodeType(found, found.target)] ?? "node") : found.molecule ? "molecule" : "graph");
  moreText.textContent = `new ${edgeWord(found)}s`;
  hydrogensLine.hidden = !found.molecule || !found.nodes.some(([, , , , name]) => name === "H");
  const twice = found.kinds.some((one) => found.kinds.some((other) => other.kind !== one.kind && [...other.ends].sort().join() === [...one.ends].sort().join()));
  replaceContent(relation, ...found.kinds.map(({ kind, name }) => h("option", { value: kind }, name)));
  relation.hidden = !twice;
  output.value = String(found.output);
  output.max = String(found.outputs - 1);
  replaceContent(target, ...found.classes.map((name, n) => h("option", { value: n }, name)));
  target.value = String(found.classes.findIndex((_, n) => n !== found.predicted));
  replaceContent(chooser, h("option", { value: "" }, found.molecule ? "no atom" : "no node"), ...found.nodes.map(([id]) => h("option", { value: id }, nodeLabel(found, id))));
  say(notDrawn(found));
  adding = null;
  draw();
}

function notDrawn(found: View): string {
  const parts = [found.hidden_nodes ? `${found.hidden_nodes} nodes ${found.complete ? `that cannot reach ${found.subject}` : "further away"} are not drawn.` : ""];
  if (found.cut) parts.push(`The model is asked about the ${found.cut[0]} nodes and ${found.cut[1]} edges that matter for ${found.subject}${found.cut[2] ? `; ${found.cut[2]} edges of nodes with very many are left out` : ""}.`);
  return parts.filter(Boolean).join(" ");
}

/** Make a change, ask the model, and remember the step. */
async function change(next: Edits, known: Partial<Step> = {}): Promise<void> {
  steps = [...steps.slice(0, step + 1), { edits: next, ...known }];
  await visit(steps.length - 1);
}

/** Go to a step; the model is asked if its answer is not known. */
async function visit(to: number): Promise<void> {
  step = Math.min(Math.max(to, 0), steps.length - 1);
  const earlier = steps.slice(0, step + 1).reverse().find((one) => one.explanation)?.explanation;
  explanation = steps[step]?.explanation ?? explanation ?? (recorded ? (earlier ?? null) : null);
  say(steps[step]?.words ?? "");
  draw();
  const here = steps[step];
  if (view === null || here === undefined || recorded) return;
  if (here.probabilities === undefined) {
    const found = await ask<Says>("predict", { output: view.output, edits: here.edits }, say);
    if (found === null) return;
    Object.assign(here, found);
    say("");
    draw();
  }
}

// --- questions -------------------------------------------------------------------------------------------------------------

async function explain(): Promise<void> {
  const here = steps[step];
  if (view === null || here === undefined) return;
  const found = await askSlowly<Explanation>("explain", "Explaining", { output: view.output, edits: edits() });
  if (found === null) return;
  here.explanation = explanation = found;
  const word = edgeWord(view);
  say(`The explanation keeps ${found.kept.length === 1 ? `1 ${word}` : `${found.kept.length} ${word}s`}.`);
  draw();
}

async function smallest(wanted: number | null): Promise<void> {
  if (view === null) return;
  const body = { output: view.output, edits: edits(), target: wanted, features: zero.checked, additions: more.checked };
  const found = await askSlowly<Says & { found: boolean; words: string; edits: Edits }>("change", "Searching", body);
  if (found === null) return;
  if (found.found) {
    const undrawn = found.edits.removed.filter((pair) => !holds(view?.edges ?? [], pair)).length;
    await change(found.edits, { predicted: found.predicted, probabilities: found.probabilities, words: found.words });
    say(`${found.words}${undrawn ? ` (${undrawn} of the edges are not drawn.)` : ""}`);
  } else say(`${found.words}${zero.checked && more.checked ? "" : " Let a change try more, and ask again."}`);
}

/** Show the features of a node; none if null. */
async function select(node: number | null): Promise<void> {
  selected = node;
  const found = node === null || view === null || recorded ? null : await ask<{ features: Features }>("features", { output: view.output, node, edits: edits() }, say);
  if (node === null || found !== null) features = found?.features ?? [];
  draw();
}

// --- clicks ----------------------------------------------------------------------------------------------------------------

function clickNode(node: number): void {
  if (recorded) return;
  if (adding === "first") startAdding(node);
  else if (adding !== null && view !== null) joinNodes(view, adding, node);
  else if (view !== null && nodeWidth(view, node) === 0) {
    const own = view.edges.filter(([a, b]) => a === node || b === node);
    if (own.length) void change(switchEdges(edits(), own)).then(() => select(node));
  } else void change(switchNode(edits(), node)).then(() => select(node));
}

/** Add an edge between two nodes. */
function joinNodes(shown: View, first: number, second: number): void {
  const kinds = kindsBetween(shown, first, second);
  const wanted = Number(relation.value);
  const pair = sorted(first, second, kinds.includes(wanted) ? wanted : (kinds[0] ?? 0));
  const there = holds([...shown.edges, ...edits().added], pair);
  startAdding(null);
  const word = edgeWord(shown);
  if (first === second) say(`A new ${word} joins two different ${nodeWord(shown)}s.`);
  else if (!kinds.length) say(`No kind of edge joins ${nodeLabel(shown, first)} and ${nodeLabel(shown, second)}.`);
  else if (there) say(`This ${word} is there already; click it to switch it.`);
  else void change({ ...edits(), added: [...edits().added, pair] });
}

function startAdding(state: typeof adding): void {
  adding = state;
  const word = view === null ? "node" : nodeWord(view);
  if (state === "first") say(`Click the first ${word}.`);
  else if (state !== null) say(`Click the second ${word}.`);
  else say("");
  draw();
}

// --- what is shown ---------------------------------------------------------------------------------------------------------

function draw(): void {
  if (view === null) return;
  drawGraph(view, { edits: edits(), explanation, chosen: typeof adding === "number" ? adding : null, selected, hydrogens: hydrogens.checked });
  join.setAttribute("aria-pressed", String(adding !== null));
  join.textContent = view.molecule ? "Add a bond" : "Add an edge";
  undo.toggleAttribute("disabled", step === 0);
  redo.toggleAttribute("disabled", step === steps.length - 1);
  chooser.value = selected === null ? "" : String(selected);
  drawLegend(view);
  limitTarget(steps[step]?.predicted);
  drawAnswer(view);
  drawReason(view);
  drawFeatures(view);
  drawHistory(view);
}

/** One asks why not another class than the one that the model says now. */
function limitTarget(predicted: number | undefined): void {
  const options = [...target.options];
  options.forEach((one, n) => (one.disabled = n === predicted));
  if (target.selectedIndex === predicted) target.selectedIndex = options.findIndex((one) => !one.disabled);
}

/** What one can do with the drawing, and what its lines, shapes and rings mean. */
function drawLegend(shown: View): void {
  const bare = shown.types.filter((_, n) => shown.widths[n] === 0 && shown.node_types.includes(n));
  const parts = recorded ? [] : [shown.molecule ? "Click a bond to switch it off or on, and an atom to hide what it is from the model." : "Click an edge to switch it off or on, and a node to switch its features."];
  if (bare.length && !recorded) parts.push(`Of ${bare.join(" and ")}, which has no features, a click switches all edges.`);
  if (shown.target !== null) parts.push("The thick line is around the explained node.");
  if (edits().removed.length + edits().hidden.length) parts.push("Dotted: switched off.");
  if (explanation?.kept.length) parts.push(shown.molecule ? "Blue bands: kept by the explanation." : "Thick blue lines: kept by the explanation.");
  if (edits().added.length) parts.push("Dashed lines: added.");
  const types = shown.types.flatMap((name, n) => (shown.node_types.includes(n) ? [h("span", { class: "type" }, typeSwatch(n), name)] : []));
  replaceContent(legend, ...types, parts.join(" "));
}

/** Most classes that are listed; of more, those with the largest probabilities. */
const MOST_CLASSES = 6;

/** Classes to list, in their order. */
function listed(shown: View, now: readonly number[]): number[] {
  const all = shown.classes.map((_, n) => n);
  if (all.length <= MOST_CLASSES) return all;
  const largest = [...all].sort((a, b) => (now[b] ?? 0) - (now[a] ?? 0)).slice(0, MOST_CLASSES - 1);
  return all.filter((n) => largest.includes(n) || n === shown.predicted);
}

function drawAnswer(shown: View): void {
  const says = steps[step];
  const truth = shown.true_class === null ? "" : ` The true class is ${shown.classes[shown.true_class] ?? ""}.`;
  const changed = says?.predicted !== undefined && says.predicted !== shown.predicted;
  const before = changed ? `, and not ${shown.classes[shown.predicted] ?? ""} as on the graph without changes` : "";
  const p = says?.predicted === undefined ? 0 : (says.probabilities?.[says.predicted] ?? 0);
  const sentence = says?.predicted === undefined ? "The model has not answered." : `The model says ${shown.classes[says.predicted] ?? ""} (p ${number(p)})${before}.${truth}`;
  const classes = listed(shown, says?.probabilities ?? shown.probabilities);
  const rows = classes.map((n) => {
    const [name, now] = [shown.classes[n] ?? "", says?.probabilities?.[n]];
    const cells = [h("td", { class: "numeric" }, now === undefined ? "" : number(now)), h("td", { class: "numeric" }, number(shown.probabilities[n] ?? 0))];
    return h("tr", { class: n === says?.predicted ? "best" : "" }, h("th", { scope: "row" }, name), ...cells, h("td", {}, h("meter", { min: 0, max: 1, value: now ?? 0, "aria-label": name })));
  });
  const head = h("tr", {}, ...["class", "p now", "p before", ""].map((text) => h("th", { scope: "col" }, text)));
  const some = classes.length < shown.classes.length ? `, the largest of ${shown.classes.length}` : "";
  const list = h("table", { id: "probabilities" }, h("caption", {}, `Probabilities for ${shown.subject}${some}`), h("thead", {}, head), h("tbody", {}, ...rows));
  replaceContent(answer, h("p", { id: "says", role: "status", "aria-live": "polite" }, sentence), list);
}

function drawReason(shown: View): void {
  if (explanation === null) return void reason.replaceChildren();
  const now = explanation;
  const all = shown.complete;
  const out = (): void => void change({ ...edits(), removed: [...edits().removed.filter((pair) => !holds(now.kept, pair)), ...now.kept] });
  const only = (): void => void change({ ...edits(), removed: shown.edges.filter((pair) => !holds(now.kept, pair)), added: edits().added.filter((pair) => holds(now.kept, pair)) });
  const buttons = [
    now.kept.length > 0 && h("button", { type: "button", click: out }, "Take it out"),
    now.kept.length > 0 && all && h("button", { type: "button", click: only }, "Keep only it"),
    h("button", { type: "button", click: () => ((explanation = null), draw()) }, "Hide it"),
  ];
  const of = steps.findIndex((one) => one.explanation === now);
  replaceContent(reason, h("h2", {}, of === step ? "The explanation" : `The explanation of step ${of}`), h("p", {}, now.words), h("div", { class: "buttons" }, ...(recorded ? [] : buttons)));
}

function drawFeatures(shown: View): void {
  if (shown.features === 0 || recorded) return void table.replaceChildren();
  const node = selected;
  const rows = node === null ? [] : features.map(([feature, name, , before]) => {
    const now = valueOf(edits(), node, feature, before);
    const set = (value: number): void => void (Number.isFinite(value) && change(setValue(edits(), node, feature, value, before)));
    const on = h("input", { type: "checkbox", "aria-label": `${name} on`, change: () => set(on.checked ? before || 1 : 0) });
    on.checked = now !== 0;
    const commit = (): void => void (Number(field.value) !== valueOf(edits(), node, feature, before) && set(Number(field.value)));
    const enter = (event: Event): void => void ((event as KeyboardEvent).key === "Enter" && commit()); // drawn anew, it has no change to tell of
    const field = h("input", { type: "number", step: "any", "aria-label": `value of ${name}`, change: commit, keydown: enter });
    field.value = String(now);
    return h("tr", { class: now === before ? "" : "best" }, h("th", { scope: "row" }, name), h("td", {}, on), h("td", {}, field), h("td", { class: "numeric" }, number(before)));
  });
  const head = h("tr", {}, ...["feature", "on", "value", "before"].map((text) => h("th", { scope: "col" }, text)));
  const list = rows.length > 0 && h("div", { id: "feature-list", tabindex: 0, role: "region", "aria-label": "List of features" }, h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows)));
  const active = document.activeElement;
  const [focused, typed] = [active?.getAttribute("aria-label"), active instanceof HTMLInputElement && active.type === "number" ? active.value : null];
  replaceContent(table, h("h2", {}, "Features"), labelled(shown.molecule ? "Atom" : "Node", chooser), list);
  const again = focused ? [...table.querySelectorAll("input")].find((one) => one.getAttribute("aria-label") === focused) : undefined;
  if (again && typed !== null) again.value = typed; // an answer that comes while somebody types takes nothing away
  again?.focus();
}

function drawHistory(shown: View): void {
  const words = { node: (n: number) => nodeLabel(shown, n), edge: (pair: Pair) => edgeLabel(shown, pair), feature: (n: number, f: number) => featureLabel(shown, n, f), word: edgeWord(shown) };
  const items = steps.map((one, n) => {
    const text = n === 0 ? "the graph as it is" : few(difference(steps[n - 1]?.edits ?? NONE, one.edits, words)) || "no change";
    const p = one.predicted === undefined ? "" : `: ${shown.classes[one.predicted] ?? ""} ${number(one.probabilities?.[one.predicted] ?? 0)}`;
    const button = h("button", { type: "button", class: "step", "aria-current": n === step ? "step" : null, click: () => void visit(n) }, `${n}. ${text}${p}`);
    return h("li", {}, button, one.words ? h("p", { class: "note" }, one.words) : null, one.explanation ? h("p", { class: "note" }, one.explanation.words) : null);
  });
  const details = h("details", { open: recorded ? true : (history.querySelector("details")?.open ?? false) }, h("summary", {}, `Steps (${steps.length - 1})`), h("ol", { class: "session-steps" }, ...items));
  replaceContent(history, details);
}

// --- files -----------------------------------------------------------------------------------------------------------------

const session = (): Session => ({ nseg: "studio", output: view?.output ?? 0, step, steps });

async function savePage(): Promise<void> {
  const found = await askSlowly<{ html: string }>("save", "Saving", { session: session() });
  if (found === null) return;
  download(found.html, "text/html", `studio-${view?.output ?? 0}.html`);
  say("Saved as a page that needs no server.");
}

async function load(chosen: File | undefined): Promise<void> {
  let stored: unknown = null;
  try {
    stored = JSON.parse((await chosen?.text()) ?? "");
  } catch {
    // the server says what a session must be
  }
  const found = await askSlowly<Session>("replay", "Asking the model again", { session: stored });
  if (found === null || !(await open(found.output))) return;
  steps = found.steps;
  explanation = null;
  await visit(found.step);
  const differs = found.differs ?? [];
  say(differs.length ? `The model does not answer as it did when the session was saved (steps ${differs.join(", ")}).` : "The model answers as it did when the session was saved.");
}

function header(): HTMLElement {
  const dark = h("button", { type: "button", click: toggle });
  onTheme(() => (dark.textContent = theme() === "dark" ? "Light" : "Dark"));
  return h("header", {}, h("h1", {}, "nseg studio"), h("nav", { "aria-label": "Page" }, dark));
}

const button = (text: string, act: () => void): HTMLButtonElement => h("button", { type: "button", click: act }, text);
const file: HTMLInputElement = h("input", { type: "file", accept: "application/json", id: "file", class: "hidden-file", change: () => void load(file.files?.[0]).then(() => (file.value = "")) });
const by = (amount: number): void => void open(Math.min(Math.max((view?.output ?? 0) + amount, 0), (view?.outputs ?? 1) - 1));
const together = (...parts: Child[]): HTMLElement => h("span", { class: "together" }, ...parts);
const chooseOutput = h("div", { class: "buttons" }, what, output, button("Previous", () => by(-1)), button("Next", () => by(1)));
const live: Child[] = [
  h("div", { class: "buttons" }, undo, redo, join, relation, button("Start again", () => void change(NONE))),
  h("div", { class: "buttons" }, button("Explain this", () => void explain()), button("Smallest change", () => void smallest(null)), together(button("Why not this class?", () => void smallest(Number(target.value))), target)),
  h("div", { class: "buttons" }, "A change may also try", together(zero, h("label", { for: "zero" }, "features set to 0")), together(more, moreText)),
  hydrogensLine,
];
const files = h("div", { class: "buttons" }, button("Save as a page", () => void savePage()), button("Save as JSON", () => download(JSON.stringify(session(), null, 1), "application/json", `studio-${view?.output ?? 0}.json`)), button("Open a session", () => file.click()), file);
const controls = recorded ? [h("div", { class: "buttons" }, undo, redo)] : live;
const side = h("aside", { class: "studio-side" }, recorded ? null : chooseOutput, answer, ...controls, message, waiting, reason, table, history, recorded ? null : files);
document.getElementById("page")?.replaceChildren(header(), h("main", { class: "studio" }, side, h("figure", { class: "studio-drawing" }, canvas as unknown as HTMLElement, legend)));
startTheme();
if (recorded) {
  const stored = JSON.parse(recorded) as { view: View; session: Session };
  show(stored.view);
  steps = stored.session.steps;
  void visit(stored.session.step);
} else void open(Number(new URLSearchParams(location.hash.slice(1)).get("output") ?? 0));
