"""The small policy: it speaks the grammar and nothing else."""

from __future__ import annotations

import pytest
import torch

from lethe_env.agents.grammar import PROBLEMS, GrammarError, parse, problem_for, sentences, write
from lethe_env.agents.tiny import END, GrammarPolicy, Vocabulary, new_model


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary(list(PROBLEMS.values()))


@pytest.fixture(scope="module")
def policy(vocabulary):
    return GrammarPolicy(new_model(vocabulary, seed=0), vocabulary.tokenizer())


def test_a_word_is_a_token_and_back(vocabulary):
    tokenizer = vocabulary.tokenizer()
    for problem in PROBLEMS.values():
        sentence = next(sentences(problem))
        ids = tokenizer(f"{problem.task} {write(sentence)}")["input_ids"]
        assert len(ids) == 1 + len(problem.choices)
        assert tokenizer.decode(ids[1:]) == write(sentence)


@pytest.mark.parametrize("task", PROBLEMS)
def test_every_sample_is_a_sentence(policy, task):
    torch.manual_seed(0)
    written = policy.sentences(task, 20)
    assert len({write(parse(problem_for(task), text)) for text in written}) > 5
    assert "class ModelNew" in policy.act({"task": task})


def test_probability_is_on_sentences_alone(policy, vocabulary):
    problem = problem_for("reduction/sum")
    texts = [f"{problem.task} {write(sentence)} {END}" for sentence in sentences(problem)]
    ids = vocabulary.tokenizer()(texts, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = policy.model(ids).logits.double()
    steps = logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
    # 48 probabilities from float32 logits, which are right to 2**-24 of their size each
    assert abs(float(steps.sum(1).exp().sum()) - 1) < 48 * 2**-20


def test_padding_on_the_left_changes_nothing(policy, vocabulary):
    tokenizer = vocabulary.tokenizer()
    short, long = "elementwise/relu layout=assumed", "reduction/sum layout=assumed total=input"
    alone = tokenizer(short, return_tensors="pt")
    both = tokenizer([short, long], return_tensors="pt", padding=True)
    with torch.no_grad():
        one = policy.model(alone["input_ids"], attention_mask=alone["attention_mask"]).logits[0, -1]
        two = policy.model(both["input_ids"], attention_mask=both["attention_mask"]).logits[0, -1]
    assert torch.equal(one.softmax(-1) > 0, two.softmax(-1) > 0)


def test_equal_seeds_give_equal_models_and_leave_the_generator_alone(vocabulary):
    torch.manual_seed(7)
    state = torch.get_rng_state()
    one, two, other = (new_model(vocabulary, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    name = "lm_head.weight"
    assert torch.equal(one[name], two[name])
    assert not torch.equal(one[name], other[name])


def test_a_task_without_a_grammar_is_refused(policy):
    with pytest.raises(GrammarError, match="conv/conv2d"):
        policy.act({"task": "conv/conv2d"})
