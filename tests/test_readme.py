"""The Python blocks of the README run unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_python_block_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some blocks write files
    namespace: dict[str, object] = {}
    exec(compile(BLOCKS[number], f"README block {number}", "exec"), namespace)  # trusted: our own text
    assert "many" in namespace
    assert len(namespace["many"]) == 34
