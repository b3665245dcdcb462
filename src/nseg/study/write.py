"""The report of a study: tables, figures with their numbers, costs and a manifest."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from nseg.storage.files import prepare_folder, replace_file, write_json
from nseg.study import figures, summary, tables
from nseg.study.folder import StudyFolder
from nseg.study.tables import with_commit


def write_report(folder: StudyFolder, name: str, out: str | Path) -> list[str]:
    """Write the tables, figure, costs and manifest of a study, and return the file names.

    Args:
        folder: the run folder of the study.
        name: name of the study.
        out: folder to write into.
    """
    root, scores, (study, _) = prepare_folder(out), summary.summary(folder, name), folder.study(name)
    shown, cost = tables.tables(scores), summary.cost(folder, name)
    facts = summary.manifest(folder, name)
    commit = facts.get("commit") or ""
    made_at = f" at commit {commit}" if commit else ""
    page = f"# {study.title}\n\nMade by `{facts['command']}`{made_at}, then `nseg report`. {tables.NOTES}\n\n"
    forms = summary.form_rows(folder, name) if "forms" in study.measures else []
    page += tables.forms_section(forms) if forms else ""
    page += tables.markdown([*(one for c in study.columns for one in tables.tables_of_column(scores, c)), *shown])
    texts = {
        f"{name}.md": page,
        f"{name}.csv": tables.as_csv(scores, commit),
        f"{name}.tex": (f"% commit {commit}\n" if commit else "") + tables.latex(shown),
        f"{name}-cost.csv": tables.rows_as_csv(with_commit(cost, commit)),
    }
    if forms:
        texts[f"{name}-forms.csv"] = tables.rows_as_csv(with_commit(forms, commit))
    drawn: list[str] = []
    if study.figure and scores:
        make_rows, draw = figures.FIGURES[study.figure]
        rows = make_rows(folder, name)
        texts[f"{name}-figure.csv"] = tables.rows_as_csv(with_commit(rows, commit))
        drawn = list(figures.save_figure(draw(rows), f"{name}-figure", root, commit))
    for file, text in texts.items():
        replace_file(root / file, partial(Path.write_text, data=text))
    write_json(root / f"{name}-manifest.json", facts)
    return [*texts, *drawn, f"{name}-manifest.json"]
