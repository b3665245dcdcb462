"""Compiled passes: what the kernel computes is what torch does, and without the kernel all goes on as before."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_causal_model import causal_models
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain.config import MaskType, ModelReturnType, ModelTaskLevel
from torch_geometric.nn import (
    ChebConv,
    EdgeConv,
    GATConv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    LayerNorm,
    LEConv,
    ResGatedGraphConv,
    SAGEConv,
    SGConv,
    TAGConv,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)
from zoo import CLASSES, FEATURES, GRAPH_CONFIG, LINK_CONFIG, NODE_CONFIG, Link, explainer, graph, mlp, reversed_sage, seeded

from nseg import NSEG, explain_many
from nseg.explain.many import open_causal_models
from nseg.model import kernel, known_answers
from nseg.model import subset_worlds as subset_worlds_module
from nseg.model.borrow import borrow
from nseg.model.causal import CausalModel
from nseg.model.compiled_batch import CompiledBatch
from nseg.model.kernel import load_kernel, read_classes
from nseg.model.kernel_steps import ALL_NODES, Code, Lookup, Step, Value
from nseg.model.narrowing import narrow_messages
from nseg.model.outcomes.base import Outcome
from nseg.model.outcomes.multiclass import MulticlassOutcome
from nseg.model.programs import record
from nseg.model.rescaling import RescaledMessages
from nseg.model.subset_worlds import EDGES, NODES, CoveredWeights, SubsetWorlds, count_kept
from nseg.search.parts import MaskParts
from nseg.search.worlds import subset_worlds

pytestmark = pytest.mark.skipif(shutil.which(os.environ.get("CC", "cc")) is None, reason="there is no C compiler")

WIDTH = 16  # from here on rows that are the same in several worlds are computed once


class Net(nn.Module):
    """Two layers, and what networks usually do between and after them."""

    def __init__(
        self,
        conv: Callable[[int, int], nn.Module] = GCNConv,
        between: Callable[[], nn.Module] = nn.ReLU,
        norm: Callable[[int], nn.Module] = lambda _: nn.Identity(),
        read_out: Callable[[Tensor, Any], Tensor] = global_mean_pool,
        after: Callable[[Tensor], Tensor] = lambda x: x,
        residual: bool = False,
        jump: bool = False,
        parts: int = 1,
        given: tuple[str, ...] = (),
        scale: bool = True,
    ) -> None:
        super().__init__()
        self.convs = nn.ModuleList([conv(FEATURES, WIDTH), conv(WIDTH, WIDTH)])
        self.norms = nn.ModuleList([norm(WIDTH), norm(WIDTH)])
        self.between, self.read_out, self.after, self.drop = between(), read_out, after, nn.Dropout(0.5)
        self.head = nn.Sequential(nn.Linear(WIDTH * (2 if jump else 1) * parts, 6), nn.ReLU(), nn.Linear(6, CLASSES))
        self.residual, self.jump, self.level = residual, jump, "node"
        self.pass_on, self.scale = given, scale
        for module in self.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.running_mean.uniform_(-0.2, 0.2)
                module.running_var.uniform_(0.5, 2.0)

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Any = None, edge_weight: Any = None, edge_attr: Any = None
    ) -> Tensor:
        found, x = [], x * 0.9 if self.scale else x
        more = {
            name: value for name, value in (("edge_weight", edge_weight), ("edge_attr", edge_attr)) if name in self.pass_on
        }
        for conv, norm in zip(self.convs, self.norms, strict=True):
            new = self.drop(self.between(norm(conv(x, edge_index, **more))))
            x = x + new if self.residual and x.shape == new.shape else new
            found.append(x)
        x = torch.cat(found, 1) if self.jump else x
        return self.after(self.head(self.read_out(x, batch) if self.level == "graph" else x))


def gin(a: int, b: int) -> nn.Module:
    return GINConv(nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Linear(b, b)), train_eps=True)


def narrow_gin(a: int, b: int) -> nn.Module:
    return GINConv(nn.Sequential(nn.Linear(a, b // 2), nn.ReLU(), nn.Linear(b // 2, b)), train_eps=True)


def mean_and_max(x: Tensor, batch: Any) -> Tensor:
    return torch.cat([global_mean_pool(x, batch), global_max_pool(x, batch), global_add_pool(x, batch)], 1)


NETS: dict[str, Callable[[], Net]] = {
    "gcn": Net,
    "gcn, features as they are": lambda: Net(scale=False),
    "gin, features as they are": lambda: Net(gin, scale=False),
    "gin, narrower and narrower": lambda: Net(lambda a, b: gin(a, b) if a < b else narrow_gin(a, b), scale=False),
    "gcn without self-loops": lambda: Net(lambda a, b: GCNConv(a, b, add_self_loops=False)),
    "gcn with edge weights": lambda: Net(given=("edge_weight",)),
    "gin with batch norm": lambda: Net(gin, norm=nn.BatchNorm1d),
    "gin, jumping knowledge, residuals": lambda: Net(gin, residual=True, jump=True),
    "gcn, jumping knowledge, residuals": lambda: Net(residual=True, jump=True),
    "sage": lambda: Net(SAGEConv),
    "sage, unit rows": lambda: Net(lambda a, b: SAGEConv(a, b, normalize=True, project=True)),
    "sage, target to source": lambda: Net(reversed_sage),
    "graph conv": lambda: Net(GraphConv),
    "graph conv, mean, edge weights": lambda: Net(lambda a, b: GraphConv(a, b, aggr="mean"), given=("edge_weight",)),
    "tag": lambda: Net(lambda a, b: TAGConv(a, b, K=2)),
    "sgc": lambda: Net(lambda a, b: SGConv(a, b, K=2)),
    "cheb": lambda: Net(lambda a, b: ChebConv(a, b, K=2)),
    "gine": lambda: Net(lambda a, b: GINEConv(mlp(a, b), edge_dim=2), given=("edge_attr",)),
    "gated by both ends": lambda: Net(ResGatedGraphConv),
    "edge conv": lambda: Net(lambda a, b: EdgeConv(mlp(2 * a, b), aggr="add")),
    "le": lambda: Net(LEConv, given=("edge_weight",)),
    "elu": lambda: Net(between=nn.ELU),
    "leaky": lambda: Net(between=lambda: nn.LeakyReLU(0.2)),
    "gelu": lambda: Net(between=nn.GELU),
    "gelu by tanh": lambda: Net(between=lambda: nn.GELU("tanh")),
    "silu": lambda: Net(between=nn.SiLU),
    "softplus": lambda: Net(between=nn.Softplus),
    "selu": lambda: Net(between=nn.SELU),
    "relu6": lambda: Net(between=nn.ReLU6),
    "sigmoid": lambda: Net(between=nn.Sigmoid),
    "tanh": lambda: Net(between=nn.Tanh),
    "prelu": lambda: Net(between=nn.PReLU),
    "layer norm": lambda: Net(norm=nn.LayerNorm),
    "layer norm of PyG": lambda: Net(gin, norm=lambda width: LayerNorm(width, mode="node")),
    "log-softmax": lambda: Net(after=lambda x: x.log_softmax(-1)),
}
"""Networks that the kernel runs at node and at graph level."""

READ_OUTS = {"sum": global_add_pool, "mean": global_mean_pool, "largest": global_max_pool, "all": mean_and_max}


def make(name: str, level: str = "node", dtype: torch.dtype = torch.float32) -> Net:
    model = seeded(NETS[name])
    model.level = level
    return model.to(dtype)


def small_graphs(**options: Any) -> list[Data]:
    """Graphs of different sizes, some with nodes that no edge reaches."""
    return [graph(5 + number, 4 + 2 * number, seed=number, **options) for number in range(4)]


def in_dtype(data: Data, dtype: torch.dtype) -> Data:
    return data.apply(lambda x: x.to(dtype) if x.is_floating_point() else x)


@contextlib.contextmanager
def opened(model: Net, data: Data | list[Data], config: dict[str, str] | None = None) -> Iterator[CausalModel]:
    """The causal model of some nodes of a graph, or of some graphs."""
    with torch.no_grad(), contextlib.ExitStack() as stack:
        if isinstance(data, Data):
            stack.enter_context(borrow(model))
            yield causal_models(model, data, (0, 5, 7, 9), config or NODE_CONFIG)[1][0][1]
        else:
            graphs = [Data(**{name: one[name] for name in ("x", "edge_index", *model.pass_on)}) for one in data]
            models = stack.enter_context(open_causal_models(explainer(model, NSEG(), config or GRAPH_CONFIG), graphs))
            yield max((causal for _, causal in models), key=lambda causal: len(causal.instances))


def random_worlds(parts: MaskParts, seed: int = 0) -> SubsetWorlds:
    """Random subsets, all elements, and none; some subsets are given twice, and of one single elements are flipped."""
    rng, share = torch.Generator().manual_seed(seed), torch.linspace(0, 1, 9).unsqueeze(1)
    kept = torch.rand(len(share), parts.owner.numel(), generator=rng) < share
    flipped = kept[4] ^ (parts.position == torch.arange(18).unsqueeze(1))
    return subset_worlds(parts, torch.cat([kept, kept[2:5], flipped]))


def by_torch(causal: CausalModel, worlds: SubsetWorlds, remover: RescaledMessages | None) -> Tensor:
    weights = worlds.weights(causal.dtype)
    if remover is not None:
        return remover.run(weights, len(worlds))
    return causal._runner.run(weights.get(EDGES), weights.get(NODES), len(worlds))


def by_kernel(causal: CausalModel, worlds: SubsetWorlds, remover: RescaledMessages | None = None) -> Tensor:
    """The same by a compiled pass, which must be there."""
    key = EDGES in worlds.parts, NODES in worlds.parts
    if key not in causal._runner._programs._found:
        causal._runner._programs._found[key] = record(causal._runner, *key)
    found = causal._runner.run_compiled(worlds, remover)
    assert found is not None, "the kernel does not run this network"
    return found


def assert_kernel_is_torch(causal: CausalModel, mask: MaskType | None, tied: bool = False) -> bool:
    """Compare both where messages are masked, and where edges are deleted; returns whether that can be compared."""
    parts = MaskParts.of(causal.instances, edges=True, nodes=mask, undirected=tied)
    worlds, remover = random_worlds(parts), causal._remover_of(tied)
    removers = [None, remover] if isinstance(remover, RescaledMessages) else [None]
    expected = [by_torch(causal, worlds, one) for one in removers]  # before anything is recorded
    for one, right in zip(removers, expected, strict=True):
        size = float(right.abs().max())
        exact = {"rtol": 1e-4, "atol": 1e-5 * size} if right.dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-10 * size}
        torch.testing.assert_close(by_kernel(causal, worlds, one), right, **exact)
    return len(removers) == 2


SMALLER_GRAPHS = {("cheb", "node"), ("cheb", "graph"), ("gcn with edge weights", "node")}
"""Networks whose edges are not deleted by weighing messages."""


@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("name", NETS)
def test_the_kernel_computes_what_torch_does(name: str, level: str) -> None:
    model, data = make(name, level), graph() if level == "node" else small_graphs(kind="duplicates")
    for mask in (None, MaskType.object):
        with opened(model, data) as causal:
            assert assert_kernel_is_torch(causal, mask) == ((name, level) not in SMALLER_GRAPHS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["32 bits", "64 bits"])
@pytest.mark.parametrize("kind", ["undirected", "directed", "loops", "duplicates"])
@pytest.mark.parametrize("name", ["gcn", "gin with batch norm", "sage"])
def test_the_kernel_computes_what_torch_does_on_every_kind_of_graph(name: str, kind: str, dtype: torch.dtype) -> None:
    for level, mask in (("node", MaskType.attributes), ("graph", MaskType.common_attributes)):
        model = make(name, level, dtype)
        data = [in_dtype(one, dtype) for one in ([graph(kind=kind)] if level == "node" else small_graphs(kind=kind))]
        with opened(model, data[0] if level == "node" else data) as causal:
            assert_kernel_is_torch(causal, mask, tied=kind == "undirected")


@pytest.mark.parametrize("name", READ_OUTS)
def test_the_kernel_knows_all_usual_read_outs(name: str) -> None:
    model = seeded(lambda: Net(gin, read_out=READ_OUTS[name], parts=3 if name == "all" else 1))
    model.level = "graph"
    with opened(model, small_graphs()) as causal:
        assert assert_kernel_is_torch(causal, MaskType.object)


ONE_SCORE = {"column": lambda x: x[:, 0].sigmoid(), "squeezed": lambda x: x[:, 1:2].squeeze(-1).sigmoid()}


def one(_: Lookup) -> Tensor:
    return torch.ones(1)


@pytest.mark.parametrize(("width", "level", "narrowed"), [(8, ALL_NODES, True), (32, ALL_NODES, False), (8, 1, False)])
def test_matrices_are_applied_first_where_messages_become_no_wider(width: int, level: int, narrowed: bool) -> None:
    sent, received, total = Value(0, 16, ALL_NODES), Value(1, 16, level), Value(2, 16, level)
    steps = [
        Step(Code.FEATURES, sent),
        Step(Code.PRODUCT, received, sent),
        Step(Code.SUM, total, received, sent, row=one, is_scalar=True),
        Step(Code.LINEAR, Value(3, width, level), total, row=one, bias=one, activation=(1, 0.0)),
    ]
    found = narrow_messages(steps)
    if not narrowed:
        assert found == steps
        return
    assert [step.code for step in found] == [Code.FEATURES, Code.LINEAR, Code.PRODUCT, Code.SUM]
    assert [step.target.width for step in found] == [16, 8, 8, 8]
    assert found[1].bias is None
    assert found[3].bias is one
    assert found[3].activation == (1, 0.0)
    assert found[3].target == steps[3].target
    assert found[3].other == found[1].target == found[2].source


@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("name", ONE_SCORE)
def test_what_follows_on_the_kernel_may_be_left_to_torch(name: str, level: str) -> None:
    config = {"mode": "binary_classification", "task_level": level, "return_type": "probs"}
    model = seeded(lambda: Net(gin, after=ONE_SCORE[name]))
    model.level = level
    with opened(model, graph() if level == "node" else small_graphs(), config) as causal:
        assert assert_kernel_is_torch(causal, None)


class DotProduct(Link):
    """Scores pairs of nodes by the product of what it finds for both."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        x = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
        return (x[edge_label_index[0]] * x[edge_label_index[1]]).sum(-1)


