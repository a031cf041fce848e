"""The finder on `sys.meta_path` that resolves `mxnet` and its submodules to the modules of this package."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

import hybrid_lab
from hybrid_lab.aliases import MODULES, current_name, older_name
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.unknown_names import unknown_name
from hybrid_lab.mxnet.libinfo import __version__ as mxnet_version

from .places import IMPORTED, PLACES

OWN, THEIRS = "hybrid_lab", "mxnet"
_logger = logging.getLogger(OWN)


class CompatError(HybridLabError, ImportError):
    """`mxnet` cannot be this package in this process."""


class TopModule(ModuleType):
    """The module `mxnet`. All its names are `hybrid_lab`'s; `__version__` is the version of the MXNet it stands for.

    It is a module of its own because libraries compare `mxnet.__version__` with releases of MXNet.
    """

    def __init__(self) -> None:
        super().__init__(THEIRS, hybrid_lab.__doc__)
        self.__path__: list[str] = []
        self.__file__ = hybrid_lab.__file__
        self.__version__ = mxnet_version

    def __getattr__(self, name: str) -> object:
        value: object = getattr(hybrid_lab, name)
        if isinstance(value, ModuleType) and value.__name__.startswith(OWN + "."):
            importlib.import_module(THEIRS + older_name(value.__name__).removeprefix(OWN))
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(hybrid_lab)})


class SplitModule(ModuleType):
    """A module of MXNet whose names are in other modules here, such as `gluon.nn.conv_layers`."""

    def __init__(self, name: str, places: Sequence[str]) -> None:
        super().__init__(name, f"The names of MXNet's {name}, from {', '.join(places)}.")
        self._places = places

    def __getattr__(self, name: str) -> object:
        if name == "__all__":
            return [each for each in dir(self) if not each.startswith("_")]
        for place in () if name.startswith("__") else self._modules():
            if hasattr(place, name):
                value: object = getattr(place, name)
                return value
        raise unknown_name(self.__name__, name, dir(self))

    def __dir__(self) -> list[str]:
        return sorted({name for place in self._modules() for name in getattr(place, "__all__", None) or vars(place)})

    def _modules(self) -> list[ModuleType]:
        return [importlib.import_module(f"{OWN}.{place}") for place in self._places]


class Aliases(MetaPathFinder, Loader):
    """Finds `mxnet.a.b` as the module `hybrid_lab.a.b` itself, or as PLACES says."""

    def __init__(self) -> None:
        self._lent: dict[ModuleType, object] = {}
        self._added: list[tuple[ModuleType, str]] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of `mxnet` or a submodule. Raises ModuleNotFoundError, with near names, for a missing submodule."""
        top, _, name = fullname.partition(".")
        if top != THEIRS:
            return None
        if name and name not in PLACES and not _is_own(name):
            raise _not_here(fullname)
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module of this package, in which the import system then sets `__spec__` (see exec_module)."""
        name = spec.name.partition(".")[2]
        if not name:
            return TopModule()
        module = self._module(name)
        spec.loader_state = {key: vars(module).get(key) for key in _SET_BY_IMPORT}
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the values set by the import system, since the module is loaded already; then alias all modules below
        it.
        """
        spec = module.__spec__
        if isinstance(module, TopModule) or spec is None:
            return
        name = spec.name.partition(".")[2]
        for key, value in spec.loader_state.items():
            if value is not None:
                setattr(module, key, value)
            elif key in vars(module):
                delattr(module, key)
        self._alias_below(name)

    def _module(self, name: str) -> ModuleType:
        """The module of this package for `mxnet.<name>`."""
        places = PLACES.get(name, ())
        if places and ":" in places[0]:
            module, _, attribute = places[0].partition(":")
            namespace: ModuleType = getattr(importlib.import_module(f"{OWN}.{module}"), attribute)
            return namespace
        if places and not _is_own(name):
            return SplitModule(f"{THEIRS}.{name}", places)
        own = importlib.import_module(f"{OWN}.{name}")
        imported = IMPORTED.get(name, ())
        if places or imported:
            self._lend(own, places, imported)
        if "__path__" not in vars(own) and any(each.startswith(name + ".") for each in PLACES):
            vars(own)["__path__"] = []  # a module here, a package in MXNet
            self._added.append((own, "__path__"))
        return own

    def _alias_below(self, name: str) -> None:
        """Register the modules below a package, so that a later import of one does not replace the attribute of its
        name.

        `model_zoo.vision.alexnet`, for one, is a module and a function; the function is the package's attribute.
        """
        for package in sorted({each.rpartition(".")[0] for each in PLACES if each.startswith(f"{name}.")}):
            if _is_own(package):  # it may be loaded only when it is asked for, past this finder
                importlib.import_module(f"{OWN}.{package}")
        start = current_name(f"{OWN}.{name}") + "."
        for each in [each for each in sys.modules if each.startswith(start)]:
            theirs = f"{THEIRS}.{name}.{each.removeprefix(start)}"
            if theirs not in sys.modules:
                sys.modules[theirs] = self._module(theirs.partition(".")[2])
        for each in PLACES:
            package, _, last = each.rpartition(".")
            theirs = f"{THEIRS}.{each}"
            parent = sys.modules.get(f"{THEIRS}.{package}")
            if each.startswith(name + ".") and parent is not None and theirs not in sys.modules:
                sys.modules[theirs] = module = self._module(each)
                if last not in vars(parent):
                    setattr(parent, last, module)
                    self._added.append((parent, last))

    def _lend(self, module: ModuleType, places: Sequence[str], imported: Sequence[str]) -> None:
        """Let names that a module lacks be found in its places, and modules that MXNet's module imports."""
        if module in self._lent:
            return
        before: Callable[[str], object] | None = vars(module).get("__getattr__")
        self._lent[module] = before

        def find(name: str) -> object:
            if name in imported:
                return importlib.import_module(f"{OWN}.{name}")
            if not name.startswith("__"):
                for place in places:
                    values = vars(importlib.import_module(f"{OWN}.{place}"))
                    if name in values:
                        return values[name]
            if before is not None:
                return before(name)
            raise unknown_name(older_name(module.__name__).removeprefix(OWN + "."), name, vars(module))

        vars(module)["__getattr__"] = find

    def undo(self) -> None:
        """Take back the names that were lent, and the modules that this package does not have."""
        for module, before in self._lent.items():
            if before is None:
                vars(module).pop("__getattr__", None)
            else:
                vars(module)["__getattr__"] = before
        for package, name in self._added:
            vars(package).pop(name, None)
        self._lent.clear()
        self._added.clear()


