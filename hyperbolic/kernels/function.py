"""``torch.autograd.Function`` with the type of its results, which PyTorch leaves open: ``Function[Tensor]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

Context = Any  # of both passes, which may put on it what they like
Results = TypeVar("Results")

if TYPE_CHECKING:

    class Function(torch.autograd.Function, Generic[Results]):
        @classmethod
        def apply(cls, *arguments: Any) -> Results: ...

else:

    class Function:
        def __class_getitem__(cls, results: object) -> type:
            return torch.autograd.Function
