"""The parser gives exactly what the text says, and refuses what it does not know."""

from __future__ import annotations

import pytest

from lethe_env.vgpu.ptx.model import (
    Address,
    Dual,
    FloatImmediate,
    Immediate,
    Location,
    Negated,
    Parameter,
    Register,
    Symbol,
    UnsupportedError,
    Variable,
    Vector,
)
from lethe_env.vgpu.ptx.parser import parse

from .corpus import NAMES, load, text_of, wrapped


def only(body, **around):
    """The one instruction of a body."""
    (instruction,) = parse(wrapped(body, **around)).body
    return instruction


def test_an_instruction_with_guard_and_modifiers():
    instruction = only("@!%p1 fma.rn.ftz.f32 %r1, %r2, 0f3F800000, %r3;")
    assert instruction.opcode == ("fma", "rn", "ftz", "f32")
    assert instruction.operands == (
        Register("%r1"),
        Register("%r2"),
        FloatImmediate(0x3F800000, 32),
        Register("%r3"),
    )
    assert instruction.predicate == Register("%p1")
    assert instruction.negated


@pytest.mark.parametrize(
    ("text", "operand"),
    [
        ("17", Immediate(17)),
        ("-17", Immediate(-17)),
        ("0x1F", Immediate(31)),
        ("-0x10", Immediate(-16)),
        ("0b101U", Immediate(5)),
        ("0", Immediate(0)),
        ("017", Immediate(15)),
        ("4294967295U", Immediate(2**32 - 1)),
        ("0F7f800000", FloatImmediate(0x7F800000, 32)),
        ("0d3FF0000000000000", FloatImmediate(0x3FF0000000000000, 64)),
        ("1.5", FloatImmediate(0x3FF8000000000000, 64)),
        ("-2e3", FloatImmediate(0xC09F400000000000, 64)),
        ("WARP_SZ", Immediate(32)),
        ("%tid.x", Register("%tid.x")),
        ("_", Register("_")),
        ("!%p3", Negated(Register("%p3"))),
        ("{%r1, 2, _}", Vector((Register("%r1"), Immediate(2), Register("_")))),
        ("%r1|%p2", Dual(Register("%r1"), Register("%p2"))),
        ("[%d1]", Address(Register("%d1"))),
        ("[ %d1 + 16 ]", Address(Register("%d1"), 16)),
        ("[%d1+-16]", Address(Register("%d1"), -16)),
        ("[%d1-0x10]", Address(Register("%d1"), -16)),
        ("[data+4]", Address(Symbol("data"), 4)),
        ("[64]", Address(Immediate(64))),
        (
            "[%d1, {%r1, %r2}]",
            Address(Register("%d1"), 0, (Vector((Register("%r1"), Register("%r2"))),)),
        ),
    ],
)
def test_operands(text, operand):
    assert only(f"x.y {text};").operands == (operand,)


def test_opcodes_keep_double_colons_together():
    name = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    assert only(f"{name} [%r1], [%d1], 16, [%r2];").opcode == (
        "cp",
        "async",
        "bulk",
        "shared::cluster",
        "global",
        "mbarrier::complete_tx::bytes",
    )


def test_parameters_are_aligned_and_pointers_are_known():
    text = wrapped("ret;").replace(
        ".param .u32 count",
        ".param .u32 count, .param .f64 scale, .param .u8 flag, .param .align 64 .b8 map[128]",
    )
    assert parse(text).parameters == (
        Parameter(name="data", type="u64", size_bytes=8, offset_bytes=0, pointer=True),
        Parameter(name="count", type="u32", size_bytes=4, offset_bytes=8),
        Parameter(name="scale", type="f64", size_bytes=8, offset_bytes=16),
        Parameter(name="flag", type="u8", size_bytes=1, offset_bytes=24),
        Parameter(name="map", type="b8", size_bytes=128, offset_bytes=64),
    )


def test_registers_are_spelled_out():
    kernel = parse(wrapped(".reg .f32 %f<2>, single; ret;"))
    assert kernel.registers["%f1"] == "f32"
    assert kernel.registers["single"] == "f32"
    assert kernel.registers["%p8"] == "pred"
    assert "%f2" not in kernel.registers


