"""The grammar: every sentence is source, and the graders, not the grammar, say what it is worth."""

from __future__ import annotations

import ast

import pytest

from lethe_env.agents.grammar import PROBLEMS, GrammarError, parse, problem_for, sentences, write
from lethe_env.gates.verdict import Status
from lethe_env.tasks.catalog import suite

SHORTCUTS = {
    "elementwise/relu": (
        {"layout": "assumed", "negative": "maximum", "gradient": "none"},
        {"CMP-02", "CMP-03", "EXC-01"},
    ),
    "elementwise/silu": (
        {"formula": "exponential", "layout": "assumed"},
        {"CMP-01", "CMP-03", "EXC-01"},
    ),
    "softmax/softmax": ({"shift": "none", "gradient": "none"}, {"CMP-01", "CMP-02", "ORD-03"}),
    "norm/layer_norm": ({"variance": "one_pass", "total": "input"}, {"ORD-03", "PRC-02"}),
    "reduction/sum": ({"combine": "atomic", "total": "input"}, {"PRC-01", "PRC-02"}),
}
"""Per task, choices that differ from the careful ones, and who must reject them."""


def sharing_truths(tasks):
    """Tasks as parameters; the tests of one task go to one worker, which then has its truths."""
    return [pytest.param(task, marks=pytest.mark.xdist_group(task)) for task in tasks]


def careful(task):
    return {choice.name: choice.options[0] for choice in problem_for(task).choices}


def test_the_grammar_covers_tasks_of_four_classes():
    assert set(PROBLEMS) <= set(suite())
    assert len({suite()[task].op_class for task in PROBLEMS}) >= 4


@pytest.mark.parametrize("task", PROBLEMS)
def test_every_sentence_renders_to_source_of_its_own(task):
    problem = PROBLEMS[task]
    sources = set()
    for sentence in sentences(problem):
        source = problem.render(sentence)
        defined = {node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
        assert "ModelNew" in defined
        sources.add(source)
        assert parse(problem, write(sentence)) == sentence
    assert len(sources) == len(list(sentences(problem)))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "layout is nothing"),
        ("fast", "unexpected word 'fast'"),
        ("layout=assumed layout=assumed", "unexpected word"),
        ("layout=diagonal", "choose from contiguous, assumed"),
    ],
)
def test_what_is_no_sentence_is_refused_with_the_reason(text, complaint):
    with pytest.raises(GrammarError, match=complaint):
        parse(problem_for("reduction/sum"), text)


def test_an_unknown_choice_and_an_unknown_task_are_refused():
    with pytest.raises(GrammarError, match="no choice named colour"):
        problem_for("reduction/sum").render({**careful("reduction/sum"), "colour": "red"})
    with pytest.raises(GrammarError, match="no sentence for matmul/matmul"):
        problem_for("matmul/matmul")


@pytest.mark.parametrize("task", sharing_truths(PROBLEMS))
def test_careful_choices_keep_the_contract(task, grader):
    verdict = grader.grade(task, PROBLEMS[task].render(careful(task)))
    assert verdict.passed, verdict.rejected_by


@pytest.mark.parametrize("task", sharing_truths(SHORTCUTS))
def test_shortcuts_pass_allclose_alone(task, grader):
    choices, gates = SHORTCUTS[task]
    verdict = grader.grade(task, PROBLEMS[task].render({**careful(task), **choices}))
    assert verdict.allclose.status is Status.PASS
    assert gates <= set(verdict.rejected_by)
