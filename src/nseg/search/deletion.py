"""Rankings without gradients: what each element costs if it goes, and what it gives alone."""

from __future__ import annotations

import torch
from torch import Tensor

from nseg.model.causal import CausalModel
from nseg.model.subset_worlds import OUTSIDE, SubsetWorlds
from nseg.search.parts import MaskParts, Masks
from nseg.search.subsets import ENTRIES_AT_ONCE, blocks, size_bucket
from nseg.search.worlds import OUTSIDE_NODES


@torch.no_grad()
def single_element_rankings(causal: CausalModel, parts: MaskParts, remove: bool) -> Masks:
    """Three rankings: what each element costs if it goes, what it gives alone, and both together, [3, ...].

    Scores are log-odds of the class. Cost: two forward passes per element, many of them at once.

    Args:
        causal, parts: B instances and the parts of their masks.
        remove: whether edges are deleted instead of weighed.
    """
    score = torch.zeros(3, parts.owner.numel(), dtype=causal.dtype, device=parts.owner.device)
    # instances of similar size together: the number of worlds is that of the largest in the batch
    for _, members, some, its in parts.grouped(causal, size_bucket(parts.count)):
        asked = some.removing(parts.tied) if remove else some
        lost, given = -_log_odds(asked, its, alone=False), _log_odds(asked, its, alone=True)
        score[:, members] = torch.stack([lost, given, lost + given])
    return parts.unflatten(score)


def _log_odds(causal: CausalModel, parts: MaskParts, alone: bool) -> Tensor:
    """Log-odds of the class with each element alone, or with all others, by element, [n]."""
    position, found = parts.position, torch.zeros_like(parts.owner, dtype=causal.dtype)
    size = max(1, ENTRIES_AT_ONCE // max(parts.owner.numel(), 1))
    for some in blocks(int(parts.count.max()), size, position.device):
        kept = (position == some.unsqueeze(1)) == alone
        outside = {name: [not alone] for name in (OUTSIDE, OUTSIDE_NODES)}
        z = causal.log_odds(SubsetWorlds(kept, parts.covered, [[True] * len(parts.parts)], outside))  # [k, B]
        causal.extremes.note(z.sigmoid())
        here = (position >= some[0]) & (position <= some[-1])
        found[here] = z[position[here] - some[0], parts.owner[here]]
    return found
