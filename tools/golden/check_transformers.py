"""Holds the pass of gguf_model.py against transformers: the weights of a GGUF are put into a transformers model of
the same shape (float64), both see the same tokens, all logits are compared.

check_transformers.py FILE.gguf [FILE.gguf ...]   Needs torch, transformers (tried: 2.6.0, 4.53.3), numpy, gguf.
The RoPE settings are transformers' own (yarn, linear, llama3, longrope), computed by it from the metadata.
"""

import os
import sys

import numpy as np
import torch
import transformers as hf

from gguf_model import Model, Weights

CLASSES = {"llama": (hf.LlamaConfig, hf.LlamaForCausalLM), "qwen2": (hf.Qwen2Config, hf.Qwen2ForCausalLM),
           "qwen3": (hf.Qwen3Config, hf.Qwen3ForCausalLM), "gemma2": (hf.Gemma2Config, hf.Gemma2ForCausalLM),
           "gemma3": (hf.Gemma3TextConfig, hf.Gemma3ForCausalLM), "phi3": (hf.Phi3Config, hf.Phi3ForCausalLM)}
BLOCK = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
BY_ARCH = {"gemma2": {"ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
                      "post_attention_norm": "post_attention_layernorm"}, "phi3": {"ffn_up": "mlp.gate_up_proj"}}
BY_ARCH["gemma3"] = BY_ARCH["gemma2"]
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def rope_scaling(w, key):
    """transformers' rope_scaling for what the file says, or None."""
    n_orig = key("rope.scaling.original_context_length", key("context_length"))
    kind, factor = key("rope.scaling.type", "none"), key("rope.scaling.factor", 1.0)
    if kind == "yarn":
        scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": n_orig,
                   "beta_fast": key("rope.scaling.yarn_beta_fast", 32.0),
                   "beta_slow": key("rope.scaling.yarn_beta_slow", 1.0)}
        if key("rope.scaling.yarn_log_multiplier"):
            scaling |= {"mscale": 1.0, "mscale_all_dim": key("rope.scaling.yarn_log_multiplier")}
        return scaling
    if kind == "linear" and factor != 1:
        return {"rope_type": "linear", "factor": factor}
    if "rope_freqs.weight" in w:  # the settings behind make_synthetic.py's factors
        return {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64}
    if "rope_factors_long.weight" in w:
        return {"type": "longrope", "long_factor": w["rope_factors_long.weight"].tolist(),
                "short_factor": w["rope_factors_short.weight"].tolist()}
    return None


def make_config(w):
    arch = w.meta["general.architecture"]
    key = lambda name, default=None: w.meta.get(f"{arch}.{name}", default)
    heads, n_embd, n_layers = key("attention.head_count"), key("embedding_length"), key("block_count")
    head_dim = key("attention.key_length", n_embd // heads)
    window = key("attention.sliding_window") or None
    n_rot = key("rope.dimension_count", head_dim)
    options = dict(
        vocab_size=len(w.meta["tokenizer.ggml.tokens"]), hidden_size=n_embd, num_hidden_layers=n_layers,
        intermediate_size=key("feed_forward_length"), num_attention_heads=heads, head_dim=head_dim,
        num_key_value_heads=key("attention.head_count_kv", heads),
        rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        rope_theta=key("rope.freq_base", 10000.0), max_position_embeddings=key("context_length"),
        tie_word_embeddings="output.weight" not in w, rope_scaling=rope_scaling(w, key), pad_token_id=0,
        attention_bias="blk.0.attn_output.bias" in w, mlp_bias="blk.0.ffn_up.bias" in w, sliding_window=window,
        attn_implementation="eager")
    if n_rot != head_dim:
        options["partial_rotary_factor"] = n_rot / head_dim
    if arch.startswith("gemma"):
        period = key("attention.sliding_window_pattern", 2 if arch == "gemma2" else 6)
        options |= dict(
            query_pre_attn_scalar=head_dim, attn_logit_softcapping=key("attn_logit_softcapping"),
            final_logit_softcapping=key("final_logit_softcapping"), hidden_activation="gelu_pytorch_tanh",
            rope_local_base_freq=key("rope.freq_base_swa", 10000.0), layer_types=[
                "sliding_attention" if i % period < period - 1 else "full_attention" for i in range(n_layers)])
    if arch == "phi3":
        options["original_max_position_embeddings"] = key("rope.scaling.original_context_length")
    if arch.startswith("qwen"):
        options["use_sliding_window"] = False
    return CLASSES[arch][0](**options)


def unpermute(weight, head_dim):
    """llama files interleave the two halves of each head's rotary dimensions; transformers wants them apart."""
    pairs = weight.reshape(-1, head_dim // 2, 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def state_dict(w, config):
    arch = w.meta["general.architecture"]
    names, state = BLOCK | BY_ARCH.get(arch, {}), {}
    for tensor in w.tensors:
        parts, suffix = tensor.split(".")[:-1], tensor.split(".")[-1]
        value = w[tensor]
        if parts[0] == "blk":
            target = f"model.layers.{parts[1]}.{names[parts[2]]}"
        elif parts[0] in TOP:
            target = TOP[parts[0]]
        else:
            continue
        if arch == "llama" and parts[-1] in ("attn_q", "attn_k"):
            value = unpermute(value, config.head_dim)
        if arch.startswith("gemma") and parts[-1].endswith("norm"):
            value = value - 1
        state[f"{target}.{suffix}"] = torch.from_numpy(np.ascontiguousarray(value))
    return state


def compare(path, lengths):
    w = Weights(path)
    config = make_config(w)
    torch.set_default_dtype(torch.float64)
    with torch.no_grad():
        model = CLASSES[w.meta["general.architecture"]][1](config).eval()
        missing, unexpected = model.load_state_dict(state_dict(w, config), strict=False)
        missing = [m for m in missing if m != "lm_head.weight" or not config.tie_word_embeddings]
        assert not missing and not unexpected, (missing, unexpected)
        for n in lengths:
            ids = np.random.default_rng(n).integers(3, config.vocab_size, n)
            theirs = model(torch.from_numpy(ids)[None], use_cache=False).logits[0].numpy()
            ours = Model(path, n_ctx=n)
            ours = ours.logits(ours.eval(ids))
            print(f"{os.path.basename(path)}: {n} tokens, largest difference {np.abs(ours - theirs).max():.3g} "
                  f"of {np.abs(theirs).max():.3g}", flush=True)


if __name__ == "__main__":
    for file in sys.argv[1:]:
        compare(file, [24, 200] if os.path.getsize(file) < 1 << 20 else [40])
