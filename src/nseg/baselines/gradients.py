"""Explainers that read the gradient of the class score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nseg.baselines.scores import mean_of_ends, on_elements, refuse_features, scaled
from nseg.errors import ModelError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.model.causal import CausalModel
from nseg.model.hooks import GuidedBackpropMode
from nseg.search.descent import Tick
from nseg.search.harden import SearchResult
from nseg.search.parts import MaskParts, Masks
from nseg.search.settings import BaseSettings, integer_field


def gradient(causal: CausalModel, parts: MaskParts, at: Tensor) -> Masks:
    """Gradient of the class score in K worlds where all elements weigh ``at`` [K]: [K, n_e] and [K, n_n, w]."""

    leaves = Masks()
    for part in parts:
        values = at.view(-1, *[1] * len(part.shape)).expand(at.numel(), *part.shape)
        leaves[part.name] = values.clone().requires_grad_()
    total = causal.score(parts.to_weights(leaves)).sum()  # a sum, so that instances stay independent
    if not total.requires_grad:  # no message and no feature reaches the explained rows
        return leaves.map(torch.zeros_like)
    found = iter(torch.autograd.grad(total, leaves.tensors, allow_unused=True, materialize_grads=True))
    return leaves.map(lambda _: next(found))


def here(causal: CausalModel) -> Tensor:
    """The one world in which everything is kept."""
    return torch.ones(1, dtype=causal.dtype, device=causal.instances.x.device)


class Saliency(BatchedAlgorithm):
    r"""How fast the class score changes when an element is weakened a little.

    .. math::
        s_i = \left|\frac{\partial f^{\hat y}}{\partial m_i}\right|_{m = 1}

    :math:`m_i` is the weight of an edge's messages, or the factor of a node's features; the latter is gradient times input,
    summed over the features that share the factor, so that node scores do not depend on the unit of a feature and can be
    compared with edge scores. Scores are divided by the instance's highest. They are of size, not of sign: an edge that
    speaks against the class scores high too.

    Reference: Simonyan et al., *Deep Inside Convolutional Networks*, ICLR workshop 2014; for graphs Baldassarre and
    Azizpour, *Explainability Techniques for Graph Convolutional Networks*, ICML workshop 2019. Cost: one forward and
    backward pass. Deviation: nodes by gradient times input, where the original has the gradient alone (which PyG's
    ``CaptumExplainer`` gives feature by feature).

    >>> Saliency()
    Saliency()
    """

    Settings = BaseSettings

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        found = gradient(causal, parts, here(causal)).map(lambda g: g[0].abs())
        tick()
        return SearchResult(scaled(parts, found))


@dataclass(frozen=True, kw_only=True)
class IntegratedGradientsSettings(BaseSettings):
    """As :class:`nseg.search.settings.BaseSettings`, and:

    Args:
        steps: points on the path from nothing to everything, all in one pass.
    """

    steps: int = integer_field(20, 1)


class IntegratedGradients(BatchedAlgorithm):
    r"""What each element adds to the class score on the way from nothing to everything.

    .. math::
        a_i = \int_0^1 \frac{\partial f^{\hat y}}{\partial m_i}(t, \dots, t)\, dt, \qquad
        \sum_i a_i = f^{\hat y}(1) - f^{\hat y}(0), \qquad s_i = \frac{\max(0, a_i)}{\max_j a_j}

    All masked things (edges, nodes, or both) go from weight 0 to 1 together. A score is an element's share of the rise
    of the class score; what speaks against the class scores 0.

    Reference: Sundararajan et al., *Axiomatic Attribution for Deep Networks*, ICML 2017. Cost: one forward and backward pass
    over ``steps`` worlds. Deviations: the integral is by the Gauss-Legendre rule, exact for polynomials up to degree
    ``2 * steps - 1``, where the original sums a grid; and negative attributions are cut off, because masks lie in [0, 1].

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
        return SearchResult(scaled(parts, found.map(lambda a: a.clamp_min(0))))


