"""Studies: datasets x networks x methods x seeds, described in a short TOML file and run once.

Here: what a study is (``plan``, with the shipped ``studies/*.toml``), what a trial explains (``task``), how one trial runs
(``trial``), the folder that many processes can work on (``folder``), numbers from records (``summary``, with ``paper.csv``),
and what is written from them (``tables``, ``figures``, ``pages``, ``write``).
Names are imported on first use; ``plan`` imports no torch.
Import from here: ``find``, ``names``, ``read``, ``Study``, ``Method``, ``Trial``, ``start``, ``run_trials``,
``StudyFolder``, ``write_report``, ``write_pages``.
May import: every room except ``nseg.cli``.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nseg.study.folder import StudyFolder, run_trials, start
    from nseg.study.pages import write_pages
    from nseg.study.plan import Method, Study, Trial, find, names, read
    from nseg.study.write import write_report
else:
    from nseg.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "nseg.study.pages": ["write_pages"],
            "nseg.study.plan": ["Method", "Study", "Trial", "find", "names", "read"],
            "nseg.study.folder": ["StudyFolder", "run_trials", "start"],
            "nseg.study.write": ["write_report"],
        },
    )

__all__ = [
    "Method",
    "Study",
    "StudyFolder",
    "Trial",
    "find",
    "names",
    "read",
    "run_trials",
    "start",
    "write_pages",
    "write_report",
]
