"""What a study leaves behind to read: tables, figures with their numbers, costs and a manifest."""

from __future__ import annotations

from pathlib import Path

from nseg import store
from nseg.study import figures, summary, tables
from nseg.study.runs import Run


def write_report(run: Run, name: str, folder: str | Path) -> list[str]:
    """Write a study's tables (Markdown, CSV, LaTeX), figure, costs and manifest; returns the names of the files."""
    root, lines, (study, _) = store.prepared(folder), summary.summary(run, name), run.study(name)
    shown, cost = tables.tables(lines), summary.cost(run, name)
    facts = summary.manifest(run, name)
    page = f"# {study.title}\n\nMade by `{facts['command']}`, then `nseg report`. {tables.NOTES}\n\n"
    page += tables.markdown([*(one for c in study.columns for one in tables.across(lines, c)), *shown])
    texts = {
        f"{name}.md": page,
        f"{name}.csv": tables.as_csv(lines),
        f"{name}.tex": tables.latex(shown),
        f"{name}-cost.csv": tables.rows_as_csv(cost),
    }
    drawn: list[str] = []
    if study.figure and lines:
        numbers, draw = figures.FIGURES[study.figure]
        rows = numbers(run, name)
        texts[f"{name}-figure.csv"] = tables.rows_as_csv(rows)
        drawn = list(figures.save(draw(rows), f"{name}-figure", root))
    for file, text in texts.items():
        store.replace_file(root / file, lambda path, text=text: path.write_text(text))  # type: ignore[misc]
    store.write_json(root / f"{name}-manifest.json", facts)
    return [*texts, *drawn, f"{name}-manifest.json"]
