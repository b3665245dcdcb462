"""A real Ray cluster of several nodes on this machine, reachable from this machine only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NODE = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20}
QUIET = {
    "RAY_AUTH_MODE": "disabled",  # nobody but this machine can reach it
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's name for: 127.0.0.1 is to stay 127.0.0.1
}


@contextmanager
def local_cluster(nodes: int = 2) -> Iterator[Any]:
    """Started on entry, stopped on exit; a start that takes too long on a busy machine is tried again."""
    os.environ.update(QUIET)
    from ray.cluster_utils import Cluster

    cluster = None
    for attempt in range(3):
        try:
            cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
            for _ in range(nodes - 1):
                cluster.add_node(**NODE)
            break
        except Exception:
            if cluster is not None:
                cluster.shutdown()
            if attempt == 2:
                raise
    try:
        yield cluster
    finally:
        cluster.shutdown()
