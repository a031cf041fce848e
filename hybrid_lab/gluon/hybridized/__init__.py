"""The modules of the room `hybridize/` under the names that they had in this folder: pickles name them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

#: Where the modules are now, the first of these that has one.
_PLACES = ("hybrid_lab.hybridize", "hybrid_lab.hybridize.stale", "hybrid_lab.gluon")


class _Moved(MetaPathFinder, Loader):
    """Finds `hybrid_lab.gluon.hybridized.program` as the module that has this name now, the same object."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if package != __name__:
            return None
        places = (f"{place}.{name}" for place in _PLACES)
        now = next((place for place in places if importlib.util.find_spec(place) is not None), None)
        return None if now is None else ModuleSpec(fullname, self, origin=now)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(str(spec.origin))
        self._own = module.__spec__, module.__loader__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__, module.__loader__ = self._own


sys.meta_path.append(_Moved())
