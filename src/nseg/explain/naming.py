"""Names on explanations: checked before the work, put on the results after it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explanation

from nseg.errors import NsegError
from nseg.explain.jobs import ExplainJob
from nseg.graphs.large import LargeGraph
from nseg.model.borrow import borrow, wrap_model_errors
from nseg.model.hooks import call_model
from nseg.names import NamedData


def check_names(job: ExplainJob, names: NamedData, rows: Sequence[int]) -> None:
    """Raise if names do not fit the explained graphs or the model's classes, before anything is computed.

    The classes of a large graph's model are not known yet; a class without a name is shown by its number.

    Args:
        job: what explains.
        names: what was given.
        rows: numbers of the explained outputs.
    """
    for row in rows if names.several else rows[:1]:
        names.graph(row)
    first = names.graph(rows[0])
    if not first.classes or isinstance(job.data, LargeGraph):
        return
    single = isinstance(job.data, Data | HeteroData)
    graph, kwargs = (job.data, job.kwargs) if single else (job.data[rows[0]], {})
    try:
        with torch.no_grad(), borrow(job.model), wrap_model_errors():
            number = job.outcome.num_classes(call_model(job.network, job.model_inputs(graph, kwargs), job.outcome))
    except NsegError:  # what is wrong with the model or the data is said where it is explained
        return
    first.check_classes(number)


def with_names(one: Explanation, names: NamedData) -> Explanation:
    """An explanation that knows the names of its graph."""
    found = names.graph(int(one.output_id))
    if found:
        one.names = found
    return one
