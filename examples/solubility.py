"""Why is this molecule so soluble? Explain a regression on ESOL by bonds.

Run it with: python examples/solubility.py [FOLDER]. It takes a few seconds and writes solubility.html and two drawings into
the folder. It needs RDKit (pip install "nseg[plot]") and the file esol.csv in the folder NSEG_DATA, with the columns smiles
and log_solubility.

A regression has no class to keep or to change, so we ask for an event of the predicted value: that it stays within half a
log unit of what it is, and that it is above -2 (more than 10 mmol per litre). The network's test error says how much noise a
prediction has.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nseg import NSEG, Above, Explainer, InputError, Within, certify, explain_many, metrics, plot, report
from nseg.datasets import Benchmark, load
from nseg.events import Event
from nseg.models import manifest, pretrained

SHOWN = 20


def make_explainer(data: Benchmark, outcome: Event) -> Explainer:
    """An explainer of bonds that asks for an event of the solubility."""
    return Explainer(
        pretrained("esol", "gin"),
        NSEG(undirected=True, outcome=outcome),
        explanation_type="model",
        edge_mask_type="object",
        model_config=data.model_config,
    )


def main(folder: Path) -> None:
    """Explain solubilities, print and draw the explanations, and write a report."""
    try:
        data = load("esol")
    except InputError as error:
        raise SystemExit(f"This example needs the ESOL dataset. {error}") from None
    folder.mkdir(parents=True, exist_ok=True)
    noise = manifest()["esol/gin"]["rmse"]["test"]
    near = make_explainer(data, Within(0.5, scale=noise))
    explanations = explain_many(near, data.graphs, data.instances[:SHOWN])
    certificates = certify(near, data.graphs, explanations)
    for one, certificate in list(zip(explanations, certificates, strict=True))[:5]:
        graph = data.graphs[one.output_id]
        print(f"\n{graph.smiles}: predicted {float(one.prediction):.2f}, measured {float(graph.y):.2f}")
        print(f"  {certificate.words(molecule=True).split(' Hence')[0]}")
    scores = metrics.Evaluator(near, data.graphs, explanations).fidelity("hard")
    print(
        f"\nOver {len(explanations)} molecules: with the explanation alone the prediction stays within 0.5 in "
        f"{1 - scores.fid_minus:.0%}, and without it moves further in {scores.fid_plus:.0%}; {scores.sparsity:.0%} of the "
        "bonds are left out."
    )
    soluble = [one.output_id for one in explanations if float(one.prediction) > -2]
    why = explain_many(make_explainer(data, Above(-2.0, scale=noise)), data.graphs, soluble)
    print(f"{len(why)} of them are predicted to be soluble (above -2); PNS of why: {[round(one.pns, 2) for one in why]}")
    smallest = min(explanations, key=lambda one: int(one.hard_edge_mask.sum()))
    for name, one in {"solubility": smallest, "soluble": max(why, key=lambda one: one.pns, default=smallest)}.items():
        (folder / f"{name}.svg").write_text(plot.molecule(one, data, hydrogens=False))
        print(f"{plot.scene(one, data).title}: {folder / name}.svg")
    title = "Why these solubilities?"
    page = report(explanations, folder / "solubility.html", data=data, explainer=near, title=title)
    print(f"Report: {page}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples"))
