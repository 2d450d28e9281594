"""Multi-head attention: against torch's and the written-out formula, masks, causal order, decoding with a cache."""

import itertools

import pytest
import torch
from torch import nn

from hyperbolic.layers import euclidean, tangent
from hyperbolic.layers.multihead import AttentionCache
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from tests.tolerances import tolerance

F64 = torch.float64
IDENTITY = tolerance(F64, "identity")
MASK = torch.tensor([[1, 1, 0, 1, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
MANIFOLDS = [Euclidean(), PoincareBall(c=2.0), Lorentz(c=0.5), Klein(c=2.0)]
manifolds = pytest.mark.parametrize("manifold", MANIFOLDS, ids=lambda m: m.name)


def layer_on(manifold, d: int = 4, n_heads: int = 2, dropout: float = 0.0):
    family = euclidean if manifold.name == "Euclidean" else tangent
    layer = family.MultiHeadAttention(manifold, d, n_heads, dropout).double()
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_(std=0.7)
    return layer


def points(manifold, *size: int) -> torch.Tensor:
    return manifold.random(*size, std=0.7, dtype=F64)


def written_out(layer, x, memory, hidden):
    """Every query, head and key by itself; hidden(b, t, i) says that t does not see i."""
    m, size = layer.manifold, layer.d // layer.n_heads
    u, v = m.logmap0(x), m.logmap0(memory)
    q, k, values = layer.query(u), layer.key(v), layer.value(v)
    rows = torch.zeros(*q.shape, dtype=F64)
    weights = torch.zeros(x.shape[0], layer.n_heads, x.shape[1], memory.shape[1], dtype=F64)
    for b, h, t in itertools.product(range(x.shape[0]), range(layer.n_heads), range(x.shape[1])):
        part = slice(h * size, (h + 1) * size)
        visible = [i for i in range(memory.shape[1]) if not hidden(b, t, i)]
        score = torch.stack([(q[b, t, part] * k[b, i, part]).sum() / size**0.5 for i in visible]).exp()
        weights[b, h, t, visible] = score / score.sum()
        rows[b, t, part] = sum(w * values[b, i, part] for w, i in zip(score / score.sum(), visible, strict=True))
    return m.expmap0(rows), weights


@manifolds
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_its_formula(manifold, causal, masked):
    layer, x = layer_on(manifold), points(manifold, 3, 5, 4)
    mask = MASK if masked else None
    expected, expected_weights = written_out(
        layer, x, x, lambda b, t, i: (causal and i > t) or (masked and not MASK[b, i])
    )
    result, weights = layer(x, mask=mask, causal=causal, return_weights=True)
    torch.testing.assert_close(result, expected, **IDENTITY)
    torch.testing.assert_close(weights, expected_weights, **IDENTITY)
    assert torch.equal(weights == 0, expected_weights == 0)
    torch.testing.assert_close(layer(x, mask=mask, causal=causal), result, **IDENTITY)


@manifolds
def test_attention_to_a_memory_of_another_length(manifold):
    layer, x, memory = layer_on(manifold), points(manifold, 3, 2, 4), points(manifold, 3, 5, 4)
    expected, weights = written_out(layer, x, memory, lambda b, t, i: not MASK[b, i])
    result = layer(x, memory, mask=MASK, return_weights=True)
    torch.testing.assert_close(result[0], expected, **IDENTITY)
    torch.testing.assert_close(result[1], weights, **IDENTITY)
    other = points(manifold, 3, 2, 4)
    causal, _ = written_out(layer, x, other, lambda b, t, i: i > t)
    torch.testing.assert_close(layer(x, other, causal=True), causal, **IDENTITY)


@manifolds
@pytest.mark.parametrize("static", [None, False, True])
def test_causal_order_needs_a_key_for_each_query(manifold, static):
    """With a cache the new keys are counted; a static one has no place for queries that come later."""
    layer, x, memory = layer_on(manifold), points(manifold, 3, 2, 4), points(manifold, 3, 5, 4)
    cache = None if static is None else AttentionCache(static)
    for inputs, keys in ((x, memory), (memory, x)):
        message = rf"causal order needs a key for each query, got {inputs.shape[1]} queries and {keys.shape[1]} keys"
        with pytest.raises(ValueError, match=message):
            layer(inputs, keys, causal=True, cache=cache)
    if cache is not None:
        layer(memory, causal=True, cache=cache)
        keys = 5 if static else 1
        with pytest.raises(ValueError, match=f"got 2 queries and {keys} keys"):
            layer(x, memory[:, :1], causal=True, cache=cache)
        assert cache.length == 5


@pytest.mark.parametrize("masked", [False, True])
def test_values_and_gradients_are_those_of_torch(masked):
    layer, x = layer_on(Euclidean(), 6, 3), points(Euclidean(), 3, 5, 6).requires_grad_()
    peer = nn.MultiheadAttention(6, 3, batch_first=True).double()
    nn.init.zeros_(peer.in_proj_bias)
    with torch.no_grad():
        peer.in_proj_weight.copy_(torch.cat([layer.query.weight, layer.key.weight, layer.value.weight]))
        peer.in_proj_bias[:6], peer.in_proj_bias[12:] = layer.query.bias, layer.value.bias
        peer.out_proj.weight.copy_(torch.eye(6))
        peer.out_proj.bias.zero_()
    result = layer(x, mask=MASK if masked else None)
    expected = peer(x, x, x, key_padding_mask=~MASK if masked else None, need_weights=False)[0]
    torch.testing.assert_close(result, expected, **IDENTITY)
    weight = torch.randn(3, 5, 6, dtype=F64)
    parameters = [x, layer.query.weight, layer.key.weight, layer.value.weight, layer.query.bias, layer.value.bias]
    ours = torch.autograd.grad((weight * result).sum(), parameters)
    theirs = torch.autograd.grad((weight * expected).sum(), [x, peer.in_proj_weight, peer.in_proj_bias])
    torch.testing.assert_close(ours[0], theirs[0], **IDENTITY)
    torch.testing.assert_close(torch.cat(ours[1:4]), theirs[1], **IDENTITY)
    torch.testing.assert_close(torch.cat(ours[4:]), torch.cat([theirs[2][:6], theirs[2][12:]]), **IDENTITY)


@manifolds
def test_hidden_points_do_not_count(manifold):
    layer, x = layer_on(manifold), points(manifold, 3, 5, 4)
    result = layer(x, mask=MASK)
    for b in range(3):
        alone = layer(x[b : b + 1], x[b : b + 1, MASK[b]])
        torch.testing.assert_close(result[b], alone[0], **IDENTITY)


@manifolds
def test_padding_at_the_start_gives_no_nan(manifold):
    """Position 0 sees only itself, and the mask hides it."""
    layer, x = layer_on(manifold), points(manifold, 2, 4, 4).requires_grad_()
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]], dtype=torch.bool)
    result, weights = layer(x, mask=mask, causal=True, return_weights=True)
    result.square().sum().backward()
    assert torch.isfinite(result).all()
    assert torch.isfinite(x.grad).all()
    assert not weights[0, :, 2:, :2].any()
    alone = layer(x[:1, 2:], causal=True)
    torch.testing.assert_close(result[:1, 2:], alone, **IDENTITY)


