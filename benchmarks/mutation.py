"""Small changes to Python source, and tests with one of them in place: the parts of benchmarks/mutants.py."""

from __future__ import annotations

import ast
import importlib.util
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest

OPERATORS: dict[type[ast.operator], type[ast.operator]]
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult}
OPERATORS |= {ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]
COMPARISONS = {ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE)}
COMPARISONS |= {ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,)}
COMPARISONS |= {ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,)}
PAIRS = ("min max", "amin amax", "argmin argmax", "any all", "sum mean", "minimum maximum")
NAMES = {a: b for pair in map(str.split, PAIRS) for a, b in (pair, pair[::-1])}
UNWRAPPED = {"detach", "abs", "clamp", "clamp_min", "exp", "log", "sqrt", "square", "softmax", "log_softmax", "t"}
UNTOUCHED = (ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr)  # nor zip's `strict`, an assertion too
UNREAD = ("annotation", "returns", "decorator_list")


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """What a node is replaced by."""
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(type(value)(1) if abs(value) < 1e-6 else 2 * value)
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.Compare(left, [op], right):
            yield from (ast.Compare(left, [other()], right) for other in COMPARISONS[type(op)])
        case ast.IfExp(_, body, orelse):
            yield from (body, orelse)
        case ast.If(test, body, orelse) if not isinstance(test, ast.Compare | ast.UnaryOp | ast.BoolOp):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.BinOp(left, op, right):
            if type(op) in OPERATORS:
                yield ast.BinOp(left, OPERATORS[type(op)](), right)
            if isinstance(op, ast.Add | ast.Sub):
                yield from (left, right)
        case ast.Call(func, args, keywords):
            if isinstance(func, ast.Name) and func.id in NAMES:
                yield ast.Call(ast.Name(NAMES[func.id]), args, keywords)
            if isinstance(func, ast.Attribute) and func.attr in NAMES:
                yield ast.Call(ast.Attribute(func.value, NAMES[func.attr]), args, keywords)
            if isinstance(func, ast.Attribute) and func.attr in UNWRAPPED:
                yield func.value
            for k in (k for k, keyword in enumerate(keywords) if keyword.arg != "strict"):
                yield ast.Call(func, args, keywords[:k] + keywords[k + 1 :])
        case ast.Return(ast.Call(args=[first, *_])):
            yield ast.Return(first)
        case ast.AugAssign(target, op, value):
            if type(op) in OPERATORS:
                yield ast.AugAssign(target, OPERATORS[type(op)](), value)
            yield ast.Pass()
        case ast.Expr(ast.Call()) | ast.Raise() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()


class Site(NamedTuple):
    """A place in a tree, and what to put there."""

    holder: Any  # a list, or a node
    key: Any  # place in the list, or name of the node's attribute
    old: ast.AST
    new: ast.AST

    def put(self, node: ast.AST) -> None:
        if isinstance(self.holder, list):
            self.holder[self.key] = node
        else:
            setattr(self.holder, self.key, node)


class Mutant(NamedTuple):
    name: str  # old line => new line
    site: Site
    tree: ast.Module

    def source(self) -> str:
        return _with(self.site, self.tree)


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a source, in order. Of those with equal names the later ones are numbered."""
    tree, names = ast.parse(source), dict[str, int]()
    for site, statement in _sites(tree, tree):
        before = ast.unparse(statement).split("\n")
        after = ast.unparse(site.new).split("\n") if site.old is statement else _with(site, statement).split("\n")
        old, new = next(pair for pair in zip(before, after, strict=False) if pair[0] != pair[1])
        name = f"{old.strip()} => {new.strip()}"
        names[name] = names.get(name, 0) + 1
        yield Mutant(name + (f" #{names[name]}" if names[name] > 1 else ""), site, tree)


def _with(site: Site, tree: ast.AST) -> str:
    """The tree as text with the site's replacement in it; the tree itself stays as it is."""
    site.put(site.new)
    text = ast.unparse(ast.fix_missing_locations(tree))
    site.put(site.old)
    return text


def _sites(node: ast.AST, statement: ast.AST) -> Iterator[tuple[Site, ast.AST]]:
    for field, value in ast.iter_fields(node):
        places = list(enumerate(value)) if isinstance(value, list) else [(field, value)]
        for key, child in places if field not in UNREAD else []:
            own = child if isinstance(child, ast.stmt) else statement
            untouched = isinstance(child, UNTOUCHED) or getattr(child, "arg", None) == "strict"
            if isinstance(child, ast.AST) and not untouched:
                holder = value if isinstance(value, list) else node
                yield from ((Site(holder, key, child, new), own) for new in variants(child))
                if not isinstance(child, ast.Raise):
                    yield from _sites(child, own)


class Injected(SourceFileLoader):
    """A finder for sys.meta_path that loads one module from the given source."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        super().__init__(name, str(path))
        self.source = source

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname: str) -> Any:
        return compile(self.source, self.path, "exec", dont_inherit=True)


class Plugin:
    """Keeps a method's part of the conformance suite, does not shrink examples, shares a cache of rendered images."""

    def __init__(self, stem: str, killer: Path, kills: Counter[str]) -> None:
        self.parts, self.killer, self.kills = (f"[{stem}-", f"[{stem},"), killer, kills

    @pytest.fixture(scope="session")
    @classmethod
    def worker_id(cls) -> str:
        return "mutant"  # conftest.py then keeps the cache beside the temporary folder of the session, and not in it

    def pytest_configure(self) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", hypothesis.settings(), phases=phases)
        hypothesis.settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [i for i in items if i.path.name != "test_methods.py" or any(part in i.name for part in self.parts)]
        items.sort(key=lambda item: -self.kills[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.killer.write_text(report.nodeid)


def trial(module: Injected, tests: Sequence[Path], temp: Path, limit: int, kills: Counter[str]) -> int:
    """To be run in a process of its own: the exit status of pytest with this module, after at most `limit` CPU seconds.

    The tests that killed most mutants run first; the one that fails is written to a file in `temp`.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    signal.alarm(20 * limit)  # for one that waits instead of computing
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    sys.meta_path.insert(0, module)
    own = temp / str(os.getpid())
    options = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", f"--basetemp={own}"]
    plugin = Plugin(Path(module.path).stem, own.with_suffix(".killer"), kills)
    return int(pytest.main([*options, *map(str, tests)], [plugin]))
