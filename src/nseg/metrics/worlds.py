"""Metrics that ask the model: all instances of a call share forward passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation
from torch_geometric.explain.config import ModelMode, ModelReturnType

from nseg.complement import uniform
from nseg.errors import InputError
from nseg.explanation import placed
from nseg.instances import Inputs, Role, whole
from nseg.many import explain_many
from nseg.metrics import scores
from nseg.scm import PLAIN, Scm, Way, borrowed, close, predicted_class, probability, uncompiled
from nseg.source import CANNOT_BE_CUT, Source, checked_inputs, graph_scms

Masks = Literal["soft", "hard"] | float
Intervention = Literal["mask", "remove"]
Pair = tuple[Tensor | None, Tensor | None]
"""Edge and node mask of one explanation."""

TENTHS = tuple(t / 10 for t in range(10))


@dataclass(frozen=True)
class Fidelity:
    """Necessity and sufficiency of explanations, with what they were measured on.

    Args:
        fid_plus, fid_minus, charact: by label.
        fid_plus_probability, fid_minus_probability: by probability.
        pns, pn, ps: mean lower bounds of the literal complement.
        sparsity: mean share of the elements within reach that is left out; never read charact without it.
        masks: ``"soft"``, ``"hard"`` or the threshold of the masks.
        intervention: ``"mask"`` weighs messages, ``"remove"`` deletes edges.
        instances: how many.
    """

    fid_plus: float
    fid_minus: float
    charact: float
    fid_plus_probability: float
    fid_minus_probability: float
    pns: float
    pn: float
    ps: float
    sparsity: float
    masks: str
    intervention: str
    instances: int


@dataclass(frozen=True)
class Outcomes:
    """What becomes of each prediction without its explanation and with it alone, [B] each.

    Args:
        changed_without, changed_with: 1 where the class is another; for a phenomenon, where right turns wrong or back.
        p, p_factual, p_complement: probability of the explained class on the whole graph, with the explanation, without it.
        sparsity: share of the elements within reach that is left out.
    """

    changed_without: Tensor
    changed_with: Tensor
    p: Tensor
    p_factual: Tensor
    p_complement: Tensor
    sparsity: Tensor

    @property
    def pns(self) -> Tensor:
        """Lower bounds of the PNS for the literal complement."""
        return (self.p_factual - self.p_complement).clamp_min(0)


@dataclass(frozen=True)
class Curve:
    """Fidelity along a threshold or a sparsity.

    Args:
        along: ``"threshold"`` or ``"sparsity"``.
        at: the values of it, [T].
        fid_plus, fid_minus, charact, sparsity: by label at each, [T].
        area: mean height of charact over the range.
        intervention: how worlds were made.
    """

    along: str
    at: Tensor
    fid_plus: Tensor
    fid_minus: Tensor
    charact: Tensor
    sparsity: Tensor
    area: float
    intervention: str


class Judge:
    """Measures explanations of one model.

    Args:
        explainer: the explainer that made them, or any for the same model and masks.
        data: the graph, or the graphs, that were explained.
        explanations: one of a single output, or what :func:`nseg.explain_many` gave.

    The target of fidelity is the predicted class, or the given one where a phenomenon is explained.
    """

    def __init__(
        self, explainer: Explainer, data: Data | Sequence[Data], explanations: Explanation | Sequence[Explanation]
    ) -> None:
        found = [explanations] if isinstance(explanations, Explanation) else list(explanations)
        if not found:
            raise InputError("A judge needs at least one explanation (got none).")
        self.explainer, self.found = explainer, [placed(one) for one in found]
        self.model, self.config = uncompiled(explainer.model), explainer.model_config
        self.edges = found[0].get("edge_mask") is not None
        self.nodes = found[0].get("node_mask") is not None
        with borrowed(self.model), torch.no_grad():
            self.parts = self._parts(data)
            self.output = self._gather([scm.outcome()[0] for _, scm in self.parts])  # [B, C]
        self.reached = self._within_reach()
        self.target = self._gather([scm.instances.target for _, scm in self.parts])
        self.label = predicted_class(self.output, self.config)

    def _parts(self, data: Data | Sequence[Data]) -> list[tuple[Tensor, Scm]]:
        ids = [int(one.output_id) for one in self.found]
        level = self.config.task_level
        names = getattr(self.found[0], "_model_args", None)
        if names is None:
            raise InputError("A judge needs explanations with their graphs (got stored ones). Explain again, or keep them.")
        for one in self.found:
            graph = data if isinstance(data, Data) else data[int(one.output_id)] if int(one.output_id) < len(data) else None
            edges = 0 if graph is None else int(graph.num_edges)
            if graph is None or (one.edge_id.numel() and int(one.edge_id.max()) >= edges):
                raise InputError(
                    f"data must be what was explained (got {edges} edges for an explanation of output {one.output_id}, "
                    "which has more, or too few graphs). Give the same graph or list of graphs as to explain_many."
                )
        if isinstance(data, Data):
            kwargs = {name: data[name] for name in names if name in data}
            if level.value == "edge" and not kwargs and self.found[0].get("index") is not None:
                raise InputError("Links are judged on graphs that hold their pairs (got none). Set data.edge_label_index.")
            source = Source(
                self.model,
                self.config,
                checked_inputs(self.model, data.x, data.edge_index, kwargs, level),
                self.edges,
                self.nodes,
            )
            row = source.rows(ids)
            return list(source.scms(row, torch.arange(len(ids)), self._classes()))
        graphs = [self._alone(one) for one in self.found]
        output = torch.cat(
            [
                one.prediction if one.get("prediction") is not None else self._say(g)
                for one, g in zip(self.found, graphs, strict=True)
            ]
        )
        return list(graph_scms(self.model, self.config, graphs, output, self._classes(), self.edges, self.nodes))

    def _classes(self) -> Tensor:
        return torch.cat([one.target if one.get("index") is None else one.target[one.index] for one in self.found])

    def _alone(self, one: Explanation) -> Inputs:
        kwargs = {name: one[name] for name in one._model_args}
        return checked_inputs(self.model, one.x, one.edge_index, kwargs, self.config.task_level)

    def _say(self, inputs: Inputs) -> Tensor:
        output: Tensor = self.model(inputs.x, inputs.edge_index, **inputs.kwargs)
        return output

    def _gather(self, values: list[Tensor]) -> Tensor:
        """Values of all parts in the order of the explanations."""
        order = torch.cat([which for which, _ in self.parts])
        return torch.cat(values)[torch.argsort(order)]

    # --- masks -----------------------------------------------------------------------------------------------------------

    def masks(self, kind: Masks) -> list[Pair]:
        """Edge and node mask of each explanation, soft or hard."""
        return [(self._mask(one, "edge_mask", kind), self._mask(one, "node_mask", kind)) for one in self.found]

    @staticmethod
    def _mask(one: Explanation, name: str, kind: Masks) -> Tensor | None:
        soft: Tensor | None = one.get(name)
        if soft is None:
            return None
        if kind == "soft":
            return soft
        if isinstance(kind, str) and kind != "hard":
            raise InputError(f"masks must be 'soft', 'hard' or a threshold (got {kind!r}).")
        if kind == "hard":
            if one.get("hard_" + name) is None:
                raise InputError("These explanations have no hard masks (got soft ones). Give a threshold: masks=0.5.")
            hard: Tensor = one["hard_" + name].to(soft.dtype)
            return hard
        return (soft > float(kind)).to(soft.dtype)

    @cached_property
    def _places(self) -> list[list[tuple[int, Tensor, Tensor]]]:
        """For each part: explanation by explanation, where the causal model's edges and nodes stand in it."""
        places = []
        for which, scm in self.parts:
            here, rows = scm.instances, []
            for b, number in enumerate(which.tolist()):
                one = self.found[number]
                edge = torch.searchsorted(one.edge_id, here.edge_id[here.members(Role.EDGE, b)])
                node = torch.searchsorted(one.node_id, here.node_id[here.members(Role.NODE, b)])
                rows.append((number, edge, node))
            places.append(rows)
        return places

    def _within_reach(self) -> list[Tensor]:
        """Edges of each explanation over which a message can reach its output."""
        reached = [torch.zeros(one.edge_id.numel(), dtype=torch.bool) for one in self.found]
        for rows in self._places:
            for number, edge, _ in rows:
                reached[number][edge] = True
        return reached

    def packed(self, masks: list[Pair], part: int) -> Pair:
        """Masks of a part's explanations in the order of its causal model's edges and nodes."""
        edge, node = [], []
        for number, edge_at, node_at in self._places[part]:
            e, n = masks[number]
            if e is not None:
                edge.append(e[edge_at])
            if n is not None:
                node.append(n.expand(node_at.numel(), -1) if n.size(0) == 1 else n[node_at])
        return torch.cat(edge) if edge else None, torch.cat(node) if node else None

    # --- worlds ----------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def outcome(
        self,
        masks: list[Pair],
        worlds: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """The model's output in the factual and the complement world of each mask, [2, B, C].

        Args:
            masks: edge and node mask of each explanation.
            worlds: makes other worlds [K, m] of a packed mask and keys of its elements, which do not depend on the company
                that an explanation is in; then [K, B, C].
        """
        parts = []
        with borrowed(self.model):
            for part, (_, scm) in enumerate(self.parts):
                edge, node = self.packed(masks, part)
                if worlds is None:
                    e = None if edge is None else torch.stack([edge, 1 - edge])
                    n = None if node is None else torch.stack([node, 1 - node])
                else:
                    e = None if edge is None else worlds(edge, self._keys(part, scm, 0, 1))
                    n = None
                    if node is not None:
                        n = worlds(node.flatten(), self._keys(part, scm, 1, node.size(1))).view(-1, *node.shape)
                parts.append(scm.outcome(e, n))
        order = torch.argsort(torch.cat([which for which, _ in self.parts]))
        return torch.cat(parts, 1)[:, order]

    def _keys(self, part: int, scm: Scm, kind: int, width: int) -> Tensor:
        """A number for each entry of a packed mask, from what is explained and the caller's number of the edge or node."""
        here = scm.instances
        ids, owner = (here.edge_id, here.edge_owner) if kind == 0 else (here.node_id, here.node_owner)
        output = torch.tensor([int(self.found[number].output_id) for number, _, _ in self._places[part]])
        key = (output[owner] << 40) ^ (kind << 39) ^ (ids * width)
        return (key.unsqueeze(1) + torch.arange(width)).flatten()

    @torch.no_grad()
    def removed(self, masks: list[Pair]) -> Tensor:
        """The same with edges deleted instead of messages weighed, [2, B, C]; masks must be hard."""
        if not self.edges:
            raise InputError("Only edges can be removed (got node masks only). Use intervention='mask'.")
        if any(e is not None and bool(((e > 0) & (e < 1)).any()) for e, _ in masks):
            raise InputError(
                "Edges are removed or not, so masks must be hard (got soft ones). Use masks='hard' or a threshold."
            )
        worlds = []
        with borrowed(self.model):
            for complement in (False, True):
                graphs = [self._cut(one, m, complement) for one, m in zip(self.found, masks, strict=True)]
                worlds.append(self._plain(graphs))
        return torch.stack(worlds)

    def _cut(self, one: Explanation, masks: Pair, complement: bool) -> Inputs:
        edge, node = masks
        inputs = self._alone(one)
        roles = {name: inputs.roles(name)[0] for name in inputs.kwargs}
        if edge is not None:
            keep = (edge > 0.5) != complement
            kwargs = {k: v[keep] if roles[k] is Role.EDGE else v for k, v in inputs.kwargs.items()}
            inputs = replace(inputs, edge_index=inputs.edge_index[:, keep], kwargs=kwargs)
        if node is not None:
            inputs = replace(inputs, x=inputs.x * (1 - node if complement else node))
        return inputs

    def _plain(self, graphs: list[Inputs]) -> Tensor:
        """The model's output for each explained row of changed graphs, together where that is exact."""
        outputs = {"node": Role.NODE, "graph": Role.GRAPH, "edge": Role.PAIR}[self.config.task_level.value]
        zero = torch.zeros(1, dtype=torch.long)
        rows = [zero if one.get("index") is None else one.index for one in self.found]
        joint = Way(planned=False, constants=False, hollow=False)

        def run(some: slice, way: Way) -> Tensor:
            instances = whole(graphs[some], outputs, rows[some], [zero] * len(rows[some]))
            return Scm(self.model, self.config, instances, way).outcome()[0]

        few = [run(slice(n, n + 1), PLAIN) for n in range(min(3, len(graphs)))]
        try:
            together = run(slice(None), joint)
            if bool(close(together[: len(few)], torch.cat(few), self.config).all()):
                return together
        except CANNOT_BE_CUT:
            pass
        return torch.cat([run(slice(n, n + 1), PLAIN) for n in range(len(graphs))])

    # --- metrics -----------------------------------------------------------------------------------------------------------

    def fidelity(self, masks: Masks = "soft", intervention: Intervention = "mask") -> Fidelity:
        """Fid+, Fid-, charact, by label and by probability, with the bounds and the sparsity."""
        return self._fidelity(self.masks(masks), str(masks), intervention)

    def _fidelity(self, masks: list[Pair], kind: str, intervention: Intervention) -> Fidelity:
        each = self._outcomes(masks, intervention)
        plus, minus = each.changed_without.mean(), each.changed_with.mean()
        return Fidelity(
            fid_plus=float(plus),
            fid_minus=float(minus),
            charact=float(scores.charact(plus, minus)),
            fid_plus_probability=float(scores.fid_plus_probability(each.p, each.p_complement)),
            fid_minus_probability=float(scores.fid_minus_probability(each.p, each.p_factual)),
            pns=float(each.pns.mean()),
            pn=float((each.pns / each.p_factual.clamp_min(1e-12)).mean()),
            ps=float((each.pns / (1 - each.p_complement).clamp_min(1e-12)).mean()),
            sparsity=float(each.sparsity.mean()),
            masks=kind,
            intervention=intervention,
            instances=len(self.found),
        )

    def outcomes(self, masks: Masks = "soft", intervention: Intervention = "mask") -> Outcomes:
        """What fidelity is the mean of, instance by instance."""
        return self._outcomes(self.masks(masks), intervention)

    def _outcomes(self, masks: list[Pair], intervention: Intervention) -> Outcomes:
        if intervention not in ("mask", "remove"):
            raise InputError(f"intervention must be 'mask' or 'remove' (got {intervention!r}).")
        factual, complement = self.removed(masks) if intervention == "remove" else self.outcome(masks)
        p, with_it, without = (probability(o, self.target, self.config) for o in (self.output, factual, complement))
        changed = self._changed(complement), self._changed(factual)
        return Outcomes(*changed, p, with_it, without, self.sparsity(masks))

    def _changed(self, output: Tensor) -> Tensor:
        """1 where the class is not what it was; |right before - right after| for a phenomenon, [B]."""
        after = predicted_class(output, self.config)
        if self.explainer.explanation_type.value == "model":
            return (self.label != after).float()
        return ((self.label == self.target).float() - (after == self.target).float()).abs()

    def sparsity(self, masks: list[Pair]) -> Tensor:
        """Share of the edges within reach (or nodes, where only they are masked) that each explanation leaves out, [B]."""
        values = []
        for reached, (edge, node) in zip(self.reached, masks, strict=True):
            if edge is not None:
                values.append(scores.sparsity(edge[reached]))
            else:
                assert node is not None
                values.append(scores.sparsity(node))
        return torch.stack(values)

    def thresholds(self, at: Sequence[float] = TENTHS[1:], intervention: Intervention = "mask") -> Curve:
        """Fidelity of masks cut at each threshold (Fig. 4 of the paper)."""
        return self._curve("threshold", [self.masks(t) for t in at], at, intervention)

    def sparsities(self, at: Sequence[float] = TENTHS, intervention: Intervention = "mask") -> Curve:
        """Fidelity of the highest elements of each mask, so many that a given share of those within reach is left out."""

        def ranked(mask: Tensor | None, counts: Tensor) -> tuple[Tensor, int] | None:
            """Rank of each element, those that count first, and how many count."""
            if mask is None:
                return None
            flat = torch.where(counts, mask.flatten(), -torch.inf)
            order = torch.argsort(flat, descending=True, stable=True)
            rank = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel()))
            return rank.view_as(mask), int(counts.sum())

        def top(ranks: tuple[Tensor, int] | None, share: float) -> Tensor | None:
            return None if ranks is None else (ranks[0] < round((1 - share) * ranks[1])).to(self.output.dtype)

        every = torch.tensor(True)
        ranks = [
            (ranked(e, r), ranked(n, every if n is None else torch.ones(n.numel(), dtype=torch.bool)))
            for r, (e, n) in zip(self.reached, self.masks("soft"), strict=True)
        ]
        masks = [[(top(e, share), top(n, share)) for e, n in ranks] for share in at]
        return self._curve("sparsity", masks, at, intervention)

    def _curve(self, along: str, masks: list[list[Pair]], at: Sequence[float], intervention: Intervention) -> Curve:
        if not len(at) or list(at) != sorted(at):
            raise InputError(f"A curve needs values in ascending order (got {list(at)}).")
        found = [self._fidelity(m, along, intervention) for m in masks]
        x = torch.tensor(list(at), dtype=torch.double)
        columns = {k: torch.tensor([getattr(f, k) for f in found]) for k in ("fid_plus", "fid_minus", "charact", "sparsity")}
        return Curve(along, x, **columns, area=scores.area(x, columns["charact"]), intervention=intervention)

    def robust_fidelity(
        self, alpha1: float = 0.1, alpha2: float = 0.9, samples: int = 20, masks: Masks = "hard", seed: int = 0
    ) -> dict[str, float]:
        r"""Fid+ and Fid- of worlds near the data: explanation edges go with chance alpha1, the others with chance alpha2.

        .. math:: F_+ = 1[\hat y = y] - \mathbb{E}\,1[\hat y^{E \setminus r_1(S)} = y],\quad
                  F_- = 1[\hat y = y] - \mathbb{E}\,1[\hat y^{E \setminus r_2(E \setminus S)} = y]

        Zheng et al., *Towards Robust Fidelity for Evaluating Explainability of Graph Neural Networks*.
        """

        if not (0 <= alpha1 <= 1 and 0 <= alpha2 <= 1 and samples >= 1):
            raise InputError(
                f"alpha1 and alpha2 must be chances and samples at least 1 (got {alpha1}, {alpha2}, {samples})."
            )

        def worlds(mask: Tensor, keys: Tensor) -> Tensor:
            u = uniform(keys, 2 * samples, (seed,), mask.dtype).T  # [2 S, m]
            inside = mask > 0.5
            without = torch.where(inside, (u[:samples] >= alpha1).to(mask.dtype), torch.ones_like(u[:samples]))
            alone = torch.where(inside, torch.ones_like(u[samples:]), (u[samples:] >= alpha2).to(mask.dtype))
            return torch.cat([without, alone])

        output = self.outcome(self.masks(masks), worlds)
        y = self.label if self.explainer.explanation_type.value == "model" else self.target
        before = (self.label == y).float()
        after = (torch.stack([predicted_class(o, self.config) for o in output]) == y).float()
        changed = (before - after).abs()  # [2 S, B]
        plus, minus = float(changed[:samples].mean()), float(changed[samples:].mean())
        value = float(scores.charact(torch.tensor(plus), torch.tensor(minus)))
        return {
            "fid_plus": plus,
            "fid_minus": minus,
            "charact": value,
            "alpha1": alpha1,
            "alpha2": alpha2,
            "samples": samples,
        }

    def unfaithfulness(self, masks: Masks = "soft") -> Tensor:
        """How far each explanation alone moves the whole prediction, [B]."""
        factual = self.outcome(self.masks(masks))[0]
        return scores.unfaithfulness(self._distribution(self.output), self._distribution(factual))

    def _distribution(self, output: Tensor) -> Tensor:
        """Probabilities of all classes, [B, C]."""
        if self.config.mode is ModelMode.binary_classification:
            p = output.sigmoid() if self.config.return_type is ModelReturnType.raw else output
            return torch.stack([1 - p, p], -1)
        if self.config.return_type is ModelReturnType.raw:
            return output.softmax(-1)
        return output.exp() if self.config.return_type is ModelReturnType.log_probs else output


