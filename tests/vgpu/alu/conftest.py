"""Compiles definitions and runs them over arrays."""

import ctypes
import itertools
from functools import cache, lru_cache

import llvmlite.binding as llvm
import numpy as np
import pytest

from lethe_env.vgpu.alu import library

_DTYPES = {"b8": np.uint8, "pred": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64}
_FLOATS = {"f32": np.float32, "f64": np.float64}
_ARITHMETIC = ("add", "sub", "mul", "fma", "div")  # which of two NaNs they give is not promised
_SERIAL = itertools.count()


@lru_cache(maxsize=1)
def _engine():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=1, jit=True
    )
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine), machine


def _vector(element, lanes):
    return element if lanes == 1 else f"<{lanes} x {element}>"


def _memory_element(register):
    return "i8" if register == "pred" else f"i{register[1:]}"


def loop_over(definition, lanes, name):
    """IR of a function that calls the definition for each group of lanes."""
    lines = [
        f"define void @{name}(ptr %inputs, ptr %outputs, i64 %groups) {{",
        "  br label %loop",
        "loop:",
        "  %group = phi i64 [ 0, %0 ], [ %next, %loop ]",
    ]
    arguments = []
    for index, register in enumerate(definition.operand_types):
        stored = _vector(_memory_element(register), lanes)
        lines += [
            f"  %is{index} = getelementptr ptr, ptr %inputs, i64 {index}",
            f"  %ip{index} = load ptr, ptr %is{index}",
            f"  %ia{index} = getelementptr {stored}, ptr %ip{index}, i64 %group",
            f"  %iv{index} = load {stored}, ptr %ia{index}, align 1",
        ]
        value, kind = f"%iv{index}", stored
        if register == "pred":
            kind = _vector("i1", lanes)
            lines.append(f"  %it{index} = trunc {stored} {value} to {kind}")
            value = f"%it{index}"
        arguments.append(f"{kind} {value}")
    results = [
        _vector("i1" if r == "pred" else f"i{r[1:]}", lanes) for r in definition.result_types
    ]
    returned = results[0] if len(results) == 1 else "{ " + ", ".join(results) + " }"
    lines.append(f'  %result = call {returned} @"{definition.name}"({", ".join(arguments)})')
    for index, register in enumerate(definition.result_types):
        value = "%result"
        if len(results) > 1:
            lines.append(f"  %r{index} = extractvalue {returned} %result, {index}")
            value = f"%r{index}"
        stored = _vector(_memory_element(register), lanes)
        if register == "pred":
            lines.append(f"  %ot{index} = zext {results[index]} {value} to {stored}")
            value = f"%ot{index}"
        lines += [
            f"  %os{index} = getelementptr ptr, ptr %outputs, i64 {index}",
            f"  %op{index} = load ptr, ptr %os{index}",
            f"  %oa{index} = getelementptr {stored}, ptr %op{index}, i64 %group",
            f"  store {stored} {value}, ptr %oa{index}, align 1",
        ]
    lines += [
        "  %next = add i64 %group, 1",
        "  %done = icmp eq i64 %next, %groups",
        "  br i1 %done, label %end, label %loop",
        "end:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


@cache
def compiled(definition, shared, lanes):
    """The address of the loop over a definition."""
    engine, machine = _engine()
    name = f"alu_test_{next(_SERIAL)}"
    module = llvm.parse_assembly(shared + definition.ir + loop_over(definition, lanes, name))
    module.triple = llvm.get_default_triple()
    module.data_layout = str(machine.target_data)
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.run(module, builder)
    engine.add_module(module)
    engine.finalize_object()
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return signature(engine.get_function_address(name))


def run_definition(definition, shared, lanes, operands):
    """The results over arrays of equal length, as a tuple."""
    length = len(operands[0])
    padded = -(-length // lanes) * lanes
    inputs = []
    for register, operand in zip(definition.operand_types, operands, strict=True):
        array = np.zeros(padded, _DTYPES[register])
        array[:length] = operand
        inputs.append(array)
    outputs = [np.zeros(padded, _DTYPES[register]) for register in definition.result_types]
    pointers = [
        (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        for arrays in (inputs, outputs)
    ]
    compiled(definition, shared, lanes)(*pointers, padded // lanes)
    return tuple(output[:length] for output in outputs)


def _same(a, b):
    """Equal, with the sign of zeros, or both NaN of any bits."""
    return (a == b and np.signbit(a) == np.signbit(b)) or (np.isnan(a) and np.isnan(b))


def evaluate(opcode, *operands):
    """The results of an opcode; scalar code is checked to give the same as warp code."""
    parts = tuple(opcode.split("."))
    by_lanes = {}
    for lanes in (32, 1):
        definition = library.define(parts, lanes)
        shared = library.prelude(definition.requires, lanes)
        by_lanes[lanes] = run_definition(definition, shared, lanes, operands)
    kind = parts[-1].removesuffix("x2")
    for warp, scalar in zip(by_lanes[32], by_lanes[1], strict=True):
        same = np.array_equal(warp, scalar)
        if parts[0] in _ARITHMETIC and kind in _FLOATS:
            numbers = (result.view(_FLOATS[kind]) for result in (warp, scalar))
            same = all(map(_same, *numbers))
        assert same, f"{opcode}: scalar and warp code differ"
    return by_lanes[32] if len(by_lanes[32]) > 1 else by_lanes[32][0]


@pytest.fixture(scope="session")
def alu():
    """`alu(opcode, *operands)` runs an opcode over arrays of raw bits."""
    return evaluate
