#!/usr/bin/env python3
"""Makes tests/data/token_golden.txt: the token ids that Hugging Face's tokenizers library (pip install gguf tokenizers)
gives for the vocabularies of the real models, for test_tokenizer.c. Usage: make_token_golden.py MODEL.gguf...

Lines: "model NAME" (the file), then for each text "text HEX" or "file NAME" (in tests/data) and "ids ID ID ...".
"""
import sys
from pathlib import Path

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

DATA = Path(__file__).parent.parent / "tests" / "data"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4

# The pre-tokenizers as the models' own tokenizer.json files have them.
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
PRE_TOKENIZERS = {
    "smollm": lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)]),
    "qwen2": lambda: pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                                              pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
}

TEXTS = [
    "", " ", "  ", "   x", "\n", "\n\n\n", "\t\n \r\n", "Hello world", " Hello, World!", "hello  world   !",
    "I'm sure they'll've DON'T can't I'LL", "3", "33", "1234567890", "3.14159 + 2,718.28 = 0x1F", "a1b22c333",
    "snake_case camelCase SHOUTING_CASE", "int main(void) {\n    return 0;\n}\n", "if x:\n\tpass\n\n\n# end\n",
    "Äpfel, naïve café, Cửa Việt", "нещо на Български", "我想在apple工作1314151天～", "日本語のテキスト。",
    "한국어 텍스트", "العربية ٣٤٥", "कान्हा १२३", "\u1780\u17b6\u1793\u17cb", "🦙.cpp 🚀 (normal) 😶‍🌫️ ✅", "½ ⅓ ² x²",
    "''''''```````\"\"\"\"......!!!!!!??????", "------=======", "\u00a0nbsp\u2003em", "a\u0301 e\u0308",
    "<|im_start|>user\n<|im_end|><eos></s>[INST]", "<0x0A> <unk>", "tool_call <tool_call>", "\u2581\u2581",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "              indented", "x" * 50 + " " * 70 + "y", "\u0120\u010a",
]


def read(reader, key):
    field = reader.fields.get(key)
    if field is None:
        return None
    if field.types[-1] == 8:
        return [bytes(field.parts[i]).decode("utf-8") for i in field.data]
    return [field.parts[i][0] for i in field.data]


def merges_by_score(tokens, types, scores):
    """SentencePiece's BPE model as a list of merges: each token's splits into two tokens, best score first."""
    usable = {t: i for i, t in enumerate(tokens) if types[i] in (NORMAL, USER_DEFINED)}
    merges = []
    for text, i in usable.items():
        pairs = [(text[:k], text[k:]) for k in range(1, len(text)) if text[:k] in usable and text[k:] in usable]
        merges += [(-scores[i], usable[a], usable[b], a, b) for a, b in pairs]
    return [(a, b) for _, _, _, a, b in sorted(merges)]


def build(reader):
    tokens, types = read(reader, "tokenizer.ggml.tokens"), read(reader, "tokenizer.ggml.token_type")
    vocab = {t: i for i, t in enumerate(tokens)}
    if read(reader, "tokenizer.ggml.model")[0] == "gpt2":
        merges = [tuple(m.split(" ")) for m in read(reader, "tokenizer.ggml.merges")]
        tokenizer = Tokenizer(models.BPE(vocab, merges))
        tokenizer.pre_tokenizer = PRE_TOKENIZERS[read(reader, "tokenizer.ggml.pre")[0]]()
    else:
        merges = merges_by_score(tokens, types, read(reader, "tokenizer.ggml.scores"))
        tokenizer = Tokenizer(models.BPE(vocab, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, y in zip(tokens, types) if y == USER_DEFINED])
    return tokenizer


def main():
    out = []
    for path in map(Path, sys.argv[1:]):
        tokenizer = build(GGUFReader(path))
        out.append(f"model {path.name}")
        emma = (DATA / "emma-12k.txt").read_bytes().decode("utf-8")
        named = [("text " + t.encode().hex(), t) for t in TEXTS] + [("file emma-12k.txt", emma)]
        for name, text in named:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            out += [name, " ".join(["ids", *map(str, ids)])]
    (DATA / "token_golden.txt").write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
