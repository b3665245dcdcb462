"""Nodes of one type of a large heterogeneous graph, each on a subgraph that is wide enough for the model."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain.config import ModelTaskLevel

from nseg.errors import InputError
from nseg.explain.jobs.hetero import HeteroGraphJob
from nseg.explain.jobs.large_graph import LargeGraphJob
from nseg.explain.jobs.one_graph import OneGraphJob
from nseg.graphs.baseline import MEAN, OTHERS
from nseg.graphs.checks import check_index, model_device
from nseg.graphs.large import Subgraph
from nseg.graphs.large_types import LargeTypes
from nseg.search.settings import BaseSettings

PROBED = 64
"""Nodes of each type around which the model is tried."""


class LargeHeteroJob(LargeGraphJob):
    """Nodes of one type of a large heterogeneous graph, each on a subgraph that is wide enough for the model."""

    @property
    def types(self) -> LargeTypes:
        """The types of the graph."""
        types: LargeTypes = self.data.types
        return types

    def _baselines(self, settings: BaseSettings) -> tuple[Any, Any]:
        for name in ("baseline", "edge_baseline"):
            asked = getattr(settings, name, None)
            for one in asked.values() if isinstance(asked, Mapping) else [asked]:
                if one in (MEAN, OTHERS):
                    raise InputError(
                        f"{name}={one!r} needs all features in memory (got a large graph). Give rows by type, a number per "
                        "feature."
                    )
        return None, None  # the job of each subgraph makes its own

    def prepare(self) -> None:
        _ = self._probe

    @cached_property
    def output_type(self) -> str:
        """Node type that the model's rows stand for: found out on a subgraph with nodes of all types."""
        if self.outcome.level is not ModelTaskLevel.node:
            raise InputError(
                f"A large heterogeneous graph must be explained at node level (got {self.outcome.level.value} level). "
                "Explain links and graphs on HeteroData."
            )
        found = self._probe_job()
        assert isinstance(found, HeteroGraphJob)
        assert found.adapted_model().schema.node_types == self.types.node_types
        output: str | None = found.adapted_model().schema.output
        assert output is not None
        return output

    @property
    def _first_row(self) -> int:
        return self.types.node_starts[self.types.node_types.index(self.output_type)]

    def number_of_outputs(self) -> int:
        return self.types.nodes[self.types.node_types.index(self.output_type)]

    def rows(self, index: Any) -> Tensor:
        return check_index(index, self.number_of_outputs()) + self._first_row

    def output_id(self, row: int) -> int:
        return row - self._first_row

    def _probe_job(self) -> OneGraphJob:
        blocks = zip(self.types.node_starts, self.types.nodes, strict=False)
        some = torch.cat([torch.arange(start, start + size, max(1, size // PROBED))[:PROBED] for start, size in blocks])
        ((some, subgraph), *_) = self._fitting_subgraphs(some, 1, 1e5)
        return self._job_on(subgraph, some, known=False)

    def _seeds(self, rows: Tensor) -> Tensor:
        return rows

    def _job_on(self, subgraph: Subgraph, rows: Tensor, known: bool = True) -> OneGraphJob:
        target = self.target
        if target is not None and known:
            kind = self.types.node_types.index(self.output_type)
            mine = subgraph.node[self.types.parts(subgraph.node, edges=False)[kind]] - self._first_row
            target = torch.as_tensor(target).flatten().cpu()[mine]
        data = copy(subgraph.data).to(model_device(self.model))
        job = HeteroGraphJob(self.explainer, data, target, self.budget, dict(self.kwargs))
        job.output_type = self.output_type if known else None
        return self._share(job)

    def _renumber(self, one: Any, subgraph: Subgraph) -> None:
        types, received = self.types, [torch.zeros(0, dtype=torch.long)]
        nodes, edges = types.parts(subgraph.node, edges=False), types.parts(subgraph.edge, edges=True)
        first = dict(zip(types.node_types, (part.start for part in nodes), strict=True))
        for kind, part, start in zip(types.edge_types, edges, types.edge_starts, strict=False):
            store, ids = one[kind], one[kind[2]].node_id.cpu()
            received.append(ids[store.edge_index[1].cpu()] + first[kind[2]])
            store.edge_id = (subgraph.edge[part][store.edge_id.cpu()] - start).to(store.edge_id.device)
        for node_type, part, start in zip(types.node_types, nodes, types.node_starts, strict=False):
            store = one[node_type]
            store.node_id = (subgraph.node[part][store.node_id.cpu()] - start).to(store.node_id.device)
        one.left_out = int(subgraph.left_out[torch.unique(torch.cat(received))].sum())
        one.__dict__["_types"] = replace(one.__dict__["_types"], nodes=types.nodes, edges=types.edges)
