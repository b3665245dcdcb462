"""Noise depends on the seed and the instance, on nothing else."""

from __future__ import annotations

import torch
from nseg.complement import Shifted, Subset, instance_keys, literal, uniform
from nseg.instances import Inputs
from nseg.scm import borrowed
from nseg.source import Source
from nseg.space import Noise, Space
from torch_geometric.explain.config import MaskType, ModelConfig
from zoo import NODE_CONFIG, NODE_MODELS, graph, seeded


def instances(rows: list[int]):
    data, model = graph(), seeded(NODE_MODELS["gin"])
    with borrowed(model):
        source = Source(model, ModelConfig(**NODE_CONFIG), Inputs(data.x, data.edge_index, {}), True, True)
        row = torch.tensor(rows)
        return next(source.scms(row, torch.arange(len(rows)), source.targets(None, row)))[1].instances


def test_uniform_numbers_are_uniform_and_independent_of_each_other() -> None:
    u = uniform(torch.arange(4000), 5, (1, 2), torch.double)
    assert u.shape == (4000, 5)
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 0.01
    assert abs(u.var() - 1 / 12) < 0.002
    histogram = torch.histc(u, 20, 0, 1) / u.numel()
    assert (histogram - 0.05).abs().max() < 0.005
    other = uniform(torch.arange(4000), 5, (1, 3), torch.double)
    columns = torch.cat([u, other, u.roll(1, 0)], 1)
    correlation = torch.corrcoef(columns.T) - torch.eye(15)
    assert correlation.abs().max() < 0.06


def test_noise_of_an_instance_is_the_same_in_any_company() -> None:
    together, alone, seed = instances([3, 7, 12, 5]), instances([12]), 11
    for nodes in (MaskType.object, MaskType.attributes, MaskType.common_attributes):
        big, small = Space(together, True, nodes), Space(alone, True, nodes)
        a, b = Noise.of(big, seed, torch.float), Noise.of(small, seed, torch.float)
        assert torch.equal(a.for_edges(4, 1)[big.edge_owner == 2], b.for_edges(4, 1))
        assert torch.equal(a.for_nodes(4, 1)[big.node_owner == 2], b.for_nodes(4, 1))


def test_keys_differ_between_instances_and_seeds() -> None:
    some = instances([3, 7, 12, 5])
    keys = torch.cat([instance_keys(some, seed) for seed in range(50)])
    assert keys.unique().numel() == keys.numel()


def test_laws() -> None:
    mask, u = torch.tensor([0.0, 0.25, 1.0]), torch.tensor([0.0, 0.5, 1.0])
    torch.testing.assert_close(Shifted(0.1)(mask, u), torch.tensor([0.9, 0.75, 0.1]))
    assert torch.equal(literal(mask, u), 1 - mask)
    assert torch.equal(Subset(0.6)(mask, u), torch.tensor([1.0, 0.75, 0.0]))
