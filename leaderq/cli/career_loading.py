"""From ``package.module:Class`` to a class that can lead, or one sentence: what is wrong with it,
where, and what to do.

Importing a user's module runs the user's code, so anything may be raised: it is refused as bad
input and kept as the cause.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from leaderq.career import ILeaderCareer, career_problems
from leaderq.errors import ConfigurationError

_EXAMPLE = "write package.module:Class, like billing:AdBilling"


def find_career(target: str, folder: Path) -> type[ILeaderCareer]:
    """The career class that ``target`` names; modules are also looked for in ``folder``. Nothing is
    made of it yet.

    Raises :class:`~leaderq.errors.ConfigurationError`.
    """
    module_name, colon, class_name = target.partition(":")
    if not (colon and module_name and class_name):
        raise ConfigurationError(f"{target!r} names no class; {_EXAMPLE}")
    if "/" in module_name or module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise ConfigurationError(
            f"{target!r} begins with a file, not a module; write {dotted}:{class_name}"
        )
    if not all(part.isidentifier() for part in [*module_name.split("."), *class_name.split(".")]):
        raise ConfigurationError(f"{target!r} is not made of Python names; {_EXAMPLE}")
    found = _attribute(_imported(module_name, target, folder), class_name, target)
    _check(found, target)
    career: type[ILeaderCareer] = found
    return career


def make_career(career: type[ILeaderCareer], target: str) -> ILeaderCareer:
    """An instance of ``career``; raises :class:`~leaderq.errors.ConfigurationError` if its
    constructor does.
    """
    try:
        return career()
    except Exception as exc:
        raise ConfigurationError(
            f"{target!r} could not be made: its constructor raised {_described(exc)}; "
            "correct it, or move that work to prepare()"
        ) from exc


def _imported(name: str, target: str, folder: Path) -> ModuleType:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        raise ConfigurationError(_missing(exc, name, target, folder)) from exc
    except SyntaxError as exc:
        raise ConfigurationError(
            f"{target!r}: {exc.filename}:{exc.lineno} is not valid Python: {exc.msg}; correct that"
            " line"
        ) from exc
    except (Exception, SystemExit) as exc:
        raise ConfigurationError(
            f"{target!r}: importing module {name!r} raised {_described(exc)}; correct it"
        ) from exc


def _missing(exc: ModuleNotFoundError, name: str, target: str, folder: Path) -> str:
    if exc.name is None or not f"{name}.".startswith(f"{exc.name}."):
        return (
            f"{target!r}: module {name!r} needs module {exc.name!r}, which is not installed"
            f" ({_place(exc)}); install it"
        )
    near = difflib.get_close_matches(
        name, [module.name for module in pkgutil.iter_modules([str(folder)])], n=1
    )
    remedy = (
        f"did you mean {near[0]!r}?"
        if near
        else "run leaderq where the module lies, or put its folder on PYTHONPATH"
    )
    return (
        f"{target!r}: module {exc.name!r} was not found in {folder} nor where Python looks;"
        f" {remedy}"
    )


def _attribute(module: ModuleType, name: str, target: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            own = {
                key: value
                for key, value in vars(module).items()
                if getattr(value, "__module__", "") == module.__name__
            }
            careers = [
                key
                for key, value in own.items()
                if isinstance(value, type) and issubclass(value, ILeaderCareer)
            ]
            near = difflib.get_close_matches(name, careers or list(vars(module)), n=1)
            remedy = (
                f"did you mean {near[0]!r}?"
                if near
                else f"its careers: {', '.join(careers) or 'none'}"
            )
            raise ConfigurationError(
                f"{target!r}: module {module.__name__!r} ({module.__file__}) has no {name!r};"
                f" {remedy}"
            )
        found = getattr(found, part)
    return found


def _check(found: Any, target: str) -> None:
    if not isinstance(found, type):
        what = (
            f"an instance of {type(found).__name__}"
            if isinstance(found, ILeaderCareer)
            else f"a {type(found).__name__}"
        )
        raise ConfigurationError(
            f"{target!r} is {what}, not a class; name a subclass of leaderq.LeaderCareer"
        )
    place = _definition(found)
    if not issubclass(found, ILeaderCareer):
        raise ConfigurationError(
            f"{target!r} ({place}) is not a career; make it a subclass of leaderq.LeaderCareer"
        )
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise ConfigurationError(
            f"{target!r} ({place}) is not complete; it still needs {', '.join(missing)}"
        )
    if problems := [f"{target!r} ({place}): {each}" for each in career_problems(found)]:
        raise ConfigurationError(*problems)
    needed = _needed_arguments(found)
    if needed:
        raise ConfigurationError(
            f"{target!r} ({place}) cannot be made without arguments: its constructor needs"
            f" {', '.join(needed)}; give them defaults, or read them in prepare() from self.options"
        )


def _needed_arguments(career: type) -> list[str]:
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(career).parameters.values()
    return [
        each.name for each in parameters if each.default is each.empty and each.kind not in free
    ]


def _definition(found: type) -> str:
    try:
        return f"{inspect.getsourcefile(found)}:{inspect.getsourcelines(found)[1]}"
    except (OSError, TypeError):
        return found.__module__


def _described(exc: BaseException) -> str:
    message = f": {exc}" if str(exc) else ""
    return f"{type(exc).__name__}{message} ({_place(exc)})"


def _place(exc: BaseException) -> str:
    """Where the user's code went wrong: the innermost frame that is neither ours nor the import
    machinery's.
    """
    machinery = (str(Path(__file__).parent), "<frozen", str(importlib.__file__))
    frames = [
        frame
        for frame in traceback.extract_tb(exc.__traceback__)
        if not frame.filename.startswith(machinery)
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "place unknown"
