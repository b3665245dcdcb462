"""Real faults: after each, no shard is lost or done twice, and the folder equals that of an undisturbed run.

    python benchmarks/faults.py                 # all; needs Ray, and root for the small disk
    python benchmarks/faults.py kill disk       # some

- kill: SIGKILL of the driver at 20 random moments, without and with worker processes, and a restart after each
- disk: the folder is on a disk of 48 KiB, which is enlarged each time it is full
- damage: in one shard after the other, a bit is flipped or the end is cut off
- two: two drivers are started at once
- worker, node: a process, or a whole node, of a Ray cluster of three nodes is killed during the run
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import torch
from csv_table import write_table

import nseg
from nseg import NSEG, Explainer, StoreError, explain_many
from nseg.backends import Backend, Local, Processes, Ray
from nseg.datasets import load
from nseg.models import pretrained
from nseg.runs.folder import stored_shards

TARGETS, SHARD, MOMENTS = 60, 5, 20


class PrintingLocal(Local):
    """The local backend; prints the number of each shard when it is stored."""

    def map(self, function: Any, items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        for number, result in super().map(function, items):
            yield number, result
            print(items[number][0], flush=True)


def run(out: Path, backend: Backend | str = "local") -> None:
    """The run that the faults disturb."""
    torch.set_num_threads(1)
    bench = load("tree-cycles")
    explain = Explainer(
        pretrained("tree-cycles", "gcn"),
        NSEG(steps=20),
        explanation_type="model",
        edge_mask_type="object",
        model_config=bench.model_config,
    )
    explain_many(explain, bench.graphs[0], bench.instances[:TARGETS], out=out, backend=backend, shard=SHARD)


def start_driver(out: Path, backend: str) -> subprocess.Popen[str]:
    """Start the run in another process."""
    command = [sys.executable, "-W", "ignore", __file__, "--run", str(out), "--backend", backend]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def content(folder: Path) -> dict[str, bytes]:
    """The bytes of each file in a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def shard_inodes(folder: Path) -> dict[str, int]:
    """The inode of each stored shard; a shard that is written again gets another one."""
    return {path.name: path.stat().st_ino for path in stored_shards(folder).values()}


def kill(root: Path, expected: dict[str, bytes]) -> str:
    rng, messages = random.Random(0), []
    for backend in ("local", "processes"):
        out, shards_after_kill = root / backend, list[int]()
        for _ in range(MOMENTS):
            process, before = start_driver(out, backend), shard_inodes(out)
            goal = len(before) + rng.randrange(4)
            while process.poll() is None and len(shard_inodes(out)) < goal:
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 0.5))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            after = shard_inodes(out)
            assert before.items() <= after.items(), "a shard was lost, or done twice"
            shards_after_kill.append(len(after))
            if len(after) == TARGETS // SHARD:  # the run had finished before the kill: start again
                assert content(out) == expected, backend
                shutil.rmtree(out)
        start_driver(out, backend).wait()
        assert content(out) == expected, backend
        messages.append(f"{backend}: shards after each kill {shards_after_kill}")
    return "; ".join(messages)


def disk(root: Path, expected: dict[str, bytes]) -> str:
    place = root / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(place)], check=True)
    try:
        stops, size = 0, 48
        while True:
            try:
                run(place / "run")
                break
            except StoreError as error:
                stops, size, message = stops + 1, size + 48, str(error)
                list(nseg.read(place / "run")) if (place / "run" / "manifest.json").exists() else []
                subprocess.run(["mount", "-o", f"remount,size={size}k", str(place)], check=True)
        assert stops, "the disk was too large"
        assert content(place / "run") == expected
    finally:
        subprocess.run(["umount", str(place)], check=True)
    return f"full {stops} times; the last error: {message}"


def damage(root: Path, expected: dict[str, bytes]) -> str:
    rng, out, damaged = random.Random(0), root / "run", 0
    run(out)
    for number in range(TARGETS // SHARD):
        path = stored_shards(out)[number]
        stored = bytearray(path.read_bytes())
        position = rng.randrange(len(stored))
        if number % 2:
            del stored[position:]
        else:
            stored[position] ^= 1 << rng.randrange(8)
        path.write_bytes(stored)
        damaged += 1
        if number % 3 == 2:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                run(out)
            assert sum("is damaged" in str(one.message) for one in caught) == 3
    assert content(out) == expected
    return f"{damaged} shards damaged, detected and explained again"


def two(root: Path, expected: dict[str, bytes]) -> str:
    out = root / "run"
    both = [start_driver(out, "local"), start_driver(out, "local")]
    done = [process.communicate()[0].split() for process in both]
    assert sorted(map(int, done[0] + done[1])) == list(range(TARGETS // SHARD)), done
    assert content(out) == expected
    return f"one driver explained {len(done[0])} shards, the other {len(done[1])}"


def disturb_ray(root: Path, expected: dict[str, bytes], disturb: Callable[[Any, list[Any]], None]) -> str:
    """A run on a Ray cluster of three nodes, disturbed when a quarter of the shards is stored."""
    os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    others = [cluster.add_node(**node) for _ in range(2)]
    out, disturbed = root / "run", list[int]()

    class DisturbedRay(Ray):
        def map(self, function: Any, items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
            for number, result in super().map(function, items):
                yield number, result
                if len(stored_shards(out)) == TARGETS // SHARD // 4 and not disturbed:
                    disturbed.append(number)
                    disturb(cluster, others)

    try:
        with DisturbedRay(cluster.address) as backend:
            run(out, backend)
    finally:
        cluster.shutdown()
    assert disturbed
    assert content(out) == expected
    return "the run continued by itself"


def kill_worker(cluster: Any, others: list[Any]) -> None:
    import psutil

    children = [(p, " ".join(p.cmdline())) for p in psutil.Process().children(recursive=True)]
    workers = [p for p, command in children if command.startswith("ray::")]
    busy = [p for p, command in children if command.startswith("ray::_run_task")]
    (busy or workers)[0].kill()


def kill_node(cluster: Any, others: list[Any]) -> None:
    cluster.remove_node(others[0], allow_graceful=False)


FAULTS: dict[str, Callable[[Path, dict[str, bytes]], str]] = {
    "kill": kill,
    "disk": disk,
    "damage": damage,
    "two": two,
    "worker": lambda root, expected: disturb_ray(root, expected, kill_worker),
    "node": lambda root, expected: disturb_ray(root, expected, kill_node),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", default=list(FAULTS), help=", ".join(FAULTS))
    parser.add_argument("--out", type=Path, help="CSV to write")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--backend", default="local", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run is not None:
        with PrintingLocal() if args.backend == "local" else Processes(2) as backend:
            run(args.run, backend)
        return
    with tempfile.TemporaryDirectory() as scratch:
        run(Path(scratch) / "undisturbed")
        expected = content(Path(scratch) / "undisturbed")
        rows = []
        for name in args.faults:
            start, root = time.monotonic(), Path(scratch) / name
            root.mkdir()
            message = FAULTS[name](root, expected).replace(f"{scratch}{os.sep}", "")  # results name no folder of a machine
            seconds = round(time.monotonic() - start)
            print(f"{name}: equal to the undisturbed run ({seconds} s). {message}", flush=True)
            rows.append({"fault": name, "result": f"equal; {message}", "seconds": seconds})
            write_table(args.out, rows)


if __name__ == "__main__":
    main()
