"""The edits of one module: what is changed, and where.

An edit never touches what only people read: docstrings, annotations, log lines, messages of
exceptions, ``repr``.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OPPOSITE = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
_TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGS = {"log", "_log", "logger", "_logger"}
_FOR_PEOPLE = {"__repr__", "__str__", "__format__"}
_KEYWORDS_LEFT_OUT = {"strict", "repr", "exc_info", "stacklevel", "frozen", "slots", "kw_only"}
_CALLS_LEFT_OUT = {"cast", "TypeVar", "NewType", "ParamSpec", "namedtuple", "TypeAlias"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DISPLAYS = (ast.Tuple, ast.List, ast.Set)


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


def edits_of(tree: ast.Module, module: str) -> list[Edit]:
    """All edits of ``tree``, in the order of its lines."""
    found = list(_Walk().body(tree, "body", _Place()))
    seen: Counter[tuple[str, ...]] = Counter()
    named = []
    for edit in found:
        if edit.before == edit.after:
            continue
        key = (edit.function, edit.before, edit.after)
        seen[key] += 1
        digest = hashlib.sha1("\0".join([*key, str(seen[key])]).encode()).hexdigest()[:8]
        named.append(replace(edit, id=f"{module.removeprefix('leaderq.')}:{digest}"))
    return named


class _Walk:
    """Walks statements, and in them expressions."""

    def body(self, parent: ast.AST, field: str, at: _Place) -> Iterator[Edit]:
        statements: list[ast.stmt] = getattr(parent, field)
        for number, statement in enumerate(statements):
            yield from self._statement(parent, field, number, statement, at)

    def _statement(
        self, parent: ast.AST, field: str, number: int, node: ast.stmt, at: _Place
    ) -> Iterator[Edit]:
        if _is_left_out(node):
            return
        here = replace(at, statement=node)
        if isinstance(node, _FUNCTIONS):
            yield from self._function(node, here)
        elif isinstance(node, ast.ClassDef):
            is_enum = any("Enum" in ast.unparse(base) for base in node.bases)
            inner = replace(at, function=f"{at.function}{node.name}.", is_enum=is_enum)
            yield from self.body(node, "body", inner)
        else:
            if _is_for_effect(node, at):
                nothing = ast.copy_location(ast.Pass(), node)
                statements = getattr(parent, field)
                without = [*statements[:number], nothing, *statements[number + 1 :]]
                yield self._edit("statement removed", here, (parent, field, without), after="pass")
            yield from self._parts(node, here)

    def _function(self, node: Any, at: _Place) -> Iterator[Edit]:
        if node.name in _FOR_PEOPLE:
            return
        for field in ("defaults", "kw_defaults"):
            for number, default in enumerate(getattr(node.args, field)):
                if default is not None:
                    yield from self._expression(node.args, field, number, default, at)
        bound = Counter(
            name.id
            for name in ast.walk(node)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
        )
        own = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
        rebound = frozenset(name for name, times in bound.items() if times > 1 or name in own)
        inner = _Place(f"{at.function}{node.name}.", is_inside=True, rebound=rebound)
        yield from self.body(node, "body", inner)

    def _parts(self, node: ast.stmt, at: _Place) -> Iterator[Edit]:  # noqa: C901
        if isinstance(node, ast.Raise):
            return
        if isinstance(node, ast.Return):  # noqa: SIM102
            if node.value is not None and not isinstance(node.value, ast.Constant):
                none = ast.copy_location(ast.Constant(None), node.value)
                yield self._edit("returns None", at, (node, "value", none))
        if isinstance(node, ast.AugAssign):
            yield from self._arithmetic(node, at)
        if isinstance(node, (ast.If, ast.While)):
            yield from self._condition(node, at)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "targets", "target", "type_comment"):
                continue
            if field in ("body", "orelse", "finalbody"):
                yield from self.body(node, field, at)
            elif field in ("handlers", "cases"):
                for inner in value:
                    yield from self._clause(inner, at)
            elif isinstance(value, ast.expr):
                yield from self._expression(node, field, None, value, at)
            elif isinstance(value, list):
                for number, each in enumerate(value):
                    if isinstance(each, ast.expr):
                        yield from self._expression(node, field, number, each, at)
                    elif isinstance(each, ast.withitem):
                        yield from self._expression(
                            each, "context_expr", None, each.context_expr, at
                        )

    def _clause(self, node: Any, at: _Place) -> Iterator[Edit]:
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            here = replace(at, statement=node)
            if isinstance(node.type, ast.Tuple):
                yield from self._elements(node.type, here)
            else:
                never = ast.copy_location(ast.Tuple([], ast.Load()), node.type)
                yield self._edit("nothing is caught", here, (node, "type", never))
        elif getattr(node, "guard", None) is not None:
            here = replace(at, statement=node.guard)
            yield from self._expression(node, "guard", None, node.guard, here)
        yield from self.body(node, "body", at)

    def _expression(  # noqa: C901
        self, parent: ast.AST, field: str, number: int | None, node: ast.expr, at: _Place
    ) -> Iterator[Edit]:
        if isinstance(node, ast.JoinedStr):
            return
        if isinstance(node, ast.Call) and _name(node.func) in _CALLS_LEFT_OUT:
            return
        yield from self._replaced(parent, field, number, node, at)
        if isinstance(node, ast.Compare):
            yield from self._comparison(node, at)
        elif isinstance(node, ast.BinOp):
            yield from self._arithmetic(node, at)
        elif isinstance(node, ast.Call):
            yield from self._call(node, at)
        elif isinstance(node, ast.IfExp):
            yield from self._condition(node, at)
        elif isinstance(node, ast.Dict):
            yield from self._entries(node, at)
        elif isinstance(node, _DISPLAYS) and self._is_table(parent, node, at):
            yield from self._elements(node, at)
        for inner_field, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            for inner_number, each in enumerate(values):
                index = inner_number if isinstance(value, list) else None
                if isinstance(each, ast.expr):
                    yield from self._expression(node, inner_field, index, each, at)
                elif isinstance(each, ast.keyword) and each.arg not in _KEYWORDS_LEFT_OUT:
                    yield from self._expression(each, "value", None, each.value, at)
                elif isinstance(each, ast.comprehension):
                    yield from self._comprehension(each, at)

    def _replaced(
        self, parent: ast.AST, field: str, number: int | None, node: ast.expr, at: _Place
    ) -> Iterator[Edit]:
        """Those edits that put another expression in the place of ``node``."""
        for operator, new in _others(node, at):
            ast.copy_location(new, node)
            ast.fix_missing_locations(new)
            if number is None:
                yield self._edit(operator, at, (parent, field, new))
            else:
                values = list(getattr(parent, field))
                values[number] = new
                yield self._edit(operator, at, (parent, field, values))

    def _comparison(self, node: ast.Compare, at: _Place) -> Iterator[Edit]:
        for number, found in enumerate(node.ops):
            for operator, table in (("boundary", _BOUNDARY), ("comparison negated", _OPPOSITE)):
                if type(found) in table:
                    ops = list(node.ops)
                    ops[number] = table[type(found)]()
                    yield self._edit(operator, at, (node, "ops", ops))

    def _arithmetic(self, node: Any, at: _Place) -> Iterator[Edit]:
        sides = [getattr(node, name) for name in ("left", "right", "value") if hasattr(node, name)]
        texts = (ast.JoinedStr, ast.List, ast.Tuple)
        if any(
            isinstance(side, texts)
            or (isinstance(side, ast.Constant) and isinstance(side.value, (str, bytes)))
            for side in sides
        ):
            return
        if type(node.op) in _ARITHMETIC:
            yield self._edit("arithmetic", at, (node, "op", _ARITHMETIC[type(node.op)]()))

    def _condition(self, node: Any, at: _Place) -> Iterator[Edit]:
        test = node.test
        if isinstance(test, (ast.Compare, ast.BoolOp, ast.Constant)):
            return
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return
        negated = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
        yield self._edit("condition negated", at, (node, "test", negated))

    def _comprehension(self, node: ast.comprehension, at: _Place) -> Iterator[Edit]:
        yield from self._expression(node, "iter", None, node.iter, at)
        for number, condition in enumerate(node.ifs):
            without = [*node.ifs[:number], *node.ifs[number + 1 :]]
            yield self._edit("filter removed", at, (node, "ifs", without))
            yield from self._expression(node, "ifs", number, condition, at)

    def _call(self, node: ast.Call, at: _Place) -> Iterator[Edit]:
        if _name(node.func) in _TWINS:
            return
        for number, (first, second) in enumerate(zip(node.args, node.args[1:], strict=False)):
            if _kind(first) is not None and _kind(first) == _kind(second):
                swapped = list(node.args)
                swapped[number : number + 2] = [second, first]
                yield self._edit("arguments swapped", at, (node, "args", swapped))

    def _is_table(self, parent: ast.AST, node: ast.expr, at: _Place) -> bool:
        if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return False
        if not isinstance(node, ast.Tuple) or not at.is_inside:
            return not isinstance(parent, ast.Subscript)
        if isinstance(parent, ast.Compare):
            return any(isinstance(each, (ast.In, ast.NotIn)) for each in parent.ops)
        if isinstance(parent, ast.Call):
            return _name(parent.func) in ("isinstance", "issubclass", "suppress")
        return isinstance(parent, ast.For)

    def _elements(self, node: Any, at: _Place) -> Iterator[Edit]:
        for number in range(len(node.elts)):
            without = [*node.elts[:number], *node.elts[number + 1 :]]
            yield self._edit("element removed", at, (node, "elts", without))

    def _entries(self, node: ast.Dict, at: _Place) -> Iterator[Edit]:
        for number in range(len(node.keys)):
            keys = [*node.keys[:number], *node.keys[number + 1 :]]
            values = [*node.values[:number], *node.values[number + 1 :]]
            yield self._edit("element removed", at, (node, "keys", keys), (node, "values", values))

    def _edit(
        self, operator: str, at: _Place, *changes: tuple[ast.AST, str, Any], after: str = ""
    ) -> Edit:
        assert at.statement is not None
        full = tuple((node, field, getattr(node, field), new) for node, field, new in changes)
        line = getattr(at.statement, "lineno", 0)
        edit = Edit(
            id="",
            operator=operator,
            function=at.function.rstrip("."),
            line=line,
            end_line=_end_of(at.statement),
            before=_head(at.statement),
            after=after,
            is_inside=at.is_inside,
            changes=full,
        )
        if after:
            return edit
        edit.apply()
        changed = replace(edit, after=_head(at.statement))
        edit.undo()
        return changed


def _others(node: ast.expr, at: _Place) -> Iterator[tuple[str, ast.expr]]:
    """What else might stand in the place of ``node``."""
    if isinstance(node, ast.Constant):
        yield from _other_constants(node, at)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not removed", node.operand
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        if not isinstance(node.operand, ast.Constant):
            yield "sign removed", node.operand
    elif isinstance(node, ast.BoolOp):
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield "and/or", ast.BoolOp(other, node.values)
        for number in range(len(node.values)):
            left = [*node.values[:number], *node.values[number + 1 :]]
            yield "operand removed", ast.BoolOp(node.op, left) if len(left) > 1 else left[0]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _TWINS:
        func = ast.Name(_TWINS[node.func.id], ast.Load())
        yield "twin called", ast.Call(func, node.args, node.keywords)


def _other_constants(node: ast.Constant, at: _Place) -> Iterator[tuple[str, ast.expr]]:
    value = node.value
    if isinstance(value, bool):
        yield "constant", ast.Constant(not value)
    elif isinstance(value, (int, float)) and not at.is_enum:
        yield "constant", ast.Constant(value + 1)
        if value >= 1:
            yield "constant", ast.Constant(value - 1)


def _is_left_out(node: ast.stmt) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assert, ast.Global, ast.Nonlocal)):
        return True
    if isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Constant):
            return True
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            return isinstance(call.func.value, ast.Name) and call.func.value.id in _LOGS
    if isinstance(node, ast.Assign):
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node.value, ast.Subscript) and _name(node.value.value) == "Callable":
            return True  # a name for a type
        return bool(names & {"__all__", "__slots__", "_log", "log", "__match_args__"})
    if isinstance(node, ast.If):
        return _name(node.test) == "TYPE_CHECKING"
    return False


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
    if isinstance(node, (ast.stmt, ast.ExceptHandler)) and hasattr(node, "body"):
        emptied = {name: getattr(node, name) for name in _BLOCKS if hasattr(node, name)}
        for name in emptied:
            setattr(node, name, [])
        try:
            return ast.unparse(node).strip().splitlines()[0]
        finally:
            for name, value in emptied.items():
                setattr(node, name, value)
    return ast.unparse(node)


_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases", "decorator_list")


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
