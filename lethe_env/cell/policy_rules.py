"""What a candidate's source may not name. The reasons are in `policy.py`."""

from __future__ import annotations

import sys


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED_STANDARD_MODULES = _words(
    "__future__ abc array bisect cmath collections contextlib copy dataclasses datetime decimal "
    "enum fractions functools hashlib heapq itertools json logging math numbers operator os "
    "platform random re statistics string struct sys textwrap time types typing uuid warnings "
    "weakref"
)
"""Standard modules that compute. All others reach for processes, files, network or frames."""

FORBIDDEN_PACKAGES = _words(
    "lethe_env requests urllib3 httpx aiohttp cffi psutil pip setuptools pkg_resources wheel "
    "cloudpickle dill joblib fsspec pybind11 pytest numba py_compile paramiko"
)

ALLOWED_OF = {
    "os": frozenset({"environ", "getenv", "path", "cpu_count"}),
    "os.environ": frozenset({"get"}),
    "sys": frozenset({"version", "version_info", "platform", "maxsize", "float_info"}),
}
"""Modules of which only these names may be used."""

FORBIDDEN_PATHS = frozenset(
    {
        *("torch.load", "torch.save", "torch.from_file", "torch.hub", "torch.package"),
        *("torch.serialization", "torch.multiprocessing", "torch.distributed"),
        *("torch.utils.cpp_extension", "torch.utils.model_zoo", "torch.utils.bundled_inputs"),
        *("torch.jit.load", "torch.jit.save", "torch.export.load", "torch.export.save"),
        *("torch.ops.load_library", "torch.classes.load_library", "torch.testing._internal"),
        *("torch.storage.TypedStorage.from_file", "torch.storage.UntypedStorage.from_file"),
        *("numpy.load", "numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.savetxt"),
        *("numpy.loadtxt", "numpy.genfromtxt", "numpy.fromfile", "numpy.fromregex"),
        *("numpy.memmap", "numpy.ctypeslib", "numpy.lib", "numpy.f2py", "numpy.distutils"),
        *("logging.FileHandler", "logging.config", "logging.handlers", "logging.basicConfig"),
        *("operator.attrgetter", "operator.methodcaller", "typing.get_type_hints"),
        *("types.CodeType", "types.FunctionType", "types.FrameType", "types.ModuleType"),
    }
)

FORBIDDEN_COMPONENTS = _words(
    "os sys subprocess inspect builtins ctypes gc importlib pickle socket shutil tempfile "
    "threading pathlib io posix traceback linecache"
)
"""Modules that other modules import and thereby expose, as in `logging.os`."""

FORBIDDEN_BUILTINS = _words(
    "open exec eval compile __import__ input breakpoint globals vars __builtins__ __loader__ "
    "__spec__ exit quit"
)

FORBIDDEN_ATTRIBUTES = _words(
    "f_back f_locals f_globals f_builtins f_code gi_frame gi_code tb_frame tb_next cr_frame "
    "cr_code ag_frame ag_code __globals__ __code__ __closure__ __subclasses__ __builtins__ "
    "__bases__ __mro__ __base__ __getattribute__ __import__ __loader__ __spec__ _getframe "
    "tofile from_file"
)

ASSIGNABLE_PATHS = ("torch.backends.", "torch._dynamo.config.", "torch._inductor.config.")
"""Settings that torch itself offers to be assigned; they stay within the cell."""

STANDARD_MODULES = frozenset(sys.stdlib_module_names)