def test_variables_hold_their_first_bytes():
    module = """
    .extern .shared .align 16 .b8 global_smem[];
    .global .align 4 .u32 pair[3] = {258, -1};
    .const .f32 one = 0f3F800000;
    """
    kernel = parse(wrapped(".local .align 8 .b8 depot[24]; ret;", module=module))
    assert dict(kernel.variables) == {
        "global_smem": Variable(name="global_smem", space="shared", size_bytes=0, align_bytes=16),
        "pair": Variable(
            name="pair",
            space="global",
            size_bytes=12,
            align_bytes=4,
            data=b"\x02\x01\0\0\xff\xff\xff\xff\0\0\0\0",
        ),
        "one": Variable(
            name="one", space="const", size_bytes=4, align_bytes=4, data=b"\0\0\x80\x3f"
        ),
        "depot": Variable(name="depot", space="local", size_bytes=24, align_bytes=8),
    }


def test_names_of_inner_blocks_are_kept_apart():
    loop = """
    {
        .reg .pred done;
        again:
        setp.eq.s32 done, %r1, 0;
        @!done bra again;
    }
    """
    kernel = parse(wrapped(loop + loop))
    assert dict(kernel.labels) == {"again.1": 0, "again.2": 2}
    assert kernel.body[1].predicate == Register("done.1")
    assert kernel.body[3].operands == (Symbol("again.2"),)
    assert kernel.registers["done.2"] == "pred"


def test_an_inner_block_sees_the_registers_around_it():
    kernel = parse(wrapped("{ .reg .b32 %r1; mov.b32 %r1, %r2; } mov.b32 %r1, 0;"))
    assert kernel.body[0].operands == (Register("%r1.1"), Register("%r2"))
    assert kernel.body[1].operands == (Register("%r1"), Immediate(0))


def test_forward_labels_and_labels_that_nothing_names():
    kernel = parse(wrapped("unused: bra.uni done; mov.b32 %r1, 1; done: ret;"))
    assert dict(kernel.labels) == {"done": 2}


def test_a_label_may_stand_at_the_end():
    assert parse(wrapped("bra end; end:")).labels == {"end": 1}


def test_a_call_with_its_parameters():
    body = """
    {
        .param .b64 out;
        .param .b32 into;
        st.param.b32 [into], %r1;
        call.uni (out), helper, (into);
    }
    """
    kernel = parse(wrapped(body, module=".extern .func (.param .b64 x) helper (.param .b32 y);"))
    assert kernel.body[1].operands == (
        Vector((Symbol("out.1"),)),
        Symbol("helper"),
        Vector((Symbol("into.1"),)),
    )
    assert kernel.variables["into.1"].space == "param"


def test_a_branch_table_stands_in_the_branch():
    body = """
    a: mov.b32 %r1, 0;
    table: .branchtargets a, b;
    brx.idx %r1, table;
    b: ret;
    """
    kernel = parse(wrapped(body))
    assert kernel.body[1].operands == (Register("%r1"), Vector((Symbol("a"), Symbol("b"))))


def test_calls_become_what_the_function_does():
    module = ".func helper(.param .b32 x) { .reg .b32 %z; { mov.b32 %z, 1; } ret; }"
    assert len(parse(wrapped("ret;", module=module)).body) == 1
    body = "{ .param .b32 x; st.param.b32 [x], %r1; call helper, (x); }"
    kernel = parse(wrapped(body, module=module))
    assert [instruction.name for instruction in kernel.body] == ["st.param.b32", "mov.b32", "bra"]


def test_code_inlined_from_a_library_belongs_to_its_caller():
    files = '.file 1 "/a/kernel.py"\n.file 2 "/b/standard.py"\n'
    body = """
    .loc 1 7 4 // kernel.py:7:4
    add.s32 %r1, %r2, %r3;
    .loc 2 90 2 // standard.py:90:2 @[ standard.py:12:1 @[ kernel.py:9:8 ] ]
    add.s32 %r1, %r2, %r3;
    .loc 2 90 2, function_name $L__info, inlined_at 1 11 8
    add.s32 %r1, %r2, %r3;
    """
    kernel = parse(wrapped(body) + files)
    assert [instruction.location for instruction in kernel.body] == [
        Location("/a/kernel.py", 7),
        Location("/a/kernel.py", 9),
        Location("/a/kernel.py", 11),
    ]


def test_debug_sections_are_skipped():
    section = '.section .debug_info\n{\n.b32 12+4 // "a } in a comment\n.b64 $L__tmp1\n}\n'
    assert len(parse(wrapped("ret;") + section).body) == 1


