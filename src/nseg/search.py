"""The search: Algorithm 1 of the paper, for all instances at once.

Instances share a forward pass and nothing else: the loss is a *sum* over instances and Adam works coordinate by
coordinate, so every instance walks the path that it would walk alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain.config import MaskType

from nseg import objective as obj
from nseg.complement import Law, Shifted, element_keys, instance_keys, literal, uniform
from nseg.errors import SettingsError
from nseg.instances import Instances, Role, opposite
from nseg.scm import Scm


@dataclass(frozen=True)
class Settings:
    """All that determines an explanation besides model and data.

    Args:
        objective: what is climbed: ``"pns"`` (Eq. 18), ``"pn"`` or ``"ps"`` (appendix C).
        steps: steps of Adam.
        lr: its step size.
        alpha_e: price of one kept edge.
        beta_e: price of the edge mask's mean entropy.
        alpha_f: price of one kept node (or feature).
        beta_f: price of the node mask's mean entropy.
        split: probability of the sub-events 00, 01, 10 of a joint complement (Eq. 11).
        samples: worlds drawn per sub-event and step.
        noise: half-width of the uniform noise in the complement (Eqs. 13, 14).
        law: another law of the complement instead of the paper's noise: a function of (mask, uniform numbers).
        start: logits the search starts from.
        spread: how far the start is spread around them, in units of 1 / sqrt(m) for m edges (or nodes).
        whole_graph: scale start and mean entropy by the edges and nodes of the whole graph, as the published code does,
            instead of those of the computation graph.
        undirected: give both directions of an edge one weight.
        extract: how the hard explanation is made: ``"prefix"``, ``"threshold"`` or ``"topk"``.
        threshold: for ``"threshold"``.
        k: for ``"topk"``, how many edges (and nodes).
        tolerance: for ``"prefix"``, how much of the bound may be given up for a smaller explanation.
        seed: equal seeds give equal masks, alone or in any batch.
    """

    objective: str = "pns"
    steps: int = 50
    lr: float = 0.2
    alpha_e: float = 0.02
    beta_e: float = 0.1
    alpha_f: float = 0.02
    beta_f: float = 0.1
    split: tuple[float, float, float] = (1 / 3, 1 / 3, 1 / 3)
    samples: int = 1
    noise: float = 0.025
    law: Law | None = None
    start: float = 0.0
    spread: float = 1.0
    whole_graph: bool = False
    undirected: bool = False
    extract: str = "prefix"
    threshold: float = 0.5
    k: int | None = None
    tolerance: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        parts = tuple(self.split) if isinstance(self.split, Iterable) else ()
        if (
            len(parts) != 3
            or not all(_is_number(p) and p >= 0 for p in parts)
            or not math.isclose(sum(parts), 1, abs_tol=1e-6)
        ):
            raise SettingsError(
                f"split must be three non-negative numbers that sum to 1 (got {self.split}). Try (1/3, 1/3, 1/3)."
            )
        object.__setattr__(self, "split", parts)
        _among("objective", self.objective, obj.OBJECTIVES)
        _among("extract", self.extract, ("prefix", "threshold", "topk"))
        _whole_number("steps", self.steps, 0)
        _whole_number("samples", self.samples, 1)
        _whole_number("seed", self.seed, None)
        if self.k is not None or self.extract == "topk":
            _whole_number("k", self.k, 0)
        for name in ("lr", "alpha_e", "beta_e", "alpha_f", "beta_f", "noise", "spread", "tolerance"):
            value = getattr(self, name)
            if not (_is_number(value) and value >= 0):
                raise SettingsError(f"{name} must be a non-negative number (got {value!r}). Try {_default(name)}.")
        if not _is_number(self.start):
            raise SettingsError(f"start must be a number (got {self.start!r}). Try 0.0.")
        if not (_is_number(self.threshold) and 0 <= self.threshold <= 1):
            raise SettingsError(f"threshold must be between 0 and 1 (got {self.threshold!r}). Try 0.5.")
        if self.law is not None and not callable(self.law):
            raise SettingsError(f"law must be a function of a mask and uniform numbers (got {self.law!r}). Try None.")

    def as_plain_data(self) -> dict[str, Any]:
        """The settings as JSON would keep them."""
        law = None if self.law is None else repr(self.law)
        return {**{f.name: getattr(self, f.name) for f in fields(self)}, "split": list(self.split), "law": law}


def _among(name: str, value: Any, known: Any) -> None:
    if value not in known:
        raise SettingsError(f"{name} must be one of {', '.join(map(repr, known))} (got {value!r}).")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _whole_number(name: str, value: Any, least: int | None) -> None:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or (least is not None and value < least):
        bound = "" if least is None else f" of at least {least}"
        raise SettingsError(
            f"{name} must be a whole number{bound} (got {value!r}). Try {10 if _default(name) is None else _default(name)}."
        )


def _default(name: str) -> Any:
    return next(f.default for f in fields(Settings) if f.name == name)


# --- what is searched over ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Space:
    """The elements of the masks: what is kept or left out, one by one.

    An edge element is an edge, or both directions of one (``undirected``). A node element is a node, a feature of a
    node, or a feature of all nodes of an instance.

    Args:
        instances: B instances.
        edges: whether edges are masked.
        nodes: how nodes are masked, if they are.
        undirected: whether both directions of an edge are one element.
    """

    instances: Instances
    edges: bool
    nodes: MaskType | None
    undirected: bool = False

    @cached_property
    def element_of_edge(self) -> Tensor:
        """Edge element of each edge, [E]."""
        edge_index = self.instances.edge_index
        place = torch.arange(edge_index.size(1), device=edge_index.device)
        if not self.undirected:
            return place
        partner = opposite(edge_index, self.instances.num_nodes)
        element: Tensor = torch.unique(torch.minimum(place, partner), return_inverse=True)[1]
        return element

    @cached_property
    def edge_owner(self) -> Tensor:
        """Instance of each edge element, [n_e]."""
        element, owner = self.element_of_edge, self.instances.edge_owner
        number = int(element.max()) + 1 if element.numel() else 0
        return owner.new_zeros(number).scatter(0, element, owner)

    @cached_property
    def node_owner(self) -> Tensor:
        """Instance of each row of the node mask, [n_n]."""
        if self.nodes is MaskType.common_attributes:
            return torch.arange(len(self.instances), device=self.instances.x.device)
        return self.instances.node_owner

    @property
    def node_width(self) -> int:
        """Entries per row of the node mask."""
        return 1 if self.nodes is MaskType.object else self.instances.x.size(-1)

    @property
    def events(self) -> tuple[tuple[bool, bool], ...]:
        """Sub-events of the complement as (edges kept, nodes kept): 00, 01, 10 if both are masked (Eq. 11)."""
        return ((False, False), (False, True), (True, False)) if self.edges and self.nodes else ((False, False),)

    def split(self, settings: Settings) -> tuple[float, ...]:
        """Probability of each of the events."""
        return settings.split if len(self.events) == 3 else (1.0,)

    def expand(self, edge: Tensor | None, node: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Weights of edges [..., E] and nodes [..., N, w] from values of elements [..., n_e] and [..., n_n, w]."""
        if edge is not None and self.undirected:
            edge = edge[..., self.element_of_edge]
        if node is not None and self.nodes is MaskType.common_attributes:
            node = node[..., self.instances.node_owner, :]
        return edge, node


