"""One contract for all backends: equal results bit for bit, the original exceptions, nothing left behind when stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import cloudpickle
import psutil
import pytest
import torch
from hetero_zoo import hetero_graph, make_net
from ray_cluster import local_cluster
from test_long_runs import CUT, TARGETS, content, made, run
from torch_geometric.data import Data
from torch_geometric.explain import GNNExplainer
from zoo import GRAPH_CONFIG, LINK_CONFIG, NODE_CONFIG, NODE_MODELS, Link, Molecule, explainer, graph, quick, seeded

import nseg
from nseg import BackendError, Explainer, InputError, explain_many, study
from nseg.backends import NAMES, Backend, Local, Processes, Ray, make, start
from nseg.backends.serialize import MIN_BUFFER_BYTES, deserialize, serialize, serialize_with_buffers
from nseg.runs.folder import stored_shards


@pytest.fixture(scope="module", params=["local", "processes", pytest.param("ray", marks=pytest.mark.ray)])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "ray":
        if find_spec("ray") is None:  # importing it here would be too early: local_cluster sets its environment first
            pytest.skip("Ray is not installed")
        with local_cluster(nodes=2) as cluster, Ray(cluster.address) as made_:
            yield made_
    else:
        with make(request.param, None if request.param == "local" else 2) as made_:
            yield made_


pytestmark = pytest.mark.filterwarnings("ignore:backend='processes' ran in this process alone")  # may be: shards are tiny
PAIRS = torch.tensor([[0, 3, 7], [2, 9, 7]])
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # or each new worker imports all of this, for seconds


def square(number: int) -> int:
    return number * number


def test_results_come_with_the_position_of_their_item(backend: Backend) -> None:
    assert dict(backend.map(square, range(9))) == {n: n * n for n in range(9)}
    assert list(backend.map(square, [])) == []


def test_functions_that_cannot_be_imported_and_large_arrays_are_sent(backend: Backend) -> None:
    table = torch.arange(MIN_BUFFER_BYTES)

    class Local:
        def __init__(self) -> None:
            self.table, self.calls = table, 0

        def __call__(self, n: int) -> tuple[int, int]:
            self.calls += 1
            self.table[n] += 1000  # each worker writes to its own copy
            return int(self.table[n]), self.calls

    sent = Local()
    found = dict(backend.map(sent, [3, 4, 5]))
    assert [value for value, _ in (found[n] for n in range(3))] == [1003, 1004, 1005]
    assert sum(calls == 1 for _, calls in found.values()) <= 2, "a worker loads the function once"
    if not isinstance(backend, nseg.backends.Local):
        assert torch.equal(table, torch.arange(MIN_BUFFER_BYTES))


class Odd(Exception):
    """Cannot be created again from its arguments."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


def fail(how: str) -> None:
    if how == "input":
        raise InputError("so it goes")
    raise Odd(1, 2)