def test_comments_and_pragmas_mean_nothing():
    kernel = parse(wrapped('/* mov.b32 %r1, 0; */ .pragma "nounroll"; // add\n ret;'))
    assert [instruction.name for instruction in kernel.body] == ["ret"]


def test_clusters_of_an_entry():
    kernel = parse(wrapped("ret;", entry=".reqntid 32 .reqnctapercluster 2, 3"))
    assert kernel.cluster == (2, 3, 1) and not kernel.explicit_cluster
    kernel = parse(wrapped("ret;", entry=".explicitcluster .maxclusterrank 4 .reqntid 32"))
    assert kernel.cluster is None and kernel.explicit_cluster and kernel.threads == 32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (wrapped(".surprise 1; ret;"), "the directive .surprise"),
        (wrapped("ret; ", module=".surprise 1;"), "`.surprise` where a directive of a module"),
        (wrapped("ret;", entry=".reqntid 32 .surprise"), "`.surprise` on the entry k"),
        (wrapped("ret;", entry=".maxntid 32"), "without `.reqntid`"),
        (wrapped("ret;", entry=".reqntid 8, 4"), "more than one dimension"),
        (wrapped("mov.b32 %r1, #;"), "cannot be read from '#;' on"),
        (wrapped("mov.b32 %r1, 12x;"), "cannot be read from '12x;' on"),
        (wrapped("mov.b32 %r1, 089;"), "octal"),
        (wrapped("mov.b32 %r1 %r2;"), "`%r2` where `,`"),
        (wrapped("mov.b32 %r1, %r2"), "`}` where `,`"),
        (wrapped("mov.b32 %r1, %r99;"), "the register %r99"),
        (wrapped("mov.b32 %r1, %strange.x;"), "the register %strange.x"),
        (wrapped("mov.b32 %r1, nowhere;"), "the name nowhere"),
        (wrapped("bra nowhere;"), "the name nowhere"),
        (wrapped("@%r1 bra $L; $L: ret;"), "the guard @%r1"),
        (wrapped("ld.global.b32 %r1, [%d1 + %d2];"), "`%d2` where an integer"),
        (wrapped("ld.global.b32 %r1, [%d1 + 1.5];"), "an integer offset"),
        (wrapped(".reg .b32 %r3; ret;"), "`%r3` declared twice"),
        (wrapped("a: ret; a: ret;"), "`a` declared twice"),
        (wrapped(".reg .q32 %q; ret;"), "registers of the type .q32"),
        (wrapped("ret;", module=".global .u64 p[1] = {other};"), "the address `other`"),
        (wrapped("ret;", module=".global .strange .u64 p;"), "`.strange` in a declaration"),
        (wrapped("brx.idx %r1, table; table: ret;"), "no targets table"),
        (wrapped("mov.b32 %r1, {%r2;"), "`;` where `,`"),
        (".version 8.7\n.target sm_80\n", "without an entry point"),
        (wrapped("ret;") + wrapped("ret;"), "two entry points"),
        (wrapped("ret;")[:-3], "where a statement is expected"),
        (wrapped("%r1, %r2;"), "`%r1` in place of an opcode"),
    ],
)
def test_what_is_not_known_is_refused(text, message):
    with pytest.raises(UnsupportedError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_an_error_names_opcode_and_source_line():
    text = wrapped(".loc 1 7 4\n shfl.sync.idx.b32 %r1, %r77, 0, 31, -1;") + '.file 1 "/a/k.py"\n'
    with pytest.raises(UnsupportedError) as caught:
        parse(text)
    assert caught.value.opcode == "shfl.sync.idx.b32"
    assert caught.value.location == Location("/a/k.py", 7)


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_of_a_real_kernel_is_parsed(name):
    kernel, _ = load(name)
    code = text_of(name).split("\n{\n", 1)[1].split("$L__func_end0", 1)[0]
    lines = [line.split("//")[0].strip() for line in code.splitlines()]
    statements = [line for line in lines if line.endswith(";") and not line.startswith(".")]
    assert len(kernel.body) == len(statements)
    assert [i.name for i in kernel.body] == [_opcode(statement) for statement in statements]
    assert all(instruction.location is not None for instruction in kernel.body)


def _opcode(statement):
    words = statement.rstrip(";").split()
    return words[1] if words[0].startswith("@") else words[0]
