"""From ``package.module:Class``, or a career's name, to a class that can lead, or one sentence:
what is wrong with it, where, and what to do.

Importing a user's module runs the user's code, which may raise anything. That is reported as bad
input, with the user's exception as the cause.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from leaderq.base.arguments import require
from leaderq.career import ILeaderCareer, career_name, career_problems
from leaderq.cli.connecting import open_session
from leaderq.cli.options import Given, meant
from leaderq.config import current_folder
from leaderq.errors import ConfigurationError, told

if TYPE_CHECKING:
    from leaderq.config import Configuration

_EXAMPLE = "write package.module:Class, like billing:AdBilling"


class _Wrong(Exception):
    """The rest of a sentence that begins with the target, and says what is wrong with it."""


@dataclass(frozen=True)
class ChosenCareer:
    """The class of a career, its name, and the configuration with which it would be run; ``target``
    names the class.
    """

    target: str
    kind: type[ILeaderCareer]
    name: str
    configuration: Configuration


def choose_career(given: Given, chosen: str) -> ChosenCareer:
    """The career that is ``chosen``, by its class (``package.module:Class``) or its name. The class
    of a name is that of the configuration file, else that which its candidates run.

    Raises :class:`~leaderq.errors.ConfigurationError`.
    """
    if ":" in chosen:
        kind = find_career(chosen, current_folder())
        configuration = given.load(career=career_name(kind))
        name = configuration.settings.career or career_name(kind)
        return ChosenCareer(chosen, kind, name, configuration)
    configuration = given.load(career=chosen)
    target = _class_of(chosen, configuration)
    kind = find_career(target, current_folder())
    return ChosenCareer(target, kind, configuration.settings.career or chosen, configuration)


def find_career(target: str, folder: Path) -> type[ILeaderCareer]:
    """Return the career class that ``target`` names; no instance is made. Modules are also looked
    for in ``folder``.

    :raises ConfigurationError: there is no such class, or it cannot be run as a career.
    """
    try:
        found = _named(target, folder)
    except _Wrong as wrong:
        raise ConfigurationError(f"{target!r}{wrong}") from wrong.__cause__
    if not isinstance(found, type):
        what = "an instance of" if isinstance(found, ILeaderCareer) else "a"
        kind = f"{what} {type(found).__name__}"
        remedy = "name a subclass of leaderq.LeaderCareer"
        raise ConfigurationError(f"{target!r} is {kind}, not a class; {remedy}")
    require(*(f"{target!r} ({_definition(found)}){each}" for each in _problems(found)))
    return found


def make_career(career: type[ILeaderCareer], target: str) -> ILeaderCareer:
    """Return an instance of ``career``.

    :raises ConfigurationError: its constructor raised an error.
    """
    try:
        return career()
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        raise ConfigurationError(
            f"{target!r} could not be made: its constructor raised {_described(exc)}; "
            "correct it, or move that work to prepare()"
        ) from exc


def _class_of(name: str, configuration: Configuration) -> str:
    """The class of the career ``name``: as the file says, else as its candidates do."""
    if target := configuration.careers.get(name):
        return target
    from leaderq.election import Observer

    settings = configuration.settings
    with open_session(settings) as session:
        view = Observer(session, name, root=settings.root).view()
        stood = Observer.careers(session, root=settings.root)
    told = [one.career_class for one in view.members if one.career_class]
    told += [one.career_class for one in view.history if one.career_class]
    if not told:
        what = f"the class of career {name!r} is not known"
        remedy = f"write class in [careers.{name}] of leaderq.toml, or give MODULE:CLASS"
        remedy = meant(name, [*configuration.careers, *stood], remedy)
        raise ConfigurationError(f"{what}; {remedy}")
    return told[0]


def _named(target: str, folder: Path) -> Any:
    module_name, colon, class_name = target.partition(":")
    if not (colon and module_name and class_name):
        raise _Wrong(f" names no class; {_EXAMPLE}")
    if "/" in module_name or module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise _Wrong(f" begins with a file, not a module; write {dotted}:{class_name}")
    if not all(part.isidentifier() for part in [*module_name.split("."), *class_name.split(".")]):
        raise _Wrong(f" is not made of Python names; {_EXAMPLE}")
    module = _imported(module_name, folder)
    try:
        return attrgetter(class_name)(module)
    except AttributeError:
        own = {key: each for key, each in vars(module).items() if isinstance(each, type)}
        careers = [
            key
            for key, each in own.items()
            if issubclass(each, ILeaderCareer) and each.__module__ == module.__name__
        ]
        others = f"its careers: {', '.join(careers) or 'none'}"
        remedy = meant(class_name, careers or vars(module), others)
        has = f"module {module.__name__!r} ({module.__file__}) has no {class_name!r}"
        raise _Wrong(f": {has}; {remedy}") from None


def _imported(name: str, folder: Path) -> ModuleType:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except SyntaxError as exc:
        place = f"{exc.filename}:{exc.lineno}"
        raise _Wrong(f": {place} is not valid Python: {exc.msg}; correct that line") from exc
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        if isinstance(exc, ModuleNotFoundError) and exc.name is not None:
            raise _Wrong(_missing(exc, exc.name, name, folder)) from exc
        raise _Wrong(f": importing module {name!r} raised {_described(exc)}; correct it") from exc


def _missing(exc: ModuleNotFoundError, missing: str, name: str, folder: Path) -> str:
    if not f"{name}.".startswith(f"{missing}."):
        needs = f"module {name!r} needs module {missing!r}, which is not installed"
        return f": {needs} ({_place(exc)}); install it"
    there = [module.name for module in pkgutil.iter_modules([str(folder)])]
    remedy = meant(name, there, "run leaderq in the module's folder, or put that on PYTHONPATH")
    return f": module {missing!r} was not found in {folder} nor where Python looks; {remedy}"


def _problems(found: type) -> Iterator[str]:
    if not issubclass(found, ILeaderCareer):
        yield " is not a career; make it a subclass of leaderq.LeaderCareer"
    elif missing := sorted(getattr(found, "__abstractmethods__", ())):
        near = [(one, each) for each in missing for one in get_close_matches(each, vars(found), 1)]
        hint = "".join(f"; is {one} meant to be {each}?" for one, each in near)
        yield f" is not complete; it still needs {', '.join(missing)}{hint}"
    elif problems := list(career_problems(found)):
        yield from (f": {each}" for each in problems)
    else:
        free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        try:
            parameters = inspect.signature(found).parameters.values()
        except (TypeError, ValueError):  # Python cannot tell, as for a subclass of dict
            return
        needed = [one for one in parameters if one.default is one.empty and one.kind not in free]
        if needed:
            yield (
                " cannot be made without arguments: its constructor needs"
                f" {', '.join(one.name for one in needed)}; give them defaults, or read them in"
                " prepare() from self.options"
            )


def _definition(found: type) -> str:
    try:
        return f"{inspect.getsourcefile(found)}:{inspect.getsourcelines(found)[1]}"
    except (OSError, TypeError):
        return found.__module__


def _described(exc: BaseException) -> str:
    return f"{told(exc)} ({_place(exc)})"


def _place(exc: BaseException) -> str:
    """The place of the error in the user's code: the innermost frame that is neither ours nor the
    import system's.
    """
    machinery = (str(Path(__file__).parent), "<frozen", str(importlib.__file__))
    frames = [
        frame
        for frame in traceback.extract_tb(exc.__traceback__)
        if not frame.filename.startswith(machinery)
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "place unknown"
