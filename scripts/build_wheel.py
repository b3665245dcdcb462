"""Build a wheel, install it into an empty environment, and run the demo there, outside the repository.

    python scripts/build_wheel.py                  # dependencies are those of this environment, which takes seconds
    python scripts/build_wheel.py --pinned         # installs the versions of constraints.txt, which takes minutes

The wheel stays in ``dist``. ``scripts/lowest_versions.py`` does the same with the lowest versions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
QUIET = ["--quiet", "--disable-pip-version-check"]


def build_wheel(folder: Path, python: str | Path = sys.executable) -> Path:
    """The wheel of this repository, built into a folder by an environment that has hatchling."""
    command = [str(python), "-m", "pip", "wheel", *QUIET, "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("nseg-*.whl")
    return wheel


def make_environment(folder: Path, wheel: Path, pinned: bool = False) -> Path:
    """An empty environment with the wheel; returns its Python.

    Args:
        folder: where it is made.
        wheel: what is installed.
        pinned: install the dependencies too, as pinned; else those of this environment are used where they are.
    """
    venv.create(folder, with_pip=pinned, clear=True)
    python = folder / "bin" / "python"
    if pinned:
        pip = [str(python), "-m", "pip", "install", *QUIET, "-c", str(ROOT / "constraints.txt")]
        subprocess.run([*pip, str(wheel)], check=True)
        return python
    here = [sys.executable, "-m", "pip", "--python", str(python), "install", *QUIET, "--no-deps", str(wheel)]
    subprocess.run(here, check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def run_demo(python: Path, folder: Path) -> str:
    """What ``nseg demo`` prints in a folder outside the repository; its page is ``nseg-demo.html`` there."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    code = "import nseg, sys; sys.exit(not nseg.__file__.startswith(sys.prefix))"
    subprocess.run([str(python), "-c", code], cwd=folder, env=environment, check=True)
    command = [str(python.with_name("nseg")), "demo", "--instances", "2"]
    done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return done.stdout


def main() -> None:
    """Build, install, run, and print what the demo printed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pinned", action="store_true", help="install all dependencies, as pinned")
    options = parser.parse_args()
    target = ROOT / "dist"
    target.mkdir(exist_ok=True)
    for old in target.glob("nseg-*.whl"):
        old.unlink()
    wheel = build_wheel(target)
    with tempfile.TemporaryDirectory(prefix="nseg-wheel-") as place:
        python = make_environment(Path(place) / "environment", wheel, options.pinned)
        print(run_demo(python, Path(place)))
    print(f"Built {wheel.relative_to(ROOT)}; the demo runs from it in an empty environment.")


if __name__ == "__main__":
    main()
