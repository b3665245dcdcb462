"""Patterns: canonical forms, occurrences, exact counts, greedy choice, and tests on models whose rule is known."""

from __future__ import annotations

import itertools
import json
import math

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain.config import ModelConfig
from torch_geometric.nn import MessagePassing, global_add_pool

import nseg
from nseg import (
    NSEG,
    Explainer,
    InputError,
    PatternSettings,
    SettingsError,
    UnsupportedError,
    datasets,
    explain_many,
    models,
)
from nseg.explanation import Explanation
from nseg.names import Names
from nseg.pattern.forms import FormCatalogue, as_networkx
from nseg.pattern.matching import OccurrenceSearch, cover_occurrences, occurrence_edges
from nseg.pattern.reading import PredictionReader
from nseg.pattern.selection import PatternIndex, choose
from nseg.pattern.text import smarts, structure_text
from nseg.pattern.trials import PatternTester
from nseg.pattern.typed_graph import NodeLabel, TypedGraph

KINDS = ("C", "N", "O")
EFFORT = 100_000


@st.composite
def graphs(draw: st.DrawFn, most: int = 6, connected: bool = False) -> TypedGraph:
    """A small graph with labels."""
    number, directed = draw(st.integers(1, most)), draw(st.booleans()) and not connected
    pairs = list(itertools.permutations(range(number), 2) if directed else itertools.combinations(range(number), 2))
    chosen = set(draw(st.lists(st.sampled_from(pairs), max_size=8))) if pairs else set()
    if connected:
        chosen |= {(draw(st.integers(0, n - 1)), n) for n in range(1, number)}
    labels = tuple(NodeLabel(draw(st.sampled_from(KINDS[:2])), target=draw(st.booleans())) for _ in range(number))
    return TypedGraph(labels, {pair: draw(st.sampled_from(["", "x"])) for pair in sorted(chosen)}, directed)


def relabelled(graph: TypedGraph, order: list[int]) -> TypedGraph:
    """The same graph with other numbers."""
    place = {old: new for new, old in enumerate(order)}
    edges = {(place[a], place[b]): label for (a, b), label in reversed(graph.edges.items())}
    if not graph.directed:
        edges = {(min(e), max(e)): label for e, label in edges.items()}
    return TypedGraph(tuple(graph.nodes[n] for n in order), edges, graph.directed)


# --- canonical forms and occurrences -------------------------------------------------------------------------------------