# --- stability -----------------------------------------------------------------------------------------------------------


def stability(runs: Sequence[Sequence[Explanation]]) -> Tensor:
    """Mean Jaccard index of the hard edge masks over pairs of runs, of each instance, [B]; higher is steadier.

    Args:
        runs: explanations of the same instances, e.g. by several seeds.
    """
    if len(runs) < 2:
        raise InputError(f"Stability compares at least two runs (got {len(runs)}).")

    def kept(one: Explanation) -> Tensor:
        for name in ("edge_mask", "node_mask"):
            if one.get(name) is not None:
                hard: Tensor | None = one.get("hard_" + name)
                return one[name] > 0.5 if hard is None else hard
        raise InputError("Stability needs explanations with a mask (got one without).")

    values = []
    for versions in zip(*runs, strict=True):
        pairs = [scores.jaccard(kept(a), kept(b)) for a, b in combinations(versions, 2)]
        values.append(sum(pairs) / len(pairs))
    return torch.tensor(values)


def perturbed_stability(
    explainer: Explainer, data: Data, index: Any, noise: float = 0.01, times: int = 3, seed: int = 0
) -> Tensor:
    """Stability under small Gaussian noise on the features, of each instance whose class the noise leaves, [B]; else NaN."""
    if not isinstance(data, Data) or times < 1:
        raise InputError(
            "perturbed_stability needs one graph and times >= 1 (got graphs, or fewer). Call it once per graph."
        )
    rng = torch.Generator().manual_seed(seed)
    runs = [explain_many(explainer, data, index)]
    for _ in range(times):
        other = data.clone()
        other.x = data.x + noise * torch.randn(data.x.shape, generator=rng, dtype=data.x.dtype)
        runs.append(explain_many(explainer, other, index))
    same = torch.tensor(
        [
            all(int(one.target[one.index]) == int(versions[0].target[versions[0].index]) for one in versions)
            for versions in zip(*runs, strict=True)
        ]
    )
    return torch.where(same, stability(runs), torch.nan)
