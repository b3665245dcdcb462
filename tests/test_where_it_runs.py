"""On another device, on another system, with older libraries: the same answers, or a sentence that says why not."""

from __future__ import annotations

import ast
import errno
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from multiprocessing import reduction
from pathlib import Path
from typing import Any

import pytest
import torch
from device_mode import Factories, move, other_device
from hetero_zoo import hetero_graph, make_net
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import GNNExplainer
from zoo import GRAPH_CONFIG, LINK_CONFIG, NODE_CONFIG, NODE_MODELS, Link, Molecule, explainer, graph, quick, seeded

import nseg
from nseg import (
    NSEG,
    BackendError,
    Bernoulli,
    LargeGraph,
    StoreError,
    certify,
    datasets,
    explain_many,
    metrics,
    models,
    study,
)
from nseg.backends import Processes
from nseg.backends.base import usable_cores
from nseg.backends.serialize import MIN_BUFFER_BYTES
from nseg.baselines.catalogue import CATALOGUE, make
from nseg.baselines.gradients import Saliency
from nseg.live.edits import GraphEdits
from nseg.metrics import Evaluator
from nseg.storage.locks import lock_file

# --- another device ------------------------------------------------------------------------------------------------------

EDGES, NODES = {"edge_mask_type": "object"}, {"node_mask_type": "object"}
SMALL = {"starts": (0.0,), "rounds": 1, "exact": 4, "steps": 2, "path_points": 2}
FEW = {**SMALL, "rounds": 0}  # the moves know nothing of levels and layers
RIVALS = {
    "gnnexplainer": {"steps": 2},
    "cf_gnnexplainer": {"steps": 2},
    "cf2": {"steps": 2},
    "subgraphx": {"rollouts": 2},
    "captum": {"samples": 2},
    "graphmask": {"epochs": 2},
}
PAIRS = torch.tensor([[0, 3, 7], [5, 9, 1]])

Put = Callable[[Any], Any]


def small() -> Data:
    return graph(10, 12)


def node_explainer(put: Put, algorithm: Any = None, model: str = "gcn", **masks: Any) -> tuple[Any, Data]:
    return explainer(put(seeded(NODE_MODELS[model])), algorithm or quick(**SMALL), **(masks or EDGES)), put(small())


def nodes(put: Put, rows: tuple[int, ...] = (3, 5), **options: Any) -> Any:
    explain, data = node_explainer(put, **options)
    return explain_many(explain, data, rows)


def links(put: Put) -> Any:
    explain = explainer(put(seeded(Link)), quick(**FEW), LINK_CONFIG)
    return explain_many(explain, put(small()), [0, 2], edge_label_index=put(PAIRS))


def graphs(put: Put) -> Any:
    explain = explainer(put(seeded(Molecule)), quick(**FEW), GRAPH_CONFIG, **EDGES | NODES)
    return explain_many(explain, [put(graph(6, 7, seed)) for seed in range(2)])


def one_call(put: Put) -> Any:
    explain, data = node_explainer(put, quick(**FEW))
    return explain(data.x, data.edge_index, index=3)


def pyg_algorithm(put: Put) -> Any:
    torch.manual_seed(0)
    explain, data = node_explainer(put, GNNExplainer(epochs=3))
    return explain_many(explain, data, [3, 5])


def phenomenon(put: Put) -> Any:
    masks = {"explanation_type": "phenomenon", **EDGES}
    explain, data = node_explainer(put, quick(**FEW), "gcn", **masks)
    return explain_many(explain, data, [3, 5], target=small().y)  # the caller's classes may be on the CPU


LAWS: dict[str, tuple[Any, int]] = {  # a law, and the most elements whose subsets are enumerated
    "literal": ("literal", 8),
    "uniform": ("uniform", 2),
    "enumerated": ("uniform", 8),
    "Bernoulli": (Bernoulli(0.3), 0),
    "own": (lambda mask, u: (u < 0.4).to(mask.dtype), 0),
}


