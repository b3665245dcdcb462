"""The search for the smallest change of one output's graph."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from nseg.errors import UnsupportedError
from nseg.explain.change import Counterfactual, FeatureChange
from nseg.explain.change_request import ChangeRequest
from nseg.explain.changed_graph import ChangedGraph, DeletedEdges, Switches
from nseg.explain.smallest_change import SmallestChange, find_smallest
from nseg.explain.verification import LARGE, SAMPLE
from nseg.graphs.batch import InstanceBatch, pack_graphs
from nseg.graphs.inputs import EDGE_KIND, Role
from nseg.graphs.subgraph import reverse_edges
from nseg.model.slow_runs import raise_own_fault, slow_note
from nseg.model.traced_graph import TracedGraph
from nseg.names import Names

FEW_CHANGES = 16
"""Possible changes below which fast runs of worlds are not worth being set up."""


class ChangeSearch:
    """Looks for the smallest change of one output's graph.

    Args:
        traced: the graph, with the edges that may be added after its own.
        row: the output.
        own: number of the graph's own edges.
        request: what may change.
        names: of the graph.
    """

    def __init__(self, traced: TracedGraph, row: int, own: int, request: ChangeRequest, names: Names) -> None:
        self.traced, self.own, self.request, self.names = traced, own, request, names
        self.model, self.outcome, self.wide = traced.model, traced.outcome, traced.inputs
        if traced.outputs is Role.EDGE:
            raise UnsupportedError(
                "counterfactual needs the pairs of a link model as an argument (got a model that scores its own edges, "
                "which would vanish with them). Pass edge_label_index."
            )
        self.notes: list[str] = []
        device = self.wide.x.device
        self.row = torch.tensor([row], device=device)
        self.zero = torch.zeros(1, dtype=torch.long, device=device)
        self.cuts = None if traced.outputs is Role.GRAPH else traced.cuts(self.row, self.zero, self.zero)

    # --- what can change -------------------------------------------------------------------------------------------------

    @cached_property
    def reached(self) -> tuple[Tensor, Tensor]:
        """Edges over which messages can reach the output, and the nodes they come from, by the caller's numbers."""
        if self.cuts is None or not self.traced.traced:
            device = self.row.device
            return torch.arange(self.wide.num_edges, device=device), torch.arange(self.wide.num_nodes, device=device)
        cut = self.cuts.at(self.traced.hops)
        return cut.edge_id, cut.node_id

    @cached_property
    def edge_change(self) -> Tensor:
        """The change that removes or adds each edge, -1 for none, [E]."""
        edges, own = self.wide.edge_index, self.own
        change, candidates = torch.full_like(edges[0], -1), self.reached[0]
        if not self.request.remove:
            candidates = candidates[candidates >= own]
        first = torch.arange(edges.size(1), device=edges.device)
        if self.request.undirected:
            kind, nodes = self.wide.kwargs.get(EDGE_KIND), self.wide.num_nodes
            kinds = (None, None) if kind is None else (kind[:own], kind[own:])
            ends = (reverse_edges(edges[:, :own], nodes, kinds[0]), reverse_edges(edges[:, own:], nodes, kinds[1]))
            first = torch.minimum(first, torch.cat([ends[0], ends[1] + own]))
        chosen = torch.unique(first[candidates])
        change[chosen] = torch.arange(len(chosen), device=edges.device)
        return change[first]

    @cached_property
    def cells(self) -> list[FeatureChange]:
        """Features that can change."""
        return self.request.cells(self.wide.x, self.reached[1], self.names)

    @property
    def number(self) -> int:
        """Number of possible changes."""
        return self._edge_changes + len(self.cells)

    @property
    def _edge_changes(self) -> int:
        return int(self.edge_change.max()) + 1 if self.edge_change.numel() else 0

    def _changed_graph(self, instance: InstanceBatch) -> ChangedGraph:
        device = self.row.device
        node = torch.tensor([one.node for one in self.cells], dtype=torch.long, device=device)
        feature = torch.tensor([one.feature for one in self.cells], dtype=torch.long, device=device)
        switches = Switches(
            self.number,
            self.edge_change[instance.edge_id],
            instance.edge_id >= self.own,
            torch.stack([torch.searchsorted(instance.node_id, node), feature]),
            torch.tensor([one.after for one in self.cells], dtype=self.wide.x.dtype, device=device),
            self._edge_changes + torch.arange(len(self.cells), device=device),
        )
        return ChangedGraph(self.model, self.outcome, instance, switches)

    # --- the search ------------------------------------------------------------------------------------------------------

    @cached_property
    def whole(self) -> ChangedGraph:
        """The caller's whole graph."""
        return self._changed_graph(pack_graphs([self.wide], self.traced.outputs, [self.row], [self.zero]))

    def run(self) -> Counterfactual:
        """The smallest change, verified on the whole graph."""
        before = self.whole.output(torch.zeros(1, self.number, dtype=torch.bool, device=self.row.device))
        classes, label = self.outcome.num_classes(before), int(self.outcome.check_target(before, None))
        self.names.check_classes(classes)
        wanted = self.request.wanted(label, classes, self.names)
        for base in self._bases(label if wanted is None else wanted):
            found, tried = self._search(base, label, wanted)
            if isinstance(base, ChangedGraph) and base.why:
                self._note(base.why, "run one at a time")
            on = found.on if found.found else torch.ones_like(found.on)
            after = self.whole.output(on.unsqueeze(0))
            changed = not found.found or bool(self._merit(after, label, wanted) > 0)
            if changed and (base is self.whole or self._holds(base, tried)):
                break
            self._note("the whole graph, changed in the same way, gave another output", "tried again in a slower way")
        return self._result(found, before, after, label, wanted)

    def _bases(self, target: int) -> Iterator[ChangedGraph | DeletedEdges]:
        """Where sets are tried: on the smallest subgraph that gives the whole graph's output, else on the whole graph."""
        near = self.whole
        if self.cuts is not None:
            least = torch.full_like(self.row, self.traced.hops + (self.own < self.wide.num_edges))
            ((_, instance, _),) = self.traced.standalone_graphs(self.cuts, least)
            near = self._changed_graph(instance)
            if instance.num_nodes == self.wide.num_nodes > self.cuts.at(self.traced.hops + 1).num_nodes:
                why = "its output on the subgraph around the target is not that on the whole graph"
                self._note(why, "made of the whole graph")
        fast = None
        try:
            fast = self._deleted_edges(target)
            usable = fast is not None and fast.agrees(near, self.number)
        except Exception as error:  # a model may raise anything on graphs that it does not expect
            raise_own_fault(error)
            usable = False
        if fast is not None and usable:
            yield fast
        yield near
        if near is not self.whole:
            yield self.whole

    def _note(self, why: str, how: str) -> None:
        cost = f"Changed graphs are therefore {how}, up to {self.request.worlds} of them for each counterfactual."
        self.notes.append(slow_note(self.model, why, cost))

    def _deleted_edges(self, target: int) -> DeletedEdges | None:
        """Fast runs of worlds in which edges are only removed; None if other changes are possible, or few."""
        if self.cells or self.own < self.wide.num_edges or not self.traced.edges or self.number < FEW_CHANGES:
            return None
        cuts = self.traced.cuts(self.row, self.zero, self.zero + target)
        ((_, causal),) = self.traced.causal_models(cuts)
        return DeletedEdges(causal, self.edge_change[causal.instances.edge_id], self.request.undirected)

    def _holds(self, base: ChangedGraph | DeletedEdges, tried: Tensor) -> bool:
        """Whether the whole graph, one world at a time, gives what was found for some sets that were tried, [K, n]."""
        size = self.wide.num_nodes + self.wide.num_edges
        some = tried[: max(2, min(SAMPLE, SAMPLE * LARGE // max(size, 1)))]
        alone = [self.whole.output(on.unsqueeze(0)) for on in some]
        return not alone or bool(self.outcome.agree(base.output(some), torch.cat(alone)).all())

    def _search(self, base: ChangedGraph | DeletedEdges, label: int, wanted: int | None) -> tuple[SmallestChange, Tensor]:
        """The smallest change, and a random sample of the sets that were tried, [K, n]."""
        rng, tried = torch.Generator().manual_seed(0), list[Tensor]()

        def merit(on: Tensor) -> Tensor:
            tried.append(on[torch.randperm(len(on), generator=rng, device="cpu")[:SAMPLE].to(on.device)])
            return self._merit(base.output(on), label, wanted)

        def guess() -> Tensor:
            assert isinstance(base, DeletedEdges)
            return base.guess(self.number) * (1 if wanted is None else -1)

        estimate = guess if isinstance(base, DeletedEdges) else None
        found = find_smallest(merit, self.number, self.request.most, self.request.worlds, self.row.device, estimate)
        every = torch.cat(tried) if tried else found.on[None][:0]
        return found, every[torch.randperm(len(every), generator=rng, device="cpu").to(every.device)]

    def _merit(self, output: Tensor, label: int, wanted: int | None) -> Tensor:
        """How near outputs [K, ...] are to the wanted outcome, [K]; above 0 if they have it."""
        target = self.zero.expand(len(output)) + (label if wanted is None else wanted)
        odds = self.outcome.log_odds(output, target).double()
        near = torch.atan(-odds if wanted is None else odds) / torch.pi  # without rounding to 0 or 1 where p does
        same = self.outcome.predicted(output) == target
        return near + torch.where(same != (wanted is None), 0.5, -0.5)

    def _result(
        self, found: SmallestChange, before: Tensor, after: Tensor, label: int, wanted: int | None
    ) -> Counterfactual:
        new = int(self.outcome.predicted(after))
        p = [float(self.outcome.probability(output, self.zero + one)) for one in (label, new) for output in (before, after)]
        on = found.on.cpu() if found.found else torch.zeros(self.number, dtype=torch.bool)
        change = self.edge_change.cpu()
        edges = ((change >= 0) & on[change.clamp(min=0)]).nonzero().flatten() if on.numel() else on.nonzero().flatten()
        ends = [(a, b) for a, b in self.wide.edge_index.cpu()[:, edges].T.tolist()]
        removed = [n for n, edge in enumerate(edges.tolist()) if edge < self.own]
        return Counterfactual(
            output_id=int(self.row),
            level=self.outcome.level.value,
            changed=found.found,
            before=label,
            after=new if found.found else label,
            p_before=p[0],
            p_after=p[1],
            p_new_before=p[2],
            p_new_after=p[3],
            removed_edges=tuple(int(edges[n]) for n in removed),
            removed=tuple(ends[n] for n in removed),
            added=tuple(pair for n, pair in enumerate(ends) if n not in set(removed)),
            added_edges=tuple(edge - self.own for edge in edges.tolist() if edge >= self.own),
            features=tuple(one for one, used in zip(self.cells, on[self._edge_changes :].tolist(), strict=True) if used),
            undirected=self.request.undirected,
            size=int(on.sum()),
            candidates=self.number,
            tried_size=found.tried_size,
            exact=found.exact,
            wanted=wanted,
            names=self.names,
        )
