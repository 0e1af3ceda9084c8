"""Strictness: what is not known exactly is refused."""

import llvmlite.binding as llvm
import pytest

from lethe_env.vgpu.alu import library, mma
from lethe_env.vgpu.alu.accumulation import HOPPER
from lethe_env.vgpu.ptx.model import UnsupportedError

REFUSED = (
    *(
        "frobnicate.f32",
        "add",
        "add.f8",
        "add.rz.f32.bf16",
        "div.rn.f32x2",
        "add.rna.f32",
        "add.u8",
    ),
    *("add.sat.u32", "add.ftz.f64", "add.ftz.bf16", "add.sat.f64", "add.rz.f16", "fma.f32"),
    *("mul.s32", "mul.wide.s64", "mul.ftz.s32", "mul24.lo.s32", "mad.wide.cc.u32", "div.f32"),
    *("div.approx.f64", "max.NaN.f64", "max.xorsign.f32", "min.b32", "max.NaN.s32", "abs.u32"),
    *("shl.s32", "shl.wrap.b32", "shf.l.b32", "shf.l.wrap.b64", "prmt.b32.f5e", "lop3.and.b32"),
    *("mov.b32.pack4", "mov.f32.pack2", "mov.v2.b32", "popc.u32", "bfind.b32", "selp.pred"),
    *(
        "setp.f32",
        "setp.lt.b32",
        "setp.equ.s32",
        "setp.lo.s32",
        "setp.lt.f16x2",
        "setp.lt.nand.s32",
    ),
    *(
        "set.lt.f32",
        "setp",
        "set.lt.u32.f16x2",
        "slct.b32.u32",
        "cvt.f32",
        "cvt.f16.f32",
        "cvt.s32.f32",
        "cvt.rn.s32.f32",
    ),
    *("cvt.rn.f32.f16x2", "cvt.rni.f32.f16", "cvt.rs.f16.f32", "cvt.rn.e2m1x2.f32", "cvt.f32.s32"),
    *(
        "cvt.rn.ftz.f64.s32",
        "cvt.rz.f16.f64",
        "cvt.rn.sat.bf16.f32",
        "ex2.f32",
        "ex2.rn.f32",
        "ex2.approx.f64",
    ),
    *("tanh.approx.ftz.f32", "sin.approx.f16", "rcp.approx.f64", "sqrt.approx.f64", "rsqrt.rn.f32"),
)


@pytest.mark.parametrize("opcode", REFUSED)
def test_unknown_opcodes_and_modifiers_are_refused(opcode):
    with pytest.raises(UnsupportedError) as caught:
        library.define(tuple(opcode.split(".")), 32)
    assert caught.value.opcode == opcode
    assert opcode in str(caught.value)


@pytest.mark.parametrize(
    "opcode",
    (
        "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16",
        "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
        "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
    ),
)
def test_unknown_matrix_products_are_refused(opcode):
    with pytest.raises(UnsupportedError, match="unsupported"):
        mma.define(tuple(opcode.split(".")), HOPPER)


def test_a_definition_says_what_it_takes_and_gives():
    carry = library.define(("mad", "lo", "cc", "u32"), 32)
    assert carry.name == "alu.mad.lo.cc.u32.x32"
    assert carry.operand_types == ("b32", "b32", "b32")
    assert carry.result_types == ("b32", "pred")
    assert library.define(("cvt", "s32", "s8"), 1).operand_types == ("b16",)
    assert library.define(("shl", "b64"), 32).operand_types == ("b64", "b32")
    assert library.define(("selp", "f64"), 32).operand_types == ("b64", "b64", "pred")


def test_preludes_join_with_definitions_into_one_module():
    opcodes = [("tanh", "approx", "f32"), ("ex2", "approx", "ftz", "f32"), ("add", "f16x2")]
    text = []
    for lanes in (1, 32):
        definitions = [library.define(opcode, lanes) for opcode in opcodes]
        required = frozenset().union(*(d.requires for d in definitions))
        assert required == {"tanh", "ex2"}
        text += [library.prelude(required, lanes), *(d.ir for d in definitions)]
    llvm.parse_assembly("\n".join(text)).verify()
