"""Exports: the same rows from memory and from disk, equal to the masks, with names, weights and values."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from test_names import NAMES, Payments, graph

import nseg
from nseg import NSEG, Explainer, ExplanationList, InputError, explain_many
from nseg.runs import exports
from nseg.runs.exports import ELEMENT_COLUMNS, EXPLANATION_COLUMNS
from nseg.wording import elements, sentence


def make(edges: str | None = "object", nodes: str | None = None, **settings: Any) -> Explainer:
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    settings = {"steps": 5, **settings}
    return Explainer(Payments(), NSEG(**settings), "model", edge_mask_type=edges, node_mask_type=nodes, model_config=config)


KINDS = [("object", None), (None, "object"), (None, "attributes"), ("object", "attributes"), (None, "common_attributes")]


@pytest.mark.parametrize(("edges", "nodes"), KINDS)
def test_stored_and_found_explanations_export_the_same(tmp_path: Path, edges: str | None, nodes: str | None) -> None:
    explainer, data = make(edges, nodes), graph()
    found = explain_many(explainer, data, **NAMES)
    stored = explain_many(explainer, data, out=tmp_path, **NAMES)
    for rows in ("explanations", "elements"):
        assert stored.records(rows) == found.records(rows)
        assert stored.to_csv(rows=rows) == found.to_csv(rows=rows)
        assert stored.records(rows, data=data, left_out=True) == found.records(rows, left_out=True)
    assert stored.to_json() == found.to_json()
    assert any(row["kept"] for row in found.records())


def test_rows_are_what_the_masks_say() -> None:
    found = explain_many(make("object", "attributes"), graph(), **NAMES)
    for one, row in zip(found, found.records(), strict=True):
        kept = one.node_id[one.edge_index[:, one.hard_edge_mask & one.reached]].T.tolist()
        own = [r for r in found.records("elements") if r["output_id"] == one.output_id]
        assert sorted([r["source"], r["target"]] for r in own if r["kind"] == "edge") == sorted(kept)
        cells = {(r["node"], r["feature"]): r for r in own if r["kind"] == "node feature"}
        expected = {(int(one.node_id[n]), f): float(one.x[n, f]) for n, f in one.hard_node_mask.nonzero().tolist()}
        assert {at: r["value"] for at, r in cells.items()} == expected
        assert all(r["unit"] == ("EUR" if r["feature"] == 0 else None) for r in cells.values())
        assert (row["edges_kept"], row["features_kept"]) == (len(kept), len(expected))
        assert row["p"] == pytest.approx(float(one.prediction.softmax(-1)[one.index].max()))
        assert row["output"] == f"tx-{one.output_id}"
        assert set(row) == set(EXPLANATION_COLUMNS)
        assert all(set(r) == set(ELEMENT_COLUMNS) for r in own)


def test_left_out_elements_are_all_that_can_matter() -> None:
    for one in explain_many(make(), graph(), **NAMES):
        every = elements(one, left_out=True)
        assert len(every) == int(one.reached.sum())
        assert [e for e in every if e.kept] == elements(one)
        weights = {e.edge: e.weight for e in every}
        assert weights == {int(one.edge_id[n]): float(one.edge_mask[n]) for n in one.reached.nonzero().flatten().tolist()}


def test_csv_reads_back_and_has_documented_columns(tmp_path: Path) -> None:
    found = explain_many(make(), graph(node_names=['a "b", c', "d\ne", "f;g", "ü"]), [1, 2])
    text = found.to_csv(tmp_path / "e.csv", "elements")
    assert (tmp_path / "e.csv").read_text(encoding="utf-8") == text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [r["source_name"] for r in rows] == [r["source_name"] for r in found.records("elements")]
    for column in (*ELEMENT_COLUMNS, *EXPLANATION_COLUMNS):
        assert f"``{column}``" in str(exports.__doc__)


def test_json_networkx_and_pandas_agree(tmp_path: Path) -> None:
    found = explain_many(make(), graph(), **NAMES)
    plain = json.loads(found.to_json(tmp_path / "e.json"))
    assert json.loads((tmp_path / "e.json").read_text()) == plain
    frame, graphs = found.to_frame("elements"), found.to_networkx()
    assert list(frame.columns) == list(ELEMENT_COLUMNS)
    assert len(found.to_frame()) == len(found)
    for one, record, drawn in zip(found, plain["explanations"], graphs, strict=True):
        edges = {(e["source"], e["target"]) for e in record["elements"]}
        assert edges == {(a, b) for a, b, kept in drawn.edges(data="kept") if kept}
        mine = frame[frame.output_id == one.output_id]
        assert edges == set(zip(mine.source, mine.target, strict=True))
        assert drawn.number_of_edges() == int(one.reached.sum())
        assert drawn.graph["sentence"] == record["sentence"] == sentence(one)


def test_features_of_nodes_are_in_networkx() -> None:
    (one,) = found = explain_many(make(None, "attributes"), graph(), [1], **NAMES)
    (drawn,) = found.to_networkx()
    features = {n: f for n, f in drawn.nodes(data="features") if f}
    expected: dict[int, dict[str, float]] = {}
    for n, f in one.hard_node_mask.nonzero().tolist():
        expected.setdefault(int(one.node_id[n]), {})[NAMES["feature_names"][f]] = float(one.x[n, f])
    assert features == expected


def test_sentences_name_classes_edges_and_features() -> None:
    one = explain_many(make("object", "attributes"), graph(), [3], **NAMES)[0]
    one.changes = True  # what does not change anything is not named as a reason
    said = sentence(one)
    label = NAMES["class_names"][int(one.target[one.index])]
    assert said.startswith(f"The model says {label} for tx-{one.output_id} (p 0.")
    for element in elements(one):
        assert element.text.split(": ")[-1] in said
    plain = sentence(explain_many(make(), graph(), [3])[0])
    assert plain.startswith("The model says class ")
    empty = one.clone()
    empty.hard_edge_mask = torch.zeros_like(one.hard_edge_mask)
    assert "because of" in sentence(empty)
    assert " edges (" not in sentence(empty)


def test_both_directions_are_one_element_if_undirected() -> None:
    data = graph()
    data.edge_index = torch.cat([data.edge_index, data.edge_index.flip(0)], 1)
    found = explain_many(make(undirected=True), data, [0, 2])
    for one, row in zip(found, found.records(), strict=True):
        assert len(elements(one)) == row["edges_kept"]
        assert len(elements(one, left_out=True)) == row["edges"]
        assert all(" - " in element.text for element in elements(one))


def test_a_list_stays_a_list_and_knows_its_exports() -> None:
    found = explain_many(make(), graph())
    assert isinstance(found, list)
    assert isinstance(found[1:3], ExplanationList)
    assert found[1:3].records() == found.records()[1:3]
    with pytest.raises(InputError, match="rows must be"):
        found.to_csv(rows="columns")


def test_what_could_not_be_explained_says_why_in_every_export(tmp_path: Path) -> None:
    data = graph()
    data.x = data.x.clamp(min=0.1) * 3e38  # sums overflow
    with pytest.warns(nseg.NsegWarning, match="could not be explained"):
        stored = explain_many(make(), data, [1], out=tmp_path, strict=False)
    (row,) = stored.records()
    assert row["reason"]
    assert row["sentence"].startswith("Output 1 could not be explained: ")
    assert stored.records("elements") == []
    assert stored.to_networkx(data=data) == []


def test_stored_explanations_ask_for_their_graph_where_it_is_needed(tmp_path: Path) -> None:
    stored = explain_many(make(), graph(), [1], out=tmp_path)
    with pytest.raises(InputError, match="or ask for what is kept only"):
        stored.to_networkx()
    kept = stored.to_networkx(left_out=False)[0]
    assert kept.number_of_edges() == stored.records()[0]["edges_kept"]
    assert nseg.read(tmp_path).to_networkx(data=graph())[0].number_of_edges() == stored.records()[0]["edges"]
