/* pretokenizer.c: the table of patterns and the splitting with PCRE2. Text is handed to PCRE2 in runs of
 * valid UTF-8, so that it need not check each time (that would be quadratic). Matches become words, and so
 * does what lies between two matches. A pattern that overflows the JIT stack is run by the interpreter. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenizer.h"

#include "text/utf8.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#define NAMES(...) \
    { __VA_ARGS__, NULL }
#define PATTERNS(...) \
    { __VA_ARGS__, NULL }
static const kv_pretokenizer table[] = {
#define KV_PRETOKENIZER(list, splits, ...) {.names = list, .patterns = splits, __VA_ARGS__},
#include "text/pretokenizers.inc"
#undef KV_PRETOKENIZER
};
enum { N_TABLE = sizeof table / sizeof *table };

static kv_status unknown_name(const char *name, size_t size) {
    char list[400];
    size_t n = 0;
    for (size_t i = 0; i < N_TABLE && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, " %s", table[i].names[0]);
    return kv_fail(KVANT_UNSUPPORTED, "tokenizer.ggml.pre: unknown '%.*s'; there are:%s",
                   size < 64 ? (int)size : 64, name, list);
}

kv_status kv_pretokenizer_find(const kv_pretokenizer **out, const char *name, size_t size) {
    for (size_t i = 0; i < N_TABLE; i++)
        for (const char *const *known = table[i].names; *known; known++)
            if (strlen(*known) == size && memcmp(*known, name, size) == 0) {
                *out = &table[i];
                return KVANT_OK;
            }
    return unknown_name(name, size);
}

/* ---- compiling ---- */

enum { MAX_PATTERNS = 8 };

struct kv_splitter {
    pcre2_general_context *memory;
    int32_t n_codes;
    pcre2_code *codes[MAX_PATTERNS];
};

static void *pcre_alloc(size_t n, void *user) {
    (void)user;
    return kv_alloc(n, 1);
}

static void pcre_free(void *p, void *user) {
    (void)user;
    kv_free(p);
}

static kv_status pcre_failed(const char *what, int code) {
    char text[120] = "";
    if (code == PCRE2_ERROR_NOMEMORY) return KVANT_NO_MEMORY;
    pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
    return kv_fail(KVANT_FAILED, "pre-tokenizer: %s: %s", what, text);
}

/* The error number of pcre2_compile for a failed allocation (pcre2api(3) has no name for it). */
enum { COMPILE_NO_MEMORY = 121 };

static kv_status compile(kv_splitter *s, const char *pattern) {
    kv_status status = KVANT_OK;
    int error;
    size_t at;
    pcre2_compile_context *context = pcre2_compile_context_create(s->memory);
    if (!context) return KVANT_NO_MEMORY;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                                     &error, &at, context);
    if (code) {
        pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* where it cannot, the interpreter does the work */
        s->codes[s->n_codes++] = code;
    } else {
        status = error == COMPILE_NO_MEMORY ? KVANT_NO_MEMORY : pcre_failed(pattern, error);
    }
    pcre2_compile_context_free(context);
    return status;
}

kv_status kv_splitter_create(kv_splitter **out, const kv_pretokenizer *p) {
    kv_status status = KVANT_NO_MEMORY;
    kv_splitter *s = kv_alloc(1, sizeof *s);
    if (!s) return KVANT_NO_MEMORY;
    s->memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (!s->memory) goto done;
    for (const char *const *pattern = p->patterns; *pattern; pattern++) KV_TRY_DONE(compile(s, *pattern));
    *out = s;
    return KVANT_OK;
done:
    kv_splitter_destroy(s);
    return status;
}

void kv_splitter_destroy(kv_splitter *s) {
    if (!s) return;
    for (int32_t i = 0; i < s->n_codes; i++) pcre2_code_free(s->codes[i]);
    pcre2_general_context_free(s->memory);
    kv_free(s);
}

/* ---- splitting ---- */

/* Of one call: match data for each level of patterns, since a level's matches are split further while it
 * runs. */
typedef struct split {
    const kv_splitter *splitter;
    pcre2_match_data *matches[MAX_PATTERNS];
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    kv_words *words;
    const char *text; /* the whole */
} split;

