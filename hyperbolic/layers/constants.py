"""Numbers of layers that no ``state_dict`` has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

L = TypeVar("L", bound="ConstantLayer")


class ConstantLayer(nn.Module):
    """A layer with numbers that its arguments decide, in buffers, so that they move with it.

    They keep their values where PyTorch leaves such buffers without: ``to_empty``, and ``load_state_dict(assign=True)``
    of a layer on the meta device.
    """

    _constants: Mapping[str, float] = {}

    def keep_constant(self, name: str, value: float) -> None:
        """Make ``value`` the buffer of this name."""
        self.register_buffer(name, torch.tensor(float(value)), persistent=False)
        self._constants = {**self._constants, name: float(value)}

    def _apply(self: L, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> L:
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch's has no types
        for name, value in self._constants.items():
            if self._buffers[name] is not before[name]:  # another tensor, perhaps without values
                self._buffers[name] = torch.full_like(getattr(self, name), value)
        return self

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, metadata: Mapping[str, Any], *args: Any
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, metadata, *args)
        like = next((t for t in state_dict.values() if isinstance(t, Tensor) and t.is_floating_point()), None)
        if metadata.get("assign_to_params_buffers") and like is not None:
            for name, value in self._constants.items():
                setattr(self, name, like.new_tensor(value))
