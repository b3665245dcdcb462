"""NSEG inside PyTorch Geometric: translation only."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.explain import ExplainerAlgorithm
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.explain.config import MaskType, ModelMode, ModelReturnType, ModelTaskLevel

from nseg import objective as obj
from nseg.errors import InputError, ModelError, NsegError, SettingsError, UnsupportedError
from nseg.explanation import Explanation
from nseg.extract import harden, towards
from nseg.instances import Instances, Role, opposite
from nseg.presets import PAPER
from nseg.scm import Scm, borrowed, uncompiled
from nseg.search import Settings, Solution, Tick, search
from nseg.settings import Common
from nseg.source import Source, checked_inputs, in_words
from nseg.space import Masks, Space, evaluate


@dataclass(frozen=True)
class Answer:
    """Explanations of B instances, on the edges and nodes of ``instances``.

    Args:
        instances: what was explained.
        edge, hard_edge: soft and hard edge masks, [E].
        node, hard_node: soft and hard node masks, [N, w], or [B, F] for common attributes.
        soft: p_factual and p_complement of the soft masks, [2, B].
        hard: the same of the hard masks, [2, B].
        exact: whether each hard mask is the best there is, by enumeration, [B].
        common: whether node masks are of features common to all nodes.
    """

    instances: Instances
    edge: Tensor | None
    hard_edge: Tensor | None
    node: Tensor | None
    hard_node: Tensor | None
    soft: Tensor
    hard: Tensor
    exact: Tensor
    common: bool = False


class BatchedAlgorithm(ExplainerAlgorithm):  # type: ignore[misc]
    """An explainer that answers many instances at once; :func:`nseg.explain_many` needs nothing else of it.

    A method says what its settings are and how it scores elements (:meth:`solve`); how a hard explanation is made of the
    scores and what it is worth is the same for all.
    """

    Settings: ClassVar[type[Common]]

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings: Any = self.Settings(**settings)

    @abstractmethod
    def solve(self, scm: Scm, space: Space, tick: Tick) -> Solution:
        """Score the elements of all instances of ``scm``; ``tick`` is called :attr:`ticks` times."""

    @property
    def ticks(self) -> int:
        """How often :meth:`solve` reports progress."""
        return max(int(getattr(self.settings, "steps", 1)), 1)

    def worlds(self, space: Space) -> int:
        """How many worlds :meth:`solve` runs at once with a gradient."""
        return 1

    def answer(self, scm: Scm, space: Space, tick: Tick = lambda: None) -> Answer:
        """Explain all instances of ``scm``."""
        solution = self.solve(scm, space, tick)
        hard, exact = harden(scm, space, solution, self.settings)
        split = space.split(self.settings)
        soft = solution.soft
        (soft_edge, _), (hard_edge, _) = (space.weights(Masks(m.edge, None)) for m in (soft, hard))
        both = torch.cat(
            [torch.cat(evaluate(scm, space, m.map(lambda v: v.unsqueeze(0).to(scm.dtype)), split)) for m in (soft, hard)]
        )
        return Answer(
            instances=scm.instances,
            edge=soft_edge,
            hard_edge=hard_edge,
            node=soft.node,
            hard_node=hard.node,
            soft=both[:2],
            hard=both[2:],
            exact=exact,
            common=space.nodes is MaskType.common_attributes,
        )

    def space(self, instances: Instances) -> Space:
        """The elements of the masks that the connected :class:`Explainer` asks for."""
        config = self.explainer_config
        return Space(instances, config.edge_mask_type is not None, config.node_mask_type, self.settings.undirected)

    def forward(
        self, model: torch.nn.Module, x: Tensor, edge_index: Tensor, *, target: Tensor, index: Any = None, **kwargs: Any
    ) -> Explanation:
        """Explain the outputs ``index`` by one common mask; called by PyG's ``Explainer``."""
        model = uncompiled(model)
        with torch.inference_mode(False), torch.enable_grad(), borrowed(model):
            inputs = checked_inputs(model, x, edge_index, kwargs, self.model_config.task_level)
            source = Source(model, self.model_config, inputs, *self.masks)
            row = source.rows(index)
            ((_, scm),) = source.scms(row, torch.zeros_like(row), source.targets(target, row))
            scm.require_dependence(*self.masks)
            answer = self.answer(scm, self.space(scm.instances))
        edges = torch.arange(inputs.num_edges, device=row.device)
        nodes = torch.arange(inputs.num_nodes, device=row.device)
        return explanation(answer, 0, inputs.edge_index, edges, nodes, self.settings)

    @property
    def masks(self) -> tuple[bool, bool]:
        """Whether edges and whether nodes are masked."""
        return self.explainer_config.edge_mask_type is not None, self.explainer_config.node_mask_type is not None

    def supports(self) -> bool:
        """Classification at any level, every mask type of PyG; anything else is refused with the reason."""
        if self.model_config.mode is ModelMode.regression:
            raise UnsupportedError(
                f"{type(self).__name__} explains the probability of a class, which a regression model does not have. "
                "Use mode='binary_classification' or 'multiclass_classification', e.g. on a thresholded output."
            )
        return True

    def __repr__(self) -> str:
        plain = {f.name: f.default for f in fields(self.settings)}
        changed = {k: v for k, v in vars(self.settings).items() if v != plain[k] or k == "objective"}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in changed.items())})"


