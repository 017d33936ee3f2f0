"""Independent forward pass of the architectures that kvant runs: numpy, float64, on dequantized GGUF weights.

Written from the model papers and the transformers models, for numbers that kvant did not make; it shares no code with
it. check_transformers.py holds it against transformers. Needs numpy and gguf.
"""

import math
from types import SimpleNamespace

import gguf
import numpy as np


class Weights:
    """The file: metadata by name, tensors dequantized on first use as [out, in] (or [n]) float64."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.meta = {f.name: f.contents() for f in reader.fields.values()}
        self.tensors = {t.name: t for t in reader.tensors}
        self.cache = {}

    def __contains__(self, name):
        return name in self.tensors

    def __getitem__(self, name):
        if name not in self.cache:
            t = self.tensors[name]
            values = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
            self.cache[name] = values.reshape(tuple(reversed(t.shape.tolist()))).astype(np.float64)
        return self.cache[name]

    def get(self, name):
        return self[name] if name in self else None


def is_local(arch, layer, pattern):
    """True for a sliding-window layer. pattern: period or one flag per layer, as the file says, or None."""
    if isinstance(pattern, list):
        return bool(pattern[layer])
    period = pattern if pattern is not None else {"gemma2": 2, "gemma3": 6}.get(arch, 0)
    return period == 0 or layer % period < period - 1


def read_hparams(w, n_ctx):
    """Everything that is not a tensor. n_ctx: context of the session, which picks LongRoPE's factors."""
    arch = w.meta["general.architecture"]
    key = lambda name, default=None: w.meta.get(f"{arch}.{name}", default)
    h = SimpleNamespace(arch=arch, n_layers=key("block_count"), n_embd=key("embedding_length"))
    h.n_heads = key("attention.head_count")
    h.n_kv_heads = key("attention.head_count_kv", h.n_heads)
    h.head_dim = key("attention.key_length", h.n_embd // h.n_heads)
    h.eps = key("attention.layer_norm_rms_epsilon")
    h.gemma = arch.startswith("gemma")
    h.neox = arch != "llama"
    big = {"gemma2": 46, "gemma3": 62}.get(arch) == h.n_layers  # the 27B models scale by n_embd / n_heads
    h.scale = 1 / math.sqrt(h.n_embd / h.n_heads if big else h.head_dim)
    caps = (50.0, 30.0) if arch == "gemma2" else (0.0, 0.0)
    h.attn_cap = key("attn_logit_softcapping", caps[0])
    h.final_cap = key("final_logit_softcapping", caps[1])

    window = key("attention.sliding_window", 4096 if arch == "gemma2" else 0)
    if arch not in ("gemma2", "gemma3", "phi3"):
        window = 0
    pattern = key("attention.sliding_window_pattern")
    h.windows = [window if window and is_local(arch, i, pattern) else 0 for i in range(h.n_layers)]

    rope = read_rope(w, key, h, n_ctx)
    local = rope
    if arch == "gemma3":  # local layers: a base of their own, never scaled
        local = SimpleNamespace(inv=inverse_frequencies(rope.n_rot, key("rope.freq_base_swa", 10000.0)), mag=1.0)
    h.ropes = [local if window else rope for window in h.windows]
    return h


def inverse_frequencies(n_rot, base):
    return float(base) ** (-np.arange(0, n_rot, 2, dtype=np.float64) / n_rot)


def read_rope(w, key, h, n_ctx):
    """Angles per position (inv) and the factor on cosine and sine (mag), for layers that are not local."""
    n_rot = key("rope.dimension_count", h.head_dim)
    base = key("rope.freq_base", 10000.0)
    inv, mag = inverse_frequencies(n_rot, base), key("rope.scaling.attn_factor", 1.0)
    kind, factor = key("rope.scaling.type", "linear"), key("rope.scaling.factor", 1.0) or 1.0
    n_orig = key("rope.scaling.original_context_length", key("context_length"))
    if kind == "linear":
        inv = inv / factor
    elif kind == "yarn":
        inv = yarn_frequencies(inv, n_rot, base, factor, n_orig, key("rope.scaling.yarn_beta_fast", 32.0),
                               key("rope.scaling.yarn_beta_slow", 1.0))
        log_mul = key("rope.scaling.yarn_log_multiplier", 0.0)
        mag *= (1 + 0.1 * math.log(factor)) / (1 + 0.1 * log_mul * math.log(factor))
    for name in ("rope_freqs", "rope_factors_long" if n_ctx > n_orig else "rope_factors_short"):
        if name + ".weight" in w:
            inv = inv / w[name + ".weight"]
    return SimpleNamespace(n_rot=n_rot, inv=inv, mag=mag)


def yarn_frequencies(inv, n_rot, base, factor, n_orig, beta_fast, beta_slow):
    """YaRN (arXiv 2309.00071): pairs that turn often keep their frequency, those that turn rarely are slowed."""
    pair_of = lambda turns: n_rot * math.log(n_orig / (turns * 2 * math.pi)) / (2 * math.log(base))
    low, high = max(0, math.floor(pair_of(beta_fast))), min(n_rot - 1, math.ceil(pair_of(beta_slow)))
    ramp = np.clip((np.arange(n_rot // 2) - low) / max(0.001, high - low), 0, 1)
    return inv * (1 - ramp) + inv / factor * ramp


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x, positions, rope, neox):
    """x: [n, heads, head_dim]; dimensions past the rotary ones pass through."""
    angle = positions[:, None].astype(np.float64) * rope.inv[None]
    cos, sin = np.cos(angle)[:, None] * rope.mag, np.sin(angle)[:, None] * rope.mag
    n = 2 * len(rope.inv)
    even, odd = (slice(0, n // 2), slice(n // 2, n)) if neox else (slice(0, n, 2), slice(1, n, 2))
    y = x.copy()
    y[..., even] = x[..., even] * cos - x[..., odd] * sin
    y[..., odd] = x[..., odd] * cos + x[..., even] * sin
    return y


def softcap(x, cap):
    return cap * np.tanh(x / cap) if cap else x


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Model:
    """One sequence: eval() appends tokens to its cache and returns the final hidden states of the new ones."""

    def __init__(self, path, n_ctx=4096):
        self.w = Weights(path)
        self.h = read_hparams(self.w, n_ctx)
        self.clear()

    def clear(self):
        self.keys, self.values = [None] * self.h.n_layers, [None] * self.h.n_layers
        self.n_past = 0

    def drop(self, first, end):
        """Forgets the tokens [first, end) and moves the later ones down. Rotations add up: their keys are turned back
        by the distance, without the magnitude, which they have already."""
        for layer, (k, v) in enumerate(zip(self.keys, self.values)):
            rope = SimpleNamespace(inv=self.h.ropes[layer].inv, mag=1.0)
            moved = rotate(k[end:], np.full(len(k) - end, first - end), rope, self.h.neox)
            self.keys[layer] = np.concatenate([k[:first], moved])
            self.values[layer] = np.concatenate([v[:first], v[end:]])
        self.n_past -= end - first

    def linear(self, x, name):
        y, bias = x @ self.w[name + ".weight"].T, self.w.get(name + ".bias")
        return y if bias is None else y + bias

    def norm(self, x, name):
        weight = self.w.get(name + ".weight")
        return x if weight is None else rms_norm(x, weight, self.h.eps)

    def project_qkv(self, x, blk):
        h, dims = self.h, np.array([self.h.n_heads, self.h.n_kv_heads]) * self.h.head_dim
        if blk + "attn_qkv.weight" in self.w:
            qkv = np.split(self.linear(x, blk + "attn_qkv"), [dims[0], dims[0] + dims[1]], axis=1)
        else:
            qkv = [self.linear(x, blk + f"attn_{c}") for c in "qkv"]
        q, k, v = (y.reshape(len(x), -1, h.head_dim) for y in qkv)
        return self.norm(q, blk + "attn_q_norm"), self.norm(k, blk + "attn_k_norm"), v

    def attention(self, x, layer, blk):
        h, n = self.h, len(x)
        q, k, v = self.project_qkv(x, blk)
        positions = np.arange(self.n_past, self.n_past + n)
        q, k = (rotate(y, positions, h.ropes[layer], h.neox) for y in (q, k))
        if self.n_past:
            k, v = np.concatenate([self.keys[layer], k]), np.concatenate([self.values[layer], v])
        self.keys[layer], self.values[layer] = k, v
        distance = positions[:, None] - np.arange(len(k))[None]
        visible = (distance >= 0) & (distance < (h.windows[layer] or np.inf))
        out = np.empty((n, h.n_heads, h.head_dim))
        for head in range(h.n_heads):
            kv = head * h.n_kv_heads // h.n_heads
            score = softcap(q[:, head] @ k[:, kv].T * h.scale, h.attn_cap)
            score = np.where(visible, score, -np.inf)
            p = np.exp(score - score.max(-1, keepdims=True))
            out[:, head] = p / p.sum(-1, keepdims=True) @ v[:, kv]
        return self.linear(out.reshape(n, -1), blk + "attn_output")

    def feed_forward(self, x, blk):
        if blk + "ffn_gate.weight" in self.w:
            gate, up = self.linear(x, blk + "ffn_gate"), self.linear(x, blk + "ffn_up")
        else:  # phi3: the gate is the first half of the rows
            gate, up = np.split(self.linear(x, blk + "ffn_up"), 2, axis=1)
        return self.linear((gelu_tanh if self.h.gemma else silu)(gate) * up, blk + "ffn_down")

    def eval(self, ids):
        x = self.w["token_embd.weight"][np.asarray(ids)] * (math.sqrt(self.h.n_embd) if self.h.gemma else 1.0)
        for layer in range(self.h.n_layers):
            blk = f"blk.{layer}."
            y = self.attention(self.norm(x, blk + "attn_norm"), layer, blk)
            x = x + self.norm(y, blk + "post_attention_norm")
            y = self.feed_forward(self.norm(x, blk + "ffn_norm"), blk)
            x = x + self.norm(y, blk + "post_ffw_norm")
        self.n_past += len(ids)
        return self.norm(x, "output_norm")

    def logits(self, hidden):
        """hidden: rows of eval()'s result."""
        name = "output.weight" if "output.weight" in self.w else "token_embd.weight"
        return softcap(hidden @ self.w[name].T, self.h.final_cap)
