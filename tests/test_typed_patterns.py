"""Patterns of heterogeneous graphs: typed paths, with nodes told apart where a type has few of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_patterns import bonds
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import MessagePassing

import nseg
from nseg import NSEG, Explainer, InputError, UnsupportedError, explain_many
from nseg.pattern.node_types import FEW_NODES

CONFIG = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
AUTHORS, VENUES = 24, 4


class Total(MessagePassing):
    """Sum of what neighbours send."""

    def __init__(self) -> None:
        super().__init__(aggr="add")

    def forward(self, senders: Tensor, receivers: int, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=senders, size=(len(senders), receivers))

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


class Venues(nn.Module):
    """Class 1 if a paper of the author was presented at the first conference, whatever else it wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Total(), Total()
        self.weight = nn.Parameter(torch.tensor(10.0))

    def forward(self, x_dict: dict, edge_index_dict: dict) -> Tensor:
        shown, written = ("conference", "rev_presented_at", "paper"), ("paper", "rev_wrote", "author")
        paper = self.first(x_dict["conference"], len(x_dict["paper"]), edge_index_dict[shown])
        author = self.second(paper, len(x_dict["author"]), edge_index_dict[written])[:, :1]
        return torch.cat([self.weight * 0.5 + 0 * author, self.weight * author], 1) + 0 * x_dict["author"]


def library() -> HeteroData:
    """Authors with two papers each; the first paper of every third author was presented at the first conference."""
    data, papers = HeteroData(), 2 * AUTHORS
    data["author"].x, data["paper"].x = torch.zeros(AUTHORS, 2), torch.zeros(papers, 2)
    data["conference"].x = torch.eye(VENUES)[:, :2]  # the first conference has feature 0
    wrote = torch.stack([torch.arange(papers) // 2, torch.arange(papers)])
    venue = torch.tensor([0 if n % 6 == 0 else 1 + n % 3 for n in range(papers)])
    at = torch.stack([torch.arange(papers), venue])
    data["author", "wrote", "paper"].edge_index, data["paper", "rev_wrote", "author"].edge_index = wrote, wrote.flip(0)
    data["paper", "presented_at", "conference"].edge_index = at
    data["conference", "rev_presented_at", "paper"].edge_index = at.flip(0)
    data["author"].y = (torch.arange(AUTHORS) % 3 == 0).long()
    return data


def explainer_of(**masks: str | None) -> Explainer:
    kinds = masks or {"edge_mask_type": "object"}
    return Explainer(Venues(), NSEG(seed=0, steps=20), explanation_type="model", model_config=CONFIG, **kinds)


def test_a_planted_path_is_found_with_the_node_that_matters_and_holds_on_the_model(tmp_path: Path) -> None:
    data, explainer = library(), explainer_of()
    explanations = explain_many(explainer, data, out=tmp_path / "run")
    found = nseg.patterns(explanations, data, explainer=explainer)
    (pattern,) = found.classes[1].patterns
    assert pattern.text == "author* -[wrote]- paper -[presented at]- conference 0"
    assert (pattern.explained, pattern.elsewhere) == (pattern.predictions, 0)
    assert (pattern.right, pattern.wrong) == (pattern.predictions, 0)
    assert (pattern.necessity.share, pattern.sufficiency.share) == (1, 1)
    assert set(pattern.examples) <= set(range(0, AUTHORS, 3))  # authors by their own numbers
    assert nseg.patterns(nseg.read(tmp_path / "run"), data, explainer=explainer).records() == found.records()
    named = nseg.patterns(explanations, data, class_names=["no", "yes"])
    assert [one.name for one in named.classes] == ["no", "yes"]
    assert len(found.plot().axes) == len(found)
    assert nseg.report(explanations, tmp_path / "why.html", data=data, patterns=found).stat().st_size > 0


def test_types_with_many_nodes_are_not_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    assert FEW_NODES < 100
    monkeypatch.setattr("nseg.pattern.node_types.FEW_NODES", VENUES - 1)
    data = library()
    found = nseg.patterns(explain_many(explainer_of(), data), data, elsewhere_price=0.0)
    assert "author* -[wrote]- paper -[presented at]- conference" in [one.text for one in found.classes[1].patterns]


def test_masks_of_features_and_mixed_data_get_a_sentence() -> None:
    data, (flat, others) = library(), bonds()
    explanations = explain_many(explainer_of(), data, [0, 1, 2])
    masked = explain_many(explainer_of(node_mask_type="attributes", edge_mask_type=None), data, [0, 1])
    with pytest.raises(UnsupportedError, match="Patterns of heterogeneous graphs consist of nodes and edges"):
        nseg.patterns(masked, data)
    for given, on in ((explanations, flat), ([*explanations, others[0]], data)):
        with pytest.raises(InputError, match="must all be of heterogeneous graphs, or none"):
            nseg.patterns(given, on)
    smaller = library()
    smaller["paper", "rev_wrote", "author"].edge_index = smaller["paper", "rev_wrote", "author"].edge_index[:, :-1]
    with pytest.raises(InputError, match="data must be what was explained"):
        nseg.patterns(explanations, smaller)
    with pytest.raises(InputError, match="must hold PyG explanations"):
        nseg.patterns([3], flat)
