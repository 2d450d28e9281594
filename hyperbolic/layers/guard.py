"""What every curved layer does with its inputs before it computes: sizes checked, autocast left, points validated."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

import geoopt
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from hyperbolic import switch
from hyperbolic.autocast import HALF, autocast_device, in_full
from hyperbolic.fusion import fuse
from hyperbolic.layers.family import families_of
from hyperbolic.manifolds import Manifold


class OffManifoldError(ValueError):
    """A layer got a point that does not lie on its manifold (only where :func:`validate_points` asks for the check)."""


Forward = TypeVar("Forward", bound=Callable[..., Any])


def takes_points(*sizes: str | None, flat: bool = False, full: bool | None = None) -> Callable[[Forward], Forward]:
    """Decorator of ``forward``: its first arguments are points of ``self.manifold``.

    Args:
        sizes: for each of these arguments in turn, the attribute of the layer with its intrinsic size (None: points of
            any size); a name followed by ``*`` is the attribute with the sizes of a variable number of arguments.
        flat: the arguments are vectors, of which only the size is checked.
        full: under autocast, half-precision arguments are cast to float32 and it is switched off inside, as manifold
            mathematics needs it. Left out, this is done for points and not for vectors.

    Numbers (masks, rows of tables) are not looked at where something follows the operations, as ``torch.compile`` does:
    shapes are.

    Before ``forward`` runs, the number of coordinates is checked, and once the manifold, see :func:`check_manifold`;
    and where :func:`validate_points` has been called on the layer, every point is checked to lie on the manifold.
    Arguments that are None are left alone. As for any module, ``backward`` is to be called outside of autocast, which
    would reach the gradients.

    Raises (from ``forward``):
        ValueError: a wrong number of coordinates. TypeError: points in half precision outside of autocast.
        OffManifoldError: in validation, a point off the manifold.
    """
    full = not flat if full is None else full
    variable = sizes[0][:-1] if len(sizes) == 1 and sizes[0] and sizes[0].endswith("*") else None

    def decorate(forward: Forward) -> Forward:
        names = [n for n, p in inspect.signature(forward).parameters.items() if p.kind != p.VAR_POSITIONAL][1:]

        def check(self: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if variable:
                expected = getattr(self, variable)
                if len(args) != len(expected):
                    raise ValueError(
                        f"{name_of(self)}: takes {len(expected)} points (sizes {tuple(expected)}), got {len(args)}"
                    )
            else:
                expected = [size and getattr(self, size) for size in sizes]
            for position, size in enumerate(expected):
                point = args[position] if position < len(args) else kwargs.get(names[position])
                if point is not None:
                    _check(self, point, size, flat)

        @functools.wraps(forward)
        def guarded(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            autocast = autocast_device(*args, *kwargs.values()) if full else None
            if autocast is None:
                check(self, args, kwargs)
                return forward(self, *args, **kwargs)
            args, kwargs = tuple(map(in_full, args)), {key: in_full(value) for key, value in kwargs.items()}
            check(self, args, kwargs)
            with torch.autocast(autocast, enabled=False):
                return forward(self, *args, **kwargs)

        return cast(Forward, guarded)  # it takes and returns what forward does

    return decorate


def check_choice(place: str, value: object, choices: Collection[object]) -> None:
    """Raises ValueError for a value that is none of the choices of a setting, as ``mobius.Attention.score``."""
    if value not in (*choices,):  # which may be no key of a dictionary
        raise ValueError(f"{place}: unknown value {value!r}; available: {', '.join(map(str, choices))}")


def check_manifold(layer: nn.Module) -> None:
    """Once a layer: it stands on a manifold that its family is defined on, else ValueError."""
    families, manifold = families_of(type(layer)), layer.manifold
    if families and not (isinstance(manifold, Manifold) and any(f.fits(type(manifold)) for f in families)):
        place = f"{name_of(layer)}: the family is defined on {families[0].manifold_names}"
        raise ValueError(f"{place}, got {describe(manifold)}")
    layer.__dict__["manifold_checked"] = True


def describe(manifold: object) -> str:
    """What was given in the place of a manifold, for messages."""
    if isinstance(manifold, Manifold):
        return f"the manifold {manifold.name}"
    if isinstance(manifold, geoopt.Manifold):
        return f"the manifold {type(manifold).__name__} of geoopt, and needs one of hyperbolic.manifolds"
    if isinstance(manifold, type):
        return f"the class {manifold.__name__}; make one of it, as {manifold.__name__}(c=1.0)"
    return repr(manifold)


def _check(layer: nn.Module, point: Tensor, size: int | None, flat: bool) -> None:
    if not torch.compiler.is_compiling() and "manifold_checked" not in layer.__dict__:
        check_manifold(layer)
    if not isinstance(point, Tensor):
        hint = ": give padded points (B, T, D), and lengths" if isinstance(point, PackedSequence) else ""
        raise TypeError(f"{name_of(layer)}: takes a tensor, got {type(point).__name__}{hint}")
    manifold: Any = None if flat else layer.manifold
    if not flat and point.dtype in HALF and manifold.is_curved:
        raise TypeError(
            f"{name_of(layer)}: takes points in float32 or float64, got {point.dtype}, in which distances have no "
            "digit to spare; under torch.autocast they are cast"
        )
    if size is not None:
        coordinates = size if flat else manifold.ambient_dim(size)
        if point.dim() == 0 or point.shape[-1] != coordinates:
            kind = "vectors" if flat else f"points of {manifold.name}"
            raise ValueError(
                f"{name_of(layer)}: takes {kind} with {coordinates} coordinates (size {size}) on the last axis, "
                f"got a tensor of shape {tuple(point.shape)}"
            )
    if not flat and layer.__dict__.get("points_validated"):
        ok, reason = manifold._check_point_on_manifold(point.detach(), atol=1e-4, rtol=1e-4)
        if not ok:
            raise OffManifoldError(
                f"{name_of(layer)}: its input of shape {tuple(point.shape)} is not on {manifold}: {reason}"
            )


def check_features(layer: nn.Module, features: Tensor | None) -> None:
    """The features (..., n) of a ``Concat``, one for each row of its ``feature_bias`` (n, d_out); None for n = 0.

    Raises:
        ValueError: features are missing, not expected, or of another number.
    """
    bias = layer.feature_bias
    n = len(bias) if isinstance(bias, Tensor) else 0
    if features is None and n == 0:
        return
    if features is None or n == 0 or features.dim() == 0 or features.shape[-1] != n:
        actual = "none" if features is None else f"a tensor of shape {tuple(features.shape)}"
        raise ValueError(
            f"{name_of(layer)}: takes {n} features on the last axis (n_features={n}), got {actual}: pass "
            f"features=(..., n_features) exactly when the layer is built with n_features > 0"
        )


def check_sequence(layer: nn.Module, x: Tensor) -> None:
    """Refuse what is no set of points.

    Raises:
        ValueError: x is not (..., N, D) with N > 0.
    """
    if x.dim() < 2 or x.shape[-2] == 0:
        raise ValueError(f"{name_of(layer)}: takes points (..., N, D) with N > 0, got the shape {tuple(x.shape)}")


def check_weights(layer: nn.Module, weights: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse weights that are not of these points.

    Raises:
        ValueError: weights that do not have the ``shape``, a number a point.
    """
    if weights.shape != shape:
        raise ValueError(
            f"{name_of(layer)}: the weights must have the shape {tuple(shape)}, got {tuple(weights.shape)}"
        )


