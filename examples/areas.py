"""Why does the network think that an author works in this area? Explain a heterogeneous graph.

Run it with: NSEG_DATA=FOLDER python examples/areas.py. It needs DBLP.npz there and takes seconds.

Authors wrote papers, papers were presented at conferences. A graph transformer (HGT) of the package predicts the
area of each author. An author's area is that of the conferences of its papers, so good explanations are paths from the
author over a paper to a conference.
"""

from __future__ import annotations

from nseg import NSEG, Explainer, explain_many
from nseg.datasets import load
from nseg.models import pretrained

SHOWN = 20


def main() -> None:
    """Explain some test authors, and print their explanations as paths."""
    benchmark = load("dblp")
    (data,) = benchmark.graphs
    explainer = Explainer(
        pretrained("dblp", "hgt"),
        NSEG(),
        explanation_type="model",
        edge_mask_type="object",
        model_config=benchmark.model_config,
    )
    explanations = explain_many(explainer, data, index=benchmark.instances[:SHOWN])
    for one in explanations[:3]:
        area = benchmark.class_names[int(one.target[one.index])]
        print(f"\nauthor {one.output_id} works in {area} because")
        for path in one.paths(most=5):
            print(f"  {path}")
        print(f"  p is {one.p_factual:.2f} with these edges alone, {one.p_complement:.2f} without them.")
    reaching = sum(any("conference" in path for path in one.paths()) for one in explanations)
    print(f"\nOver {len(explanations)} authors, {reaching / len(explanations):.0%} of the explanations reach a conference.")


if __name__ == "__main__":
    main()
