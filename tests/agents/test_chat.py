"""What a language model is asked, and what becomes of its answer."""

from __future__ import annotations

from lethe_env.agents import chat

OBSERVATION = {"task": "softmax/softmax", "prompt": "Rewrite this.", "feedback": ""}


def test_the_example_is_a_question_with_an_honest_answer_before_the_prompt():
    question, answer, prompt = chat.messages(OBSERVATION)
    assert "torch.relu" in question["content"]
    assert answer["role"] == "assistant"
    assert "class ModelNew" in chat.answer(answer["content"])
    assert prompt == {"role": "user", "content": "Rewrite this."}


def test_the_example_never_answers_the_task_itself():
    shown = chat.messages({**OBSERVATION, "task": "elementwise/relu"})
    assert not any("torch.relu" in message["content"] for message in shown)


def test_feedback_follows_the_prompt():
    (message,) = chat.messages({**OBSERVATION, "feedback": "EXC-01 lost NaN"}, example=False)
    assert message["content"].startswith("Rewrite this.")
    assert "EXC-01 lost NaN" in message["content"]


def test_an_answer_without_code_is_a_comment_with_the_reason():
    source = chat.answer("I cannot do\nthat.")
    assert source.startswith("# no source text: ")
    compile(source, "answer", "exec")
