"""On another device, on another system, with older libraries: the same answers, or a sentence that says why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from device_mode import Factories, move, other_device
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import GNNExplainer
from zoo import GRAPH_CONFIG, LINK_CONFIG, NODE_MODELS, Link, Molecule, explainer, graph, quick, seeded

import nseg
from nseg import NSEG, Bernoulli, LargeGraph, certify, datasets, explain_many, metrics, models
from nseg.baselines.catalogue import CATALOGUE, make
from nseg.baselines.gradients import Saliency
from nseg.metrics import Evaluator

# --- another device ------------------------------------------------------------------------------------------------------

EDGES, NODES = {"edge_mask_type": "object"}, {"node_mask_type": "object"}
SMALL = {"starts": (0.0,), "rounds": 1, "exact": 6, "steps": 4}
RIVALS = {"gnnexplainer": {"steps": 4}, "cf_gnnexplainer": {"steps": 4}, "cf2": {"steps": 4}}
PAIRS = torch.tensor([[0, 3, 7], [5, 9, 1]])

Put = Callable[[Any], Any]


def node_explainer(put: Put, algorithm: Any = None, model: str = "gcn", **masks: Any) -> tuple[Any, Data]:
    return explainer(put(seeded(NODE_MODELS[model])), algorithm or quick(**SMALL), **(masks or EDGES)), put(graph())


def nodes(put: Put, **options: Any) -> Any:
    explain, data = node_explainer(put, **options)
    return explain_many(explain, data, [3, 5, 11])


def links(put: Put) -> Any:
    explain = explainer(put(seeded(Link)), quick(**SMALL), LINK_CONFIG)
    return explain_many(explain, put(graph()), [0, 2], edge_label_index=put(PAIRS))


def graphs(put: Put, **settings: Any) -> Any:
    explain = explainer(put(seeded(Molecule)), quick(**SMALL | settings), GRAPH_CONFIG, **EDGES | NODES)
    return explain_many(explain, [put(graph(9, 12, seed)) for seed in range(3)])


def one_call(put: Put) -> Any:
    explain, data = node_explainer(put)
    return explain(data.x, data.edge_index, index=3)


def pyg_algorithm(put: Put) -> Any:
    torch.manual_seed(0)
    explain, data = node_explainer(put, GNNExplainer(epochs=3))
    return explain_many(explain, data, [3, 5])


def phenomenon(put: Put) -> Any:
    masks = {"explanation_type": "phenomenon", **EDGES}
    explain, data = node_explainer(put, None, "gcn", **masks)
    return explain_many(explain, data, [3, 5], target=graph().y)  # the caller's classes may be on the CPU


def certificates(put: Put, law: Any, exact: int = 12, samples: int = 20, **masks: Any) -> Any:
    explain, data = node_explainer(put, None, "gcn", **masks)
    found = certify(explain, data, explain_many(explain, data, [3, 5]), law, samples, exact=exact)
    return [[one.pns, one.p_factual, one.p_complement] for one in found]


def fidelity(put: Put, **masks: Any) -> Any:
    explain, data = node_explainer(put, None, "gcn", **masks)
    judge = Evaluator(explain, data, explain_many(explain, data, [3, 5, 11]))
    removed = judge.each("hard", "remove") if "edge_mask_type" in masks else None
    return [
        [judge.fidelity(), judge.each("hard"), removed],
        [judge.thresholds((0.2, 0.7)), judge.sparsities((0.0, 0.5)), judge.robust_fidelity(samples=3)],
        [judge.unfaithfulness(), judge.reached],
    ]


def fidelity_of_graphs(put: Put) -> Any:
    explain = explainer(put(seeded(Molecule)), quick(**SMALL), GRAPH_CONFIG)
    data = [put(graph(9, 12, seed)) for seed in range(3)]
    judge = Evaluator(explain, data, explain_many(explain, data))
    return [judge.fidelity("hard"), judge.each("hard", "remove")]


def fidelity_after_pyg(put: Put) -> Any:
    """Of an explanation that PyG's own explainer made, which has no numbers of edges."""
    explain, data = node_explainer(put, Saliency())
    judge = Evaluator(explain, data, explain(data.x, data.edge_index, index=3))
    return judge.fidelity()


