/** Places of nodes and their names: neither nodes nor names cover each other. */

export interface Point {
  x: number;
  y: number;
}

/** A node of a network with its name. */
export interface LabelledNode extends Point {
  radius: number;
  text: string;
  font: number;
  /** 2 for the explained node, 1 for a highlighted one, 0 for others. */
  rank: number;
}

/** Where a name is written, in the words of Cytoscape: beside its node, with a margin. */
export interface Place {
  halign: "left" | "center" | "right";
  valign: "top" | "center" | "bottom";
  mx: number;
  my: number;
}

/** Font sizes of names: of highlighted nodes, and of others. */
export const NEAR_FONT = 13;
export const FAR_FONT = 10;

/** Maximum width of a name; longer ones end in an ellipsis. */
export const MAX_WIDTH = 110;

const GAP = 5;

/** Room around a name for its outline. */
const OUTLINE = 4;
const ROUNDS = 60;

interface Box {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

/** The same points, moved apart until none are closer than the distance (or the rounds are over). */
export function separate(points: readonly Point[], distance: number): Point[] {
  const moved = points.map(({ x, y }) => ({ x, y }));
  for (let round = 0, near = true; near && round < ROUNDS; round++) {
    near = false;
    for (let a = 0; a < moved.length; a++) {
      for (let b = a + 1; b < moved.length; b++) {
        const [one, other] = [moved[a] as Point, moved[b] as Point];
        let [dx, dy] = [other.x - one.x, other.y - one.y];
        if (Math.abs(dx) >= distance || Math.abs(dy) >= distance) continue;
        const length = Math.hypot(dx, dy);
        if (length >= distance - 0.01) continue;
        near = true;
        if (length < 1e-6) [dx, dy] = [Math.cos(a + b), Math.sin(a + b)]; // coincident: any direction, the same each time
        const push = (distance - length) / 2 / (length < 1e-6 ? 1 : length);
        one.x -= push * dx;
        one.y -= push * dy;
        other.x += push * dx;
        other.y += push * dy;
      }
    }
  }
  return moved;
}

let context: CanvasRenderingContext2D | null = null;

/** Width of a text on the screen at zoom 1. */
function measure(text: string, font: number): number {
  context ??= document.createElement("canvas").getContext("2d");
  if (context === null) return 0.6 * font * text.length;
  context.font = `${font}px system-ui, sans-serif`;
  return context.measureText(text).width;
}

/** How much further away than others the name of the explained node may be. */
const DISTANCES = [0, 10, 20, 32, 46, 62, 80];

const PLACES: [Place["halign"], Place["valign"]][] = [
  ["center", "bottom"], ["center", "top"], ["right", "center"], ["left", "center"],
  ["right", "bottom"], ["left", "bottom"], ["right", "top"], ["left", "top"],
];

/**
 * A place for the name of each node, or null if there is no room for it.
 *
 * Names cover neither each other nor nodes. That of the explained node goes further away if there is no room beside it.
 */
export function placeLabels(nodes: readonly LabelledNode[], width: (text: string, font: number) => number = measure): (Place | null)[] {
  const found: (Place | null)[] = nodes.map(() => null);
  const circles = nodes.map(({ x, y, radius }): Box => ({ left: x - radius, right: x + radius, top: y - radius, bottom: y + radius }));
  const taken: Box[] = [];
  const order = [...nodes.keys()].filter((n) => nodes[n]?.text).sort((a, b) => (nodes[b]?.rank ?? 0) - (nodes[a]?.rank ?? 0) || a - b);
  for (const n of order) {
    const node = nodes[n] as LabelledNode;
    const w = Math.min(width(node.text, node.font), MAX_WIDTH);
    const free = (node.rank < 2 ? [0] : DISTANCES).flatMap((far) => PLACES.map(([halign, valign]) => placeAt(node, halign, valign, w, far)));
    const best = free.find(([, box]) => !taken.some((other) => intersects(other, box)) && !circles.some((circle, m) => m !== n && intersects(circle, box)));
    if (!best) continue;
    taken.push(best[1]);
    found[n] = best[0];
  }
  return found;
}

/** A text along a line, turned with it and moved up by a margin. */
export interface LineText {
  from: Point;
  to: Point;
  text: string;
  font: number;
  margin: number;
}

/** Which texts of lines have room: they cover neither nodes, nor their names, nor each other. */
export function roomForTexts(lines: readonly LineText[], nodes: readonly LabelledNode[], places: readonly (Place | null)[], width: (text: string, font: number) => number = measure): boolean[] {
  const taken = nodes.map(({ x, y, radius }) => rectangle(x, y, 2 * radius, 2 * radius, 0));
  nodes.forEach((node, n) => {
    const place = places[n];
    if (!place) return;
    const box = boxAt(node, place, Math.min(width(node.text, node.font), MAX_WIDTH));
    taken.push(rectangle((box.left + box.right) / 2, (box.top + box.bottom) / 2, box.right - box.left, box.bottom - box.top, 0));
  });
  return lines.map(({ from, to, text, font, margin }) => {
    const angle = Math.atan((to.y - from.y) / (to.x - from.x || 1e-9));
    const own = rectangle((from.x + to.x) / 2, (from.y + to.y) / 2 - margin, width(text, font) + 2 * OUTLINE, font + OUTLINE, angle);
    const room = taken.every((other) => apart(own, other));
    if (room) taken.push(own);
    return room;
  });
}

interface Rectangle {
  corners: Point[];
  axes: Point[];
}

function rectangle(x: number, y: number, width: number, height: number, angle: number): Rectangle {
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  const corner = (a: number, b: number): Point => ({ x: x + (a * width * c - b * height * s) / 2, y: y + (a * width * s + b * height * c) / 2 });
  return { corners: [corner(-1, -1), corner(1, -1), corner(1, 1), corner(-1, 1)], axes: [{ x: c, y: s }, { x: -s, y: c }] };
}

/** Whether a line along a side of one of two rectangles has them on different sides. */
function apart(a: Rectangle, b: Rectangle): boolean {
  return [...a.axes, ...b.axes].some((axis) => {
    const [p, q] = [a, b].map((one) => one.corners.map((corner) => corner.x * axis.x + corner.y * axis.y)) as [number[], number[]];
    return Math.max(...p) <= Math.min(...q) || Math.max(...q) <= Math.min(...p);
  });
}

function placeAt(node: LabelledNode, halign: Place["halign"], valign: Place["valign"], width: number, far: number): [Place, Box] {
  const [right, down] = directions({ halign, valign });
  const gap = (right !== 0 && down !== 0 ? -GAP : GAP) + far; // diagonal names may come closer
  const place = { halign, valign, mx: right * gap, my: down * gap };
  return [place, boxAt(node, place, width)];
}

function directions({ halign, valign }: Pick<Place, "halign" | "valign">): [number, number] {
  return [{ left: -1, center: 0, right: 1 }[halign], { top: -1, center: 0, bottom: 1 }[valign]];
}

/** The room that a name takes at a place. */
function boxAt(node: LabelledNode, place: Place, width: number): Box {
  const [right, down] = directions(place);
  const middleX = node.x + right * (node.radius + width / 2) + place.mx;
  const middleY = node.y + down * (node.radius + node.font / 2) + place.my;
  const [halfWidth, halfHeight] = [width / 2 + OUTLINE, node.font / 2 + OUTLINE];
  return { left: middleX - halfWidth, right: middleX + halfWidth, top: middleY - halfHeight, bottom: middleY + halfHeight };
}

function intersects(a: Box, b: Box): boolean {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}
