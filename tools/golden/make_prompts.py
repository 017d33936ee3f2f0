"""Writes prompts.json: for each real model a few prompts as text and as token ids, made by the `tokenizers` package
from the vocabulary in the GGUF (not by kvant). make_prompts.py MODELS_DIR TEXT   Needs gguf, tokenizers.

TEXT is the perplexity text; its first 2048 SmolLM2 tokens go in under "emma".
"""

import json
import os
import re
import sys

import gguf
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")

PROSE = "The old lighthouse keeper climbed the stairs every evening, and what he saw from the top was"
CODE = '''def binary_search(items, target):
    """Return the index of target in the sorted list items, or -1."""
    low, high = 0, len(items) - 1
    while low <= high:
'''
CHAT = ("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
        "Why is the sky blue? Answer in two sentences.<|im_end|>\n<|im_start|>assistant\n")
LONG_BYTES, WINDOW_BYTES = 900, 3200  # of the text: about 200 tokens; more than the sliding window of Gemma


def byte_level_bpe(meta):
    vocab = {t: i for i, t in enumerate(meta["tokenizer.ggml.tokens"])}
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    if meta["tokenizer.ggml.pre"] == "qwen2":
        split = pre_tokenizers.Split(Regex(QWEN2), behavior="isolated")
        tok.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    else:  # smollm
        digits = pre_tokenizers.Digits(individual_digits=True)
        tok.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(False)])
    tok.decoder = decoders.ByteLevel()
    return tok


def sentencepiece_ids(meta, text):
    """User-defined tokens are cut out first, the longest of them; the rest is byte pair encoding by score."""
    tokens, scores = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.scores"]
    ids = {t: i for i, t in enumerate(tokens)}
    defined = sorted((t for t, k in zip(tokens, meta["tokenizer.ggml.token_type"]) if k == 4), key=len, reverse=True)
    pieces = re.split("(" + "|".join(map(re.escape, defined)) + ")", text) if defined else [text]
    return [i for p in pieces if p for i in ([ids[p]] if p in defined else merge_by_score(ids, scores, p))]


def merge_by_score(ids, scores, text):
    """SentencePiece's BPE: of all adjacent pairs the one with the best score is joined first, leftmost of equals."""
    parts = list(text.replace(" ", "\u2581"))
    while True:
        pairs = [(scores[ids[a + b]], -i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in ids]
        if not pairs:
            return [ids[p] for p in parts]
        i = -max(pairs)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def special_ids(meta):
    return [t for t, k in zip(meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]) if k == 3]


def encoder(path):
    meta = {f.name: f.contents() for f in gguf.GGUFReader(path).fields.values()}
    if meta["tokenizer.ggml.model"] == "llama":
        bos = [meta["tokenizer.ggml.bos_token_id"]] if meta.get("tokenizer.ggml.add_bos_token", True) else []
        return lambda text: bos + sentencepiece_ids(meta, text)
    tok = byte_level_bpe(meta)
    tok.add_special_tokens(special_ids(meta))
    return lambda text: tok.encode(text).ids


def main(models_dir, text_path):
    text = open(text_path, encoding="utf-8").read()
    start = text.index("\n\n", 2000) + 2
    long, beyond_window = text[start : start + LONG_BYTES], text[start : start + WINDOW_BYTES]
    result = {}
    for file in sorted(os.listdir(models_dir)):
        if not file.endswith(".gguf"):
            continue
        encode = encoder(os.path.join(models_dir, file))
        gemma = "gemma" in file  # no chat template, but a window
        prompts = {"prose": PROSE, "code": CODE, "long": long}
        prompts |= {"window": beyond_window} if gemma else {"chat": CHAT}
        result[file] = {name: {"text": t, "ids": encode(t)} for name, t in prompts.items()}
        if "smollm2" in file:
            result[file]["emma"] = {"ids": encode(text)[:2048]}
    json.dump(result, sys.stdout, indent=None)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
