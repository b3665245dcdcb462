"""The kernel: it runs recorded passes (``passes.c``), gives their gradients (``slopes.c``) and chooses flips (``flips.c``).

It is compiled when it is needed first, and kept in the cache folder.
Without a C compiler, or with the environment variable NSEG_KERNEL=0, torch runs the passes: the same answers, more slowly.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_double, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch

from nseg.storage.files import cache_folder

SOURCES, HEADERS = ("passes.c", "slopes.c", "flips.c"), ("pass.h", "known.h")
"""What is compiled, and what is included there."""

TILE = 8
"""Widths of values are multiples of this."""

TYPES = {torch.float32: "float", torch.float64: "double"}
"""Number types that the kernel is built for, as C calls them."""

INSTRUCTIONS = {
    "AVX512": ["-DBYTES=64", "-mavx512f", "-mavx512cd", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma"],
    "AVX2": ["-DBYTES=32", "-mavx2", "-mfma"],
}
"""Arguments of the compiler by what torch calls the processor's instructions; others have vectors of 16 bytes."""

FLAGS = ["-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-shared", "-fPIC"]

SAME_BYTES = 4 * 17
"""Size of ``Same`` of passes.c."""

WAYS = 4
"""Entries of a set in ``known.h``."""

SWITCH = "NSEG_KERNEL"
"""Environment variable that switches the kernel off if it is 0."""


def _fields(pointers: str, numbers: str = "", reals: str = "", last: str = "") -> list[tuple[str, Any]]:
    kinds = (pointers, c_void_p), (numbers, c_int64), (reals, c_double), (last, c_void_p)
    return [(name, kind) for names, kind in kinds for name in names.split()]


class Degrees(Structure):
    """``Degrees`` of pass.h."""

    _fields_ = _fields("node other weight loops outside loose")


class Messages(Structure):
    """``Messages`` of pass.h."""

    _fields_ = _fields("ptr sender edge factor", "degrees mean")


class Operation(Structure):
    """``Operation`` of pass.h."""

    _fields_ = _fields(
        "",
        "code target source other width fan_in stride level messages chained compared packed by_message activation",
        "slope least",
        "shared row bias",
    )


class Pass(Structure):
    """``Pass`` of pass.h."""

    _fields_ = [
        *_fields("node_ptr edge_ptr place rows row_ptr row", "instances"),
        ("degrees", POINTER(Degrees)),
        ("messages", POINTER(Messages)),
        ("operations", POINTER(Operation)),
        *_fields("", "num_degrees num_messages num_operations outputs factors"),
    ]


class Sent(Structure):
    """``Sent`` of passes.c."""

    _fields_ = _fields("weight lanes sender place ptr")


class Known(Structure):
    """``Known`` of known.h."""

    _fields_ = [*_fields("", "sets words numbers turn"), *_fields("key subset answer count edge node")]


class Question(Structure):
    """``Question`` of passes.c."""

    _fields_ = [
        *_fields("instance", "number"),
        *_fields("kept", "subsets elements"),
        *_fields("keeps outside", "worlds"),
        *_fields("edge_element edge_first edge_range node_element node_first node_range"),
        *_fields("output row_first", "output_rows"),
        *_fields("values same same_degree bits on degree"),
        ("sent", POINTER(Sent)),
        ("known", POINTER(Known)),
    ]


class Weighed(Structure):
    """``Weighed`` of slopes.c."""

    _fields_ = [
        *_fields("instance", "number worlds"),
        *_fields("edge outside node edge_first node_first row_first", "edges nodes rows factors"),
        *_fields("target output", "back"),
        *_fields("edge_slope node_slope"),
    ]


def read_classes(scores: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Probability of each row's class, whether the row has it, and its log-odds, [K, R] each; None if torch must do it.

    Args:
        scores: raw scores of the classes, [K, R, C].
        target: class of each row, [R].
    """
    plain = scores.device.type == "cpu" and scores.dim() == 3 and scores.size(2) > 1 and not torch.is_grad_enabled()
    fits = target.dtype == torch.long and target.shape == scores.shape[1:2] and target.device == scores.device
    kernel = load_kernel(scores.dtype) if plain and fits else None
    if kernel is None:
        return None
    scores, target = scores.contiguous(), target.contiguous()
    p, odds, holds = (scores.new_empty(scores.shape[:2]) for _ in range(3))
    given = (one.data_ptr() for one in (target, p, odds, holds))
    return (p, holds, odds) if kernel.read_classes(scores.data_ptr(), *scores.shape, *given) else None


@cache
def load_kernel(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The kernel for a number type and this processor, compiled if this has not been done before; None if it cannot be."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if os.environ.get(SWITCH) == "0" or compiler is None or dtype not in TYPES:
        return None
    folder = Path(__file__).parent
    instructions = INSTRUCTIONS.get(torch.backends.cpu.get_cpu_capability(), ["-DBYTES=16"])
    flags = [*FLAGS, f"-DREAL={TYPES[dtype]}", *instructions]
    texts = [(folder / name).read_text() for name in (*SOURCES, *HEADERS)]
    key = hashlib.sha256("\n".join([*texts, *flags, platform.platform()]).encode()).hexdigest()[:20]
    path = cache_folder() / "kernel" / f"{key}.so"
    try:
        if not path.exists():
            _compile([compiler, *flags, *(str(folder / name) for name in SOURCES), "-lm"], path)
        kernel = ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError):
        return None
    kernel.run_passes.argtypes = [POINTER(Pass), POINTER(Question)]
    kernel.run_weighed.argtypes = [POINTER(Pass), POINTER(Weighed)]
    kernel.count_kept.argtypes = [c_void_p, c_int64, c_int64, c_void_p, c_int64, c_void_p]
    kernel.read_classes.argtypes = [c_void_p, *[c_int64] * 3, *[c_void_p] * 4]
    kernel.choose_flips.argtypes = [*[c_void_p] * 5, *[c_int64] * 3, c_void_p]
    for function in (kernel.run_passes, kernel.run_weighed, kernel.lanes, kernel.read_classes, kernel.choose_flips):
        function.restype = c_int64
    return kernel


def _compile(command: Sequence[str], path: Path) -> None:
    """Compile to a file that nobody sees before it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        built = Path(folder) / path.name
        subprocess.run([*command, "-o", str(built)], check=True, capture_output=True, timeout=120)
        built.replace(path)