@given(graphs(), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_a_form_does_not_depend_on_the_numbers_of_nodes(graph: TypedGraph, random) -> None:
    forms, order = FormCatalogue(), list(range(len(graph.nodes)))
    number = forms.number(graph)
    random.shuffle(order)
    assert forms.number(relabelled(graph, order)) == number
    assert len(forms) == 1


def equal_labels(a: dict, b: dict) -> bool:
    return a["label"] == b["label"]


@given(st.lists(graphs(most=4), min_size=2, max_size=5))
@settings(max_examples=60)
def test_forms_are_equal_exactly_for_isomorphic_graphs(several: list[TypedGraph]) -> None:
    forms = FormCatalogue()
    numbers = [forms.number(graph) for graph in several]
    for (a, m), (b, n) in itertools.combinations(zip(several, numbers, strict=True), 2):
        same = a.directed == b.directed and nx.is_isomorphic(as_networkx(a), as_networkx(b), equal_labels, equal_labels)
        assert (m == n) == same


def cycle(nodes: list[int]) -> dict[tuple[int, int], str]:
    return {(min(a, b), max(a, b)): "" for a, b in zip(nodes, nodes[1:] + nodes[:1], strict=True)}


def test_graphs_with_equal_weisfeiler_leman_colours_are_told_apart() -> None:
    six = TypedGraph((NodeLabel(),) * 6, cycle([0, 1, 2, 3, 4, 5]))
    triangles = TypedGraph((NodeLabel(),) * 6, cycle([0, 1, 2]) | cycle([3, 4, 5]))
    forms = FormCatalogue()
    assert set(forms.colours(six)) == set(forms.colours(triangles))
    assert forms.number(six) != forms.number(triangles)


@given(graphs(most=3, connected=True), graphs(most=6))
@settings(max_examples=80)
def test_occurrences_are_networkx_monomorphisms(pattern: TypedGraph, graph: TypedGraph) -> None:
    if graph.directed:
        pattern = TypedGraph(pattern.nodes, pattern.edges, True)
    matcher = (nx.isomorphism.DiGraphMatcher if graph.directed else nx.isomorphism.GraphMatcher)(
        as_networkx(graph), as_networkx(pattern), node_match=equal_labels, edge_match=equal_labels
    )
    expected = {tuple(sorted((b, a) for a, b in one.items())) for one in matcher.subgraph_monomorphisms_iter()}
    search = OccurrenceSearch(pattern, graph, EFFORT)
    assert {tuple(enumerate(one)) for one in search} == expected
    assert search.complete
    cover = cover_occurrences(pattern, graph, EFFORT)
    assert cover.edges == {edge for one in expected for edge in occurrence_edges(pattern, graph, tuple(b for _, b in one))}
    assert cover.places <= {place for one in expected for place in one}
    assert bool(cover.places) == bool(expected)


def test_a_search_that_gives_up_says_so() -> None:
    path = TypedGraph((NodeLabel(),) * 3, {(0, 1): "", (1, 2): ""})
    dense = TypedGraph((NodeLabel(),) * 8, dict.fromkeys(itertools.combinations(range(8), 2), ""))
    search = OccurrenceSearch(path, dense, 10)
    assert len(list(search)) < 8 * 7 * 6
    assert not search.complete


# --- the greedy choice ---------------------------------------------------------------------------------------------------

shares = st.lists(st.dictionaries(st.integers(0, 9), st.sampled_from([0.25, 0.5, 1.0]), max_size=6), min_size=1, max_size=6)


def value(chosen: tuple[int, ...], covered: list[dict[int, float]], prices: list[float]) -> float:
    best = [max([covered[n].get(k, 0.0) for n in chosen], default=0.0) for k in range(10)]
    return sum(best) / 10 - sum(prices[n] for n in chosen)


@given(shares, st.integers(1, 4))
def test_greedy_coverage_keeps_its_guarantee(covered: list[dict[int, float]], most: int) -> None:
    free = [0.0] * len(covered)
    found = tuple(one.item for one in choose(covered, 10, free.__getitem__, free.__getitem__, most))
    subsets = (some for size in range(most + 1) for some in itertools.combinations(range(len(covered)), size))
    best = max(value(some, covered, free) for some in subsets)
    assert (1 - 1 / math.e) * best - 1e-9 <= value(found, covered, free) <= best + 1e-9


@given(shares, st.lists(st.integers(0, 5), min_size=6, max_size=6))
def test_priced_choice_is_between_the_best_single_and_the_best_of_all(covered, tenths) -> None:
    prices = [tenth / 10 for tenth in tenths]
    chosen = choose(covered, 10, prices.__getitem__, lambda n: 0.0, len(covered))
    found = tuple(one.item for one in chosen)
    every = [some for size in range(len(covered) + 1) for some in itertools.combinations(range(len(covered)), size)]
    assert max(value(some, covered, prices) for some in every if len(some) <= 1) <= value(found, covered, prices) + 1e-9
    assert value(found, covered, prices) <= max(value(some, covered, prices) for some in every) + 1e-9
    assert sum(one.gain for one in chosen) == pytest.approx(value(found, covered, prices))
    assert all(one.gain > 0 for one in chosen)
    # a lower bound of the price changes nothing but the number of questions, and the order of equal candidates
    eager = choose(covered, 10, prices.__getitem__, prices.__getitem__, len(covered))
    assert sum(one.gain for one in eager[:1]) == pytest.approx(sum(one.gain for one in chosen[:1]))


# --- graphs whose rule is known ------------------------------------------------------------------------------------------


class BondCounter(MessagePassing):
    """Graphs with a bond between the kinds 1 and 2 are class 1, all others class 0."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.weight = nn.Parameter(torch.tensor(20.0))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        found = global_add_pool(self.propagate(edge_index, x=x), batch)
        return torch.cat([self.weight * 0.5 - 0 * found, self.weight * found], 1)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return x_i[:, 1:2] * x_j[:, 2:3]


def undirected(pairs: list[tuple[int, int]]) -> Tensor:
    ends = torch.tensor(pairs, dtype=torch.long).view(-1, 2).T
    return torch.cat([ends, ends.flip(0)], 1)


def chain(kinds: list[int], y: int) -> Data:
    """A path of nodes of these kinds."""
    edge_index = undirected([(n, n + 1) for n in range(len(kinds) - 1)])
    return Data(x=torch.eye(3)[kinds], edge_index=edge_index, y=torch.tensor([y]))


def explained(data: Data, number: int, pairs: list[tuple[int, int]], label: int, pns: float = 1.0) -> Explanation:
    """An explanation of a graph that keeps some edges."""
    kept = {tuple(sorted(pair)) for pair in pairs}
    mask = torch.tensor([float(tuple(sorted(ends)) in kept) for ends in data.edge_index.T.tolist()])
    one = Explanation(x=data.x, edge_index=data.edge_index, edge_mask=mask, target=torch.tensor([label]))
    one.hard_edge_mask, one.output_id, one.pns = mask.bool(), number, pns
    one.edge_id, one.node_id = torch.arange(mask.numel()), torch.arange(data.num_nodes)
    one._model_config = ModelConfig("multiclass_classification", "graph", return_type="raw")
    one._model_args = []
    return one


def bonds() -> tuple[list[Data], list[Explanation]]:
    """Twelve chains with a bond N-O, two of them labelled wrongly, and eight without; explanations keep the cause."""
    data, found = [], []
    for n in range(12):
        data.append(chain([0] * (1 + n % 4) + [1, 2], int(n >= 2)))
        at = 1 + n % 4
        found.append(explained(data[-1], n, [(at, at + 1)], 1, pns=0.5 + 0.5 * (n % 2)))
    for n in range(12, 20):
        data.append(chain([0, 0, 1, 0] if n % 2 else [2, 0, 0], 0))
        found.append(explained(data[-1], n, [(0, 1)], 0))
    return data, found


def bond_explainer() -> Explainer:
    config = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}
    return Explainer(BondCounter(), NSEG(), explanation_type="model", edge_mask_type="object", model_config=config)


NAMES = {"kind_names": KINDS, "class_names": ["without", "with"]}


def test_counts_are_exact_on_a_constructed_set() -> None:
    data, explanations = bonds()
    found = nseg.patterns(explanations, data, held_out=0, **NAMES)
    (pattern,) = found.classes[1].patterns
    assert pattern.text == "N - O"
    assert (pattern.explained, pattern.predictions, pattern.elsewhere, pattern.others) == (12, 12, 0, 8)
    assert (pattern.right, pattern.wrong, pattern.size) == (10, 2, 1)
    assert pattern.pns == pytest.approx(0.75)
    assert found.classes[1].unexplained == 0
    assert [one.text for one in found.classes[0].patterns] == ["C - O", "C - C"]
    assert [(one.explained, one.elsewhere) for one in found.classes[0].patterns] == [(4, 0), (4, 9)]
    assert (pattern.necessity, pattern.sufficiency) == (None, None)


def test_a_pattern_explains_only_what_it_is_a_large_enough_share_of() -> None:
    data, explanations = bonds()
    data[0] = chain([0, 0, 0, 0, 0, 1, 2], 1)
    explanations[0] = explained(data[0], 0, [(n, n + 1) for n in range(6)], 1)
    assert nseg.patterns(explanations, data, held_out=0, share=1 / 5, **NAMES).classes[1].explained == 11
    assert nseg.patterns(explanations, data, held_out=0, share=1 / 6, **NAMES).classes[1].explained == 12


def test_relabelling_the_nodes_of_all_graphs_changes_nothing() -> None:
    data, explanations = bonds()
    other, again = [], []
    for number, (graph, one) in enumerate(zip(data, explanations, strict=True)):
        order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(number))
        place = torch.argsort(order)
        edge_order = torch.randperm(graph.num_edges, generator=torch.Generator().manual_seed(number))
        other.append(Data(x=graph.x[order], edge_index=place[graph.edge_index][:, edge_order], y=graph.y))
        kept = place[one.edge_index[:, one.hard_edge_mask]].T.tolist()
        again.append(explained(other[-1], number, kept, int(one.target), one.pns))
    explainer = bond_explainer()
    first = nseg.patterns(explanations, data, explainer=explainer, **NAMES).records()
    assert nseg.patterns(again, other, explainer=explainer, **NAMES).records() == first


def test_a_pattern_that_is_enough_loses_what_it_does_not_need() -> None:
    """Explanations keep C - C - N - O, the cause is N - O: a carbon goes if the model can be asked; two edges stay."""
    data, explanations = bonds()
    rest = [graph for graph, one in zip(data, explanations, strict=True) if int(one.target) == 0]
    graphs = [*(chain([0, 0, 0, 1, 2], 1) for _ in range(12)), *rest]
    kept = [([(1, 2), (2, 3), (3, 4)], 1) if n < 12 else ([(0, 1)], 0) for n in range(len(graphs))]
    both = [explained(graph, n, *kept[n]) for n, graph in enumerate(graphs)]
    asked, told = (nseg.patterns(both, graphs, explainer=one, **NAMES).classes[1] for one in (bond_explainer(), None))
    assert [one.text for one in told.patterns] == ["C - C - N - O"]
    assert [one.text for one in asked.patterns] == ["C - N - O"]
    assert asked.explained == asked.predictions


def test_a_planted_cause_is_necessary_and_sufficient() -> None:
    data, explanations = bonds()
    explainer = bond_explainer()
    weights, state = [p.clone() for p in explainer.model.parameters()], torch.get_rng_state()
    found = nseg.patterns(explanations, data, explainer=explainer, held_out=0.5, **NAMES)
    (pattern,) = found.classes[1].patterns
    assert (pattern.necessity.changed, pattern.necessity.number) == (6, 6)
    assert (pattern.sufficiency.changed, pattern.sufficiency.number) == (4, 4)
    assert (pattern.necessity.low, pattern.necessity.high) == (pytest.approx(0.025 ** (1 / 6)), 1.0)  # exact binomial
    other = found.classes[0].patterns[0]
    assert other.necessity.changed == 0  # without it a graph is still without the bond
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(weights, explainer.model.parameters(), strict=True))


def test_changed_graphs_are_as_a_direct_call_sees_them() -> None:
    data, explanations = bonds()
    explainer = bond_explainer()
    index = PatternIndex(PredictionReader(data, kind_names=KINDS).read(explanations), PatternSettings())
    tester = PatternTester(explainer, index, list(range(20)))
    form = frozenset({index.kept[0][0]})
    (pattern,) = index.graphs(form)
    from nseg.pattern.edits import make_graft, plant, without_pattern

    for position in range(12):
        inputs, one, host = tester.inputs(position), index.predictions[position], index.host(position)
        less = without_pattern(inputs, one, host, [pattern], EFFORT)
        assert less.num_edges == inputs.num_edges - 2
        assert int(explainer.model(less.x, less.edge_index).argmax()) == 0
    graft = make_graft(index.predictions[0], tester.inputs(0), index.host(0), pattern, (1, 2))
    for position in range(12, 20):
        one, generator = index.predictions[position], torch.Generator().manual_seed(0)
        more = plant(graft, tester.inputs(position), one, index.host(position), generator)
        assert int(explainer.model(more.x, more.edge_index).argmax()) == 1
        whole = Data(x=more.x, edge_index=more.edge_index)
        assert whole.is_undirected()
        assert not whole.has_isolated_nodes()


def test_names_of_explanations_are_used() -> None:
    data, explanations = bonds()
    for one in explanations:
        one.names = Names(classes=("without", "with"))
    found = nseg.patterns(explanations, data, kind_names=KINDS)
    assert [one.name for one in found.classes] == ["without", "with"]
    renamed = nseg.patterns(explanations, data, kind_names=KINDS, class_names=["no", "yes"])
    assert [one.name for one in renamed.classes] == ["no", "yes"]


# --- rules on features ---------------------------------------------------------------------------------------------------


class NeighbourRule(MessagePassing):
    """Class 1 if a neighbour has feature 1, whatever else the features are."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.weight = nn.Parameter(torch.tensor(10.0))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        found = self.propagate(edge_index, x=x)[:, 1:2]
        return torch.cat([self.weight * 0.5 - 0 * found, self.weight * found], 1)


def rule_set() -> tuple[Data, list[Explanation], Explainer]:
    """A graph of 60 nodes whose class is whether a neighbour has feature 1, explained by its features."""
    generator = torch.Generator().manual_seed(0)
    pairs = [(n, (n + step) % 60) for n in range(60) for step in (1, 7)]
    x = torch.rand(60, 3, generator=generator)
    x[:, 1] = (torch.rand(60, generator=generator) < 0.15).float()
    data = Data(x=x, edge_index=undirected(pairs))
    model = NeighbourRule()
    data.y = model(data.x, data.edge_index).argmax(1)
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    kinds = {"node_mask_type": "attributes", "edge_mask_type": None}
    explainer = Explainer(model, NSEG(seed=0), explanation_type="model", model_config=config, **kinds)
    return data, explain_many(explainer, data), explainer


def test_a_planted_rule_is_found_in_words_and_holds_on_the_model() -> None:
    data, explanations, explainer = rule_set()
    names = ["age", "device_new", "amount"]
    found = nseg.patterns(explanations, data, explainer=explainer, feature_names=names, class_names=["fine", "fraud"])
    pattern = found.classes[1].patterns[0]
    assert pattern.text == "device_new = 1 at a neighbour"
    assert pattern.elsewhere == 0
    assert pattern.necessity.share == 1
    assert pattern.sufficiency.share == 1
    assert found.classes[1].unexplained == 0


# --- molecules, words, pictures ------------------------------------------------------------------------------------------

CASES = [
    ("CN(=O)=O", {(0, 1): "1", (1, 2): "2", (1, 3): "2"}, "CNOO"),
    ("Nc1ccccc1", {(0, 1): "1", (0, 2): "1", (0, 3): "1"}, "NCHH"),
    ("C1CO1", {(0, 1): "1", (1, 2): "1", (0, 2): "1"}, "CCO"),
    ("CC=O", {(0, 1): "2"}, "CO"),
]


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)))
def test_smarts_is_found_by_rdkit_in_its_own_molecule_and_in_no_other(number: int, case) -> None:
    chem = pytest.importorskip("rdkit.Chem")
    _, edges, kinds = case
    query = chem.MolFromSmarts(smarts(TypedGraph(tuple(NodeLabel(kind) for kind in kinds), edges)))
    for n, (text, _, _) in enumerate(CASES):
        molecule = chem.MolFromSmiles(text, sanitize=n > 0)
        molecule.UpdatePropertyCache(strict=False)
        for one in (molecule, chem.AddHs(molecule)):
            chem.FastFindRings(one)
            assert one.HasSubstructMatch(query) == (n == number)


