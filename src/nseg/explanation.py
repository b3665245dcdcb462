"""What every explainer returns: PyG's ``Explanation``, shown as a picture in notebooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch_geometric.explain import Explanation as PyGExplanation

from nseg.errors import InputError


class Explanation(PyGExplanation):  # type: ignore[misc]
    """PyG's ``Explanation``, drawn by notebooks.

    Attributes:
        renderer: draws an explanation as HTML. The front door sets it, because drawing lives in a higher room.
    """

    renderer: ClassVar[Callable[[PyGExplanation], str] | None] = None

    def _repr_html_(self) -> str | None:
        return None if Explanation.renderer is None else Explanation.renderer(self)


def with_ids(one: PyGExplanation) -> PyGExplanation:
    """An explanation with ``output_id``, ``edge_id`` and ``node_id``.

    Those of :func:`nseg.explain_many` have them; one of PyG's ``Explainer`` covers the whole graph.
    """
    if "output_id" in one:
        return one
    index = one.get("index")
    if index is not None and torch.as_tensor(index).numel() != 1:
        raise InputError(
            f"Each explanation must be of one output (got one of {torch.as_tensor(index).numel()}). "
            "Explain them one by one with explain_many."
        )
    copy = copy_explanation(one)
    copy.output_id = 0 if index is None else int(index)
    copy.edge_id, copy.node_id = torch.arange(one.edge_index.size(1)), torch.arange(one.x.size(0))
    return copy


def copy_explanation(one: PyGExplanation) -> PyGExplanation:
    """A copy that keeps the model's configuration and arguments, which ``clone`` drops."""
    copy = one.clone()
    copy._model_args, copy._model_config = getattr(one, "_model_args", None), getattr(one, "_model_config", None)
    return copy
