"""How the worlds of a batch are run: the plain strategy, and shortcuts that are verified against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import MASKED_ATTRIBUTES


@dataclass(frozen=True)
class RunStrategy:
    """How worlds are run. Whether a strategy is exact for a model is verified against :data:`PLAIN`, never assumed.

    Args:
        hops: cut the graph this many hops around the explained outputs; None keeps it whole.
        planned: know beforehand which messages each layer passes, and skip those that cannot reach an output.
        constants: reuse per-edge values that layers derive from the graph alone, such as a degree normalisation.
        drop_edges: pass empty edges to the model when all per-edge values are cached.
        products: pass messages that are features times numbers on as a sparse product.
        batched: run all worlds of all instances in one forward pass.
    """

    hops: int | None = None
    planned: bool = True
    constants: bool = True
    drop_edges: bool = True
    products: bool = True
    batched: bool = True


PLAIN = RunStrategy(planned=False, constants=False, drop_edges=False, products=False, batched=False)
"""The whole graph, one world at a time, all messages: slow, and right for every model."""

UNTRACED = RunStrategy(planned=False, constants=False, drop_edges=False, products=False)
"""Batches without any knowledge of messages: for models whose layers cannot be traced."""

GRAPH_STRATEGIES = (
    RunStrategy(),
    RunStrategy(drop_edges=False, constants=False),
    RunStrategy(drop_edges=False, constants=False, products=False),
)
"""Strategies for whole graphs, fastest first."""


def subgraph_strategies(hops: int) -> Sequence[RunStrategy]:
    """Strategies for nodes and links of a model with ``hops`` message passing steps, fastest first."""
    return (
        RunStrategy(hops),
        RunStrategy(hops, drop_edges=False),
        RunStrategy(hops, drop_edges=False, constants=False),
        RunStrategy(hops + 1, drop_edges=False, constants=False, products=False),
        RunStrategy(drop_edges=False, constants=False, products=False),
    )


def random_weights(instances: InstanceBatch, edges: bool, nodes: bool) -> dict[str, Tensor]:
    """Three random worlds to verify strategies on: almost everything kept, almost nothing, and anything.

    Args:
        instances: B instances.
        edges, nodes: what is masked.

    Returns:
        weights of edges [3, E], nodes [3, N, 1] and edge attributes [3, E, 1].
    """
    rng, device = torch.Generator().manual_seed(0), instances.x.device
    dtype = instances.x.dtype if instances.x.is_floating_point() else torch.get_default_dtype()

    def draw(*shape: int) -> Tensor:
        u = torch.rand(3, *shape, generator=rng, dtype=dtype)
        return torch.stack([1 - 0.1 * u[0], 0.1 * u[1], u[2]]).to(device)

    weights = {"edges": draw(instances.num_edges)} if edges else {}
    if nodes and instances.x.is_floating_point() and instances.x.dim() == 2:
        weights["nodes"] = draw(instances.num_nodes, 1)
    if MASKED_ATTRIBUTES in instances.args:
        weights["attributes"] = draw(instances.num_edges, 1)
    return weights
