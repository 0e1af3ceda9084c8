"""What counts as using a value that nobody has written, and what does not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lethe_env.vgpu.machine.program import Options, build
from lethe_env.vgpu.memory import AddressSpace
from lethe_env.vgpu.ptx.model import Address, Register
from lethe_env.vgpu.ptx.parser import parse
from lethe_env.vgpu.tracking.kernel import tracking_kernel

from ..machine.conftest import assemble

SHARED_BYTES = 4096
PLACES = """add.s64 %d3, %d1, %d21; add.s64 %d4, %d2, %d21; shl.b32 %r5, %r1, 2; mov.b32 %r6, 7;
setp.lt.s32 %p1, %r1, 0;"""
LOAD = "ld.global.b32 %r2, [%d3];"
"""`%r2`: undefined in its upper half. `%p1`: false. `%r6`: 7. `%d4`: where to store."""
STORE = "st.global.b32 [%d4], %r3;"
SHARE = "st.shared.b32 [%r5], %r2; ld.shared.b32 %r3, [%r5];"
COPY = """cp.async.ca.shared.global [%r5], [%d3], 4{given}; cp.async.wait_all;
bar.warp.sync -1; ld.shared.b32 %r3, [%r5];"""

UNUSED = {
    "nothing": "",
    "the other side of a choice": f"selp.b32 %r3, %r2, %r6, %p1; {STORE}",
    "the other side by sign": f"slct.b32.s32 %r3, %r6, %r2, %r1; {STORE}",
    "a condition that a false one overrules": f"""setp.gt.s32 %p2, %r2, 0; and.pred %p3, %p1, %p2;
        selp.b32 %r3, %r2, %r6, %p3; {STORE}""",
    "a condition that a true one overrules": f"""setp.gt.s32 %p2, %r2, 0; not.pred %p4, %p1;
        or.pred %p3, %p4, %p2; selp.b32 %r3, %r6, %r2, %p3; {STORE}""",
    "a store that is off": "@%p1 st.global.b32 [%d4], %r2;",
    "a move that is off": f"mov.b32 %r3, 5; @%p1 mov.b32 %r3, %r2; {STORE}",
    "a value that is replaced": f"mov.b32 %r3, %r2; mov.b32 %r3, 5; {STORE}",
    "the half that is written": "mov.b32 {%h1, %h2}, %r2; st.global.b16 [%d4], %h1;",
    "bytes that are written": "cvt.u16.u32 %h1, %r2; st.global.b16 [%d4], %h1;",
    "bits under a mask": f"and.b32 %r3, %r2, 0xffff; {STORE}",
    "bits shifted out": f"shl.b32 %r3, %r2, 16; {STORE}",
    "bits of a field": f"bfe.u32 %r3, %r2, 3, 9; {STORE}",
    "bytes picked": f"prmt.b32 %r3, %r2, %r6, 0x1010; {STORE}",
    "one of two halves": """add.f16x2 %r3, %r2, %r2; mov.b32 {%h1, %h2}, %r3;
        st.global.b16 [%d4], %h1;""",
    "one of two rounded": """cvt.rn.f16x2.f32 %r3, %r2, %r6; mov.b32 {%h1, %h2}, %r3;
        st.global.b16 [%d4], %h1;""",
    "a detour by shared memory": f"{SHARE} and.b32 %r3, %r3, 0xffff; {STORE}",
    "shared memory written anew": f"""{SHARE} st.shared.b32 [%r5], %r6; ld.shared.b32 %r3, [%r5];
        {STORE}""",
    "another lane's": f"""shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1; and.b32 %r3, %r3, 0xffff;
        {STORE}""",
    "an asynchronous copy": f"{COPY.format(given='')} and.b32 %r3, %r3, 0xffff; {STORE}",
    "a copy of nothing": f"{COPY.format(given=', 0')} {STORE}",
    "a branch around": f"""not.pred %p4, %p1; @%p4 bra AROUND; mov.b32 %r3, %r2; {STORE}
        AROUND: mov.b32 %r3, 5; {STORE}""",
}
USED = {
    "stored": "st.global.b32 [%d4], %r2;",
    "stored to who knows where": "st.b32 [%d4], %r2;",
    "the half that is not written": "mov.b32 {%h1, %h2}, %r2; st.global.b16 [%d4], %h2;",
    "chosen": f"selp.b32 %r3, %r6, %r2, %p1; {STORE}",
    "the choice": f"setp.gt.s32 %p2, %r2, 0; selp.b32 %r3, 1, 2, %p2; {STORE}",
    "a guard of a move": f"""setp.gt.s32 %p2, %r2, 0; mov.b32 %r3, 5; @%p2 mov.b32 %r3, 6;
        {STORE}""",
    "a guard of a store": "setp.gt.s32 %p2, %r2, 0; @%p2 st.global.b32 [%d4], %r6;",
    "a guard of a load": "setp.gt.s32 %p2, %r2, 0; @%p2 ld.global.b32 %r3, [%d4];",
    "a condition that a true one lets through": f"""setp.gt.s32 %p2, %r2, 0; not.pred %p4, %p1;
        and.pred %p3, %p4, %p2; selp.b32 %r3, 1, 2, %p3; {STORE}""",
    "a branch": "setp.gt.s32 %p2, %r2, 0; @%p2 bra NEXT; NEXT: mov.b32 %r3, 5;",
    "an address": """and.b32 %r3, %r2, 0; add.u32 %r3, %r3, %r2; shr.u32 %r3, %r3, 30;
        cvt.u64.u32 %d5, %r3; add.s64 %d5, %d5, %d4; ld.global.b8 %h1, [%d5];""",
    "computed with": f"add.s32 %r3, %r2, %r6; {STORE}",
    "carried": f"add.cc.u32 %r3, %r2, %r2; addc.u32 %r3, %r6, 0; {STORE}",
    "converted": f"cvt.rn.f32.s32 %r3, %r2; {STORE}",
    "shifted down": f"shr.u32 %r3, %r2, 16; {STORE}",
    "shifted by it": f"shr.u32 %r3, %r6, %r2; {STORE}",
    "its sign": f"bfe.s32 %r3, %r2, 10, 10; {STORE}",
    "both halves": f"add.f16x2 %r3, %r2, %r2; {STORE}",
    "by shared memory": f"{SHARE} {STORE}",
    "by another lane": f"shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1; {STORE}",
    "by an asynchronous copy": f"{COPY.format(given='')} {STORE}",
    "summed over the warp": f"redux.sync.add.s32 %r3, %r2, -1; {STORE}",
    "a vote": "setp.gt.s32 %p2, %r2, 0; vote.sync.any.pred %p3, %p2, -1;",
    "added in memory": "red.global.add.u32 [%d4], %r2;",
    "added in shared memory": "st.shared.b32 [%r5], 0; atom.shared.add.u32 %r3, [%r5], %r2;",
}
CASES = [*UNUSED, *USED]


@pytest.fixture(scope="module")
def used_cases() -> set[str]:
    """Cases in which a use is reported; all of them are one kernel, each with a line."""
    parts = [PLACES]
    for number, text in enumerate([*UNUSED.values(), *USED.values()]):
        own = text.replace("AROUND", f"AROUND{number}").replace("NEXT", f"NEXT{number}")
        parts.append(f".loc 1 {number + 1} 0\n{LOAD}\n{own}")
    kernel = parse(assemble("\n".join(parts), 2))
    loads = {i.index for i in kernel.body if Address(Register("%d3")) in i.operands}
    tracked = tracking_kernel(kernel, loads, SHARED_BYTES)
    memory = AddressSpace()
    x = torch.full((32,), 0x7FFF0003, dtype=torch.int32)
    out = torch.zeros(64, dtype=torch.int32)
    pointers = [memory.pointer(x), memory.pointer(out)]
    defined = np.tile(np.array([1, 1, 0, 0], np.uint8), 32)
    memory.table[pointers[0].address >> 40, 3] = defined.ctypes.data
    options = Options(shared_bytes=2 * SHARED_BYTES, races=False, barriers=False)
    report = build(tracked).run((1,), pointers, memory, options)
    uses = [f for f in report.findings if f.opcode.startswith("use.")]
    return {CASES[finding.location.line - 1] for finding in uses}


@pytest.mark.parametrize("case", UNUSED)
def test_what_is_thrown_away_is_no_use(used_cases, case):
    assert case not in used_cases


@pytest.mark.parametrize("case", USED)
def test_a_use_is_reported(used_cases, case):
    assert case in used_cases
