"""Small graphs in the files of published ones."""

import pickle
from pathlib import Path

import numpy as np
from scipy import sparse


def planetoid_files(folder: Path) -> list[Path]:
    """Write a path of 30 nodes with three classes as Cora; returns the files."""
    folder.mkdir()
    features = sparse.csr_matrix((np.random.default_rng(0).random((30, 6)) < 0.5).astype(np.float32))
    labels = np.eye(3, dtype=np.int32)[np.arange(30) % 3]
    links = {k: [j for j in (k - 1, k + 1) if 0 <= j < 30] for k in range(30)}
    parts = {
        "x": features[:9], "y": labels[:9], "allx": features[:20], "ally": labels[:20], "tx": features[20:],
        "ty": labels[20:], "graph": links,
    }  # fmt: skip
    for name, value in parts.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(value, protocol=2))
    (folder / "ind.cora.test.index").write_text("\n".join(map(str, range(20, 30))))
    return sorted(folder.iterdir())