@pytest.mark.parametrize("kind", [Link, DotProduct])
def test_the_kernel_computes_what_torch_does_for_pairs_of_nodes(kind: type[nn.Module]) -> None:
    pairs, asked = torch.tensor([[0, 5, 7, 5, 4], [3, 2, 9, 5, 8]]), explainer(seeded(kind), NSEG(), LINK_CONFIG)
    for mask in (None, MaskType.object):
        with open_causal_models(asked, graph(), [0, 1, 2, 3], edge_label_index=pairs) as models:
            for _, causal in models:
                with torch.no_grad():
                    assert assert_kernel_is_torch(causal, mask)


@settings(max_examples=15, deadline=None)
@given(
    nodes=st.integers(2, 9),
    ends=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=20),
    name=st.sampled_from(["gcn", "gin with batch norm", "graph conv, mean, edge weights"]),
)
def test_the_kernel_computes_what_torch_does_on_any_graph(nodes: int, ends: list[tuple[int, int]], name: str) -> None:
    edge_index = torch.tensor([*ends, (0, 0)]).t() % nodes  # self-loops, multiple edges, nodes without edges
    one = Data(x=torch.randn(nodes, FEATURES), edge_index=edge_index, edge_weight=torch.rand(len(ends) + 1) + 0.5)
    with opened(make(name, "graph"), [one, *small_graphs()]) as causal:
        assert_kernel_is_torch(causal, MaskType.object)


