"""Counts what a step of a layer launches on a GPU, without one.

The layer runs on a CPU as it does on a GPU: operators go through :mod:`hyperbolic.fusion`. Of each graph that is
compiled, inductor's Triton code is made for a GPU that need not be there, and its calls are counted: kernels, matrix
products and other operations of PyTorch, one launch each. Around the operators every operation that is no view and does
more than allocate counts as one. Small copies to align memory, and the parts into which a library splits its own work,
are not counted.
"""

import contextlib
import copy
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from unittest import mock

import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor import compile_fx, config
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map_only
from torch.utils._triton import has_triton

from hyperbolic import fusion, switch
from hyperbolic.layers import classes

GPU = SimpleNamespace(
    name="NVIDIA H100",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=80 << 30,
    max_threads_per_block=1024,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    warp_size=32,
    L2_cache_size=50 << 20,
    gcnArchName="",
)
CALL = re.compile(r"(triton_\w+)\.run\(|extern_kernels\.(\w+)\(|torch\.ops\.([\w.]+)\(")
NO_LAUNCH = {
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided",
    "aten::_unsafe_view", "aten::_reshape_alias", "aten::_local_scalar_dense", "aten::is_same_size",
    "aten::lift_fresh", "aten::scalar_tensor",
}  # fmt: skip


class _Around(TorchDispatchMode):
    """Names of the operations that run around the compiled ones."""

    def __init__(self, names: list[str]):
        super().__init__()
        self.names = names

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not func.is_view and func.name().partition(".")[0] not in NO_LAUNCH:
            self.names.append(func.name())
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _gpu_in_name() -> Iterator[list[str]]:
    """Inductor makes Triton code as on a GPU, and stops there; the code of each graph."""
    codes: list[str] = []

    def lower(graph: GraphLowering, *inputs: object) -> None:
        """The graph, to which all passes have been applied, with its tensors on a GPU."""
        with graph.fake_mode:
            for node in graph.module.graph.nodes:
                if "val" in node.meta:
                    node.meta["val"] = tree_map_only(Tensor, _on_gpu, node.meta["val"])
                if "device" in node.kwargs:
                    node.kwargs = {**node.kwargs, "device": torch.device("cuda", 0)}
            inputs = tree_map_only(Tensor, _on_gpu, inputs)
        run(graph, *inputs)

    def keep(graph: GraphLowering) -> None:
        code = graph.codegen()[0]
        codes.append(code if isinstance(code, str) else code.value)
        raise NotImplementedError("there is no GPU to run it on")

    run = GraphLowering.run
    with contextlib.ExitStack() as stack:
        for name, value in {
            "_lazy_init": lambda: None,
            "_get_device_properties": lambda device: GPU,
            "get_device_capability": lambda *device: (GPU.major, GPU.minor),
            "current_device": lambda: 0,
            "device_count": lambda: 1,
            "is_available": lambda: True,
            "_exchange_device": lambda device: 0,
            "_maybe_exchange_device": lambda device: 0,
        }.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value, create=True))
        stack.enter_context(mock.patch("torch.utils._triton.triton_hash_with_backend", return_value=""))
        stack.enter_context(mock.patch("torch._dynamo.utils.preserve_rng_state", contextlib.nullcontext))
        # of PyTorch with CUDA, which asks the driver
        stack.enter_context(mock.patch("torch._subclasses.fake_tensor.init_gpu_context", return_value=None))
        has_triton.cache_clear()
        stack.callback(has_triton.cache_clear)
        stack.enter_context(mock.patch.object(GraphLowering, "run", lower))
        stack.enter_context(mock.patch.object(GraphLowering, "compile_to_module", keep))
        yield codes


def _on_gpu(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")


def launches_of(graph: torch.fx.GraphModule, inputs: list) -> list[str]:
    """What inductor's code for this graph launches."""
    with _gpu_in_name() as codes:
        try:
            compile_fx.compile_fx_inner(copy.deepcopy(graph), inputs)
        except Exception:
            if not codes:
                raise
    body = codes[0].partition("def call(")[2].partition("\nrunner =")[0]
    return ["".join(groups) for groups in CALL.findall(body)]


def _partition(joint: torch.fx.GraphModule, inputs: list, **kwargs):
    """The graphs of both directions, as inductor makes them."""
    compile_fx._recursive_joint_graph_passes(joint)
    return min_cut_rematerialization_partition(joint, inputs, compiler="inductor", **kwargs)


def count(step: Callable[[], object]) -> list[str]:
    """What a step launches, when everything it needs is compiled."""
    names: list[str] = []

    def compiler(graph, inputs):
        launched = launches_of(graph, inputs)

        def run(arguments):
            names.extend(launched)
            with _disable_current_modes():
                return graph(*arguments)

        run._boxed_call = True
        return run

    def value(self, arguments):
        with _disable_current_modes(), config.patch(fusion.options(self)):
            return original(self, arguments)

    original = fusion.Fusion.value
    backend = aot_autograd(
        fw_compiler=compiler,
        decompositions=select_decomp_table(),
        partition_fn=_partition,
    )
    torch._dynamo.reset()
    with (
        mock.patch.object(fusion, "DEVICES", ("cpu",)),
        mock.patch.object(fusion, "BACKEND", backend),
        mock.patch.object(fusion.Fusion, "compiled", {}),
        mock.patch.object(fusion.Fusion, "value", value),
        mock.patch.object(classes, "_checks_values", return_value=False),
        mock.patch.object(switch, "_dispatch_modes", return_value=0),  # that of the count does not count
    ):
        step()
        names.clear()
        with _Around(names):
            step()
    torch._dynamo.reset()
    return names
