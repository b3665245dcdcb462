"""Explanations judged with edges deleted from their graphs, instead of masked messages."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nseg.errors import InputError
from nseg.graphs.batch import pack_graphs
from nseg.graphs.inputs import ModelInputs, Role
from nseg.metrics.evaluator import WorldEvaluator
from nseg.metrics.masks import JoinedMasks
from nseg.metrics.trust import SAMPLE, ask, difference, sample_of, warn_slow
from nseg.model.borrow import borrow
from nseg.model.causal import CausalModel
from nseg.model.outcomes import Outcome
from nseg.model.slow_runs import raise_own_fault, raised
from nseg.model.strategy import PLAIN, UNTRACED, RunStrategy
from nseg.search.parts import EDGES

OUTPUT_ROLES = {"node": Role.NODE, "graph": Role.GRAPH, "edge": Role.PAIR}


@torch.no_grad()
def outputs_after_removal(evaluator: WorldEvaluator, masks: JoinedMasks) -> Tensor:
    """The model's output in the worlds of each mask, with edges deleted, [1 + A, B, ...]; masks must be hard.

    By the causal models of the search, where masks keep nothing out of their reach; else on wider subgraphs. Verified for
    all explanations if the masks are their own, and for a sample of them if not.
    """
    if not (evaluator.edges or evaluator.deletes_nodes):
        raise InputError("Only edges can be removed (got node masks only). Use intervention='mask'.")
    edges = masks.joined.get(EDGES)
    if edges is not None and bool(((edges > 0) & (edges < 1)).any()):
        raise InputError("Masks must be hard to remove edges (got soft ones). Use masks='hard' or a threshold.")
    with borrow(evaluator.model):
        own = all(torch.equal(masks.joined[name], own) for name, own in evaluator.default_masks.joined.items())
        groups = evaluator.groups if _in_reach(evaluator, masks) else evaluator.wide_groups()
        return ask(evaluator, lambda group: group.output_after_removal(masks, evaluator.tied), own, groups)


def _in_reach(evaluator: WorldEvaluator, masks: JoinedMasks) -> bool:
    """Whether all edges that masks keep are those of the causal models, which hold what can reach an output."""
    if not evaluator.edges or evaluator.tied:
        return True
    kept = int(masks.joined[EDGES].count_nonzero())  # masks are hard
    return kept == sum(int(group.pack(masks)[EDGES].count_nonzero()) for group in evaluator.groups)


def outputs_of_graphs(
    model: nn.Module, outcome: Outcome, graphs: Sequence[ModelInputs], rows: Sequence[Tensor], sample: int = SAMPLE
) -> Tensor:
    """A model's output for one row of each graph, in one batch if that is exact, [B, ...].

    Args:
        model, outcome: the model, borrowed, and how its output is read.
        graphs: arguments of the model.
        rows: explained row of each graph, [1] each.
        sample: number of graphs that are run alone too, to see whether the batch is exact.
    """
    role, zero = OUTPUT_ROLES[outcome.level.value], torch.zeros_like(rows[0])

    def run(some: slice, strategy: RunStrategy) -> Tensor:
        instances = pack_graphs(graphs[some], role, rows[some], [zero] * len(rows[some]))
        return CausalModel(model, outcome, instances, strategy).output()[0]

    few = sample_of(len(graphs), sample).tolist()
    alone = torch.cat([run(slice(n, n + 1), PLAIN) for n in few])
    try:
        together = run(slice(None), UNTRACED)
        if bool(outcome.agree(together[few], alone).all()):
            return together
        off = difference(together[few], alone)
        why = f"several graphs together give outputs that differ by up to {off:.2g} from those of each alone"
    except Exception as error:  # a model may raise anything on graphs that it does not expect together
        raise_own_fault(error)
        why = raised(error, "on several graphs together")
    warn_slow(model, why, f"{len(graphs)} graphs were therefore run one by one.")
    return torch.cat([run(slice(n, n + 1), PLAIN) for n in range(len(graphs))])