@dataclass(frozen=True)
class Noise:
    """The random numbers of a search: pure functions of seed, instance, element and draw."""

    edge: Tensor
    node: Tensor
    width: int
    dtype: torch.dtype

    @classmethod
    def of(cls, space: Space, seed: int, dtype: torch.dtype) -> Noise:
        """The random numbers of a space's elements."""
        keys = instance_keys(space.instances, seed)
        none = keys[:0]
        return cls(
            element_keys(keys, space.edge_owner) if space.edges else none,
            element_keys(keys ^ 0x5DEECE66D, space.node_owner) if space.nodes else none,
            space.node_width if space.nodes else 1,
            dtype,
        )

    def for_edges(self, *draw: int) -> Tensor:
        """Uniform numbers of one draw, [n_e]."""
        return uniform(self.edge, 1, (0, *draw), self.dtype).squeeze(1)

    def for_nodes(self, *draw: int) -> Tensor:
        """Uniform numbers of one draw, [n_n, w]."""
        return uniform(self.node, self.width, (1, *draw), self.dtype)


def worlds(
    space: Space,
    edge: Tensor | None,
    node: Tensor | None,
    law: Law,
    samples: int = 1,
    noise: Noise | None = None,
    step: int = 0,
) -> tuple[Tensor | None, Tensor | None]:
    """The factual world of each mask and its complement worlds, event by event, sample by sample.

    Args:
        space: what the elements are.
        edge: values of the edge elements, [P, n_e].
        node: values of the node elements, [P, n_n, w].
        law: how complements are drawn.
        samples: worlds per sub-event.
        noise: source of random numbers; None where the law needs none.
        step: which draw this is.

    Returns:
        weights of edges [P * (1 + A * S), E] and of nodes [P * (1 + A * S), N, w].
    """

    def stack(mask: Tensor | None, kind: int, draw: Callable[..., Tensor] | None) -> Tensor | None:
        if mask is None:
            return None
        rows = [mask]
        for number, event in enumerate(space.events):
            for sample in range(samples):
                u = mask[0] if draw is None else draw(step, number, sample)
                rows.append(mask if event[kind] else law(mask, u))
        return torch.stack(rows, 1).flatten(0, 1)

    drawn = (None, None) if noise is None else (noise.for_edges, noise.for_nodes)
    return space.expand(stack(edge, 0, drawn[0]), stack(node, 1, drawn[1]))


def evaluate(
    scm: Scm,
    space: Space,
    edge: Tensor | None,
    node: Tensor | None,
    split: tuple[float, ...],
    law: Law = literal,
    samples: int = 1,
    noise: Noise | None = None,
    step: int = 0,
) -> tuple[Tensor, Tensor]:
    """Probability of the class in the factual world and in the complement of each mask, each [P, B]."""
    p = scm.do(*worlds(space, edge, node, law, samples, noise, step))
    events, instances = len(space.events), p.size(1)
    p = p.view(-1, 1 + events * samples, instances)
    return p[:, 0], obj.mix(p[:, 1:].reshape(-1, events, samples, instances), split)


