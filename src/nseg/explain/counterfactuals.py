"""``nseg.counterfactual``: the smallest change of a graph after which the model says something else."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, overload

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.explain import Explainer
from torch_geometric.explain.config import ModelTaskLevel

from nseg.errors import InputError, ModelError, NsegWarning, UnsupportedError
from nseg.explain.change import Counterfactual
from nseg.explain.change_request import LARGEST, WORLDS, ChangeRequest, with_additions
from nseg.explain.change_search import ChangeSearch
from nseg.explain.jobs import BUDGET, ExplainJob, make_job
from nseg.explain.jobs.hetero import HeteroJob
from nseg.graphs.bonds import is_whole_graph_of_bonds
from nseg.graphs.checks import check_index
from nseg.graphs.inputs import ModelInputs
from nseg.graphs.large import LargeGraph
from nseg.graphs.separate import separate_graphs
from nseg.model.borrow import borrow, one_thread
from nseg.model.hetero import sort_by_type
from nseg.model.traced_graph import TracedGraph
from nseg.names import Names, resolve_names


@overload
def counterfactual(
    explainer: Explainer, data: Data | Sequence[Data], index: int | None = None, **options: Any
) -> Counterfactual: ...


@overload
def counterfactual(
    explainer: Explainer, data: Data | Sequence[Data], index: Sequence[int] | Tensor | slice, **options: Any
) -> list[Counterfactual]: ...


def counterfactual(
    explainer: Explainer,
    data: Data | Sequence[Data],
    index: int | Sequence[int] | Tensor | slice | None = None,
    *,
    to: int | str | None = None,
    remove: bool = True,
    additions: Tensor | Data | None = None,
    features: Mapping[Any, float | Sequence[float]] | None = None,
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
) -> Counterfactual | list[Counterfactual]:
    """The smallest change of the graph after which the model says something else, and what it says then.

    Edges are really removed and added: the model runs on the changed graph, where degrees differ too. All sets of one
    change are tried, then all of two, while a size has at most ``worlds`` sets; beyond that, sets are grown greedily and
    shrunk. The result says which (``exact``). Its numbers come from the model on the caller's whole changed graph.

    Args:
        explainer: any ``Explainer`` of the model; its algorithm is not used.
        data: one graph, or the graphs at graph level. Of ``HeteroData``, additions, features and nodes are by type.
        index: the node, pair or graph; or several of them, for a list of counterfactuals.
        to: class that the model should say, by number or name; any other than now if None.
        remove: whether edges may be removed: those over which a message can reach the output; the others are not tried.
        additions: edges that may be added, [2, A]; or a ``Data`` of them with the model's arguments per edge.
        features: features that may change, by number or name, and the values to try: ``{"device_new": 0}``; or by node and
            feature, ``{(7, "device_new"): 0}``.
        nodes: nodes whose features may change; by default all that can matter for the output.
        undirected: whether both directions of an edge are one change; by default as the algorithm has it.
        most, worlds: largest number of changes, and of sets of one size of which all are tried.
        node_names, feature_names, class_names, edge_names, units: as for :func:`nseg.explain_many`.
        **kwargs: further model arguments.
    """
    both = undirected if undirected is not None else _asked_directions(explainer)
    request = ChangeRequest(to, remove, features, nodes, bool(both), most, worlds)
    data = _separate(explainer, data)
    names = resolve_names(data, node_names, feature_names, class_names, edge_names, units)
    options = _Options(explainer, request, both is None, additions, kwargs)
    _check_kind(explainer, data, index)
    if explainer.model_config.task_level is not ModelTaskLevel.graph:
        found = options.find(data, index, names.graph())
    elif isinstance(data, Data | HeteroData):
        found = [replace(options.find(data, None, names.graph())[0], output_id=_as_number(index))]
    else:
        numbers = check_index(0 if index is None else index, len(data)).tolist()
        found = [replace(options.find(data[n], None, names.graph(n))[0], output_id=n) for n in numbers]
    return found if _is_several(index) else found[0]


@dataclass(frozen=True)
class _Options:
    """How changes of one graph are looked for.

    Args:
        explainer: of the model.
        request: what may change.
        by_graph: whether the graph decides if both directions of an edge are one change.
        additions: edges that may be added.
        kwargs: further model arguments.
    """

    explainer: Explainer
    request: ChangeRequest
    by_graph: bool
    additions: Any
    kwargs: dict[str, Any]

    def find(self, graph: Any, index: Any, names: Names) -> list[Counterfactual]:
        """The smallest change of each output of a graph; all outputs share what is known of the graph.

        Args:
            graph: the graph.
            index: the outputs; None for the graph itself.
            names: its names.
        """
        job = make_job(self.explainer, [graph] if index is None else graph, None, BUDGET, self.kwargs)
        _require_class(job)
        request = self.request
        with torch.no_grad(), borrow(job.model), one_thread():
            inputs = job.model_inputs(graph, self.kwargs)
            if self.by_graph:
                request = replace(request, undirected=index is None and is_whole_graph_of_bonds(inputs))
            if isinstance(job, HeteroJob):
                names = replace(names, types=job.graph_types(sort_by_type(job.adapted_model().schema, inputs)))
            rows = [0] if index is None else job.rows(index).tolist()
            traced = _trace(job, with_additions(inputs, self.additions, names))
            searches = [ChangeSearch(traced, row, inputs.num_edges, request, names) for row in rows]
            found = [search.run() for search in searches]
        about_output = job.outcome.note(traced.output)
        notes = [*([] if about_output is None else [about_output]), *(note for search in searches for note in search.notes)]
        for note in dict.fromkeys(notes):
            warnings.warn(note, NsegWarning, stacklevel=4)
        return [replace(one, output_id=job.output_id(row)) for one, row in zip(found, rows, strict=True)]


def _trace(job: ExplainJob, inputs: ModelInputs) -> TracedGraph:
    """The graph with the model's output on it; without fast runs of worlds if a layer's messages are not over its edges."""
    try:
        return TracedGraph(job.network, job.outcome, inputs, edges=True, nodes=False)
    except ModelError:
        return TracedGraph(job.network, job.outcome, inputs, edges=False, nodes=False)


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


def _is_several(index: Any) -> bool:
    """Whether a list of counterfactuals is asked for."""
    return not (index is None or isinstance(index, Integral) or (isinstance(index, Tensor) and index.dim() == 0))


def _check_kind(explainer: Explainer, data: Any, index: Any) -> None:
    """Raise unless the index fits the data."""
    graphs = explainer.model_config.task_level is ModelTaskLevel.graph
    several = graphs and not isinstance(data, Data | HeteroData)
    if isinstance(index, bool | str):
        raise InputError(f"index must be a whole number, or several of them (got {index!r}). Try index=0.")
    if index is None and several and len(data) > 1:
        raise InputError(
            f"index must say which of the {len(data)} graphs are meant (got None). Try index=0 or index=range({len(data)})."
        )
    if index is None and not graphs:
        raise InputError("index must name one node or pair, or several (got None). Try index=0.")


def _as_number(index: Any) -> int:
    """Number of the only graph as the caller has it."""
    if index is None or not _is_several(index):
        return int(index or 0)
    return int(check_index(index, 1)[0])