def measured(put: Put, laws: tuple[str, ...] = (), **masks: Any) -> Any:
    """Explanations, their certificates under some laws, and all that an evaluator says about them."""
    explain, data = node_explainer(put, None, "gcn", **masks)
    found = explain_many(explain, data, [3, 5])
    certificates = [certify(explain, data, found, LAWS[law][0], 6, exact=LAWS[law][1]) for law in laws]
    judge = Evaluator(explain, data, found)
    removed = judge.each("hard", "remove") if "edge_mask_type" in masks else None
    return [
        [found, [[one.pns, one.p_factual, one.p_complement] for some in certificates for one in some]],
        [judge.fidelity(), judge.each("hard"), removed],
        [judge.thresholds((0.2, 0.7)), judge.sparsities((0.0, 0.5)), judge.robust_fidelity(samples=3)],
        [judge.unfaithfulness(), judge.reached],
    ]


def undirected_graphs(put: Put) -> Any:
    explain = explainer(put(seeded(Molecule)), quick(**SMALL, undirected=True), GRAPH_CONFIG)
    data = [put(graph(6, 7, seed)) for seed in range(2)]
    found = explain_many(explain, data)
    judge = Evaluator(explain, data, found)
    return [found, judge.fidelity("hard"), judge.each("hard", "remove")]


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
    explain, data = node_explainer(put, quick(**FEW))
    return metrics.perturbed_stability(explain, data, [3, 5], times=1)


def page(put: Put, folder: Path, **masks: Any) -> Any:
    explain, data = node_explainer(put, quick(**FEW), "gcn", **masks)
    found = explain_many(explain, data, [3, 5])
    with_model = nseg.report(
        found, folder / "with.html", data=data, explainer=explain, certificates=certify(explain, data, found)
    )
    without = nseg.report(found, folder / "without.html", data=data)
    return [path.read_text() for path in (with_model, without)]


def pictures(put: Put) -> Any:
    explain, data = node_explainer(put, quick(**FEW))
    found = explain_many(explain, data, [3, 5])
    shown = [nseg.plot.scene(one, classes=data.y) for one in found]
    return [[plain(one) for one in shown], [vars(w) for one in nseg.plot.worlds_of(explain, data, found) for w in one]]


def stored(put: Put, folder: Path) -> Any:
    """Stored, read, and evaluated on the device again."""
    explain, data = node_explainer(put, quick(**FEW))
    found = explain_many(explain, data, [3, 5], out=folder / "run")
    attached = [nseg.runs.attach(one, data) for one in found]
    assert {one.edge_mask.device for one in attached} == {data.x.device}
    certificates = certify(explain, data, attached)
    return [attached, [one.pns for one in certificates]]


def stored_links(put: Put, folder: Path) -> Any:
    explain, data, pairs = explainer(put(seeded(Link)), quick(**FEW), LINK_CONFIG), put(small()), put(PAIRS)
    found = explain_many(explain, data, [0, 2], out=folder / "links", edge_label_index=pairs)
    return [nseg.runs.attach(one, data, edge_label_index=pairs) for one in found]


def cut_by_pyg(put: Put) -> Any:
    """A threshold of PyG, after which the numbers are measured again."""
    model, data = put(seeded(NODE_MODELS["gcn"])), put(small())
    options = {"explanation_type": "model", "model_config": NODE_CONFIG, "threshold_config": ("topk", 3), **EDGES}
    explain = nseg.Explainer(model, quick(**FEW), **options)
    return [explain_many(explain, data, [3, 5]), explain(data.x, data.edge_index, index=3)]


def learned(put: Put) -> Any:
    explain, data = node_explainer(put, make("pgexplainer", epochs=3))
    trace = explain.algorithm.fit(explain, data, [3, 5])
    return [trace, explain_many(explain, data, [3, 5])]


def large_graph(put: Put) -> Any:
    explain, data = node_explainer(put, quick(**FEW))
    return explain_many(explain, LargeGraph(data), [3, 5])


def large_graph_links(put: Put) -> Any:
    explain = explainer(put(seeded(Link)), quick(**FEW), LINK_CONFIG)
    return explain_many(explain, LargeGraph(small()), [0, 2], edge_label_index=PAIRS)


