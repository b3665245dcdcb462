"""The pictures of the documentation, made again by: python docs/make_pictures.py.

Those of molecules need the Mutagenicity dataset (a download, or NSEG_DATA) and are left as they are without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv

from nseg import NSEG, Explainer, InputError, baselines, explain_many, plot
from nseg.datasets import Benchmark, load
from nseg.models import pretrained

HERE = Path(__file__).parent / "pictures"

LAYERS: tuple[tuple[str, dict[str, str]], ...] = (
    ("show", {"cli": "commands", "study": "TOML to records", "reports": "one HTML page", "plot": "pictures"}),
    ("judge", {"certify": "bounds, ceiling", "metrics": "fidelity, accuracy", "models": "GCN, GIN", "datasets": "truth"}),
    (
        "explain",
        {
            "many": "many at once",
            "work": "one shard",
            "baselines": "fifteen rivals",
            "shards": "long runs",
            "large": "parts of graphs",
        },
    ),
    ("translate", {"explainer": "NSEG inside PyG", "source": "checks, cuts", "store": "Parquet", "backends": "workers"}),
    ("search", {"extract": "soft to hard", "refine": "moves, all subsets", "search": "Adam on masks", "draws": "samples"}),
    ("worlds", {"subsets": "many subsets at once", "space": "elements and worlds", "settings": "frozen, checked"}),
    ("ask", {"scm": "Y = f(E, X)", "objective": "equations", "complement": "laws of absence", "instances": "graphs as one"}),
)
"""The layers of the package from top to bottom: what they do, and their modules with a word on each."""

ROLES = ("no band", "band", "sings", "drums", "listens")
NAMES = ("you", "Ana", "Ben", "Cem", "Dee", "Gil", "Fay")
ROLE = (4, 2, 2, 3, 3, 4, 4)
CONFIG = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}


class Band(nn.Module):
    """Says "band" if someone among your friends sings and someone drums."""

    def __init__(self) -> None:
        super().__init__()
        self.friends = SimpleConv(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Scores of "no band" and "band", [N, 2]."""
        singers, drummers = self.friends(x, edge_index).clamp(max=1).unbind(1)
        score = 10 * (singers + drummers) - 15
        return torch.stack([torch.zeros_like(score), score], 1)


def explainer(model: nn.Module, algorithm: Any, config: dict[str, str], nodes: bool = False) -> Explainer:
    """An explainer of edges, or of edges and nodes."""
    node = "object" if nodes else None
    return Explainer(
        model, algorithm, explanation_type="model", edge_mask_type="object", node_mask_type=node, model_config=config
    )


def band() -> None:
    """Necessary, sufficient, both; and the two worlds of the last."""
    x = torch.tensor([[float(role == 2), float(role == 3)] for role in ROLE])
    data = Data(x=x, edge_index=torch.tensor([[1, 2, 3, 4, 5, 6], [0] * 6]))
    kinds = {"only necessary (PN)": "pn", "only sufficient (PS)": "ps", "both (PNS)": "pns"}
    asked = {name: explainer(Band(), NSEG(objective=kind), CONFIG) for name, kind in kinds.items()}
    found = {name: explain_many(one, data, [0])[0] for name, one in asked.items()}
    how: dict[str, Any] = {"names": NAMES, "classes": ROLE, "class_names": ROLES}
    three = plot.compare(found, **how)
    three.set_size_inches(8.4, 4.1)  # the page is as wide for three pictures as for two: words would be too small
    write("band", three)
    write("band-worlds", plot.worlds(asked["both (PNS)"], data, found["both (PNS)"], **how))