def scores_of_masks(put: Put) -> Any:
    mask, truth = put(torch.tensor([0.9, 0.1, 0.4])), put(torch.tensor([True, True, False]))
    ends, none = put(torch.tensor([[0, 1, 3], [1, 2, 4]])), put(torch.zeros(0))
    return [
        [metrics.sparsity(mask), metrics.sparsity(none), metrics.entropy(mask), metrics.entropy(none), metrics.size(mask)],
        [metrics.connectedness(ends, truth, 5), metrics.connectedness(ends, truth & ~truth, 5)],
        [metrics.recall_at_k(mask, truth, 1), metrics.roc_auc(mask, truth), metrics.jaccard(mask > 0.5, truth)],
        [metrics.precision(mask > 0.5, truth), metrics.f1(mask > 0.5, truth), metrics.bootstrap(mask)],
        metrics.summarise(mask),
    ]


def accuracy(put: Put) -> Any:
    """The dataset stays on the CPU; its graph is explained elsewhere."""
    data = datasets.load("tree-cycles")
    explain = explainer(put(models.pretrained("tree-cycles", "gcn")), Saliency(), **EDGES | NODES)
    found = explain_many(explain, put(data.graphs[0].clone()), [511, 600])
    return [
        [vars(metrics.accuracy(data, some, kind)) for kind in ("edge", "node")] for some in (found, *baselines_of(found))
    ]


def baselines_of(found: Any) -> list[Any]:
    return [metrics.trivial(found, kind) for kind in ("all", "random")]


def agreement(put: Put) -> Any:
    explain, data = node_explainer(put)
    return metrics.perturbed_stability(explain, data, [3, 5], times=1)


def page(put: Put, folder: Path, **masks: Any) -> Any:
    explain, data = node_explainer(put, None, "gcn", **masks)
    found = explain_many(explain, data, [3, 5])
    with_model = nseg.report(
        found, folder / "with.html", data=data, explainer=explain, certificates=certify(explain, data, found)
    )
    without = nseg.report(found, folder / "without.html", data=data)
    return [path.read_text() for path in (with_model, without)]


def pictures(put: Put) -> Any:
    explain, data = node_explainer(put)
    found = explain_many(explain, data, [3, 5])
    shown = [nseg.plot.scene(one, classes=data.y) for one in found]
    return [[str(one) for one in shown], [vars(w) for one in nseg.plot.worlds_of(explain, data, found) for w in one]]


def stored(put: Put, folder: Path) -> Any:
    """Stored, read, and evaluated on the device again."""
    explain, data = node_explainer(put)
    found = explain_many(explain, data, [3, 5], out=folder / "run")
    attached = [nseg.runs.attach(one, data) for one in found]
    assert {one.edge_mask.device for one in attached} == {data.x.device}
    certificates = certify(explain, data, attached)
    return [attached, [one.pns for one in certificates]]


def learned(put: Put) -> Any:
    explain, data = node_explainer(put, make("pgexplainer", epochs=3))
    trace = explain.algorithm.fit(explain, data, [3, 5, 11])
    return [trace, explain_many(explain, data, [3, 5])]


def large_graph(put: Put) -> Any:
    explain, data = node_explainer(put)
    return explain_many(explain, LargeGraph(data), [3, 5, 11])


def large_graph_links(put: Put) -> Any:
    explain = explainer(put(seeded(Link)), quick(**SMALL), LINK_CONFIG)
    return explain_many(explain, LargeGraph(graph()), [0, 2], edge_label_index=PAIRS)


