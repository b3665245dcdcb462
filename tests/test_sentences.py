"""Explanations in sentences, and molecules of the caller's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.explain import Explanation

from nseg import plot
from nseg.cli.results import molecule_hint
from nseg.names import Names
from nseg.plot.atoms import MISSING_RDKIT
from nseg.wording import Findings, ModelAnswer, explanation_sentences, findings_of

NAMES = Names(nodes=("tx-0", "tx-1", "tx-2"), features=("amount", "new"), classes=("legit", "fraud"), units={0: "EUR"})


def explained(**fields: Any) -> Explanation:
    """Edges 1 -> 0 (kept) and 2 -> 0 of three nodes; node 0 is explained."""
    return Explanation(
        x=torch.tensor([[12.5, 1.0], [3.0, 0.0], [0.0, 1.0]]),
        edge_index=torch.tensor([[1, 2], [0, 0]]),
        edge_mask=torch.tensor([0.9, 0.2]),
        hard_edge_mask=torch.tensor([True, False]),
        index=torch.tensor(0),
        output_id=0,
        target=torch.tensor([1]),
        **fields,
    )


def found(alone: int, without: int, empty: int = 0) -> Findings:
    answers = ModelAnswer(0.9, alone), ModelAnswer(0.1, without), ModelAnswer(0.2, empty)
    return findings_of(explained(), Findings(1, ModelAnswer(0.98, 1), *answers))


@pytest.mark.parametrize(
    ("alone", "without", "empty", "verdict", "proof"),
    [
        (
            1,
            0,
            0,
            "both",
            "It alone is enough: the model still says fraud (p 0.900). Without it, it says legit (p of fraud: 0.100).",
        ),
        (1, 1, 0, "sufficient", "But it is not necessary: without it, it says fraud too (p 0.100)"),
        (0, 0, 0, "necessary", "But it is not enough: with it alone, it says legit (p of fraud: 0.900)."),
        (0, 1, 0, "neither", "This does not hold: with it alone, it says legit"),
        (
            1,
            1,
            1,
            "unexplained",
            "Edges do not explain this prediction: the model says fraud without any of them too (p 0.200).",
        ),
    ],
)
def test_sentences_say_what_the_model_says_in_each_world(
    alone: int, without: int, empty: int, verdict: str, proof: str
) -> None:
    findings = found(alone, without, empty)
    reason, said = explanation_sentences(explained(), findings, NAMES, level="node")
    assert findings.verdict == verdict
    assert proof in said
    because = "" if verdict == "unexplained" else ", because of 1 of 2 edges (tx-1 -> tx-0)"
    assert reason == f"The model says fraud for tx-0 (p 0.980){because}."
    hint = 'Try its features: node_mask_type="attributes", or --masks ex on the command line.'
    assert (hint in said) == (verdict == "unexplained")


def test_what_an_explanation_says_of_itself_comes_first() -> None:
    one = explained(keeps=False, changes=True)
    assert findings_of(one, Findings(1, ModelAnswer(0.9, 1), ModelAnswer(0.9, 1))).verdict == "necessary"
    assert Findings(1).verdict == "unknown"


def test_features_are_named_with_values_and_units_the_largest_weight_first() -> None:
    weight = torch.tensor([[0.2, 0.9], [0.7, 0.1], [0.0, 0.0]])
    one = explained(node_mask=weight, hard_node_mask=weight > 0.15)
    reason, _ = explanation_sentences(one, found(1, 0), NAMES, level="node")
    assert "3 of 6 node features (tx-0: new = 1, amount = 12.5 EUR; tx-1: amount = 3 EUR)" in reason


def test_nodes_of_one_name_are_told_apart() -> None:
    names = Names(nodes=("cow", "grass", "grass"))
    assert [names.node_label(n) for n in range(3)] == ["cow", "grass 1", "grass 2"]
    for atoms in (Names(nodes=("N", "O")), Names(atoms=("N", "O"))):
        assert [atoms.node_label(n) for n in range(2)] == ["N0", "O1"]
        assert [atoms.shown(n) for n in range(2)] == ["N", "O"]
        assert atoms.molecule
    assert not Names(nodes={0: "N"}).molecule


# --- molecules of one's own ------------------------------------------------------------------------------------------------


def nitromethane(**fields: Any) -> tuple[Explanation, Data]:
    """CH3-NO2 without hydrogen atoms, with its N=O bond kept."""
    ends = torch.tensor([[0, 1, 1, 2, 1, 3], [1, 0, 2, 1, 3, 1]])
    kept = torch.tensor([False, False, True, True, False, False])
    one = Explanation(
        x=torch.ones(4, 1), edge_index=ends, edge_mask=kept.float(), hard_edge_mask=kept, target=torch.tensor([0])
    )
    return one, Data(x=torch.ones(4, 1), edge_index=ends, **fields)


@pytest.mark.parametrize("kind", ["smiles", "rdmol", "names"])
def test_a_graph_with_smiles_or_elements_is_drawn_as_a_molecule(kind: str) -> None:
    chem = pytest.importorskip("rdkit.Chem")
    smiles = "C[N+](=O)[O-]"
    how = {"smiles": smiles, "rdmol": chem.MolFromSmiles(smiles), "names": ["C", "N+", "O", "O-"]}[kind]
    one, data = nitromethane(**({} if kind == "names" else {kind: how}))
    shown = plot.scene(one, data, node_names=how if kind == "names" else None)
    assert (shown.molecule, shown.hint) == (True, "")
    assert [(n.symbol, n.charge) for n in shown.nodes] == [("C", 0), ("N", 1), ("O", 0), ("O", -1)]
    assert [n.label for n in shown.nodes] == ["C0", "N+", "O2", "O-"] if kind == "names" else ["C0", "N1", "O2", "O3"]
    if kind != "names":
        assert [e.order for e in shown.edges] == [1.0, 2.0, 1.0]
        assert [n.hydrogens for n in shown.nodes] == [3, 0, 0, 0]
    words = plot.figure_svg(plot.explanation(one, data, node_names=how if kind == "names" else None))
    assert "N⁺" in words
    assert "O⁻" in words
    assert plot.molecule(one, data, node_names=how if kind == "names" else None).startswith("<svg")


@pytest.mark.parametrize(
    ("smiles", "hint"),
    [("CCO", "3 atoms and the graph 4 nodes"), ("CCCC", "edges that are no bonds"), ("no molecule", "cannot read")],
)
def test_smiles_that_do_not_fit_the_graph_give_a_hint(smiles: str, hint: str) -> None:
    pytest.importorskip("rdkit")
    one, data = nitromethane(smiles=smiles)
    shown = plot.scene(one, data)
    assert not shown.molecule
    assert hint in shown.hint
    assert hint in plot.figure_svg(plot.explanation(one, data))


def test_without_rdkit_a_molecule_is_a_graph_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("rdkit"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    one, data = nitromethane(smiles="C[N+](=O)[O-] ")  # a text that no other test has read
    shown = plot.scene(one, data)
    assert (shown.molecule, shown.hint) == (False, MISSING_RDKIT)
    assert molecule_hint([data]) == MISSING_RDKIT  # what the command line says
    assert molecule_hint(Data(x=data.x)) == ""
