"""ConvE: head and relation as one image, a convolution over it, and an inner product with the tail."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hyperbolic.encoders.relational.batch_norm import normalise
from hyperbolic.encoders.relational.bilinear import Bilinear
from hyperbolic.geometry import Geometry
from hyperbolic.kernels.table_rows import table_rows
from hyperbolic.switch import is_followed

_KERNEL = 3
_BLOCK = 1 << 24  # entries of feature maps that are held at once in evaluation


class ConvE(Bilinear):
    """``<relu(W vec(relu(w * [h; r])) + b), e_t> + b_t`` (Dettmers et al. 2018)

    Rows of head and relation become images (height, d / height), stacked to (2 height, d / height); ``w *`` is a 3x3
    convolution without padding to n_filters feature maps, and W projects them to d. As in the paper's program: batch
    norms of the image, of the maps and of the projected vector, the last after its dropout; biases b_t of the entities
    from zero; rows Glorot normal. The convolution has no bias, as a batch norm follows it.

    In training, a batch of one is normalised with the running statistics: see `batch_norm.normalise`.

    Args:
        d: size of entities and relations. height: rows of an image; divides d.
        n_filters: feature maps of the convolution.
        input_dropout: of the image; feature_dropout: of whole feature maps; hidden_dropout: of the projected vector;
            each 0 to 1.

    Raises:
        ValueError: height does not divide d, the stacked image is smaller than the filters, or n_filters below 1.
    """

    def __init__(
        self,
        geometry: Geometry,
        n_entities: int,
        n_relations: int,
        sparse: bool,
        d: int,
        height: int,
        n_filters: int,
        input_dropout: float,
        feature_dropout: float,
        hidden_dropout: float,
    ):
        super().__init__(geometry, n_entities, n_relations, sparse, d, d_relation=d)
        if n_filters < 1:
            raise ValueError(f"ConvE: n_filters must be at least 1, got {n_filters}")
        if height < 1 or d % height:
            raise ValueError(f"ConvE: height must divide d={d}, got {height}")
        self.height, self.width = height, d // height
        maps = (2 * height - _KERNEL + 1, self.width - _KERNEL + 1)
        if min(maps) < 1:
            raise ValueError(
                f"ConvE: with d={d} and height={height} the image is {2 * height} x {self.width}, smaller than the "
                f"filters of {_KERNEL} x {_KERNEL}; choose another height"
            )
        self.start_xavier()
        self.bias = nn.Parameter(torch.zeros(n_entities, 1))
        self.filters = nn.Conv2d(1, n_filters, _KERNEL, bias=False)
        self.project = nn.Linear(n_filters * maps[0] * maps[1], d)
        self.image_norm, self.map_norm = nn.BatchNorm2d(1), nn.BatchNorm2d(n_filters)
        self.query_norm = nn.BatchNorm1d(d)
        self.image_drop, self.map_drop = nn.Dropout(input_dropout), nn.Dropout2d(feature_dropout)
        self.query_drop = nn.Dropout(hidden_dropout)

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        rows = torch.stack([self.entity(h), self.relation(r)], 1)
        image = rows.view(-1, 1, 2 * self.height, self.width)
        if self.training or is_followed(image):  # a number of blocks would fix the size of the batch
            return self._convolve(image)
        block = max(1, _BLOCK // self.project.in_features)
        return torch.cat([self._convolve(part) for part in image.split(block)])

    def _convolve(self, image: Tensor) -> Tensor:
        x = self.image_drop(normalise(self.image_norm, image))
        x = self.map_drop(normalise(self.map_norm, self.filters(x)).relu())
        x = self.query_drop(self.project(x.flatten(1)))
        return normalise(self.query_norm, x).relu()

    def compare(self, query: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return super().compare(query, r, t) + table_rows(self.bias, t, self.sparse).squeeze(-1)

    def compare_all(self, query: Tensor, r: Tensor, rows: slice | Tensor) -> Tensor:
        return torch.addmm(self.rows_of(self.bias, rows).T, query, self.rows_of(self.entity.weight, rows).T)


__all__ = ["ConvE"]
