"""Golden explanations: many small explanations of every kind, compared bit for bit before and after a refactoring.

Write a golden file, change the code, and compare::

    NSEG_DATA=... python benchmarks/golden.py write
    NSEG_DATA=... python benchmarks/golden.py compare

The file holds a SHA-256 digest of every field of every explanation, so it is only comparable on the machine type and the
versions of torch and PyG that wrote it. It uses the public API alone, hence runs on any version of the code.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.explain import Explainer, Explanation, GNNExplainer

from nseg import NSEG, Bernoulli, LargeGraph, baselines, certify, datasets, explain_many, metrics, models

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
import zoo  # noqa: E402 - the models and graphs of the tests

FILE = HERE.parent / "runs" / "golden.json.gz"
Case = tuple[str, list[Any]]
MASKS: dict[str, dict[str, Any]] = {
    "e": {"edge_mask_type": "object"},
    "f": {"node_mask_type": "object"},
    "ef": {"edge_mask_type": "object", "node_mask_type": "object"},
    "attributes": {"edge_mask_type": "object", "node_mask_type": "attributes"},
    "common": {"node_mask_type": "common_attributes"},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "undirected": {"undirected": True},
    "connected": {"connected": True},
    "connected, undirected": {"connected": True, "undirected": True},
    "pn": {"objective": "pn"},
    "ps": {"objective": "ps"},
    "pn, ratio": {"objective": "pn", "surrogate": "ratio"},
    "ps, ratio": {"objective": "ps", "surrogate": "ratio"},
    "gap": {"surrogate": "gap", "tolerance": 0.0},
    "top-k": {"extract": "topk", "k": 4},
    "threshold": {"extract": "threshold", "threshold": 0.4},
    "law": {"law": Bernoulli(0.3), "samples": 3},
    "seed": {"seed": 11, "steps": 30},
}
FEW: dict[str, dict[str, Any]] = {"gnnexplainer": {"steps": 20}, "cf2": {"steps": 30}, "cf_gnnexplainer": {"steps": 40}}


def explainer(model: nn.Module, algorithm: Any, config: dict[str, str], masks: str = "e", kind: str = "model") -> Explainer:
    """An explainer with the masks of that name."""
    return Explainer(model, algorithm, explanation_type=kind, model_config=config, **MASKS[masks])


def method_cases() -> Iterator[Case]:
    """Every method on nodes and on graphs."""
    nodes, graphs = datasets.load("tree-cycles"), datasets.load("ba-2motif")
    for name in baselines.CATALOGUE:
        for bench, index in ((nodes, [511, 530, 600]), (graphs, [3, 700])):
            data = bench.graphs[0] if bench.level == "node" else bench.graphs
            model = models.pretrained(bench.name, "gcn")
            for masks in ("e", "ef"):
                try:
                    made = baselines.make(name, **FEW.get(name, {}))
                    one = explainer(model, made, bench.model_config, masks)
                    if hasattr(made, "fit"):
                        made.fit(one, data, index, progress=False)
                    yield f"{name} {bench.name} {masks}", explain_many(one, data, index, progress=False)
                except ValueError as error:
                    yield f"{name} {bench.name} {masks}", [str(type(error).__name__)]


def dataset_cases() -> Iterator[Case]:
    """The default, and the paper's settings, on datasets and both networks."""
    for name, step in (("ba-shapes", 90), ("tree-grid", 150), ("mutagenicity", 60), ("msrc-21", 120)):
        bench = datasets.load(name)
        data = bench.graphs[0] if bench.level == "node" else bench.graphs
        index = bench.instances[::step].tolist()
        for architecture in ("gcn", "gin"):
            model = models.pretrained(name, architecture)
            for masks in ("e", "ef"):
                one = explainer(model, NSEG(), bench.model_config, masks)
                yield f"default {name} {architecture} {masks}", explain_many(one, data, index, progress=False)
        one = explainer(models.pretrained(name, "gcn"), NSEG.paper(name, steps=60), bench.model_config)
        found = explain_many(one, data, index, progress=False)
        yield f"paper {name}", found
        evaluator = metrics.Evaluator(one, data, found)
        yield f"fidelity {name} soft", [evaluator.fidelity("soft")]
        yield f"fidelity {name} hard", [evaluator.fidelity("hard")]
        yield f"fidelity {name} 0.3", [evaluator.fidelity(0.3)]


def variant_cases() -> Iterator[Case]:
    """Settings of NSEG, on nodes and graphs of random models."""
    data = zoo.graph()
    graphs = [zoo.graph(10, 16, seed) for seed in range(4)]
    node, molecule = zoo.seeded(zoo.NODE_MODELS["gcn"]), zoo.seeded(zoo.Molecule)
    for name, settings in VARIANTS.items():
        for masks in MASKS:
            one = explainer(node, NSEG(**settings), zoo.NODE_CONFIG, masks)
            yield f"{name} node {masks}", explain_many(one, data, [0, 5, 9], progress=False)
        one = explainer(molecule, NSEG(**settings), zoo.GRAPH_CONFIG)
        found = explain_many(one, graphs, progress=False)
        yield f"{name} graph", found
        for law in ("literal", "uniform", Bernoulli(0.3)):
            yield f"certificate {name} {law}", certify(one, graphs, found, law=law, samples=40, exact=9)


