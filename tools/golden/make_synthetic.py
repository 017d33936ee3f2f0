"""Writes the small seeded models of tests/data: every architecture and RoPE variant that has no real file.

make_synthetic.py [NAME ...]   Needs numpy, gguf. The same seed gives the same bytes. Metadata keys, tensor names and
shapes are those of llama.cpp's converter (gguf-py's constants). Weights are random, but scaled so that attention is
neither flat nor one-hot and the logits spread by a few units: a mistake in any part of the block moves the output.
"""

import math
import os
import sys
import zlib
from dataclasses import dataclass, field

import gguf
import numpy as np

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "data")
N_VOCAB = 512


@dataclass
class Spec:
    arch: str
    prompts: list  # (tokens, n_ctx of the session; 0 = any)
    n_layers: int = 1
    n_embd: int = 64
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 32
    n_ff: int = 64
    n_ctx: int = 512
    base: float = 10000.0
    dtype: str = "Q8_0"
    tied: bool = True
    biases: tuple = ()  # of attn_q, attn_output, ffn_up, ...
    outliers: int = 0  # key channels of each head with a bias of +-50
    n_rot: int = 0  # 0 = head_dim
    keys: dict = field(default_factory=dict)  # further metadata, without the architecture's prefix
    tensors: dict = field(default_factory=dict)  # further top-level F32 tensors
    shift: tuple = ()  # one more prompt: (tokens, first and end of what is dropped, tokens after it)


def llama3_factors(n_rot, base, factor, low, high, n_orig):
    """Llama 3.1's per-pair divisors: 1 for short wave lengths, `factor` for long ones, a blend between."""
    wave = 2 * math.pi * base ** (np.arange(0, n_rot, 2) / n_rot)
    blend = np.clip((n_orig / wave - low) / (high - low), 0, 1)
    return 1 / ((1 - blend) / factor + blend)


def spread(n, low, high):
    return np.geomspace(low, high, n)


LLAMA3 = llama3_factors(64, 500000.0, 8.0, 1.0, 4.0, 64)
# Two context shifts. The short one stays inside every window, so no cache may have let go of a token that it needs.
SHIFT, SHORT_SHIFT = (120, 10, 70, 30), (14, 3, 8, 6)
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}

