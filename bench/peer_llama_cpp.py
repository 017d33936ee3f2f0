#!/usr/bin/env python3
"""Measures llama.cpp through the low-level binding of the package llama-cpp-python, the way `kvant bench` measures kvant:
one JSON row per figure.

    peer_llama_cpp.py MODEL [--prompt 512] [--gen 32] [--depths 0,4096] [--type-k f16] [--type-v f16] [--threads 2]

prefill: --prompt tokens appended at a depth; decode: one token at a time, --gen of them. Token ids are pseudo-random, from
the second quarter of the vocabulary. Flash attention is on, as kvant's attention is fused too.
"""
import argparse, ctypes, json, random, resource, time

import llama_cpp.llama_cpp as llama

TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}
BATCH = 512


class Peer:
    def __init__(self, args, n_ctx):
        self.quiet = llama.llama_log_callback(lambda *_: None)
        llama.llama_log_set(self.quiet, ctypes.c_void_p(0))
        llama.llama_backend_init()
        self.model = llama.llama_model_load_from_file(args.model.encode(), llama.llama_model_default_params())
        params = llama.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, BATCH, BATCH
        params.n_threads = params.n_threads_batch = args.threads
        params.type_k, params.type_v = TYPES[args.type_k], TYPES[args.type_v]
        params.flash_attn_type = 1
        self.context = llama.llama_init_from_model(self.model, params)
        if not self.model or not self.context:
            raise SystemExit("llama.cpp: the model or the context was refused")
        self.memory = llama.llama_get_memory(self.context)
        self.n_vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))
        self.batch = llama.llama_batch_init(BATCH, 0, 1)

    def eval(self, tokens, pos):
        for at in range(0, len(tokens), BATCH):
            part, b = tokens[at:at + BATCH], self.batch
            b.n_tokens = len(part)
            for i, token in enumerate(part):
                b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0], b.logits[i] = token, pos + at + i, 1, 0, 0
            b.logits[len(part) - 1] = 1
            if llama.llama_decode(self.context, b):
                raise SystemExit("llama.cpp: decode failed")
        llama.llama_get_logits_ith(self.context, self.batch.n_tokens - 1)  # waits for the result

    def cut(self, pos):
        llama.llama_memory_seq_rm(self.memory, 0, pos, -1)


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=32)
    parser.add_argument("--depths", default="0,4096")
    parser.add_argument("--type-k", default="f16", choices=TYPES)
    parser.add_argument("--type-v", default="f16", choices=TYPES)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    depths = sorted(int(d) for d in args.depths.split(","))
    n = depths[-1] + args.prompt + args.gen + 64
    peer = Peer(args, n)
    draw = random.Random(1)
    tokens = [draw.randrange(peer.n_vocab // 4, peer.n_vocab // 2) for _ in range(n)]

    def row(test, depth, count, seconds):
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"engine": "llama_cpp", "test": test, "depth": depth, "type_k": args.type_k,
                          "type_v": args.type_v, "threads": args.threads, "n": count, "median_s": seconds,
                          "min_s": seconds, "tok_s": count / seconds, "rss_mib": rss}), flush=True)

    peer.eval(tokens[:64], 0)  # warm-up
    peer.cut(0)
    at = 0
    for depth in depths:
        if depth > at:
            peer.eval(tokens[at:depth], at)
            at = depth
        row("prefill", depth, args.prompt, timed(lambda: peer.eval(tokens[at:at + args.prompt], at)))
        peer.cut(max(at, 1))
        base = max(at, 1)
        row("decode", depth, args.gen,
            timed(lambda: [peer.eval(tokens[base + i:base + i + 1], base + i) for i in range(args.gen)]))
        peer.cut(at)


if __name__ == "__main__":
    main()
