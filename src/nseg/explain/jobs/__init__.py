"""How shards of targets are explained: one kind of job per kind of data."""

from __future__ import annotations

import warnings
from typing import Any

from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.explain import Explainer
from torch_geometric.explain.config import ModelTaskLevel

from nseg.errors import InputError, NsegWarning
from nseg.explain.jobs.base import BUDGET, ExplainJob, Shard
from nseg.explain.jobs.hetero import HeteroGraphJob, HeteroGraphsJob
from nseg.explain.jobs.known_data import complete_outcome
from nseg.explain.jobs.large_graph import LargeGraphJob
from nseg.explain.jobs.large_hetero import LargeHeteroJob
from nseg.explain.jobs.many_graphs import ManyGraphsJob
from nseg.explain.jobs.one_graph import OneGraphJob
from nseg.graphs.large import LargeGraph
from nseg.graphs.model_checks import check_arguments, check_model
from nseg.graphs.separate import separate_graphs
from nseg.model.borrow import unwrap_compiled
from nseg.names import ARGUMENTS

__all__ = ["BUDGET", "ExplainJob", "Shard", "make_job"]


OPTIONS = ("index", "target", "budget", "progress", "out", "strict", "backend", "workers", "shard", *ARGUMENTS)
"""Options of :func:`nseg.explain_many`, one of which a misspelt keyword may have meant."""


def make_job(
    explainer: Explainer, data: Any, target: Any, budget: int, kwargs: dict[str, Any], strict: bool = True
) -> ExplainJob:
    """The job for a kind of data.

    Args:
        explainer, data, target, budget, kwargs: as :func:`nseg.explain_many` takes them.
        strict: raise if a target cannot be explained; else its explanation says why.
    """
    if not isinstance(explainer, Explainer):
        raise InputError(
            f"explainer must be an Explainer of PyG or nseg (got {type(explainer).__name__}). "
            + ("Were explainer and data swapped?" if isinstance(data, Explainer) else "Make one for the model.")
        )
    note = check_arguments(unwrap_compiled(explainer.model), kwargs, OPTIONS)
    check_model(unwrap_compiled(explainer.model))
    if note is not None:
        warnings.warn(note, NsegWarning, stacklevel=3)
    level = explainer.model_config.task_level
    one = Data | HeteroData | LargeGraph
    if not isinstance(data, one) or (isinstance(data, Batch) and level is ModelTaskLevel.graph):
        data = separate_graphs(data)
    if isinstance(data, one) == (level is ModelTaskLevel.graph):
        raise InputError(
            "explain_many at graph level needs a sequence of graphs (got one graph). Put it in a list."
            if isinstance(data, one)
            else f"explain_many at {level.value} level needs one graph (got a sequence). Call it once per graph."
        )
    kinds = {Data: OneGraphJob, HeteroData: HeteroGraphJob, LargeGraph: LargeGraphJob}
    kind = next((job for base, job in kinds.items() if isinstance(data, base)), None)
    if kind is None:
        kind = HeteroGraphsJob if len(data) and isinstance(data[0], HeteroData) else ManyGraphsJob
    elif kind is LargeGraphJob and data.types is not None:
        kind = LargeHeteroJob
    job = kind(explainer, data, target, budget, kwargs, strict)
    complete_outcome(job)
    return job
