"""Stability: how much explanations agree over runs, between methods and under noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation

from nseg.errors import InputError
from nseg.explain.many import explain_many
from nseg.explanation import explained_targets
from nseg.metrics import scores


def stability(runs: Sequence[Sequence[Explanation]]) -> Tensor:
    """Mean Jaccard index of the hard edge masks over pairs of runs, for each instance, [B]; higher is steadier.

    Reference: stability to randomness as in Kosan et al., *GNNX-Bench: Unravelling the Utility of Perturbation-based GNN
    Explainers through In-depth Benchmarking*, ICLR 2024.

    Args:
        runs: explanations of the same instances, e.g. by several seeds.
    """
    if len(runs) < 2:
        raise InputError(f"Stability compares at least two runs (got {len(runs)}).")
    values = []
    for versions in zip(*runs, strict=True):
        pairs = [scores.jaccard(_kept(a), _kept(b)) for a, b in combinations(versions, 2)]
        values.append(sum(pairs) / len(pairs))
    return torch.tensor(values)


def _kept(one: Explanation) -> Tensor:
    """The hard mask, or the soft one cut at 0.5."""
    for name in ("edge_mask", "node_mask"):
        if one.get(name) is not None:
            hard: Tensor | None = one.get("hard_" + name)
            return one[name] > 0.5 if hard is None else hard
    raise InputError("Explanations must have a mask to be compared (got one without).")


def method_agreement(runs: Mapping[str, Sequence[Explanation]]) -> dict[tuple[str, str], float]:
    """Mean Jaccard index of the hard edge masks of each pair of methods, by their names.

    It says how much methods agree, not which is right. Where they disagree, compare them by the model (fidelity, PNS).

    Reference: Krishna et al., *The Disagreement Problem in Explainable Machine Learning: A Practitioner's Perspective*,
    TMLR 2024.

    Args:
        runs: explanations of the same instances by method.
    """
    if len(runs) < 2:
        raise InputError(f"Agreement compares at least two methods (got {len(runs)}).")
    return {(a, b): float(stability([runs[a], runs[b]]).mean()) for a, b in combinations(runs, 2)}


def _same_class(one: Explanation, other: Explanation) -> bool:
    """Whether two explanations are of one class; values of a regression always differ a little and count as the same."""
    a, b = (explained_targets(each)[each.index] for each in (one, other))
    return a.is_floating_point() or bool((a == b).all())


def perturbed_stability(
    explainer: Explainer, data: Data, index: Any, noise: float = 0.01, times: int = 3, seed: int = 0
) -> Tensor:
    """Stability under small Gaussian noise on the features, for each instance, [B]; NaN where the class changes.

    Reference: Agarwal et al., *Probing GNN Explainers: A Rigorous Theoretical and Empirical Analysis of GNN Explanation
    Methods*, AISTATS 2022 (stability).
    """
    if not isinstance(data, Data) or times < 1:
        raise InputError(
            "perturbed_stability needs one graph and times >= 1 (got graphs, or fewer). Call it once per graph."
        )
    rng = torch.Generator().manual_seed(seed)
    runs = [explain_many(explainer, data, index)]
    for _ in range(times):
        other = data.clone()
        other.x = data.x + noise * torch.randn(data.x.shape, generator=rng, dtype=data.x.dtype).to(data.x.device)
        runs.append(explain_many(explainer, other, index))
    same = torch.tensor([all(_same_class(one, versions[0]) for one in versions) for versions in zip(*runs, strict=True)])
    return torch.where(same, stability(runs), torch.nan)
