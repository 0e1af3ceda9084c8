"""A verifier that reads instead of running: the same kinds of verdict, in no time."""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lethe_env.gates.battery import GATE_NAMES
from lethe_env.gates.speed import Speed
from lethe_env.gates.verdict import Verdict, errored, failed, passed

AS_EAGER = Speed(kind="modelled", target="A100", probe="x", candidate_us=1.0, eager_us=1.0)


class Reader:
    """Judges sentences of the relu and the sum by what their source says."""

    def __init__(self):
        self.seen = []
        self.void = set()

    def grade_many(self, jobs, progress=None):
        self.seen += jobs
        verdicts = []
        for number, job in enumerate(jobs, 1):
            verdicts.append(self._verdict(job))
            if progress is not None:
                progress(number, len(jobs))
        return verdicts

    def close(self):
        pass

    def _verdict(self, job):
        source = job.source
        broken = {
            "CMP-01": "tl.load(x_ptr + offsets)" in source,
            "CMP-02": "autograd" not in source,
            "CMP-03": "contiguous()" not in source,
            "EXC-01": "tl.maximum(x, 0.0)" in source,
        }
        findings = [
            failed(name, "read") if broken.get(name) else passed(name, "read", calls=1.0)
            for name in GATE_NAMES
        ]
        if source in self.void:
            findings = [errored(name, "the harness broke") for name in GATE_NAMES]
        accepts = not broken["CMP-01"]
        return Verdict(
            task=job.task.to_json(),
            source=source,
            findings=tuple(findings),
            kernel="triton",
            allclose=passed("allclose", "read", n=1) if accepts else failed("allclose", "read"),
            speed=AS_EAGER,
        )


@pytest.fixture
def reader():
    return Reader()


@pytest.fixture
def tokenizer():
    """One token for each byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, "<end>", "<pad>"]
    vocabulary = {word: index for index, word in enumerate(words)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", pad_token="<pad>")


@pytest.fixture
def language_model(tokenizer):
    """A language model that knows nothing."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=16384,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config)
