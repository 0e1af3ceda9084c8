"""A slow, independent executor of PTX: all threads of a block in numpy, lowest address first.

Written from the PTX ISA to check the compiler against, sharing no code with it but the parser.
Whatever it does not know raises `NotImplementedError`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from lethe_env.vgpu.ptx.model import Instruction, Kernel, Register

from .formats import F32, Bits, encode
from .instructions import Instructions
from .integer import from_numbers
from .memory import Bank, Fault, GlobalMemory
from .warp import LANES

_WARP_WIDE = ("shfl", "vote", "redux", "match", "ldmatrix", "mma")
_STACK_BYTES = 1 << 12


def execute(
    kernel: Kernel,
    grid: tuple[int, ...],
    arguments: Sequence[np.ndarray | int | float],
    shared_bytes: int = 0,
) -> None:
    """Run every block of `grid` in order, changing the arrays among `arguments`.

    Parameters without an argument, such as Triton's two scratch pointers, are zero.

    Raises:
        Fault: an access outside an array, a failed device assertion, a `trap`, or a deadlock.
        NotImplementedError: an instruction that this executor does not know.
    """
    memory = GlobalMemory()
    parameters = _parameters(kernel, arguments, memory)
    symbols = _place_variables(kernel, memory)
    sizes = (*grid, 1, 1)[:3]
    with np.errstate(all="ignore"):
        for z, y, x in itertools.product(*map(range, reversed(sizes))):
            Block(kernel, memory, parameters, symbols, shared_bytes, (x, y, z), sizes).run()


def _parameters(
    kernel: Kernel, arguments: Sequence[np.ndarray | int | float], memory: GlobalMemory
) -> dict[str, int]:
    values: dict[str, int] = {}
    padded = itertools.chain(arguments, itertools.repeat(0))
    for parameter, argument in zip(kernel.parameters, padded, strict=False):
        if isinstance(argument, np.ndarray):
            values[parameter.name] = memory.add(argument)
        elif parameter.type == "f32":
            values[parameter.name] = int(encode(np.array([float(argument)]), F32)[0])
        elif parameter.type == "f64":
            values[parameter.name] = int(np.float64(argument).view(np.uint64))
        else:
            values[parameter.name] = int(argument) % 256**parameter.size_bytes
    return values


def _place_variables(kernel: Kernel, memory: GlobalMemory) -> dict[str, int]:
    """Addresses of the module's variables; each bank is filled from zero."""
    ends = {"shared": 0, "local": 0}
    symbols: dict[str, int] = {}
    for variable in kernel.variables.values():
        if variable.space in ("global", "const"):
            data = variable.data or bytes(variable.size_bytes)
            symbols[variable.name] = memory.add(np.frombuffer(bytearray(data), np.uint8))
        elif variable.space in ends:
            start = -(-ends[variable.space] // variable.align_bytes) * variable.align_bytes
            symbols[variable.name] = start
            ends[variable.space] = start + variable.size_bytes
    return symbols


class Block:
    """One block of threads, each with its own place in the program.

    The threads that are lowest in the program go first, so paths that parted meet again. Threads
    wait at what needs others, until those are there too.
    """

    def __init__(
        self,
        kernel: Kernel,
        memory: GlobalMemory,
        parameters: dict[str, int],
        symbols: dict[str, int],
        shared_bytes: int,
        position: tuple[int, int, int],
        sizes: tuple[int, ...],
    ) -> None:
        self._kernel = kernel
        self._at = np.zeros(kernel.threads, np.int64)
        self._live = np.ones(kernel.threads, bool)
        self._do = Instructions(
            kernel,
            memory,
            Bank(max(shared_bytes, 16)),
            Bank(_STACK_BYTES, kernel.threads),
            parameters,
            symbols,
            position,
            sizes,
        )

    def run(self) -> None:
        """Run until all threads have left."""
        while self._live.any():
            places = np.unique(self._at[self._live])
            if not any(self._step(int(place)) for place in places):
                raise Fault(f"deadlock at instructions {places.tolist()}")

    def _step(self, place: int) -> bool:
        """Let the threads at `place` execute its instruction; whether any could."""
        here = np.flatnonzero(self._live & (self._at == place))
        if place >= len(self._kernel.body):
            self._live[here] = False
            return True
        instruction = self._kernel.body[place]
        willing = self._do.guarded(instruction, here)
        ready = self._ready(instruction, willing)
        passing = np.setdiff1d(here, willing)
        self._at[passing] += 1
        if len(ready):
            self._execute(instruction, ready)
        return len(passing) + len(ready) > 0

    def _execute(self, instruction: Instruction, ready: np.ndarray) -> None:
        match instruction.opcode[0]:
            case "ret" | "exit":
                self._live[ready] = False
            case "bra":
                self._at[ready] = self._kernel.labels[instruction.operands[0].name]
            case "brx":
                index, table = instruction.operands
                places = np.array([self._kernel.labels[item.name] for item in table.items])
                self._at[ready] = places[self._do.read(index, "u32", ready).astype(np.int64)]
            case "bar" | "barrier":
                self._at[ready] += 1
            case _:
                self._do.execute(instruction, ready)
                self._at[ready] += 1

    def _ready(self, instruction: Instruction, willing: np.ndarray) -> np.ndarray:
        """Those of the threads at an instruction whose partners are there too."""
        match instruction.opcode:
            case ("bar", "sync") | ("barrier", "sync", *_):
                waiting = self._waiting_at_barrier(instruction)
                return waiting if len(waiting) == self._live.sum() else waiting[:0]
            case ("bar", "warp", "sync"):
                members = self._do.read(instruction.operands[0], "b32", willing)
            case ("bar" | "barrier", *_):
                raise NotImplementedError(instruction.name)
            case (name, *_) if name in _WARP_WIDE:
                members = self._members(instruction, willing)
            case _:
                return willing
        return self._whole_groups(willing, members)

    def _members(self, instruction: Instruction, willing: np.ndarray) -> Bits:
        if instruction.opcode[0] in ("ldmatrix", "mma"):
            return from_numbers([-1] * len(willing), 32)
        return self._do.read(instruction.operands[-1], "b32", willing)

    def _whole_groups(self, willing: np.ndarray, members: Bits) -> np.ndarray:
        """Threads of the warps in which all live members are present."""
        present = np.zeros(len(self._live), bool)
        present[willing] = True
        needed = np.zeros(len(self._live), bool)
        for thread, mask in zip(willing.tolist(), members.tolist(), strict=True):
            warp = thread - thread % LANES
            needed[warp : warp + LANES] |= [bool(mask >> lane & 1) for lane in range(LANES)]
        missing = np.flatnonzero(needed & self._live & ~present) // LANES
        return willing[~np.isin(willing // LANES, missing)]

    def _waiting_at_barrier(self, instruction: Instruction) -> np.ndarray:
        """Live threads at any barrier with the same operands."""
        if isinstance(instruction.operands[0], Register) or len(instruction.operands) > 1:
            raise NotImplementedError(f"{instruction.name} with {instruction.operands}")
        waiting = []
        for thread in np.flatnonzero(self._live):
            at = int(self._at[thread])
            other = self._kernel.body[at] if at < len(self._kernel.body) else None
            if (
                other is not None
                and other.opcode == instruction.opcode
                and other.operands == instruction.operands
                and len(self._do.guarded(other, np.array([thread])))
            ):
                waiting.append(thread)
        return np.array(waiting, np.int64)
