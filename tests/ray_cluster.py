"""A real Ray cluster of several nodes on this machine, which only this machine can reach."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NODE = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20}
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",  # only this machine can reach the cluster
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # keeps Ray from replacing 127.0.0.1 by another address
}


@contextmanager
def local_cluster(nodes: int = 2) -> Iterator[Any]:
    """A cluster for a ``with`` block; starting it is tried three times, because it can time out on a busy machine."""
    os.environ.update(ENVIRONMENT)
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
