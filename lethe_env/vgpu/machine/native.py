"""LLVM: module text to a native object, and a native object to callable code."""

from __future__ import annotations

import threading
from enum import IntEnum

import llvmlite.binding as llvm

_LOCK = threading.Lock()


class Effort(IntEnum):
    """How much time code is worth before it runs: LLVM's levels of code generation."""

    LITTLE = 0
    """Registers are kept in memory between instructions."""
    SOME = 1
    """Registers are allocated with care, which takes twice as long."""
    MUCH = 2
    """Loops are simplified, and code is scheduled: three to four times as long."""


def target_machine(effort: Effort = Effort.MUCH) -> llvm.TargetMachine:
    """The processor this process runs on; an execution engine owns the one it is given."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    features = llvm.get_host_cpu_features().flatten()
    # Vectors are a whole warp wide: the widest registers pay.
    features = features.replace("+prefer-256-bit", "-prefer-256-bit")
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=int(effort), jit=True
    )


def compile_object(text: str, effort: Effort = Effort.LITTLE) -> bytes:
    """Simplify a module and emit it for this processor.

    Args:
        text: LLVM IR.
        effort: how good the code shall be.

    Returns:
        An object file; valid in any process on the same kind of processor.
    """
    with _LOCK:
        machine = target_machine(effort)
        module = llvm.parse_assembly(text)
        module.triple = llvm.get_default_triple()
        module.data_layout = str(machine.target_data)
        module.verify()
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
        passes = builder.getModulePassManager() if effort is Effort.MUCH else _few_passes()
        passes.run(module, builder)
        return machine.emit_object(module)


def _few_passes() -> llvm.newpassmanagers.ModulePassManager:
    """What makes code small, and so takes less time than it saves when code is emitted."""
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_dead_code_elimination_pass()
    return passes


def define_symbol(name: str, address: int) -> None:
    """Let code that is loaded from now on call a function by name."""
    llvm.add_symbol(name, address)


class NativeCode:
    """A loaded object file."""

    def __init__(self, object_bytes: bytes) -> None:
        with _LOCK:
            machine = target_machine()
            empty = llvm.parse_assembly("")
            empty.triple = llvm.get_default_triple()
            self._engine = llvm.create_mcjit_compiler(empty, machine)
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(object_bytes))
            self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        """Address of an external function."""
        return self._engine.get_function_address(symbol)
