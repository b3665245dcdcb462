"""Long runs: nothing lost, nothing twice, and the final folder is that of a run nobody disturbed."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data
from torch_geometric.explain import GNNExplainer
from zoo import GRAPH_CONFIG, NODE_MODELS, Molecule, explainer, graph, quick, seeded

import nseg
from nseg import InputError, ModelError, NsegWarning, StoreError, explain_many
from nseg.backends import Local
from nseg.runs import fingerprint, folder, layout, parquet
from nseg.storage import hashing

TARGETS = list(range(11))
CUT = {"shard": 3}  # four shards: 3, 3, 3, 2


def made(seed: int = 0, steps: int = 2, **masks):
    return explainer(seeded(NODE_MODELS["gcn"], seed), quick(steps=steps), **masks)


def run(out: Path, explain=None, data=None, index=TARGETS, **more):
    return explain_many(explain or made(), data or graph(), index, out=out, **{**CUT, **more})


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


class Watched(Local):
    """The local back end, that writes down which items it was given, and may stop before one."""

    def __init__(self, stop: int | None = None) -> None:
        self.seen: list[int] = []
        self.stop = stop

    def map(self, function, items):
        for number, item in enumerate(items):
            if len(self.seen) == self.stop:
                raise KeyboardInterrupt
            self.seen.append(item[0])
            yield number, function(item)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    run(folder)
    return content(folder)


def test_what_is_stored_is_what_is_found_without_a_folder(tmp_path: Path) -> None:
    masks = {"edge_mask_type": "object", "node_mask_type": "object"}
    found, again = explain_many(made(**masks), graph(), TARGETS, **CUT), run(tmp_path / "run", made(**masks))
    assert len(again) == len(found) == 11
    assert again.complete
    for one, other in zip(found, again, strict=True):
        assert one.output_id == other.output_id
        assert {name for name in parquet.TENSORS if one.get(name) is not None} == {n for n in parquet.TENSORS if n in other}
        assert all(torch.equal(one[name], other[name]) for name in parquet.TENSORS if name in other)
        assert all(one[name] == other[name] for name in (*parquet.NUMBERS, *parquet.FLAGS, *parquet.TEXTS, "exact"))
    assert [one.output_id for one in again[2:7]] == [2, 3, 4, 5, 6]
    assert again[-1].output_id == nseg.read(tmp_path / "run")[10].output_id == 10
    with pytest.raises(IndexError):
        again[11]
    again[3].edge_mask.zero_()
    assert torch.equal(again[3].edge_mask, found[3].edge_mask), "what is read is the reader's own"


def test_any_reader_of_parquet_gets_documented_columns(tmp_path: Path) -> None:
    run(tmp_path / "run")
    table = pq.read_table(tmp_path / "run" / "explanations")
    assert table.schema.equals(parquet.SCHEMA)
    assert sorted(table["output_id"].to_pylist()) == TARGETS
    assert all(name in parquet.__doc__ for name in table.column_names)
    assert table["node_mask"].null_count == 11


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_a_stopped_run_is_resumed_and_leaves_the_same_folder(tmp_path: Path, undisturbed, stop: int) -> None:
    out, first, second, third = tmp_path / "run", Watched(stop), Watched(), Watched()
    with pytest.raises(KeyboardInterrupt):
        run(out, backend=first)
    half = nseg.read(out)
    assert (len(half), half.complete) == (3 * stop, False)
    run(out, backend=second)
    assert [*first.seen, *second.seen] == [0, 1, 2, 3]
    run(out, backend=third)
    assert third.seen == []
    assert content(out) == undisturbed


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied", "gone", "left half written"])
def test_a_damaged_shard_is_noticed_and_done_again(tmp_path: Path, undisturbed, damage: str) -> None:
    out, watched = tmp_path / "run", Watched()
    run(out)
    path = folder.stored_shards(out)[1]
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "left half written":
        path.rename(path.with_name(f".{path.name}.12345"))
        (out / ".manifest.json.12345").write_text("{")
    else:
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        path.write_bytes({"truncated": whole[:-7], "flipped": flipped, "emptied": b""}[damage])
        with pytest.raises(StoreError, match="checksum"):
            list(nseg.read(out))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run(out, backend=watched)
    assert any("is replaced" in str(one.message) for one in said) == path.name.startswith("0") * (
        damage in ("truncated", "flipped", "emptied")
    )
    assert watched.seen == [1]
    assert content(out) == undisturbed


def other(**changes) -> Data:
    data = graph()
    for name, value in changes.items():
        data[name] = value
    return data


OTHERS = {
    "weights": (lambda out: run(out, made(seed=1)), "model.weights is"),
    "structure": (
        lambda out: run(out, explainer(seeded(NODE_MODELS["gcn, no self-loops"]), quick(steps=2))),
        "model.structure is",
    ),
    "settings": (lambda out: run(out, made(steps=3)), "settings.steps is 2 there and 3 here"),
    "masks": (lambda out: run(out, made(node_mask_type="object")), "explainer.node_mask_type is missing there and object"),
    "algorithm": (
        lambda out: run(out, explainer(seeded(NODE_MODELS["gcn"]), GNNExplainer(epochs=1))),
        "explainer.algorithm is NSEG there and GNNExplainer here",
    ),
    "features": (lambda out: run(out, data=other(x=graph().x + 1)), "data.content is"),
    "edges": (lambda out: run(out, data=other(edge_index=graph().edge_index.flip(1))), "data.content is"),
    "targets": (lambda out: run(out, index=range(10)), "targets.number is 11 there and 10 here"),
    "order of targets": (lambda out: run(out, index=TARGETS[::-1]), "targets.rows is"),
    "size of shards": (lambda out: run(out, shard=5), "shard is 3 there and 4 here"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_folder_of_something_else_is_refused_with_the_difference(tmp_path: Path, undisturbed, name: str) -> None:
    again, words = OTHERS[name]
    for path, data in undisturbed.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    with pytest.raises(StoreError, match=words):
        again(tmp_path)
    assert content(tmp_path) == undisturbed


def test_a_folder_that_is_no_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StoreError, match=r"it holds thesis\.tex"):
        run(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    for text in ("{", "[]", '{"format": 1}', '{"targets": 3}'):
        place = tmp_path / f"manifest {text!r}"
        place.mkdir()
        (place / "manifest.json").write_text(text)
        with pytest.raises(StoreError):
            run(place)
        with pytest.raises((StoreError, InputError)):
            list(nseg.read(place))


def test_two_runs_on_one_folder_do_nothing_twice(tmp_path: Path, undisturbed) -> None:
    out, both = tmp_path / "run", [Watched(), Watched()]

    def work(backend: Watched) -> None:
        explain_many(explains[both.index(backend)], graph(), TARGETS, out=out, backend=backend, **CUT)

    explains = [made(), made()]  # a model is not meant for two threads
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NsegWarning)  # the later one says that it waits
        threads = [threading.Thread(target=work, args=(backend,)) for backend in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(both[0].seen + both[1].seen) == [0, 1, 2, 3]
    assert content(out) == undisturbed


class Moody(nn.Module):
    """Raises, or gives NaN, on graphs whose first feature says so."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Molecule()

    def forward(self, x, edge_index, batch=None):
        if bool((x[:, 0] == 7).any()):
            raise ArithmeticError("not today")
        return self.inner(x, edge_index, batch) + torch.where(x[:, 0] == 8, float("nan"), 0.0).sum()


