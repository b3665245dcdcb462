"""The contract of every method of the catalogue, at every task level.

Batch equals alone, the model comes back untouched, equal seeds give equal masks (also on a model that PyG's own explainer
ran on), and masks and numbers have the right shape and range. What single methods do is tested elsewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import Explanation
from torch_geometric.explain import GNNExplainer as PyGGNNExplainer
from torch_geometric.nn import GCNConv, MessagePassing, SAGEConv, global_mean_pool
from zoo import CLASSES, FEATURES, GRAPH_CONFIG, LINK_CONFIG, NODE_CONFIG, NoBatch, graph, seeded

from nseg import Below, Explainer, Within, baselines, explain_many
from nseg.baselines import CATALOGUE
from nseg.explain.algorithm import BatchedAlgorithm

CHEAP: dict[str, dict[str, Any]] = {
    # noise in the complement, two starts, instances that leave the batch early, moves and small enumerations
    "nseg": {"steps": 4, "samples": 2, "noise": 0.2, "patience": 2, "starts": (0.0, 2.0), "rounds": 1, "exact": 4},
    "integrated_gradients": {"steps": 4},
    "gnnexplainer": {"steps": 4, "lr": 0.1},
    "pgexplainer": {"epochs": 2, "hidden": 8},
    "pgm_explainer": {"samples": 20, "drop": 0.01},  # the default drop never happens here, and all scores would be 0
    "cf_gnnexplainer": {"steps": 6, "lr": 0.5},  # large steps, so that edges are removed and put back
    "cf2": {"steps": 4, "lr": 0.1},
    "exhaustive": {"undirected": False},
    "subgraphx": {"rollouts": 2, "children": 2, "samples": 2},
    "captum": {"samples": 2},
    "graphmask": {"epochs": 2},
    "greedy_deletion": {"deletions": 3},
}
"""Settings under which a method takes milliseconds and still uses all of its code."""

NODE_KINDS = ("object", "attributes", "common_attributes")
EDGES_ONLY = {"pgexplainer", "cf_gnnexplainer", "attention", "captum", "graphmask"}
WHOLE_NODES_ONLY = {"grad_cam", "pagerank", "pgm_explainer", "exhaustive", "subgraphx"}
EDGES = {"edge_mask_type": "object"}
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}
NUMBERS = ("p_factual", "p_complement", "pns", "pn", "ps", "soft_p_factual", "soft_p_complement")


def make(name: str, **settings: Any) -> BatchedAlgorithm:
    """A method with cheap settings."""
    return baselines.make(name, **{**CHEAP.get(name, {}), **settings})


def mask_kinds(name: str) -> list[dict[str, str]]:
    """The kinds of masks that a method can give, besides those of :func:`most_masks`."""
    if name in EDGES_ONLY:
        return [EDGES]
    if name in WHOLE_NODES_ONLY:
        return [EDGES, {"node_mask_type": "object"}]
    return [EDGES, *({"node_mask_type": kind} for kind in NODE_KINDS), {**EDGES, "node_mask_type": "attributes"}]


def most_masks(name: str) -> dict[str, str]:
    """Edges, and nodes if the method can; all subsets of both would be too many."""
    return EDGES if name in EDGES_ONLY | {"exhaustive"} else {**EDGES, "node_mask_type": "object"}


def small(name: str, **kwargs: Any) -> Data:
    """A graph; a sparse one for the method that tries all subsets."""
    return graph(**{"edges": 16, "seed": 1, **kwargs}) if name == "exhaustive" else graph(**kwargs)


def fit(explainer: Any, data: Any, index: Any = None, **kwargs: Any) -> Any:
    """The explainer, trained first if its method needs training."""
    if hasattr(explainer.algorithm, "fit"):
        explainer.algorithm.fit(explainer, data, index, **kwargs)
    return explainer


# --- what is explained -----------------------------------------------------------------------------------------------------


class Network(nn.Module):
    """A classifier of nodes, links, edges or graphs with a cached layer, batch norm and dropout.

    Args:
        level: what is classified.
        calls: the model raises after this number of calls.
    """

    def __init__(self, level: str, calls: int = 10**9) -> None:
        super().__init__()
        self.level, self.calls_left = level, calls
        self.first, self.second = GCNConv(FEATURES, 8, cached=level != "graph"), SAGEConv(8, 8)
        self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout(0.5)
        self.head = nn.Linear(8, CLASSES) if level in ("node", "graph") else nn.Linear(16, 1 if level == "link" else CLASSES)
        self.norm.running_mean.uniform_(-0.2, 0.2)
        self.norm.running_var.uniform_(0.5, 2.0)

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, edge_label_index: Tensor | None = None
    ) -> Tensor:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise RuntimeError("the model fails")
        x = self.drop(self.norm(self.first(x, edge_index)).relu())
        x = self.second(x, edge_index).relu()
        if self.level == "graph":
            return self.head(global_mean_pool(x, batch))
        if self.level == "node":
            return self.head(x)
        sender, receiver = edge_index if edge_label_index is None else edge_label_index
        return self.head(torch.cat([x[sender], x[receiver]], -1))


class Values(Network):
    """A regression of nodes, links or graphs: one number per row."""

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, edge_label_index: Tensor | None = None
    ) -> Tensor:
        return super().forward(x, edge_index, batch, edge_label_index)[:, :1]


@dataclass(frozen=True)
class Case:
    """A model, data and outputs to explain."""

    model: Callable[[], nn.Module]
    config: dict[str, str]
    data: Callable[[str], Any]
    index: tuple[int, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    masks: Callable[[str], dict[str, str]] = most_masks

    def explainer(self, name: str, model: nn.Module | None = None, **settings: Any) -> Any:
        """An explainer by name, trained if it needs training."""
        algorithm = make(name, **{**self.settings, **settings})
        config = {"explanation_type": "model", "model_config": self.config, **self.masks(name)}
        explainer = Explainer(seeded(self.model) if model is None else model, algorithm, **config)
        return fit(explainer, self.data(name), None if self.config["task_level"] == "graph" else self.index, **self.kwargs)

    def many(self, explainer: Any, name: str, index: tuple[int, ...] | None = None, **limits: Any) -> list[Explanation]:
        """Explanations in one batch."""
        return explain_many(explainer, self.data(name), list(index or self.index), **limits, **self.kwargs)

    def one(self, explainer: Any, name: str, number: int) -> Explanation:
        """The explanation of one output, alone."""
        data = self.data(name)
        if isinstance(data, list):
            return explainer(data[number].x, data[number].edge_index)
        return explainer(data.x, data.edge_index, index=number, **self.kwargs)


def some_graphs(name: str) -> list[Data]:
    """Graphs of different sizes, one of them without edges."""
    return [graph(nodes=5 + s, edges=6, seed=s, kind="undirected" if s else "empty") for s in range(4)]


def tiny_graph(seed: int) -> Data:
    """A graph for models that take one graph, and hence one world, at a time."""
    return graph(nodes=5, edges=4, seed=seed, kind="directed")


LEVELS = {
    "node": Case(lambda: Network("node"), NODE_CONFIG, small, (5, 0)),
    "link": Case(
        lambda: Network("link"),
        LINK_CONFIG,
        small,
        (2, 0),
        {"edge_label_index": torch.tensor([[0, 3, 7, 5], [2, 9, 7, 11]])},
    ),
    "graph": Case(lambda: Network("graph"), GRAPH_CONFIG, some_graphs, (3, 0)),
}
CASES = {
    **LEVELS,
    "edges of the graph, undirected": Case(
        lambda: Network("edge"), {**NODE_CONFIG, "task_level": "edge"}, small, (4, 11), settings={"undirected": True}
    ),
    "regression of nodes": Case(lambda: Values("node"), {**NODE_CONFIG, "mode": "regression"}, small, (5, 0)),
    "regression of links": Case(
        lambda: Values("link"),
        {**LINK_CONFIG, "mode": "regression"},
        small,
        (2, 0),
        {"edge_label_index": torch.tensor([[0, 3, 7, 5], [2, 9, 7, 11]])},
        {"outcome": Below(9.0, scale=0.5)},
    ),
    "regression of graphs": Case(
        lambda: Values("graph"),
        {**GRAPH_CONFIG, "mode": "regression"},
        some_graphs,
        (3, 0),
        settings={"outcome": Within(0.3, scale=0.2)},
    ),
    "one graph at a time": Case(
        NoBatch,
        GRAPH_CONFIG,
        lambda name: [tiny_graph(0), tiny_graph(1)],
        (1, 0),
        settings={"rounds": 0, "exact": 0},
        masks=lambda name: EDGES,
    ),
}

METHODS = [name for name in CATALOGUE if name != "attention"]  # needs a GAT
ONE_OF_EACH_KIND = ("nseg", "saliency", "pgexplainer", "subgraphx")
"""A method that searches, one that takes gradients, one that is trained, and one that only asks the model."""


def in_turn(cases: Iterable[str], everywhere: Collection[str] = ONE_OF_EACH_KIND) -> list[tuple[str, str]]:
    """Every method with one case, taking turns, and some with all: how a case is run does not depend on the method."""
    some = [*cases]
    turns = zip(METHODS, itertools.cycle(some))
    return [(name, case) for name, turn in turns for case in (some if name in everywhere else [turn])]


every_method = pytest.mark.parametrize("name", METHODS)
every_level = pytest.mark.parametrize("level", LEVELS)
every_method_at_some_level = pytest.mark.parametrize(("name", "level"), in_turn(LEVELS))


ORDERED = frozenset(in_turn(LEVELS))
"""Where the order of a batch is changed: how instances are packed does not depend on the method."""


@cache
def explained(name: str, case: str) -> tuple[Any, list[Explanation]]:
    """An explainer, and what it explains in one batch."""
    explainer = CASES[case].explainer(name)
    return explainer, CASES[case].many(explainer, name)


# --- batch equals alone ----------------------------------------------------------------------------------------------------


def assert_same_explanation(one: Explanation, full: Explanation) -> None:
    """An explanation on a computation graph equals one on the whole graph: masks, hard masks and numbers."""
    if one.get("edge_mask") is not None:
        torch.testing.assert_close(one.edge_mask, full.edge_mask[one.edge_id], **TOLERANCE)
        assert torch.equal(one.hard_edge_mask, full.hard_edge_mask[one.edge_id])
        outside = torch.ones(full.edge_mask.numel(), dtype=torch.bool)
        outside[one.edge_id] = False
        # an undirected edge also covers its other direction, which may lie outside of the computation graph
        assert one.settings["undirected"] or not full.edge_mask[outside].any()
    if one.get("node_mask") is not None:
        torch.testing.assert_close(one.node_mask, full.node_mask[one.node_id], **TOLERANCE)
        assert torch.equal(one.hard_node_mask, full.hard_node_mask[one.node_id])
    for key in NUMBERS:
        assert one[key] == pytest.approx(full[key], abs=1e-4), key
    assert one.exact == full.exact


@pytest.mark.parametrize(
    ("name", "case"), [*itertools.product(METHODS, LEVELS), *in_turn(case for case in CASES if case not in LEVELS)]
)
def test_a_batch_equals_each_alone_in_any_order(name: str, case: str) -> None:
    explainer, batch = explained(name, case)
    assert tuple(one.output_id for one in batch) == CASES[case].index
    for one in batch[-2:-1]:
        assert_same_explanation(one, CASES[case].one(explainer, name, one.output_id))
    if (name, case) not in ORDERED:
        return
    backwards = CASES[case].many(explainer, name, CASES[case].index[::-1])[::-1]
    for one, other in zip(batch, backwards, strict=True):
        assert torch.equal(one.edge_id, other.edge_id)
        torch.testing.assert_close(one.edge_mask, other.edge_mask, **TOLERANCE)
        assert [one[key] for key in NUMBERS] == pytest.approx([other[key] for key in NUMBERS], abs=1e-4)


# --- the model comes back untouched ----------------------------------------------------------------------------------------


def in_use(model: nn.Module) -> nn.Module:
    """A model in the middle of somebody's work: training, gradients, one frozen parameter, one layer in evaluation mode."""
    model.train()
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 0.5)
    parameters[0].requires_grad_(False)
    list(model.modules())[-1].eval()
    return model