@pytest.mark.parametrize("level", ["node", "graph"])
def test_batch_is_alone_bit_for_bit(level: str) -> None:
    model = make("gin with batch norm", level)
    with opened(model, graph() if level == "node" else small_graphs()) as causal:
        parts = MaskParts.of(causal.instances, edges=True, nodes=MaskType.object)
        worlds = random_worlds(parts)
        together = by_kernel(causal, worlds)
        rows = causal.instances.row_ptr
        for number in range(len(causal.instances)):
            alone = causal.select(torch.tensor([number]))
            alone._runner._origin = None  # it compiles a pass of its own
            own = worlds.kept[:, parts.owner == number]
            some = subset_worlds(MaskParts.of(alone.instances, edges=True, nodes=MaskType.object), own)
            found = by_kernel(alone, some)
            assert torch.equal(found, together[:, rows[number] : rows[number + 1]])


@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_repeated_instances_and_subsets_give_the_same(name: str) -> None:
    with opened(make(name, "graph"), small_graphs()) as causal:
        twice, remover = causal.repeat(2), causal._remover_of(False)
        by_kernel(causal, random_worlds(MaskParts.of(causal.instances, edges=True)), remover)
        parts = MaskParts.of(twice.instances, edges=True)
        first = parts.owner < len(causal.instances)
        kept = random_worlds(parts).kept
        kept[:, ~first] = kept[:, first].flip(0)
        worlds, again = subset_worlds(parts, kept), twice._remover_of(False)
        found = by_kernel(twice, worlds, again)
        torch.testing.assert_close(found, by_torch(twice, worlds, again), rtol=1e-4, atol=1e-5)
        one, other = found.view(len(kept), -1, 2, len(causal.instances), CLASSES).unbind(2)
        assert torch.equal(one, other.flip(0))


