"""What the verbs about dead letters share: their options, and which topic the letters of a career are on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from leaderq.cli.career_lookup import named_career
from leaderq.cli.connecting import open_session
from leaderq.cli.options import CONNECTION
from leaderq.config import Section, Settings
from leaderq.errors import NoNode

F = TypeVar("F", bound=Callable[..., Any])

SECTIONS = (Section.CAREER, Section.KAFKA, *CONNECTION)

topic_option: Callable[[F], F] = click.option(
    "--topic",
    metavar="TOPIC",
    envvar="LEADERQ_DEAD_TOPIC",
    show_envvar=True,
    help="where the letters are, if not where the career's leader said last, nor on CAREER-dead",
)
error_option: Callable[[F], F] = click.option(
    "--error",
    metavar="TEXT",
    envvar="LEADERQ_DEAD_ERROR",
    show_envvar=True,
    help="only letters whose error's class or text contains TEXT, in capitals or not",
)
origin_option: Callable[[F], F] = click.option(
    "--origin",
    metavar="TOPIC",
    envvar="LEADERQ_DEAD_ORIGIN",
    show_envvar=True,
    help="only letters about records of TOPIC",
)


def as_place(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, int]:
    """``PARTITION:OFFSET`` as two numbers: a callback of an argument."""
    partition, _, offset = value.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise click.BadParameter(f"{value!r} is no PARTITION:OFFSET, as 0:41; leaderq dead ls lists both", ctx, param)
    return int(partition), int(offset)


def as_places(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> frozenset[tuple[int, int]]:
    """The same of an option given several times."""
    return frozenset(as_place(ctx, param, value) for value in values)


def letters_topic(settings: Settings, topic: str | None) -> str:
    """Where the letters of the career are: as told, else as its leader published last, else its name with ``-dead``.

    Raises :class:`~leaderq.errors.ConfigurationError` where no career is named, and what reading from ZooKeeper raises.
    """
    career = named_career(settings)
    if topic is not None:
        return topic
    from leaderq.election.layout import Layout
    from leaderq.kafka.consuming.report import decode
    from leaderq.kafka.handling.on_error import dead_letter_topic

    path = Layout(settings.root, career).progress
    with open_session(settings) as session:
        try:
            published = decode(session.get(path)[0], path=path).dead_letters
        except NoNode:
            published = None
    return published or dead_letter_topic(career)
