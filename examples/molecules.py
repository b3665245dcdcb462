"""Why is this molecule classified as a mutagen? Explain a graph classifier on Mutagenicity by bonds.

Run it with: python examples/molecules.py [FOLDER]. It takes a few seconds and writes molecules.html and molecule.svg into
the folder.

The molecules are downloaded once. Without network, put the TU files into DIR/Mutagenicity/raw and set NSEG_DATA=DIR.
Chemists hold nitro (NO2) and amine (NH2) groups responsible for many of these mutagens, so we can check whether the network
uses them.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from torch_geometric.explain import Explanation

from nseg import NSEG, Explainer, InputError, explain_many, metrics, plot, report
from nseg.datasets import Benchmark, load
from nseg.models import pretrained

SHOWN = 30


def list_bonds(one: Explanation, data: Benchmark) -> str:
    """Kept bonds of a molecule as text, most frequent first."""
    scene = plot.scene(one, data)
    symbols = {1.0: "-", 1.5: ":", 2.0: "=", 3.0: "#"}
    names = Counter(
        symbols[edge.order].join(sorted((scene.nodes[edge.source].name, scene.nodes[edge.end].name)))
        for edge in scene.edges
        if edge.kept
    )
    return ", ".join(f"{count} x {name}" for name, count in names.most_common())


def main(folder: Path) -> None:
    """Explain mutagens, print and draw the explanations, and write a report."""
    try:
        data = load("mutagenicity")
    except InputError as error:
        raise SystemExit(f"This example needs the Mutagenicity dataset. {error}") from None
    folder.mkdir(parents=True, exist_ok=True)
    explainer = Explainer(
        pretrained("mutagenicity", "gcn"),
        NSEG(undirected=True),
        explanation_type="model",
        edge_mask_type="object",
        model_config=data.model_config,
    )
    explanations = explain_many(explainer, data.graphs, data.instances[:SHOWN])
    for one in explanations[:5]:
        scene = plot.scene(one, data)
        print(f"\n{scene.title}, {len(scene.nodes)} atoms, {len(scene.edges)} bonds")
        kept = list_bonds(one, data)
        print(f"  because of {kept}: p is {one.p_factual:.2f} with these alone, {one.p_complement:.2f} without")

    scores = metrics.Evaluator(explainer, data.graphs, explanations).fidelity("hard")
    overall = metrics.accuracy(data, metrics.trivial(explanations, "all")).precision.mean()
    print(
        f"\nOver {len(explanations)} molecules: the explanation alone keeps the class in {1 - scores.fid_minus:.0%}, "
        f"the class changes without it in {scores.fid_plus:.0%}; {scores.sparsity:.0%} of the bonds are left out."
    )
    print(
        f"{metrics.accuracy(data, explanations).precision.mean():.0%} of the kept bonds belong to NO2 or NH2 groups, "
        f"compared with {overall:.0%} of all bonds."
    )
    smallest = min(explanations, key=lambda one: int(one.hard_edge_mask.sum()))
    (folder / "molecule.svg").write_text(plot.molecule(smallest, data, hydrogens=False))
    page = report(explanations, folder / "molecules.html", data=data, explainer=explainer, title="Why are these mutagens?")
    print(f"Report: {page}\nMolecule: {folder / 'molecule.svg'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples"))
