"""Every layer of a geometry with small inputs, as the checks of :mod:`scripts.composability` call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from hyperbolic.geometry import Geometry
from hyperbolic.layers.neighbours import with_themselves

_LENGTHS = torch.tensor([4, 1, 3])
B, T, D = 3, 4, 3  # rows, positions and size of the inputs


class Subject:
    """A layer with inputs; ``call(parameters, *inputs)`` gives its first result."""

    def __init__(self, layer: nn.Module, *inputs: Tensor, **fixed: Any):
        self.layer, self.inputs, self.fixed = layer.double().eval(), inputs, fixed
        self.whole = any(isinstance(value, nn.Module) for value in fixed.values())  # of one graph: no batch
        self.parameters = {name: p.detach().clone() for name, p in layer.named_parameters()}

    def call(self, parameters: dict[str, Tensor], *inputs: Tensor) -> Tensor:
        return first(functional_call(self.layer, parameters, inputs, self.fixed))

    def differentiable(self) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
        """The result as a function of the parameters and the inputs that are no integers, and those."""
        names, n = list(self.parameters), len(self.parameters)
        free = [i for i, x in enumerate(self.inputs) if x.is_floating_point()]

        def function(*tensors: Tensor) -> Tensor:
            inputs = list(self.inputs)
            for i, x in zip(free, tensors[n:], strict=True):
                inputs[i] = x
            return self.call(dict(zip(names, tensors[:n], strict=True)), *inputs)

        return function, (*self.parameters.values(), *(self.inputs[i].detach() for i in free))

    def gradients(self, call: Callable[..., Tensor], of_inputs: bool = True) -> list[Tensor]:
        """The result of a call on the inputs, and what it gives as gradients, of the parameters alone or of both."""
        inputs = [x.detach().requires_grad_(of_inputs) if x.is_floating_point() else x for x in self.inputs]
        leaves = [x for x in inputs if x.requires_grad] + [p for p in self.layer.parameters() if p.requires_grad]
        y = call(*inputs)
        if not leaves:
            return [y]
        weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)
        grads = torch.autograd.grad((y * weights).sum(), leaves, allow_unused=True, materialize_grads=True)
        return [y.detach(), *grads]


class First(nn.Module):
    """A layer's first result, with arguments that are fixed."""

    def __init__(self, subject: Subject):
        super().__init__()
        self.layer, self.fixed = subject.layer, subject.fixed

    def forward(self, *inputs: Tensor) -> Tensor:
        return first(self.layer(*inputs, **self.fixed))


def first(result: Any) -> Tensor:
    """The result of a layer, or the first of several."""
    first: Tensor = result if isinstance(result, Tensor) else result[0]
    return first


def subjects(geometry: Geometry) -> dict[str, Callable[[], Subject]]:
    """By name, makers of every layer of a geometry's family."""
    m = geometry.manifold

    def points(*size: int) -> Tensor:
        x: Tensor = m.random(*size, std=0.4, dtype=torch.float64)
        return x.detach()

    def vectors(*size: int) -> Tensor:
        return torch.randn(*size, dtype=torch.float64)

    def of(name: str) -> Any:
        return geometry.family.layers[name]

    def make(name: str, *arguments: Any, **options: Any) -> Any:
        return of(name)(m, *arguments, **options)

    x, row = points(B, T, D), points(B, D)
    features = torch.linspace(0, 1, B, dtype=torch.float64).unsqueeze(-1)
    index = torch.tensor([[1, 2, 0, 3], [4, 4, 1, 1], [0, 5, 2, 3]])
    return {
        "Linear": lambda: Subject(make("Linear", D, 5), row),
        "Concat": lambda: Subject(make("Concat", (D, D), 4, n_features=1), row, row.flip(0), features=features),
        "Activation": lambda: Subject(make("Activation", "tanh"), row),
        "Dropout": lambda: Subject(make("Dropout", 0.3), row),
        "Embedding": lambda: Subject(make("Embedding", 6, D), index),
        "PositionEncoding": lambda: Subject(make("PositionEncoding", D, T), x),
        "Norm": lambda: Subject(make("Norm", D), x),
        "Residual": lambda: Subject(make("Residual", D, D), x, x.flip(0)),
        "FeedForward": lambda: Subject(make("FeedForward", D, 6), x),
        "Centroid": lambda: Subject(make("Centroid"), x),
        "OrderedSum": lambda: Subject(make("OrderedSum"), x),
        "Aggregation": lambda: _aggregation(make, points),
        "Attention": lambda: Subject(make("Attention", D, n_positions=T), x, torch.arange(T).expand(B, T)),
        "ContextAttention": lambda: Subject(make("ContextAttention", D), x),
        "MultiHeadAttention": lambda: Subject(make("MultiHeadAttention", D, 3), x, x.flip(1)),
        "RNNCell": lambda: _cell(make("RNNCell", D, 4), row, points),
        "GRUCell": lambda: _cell(make("GRUCell", D, 4), row, points),
        "RNN": lambda: Subject(make("RNN", D, 4), x, lengths=_LENGTHS),
        "GRU": lambda: Subject(make("GRU", D, 4), x, lengths=_LENGTHS),
        "Logits": lambda: Subject(make("Logits", D, 6), row),
        "HyperplaneLogits": lambda: Subject(make("HyperplaneLogits", D, 6), row),
        "dist": lambda: _formula(lambda a, b: m.dist(a, b), row, row.roll(1, 0)),
        "expmap": lambda: _formula(lambda a, u: m.expmap(a, m.proju(a, u)), row, vectors(*row.shape)),
        "logmap": lambda: _formula(lambda a, b: m.logmap(a, b), row, row.roll(1, 0)),
        "centroid": lambda: _formula(lambda a: m.centroid(a), x),
    }


class Formula(nn.Module):
    """A formula of a manifold as a layer."""

    def __init__(self, function: Callable[..., Tensor]):
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def _formula(function: Callable[..., Tensor], *inputs: Tensor) -> Subject:
    return Subject(Formula(function), *inputs)


def _cell(layer: nn.Module, row: Tensor, points: Callable[..., Tensor]) -> Subject:
    return Subject(layer, row, points(B, 4))


def _aggregation(make: Any, points: Callable[..., Tensor]) -> Subject:
    pairs = torch.tensor([[0, 1], [1, 2]])
    return Subject(make("Aggregation", D), points(B, D), neighbours=with_themselves(pairs, B))
