"""Why fewer explanations of HGT on DBLP hold a path to a conference if edges are deleted; write results/dblp_paths.csv.

    NSEG_DATA=... python benchmarks/dblp_paths.py [--authors 100]

Each row is one change of NSEG's settings. ``paths`` is the share of explanations that hold an author-paper-conference path,
``or_other`` the share in which the explanation or one of its alternatives does. The last rows are about the network:
``keeps`` is the share of authors that keep their class without all edges of the named types.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import torch
from csv_table import write_table
from dblp import CONFERENCE, path_shares
from torch_geometric.explain import Explainer

from nseg import NSEG, explain_many
from nseg.datasets import load
from nseg.models import pretrained

COAUTHOR = ("author", "wrote", "paper")
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "tolerance=0": {"tolerance": 0.0},
    "undirected=True": {"undirected": True},
    "intervention='mask'": {"intervention": "mask"},
    "alternatives=3": {"alternatives": 3},
    "connected=True": {"connected": True},
}


def holds_path(one: Any) -> bool:
    """Whether an explanation holds a path from the explained author to a conference."""
    return path_shares(one)[0]


def others(one: Any) -> list[Any]:
    """The explanation with each of its alternatives in its place."""
    found = []
    for point in one.alternatives():
        other = one.clone()
        for kind, mask in point.edge_mask.items():
            other[kind].hard_edge_mask = mask
        found.append(other)
    return found


def measure(name: str, authors: int) -> dict[str, Any]:
    """One row about settings."""
    data, model = load("dblp"), pretrained("dblp", "hgt")
    explainer = Explainer(
        model, NSEG(**SETTINGS[name]), explanation_type="model", edge_mask_type="object", model_config=data.model_config
    )
    found = explain_many(explainer, data.graphs[0], index=data.instances[:authors])
    number, paths = len(found), [holds_path(one) for one in found]
    either = [path or any(map(holds_path, others(one))) for path, one in zip(paths, found, strict=True)]
    return {
        "settings": name,
        "authors": number,
        **{key: f"{sum(float(one[key]) for one in found) / number:.3f}" for key in ("pns", "pns_removed")},
        "edges": f"{sum(path_shares(one)[2] for one in found) / number:.2f}",
        **{key: f"{sum(bool(one[key]) for one in found) / number:.3f}" for key in ("keeps", "changes")},
        "paths": f"{sum(paths) / number:.3f}",
        "or_other": f"{sum(either) / number:.3f}",
    }


@torch.no_grad()
def network(authors: int) -> list[dict[str, Any]]:
    """Rows about the network: who keeps their class without all edges of some types."""
    data, model = load("dblp"), pretrained("dblp", "hgt")
    graph, index = data.graphs[0], data.instances[:authors]
    found, whole = [], model(graph.x_dict, graph.edge_index_dict).argmax(-1)[index]
    for kinds in ((COAUTHOR,), (CONFERENCE,), (COAUTHOR, CONFERENCE)):
        edges = {kind: ends[:, :0] if kind in kinds else ends for kind, ends in graph.edge_index_dict.items()}
        same = model(graph.x_dict, edges).argmax(-1)[index] == whole
        name = "without " + " and ".join(kind[1] for kind in kinds)
        found.append({"settings": name, "authors": len(same), "keeps": f"{float(same.float().mean()):.3f}"})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--authors", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "dblp_paths.csv")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = [*(measure(name, args.authors) for name in SETTINGS), *network(args.authors)]
    write_table(args.out, rows)
    print(args.out.read_text())


if __name__ == "__main__":
    main()
