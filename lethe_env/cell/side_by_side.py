"""Compiling several configurations of a kernel at once, on as many threads as there are cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from triton.runtime._async_compile import AsyncCompileMode, active_mode


class SideBySide:
    """Compiles ahead of the launches that need it; what does not compile is left to them to say."""

    def __init__(self, threads: int, translate: Callable[[Sequence[str]], None]) -> None:
        """Prepare.

        Args:
            threads: how many kernels are compiled at once.
            translate: has native code made of PTX, so that it is there when asked for.
        """
        self.threads = threads
        self._translate = translate

    def compile(self, warm_ups: Sequence[Callable[[], Any]]) -> None:
        """Compile what the calls of `JITFunction.warmup` ask for."""
        if self.threads < 2 or len(warm_ups) < 2 or active_mode.get() is not None:
            return
        with (
            ThreadPoolExecutor(self.threads, "compile") as pool,
            AsyncCompileMode(pool, ignore_errors=True) as mode,
        ):
            for warm_up in warm_ups:
                try:
                    warm_up()
                except Exception:  # noqa: BLE001 - the launch itself will raise it
                    break
        kernels = [future.kernel for future in mode.future_kernels.values()]
        self._translate([kernel.asm["ptx"] for kernel in kernels if kernel is not None])