def check_mask(layer: nn.Module, mask: Tensor, shape: tuple[int, ...], hidden_rows: bool = False) -> None:
    """Refuse what is no mask of these positions.

    Args: shape: (..., N) that the mask must have. hidden_rows: rows without a true entry are allowed.
    Raises:
        ValueError: a mask that is not boolean, has another shape, or hides every position of a row (the last on a GPU:
            a device-side assertion).
    """
    if mask.dtype is not torch.bool:
        raise ValueError(
            f"{name_of(layer)}: the mask must be boolean, true where a point counts, got {mask.dtype} of shape "
            f"{tuple(mask.shape)}"
        )
    if mask.shape != shape:
        raise ValueError(f"{name_of(layer)}: the mask must have the shape {tuple(shape)}, got {tuple(mask.shape)}")
    if not hidden_rows:
        check_rows(layer, mask.any(-1), f"the mask of shape {tuple(shape)} hides every position of {{}}")


def check_rows(layer: nn.Module, right: Tensor, problem: str) -> None:
    """Refuse rows that are not right.

    Args: right: (...), booleans. problem: a sentence with ``{}`` in the place of the row.
    Raises:
        ValueError: ``problem``, with the first row that is not right (on a GPU: a device-side assertion).
    """
    if right.device.type != "cpu":  # without waiting for the device
        if not switch.is_transformed():
            torch._assert_async(right.all(), f"{name_of(layer)}: {problem.format('at least one row')}")
    elif not switch.is_followed(right) and not right.all():
        row = (~right).nonzero()[0].tolist()
        place = f"row {row[0] if len(row) == 1 else tuple(row)}" if row else "the only row"
        raise ValueError(f"{name_of(layer)}: {problem.format(place)}")


