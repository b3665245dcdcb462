"""Edges deleted from the graph, instead of masked messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch_geometric.explain import Explanation

from nseg.errors import InputError
from nseg.graphs.batch import pack_graphs
from nseg.graphs.inputs import ModelInputs, Role
from nseg.metrics.evaluator import WorldEvaluator
from nseg.model.borrow import borrow
from nseg.model.causal import CausalModel
from nseg.model.outcomes import Outcome
from nseg.model.strategy import PLAIN, UNTRACED, RunStrategy
from nseg.search.parts import EDGES, NODES, Masks

OUTPUT_ROLES = {"node": Role.NODE, "graph": Role.GRAPH, "edge": Role.PAIR}


@torch.no_grad()
def outputs_after_removal(evaluator: WorldEvaluator, masks: Sequence[Masks]) -> Tensor:
    """The model's output with each explanation alone, and with everything else alone, [2, B, ...]; masks must be hard."""
    if not evaluator.edges:
        raise InputError("Only edges can be removed (got node masks only). Use intervention='mask'.")
    if any(bool(((one[EDGES] > 0) & (one[EDGES] < 1)).any()) for one in masks):
        raise InputError("Masks must be hard to remove edges (got soft ones). Use masks='hard' or a threshold.")
    worlds = []
    with borrow(evaluator.model):
        for complement in (False, True):
            graphs = [
                _remove(evaluator, one, mask, complement) for one, mask in zip(evaluator.explanations, masks, strict=True)
            ]
            worlds.append(_outputs(evaluator, graphs))
    return torch.stack(worlds)


def _remove(evaluator: WorldEvaluator, one: Explanation, masks: Masks, complement: bool) -> ModelInputs:
    """An explanation's graph with only its edges, or only the others."""
    inputs = evaluator.inputs_of(one)
    keep = (masks[EDGES] > 0.5) != complement
    per_edge = {name for name in inputs.kwargs if inputs.possible_roles(name)[0] is Role.EDGE}
    kwargs = {k: v[keep] if k in per_edge else v for k, v in inputs.kwargs.items()}
    inputs = replace(inputs, edge_index=inputs.edge_index[:, keep], kwargs=kwargs)
    if NODES in masks:
        factor = 1 - masks[NODES] if complement else masks[NODES]
        without = 0 if inputs.baseline is None else inputs.baseline * (1 - factor)
        inputs = replace(inputs, x=inputs.x * factor + without)
    return inputs


def _outputs(evaluator: WorldEvaluator, graphs: list[ModelInputs]) -> Tensor:
    """The model's output for the explained row of each graph."""
    zero = torch.zeros(1, dtype=torch.long, device=evaluator.output.device)
    rows = [zero if one.get("index") is None else one.index for one in evaluator.explanations]
    return outputs_of_graphs(evaluator.model, evaluator.outcome, graphs, rows)


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