def test_shapes_have_names() -> None:
    data, _ = bonds()
    words = PredictionReader(data).vocabulary
    target, other = NodeLabel(target=True), NodeLabel()
    house = cycle([0, 1, 2, 3, 4]) | {(1, 4): ""}
    assert structure_text(TypedGraph((target, *[other] * 4), house), words) == "house, target with 2 edges"
    assert structure_text(TypedGraph((other,) * 5, cycle([0, 1, 2, 3, 4])), words) == "cycle of 5 nodes"
    far = NodeLabel(hops=1)
    assert structure_text(TypedGraph((far, far), {(0, 1): ""}), words) == "edge 1 step from the target"
    typed = TypedGraph((NodeLabel("paper"), NodeLabel("author", target=True)), {(0, 1): "wrote"}, directed=True)
    assert structure_text(typed, words) == "author* <[wrote]< paper"


def test_results_are_shown_as_frame_picture_and_text() -> None:
    data, explanations = bonds()
    found = nseg.patterns(explanations, data, explainer=bond_explainer(), **NAMES)
    frame = found.to_frame()
    assert list(frame["pattern"]) == [one.text for one in found]
    assert list(frame["explained"]) == [one.explained for one in found]
    assert "N - O explains" in repr(found)
    assert len(found.plot().axes) == len(found)


