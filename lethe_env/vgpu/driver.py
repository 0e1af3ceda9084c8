"""Triton's driver for the virtual GPU: `JITFunction.run` and everything above it stay Triton's.

Kernels are compiled as far as PTX; what Triton takes for the cubin is that text. While the driver
is active, launches on CPU tensors run the PTX in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import _allocation

from ..kernels.cute_dsl import Compiled
from .arguments import flatten
from .cache import ObjectCache, Translate
from .cute.function import VirtualFunction
from .machine import program
from .memory import Pointer
from .ptx.model import UnsupportedError
from .session import LaunchError, Session
from .timing import ARCHITECTURES, DEFAULT_ARCHITECTURE, TARGETS, Target, modelled_time_us

SHARED_MEMORY_BYTES = 232448
"""Most dynamic shared memory of a block. That of compute capability 9.0 and 10.0 whatever the code
is compiled for: what a kernel may use on which target is judged from its resources."""
_BUS_BITS = 5120
"""Width of the memory bus, by which Triton turns a clock into a bandwidth."""
GRID_LIMITS = (2**31 - 1, 65535, 65535)
MAXIMAL_THREADS = 1024


class Launcher:
    """Runs one compiled kernel in the active driver's session.

    Triton makes one per specialisation and keeps it, whatever driver comes next.
    """

    def __init__(self, source: Any, metadata: Any) -> None:
        self._names = list(source.signature)
        self._types = list(source.signature.values())
        self._metadata = metadata
        if metadata.num_ctas > 1:
            raise UnsupportedError(f"clusters of {metadata.num_ctas} blocks")

    def __call__(
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: int,
        function: program.Program,
        packed_metadata: Any,
        launch_metadata: Any,
        enter_hook: Callable[[Any], None] | None,
        exit_hook: Callable[[Any], None] | None,
        *values: Any,
    ) -> None:
        """Launch, with the arguments that Triton's own launcher gets."""
        grid = (grid_x, grid_y, grid_z)
        if any(size > limit for size, limit in zip(grid, GRID_LIMITS, strict=True)):
            raise LaunchError(f"Triton Error [CUDA]: invalid argument (grid {grid})")
        session: Session = triton.runtime.driver.active.session
        memory = session.memory
        maps = getattr(self._metadata, "tensordesc_meta", None) or ()
        arguments = flatten(self._names, self._types, values, memory, maps)
        scratch = [self._scratch(kind, grid, stream) for kind in ("global", "profile")]
        arguments += [
            memory.pointer(t, "scratch") if t is not None else Pointer(0) for t in scratch
        ]
        if enter_hook is not None:
            enter_hook(launch_metadata)
        if 0 not in grid:
            metadata = self._metadata
            session.launch(function, metadata.name, grid, arguments, metadata.shared)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _scratch(self, kind: str, grid: Sequence[int], stream: int) -> torch.Tensor | None:
        """Memory beside the arguments, from the allocator that the user has set."""
        size_bytes = getattr(self._metadata, f"{kind}_scratch_size")
        if not size_bytes:
            return None
        allocator = _allocation._allocator if kind == "global" else _allocation._profile_allocator
        blocks = grid[0] * grid[1] * grid[2]
        alignment = getattr(self._metadata, f"{kind}_scratch_align")
        buffer = allocator.get()(blocks * size_bytes, alignment, stream)
        if not isinstance(buffer, torch.Tensor):
            raise UnsupportedError("scratch memory that is no tensor")
        return buffer


