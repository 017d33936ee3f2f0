#!/usr/bin/env python3
"""Measures another runtime through the low-level binding of its Python package, the way `kvant bench` measures kvant: one
JSON row per figure.

    peer.py ENGINE MODEL [--prompt 512] [--gen 32] [--depths 0,4096] [--type-k f16] [--type-v f16] [--threads 2]

ENGINE: llama_cpp (package llama-cpp-python) or ik_llama_cpp (package ik-llama-cpp-python). prefill: --prompt tokens
appended at a depth; decode: one token at a time, --gen of them. Token ids are pseudo-random, from the second quarter of the
vocabulary. Flash attention is on, as kvant's attention is fused too; ik_llama.cpp fuses and repacks what it can.
"""
import argparse, ctypes, importlib, json, random, resource, time

TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30}
BATCH = 512


class LlamaCpp:
    module = "llama_cpp.llama_cpp"

    def open(self, api):
        self.quiet = api.llama_log_callback(lambda *_: None)
        api.llama_log_set(self.quiet, ctypes.c_void_p(0))

    def tune(self, model, context):
        context.flash_attn_type = 1

    def cut(self, api, context, pos):
        api.llama_memory_seq_rm(api.llama_get_memory(context), 0, pos, -1)


class IkLlamaCpp:
    module = "ik_llama_cpp._ctypes_api"

    def open(self, api):
        self.remove = api._lib.llama_kv_cache_seq_rm
        self.remove.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
        self.remove.restype = ctypes.c_bool

    def tune(self, model, context):
        context.flash_attn = context.fused_up_gate = True
        if hasattr(model, "repack_tensors"):
            model.repack_tensors, model.use_mmap = True, False

    def cut(self, api, context, pos):
        self.remove(context, 0, pos, -1)


ENGINES = {"llama_cpp": LlamaCpp, "ik_llama_cpp": IkLlamaCpp}


class Peer:
    def __init__(self, args, n_ctx):
        self.engine = ENGINES[args.engine]()
        self.api = api = importlib.import_module(self.engine.module)
        self.engine.open(api)
        api.llama_backend_init()
        model, context = api.llama_model_default_params(), api.llama_context_default_params()
        context.n_ctx, context.n_batch, context.n_ubatch = n_ctx, BATCH, BATCH
        context.n_threads = context.n_threads_batch = args.threads
        context.type_k, context.type_v = TYPES[args.type_k], TYPES[args.type_v]
        self.engine.tune(model, context)
        self.model = api.llama_model_load_from_file(args.model.encode(), model)
        self.context = api.llama_init_from_model(self.model, context) if self.model else None
        if not self.context:
            raise SystemExit(f"{args.engine}: the model or the context was refused")
        self.n_vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.batch = api.llama_batch_init(BATCH, 0, 1)

    def eval(self, tokens, pos):
        for at in range(0, len(tokens), BATCH):
            part, b = tokens[at:at + BATCH], self.batch
            b.n_tokens = len(part)
            for i, token in enumerate(part):
                b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0], b.logits[i] = token, pos + at + i, 1, 0, 0
            b.logits[len(part) - 1] = 1
            if self.api.llama_decode(self.context, b):
                raise SystemExit("decode failed")
        self.api.llama_get_logits_ith(self.context, self.batch.n_tokens - 1)  # waits for the result

    def cut(self, pos):
        self.engine.cut(self.api, self.context, pos)


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=ENGINES)
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
        print(json.dumps({"engine": args.engine, "test": test, "depth": depth, "type_k": args.type_k,
                          "type_v": args.type_v, "threads": args.threads, "n": count, "median_s": seconds,
                          "min_s": seconds, "tok_s": count / seconds, "rss_mib": rss}), flush=True)

    peer.eval(tokens[:64], 0)  # warm-up
    peer.cut(0)
    at = 0
    for depth in depths:
        if depth > at:
            peer.eval(tokens[at:depth], at)
            at = depth
        if args.prompt:
            row("prefill", depth, args.prompt, timed(lambda: peer.eval(tokens[at:at + args.prompt], at)))
            peer.cut(max(at, 1))
        base = max(at, 1)
        if args.gen:
            row("decode", depth, args.gen,
                timed(lambda: [peer.eval(tokens[base + i:base + i + 1], base + i) for i in range(args.gen)]))
        peer.cut(at)


if __name__ == "__main__":
    main()
