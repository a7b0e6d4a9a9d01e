"""The edits of one module: what is changed, and where.

An edit never touches what only people read: docstrings, annotations, log lines, messages of
exceptions, ``repr``.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any

_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_NEGATED = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.Is: ast.IsNot}
_NEGATED |= {ast.In: ast.NotIn}
_OPPOSITE = _NEGATED | {other: each for each, other in _NEGATED.items()}
_ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
_ARITHMETIC |= {ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult}
_ARITHMETIC |= {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr}
_ARITHMETIC |= {ast.LShift: ast.RShift, ast.RShift: ast.LShift}
_TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LEFT_OUT = re.compile(
    r"import |from |assert |global |nonlocal |if TYPE_CHECKING:|_?log(ger)?\.\w+\("
    r"|(__all__|__slots__|__match_args__|_?log) = |\w+ = Callable\["
)
"""How statements begin that are for people, type checkers and Python alone."""
_FOR_PEOPLE = {"__repr__", "__str__", "__format__"}
_KEYWORDS_LEFT_OUT = {"strict", "repr", "exc_info", "stacklevel", "frozen", "slots", "kw_only"}
_CALLS_LEFT_OUT = {"cast", "TypeVar", "NewType", "ParamSpec", "namedtuple", "TypeAlias"}
_NO_CODE = {"annotation", "targets", "target", "type_comment"}
_Change = tuple[ast.AST, str, Any]
_Found = Iterator[tuple[Any, ...]]
"""Of each edit its operator, and its changes."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of a syntax tree. Its ``id`` stays as long as its statement and function do.

    ``is_inside`` a function or method: its code can be replaced in a program that runs.
    """

    id: str
    operator: str
    function: str
    line: int
    end_line: int
    before: str
    after: str
    is_inside: bool
    changes: tuple[tuple[ast.AST, str, Any, Any], ...]

    def apply(self) -> None:
        """Change the tree that this edit was found in."""
        for node, field, _, new in self.changes:
            setattr(node, field, new)

    def undo(self) -> None:
        """Change it back."""
        for node, field, old, _ in self.changes:
            setattr(node, field, old)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the walk is. ``statement``: the one whose text an edit shows."""

    function: str = ""
    is_inside: bool = False
    is_enum: bool = False
    statement: ast.AST | None = None
    rebound: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Spot:
    """The child of ``parent`` in ``field``, or in its list there."""

    parent: ast.AST
    field: str
    number: int | None = None

    def put(self, *new: ast.AST) -> _Change:
        """Put ``new``, which may be nothing in a list, in the place of the child."""
        old = getattr(self.parent, self.field)
        child = old if self.number is None else old[self.number]
        for each in new:
            ast.fix_missing_locations(ast.copy_location(each, child))
        if self.number is None:
            return self.parent, self.field, new[0]
        return self.parent, self.field, [*old[: self.number], *new, *old[self.number + 1 :]]


def edits_of(tree: ast.Module, module: str) -> list[Edit]:
    """All edits of ``tree``, in the order of its lines."""
    seen: Counter[tuple[str, ...]] = Counter()
    named = []
    for edit in _inside(tree, _Place()):
        if edit.before == edit.after:
            continue
        key = (edit.function, edit.before, edit.after)
        seen[key] += 1
        digest = hashlib.sha1("\0".join([*key, str(seen[key])]).encode()).hexdigest()[:8]
        named.append(replace(edit, id=f"{module}:{digest}"))
    return named


# -- the walk --------------------------------------------------------------------------------------


def _inside(node: ast.AST, at: _Place, *fields: str) -> Iterator[Edit]:
    """The edits of the children of ``node``, or of those in ``fields``."""
    for field, value in ast.iter_fields(node):
        if field in _NO_CODE or (fields and field not in fields):
            continue
        is_list = isinstance(value, list)
        for number, child in enumerate(value if is_list else [value]):
            yield from _of_child(child, _Spot(node, field, number if is_list else None), at)


