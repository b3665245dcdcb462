"""Nodes of one type of a large heterogeneous graph, or links, each on a subgraph that is wide enough for the model."""

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
from nseg.graph_types import EdgeType
from nseg.graphs.baseline import MEAN, OTHERS
from nseg.graphs.checks import check_index, check_node_numbers, model_device
from nseg.graphs.hetero_checks import check_pairs
from nseg.graphs.large import Subgraph, TooLargeError
from nseg.graphs.large_types import LargeTypes
from nseg.search.settings import BaseSettings

PROBED = 64
"""Nodes of each type around which the model is tried."""

PAIRS = "edge_label_index"


class LargeHeteroJob(LargeGraphJob):
    """Nodes of one type of a large heterogeneous graph, or links, each on a subgraph that is wide enough for the model."""

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

    # --- what is explained -----------------------------------------------------------------------------------------------

    @cached_property
    def _given_pairs(self) -> tuple[str, EdgeType | None, Tensor] | None:
        """Argument with the node pairs that a link model scores, its edge type if it is said, and the pairs by type."""
        if self.outcome.level is ModelTaskLevel.node:
            return None
        name = next((name for name in self.kwargs if name.startswith(PAIRS)), None)
        if name is None:
            raise InputError(f"Links of a large graph must be given as pairs of nodes (got none): {PAIRS}=...")
        key, pairs = check_pairs(name, self.kwargs[name])
        if key is not None and not {key[0], key[2]} <= {*self.types.node_types}:
            known = ", ".join(self.types.node_types)
            raise InputError(f"The edge type of {name} must join node types of the graph (got {key}; known: {known}).")
        return name, key, pairs.cpu()

    @cached_property
    def output_type(self) -> str | tuple[str, str]:
        """Node type that the model's rows stand for, or both types that its pairs join: found out on a subgraph."""
        if self._given_pairs is not None and self._given_pairs[1] is not None:
            return self._given_pairs[1][0], self._given_pairs[1][2]
        found = self._probe_job()
        assert isinstance(found, HeteroGraphJob)
        schema = found.adapted_model().schema
        assert schema.node_types == self.types.node_types
        known: str | tuple[str, str] | None = schema.output or schema.pair_types
        assert known is not None
        return known

    @cached_property
    def _pairs(self) -> Tensor | None:
        """Node pairs that a link model scores, in the numbering of all nodes, [2, P]."""
        if self._given_pairs is None:
            return None
        name, _, pairs = self._given_pairs
        kinds = [self.types.node_types.index(kind) for kind in self.output_type]
        for row, kind in enumerate(kinds):
            check_node_numbers(f"Row {row} of {name}", pairs[row], self.types.nodes[kind])
        return pairs + torch.tensor([[self.types.node_starts[kind]] for kind in kinds])

    @property
    def _first_row(self) -> int:
        output = self.output_type
        return self.types.node_starts[self.types.node_types.index(output)] if isinstance(output, str) else 0

    def number_of_outputs(self) -> int:
        if self._pairs is not None:
            return self._pairs.size(1)
        return self.types.nodes[self.types.node_types.index(str(self.output_type))]

    def rows(self, index: Any) -> Tensor:
        return check_index(index, self.number_of_outputs()) + self._first_row

    def output_id(self, row: int) -> int:
        return row - self._first_row

    # --- jobs on subgraphs -----------------------------------------------------------------------------------------------

    def _probe_subgraph(self, number: int = PROBED) -> Subgraph:
        """A small subgraph around some nodes of each type."""
        blocks = zip(self.types.node_starts, self.types.nodes, strict=False)
        some = [torch.arange(start, start + size, max(1, size // number))[:number] for start, size in blocks]
        try:
            found: Subgraph = self.data.subgraph(torch.cat(some), 1, 1e5)
        except TooLargeError:
            if number == 1:
                raise
            return self._probe_subgraph(number // 2)
        return found

    def _probe_job(self) -> OneGraphJob:
        subgraph = self._probe_subgraph()
        kwargs, target = dict(self.kwargs), self.target
        if self._given_pairs is not None:  # nodes that there are of every type
            name, key, _ = self._given_pairs
            fewest = min(part.stop - part.start for part in self.types.parts(subgraph.node, edges=False))
            pairs, target = torch.arange(max(fewest, 1)).expand(2, -1).to(model_device(self.model)), None
            kwargs[name] = pairs if key is None else {key: pairs}
        return self._typed_job(subgraph, target, kwargs)

    def _job_on(self, subgraph: Subgraph, rows: Tensor) -> OneGraphJob:
        kwargs, target, output = dict(self.kwargs), self.target, self.output_type
        parts = self.types.parts(subgraph.node, edges=False)
        if self._pairs is not None and self._given_pairs is not None:
            name, key, _ = self._given_pairs
            first = torch.tensor([[parts[self.types.node_types.index(kind)].start] for kind in output])
            local = (subgraph.position(self._pairs[:, rows]) - first).to(model_device(self.model))
            kwargs[name] = local if key is None else {key: local}
            mine = rows
        else:
            mine = subgraph.node[parts[self.types.node_types.index(str(output))]] - self._first_row
        if target is not None:
            target = torch.as_tensor(target).flatten().cpu()[mine]
        return self._typed_job(subgraph, target, kwargs, output)

    def _typed_job(
        self, subgraph: Subgraph, target: Any, kwargs: dict[str, Any], output: str | tuple[str, str] | None = None
    ) -> OneGraphJob:
        job = HeteroGraphJob(self.explainer, copy(subgraph.data).to(model_device(self.model)), target, self.budget, kwargs)
        job.output_type = output
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
