"""Install the lowest versions that pyproject.toml allows, and run a smoke test with them.

    python scripts/lowest_versions.py                          # every lower bound
    python scripts/lowest_versions.py --keep torch==2.13.0     # another torch, where only that one has a build

The bounds are read from pyproject.toml and resolved by uv to the lowest release that exists. They are installed into a new
virtual environment in a temporary folder, which is deleted at the end. Packages that only these packages need (click, jinja)
are the newest ones, as a user gets them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from build_wheel import build_wheel

ROOT = Path(__file__).resolve().parent.parent


def lowest_pins(python: Path, keep: list[str]) -> list[str]:
    """The lowest allowed version of each dependency, as ``name==version``; those in ``keep`` as given there."""
    command = [
        str(python),
        "-m",
        "uv",
        "pip",
        "compile",
        str(ROOT / "pyproject.toml"),
        "--extra",
        "plot",
        "--no-deps",
        "--quiet",
    ]
    command += ["--resolution", "lowest-direct", "--no-header", "--no-annotate", "--python", str(python)]
    certificates = os.environ.get("PIP_CERT")  # uv does not read pip's settings
    environment = {**os.environ, **({"SSL_CERT_FILE": certificates} if certificates else {})}
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    kept = {pin.partition("==")[0] for pin in keep}
    lowest = [line.strip() for line in output.splitlines() if "==" in line]
    return [pin for pin in lowest if pin.partition("==")[0] not in kept] + keep


def install(folder: Path, keep: list[str]) -> Path:
    """A virtual environment with the lowest versions and this package; returns its Python."""
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "uv", "hatchling"], check=True)
    pins = lowest_pins(python, keep)
    print("\n".join(pins), flush=True)
    subprocess.run([*pip, *pins], check=True)
    subprocess.run([*pip, "--no-deps", str(build_wheel(folder, python))], check=True)
    subprocess.run([python, "-m", "pip", "check", "--disable-pip-version-check"], check=True)
    return python


def main() -> int:
    """Install and test; the exit code is that of the smoke test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="append", default=[], metavar="NAME==VERSION", help="use this version instead")
    parser.add_argument("--into", type=Path, help="folder of the virtual environment, which is then not deleted")
    options = parser.parse_args()
    if wrong := [pin for pin in options.keep if "==" not in pin]:
        parser.error(f"--keep must be NAME==VERSION (got {wrong[0]}), such as torch==2.13.0.")
    folder = options.into or Path(tempfile.mkdtemp(prefix="nseg-lowest-"))
    try:
        python = install(folder, options.keep)
        # isolated from PYTHONPATH and run elsewhere, so that the installed package is tested, not this folder
        return subprocess.run([python, "-I", ROOT / "scripts" / "smoke.py"], cwd=folder, check=False).returncode
    finally:
        if options.into is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
