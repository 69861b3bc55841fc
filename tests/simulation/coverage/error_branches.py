"""Counts which error branches of the tested code a run comes to: each ``except``, each ``raise``.

A story that never comes to the branch which handles an error proves nothing of it. ``install`` has
each branch that is loaded from then on tell that it was entered; ``Branch`` is where it stands.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from types import CodeType

HOOK = "__error_branch_entered__"


class Branch(NamedTuple):
    """An ``except`` of the tested code, or a ``raise`` of an error that is not Python's own.

    ``what`` is ``except KeyError``, ``raise LedgerFenced``; the second of a kind in a function has
    its number behind it. It has no line, so that it stays the same while code around it changes.
    """

    module: str
    function: str
    what: str

    @property
    def package(self) -> str:
        """The package that it belongs to."""
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.module}:{self.function}:{self.what}"


def branches_of(packages: Sequence[str]) -> dict[Branch, str]:
    """All branches of the modules of these packages, loaded or not; each with its ``file:line``."""
    places: dict[Branch, str] = {}
    for package in packages:
        spec = PathFinder.find_spec(package)
        assert spec is not None, package
        assert spec.origin is not None, package
        root = Path(spec.origin).parent
        for path in sorted(root.rglob("*.py")):
            parts = [package, *path.relative_to(root).with_suffix("").parts]
            marker = _Marker(".".join(parts).removesuffix(".__init__"))
            marker.visit(ast.parse(path.read_bytes(), path))
            places |= {branch: f"{path}:{line}" for branch, line in marker.found.items()}
    return places


class ErrorBranches:
    """Those of the modules whose names begin with ``packages``: how often each was entered since it
    was loaded."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = tuple(packages)
        self.entered = Counter[Branch]()

    def install(self) -> None:
        """Count in every module that is loaded from now on."""
        loaded = [name for name in sys.modules if name.partition(".")[0] in self.packages]
        assert not loaded, f"loaded already: {loaded[:5]}"
        sys.meta_path.insert(0, _Finder(self))


class _Finder(MetaPathFinder):
    def __init__(self, branches: ErrorBranches) -> None:
        self._branches = branches

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in self._branches.packages:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(name, spec.loader.path, self._branches)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, branches: ErrorBranches) -> None:
        super().__init__(name, path)
        self._branches = branches

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(self.get_data(self.path), self.path)
        marker = _Marker(fullname)
        tree = ast.fix_missing_locations(marker.visit(tree))
        self._found = list(marker.found)
        self._branches.entered.update(dict.fromkeys(marker.found, 0))
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        entered = self._branches.entered

        def hook(number: int) -> None:
            entered[self._found[number]] += 1

        setattr(module, HOOK, hook)
        super().exec_module(module)


class _Marker(ast.NodeTransformer):
    """Puts a call of the hook at the beginning of each ``except`` and before each ``raise``."""

    def __init__(self, module: str) -> None:
        # Each with its line.
        self.found: dict[Branch, int] = {}
        self._module = module
        self._scope: list[str] = []

    def _visit_scope(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self._scope.append(node.name)
        self.generic_visit(node)
        self._scope.pop()
        return node

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _visit_scope  # noqa: N815

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        caught = "" if node.type is None else f" {ast.unparse(node.type)}"
        tell = self._tell(f"except{caught}", node.lineno)
        self.generic_visit(node)
        return ast.copy_location(ast.ExceptHandler(node.type, node.name, [tell, *node.body]), node)

    def visit_Raise(self, node: ast.Raise) -> list[ast.stmt]:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        # Who passes on what was caught has come by the ``except`` already; Python's own errors
        # stand for mistakes in programs.
        if raised is None or (isinstance(raised, ast.Name) and hasattr(builtins, raised.id)):
            return [node]
        return [self._tell(f"raise {ast.unparse(raised)}", node.lineno), node]

    def _tell(self, what: str, line: int) -> ast.stmt:
        """The call that says that a branch was entered."""
        function = ".".join(self._scope)
        branch = Branch(self._module, function, what)
        count = 1
        while branch in self.found:
            count += 1
            branch = Branch(self._module, function, f"{what} ({count})")
        call = ast.Call(ast.Name(HOOK, ast.Load()), [ast.Constant(len(self.found))], [])
        self.found[branch] = line
        return ast.Expr(call)
