"""Faults, for real: each must lose nothing, do nothing twice, and leave the folder of a run that nobody disturbed.

    python benchmarks/faults.py                 # all; needs Ray, and root for the small disk
    python benchmarks/faults.py kill disk       # some

- kill: the driver is killed by SIGKILL at 20 random moments, here and with worker processes, and started again
- disk: the folder is on a disk of 48 KiB, which is made larger after it was full
- damage: a byte is flipped in, or some are cut off, one shard after the other
- two: two drivers are started at once
- worker, node: a process, then a whole node, of a Ray cluster of three nodes is killed in the middle
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

import nseg
from nseg import NSEG, Explainer, StoreError, explain_many, store
from nseg.backends import Backend, Local, Processes, Ray
from nseg.datasets import load
from nseg.models import pretrained

TARGETS, SHARD, MOMENTS = 60, 5, 20


class Telling(Local):
    """The local back end, that prints the number of each shard when it is stored."""

    def map(self, function: Any, items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        for number, result in super().map(function, items):
            yield number, result
            print(items[number][0], flush=True)


def run(out: Path, backend: Backend | str = "local") -> None:
    """The run that is disturbed."""
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


def driver(out: Path, how: str) -> subprocess.Popen[str]:
    """The run in a process of its own."""
    words = [sys.executable, "-W", "ignore", __file__, "--run", str(out), "--how", how]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def identities(folder: Path) -> dict[str, int]:
    """Which file each shard is; one that is written again is another."""
    return {path.name: path.stat().st_ino for path in store.stored_shards(folder).values()}


def kill(root: Path, expected: dict[str, bytes]) -> str:
    rng, words = random.Random(0), []
    for how in ("local", "processes"):
        out, moments = root / how, list[int]()
        for _ in range(MOMENTS):
            process, before = driver(out, how), identities(out)
            goal = len(before) + rng.randrange(4)
            while process.poll() is None and len(identities(out)) < goal:
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 0.5))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            after = identities(out)
            assert before.items() <= after.items(), "a shard was lost, or done twice"
            moments.append(len(after))
            if len(after) == TARGETS // SHARD:  # it was too late: begin anew
                assert content(out) == expected, how
                shutil.rmtree(out)
        driver(out, how).wait()
        assert content(out) == expected, how
        words.append(f"{how}: shards after each kill {moments}")
    return "; ".join(words)


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
                stops, size, words = stops + 1, size + 48, str(error)
                list(nseg.read(place / "run")) if (place / "run" / "manifest.json").exists() else []
                subprocess.run(["mount", "-o", f"remount,size={size}k", str(place)], check=True)
        assert stops, "the disk was too large"
        assert content(place / "run") == expected
    finally:
        subprocess.run(["umount", str(place)], check=True)
    return f"full {stops} times; the last word: {words}"


def damage(root: Path, expected: dict[str, bytes]) -> str:
    rng, out, damaged = random.Random(0), root / "run", 0
    run(out)
    for number in range(TARGETS // SHARD):
        path = store.stored_shards(out)[number]
        whole = bytearray(path.read_bytes())
        place = rng.randrange(len(whole))
        if number % 2:
            del whole[place:]
        else:
            whole[place] ^= 1 << rng.randrange(8)
        path.write_bytes(whole)
        damaged += 1
        if number % 3 == 2:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                run(out)
            assert sum("is damaged" in str(one.message) for one in said) == 3
    assert content(out) == expected
    return f"{damaged} shards damaged, noticed and done again"


def two(root: Path, expected: dict[str, bytes]) -> str:
    out = root / "run"
    both = [driver(out, "local"), driver(out, "local")]
    done = [process.communicate()[0].split() for process in both]
    assert sorted(map(int, done[0] + done[1])) == list(range(TARGETS // SHARD)), done
    assert content(out) == expected
    return f"one did {len(done[0])} shards, the other {len(done[1])}"


def on_ray(root: Path, expected: dict[str, bytes], strike: Callable[[Any, list[Any]], None]) -> str:
    """A run on a cluster of three nodes that something happens to when a quarter is stored."""
    os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    others = [cluster.add_node(**node) for _ in range(2)]
    out, struck = root / "run", list[int]()

    class Struck(Ray):
        def map(self, function: Any, items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
            for number, result in super().map(function, items):
                yield number, result
                if len(store.stored_shards(out)) == TARGETS // SHARD // 4 and not struck:
                    struck.append(number)
                    strike(cluster, others)

    try:
        with Struck(cluster.address) as backend:
            run(out, backend)
    finally:
        cluster.shutdown()
    assert struck
    assert content(out) == expected
    return "the run went on by itself"


def kill_worker(cluster: Any, others: list[Any]) -> None:
    import psutil

    ours = [(p, " ".join(p.cmdline())) for p in psutil.Process().children(recursive=True)]
    workers = [p for p, words in ours if words.startswith("ray::")]
    busy = [p for p, words in ours if words.startswith("ray::_task")]
    (busy or workers)[0].kill()


def kill_node(cluster: Any, others: list[Any]) -> None:
    cluster.remove_node(others[0], allow_graceful=False)


FAULTS: dict[str, Callable[[Path, dict[str, bytes]], str]] = {
    "kill": kill,
    "disk": disk,
    "damage": damage,
    "two": two,
    "worker": lambda root, expected: on_ray(root, expected, kill_worker),
    "node": lambda root, expected: on_ray(root, expected, kill_node),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", default=list(FAULTS), help=", ".join(FAULTS))
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--how", default="local", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run is not None:
        with Telling() if args.how == "local" else Processes(2) as backend:
            run(args.run, backend)
        return
    with tempfile.TemporaryDirectory() as scratch:
        run(Path(scratch) / "undisturbed")
        expected = content(Path(scratch) / "undisturbed")
        for name in args.faults:
            began, root = time.monotonic(), Path(scratch) / name
            root.mkdir()
            words = FAULTS[name](root, expected)
            print(f"{name}: equal to the undisturbed run ({time.monotonic() - began:.0f} s). {words}", flush=True)


if __name__ == "__main__":
    main()
