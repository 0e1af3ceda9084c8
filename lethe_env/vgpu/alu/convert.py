"""`cvt` between all integer and floating-point types.

A source register wider than the type is to be truncated by the caller. 8-bit results are extended
to 16 bits by their sign.
"""

from __future__ import annotations

from collections.abc import Mapping

from . import directed, narrow, rounding
from .builder import Builder, Value
from .floating import ROUNDINGS
from .integer import Definer
from .opcode import SCALARS, Modifiers, Scalar

_INTEGER_ROUNDINGS = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_INTEGERS = tuple(f"{kind}{bits}" for kind in "su" for bits in (8, 16, 32, 64))
_FLOATS = ("f16", "bf16", "f32", "f64")
_PACKED = ("f16x2", "bf16x2")
_LARGEST_FINITE = {"f16": 65504.0, "bf16": float.fromhex("0x1.fep127")}


def convert(code: Modifiers, build: Builder) -> None:
    """`cvt.<modifiers>.<destination>.<source>`."""
    if not narrow.FORMATS.keys().isdisjoint(code.opcode):
        narrow.convert(code, build)
        return
    if code.opcode[-2:-1] == ("tf32",):
        to_tf32(code, build)
        return
    if code.opcode[-2:-1] and code.opcode[-2] in _PACKED:
        to_packed(code, build)
        return
    source = code.scalar(*_INTEGERS, *_FLOATS)
    destination = code.scalar(*_INTEGERS, *_FLOATS)
    if source.floating and destination.floating:
        float_to_float(code, build, destination, source)
    elif source.floating:
        float_to_integer(code, build, destination, source)
    elif destination.floating:
        integer_to_float(code, build, destination, source)
    else:
        integer_to_integer(code, build, destination, source)


def _integer_operand(build: Builder, source: Scalar) -> Value:
    return build.resize(build.operand(source.register), source.bits)


def _integer_result(build: Builder, destination: Scalar, value: Value) -> None:
    build.result(build.resize(value, max(destination.bits, 16), destination.signed))


def integer_to_integer(
    code: Modifiers, build: Builder, destination: Scalar, source: Scalar
) -> None:
    """Truncation or extension; `.sat` clamps to the destination's range."""
    saturates = code.flag("sat")
    code.finish()
    value = _integer_operand(build, source)
    if saturates:
        value = _clamp_integer(build, value, destination, source)
    _integer_result(build, destination, build.resize(value, destination.bits, source.signed))


def _range(scalar: Scalar) -> tuple[int, int]:
    if scalar.signed:
        return -(1 << (scalar.bits - 1)), (1 << (scalar.bits - 1)) - 1
    return 0, (1 << scalar.bits) - 1


def _clamp_integer(build: Builder, value: Value, destination: Scalar, source: Scalar) -> Value:
    (low, high), (source_low, source_high) = _range(destination), _range(source)
    prefix = "s" if source.signed else "u"
    if low > source_low:
        value = build.intrinsic(f"{prefix}max", value, build.constant(low, value))
    if high < source_high:
        value = build.intrinsic(f"{prefix}min", value, build.constant(high, value))
    return value


def integer_to_float(code: Modifiers, build: Builder, destination: Scalar, source: Scalar) -> None:
    """Rounded once: in any mode for f32 and f64, to nearest even for the 16-bit formats."""
    mode = code.choice(*ROUNDINGS)
    code.finish()
    if mode != "rn" and destination.bits == 16:
        raise code.unsupported(f".{mode} is implemented for .f32 and .f64 only")
    value = _integer_operand(build, source)
    operation = "sitofp" if source.signed else "uitofp"
    if mode == "rn" and destination.bits > 16:
        element = "double" if destination.bits == 64 else "float"
        build.result(build.cast(operation, value, element))
    elif destination.bits == 64:
        build.result(_integer_to_double(build, value, source.signed, mode))
    else:
        wide = _integer_to_double(build, value, source.signed, "odd")
        inner = "odd" if destination.bits == 16 else mode
        rounded = rounding.double_to_float(build, wide, inner)
        build.result(rounding.narrow(build, rounded, destination))


def _integer_to_double(build: Builder, value: Value, signed: bool, mode: str) -> Value:
    operation = "sitofp" if signed else "uitofp"
    if value.bits < 64:
        return build.cast(operation, value, "double")
    high = build.binary("ashr" if signed else "lshr", value, 32)
    upper = build.binary("fmul", build.cast(operation, high, "double"), float(1 << 32))
    lower = build.cast("uitofp", build.binary("and", value, 0xFFFFFFFF), "double")
    if mode == "odd":
        return rounding.add_to_odd(build, upper, lower)
    return directed.apply(build, "fadd", mode, upper, lower)


def float_to_integer(code: Modifiers, build: Builder, destination: Scalar, source: Scalar) -> None:
    """Saturating; a NaN is 0, or the top bit alone where either side has 64 bits."""
    mode = code.choice(*_INTEGER_ROUNDINGS)
    flushes = _take_flush(code, destination, source)
    code.flag("sat")
    code.finish()
    value = _float_operand(build, source, flushes)
    rounded = build.intrinsic(_INTEGER_ROUNDINGS[mode], value)
    integer = build.saturating_integer(rounded, destination.bits, destination.signed)
    if source.bits == 64 or destination.bits == 64:
        unordered = build.compare("uno", value, value)
        integer = build.select(unordered, 1 << (destination.bits - 1), integer)
    _integer_result(build, destination, integer)


