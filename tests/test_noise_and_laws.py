"""Noise depends on the seed and the instance only; laws of the complement."""

from __future__ import annotations

import torch
from test_causal_model import causal_model
from torch_geometric.explain.config import MaskType
from zoo import NODE_MODELS, graph, seeded

from nseg.graphs.batch import InstanceBatch
from nseg.search.complement import Shifted, Subset, literal
from nseg.search.noise import instance_keys, mask_noise, uniform
from nseg.search.parts import MaskParts


def instances(rows: list[int]) -> InstanceBatch:
    with causal_model(seeded(NODE_MODELS["gin"]), graph(), rows) as causal:
        return causal.instances


def test_uniform_numbers_are_uniform_and_independent() -> None:
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


def test_noise_of_an_instance_is_the_same_alone_and_in_a_batch() -> None:
    together, alone, seed = instances([3, 7, 12, 5]), instances([12]), 11
    for nodes in (MaskType.object, MaskType.attributes, MaskType.common_attributes):
        batch, single = MaskParts.of(together, True, nodes), MaskParts.of(alone, True, nodes)
        a, b = mask_noise(batch, seed, torch.float), mask_noise(single, seed, torch.float)
        for part in batch:
            assert torch.equal(a[part.name].draw(4, 1)[part.owner == 2], b[part.name].draw(4, 1))


def test_keys_differ_between_instances_and_seeds() -> None:
    some = instances([3, 7, 12, 5])
    keys = torch.cat([instance_keys(some, seed) for seed in range(50)])
    assert keys.unique().numel() == keys.numel()


def test_laws_of_the_complement_by_hand() -> None:
    mask, u = torch.tensor([0.0, 0.25, 1.0]), torch.tensor([0.0, 0.5, 1.0])
    torch.testing.assert_close(Shifted(0.1)(mask, u), torch.tensor([0.9, 0.75, 0.1]))
    assert torch.equal(literal(mask, u), 1 - mask)
    assert torch.equal(Subset(0.6)(mask, u), torch.tensor([1.0, 0.75, 0.0]))
