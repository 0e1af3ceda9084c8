"""A grammar of kernels: the choices an author makes, and the Triton source that follows."""

from .catalog import PROBLEMS, problem_for
from .model import Choice, GrammarError, Problem, Sentence, parse, sentences, write

__all__ = [
    "PROBLEMS",
    "Choice",
    "GrammarError",
    "Problem",
    "Sentence",
    "parse",
    "problem_for",
    "sentences",
    "write",
]
