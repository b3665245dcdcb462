"""Nodes of a large graph, or links between them, each on a subgraph that is wide enough for the model."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain import Explanation
from torch_geometric.explain.config import ModelTaskLevel

from nseg.errors import InputError, ModelError
from nseg.explain.jobs.base import ExplainJob
from nseg.explain.jobs.one_graph import OneGraphJob
from nseg.graphs.baseline import OTHERS
from nseg.graphs.checks import find_pairs, model_device
from nseg.graphs.large import Subgraph, TooLargeError
from nseg.model.borrow import wrap_model_errors
from nseg.model.causal import CausalModel
from nseg.model.hooks import bytes_per_member, call_model
from nseg.model.tracing import trace_model

EXTRA_HOPS = 3
"""Hops beyond the model's layers plus one that are tried before giving up."""


class LargeGraphJob(ExplainJob):
    """Nodes of a large graph, or links between them, each on a subgraph that is wide enough for the model."""

    def number_of_outputs(self) -> int:
        sizes = (self.data.num_nodes, self.data.num_edges)
        for name, value in self.kwargs.items():
            if isinstance(value, Tensor) and value.dim() and value.size(0) in sizes:
                raise InputError(
                    f"Arguments of nodes and edges must be part of the large graph (got {name} as a keyword). Set them on "
                    "the Data object, or pass them to LargeGraph.write."
                )
        if self.outcome.level is ModelTaskLevel.edge and self._pairs is None:
            raise InputError("Links of a large graph must be given as pairs of nodes (got none): edge_label_index=...")
        return sizes[0] if self._pairs is None else self._pairs.size(1)

    @property
    def whole_size(self) -> int:
        return int(self.data.num_nodes + self.data.num_edges)

    def known_predictions(self) -> tuple[Tensor, Tensor | None]:
        raise InputError(
            f"On a large graph the outcome must say everything (got {self.outcome.event}), because the predictions "
            "of all nodes are not known. State distance and noise: NSEG(outcome=Within(0.5, scale=0.3))."
        )

    def prepare(self) -> None:
        if self.feature_baseline.asked == OTHERS:
            raise InputError(
                "baseline='others' needs all features in memory (got a large graph). Give a row, a number per feature."
            )
        _ = self._probe

    def causal_model_groups(self, rows: Tensor) -> Iterator[tuple[int, Iterator[tuple[Tensor, CausalModel]]]]:
        raise InputError(
            "A method that learns from many instances needs a graph in memory (got a large graph). Use a Data object."
        )

    def explanations(self, rows: Tensor) -> Iterator[Explanation]:
        """Explanations on subgraphs that are wide enough for the model."""
        hops = self.sufficient_hops(rows)
        for some, subgraph in self._fitting_subgraphs(rows, hops, self._most_members):
            job = self._job_on(subgraph, some)
            local = torch.arange(len(some)) if self._pairs is not None else subgraph.position(some)
            job.sample = frozenset(n for n, row in zip(local.tolist(), some.tolist(), strict=True) if row in self.sample)
            for one, row in zip(job.explanations(local), some.tolist(), strict=True):
                self._renumber(one, subgraph)
                one.output_id = self.output_id(row)
                yield one
            self.plain |= job.plain

    def _renumber(self, one: Any, subgraph: Subgraph) -> None:
        """Give nodes and edges of an explanation the caller's numbers, and say how many edges were left out."""
        device, nodes = one.node_id.device, one.node_id.cpu()
        one.left_out = int(subgraph.left_out[nodes[one.edge_index[1].cpu()].unique()].sum())
        one.edge_id, one.node_id = subgraph.edge[one.edge_id.cpu()].to(device), subgraph.node[nodes].to(device)

    @cached_property
    def _pairs(self) -> Tensor | None:
        """Node pairs that a link model scores, [2, P], on the CPU like the large graph."""
        if self.outcome.level is ModelTaskLevel.node:
            return None
        pairs = find_pairs(self.kwargs, self.data.num_nodes)[1]
        return None if pairs is None else pairs.cpu()

    def _seeds(self, rows: Tensor) -> Tensor:
        return rows if self._pairs is None else self._pairs[:, rows].flatten()

    def _job_on(self, subgraph: Subgraph, rows: Tensor) -> OneGraphJob:
        """The job on a subgraph in memory, moved to the model's device."""
        kwargs, target, device = dict(self.kwargs), self.target, model_device(self.model)
        if self._pairs is not None:
            name, _ = find_pairs(self.kwargs, self.data.num_nodes)
            kwargs[str(name)] = subgraph.position(self._pairs[:, rows]).to(device)
        if target is not None:
            target = torch.as_tensor(target).flatten().cpu()[rows if self._pairs is not None else subgraph.node]
        job = OneGraphJob(self.explainer, copy(subgraph.data).to(device), target, self.budget, kwargs)
        return self._share(job)

    def _share(self, job: OneGraphJob) -> OneGraphJob:
        """A job on a subgraph that knows what this one knows."""
        job.original_size, job.advance = (self.data.num_edges, self.data.num_nodes), self.advance
        job.notes, job.plain, job.outcome = self.notes, self.plain, self.outcome
        return job

    def _fitting_subgraphs(self, rows: Tensor, hops: int, most: float) -> Iterator[tuple[Tensor, Subgraph]]:
        """Rows and the subgraph around them, as many rows at once as fit into memory."""
        try:
            subgraph = self.data.subgraph(self._seeds(rows), hops, most)
        except TooLargeError:
            if len(rows) == 1:
                raise
            half = len(rows) // 2
            yield from self._fitting_subgraphs(rows[:half], hops, most)
            yield from self._fitting_subgraphs(rows[half:], hops, most)
        else:
            yield rows, subgraph

    @cached_property
    def _probe(self) -> tuple[int, float]:
        """The model's message passing steps and its bytes per node and edge, measured on a small subgraph."""
        job = self._probe_job()
        with wrap_model_errors():
            calls = trace_model(job.network, job.inputs, self.outcome)[1]
        if any(call.receiver != 1 for call in calls):
            raise ModelError(
                "On a large graph messages must go from source to target (got a layer with flow='target_to_source'). Write "
                "the graph with edge_index.flip(0), and use layers with the default flow."
            )
        return max((call.after + 1 for call in calls), default=0), bytes_per_member(job.network, job.inputs, self.outcome)

    def _probe_job(self) -> OneGraphJob:
        """A job on a small subgraph, around outputs from all over the graph."""
        number = self.number_of_outputs()
        some = torch.arange(0, number, -(-number // 256), device="cpu")
        ((some, subgraph), *_) = self._fitting_subgraphs(some, 1, 1e5)
        return self._job_on(subgraph, some)

    @property
    def _most_members(self) -> float:
        """Nodes and edges on which the model can be run within the budget."""
        return self.budget / self._probe[1]

    def sufficient_hops(self, rows: Tensor) -> int:
        """Hops around a target that determine the model's output, verified with one hop more.

        GCN needs one hop more than it has layers. As many rows are verified as fit into memory one hop further.
        """
        least = self._probe[0] + 1
        for hops in range(least, least + EXTRA_HOPS):
            few, narrow, wide = rows, None, None
            while wide is None and len(few):
                try:
                    narrow, wide = (self.data.subgraph(self._seeds(few), h, self._most_members) for h in (hops, hops + 1))
                except TooLargeError:
                    few = few[: len(few) // 2]
            if narrow is None or wide is None:
                return hops  # no memory to verify
            if bool(self.outcome.agree(self._output(narrow, few), self._output(wide, few)).all()):
                return hops
        raise ModelError(
            "On a large graph the model's output must depend on few hops around a target (got one that still changes when "
            f"hop {least + EXTRA_HOPS} is added, like a model that uses all nodes). Explain it on a Data object instead."
        )

    @torch.no_grad()
    def _output(self, subgraph: Subgraph, rows: Tensor) -> Tensor:
        """The model's output for some rows on a subgraph."""
        with wrap_model_errors():
            job = self._job_on(subgraph, rows)
            output = call_model(job.network, job.inputs, self.outcome)
        return output if self._pairs is not None else output[subgraph.position(rows).to(output.device)]
