"""Studies: datasets x networks x methods x seeds, described in a short TOML, run once, kept as plain records."""

from nseg.study.pages import write_pages
from nseg.study.plan import Method, Study, Trial, find, names, read
from nseg.study.runs import Run, run, start
from nseg.study.write import write_report

__all__ = ["Method", "Run", "Study", "Trial", "find", "names", "read", "run", "start", "write_pages", "write_report"]