def test_a_target_that_fails_is_a_record_and_the_others_go_on(tmp_path: Path) -> None:
    some = [graph(nodes=5 + n, edges=9, seed=n) for n in range(8)]
    some[2].x[0, 0], some[5].x[1, 0] = 7, 8
    explain = explainer(seeded(Moody), quick(steps=2), GRAPH_CONFIG)
    with pytest.warns(NsegWarning, match="2 targets could not"):
        found = explain_many(explain, some, out=tmp_path / "run", shard=4)
    assert [one.output_id for one in found] == list(range(8))
    assert {one.output_id: one.reason for one in found if "reason" in one}.keys() == {2, 5}
    assert found[2].reason.startswith("ModelError: The model must run on its input (got ArithmeticError: not today)")
    assert "must be finite" in found[5].reason
    fine = [n for n in range(8) if n not in (2, 5)]
    for one in explain_many(explain, some, fine):
        torch.testing.assert_close(found[one.output_id].edge_mask, one.edge_mask, rtol=1e-3, atol=1e-4)
    here = explain_many(explain, some, strict=False)
    assert [one.get("reason") for one in here] == [one.get("reason") for one in found]
    with pytest.raises(ModelError, match="not today"):
        explain_many(explain, some)
    with pytest.raises(ModelError, match="not today"):
        explain_many(explain, some, out=tmp_path / "strict", strict=True)


