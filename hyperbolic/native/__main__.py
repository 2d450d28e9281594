"""python -m hyperbolic.native: compile the C++ kernels now, and not when they are first used."""

import sys

from hyperbolic.native.build import main

if __name__ == "__main__":
    sys.exit(main())
