#!/usr/bin/env python3
"""KL divergence of llama.cpp from the golden numbers (tools/golden/README.md has the format and the estimate), for the
prompts that tests/golden compares kvant on: f16 cache, flash attention.

    .cache/peers/bin/python bench/peer_divergence.py smollm2-135m-q4_1 gemma3-270m-q4_k_m qwen2.5-coder-0.5b-instruct-q4_k_m
"""
import ctypes, math, os, sys

import llama_cpp.llama_cpp as llama
import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def read_golden(path):
    """[(token ids, size of the vocabulary, log-sum-exp, number of top tokens, [(id, logit)...])...]"""
    words = iter(open(path).read().split())
    skip = lambda n: [next(words) for _ in range(n)][-1]
    skip(4)  # kvant-golden 1, model FILE
    prompts = []
    while next(words) == "prompt":
        n_steps, ids = int(skip(5)), []
        for _ in range(n_steps):
            if next(words) != "eval":
                raise SystemExit(f"{path}: only prompts without shifts can be compared")
            ids += [int(next(words)) for _ in range(int(next(words)))]
        n_vocab, lse = int(skip(3)), float(skip(2))
        n_top, n_other = int(skip(2)), int(skip(2))
        listed = [(int(next(words)), float(next(words))) for _ in range(n_top + n_other)]
        skip(1)
        for _ in range(int(next(words))):
            skip(3)
        prompts.append((ids, n_vocab, lse, n_top, listed))
    return prompts


def last_logits(context, ids, n_vocab):
    llama.llama_memory_clear(llama.llama_get_memory(context), True)
    batch = llama.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, i, 1, 0
        batch.logits[i] = i + 1 == len(ids)
    if llama.llama_decode(context, batch):
        raise SystemExit("llama.cpp: decode failed")
    row = numpy.ctypeslib.as_array(llama.llama_get_logits_ith(context, len(ids) - 1), shape=(n_vocab,))
    return row.astype(numpy.float64)


def divergence(row, lse, n_top, listed):
    own = row.max() + math.log(numpy.exp(row - row.max()).sum())
    top, others = listed[:n_top], listed[n_top:]
    p = numpy.exp([x - lse for _, x in top])
    log_q = numpy.array([row[i] - own for i, _ in top])
    kl = float((p * (numpy.log(p) - log_q)).sum())
    if others:
        p_tail, q_tail = 1 - p.sum(), 1 - numpy.exp(log_q).sum()
        kl += p_tail * (math.log(p_tail / q_tail) + numpy.var([row[i] - x for i, x in others]) / 2)
    return kl


def main():
    quiet = llama.llama_log_callback(lambda *_: None)
    llama.llama_log_set(quiet, ctypes.c_void_p(0))
    llama.llama_backend_init()
    for name in sys.argv[1:]:
        path = os.path.join(ROOT, f".cache/models/{name}.gguf")
        model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
        params = llama.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.flash_attn_type = 2048, 1024, 1024, 1
        context = llama.llama_init_from_model(model, params)
        kls = [divergence(last_logits(context, ids, n_vocab), lse, n_top, listed)
               for ids, n_vocab, lse, n_top, listed in read_golden(os.path.join(ROOT, f"tests/data/{name}.golden"))]
        print(f"{name}: mean KL {numpy.mean(kls):.5f}, most {max(kls):.5f}, {len(kls)} prompts")


if __name__ == "__main__":
    main()