def test_a_node_whose_output_is_nan_is_a_record(tmp_path: Path) -> None:
    class Holes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = NODE_MODELS["gcn"]()

        def forward(self, x, edge_index):
            return torch.where(x[:, :1] > 1e6, float("nan"), self.inner(x, edge_index))

    data = graph()
    data.x[4] = 1e7
    with pytest.warns(NsegWarning, match="1 targets could not"):
        found = run(tmp_path / "run", explainer(seeded(Holes), quick(steps=2)), data)
    assert [one.output_id for one in found if "reason" in one] == [4]


FAILING: list[bool] = []  # not empty while memory is short


class Weak(nn.Module):
    """Fails for a while on graphs whose first feature is 7, and always where it is 8."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Molecule()

    def forward(self, x, edge_index, batch=None):
        if FAILING and bool((x[:, 0] == 7).any()):
            raise MemoryError("can't allocate memory")
        if bool((x[:, 0] == 8).any()):
            raise ArithmeticError("never")
        return self.inner(x, edge_index, batch)


def weak_run(out: Path, backend=None, failing: bool = False, **more):
    """Eight graphs in three shards; graph 2 fails while memory is short, graph 4 always."""
    some = [graph(nodes=5 + n, edges=9, seed=n) for n in range(8)]
    some[2].x[0, 0], some[4].x[1, 0] = 7, 8
    explain = explainer(seeded(Weak), quick(steps=2), GRAPH_CONFIG)
    FAILING.extend([True] * failing)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = explain_many(explain, some, out=out, shard=3, backend=backend or "local", **more)
    finally:
        FAILING.clear()
    return found, [str(one.message) for one in said]


def reasons(found) -> set[int]:
    return {one.output_id for one in found if "reason" in one}


def test_what_failed_for_a_while_is_tried_again(tmp_path: Path) -> None:
    weak_run(tmp_path / "undisturbed")
    out, again = tmp_path / "run", Watched()
    found, said = weak_run(out, failing=True)
    assert reasons(found) == {2, 4}
    assert not any("tried again" in one for one in said), "nothing is tried twice within one call"
    before, left = content(out), Watched()
    found, said = weak_run(out, left, retry=False)
    assert (left.seen, content(out), said) == ([], before, [])
    found, said = weak_run(out, again)
    assert again.seen == sorted({layout.ShardLayout(8, 3).position(n)[0] for n in (2, 4)})
    assert any(one.startswith("2 targets could not be explained before and are tried again") for one in said)
    assert any(one.startswith("1 targets could not be explained;") for one in said)
    assert reasons(found) == {4}
    assert content(out) == content(tmp_path / "undisturbed")
    found, said = weak_run(out)  # what always fails is tried once per call, and gives the same bytes
    assert content(out) == content(tmp_path / "undisturbed")
    with pytest.raises(ModelError, match="never"):
        weak_run(out, strict=True)
    assert content(out) == content(tmp_path / "undisturbed")


def test_a_retry_never_loses_what_is_stored(tmp_path: Path) -> None:
    found, _ = weak_run(tmp_path / "run")
    before = content(tmp_path / "run")
    assert reasons(found) == {4}
    found, _ = weak_run(tmp_path / "run", failing=True)  # graph 2 fails now, in a shard of its own or with graph 4
    assert reasons(found) == {4}
    assert content(tmp_path / "run") == before


def test_a_run_killed_while_it_replaced_a_shard_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weak_run(tmp_path / "undisturbed")
    out = tmp_path / "run"
    weak_run(out, failing=True)

    def killed(self: Path, missing_ok: bool = False) -> None:
        if self.name.endswith(".parquet") and not self.name.startswith("."):
            raise KeyboardInterrupt
        os.path.lexists(self) and os.unlink(self)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            weak_run(out)
    assert len(list((out / "explanations").iterdir())) == 4, "the old shard and the new one"
    assert len(nseg.read(out)) == 8
    weak_run(out)
    assert content(out) == content(tmp_path / "undisturbed")


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO, errno.EACCES])
def test_a_shard_that_cannot_be_read_now_is_kept(
    tmp_path: Path, undisturbed, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    out, read = tmp_path / "run", Path.read_bytes
    run(out)
    parquet.write(tmp_path / "single", list(nseg.read(out)), {})

    def fails(path: Path) -> bytes:
        if path.suffix == ".parquet":
            raise OSError(code, os.strerror(code))
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fails)
        for attempt in (
            lambda: run(out),
            lambda: list(nseg.read(out)),
            lambda: list(nseg.read(tmp_path / "single")),
        ):
            with pytest.raises(StoreError, match=f"could not be read .*{os.strerror(code)}"):
                attempt()
    assert content(out) == undisturbed
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda path: (_ for _ in ()).throw(OSError(code, os.strerror(code))))
        with pytest.raises(StoreError, match=r"manifest\.json could not be read"):
            nseg.read(out)
    again = Watched()
    run(out, backend=again)
    assert again.seen == []


def test_out_of_files_costs_no_shard(tmp_path: Path, undisturbed) -> None:
    """The same with the real limit of open files."""
    import resource

    out, before = tmp_path / "run", resource.getrlimit(resource.RLIMIT_NOFILE)
    run(out)
    with folder.open_run(out, json.loads((out / "manifest.json").read_text()), 4) as opened:
        used = os.dup(0)
        os.close(used)
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, before[1]))
        try:
            with pytest.raises(StoreError, match="Too many open files"):
                opened.missing()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert opened.missing(retry=True) == []
    assert content(out) == undisturbed


def test_a_full_disk_is_said_and_costs_nothing_that_is_stored(tmp_path: Path, undisturbed) -> None:
    """A limit on the size of files stands for the disk here; benchmarks/faults.py fills a real one."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    out = tmp_path / "run"

    class Filling(Watched):
        def map(self, function, items):
            for number, result in super().map(function, items):
                if len(self.seen) == 3:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
                yield number, result

    try:
        with pytest.raises(StoreError, match="File too large"):
            run(out, backend=Filling())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(nseg.read(out)) == 6
    assert not list((out / "explanations").glob(".*"))
    again = Watched()
    run(out, backend=again)
    assert again.seen == [2, 3]
    assert content(out) == undisturbed


