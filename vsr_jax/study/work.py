"""How much a stage has to do, in counts that do not depend on a machine."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """Counts of a stage.

    Attributes:
      prompts: read before decoding; responses: decoded; max_tokens: longest of them.
      scored: responses that a model reads once more, a model at a time.
      trained: responses that are differentiated.
      models: frozen models that are held at a time, besides the one that is trained.
    """

    prompts: int = 0
    responses: int = 0
    max_tokens: int = 0
    scored: int = 0
    trained: int = 0
    models: int = 0


NONE = Work()
"""Nothing to compute."""
