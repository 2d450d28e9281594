"""Multinomial logistic regression on embeddings that stay as they are, written against a geometry."""

import functools

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.geometry import MANIFOLDS, ChangeGeometry, Geometry
from hyperbolic.kernels.mlr import class_logits
from hyperbolic.layers import mobius
from hyperbolic.layers.classes import ClassLogits
from hyperbolic.manifolds import Manifold, PoincareBall
from hyperbolic.manifolds.charts import convert
from tasks.errors import UserError, one_of, positive
from tasks.points_files import PointsFile

STARTS = ("random", "node", "centroid")


class SubtreeClassifier(nn.Module):
    """Logits of "not below the root" and "below it" from the point of a node (Ganea et al. 2018, section 4).

    The three classifiers of their Table 2 differ in the geometries of the components `points` and `classifier` alone:
    both hyperbolic is their MLR (Eq. 23) of the points; both flat the usual MLR of the coordinates in the ball; points
    hyperbolic and classifier flat the usual MLR of log_0 of the points.

    geometry: of all components, or one for each. embedded: the points of all nodes. hyperplanes: 2, one for each class,
    or 1, that of the subtree, which alone is then the boundary. start_scale: factor of what the classifier starts with,
    but for its points. start_at: "random", as the geometry's classifiers start; of the hyperbolic MLR in the ball
    "centroid": all hyperplanes through a point on the way from the origin to the centroid z of the rows `below` of the
    table, at a share of it from U(1/2, 1), with the normals ``start_scale z/|z|`` of the subtree and the opposite of
    the rest; "node": the same half-way to one of these rows, drawn at random.
    """

    components = ("points", "classifier")
    embedded: Tensor

    def __init__(
        self, geometry: Geometry, embedded: PointsFile, hyperplanes: int, start_scale: float,
        start_at: str = "random", below: Tensor | None = None,
    ):  # fmt: skip
        super().__init__()
        geometry.check_components(self.components)
        if hyperplanes not in (1, 2):
            raise UserError(f"task.model.hyperplanes must be 1 or 2, and it is {hyperplanes}.")
        positive("task.model.start_scale", start_scale)
        points, classifier = (geometry.part(name) for name in self.components)
        self.manifold = points.manifold
        self.source = _space(embedded, self.manifold)
        # Not in checkpoints: the file has them, and `identity` of the data says which.
        table = torch.from_numpy(embedded.points.copy()).to(torch.get_default_dtype())
        self.register_buffer("embedded", self.source.projx(table), persistent=False)
        d = embedded.points.shape[1] - (embedded.manifold == "Lorentz")
        self.to_classifier = ChangeGeometry(points, classifier)
        self._kept: tuple[Tensor, Tensor] | None = None  # rows of the newest batch, and what is kept of its points
        self._layer, self._start_scale = functools.partial(classifier.logits, d, hyperplanes), start_scale
        self.classifier = self._layer()
        self._start, self._below = one_of("task.model.start_at", start_at, STARTS), below
        self._place()

    def restart(self) -> None:
        """Give the classifier new random parameters, drawn as the first ones were."""
        self.classifier.load_state_dict(self._layer().state_dict())
        self._place()

    @torch.no_grad()
    def _place(self) -> None:
        """Shorten what the classifier starts with; with start_at="centroid" or "node", place its hyperplanes."""
        for parameter in self.classifier.parameters():
            if not isinstance(parameter, ManifoldParameter):
                parameter.mul_(self._start_scale)
        if self._start == "random":
            return
        if not isinstance(self.classifier, mobius.Logits) or self._below is None:
            raise UserError(
                f"task.model.start_at={self._start} is for hyperbolic MLR in the ball; take geometry=poincare."
            )
        manifold = self.classifier.manifold
        below = self._move(self.embedded[self._below.to(self.embedded.device)])
        if self._start == "node":
            middle, share = manifold.logmap0(below[int(torch.randint(len(below), ()))]), 0.5
        else:
            middle, share = manifold.logmap0(manifold.centroid(below)), (1 + float(torch.rand(()))) / 2
        self.classifier.p.copy_(manifold.expmap0(share * middle).expand_as(self.classifier.p))
        normal = self._start_scale * torch.nn.functional.normalize(middle, dim=-1)
        self.classifier.a.copy_(torch.stack([-normal, normal])[-len(self.classifier.a) :])

    @property
    def points(self) -> Tensor:
        """(N, D) the points of all nodes on `manifold`."""
        return self._move(self.embedded)

    def forward(self, rows: Tensor) -> Tensor:
        """rows (B,) -> logits (B, 2).

        What the classifier makes of the points alone (`ClassLogits.operands`) is kept for the next call with the same
        tensor: optim=lbfgs computes the loss of one batch hundreds of times, and it is most of the work."""
        known = self._kept is not None and self._kept[0] is rows
        x = self.to_classifier(self._move(self.embedded[rows[:1] if known else rows]))
        assert isinstance(self.classifier, ClassLogits)
        operands, w, scale, bias = self.classifier.operands(x)
        if known and self._kept is not None:
            operands = self._kept[1]
        self._kept = None if operands.requires_grad or operands.is_inference() else (rows, operands)
        return self._both(class_logits(operands, w, scale, bias))

    def logits(self, x: Tensor) -> Tensor:
        """Any points (..., D) of `manifold` -> logits (..., 2), the second of the subtree."""
        return self._both(self.classifier(self.to_classifier(x)))

    def _both(self, logits: Tensor) -> Tensor:
        return logits if logits.shape[-1] == 2 else torch.cat([torch.zeros_like(logits), logits], -1)

    def _move(self, x: Tensor) -> Tensor:
        """Points of the file on `manifold`: by the isometry to another model of their space; in the flat space as they
        stand in the ball."""
        if self.source.is_curved and not self.manifold.is_curved:
            return convert(x, self.source, self.source.twin(PoincareBall))
        return convert(x, self.source, self.manifold)


def _space(embedded: PointsFile, target: Manifold) -> Manifold:
    """The manifold of the points in the file. Raises UserError where they are not on it, or it has another curvature
    than `target`."""
    one_of("The manifold of the points in task.embeddings", embedded.manifold, tuple(MANIFOLDS))
    if embedded.manifold == "Euclidean":
        return MANIFOLDS["Euclidean"]()
    source = MANIFOLDS[embedded.manifold](c=embedded.c)
    check = source.check_point_on_manifold(torch.from_numpy(embedded.points), explain=True)
    assert isinstance(check, tuple)  # because of `explain`
    valid, reason = check
    if not valid:
        raise UserError(f"task.embeddings has points that are not on its {embedded.manifold}: {reason}; take others.")
    if target.is_curved:
        if target.learn_c:
            raise UserError("geometry.learn_c=true: the points of task.embeddings have a curvature; take false.")
        if abs(float(target.c) - embedded.c) > 1e-6 * embedded.c:
            raise UserError(
                f"The points of task.embeddings have c = {embedded.c:g}, and geometry.c is {float(target.c):g}; add "
                f"geometry.c={embedded.c:g}."
            )
    return source