class NSEG(BatchedAlgorithm):
    r"""Necessary and sufficient explanations: masks that maximise a lower bound of the PNS (Eq. 18).

    .. math::
        \max_{M}\; p_\xi(M) - p_{\xi^c}(M) - \alpha \|M\|_1 - \beta\, \overline{H}(M)

    A mask near 1 says: keep this edge (or node) and the prediction stays, take it away and the prediction goes. The
    ``Explainer`` chooses what is masked: edges (e), nodes (f), or both jointly (e,f).

    Args:
        objective: ``"pns"``, ``"pn"`` (necessity only) or ``"ps"`` (sufficiency only).
        **settings: any field of :class:`nseg.Settings`; a misspelt one is a ``TypeError``.

    Reference: Cai et al., *On the Probability of Necessity and Sufficiency of Explaining Graph Neural Networks: A Lower
    Bound Optimization Approach*. Cost: per step a forward and backward pass over 2 worlds (edges or nodes) or 4 (both) of
    the computation graph, times ``starts``; then forward passes for the hard explanation, about as much again and more for
    large graphs.

    Deviations from the paper, all of them settings (:meth:`paper` has none of them): logarithms of probabilities are
    climbed, whose gradient does not die for confident models; from several starts; the best masks met are kept, and an
    instance that gets no further leaves; size is a preference among masks within ``tolerance`` of the best bound; and the
    hard explanation is not a cut at 0.5, but the best prefix of the ranking, improved by single moves, or the best of all
    subsets where there are few.

    >>> NSEG(objective="ps", steps=200)
    NSEG(objective='ps', steps=200)
    """

    Settings = Settings

    def __init__(self, objective: str = "pns", **settings: Any) -> None:
        super().__init__(objective=objective, **settings)

    @classmethod
    def paper(cls, dataset: str, masks: str = "e", **changes: Any) -> NSEG:
        """The paper's settings for a dataset and mask, e.g. ``NSEG.paper("tree-grid", "ef")``.

        Args:
            dataset: ba-shapes, tree-cycles, tree-grid, ba-2motif, mutagenicity or msrc-21.
            masks: ``"e"`` for edges, ``"ef"`` for edges and nodes jointly.
            **changes: settings to change, such as ``objective="pn"`` or ``seed=3``.
        """
        if (dataset, masks) not in PAPER:
            known = ", ".join(sorted({f"{d} ({m})" for d, m in PAPER}))
            raise SettingsError(f"The paper has no settings for {dataset!r} with masks {masks!r}. Known: {known}.")
        return cls(**{**PAPER[dataset, masks], **changes})

    def solve(self, scm: Scm, space: Space, tick: Tick) -> Solution:
        found = search(scm, space, self.settings, tick)
        if self.settings.keep == "last" or self.settings.extract != "prefix":
            return found
        hard, exact = harden(scm, space, found, self.settings)
        return replace(found, soft=towards(scm, space, found.soft, hard, self.settings), hard=hard, exact=exact)

    def worlds(self, space: Space) -> int:
        return len(self.settings.starts) * (1 + len(space.events) * int(self.settings.samples))


