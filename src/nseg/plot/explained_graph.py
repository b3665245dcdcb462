"""Facts about one explanation that a picture needs: its graph, target, class, masks and ground truth.

Nothing here knows about positions or drawing. All tensors that leave this file are on the CPU.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explanation

from nseg.datasets import Benchmark
from nseg.errors import InputError
from nseg.explanation import explained_targets, row_numbers, task_level
from nseg.explanation import target_nodes as explained_nodes
from nseg.graphs.flat_data import flat_data
from nseg.hetero_explanation import flat_view
from nseg.names import Names
from nseg.wording import hard_mask


class ExplainedGraph(NamedTuple):
    """An explanation together with the graph that its masks refer to.

    Args:
        explanation: the explanation; its masks belong to the edges [E] and nodes [N] of ``edge_index``.
        dataset: the dataset of the explanation, if known.
        whole_graph: the caller's graph in that dataset, if known.
        edge_index: edges of the explained (sub)graph, [2, E].
        edge_id, node_id: ids of these edges and nodes in the caller's graph, [E] and [N].
        output_id: id of the explained output (node, link or graph) in the caller's data.
        level: ``"node"``, ``"edge"`` or ``"graph"``: the kind of output.
        named: the caller's graph as it was given, which may have names; heterogeneous graphs are flat elsewhere.
    """

    explanation: Explanation
    dataset: Benchmark | None
    whole_graph: Data | None
    edge_index: Tensor
    edge_id: Tensor
    node_id: Tensor
    output_id: int
    level: str
    named: Any = None

    @property
    def num_nodes(self) -> int:
        """Number of nodes N."""
        return self.node_id.numel()


GraphData: TypeAlias = Benchmark | Data | HeteroData | Sequence[Data] | Sequence[HeteroData] | None
"""What was explained: a dataset of :mod:`nseg.datasets`, a graph, several graphs, or unknown."""


def explained_graph(explanation: Explanation, data: GraphData) -> ExplainedGraph:
    """The graph of an explanation, checked against what was explained."""
    explanation = flat_view(explanation)
    if not isinstance(explanation, Explanation):
        raise InputError(f"explanation must be a torch_geometric Explanation (got {type(explanation).__name__}).")
    dataset = data if isinstance(data, Benchmark) else None
    index, edge_index = explanation.get("index"), explanation.get("edge_index")
    output_id = int(explanation.get("output_id", 0 if index is None else row_numbers(index)[0]))
    edge_id, node_id = explanation.get("edge_id"), explanation.get("node_id")
    named = _whole_graph(data, output_id)
    whole_graph = _flatten(named, explanation)
    if edge_index is None:
        if whole_graph is None or edge_id is None or node_id is None:
            raise InputError(
                "An explanation can only be drawn with its graph (got one without edge_index, as nseg.read returns). "
                "Pass what was explained: data=..."
            )
        edge_index = torch.searchsorted(node_id, whole_graph.edge_index[:, edge_id])  # node_id is sorted
        explanation = copy.copy(explanation)
        explanation.edge_index = edge_index
    edge_id = torch.arange(edge_index.size(1)) if edge_id is None else edge_id.cpu()
    node_id = torch.arange(int(explanation.num_nodes or 0)) if node_id is None else node_id.cpu()
    level = _task_level(explanation, dataset)
    graph = ExplainedGraph(explanation, dataset, whole_graph, edge_index.cpu(), edge_id, node_id, output_id, level, named)
    if whole_graph is not None and not _is_subgraph(graph, whole_graph):
        raise InputError(
            f"data must be the dataset that was explained (its graph for output {output_id} has other edges). Pass the "
            "right dataset, or set explanation.output_id to the position of the graph in the dataset."
        )
    return graph


def _flatten(graph: Data | HeteroData | None, explanation: Explanation) -> Data | None:
    """A graph, flat if it is heterogeneous."""
    if not isinstance(graph, HeteroData):
        return graph
    types = getattr(explanation.get("names"), "types", None)
    if types is None:
        raise InputError("data must be what was explained (got HeteroData, and an explanation of a homogeneous graph).")
    return flat_data(graph, types)


def _whole_graph(data: Any, output_id: int) -> Data | HeteroData | None:
    """The caller's graph of an output; None if it is unknown."""
    if data is None or isinstance(data, Data | HeteroData):
        return data
    if isinstance(data, Benchmark):
        return data.graph(output_id)
    if isinstance(data, str) or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise InputError(
            f"data must be a dataset from nseg.datasets, a torch_geometric Data or several (got {type(data).__name__}). "
            "Leave it out if you have none: explanations from explain_many hold their graph."
        )
    found = data[output_id] if output_id < len(data) else None
    if not isinstance(found, Data | HeteroData):
        raise InputError(
            f"data must hold the graph of every explained output (got {len(data)} graphs, and no graph for output "
            f"{output_id}). Pass the list of graphs that was explained."
        )
    return found