def _of_child(node: Any, spot: _Spot, at: _Place) -> Iterator[Edit]:
    if isinstance(node, ast.stmt):
        yield from _of_statement(node, spot, replace(at, statement=node))
    elif isinstance(node, ast.expr):
        is_left_out = isinstance(node, ast.Call) and _name(node.func) in _CALLS_LEFT_OUT
        if not is_left_out and not isinstance(node, ast.JoinedStr):
            yield from _made(_expression_edits(node, spot, at), at)
            yield from _inside(node, at)
    elif isinstance(node, ast.ExceptHandler):
        yield from _made(_handler_edits(node), replace(at, statement=node))
        yield from _inside(node, at, "body")
    elif isinstance(node, ast.match_case):
        yield from _inside(node, replace(at, statement=node.guard), "guard")
        yield from _inside(node, at, "body")
    elif isinstance(node, ast.comprehension):
        filters = [_Spot(node, "ifs", number) for number in range(len(node.ifs))]
        yield from _made((("filter removed", one.put()) for one in filters), at)
        yield from _inside(node, at)
    elif isinstance(node, ast.withitem):
        yield from _inside(node, at, "context_expr")
    elif isinstance(node, ast.keyword) and node.arg not in _KEYWORDS_LEFT_OUT:
        yield from _inside(node, at)


def _of_statement(node: ast.stmt, spot: _Spot, at: _Place) -> Iterator[Edit]:
    if _is_left_out(node):
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from _inside(node.args, at, "defaults", "kw_defaults")
        bound = Counter(one.id for one in ast.walk(node) if _is_stored(one))
        own = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
        rebound = frozenset(name for name, times in bound.items() if times > 1 or name in own)
        inner = _Place(f"{at.function}{node.name}.", is_inside=True, rebound=rebound)
        yield from _inside(node, inner, "body")
    elif isinstance(node, ast.ClassDef):
        is_enum = any("Enum" in ast.unparse(base) for base in node.bases)
        inner = replace(at, function=f"{at.function}{node.name}.", is_enum=is_enum)
        yield from _inside(node, inner, "body")
    else:
        yield from _made(_statement_edits(node, spot, at), at)
        if not isinstance(node, ast.Raise):
            yield from _inside(node, at)


def _made(found: Iterable[tuple[Any, ...]], at: _Place) -> Iterator[Edit]:
    """The edits, of each of which an operator and its changes were found."""
    statement: Any = at.statement
    for operator, *changes in found:
        edit = Edit(
            id="",
            operator=operator,
            function=at.function.rstrip("."),
            line=statement.lineno,
            end_line=_end_of(statement),
            before=_head(statement),
            after="pass",
            is_inside=at.is_inside,
            changes=tuple((node, field, getattr(node, field), new) for node, field, new in changes),
        )
        if operator != "statement removed":
            edit.apply()
            after = _head(statement)
            edit.undo()
            edit = replace(edit, after=after)
        yield edit


# -- the edits of one node: an operator, and what it changes ---------------------------------------


def _statement_edits(node: Any, spot: _Spot, at: _Place) -> _Found:
    if _is_for_effect(node, at):
        yield "statement removed", spot.put(ast.Pass())
    if isinstance(node, ast.Return) and not isinstance(node.value, (ast.Constant, NoneType)):
        yield "returns None", _Spot(node, "value").put(ast.Constant(None))
    elif isinstance(node, ast.AugAssign):
        yield from _arithmetic(node, node.target, node.value)
    elif isinstance(node, (ast.If, ast.While)):
        yield from _condition(node)


def _handler_edits(node: ast.ExceptHandler) -> _Found:
    if isinstance(node.type, ast.Tuple):
        yield from _elements(node.type, "elts")
    elif node.type is not None:
        yield "nothing is caught", _Spot(node, "type").put(ast.Tuple([], ast.Load()))


