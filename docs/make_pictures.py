"""Draw the pictures of the documentation. Run it with: python docs/make_pictures.py.

Pictures of molecules need the Mutagenicity dataset (a download, or NSEG_DATA); without it they are not redrawn.
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

FOLDER = Path(__file__).parent / "pictures"

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
"""Layers of the package from top to bottom: what each does, and its modules with a short description."""

ROLES = ("no band", "band", "sings", "drums", "listens")
NAMES = ("you", "Ana", "Ben", "Cem", "Dee", "Gil", "Fay")
ROLE = (4, 2, 2, 3, 3, 4, 4)
CONFIG = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}


class Band(nn.Module):
    """Predicts "band" if one of your friends sings and one drums."""

    def __init__(self) -> None:
        super().__init__()
        self.friends = SimpleConv(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Class scores ("no band", "band"), [N, 2]."""
        singers, drummers = self.friends(x, edge_index).clamp(max=1).unbind(1)
        score = 10 * (singers + drummers) - 15
        return torch.stack([torch.zeros_like(score), score], 1)


def make_explainer(model: nn.Module, algorithm: Any, config: dict[str, str], nodes: bool = False) -> Explainer:
    """Explainer by edges, or by edges and nodes."""
    node_mask_type = "object" if nodes else None
    return Explainer(
        model,
        algorithm,
        explanation_type="model",
        edge_mask_type="object",
        node_mask_type=node_mask_type,
        model_config=config,
    )


def draw_band() -> None:
    """Draw a necessary, a sufficient and a PNS explanation, and the two worlds of the last."""
    x = torch.tensor([[float(role == 2), float(role == 3)] for role in ROLE])
    data = Data(x=x, edge_index=torch.tensor([[1, 2, 3, 4, 5, 6], [0] * 6]))
    objectives = {"only necessary (PN)": "pn", "only sufficient (PS)": "ps", "both (PNS)": "pns"}
    explainers = {name: make_explainer(Band(), NSEG(objective=objective), CONFIG) for name, objective in objectives.items()}
    found = {name: explain_many(one, data, [0])[0] for name, one in explainers.items()}
    labels: dict[str, Any] = {"names": NAMES, "classes": ROLE, "class_names": ROLES}
    figure = plot.compare(found, **labels)
    figure.set_size_inches(8.4, 4.1)  # three panels share the width of the page: the default size makes text too small
    write("band", figure)
    write("band-worlds", plot.worlds(explainers["both (PNS)"], data, found["both (PNS)"], **labels))


def draw_methods(name: str, dataset: str, instance: int, **options: Any) -> None:
    """Draw the explanations of several methods for one prediction."""
    data, model = load(dataset), pretrained(dataset, "gcn")
    graphs = data.graphs if data.level == "graph" else data.graphs[0]
    labels = {"NSEG": "nseg", "GNNExplainer": "gnnexplainer", "CF-GNNExplainer": "cf_gnnexplainer", "saliency": "saliency"}
    found = {}
    for label, method in labels.items():
        explainer = make_explainer(model, baselines.make(method, undirected=True), data.model_config)
        (found[label],) = explain_many(explainer, graphs, [instance])
    write(name, plot.compare(found, data, columns=2, truth=True, **options))


def draw_worlds(name: str, dataset: str, instance: int, **options: Any) -> None:
    """Draw the four worlds of a joint explanation."""
    data: Benchmark = load(dataset)
    explainer = make_explainer(pretrained(dataset, "gcn"), NSEG(undirected=True), data.model_config, nodes=True)
    (found,) = explain_many(explainer, data.graphs, [instance])
    write(name, plot.worlds(explainer, data.graphs, found, data, **options))


def layers() -> str:
    """SVG of the layers; a module imports only from its own layer and those below."""
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
    """Write a figure as SVG, which is small and scales."""
    (FOLDER / f"{name}.svg").write_text(plot.figure_svg(figure))
    print(f"{name}.svg")


def main() -> None:
    """Draw all pictures."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "layers.svg").write_text(layers())
    draw_band()
    draw_methods("methods", "tree-cycles", 511)
    try:
        load("mutagenicity")
    except InputError as error:
        print(f"Skipped the pictures of molecules: {error}")
        return
    draw_methods("molecule", "mutagenicity", 10)
    draw_worlds("worlds", "mutagenicity", 10)


if __name__ == "__main__":
    main()