# --- trained networks ----------------------------------------------------------------------------------------------------


def test_tests_on_a_subgraph_equal_tests_on_the_whole_graph() -> None:
    data, model = datasets.load("ba-shapes"), models.pretrained("ba-shapes", "gcn")
    kinds = {"edge_mask_type": "object", "model_config": data.model_config}
    explainer = Explainer(model, NSEG(seed=0, undirected=True, intervention="mask"), explanation_type="model", **kinds)
    graph = data.graphs[0]
    numbers = [*range(300, 340), *range(400, 420)]
    explanations = explain_many(explainer, graph, numbers)
    found = nseg.patterns(explanations, data, explainer=explainer)
    houses = [one for one in found if one.text.startswith("house")]
    assert [one.class_name for one in houses] == ["bottom of a house"]
    index = PatternIndex(PredictionReader(data).read(explanations), PatternSettings())
    tester = PatternTester(explainer, index, list(range(len(numbers))))
    from nseg.pattern.edits import without_pattern

    for position in range(0, len(numbers), 6):
        one, host = index.predictions[position], index.host(position)
        kept = [index.forms.graphs[index.kept[position][0]]]
        less = without_pattern(tester.inputs(position), one, host, kept, EFFORT)
        row = int(one.explanation.index)
        left = set(map(tuple, one.explanation.node_id[less.edge_index].T.tolist()))
        before = set(map(tuple, one.explanation.node_id[one.explanation.edge_index].T.tolist()))
        stays = torch.tensor([tuple(ends) not in before - left for ends in graph.edge_index.T.tolist()])
        with torch.no_grad():
            whole = model(graph.x, graph.edge_index[:, stays])[one.number]
            small = model(less.x, less.edge_index)[row]
        assert torch.allclose(whole, small, atol=1e-4)