def state(model: nn.Module) -> dict[str, object]:
    """All that a caller could notice on a model, and the global random state."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_propagate_forward_pre_hooks")
    hooks += ("_message_forward_hooks", "_propagate_forward_hooks", "_aggregate_forward_hooks")
    modules = list(model.modules())
    return {
        "training": [m.training for m in modules],
        "requires_grad": [p.requires_grad for p in model.parameters()],
        "gradients": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "parameters": [p.detach().clone() for p in model.parameters()],
        "buffers": [b.clone() for b in model.buffers()],
        "hooks": [len(getattr(m, hook, ())) for m in modules for hook in hooks],
        "masks": [(m.explain, m._edge_mask, m._loop_mask) for m in modules if isinstance(m, MessagePassing)],
        "caches": [(getattr(m, "cached", None), getattr(m, "_cached_edge_index", None)) for m in modules],
        "attributes": [sorted(vars(m)) for m in modules],
        "random state": torch.get_rng_state(),
    }


def assert_equal(before: object, after: object) -> None:
    """Two nested values are equal, tensors included."""
    if isinstance(before, Tensor):
        assert isinstance(after, Tensor)
        assert torch.equal(before, after)
    elif isinstance(before, dict):
        assert before.keys() == after.keys()
        for key in before:
            assert_equal(before[key], after[key])
    elif isinstance(before, list | tuple):
        assert len(before) == len(after)
        for one, other in zip(before, after, strict=True):
            assert_equal(one, other)
    else:
        assert before == after


@every_method_at_some_level
def test_the_model_and_the_random_state_are_untouched_also_when_the_model_raises(name: str, level: str) -> None:
    """The calls of a whole run are counted; then the model fails at the first and in the middle, alone and in a batch."""
    case, plenty = LEVELS[level], 10**9

    def run(calls: int, *stages: Callable[[Any], object]) -> list[int]:
        model = in_use(seeded(lambda: Network(level, calls)))
        before = state(model)
        try:
            explainer = case.explainer(name, model)  # some methods are trained here
            used = [calls - model.calls_left]
            for stage in stages:
                stage(explainer)
                used.append(calls - model.calls_left)
            return used
        finally:
            assert_equal(before, state(model))

    def alone(explainer: Any) -> Explanation:
        return case.one(explainer, name, case.index[0])

    def batch(explainer: Any) -> list[Explanation]:
        return case.many(explainer, name)

    trained, after_one, after_both = run(plenty, alone, batch)
    middle_of_batch = trained + (after_both - after_one) // 2
    for stage, calls in ((alone, 0), (alone, (trained + after_one) // 2), (batch, middle_of_batch)):
        with pytest.raises(RuntimeError, match="the model fails"):
            run(calls, stage)


# --- seeds, shapes and ranges ----------------------------------------------------------------------------------------------


@every_method_at_some_level
def test_equal_seeds_give_equal_masks_also_after_pygs_explainer(name: str, level: str) -> None:
    """Neither the global random state nor what PyG's GNNExplainer leaves on a model matters."""
    case, model = LEVELS[level], seeded(LEVELS[level].model)
    config = {"explanation_type": "model", "model_config": case.config, **EDGES}
    with torch.random.fork_rng():
        torch.manual_seed(99)
        case.one(Explainer(model, PyGGNNExplainer(epochs=2), **config), name, case.index[0])
        again = case.many(case.explainer(name, model), name)
    for one, same in zip(explained(name, level)[1], again, strict=True):
        assert torch.equal(one.edge_mask, same.edge_mask)
        assert torch.equal(one.hard_edge_mask, same.hard_edge_mask)
        assert [one[key] for key in NUMBERS] == [same[key] for key in NUMBERS]


