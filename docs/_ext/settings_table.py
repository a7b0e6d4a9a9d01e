"""``.. settings-table::``: every setting, from the table that the program itself reads."""

from __future__ import annotations

from itertools import groupby

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from leaderq.config.settings import TABLE, Row


class SettingsTable(SphinxDirective):
    """One section for each group of settings, one entry for each setting."""

    def run(self) -> list[nodes.Node]:
        lines: list[str] = []
        for section, rows in groupby(TABLE, key=lambda row: row.section):
            lines += [section.value, "-" * len(section.value), ""]
            for row in rows:
                lines += _entry(row)
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def _entry(row: Row) -> list[str]:
    flag = f"``{row.flag}``" + (f" (``{row.key}``), the file that holds it" if row.secret else "")
    default = "not set" if row.default is None else f"``{row.default}``"
    return [
        f"``{row.name}``",
        f"    {row.help[0].upper()}{row.help[1:]}.",
        "",
        f"    Default: {default}. Variable: ``{row.variable}``. Option: {flag}.",
        "",
    ]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("settings-table", SettingsTable)
    return {"parallel_read_safe": True}