# --- bad input -----------------------------------------------------------------------------------------------------------


def test_bad_input_gets_a_sentence() -> None:
    data, explanations = bonds()
    other = [chain([0, 1], 0)] * 20
    bare = explanations[0].clone()
    for name in ("edge_index", "x"):
        del bare[name]
    node_level = explanations[0].clone()
    node_level._model_config = ModelConfig("multiclass_classification", "node", return_type="raw")
    for given_, on, message in [
        ([], data, "at least one explanation"),
        (explanations[0], data, "must be a list of explanations"),
        ([Data()], data, "must hold PyG explanations"),
        (explanations, None, "Patterns need the graphs"),
        (explanations, other, "data must be what was explained"),
        (explanations, data[:3], "Do not mix explanations of different datasets"),
        ([bare], [], "data must be what was explained"),
        ([explanations[0], node_level], data, "must be of one kind"),
        (explanations, [*data[:19], Data(x=torch.zeros(2, 5), edge_index=undirected([(0, 1)]))], "features of one shape"),
    ]:
        with pytest.raises(InputError, match=message):
            nseg.patterns(given_, on)
    node_level._model_config = ModelConfig("regression", "graph")
    with pytest.raises(UnsupportedError, match="Patterns are of predicted classes"):
        nseg.patterns([node_level], data)
    with pytest.raises(SettingsError, match="held_out must be"):
        nseg.patterns(explanations, data, held_out=1)
    with pytest.raises(SettingsError, match="must be among"):
        nseg.patterns(explanations, data, hold_out=0.5)
    with pytest.raises(InputError, match="explainer must be an Explainer"):
        nseg.patterns(explanations, data, explainer=BondCounter())
    with pytest.raises(InputError, match="class_names must be a list"):
        nseg.patterns(explanations, data, class_names="ab")
    with pytest.raises(InputError, match="kind_names must be a list"):
        nseg.patterns(explanations, data, kind_names="ab")