def methods(name: str, dataset: str, instance: int, **how: Any) -> None:
    """Several methods on one prediction."""
    data, model = load(dataset), pretrained(dataset, "gcn")
    graphs = data.graphs if data.level == "graph" else data.graphs[0]
    labels = {"NSEG": "nseg", "GNNExplainer": "gnnexplainer", "CF-GNNExplainer": "cf_gnnexplainer", "saliency": "saliency"}
    found = {}
    for label, method in labels.items():
        one = explainer(model, baselines.make(method, undirected=True), data.model_config)
        (found[label],) = explain_many(one, graphs, [instance])
    write(name, plot.compare(found, data, columns=2, truth=True, **how))


def joint(name: str, dataset: str, instance: int, **how: Any) -> None:
    """The four worlds of a joint explanation."""
    data: Benchmark = load(dataset)
    one = explainer(pretrained(dataset, "gcn"), NSEG(undirected=True), data.model_config, nodes=True)
    (found,) = explain_many(one, data.graphs, [instance])
    write(name, plot.worlds(one, data.graphs, found, data, **how))


def layers() -> str:
    """The layers as SVG; a module imports only from its own layer and those below."""
    wide, high, gap, left = 1000, 62, 12, 110
    parts = []
    for row, (what, modules) in enumerate(LAYERS):
        y = 10 + row * (high + gap)
        parts.append(f'<rect x="4" y="{y}" width="{wide - 8}" height="{high}" rx="6" fill="#eef2f5"/>')
        parts.append(f'<text x="18" y="{y + high / 2 + 5}" class="layer">{what}</text>')
        each = (wide - left - 16) / len(modules)
        for place, (name, words) in enumerate(modules.items()):
            x, model = left + place * each, name == "scm"
            fill, line = ("#fde7c8", "#d55e00") if model else ("#ffffff", "#90a4ae")
            parts.append(
                f'<rect x="{x:.0f}" y="{y + 7}" width="{each - 10:.0f}" height="{high - 14}" rx="5" '
                f'fill="{fill}" stroke="{line}"/>'
                f'<text x="{x + each / 2 - 5:.0f}" y="{y + 28}" class="name">{name}</text>'
                f'<text x="{x + each / 2 - 5:.0f}" y="{y + 45}" class="words">{words}</text>'
            )
    y = 10 + len(LAYERS) * (high + gap)
    x = left + (wide - left - 16) / len(LAYERS[-1][1]) / 2 - 5
    parts.append(
        f'<line x1="{x:.0f}" y1="{y - gap - 7}" x2="{x:.0f}" y2="{y + 16}" stroke="#d55e00" stroke-width="2"/>'
        f'<rect x="{x - 75:.0f}" y="{y + 16}" width="150" height="40" rx="20" '
        'fill="#ffffff" stroke="#d55e00" stroke-width="2"/>'
        f'<text x="{x:.0f}" y="{y + 41}" class="name">your model</text>'
        f'<text x="{x + 95:.0f}" y="{y + 41}" class="note">borrowed by this one file, and given back as it was. '
        "Imports point down only.</text>"
    )
    style = (
        "text{font-family:Helvetica,Arial,sans-serif;fill:#263238}.layer{font-size:15px;fill:#546e7a}"
        ".name{font-size:15px;font-weight:bold;text-anchor:middle}.words{font-size:12px;text-anchor:middle}.note{font-size:13px}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {y + 66}" width="{wide}" role="img">'
        f"<title>The layers of nseg</title><style>{style}</style>{''.join(parts)}</svg>\n"
    )


def write(name: str, figure: Any) -> None:
    """A picture as SVG, which stays sharp and small."""
    (HERE / f"{name}.svg").write_text(plot.figure_svg(figure))
    print(f"{name}.svg")


def main() -> None:
    """Make all pictures."""
    HERE.mkdir(exist_ok=True)
    (HERE / "layers.svg").write_text(layers())
    band()
    methods("methods", "tree-cycles", 511)
    try:
        load("mutagenicity")
    except InputError as error:
        print(f"No pictures of molecules: {error}")
        return
    methods("molecule", "mutagenicity", 10)
    joint("worlds", "mutagenicity", 10)


if __name__ == "__main__":
    main()
