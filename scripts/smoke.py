"""A smoke test of the installed package: explain, certify, report, store, draw, and the command line.

    python scripts/smoke.py

Uses nothing but the installed package and what it depends on; no files of this repository and no network.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import nseg
from nseg.baselines.catalogue import make
from nseg.runs.parquet import decode, encode

NSEG_COMMAND = Path(sys.executable).with_name("nseg")
PACKAGES = [
    "torch",
    "torch-geometric",
    "numpy",
    "scipy",
    "networkx",
    "pyarrow",
    "safetensors",
    "cloudpickle",
    "rich",
    "typer",
]
PACKAGES += ["click", "matplotlib", "rdkit"]


def tiny_graph() -> Data:
    """Twelve nodes in a ring, with chords."""
    ring = torch.arange(12)
    edges = torch.stack([torch.cat([ring, ring]), torch.cat([(ring + 1) % 12, (ring + 5) % 12])])
    x = torch.rand(12, 4, generator=torch.Generator().manual_seed(0))
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1))


def tiny_model() -> GCN:
    """A network of two layers with fixed weights."""
    torch.manual_seed(0)
    return GCN(4, 8, num_layers=2, out_channels=2).eval()


def explain_with(name: str) -> tuple[nseg.Explainer, list[Any]]:
    """An explainer with a method of the catalogue, and its explanations of three nodes."""
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    made = nseg.Explainer(tiny_model(), make(name), explanation_type="model", model_config=config, edge_mask_type="object")
    found = list(nseg.explain_many(made, tiny_graph(), [0, 3, 7]))
    assert len(found) == 3
    assert all(bool(torch.isfinite(one.edge_mask).all()) for one in found)
    return made, found


def check_command_line() -> None:
    """The commands that need no file: help, lists, and a small demonstration."""
    for arguments in (["--help"], ["explain", "--help"], ["list"]):
        done = subprocess.run([NSEG_COMMAND, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"nseg {' '.join(arguments)}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        assert done.stdout


def check_backends(folder: Path) -> None:
    """Two worker processes, a stored run, and the same run read back."""
    made, _ = explain_with("saliency")
    stored = nseg.explain_many(made, tiny_graph(), [0, 3, 7], out=folder / "run", backend="processes", workers=2)
    again = nseg.read(folder / "run")
    assert len(stored) == len(again) == 3


def check_methods(folder: Path) -> None:
    """NSEG and two baselines: explanations, fidelity, certificates, page, picture and Parquet."""
    found = {}
    for name in ("nseg", "gnnexplainer", "saliency"):
        made, found[name] = explain_with(name)
        again = decode(encode(found[name]))
        assert all(torch.equal(a.edge_mask, b.edge_mask) for a, b in zip(found[name], again, strict=True))
        certificates = nseg.certify(made, tiny_graph(), found[name])
        assert all(0 <= one.pns <= 1 for one in certificates)
        nseg.metrics.Evaluator(made, tiny_graph(), found[name]).fidelity()
    nseg.report(found["nseg"], folder / "why.html", data=tiny_graph(), explainer=made)
    assert (folder / "why.html").stat().st_size > 10_000
    nseg.plot.explanation(found["nseg"][0]).savefig(folder / "why.png")


def main() -> None:
    """Run everything, after a line that says with what."""
    print(f"Python {platform.python_version()},", ", ".join(f"{name} {version(name)}" for name in PACKAGES), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        check_methods(Path(folder))
        check_backends(Path(folder))
    check_command_line()
    data = nseg.datasets.load("tree-cycles")
    net = nseg.models.pretrained("tree-cycles", "gcn")  # safetensors
    assert net(data.graphs[0].x, data.graphs[0].edge_index).size(1) == data.num_classes
    print("All of it works.")


if __name__ == "__main__":
    main()