def _expression_edits(node: Any, spot: _Spot, at: _Place) -> _Found:  # noqa: C901
    if isinstance(node, ast.Constant):
        for value in _other_values(node.value, at):
            yield "constant", spot.put(ast.Constant(value))
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.Not):
            yield "not removed", spot.put(node.operand)
        elif isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
            yield "sign removed", spot.put(node.operand)
    elif isinstance(node, ast.BoolOp):
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield "and/or", spot.put(ast.BoolOp(other, node.values))
        for number in range(len(node.values)):
            left = [*node.values[:number], *node.values[number + 1 :]]
            yield "operand removed", spot.put(ast.BoolOp(node.op, left) if left[1:] else left[0])
    elif isinstance(node, ast.Call) and _name(node.func) in _TWINS:
        if isinstance(node.func, ast.Name):
            func = ast.Name(_TWINS[node.func.id], ast.Load())
            yield "twin called", spot.put(ast.Call(func, node.args, node.keywords))
    elif isinstance(node, ast.Call):
        for number, (first, second) in enumerate(zip(node.args, node.args[1:], strict=False)):
            if _kind(first) is not None and _kind(first) == _kind(second):
                swapped = [*node.args[:number], second, first, *node.args[number + 2 :]]
                yield "arguments swapped", (node, "args", swapped)
    elif isinstance(node, ast.Compare):
        for number, found in enumerate(node.ops):
            for operator, table in (("boundary", _BOUNDARY), ("comparison negated", _OPPOSITE)):
                if type(found) in table:
                    ops = [*node.ops[:number], table[type(found)](), *node.ops[number + 1 :]]
                    yield operator, (node, "ops", ops)
    elif isinstance(node, ast.BinOp):
        yield from _arithmetic(node, node.left, node.right)
    elif isinstance(node, ast.IfExp):
        yield from _condition(node)
    elif isinstance(node, ast.Dict):
        yield from _elements(node, "keys", "values")
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)) and _is_table(spot.parent, node, at):
        yield from _elements(node, "elts")


def _other_values(value: Any, at: _Place) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if not isinstance(value, (int, float)) or at.is_enum:
        return []
    return [value + 1, value - 1] if value >= 1 else [value + 1]


def _arithmetic(node: Any, *sides: ast.expr) -> _Found:
    for side in sides:
        if isinstance(side, (ast.JoinedStr, ast.List, ast.Tuple)):
            return
        if isinstance(side, ast.Constant) and isinstance(side.value, (str, bytes)):
            return
    if type(node.op) in _ARITHMETIC:
        yield "arithmetic", (node, "op", _ARITHMETIC[type(node.op)]())


def _condition(node: Any) -> _Found:
    is_not = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
    if not is_not and not isinstance(node.test, (ast.Compare, ast.BoolOp, ast.Constant)):
        yield "condition negated", _Spot(node, "test").put(ast.UnaryOp(ast.Not(), node.test))


def _elements(node: Any, *fields: str) -> _Found:
    for number in range(len(getattr(node, fields[0]))):
        yield "element removed", *(_Spot(node, field, number).put() for field in fields)


def _is_table(parent: ast.AST, node: Any, at: _Place) -> bool:
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return False
    if not isinstance(node, ast.Tuple) or not at.is_inside:
        return not isinstance(parent, ast.Subscript)
    if isinstance(parent, ast.Compare):
        return any(isinstance(each, (ast.In, ast.NotIn)) for each in parent.ops)
    if isinstance(parent, ast.Call):
        return _name(parent.func) in ("isinstance", "issubclass", "suppress")
    return isinstance(parent, ast.For)


# -- what is left out, and how statements are shown ------------------------------------------------


def _is_left_out(node: Any) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    is_for_people = getattr(node, "name", "") in _FOR_PEOPLE
    return is_text or is_for_people or bool(_LEFT_OUT.match(ast.unparse(node)))


def _is_stored(node: Any) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _is_for_effect(node: ast.stmt, at: _Place) -> bool:
    """Whether the program without ``node`` still makes sense to Python."""
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, (ast.Yield, ast.YieldFrom))
    if isinstance(node, (ast.Raise, ast.Delete, ast.AugAssign, ast.Break, ast.Continue)):
        return True
    if isinstance(node, ast.Return):
        return node.value is None
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        if not at.is_inside or node.value is None:
            return False
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return all(
            isinstance(target, (ast.Attribute, ast.Subscript))
            or (isinstance(target, ast.Name) and target.id in at.rebound)
            for target in targets
        )
    return False


def _head(node: ast.AST) -> str:
    """The text of ``node``, without the statements in it."""
    text = ast.unparse(node).strip()
    if not isinstance(node, (ast.stmt, ast.ExceptHandler)) or not hasattr(node, "body"):
        return text
    return next(line for line in text.splitlines() if not line.startswith("@"))


def _end_of(node: ast.AST) -> int:
    """The last line of its head."""
    body = getattr(node, "body", None)
    if body and isinstance(body, list) and not isinstance(node, ast.Try):
        return max(int(getattr(node, "lineno", 0)), int(body[0].lineno) - 1)
    return int(getattr(node, "end_lineno", 0) or 0)


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _kind(node: ast.expr) -> str | None:
    if isinstance(node, (ast.Name, ast.Attribute)):
        return "name"
    if isinstance(node, ast.Constant):
        return type(node.value).__name__
    return None