def _task_level(explanation: Explanation, dataset: Benchmark | None) -> str:
    known = getattr(explanation, "_model_config", None) is not None
    return dataset.level if dataset is not None and not known else task_level(explanation)


def _is_subgraph(graph: ExplainedGraph, whole_graph: Data) -> bool:
    """Whether ``edge_id`` and ``node_id`` name the same edges in the caller's graph."""
    if graph.edge_id.numel() and int(graph.edge_id.max()) >= whole_graph.num_edges:
        return False
    if graph.num_nodes and int(graph.node_id.max()) >= whole_graph.num_nodes:
        return False
    return torch.equal(graph.node_id[graph.edge_index], whole_graph.edge_index.cpu()[:, graph.edge_id])


# --- what is explained ---------------------------------------------------------------------------------------------------


def reached_edges(graph: ExplainedGraph, reached: Tensor | None) -> Tensor:
    """Mask of the edges whose messages can reach the output, [E].

    Args:
        graph: the explained graph.
        reached: ids of the reached edges in the caller's graph, for an explanation without ``reached``; None for all.
    """
    own: Tensor | None = graph.explanation.get("reached")
    if own is not None:
        return own.cpu()
    if reached is None:
        return torch.ones(graph.edge_id.numel(), dtype=torch.bool)
    return torch.isin(graph.edge_id, reached.cpu())


def target_nodes(graph: ExplainedGraph) -> list[int]:
    """Positions of the explained nodes, or of both ends of the explained links."""
    positions: list[int] = explained_nodes(graph.explanation, graph.level).tolist()
    return positions


def explained_class(graph: ExplainedGraph) -> int:
    """The explained class, -1 if unknown or if a value is explained."""
    value = explained_value(graph)
    return value if isinstance(value, int) else -1


def explained_value(graph: ExplainedGraph) -> int | float:
    """The explained class, or the explained value of a regression; -1 if unknown."""
    if graph.explanation.get("target") is None:
        return -1
    index, target = graph.explanation.get("index"), explained_targets(graph.explanation)
    row = 0 if index is None or graph.level == "graph" else int(row_numbers(index)[0])
    found: int | float = target[row].item() if row < target.numel() else -1
    return found


def true_class(graph: ExplainedGraph) -> int | None:
    """The true class; None if unknown, or if a given class and not the prediction is explained."""
    # Explanations read from disk have no model config; only explanations of predictions are stored.
    from_disk = getattr(graph.explanation, "_model_config", None) is None
    explains_prediction = from_disk or graph.explanation.get("prediction") is not None
    y = None if graph.whole_graph is None else graph.whole_graph.get("y")
    row = graph.output_id if graph.level == "node" else 0
    if y is None or y.is_floating_point() or row >= y.numel() or graph.level == "edge" or not explains_prediction:
        return None
    return int(y.flatten()[row]) if int(y.flatten()[row]) >= 0 else None


