"""Explain test authors of DBLP with NSEG, and with PyG's GNNExplainer where it works; write results/dblp.csv.

    NSEG_DATA=... python benchmarks/dblp.py [--authors 300]

An author's area is that of the conferences of its papers, so explanations should be author-paper-conference paths. ``paths``
is the share of explanations that hold such a path from the explained author; ``on_paths`` the share of kept edges that come
from a paper of the author or a conference of such a paper. PyG's masks are soft: its edges above 0.5 are evaluated.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from csv_table import write_table
from torch_geometric.data import HeteroData
from torch_geometric.explain import Explainer, GNNExplainer

from nseg import NSEG, explain_many
from nseg.datasets import load
from nseg.metrics import Evaluator
from nseg.models import HETERO_ARCHITECTURES, manifest, pretrained

PAPER, CONFERENCE = ("paper", "rev_wrote", "author"), ("conference", "rev_presented_at", "paper")


def kept_edges(one: Any, kind: tuple[str, str, str]) -> torch.Tensor:
    """Kept edges of one type in the explanation's own numbers, [2, k]."""
    mask = one[kind].get("hard_edge_mask")
    kept: torch.Tensor = one[kind].edge_index[:, one[kind].edge_mask > 0.5 if mask is None else mask.bool()]
    return kept


def path_shares(one: Any) -> tuple[bool, int, int]:
    """Whether an explanation holds a path author-paper-conference, its edges on such paths, and all its edges."""
    paper, author = kept_edges(one, PAPER)
    papers = paper[author == int(one.index)]
    own = one[PAPER].edge_index
    written = own[0][own[1] == int(one.index)]
    _, of_paper = kept_edges(one, CONFERENCE)
    on_path = len(papers) + int(torch.isin(of_paper, written).sum())
    total = sum(kept_edges(one, kind).size(1) for kind in one.edge_types)
    return bool(torch.isin(of_paper, papers).any()), on_path, total


def measure(architecture: str, method: str, authors: int) -> dict[str, Any]:
    """One row of the table."""
    data = load("dblp")
    graph: HeteroData = data.graphs[0]
    model = pretrained("dblp", architecture)
    algorithm = NSEG() if method == "nseg" else GNNExplainer(epochs=100)
    explainer = Explainer(
        model, algorithm, explanation_type="model", edge_mask_type="object", model_config=data.model_config
    )
    row = {"network": architecture, "method": method, "authors": authors}
    row["accuracy"] = manifest()[f"dblp/{architecture}"]["accuracy"]["test"]
    start = time.perf_counter()
    try:
        found = explain_many(explainer, graph, index=data.instances[:authors])
    except Exception as error:
        return row | {"note": f"{type(error).__name__}: {error}".splitlines()[0][:120]}
    spent = time.perf_counter() - start
    each = Evaluator(explainer, graph, found).each("hard" if method == "nseg" else 0.5)
    shares = [path_shares(one) for one in found]
    keeps, changes = each.changed_with == 0, each.changed_without == 1
    edges = sum(total for _, _, total in shares)
    return row | {
        "pns": f"{float(each.pns.mean()):.3f}",
        "keeps": f"{float(keeps.float().mean()):.3f}",
        "changes": f"{float(changes.float().mean()):.3f}",
        "both": f"{float((keeps & changes).float().mean()):.3f}",
        "edges": f"{edges / len(found):.2f}",
        "of_edges": f"{sum(one.num_edges for one in found) / len(found):.2f}",
        "paths": f"{sum(path for path, _, _ in shares) / len(found):.3f}",
        "on_paths": f"{sum(on for _, on, _ in shares) / max(edges, 1):.3f}",
        "ms": f"{1000 * spent / len(found):.1f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--authors", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "dblp.csv")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = [measure(a, m, args.authors) for a in HETERO_ARCHITECTURES for m in ("nseg", "gnnexplainer")]
    write_table(args.out, rows)
    print(args.out.read_text())


if __name__ == "__main__":
    main()
