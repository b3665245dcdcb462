"""Why is this picture a street? Explain a graph classifier on MSRC_21 by regions.

Run it with: python examples/scenes.py [FOLDER]. It takes a few seconds and writes scenes.html and scene.png into the folder.

A picture is a graph of regions. Each region is labelled with its content (sky, car, face ...), and an edge joins regions
that touch. The graphs are downloaded once. Without network, put the TU files into DIR/MSRC_21/raw and set NSEG_DATA=DIR.
The explanations are node masks: which regions are necessary and sufficient for the scene?
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from nseg import NSEG, Explainer, InputError, explain_many, metrics, plot, report
from nseg.datasets import load
from nseg.models import pretrained

SHOWN = 24


def count_names(names: list[str]) -> str:
    """Names with their counts, most frequent first."""
    return ", ".join(f"{count} x {name}" for name, count in Counter(names).most_common())


def main(folder: Path) -> None:
    """Explain scenes, print and draw the explanations, and write a report."""
    try:
        data = load("msrc-21")
    except InputError as error:
        raise SystemExit(f"This example needs the MSRC_21 dataset. {error}") from None
    folder.mkdir(parents=True, exist_ok=True)
    explainer = Explainer(
        pretrained("msrc-21", "gcn"),
        NSEG(),
        explanation_type="model",
        node_mask_type="object",
        model_config=data.model_config,
    )
    explanations = explain_many(explainer, data.graphs, data.instances[: 10 * SHOWN : 10])
    for one in explanations[:6]:
        scene = plot.scene(one, data)
        kept = count_names([node.name for node in scene.nodes if node.kept])
        print(f"\n{scene.title}: {count_names([node.name for node in scene.nodes])}")
        print(f"  because of {kept}: p is {one.p_factual:.2f} with these alone, {one.p_complement:.2f} without")

    scores = metrics.Evaluator(explainer, data.graphs, explanations).fidelity("hard")
    print(
        f"\nOver {len(explanations)} scenes: the explanation alone keeps the class in {1 - scores.fid_minus:.0%}, "
        f"the class changes without it in {scores.fid_plus:.0%}; {scores.sparsity:.0%} of the regions are left out."
    )
    plot.predictions(explanations, data, each=2).savefig(folder / "scene.png", dpi=100)
    page = report(explanations, folder / "scenes.html", data=data, explainer=explainer, title="Why these scenes?")
    print(f"Report: {page}\nPicture: {folder / 'scene.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples"))