@manifolds
@pytest.mark.parametrize("chunks", [(1, 1, 1, 1, 1), (2, 1, 2), (4, 1)])
@pytest.mark.parametrize("masked", [False, True])
def test_cached_steps_are_the_causal_attention(manifold, chunks, masked):
    layer, x = layer_on(manifold), points(manifold, 3, 5, 4)
    full = layer(x, mask=MASK if masked else None, causal=True)
    cache, start, parts = AttentionCache(), 0, []
    for size in chunks:
        assert cache.length == start
        visible = MASK[:, : start + size] if masked else None
        parts.append(layer(x[:, start : start + size], mask=visible, causal=True, cache=cache))
        start += size
    torch.testing.assert_close(torch.cat(parts, 1), full, **IDENTITY)


@manifolds
@pytest.mark.parametrize("chunks", [(1, 1, 1, 1), (2, 2), (3, 1), (1, 3), (4,)])
def test_cached_steps_with_padding_at_the_start(manifold, chunks):
    """Also of a row that the mask hides as a whole."""
    layer, x = layer_on(manifold), points(manifold, 3, 4, 4)
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]], dtype=torch.bool)
    full, full_weights = layer(x, mask=mask, causal=True, return_weights=True)
    torch.testing.assert_close(full[:1, 2:], layer(x[:1, 2:], causal=True), **IDENTITY)
    torch.testing.assert_close(full[2:], layer(x[2:], causal=True), **IDENTITY)
    cache, start, parts = AttentionCache(), 0, []
    for size in chunks:
        end = start + size
        part, weights = layer(x[:, start:end], mask=mask[:, :end], causal=True, cache=cache, return_weights=True)
        torch.testing.assert_close(weights, full_weights[..., start:end, :end], **IDENTITY)
        parts.append(part)
        start = end
    torch.testing.assert_close(torch.cat(parts, 1), full, **IDENTITY)


@manifolds
@pytest.mark.parametrize("static", [False, True])
def test_a_call_that_fails_leaves_the_cache_as_it_was(manifold, static, monkeypatch):
    layer, x = layer_on(manifold), points(manifold, 3, 5, 4)
    plain = layer(x, causal=not static)

    def fail(*_):
        raise RuntimeError("out of memory")

    for filled in (False, True):
        cache = AttentionCache(static=static)
        if filled:
            layer(x if static else x[:, :2], causal=not static, cache=cache)
        held = (cache.keys, cache.values)
        rest = x if static or not filled else x[:, 2:]
        total = cache.length if static and filled else cache.length + rest.shape[1]
        hidden = torch.ones(3, total, dtype=torch.bool)
        hidden[1] = False
        mistakes = [(rest, {"mask": MASK[:, :1]}), (rest, {"mask": hidden.float()}), (rest, {"mask": hidden})]
        mistakes += [(rest[:, :0], {}), (rest[..., :-1], {}), (rest[0], {})]
        if filled:
            mistakes.append((rest[:2], {}))
        for inputs, options in mistakes:
            with pytest.raises(ValueError, match=r"\.MultiHeadAttention: "):
                layer(inputs, cache=cache, **options)
            assert (cache.keys, cache.values) == held
        with monkeypatch.context() as patch:
            patch.setattr(type(layer), "merge", fail)
            with pytest.raises(RuntimeError, match="out of memory"):
                layer(rest, cache=cache)
            assert (cache.keys, cache.values) == held
        result = layer(rest, causal=not static, cache=cache)
        torch.testing.assert_close(result, plain[:, -rest.shape[1] :], **IDENTITY)


