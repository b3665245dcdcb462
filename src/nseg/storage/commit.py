"""The commit of this project's code, which results carry."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

CODE = (":/src", ":/benchmarks/*.py")


@cache
def code_commit() -> str | None:
    """The last commit that changed the code, with a plus if code differs from it; None outside the project's repository.

    Results that are committed on the way change nothing, so that a long run of many parts has one commit.
    """
    here = Path(__file__).parent

    def git(*words: str) -> str:
        try:
            done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=False)
        except OSError:  # git is not installed
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    if not git("ls-files", Path(__file__).name):  # the package lies in somebody else's repository, or in none
        return None
    changed = git("status", "--porcelain", "--untracked-files=no", "--", *CODE)
    return git("log", "-1", "--format=%h", "--", *CODE) + ("+" if changed else "")