class VirtualDriver(DriverBase):
    """What `triton.runtime.driver.active` answers while the virtual GPU is in use."""

    def __init__(
        self,
        session: Session | None = None,
        *,
        architecture: int = DEFAULT_ARCHITECTURE,
        translate: Translate | None = None,
        device: torch.device | None = None,
        interface: Any = None,
    ) -> None:
        """Prepare; `activate` makes it Triton's driver.

        Args:
            session: what launches share; a fresh one by default.
            architecture: what kernels are compiled for, 80, 90 or 100.
            translate: from PTX to native code; by default in this process, kept on disk.
            device: where torch says tensors lie.
            interface: what stands in for `torch.cuda`; by default one that tells modelled time.
        """
        super().__init__()
        if architecture not in ARCHITECTURES:
            known = ", ".join(map(str, ARCHITECTURES))
            raise ValueError(f"no architecture {architecture}; known: {known}")
        self.session = session or Session()
        self.target: Target = TARGETS[ARCHITECTURES[architecture]]
        self.launcher_cls = Launcher
        self.utils = SimpleNamespace(
            load_binary=self._load_binary, get_device_properties=self._properties
        )
        self._architecture = architecture
        self._translate = translate or ObjectCache()
        self._device = device or torch.device("cpu")
        self._interface = interface or _Interface(self)
        self._functions: dict[str, VirtualFunction] = {}

    @classmethod
    def is_active(cls) -> bool:
        """Never chosen by itself."""
        return False

    def activate(self) -> None:
        """Become Triton's driver in this process, and stop compiling at PTX."""
        triton.knobs.runtime.add_stages_inspection_hook = _stop_at_ptx
        triton.runtime.driver.set_active(self)

    def host_function(self, compiled: Compiled) -> VirtualFunction:
        """What runs a host function of the CuTe DSL beside Triton's kernels, in their session."""
        known = self._functions.get(compiled.ptx)
        if known is None:
            known = VirtualFunction(compiled, self.session, self._translate)
            self._functions[compiled.ptx] = known
        return known

    def get_current_target(self) -> GPUTarget:
        """The target that kernels are compiled for."""
        return GPUTarget("cuda", self._architecture, 32)

    def get_current_device(self) -> int:
        """The only device."""
        return 0

    def set_current_device(self, device: int) -> None:
        """There is only one."""

    def get_current_stream(self, device: int | None = None) -> int:
        """The default stream; every launch is complete when it returns."""
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Of the target."""
        return divmod(self._architecture, 10)

    def get_active_torch_device(self) -> torch.device:
        """Where torch says tensors lie."""
        return self._device

    def get_device_interface(self) -> Any:
        """What stands in for `torch.cuda`."""
        return self._interface

    def get_benchmarker(self) -> Callable[..., Any]:
        """Modelled times in milliseconds; no clock of this machine says anything about a GPU."""
        return self._benchmark

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """A small buffer: there is no cache to flush."""
        return torch.zeros(1, dtype=torch.int32)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """There is no cache to flush."""

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Only a compiled launcher would ask."""
        raise NotImplementedError("the virtual GPU has no compiled launcher")

    def modelled_time_us(self) -> float:
        """Modelled time of all launches so far on this driver's target."""
        return sum(modelled_time_us(counts, self.target) for _, counts in self.session.counts)

    def _benchmark(
        self, call: Callable[[], Any], quantiles: Sequence[float] | None = None, **_: Any
    ) -> Any:
        before_us = self.modelled_time_us()
        call()
        time_ms = (self.modelled_time_us() - before_us) / 1e3
        return [time_ms] * len(quantiles) if quantiles else time_ms

    def _load_binary(
        self, name: str, ptx: bytes, shared_bytes: int, device: int
    ) -> tuple[program.Program, program.Program, int, int, int]:
        """Module, function, registers, spills and maximal threads, as Triton wants them."""
        text = ptx.decode()
        loaded = program.load(text, self._translate(text))
        return loaded, loaded, 0, 0, MAXIMAL_THREADS

    def _properties(self, device: int = 0) -> dict[str, int]:
        return {
            "max_shared_mem": SHARED_MEMORY_BYTES,
            "max_num_regs": 65536,
            "multiprocessor_count": self.target.multiprocessors,
            "warpSize": 32,
            "sm_clock_rate": round(self.target.clock_ghz * 1e6),
            "mem_clock_rate": round(self.target.memory_gb_per_s * 1e6 / (2 * _BUS_BITS / 8)),
            "mem_bus_width": _BUS_BITS,
        }


def _stop_at_ptx(
    backend: Any = None, stages: dict[str, Callable[..., Any]] | None = None, *_: Any
) -> tuple[str, str]:
    """Triton's hook into its stages: what it takes for the cubin is the PTX itself.

    The answer enters Triton's cache keys, so a real GPU never meets such a binary.
    """
    if stages is not None:
        stages["cubin"] = lambda ptx, metadata: ptx.encode()
    return "virtual GPU", "virtual GPU"


class _Interface:
    """The part of `torch.cuda` that timing code uses, on the modelled clock."""

    def __init__(self, driver: VirtualDriver) -> None:
        self.Event = lambda enable_timing=True: _Event(driver)

    def synchronize(self) -> None:
        """Every launch is complete already."""

    def current_device(self) -> int:
        """The only device."""
        return 0


class _Event:
    def __init__(self, driver: VirtualDriver) -> None:
        self._driver = driver
        self._time_us = 0.0

    def record(self) -> None:
        self._time_us = self._driver.modelled_time_us()

    def elapsed_time(self, end: _Event) -> float:
        return (end._time_us - self._time_us) / 1e3
