/** A small payload for the tests. */

import type { MethodAnswer, Instance, Payload } from "../src/payload";

export function answer(part: Partial<MethodAnswer> = {}): MethodAnswer {
  return {
    verdict: "both",
    reason: "The model says house for node 3 (p 0.900), because of 2 edges (3 - 4, 3 - 9).",
    proof: "They alone are enough.",
    lines: { weight: [900, 100, 500], kept: [0, 2], stay: "132" },
    back: null,
    nodes: null,
    features: null,
    directed: false,
    size: [2, 0, 0],
    of: [3, 0, 0],
    exact: false,
    p_factual: 0.8,
    p_complement: 0.1,
    pns: 0.7,
    pn: 0.875,
    ps: 0.7777,
    worlds: { p: [0.8, 0.1], label: [0, 1] },
    stops: {
      least: [null, 0.9, 0.5, 0.1],
      size: [[0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0]],
      worlds: [
        { p: [0.1, 0.9], label: [1, 0] },
        { p: [0.8, 0.2], label: [0, 1] },
        { p: [0.8, 0.1], label: [0, 1] },
        { p: [0.9, 0.1], label: [0, 1] },
      ],
    },
    deletion: null,
    words: null,
    ...part,
  };
}

export function instance(part: Partial<Instance> = {}): Instance {
  return {
    id: 3,
    name: "node 3",
    target: 0,
    predicted: 0,
    label: 0,
    p: 0.9,
    graph: {
      node: [3, 4, 9],
      x: [0, 500, 1000],
      y: [0, 1000, 0],
      name: null,
      atom: null,
      group: null,
      mistaken: null,
      target: [0],
      source: [0, 1, 0],
      end: [1, 2, 2],
      edge: null,
      order: null,
      truth: null,
      truth_nodes: [],
      truth_outside: 0,
      left_out: 0,
      hint: null,
    },
    change: null,
    answers: [answer()],
    ...part,
  };
}

export function payload(part: Partial<Payload> = {}): Payload {
  return {
    title: "why",
    level: "node",
    molecules: false,
    grouping: "predicted",
    verdicts: [["both", "necessary and sufficient"], ["unexplained", "not explained"]],
    facts: [],
    summary: null,
    methods: [{ name: "NSEG", settings: [["tolerance", "0.05"]], edges: true, node_mask: null, split: [1], curve: null }],
    classes: ["house", "tree"],
    groups: [],
    names: [],
    feature_names: [],
    units: [],
    instances: [instance(), instance({ id: 30, name: "node 30", label: 1, answers: [answer({ pns: 0.2, verdict: "unexplained" })] }), instance({ id: 7, name: "node 7", target: 1, predicted: 1, label: 1, answers: [null] })],
    ...part,
  };
}