def model_cases() -> Iterator[Case]:
    """Every model of the tests, with shortcuts and without."""
    for name, make in zoo.NODE_MODELS.items():
        model, data = zoo.seeded(make), zoo.graph()
        one = explainer(model, NSEG(steps=20), zoo.NODE_CONFIG)
        yield f"model {name}", explain_many(one, data, [2, 7], progress=False, **zoo.arguments(model, data))
        kwargs = zoo.arguments(model, data)
        yield f"several rows {name}", [one(data.x, data.edge_index, index=torch.tensor([1, 4]), **kwargs)]
    one = explainer(zoo.seeded(zoo.NoBatch), NSEG(steps=20), zoo.GRAPH_CONFIG)
    yield "model without batch", explain_many(one, [zoo.graph(8, 12, s) for s in range(3)], progress=False)
    for kind in ("directed", "loops", "all loops", "duplicates"):
        one = explainer(zoo.seeded(zoo.NODE_MODELS["gin"]), NSEG(), zoo.NODE_CONFIG)
        yield f"graph {kind}", explain_many(one, zoo.graph(kind=kind), [3, 8], progress=False)


def other_cases() -> Iterator[Case]:
    """Links, large graphs, phenomena, other outputs and an algorithm of PyG."""
    data = zoo.graph()
    pairs = torch.tensor([[0, 3, 8], [5, 9, 1]])
    link = explainer(zoo.seeded(zoo.Link), NSEG(), zoo.LINK_CONFIG, "ef")
    yield "links", explain_many(link, data, edge_label_index=pairs, progress=False)
    config = {**zoo.NODE_CONFIG, "task_level": "edge"}
    edges = explainer(zoo.seeded(zoo.EdgeClassifier), NSEG(), config)
    yield "edges", explain_many(edges, data, [0, 7, 20], progress=False)
    bench = datasets.load("ba-shapes")
    whole = explainer(models.pretrained("ba-shapes", "gcn"), NSEG(), bench.model_config)
    yield "large", explain_many(whole, LargeGraph(bench.graphs[0]), [320, 500, 640], progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        thin = explain_many(whole, LargeGraph(bench.graphs[0], neighbours=8), [320, 500], progress=False)
    yield "large, fewer neighbours", thin
    large = explainer(zoo.seeded(zoo.Link), NSEG(), zoo.LINK_CONFIG)
    yield "large links", explain_many(large, LargeGraph(data), edge_label_index=pairs, progress=False)
    given = explainer(zoo.seeded(zoo.NODE_MODELS["gcn"]), NSEG(), zoo.NODE_CONFIG, kind="phenomenon")
    yield "phenomenon", explain_many(given, data, [0, 5, 9], progress=False)
    torch.manual_seed(0)
    pyg = explainer(zoo.seeded(zoo.NODE_MODELS["gcn"]), GNNExplainer(epochs=5), zoo.NODE_CONFIG)
    yield "pyg's gnnexplainer", explain_many(pyg, data, [0, 5], progress=False)
    for returns, last in (("probs", nn.Softmax(-1)), ("log_probs", nn.LogSoftmax(-1))):
        model = _Then(zoo.seeded(zoo.NODE_MODELS["sage"]), last)
        one = explainer(model, NSEG(), {**zoo.NODE_CONFIG, "return_type": returns})
        yield f"returns {returns}", explain_many(one, data, [0, 5, 9], progress=False)


class _Then(nn.Module):
    """A model, and a layer after it."""

    def __init__(self, model: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.model, self.last = model, last

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.last(self.model(x, edge_index))
        return out


def digest(one: Any) -> dict[str, Any]:
    """Each field of an explanation: numbers as they are, tensors as hashes."""
    if isinstance(one, str):
        return {"refused": one}
    if not isinstance(one, Explanation):
        return {"numbers": repr(astuple(one))}
    found: dict[str, Any] = {}
    for name, value in sorted(one.to_dict().items()):
        if isinstance(value, Tensor):
            content = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
            found[name] = f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(content).hexdigest()[:16]}"
        elif isinstance(value, float):
            found[name] = value.hex()
        elif isinstance(value, int | str | bool):
            found[name] = value
    return found


def collect() -> dict[str, list[dict[str, Any]]]:
    """All cases."""
    torch.set_num_threads(1)
    cases, began = {}, time.perf_counter()
    for source in (variant_cases, model_cases, other_cases, method_cases, dataset_cases):
        for name, found in source():
            cases[name] = [digest(one) for one in found]
        print(f"{source.__name__}: {sum(map(len, cases.values()))} results, {time.perf_counter() - began:.0f} s", flush=True)
    return cases


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Where two files differ, in words."""
    found = [f"{name} is in one file only" for name in before.keys() ^ after.keys()]
    for name in before.keys() & after.keys():
        for number, (a, b) in enumerate(zip(before[name], after[name], strict=True)):
            found += [f"{name}, {number}: {key} was {a.get(key)}, is {b.get(key)}" for key in a if a[key] != b.get(key)]
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("what", choices=["write", "compare"])
    parser.add_argument("--file", type=Path, default=FILE)
    asked = parser.parse_args()
    cases = collect()
    if asked.what == "write":
        text = json.dumps({"torch": torch.__version__, "cases": cases}, indent=0, sort_keys=True)
        asked.file.parent.mkdir(parents=True, exist_ok=True)
        asked.file.write_bytes(gzip.compress(text.encode(), mtime=0))
        print(f"Wrote {sum(map(len, cases.values()))} results to {asked.file.name}.")
        return
    found = differences(json.loads(gzip.decompress(asked.file.read_bytes()))["cases"], cases)
    print("\n".join(found[:40]))
    print(f"{sum(map(len, cases.values()))} results compared, {len(found)} fields differ.")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
