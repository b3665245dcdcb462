"""Explainers that use the gradient of the class score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nseg.baselines.scores import divide_by_highest, element_scores, mean_of_endpoints, refuse_feature_masks
from nseg.errors import ModelError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.model.causal import CausalModel
from nseg.model.hooks import GuidedBackpropMode
from nseg.search.descent import Tick
from nseg.search.harden import SearchResult
from nseg.search.parts import MaskParts, Masks
from nseg.search.settings import BaseSettings, integer_field


def score_gradient(causal: CausalModel, parts: MaskParts, at: Tensor) -> Masks:
    """Gradient of the class score with respect to the elements, [K, n_e] and [K, n_n, w].

    Args:
        causal, parts: the instances and the parts of their masks.
        at: weight that all elements have in each of K worlds, [K].
    """
    leaves = Masks()
    for part in parts:
        values = at.view(-1, *[1] * len(part.shape)).expand(at.numel(), *part.shape)
        leaves[part.name] = values.clone().requires_grad_()
    total = causal.score(parts.to_weights(leaves)).sum()  # a sum, so that instances stay independent
    if not total.requires_grad:  # no message and no feature reaches the explained rows
        return leaves.map(torch.zeros_like)
    gradients = torch.autograd.grad(total, leaves.tensors, allow_unused=True, materialize_grads=True)
    return Masks(zip(leaves, gradients, strict=True))


def unmasked_world(causal: CausalModel) -> Tensor:
    """Weight 1, for the one world in which everything is kept, [1]."""
    return torch.ones(1, dtype=causal.dtype, device=causal.instances.x.device)


class Saliency(BatchedAlgorithm):
    r"""Absolute gradient of the class score with respect to the weight of each element.

    .. math::
        s_i = \left|\frac{\partial f^{\hat y}}{\partial m_i}\right|_{m = 1}

    :math:`m_i` is the weight of an edge's messages, or the factor of a node's features. The latter gives gradient times
    input, summed over the features that share the factor, so node scores do not depend on the unit of a feature and can be
    compared with edge scores. Scores are divided by the highest of the instance. The sign is lost: an edge that lowers the
    class score scores high too.

    Reference: Simonyan et al., *Deep Inside Convolutional Networks*, ICLR workshop 2014; for graphs Baldassarre and
    Azizpour, *Explainability Techniques for Graph Convolutional Networks*, ICML workshop 2019. Cost: one forward and
    backward pass. Deviation: nodes are scored by gradient times input; the original uses the gradient alone (which PyG's
    ``CaptumExplainer`` gives for each feature).

    >>> Saliency()
    Saliency()
    """

    Settings = BaseSettings

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        found = score_gradient(causal, parts, unmasked_world(causal)).map(lambda g: g[0].abs())
        tick()
        return SearchResult(divide_by_highest(parts, found))


@dataclass(frozen=True, kw_only=True)
class IntegratedGradientsSettings(BaseSettings):
    """Settings of integrated gradients, besides those of :class:`nseg.search.settings.BaseSettings`.

    Args:
        steps: points on the path from the empty to the full mask, all in one pass.
    """

    steps: int = integer_field(20, 1)


class IntegratedGradients(BatchedAlgorithm):
    r"""What each element adds to the class score on the path from the empty to the full mask.

    .. math::
        a_i = \int_0^1 \frac{\partial f^{\hat y}}{\partial m_i}(t, \dots, t)\, dt, \qquad
        \sum_i a_i = f^{\hat y}(1) - f^{\hat y}(0), \qquad s_i = \frac{\max(0, a_i)}{\max_j a_j}

    All masked elements (edges, nodes, or both) go from weight 0 to 1 together. A score is the element's share of the rise of
    the class score; elements that lower the class score get 0.

    Reference: Sundararajan et al., *Axiomatic Attribution for Deep Networks*, ICML 2017. Cost: one forward and backward pass
    over ``steps`` worlds. Deviations: the integral uses the Gauss-Legendre rule, exact for polynomials up to degree
    ``2 * steps - 1``, instead of an even grid; and negative attributions are cut off, because masks lie in [0, 1].

    >>> IntegratedGradients(steps=50)
    IntegratedGradients(steps=50)
    """

    Settings = IntegratedGradientsSettings

    @property
    def ticks(self) -> int:
        return 1

    def worlds(self, parts: MaskParts) -> int:
        return int(self.settings.steps)

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        found = attributions(causal, parts, self.settings.steps)
        tick()
        return SearchResult(divide_by_highest(parts, found.map(lambda a: a.clamp_min(0))))


def attributions(causal: CausalModel, parts: MaskParts, steps: int) -> Masks:
    """Signed integrated gradients of the elements, [n_e] and [n_n, w]; those of an instance sum to f(1) - f(0)."""
    points, weights = np.polynomial.legendre.leggauss(steps)  # on [-1, 1]
    one = unmasked_world(causal)
    at, share = one.new_tensor((points + 1) / 2), one.new_tensor(weights / 2)  # on [0, 1]
    return score_gradient(causal, parts, at).map(lambda g: torch.tensordot(share, g, 1))


class GuidedBackprop(BatchedAlgorithm):
    r"""Gradient of the class score along paths that only raise it.

    .. math::
        s_i = \max\left(0, \frac{\tilde\partial f^{\hat y}}{\partial m_i}\right), \qquad
        \tilde\partial\,\mathrm{ReLU}(z) = \mathbb{1}[z > 0]\, \max(0, \tilde\partial)

    The backward pass cuts negative gradients off at every ReLU, however it is called (``nn.ReLU``, ``F.relu``,
    ``torch.relu`` or a method, in place or not; Captum handles only the first). :math:`m_i` is the weight of an edge's
    messages or the factor of a node's features, as in :class:`Saliency`. Scores are divided by the highest of the instance.

    Reference: Springenberg et al., *Striving for Simplicity: The All Convolutional Net*, ICLR workshop 2015; for graphs
    Baldassarre and Azizpour, *Explainability Techniques for Graph Convolutional Networks*, ICML workshop 2019. Cost: one
    forward and backward pass. Deviations: nodes are scored by guided gradient times input, and edges are scored too; other
    activations than ReLU pass gradients unchanged.

    >>> GuidedBackprop()
    GuidedBackprop()
    """

    Settings = BaseSettings

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        with GuidedBackpropMode():
            found = score_gradient(causal, parts, unmasked_world(causal)).map(lambda g: g[0].clamp_min(0))
        tick()
        return SearchResult(divide_by_highest(parts, found))


class GradCAM(BatchedAlgorithm):
    r"""Hidden features of each node times the gradient of the class score.

    .. math::
        s_v = \frac1L \sum_{l=1}^{L} \max\Bigl(0, \sum_k \alpha^l_k H^l_{vk}\Bigr), \qquad
        \alpha^l_k = \frac1N \sum_v \frac{\partial f^{\hat y}}{\partial H^l_{vk}}

    with :math:`H^l` the output of message passing layer :math:`l`. The score is the mean over all layers (Grad-CAM Avg),
    because in the last layer only the explained node has a gradient. Edges get the mean of their two end nodes, undirected
    edges also the mean of both directions. Scores are divided by the highest of the instance.

    Reference: Pope et al., *Explainability Methods for Graph Convolutional Neural Networks*, CVPR 2019. Cost: one
    forward and backward pass. Deviations: :math:`H^l` is what the PyG layer returns, hence before an activation that the
    model applies afterwards; and in layers whose output of a node can no longer reach the explained node, the node counts
    as 0, while the original gives it a score.

    >>> GradCAM()
    GradCAM()
    """

    Settings = BaseSettings

    def supports(self) -> bool:
        refuse_feature_masks(self)
        return super().supports()

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        node = grad_cam_scores(causal)
        tick()
        scores = element_scores(parts, mean_of_endpoints(causal.instances, node), node)
        return SearchResult(divide_by_highest(parts, scores))


def grad_cam_scores(causal: CausalModel) -> Tensor:
    """Grad-CAM Avg of each node, [N]."""
    owner, number = causal.instances.node_owner, len(causal.instances)
    count = owner.bincount(minlength=number).unsqueeze(1)
    layers = []
    for layer in causal.activations():
        total = layer.gradient.new_zeros(number, layer.gradient.size(1)).index_add(0, owner, layer.gradient)
        alpha = total / count  # [B, H]
        layers.append(torch.where(layer.exact, (alpha[owner] * layer.value).sum(1).clamp_min(0), 0))
    if not layers:
        raise ModelError(
            "Grad-CAM needs a torch_geometric.nn.MessagePassing layer that returns one row per node (found none). "
            "Use another method, e.g. saliency."
        )
    return torch.stack(layers).mean(0)
