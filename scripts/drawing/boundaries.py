"""Decision boundaries of a few classes in a plane through the origin (Lopez & Strube 2020, Figure 4).

The paper does not say how its picture became two-dimensional. Here it is the restriction of the trained classifier to
one totally geodesic plane through the origin: nothing is projected, the curves are the zeros of the true logits on that
plane. The plane is spanned by the two principal directions of the (unit) gradients of the logits at the origin. The
level sets of all our logits are symmetric about the line through the origin along that gradient, so a boundary whose
gradient lies in the plane is drawn at its true distance from the origin, and the farther it leaves the plane, the
farther out it is drawn; the legend gives the share of each gradient that the plane holds.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from hyperbolic.kernels.mlr import class_logits
from hyperbolic.layers.classes import ClassLogits
from scripts.drawing import canvas, charts, entity_types
from scripts.drawing.options import FigureOptions, Loader, caption, number_of
from scripts.trained import Run
from tasks.errors import UserError

MOST_CURVES = 6
FAR = 10.0  # times 1/sqrt(c): the disk is drawn up to this distance, 0.9999 of its radius
RADII = 200
FOOT = (
    "Curves: where the trained logit of a type is 0 (probability 1/2), on a totally geodesic plane through the origin "
    "(no projection); shaded: where the type is predicted. The plane is spanned by the 2 principal directions of the "
    "gradients of these logits at the origin. In brackets: distance of the curve from the origin, and the share of the "
    "gradient's length that lies in the plane (at 100 % the boundary is seen at its true distance from the origin)."
)
DISK = " Disk: Poincaré, radius 1."


@dataclass(frozen=True)
class Field:
    """Logits of some classes on a plane through the origin."""

    names: tuple[str, ...]  # of the classes
    x: Tensor  # (R, A), on paper: in the disk, or plain coordinates
    y: Tensor
    logits: Tensor  # (k, R, A)
    shares: Tensor  # (k,), how much of each class's gradient at the origin lies in the plane, between 0 and 1
    nearest: Tensor  # (k,), distance from the origin to the boundary in the plane, infinite where it does not meet it
    extent: float  # of plain axes; 0 for a disk


def draw(runs: Sequence[Run], load: Loader, options: FigureOptions) -> list[Path]:
    """Decision boundaries of three types in a plane of the space (HyFi, Figure 4), a panel for each run."""
    panels, labels = [], None
    if len(options.labels or ()) > MOST_CURVES:
        raise UserError(f"--labels: boundaries of at most {MOST_CURVES} types can be told apart in one picture.")
    for run in runs:
        trained = load(run)
        names, _ = entity_types.types(trained)
        labels = labels or entity_types.labels(trained, options)
        classes = [number_of(label, names, trained) for label in labels]
        classifier = trained.model.classifier
        panels.append((caption(trained, classifier.manifold), field(classifier, labels, classes)))
    return [options.save(plot(panels), "boundaries", runs)]


def field(classifier: ClassLogits, names: Sequence[str], classes: Sequence[int]) -> Field:
    """The logits of the named classes on the plane that their gradients at the origin span as nearly as possible.

    The classifier is used in float64.
    """
    classifier = copy.deepcopy(classifier).double()
    manifold, index = classifier.manifold, torch.tensor(list(classes))
    slopes = gradients(classifier, index)
    units = slopes / slopes.norm(dim=-1, keepdim=True).clamp_min(1e-300)
    basis = charts.principal(units, centred=False)
    if manifold.is_curved:
        extent, far = 0.0, FAR / float(manifold.c.detach()) ** 0.5
    else:
        at_origin = logits_for(classifier, torch.zeros(classifier.d, dtype=torch.float64), index)
        extent = _flat_extent(at_origin, slopes @ basis.axes.mT)
        far = 2**0.5 * extent
    distance = torch.linspace(0, far, RADII, dtype=torch.float64)
    x, y, logits = charts.values_on_rays(
        manifold, lambda x: logits_for(classifier, x, index), distance, charts.radius(manifold, distance), basis.axes
    )
    logits = logits.movedim(-1, 0)
    shares = basis.coordinates(units).norm(dim=-1)
    return Field(tuple(names), x, y, logits, shares, _nearest(logits, distance.unsqueeze(-1)), extent)


def logits_for(classifier: ClassLogits, x: Tensor, classes: Tensor) -> Tensor:
    """Logits (..., k) of some classes only, for points x (..., D)."""
    lifted, w, scale, bias = classifier.operands(x)
    return class_logits(lifted, w[classes], *(None if each is None else each[classes] for each in (scale, bias)))


def gradients(classifier: ClassLogits, classes: Tensor) -> Tensor:
    """Gradient (k, d) of the logits of some classes at the origin, by tangent vectors there."""

    def logits(v: Tensor) -> Tensor:
        return logits_for(classifier, classifier.manifold.expmap0(v), classes)

    with torch.enable_grad():
        return torch.autograd.functional.jacobian(logits, torch.zeros(classifier.d, dtype=torch.float64)).detach()


def _flat_extent(at_origin: Tensor, slopes: Tensor) -> float:
    """Half the side of the plain axes: so that every line is seen that is less than 100 times as far as the nearest.
    at_origin: (k,) logits. slopes: (k, 2), their gradients."""
    distances = (at_origin.abs() / slopes.norm(dim=-1).clamp_min(1e-300)).tolist()
    return 2 * max(d for d in distances if d < 100 * max(min(distances), 1e-6)) or 1.0


def _nearest(logits: Tensor, distance: Tensor) -> Tensor:
    """The smallest distance at which the logit changes its sign along a ray, interpolated: (k,)."""
    low, high = logits[:, :-1], logits[:, 1:]
    crossing = (low > 0) != (high > 0)
    step = low / torch.where(crossing, low - high, 1)
    at = distance[:-1] + step * (distance[1:] - distance[:-1])
    return torch.where(crossing, at, torch.inf).flatten(1).amin(1)


def plot_panel(axis: Axes, title: str, field: Field) -> None:
    """The curves, a light wash on the side where a class is predicted, and the legend."""
    axis.set_title(canvas.wrapped(title, 3.8, 9))
    handles = []
    for i, name in enumerate(field.names):
        if canvas.boundary(axis, field.x, field.y, field.logits[i], **canvas.line_style(i)):
            where = f"{field.nearest[i]:.2f} from the origin"
        else:
            where = "predicted everywhere" if field.logits[i].max() > 0 else "does not meet this plane"
        label = f"{name} ({where}; {100 * field.shares[i]:.0f} %)"
        handles.append(Line2D([], [], label=label, **canvas.line_style(i)))
    canvas.frame(axis, field.extent)
    axis.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.06 if field.extent else 0.0))


def plot(panels: Sequence[tuple[str, Field]]) -> Figure:
    """One panel for each run: (title, field)."""
    head = f"Decision boundaries: {', '.join(panels[0][1].names)}"
    foot = FOOT + DISK if any(not field.extent for _, field in panels) else FOOT
    with canvas.panels(plot_panel, panels, (4.3, 5.3), 0.4, head, foot, least=5.0) as (body, _):
        return body.figure