def smallest_changes(put: Put) -> Any:
    """Edges to be removed and added, and features to be set; and the same of a whole graph."""
    explain, data = node_explainer(put)
    found = [
        nseg.counterfactual(explain, data, [3, 5]),
        nseg.counterfactual(explain, data, 3, additions=put(torch.tensor([[0, 1], [3, 3]])), features={(3, 0): 0.0}),
    ]
    explain = explainer(put(seeded(Molecule)), quick(**SMALL), GRAPH_CONFIG, **EDGES)
    return [*found, nseg.counterfactual(explain, [put(graph(6, 7))])]


def typed(put: Put) -> Any:
    """A heterogeneous graph: explanations, metrics, the smallest change."""
    explain = explainer(put(make_net("to_hetero")), quick(steps=1), **EDGES)
    data = put(hetero_graph())
    found = explain_many(explain, data, [1])
    each = Evaluator(explain, data, found).each("hard", "remove")
    return [found[0].flat(), each, nseg.counterfactual(explain, data, 1, most=1)]


def missing_features(put: Put) -> Any:
    """What stands for masked features: a mean, the features of other nodes, given values."""
    return [
        nodes(put, (3,), algorithm=quick(steps=1, baseline=baseline), **NODES)
        for baseline in ("mean", "others", (0.0, 1.0, 2.0, 3.0))
    ]


def typical(put: Put) -> Any:
    explain, data = node_explainer(put)
    found = nseg.patterns(explain_many(explain, data, range(3)), data, explainer=explain, held_out=0)
    return found.records()


def studio_questions(put: Put) -> Any:
    from nseg.live.plain_questions import GraphQuestions

    asked = GraphQuestions(*node_explainer(put), 3)
    edits = GraphEdits(removed=frozenset({tuple(sorted(small().edge_index[:, 0].tolist()))}), values={(2, 0): 5.0})
    return [asked.predict(edits), asked.explain(edits).pns, asked.smallest_change(edits)[1]]


