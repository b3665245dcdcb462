"""``nseg.counterfactual``: the smallest change of a graph after which the model says something else."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.explain import Explainer
from torch_geometric.explain.config import ModelTaskLevel

from nseg.errors import InputError, NsegWarning, UnsupportedError
from nseg.explain.change import Counterfactual, FeatureChange
from nseg.explain.changed_graph import ChangedGraph, Switches
from nseg.explain.jobs import BUDGET, ExplainJob, make_job
from nseg.explain.jobs.hetero import HeteroJob
from nseg.explain.smallest_change import SmallestChange, find_smallest
from nseg.explain.typed_change import add_typed_edges, typed_cells
from nseg.graphs.batch import InstanceBatch, pack_graphs
from nseg.graphs.bonds import is_whole_graph_of_bonds
from nseg.graphs.checks import check_index
from nseg.graphs.inputs import EDGE_KIND, ModelInputs, Role, common_roles
from nseg.graphs.large import LargeGraph
from nseg.graphs.separate import separate_graphs
from nseg.graphs.subgraph import reverse_edges
from nseg.model.borrow import borrow, one_thread
from nseg.model.hetero import sort_by_type
from nseg.model.traced_graph import TracedGraph
from nseg.names import Names, resolve_names

WORLDS = 20_000
"""Default number of sets of one size up to which all of them are tried."""

LARGEST = 50
"""Default largest number of changes that is looked for."""


def counterfactual(
    explainer: Explainer,
    data: Data | Sequence[Data],
    index: int | None = None,
    *,
    to: int | str | None = None,
    remove: bool = True,
    additions: Tensor | Data | None = None,
    features: Mapping[int | str, float | Sequence[float]] | None = None,
    nodes: Sequence[int] | None = None,
    undirected: bool | None = None,
    most: int = LARGEST,
    worlds: int = WORLDS,
    node_names: Any = None,
    feature_names: Any = None,
    class_names: Any = None,
    edge_names: Any = None,
    units: Any = None,
    **kwargs: Any,
) -> Counterfactual:
    """The smallest change of the graph after which the model says something else, and what it says then.

    Edges are really removed and added: the model runs on the changed graph, where degrees differ too. All sets of one
    change are tried, then all of two, while a size has at most ``worlds`` sets; beyond that, sets are grown greedily and
    shrunk. The result says which (``exact``). Its numbers come from the model on the caller's whole changed graph.

    Args:
        explainer: any ``Explainer`` of the model; its algorithm is not used.
        data: one graph, or the graphs at graph level. Of ``HeteroData``, additions, features and nodes are by type.
        index: the node, pair or graph.
        to: class that the model should say, by number or name; any other than now if None.
        remove: whether edges may be removed: those over which a message can reach the output; the others are not tried.
        additions: edges that may be added, [2, A]; or a ``Data`` of them with the model's arguments per edge.
        features: features that may change, by number or name, and the values to try: ``{"device_new": 0}``.
        nodes: nodes whose features may change; by default all that can matter for the output.
        undirected: whether both directions of an edge are one change; by default as the algorithm has it.
        most, worlds: largest number of changes, and of sets of one size of which all are tried.
        node_names, feature_names, class_names, edge_names, units: as for :func:`nseg.explain_many`.
        **kwargs: further model arguments.
    """
    both = undirected if undirected is not None else _asked_directions(explainer)
    request = _Request(to, remove, features, nodes, bool(both), most, worlds)
    data = _separate(explainer, data)
    graph, number = _one_graph(explainer, data, index)
    names = resolve_names(data, node_names, feature_names, class_names, edge_names, units).graph(number)
    single = explainer.model_config.task_level is not ModelTaskLevel.graph
    job = make_job(explainer, graph if single else [graph], None, BUDGET, kwargs)
    _require_class(job)
    with torch.no_grad(), borrow(job.model), one_thread():
        inputs = job.model_inputs(graph, kwargs)
        request = replace(request, undirected=not single and is_whole_graph_of_bonds(inputs)) if both is None else request
        if isinstance(job, HeteroJob):
            names = replace(names, types=job.graph_types(sort_by_type(job.adapted_model().schema, inputs)))
        row = int(job.rows(number)[0]) if single else 0
        wide = _with_additions(inputs, additions, names)
        traced = TracedGraph(job.network, job.outcome, wide, edges=False, nodes=False)
        if note := job.outcome.note(traced.output):
            warnings.warn(note, NsegWarning, stacklevel=2)
        found = _Search(traced, row, inputs.num_edges, request, names).run()
    return replace(found, output_id=job.output_id(row) if single else number)


def _asked_directions(explainer: Explainer) -> Any:
    """Whether the algorithm makes both directions of an edge one; None if it leaves that to the graph."""
    return getattr(getattr(getattr(explainer, "algorithm", None), "settings", None), "undirected", False)


def _require_class(job: ExplainJob) -> None:
    """Raise unless the model gives a class."""
    if job.outcome.event is not None:
        raise UnsupportedError(
            f"counterfactual looks for another class (got an explainer of {job.outcome.event}). Use a classifier, and a "
            "method without outcome=."
        )


def _separate(explainer: Explainer, data: Any) -> Any:
    """One graph; or at graph level a sequence of single graphs, if several were given in whatever way."""
    if isinstance(data, LargeGraph):
        raise InputError(
            "counterfactual needs a graph in memory (got a LargeGraph). Cut the part around the node: "
            "graph.subgraph(torch.tensor([node]), hops).data."
        )
    if not isinstance(explainer, Explainer):
        raise InputError(
            f"explainer must be an Explainer of PyG or nseg (got {type(explainer).__name__}). "
            + ("Were explainer and data swapped?" if isinstance(data, Explainer) else "Make one for the model.")
        )
    one = isinstance(data, Data | HeteroData) and not isinstance(data, Batch)
    return data if one or explainer.model_config.task_level is not ModelTaskLevel.graph else separate_graphs(data)


def _one_graph(explainer: Explainer, data: Any, index: Any) -> tuple[Data, int]:
    """The graph that is changed, and the number of the output."""
    several = explainer.model_config.task_level is ModelTaskLevel.graph and not isinstance(data, Data | HeteroData)
    if index is None and several and len(data) > 1:
        raise InputError(f"index must say which of the {len(data)} graphs is meant (got None). Try index=0.")
    if index is None and explainer.model_config.task_level is not ModelTaskLevel.graph:
        raise InputError("index must name one node or pair (got None). Try index=0.")
    whole = index is None or (isinstance(index, Integral) and not isinstance(index, bool))
    if not whole and not (isinstance(index, Tensor) and index.numel() == 1 and not index.is_floating_point()):
        raise InputError(f"index must be one whole number (got {index!r}). Call counterfactual once per output.")
    number = 0 if index is None else int(index)
    if not several:
        return data, number
    row = int(check_index(number, len(data))[0])
    return data[row], row


def _with_additions(inputs: ModelInputs, additions: Any, names: Names) -> ModelInputs:
    """The graph with all edges that may be added, after its own."""
    if additions is None:
        return inputs
    if names.types is not None:
        return add_typed_edges(inputs, additions, names.types)
    edges = additions.edge_index if isinstance(additions, Data) else torch.as_tensor(additions)
    whole = isinstance(edges, Tensor) and edges.dim() == 2 and len(edges) == 2 and not edges.is_floating_point()
    if not whole or (edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < inputs.num_nodes):
        raise InputError(
            f"additions must be edges between nodes 0 to {inputs.num_nodes - 1}, [2, A] "
            f"(got {tuple(edges.shape) if isinstance(edges, Tensor) else type(edges).__name__}). "
            "Try torch.tensor([[source], [target]])."
        )
    kwargs = dict(inputs.kwargs)
    for name, role in common_roles([inputs]).items():
        if role is Role.EDGE:
            given = additions.get(name) if isinstance(additions, Data) else None
            if given is None or given.shape != (edges.size(1), *kwargs[name].shape[1:]):
                raise InputError(
                    f"additions must hold {name} for each added edge, because the model takes it (got "
                    f"{'none' if given is None else tuple(given.shape)}). Give Data(edge_index=..., {name}=...)."
                )
            kwargs[name] = torch.cat([kwargs[name], given.to(kwargs[name])])
    return replace(inputs, edge_index=torch.cat([inputs.edge_index, edges.to(inputs.edge_index)], 1), kwargs=kwargs)


@dataclass(frozen=True)
class _Request:
    """The options of :func:`counterfactual`, checked."""

    to: int | str | None
    remove: bool
    features: Mapping[int | str, float | Sequence[float]] | None
    nodes: Sequence[int] | None
    undirected: bool
    most: int
    worlds: int

    def __post_init__(self) -> None:
        for name in ("most", "worlds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise InputError(f"{name} must be a positive whole number (got {value!r}). Try {LARGEST}.")
        if self.features is not None and not isinstance(self.features, Mapping):
            raise InputError(
                f"features must map features to values to try (got {type(self.features).__name__}). "
                'Try features={"device_new": 0}.'
            )

    def wanted(self, before: int, classes: int, names: Names) -> int | None:
        """Number of the class that the model should say."""
        if self.to is None:
            return None
        named = [n for n in range(classes) if names.class_name(n) == self.to]
        to = named[0] if named else self.to
        if isinstance(to, bool) or not isinstance(to, Integral) or not 0 <= int(to) < classes:
            known = ", ".join(names.class_name(n) for n in range(min(classes, 10)))
            raise InputError(
                f"to must be a class of the model: 0 to {classes - 1}, or its name (got {to!r}). Known: {known}."
            )
        if int(to) == before:
            raise InputError(f"to must differ from what the model says now (got {names.class_name(before)}).")
        return int(to)

    def cells(self, x: Tensor, reached: Tensor, names: Names) -> list[FeatureChange]:
        """All feature changes that are possible."""
        if self.features is None:
            return []
        if names.types is not None:
            return typed_cells(self.features, self.nodes, x, reached, names)
        if x.dim() != 2 or not x.is_floating_point():
            raise UnsupportedError(f"Only floating point features [N, F] can change (got {x.dtype}, {tuple(x.shape)}).")
        numbers = {names.feature(n): n for n in range(x.size(1))}
        nodes = reached.tolist() if self.nodes is None else check_index(self.nodes, x.size(0)).tolist()
        nodes = [node for node in nodes if node in set(reached.tolist())]
        found = []
        for key, given in self.features.items():
            feature = numbers.get(key, -1) if isinstance(key, str) else int(key)
            values: list[Any] = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
            if not 0 <= feature < x.size(1) or not all(isinstance(value, Real) for value in values):
                raise InputError(
                    f"features must map columns of x (0 to {x.size(1) - 1}, or their names) to numbers (got {key!r}: "
                    f"{given!r})."
                )
            for node in nodes:
                now = float(x[node, feature])
                found += [FeatureChange(node, feature, now, float(value)) for value in values if float(value) != now]
        return found


class _Search:
    """Looks for the smallest change of one output's graph.

    Args:
        traced: the graph, with the edges that may be added after its own.
        row: the output.
        own: number of the graph's own edges.
        request: what may change.
        names: of the graph.
    """

    def __init__(self, traced: TracedGraph, row: int, own: int, request: _Request, names: Names) -> None:
        self.traced, self.own, self.request, self.names = traced, own, request, names
        self.model, self.outcome, self.wide = traced.model, traced.outcome, traced.inputs
        if traced.outputs is Role.EDGE:
            raise UnsupportedError(
                "counterfactual needs the pairs of a link model as an argument (got a model that scores its own edges, "
                "which would vanish with them). Pass edge_label_index."
            )
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
        for base in self._bases():
            found = self._search(base, label, wanted)
            on = found.on if found.found else torch.ones_like(found.on)
            after = self.whole.output(on.unsqueeze(0))
            if not found.found or bool(self._merit(after, label, wanted) > 0):
                break
        return self._result(found, before, after, label, wanted)

    def _bases(self) -> list[ChangedGraph]:
        """Where sets are tried: on the smallest subgraph that gives the whole graph's output, else on the whole graph."""
        if self.cuts is None:
            return [self.whole]
        least = torch.full_like(self.row, self.traced.hops + (self.own < self.wide.num_edges))
        ((_, instance, _),) = self.traced.standalone_graphs(self.cuts, least)
        return [self._changed_graph(instance), self.whole]

    def _search(self, base: ChangedGraph, label: int, wanted: int | None) -> SmallestChange:
        def merit(on: Tensor) -> Tensor:
            return self._merit(base.output(on), label, wanted)

        return find_smallest(merit, self.number, self.request.most, self.request.worlds, self.row.device)

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
            features=tuple(one for one, used in zip(self.cells, on[self._edge_changes :].tolist(), strict=True) if used),
            undirected=self.request.undirected,
            size=int(on.sum()),
            candidates=self.number,
            tried_size=found.tried_size,
            exact=found.exact,
            wanted=wanted,
            names=self.names,
        )