def title(graph: ExplainedGraph, names: Names, class_name: str, verdict: str, molecule: bool = False) -> str:
    """What is explained, e.g. ``"graph 10: mutagen (correct)"`` or ``"tx-11: fraud"``.

    Args:
        graph: the explained graph.
        names: names of the caller's graph.
        class_name: name of the explained class.
        verdict: whether the prediction is correct, in words; ``""`` if unknown.
        molecule: whether the graph is a molecule.
    """
    index, word = graph.explanation.get("index"), {"edge": "link", "graph": "molecule" if molecule else "graph"}
    if index is not None and row_numbers(index).numel() > 1:
        return f"{row_numbers(index).numel()} {word.get(graph.level, graph.level)}s"
    what = f"{word.get(graph.level, graph.level)} {graph.output_id}"
    if graph.level == "node" and names.types is not None:
        what = names.node(graph.output_id)
    elif graph.level == "node" and names.nodes and names.node_label(graph.output_id) != str(graph.output_id):
        what = f"{what} ({names.node_label(graph.output_id)})" if graph.dataset is not None else names.node(graph.output_id)
    text = f"{what}: {class_name}" if class_name else what
    return f"{text} ({verdict})" if verdict else text


# --- masks, ground truth and bonds ---------------------------------------------------------------------------------------


class NodePairs(NamedTuple):
    """Pairs of nodes that are joined by at least one edge, P in total.

    Args:
        ends: positions of both nodes, the smaller first, [2, P].
        weight, kept, truth, order: the fields of :class:`nseg.plot.Edge`, P values each.
    """

    ends: Tensor
    weight: Sequence[float | None]
    kept: Sequence[bool | None]
    truth: Sequence[bool]
    order: Sequence[float]


def node_pairs(graph: ExplainedGraph, selected: Tensor, orders: Tensor | None = None) -> NodePairs:
    """Merge parallel and opposite edges into pairs; each value is the maximum over the edges of the pair.

    Args:
        graph: the explained graph.
        selected: mask of the edges to merge, [E].
        orders: bond order of each edge, [E]; None outside molecules.
    """
    edges_of: dict[tuple[int, int], list[int]] = {}  # lists, because a report draws thousands of small graphs
    for edge, (a, b) in enumerate(graph.edge_index[:, selected].T.tolist()):
        edges_of.setdefault((a, b) if a <= b else (b, a), []).append(edge)
    ends = sorted(edges_of)

    def maximum(value: Tensor | None, unknown: Any) -> list[Any]:
        if value is None:
            return [unknown] * len(ends)
        every = value[selected].tolist()
        return [max([every[edge] for edge in edges_of[pair]]) for pair in ends]

    soft, hard = soft_mask(graph.explanation, "edge_mask"), hard_mask(graph.explanation, "edge_mask")
    truth = ground_truth(graph)
    return NodePairs(
        torch.tensor(ends, dtype=torch.long).view(-1, 2).T,
        maximum(soft, None),
        maximum(hard, None),
        maximum(None if truth is None else truth[0], False),
        maximum(orders, 1.0),
    )


def soft_mask(explanation: Explanation, name: str, rows: int = -1) -> Tensor | None:
    """A soft mask with one number per element, the mean over features; None without a mask per element.

    Args:
        explanation: the explanation.
        name: ``"edge_mask"`` or ``"node_mask"``.
        rows: rows that a mask with features must have; a node mask shared by all nodes has one row and gives None.
    """
    mask: Tensor | None = explanation.get(name)
    if mask is None or (mask.dim() == 2 and mask.size(0) != rows):
        return None
    mask = mask.detach().cpu().float().nan_to_num()
    return mask.mean(-1) if mask.dim() == 2 else mask


def ground_truth(graph: ExplainedGraph) -> tuple[Tensor, Tensor] | None:
    """Masks of the edges [E] and nodes [N] in the ground truth; None if it is unknown."""
    if graph.dataset is None or graph.whole_graph is None:
        return None
    known = "motif" in graph.whole_graph or "edge_truth" in graph.whole_graph
    truth = graph.dataset.truth(graph.output_id) if known else None
    return None if truth is None else (truth.edge[graph.edge_id], truth.node[graph.node_id])