DRIVER = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from zoo import NODE_MODELS, explainer, graph, quick, seeded
from nseg import explain_many
explain_many(explainer(seeded(NODE_MODELS["gcn"]), quick(steps=2)), graph(), range(11), out=Path({out!r}), shard=3)
"""


def test_a_killed_run_is_resumed_by_another_process(tmp_path: Path, undisturbed) -> None:
    """Killed once here; benchmarks/faults.py does so at many random moments."""
    out = tmp_path / "run"
    script = DRIVER.format(tests=str(Path(__file__).parent), out=str(out))
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], env={**os.environ})
    deadline = time.monotonic() + 120
    while not folder.stored_shards(out) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept, again = folder.stored_shards(out), Watched()
    assert kept
    run(out, backend=again)
    assert sorted([*kept, *again.seen]) == [0, 1, 2, 3]
    assert content(out) == undisturbed


def test_nothing_depends_on_the_clock(tmp_path: Path, undisturbed, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(out, backend=Watched(2))
    for path in out.rglob("*"):
        os.utime(path, (4e9, 4e9))  # written in the year 2096
    monkeypatch.setattr(time, "time", lambda: 0.0)
    again = Watched()
    run(out, backend=again)
    assert again.seen == [2, 3]
    assert content(out) == undisturbed


def test_random_algorithms_do_not_depend_on_what_was_done_before(tmp_path: Path) -> None:
    explain = explainer(seeded(NODE_MODELS["gcn"]), GNNExplainer(epochs=2))
    torch.manual_seed(5)
    run(tmp_path / "a", explain, index=range(5))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "b", explain, index=range(5), backend=Watched(1))
    torch.rand(3)
    run(tmp_path / "b", explain, index=range(5))
    assert content(tmp_path / "a") == content(tmp_path / "b")
    masks = [one.edge_mask for one in nseg.read(tmp_path / "a")]
    torch.manual_seed(6)
    with pytest.raises(StoreError, match=r"settings\.torch_seed is 5 there and 6 here"):
        run(tmp_path / "a", explain, index=range(5))
    assert len({tuple(mask.tolist()) for mask in masks}) == 5


def test_fingerprints_see_what_matters_and_nothing_else() -> None:
    model, twin = seeded(NODE_MODELS["gcn"]), seeded(NODE_MODELS["gcn"])
    plain = fingerprint.of_model(model)
    model.train()
    model(graph().x, graph().edge_index).sum().backward()
    assert fingerprint.of_model(model) == plain == fingerprint.of_model(twin)
    twin.convs[0].add_self_loops = False
    assert fingerprint.of_model(twin) != plain
    assert hashing.plain_data({"law": torch.lerp, "starts": (0.0, 1)})["starts"] == [0.0, 1]
    assert hashing.plain_data(quick).startswith("zoo.quick ")
    assert "0x" not in hashing.plain_data(lambda: 1)
    assert hashing.digest([1, [2]]) != hashing.digest([[1], 2])
    sparse = torch.eye(3).to_sparse()
    assert hashing.digest(sparse) != hashing.digest(torch.eye(3))


def test_a_manifest_says_what_a_run_is_made_of(tmp_path: Path) -> None:
    run(tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest == nseg.read(tmp_path / "run").manifest
    assert manifest["settings"]["steps"] == 2
    assert manifest["data"]["nodes"] == 24
    assert manifest["shard"] == 3
    assert folder.differences(manifest, manifest) == []


def test_words_for_what_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place, words in ((tmp_path / "file", "must be a folder"), (tmp_path / "file" / "below", "must be a folder")):
        with pytest.raises(InputError, match=words):
            run(place)
    for size in (0, -1, 1.5, True, "3"):
        with pytest.raises(InputError, match="shard must be"):
            run(tmp_path / "run", shard=size)
    with pytest.raises(InputError, match="which is not a folder"):
        nseg.read(tmp_path / "none")
    assert not (tmp_path / "run").exists()


@given(st.integers(1, 200), st.integers(1, 30))
def test_every_target_has_one_place_and_shards_are_of_like_size(total: int, size: int) -> None:
    shards = layout.ShardLayout(total, size)
    held = [list(shards.targets(number)) for number in range(shards.shards)]
    assert sorted(target for some in held for target in some) == list(range(total))
    assert all(held[shard][place] == target for target, (shard, place) in enumerate(map(shards.position, range(total))))
    assert all(1 <= len(some) <= size for some in held)
    even = layout.ShardLayout(total, -(-total // shards.shards))  # as explain_many cuts
    assert len(even.targets(0)) == even.size
