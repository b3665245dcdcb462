"""Why is this picture a street? A graph classifier on MSRC_21, explained region by region.

Run it: python examples/scenes.py [FOLDER]. It takes some seconds and writes scenes.html and scene.png into the folder.

A picture is a graph of regions; each has the name of what is in it (sky, car, face ...), and regions that touch are
joined. The graphs are downloaded once. Without network, put the TU files into DIR/MSRC_21/raw and set NSEG_DATA=DIR.
Here nodes are explained: which regions are necessary and sufficient for the scene?
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from nseg import NSEG, Explainer, InputError, explain_many, metrics, plot, report
from nseg.datasets import load
from nseg.models import pretrained

SHOWN = 24


def words(names: list[str]) -> str:
    """What regions are called, the most frequent first."""
    return ", ".join(f"{number} x {name}" for name, number in Counter(names).most_common())


def main(folder: Path) -> None:
    """Explain scenes, print, draw and write a report."""
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
    found = explain_many(explainer, data.graphs, data.instances[: 10 * SHOWN : 10])
    for one in found[:6]:
        shown = plot.scene(one, data)
        kept = words([node.name for node in shown.nodes if node.kept])
        print(f"\n{shown.title}: {words([node.name for node in shown.nodes])}")
        print(f"  because of {kept}: with these alone p = {one.p_factual:.2f}, without {one.p_complement:.2f}")

    hard = metrics.Judge(explainer, data.graphs, found).fidelity("hard")
    print(
        f"\nOver {len(found)} scenes: the class stays with the explanation alone in {1 - hard.fid_minus:.0%} and goes "
        f"without it in {hard.fid_plus:.0%}; {hard.sparsity:.0%} of the regions are left out."
    )
    plot.predictions(found, data, each=2).savefig(folder / "scene.png", dpi=100)
    page = report(found, folder / "scenes.html", data=data, explainer=explainer, title="Why these scenes?")
    print(f"Look at them: {page}, {folder / 'scene.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples"))