def attributions(causal: CausalModel, parts: MaskParts, steps: int) -> Masks:
    """Integrated gradients of the elements with their sign, [n_e] and [n_n, w]; over an instance they sum to f(1) - f(0)."""
    points, weights = np.polynomial.legendre.leggauss(steps)  # on [-1, 1]
    at, share = here(causal).new_tensor((points + 1) / 2), here(causal).new_tensor(weights / 2)
    return gradient(causal, parts, at).map(lambda g: torch.tensordot(share, g, 1))


class GuidedBackprop(BatchedAlgorithm):
    r"""The gradient of the class score along paths that only ever speak for it.

    .. math::
        s_i = \max\left(0, \frac{\tilde\partial f^{\hat y}}{\partial m_i}\right), \qquad
        \tilde\partial\,\mathrm{ReLU}(z) = \mathbb{1}[z > 0]\, \max(0, \tilde\partial)

    At every ReLU negative gradients are cut off on the way back, however it is spelt (``nn.ReLU``, ``F.relu``,
    ``torch.relu`` or a method, in place or not; Captum sees only the first). :math:`m_i` is the weight of an edge's
    messages or the factor of a node's features, as in :class:`Saliency`. Scores are divided by the instance's highest.

    Reference: Springenberg et al., *Striving for Simplicity: The All Convolutional Net*, ICLR workshop 2015; for graphs
    Baldassarre and Azizpour, *Explainability Techniques for Graph Convolutional Networks*, ICML workshop 2019. Cost: one
    forward and backward pass. Deviations: nodes by guided gradient times input, and edges too; other activations than ReLU
    pass gradients on as they are.

    >>> GuidedBackprop()
    GuidedBackprop()
    """

    Settings = BaseSettings

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        with GuidedBackpropMode():
            found = gradient(causal, parts, here(causal)).map(lambda g: g[0].clamp_min(0))
        tick()
        return SearchResult(scaled(parts, found))


class GradCAM(BatchedAlgorithm):
    r"""Nodes whose hidden features point to where the class score rises.

    .. math::
        s_v = \frac1L \sum_{l=1}^{L} \max\Bigl(0, \sum_k \alpha^l_k H^l_{vk}\Bigr), \qquad
        \alpha^l_k = \frac1N \sum_v \frac{\partial f^{\hat y}}{\partial H^l_{vk}}

    with :math:`H^l` the output of message passing layer :math:`l`. The mean over all layers (Grad-CAM Avg) is taken
    since for a node only its own output in the last layer has a gradient. Edges get the mean of their two ends, both
    directions of an undirected edge likewise. Scores are divided by the instance's highest.

    Reference: Pope et al., *Explainability Methods for Graph Convolutional Neural Networks*, CVPR 2019. Cost: one
    forward and backward pass. Deviations: :math:`H^l` is what the PyG layer returns, so before an activation that the
    model applies afterwards; and a node that is too far away for its :math:`H^l` to matter counts 0 in that layer, where
    the original shows a heat that nothing flows from.

    >>> GradCAM()
    GradCAM()
    """

    Settings = BaseSettings

    def supports(self) -> bool:
        refuse_features(self)
        return super().supports()

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        node = heat(causal)
        tick()
        return SearchResult(scaled(parts, on_elements(parts, mean_of_ends(causal.instances, node), node)))


def heat(causal: CausalModel) -> Tensor:
    """Grad-CAM Avg of each node, [N]."""
    owner, number = causal.instances.node_owner, len(causal.instances)
    count = owner.bincount(minlength=number).unsqueeze(1)
    layers = []
    for one in causal.activations():
        alpha = one.gradient.new_zeros(number, one.gradient.size(1)).index_add(0, owner, one.gradient) / count  # [B, H]
        layers.append(torch.where(one.exact, (alpha[owner] * one.value).sum(1).clamp_min(0), 0))
    if not layers:
        raise ModelError(
            "Grad-CAM needs the hidden features of nodes from torch_geometric.nn.MessagePassing layers (found none that "
            "returns one row per node). Use another method, e.g. saliency."
        )
    return torch.stack(layers).mean(0)