@pytest.mark.parametrize(("name", "level"), in_turn(LEVELS, [name for name in METHODS if CATALOGUE[name].seeded]))
def test_another_seed_changes_the_masks_of_seeded_methods_and_nothing_else(name: str, level: str) -> None:
    case, noise = LEVELS[level], {"noise": 0.1} if name == "nseg" else {}  # without noise its seed does not matter
    first = case.many(case.explainer(name, **noise), name) if noise else explained(name, level)[1]
    other = case.many(case.explainer(name, seed=1, **noise), name)
    masks = [torch.cat([one.edge_mask for one in some]) for some in (first, other)]
    assert torch.equal(*masks) is not CATALOGUE[name].seeded
    for one, another in zip(first, other, strict=True):
        for key in ("x", "edge_index", "edge_id", "node_id", "reached", "target", "prediction", "output_id"):
            assert_equal(one.get(key), another.get(key))
        assert {**one.settings, "seed": 1} == another.settings


@every_method
@every_level
def test_masks_and_numbers_have_their_shape_and_range(name: str, level: str) -> None:
    for one in explained(name, level)[1]:
        shapes = {"edge_mask": (one.num_edges,)}
        if "node_mask_type" in most_masks(name):
            shapes["node_mask"] = (one.num_nodes, 1)
        assert_shapes_and_ranges(one, shapes)


