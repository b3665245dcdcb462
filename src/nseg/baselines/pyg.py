"""Explainers that PyG ships, called instance by instance; hard explanations and numbers are made as for all methods."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import explain
from torch_geometric.explain import ExplainerAlgorithm
from torch_geometric.explain.config import ModelConfig
from torch_geometric.nn import MessagePassing

from nseg.baselines.scores import divide_by_highest, mean_of_directions
from nseg.errors import MissingError, UnsupportedError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.model.causal import CausalModel
from nseg.model.outcomes import Outcome
from nseg.search.descent import Tick
from nseg.search.harden import SearchResult
from nseg.search.noise import instance_keys
from nseg.search.parts import EDGES, MaskParts, Masks
from nseg.search.settings import BaseSettings, choice_field, integer_field, number_field


class PyGMethod(BatchedAlgorithm):
    """An explainer of PyG that scores edges.

    It sees a copy of the model and one instance at a time: what it leaves on the model or draws at random touches nothing
    else. Scores are the sizes of what it returns, divided by the highest of the instance.
    """

    @abstractmethod
    def algorithm(self, model: nn.Module) -> ExplainerAlgorithm:
        """PyG's explainer for a model."""

    def supports(self) -> bool:
        if self.explainer_config.node_mask_type is not None or self.explainer_config.edge_mask_type is None:
            raise UnsupportedError(
                f"{type(self).__name__} scores edges only (got another mask type). Use edge_mask_type='object', "
                "node_mask_type=None."
            )
        return super().supports()

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        if causal.instances.node_types > 1:
            raise UnsupportedError(f"{type(self).__name__} takes graphs of one type (got a heterogeneous one).")
        model, keys = deepcopy(causal.model), instance_keys(causal.instances, self.settings.seed).tolist()
        score = torch.zeros(causal.instances.num_edges, dtype=causal.dtype, device=causal.instances.x.device)
        for b, key in enumerate(keys):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(key % (1 << 63))
                score[causal.instances.edge_owner == b] = self._score(model, causal, b).to(score)
        tick()
        return SearchResult(divide_by_highest(parts, Masks({EDGES: mean_of_directions(parts.edges, score)})))

    def _score(self, model: nn.Module, causal: CausalModel, number: int) -> Tensor:
        """Size of the score of each edge of an instance."""
        inputs, row = causal.instances.single(number)
        if not inputs.num_edges:
            return causal.instances.x.new_zeros(0)
        wanted = causal.instances.target[causal.instances.row_owner == number]
        algorithm = self.algorithm(model)
        algorithm.connect(self.explainer_config, TWO_CLASSES)
        target = torch.ones(len(row), dtype=torch.long, device=row.device)
        event = _ExplainedEvent(model, causal.outcome, inputs.call_arguments()[1], row, wanted)
        found = algorithm(event, inputs.x, inputs.edge_index, target=target)
        size: Tensor = found.edge_mask.detach().abs()
        return size if size.dim() == 1 else size.mean(0)  # one row of scores per explained output


TWO_CLASSES = ModelConfig(mode="multiclass_classification", task_level="graph", return_type="probs")


