"""What ``nseg`` returns: PyG's ``Explanation``, that shows itself in a notebook."""

from __future__ import annotations

import torch
from torch_geometric.explain import Explanation as PyGExplanation

from nseg.errors import InputError


class Explanation(PyGExplanation):  # type: ignore[misc]
    """PyG's ``Explanation``; a notebook draws it."""

    def _repr_html_(self) -> str:
        from nseg.plot.notebook import html

        return html(self)


def placed(one: PyGExplanation) -> PyGExplanation:
    """An explanation that says what it explains; one on the whole graph, as PyG's ``Explainer`` gives, is told so."""
    if "output_id" in one:
        return one
    index = one.get("index")
    if index is not None and torch.as_tensor(index).numel() != 1:
        raise InputError(
            f"Explanations must be of one output each (got one of {torch.as_tensor(index).numel()}). "
            "Explain them one by one with explain_many."
        )
    made = one.clone()
    made._model_args, made._model_config = one._model_args, one._model_config
    made.output_id = 0 if index is None else int(index)
    made.edge_id, made.node_id = torch.arange(one.edge_index.size(1)), torch.arange(one.x.size(0))
    return made