@every_method
def test_every_kind_of_mask_has_its_shape_and_range(name: str) -> None:
    case, data, model = LEVELS["node"], small(name), seeded(LEVELS["node"].model)
    node_shapes = {"object": (24, 1), "attributes": (24, FEATURES), "common_attributes": (1, FEATURES)}
    for kinds in mask_kinds(name):
        explainer = Explainer(model, make(name), explanation_type="model", model_config=case.config, **kinds)
        one = case.one(fit(explainer, data, [5, 7]), name, 5)
        shapes = {"edge_mask": (data.num_edges,)} if "edge_mask_type" in kinds else {}
        shapes |= {"node_mask": node_shapes[kinds["node_mask_type"]]} if "node_mask_type" in kinds else {}
        assert_shapes_and_ranges(one, shapes)


def assert_shapes_and_ranges(one: Explanation, shapes: dict[str, tuple[int, ...]]) -> None:
    for key in ("edge_mask", "node_mask"):
        assert (one.get(key) is not None) == (key in shapes)
    for key, shape in shapes.items():
        soft, hard = one[key], one[f"hard_{key}"]
        assert soft.shape == hard.shape == shape
        assert soft.dtype is torch.float
        assert hard.dtype is torch.bool
        assert not soft.requires_grad
        assert bool(((soft >= 0) & (soft <= 1)).all())
    assert 0 <= one.pns <= min(one.pn, one.ps) + 1e-6 <= 1 + 2e-6
    some = any(bool(one[name].any()) for name in ("hard_edge_mask", "hard_node_mask") if name in one)
    assert one.pns == pytest.approx(max(0, one.p_factual - one.p_complement) if some else 0, abs=1e-6)
    assert one.validate()
    assert one.seed == one.settings["seed"] == 0
