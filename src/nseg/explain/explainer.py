"""PyG's ``Explainer`` with checks, which always gives the model back as it was."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor, nn
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.explain import ExplainerAlgorithm
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.explain.config import MaskType, ModelMode, ModelReturnType, ModelTaskLevel

from nseg.adjacency import is_matrix
from nseg.errors import InputError, ModelError, NsegError, NsegWarning
from nseg.graphs.checks import check_inputs
from nseg.graphs.hetero import flatten_graph, is_hetero
from nseg.graphs.model_checks import check_arguments, check_model
from nseg.model.borrow import borrow, unwrap_compiled, wrap_model_errors


def _names(kind: Any) -> str:
    return ", ".join(one.value for one in kind)


class Explainer(PyGExplainer):  # type: ignore[misc]
    """PyG's ``Explainer``, which checks its input first and restores the model if something raises.

    PyG's own leaves the model in evaluation mode, and perhaps masked, if the model or an algorithm fails.
    """

    def __init__(self, model: nn.Module, algorithm: ExplainerAlgorithm, *args: Any, **kwargs: Any) -> None:
        for value, kind in ((model, nn.Module), (algorithm, ExplainerAlgorithm)):
            if not isinstance(value, kind):
                raise InputError(
                    f"Explainer(model, algorithm, ...) must get a {kind.__name__} there (got {type(value).__name__}). "
                    "Try Explainer(model, NSEG(), ...)."
                )
        try:
            super().__init__(model, algorithm, *args, **kwargs)
        except NsegError:
            raise
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(
                f"The explainer's arguments must be ones that PyG knows (got: {error}). Modes are {_names(ModelMode)}, task "
                f"levels {_names(ModelTaskLevel)}, return types {_names(ModelReturnType)}, masks {_names(MaskType)}."
            ) from error

    def __call__(self, x: Any, edge_index: Any, *, target: Any = None, index: Any = None, **kwargs: Any) -> PyGExplanation:
        model = unwrap_compiled(self.model)
        note = check_arguments(model, kwargs, ("target", "index"))
        check_model(model)
        if note is not None:
            warnings.warn(note, NsegWarning, stacklevel=2)
        if is_hetero(x, edge_index):
            flatten_graph(model, x, edge_index, kwargs, self.model_config.task_level)  # checks them
            given = kwargs
        else:
            inputs = check_inputs(model, x, edge_index, kwargs, self.model_config.task_level)
            x, given = inputs.x, {name: inputs.kwargs[name] for name in kwargs}
            edge_index = edge_index if is_matrix(edge_index) else inputs.edge_index
        with borrow(model):
            return super().__call__(x, edge_index, target=target, index=index, **given)

    def get_prediction(self, *args: Any, **kwargs: Any) -> Tensor:
        """The model's output; what the model raises becomes a sentence."""
        with wrap_model_errors():
            output: Tensor = super().get_prediction(*args, **kwargs)
        if not isinstance(output, Tensor):
            raise ModelError(f"The model must return one tensor (got {type(output).__name__}). Wrap it so that it does.")
        return output