MODELS = {
    # The shared fixtures of the cache tests. One layer: keys and values depend on token and position only.
    "tiny1": Spec("llama", [(24, 0), (200, 0)], 1, 256, 4, 2, 64, 64, dtype="Q4_0", shift=SHIFT),
    "tiny4": Spec("llama", [(24, 0), (200, 0)], 4, 128, 4, 2, 32, 32, dtype="Q4_0", shift=SHIFT),
    "tiny-swa": Spec("gemma3", [(24, 0), (33, 0), (150, 0)], 6, 64, 4, 2, 32, 64, base=1e6, dtype="Q4_0",
                     keys={"attention.sliding_window": 32}, shift=SHORT_SHIFT),
    "tiny-out": Spec("qwen2", [(24, 0), (150, 0)], 2, 64, 4, 2, 64, 32, base=1e6, tied=False,
                     biases=("attn_q", "attn_k", "attn_v"), outliers=2, dtype="Q4_0", shift=SHIFT),
    # RoPE variants and head sizes
    "llama-nemo": Spec("llama", [(40, 0)], 1, 64, 4, 1, 128, 64, base=1e6, dtype="Q4_0"),
    "llama-hd80": Spec("llama", [(40, 0)], 2, 64, 2, 1, 80, 64, dtype="Q4_0"),
    "llama-bias": Spec("llama", [(40, 0)], 2, 32, 2, 2, 32, 64, dtype="F16", biases=(
        "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")),
    "llama3-factors": Spec("llama", [(40, 0), (200, 0)], 2, 64, 4, 2, 64, 64, base=500000.0, tied=False,
                           tensors={"rope_freqs.weight": LLAMA3}, dtype="Q4_0", shift=SHIFT),
    "llama-linear": Spec("llama", [(200, 0)], 1, 64, 2, 1, 64, 64, keys={
        "rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, shift=SHIFT),
    "llama-yarn": Spec("llama", [(40, 0), (200, 0)], 1, 64, 2, 1, 64, 64, n_ctx=256, keys=YARN, shift=SHIFT),
    "llama-f32": Spec("llama", [(40, 0)], 1, 32, 2, 1, 64, 32, dtype="F32"),
    "qwen3": Spec("qwen3", [(40, 0)], 2, 64, 4, 1, 64, 64, base=1e6, dtype="Q4_0"),
    "qwen3-yarn": Spec("qwen3", [(200, 0)], 2, 64, 2, 1, 96, 64, n_ctx=256, base=1e6, dtype="Q4_0", keys=YARN | {
        "rope.scaling.yarn_beta_fast": 16.0, "rope.scaling.yarn_beta_slow": 2.0,
        "rope.scaling.yarn_log_multiplier": 0.5}),
    # softcaps small enough to bend the scores; windows shorter than the prompt
    "gemma2": Spec("gemma2", [(24, 0), (100, 0)], 4, 64, 4, 2, 32, 64, dtype="Q4_0", keys={
        "attention.sliding_window": 16, "attn_logit_softcapping": 4.0, "final_logit_softcapping": 6.0},
                   shift=SHORT_SHIFT),
    "gemma3-keys": Spec("gemma3", [(100, 0)], 5, 64, 2, 1, 32, 64, base=1e6, keys={
        "attention.sliding_window": 20, "attention.sliding_window_pattern": 3, "rope.freq_base_swa": 5000.0,
        "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}, dtype="Q4_0", shift=SHORT_SHIFT),
    "phi3": Spec("phi3", [(24, 0), (100, 0)], 1, 192, 2, 2, 96, 32, tied=False, dtype="Q4_0",
                 keys={"attention.sliding_window": 40, "rope.scaling.original_context_length": 512}),
    "phi3-long": Spec("phi3", [(24, 64), (24, 256), (200, 256)], 2, 128, 4, 2, 32, 64, n_ctx=256, n_rot=24,
                      dtype="Q4_0", shift=SHIFT, keys={
        "attention.sliding_window": 0, "rope.scaling.original_context_length": 64,
        "rope.scaling.attn_factor": math.sqrt(1 + math.log(4) / math.log(64))}, tensors={
        "rope_factors_short.weight": spread(12, 1.0, 1.5), "rope_factors_long.weight": spread(12, 1.1, 9.0)}),
}


def seed_of(name):
    return zlib.crc32(name.encode())


def prompt_ids(name, n):
    """A prompt of n tokens: BOS and random pieces."""
    rng = np.random.default_rng(seed_of(f"{name} prompt {n}"))
    return [1, *rng.integers(259, N_VOCAB, n - 1).tolist()]


def vocabulary():
    """SentencePiece's form: 3 control tokens, 256 bytes, 253 pieces of English with scores."""
    letters = [chr(c) for c in range(33, 127)]
    pairs = [a + b for a in "aeiourstnlhd" for b in "aeiourstnl"]
    words = [w for w in "the and of to in that was it he you for on with as his her be at had not but".split()]
    pieces = ["\u2581", *letters, *pairs, *("\u2581" + w for w in words), *words]
    pieces = list(dict.fromkeys(pieces))[: N_VOCAB - 259]
    pieces += [f"\u2581{a}{b}{c}" for a in "bcdfg" for b in "aeiou" for c in "lmnrs"][: N_VOCAB - 259 - len(pieces)]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    types = [2, 3, 3, *[6] * 256, *[1] * len(pieces)]
    scores = [0.0] * 259 + [-float(i) for i in range(len(pieces))]
    return tokens, scores, types


def write_metadata(out, spec):
    n_rot = spec.n_rot or spec.head_dim
    out.add_context_length(spec.n_ctx)
    out.add_embedding_length(spec.n_embd)
    out.add_block_count(spec.n_layers)
    out.add_feed_forward_length(spec.n_ff)
    out.add_head_count(spec.n_heads)
    out.add_head_count_kv(spec.n_kv_heads)
    out.add_key_length(spec.head_dim)
    out.add_value_length(spec.head_dim)
    out.add_rope_dimension_count(n_rot)
    out.add_rope_freq_base(spec.base)
    out.add_layer_norm_rms_eps(1e-5)
    for key, value in spec.keys.items():
        add = {str: out.add_string, float: out.add_float32, int: out.add_uint32}[type(value)]
        add(f"{spec.arch}.{key}", value)
    tokens, scores, types = vocabulary()
    out.add_tokenizer_model("llama")
    out.add_tokenizer_pre("default")
    out.add_token_list(tokens)
    out.add_token_scores(scores)
    out.add_token_types(types)
    out.add_unk_token_id(0)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_add_bos_token(True)


class TensorWriter:
    def __init__(self, out, spec, rng):
        self.out, self.spec, self.rng = out, spec, rng

    def matrix(self, name, n_out, n_in, gain=1.0):
        values = (self.rng.standard_normal((n_out, n_in)) * gain / math.sqrt(n_in)).astype(np.float32)
        dtype = gguf.GGMLQuantizationType[self.spec.dtype]
        self.out.add_tensor(name + ".weight", gguf.quants.quantize(values, dtype), raw_dtype=dtype)
        if name.split(".")[-1] in self.spec.biases:
            self.out.add_tensor(name + ".bias", self.bias(name, n_out))

    def bias(self, name, n):
        values = (self.rng.standard_normal(n) * 0.5).astype(np.float32)
        if name.endswith("attn_k"):
            for head in values.reshape(-1, self.spec.head_dim):
                head[self.outlier_channels()] = 50 * (1 - 2 * self.rng.integers(0, 2))
        return values

    def outlier_channels(self):
        """Among the slowest rotary pairs, as in trained models: they nearly cancel in the softmax."""
        half = self.spec.head_dim // 2
        slow = np.r_[half * 3 // 4 : half, half + half * 3 // 4 : 2 * half]
        return self.rng.choice(slow, self.spec.outliers, replace=False)

    def norm(self, name, n, gain=1.0):
        values = gain * (1 + 0.2 * self.rng.standard_normal(n))
        self.out.add_tensor(name + ".weight", values.astype(np.float32))


def write_block(t, spec, blk):
    e, d, f = spec.n_embd, spec.head_dim, spec.n_ff
    q, kv = spec.n_heads * d, spec.n_kv_heads * d
    gemma = spec.arch.startswith("gemma")
    t.norm(blk + "attn_norm", e)
    if spec.arch == "phi3":
        t.matrix(blk + "attn_qkv", q + 2 * kv, e, 1.3)
    else:
        t.matrix(blk + "attn_q", q, e, 1.3)
        t.matrix(blk + "attn_k", kv, e, 1.3)
        t.matrix(blk + "attn_v", kv, e)
    if spec.arch in ("qwen3", "gemma3"):
        t.norm(blk + "attn_q_norm", d, 1.3)
        t.norm(blk + "attn_k_norm", d, 1.3)
    t.matrix(blk + "attn_output", e, q)
    t.norm(blk + "ffn_norm", e)
    if spec.arch != "phi3":
        t.matrix(blk + "ffn_gate", f, e, 1.5)
    t.matrix(blk + "ffn_up", f * (2 if spec.arch == "phi3" else 1), e, 1.5)
    t.matrix(blk + "ffn_down", e, f)
    if gemma:
        t.norm(blk + "post_attention_norm", e)
        t.norm(blk + "post_ffw_norm", e)


def write_model(name, spec):
    path = os.path.join(DATA, name + ".gguf")
    out = gguf.GGUFWriter(path, spec.arch)
    out.add_name(name)
    write_metadata(out, spec)
    t = TensorWriter(out, spec, np.random.default_rng(seed_of(name)))
    # Gemma multiplies the embedding by sqrt(n_embd): it starts smaller by that
    t.matrix("token_embd", N_VOCAB, spec.n_embd, 1.0 if spec.arch.startswith("gemma") else 3.0)
    for layer in range(spec.n_layers):
        write_block(t, spec, f"blk.{layer}.")
    t.norm("output_norm", spec.n_embd, 2.5 if spec.arch.startswith("gemma") else 1.0)
    if not spec.tied:
        t.matrix("output", N_VOCAB, spec.n_embd, 3.0)
    for tensor, values in spec.tensors.items():
        out.add_tensor(tensor, values.astype(np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    print(f"{path}: {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    for model in sys.argv[1:] or MODELS:
        write_model(model, MODELS[model])
