"""Encoders as models build them, and that one of the user's own takes and returns what its kind does."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from hyperbolic.encoders.kinds import kind_of
from hyperbolic.manifolds import Manifold
from tasks.errors import UserError

GUIDE = "(CONTRIBUTING.md, Add an encoder)"
RESULTS = {
    "sequences": "(states, last), tensors (..., T, {0}) and (..., {0})",
    "pairs": "states, and points (2, B, {0})",
    "documents": "points (B, {0}), and a Trace or None",
    "graphs": "points (N, {0})",
}


def make_encoder(make: Callable[..., nn.Module], manifold: Manifold, **sizes: Any) -> tuple[Any, int]:
    """The encoder that `make` builds with `sizes` (geometry, d_in, ...), and the size of its states, its `d_out`.

    manifold: where its results are points. An encoder of the user's own is looked at: whether its constructor takes all
    that it is given, and at its first call whether its results have the shapes of its kind.

    Raises:
        UserError: it does not take one of `sizes`, has no d_out, or, when it is first called, returns something else;
            in a call, sequences of more than its n_positions.
    """
    target, kind = getattr(make, "func", make), kind_of(make)
    name = f"{target.__module__}.{target.__qualname__}"
    is_ours = target.__module__.partition(".")[0] == "hyperbolic"
    parameters = inspect.signature(target).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if absent := [key for key in sizes if not takes_all and key not in parameters]:
        raise UserError(
            f"The constructor of {name} takes no {' and no '.join(absent)}: an encoder of {kind} is built with "
            f"{', '.join(sizes)} and the settings of its file {GUIDE}."
        )
    encoder = make(**sizes)
    positions = getattr(encoder, "n_positions", None)
    if kind in ("sequences", "pairs") and positions is not None:
        encoder.register_forward_pre_hook(functools.partial(_check_length, positions))
    d_out = getattr(encoder, "d_out", None)
    if not isinstance(d_out, int) or d_out < 1:
        raise UserError(f"{name} has no d_out: an encoder sets self.d_out, a whole number, its states' size {GUIDE}.")
    if kind in RESULTS and not is_ours:
        coordinates = manifold.ambient_dim(d_out)

        def look(_: nn.Module, args: tuple[Any, ...], results: Any) -> None:
            if not _is_right(kind, args, results, coordinates):
                wanted = RESULTS[kind].format(coordinates)
                raise UserError(
                    f"{name} returned {_shown(results)} for points of the shape {tuple(args[0].shape)}, where an "
                    f"encoder of {kind} with d_out={d_out} returns {wanted} {GUIDE}."
                )
            handle.remove()

        handle = encoder.register_forward_hook(look)
    return encoder, d_out


def _check_length(n_positions: int, _: nn.Module, args: tuple[Any, ...]) -> None:
    """Raises UserError for sequences (..., T, D) that are longer than the encoder's table of positions."""
    if args and (length := args[0].shape[-2]) > n_positions:
        raise UserError(
            f"encoder.n_positions={n_positions}: a sequence has {length} positions. Train with more, or with "
            "a lower task.data.max_length (of documents also task.data.max_sentences or task.model.ngrams)."
        )


def _is_right(kind: str, args: tuple[Any, ...], results: Any, coordinates: int) -> bool:
    """Whether the results of a call have the shapes of the kind: of the last axis, and of those before that follow from
    the points that came in."""
    if kind == "graphs":
        return isinstance(results, Tensor) and results.dim() == 2 and results.shape[-1] == coordinates
    if not isinstance(results, (tuple, list)) or len(results) != 2:
        return False
    shape = args[0].shape
    if kind == "documents":
        return isinstance(results[0], Tensor) and results[0].shape == (len(args[2]), coordinates)
    wanted = {1: (*shape[:-2], coordinates)} | ({0: (*shape[:-1], coordinates)} if kind == "sequences" else {})
    return all(isinstance(results[k], Tensor) and results[k].shape == size for k, size in wanted.items())


def _shown(results: Any) -> str:
    """The kinds of results, and the shapes of tensors."""
    if isinstance(results, Tensor):
        return f"a tensor {tuple(results.shape)}"
    if isinstance(results, (tuple, list)):
        return f"({', '.join(_shown(each).removeprefix('a ') for each in results)})"
    return type(results).__name__ if results is not None else "nothing"