SCENARIOS: dict[str, Callable[[Put], Any]] = {
    "nodes": nodes,
    "nodes, undirected": lambda put: nodes(put, algorithm=quick(**SMALL, undirected=True)),
    "nodes, connected": lambda put: nodes(put, algorithm=quick(**SMALL, connected=True)),
    "nodes, joint masks": lambda put: nodes(put, **EDGES | NODES),
    "nodes, features": lambda put: nodes(put, node_mask_type="attributes"),
    "nodes, common features": lambda put: nodes(put, **EDGES, node_mask_type="common_attributes"),
    "nodes, all defaults": lambda put: nodes(put, algorithm=NSEG(steps=6)),
    "nodes, climbed only": lambda put: nodes(put, algorithm=quick(**SMALL | {"rounds": 0, "exact": 0})),
    "nodes, edge weights": lambda put: nodes(put, model="gcn, edge weights"),
    "nodes, messages both ways": lambda put: nodes(put, model="both directions"),
    "nodes, attention": lambda put: nodes(put, model="gat"),
    "nodes, a cached layer": lambda put: nodes(put, model="gcn, cached"),
    "links": links,
    "graphs": graphs,
    "graphs, undirected": lambda put: graphs(put, undirected=True),
    "one call": one_call,
    "an algorithm of PyG": pyg_algorithm,
    "phenomenon": phenomenon,
    "certify, literal": lambda put: certificates(put, "literal"),
    "certify, uniform": lambda put: certificates(put, "uniform", exact=4, samples=20),
    "certify, enumerated": lambda put: certificates(put, "uniform"),
    "certify, Bernoulli": lambda put: certificates(put, Bernoulli(0.3), exact=0, samples=20),
    "certify, joint": lambda put: certificates(put, "uniform", exact=2, samples=20, **EDGES | NODES),
    "certify, an own law": lambda put: certificates(put, lambda mask, u: (u < 0.4).to(mask.dtype), exact=0, samples=20),
    "fidelity of edges": lambda put: fidelity(put, **EDGES),
    "fidelity of edges and nodes": lambda put: fidelity(put, **EDGES | NODES),
    "fidelity of features": lambda put: fidelity(put, node_mask_type="attributes"),
    "fidelity of graphs": fidelity_of_graphs,
    "fidelity of PyG's explanation": fidelity_after_pyg,
    "scores of masks": scores_of_masks,
    "accuracy": accuracy,
    "agreement": agreement,
    "pictures": pictures,
    "method pgexplainer": learned,
    "large graph": large_graph,
    "large graph, links": large_graph_links,
    **{
        f"method {name}": lambda put, name=name: nodes(put, algorithm=make(name, **RIVALS.get(name, {})))
        for name in CATALOGUE
        if name not in ("nseg", "exhaustive", "pgexplainer")
    },
}


def plain(value: Any) -> Any:
    """Numbers only, on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().cpu().double()
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, Data):
        return {k: plain(v) for k, v in value.to_dict().items() if isinstance(v, Tensor | float | int)}
    return {k: plain(v) for k, v in vars(value).items()} if hasattr(value, "__dataclass_fields__") else value


def assert_close(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(found, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(found, list):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_close(*pair)
    elif isinstance(found, Tensor | float):
        torch.testing.assert_close(found, expected, equal_nan=True)
    else:
        assert found == expected


def put_on_other_device(value: Any) -> Any:
    return move(value) if isinstance(value, nn.Module) else value.to("meta")


@pytest.mark.parametrize("name", SCENARIOS)
def test_another_device_gives_the_answers_of_the_cpu(name: str) -> None:
    expected = plain(SCENARIOS[name](lambda value: value))
    with other_device():
        found = plain(SCENARIOS[name](put_on_other_device))
    assert_close(found, expected)


@pytest.mark.parametrize("scenario", [page, stored], ids=["page", "stored"])
def test_files_of_another_device_hold_what_those_of_the_cpu_hold(scenario: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    expected = plain(scenario(lambda value: value, tmp_path / "cpu"))
    with other_device():
        (tmp_path / "device").mkdir()
        found = plain(scenario(put_on_other_device, tmp_path / "device"))
    assert_close(found, expected)


ON_THE_CPU = {}
"""Places that make tensors without a device, and why they may."""


def test_no_tensor_is_made_without_a_device(tmp_path: Path) -> None:
    places = set()
    for name, scenario in SCENARIOS.items():
        with Factories() as found:
            scenario(lambda value: value)
        places |= found.places
    with Factories() as found:
        page(lambda value: value, tmp_path)
        stored(lambda value: value, tmp_path)
    places |= found.places
    print("\n".join(sorted(places)))
    assert places == set(ON_THE_CPU)
