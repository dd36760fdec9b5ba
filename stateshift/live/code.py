"""Functions as files: shipped once, named by the hash of their bytes, run only if that is true.

    {"format": "stateshift-function", "version": 1, "kind": "source", "name": "model_v2:score",
     "python": "3.11", "pyarrow": "26"}\\n
    def score(batch): …                          the module's text; or a pickle, by kind

    package(given)            a function, or MODULE:NAME, as a file
    unpack(content, digest)   the function in it, checked first

A function that is given as MODULE:NAME is shipped as the text of its module, if that is one file of
Python: it can be read by whoever looks into the folder, and stack traces show its lines. Everything
else is pickled with its closure (cloudpickle), and needs the very Python it was pickled with.

Unpickling is running. Whoever can write into the folder of code runs code in the jobs: `guard`
refuses one that others than the job's own user can write, where the storage can tell.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import json
import linecache
import os
import pwd
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stateshift.errors import (
    Complaint,
    FormatError,
    Incompatible,
    PlanError,
    SpecError,
    UnknownVersion,
)
from stateshift.private_files import OTHERS_MAY_WRITE
from stateshift.storage import locations
from stateshift.storage.protocol import Storage

# A user's function: what it takes and returns depends on what its job hands the chain to.
Function = Callable[..., Any]

FORMAT = "stateshift-function"
FORMAT_VERSION = 1
LOADED = "stateshift_live_"  # what the module of shipped text is called here, with its hash
SHIPPED_AS = "__stateshift_shipped_as__"
ROOT = ("root",)
USER_NAMES = ("HADOOP_USER_NAME", "USER", "LOGNAME")


@dataclass(frozen=True, slots=True)
class Package:
    """A function as it is shipped: the file, its hash, and its name for people."""

    digest: str
    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a file of code."""

    kind: Literal["source", "pickle"]
    name: str
    python: str
    pyarrow: str


def python_version() -> str:
    """Return the version of this Python, as far as pickled functions depend on it."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def pyarrow_version() -> str:
    """Return the version of pyarrow here, as far as functions depend on it."""
    import pyarrow

    return str(pyarrow.__version__).split(".")[0]


# ------------------------------------------------------------------------------------ shipping


def _cloudpickle() -> Any:
    """Return the library, as Spark brings it along; it has no types."""
    try:
        from pyspark import cloudpickle
    except ImportError:
        fact = "a function that is no top-level name of one file is pickled, which needs pyspark"
        raise PlanError(fact, hint="pip install 'stateshift[spark]'") from None
    return cloudpickle


def package(given: Function | str) -> Package:
    """Return a function, given itself or as MODULE:NAME, as a file."""
    if not isinstance(given, str):
        return _pickled(given, name_of(given))
    module, attribute = _split(given)
    text = _source_of(module)
    if text is not None and _stands_alone(text, attribute):
        return _packed("source", given, text.encode())
    return _pickled(_imported(given, module, attribute), given)


def name_of(function: Function) -> str:
    """Return a function's name for people; a decorated one's is that of what was decorated."""
    function = inspect.unwrap(function)
    module = getattr(function, "__module__", None) or type(function).__module__
    if module.startswith(LOADED):
        module = getattr(sys.modules.get(module), SHIPPED_AS, module)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{module}:{name}"


def import_function(name: str) -> Function:
    """Import the function that MODULE:NAME names, which has to be callable."""
    return _imported(name, *_split(name))


def _split(name: str) -> tuple[str, str]:
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise _refused(name, "not of the form MODULE:FUNCTION")
    return module, attribute


def _source_of(module: str) -> str | None:
    """Return the text of a module that is one file of Python; None if it is not, or not found."""
    try:
        spec = importlib.util.find_spec(module)
    except Exception:  # of a package that is imported on the way: importing the module says more
        return None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    if spec.submodule_search_locations is not None:  # a package imports its own parts
        return None
    try:
        return Path(spec.origin).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _stands_alone(text: str, name: str) -> bool:
    """Whether a module's text stands alone, and defines a name at its top level."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False
    if any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)):
        return False  # it imports a module beside it
    names: set[str] = set()
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=defined) | ast.ClassDef(name=defined):
                names.add(defined)
            case ast.Assign(targets=targets):
                names.update(target.id for target in targets if isinstance(target, ast.Name))
    return name in names


def _imported(given: str, module: str, attribute: str) -> Function:
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:
        raise _refused(given, f"cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise _refused(given, f"is not a function: {type(found).__name__}")
    function: Function = found
    return function


def _pickled(function: Function, name: str) -> Package:
    cloudpickle = _cloudpickle()

    if not callable(function):
        raise _refused(name, f"is not a function: {type(function).__name__}")
    module = inspect.getmodule(inspect.unwrap(function))
    try:
        with _by_value(module):
            content = cloudpickle.dumps(function)
    except Exception as error:
        raise _refused(name, f"cannot be pickled: {type(error).__name__}: {error}") from error
    return _packed("pickle", name, content)


@contextlib.contextmanager
def _by_value(module: types.ModuleType | None) -> Iterator[None]:
    """Pickle functions of a module by value, if it is the user's own, which workers need not have:
    no installed package's, and none of stateshift, whose classes have to be the same on both sides.
    """
    cloudpickle = _cloudpickle()
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        yield
        return
    is_registered = module.__name__ in cloudpickle.list_registry_pickle_by_value()
    is_stateshift = module.__name__.partition(".")[0] == __name__.partition(".")[0]
    is_installed = "site-packages" in Path(file).parts or file.startswith(sys.prefix)
    if is_registered or is_stateshift or is_installed or module.__name__ == "__main__":
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _packed(kind: Literal["source", "pickle"], name: str, payload: bytes) -> Package:
    header = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "kind": kind,
        "name": name,
        "python": python_version(),
        "pyarrow": pyarrow_version(),
    }
    content = json.dumps(header).encode() + b"\n" + payload
    return Package(hashlib.sha256(content).hexdigest(), name, content)