# --- with and without the kernel -----------------------------------------------------------------------------------------


def asked_one_after_the_other(level: str, changes: bool = True) -> list[Tensor]:
    """Answers to questions that share subsets; if anything changes, also what their elements are."""
    found = []
    with opened(make("gin with batch norm", level), graph() if level == "node" else small_graphs()) as causal:
        kinds = [(None, False), (None, True), (MaskType.object, False)] if changes else [(None, False)]
        for mask, tied in [*kinds, *kinds]:
            parts = MaskParts.of(causal.instances, edges=True, nodes=mask, undirected=tied)
            for seed in (0, 0, 1):
                some = torch.tensor([1, 0, 1]) if seed else torch.arange(len(causal.instances))
                its = causal.select(some)
                found.append(by_kernel(its, random_worlds(parts.select(some, its.instances), seed)).clone())
    return found


@pytest.mark.parametrize("most", [1024, 64], ids=["all are kept", "some are replaced"])
@pytest.mark.parametrize("level", ["node", "graph"])
def test_answers_that_are_kept_are_those_of_new_passes(level: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_answers, "MOST_KNOWN", most)
    kept = asked_one_after_the_other(level)
    monkeypatch.setattr(known_answers, "MOST_MEMORY", 0)
    assert all(map(torch.equal, kept, asked_one_after_the_other(level)))


