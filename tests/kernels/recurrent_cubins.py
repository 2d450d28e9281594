"""Builds the Triton kernels of recurrent sequences for a GPU that need not be there; prints, as JSON, the size of each and
what it takes of the memory on the chip: ``recurrent_cubins.py gru 90``."""

import json
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from hyperbolic.kernels.recurrent import cuda
from hyperbolic.kernels.recurrent import triton as kernels

TYPES = {"lengths_ptr": "*i64", "c_ptr": "*fp64", "g_c_ptr": "*fp64"}


def build(name: str, capability: int) -> tuple[int, int]:
    kernel = getattr(kernels, name)
    constants = {"DIRS": 1, "PHI": 1, "ENDED": True, "BB": cuda.ROWS, "BH": cuda.HIDDEN, "BD": 64}
    signature, aligned = {}, {}
    for i, parameter in enumerate(kernel.params):
        pointer = parameter.name.endswith("_ptr")
        usual = "*fp32" if pointer else "constexpr" if parameter.is_constexpr else "i32"
        signature[parameter.name] = TYPES.get(parameter.name, usual)
        if pointer:
            aligned[i,] = [["tt.divisibility", 16]]
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    target = GPUTarget("cuda", capability, 32)
    built = triton.compile(source, target=target, options={"num_warps": cuda.ROWS * cuda.HIDDEN // 32})
    return len(built.asm["cubin"]), built.metadata.shared


if __name__ == "__main__":
    kind, capability = sys.argv[1], int(sys.argv[2])
    print(json.dumps({f"{kind}_{step}": build(f"{kind}_{step}", capability) for step in ("forward", "backward")}))