class _ExplainedEvent(nn.Module):
    """The model as a classifier of two classes, so that PyG's explainers take any outcome at any level.

    Args:
        model: the network.
        outcome: how its output is read.
        arguments: the model's further arguments, by name.
        row: the explained rows, [R].
        target: their classes, [R].
    """

    def __init__(
        self, model: nn.Module, outcome: Outcome, arguments: Mapping[str, Any], row: Tensor, target: Tensor
    ) -> None:
        super().__init__()
        self.model, self.outcome, self.arguments, self.row, self.target = model, outcome, arguments, row, target

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Probability that the explained event does not happen, and that it does, [R, 2]."""
        output = self.outcome.as_rows(self.model(x, edge_index, **self.arguments))[self.row].unsqueeze(0)
        p = self.outcome.probability(output, self.target).squeeze(0)
        return torch.stack([1 - p, p], -1).clamp_min(torch.finfo(p.dtype).tiny)  # some take the logarithm


@dataclass(frozen=True, kw_only=True)
class AttentionSettings(BaseSettings):
    """Settings of attention, besides those of :class:`nseg.search.settings.BaseSettings`.

    Args:
        reduce: how the coefficients of layers and heads become one.
    """

    reduce: str = choice_field("max", ("max", "mean", "min", "sum"))


class Attention(PyGMethod):
    """The model's own attention: the largest coefficient over layers and heads (PyG's ``AttentionExplainer``).

    Only for models with attention layers such as ``GATConv``. What a layer attends to need not be what the prediction
    rests on. Reference: Velickovic et al., *Graph Attention Networks*, ICLR 2018. Cost: one forward pass per instance.

    >>> Attention(reduce="mean")
    Attention(reduce='mean')
    """

    Settings = AttentionSettings

    def algorithm(self, model: nn.Module) -> ExplainerAlgorithm:
        return explain.AttentionExplainer(self.settings.reduce)

    def _score(self, model: nn.Module, causal: CausalModel, number: int) -> Tensor:
        try:
            return super()._score(model, causal, number)
        except ValueError as error:
            raise UnsupportedError(
                f"Attention needs a model whose layers attend to edges, such as GATConv ({error}). Use another method."
            ) from error


@dataclass(frozen=True, kw_only=True)
class CaptumSettings(BaseSettings):
    """Settings of Captum, besides those of :class:`nseg.search.settings.BaseSettings`.

    Args:
        attribution: name of Captum's attribution method.
        samples: permutations of the edges that Shapley values are estimated from.
    """

    attribution: str = choice_field(
        "ShapleyValueSampling", ("ShapleyValueSampling", "IntegratedGradients", "Saliency", "InputXGradient")
    )
    samples: int = integer_field(25, 1)


class Captum(PyGMethod):
    """An attribution method of Captum on edge weights, by default Shapley values (PyG's ``CaptumExplainer``).

    Needs the extra ``captum``. Reference: Kokhlikyan et al., *Captum: A unified and generic model interpretability library
    for PyTorch*, 2020. Cost of Shapley values: 25 forward passes per edge.

    >>> Captum(attribution="Saliency")
    Captum(attribution='Saliency')
    """

    Settings = CaptumSettings

    def algorithm(self, model: nn.Module) -> ExplainerAlgorithm:
        try:
            drawn = {"n_samples": self.settings.samples} if self.settings.attribution == "ShapleyValueSampling" else {}
            return explain.CaptumExplainer(self.settings.attribution, **drawn)
        except ImportError as error:
            raise MissingError(
                'This method needs Captum (it is not installed). Install it: pip install "nseg[captum]".'
            ) from error


@dataclass(frozen=True, kw_only=True)
class GraphMaskSettings(BaseSettings):
    """Settings of GraphMask, besides those of :class:`nseg.search.settings.BaseSettings`.

    Args:
        epochs: steps for each layer of the model.
        lr: step size.
        penalty: price of an open gate, between 0 and 10.
    """

    epochs: int = integer_field(100, 1)
    lr: float = number_field(0.01)
    penalty: float = number_field(5.0)


class GraphMask(PyGMethod):
    """Gates that close the messages of each layer that the prediction can do without (PyG's ``GraphMaskExplainer``).

    The score of an edge is the mean of its gates over layers. Limit: PyG replaces every message by its normalised positive
    part before gates act, so what is explained is a relative of the model; messages of one number vanish. Reference:
    Schlichtkrull et al., *Interpreting Graph Neural Networks for NLP With Differentiable Edge Masking*, ICLR 2021.
    Cost: two forward passes and a gradient per epoch and layer, for each instance. Deviations: gates have the width of
    the messages that a layer really sends (PyG reads ``in_channels``, which a GINConv lacks), and self-loops that a layer
    adds have no gate in the mean.

    >>> GraphMask(epochs=10)
    GraphMask(epochs=10)
    """

    Settings = GraphMaskSettings

    def algorithm(self, model: nn.Module) -> ExplainerAlgorithm:
        layers = sum(isinstance(one, MessagePassing) for one in model.modules())
        return _GatesOfEdges(
            layers, self.settings.epochs, self.settings.lr, penalty_scaling=self.settings.penalty, log=False
        )

    def _score(self, model: nn.Module, causal: CausalModel, number: int) -> Tensor:
        usual = torch.get_default_dtype()
        try:
            torch.set_default_dtype(causal.dtype)  # that of the gates
            return super()._score(deepcopy(model), causal, number)  # PyG leaves its hooks on the layers
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            raise UnsupportedError(
                f"PyG's GraphMaskExplainer cannot take this model ({type(error).__name__}: {error}). Use another method."
            ) from error
        finally:
            torch.set_default_dtype(usual)


class _GatesOfEdges(explain.GraphMaskExplainer):  # type: ignore[misc]
    """PyG's explainer with gates of the right width, for layers that add self-loops too."""

    def _train_explainer(self, model: nn.Module, x: Tensor, edge_index: Tensor, **kwargs: Any) -> None:
        self.edges, hooks = edge_index.size(1), []

        def note_width(layer: MessagePassing, given: tuple[dict[str, Any]], messages: Tensor) -> None:
            layer.in_channels = layer.out_channels = messages.size(-1)
            if isinstance(given[0].get("x_j"), Tensor):
                layer.in_channels = given[0]["x_j"].size(-1)

        for layer in self._layers(model):
            layer.fuse = False  # a fused layer has no messages
            hooks.append(layer.register_message_forward_hook(note_width))
        with torch.no_grad():
            model(x, edge_index)
        for hook in hooks:
            hook.remove()
        super()._train_explainer(model, x, edge_index, **kwargs)

    def _explain(self, model: nn.Module, *, index: Any = None) -> Tensor:
        for layer in self._layers(model):
            for name in ("latest_messages", "latest_source_embeddings", "latest_target_embeddings"):
                setattr(layer, name, getattr(layer, name)[: self.edges])
        found: Tensor = super()._explain(model, index=index)
        return found

    @staticmethod
    def _layers(model: nn.Module) -> list[MessagePassing]:
        return [one for one in model.modules() if isinstance(one, MessagePassing)]