def _take_flush(code: Modifiers, destination: Scalar, source: Scalar) -> bool:
    flushes = code.flag("ftz")
    if flushes and "f32" not in (destination.name, source.name):
        raise code.unsupported(".ftz needs an .f32 on one side")
    return flushes


def _float_operand(build: Builder, source: Scalar, flushes: bool) -> Value:
    bits = build.operand(source.register)
    if flushes and source.name == "f32":
        bits = rounding.flush_bits(build, bits)
    return rounding.widen(build, bits, source)


def float_to_float(code: Modifiers, build: Builder, destination: Scalar, source: Scalar) -> None:
    """Widening, narrowing in every mode, and rounding to an integral value."""
    if source.name == destination.name:
        _same_format(code, build, source)
        return
    flushes = _take_flush(code, destination, source)
    exact = destination.bits > source.bits
    same_size = destination.bits == source.bits
    mode = code.choice(*ROUNDINGS, default="rn" if exact or same_size else None)
    if exact and mode != "rn":
        raise code.unsupported("a widening conversion has no rounding")
    saturates = _take_saturation(code, destination)
    relu, finite = _take_limits(code, destination, source)
    code.finish()
    value = _float_operand(build, source, flushes)
    if saturates:
        value = rounding.saturate(build, value)
    value = _limit(build, value, destination, relu, finite)
    if exact:
        bits = build.bits(build.cast("fpext", value, "double") if destination.bits == 64 else value)
    else:
        bits = _narrowed(code, build, value, destination, mode)
    flushes_result = flushes and destination.name == "f32"
    build.result(rounding.flush_bits(build, bits) if flushes_result else bits)


def _take_saturation(code: Modifiers, destination: Scalar) -> bool:
    saturates = code.flag("sat")
    if saturates and destination.kind == "bf":
        raise code.unsupported(".sat does not go with .bf16")
    return saturates


def _take_limits(code: Modifiers, destination: Scalar, source: Scalar) -> tuple[bool, bool]:
    """`.relu` and `.satfinite`, which only conversions of f32 to 16 bits have."""
    if destination.bits != 16 or source.name != "f32":
        return False, False
    return code.flag("relu"), code.flag("satfinite")


def _limit(build: Builder, value: Value, destination: Scalar, relu: bool, finite: bool) -> Value:
    if relu:
        value = rounding.clamp_negative(build, value)
    if finite:
        largest = _LARGEST_FINITE[destination.name]
        value = build.intrinsic("minimum", value, build.constant(largest, value))
        value = build.intrinsic("maximum", value, build.constant(-largest, value))
    return value


def _narrowed(
    code: Modifiers, build: Builder, value: Value, destination: Scalar, mode: str
) -> Value:
    if destination.bits == 32:
        return build.bits(rounding.double_to_float(build, value, mode))
    if value.bits == 64:
        if mode != "rn":
            raise code.unsupported(f".{mode} from .f64 is implemented for .f32 only")
        return rounding.narrow_double(build, value, destination)
    if mode == "rn":
        return rounding.narrow(build, value, destination)
    return rounding.narrow_directed(build, value, destination, mode)


def _same_format(code: Modifiers, build: Builder, scalar: Scalar) -> None:
    mode = code.choice(*_INTEGER_ROUNDINGS, default="")
    flushes = _take_flush(code, scalar, scalar)
    saturates = _take_saturation(code, scalar)
    code.finish()
    value = _float_operand(build, scalar, flushes)
    if mode:
        value = build.intrinsic(_INTEGER_ROUNDINGS[mode], value)
    if saturates:
        value = rounding.saturate(build, value)
    build.result(rounding.narrow(build, value, scalar))


def to_packed(code: Modifiers, build: Builder) -> None:
    """`cvt.rn.f16x2.f32 d, a, b`: `a` goes to the upper half, `b` to the lower."""
    source = code.scalar("f32")
    destination = SCALARS[code.type_name(*_PACKED).removesuffix("x2")]
    mode = code.choice("rn", "rz")
    relu, finite = _take_limits(code, destination, source)
    code.finish()
    halves = []
    for _ in range(2):
        value = _limit(build, build.floats(build.operand("b32")), destination, relu, finite)
        halves.append(build.resize(_narrowed(code, build, value, destination, mode), 32))
    upper, lower = halves
    build.result(build.binary("or", build.binary("shl", upper, 16), lower))


def to_tf32(code: Modifiers, build: Builder) -> None:
    """`cvt.rna.tf32.f32` and `.rn`: the low 13 bits of the result are zero."""
    code.type_name("f32")
    code.type_name("tf32")
    mode = code.choice("rna", "rn")
    code.finish()
    bits = build.operand("b32")
    value = build.floats(bits)
    if mode == "rna":
        biased = build.binary("add", bits, 0x1000)
    else:
        odd = build.binary("and", build.binary("lshr", bits, 13), 1)
        biased = build.binary("add", build.binary("add", bits, 0x0FFF), odd)
    finite = build.compare("ult", build.binary("and", bits, 0x7FFFFFFF), 0x7F800000)
    rounded = build.binary("and", build.select(finite, biased, bits), 0xFFFFE000)
    build.result(rounding.canonical_nan(build, value, rounded))


DEFINERS: Mapping[str, Definer] = {"cvt": convert}
