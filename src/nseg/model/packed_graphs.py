"""Several graphs of a caller in one causal model, where that is exact."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nseg.graphs.batch import pack_graphs
from nseg.graphs.inputs import ModelInputs, Role, can_pack
from nseg.model.causal import CausalModel
from nseg.model.edge_values import edge_values_are_constant
from nseg.model.outcomes import Outcome
from nseg.model.removal_choice import remover_of_graphs
from nseg.model.slow_runs import raise_own_fault
from nseg.model.strategy import GRAPH_STRATEGIES, PLAIN, UNTRACED, RunStrategy, random_weights
from nseg.model.traced_graph import CausalModels, TracedGraph


def pack_causal_model(
    model: nn.Module, outcome: Outcome, graphs: Sequence[ModelInputs], target: Tensor, strategy: RunStrategy
) -> CausalModel:
    """One causal model of whole graphs, one instance each."""
    row = [torch.zeros(1, dtype=torch.long, device=target.device)] * len(graphs)
    classes = [target[n : n + 1] for n in range(len(graphs))]
    causal = CausalModel(model, outcome, pack_graphs(graphs, Role.GRAPH, row, classes), strategy)
    if strategy.batched and strategy.planned:
        causal.make_remover = remover_of_graphs(model, outcome)
    return causal


def causal_models_of_graphs(
    model: nn.Module,
    outcome: Outcome,
    graphs: Sequence[ModelInputs],
    output: Tensor,
    target: Tensor,
    edges: bool,
    nodes: bool,
    strategies: Sequence[RunStrategy] = GRAPH_STRATEGIES,
) -> CausalModels:
    """Causal models that together hold all graphs, one instance each, with the numbers of their instances.

    Args:
        model, outcome: the model, borrowed, and how its output is read.
        graphs: B graphs.
        output: the model's output for each alone, [B, C].
        target: class of each, [B].
        edges, nodes: what will be masked.
        strategies: strategies to try, fastest first.
    """
    number = torch.arange(len(graphs), device=target.device)

    def pack(some: Tensor, strategy: RunStrategy) -> CausalModel:
        return pack_causal_model(model, outcome, [graphs[n] for n in some.tolist()], target[some], strategy)

    def is_exact(strategy: RunStrategy) -> bool:
        """Whether a few graphs together give, in random worlds, what each gives alone."""
        few = number[:3]
        alone = [pack(few[b : b + 1], PLAIN) for b in range(few.numel())]
        weights = [random_weights(one.instances, edges, nodes) for one in alone]
        together = {name: torch.cat([w[name] for w in weights], 1) for name in weights[0]}
        expected = torch.cat([one.output(w) for one, w in zip(alone, weights, strict=True)], 1)
        return bool(outcome.agree(pack(few, strategy).output(together), expected).all())

    remaining = number
    if can_pack(graphs):
        for strategy in strategies:
            try:
                with torch.no_grad():
                    causal = pack(number, strategy)
                    if not is_exact(strategy) or (strategy.constants and not _constants_hold(causal, edges, nodes)):
                        continue
                    good = outcome.agree(causal.output()[0], output)
                if edges:
                    causal.require_edge_identity()
            except Exception as error:  # a model may raise anything on a graph that is not its own
                raise_own_fault(error)
                continue
            if bool(good.any()):
                yield number[good], causal.select(number[good])
            remaining = number[~good]
            break
    for n in remaining.tolist():  # as a call for this graph alone would do it, so that the answer is the same
        graph = TracedGraph(model, outcome, graphs[n], edges, nodes)
        row = torch.zeros(1, dtype=torch.long, device=target.device)
        ((_, causal),) = graph.causal_models(graph.cuts(row, row, target[n : n + 1]))
        yield number[n : n + 1], causal


def _constants_hold(causal: CausalModel, edges: bool, nodes: bool) -> bool:
    """Whether the values that layers seem to derive from the graphs alone stay in random worlds of all graphs."""
    plain = CausalModel(causal.model, causal.outcome, causal.instances, UNTRACED)
    return edge_values_are_constant(plain, causal.calls, random_weights(causal.instances, edges, nodes))