SCENARIOS: dict[str, Callable[[Put], Any]] = {
    "nodes, measured": lambda put: measured(put, tuple(LAWS), **EDGES),
    "nodes, joint masks, measured": lambda put: measured(put, ("uniform",), **EDGES | NODES),
    "nodes, features, measured": lambda put: measured(put, node_mask_type="attributes"),
    "nodes, undirected": lambda put: nodes(put, algorithm=quick(**SMALL, undirected=True)),
    "nodes, connected": lambda put: nodes(put, algorithm=quick(**SMALL, connected=True)),
    "nodes, common features": lambda put: nodes(put, **EDGES, node_mask_type="common_attributes"),
    "nodes, all defaults": lambda put: nodes(put, algorithm=NSEG(steps=3)),
    "nodes, edge weights": lambda put: nodes(put, algorithm=quick(**FEW), model="gcn, edge weights"),
    "nodes, messages both ways": lambda put: nodes(put, algorithm=quick(**FEW), model="both directions"),
    "nodes, attention": lambda put: nodes(put, algorithm=quick(**FEW), model="gat"),
    "nodes, a cached layer": lambda put: nodes(put, algorithm=quick(**FEW), model="gcn, cached"),
    "links": links,
    "graphs": graphs,
    "graphs, undirected": undirected_graphs,
    "one call": one_call,
    "an algorithm of PyG": pyg_algorithm,
    "phenomenon": phenomenon,
    "cut by PyG": cut_by_pyg,
    "fidelity of PyG's explanation": fidelity_after_pyg,
    "scores of masks": scores_of_masks,
    "accuracy": accuracy,
    "agreement": agreement,
    "pictures": pictures,
    "method pgexplainer": learned,
    "large graph": large_graph,
    "large graph, links": large_graph_links,
    "alternatives, edges deleted": lambda put: nodes(put, algorithm=quick(steps=1, alternatives=2, intervention="remove")),
    "nodes deleted": lambda put: nodes(put, algorithm=NSEG(**SMALL | {"rounds": 0}, baseline="absent"), **NODES),
    "missing features": missing_features,
    "smallest changes": smallest_changes,
    "heterogeneous": typed,
    "patterns": typical,
    "studio": studio_questions,
    **{
        f"method {name}": lambda put, name=name: nodes(put, (3,), algorithm=make(name, **RIVALS.get(name, {})))
        for name in CATALOGUE
        if name not in ("nseg", "attention", "exhaustive", "pgexplainer")
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
        # the sums of single precision may be taken in another order on another device
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    else:
        assert found == expected


def put_on_other_device(value: Any) -> Any:
    return move(value) if isinstance(value, nn.Module) else value.to("meta")


@cache
def on_the_cpu(name: str) -> tuple[Any, set[str]]:
    """What a scenario gives on the CPU, and where it makes tensors without a device."""
    with Factories() as found:
        value = SCENARIOS[name](lambda value: value)
    return plain(value), found.places


@pytest.mark.parametrize("name", SCENARIOS)
def test_another_device_gives_the_answers_of_the_cpu(name: str) -> None:
    with other_device():
        found = plain(SCENARIOS[name](put_on_other_device))
    assert_close(found, on_the_cpu(name)[0])


@pytest.mark.parametrize("scenario", [page, stored, stored_links])
def test_files_of_another_device_hold_what_those_of_the_cpu_hold(scenario: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    expected = plain(scenario(lambda value: value, tmp_path / "cpu"))
    with other_device():
        (tmp_path / "device").mkdir()
        found = plain(scenario(put_on_other_device, tmp_path / "device"))
    assert_close(found, expected)


NUMBERS = "made of Python numbers for the caller, who gets them on the CPU"
ROWS = "numbers of rows, which jobs hold on the CPU until they are moved with the instances"
MOVED = "random numbers are drawn on the CPU, so that every device gets the same ones, and moved at once"
JOINED = "sizes of types, on the CPU until what they count is moved with the graph"
TRUTH = "ground truth is on the CPU, and explanations are moved there"

ON_THE_CPU = {
    "baselines/pgexplainer.py:_train": NUMBERS,
    "explain/jobs/base.py:__call__": ROWS,
    "explain/jobs/base.py:manifest": ROWS,
    "explain/jobs/memory.py:chunks": ROWS,
    "explain/jobs/large_graph.py:explanations": ROWS,
    "explain/jobs/many_graphs.py:_blocks": ROWS,
    "graphs/checks.py:check_index": ROWS,
    "explain/change_search.py:_result": "read into Python numbers for the caller",
    "graphs/baseline.py:_other_nodes": MOVED,
    "graphs/baseline.py:rows": "numbers that the caller gave, moved at once",
    "graphs/hetero.py:_join": JOINED,
    "graphs/hetero.py:_join_edges": JOINED,
    "graphs/hetero.py:_type_arguments": JOINED,
    "live/neighbourhood.py:whole": "numbers of nodes, read into Python numbers",
    "metrics/agreement.py:perturbed_stability": MOVED,
    "metrics/agreement.py:stability": NUMBERS,
    "metrics/fidelity.py:_curve": NUMBERS,
    "metrics/fidelity.py:robust_fidelity": NUMBERS,
    "metrics/ground_truth.py:_kept": TRUTH,
    "metrics/ground_truth.py:_near": TRUTH,
    "metrics/ground_truth.py:_one": TRUTH,
    "metrics/ground_truth.py:_undirected": TRUTH,
    "metrics/ground_truth.py:accuracy": NUMBERS,
    "model/borrow.py:flush_denormals": "a probe of the processor",
    "model/causal.py:require_dependence": "moved at once",
    "model/removal_choice.py:kept": MOVED,
    "model/removal_choice.py:random_deletions": MOVED,
    "model/subset_worlds.py:random_worlds": "for the kernel, which runs on the CPU only",
    "model/runner.py:_forward_plain": "empty, and replaced before it is read",
    "model/strategy.py:draw": MOVED,
    "model/tracing.py:require_edge_identity": MOVED,
    "runs/parquet.py:_explanation": "what is read from a file is on the CPU; attach moves it to the graph",
}
"""Functions that make tensors without a device, and why they may."""

CPU_ROOMS = (
    "plot/",
    "reports/",
    "wording/",
    "datasets/",
    "pattern/",
    "model/compiled_",
    "model/weighed_batch.py",
    "model/conversion.py",
)
"""Where all tensors are on the CPU: what people see and count, datasets as they are loaded, and what the kernel is given."""


def test_no_tensor_is_made_without_a_device(tmp_path: Path) -> None:
    with Factories() as found:
        stored(lambda value: value, tmp_path)
    every = found.places.union(*(on_the_cpu(name)[1] for name in SCENARIOS))
    places = {place for place in every if not place.startswith(CPU_ROOMS)}
    assert places - ON_THE_CPU.keys() == set(), "give them the device of what they are combined with"
    assert ON_THE_CPU.keys() - places == set(), "these entries are no longer needed"


def test_the_recorder_finds_a_factory_without_a_device() -> None:
    with Factories() as found:
        metrics.sparsity(torch.zeros(0))  # made on the device of the mask
        assert found.places == set()
        metrics.stability([explained := nodes(lambda value: value), explained])
    assert "metrics/agreement.py:stability" in found.places


def test_the_other_device_refuses_what_cuda_refuses() -> None:
    here = torch.arange(3.0)
    with pytest.raises(AssertionError, match="mixed devices"), other_device() as device, suppress(RuntimeError):
        here.to(device) + here  # noticed although the error is swallowed
    with other_device() as device:
        there = here.to(device)
        assert (there * torch.tensor(2.0)).tolist() == [0, 2, 4]  # a scalar may be on the CPU
        assert torch.zeros(2, device=device).device == device
        there.requires_grad_().square().sum().backward()
        assert there.grad.tolist() == [0, 2, 4]
        with pytest.raises((TypeError, RuntimeError), match=r"numpy|NumPy"):
            there.detach().numpy()
    for mistake in (
        lambda device: torch.rand(2, generator=torch.Generator(), device=device),
        lambda device: torch.cat([here, here.to(device)]),
        lambda device: torch.stack([torch.tensor(1.0), torch.tensor(1.0).to(device)]),
        lambda device: here[torch.tensor([0]).to(device)],
        lambda device: torch.searchsorted(here, here.to(device)),
        lambda device: here.clone().index_add_(0, torch.arange(3), here.to(device)),
    ):
        with pytest.raises(RuntimeError, match="device"), other_device() as device:
            mistake(device)


# --- another system ------------------------------------------------------------------------------------------------------


def test_without_an_affinity_the_machine_says_how_many_cores_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert usable_cores() >= 1
    monkeypatch.delattr("os.sched_getaffinity", raising=False)  # as on macOS
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert usable_cores() == Processes().workers == 7
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert Processes().workers == 1


def test_worker_processes_speak_the_protocol_of_macos(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There every file descriptor is acknowledged, and there is no /dev/shm."""
    (tmp_path / "sitecustomize.py").write_text("from multiprocessing import reduction\nreduction.ACKNOWLEDGE = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))  # the workers get it as PYTHONPATH
    monkeypatch.setattr("multiprocessing.reduction.ACKNOWLEDGE", True)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    big = torch.ones(MIN_BUFFER_BYTES)
    with Processes(2) as backend:
        found = dict(backend.map(lambda number: float(big.sum()) * number, [1, 2, 3]))
    assert found == {n: (n + 1.0) * MIN_BUFFER_BYTES for n in range(3)}


def test_a_worker_that_dies_before_it_acknowledges_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS the error is a RuntimeError, not an OSError."""
    send, failures = reduction.send_handle, iter([True])

    def fail_once(connection: Any, handle: int, pid: int) -> None:
        if next(failures, False):
            os.kill(pid, signal.SIGKILL)
            raise RuntimeError("did not receive acknowledgement of fd")
        send(connection, handle, pid)

    monkeypatch.setattr(reduction, "send_handle", fail_once)
    with Processes(1) as backend:
        assert dict(backend.map(lambda number: 2 * number, [5, 6])) == {0: 10, 1: 12}


def test_a_system_without_shared_files_has_no_worker_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("socket.send_fds")
    with pytest.raises(BackendError, match=r"need a system .* Use backend='local'"):
        Processes(2)


def test_a_system_without_locks_refuses_to_store_and_explains_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)  # import fcntl raises ImportError, as on Windows
    explain, data = node_explainer(lambda value: value)
    assert len(explain_many(explain, data, [3])) == 1
    with pytest.raises(StoreError, match=r"must be able to lock files, .* Leave out=\.\.\. out"):
        explain_many(explain, data, [3], out=tmp_path / "run")
    folder, trials = study.start(study.find("smoke"), tmp_path / "study")
    with pytest.raises(StoreError, match="must be able to lock files"):
        list(study.run_trials(folder, study.find("smoke"), trials))


def test_a_file_system_without_locks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    explain, data = node_explainer(lambda value: value)
    with pytest.raises(StoreError, match=r"\.lock must be on a file system with locks \(got: No locks available\)"):
        explain_many(explain, data, [3], out=tmp_path / "run")


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    script = (
        "import sys, time; from nseg.storage.locks import lock_file\n"
        f"file = open({str(path)!r}, 'a'); print(lock_file(file, wait=False), flush=True); time.sleep(60)"
    )
    with (
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner,
        path.open("a") as file,
    ):
        assert owner.stdout is not None
        assert owner.stdout.readline() == "True\n"
        assert not lock_file(file, wait=False)
        owner.kill()
        owner.wait()
        assert lock_file(file, wait=True)


def test_only_the_helpers_use_what_some_systems_lack() -> None:
    """Linux only: the affinity of a process, and files below /dev and /proc, unless guarded."""
    guarded = {
        "backends/base.py": {"sched_getaffinity"},
        "backends/processes.py": {"/dev/shm"},
        "backends/start.py": {"os.fork"},
        "storage/locks.py": {"fcntl"},
        "study/folder.py": {"/proc/"},
    }
    source = Path(nseg.__file__).parent
    for path in source.rglob("*.py"):
        text = path.read_text()
        found = {name for name in ("sched_getaffinity", "/dev/shm", "fcntl", "/proc/", "os.fork") if name in text}
        assert found == guarded.get(path.relative_to(source).as_posix(), set()), path


# --- the Python and the libraries that pyproject.toml allows -------------------------------------------------------------


def test_only_one_module_needs_a_newer_python_and_it_has_a_substitute() -> None:
    """``tomllib`` is new in Python 3.11; everything newer than 3.10 that a parser cannot see."""
    newer = re.compile(
        r"\b(tomllib|StrEnum|ExceptionGroup|datetime\.UTC|import UTC|add_note|TaskGroup|file_digest|process_cpu_count|"
        r"typing import [^\n]*\b(Self|Never|assert_never|LiteralString|override|NotRequired|Required|Unpack))\b"
    )
    source = Path(nseg.__file__).parent
    found = {path.relative_to(source).as_posix() for path in source.rglob("*.py") if newer.search(path.read_text())}
    assert found == {"study/plan.py"}
    assert "import tomli as tomllib" in (source / "study/plan.py").read_text()
    for path in source.rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 10))


def test_the_script_of_lowest_versions_reads_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = Path(__file__).parent.parent / "scripts"
    monkeypatch.syspath_prepend(str(scripts))  # as for a script that is started
    script = runpy.run_path(str(scripts / "lowest_versions.py"))
    output = "numpy==1.26.0\ntorch==2.6.0\ntorch-geometric==2.6.0\n"
    monkeypatch.setattr("subprocess.run", lambda *_, **__: subprocess.CompletedProcess([], 0, output))
    assert script["lowest_pins"](Path("python"), []) == output.split()
    assert script["lowest_pins"](Path("python"), ["torch==2.13.0"]) == [
        "numpy==1.26.0",
        "torch-geometric==2.6.0",
        "torch==2.13.0",
    ]


# --- datasets ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tree-cycles", "ba-2motif"])
def test_every_load_returns_its_own_copy(name: str) -> None:
    first = datasets.load(name)
    expected = [data.clone() for data in first.graphs]
    for data in first.graphs[:3]:
        for value in data.to_dict().values():
            value.zero_()
        data.y = None
        data.further = torch.ones(1)
    first.graphs.pop()
    first.instances.zero_()
    again = datasets.load(name)
    assert len(again.graphs) == len(expected)
    assert again.instances.unique().numel() == again.instances.numel()
    for one, other in zip(again.graphs, expected, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in other.keys())  # noqa: SIM118 - Data is no dictionary
