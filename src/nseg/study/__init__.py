"""Studies: datasets x networks x methods x seeds, described in a short TOML file and run once.

Here: what a study is (``plan``, with the shipped ``studies/*.toml``), what a trial explains (``task``), how one trial runs
(``trial``), the folder that many processes can work on (``runs``), numbers from records (``summary``, with ``paper.csv``),
and what is written from them (``tables``, ``figures``, ``pages``, ``write``).
Import from here: ``find``, ``names``, ``read``, ``Study``, ``Method``, ``Trial``, ``start``, ``run_trials``,
``StudyFolder``, ``write_report``, ``write_pages``.
May import: every room except ``nseg.cli``.
"""

from nseg.study.pages import write_pages
from nseg.study.plan import Method, Study, Trial, find, names, read
from nseg.study.runs import Run, run, start
from nseg.study.write import write_report

__all__ = ["Method", "Run", "Study", "Trial", "find", "names", "read", "run", "start", "write_pages", "write_report"]
