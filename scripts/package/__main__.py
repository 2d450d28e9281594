"""python -m hyperbolic_language: the command `hyperbolic`, where its folder is not on PATH."""

import sys

from .console import main

if __name__ == "__main__":
    sys.exit(main())
