"""Why a model predicts what it does: which slots matter, which are dead or redundant, and what each adds to a score."""

from elasticctr.train.explain.summary import explain

__all__ = ["explain"]
