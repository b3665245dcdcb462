/** How a drawing looks, as style sheets of Cytoscape.js. */

import type { StylesheetJson } from "cytoscape";
import { FAR_FONT, NEAR_FONT } from "./places";

/** How far above its line the text of an edge is. */
export const SAID_MARGIN = 8;

/** The colour of a node. */
export type NodeColour = (element: { data: (key: string) => unknown }) => string;

/** How the nodes and edges of a network look. */
export function network(ink: string, paper: string, faint: string, kept: string, groupFill: NodeColour): StylesheetJson {
  return [
    { selector: "edge", style: { width: 1, "line-color": faint, opacity: 0.7 } },
    { selector: "edge.kept", style: { width: 5, "line-color": kept, opacity: 1, "z-index": 5 } },
    { selector: "edge.kept[said != '']", style: { label: "data(said)", color: kept, "font-size": FAR_FONT, "font-style": "italic", "text-rotation": "autorotate", "text-margin-y": -SAID_MARGIN, "text-outline-color": paper, "text-outline-width": 2 } },
    { selector: "edge.unsaid", style: { label: "" } },
    { selector: "edge.forward", style: { "target-arrow-shape": "triangle", "target-arrow-color": kept, "arrow-scale": 1.1 } },
    { selector: "edge.backward", style: { "source-arrow-shape": "triangle", "source-arrow-color": kept, "arrow-scale": 1.1 } },
    { selector: "node", style: { width: 14, height: 14, shape: "data(shape)" as never, "background-color": groupFill as never, "background-opacity": 0.35, "border-width": 1, "border-color": groupFill as never, "border-opacity": 0.5 } },
    { selector: "node", style: { label: "data(label)", "font-size": FAR_FONT, "text-halign": "data(halign)", "text-valign": "data(valign)", "text-margin-x": "data(mx)", "text-margin-y": "data(my)", "text-opacity": 0.75 } as never },
    { selector: "node.near", style: { width: 20, height: 20, "background-opacity": 1, "border-opacity": 1, "font-size": NEAR_FONT, "text-opacity": 1, "text-outline-color": paper, "text-outline-width": 2, "z-index": 10 } },
    { selector: "node.crowded", style: { width: 14, height: 14 } },
    { selector: "node.kept", style: { "border-width": 4, "border-color": kept, width: 24, height: 24 } },
    { selector: "node.partial", style: { "background-color": paper, ...pie(groupFill) } as never },
    { selector: "node.unlabelled", style: { label: "" } },
    { selector: "node.target", style: { width: 30, height: 30, "border-width": 3, "border-color": ink, "border-opacity": 1 } },
    { selector: "node.target.partial", style: { "pie-size": "62%" } as never }, // inside the diamond
  ];
}

/** How atoms and bonds look. */
export function molecule(ink: string, paper: string, kept: string, atomFill: NodeColour): StylesheetJson {
  const double = { width: 3, "line-color": paper, "line-outline-width": 2, "line-outline-color": ink };
  return [
    { selector: "edge", style: { width: 2, "line-color": ink, "source-endpoint": "inside-to-node", "target-endpoint": "inside-to-node" } },
    { selector: "edge[order = 2], edge[order = 3]", style: double as never },
    { selector: "edge[order = 3]", style: { width: 6 } },
    { selector: "edge[order = 1.5]", style: { ...double, "line-style": "dashed" } as never },
    { selector: "edge.kept", style: { "underlay-color": kept, "underlay-opacity": 0.55, "underlay-padding": 7 } },
    { selector: "edge.forward", style: { "mid-target-arrow-shape": "triangle", "mid-target-arrow-color": kept } },
    { selector: "edge.backward", style: { "mid-source-arrow-shape": "triangle", "mid-source-arrow-color": kept } },
    { selector: "node", style: { width: 16, height: 16, shape: "ellipse", "background-color": paper, "background-opacity": 0, "border-width": 0, color: atomFill as never, label: "data(label)", "font-size": 16, "font-weight": 600, "text-valign": "center", "text-halign": "center" } },
    { selector: "node[label != '']", style: { "background-opacity": 1 } },
    { selector: "node[label = 'H']", style: { "font-size": 12, "font-weight": 400 } },
    { selector: "node.kept", style: { "underlay-color": kept, "underlay-opacity": 0.55, "underlay-padding": 6, "underlay-shape": "ellipse" } },
    { selector: "node.partial", style: { width: 26, height: 26, "background-opacity": 1, "border-width": 2, "border-color": kept, "underlay-opacity": 0, ...pie(() => kept, 0.45) } as never },
  ];
}

/** The filled share of a node of which some features are kept. */
function pie(fill: NodeColour, opacity = 1): object {
  return { "pie-size": "100%", "pie-1-background-color": fill, "pie-1-background-size": "data(share)", "pie-1-background-opacity": opacity };
}
