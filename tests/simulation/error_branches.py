"""Counts which ``except`` branches of the tested code a run comes to.

A story that never comes to the branch which handles an error proves nothing of it. ``install`` has
each branch that is loaded from then on tell that it was entered; ``Branch`` is where it stands.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from types import CodeType

HOOK = "__error_branch_entered__"


class Branch(NamedTuple):
    """An ``except`` of the tested code: its module, the function it is in, and what it catches."""

    module: str
    function: str
    caught: str


class ErrorBranches:
    """The branches of the modules whose names begin with ``packages``, and how often each was
    entered since it was loaded."""

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
        self._found = marker.found
        self._branches.entered.update(dict.fromkeys(marker.found, 0))
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        entered = self._branches.entered

        def hook(number: int) -> None:
            entered[self._found[number]] += 1

        setattr(module, HOOK, hook)
        super().exec_module(module)


class _Marker(ast.NodeTransformer):
    """Puts a call of the hook at the beginning of each ``except``."""

    def __init__(self, module: str) -> None:
        self.found: list[Branch] = []
        self._module = module
        self._scope: list[str] = []

    def _visit_scope(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self._scope.append(node.name)
        self.generic_visit(node)
        self._scope.pop()
        return node

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _visit_scope  # noqa: N815

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.generic_visit(node)
        caught = "" if node.type is None else ast.unparse(node.type)
        function = ".".join(self._scope)
        call = ast.Call(ast.Name(HOOK, ast.Load()), [ast.Constant(len(self.found))], [])
        self.found.append(Branch(self._module, function, caught))
        return ast.copy_location(
            ast.ExceptHandler(node.type, node.name, [ast.Expr(call), *node.body]), node
        )
