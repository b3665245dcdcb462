"""Does a network of BA2Motif rest on the motif? Measured by exchanging it, by deleting it, and by deleting all else."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nseg.datasets import load
from nseg.datasets.synthetic import change_motif
from nseg.models.training import random_split

CERTAIN, MOST = 0.75, 0.95
"""Probability from which a class counts as predicted with certainty; share of graphs that is most of them."""


def reliance(model: nn.Module) -> dict[str, float]:
    """Shares of the test graphs that a network which rests on the motif treats as it should.

    ``exchanged``: the prediction follows when the other motif stands on the same base. ``deleted``: without the motif the
    network is no longer certain of the class. ``alone``: the class stays when all edges outside the motif are deleted.
    """
    data = load("ba-2motif")
    graphs = [data.graphs[n] for n in random_split(1000, 0)["test"].tolist()]
    label = torch.cat([graph.y for graph in graphs])
    exchanged = _probabilities(model, [change_motif(graph, 1 - int(graph.y)) for graph in graphs]).argmax(-1) == 1 - label
    deleted = _probabilities(model, [change_motif(graph, None) for graph in graphs])
    uncertain = deleted.gather(1, label.unsqueeze(1)).squeeze(1) < CERTAIN
    alone = _probabilities(model, [change_motif(graph, int(graph.y), base=False) for graph in graphs]).argmax(-1) == label
    shares = {"exchanged": exchanged, "deleted": uncertain, "alone": alone}
    return {name: round(float(right.float().mean()), 3) for name, right in shares.items()}


def rests_on_motif(shares: dict[str, float]) -> bool:
    """Whether most test graphs pass each of the three measurements."""
    return min(shares.values()) >= MOST


@torch.no_grad()
def _probabilities(model: nn.Module, graphs: list[Data]) -> Tensor:
    batch = Batch.from_data_list(graphs)
    found: Tensor = model(batch.x, batch.edge_index, batch.batch).softmax(-1)
    return found
