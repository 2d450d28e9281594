"""Builds Triton kernels for a GPU that need not be there; prints, as JSON, the size of each and what it takes of the
memory on the chip: ``cubins.py gru 90``, ``cubins.py steps 90``."""

import json
import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from hyperbolic.kernels.recurrent import cuda
from hyperbolic.kernels.recurrent import triton as recurrent
from hyperbolic.kernels.riemannian_steps import triton as riemannian_steps

TYPES = {"lengths_ptr": "*i64", "c_ptr": "*fp64", "g_c_ptr": "*fp64"}
TYPES |= {"jobs_ptr": "*i64", "parts_ptr": "*i64", "squares_ptr": "*fp64", "scales_ptr": "*fp64"}


def build(kernel: Any, capability: int, warps: int, **constants: int) -> tuple[int, int]:
    signature, aligned = {}, {}
    for i, parameter in enumerate(kernel.params):
        pointer = parameter.name.endswith("_ptr")
        usual = "*fp32" if pointer else "constexpr" if parameter.is_constexpr else "i32"
        signature[parameter.name] = TYPES.get(parameter.name, usual)
        if pointer:
            aligned[i,] = [["tt.divisibility", 16]]
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    target = GPUTarget("cuda", capability, 32)
    binaries = triton.compile(source, target=target, options={"num_warps": warps, "enable_fp_fusion": True})
    return len(binaries.asm["cubin"]), binaries.metadata.shared


if __name__ == "__main__":
    kind, capability = sys.argv[1], int(sys.argv[2])
    if kind == "steps":
        binaries = {name: build(getattr(riemannian_steps, name), capability, 8) for name in ("squares", "scales")}
        for points, warps in ((False, 8), (True, 4)):
            binaries[f"{points}"] = build(riemannian_steps.steps, capability, warps, CLIPS=True, POINTS=points)
    else:
        sizes, warps = {"BB": cuda.ROWS, "BH": cuda.HIDDEN, "BD": cuda.HIDDEN}, cuda.ROWS * cuda.HIDDEN // 32
        binaries = {
            name: build(getattr(recurrent, name), capability, warps, DIRS=1, PHI=1, ENDED=True, **sizes)
            for name in (f"{kind}_forward", f"{kind}_backward")
        }
    print(json.dumps(binaries))
