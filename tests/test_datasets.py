"""Datasets: the paper's counts, and each instance's own ground truth."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import contains_self_loops, is_undirected

from nseg.datasets import NAMES, load
from nseg.datasets.tu import ATOMS, amine_and_nitro, tu_graphs
from nseg.errors import InputError
from nseg.models import manifest, pretrained

COUNTS = {
    "ba-shapes": (700, 2055, 4, 300, 5, 6),
    "tree-cycles": (871, 967, 2, 511, 6, 6),
    "tree-grid": (1231, 1705, 2, 511, 9, 12),
}
REAL = os.environ.get("NSEG_DATA")
needs_files = pytest.mark.skipif(not REAL, reason="NSEG_DATA does not name a folder with the real files")


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("seed", [0, 3])
def test_node_datasets_have_the_papers_counts(name: str, seed: int) -> None:
    nodes, edges, classes, first, block, inside = COUNTS[name]
    data = load(name, seed=seed)
    (graph,) = data.graphs
    assert (graph.num_nodes, graph.num_edges, data.num_classes) == (nodes, 2 * edges, classes)
    assert is_undirected(graph.edge_index)
    assert not contains_self_loops(graph.edge_index)
    assert graph.edge_index.unique(dim=1).size(1) == graph.num_edges
    assert torch.equal(data.instances, torch.arange(first, nodes))
    assert graph.y.unique().tolist() == list(range(classes))
    assert (graph.y[:first] == 0).all()
    assert (graph.y[first:] > 0).all()
    for instance in (first, first + block, nodes - 1):
        truth = data.truth(instance)
        own = first + (instance - first) // block * block
        assert truth.node.nonzero().flatten().tolist() == list(range(own, own + block))
        assert int(truth.edge.sum()) >= 2 * inside  # random edges may fall inside a motif
        assert data.k_edges == inside
        assert data.k_nodes == block
    assert not data.truth(0).edge.any()


def test_equal_seeds_give_equal_graphs() -> None:
    assert torch.equal(load("ba-shapes", seed=5).graphs[0].edge_index, load("ba-shapes", seed=5).graphs[0].edge_index)
    assert not torch.equal(load("ba-shapes", seed=5).graphs[0].edge_index, load("ba-shapes", seed=6).graphs[0].edge_index)
    state = torch.get_rng_state(), np.random.get_state()[1].copy()
    load("tree-grid", seed=17)
    assert torch.equal(state[0], torch.get_rng_state())
    assert (state[1] == np.random.get_state()[1]).all()


def check_ba2motif(graphs: list[Data]) -> None:
    assert len(graphs) == 1000
    assert sum(int(g.y) for g in graphs) == 500
    for g in graphs[::37]:
        assert g.num_nodes == 25
        house = int(g.y) == 1
        assert int(g.edge_truth.sum()) == (12 if house else 10)


def test_ba2motif_has_five_cycles_and_houses() -> None:
    data = load("ba-2motif")
    check_ba2motif(data.graphs)
    for number in (0, 999):
        g = data.graphs[number]
        assert g.num_edges == 2 * (19 + 1 + (6 if number else 5))
        assert is_undirected(g.edge_index)
        assert int(data.truth(number).node.sum()) == 5
    anchors = {int(g.edge_index[1][(g.edge_index[0] == 20) & (g.edge_index[1] < 20)][0]) for g in data.graphs[:50]}
    assert anchors == {0}
    degrees = torch.tensor([int((g.edge_index[0] == 0).sum()) for g in data.graphs[:200]])
    assert degrees.float().var() > 0.5  # the motif is attached to any node of the tree


def test_names() -> None:
    assert NAMES == ("ba-shapes", "tree-cycles", "tree-grid", "ba-2motif", "mutagenicity", "msrc-21")
    with pytest.raises(InputError, match="Known: ba-shapes"):
        load("ba-shape")
    with pytest.raises(InputError, match="public=True needs"):
        load("ba-shapes", public=True)


# --- molecules with a measured value -------------------------------------------------------------------------------------


def test_esol_is_read_from_a_file_as_molecules_with_hydrogens(tmp_path: Path) -> None:
    (tmp_path / "esol.csv").write_text("smiles,log_solubility\nCCO,1.1\nc1ccccc1,-1.64\n")
    data = load("esol", root=tmp_path)
    assert data.model_config == {"mode": "regression", "task_level": "graph", "return_type": "raw"}
    ethanol, benzene = data.graphs
    assert [data.node_names[n] for n in ethanol.x.argmax(-1)[:3].tolist()] == ["C", "C", "O"]
    assert (ethanol.num_nodes, ethanol.num_edges, float(ethanol.y)) == (9, 16, pytest.approx(1.1))
    assert is_undirected(ethanol.edge_index)
    orders = torch.tensor(data.bonds)[benzene.edge_attr.argmax(-1)]
    assert sorted(orders.tolist()) == [1.0] * 12 + [1.5] * 12


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("smiles,value\nC,1\n", "must have the columns smiles and log_solubility"),
        ("smiles,log_solubility\nC1CC,1\n", "must be valid SMILES"),
        ("smiles,log_solubility\n[Na]C,1\n", r"must consist of C, .*got Na"),
    ],
)
def test_a_bad_file_of_molecules_is_a_sentence(content: str, text: str, tmp_path: Path) -> None:
    from rdkit import RDLogger

    RDLogger.DisableLog("rdApp.*")  # type: ignore[attr-defined]
    (tmp_path / "esol.csv").write_text(content)
    with pytest.raises(InputError, match=text):
        load("esol", root=tmp_path)


def test_a_missing_file_of_molecules_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NSEG_DATA", raising=False)
    with pytest.raises(InputError, match=r"Put esol\.csv"):
        load("esol", root=tmp_path)


# --- TU files ------------------------------------------------------------------------------------------------------------


def write_tu(folder: Path, name: str) -> None:
    """Two molecules: nitromethane with one wrong oxygen, and methylamine; numbering from 1, both directions."""
    atoms = ["C", "N", "O", "O", "H", "H", "H", "C", "N", "H", "H", "H", "H", "H"]
    bonds = [(0, 1), (1, 2), (1, 3), (0, 4), (0, 5), (0, 6), (7, 8), (8, 9), (8, 10), (7, 11), (7, 12), (7, 13)]
    raw = folder / name / "raw"
    raw.mkdir(parents=True)
    lines = [f"{u + 1}, {v + 1}" for bond in bonds for u, v in (bond, bond[::-1])]
    (raw / f"{name}_A.txt").write_text("\n".join(lines) + "\n")
    (raw / f"{name}_graph_indicator.txt").write_text("\n".join(["1"] * 7 + ["2"] * 7) + "\n")
    (raw / f"{name}_graph_labels.txt").write_text("0\n1\n")
    labels = [ATOMS.index(a) for a in atoms]
    (raw / f"{name}_node_labels.txt").write_text("\n".join(map(str, labels)) + "\n")


def test_tu_files_are_read_from_a_folder(tmp_path, monkeypatch) -> None:
    write_tu(tmp_path / "given", "Mutagenicity")
    monkeypatch.setenv("NSEG_DATA", str(tmp_path / "given"))
    graphs = tu_graphs("Mutagenicity", tmp_path / "cache")
    assert [g.num_nodes for g in graphs] == [7, 7]
    assert [int(g.y) for g in graphs] == [0, 1]
    assert sorted(p.name for p in (tmp_path / "given" / "Mutagenicity").iterdir()) == ["raw"]  # nothing written there


def test_without_network_and_files_an_error_says_where_to_put_them(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("NSEG_DATA", raising=False)
    with pytest.raises(InputError, match="set NSEG_DATA=FOLDER"):
        tu_graphs("NOT_A_DATASET_OF_TU", tmp_path)


def bonds(atoms: str, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    atom = torch.tensor([ATOMS.index(a) for a in atoms.split()])
    edge_index = torch.tensor([p for pair in pairs for p in (pair, pair[::-1])]).T
    found = edge_index[:, amine_and_nitro(atom, edge_index)]
    return sorted({(min(u, v), max(u, v)) for u, v in found.T.tolist()})


def test_nitro_and_amine_groups_by_hand() -> None:
    assert bonds("C N O O", [(0, 1), (1, 2), (1, 3)]) == [(1, 2), (1, 3)]
    assert bonds("C N H H", [(0, 1), (1, 2), (1, 3)]) == [(1, 2), (1, 3)]
    assert bonds("O N O O", [(0, 1), (1, 2), (1, 3)]) == []  # three oxygens
    assert bonds("O N H H", [(0, 1), (1, 2), (1, 3)]) == []  # hydroxylamine
    assert bonds("C N O O C", [(0, 1), (1, 2), (1, 3), (3, 4)]) == []  # an ester oxygen
    assert bonds("C N H H H", [(0, 1), (1, 2), (1, 3), (1, 4)]) == []  # ammonium


@needs_files
def test_the_real_mutagenicity_file_bond_for_bond(tmp_path) -> None:
    folder = Path(REAL) / "Mutagenicity"
    data = load("mutagenicity", root=tmp_path)
    graphs = data.graphs
    assert len(graphs) == 4337
    assert sum(g.num_nodes for g in graphs) / 4337 == pytest.approx(30.32, abs=0.005)
    assert sum(g.num_edges for g in graphs) / 2 / 4337 == pytest.approx(30.77, abs=0.005)
    known = np.loadtxt(folder / "Mutagenicity_edge_gt.txt", dtype=int)
    ends = np.loadtxt(folder / "raw" / "Mutagenicity_A.txt", dtype=int, delimiter=",") - 1
    whole = Batch.from_data_list(graphs)
    theirs = (ends[:, 0] * whole.num_nodes + ends[:, 1]) * 2 + (known > 0)  # an edge and its truth as one number
    ours = (whole.edge_index[0] * whole.num_nodes + whole.edge_index[1]) * 2 + whole.edge_truth
    assert np.isin(ours.numpy(), theirs).all()
    assert sum(int(g.y) == 0 and bool(g.edge_truth.any()) for g in graphs) == 1015
    assert data.instances[:3].tolist() == [10, 22, 25]
    assert (len(data.instances), int(data.instances[-1])) == (250, 1045)


@needs_files
def test_the_real_msrc_and_public_ba2motif_files(tmp_path) -> None:
    data = load("msrc-21", root=tmp_path)
    assert len(data.graphs) == 563
    assert sum(g.num_nodes for g in data.graphs) / 563 == pytest.approx(77.52, abs=0.005)
    assert sum(g.num_edges for g in data.graphs) / 2 / 563 == pytest.approx(198.32, abs=0.005)
    assert (len(data.class_names), len(data.node_names), data.num_features) == (20, 24, 24)
    assert data.truth(0) is None
    aeroplanes = torch.cat([g.x.argmax(-1) for g in data.graphs if int(g.y) == data.class_names.index("aeroplane")])
    names = [data.node_names[n] for n in aeroplanes.bincount(minlength=24).topk(3).indices.tolist()]
    assert set(names) == {"sky", "grass", "aeroplane"}
    check_ba2motif(load("ba-2motif", public=True).graphs)


def written_as_pyg_has_it(raw: Path) -> None:
    """Files of a tiny DBLP in PyG's format: three authors, four papers, two terms and two conferences."""
    raw.mkdir(parents=True)
    kinds = np.repeat([0, 1, 2, 3], [3, 4, 2, 2])
    joined = np.zeros((11, 11))
    for author, paper in ((0, 0), (0, 1), (1, 2), (2, 3)):
        joined[author, 3 + paper] = joined[3 + paper, author] = 1
    for paper, conference in enumerate((0, 1, 0, 1)):
        joined[3 + paper, 9 + conference] = joined[9 + conference, 3 + paper] = 1
    joined[3, 7] = joined[7, 3] = 1
    scipy.sparse.save_npz(raw / "adjM.npz", scipy.sparse.csr_matrix(joined))
    for number, rows in enumerate((3, 4)):
        scipy.sparse.save_npz(raw / f"features_{number}.npz", scipy.sparse.csr_matrix(np.eye(rows)))
    np.save(raw / "features_2.npy", np.ones((2, 5)))
    np.save(raw / "labels.npy", np.array([0, 3, 1]))
    np.save(raw / "node_types.npy", kinds)
    np.savez(raw / "train_val_test_idx.npz", train_idx=[0], val_idx=[1], test_idx=[2])


