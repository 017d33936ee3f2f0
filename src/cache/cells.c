/* cells.c: reference counts and the search for free cells. */
#include "cache/cells.h"

static int32_t n_pages(const kv_cells *c) { return (c->n_cells + c->page_cells - 1) / c->page_cells; }

kv_status kv_cells_init(kv_cells *c, int32_t n_cells, int32_t page_cells) {
    *c = (kv_cells){.n_cells = n_cells, .n_free = n_cells, .page_cells = page_cells};
    c->refs = kv_alloc((size_t)n_cells, sizeof *c->refs);
    c->page_used = kv_alloc((size_t)n_pages(c), sizeof *c->page_used);
    c->tokens = kv_alloc((size_t)n_cells, sizeof *c->tokens);
    return c->refs && c->page_used && c->tokens ? KVANT_OK : KVANT_NO_MEMORY;
}

void kv_cells_clear(kv_cells *c) {
    kv_free(c->refs);
    kv_free(c->page_used);
    kv_free(c->tokens);
    *c = (kv_cells){0};
}

static bool is_free(const kv_cells *c, int32_t cell) {
    return cell >= 0 && cell < c->n_cells && !c->refs[cell];
}

/* First cell of an empty page, from the cursor on; -1 if there is none. */
static int32_t find_empty_page(kv_cells *c) {
    for (int32_t i = 0, pages = n_pages(c); i < pages; i++) {
        int32_t page = (c->cursor + i) % pages;
        if (c->page_used[page]) continue;
        c->cursor = page;
        return page * c->page_cells;
    }
    return -1;
}

static int32_t find_any(const kv_cells *c) {
    int32_t cell = 0;
    while (c->refs[cell]) cell++;
    return cell;
}

int32_t kv_cells_take(kv_cells *c, int32_t wish) {
    int32_t cell = wish;
    /* a wish at the start of a page is honoured only if the whole page is empty: it may be another's next */
    if (!is_free(c, wish) || (wish % c->page_cells == 0 && c->page_used[wish / c->page_cells])) {
        cell = find_empty_page(c);
        if (cell < 0) cell = find_any(c);
    }
    c->refs[cell] = 1;
    c->tokens[cell] = -1;
    c->page_used[cell / c->page_cells]++;
    c->n_free--;
    return cell;
}

void kv_cells_share(kv_cells *c, int32_t first, int32_t n) {
    for (int32_t i = first; i < first + n; i++) c->refs[i]++;
}

void kv_cells_drop(kv_cells *c, int32_t first, int32_t n) {
    for (int32_t i = first; i < first + n; i++) {
        if (--c->refs[i]) continue;
        c->page_used[i / c->page_cells]--;
        c->n_free++;
    }
}
