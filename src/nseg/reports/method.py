"""The explanations of one method, and the model's answers about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain import Explainer, Explanation
from torch_geometric.explain.config import MaskType

from nseg.events import Event
from nseg.explanation import ATTRIBUTE_MASK, on_cpu
from nseg.metrics.certificate import Certificate
from nseg.metrics.fidelity import Evaluator
from nseg.model.outcomes import outcome_of
from nseg.reports.explained_data import ExplainedData
from nseg.reports.ranking import Ranking, WorldOutcomes, evaluate_rankings, evaluate_worlds
from nseg.wording import Findings, ModelAnswer, findings_of, node_mask_type, reached_edges


@dataclass(frozen=True)
class Method:
    """The explanations of one method, and the model's answers about them.

    Args:
        name: name of the method.
        explanations: its explanations.
        position_of: position in ``explanations`` of each output id.
        certificates: one for each explanation, if there are any.
        evaluator: runs the model; None for a report without a model.
        worlds: the model's answers in the worlds of the hard explanations.
        rankings: the model's answers along each ranking.
    """

    name: str
    explanations: list[Explanation]
    position_of: dict[int, int]
    certificates: Sequence[Certificate] | None = None
    evaluator: Evaluator | None = None
    worlds: WorldOutcomes | None = None
    rankings: list[Ranking] | None = None

    @cached_property
    def edges(self) -> bool:
        """Whether edges are masked."""
        return self.explanations[0].get("edge_mask") is not None

    @property
    def nodes(self) -> bool:
        """Whether nodes or their features are masked."""
        return self.node_mask is not None

    @cached_property
    def node_mask(self) -> MaskType | None:
        """What the node masks are of: nodes, features of nodes, or features of all nodes; None without node masks.

        A graph of one node does not tell the last two apart, so a larger one decides.
        """
        largest = max(self.explanations, key=lambda one: int(one.num_nodes or 0))
        return node_mask_type(largest)

    @property
    def event(self) -> Event | None:
        """The explained event, if it is not simply the class."""
        found: Event | None = self.explanations[0].get("outcome")
        return found

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the explainer."""
        return dict(self.explanations[0].get("settings") or {})

    @property
    def split(self) -> tuple[float, ...]:
        """Probability of each sub-event of the complement."""
        return tuple(self.settings.get("split", (1 / 3,) * 3)) if self.edges and self.nodes else (1.0,)

    def reached(self, position: int) -> Tensor:
        """Mask of an explanation's edges whose messages can reach the output, [E]."""
        if self.evaluator is not None:
            return self.evaluator.reached[position].cpu()
        return reached_edges(self.explanations[position])

    @cached_property
    def _predictions(self) -> list[tuple[int, float]] | None:
        """The predicted class (or whether the event happens) and the probability of the explained one, from the model."""
        if self.evaluator is None:
            return None
        output = self.evaluator.output
        answers, p = self.evaluator.answers(output), self.evaluator.probability(output)
        return list(zip(answers.tolist(), p.tolist(), strict=True))

    @cached_property
    def node_predictions(self) -> Tensor | None:
        """Predicted class of each node of the explained graph; None without a model, or if nodes have no classes."""
        if self.evaluator is None or self.evaluator.explainer.model_config.task_level.value != "node":
            return None
        if self.event is not None:
            return None
        graph = getattr(self.evaluator.source, "graph", None)
        return None if graph is None else self.evaluator.outcome.predicted(graph.output).cpu().flatten()

    def findings(self, position: int, target: int) -> Findings:
        """What the model says about an explained output, with the explanation and without it."""
        explanation = self.explanations[position]
        label, p = self.prediction(position, target)
        found = Findings(target, ModelAnswer(p, label))
        if self.worlds is not None:
            alone, without = self.worlds.answer(0, position), self.worlds.answer(1, position)
            if len(self.split) > 1 and explanation.get("p_complement") is not None:  # a mean of three worlds
                without = replace(without, p=explanation.p_complement)
            found = replace(found, alone=alone, without=without)
        else:
            alone, without = (ModelAnswer(explanation.get(name)) for name in ("p_factual", "p_complement"))
            found = replace(found, alone=alone, without=without)
        if self.rankings is not None:
            first = self.rankings[position]
            found = replace(found, empty=ModelAnswer(float(first.p[0, 0]), int(first.label[0, 0])))
        return findings_of(explanation, found)

    def prediction(self, position: int, target: int) -> tuple[int | None, float | None]:
        """The predicted class and the probability of the explained class, if known."""
        if self._predictions is not None:
            return self._predictions[position]
        explanation = self.explanations[position]
        config, output = getattr(explanation, "_model_config", None), explanation.get("prediction")
        if config is None or output is None or target < 0 or self.event is not None:
            return None, None
        index = explanation.get("index")
        output = output[:1] if index is None else output[index].view(1, *output.shape[1:])
        outcome = outcome_of(config)
        return int(outcome.predicted(output)), float(outcome.probability(output, torch.tensor([target])))


def evaluate_method(
    name: str,
    explanations: list[Explanation],
    explained: ExplainedData,
    explainer: Explainer | None,
    certificates: Sequence[Certificate] | None = None,
) -> Method:
    """The explanations of one method, evaluated with the model if an explainer and graphs are given."""
    position_of = {int(one.output_id): b for b, one in enumerate(explanations)}
    drawn = [on_cpu(one) for one in explanations]  # a page is made on the CPU; only the evaluator needs the model's device
    of_attributes = any(one.get(ATTRIBUTE_MASK) is not None for one in explanations)  # which metrics do not know
    if explainer is None or explained.graphs is None or of_attributes:
        return Method(name, drawn, position_of, certificates)
    evaluator = Evaluator(explainer, explained.graphs, [one.__dict__.get("_by_type", one) for one in explanations])
    worlds = evaluate_worlds(evaluator, evaluator.masks("hard"))
    return Method(name, drawn, position_of, certificates, evaluator, worlds, evaluate_rankings(evaluator))