@pytest.mark.parametrize(
    "change",
    [{"most": 0}, {"share": 0}, {"support": 2}, {"confidence": 1}, {"trials": 1.5}, {"size_price": -1}, {"seed": None}],
)
def test_settings_outside_their_range_are_refused(change: dict) -> None:
    with pytest.raises(SettingsError, match=next(iter(change))):
        PatternSettings(**change)


# --- command line --------------------------------------------------------------------------------------------------------


def test_the_command_prints_what_python_gives(tmp_path, capsys) -> None:
    from nseg.cli import app

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as stop:
            app(list(words))
        assert stop.value.code == 0
        return capsys.readouterr().out

    folder = str(tmp_path / "run")
    run("explain", "ba-shapes", "--undirected", "--index", "300:340", "--out", folder, "--no-measure", "--quiet")
    printed = json.loads(run("patterns", folder, "--format", "json", "--most", "2"))
    data = datasets.load("ba-shapes")
    kinds = {"edge_mask_type": "object", "model_config": data.model_config}
    explainer = Explainer(models.pretrained("ba-shapes", "gcn"), NSEG(), explanation_type="model", **kinds)
    assert printed == nseg.patterns(nseg.read(folder), data, explainer=explainer, most=2).records()
    assert len(run("patterns", folder, "--format", "csv", "--no-test", "--most", "2").splitlines()) == 1 + len(printed)
    shown = run("patterns", folder, "--most", "2", "--picture", str(tmp_path / "all.svg"))
    assert "What the model looks at" in shown
    assert "left unexplained" in shown
    assert (tmp_path / "all.svg").read_text().count("<svg") == 1


