"""Hyperbolic neural networks for language, installed: `hyperbolic` is the library, and this package the rest.

`hyperbolic train task=prefix_toy` on the command line is `python run.py task=prefix_toy` (`hyperbolic --help`), and

```python
from hyperbolic_language import load
exported = load("my_model")                         # a folder that `hyperbolic export RUN --format folder` wrote
names, manifold, points = exported.points["words"]
```

reads a trained model. The modules `tasks`, `configs` and `scripts` have these names inside of this package only; `use`
makes them importable.
"""

import os
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.exported import Exported

_HERE = Path(__file__).resolve().parent
# In site-packages this folder; in a checkout, where this file lies in scripts/package, the checkout's.
ROOT = next(folder for folder in (_HERE, *_HERE.parents[1:2]) if (folder / "run.py").is_file())
NEEDED = ("hydra", "pytorch_lightning", "torchtext")  # of what the extra `train` adds
INSIDE = ("tasks", "configs", "scripts", "run")


def use() -> Path:
    """Put the folder of `tasks`, `configs` and `scripts` first on `sys.path`, of this process and those it starts.

    Raises:
        ImportError: a module of one of these names is imported already, and is not ours.
    """
    for name in INSIDE:
        module = sys.modules.get(name)
        places = [*getattr(module, "__path__", []), getattr(module, "__file__", None)]
        if module is not None and not any(place and Path(place).resolve().is_relative_to(ROOT) for place in places):
            where = next(filter(None, places), "an unknown place")
            raise ImportError(
                f"A module called {name!r} is imported already, from {where}, and hyperbolic_language has one of that "
                f"name, in {ROOT}. Use it in a process of its own, or rename yours."
            )
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(ROOT) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, paths)])
    return ROOT


def check_installed(purpose: str) -> None:
    """Raise ImportError where only the library is installed."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ImportError(
            f"{purpose} needs more than the library, which alone is installed ({', '.join(missing)} cannot be found): "
            f"pip install 'hyperbolic_language-{version('hyperbolic-language')}-py3-none-any.whl[train]', with its "
            "path, or pip install '.[train]' in a checkout"
        )


def load(folder: str | Path) -> "Exported":
    """A trained model that was exported as a folder: its weights, configuration and points by name.

    Raises:
        ValueError: a file is missing, altered or damaged (`tasks.errors.UserError`, which names it).
        ImportError: see `use`; or what the extra `train` adds is missing.
    """
    check_installed("hyperbolic_language.load")
    use()
    from tasks import exported

    return exported.load(folder)
