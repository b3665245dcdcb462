"""Why is this molecule called a mutagen? A graph classifier on Mutagenicity, explained bond by bond.

Run it: python examples/molecules.py [FOLDER]. It takes some seconds and writes molecules.html and molecule.svg there.

The molecules are downloaded once. Without network, put the TU files into DIR/Mutagenicity/raw and set
NSEG_DATA=DIR. Chemists hold nitro (NO2) and amine (NH2) groups responsible for many of these mutagens, so we can see whether
the network looks at them.
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


def bonds(one: Explanation, data: Benchmark) -> str:
    """The kept bonds of a molecule in words."""
    shown = plot.scene(one, data)
    marks = {1.0: "-", 1.5: ":", 2.0: "=", 3.0: "#"}
    names = Counter(
        marks[edge.order].join(sorted((shown.nodes[edge.source].name, shown.nodes[edge.end].name)))
        for edge in shown.edges
        if edge.kept
    )
    return ", ".join(f"{number} x {name}" for name, number in names.most_common())


def main(folder: Path) -> None:
    """Explain mutagens, print, draw and write a report."""
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
    found = explain_many(explainer, data.graphs, data.instances[:SHOWN])
    for one in found[:5]:
        shown = plot.scene(one, data)
        print(f"\n{shown.title}, {len(shown.nodes)} atoms, {len(shown.edges)} bonds")
        print(f"  because of {bonds(one, data)}: with these alone p = {one.p_factual:.2f}, without {one.p_complement:.2f}")

    hard = metrics.Judge(explainer, data.graphs, found).fidelity("hard")
    everything = metrics.accuracy(data, metrics.trivial(found, "all")).precision.mean()
    print(
        f"\nOver {len(found)} molecules: the class stays with the explanation alone in {1 - hard.fid_minus:.0%} and goes "
        f"without it in {hard.fid_plus:.0%}; {hard.sparsity:.0%} of the bonds are left out."
    )
    print(
        f"{metrics.accuracy(data, found).precision.mean():.0%} of the kept bonds are of NO2 or NH2 groups; of all bonds "
        f"{everything:.0%} are."
    )
    smallest = min(found, key=lambda one: int(one.hard_edge_mask.sum()))
    (folder / "molecule.svg").write_text(plot.molecule(smallest, data, hydrogens=False))
    page = report(found, folder / "molecules.html", data=data, explainer=explainer, title="Why are these mutagens?")
    print(f"Look at them: {page}, {folder / 'molecule.svg'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples"))
