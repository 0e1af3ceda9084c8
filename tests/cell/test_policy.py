"""The two lists: what is refused, with its line, and what honest sources do."""

import pytest

from lethe_env.cell import review

FORBIDDEN_MODULES = """
subprocess socket ctypes multiprocessing threading signal gc inspect pickle shutil
tempfile pathlib importlib builtins mmap fcntl resource asyncio http.client urllib.request
requests cffi atexit code runpy pty lethe_env lethe_env.gates io sqlite3 traceback
torch.utils.cpp_extension torch.distributed torch.multiprocessing numpy.ctypeslib
"""
FORBIDDEN_ATTRIBUTES = """
f_back f_locals f_globals gi_frame tb_frame cr_frame __globals__ __code__ __closure__
__subclasses__ __builtins__ _getframe
"""
HARMLESS_MODULES = """
functools dataclasses math typing collections itertools contextlib enum abc warnings time
logging numpy einops torch triton triton.language torch.nn.functional os.path
"""
MODEL = "\nclass ModelNew:\n    pass\n"

REFUSED = [
    *(f"import {name}" for name in FORBIDDEN_MODULES.split()),
    "from os import system",
    "from os import *",
    "from sys import modules",
    "from torch import load",
    "from torch.utils import cpp_extension",
    "from torch.utils.cpp_extension import load_inline",
    "from . import judge",
    "import os\nos.system('x')",
    "import os as o\no.listdir('.')",
    "import os\nhelper(os)",
    "import os\nos.environ['X'] = '1'",
    "import os\nos.environ.update(X='1')",
    "import os\no = os\no.remove('x')",
    "import sys\nsys.modules['x']",
    "import sys\nsys._getframe()",
    "import sys\nsys.exit()",
    "open('x')",
    "exec('x')",
    "eval('x')",
    "compile('x', 'x', 'exec')",
    "__import__('os')",
    "input()",
    "breakpoint()",
    "globals()['x']",
    "vars(x)",
    "e = eval",
    "__builtins__['open']",
    "if x:\n    open = None\nopen('x')",
    "[open for open in ()] and open('x')",
    "def f():\n    [open for open in ()]\n    open('x')",
    *(f"x.{name}" for name in FORBIDDEN_ATTRIBUTES.split()),
    "getattr(x, name)",
    "getattr(x, 'f_' + 'back')",
    "getattr(x, '__globals__')",
    "setattr(x, name, 1)",
    "g = getattr",
    "list(map(getattr, xs, names))",
    "import os\ngetattr(os, 'system')",
    "getattr(self, f'__{name}__')",
    "import torch\ntorch.allclose = None",
    "import torch\ntorch.Tensor.__eq__ = None",
    "import torch as t\nt.cuda.Event.elapsed_time = None",
    "import torch\nt = torch\nt.allclose = None",
    "import torch\nsetattr(torch.cuda.Event, 'elapsed_time', None)",
    "import torch\ndelattr(torch, 'allclose')",
    "import torch\ndel torch.allclose",
    "import torch\ntorch.__dict__['allclose'] = None",
    "from torch import cuda\ncuda.synchronize = None",
    "from torch import Tensor\nTensor.equal = None",
    "import triton\ntriton.x = 1",
    "import time\ntime.perf_counter = None",
    "import torch\nfor torch.x in (1,): pass",
    "x.__class__ = Y",
    "type(x).__eq__ = None",
    "x.__class__.__eq__ = None",
    "import torch\ntorch.load('x')",
    "import torch\ntorch.save(1, 'x')",
    "import torch\ntorch.hub.load('x')",
    "import torch\ntorch.utils.cpp_extension.load_inline('x')",
    "import torch\ntorch.distributed.init_process_group()",
    "import torch\ntorch.ops.load_library('x')",
    "import torch\ntorch.os.system('x')",
    "import logging\nlogging.os.system('x')",
    "import random\nrandom._os.system('x')",
    "import numpy as np\nnp.load('x')",
    "import numpy as np\nnp.save('x', 1)",
    "import numpy as np\nnp.fromfile('x')",
    "import numpy as np\nnp.memmap('x')",
    "x.tofile('x')",
    "from operator import attrgetter",
]


@pytest.mark.parametrize("body", REFUSED)
def test_refused(body):
    fault = review("\n\n" + body + MODEL)
    assert fault is not None
    assert (fault.kind, fault.phase) == ("refused", "policy")
    assert fault.line is not None and fault.line >= 3
    assert f"line {fault.line}:" in fault.message


HONEST = [
    "pass",
    "try:\n    import flash_attn\nexcept ImportError:\n    flash_attn = None",
    *(f"import {name}" for name in HARMLESS_MODULES.split()),
    "from __future__ import annotations",
    "from typing import *",
    "import torch.nn.functional as F\nF.relu(x)",
    "from triton.language.extra import libdevice\nlibdevice.tanh(x)",
    '"""Runs exec, eval, open and subprocess; os.system(\'rm -rf /\')."""',
    "# import subprocess\nx = 'import socket'",
    "import os\nos.environ.get('X'); os.getenv('Y'); os.cpu_count(); os.path.join('a', 'b')",
    "import sys\nsys.version_info >= (3, 8); sys.maxsize; sys.platform",
    "getattr(x, 'literal', None)",
    "setattr(self, 'weight', 1)",
    "getattr(self, f'conv{i}')",
    "hasattr(x, name)",
    "import torch\nhasattr(torch, 'compile')",
    "import torch\ntorch.backends.cuda.matmul.allow_tf32 = False",
    "import torch\ntorch.backends.cudnn.benchmark = True",
    "import torch\ncompiled = torch.compile(f)",
    "import torch\ntorch.special.erf(x); torch.signal.windows.hann(3)",
    "import torch\ndef f(x):\n    x.data = torch.ones(1)\n    x.requires_grad = True",
    "import torch\nclass A(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.training = False\n        self.w = torch.nn.Parameter(torch.ones(1))",
    "def forward(input):\n    return input + 1",
    "def f(compile=True, vars=None):\n    return compile, vars",
    "lambda open: open + 1",
    "[input for input in xs]",
    "if __name__ == '__main__':\n    print(1)",
    "x.__class__.__name__; type(x).__name__; x.__dict__",
    "from functools import lru_cache\n@lru_cache(maxsize=None)\ndef f(): return 1",
    "import torch\nx = torch.cuda.Stream()\nwith torch.cuda.stream(x): pass",
    "import torch\n_C = torch.ops.aten.mm(x, y)",
    "re = 1; code = 2; io = 3",
]


@pytest.mark.parametrize("body", HONEST)
def test_honest(body):
    assert review(body + MODEL) is None


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("def f(:\n", "is not Python: line 1"),
        ("x = 1\n  y = 2\n", "is not Python: line 2"),
        ("x = '\0'", "is not Python"),
        ("(" * 5000 + ")" * 5000, "not Python"),
        ("x = " + "-" * 200_000 + "1", "the source"),
        ("class Model: pass", "defines no class ModelNew"),
        ("", "defines no class ModelNew"),
        ("#" * (1 << 21), "characters"),
    ],
)
def test_sources_that_are_no_candidates(source, part):
    assert part in review(source).message


def test_a_model_may_be_an_alias_or_lie_within_a_guard():
    assert review("class Fast: pass\nModelNew = Fast") is None
    assert review("try:\n    class ModelNew: pass\nexcept ImportError:\n    pass") is None
