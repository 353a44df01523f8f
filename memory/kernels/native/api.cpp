// The C interface: picks the level and shares the work out over torch's OpenMP threads.
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <atomic>

#include "args.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

int best_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return wide ? 2 : 1;
#else
  return 0;
#endif
}

#if defined(__x86_64__)
const Level* const levels[] = {&baseline_level, &avx2_level, &avx512_level};
#else
const Level* const levels[] = {&baseline_level};
#endif

std::atomic<int> current{best_level()};

// The widest level allowed whose vectors divide `width`.
const Level& level_for(int width) {
  int level = current.load(std::memory_order_relaxed);
  while (width % levels[level]->width) level--;
  return *levels[level];
}

// Calls work(0 .. count-1). Even a sleeping thread costs microseconds, so little work stays.
template <typename Work>
void each(int count, int threads, int64_t elements, Work work) {
  if (threads == 1 || count == 1 || elements < 16384) {
    for (int i = 0; i < count; i++) work(i);
    return;
  }
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int i = 0; i < count; i++) work(i);
}

void each_row(const Rows& a, void (*kernel)(const Rows&, int)) {
  each(a.rows, a.threads, (int64_t)a.rows * a.width, [&](int row) { kernel(a, row); });
}

// Floats that the calling thread keeps between calls: fresh pages would cost more than the
// work done in them. Null where there is no memory.
float* kept_floats(size_t count) {
  struct Kept {
    float* data = nullptr;
    size_t count = 0;
    ~Kept() { free(data); }
  };
  static thread_local Kept kept;
  if (kept.count < count) {
    free(kept.data);
    kept.data = (float*)aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    kept.count = kept.data ? count : 0;
  }
  return kept.data;
}

bool row_fits(const Attend& a, int row, int pages, int num_pages) {
  const int tokens = a.qo_indptr[row + 1] - a.qo_indptr[row], length = a.kv_lens[row];
  const int begin = a.kv_indptr[row], end = a.kv_indptr[row + 1];
  if (tokens < 1 || tokens > length || begin < 0 || end < begin || end > pages) return false;
  if ((int64_t)(end - begin) * a.pool.page_size < length) return false;
  return std::all_of(a.kv_indices + begin, a.kv_indices + end,
                     [&](int32_t page) { return page >= 0 && page < num_pages; });
}

}  // namespace

EXPORT int walkway_best_level() { return best_level(); }

EXPORT const char* walkway_level() { return levels[current.load()]->name; }

// For tests: 0 .. walkway_best_level().
EXPORT int walkway_set_level(int level) {
  if (level < 0 || level > best_level()) return -1;
  current.store(level);
  return 0;
}

// Cuts rows into tiles, costliest first, so that threads that take the next one end together.
// Returns how many there are, at most `capacity`, or -1 - row for a row without tokens, shorter
// than them, or whose page table is too short or leaves the pool.
EXPORT int walkway_tiles(const Attend* a, int rows, int tokens, int pages, int num_pages,
                         int capacity) {
  Tile* tiles = (Tile*)a->tiles;
  int count = 0;
  for (int row = 0; row < rows; row++) {
    const int new_tokens = a->qo_indptr[row + 1] - a->qo_indptr[row];
    if (!row_fits(*a, row, pages, num_pages) || a->qo_indptr[row + 1] > tokens) return -1 - row;
    for (int first = 0; first < new_tokens * a->group; first += TILE_ROWS) {
      if (count == capacity) return -1 - row;
      const int n = std::min(TILE_ROWS, new_tokens * a->group - first);
      const int end = a->kv_lens[row] - new_tokens + (first + n - 1) / a->group + 1;
      tiles[count++] = {row, first, n, (end + 15) / 16};
    }
  }
  std::stable_sort(tiles, tiles + count, [](const Tile& x, const Tile& y) {
    return (int64_t)x.rows * x.blocks > (int64_t)y.rows * y.blocks;
  });
  return count;
}

EXPORT void walkway_attend(const Attend* a) {
  const Level& level = level_for(a->pool.head_dim);
  const int heads = a->pool.kv_heads, items = a->num_tiles * heads;
  if (a->threads == 1 || items == 1) {
    for (int i = 0; i < items; i++) level.attend(*a, i / heads, i % heads);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(a->threads)
  for (int i = 0; i < items; i++) level.attend(*a, i / heads, i % heads);
}

// -1, and nothing done, where a position is outside the table or a slot outside the pool.
EXPORT int walkway_rope(const Rope* a) {
  for (int i = 0; i < a->tokens; i++) {
    if (a->positions[i] < 0 || a->positions[i] >= a->table_rows) return -1;
    if (a->slots[i] < 0 || a->slots[i] >= a->num_slots) return -1;
  }
  const Level& level = level_for(a->pool.head_dim / 2);
  const int64_t width = (int64_t)(a->q_heads + 2 * a->pool.kv_heads) * a->pool.head_dim;
  each(a->tokens, a->threads, a->tokens * width, [&](int token) { level.rope(*a, token); });
  return 0;
}

EXPORT void walkway_rms_norm(const Rows* a) { each_row(*a, level_for(a->width).rms_norm); }

EXPORT void walkway_add_rms_norm(const Rows* a) {
  each_row(*a, level_for(a->width).add_rms_norm);
}

EXPORT void walkway_silu_and_mul(const Rows* a) {
  each_row(*a, level_for(a->width).silu_and_mul);
}

EXPORT void walkway_argmax(const Rows* a) {
  each_row(*a, levels[current.load(std::memory_order_relaxed)]->argmax);
}

// -1, and nothing done, where there is no memory for the scratch.
EXPORT int walkway_multiply(const Product* given) {
  Product a = *given;
  const Level& level = *levels[current.load(std::memory_order_relaxed)];
  const int64_t inputs = even_inputs(a), units = (a.outputs + UNIT - 1) / UNIT;
  a.wide = kept_floats((a.threads * UNIT + a.rows) * inputs);
  if (!a.wide) return -1;
  a.strips = a.wide + a.threads * UNIT * inputs;
  each(strip_count(a), a.threads, a.rows * inputs,
       [&](int strip) { level.lay_strip(a, strip); });
  each(units, a.threads, units * UNIT * inputs, [&](int unit) {
    level.multiply(a, unit, a.wide + omp_get_thread_num() * UNIT * inputs);
  });
  return 0;
}

// Asks for huge pages behind a pool: a step reads all over it, and misses fewer TLB entries.
// Only advice, so where it is refused nothing is lost.
EXPORT void walkway_huge_pages(void* start, size_t bytes) {
#if defined(__linux__)
  const uintptr_t page = 4096, first = ((uintptr_t)start + page - 1) & ~(page - 1);
  const uintptr_t end = ((uintptr_t)start + bytes) & ~(page - 1);
  if (end > first) madvise((void*)first, end - first, MADV_HUGEPAGE);
#else
  (void)start, (void)bytes;
#endif
}
