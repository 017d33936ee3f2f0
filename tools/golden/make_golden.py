"""Writes the golden files that tests/golden reads: logits and greedy tokens of the pass in gguf_model.py.

make_golden.py real MODELS_DIR [FILE ...]     the models of prompts.json: tests/data/<model>.golden, and the
                                              perplexity golden of the first model with an "emma" prompt
make_golden.py synthetic [NAME ...]           the models of make_synthetic.py in tests/data
The format is in README.md.
"""

import json
import os
import sys

import numpy as np

from gguf_model import Model

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "..", "tests", "data")
N_TOP, N_OTHER, N_GREEDY = 1024, 512, 32
WINDOW, FIRST_SCORED = 512, 256


def log_sum_exp(row):
    return row.max() + np.log(np.exp(row - row.max()).sum())


def chosen_tokens(row, rng):
    """The N_TOP likeliest tokens, best first, and N_OTHER of the rest by chance; all in a small vocabulary."""
    order = np.argsort(-row, kind="stable")
    top, rest = order[:N_TOP], order[N_TOP:]
    return top, np.sort(rng.choice(rest, min(N_OTHER, len(rest)), replace=False))


def lines_of(values, per_line):
    return "".join(" ".join(values[i : i + per_line]) + "\n" for i in range(0, len(values), per_line))


def write_prompt(out, model, name, steps, n_ctx):
    """steps: lists of token ids to append, and (first, end) ranges to drop; the last one is a list."""
    out.write(f"prompt {name} n_ctx {n_ctx} n_steps {len(steps)}\n")
    for step in steps:
        if isinstance(step, tuple):
            out.write("drop {} {}\n".format(*step))
            model.drop(*step)
        else:
            out.write(f"eval {len(step)}\n" + lines_of([str(i) for i in step], 20))
            row = model.logits(model.eval(step)[-1:])[0]
    top, other = chosen_tokens(row, np.random.default_rng(model.n_past))
    out.write(f"logits n_vocab {len(row)} lse {log_sum_exp(row):.12g} n_top {len(top)} n_other {len(other)}\n")
    out.write(lines_of([f"{i} {row[i]:.9g}" for i in [*top, *other]], 8))
    out.write(f"greedy {N_GREEDY}\n")
    for _ in range(N_GREEDY):
        best, second = np.argsort(-row, kind="stable")[:2]
        out.write(f"{best} {row[best]:.9g} {row[best] - row[second]:.6g}\n")
        row = model.logits(model.eval([best])[-1:])[0]


def write_golden(path, model_path, prompts):
    """prompts: (name, steps, n_ctx); n_ctx 0 = any that holds them."""
    with open(path + ".part", "w") as out:
        out.write(f"kvant-golden 1\nmodel {os.path.basename(model_path)}\n")
        for name, steps, n_ctx in prompts:
            write_prompt(out, Model(model_path, n_ctx or 4096), name, steps, n_ctx)
        out.write("end\n")
    os.replace(path + ".part", path)


def write_perplexity(path, model_path, ids):
    """Windows of WINDOW tokens, each from an empty cache; tokens after FIRST_SCORED of each are scored."""
    model, nll = Model(model_path), []
    for start in range(0, len(ids) - WINDOW + 1, WINDOW):
        model.clear()
        window = np.array(ids[start : start + WINDOW])
        rows = model.logits(model.eval(window)[FIRST_SCORED:-1])
        for row, target in zip(rows, window[FIRST_SCORED + 1 :]):
            nll.append(log_sum_exp(row) - row[target])
    with open(path, "w") as out:
        out.write(f"kvant-nll 1\nmodel {os.path.basename(model_path)}\n")
        out.write(f"window {WINDOW} first_scored {FIRST_SCORED} perplexity {np.exp(np.mean(nll)):.9g}\n")
        out.write(f"tokens {len(ids)}\n" + lines_of([str(i) for i in ids], 20))
        out.write(f"nll {len(nll)}\n" + lines_of([f"{x:.9g}" for x in nll], 10) + "end\n")
    print(f"{path}: {len(nll)} predictions, perplexity {np.exp(np.mean(nll)):.4f}")


def real(models_dir, *files):
    with open(os.path.join(HERE, "prompts.json")) as f:
        all_prompts = json.load(f)
    for file in files or all_prompts:
        path, stem = os.path.join(models_dir, file), os.path.join(DATA, file.removesuffix(".gguf"))
        prompts = [(n, [p["ids"]], 0) for n, p in all_prompts[file].items() if "text" in p]
        write_golden(stem + ".golden", path, prompts)
        for name, p in all_prompts[file].items():
            if "text" not in p:
                write_perplexity(f"{stem}-{name}.nll", path, p["ids"])


def synthetic(*names):
    from make_synthetic import MODELS, prompt_ids

    for name in names or MODELS:
        spec = MODELS[name]
        prompts = [(f"random{n}", [prompt_ids(name, n)], n_ctx) for n, n_ctx in spec.prompts]
        if spec.shift:
            n, first, end, more = spec.shift
            ids = prompt_ids(name, n + more)
            prompts.append((f"shift{n}", [ids[:n], (first, end), ids[n:]], spec.prompts[-1][1]))
        write_golden(os.path.join(DATA, name + ".golden"), os.path.join(DATA, name + ".gguf"), prompts)


if __name__ == "__main__":
    {"real": real, "synthetic": synthetic}[sys.argv[1]](*sys.argv[2:])
