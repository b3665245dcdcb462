"""Options that several commands share, and checks of their values; imports without torch."""

from __future__ import annotations

from typing import Annotated

import typer

from nseg.backends.catalogue import NAMES as BACKENDS
from nseg.backends.catalogue import check_name as check_backend
from nseg.datasets.names import ALL, HETERO_NAMES
from nseg.errors import InputError
from nseg.models.catalogue import ARCHITECTURES, HETERO_ARCHITECTURES

MASKS = ("e", "f", "ef", "x", "ex")

_ARCHITECTURES = f"{' or '.join(ARCHITECTURES)}; of {', '.join(HETERO_NAMES)} {' or '.join(HETERO_ARCHITECTURES)}"
Architecture = Annotated[
    str | None, typer.Option(help=f"Architecture of the network: {_ARCHITECTURES}. Default: the first.")
]
DatasetName = Annotated[str, typer.Argument(help=f"One of {', '.join(ALL)}.")]
BackendName = Annotated[
    str | None,
    typer.Option(
        help=f"Where to run: {', '.join(BACKENDS)}. Default: ray with --address, processes with --workers, else local."
    ),
]
Workers = Annotated[int | None, typer.Option(min=1, help="Number of workers of the backend. Default: one per core.")]
Address = Annotated[str | None, typer.Option(help="Address of a Ray cluster, such as head:6379. Implies --backend ray.")]


def set_threads(context: typer.Context) -> None:
    """Apply ``nseg --threads`` to torch; for commands that compute."""
    import torch

    torch.set_num_threads(context.find_root().params["threads"])


def choose_backend(backend: str | None, workers: int | None, address: str | None) -> str:
    """Return the name of the backend that the options ask for."""
    usual = "local" if workers is None or workers == 1 else "processes"
    name = backend or ("ray" if address else usual)
    check_backend(name)
    return name


def parse_numbers(text: str, option: str = "index") -> list[int]:
    """Return the numbers in ``7``, ``3,5,9`` or ``300:700``.

    >>> parse_numbers("3,5:8")
    [3, 5, 6, 7]
    """
    found: list[int] = []
    try:
        for part in text.split(","):
            first, colon, last = part.partition(":")
            found += range(int(first), int(last)) if colon else [int(first)]
    except ValueError:
        raise InputError(f"--{option} must look like 7, 3,5,9 or 300:700 (got {text!r}).") from None
    if not found:
        raise InputError(f"--{option} must name at least one number (got {text!r}). 300:700 is 300 to 699.")
    return found
