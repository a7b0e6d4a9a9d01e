"""``.. verbs::``: every verb in the order of ``--help``, with its examples as code to be copied."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from leaderq.cli.options import Verb
from leaderq.cli.verbs import Verbs, leaderq

REMARK = re.compile(r" {3,}(?=[a-z])")  # what some examples say of themselves


class VerbsPage(SphinxDirective):
    """A section for each verb; of settings that many verbs take only the names."""

    def run(self) -> list[nodes.Node]:
        context = click.Context(leaderq, info_name="leaderq")
        return [*_told(inspect.cleandoc(leaderq.help or "")), *_sections(leaderq, context)]


def _sections(group: Verbs, context: click.Context) -> Iterator[nodes.Node]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        own = click.Context(command, info_name=name, parent=context)
        section = nodes.section(ids=[own.command_path.replace(" ", "-")])
        section += nodes.title("", own.command_path)
        section += _told(inspect.cleandoc(command.help or ""))
        if isinstance(command, Verbs):
            section += list(_sections(command, own))
        else:
            section += list(_taken(command, own))
        yield section


def _told(help: str) -> list[nodes.Node]:
    """The paragraphs of a help text; what stands behind ``\\b`` is code."""
    found: list[nodes.Node] = []
    for paragraph in help.split("\n\n"):
        head, *lines = paragraph.removeprefix("\b\n").splitlines()
        if not paragraph.startswith("\b"):
            found.append(nodes.paragraph("", " ".join([head, *lines])))
        elif head.startswith("Example"):
            found.append(_code("\n".join(f"$ {_example(line)}" for line in lines), "console"))
        else:
            is_headed = head.endswith(":")
            if is_headed:
                found.append(nodes.paragraph("", head))
            code = "\n".join(lines if is_headed else [head, *lines])
            found.append(_code(inspect.cleandoc(code), "text"))
    return found


def _example(line: str) -> str:
    return REMARK.sub("  # ", line.strip(), count=1)


def _code(text: str, language: str) -> nodes.literal_block:
    return nodes.literal_block(text, text, language=language)


def _taken(command: click.Command, context: click.Context) -> Iterator[nodes.Node]:
    usage = command.get_usage(context).removeprefix("Usage: ")
    yield _code(" ".join(usage.split()), "text")
    assert isinstance(command, Verb)
    shown, folded = command.parted(context)
    for heading, records in shown.items():
        if records:
            entries = [_entry(flags, text) for flags, text in records]
            yield nodes.paragraph("", "", nodes.strong("", heading))
            yield nodes.definition_list("", *entries)
    if folded:
        settings = "  ".join(flag for flags in folded.values() for flag in flags)
        sentence = nodes.paragraph("", "And, explained in leaderq config show --help: ")
        sentence += nodes.literal("", settings)
        yield sentence


def _entry(flags: str, text: str) -> nodes.definition_list_item:
    term = nodes.term("", "", nodes.literal("", flags))
    return nodes.definition_list_item(
        "", term, nodes.definition("", nodes.paragraph("", " ".join(text.split())))
    )


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("verbs", VerbsPage)
    return {"parallel_read_safe": True}
