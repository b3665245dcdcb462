"""Studies: datasets x networks x methods x seeds, described in a short TOML file and stored as plain records.

Public names are imported on first use. ``plan``, which reads the TOML, imports without torch.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nseg.study.pages import write_pages
    from nseg.study.plan import Method, Study, Trial, find, names, read
    from nseg.study.runs import Run, run, start
    from nseg.study.write import write_report
else:
    from nseg.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "nseg.study.pages": ["write_pages"],
            "nseg.study.plan": ["Method", "Study", "Trial", "find", "names", "read"],
            "nseg.study.runs": ["Run", "run", "start"],
            "nseg.study.write": ["write_report"],
        },
    )

__all__ = ["Method", "Run", "Study", "Trial", "find", "names", "read", "run", "start", "write_pages", "write_report"]
