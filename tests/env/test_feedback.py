"""Feedback says what failed and never what was asked."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe_env.env.fault_text import FaultText, masked, read_fault
from lethe_env.env.feedback import KINDS, feedback
from lethe_env.gates.battery import GATE_NAMES
from lethe_env.gates.comparison import fault_text
from lethe_env.gates.verdict import Evidence, Finding, Status, Verdict, errored, failed, passed
from lethe_env.tasks.catalog import find_task
from lethe_env.tasks.families import FAMILIES
from lethe_env.tasks.observation import PHASES, Fault
from lethe_env.tasks.probe import LAYOUTS, WEIGHTS, Probe

from .secrets import assert_nothing_hidden

TASK = find_task("elementwise/relu")
SOURCE = """\
import triton.language as tl

def ModelNew(x):
    check(x)
    y = x.flatten2d(dim=3)
    raise ValueError(f"saw {x[0]}")
    assert x.sum() < 7, x
    tl.static_assert(x > 0, "x")
    return tl.where(x < 0, 0.0, x)
"""


def verdict_of(*findings: Finding, source: str = SOURCE, **fields) -> Verdict:
    return Verdict(
        task=TASK.to_json(),
        source=source,
        findings=findings,
        kernel=fields.pop("kernel", "triton"),
        **fields,
    )


def evidence(note: str = "", path: str = "output", **fields) -> Evidence:
    probe = Probe(sizes=dict(TASK.family.base), values="nan", seed=991_234, **fields)
    return Evidence(
        probe=probe.to_json(),
        label=probe.label,
        path=path,
        index=(2, 877),
        got=-3.141592,
        expected=math.nan,
        elements=4_321,
        note=note,
    )


def test_a_failure_names_the_gate_the_claim_and_the_kind_of_input():
    finding = failed("EXC-01", "values", score=0.75, evidence=(evidence(),), worst_ratio=5e3)
    told = feedback(verdict_of(finding))
    assert told.splitlines() == [
        "Rejected by EXC-01.",
        "EXC-01 asks that NaN and signed infinities appear exactly where the reference has them.",
        "  75 % of its checks passed, the error is up to 10^4 times what is allowed",
        "  * some NaN, float32, a small shape: values are outside the bound",
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dtype": "bfloat16"}, "some NaN, bfloat16, a small shape"),
        ({"layout": "expanded"}, "a small shape, expanded inputs"),
        ({"weights": "replaced"}, "a small shape, weights loaded after construction"),
    ],
)
def test_what_is_special_about_a_call_is_said(fields, words):
    assert words in feedback(verdict_of(failed("CMP-01", "x", evidence=(evidence(**fields),))))


@pytest.mark.parametrize(
    ("note", "words"),
    [
        ("missing", "an output is missing"),
        ("shape (3, 1031) instead of (3,)", "an output has the wrong shape"),
        ("dtype float32 instead of float16", "the wrong dtype (float16 is wanted)"),
        ("the reference returns no such output", "an output too many"),
        ("moved off the device of the inputs", "moved off the inputs' device"),
        ("shape or dtype differs between repeats", "shape or dtype differs between equal calls"),
        ("bytes differ between repeats, values do not", "equal calls return different bytes"),
        ("a repeat gave 1.5 after 2.5", "equal calls return different bytes"),
        ("shares memory with input[0]", "an output is memory of an input"),
        ("the call changed its input", "the call changed its input"),
        ("no gradient came back: the graph is severed", "the graph is severed"),
        ("−0 where the reference has +0", "a zero has the wrong sign"),
        ("forward: the call took more than 30 s", "in forward: the call took more than # s"),
        ("8.5 was seen", "the call went wrong"),
    ],
)
def test_what_the_gates_note_is_said_in_other_words(note, words):
    told = feedback(verdict_of(failed("CMP-01", "x", evidence=(evidence(note),))))
    assert words in told.splitlines()[-1]
    assert_nothing_hidden(verdict_of(failed("CMP-01", "x", evidence=(evidence(note),))))


@pytest.mark.parametrize(
    ("note", "words"),
    [
        (
            "262144 bytes of shared memory, the limit is 232448",
            "a kernel asks for more than 232448 bytes of shared memory",
        ),
        ("CompilationError: at 12:4", "a kernel does not compile: CompilationError: at #:#"),
    ],
)
def test_what_does_not_fit_the_hardware_is_told_with_the_limit(note, words):
    seen = Evidence(probe={}, label="k for sm_90", note=note)
    assert f"* {words}" in feedback(verdict_of(failed("RES-02", "x", evidence=(seen,))))


@pytest.mark.parametrize(
    ("launched", "words"),
    [
        ("check with dim=3, num_warps=4", "configuration dim=3, num_warps=4: values"),
        ("check with dim=64, num_stages=3", "configuration dim=64, num_stages=3: values"),
        ("check with dim=7717, num_warps=4", "one of its configurations: values"),
        ("check with secret=3", "one of its configurations: values"),
        ("check with dim=0.125", "one of its configurations: values"),
    ],
)
def test_the_autotune_configuration_is_told_as_far_as_the_source_lists_it(launched, words):
    seen = replace(evidence(), configuration=launched)
    verdict = verdict_of(failed("CMP-01", "x", evidence=(seen,)))
    assert words in feedback(verdict)
    assert_nothing_hidden(verdict)


def test_sizes_are_named_by_their_role():
    long = Probe(sizes=dict(TASK.family.long), values="own")
    seen = [
        Evidence(probe=long.to_json(), label="", path="output"),
        Evidence(probe=Probe(values="own").to_json(), label="", path="output"),
        Evidence(probe=Probe(sizes={"dim": 509}).to_json(), label="", path="output"),
    ]
    told = feedback(verdict_of(failed("CMP-03", "x", evidence=tuple(seen))))
    for role in ("the shape with the longest reduction", "the reference's own shape", "another"):
        assert role in told
    assert "509" not in told


def test_a_sanitizer_names_the_line_and_quotes_it():
    text = (
        "normal float32 dim=31 seed 4242: relu_kernel in line 5: 7 threads accessed memory "
        "outside its tensor (ld.global): 128 bytes past input[0]"
    )
    verdict = verdict_of(passed("CMP-01", "x", probes=1.0), channels={"out_of_bounds": text})
    told = feedback(verdict)
    assert "out_of_bounds: memory outside a tensor was accessed, at line 5 `y = x.flat" in told
    assert_nothing_hidden(verdict)


def test_errors_of_python_keep_their_words_and_lose_their_numbers():
    fault = Fault(
        kind="exception",
        phase="forward",
        message="'Tensor' object has no attribute 'flatten2d' at 3.75e-08 of [3, 1031], 'x1'",
        exception="AttributeError",
        line=5,
    )
    told = feedback(verdict_of(failed("CMP-01", "x", evidence=(evidence(fault_text(fault)),))))
    assert "in forward: AttributeError: '…' object has no attribute 'flatten2d'" in told
    assert "at # of [#, #], '…', at line 5 `y = x.flatten2d(dim=3)`" in told


@pytest.mark.parametrize("line", [6, 7, 8])
def test_what_the_candidate_says_itself_is_left_out(line):
    fault = Fault(
        kind="exception", phase="forward", message="the answer", exception="ValueError", line=line
    )
    told = feedback(verdict_of(failed("CMP-01", "x", evidence=(evidence(fault_text(fault)),))))
    assert "answer" not in told
    assert f"in forward: ValueError, at line {line} `" in told


def test_a_class_of_exception_made_up_by_the_candidate_is_not_named():
    fault = Fault(kind="exception", phase="forward", message="m", exception="Saw_12_5", line=4)
    told = feedback(verdict_of(failed("CMP-01", "x", evidence=(evidence(fault_text(fault)),))))
    assert "an exception of its own: m, at line 4" in told


def test_an_unjudged_candidate_is_told_why():
    told = feedback(verdict_of(failed("CMP-01", "x"), fault="NameError: name 'tl' is not defined"))
    assert told == "Not judged: NameError: name 'tl' is not defined"


def test_a_broken_harness_and_a_pass_are_one_line_each():
    assert feedback(verdict_of(errored("CMP-01", "x"))) == (
        "The verifier broke down; this attempt was not judged."
    )
    assert feedback(verdict_of(passed("CMP-01", "x", probes=1.0))) == (
        "Accepted: nothing speaks against this kernel."
    )


def test_a_decoy_is_told_so():
    told = feedback(verdict_of(passed("CMP-01", "x", probes=1.0), kernel="decoy"))
    assert "they do not do the work" in told


def test_every_input_family_has_words():
    assert set(KINDS) == {*FAMILIES, "own"}


@given(
    phase=st.sampled_from(PHASES),
    message=st.text(max_size=80).filter(lambda text: not text.endswith(")")),
    line=st.none() | st.integers(1, 5000),
)
def test_the_sentence_of_a_fault_is_taken_apart_again(phase, message, line):
    fault = Fault(kind="exception", phase=phase, message=message, exception="TypeError", line=line)
    assert read_fault(fault_text(fault)) == FaultText(message, phase, "TypeError", line)


numbers = st.floats() | st.integers() | st.floats(width=16)
notes = st.one_of(
    st.just(""),
    st.just("missing"),
    st.builds("a repeat gave {} after {}".format, numbers, numbers),
    st.builds("forward: KeyError: {} (line 4)".format, numbers),
    st.builds("forward: RuntimeError: saw '{}' in x{} (line 5)".format, numbers, st.integers(0)),
    st.builds("backward: Saw{}: {!r}".format, st.integers(0), numbers),
    st.builds("shape ({},) instead of ({},)".format, st.integers(0), st.integers(0)),
    st.builds("an unknown note about {}".format, numbers),
)


@st.composite
def verdicts(draw) -> Verdict:
    """Verdicts full of numbers that a policy must not learn."""
    findings = []
    for gate in draw(st.lists(st.sampled_from(GATE_NAMES), min_size=1, max_size=4, unique=True)):
        probe = Probe(
            sizes=draw(st.dictionaries(st.sampled_from(["dim", "rows"]), st.integers(1, 9999))),
            values=draw(st.sampled_from([*FAMILIES, "own"])),
            dtype=draw(st.sampled_from(["float32", "float16", "bfloat16"])),
            layout=draw(st.sampled_from(LAYOUTS)),
            weights=draw(st.sampled_from(WEIGHTS)),
            seed=draw(st.integers(0, 2**31)),
        )
        shown = Evidence(
            probe=probe.to_json(),
            label=probe.label,
            path=draw(st.sampled_from(["output", "grad input[0]", "output['loss']"])),
            index=tuple(draw(st.lists(st.integers(0, 9999), max_size=3))),
            got=draw(numbers),
            expected=draw(numbers),
            allowed=draw(st.none() | st.floats(0, 1)),
            elements=draw(st.integers(0, 10**6)),
            note=draw(notes),
        )
        findings.append(
            Finding(
                gate=gate,
                status=Status.FAIL,
                reason=f"first {shown.label} is {shown.got}",
                score=draw(st.floats(0, 1)),
                measured={"worst_ratio": draw(st.floats(0, allow_infinity=True))},
                evidence=(shown,),
            )
        )
    seed = draw(st.integers(0, 10**9))
    channels = {
        "race": f"normal float32 seed {seed}: kernel in line 5: {seed} threads and those of "
        f"another block reach the same memory in no certain order (red): element {seed}"
    }
    return verdict_of(*findings, channels=channels if draw(st.booleans()) else {})


@settings(max_examples=100, deadline=None)
@given(verdicts())
def test_feedback_does_not_depend_on_seeds_sizes_elements_or_values(verdict):
    assert_nothing_hidden(verdict)


@given(numbers, st.text("abcxyz '\"`", max_size=12))
def test_no_number_survives_masking(number, prefix):
    left = masked(f"{prefix} {number!r} '{number!r}' {prefix}", "source without numbers")
    assert not any(letter.isdigit() for letter in left)
    assert "inf" not in left and "nan" not in left
