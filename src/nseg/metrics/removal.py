"""Explanations judged with edges deleted from their graphs, instead of masked messages."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch_geometric.explain.config import MaskType

from nseg.errors import InputError
from nseg.graphs.batch import pack_graphs
from nseg.graphs.inputs import ModelInputs, Role
from nseg.metrics.evaluator import WorldEvaluator
from nseg.model.borrow import borrow
from nseg.model.causal import CausalModel
from nseg.model.outcomes import Outcome
from nseg.model.strategy import PLAIN, UNTRACED, RunStrategy
from nseg.search.parts import EDGES, NODES, MaskParts, Masks
from nseg.search.worlds import build_worlds
from nseg.wording import is_undirected

OUTPUT_ROLES = {"node": Role.NODE, "graph": Role.GRAPH, "edge": Role.PAIR}


@torch.no_grad()
def outputs_after_removal(evaluator: WorldEvaluator, masks: Sequence[Masks]) -> Tensor:
    """The model's output in the worlds of each mask, with edges deleted, [1 + A, B, ...]; masks must be hard.

    The fastest of three ways that gives, for a few explanations, what each gives alone on its own graph: the causal models
    of the search, which need no smaller graphs where masks keep nothing out of their reach; all graphs in one batch; or
    one by one.
    """
    if not (evaluator.edges or evaluator.deletes_nodes):
        raise InputError("Only edges can be removed (got node masks only). Use intervention='mask'.")
    edges = [one[EDGES].flatten() for one in masks if EDGES in one]
    if edges and bool(((whole := torch.cat(edges)) > 0).logical_and_(whole < 1).any()):  # at once: there may be thousands
        raise InputError("Masks must be hard to remove edges (got soft ones). Use masks='hard' or a threshold.")
    with borrow(evaluator.model):
        few = [_outputs(evaluator, masks, slice(n, n + 1), PLAIN) for n in range(min(3, len(masks)))]
        for way in (_outputs_in_reach, _outputs_together):
            try:
                found = way(evaluator, masks)
                if found is not None and bool(evaluator.outcome.agree(found[:, : len(few)], torch.cat(few, 1)).all()):
                    return found
            except Exception:  # a model may raise anything on graphs that it does not expect together
                continue
        return torch.cat([_outputs(evaluator, masks, slice(n, n + 1), PLAIN) for n in range(len(masks))], 1)


def _outputs_in_reach(evaluator: WorldEvaluator, masks: Sequence[Masks]) -> Tensor | None:
    """The outputs by the causal models of the search; None if masks keep edges that are out of their reach."""
    tied, found = all(map(is_undirected, evaluator.explanations)), []
    for group in evaluator.groups:
        packed = group.pack(masks)
        if evaluator.edges and not tied:
            total = torch.cat([masks[number][EDGES] for number in group.numbers.tolist()]).count_nonzero()
            if int(packed[EDGES].count_nonzero()) != int(total):  # masks are hard
                return None
        worlds = build_worlds(group.parts, packed.map(lambda mask: mask.unsqueeze(0)))
        found.append(group.causal.removing(tied).output(worlds))
    return evaluator.in_order(found, 1)


def _outputs_together(evaluator: WorldEvaluator, masks: Sequence[Masks]) -> Tensor:
    """The outputs on the explanations' own graphs, in one batch."""
    return _outputs(evaluator, masks, slice(None), UNTRACED)


def _outputs(evaluator: WorldEvaluator, masks: Sequence[Masks], some: slice, strategy: RunStrategy) -> Tensor:
    """The model's output for the explained row of each graph, [1 + A, B, ...]."""
    explanations, chosen = evaluator.explanations[some], masks[some]
    graphs = [evaluator.inputs_of(one) for one in explanations]
    zero = torch.zeros(1, dtype=torch.long, device=evaluator.output.device)
    rows = [zero if one.get("index") is None else one.index for one in explanations]
    role = OUTPUT_ROLES[evaluator.outcome.level.value]
    if role is Role.PAIR and graphs[0].pairs is None:
        role = Role.EDGE
    instances = pack_graphs(graphs, role, rows, [zero] * len(rows))
    packed, kind = Masks(), None
    if evaluator.edges:
        packed[EDGES] = torch.cat([one[EDGES] for one in chosen]).unsqueeze(0)
    if evaluator.nodes:
        sizes = [graph.num_nodes for graph in graphs]
        nodes = [one[NODES].expand(size, -1) for one, size in zip(chosen, sizes, strict=True)]
        packed[NODES] = torch.cat(nodes).unsqueeze(0)
        kind = MaskType.object if packed[NODES].size(-1) == 1 else MaskType.attributes
    causal = CausalModel(evaluator.model, evaluator.outcome, instances, strategy).removing()
    return causal.output(build_worlds(MaskParts.of(instances, evaluator.edges, kind), packed))


def outputs_of_graphs(model: nn.Module, outcome: Outcome, graphs: Sequence[ModelInputs], rows: Sequence[Tensor]) -> Tensor:
    """A model's output for one row of each graph, in one batch if that is exact, [B, ...].

    Args:
        model, outcome: the model, borrowed, and how its output is read.
        graphs: arguments of the model.
        rows: explained row of each graph, [1] each.
    """
    role, zero = OUTPUT_ROLES[outcome.level.value], torch.zeros_like(rows[0])

    def run(some: slice, strategy: RunStrategy) -> Tensor:
        instances = pack_graphs(graphs[some], role, rows[some], [zero] * len(rows[some]))
        return CausalModel(model, outcome, instances, strategy).output()[0]

    few = [run(slice(n, n + 1), PLAIN) for n in range(min(3, len(graphs)))]
    try:
        together = run(slice(None), UNTRACED)
        if bool(outcome.agree(together[: len(few)], torch.cat(few)).all()):
            return together
    except Exception:  # a model may raise anything on graphs that it does not expect together
        pass
    return torch.cat([run(slice(n, n + 1), PLAIN) for n in range(len(graphs))])