def test_a_subset_that_is_asked_for_again_takes_no_pass() -> None:
    with opened(make("gin with batch norm", "graph"), small_graphs()) as causal:
        parts = MaskParts.of(causal.instances, edges=True, nodes=None)
        right = by_kernel(causal, random_worlds(parts)).clone()
        (compiled,) = causal._runner.origin[0]._compiled._found.values()
        assert compiled is not None
        assert compiled.known is not None
        compiled.known.answers += 1
        torch.testing.assert_close(by_kernel(causal, random_worlds(parts)), right + 1)


def without_kernel(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kernel, "load_kernel", lambda _: None)
    patch.setattr(subset_worlds_module, "load_kernel", lambda _: None)


@pytest.fixture
def fresh_kernel() -> Iterator[None]:
    """Forgets which kernels were loaded, before the test and after it."""
    load_kernel.cache_clear()
    yield
    load_kernel.cache_clear()


def explain(level: str) -> list[Any]:
    data, config = (graph(), NODE_CONFIG) if level == "node" else (small_graphs(), GRAPH_CONFIG)
    which = [0, 5, 7] if level == "node" else None
    model = make("gin with batch norm", level)
    return explain_many(explainer(model, NSEG(steps=30), config), data, which, progress=False)


@pytest.mark.parametrize("level", ["node", "graph"])
def test_explanations_are_the_same_without_the_kernel(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, run = [], CompiledBatch.run
    monkeypatch.setattr(CompiledBatch, "run", lambda *args: calls.append(None) or run(*args))
    found = explain(level)
    assert calls
    calls.clear()
    without_kernel(monkeypatch)
    for one, other in zip(found, explain(level), strict=True):
        assert torch.equal(one.hard_edge_mask, other.hard_edge_mask)
        assert one.pns == pytest.approx(other.pns, abs=1e-6)
        # gradients are summed in another order, and Adam steps as far for a gradient near 0 as for a large one
        torch.testing.assert_close(one.edge_mask, other.edge_mask, rtol=0, atol=1e-4)
    assert not calls


@pytest.mark.usefixtures("fresh_kernel")
def test_without_a_compiler_torch_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nonexistent")
    assert load_kernel(torch.float32) is None
    assert len(explain("graph")) == 4


@pytest.mark.usefixtures("fresh_kernel")
def test_the_kernel_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_kernel(torch.float32) is not None
    monkeypatch.setenv("NSEG_KERNEL", "0")
    load_kernel.cache_clear()
    assert load_kernel(torch.float32) is None


@pytest.mark.usefixtures("fresh_kernel")
def test_the_kernel_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NSEG_CACHE", str(tmp_path))
    assert load_kernel(torch.float32) is not None
    (file,) = (tmp_path / "kernel").iterdir()
    assert file.suffix == ".so"
    load_kernel.cache_clear()
    monkeypatch.setattr(kernel, "_compile", lambda *_: pytest.fail("compiled again"))
    assert load_kernel(torch.float32) is not None


@pytest.mark.usefixtures("fresh_kernel")
@pytest.mark.parametrize("end", ["exit 1", "kill -9 $$"])
def test_a_half_written_file_is_never_loaded(end: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\nfor last; do :; done\nprintf half > "$last"\n{end}\n')
    compiler.chmod(0o700)
    monkeypatch.setenv("NSEG_CACHE", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setenv("CC", str(compiler))
        assert load_kernel(torch.float32) is None
    assert not list((tmp_path / "kernel").iterdir())
    load_kernel.cache_clear()
    assert load_kernel(torch.float32) is not None


def test_what_the_kernel_does_not_know_is_left_to_torch() -> None:
    model = seeded(lambda: Net(GATConv))
    with opened(model, graph()) as causal:
        worlds = random_worlds(MaskParts.of(causal.instances, edges=True))
        causal._runner._programs._found[True, False] = record(causal._runner, True, False)
        assert causal._runner.run_compiled(worlds, None) is None
        output = causal.output(worlds)
        torch.testing.assert_close(output, by_torch(causal, worlds, None))


@pytest.mark.parametrize("compiled", [True, False])
@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5), subsets=st.integers(0, 4), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_elements_are_counted_as_by_a_loop(compiled: bool, sizes: list[int], subsets: int, seed: int) -> None:
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    total = int(ptr[-1])
    kept = torch.rand(subsets, 2 * total, generator=torch.Generator().manual_seed(seed)) < 0.5
    parts = [CoveredWeights(torch.arange(0), ptr), CoveredWeights(torch.arange(0), ptr + total)]
    expected = [
        [sum(bool(row[part.ptr[b] + i]) for part in parts for i in range(sizes[b])) for b in range(len(sizes))]
        for row in kept
    ]
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            without_kernel(patch)
        assert count_kept(kept, parts).tolist() == expected


@settings(max_examples=60)
@given(
    worlds=st.integers(1, 4), rows=st.integers(1, 5), classes=st.integers(2, 6), seed=st.integers(0, 99), wide=st.booleans()
)
def test_classes_are_read_as_torch_reads_them(worlds: int, rows: int, classes: int, seed: int, wide: bool) -> None:
    """Few different scores, so that several are the largest; large ones, so that probabilities round to 0 and 1."""
    rng = torch.Generator().manual_seed(seed)
    dtype = torch.float64 if wide else torch.float32
    scores = torch.randint(-2, 3, (worlds, rows, classes), generator=rng).to(dtype) * (40 if seed % 3 == 0 else 0.7)
    target = torch.randint(classes, (rows,), generator=rng)
    outcome = MulticlassOutcome(ModelReturnType.raw, ModelTaskLevel.graph)
    with torch.no_grad():
        found = read_classes(scores, target)
        expected = Outcome.read(outcome, scores, target, odds=True)
    assert found is not None
    for one, other in zip(found, expected, strict=True):
        assert other is not None
        torch.testing.assert_close(one, other)
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_scores_that_are_not_finite_are_left_to_torch(bad: float) -> None:
    scores = torch.zeros(2, 3, 4)
    scores[1, 2, 3] = bad
    with torch.no_grad():
        assert read_classes(scores, torch.zeros(3, dtype=torch.long)) is None
        assert (
            read_classes(torch.zeros(2, 3, 4), torch.zeros(1, dtype=torch.long)) is None
        )  # a class for each row is missing
    assert read_classes(torch.zeros(2, 3, 4), torch.zeros(3, dtype=torch.long)) is None  # a gradient may be asked for