static kv_status add_word(split *s, const char *end) {
    size_t offset = (size_t)(end - s->text);
    return kv_vec_push(s->words, offset) ? KVANT_OK : KVANT_NO_MEMORY;
}

/* Most texts need no more stack than PCRE2 has of its own; mapping a bigger one takes longer than a short
 * text. */
static void grow_stack(split *s) {
    enum { JIT_STACK_START = 256 << 10, JIT_STACK_MAX = 64 << 20 };
    s->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, s->splitter->memory);
    if (s->stack) pcre2_jit_stack_assign(s->context, NULL, s->stack);
}

/* PCRE2's result: >= 0 (0: the pattern has groups, which are not asked for), or PCRE2_ERROR_NOMATCH. */
static kv_status match(split *s, int32_t level, const char *text, size_t size, size_t from, int *result) {
    const pcre2_code *code = s->splitter->codes[level];
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    pcre2_match_data *data = s->matches[level];
    int r = pcre2_match(code, subject, size, from, PCRE2_NO_UTF_CHECK, data, s->context);
    if (r == PCRE2_ERROR_JIT_STACKLIMIT && !s->stack) {
        grow_stack(s);
        r = pcre2_match(code, subject, size, from, PCRE2_NO_UTF_CHECK, data, s->context);
    }
    if (r == PCRE2_ERROR_JIT_STACKLIMIT)
        r = pcre2_match(code, subject, size, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, s->context);
    *result = r;
    return r >= 0 || r == PCRE2_ERROR_NOMATCH ? KVANT_OK : pcre_failed("match", r);
}

/* Splits valid UTF-8 by the patterns from `level` on. The recursion is as deep as there are patterns. */
static kv_status split_piece(split *s, int32_t level, const char *text, size_t size) {
    if (size == 0) return KVANT_OK;
    if (level == s->splitter->n_codes) return add_word(s, text + size);
    size_t done = 0;
    for (;;) {
        int result;
        KV_TRY(match(s, level, text, size, done, &result));
        if (result == PCRE2_ERROR_NOMATCH) break;
        const size_t *range = pcre2_get_ovector_pointer(s->matches[level]);
        size_t first = range[0], last = range[1];
        if (last <= first) return kv_fail(KVANT_FAILED, "pre-tokenizer: an empty match");
        KV_TRY(split_piece(s, level + 1, text + done, first - done));
        KV_TRY(split_piece(s, level + 1, text + first, last - first));
        done = last;
    }
    return split_piece(s, level + 1, text + done, size - done);
}

/* Length of the run at text that is all valid UTF-8, or all not. */
static size_t run_length(const char *text, size_t size, bool *valid) {
    uint32_t code;
    *valid = kv_utf8_decode(text, size, &code) > 0;
    size_t n = 0;
    while (n < size) {
        int32_t length = kv_utf8_decode(text + n, size - n, &code);
        if ((length > 0) != *valid) break;
        n += length > 0 ? (size_t)length : 1;
    }
    return n;
}

static kv_status split_begin(split *s) {
    for (int32_t i = 0; i < s->splitter->n_codes; i++) {
        s->matches[i] = pcre2_match_data_create(1, s->splitter->memory);
        if (!s->matches[i]) return KVANT_NO_MEMORY;
    }
    s->context = pcre2_match_context_create(s->splitter->memory);
    return s->context ? KVANT_OK : KVANT_NO_MEMORY;
}

static void split_end(split *s) {
    for (int32_t i = 0; i < s->splitter->n_codes; i++) pcre2_match_data_free(s->matches[i]);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
}

kv_status kv_splitter_run(const kv_splitter *splitter, const char *text, size_t size, kv_words *words) {
    split s = {.splitter = splitter, .words = words, .text = text};
    kv_status status = split_begin(&s);
    for (size_t at = 0; !status && at < size;) {
        bool valid;
        size_t n = run_length(text + at, size - at, &valid);
        status = valid ? split_piece(&s, 0, text + at, n) : add_word(&s, text + at + n);
        at += n;
    }
    split_end(&s);
    return status;
}
