"""Names: given once, checked before the work, and on every explanation, in memory and on disk."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_add_pool

import nseg
from nseg import NSEG, Explainer, InputError, LargeGraph, explain_many
from nseg.datasets import load
from nseg.explain.change import Counterfactual
from nseg.names import LABELS, Names, from_run, resolve_names, to_run
from nseg.plot.node_labels import fill_names


class Payments(torch.nn.Module):
    """Two layers; node or graph level."""

    def __init__(self, pooled: bool = False) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.second = GCNConv(2, 4), GCNConv(4, 2)
        with torch.no_grad():
            self.second.lin.weight *= 8  # sure of itself, so that explanations keep something
        self.pooled = pooled

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor | None = None) -> torch.Tensor:
        h = self.second(self.first(x, edge_index).relu(), edge_index)
        return global_add_pool(h, batch) if self.pooled else h


def graph(nodes: int = 4, **attributes: Any) -> Data:
    ring = torch.arange(nodes)
    x = torch.linspace(0.0, 1.0, 2 * nodes).view(nodes, 2)
    return Data(x=x, edge_index=torch.stack([ring, ring.roll(-1)]), **attributes)


def explainer(level: str = "node") -> Explainer:
    config = {"mode": "multiclass_classification", "task_level": level, "return_type": "raw"}
    algorithm = NSEG(steps=3, rounds=0, starts=(0.0,))
    return Explainer(
        Payments(level == "graph"), algorithm, explanation_type="model", edge_mask_type="object", model_config=config
    )


NAMES: dict[str, Any] = {
    "node_names": [f"tx-{n}" for n in range(4)],
    "feature_names": ["amount", "device_new"],
    "class_names": ["legit", "fraud"],
    "units": {"amount": "EUR"},
}


def check_fraud(names: Names) -> None:
    assert names.node(3) == "tx-3"
    assert names.edge(2, 2, 3) == "tx-2 -> tx-3"
    assert (names.value(0, 12.5), names.value(1, 1.0)) == ("amount = 12.5 EUR", "device_new = 1")
    assert (names.class_name(1), names.class_name(2), names.class_name(-1)) == ("fraud", "class 2", "")


def test_names_come_from_arguments_or_from_the_data() -> None:
    check_fraud(resolve_names(graph(), **NAMES).graph())
    check_fraud(resolve_names(graph(**NAMES)).graph())
    check_fraud(resolve_names(graph(**NAMES | {"class_names": ["a", "b"]}), class_names=NAMES["class_names"]).graph())
    assert not resolve_names(graph()).graph()


def test_every_form_of_names_gives_the_same_text() -> None:
    text = NAMES["node_names"]
    forms = (
        tuple(text),
        np.array(text),
        dict(enumerate(text)),
        {str(n): name for n, name in enumerate(text)},  # as JSON has it
        {name: n for n, name in enumerate(text)},
        {name: torch.tensor(n) for n, name in enumerate(text)},
        lambda data: [f"tx-{n}" for n in range(data.num_nodes)],
    )
    for form in forms:
        names = resolve_names(graph(), node_names=form).graph()
        assert [names.node(n) for n in range(4)] == text


def test_edges_are_named_by_number_or_by_ends() -> None:
    by_number = resolve_names(graph(), edge_names={1: "payment 7"}).graph()
    by_ends = resolve_names(graph(), edge_names={(1, 2): "payment 7"}).graph()
    assert by_number.edge(1, 1, 2) == by_ends.edge(1, 1, 2) == "payment 7 (1 -> 2)"
    assert by_ends.edge(9, 2, 1) == "2 -> 1"
    assert by_ends.edge(9, 2, 1, undirected=True) == "payment 7 (2 - 1)"


def test_several_graphs_have_lists_of_their_own_or_share_one() -> None:
    graphs = [graph(3), graph(4)]
    own = resolve_names(graphs, node_names=[["a", "b", "c"], ["d", "e", "f", "g"]])
    assert (own.graph(0).node(0), own.graph(1).node(3)) == ("a", "g")
    by_number = resolve_names(graphs, node_names={1: ["d", "e", "f", "g"]})
    assert (by_number.graph(0).node(0), by_number.graph(1).node(0)) == ("node 0", "d")
    on_graphs = resolve_names([graph(3, node_names=["a", "b", "c"], class_names=["x", "y"]), graph(4)])
    assert (on_graphs.graph(0).node(2), on_graphs.graph(1).node(2)) == ("c", "node 2")
    assert resolve_names([graph(3), graph(3)], node_names=["a", "b", "c"]).graph(1).node(2) == "c"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"node_names": ["a", "b"]}, "node_names must have one name per node of the graph, 4 in all .got 2."),
    ({"feature_names": ["a", "b", "c"]}, "feature_names must have one name per column of x, 2 in all .got 3."),
    ({"edge_names": ["a"]}, "edge_names must have one name per edge of the graph, 4 in all .got 1."),
    ({"node_names": "abcd"}, "node_names must be a list with one name per node of the graph.*got 'abcd'"),
    ({"node_names": 3}, "node_names must be a list"),
    ({"node_names": {4: "e"}}, "node_names must name numbers from 0 to 3, one per node of the graph .got 4."),
    ({"node_names": {"a": "b"}}, "node_names as a dictionary must go from whole numbers to names .got the key 'a'"),
    ({"edge_names": {(1, 2, 3): "b"}}, "edge numbers or pairs .source, target. to names"),
    ({"node_names": [["a"], ["b"], ["c"], ["d"]]}, "node_names must be text or numbers"),
    ({"units": {"height": "m"}, "feature_names": ["a", "b"]}, "units must name features that exist .got 'height'"),
    ({"class_names": ["only"]}, "class_names must have one name per class of the model, 2 in all .got 1."),
    ({"class_names": {2: "third"}}, "class_names must name numbers from 0 to 1"),
]


@pytest.mark.parametrize(("names", "sentence"), WRONG)
def test_names_that_do_not_fit_are_refused_before_the_work(names: dict[str, Any], sentence: str) -> None:
    one = explainer()
    one.algorithm.answer = None  # would fail if anything were computed
    with pytest.raises(InputError, match=sentence):
        explain_many(one, graph(), [1], **names)


def test_wrong_names_of_one_of_several_graphs_are_refused() -> None:
    graphs = [graph(3), graph(4)]
    with pytest.raises(InputError, match="one name per node of graph 1, 4 in all"):
        explain_many(explainer("graph"), graphs, node_names=[["a", "b", "c"], ["d", "e", "f"]])
    with pytest.raises(InputError, match="one list per graph, 2 in all"):
        explain_many(explainer("graph"), graphs, node_names=[["a", "b", "c"]])


def test_names_travel_on_explanations_and_into_the_folder(tmp_path: Any) -> None:
    plain = explain_many(explainer(), graph(), [1, 3])
    found = explain_many(explainer(), graph(), [1, 3], **NAMES)
    stored = explain_many(explainer(), graph(), [1, 3], out=tmp_path, **NAMES)
    for one, unnamed, read in zip(found, plain, stored, strict=True):
        check_fraud(one.names)
        check_fraud(one.clone().names)
        check_fraud(pickle.loads(pickle.dumps(one)).names)
        assert read.names == one.names
        assert nseg.runs.attach(read, graph()).names == one.names
        assert "names" not in unnamed
        assert torch.equal(one.edge_mask, unnamed.edge_mask)


def test_a_run_can_be_resumed_with_other_names(tmp_path: Any) -> None:
    explain_many(explainer(), graph(node_names=list("abcd")), [1], out=tmp_path)
    bytes_before = [path.read_bytes() for path in tmp_path.glob("explanations/*")]
    again = explain_many(explainer(), graph(node_names=list("efgh")), [1], out=tmp_path)
    assert again[0].names.node(1) == "f"
    assert [path.read_bytes() for path in tmp_path.glob("explanations/*")] == bytes_before
    (tmp_path / "names.json").write_text('{"all": 3}')
    with pytest.raises(nseg.StoreError, match="names that nseg wrote"):
        nseg.read(tmp_path)[0]


def test_names_of_many_graphs_and_of_a_large_graph_travel(tmp_path: Any) -> None:
    graphs = [graph(3), graph(4)]
    own = {"node_names": [list("abc"), list("defg")], "class_names": ["x", "y"]}
    found = explain_many(explainer("graph"), graphs, **own)
    stored = explain_many(explainer("graph"), graphs, out=tmp_path, **own)
    assert [one.names.node(0) for one in found] == ["a", "d"]
    assert [one.names for one in stored] == [one.names for one in found]
    large = explain_many(explainer(), LargeGraph(graph(**NAMES)), [2], node_names=NAMES["node_names"])
    assert large[0].names.node(2) == "tx-2"


def test_certificates_name_the_class() -> None:
    one, data = explainer(), graph()
    plain, named = explain_many(one, data, [1, 2]), explain_many(one, data, [1, 2], **NAMES)
    for first, proof in zip(plain, nseg.certify(one, data, plain), strict=True):
        assert f"gives class {int(first.target[first.index])} with" in proof.words()
    for proofs in (nseg.certify(one, data, named), nseg.certify(one, data, plain, class_names=NAMES["class_names"])):
        for proof in proofs:
            assert f"gives “{NAMES['class_names'][proof.target]}” with" in proof.words()
            assert proof.as_plain_data()["class_name"] == NAMES["class_names"][proof.target]
    with pytest.raises(InputError, match="class_names must be a list"):
        nseg.certify(one, data, plain, class_names="legit")


def test_a_dataset_names_kinds_of_nodes_features_and_classes() -> None:
    data = load("ba-shapes")
    assert data.names().graph().class_name(1) == data.class_names[1]
    assert data.names(class_names=["w", "x", "y", "z"]).graph().class_name(1) == "x"


labels = st.one_of(
    st.lists(st.text(max_size=3), max_size=3).map(tuple), st.dictionaries(st.integers(0, 5), st.text(max_size=3), max_size=3)
)
edge_labels = st.one_of(labels, st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 3)), st.text(max_size=3)))


@given(st.builds(Names, nodes=labels, features=labels, classes=labels, edges=edge_labels, units=labels))
def test_names_survive_json(names: Names) -> None:
    typed = Names(classes=names.classes, by_type={"author": names, ("author", "wrote", "paper"): Names(edges=names.edges)})
    for one in (names, typed):
        plain = one.to_plain()
        assert Names.from_plain(json.loads(json.dumps(plain))).to_plain() == plain
    found = Names.from_plain(names.to_plain())
    assert [getattr(found, name) for name in LABELS] == [getattr(names, name) or () for name in LABELS]


def test_names_of_graphs_survive_the_run_folder() -> None:
    names = resolve_names([graph(3), graph(4)], node_names=[list("abc"), list("defg")], feature_names=["u", "v"])
    plain = to_run(names, [0, 1])
    assert plain["all"] == {"features": ["u", "v"]}
    assert [from_run(plain, n) for n in (0, 1)] == [names.graph(n) for n in (0, 1)]


def test_features_that_are_none_are_reported_as_such_not_by_their_names() -> None:
    """Found by fuzzing: PyG cannot count the nodes of a graph whose features are a single number."""
    empty = Data(x=torch.tensor(0.0), edge_index=torch.zeros(2, 0, dtype=torch.long))
    with pytest.raises(InputError, match="x must have at least one node"):
        explain_many(explainer(), empty, 0)


def test_names_that_were_said_are_still_names() -> None:
    """A report takes the names that explanations carry, also after sentences were made with them."""
    own = Names(nodes=("a", "b", "b"), classes=("no", "yes"))
    assert own.node_label(2) == "b 2"
    assert fill_names(Names(classes=("0", "1")), Data(names=own)) == Names(nodes=own.nodes, classes=("0", "1"))


def test_names_that_do_not_fit_are_said() -> None:
    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    for own, said in (
        ({"edge_names": {(0, 2): "pays"}}, "must name edges of the graph"),
        ({"units": {"amount": "EUR"}}, "need those names"),
        ({"node_names": lambda graph: 1 / 0}, "it raised ZeroDivisionError"),
    ):
        with pytest.raises(InputError, match=said):
            resolve_names(data, **own).graph()
    assert resolve_names(data, edge_names={(1, 0): "pays"}).graph().edge(0, 0, 1, undirected=True) == "pays (0 - 1)"


def test_molecules_are_named_by_elements_everywhere() -> None:
    """SMILES, or names that are elements, make atoms: N1 in lists and sentences, N in a picture, bonds instead of edges."""
    pytest.importorskip("rdkit")
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    for own in ({"smiles": "CNO"}, {"node_names": ["C", "N", "O"]}):
        names = resolve_names(Data(x=torch.ones(3, 2), edge_index=edges, **own)).graph()
        assert names.molecule
        assert (names.node_label(1), names.shown(1), names.edge(0, 0, 1, undirected=True)) == ("N1", "N", "C0 - N1")
        one = Counterfactual(
            0, "graph", True, 1, 0, 0.9, 0.1, 0.1, 0.9, (0,), ((0, 1),), undirected=True, size=1, names=names
        )
        assert one.sentence().startswith("Remove the bond C0 - N1 and")
        assert one.subject() == "Molecule 0"
        assert Names.from_plain(names.to_plain()) == names
    assert not resolve_names(Data(x=torch.ones(4, 2), edge_index=edges, smiles="CNO")).graph().molecule
