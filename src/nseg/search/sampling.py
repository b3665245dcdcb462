r"""Samples of the worlds of a law, other than the explanation itself.

A Bernoulli law is sampled without the explanation; a user's own law is taken as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nseg.errors import InputError
from nseg.graphs.batch import offsets
from nseg.search.complement import Bernoulli, Law, literal
from nseg.search.noise import PartNoise, instance_keys, uniform
from nseg.search.parts import MaskParts, Masks

BLOCK = 128
"""Samples that are drawn together; fixed, because the random numbers of a sample must not depend on memory."""

SEED_SALT = 0x5851F42D4C957F2D
"""Changes the seed, so that samples differ from the worlds that a search with the same seed has seen."""


def first_difference(agree: Tensor, v: Tensor) -> Tensor:
    r"""First element at which a world differs from the explanation, given that one does, [B, S].

    .. math:: P(J \le j) = \frac{1 - \prod_{i \le j} a_i}{1 - \prod_i a_i}

    Elements before it agree and later ones are free, so worlds other than the explanation are drawn without rejection.

    Args:
        agree: probability of each element to be as in the explanation, in (0, 1), [B, n]; 1 where there is none.
        v: uniform numbers, [B, S].

    >>> first_difference(torch.tensor([[0.5, 0.5, 1.0]]), torch.tensor([[0.0, 0.6, 0.7, 0.99]]))
    tensor([[0, 0, 1, 1]])
    """
    reached = -torch.expm1(agree.log().cumsum(1))
    last = reached[:, -1:]
    return torch.searchsorted(reached / torch.where(last > 0, last, 1), v, right=True)


def other_subsets(kept: Tensor, owner: Tensor, position: Tensor, q: float, u: Tensor, v: Tensor) -> Tensor:
    """Random subsets that are not the explanation, [S, n].

    Args:
        kept, owner, position: the explanation, the instance of each element and its position there, [n] each.
        q: probability of each element to be kept, in (0, 1).
        u: uniform numbers of the elements, [S, n].
        v: uniform numbers of the instances, [B, S].
    """
    agree = v.new_ones(len(v), int(position.max()) + 1)
    agree[owner, position] = torch.where(kept, q, 1 - q).to(v.dtype)
    first = first_difference(agree, v)[owner].T  # [S, n]
    return torch.where(position < first, kept, torch.where(position == first, ~kept, u < q))


@dataclass(frozen=True)
class _PartSampler:
    """One part of an explanation, from which worlds are drawn.

    Args:
        kept: which elements are in the explanation, [n].
        owner: instance of each, [n], sorted.
        noise: random numbers of the part.
        stays: for each sub-event, whether the part stays as explained.
    """

    kept: Tensor
    owner: Tensor
    noise: PartNoise
    stays: tuple[bool, ...]

    def uniform(self, samples: int, *draw: int) -> Tensor:
        """Random numbers of some samples, [S, n]."""
        width = self.noise.part.width
        u = self.noise.rows(samples * width, *draw)
        return u.view(len(u), samples, width).transpose(0, 1).flatten(1)

    @property
    def position(self) -> Tensor:
        """Position of each element among those of its instance, [n]."""
        return torch.arange(len(self.owner), device=self.owner.device) - offsets(self.owner.bincount())[self.owner]


@dataclass(frozen=True)
class ComplementSampler:
    """Samples of the worlds of a law.

    Args:
        parts: B instances and the parts of their masks.
        kept: the explanations, [n].
        law: of the complement.
        seed: equal seeds give equal worlds, alone or in any batch.
    """

    parts: MaskParts
    kept: Tensor
    law: Law
    seed: int

    def blocks(self, samples: int) -> Iterator[Masks]:
        """Worlds of all A sub-events, a block of s samples at a time: [A, s, ...] per part."""
        for number in range(math.ceil(samples / BLOCK)):
            size = min(BLOCK, samples - number * BLOCK)
            drawn = {name: self._worlds(part, size, number) for name, part in self._samplers.items()}
            yield Masks({name: worlds.view(*worlds.shape[:2], *self.parts[name].shape) for name, worlds in drawn.items()})

    @cached_property
    def _samplers(self) -> dict[str, _PartSampler]:
        kept, stays = self.parts.unflatten(self.kept), list(zip(*self.parts.events, strict=True))
        return {
            part.name: _PartSampler(
                kept[part.name].flatten(),
                part.owner.repeat_interleave(part.width),
                PartNoise.of(part, self.seed ^ SEED_SALT, torch.double),
                stays[number],
            )
            for number, part in enumerate(self.parts)
        }

    def _worlds(self, part: _PartSampler, samples: int, block: int) -> Tensor:
        """A block of worlds, [A, S, n]."""
        as_explained = part.kept.double().expand(samples, -1)
        return torch.stack(
            [
                as_explained if stays else self._draw(part, as_explained, event, block)
                for event, stays in enumerate(part.stays)
            ]
        )

    def _draw(self, part: _PartSampler, kept: Tensor, event: int, block: int) -> Tensor:
        """A block of worlds in one sub-event, [S, n]."""
        u = part.uniform(len(kept), event, block)
        if self.law is literal:
            return literal(kept, u)
        if not isinstance(self.law, Bernoulli):
            return self._draw_from_user_law(part, kept, u)
        if self.law.q in (0, 1) or not part.kept.numel():
            return self.law(kept, u)
        keys = instance_keys(self.parts.instances, self.seed ^ SEED_SALT)
        v = uniform(keys, len(kept), (2, part.noise.part.group, event, block), torch.double)
        return other_subsets(part.kept, part.owner, part.position, self.law.q, u, v).double()

    def _draw_from_user_law(self, part: _PartSampler, kept: Tensor, u: Tensor) -> Tensor:
        """Worlds of a user's law, one instance at a time, so that it can use all elements without mixing instances."""
        sizes, worlds = part.owner.bincount().tolist(), []
        for mask, numbers in zip(*(t.split_with_sizes(sizes, 1) for t in (kept, u)), strict=True):
            world = self.law(mask, numbers)
            good = isinstance(world, Tensor) and world.shape == mask.shape and bool(torch.isfinite(world.double()).all())
            if not good:
                got = tuple(world.shape) if isinstance(world, Tensor) else type(world).__name__
                raise InputError(
                    f"A law must return finite weights in the shape of its mask, {tuple(mask.shape)} (got {got}, or NaN or "
                    "infinity in it). Write it as a function of (mask, uniform numbers) that works along the last dimension."
                )
            worlds.append(world.to(kept))
        return torch.cat(worlds, 1) if worlds else kept