def test_pygs_own_dblp_is_loaded_from_where_pyg_has_downloaded_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written_as_pyg_has_it(tmp_path / "DBLP" / "raw")
    found = load("dblp", public=True, root=tmp_path)
    assert (found.name, found.level, found.num_classes, found.instances.tolist()) == ("dblp", "node", 4, [2])
    assert set(found.graphs[0].node_types) == {"author", "paper", "term", "conference"}
    assert found.graphs[0]["author"].y.tolist() == [0, 3, 1]

    def no_network(*_: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr("torch_geometric.datasets.dblp.download_url", no_network)
    with pytest.raises(InputError, match="PyG's DBLP must be downloaded once"):
        load("dblp", public=True, root=tmp_path / "other")


@needs_files
def test_the_real_dblp_and_its_networks() -> None:
    found = load("dblp")
    (data,) = found.graphs
    assert [data[kind].num_nodes for kind in ("author", "paper", "conference")] == [2957, 4328, 20]
    assert (data["author", "wrote", "paper"].num_edges, data["paper", "presented_at", "conference"].num_edges) == (
        5580,
        4328,
    )
    for name in ("hgt", "sage"):
        with torch.no_grad():
            output = pretrained("dblp", name)(data.x_dict, data.edge_index_dict)
        right = (output.argmax(-1) == data["author"].y)[found.instances].float().mean()
        assert float(right) == pytest.approx(manifest()[f"dblp/{name}"]["accuracy"]["test"], abs=1e-3)