# --- the loop ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Solution:
    """What a search found.

    Args:
        edge: soft mask of the edge elements, [n_e], if edges were searched.
        node: soft mask of the node elements, [n_n, w], if nodes were.
        p_factual: probability of the class in the factual world of the soft masks, [B].
        p_complement: the same in their literal complement, [B].
        trace: the climbed objective, step by step, [steps, B].
    """

    edge: Tensor | None
    node: Tensor | None
    p_factual: Tensor
    p_complement: Tensor
    trace: Tensor


def search(scm: Scm, space: Space, settings: Settings, tick: Callable[[], object] = lambda: None) -> Solution:
    """Climb the bound (Algorithm 1). The masks returned are the last ones evaluated, as in the published code."""
    number = len(scm.instances)
    noise = Noise.of(space, settings.seed, scm.dtype)
    scale = _scale(space, settings)
    climb, split = obj.OBJECTIVES[settings.objective], space.split(settings)
    law = settings.law or Shifted(settings.noise)

    logits = _start(space, settings, noise, scale)
    optimiser = torch.optim.Adam(logits.values(), lr=settings.lr) if logits else None
    masks = {kind: value.detach().sigmoid() for kind, value in logits.items()}
    trace = []
    for step in range(settings.steps):
        soft = {kind: value.sigmoid() for kind, value in logits.items()}
        masks = {kind: value.detach() for kind, value in soft.items()}
        p = evaluate(scm, space, *_pair(soft), split, law, settings.samples, noise, step)
        value = climb(p[0][0], p[1][0])  # [B]
        loss = -value + _price(space, settings, logits, soft, scale)  # Eq. 19
        if optimiser is not None:
            optimiser.zero_grad()
            loss.sum().backward()  # type: ignore[no-untyped-call] # a sum, so that instances stay independent
            optimiser.step()
        trace.append(value.detach())
        tick()
    with torch.no_grad():
        p_factual, p_complement = evaluate(scm, space, *_pair(masks), split)
    history = torch.stack(trace) if trace else p_factual.new_zeros(0, number)
    return Solution(masks.get("edge"), masks.get("node"), p_factual[0], p_complement[0], history)


def _pair(masks: dict[str, Tensor]) -> tuple[Tensor | None, Tensor | None]:
    edge, node = masks.get("edge"), masks.get("node")
    return None if edge is None else edge.unsqueeze(0), None if node is None else node.unsqueeze(0)


def _scale(space: Space, settings: Settings) -> dict[str, Tensor]:
    """How many edges and mask entries of nodes the start and the mean entropy are scaled by, [B]."""
    instances, width = space.instances, space.node_width if space.nodes else 1
    if settings.whole_graph:
        edge, node = instances.total.unbind(1)
    else:
        edge, node = instances.ptr[Role.EDGE].diff(), instances.ptr[Role.NODE].diff()
    if space.nodes is MaskType.common_attributes:
        node = torch.ones_like(node)
    return {"edge": edge.clamp_min(1), "node": (node * width).clamp_min(1)}


def _start(space: Space, settings: Settings, noise: Noise, scale: dict[str, Tensor]) -> dict[str, Tensor]:
    """Logits uniform in ``start`` +- ``spread`` / sqrt(m)."""
    logits = {}
    if space.edges:
        reach = settings.spread * scale["edge"][space.edge_owner].to(noise.dtype).rsqrt()
        logits["edge"] = settings.start + reach * (2 * noise.for_edges(-1) - 1)
    if space.nodes:
        reach = settings.spread * scale["node"][space.node_owner].to(noise.dtype).rsqrt().unsqueeze(1)
        logits["node"] = settings.start + reach * (2 * noise.for_nodes(-1) - 1)
    return {kind: value.requires_grad_() for kind, value in logits.items()}


def _price(
    space: Space, settings: Settings, logits: dict[str, Tensor], soft: dict[str, Tensor], scale: dict[str, Tensor]
) -> Tensor:
    """Size and entropy of each instance's masks (Eq. 19), [B]."""
    number = len(space.instances)
    total = torch.zeros(number, dtype=next(iter(logits.values())).dtype, device=scale["edge"].device)
    prices = {"edge": (settings.alpha_e, settings.beta_e), "node": (settings.alpha_f, settings.beta_f)}
    owners = {"edge": space.instances.edge_owner, "node": space.node_owner}
    for kind, (alpha, beta) in prices.items():
        if kind not in logits:
            continue
        mask, uncertainty = soft[kind], obj.entropy(logits[kind])
        if kind == "edge" and space.undirected:
            mask, uncertainty = mask[space.element_of_edge], uncertainty[space.element_of_edge]
        owner = owners[kind]
        total = total + alpha * obj.size(mask, owner, number)
        total = total + beta * obj.size(uncertainty, owner, number) / scale[kind]
    return total