def explanation(
    answer: Answer, number: int, edge_index: Tensor, edge_id: Tensor, node_id: Tensor, settings: Common
) -> Explanation:
    """One instance's explanation on a graph that holds it; 0 where the search did not go.

    Args:
        answer: answers to several instances.
        number: which of them.
        edge_index: the graph, [2, E].
        edge_id, node_id: the caller's numbers of its edges and nodes, sorted.
        settings: what made the answer.
    """
    instances = answer.instances
    edges, nodes = instances.members(Role.EDGE, number), instances.members(Role.NODE, number)
    edge_at = torch.searchsorted(edge_id, instances.edge_id[edges])
    node_at = torch.searchsorted(node_id, instances.node_id[nodes])
    way_back = opposite(edge_index, node_id.numel()) if settings.undirected else None

    def on_edges(mask: Tensor | None) -> Tensor | None:
        if mask is None:
            return None
        full = mask.new_zeros(edge_id.numel()).index_copy(0, edge_at, mask[edges])
        return full if way_back is None else torch.maximum(full, full[way_back])  # also where no message comes back

    def on_nodes(mask: Tensor | None) -> Tensor | None:
        if mask is None or answer.common:
            return None if mask is None else mask[number : number + 1].clone()
        return mask.new_zeros(node_id.numel(), mask.size(1)).index_copy(0, node_at, mask[nodes])

    p_factual, p_complement = answer.hard[:, number]
    soft_factual, soft_complement = answer.soft[:, number]
    found = Explanation(node_mask=on_nodes(answer.node), edge_mask=on_edges(answer.edge))
    reached = torch.zeros(edge_id.numel(), dtype=torch.bool, device=edge_id.device)
    reached[edge_at] = True
    fields = {
        "reached": reached,
        "hard_node_mask": on_nodes(answer.hard_node),
        "hard_edge_mask": on_edges(answer.hard_edge),
        "p_factual": float(p_factual),
        "p_complement": float(p_complement),
        "pns": float(obj.pns_bound(p_factual, p_complement)),
        "pn": float(obj.pn_bound(p_factual, p_complement)),
        "ps": float(obj.ps_bound(p_factual, p_complement)),
        "soft_p_factual": float(soft_factual),
        "soft_p_complement": float(soft_complement),
        "exact": bool(answer.exact[number]),
        "seed": settings.seed,
        "settings": settings.as_plain_data(),
    }
    for name, value in fields.items():
        if value is not None:
            found[name] = value
    return found


def _names(kind: Any) -> str:
    return ", ".join(one.value for one in kind)


class Explainer(PyGExplainer):  # type: ignore[misc]
    """PyG's ``Explainer``, that looks at its input first and gives the model back as it was when something raises.

    PyG's own leaves the model in evaluation mode, and perhaps masked, if the model or an algorithm fails.
    """

    def __init__(self, model: nn.Module, algorithm: ExplainerAlgorithm, *args: Any, **kwargs: Any) -> None:
        for value, kind in ((model, nn.Module), (algorithm, ExplainerAlgorithm)):
            if not isinstance(value, kind):
                raise InputError(
                    f"Explainer(model, algorithm, ...) needs a {kind.__name__} there (got {type(value).__name__}). "
                    "Begin so: Explainer(model, NSEG(), ...)."
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
        checked_inputs(self.model, x, edge_index, kwargs, self.model_config.task_level)
        with borrowed(self.model):
            return super().__call__(x, edge_index, target=target, index=index, **kwargs)

    def get_prediction(self, *args: Any, **kwargs: Any) -> Tensor:
        """What the model says; a sentence if it fails."""
        with in_words():
            output: Tensor = super().get_prediction(*args, **kwargs)
        if not isinstance(output, Tensor):
            raise ModelError(f"The model must return one tensor (got {type(output).__name__}). Wrap it so that it does.")
        return output
