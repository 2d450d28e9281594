"""Base of the families' ``Logits``: a logit for each class, and losses that never keep the logits of all classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hyperbolic import switch
from hyperbolic.fusion import fuse
from hyperbolic.kernels.class_losses import streamed_bce, streamed_cross_entropy
from hyperbolic.kernels.mlr import class_logits
from hyperbolic.layers.description import shows
from hyperbolic.layers.guard import check_manifold, name_of, takes_points
from hyperbolic.layers.points import PointLayer
from hyperbolic.manifolds import Manifold


class ClassLogits(PointLayer):
    """``logit_k = s_k arsinh(<X, W_k>)``, or ``<X, W_k> + b_k``, with X a function of the point and W_k of the class.

    Args:
        manifold: space of the inputs. d: intrinsic size. n_classes: number of classes K, 1 for one binary logit.

    Subclasses implement :meth:`operands` and :attr:`class_points`.

    Raises:
        ValueError: n_classes below 1.
    """

    stacked_axes = dict.fromkeys(("p", "a", "z", "r", "points", "bias", "log_alpha"), 1)  # classes

    def __init__(self, manifold: Manifold, d: int, n_classes: int):
        super().__init__()
        self.manifold, self.d, self.n_classes = manifold, d, n_classes
        check_manifold(self)
        if n_classes < 1:
            raise ValueError(f"{name_of(self)}: needs at least 1 class, got n_classes={n_classes}")

    extra_repr = shows("d", "n_classes")

    @property
    def class_points(self) -> Tensor:
        """A point of the manifold for each class, (K, D): the one its hyperplane goes through, or its own."""
        raise NotImplementedError

    def operands(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """X (..., e) of the points x (..., D); W (K, e), scale s (K,) or None, bias b (K,) or None of the classes.

        The bias is None where there is a scale.
        """
        raise NotImplementedError

    @takes_points("d")
    def forward(self, x: Tensor) -> Tensor:
        """Logits (..., K) of points x (..., D)."""
        return class_logits(*self.operands(x))

    @takes_points("d")
    def bce(
        self,
        x: Tensor,
        targets: Tensor,
        row_weights: Tensor | None = None,
        groups: Tensor | None = None,
        classes: Tensor | None = None,
    ) -> Tensor:
        """Binary cross entropy of every logit, ``sum_bk row_weights[b, groups[k]] BCE(logit_bk, y_bk)``.

        Args:
            x: (B, D) points. targets: the classes of each row, integers (B, L), filled up with -1, where a class
                named twice counts once; or the whole matrix y, floats in [0, 1] or booleans (B, K).
            row_weights: (B, G), weight of a row in each group of classes; left out, the loss is the mean over all
                entries. groups: long (K,), group of each class; left out, there is one group.
            classes: integers (M,), distinct; only the logits of these classes are computed and count.

        Returns: a scalar, 0 for B = 0.
        Raises:
            ValueError: shapes that do not fit, a matrix of integers or (where it lies on a CPU) with entries outside of
                [0, 1]; a class that does not exist or stands twice in ``classes`` (on a GPU: a device-side assertion).
        """
        batch = x.shape[:1]
        if x.dim() != 2 or targets.dim() != 2 or targets.shape[:1] != batch:
            raise ValueError(
                f"{name_of(self)}: bce takes points (B, D) and targets (B, L) or (B, {self.n_classes}), got the shapes "
                f"{tuple(x.shape)} and {tuple(targets.shape)}"
            )
        self._check_weights(batch, row_weights, groups)
        classes = self._check(classes)
        lifted, w, scale, bias = self._sample(x, classes)
        if _integer(targets):
            targets = self._lists(targets.long())
            targets = distinct(targets if classes is None else self._places(classes)[targets])
        else:
            self._check_matrix(targets)
            targets = targets if classes is None else targets[:, classes]
        if groups is not None and classes is not None:
            groups = groups[classes]
        return streamed_bce(lifted, w, scale, bias, targets, row_weights, groups)

    @takes_points("d")
    def cross_entropy(
        self,
        x: Tensor,
        target: Tensor,
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
        classes: Tensor | None = None,
    ) -> Tensor:
        """Softmax cross entropy, the mean over the rows whose target is not ``ignore_index``.

        Args:
            x: (..., D) points. target: integers (...), the class of each.
            label_smoothing: in [0, 1]; this share of the target's probability is spread over all classes.
            classes: integers (M,), distinct; the softmax runs over these classes only, and every target is among them.

        Returns: a scalar, 0 when no row counts.
        Raises:
            ValueError: shapes that do not fit, a target that is not of integers, label_smoothing outside of [0, 1]; a
                class that does not exist, is not in ``classes`` or stands there twice (on a GPU: a device-side
                assertion).
        """
        if x.shape[:-1] != target.shape or not _integer(target):
            raise ValueError(
                f"{name_of(self)}: cross_entropy takes points (..., D) and target (...), the class of each as an "
                f"integer, got the shapes {tuple(x.shape)} and {tuple(target.shape)} and targets of {target.dtype}"
            )
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"{name_of(self)}: label_smoothing must lie in [0, 1], got {label_smoothing}")
        target = target.long()
        if _checks_values(target):
            counted_targets = target[target != ignore_index]
            self._check_classes(counted_targets, "target class", _within(counted_targets, 0, self.n_classes))
        target, counted = _counted_targets(target, ignore_index, self.n_classes)
        classes = self._check(classes)
        lifted, w, scale, bias = self._sample(x, classes)
        if classes is not None:
            place = self._places(classes)[target]
            is_absent = counted & (place < 0)
            self._refuse(is_absent, target, "target class {} is not among the classes that are evaluated")
            target = place.clamp_min(0)
        return streamed_cross_entropy(
            lifted.reshape(-1, lifted.shape[-1]), w, scale, bias, target.flatten(), counted.flatten(), label_smoothing
        )

    def _sample(self, x: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        lifted, w, scale, bias = self.operands(x)
        if classes is None:
            return lifted, w, scale, bias
        return lifted, w[classes], None if scale is None else scale[classes], None if bias is None else bias[classes]

    def _check(self, classes: Tensor | None) -> Tensor | None:
        """``classes`` as long numbers, after a check that they exist and are distinct."""
        if classes is None:
            return None
        if classes.dim() != 1 or not _integer(classes):
            raise ValueError(
                f"{name_of(self)}: classes must be integers (M,), got {classes.dtype} of shape {tuple(classes.shape)}"
            )
        classes = classes.long()
        self._check_classes(classes, "class in classes", _within(classes, 0, self.n_classes))
        ordered = classes.sort().values
        self._refuse(ordered[1:] == ordered[:-1], ordered[1:], "class {} stands twice in classes")
        return classes

    def _lists(self, targets: Tensor) -> Tensor:
        """Lists of classes (B, L), long, after a check that the classes exist and that they are no 0/1 matrix."""
        self._check_classes(targets, "target class", _within(targets, -1, self.n_classes), lowest=-1)
        whole = targets.shape[1] == self.n_classes > 2 and targets.numel()
        if whole and _checks_values(targets) and ((targets == 0) | (targets == 1)).all():
            raise ValueError(
                f"{name_of(self)}: integers are lists of classes, but these targets of shape {tuple(targets.shape)} "
                f"hold 0 and 1 only: pass a matrix of targets as floats or booleans"
            )
        return targets

    def _check_matrix(self, targets: Tensor) -> None:
        if targets.shape[1] != self.n_classes or targets.is_complex():
            raise ValueError(
                f"{name_of(self)}: a matrix of targets must have the shape {(len(targets), self.n_classes)}, got "
                f"{tuple(targets.shape)}, and hold floats or booleans, got {targets.dtype}; lists of classes must be "
                f"integers"
            )
        if targets.is_floating_point() and _checks_values(targets) and targets.numel():
            low, high = torch.aminmax(targets)
            if not (low >= 0 and high <= 1):
                raise ValueError(
                    f"{name_of(self)}: a matrix of targets must lie in [0, 1], got {low.item():.6g}..{high.item():.6g} "
                    f"in the shape {tuple(targets.shape)}; lists of classes must be integers"
                )

    def _places(self, classes: Tensor) -> Tensor:
        """Place of each class in ``classes``, -1 where it is not there, and at the end that of the padding: (K+1,)."""
        places = classes.new_full((self.n_classes + 1,), -1)
        places[classes] = torch.arange(len(classes), device=classes.device)
        return places

    def _check_classes(self, index: Tensor, what: str, right: Tensor, lowest: int = 0) -> None:
        message = f"{what} {{}} does not exist: there are {self.n_classes} classes"
        if not _checks_values(index):
            self._assert(right, message)
        elif not right:
            self._refuse((index < lowest) | (index >= self.n_classes), index, message)

    def _refuse(self, wrong: Tensor, index: Tensor, message: str) -> None:
        if not _checks_values(index):
            self._assert(~wrong.any(), message)
        elif wrong.any():
            raise ValueError(f"{name_of(self)}: {message.format(index[wrong][0].item())}")

    def _assert(self, right: Tensor, message: str) -> None:
        """Without waiting for the device."""
        if not switch.is_followed(right):
            torch._assert_async(right, f"{name_of(self)}: {message.format('index')}")

    def _check_weights(self, batch: torch.Size, row_weights: Tensor | None, groups: Tensor | None) -> None:
        if row_weights is not None and (row_weights.dim() != 2 or row_weights.shape[:1] != batch):
            raise ValueError(
                f"{name_of(self)}: row_weights must have the shape (B, G) with B = {batch[0]}, got "
                f"{tuple(row_weights.shape)}"
            )
        if groups is None and row_weights is not None and row_weights.shape[1] != 1:
            raise ValueError(
                f"{name_of(self)}: row_weights {tuple(row_weights.shape)} are for {row_weights.shape[1]} groups; give "
                "groups, the group of each class"
            )
        if groups is not None and groups.shape != (self.n_classes,):
            raise ValueError(
                f"{name_of(self)}: groups must have the shape {(self.n_classes,)}, got {tuple(groups.shape)}"
            )
        if groups is not None:
            if row_weights is None:
                raise ValueError(f"{name_of(self)}: groups have no effect without row_weights; see group_mean_weights")
            wrong = (groups < 0) | (groups >= row_weights.shape[1])
            self._refuse(wrong, groups, f"group {{}} does not exist: row_weights has {row_weights.shape[1]} columns")


def _checks_values(x: Tensor) -> bool:
    """Whether errors may depend on the values: on a CPU, where nothing traces or transforms the operations."""
    return x.device.type == "cpu" and not switch.is_followed(x)


@fuse
def _within(index: Tensor, lowest: int, n: int) -> Tensor:
    return ((index >= lowest) & (index < n)).all()


@fuse
def _counted_targets(target: Tensor, ignored: int, n: int) -> tuple[Tensor, Tensor]:
    """Targets, 0 for those that are ignored; and which are not. Negative ones become n, which is no class either: on a
    GPU the loss, which looks for its logit, refuses it, where it would count from the end or ignore -100."""
    counted = target != ignored
    return torch.where(counted, torch.where(target < 0, n, target), 0), counted


def _integer(x: Tensor) -> bool:
    return not (x.is_floating_point() or x.is_complex() or x.dtype is torch.bool)


def distinct(lists: Tensor) -> Tensor:
    """Lists of numbers (B, L), filled up with -1, sorted and with -1 in the place of repetitions."""
    lists = lists.sort(-1).values
    again = torch.zeros_like(lists, dtype=torch.bool)
    again[:, 1:] = lists[:, 1:] == lists[:, :-1]
    return lists.masked_fill(again, -1)


def group_mean_weights(targets: Tensor, groups: Tensor, n_groups: int) -> Tensor:
    """Row weights of the multi-task loss of entity typing (Choi et al. 2018, section 4.2; Lopez & Strube 2020).

    In each group of classes (coarse, fine, ultra-fine) only rows with at least one target of the group count; the loss
    is the mean over these rows and the classes of the group, summed over the groups. A group without a row is 0.

    Args: targets: as for :meth:`ClassLogits.bce`, (B, L) or (B, K). groups: long (K,), values below n_groups.
    Returns: (B, n_groups), the ``row_weights`` of :meth:`ClassLogits.bce`.
    """
    member = nn.functional.one_hot(groups, n_groups).to(torch.get_default_dtype())
    if _integer(targets):
        targets = targets.long()
        counts = (member[targets.clamp_min(0)] * (targets >= 0).unsqueeze(-1)).sum(-2)
    else:
        counts = targets.to(member.dtype) @ member
    present = (counts > 0).to(member.dtype)
    return present / (present.sum(0) * member.sum(0)).clamp_min(1)


__all__ = ["ClassLogits", "group_mean_weights"]
