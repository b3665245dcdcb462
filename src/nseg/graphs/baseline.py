"""What a masked feature or edge attribute becomes: 0, the mean over the data, a given row, or what another one has.

A feature that is 0 is not absent: for a standardised feature 0 is the mean, for a temperature it is a temperature. A whole
node can really be absent: then it is deleted with its edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, Dataset

from nseg.errors import InputError
from nseg.graphs.inputs import EDGE_BASELINE, MASKED_ATTRIBUTES, ModelInputs

ZERO, MEAN, OTHERS, ABSENT = "zero", "mean", "others", "absent"
"""Baselines by name; a row of numbers is one as well."""


@dataclass(frozen=True)
class FeatureBaseline:
    """What the features of each node (or the attributes of each edge) become where they are masked.

    Args:
        asked: ``"zero"``, ``"mean"``, ``"others"``, ``"absent"``, or one number per feature.
        mean: the mean features over the data, [F], if these are asked for.
        seed: of the draw of other nodes (or edges).
    """

    asked: str | Sequence[float]
    mean: Tensor | None = None
    seed: int = 0

    @classmethod
    def of(cls, asked: Any, data: Any, seed: int = 0, edges: bool = False) -> FeatureBaseline:
        """The baseline for data: one graph, or a sequence of graphs over whose nodes (or edges) the mean is taken."""
        if isinstance(asked, Mapping):
            raise InputError(
                f"A baseline by type needs a heterogeneous graph (got one for {', '.join(asked)}). Give a name or a row."
            )
        if asked != MEAN:
            return cls(ZERO if asked is None else asked, None, seed)
        graphs = [data[n] for n in range(len(data))] if isinstance(data, Sequence | Dataset) else [data]
        if not all(isinstance(one, Data) for one in graphs):
            raise InputError(
                "baseline='mean' needs all features in memory (got a large graph). Give a row, a number per feature."
            )
        values = [one.x if not edges else attribute_columns(one[attribute_name(one)]) for one in graphs]
        total = sum(one.double().sum(0) for one in values)
        return cls(MEAN, torch.as_tensor(total) / max(sum(map(len, values)), 1), seed)

    def rows(self, x: Tensor) -> Tensor | None:
        """What the features [N, F] of one graph become, [N, F]; None for 0; [N, 0] if nodes are deleted.

        >>> FeatureBaseline((1.0, 2.0)).rows(torch.zeros(2, 2))
        tensor([[1., 2.],
                [1., 2.]])
        """
        if self.asked == ZERO:
            return None
        if x.dim() != 2 or not x.is_floating_point():
            raise InputError(f"baseline={self.asked!r} needs floating point features, [nodes, features] (got {x.dtype}).")
        if self.asked == ABSENT:
            return x.new_zeros(len(x), 0)
        if self.asked == OTHERS:
            return x[self._other_nodes(len(x)).to(x.device)]
        row = self.mean if self.mean is not None else torch.tensor([float(value) for value in self.asked])
        if row.numel() != x.size(1):
            raise InputError(f"baseline must have one number per feature, {x.size(1)} (got {row.numel()}).")
        return row.to(x.device, x.dtype).expand_as(x)

    def _other_nodes(self, nodes: int) -> Tensor:
        """Another node for each node, drawn uniformly, [N]; a single node has none but itself."""
        shift = torch.randint(1, max(nodes, 2), (nodes,), generator=torch.Generator().manual_seed(self.seed))
        return (torch.arange(nodes) + shift) % max(nodes, 1)


def nodes_vanish(baseline: Tensor | None) -> bool:
    """Whether a node that is taken away is deleted: nothing stands in for its features."""
    return baseline is not None and baseline.size(-1) == 0


# --- attributes of edges ---------------------------------------------------------------------------------------------------


def attribute_name(given: Any) -> str:
    """The argument (or attribute of a graph) that holds what is known of each edge: ``edge_attr``, else ``edge_weight``."""
    for name in ("edge_attr", "edge_weight"):
        value = given.get(name)
        if isinstance(value, Tensor) and value.is_floating_point() and value.dim() in (1, 2):
            return name
    raise InputError(
        "A mask of edge attributes needs edge_attr, floating point [edges, attributes], or edge_weight [edges], that the "
        "model takes (got neither). Add it to the data or the call, or leave edge_attributes out."
    )


def attribute_columns(value: Tensor) -> Tensor:
    """Attributes of edges as columns, [E, D]; weights [E] are one column."""
    return value.unsqueeze(1) if value.dim() == 1 else value


def mask_attributes(inputs: ModelInputs, baseline: FeatureBaseline) -> ModelInputs:
    """The same graph, whose edge attributes can be masked and then become a baseline."""
    name = attribute_name(inputs.kwargs)
    rows = baseline.rows(attribute_columns(inputs.kwargs[name]))
    known = {MASKED_ATTRIBUTES: name} | ({} if rows is None else {EDGE_BASELINE: rows})
    return replace(inputs, kwargs={**inputs.kwargs, **known})
