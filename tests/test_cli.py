"""The command line, run as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys

from typer.testing import CliRunner

from nseg import __version__
from nseg.cli import READING, app


def test_demo_prints_a_readable_table() -> None:
    result = CliRunner().invoke(app, ["demo", "--members", "3"])
    assert result.exit_code == 0, result.output
    for column in ("member", "class", "p factual", "p complement", "PNS", "PN", "PS", "edges kept"):
        assert column in result.output
    rows = re.findall(r"│ +(\d+) +│ +\d+ +│ +([\d.]+) +│ +([\d.]+) +│ +([\d.]+) +│", result.output)
    assert [row[0] for row in rows] == ["0", "1", "2"]
    for _, factual, complement, pns in rows:
        assert abs(max(0, float(factual) - float(complement)) - float(pns)) < 0.002
    assert READING[:60] in " ".join(result.output.split())


def test_it_runs_from_a_shell_and_says_what_is_wrong() -> None:
    run = [sys.executable, "-c", "from nseg.cli import run; run()"]
    version = subprocess.run([*run, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.strip() == f"nseg {__version__}"
    wrong = subprocess.run([*run, "demo", "--members", "99"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "--members" in re.sub(r"\x1b\[[0-9;]*m", "", wrong.stderr)
    presets = subprocess.run([*run, "list"], capture_output=True, text=True, check=True)
    assert "tree-grid" in presets.stdout