def _refused(name: str, why: str) -> SpecError:
    return SpecError(
        (Complaint("FUNCTION", f"{name!r} {why}", name, "MODULE:FUNCTION"),),
        hint="name a function of a module that Python finds from here: model_v2:score",
    )


# ------------------------------------------------------------------------------------ running


def header_of(content: bytes, digest: str) -> Header:
    """Return the header of a file of code, once its hash is found to be its name."""
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        fact = f"the code's hash is {found[:12]}…, its name is {digest[:12]}…"
        raise FormatError(fact, f"code/{digest}", hint="somebody has changed it: ship it again")
    first, _, _ = content.partition(b"\n")
    try:
        values = json.loads(first)
        if values["format"] != FORMAT:
            raise ValueError(f"the format is {values['format']!r}")
        version = int(values["version"])
        kind = values.get("kind")
        if version > FORMAT_VERSION or kind not in ("source", "pickle"):
            fact = f"code of a newer stateshift: format {version}, kind {kind!r}"
            raise UnknownVersion(fact, f"code/{digest}", hint="upgrade the program where this runs")
        return Header(
            kind=kind,
            name=str(values["name"]),
            python=str(values["python"]),
            pyarrow=str(values["pyarrow"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"not a file of code: {error!r}", f"code/{digest}") from None


def check_versions(name: str, made_by: tuple[str, str], run_by: tuple[str, str], at: str) -> None:
    """Refuse code that was made by another Python or another pyarrow than the one that runs it."""
    for what, made, runs in zip(("Python", "pyarrow"), made_by, run_by, strict=True):
        if made != runs:
            raise Incompatible(
                f"{name} was shipped with {what} {made}, {at} has {what} {runs}",
                hint=f"run this command with {what} {runs}: the environment of the job's workers",
            )


def unpack(content: bytes, digest: str) -> Function:
    """Return the function in a file of code, which is run for that: checked first."""
    header = header_of(content, digest)
    here = (python_version(), pyarrow_version())
    check_versions(header.name, (header.python, header.pyarrow), here, "this worker")
    payload = content.partition(b"\n")[2]
    try:
        found = (
            _from_source(payload, header.name, digest)
            if header.kind == "source"
            else _cloudpickle().loads(payload)
        )
    except (Exception, SystemExit) as error:
        fact = f"{header.name} cannot be loaded: {type(error).__name__}: {error}"
        hint = "ship it with what it imports, or install that where the workers run"
        raise FormatError(fact, f"code/{digest}", hint=hint) from error
    if not callable(found):
        fact = f"{header.name} is no function: {type(found).__name__}"
        raise FormatError(fact, f"code/{digest}")
    function: Function = found
    return function


def _from_source(payload: bytes, name: str, digest: str) -> object:
    """Run a module's text as a module of its own, and return what it defines."""
    module_name, _, attribute = name.partition(":")
    loaded = f"{LOADED}{module_name.replace('.', '_')}_{digest[:16]}"
    if loaded not in sys.modules:
        text = str(payload, "utf-8")
        file = f"<{module_name} {digest[:12]}>"
        module = types.ModuleType(loaded)
        setattr(module, SHIPPED_AS, module_name)
        # Dataclasses look their module up, and stack traces their lines.
        sys.modules[loaded] = module
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        try:
            exec(compile(text, file, "exec"), module.__dict__)
        except BaseException:
            del sys.modules[loaded]
            raise
    return getattr(sys.modules[loaded], attribute)


def guard(code: Storage, allowed: Iterable[str] = ()) -> None:
    """Refuse a folder of code that others than this process's user, root or those allowed own, or
    may write to. Storages without owners are taken as they are.
    """
    if not code.traits.owners:
        return
    number = os.geteuid()
    try:
        users = [pwd.getpwuid(number).pw_name]
    except KeyError:  # a container's, which nobody has given a name
        users = [str(number)]
    if locations.scheme(code.location) != "file":
        # A cluster's storage goes by the name that the job has there.
        users = [os.environ[name] for name in USER_NAMES if os.environ.get(name)] + users
    trusted = {*users, *ROOT, *allowed}
    for owned in code.owners():
        place = f"{code.location}/{owned.path}".rstrip("/")
        if owned.owner is not None and owned.owner not in trusted:
            raise Incompatible(
                f"{place} belongs to {owned.owner}, and its code would run here",
                hint=f"let {users[0]} own it, or name who may: live.chain(…, owners=…)",
            )
        if owned.mode is not None and owned.mode & OTHERS_MAY_WRITE:
            raise Incompatible(
                f"others may write to {place} (mode {owned.mode & 0o777:o}), and its code would "
                "run here",
                hint=f"chmod -R go-w {code.location}",
            )