class NearNames(MetaPathFinder):
    """The last finder: a module of this package that is not there is an error with the nearest names.

    `from mxnet.gluon.nn import Dens` comes here, because the module calls itself hybrid_lab.gluon.nn.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for other packages' modules. Raises ModuleNotFoundError."""
        if fullname.startswith(OWN + "."):
            raise _not_here(THEIRS + fullname.removeprefix(OWN))
        return None


_SET_BY_IMPORT = ("__name__", "__loader__", "__package__", "__spec__", "__path__")
_aliases = Aliases()
_near_names = NearNames()


def install() -> None:
    """Make `import mxnet` this package. A second call does nothing.

    Raises CompatError if the real MXNet is imported already.
    """
    if _aliases in sys.meta_path:
        return
    imported = sys.modules.get(THEIRS)
    if imported is not None:
        raise CompatError(
            f"the real MXNet ({getattr(imported, '__file__', None)}) is imported already. "
            "Restart Python and import hybrid_lab.compat before mxnet"
        )
    installed = PathFinder.find_spec(THEIRS)
    if installed is not None:
        _logger.warning(
            f"`import mxnet` gives hybrid_lab in this process, not the MXNet that is installed at {installed.origin}"
        )
    sys.meta_path.insert(0, _aliases)
    sys.meta_path.append(_near_names)


def uninstall() -> None:
    """Undo `install`: `import mxnet` finds the real MXNet again, or nothing. Modules that are imported stay usable."""
    if _aliases not in sys.meta_path:
        return
    sys.meta_path.remove(_aliases)
    sys.meta_path.remove(_near_names)
    for name in [name for name in sys.modules if name == THEIRS or name.startswith(THEIRS + ".")]:
        del sys.modules[name]
    _aliases.undo()


def _is_own(name: str) -> bool:
    """Whether this package has the module; the packages around it are imported."""
    try:
        return importlib.util.find_spec(f"{OWN}.{name}") is not None
    except ModuleNotFoundError:  # the parent is a module, not a package
        return False


def _submodules(package: str) -> Iterator[str]:
    """Full names, with `mxnet.`, of the modules in a package."""
    own = sys.modules.get(current_name((OWN + "." + package).rstrip(".")))
    for found in pkgutil.iter_modules(getattr(own, "__path__", ())):
        yield found.name
    for each in (*PLACES, *MODULES):
        if each.rpartition(".")[0] == package:
            yield each.rpartition(".")[2]


def _not_here(fullname: str) -> ModuleNotFoundError:
    """The error for a module or name of MXNet that this package lacks.

    It has no `name`: of an error with the name it asked for, `from mxnet import name` would replace the text.
    """
    package, _, last = fullname.partition(".")[2].rpartition(".")
    own = sys.modules.get(current_name((OWN + "." + package).rstrip(".")))
    known = {*_submodules(package), *(dir(own) if own else ())}
    where = f"{THEIRS}.{package}".rstrip(".")
    error = unknown_name(where, last, sorted(known, key=str.swapcase))  # Dense rather than the module dense
    return ModuleNotFoundError(str(error))