def test_what_a_call_raises_is_raised_here_and_the_backend_can_be_used_again(backend: Backend) -> None:
    with pytest.raises(InputError, match="so it goes"):
        list(backend.map(fail, ["input"]))
    with pytest.raises((Odd, BackendError), match="1 and 2"):
        list(backend.map(fail, ["odd"]))
    assert dict(backend.map(square, [7])) == {0: 49}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this process has stored all kinds of explanations, one after the other."""
    return run_into(tmp_path_factory.mktemp("here"), Local())


def test_explanations_are_the_same_bit_for_bit(backend: Backend, here: Path, tmp_path: Path) -> None:
    assert content(here) == content(run_into(tmp_path, backend))


def of_types() -> Explainer:
    """An explainer of a heterogeneous graph."""
    masks = {"edge_mask_type": "object", "node_mask_type": "object"}
    return Explainer(make_net("to_hetero"), quick(steps=2), explanation_type="model", model_config=NODE_CONFIG, **masks)


def run_into(folder: Path, backend: Backend) -> Path:
    run(folder / "nodes", made(edge_mask_type="object", node_mask_type="object"), backend=backend)
    links = explainer(seeded(Link), quick(steps=2), LINK_CONFIG)
    run(folder / "links", links, index=[2, 0], shard=1, edge_label_index=PAIRS, backend=backend)
    some = [graph(nodes=5 + n, edges=9, seed=n) for n in range(4)]
    run(folder / "graphs", explainer(seeded(Molecule), quick(steps=2), GRAPH_CONFIG), some, None, shard=2, backend=backend)
    torch.manual_seed(3)
    run(folder / "types", of_types(), hetero_graph(), [0, 3, 1], shard=2, backend=backend)
    run(folder / "random", explainer(seeded(NODE_MODELS["gcn"]), GNNExplainer(epochs=2)), index=range(4), backend=backend)
    return folder


def test_explanations_in_memory_keep_their_graphs_and_order(backend: Backend) -> None:
    here = explain_many(made(), graph(), TARGETS[::-1], **CUT)
    there = explain_many(made(), graph(), TARGETS[::-1], backend=backend, **CUT)
    for one, other in zip(here, there, strict=True):
        assert one.output_id == other.output_id
        assert one.pns == other.pns
        assert all(torch.equal(one[k], other[k]) for k in ("edge_mask", "hard_edge_mask", "x", "edge_index", "prediction"))
    data = hetero_graph()
    here, there = (explain_many(of_types(), data, [3, 0], shard=1, backend=one) for one in ("local", backend))
    for one, other in zip(here, there, strict=True):
        assert (one.output_id, one.pns, one.words()) == (other.output_id, other.pns, other.words())
        assert all(torch.equal(one[k].hard_edge_mask, other[k].hard_edge_mask) for k in data.edge_types)


def test_progress_is_shown(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    explain_many(made(), graph(), [1, 2, 3, 4], progress=True, backend=backend, shard=2)
    assert "4/4" in capsys.readouterr().err


def test_a_stopped_run_is_resumed(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, stored = nseg.runs.folder.RunFolder.store, []

    def stopped(self, number: int, *what) -> int:
        if len(stored) == 2:
            raise KeyboardInterrupt  # Ctrl-C while a shard is awaited or written
        stored.append(number)
        return put(self, number, *what)

    out = tmp_path / "run"
    monkeypatch.setattr(nseg.runs.folder.RunFolder, "store", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(out, backend=backend)
    monkeypatch.undo()
    assert sorted(stored_shards(out)) == sorted(stored)
    run(out, backend=backend)
    run(tmp_path / "undisturbed")
    assert content(out) == content(tmp_path / "undisturbed")


STUDY = """
title = "A tiny study"
datasets = ["tree-cycles"]
seeds = [0, 1]
every = 90
methods = [{ name = "random" }, { name = "nseg", settings = { steps = 2, rounds = 0, starts = [0.0] } }]
"""


def means_of_a_study(folder: Path, backend: Backend | None) -> dict[str, object]:
    """The records of a tiny study, without times."""
    plan = study.read(STUDY, "tiny")
    opened, trials = study.start(plan, folder)
    found = {record["key"]: record["means"] for record in study.run_trials(opened, plan, trials, backend)}
    assert list(study.run_trials(opened, plan, trials, backend)) == [], "all is done"
    return {key: {k: v for k, v in one.items() if k != "seconds"} for key, one in found.items()}


@pytest.fixture(scope="module")
def means_here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return means_of_a_study(tmp_path_factory.mktemp("study"), None)


def test_a_study_gives_the_same_records(backend: Backend, means_here: dict[str, object], tmp_path: Path) -> None:
    assert means_of_a_study(tmp_path, backend) == means_here
    assert len(means_here) == 4


# --- processes -----------------------------------------------------------------------------------------------------------


def die_once(folder: str, number: int) -> int:
    mark = Path(folder) / str(number)
    if number == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def always_die(number: int) -> None:
    os._exit(3)


def test_a_worker_that_dies_is_replaced_and_one_that_has_lost_its_driver_ends(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(backend, Ray):
        found = dict(backend.map(partial(die_once, str(tmp_path)), range(4)))
        assert sorted(found) == [0, 1, 2, 3]
    if isinstance(backend, Processes):
        found = dict(backend.map(partial(die_once, str(tmp_path)), range(4)))
        assert sorted(found) == [0, 1, 2, 3]
        lost = backend._processes.pop()
        lost.connection.close()  # what a worker sees when its driver is killed
        assert lost.process.wait(timeout=60) == 0
        monkeypatch.setattr("nseg.backends.processes.MAX_DEATHS", 1)
        with pytest.raises(BackendError, match="1 that died at item 0"):
            list(backend.map(always_die, [0]))


class Meeting:
    """A function whose calls may be made anywhere, and end only when two processes have begun one; returns the process."""

    anywhere = True

    def __init__(self, folder: Path, dies: bool = False) -> None:
        self.folder, self.dies, self.driver = folder, dies, os.getpid()

    def __call__(self, _: int) -> int:
        (self.folder / str(os.getpid())).touch()
        while len(list(self.folder.iterdir())) < 2:
            time.sleep(0.01)
        if self.dies and os.getpid() != self.driver:
            os._exit(3)
        return os.getpid()


def where(_: int) -> int:
    return os.getpid()


where.anywhere = True


def test_this_process_is_one_of_the_workers_and_takes_over_from_one_that_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Processes(2) as pool:
        (tmp_path / "lives").mkdir()
        places = dict(pool.map(Meeting(tmp_path / "lives"), range(4)))
        assert sorted(places) == [0, 1, 2, 3]
        assert len(pool._processes) == 1
        assert set(places.values()) == {os.getpid(), pool._processes[0].process.pid}
        assert pool.note() is None
        (tmp_path / "dies").mkdir()
        monkeypatch.setattr("nseg.backends.processes.new_process", slow_start)
        assert set(dict(pool.map(Meeting(tmp_path / "dies", dies=True), range(9))).values()) == {os.getpid()}


def slow_start(code: str, file_descriptor: int) -> subprocess.Popen[bytes]:
    """A worker process that takes an hour to start."""
    return start.new_process("import time; time.sleep(3600)", file_descriptor)


def test_what_is_done_before_workers_have_started_is_done_here_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nseg.backends.processes.can_fork", lambda: False)
    monkeypatch.setattr("nseg.backends.processes.new_process", slow_start)
    here = explain_many(made(), graph(), TARGETS, **CUT)
    for options, why in [(CUT, "shards were done before another worker had started"), ({}, "there is one shard")]:
        with pytest.warns(nseg.NsegWarning, match=f"in this process alone, because that was faster: .*{why}"):
            there = explain_many(made(), graph(), TARGETS, backend="processes", workers=2, **options)
        assert [one.pns for one in here] == [one.pns for one in there]
    with Processes() as pool:
        assert set(dict(pool.map(where, range(5))).values()) == {os.getpid()}
        with pytest.raises(ZeroDivisionError):
            list(pool.map(divide, [1, 0]))


def divide(number: int) -> float:
    return 1 / number


divide.anywhere = True


@pytest.mark.slow
def test_workers_end_with_a_driver_that_is_killed_and_nothing_is_left_in_shared_memory() -> None:
    script = (
        "import os, time, torch\n"
        "from nseg.backends import Processes\n"
        "big = torch.zeros(1 << 20)\n"
        "def work(n): return os.getpid(), float(big[0]), time.sleep(n)\n"
        "for _, (pid, _, _) in Processes(1).map(work, [0, 5]): print(pid, flush=True)\n"
    )
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
    before = set(os.listdir(shared))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as driver:
        worker = psutil.Process(int(driver.stdout.readline()))
        driver.kill()
    worker.wait(timeout=60)
    assert set(os.listdir(shared)) - before == set()


# --- serialization and error messages ------------------------------------------------------------------------------------


def test_a_deserialized_object_equals_the_serialized_one() -> None:
    large, view = torch.arange(MIN_BUFFER_BYTES).view(2, -1), torch.arange(MIN_BUFFER_BYTES)[5:7]
    value = {
        "large": large,
        "turned": large.t(),
        "view": view,
        "none": torch.empty(0, 3),
        "bool": torch.tensor([True]),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "gradient": torch.ones(2, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "graph": Data(x=large, edge_index=view.view(2, 1)),
    }
    pickled, buffers = serialize_with_buffers(value)
    assert [one.raw().nbytes for one in buffers] == [large.nbytes] * 2 or len(buffers) == 2
    assert len(serialize(view)) < 1000, "a view is sent without the rest of its storage"
    found = deserialize(pickled, [bytearray(one.raw()) for one in buffers])
    for name, tensor in value.items():
        if isinstance(tensor, torch.Tensor):
            assert torch.equal(found[name], tensor), name
            assert found[name].requires_grad == tensor.requires_grad
            assert type(found[name]) is type(tensor)
    assert torch.equal(found["graph"].x, large)


def test_errors_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="Known: local, processes, ray"):
        explain_many(made(), graph(), [1], backend="cloud")
    for name in NAMES:
        for workers in (0, -1, 1.5, True, "2"):
            with pytest.raises(InputError, match="workers must be"):
                make(name, workers)
    with pytest.raises(InputError, match="has one worker"):
        make("local", 2)
    with pytest.raises(InputError, match="only for the backend 'ray'"):
        make("processes", 2, "auto")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BackendError, match=r'pip install "nseg\[ray\]"'):
        make("ray")


# --- how worker processes start --------------------------------------------------------------------------------------------


def torch_state(_: int) -> tuple[int, int, bool]:
    return os.getppid(), torch.get_num_threads(), torch.is_grad_enabled()


def test_workers_are_forks_only_where_that_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in start.THREADED:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(start.sys, "platform", "linux")
    monkeypatch.setattr(start.threading, "active_count", lambda: 1)
    assert start.can_fork()
    with monkeypatch.context() as change:
        change.setattr(start.sys, "platform", "darwin")
        assert not start.can_fork()
    with monkeypatch.context() as change:
        change.setattr(torch.cuda, "is_initialized", lambda: True)
        assert not start.can_fork()
    with monkeypatch.context() as change:
        change.setitem(sys.modules, "ray", sys)
        assert not start.can_fork()
    monkeypatch.setattr(start.threading, "active_count", lambda: 2)
    assert not start.can_fork()


@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform != "linux", reason="only Linux forks safely")
@pytest.mark.parametrize(("forked", "workers"), [(True, 2), (False, 1)])  # a new one takes seconds to start
def test_forked_and_new_workers_give_the_same_explanations(
    forked: bool, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nseg.backends.processes.can_fork", lambda: forked)
    here = explain_many(made(), graph(), TARGETS, **CUT)
    threads, files = torch.get_num_threads(), set(os.listdir("/proc/self/fd"))
    with Processes(workers) as pool:
        with torch.no_grad():
            assert dict(pool.map(torch_state, [0])) == {0: (os.getpid(), 1, True)}
        assert isinstance(pool._processes[0].process, start.ForkedProcess) is forked
        there = explain_many(made(), graph(), TARGETS, backend=pool, **CUT)
        pids = [worker.process.pid for worker in pool._processes]
    assert all(torch.equal(a.edge_mask, b.edge_mask) and a.pns == b.pns for a, b in zip(here, there, strict=True))
    assert torch.get_num_threads() == threads
    assert set(os.listdir("/proc/self/fd")) == files
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform != "linux", reason="only Linux forks safely")
def test_a_fork_keeps_no_socket_of_another_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nseg.backends.processes.can_fork", lambda: True)
    with Processes(3) as pool:
        pool.prepare(5)
        first, second = pool._processes
        for _ in range(100):  # a worker closes what it inherited as its first act, which may take it a moment
            sockets = [os.listdir(f"/proc/{worker.process.pid}/fd") for worker in (first, second)]
            if all(len(found) <= 5 for found in sockets):
                break
            time.sleep(0.1)
        first.connection.close()
        assert first.process.wait(timeout=60) == 0, "the second worker must not keep the first one's socket open"
        pool._processes.remove(first)
        assert dict(pool.map(square, [3])) == {0: 9}
    assert all(len(found) <= 5 for found in sockets), sockets
