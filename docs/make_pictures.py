"""Draw the pictures of the documentation. Run it with: python docs/make_pictures.py.

Pictures of molecules need the Mutagenicity dataset (a download, or NSEG_DATA); without it they are not redrawn.
"""

from __future__ import annotations

import csv
import html
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv

from nseg import NSEG, Explainer, InputError, baselines, explain_many, plot
from nseg.datasets import Benchmark, load
from nseg.models import pretrained
from nseg.study import figures

FOLDER = Path(__file__).parent / "pictures"

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
    figure.set_size_inches(8.4, 4.6)  # three panels share the width of the page: the default size makes text too small
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


def read_rooms() -> list[tuple[str, str]]:
    """Rooms of the package and what lives in them, highest first, from the map in CONTRIBUTING.md."""
    text = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
    (block,) = re.findall(r"```text rooms\n(.*?)```", text, re.DOTALL)
    lines = (line.partition(" ") for line in block.splitlines())
    return [(name, words.strip()) for name, _, words in lines]


def draw_rooms() -> str:
    """SVG of the rooms, one below the other; an arrow says that imports point down."""
    wide, high, gap, left = 960, 34, 6, 60
    parts, rooms = [], read_rooms()
    for number, (name, words) in enumerate(rooms):
        y, model = 10 + number * (high + gap), name == "model"
        fill, line = ("#fde7c8", "#d55e00") if model else ("#eef2f5", "#90a4ae")
        parts.append(
            f'<rect x="{left}" y="{y}" width="{wide - left - 10}" height="{high}" rx="5" fill="{fill}" stroke="{line}"/>'
            f'<text x="{left + 14}" y="{y + 22}" class="name">{html.escape(name)}</text>'
            f'<text x="{left + 130}" y="{y + 22}" class="words">{html.escape(words)}</text>'
        )
    y = 10 + len(rooms) * (high + gap)
    parts.append(
        f'<line x1="28" y1="14" x2="28" y2="{y - 18}" stroke="#546e7a" stroke-width="2"/>'
        f'<path d="M21 {y - 26} L28 {y - 12} L35 {y - 26} Z" fill="#546e7a"/>'
        f'<text x="{left}" y="{y + 16}" class="note">A room imports only rooms below it. Only the orange room touches your '
        "model, and gives it back as it was.</text>"
    )
    style = (
        "text{font-family:Helvetica,Arial,sans-serif;fill:#263238}.name{font-size:15px;font-weight:bold}"
        ".words{font-size:14px}.note{font-size:13px;fill:#546e7a}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {y + 30}" width="{wide}" role="img">'
        f"<title>The rooms of nseg</title><style>{style}</style>{''.join(parts)}</svg>\n"
    )


def write(name: str, figure: Any) -> None:
    """Write a figure as SVG, which is small and scales."""
    (FOLDER / f"{name}.svg").write_text(plot.figure_svg(figure))
    print(f"{name}.svg")


def draw_cost() -> None:
    """The figure of quality against time, from the table that its study wrote."""
    folder = FOLDER.parent / "results"
    with (folder / "cost-figure.csv").open() as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    for row in rows:
        row.update(seconds=float(row["seconds"]), front=row["front"] == "True")
        row["hard.pns"] = float(row["hard.pns"])
    figures.save_figure(figures.draw_cost(rows), "cost-figure", folder)
    print("cost-figure.png")


def main() -> None:
    """Draw all pictures."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "rooms.svg").write_text(draw_rooms())
    draw_cost()
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
