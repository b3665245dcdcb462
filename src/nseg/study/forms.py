"""Every method in three forms: as published, hardened as NSEG is, and cut to NSEG's size.

All forms of a trial are of the same run and of the same soft masks. NSEG improves its hard explanations by moves and
enumeration, which others do not, so a table of hard explanations alone compares two things at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain import Explanation

from nseg.baselines import make as make_method
from nseg.explain.explainer import Explainer
from nseg.explain.many import explain_many, open_causal_models
from nseg.explanation import copy_explanation
from nseg.metrics import Evaluator, accuracy, charact
from nseg.metrics.budget import elements, highest
from nseg.metrics.masks import JoinedMasks
from nseg.model.borrow import borrow, one_thread
from nseg.search.harden import SearchResult, harden
from nseg.search.parts import EDGES, Masks
from nseg.search.settings import BaseSettings
from nseg.study.plan import AS_IN_THE_PAPER
from nseg.study.task import ExplanationTask, load_task

FORMS = PUBLISHED, HARDENED, EQUAL = ("as published", "hardened", "equal size")
JUDGED = ("mask", "remove")
"""What hard explanations are searched and judged under."""

ABOUT = 50
"""Instances of each trial whose forms are measured, evenly over all; up to twice as many where there are fewer than that."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Cost:
    """Processor milliseconds of a method, for one instance.

    Subgraphs, numbers and checks are the same work for every method, and left out.

    Args:
        ranking: of training, shared by all instances, and of scoring.
        cut: of making hard explanations of the scores, as the method does by itself.
    """

    ranking: float
    cut: float

    @property
    def published(self) -> float:
        """Of all that the method does by itself."""
        return self.ranking + self.cut


def measure_cost(explainer: Explainer, graphs: Any, index: Sequence[int], sample: Sequence[int]) -> Cost:
    """What a method takes: it is trained for all instances, if it has to be, and explains a sample of them once more."""
    algorithm, clock = explainer.algorithm, time.process_time
    began = clock()
    if hasattr(algorithm, "fit"):
        algorithm.fit(explainer, graphs, list(index), progress=False)
    training, scoring, cutting = clock() - began, 0.0, 0.0
    with open_causal_models(explainer, graphs, list(sample)) as models:
        for _, causal in models:
            parts, began = algorithm.parts(causal.instances), clock()
            result = algorithm.solve(causal, parts, lambda: None)
            scored = clock()
            harden(causal, parts, result, algorithm.settings)
            scoring, cutting = scoring + scored - began, cutting + clock() - scored
    return Cost(1000 * (training / len(index) + scoring / len(sample)), 1000 * cutting / len(sample))


def spread(found: Sequence[Any]) -> Sequence[Any]:
    """About :data:`ABOUT` of some things, evenly over all.

    >>> len(spread(range(400))), len(spread(range(99))), len(spread(range(7)))
    (50, 99, 7)
    """
    return found[:: max(1, len(found) // ABOUT)]


def measure_forms(
    place: tuple[str, str, str], explainer: Explainer, found: Sequence[Explanation], cost: Cost, ours: str | None
) -> list[Row]:
    """A row for each form of a run and each intervention.

    Args:
        place: names of dataset, architecture and network.
        explainer: who explained, edges only.
        found: explanations of some instances.
        cost: what the method takes.
        ours: of NSEG's own explanations, which are hardened already and set the size, what they were searched under.
    """
    task = load_task(*place)
    published = Evaluator(explainer, task.graphs, found)
    own: list[Tensor] = [one.hard_edge_mask for one in found]
    if ours is not None:
        return [_row(task, published, own, HARDENED, ours, cost.published)]
    rows = [_row(task, published, own, PUBLISHED, judged, cost.published) for judged in JUDGED]
    single = [edge_by_edge(one) for one in found]
    evaluator, index = Evaluator(explainer, task.graphs, single), tuple(int(one.output_id) for one in found)
    for judged in JUDGED:
        began = time.process_time()
        better = hardened_masks(evaluator, nseg_settings(judged))
        took = 1000 * (time.process_time() - began) / len(found)
        rows.append(_row(task, evaluator, better, HARDENED, judged, cost.ranking + took))
        cut = [top(one, size) for one, size in zip(single, nseg_sizes(place, index, judged), strict=True)]
        rows.append(_row(task, evaluator, cut, EQUAL, judged, cost.ranking))
    return rows


def edge_by_edge(one: Explanation) -> Explanation:
    """The same explanation, but each direction of an edge is one of its own, as NSEG treats it in studies."""
    copy = copy_explanation(one)
    copy.settings = {**one.settings, "undirected": False}
    return copy


def nseg_settings(intervention: str) -> BaseSettings:
    """The settings of NSEG in studies, under an intervention."""
    settings: BaseSettings = make_method("nseg", **{**AS_IN_THE_PAPER, "intervention": intervention}).settings
    return settings


def hardened_masks(evaluator: Evaluator, settings: BaseSettings) -> list[Tensor]:
    """Hard edge masks that the search of some settings makes of the soft masks of explanations, [E] each."""
    soft = evaluator.masks("soft")
    joined = torch.zeros_like(soft.joined[EDGES], dtype=torch.bool)
    with torch.inference_mode(False), torch.enable_grad(), borrow(evaluator.model), one_thread():
        for group in evaluator.groups:
            ranking = Masks({EDGES: group.pack(soft)[EDGES].to(group.causal.dtype)})
            hard, _ = harden(group.causal, group.parts, SearchResult(ranking), settings)
            inside = group.edge_at >= 0
            joined[group.edge_at[inside]] = hard[EDGES][inside]
    return list(torch.split(joined, soft.rows[EDGES]))


def top(one: Explanation, size: int) -> Tensor:
    """The ``size`` edges that an explanation ranks highest, [E]; of equal ones the first."""
    return highest(one, elements(one), size, hard_first=False)


@cache
def nseg_sizes(place: tuple[str, str, str], index: tuple[int, ...], intervention: str) -> list[int]:
    """Number of edges that NSEG keeps of each of some instances."""
    task = load_task(*place)
    algorithm = make_method("nseg", **{**AS_IN_THE_PAPER, "intervention": intervention})
    found = explain_many(task.explainer(algorithm, "e"), task.graphs, list(index), progress=False)
    return [int(one.hard_edge_mask.sum()) for one in found]


def _row(
    task: ExplanationTask, evaluator: Evaluator, hard: Sequence[Tensor], form: str, judged: str, milliseconds: float
) -> Row:
    """Scores of hard masks, means over the instances; None where no instance has one."""
    dtype = evaluator.output.dtype
    each = evaluator.each_of(JoinedMasks.of([Masks({EDGES: mask.to(dtype)}) for mask in hard]), judged)
    plus, minus = each.changed_without.mean(), each.changed_with.mean()
    changed = [copy_explanation(one) for one in evaluator.explanations]
    for one, mask in zip(changed, hard, strict=True):
        one.hard_edge_mask = mask
    truth = accuracy(task.bench, changed)
    means = {"pns": each.pns.mean(), "fid_plus": plus, "fid_minus": minus, "charact": charact(plus, minus)}
    means |= {"sparsity": each.sparsity.mean(), "precision": truth.precision.nanmean(), "f1": truth.f1.nanmean()}
    means["kept"] = torch.stack([mask.sum() for mask in hard]).double().mean()
    found = {name: None if bool(value.isnan()) else round(float(value), 5) for name, value in means.items()}
    return {"form": form, "judged": judged, "instances": len(hard), **found, "cpu_ms": round(milliseconds, 3)}
