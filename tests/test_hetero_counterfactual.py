"""The smallest change of a heterogeneous graph, against brute force on the model itself."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hetero_zoo import BY, CITES, WROTE, hetero_graph, make_net
from test_hetero import explainer_of

from nseg import InputError, counterfactual


def label(model: torch.nn.Module, data: object, row: int) -> int:
    with torch.no_grad():
        return int(model(data.x_dict, data.edge_index_dict)[row].argmax())  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_no_smaller_set_of_removed_edges_changes_the_class(seed: int) -> None:
    data, model = hetero_graph(seed), make_net("to_hetero", seed)
    for row in range(3):
        found = counterfactual(explainer_of(model), data, row)
        removed = found.by_type()["removed"]
        before = label(model, data, row)
        assert found.before == before

        def after(some: object, row: int = row) -> int:
            changed = data.clone()
            for kind in data.edge_types:
                keep = torch.tensor([(kind, n) not in some for n in range(data[kind].num_edges)])  # type: ignore[operator]
                changed[kind].edge_index = data[kind].edge_index[:, keep]
            return label(model, changed, row)

        every = [(kind, n) for kind in data.edge_types for n in range(data[kind].num_edges)]
        if found.changed:
            assert after(removed) == found.after != before
            assert found.exact
            smaller = [some for size in range(len(removed)) if size < 3 for some in combinations(every, size)]
            assert all(after(some) == before for some in smaller)
        else:
            assert all(after([edge]) == before for edge in every)


def test_additions_features_and_bonds_are_by_type() -> None:
    data, model = hetero_graph(), make_net("to_hetero")
    values = {"paper": {0: [9.0, -9.0], 3: [9.0, -9.0]}, "author": {1: [9.0, -9.0]}}
    found = counterfactual(explainer_of(model), data, 2, remove=False, features=values, additions={CITES: [[0], [2]]})
    changed = data.clone()
    for (kind, node), feature, value in found.by_type()["features"]:
        changed[kind].x[node, feature] = value
    for (_, source), (_, target) in found.by_type()["added"]:
        changed[CITES].edge_index = torch.cat([changed[CITES].edge_index, torch.tensor([[source], [target]])], 1)
    assert label(model, changed, 2) == found.after
    assert found.subject() == "paper 2"
    both = counterfactual(explainer_of(model), data, 2, undirected=True)
    ends = {
        kind: [tuple(data[kind].edge_index[:, n].tolist()) for one, n in both.by_type()["removed"] if one == kind]
        for kind in (WROTE, BY)
    }
    assert sorted(ends[WROTE]) == sorted(pair[::-1] for pair in ends[BY])
    for bad in ({"features": {0: 1.0}}, {"features": {"nobody": {0: 1.0}}}, {"additions": torch.zeros(2, 1)}):
        with pytest.raises(InputError, match=r"by (node|edge) type"):
            counterfactual(explainer_of(model), data, 2, **bad)