def test_a_run_without_its_origin_gets_a_sentence(tmp_path) -> None:
    from nseg.cli.patterns import read_origin

    with pytest.raises(InputError, match=r"has no summary\.json"):
        read_origin(tmp_path)
    (tmp_path / "summary.json").write_text("[1]")
    with pytest.raises(InputError, match="must say what was explained"):
        read_origin(tmp_path)


# --- every kind of mask and output ---------------------------------------------------------------------------------------


MASKS = [(e, n) for e in (None, "object") for n in (None, "object", "attributes", "common_attributes") if e or n]


@pytest.mark.parametrize(("edges", "nodes"), MASKS)
def test_every_kind_of_mask_is_read_and_tested(edges: str | None, nodes: str | None) -> None:
    data = Data(x=torch.rand(24, 3, generator=torch.Generator().manual_seed(0)), edge_index=undirected(LADDER))
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    model, kinds = NeighbourRule(), {"edge_mask_type": edges, "node_mask_type": nodes, "model_config": config}
    explainer = Explainer(model, NSEG(steps=20, seed=0), explanation_type="model", **kinds)
    found = nseg.patterns(explain_many(explainer, data), data, explainer=explainer, elsewhere_price=0.0, size_price=0.0)
    assert len(found)
    for one in found:
        assert one.text
        assert 0 < one.explained <= one.predictions
        assert one.necessity is None or 0 <= one.necessity.low <= one.necessity.share <= one.necessity.high <= 1
    again = nseg.patterns(explain_many(explainer, data), data, explainer=explainer, elsewhere_price=0.0, size_price=0.0)
    assert again.records() == found.records()


LADDER = [(n, n + 2) for n in range(22)] + [(n, n + 1) for n in range(0, 24, 2)]


class LinkScore(MessagePassing):
    """Class 1 if the ends of a link have many neighbours with feature 1."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.weight = nn.Parameter(torch.tensor(10.0))

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        near = self.propagate(edge_index, x=x)[:, 1]
        score = near[edge_label_index[0]] * near[edge_label_index[1]]
        return torch.stack([self.weight * 0.5 + 0 * score, self.weight * score], 1)


def test_patterns_of_links_are_found_and_taken_out_but_not_put_in() -> None:
    data = Data(x=(torch.arange(72) % 5 == 0).float().view(24, 3), edge_index=undirected(LADDER))
    pairs = torch.tensor([[n, (n + 3) % 24] for n in range(24)]).T
    config = {"mode": "multiclass_classification", "task_level": "edge", "return_type": "raw"}
    kinds = {"edge_mask_type": "object", "model_config": config}
    explainer = Explainer(LinkScore(), NSEG(steps=20, seed=0), explanation_type="model", **kinds)
    explanations = explain_many(explainer, data, edge_label_index=pairs)
    found = nseg.patterns(explanations, data, explainer=explainer, elsewhere_price=0.0)
    with_link = [one for one in found if one.target == 1]
    assert with_link
    assert all(one.sufficiency is None for one in found)
    assert sum(one.necessity.changed for one in with_link if one.necessity is not None) > 0


def test_directed_graphs_have_directed_patterns() -> None:
    data, explanations = [], []
    for n in range(8):
        ends = torch.tensor([[0, 1], [1, 2]] if n % 2 else [[1, 0], [1, 2]]).T
        data.append(Data(x=torch.eye(3)[[0, 1, 2]], edge_index=ends, y=torch.tensor([n % 2])))
        one = explained(data[-1], n, [(0, 1)], n % 2)
        explanations.append(one)
    found = nseg.patterns(explanations, data, held_out=0, **NAMES)
    assert [one.text for one in found] == ["C <- N", "C -> N"]
    assert [one.elsewhere for one in found] == [0, 0]
