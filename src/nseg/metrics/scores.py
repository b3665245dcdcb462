"""Metrics as functions of tensors, one formula each."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import to_scipy_sparse_matrix

# --- necessity and sufficiency, by label and by probability ------------------------------------------------------------


def fid_plus(label: Tensor, complement: Tensor) -> Tensor:
    r"""Share of instances whose class changes without the explanation, :math:`1 - \frac1B \sum 1[\hat y^{1-M} = \hat y]`.

    >>> fid_plus(torch.tensor([0, 1, 1, 2]), torch.tensor([1, 1, 0, 2]))
    tensor(0.5000)
    """
    return (label != complement).float().mean()


def fid_minus(label: Tensor, factual: Tensor) -> Tensor:
    r"""Share of instances whose class changes with the explanation alone, :math:`1 - \frac1B \sum 1[\hat y^{M} = \hat y]`.

    >>> fid_minus(torch.tensor([0, 1, 1, 2]), torch.tensor([0, 1, 0, 2]))
    tensor(0.2500)
    """
    return (label != factual).float().mean()


def charact(plus: Tensor, minus: Tensor) -> Tensor:
    r"""Harmonic mean of Fid+ and 1 - Fid-, :math:`\frac{2 f_+ (1 - f_-)}{f_+ + 1 - f_-}`; 0 where both are 0.

    Says nothing of size: the whole graph can score high. Read it beside the sparsity.

    Reference: Amara et al., *GraphFramEx: Towards Systematic Evaluation of Explainability Methods for Graph Neural
    Networks*, LoG 2022, with equal weights.

    >>> charact(torch.tensor([0.5, 0.0]), torch.tensor([0.0, 1.0]))
    tensor([0.6667, 0.0000])
    """
    good, kept = torch.as_tensor(plus), 1 - torch.as_tensor(minus)
    total = good + kept
    return 2 * good * kept / torch.where(total > 0, total, 1)


def fid_plus_probability(p: Tensor, p_complement: Tensor) -> Tensor:
    r"""Mean fall of the class's probability without the explanation, :math:`\frac1B \sum p - p_{\xi^c}`.

    >>> fid_plus_probability(torch.tensor([0.9, 0.8]), torch.tensor([0.1, 0.4]))
    tensor(0.6000)
    """
    return (p - p_complement).mean()


def fid_minus_probability(p: Tensor, p_factual: Tensor) -> Tensor:
    r"""Mean fall of the class's probability with the explanation alone, :math:`\frac1B \sum p - p_\xi`.

    >>> fid_minus_probability(torch.tensor([0.9, 0.8]), torch.tensor([0.9, 0.6]))
    tensor(0.1000)
    """
    return (p - p_factual).mean()


def unfaithfulness(probabilities: Tensor, factual: Tensor) -> Tensor:
    r"""How far the explanation alone moves the prediction, :math:`1 - \exp(-\mathrm{KL}(\hat y^{M} \,\|\, \hat y))`, [B].

    Takes probabilities of all classes, of both for a binary model; PyG's takes a softmax over one column there, which is
    always 1, and so always gives 0.

    Reference: Agarwal et al., *Evaluating Explainability for Graph Neural Networks*, Scientific Data 2023.

    Args:
        probabilities: of the classes, [B, C].
        factual: the same with the explanation alone, [B, C].

    >>> unfaithfulness(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.5, 0.5]]))
    tensor([0.])
    """
    tiny = torch.finfo(probabilities.dtype).tiny
    ratio = factual.clamp_min(tiny).log() - probabilities.clamp_min(tiny).log()
    return 1 - torch.exp(-(factual * ratio).sum(-1).clamp_min(0))


# --- size and shape ----------------------------------------------------------------------------------------------------


def size(mask: Tensor) -> Tensor:
    r"""Sum of a mask, :math:`\|M\|_1`.

    >>> size(torch.tensor([1.0, 0.5, 0.0]))
    tensor(1.5000)
    """
    return mask.float().sum()


def sparsity(mask: Tensor) -> Tensor:
    r"""Share of the elements that is left out, :math:`1 - \|M\|_1 / m`; 1 where there are none.

    >>> sparsity(torch.tensor([1.0, 0.5, 0.0, 0.0]))
    tensor(0.6250)
    """
    return 1 - mask.float().mean() if mask.numel() else torch.ones((), device=mask.device)


def entropy(mask: Tensor) -> Tensor:
    r"""Mean entropy of a mask, :math:`\overline{-m \log m - (1-m) \log(1-m)}`; 0 where there are no elements.

    >>> entropy(torch.tensor([0.5, 1.0]))
    tensor(0.3466)
    """
    mask = mask.float()
    if not mask.numel():
        return torch.zeros((), device=mask.device)
    mean: Tensor = (torch.special.entr(mask) + torch.special.entr(1 - mask)).mean()
    return mean


def connectedness(edge_index: Tensor, kept: Tensor, num_nodes: int) -> Tensor:
    """Share of the kept edges that lie in their largest connected piece; 1 where nothing is kept.

    >>> connectedness(torch.tensor([[0, 1, 3], [1, 2, 4]]), torch.tensor([True, True, True]), 5)
    tensor(0.6667)
    """
    from scipy.sparse.csgraph import connected_components

    edges = edge_index[:, kept.bool()].cpu()  # for SciPy
    if not edges.numel():
        return torch.ones((), device=edge_index.device)
    _, piece = connected_components(to_scipy_sparse_matrix(edges, num_nodes=num_nodes), directed=False)
    counts = torch.from_numpy(piece)[edges[0]].bincount()
    return (counts.max() / edges.size(1)).to(edge_index.device)


# --- against ground truth ----------------------------------------------------------------------------------------------


def recall_at_k(score: Tensor, truth: Tensor, k: int, total: int | None = None) -> float:
    """Share of the ground truth among the k highest scores; NaN where there is no ground truth.

    Of equal scores at the border each is as likely to be among the k as another: a constant mask gets what chance gives.

    Args:
        score: of each element, [m].
        truth: whether it belongs to the ground truth, [m].
        k: how many scores are looked at.
        total: size of the ground truth, where some of it is outside the elements.

    >>> recall_at_k(torch.tensor([0.9, 0.1, 0.8]), torch.tensor([True, True, False]), 2)
    0.5
    >>> recall_at_k(torch.ones(4), torch.tensor([True, True, False, False]), 2)
    0.5
    """
    total = int(truth.sum()) if total is None else total
    if not total:
        return float("nan")
    if k >= score.numel():
        return float(truth.sum()) / total
    if k <= 0:
        return 0.0
    border = score.topk(k).values[-1]
    above, tied = score > border, score == border
    chance = (k - int(above.sum())) / int(tied.sum())
    return (float(truth[above].sum()) + chance * float(truth[tied].sum())) / total


def roc_auc(score: Tensor, truth: Tensor) -> float:
    r"""Chance that an element of the ground truth scores above another, ties counting half: the Mann-Whitney statistic.

    NaN where all or none of the elements are ground truth.

    >>> roc_auc(torch.tensor([0.9, 0.1, 0.8]), torch.tensor([True, True, False]))
    0.5
    """
    from scipy.stats import rankdata

    positive, negative = int(truth.sum()), int((~truth.bool()).sum())
    if not positive or not negative:
        return float("nan")
    ranks = rankdata(score.detach().cpu().numpy())
    return float((ranks[truth.cpu().numpy().astype(bool)].sum() - positive * (positive + 1) / 2) / (positive * negative))


def precision(kept: Tensor, truth: Tensor) -> float:
    """Share of what is kept that is ground truth; 0 where nothing is kept.

    >>> precision(torch.tensor([True, True, False]), torch.tensor([True, False, True]))
    0.5
    """
    kept, truth = kept.bool(), truth.bool()
    return float((kept & truth).sum()) / max(int(kept.sum()), 1)


def f1(kept: Tensor, truth: Tensor) -> float:
    """Harmonic mean of precision and recall; 0 where nothing is hit.

    >>> f1(torch.tensor([True, True, False]), torch.tensor([True, False, True]))
    0.5
    """
    kept, truth = kept.bool(), truth.bool()
    return 2 * float((kept & truth).sum()) / max(int(kept.sum()) + int(truth.sum()), 1)


def jaccard(kept: Tensor, truth: Tensor) -> float:
    """Shared over all of two sets (graph explanation accuracy, GEA); 1 where both are empty.

    >>> jaccard(torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False]))
    0.3333333333333333
    """
    kept, truth = kept.bool(), truth.bool()
    union = int((kept | truth).sum())
    return float((kept & truth).sum()) / union if union else 1.0


# --- curves and means --------------------------------------------------------------------------------------------------


def area(x: Tensor, y: Tensor) -> float:
    """Area below a curve over the range of x, divided by that range; the mean height.

    >>> area(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([1.0, 1.0, 0.0]))
    0.75
    """
    span = float(x[-1] - x[0])
    return float(torch.trapezoid(y.double(), x.double())) / span if span else float(y.double().mean())


def bootstrap(values: Tensor, confidence: float = 0.95, samples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """Percentile interval of the mean, by drawing the values again; NaN values are left out.

    >>> bootstrap(torch.ones(5))
    (1.0, 1.0)
    """
    known = values[~values.isnan()].double().cpu().numpy()
    if not len(known):
        return float("nan"), float("nan")
    rng = np.random.default_rng(seed)
    means = known[rng.integers(0, len(known), (samples, len(known)))].mean(1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
