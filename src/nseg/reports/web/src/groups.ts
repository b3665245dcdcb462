/** Colours of groups of nodes, and shapes of types of nodes: the same in the report and in the studio. */

import { colour } from "./theme";

/** Group colours: Okabe and Ito's without their blue, which marks the kept part, then Paul Tol's and others. */
const PALETTE = [
  "#e69f00", "#56b4e9", "#009e73", "#e0d020", "#d55e00", "#cc79a7", "#882255", "#44aa99", "#5b4bb5", "#999933",
  "#b5625a", "#7f8c8d", "#8cd17d", "#a0722a", "#c98fd0", "#4a8fa8", "#d98880", "#5f9e6e", "#9c755f", "#d0a35c",
  "#76b7b2", "#7b6fb8", "#b07aa1", "#b3a125",
];

const SHAPES = ["ellipse", "rectangle", "triangle", "diamond", "pentagon", "hexagon", "star", "octagon"];

/** Shape of a type of nodes. */
export function typeShape(type: number): string {
  return type >= 0 ? (SHAPES[type % SHAPES.length] ?? "ellipse") : "ellipse";
}

export function groupColour(group: number): string {
  return group < 0 ? colour("faint") : (PALETTE[group % PALETTE.length] ?? "#888");
}