def test_a_cache_of_another_batch_is_named():
    layer, x, cache = layer_on(Euclidean()), points(Euclidean(), 3, 2, 4), AttentionCache()
    layer(x, causal=True, cache=cache)
    with pytest.raises(ValueError, match=r"the cache holds a batch of 3, got points of shape \(1, 2, 4\)"):
        layer(x[:1], causal=True, cache=cache)


@manifolds
def test_a_static_cache_keeps_the_first_memory(manifold):
    layer, x, memory = layer_on(manifold), points(manifold, 3, 2, 4), points(manifold, 3, 5, 4)
    cache = AttentionCache(static=True)
    first = layer(x, memory, mask=MASK, cache=cache)
    torch.testing.assert_close(first, layer(x, memory, mask=MASK), **IDENTITY)
    other = points(manifold, 3, 5, 4)
    assert torch.equal(layer(x, other, mask=MASK, cache=cache), first)
    assert cache.length == 5


def test_a_cache_is_reordered():
    layer, x = layer_on(Euclidean()), points(Euclidean(), 3, 4, 4)
    order, cache = torch.tensor([2, 0, 0, 1]), AttentionCache()
    cache.reorder(order)
    assert cache.length == 0
    layer(x[:, :3], causal=True, cache=cache)
    cache.reorder(order)
    result = layer(x[order, 3:], causal=True, cache=cache)
    torch.testing.assert_close(result, layer(x[order], causal=True)[:, 3:], **IDENTITY)


@manifolds
def test_dropout_acts_on_weights_and_only_in_training(manifold):
    layer, x = layer_on(manifold, dropout=0.5), points(manifold, 3, 5, 4)
    assert not torch.allclose(layer(x), layer(x))
    torch.testing.assert_close(layer.eval()(x), layer(x))
    plain = layer_on(manifold)
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), plain(x))


@manifolds
def test_empty_batches_and_strided_inputs(manifold):
    layer, x = layer_on(manifold), points(manifold, 3, 5, 4)
    assert layer(x[:0]).shape == (0, *x.shape[1:])
    assert layer(x[:0], mask=MASK[:0], causal=True).shape == (0, *x.shape[1:])
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    torch.testing.assert_close(layer(strided), layer(x))
    torch.testing.assert_close(layer(x[:1]), layer(x)[:1])


@pytest.mark.parametrize("n_heads", [0, -1, 3, 5])
def test_a_head_count_that_does_not_divide_the_width(n_heads):
    with pytest.raises(ValueError, match=f"euclidean.MultiHeadAttention: the size 4 .* {n_heads} heads"):
        layer_on(Euclidean(), 4, n_heads)
    with pytest.raises(ValueError, match=f"tangent.MultiHeadAttention: the size 4 .* {n_heads} heads"):
        layer_on(Lorentz(c=2.0), 4, n_heads)


@manifolds
def test_mistakes_are_named(manifold):
    layer, x = layer_on(manifold), points(manifold, 3, 5, 4)
    name = ("euclidean" if manifold.name == "Euclidean" else "tangent") + ".MultiHeadAttention: "
    nothing = MASK.clone()
    nothing[1] = False
    for message, args, options in (
        (r"the mask must have the shape \(3, 5\), got \(3, 4\)", (x,), {"mask": MASK[:, :4]}),
        (r"the mask must have the shape \(3, 2\), got \(3, 5\)", (x, x[:, :2]), {"mask": MASK}),
        (r"the mask of shape \(3, 5\) hides every position of row 1", (x,), {"mask": nothing}),
        (r"the mask must be boolean, .* torch.float64 of shape \(3, 5\)", (x,), {"mask": MASK.double()}),
        ("empty sequence: 0 queries, 0 keys", (x[:, :0],), {}),
        ("empty sequence: 5 queries, 0 keys", (x, x[:, :0]), {}),
        ("empty sequence: 0 queries, 5 keys", (x[:, :0], x), {}),
        (r"takes points \(B, T, D\)", (x[0],), {}),
        (r"a memory of shape \(2, 5, \d\)", (x, x[:2]), {}),
    ):
        with pytest.raises(ValueError, match=name + ".*" + message):
            layer(*args, **options)