def check_range(layer: nn.Module | None, index: Tensor, low: int, high: int, rule: str, advice: str = "") -> None:
    """Refuse indices out of range.

    Args: layer: None where the error is not to name one. index: integers (...).
    Raises:
        ValueError: ``rule`` and the range of the numbers, where an index is outside of low..high (on a GPU: a
            device-side assertion).
    """
    if index.numel() == 0 or switch.is_transformed() or (index.device.type == "cpu" and switch.is_followed(index)):
        return
    if index.device.type != "cpu":  # without waiting for the device
        torch._assert_async(_inside(index, low, high), f"{_place(layer)}{rule}{advice}")
        return
    least, most = (bound.item() for bound in torch.aminmax(index))
    if least < low or most > high:
        raise ValueError(f"{_place(layer)}{rule}, got {least}..{most}{advice}")


@fuse
def _inside(index: Tensor, low: int, high: int) -> Tensor:
    return ((index >= low) & (index <= high)).all()


def check_points(layer: nn.Module, points: Tensor, n: int, d: int) -> None:
    """Refuse what is no table of points.

    Raises:
        ValueError: points that are not those of a table, (n, D) for size d, or not on its manifold.
    """
    manifold: Any = layer.manifold
    if points.shape != (shape := (n, manifold.ambient_dim(d))):
        raise ValueError(
            f"{name_of(layer)}: its points have the shape {shape}, {n} of {manifold.name} of size {d}, got "
            f"{tuple(points.shape)}"
        )
    if points.element_size() > 2 and not points.is_meta:  # numbers of half precision are rounded off it
        ok, reason = manifold.check_point_on_manifold(points, explain=True)
        if not ok:
            raise ValueError(f"{name_of(layer)}: {reason}; vectors become points by manifold.expmap0(vectors)")


def check_sizes(layer: nn.Module, d_in: int, d_out: int) -> None:
    """Refuse sizes that no linear layer has.

    Raises:
        ValueError: a size below 1.
    """
    if d_in < 1 or d_out < 1:
        raise ValueError(f"{name_of(layer)}: needs d_in >= 1 and d_out >= 1, got d_in={d_in}, d_out={d_out}")


def check_table(layer: nn.Module, n: int, d: int, padding_idx: int | None) -> None:
    """Refuse sizes that no table has.

    Args: n: rows of a table of points of size d. padding_idx: a row, counted from the end where it is negative.
    Raises:
        ValueError: no rows, a size below 1, or a padding index that is none of the rows.
    """
    if n < 1 or d < 1:
        raise ValueError(f"{name_of(layer)}: needs n >= 1 rows of size d >= 1, got n={n}, d={d}")
    if padding_idx is not None and not -n <= padding_idx < n:
        raise ValueError(f"{name_of(layer)}: padding_idx must be a row, 0..{n - 1} or None, got {padding_idx}")


def check_index(layer: nn.Module, index: Tensor, n: int) -> None:
    """Refuse what is no index into a table.

    Args: index (...): rows of a table of n rows.
    Raises:
        ValueError: numbers of another type than int64 or int32, or outside of 0..n-1 (the last on a GPU: a device-side
            assertion).
    """
    if not isinstance(index, Tensor) or index.dtype not in (torch.int64, torch.int32):
        actual = f"{index.dtype} of shape {tuple(index.shape)}" if isinstance(index, Tensor) else type(index).__name__
        raise ValueError(f"{name_of(layer)}: takes a tensor of row numbers (int64 or int32), got {actual}")
    rule = f"row numbers must lie in 0..{n - 1} (n={n})"
    check_range(layer, index, 0, n - 1, rule, f" in a tensor of shape {tuple(index.shape)}")


def _place(layer: nn.Module | None) -> str:
    return "" if layer is None else f"{name_of(layer)}: "


def name_of(layer: nn.Module) -> str:
    """``family.Class``, with the layer's place in the model where :func:`validate_points` has recorded it.

    Of several families that share the class, the first that is defined on the layer's manifold.
    """
    cls, manifold = type(layer), getattr(layer, "manifold", None)
    families = families_of(cls)
    family = next((f for f in families if isinstance(manifold, Manifold) and f.fits(type(manifold))), None)
    names = [f.name for f in (family, *families) if f][:1]
    place, name = layer.__dict__.get("place"), ".".join([*names, cls.__name__])
    return f"{place} ({name})" if place else name


def validate_points(model: nn.Module, on: bool = True) -> None:
    """Debug mode: every layer of ``model`` checks that its input points lie on its manifold, and names itself if not.

    Costs a projection a layer, and a wait for the device on a GPU.
    """
    for place, layer in model.named_modules():
        if hasattr(layer, "manifold"):
            layer.__dict__["points_validated"] = on
            layer.__dict__["place"] = place if on else None
