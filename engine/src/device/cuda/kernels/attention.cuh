// Attention over runs: a task's rows of queries over a stretch of one part, then the merge of a row's parts.
//
// FlashAttention-2 (arXiv 2307.08691), Algorithm 1, with scores in powers of two. A partial result is the unnormalised
// output, the highest score and the sum of powers: [rows][heads][dim + 2].
//
// Blocks are [heads of keys and values, tasks]: those of a task come to the multiprocessors together, and before those of later tasks. A
// recorded step has more blocks than most steps have tasks, and what has none comes last.

struct AttendArgs {
    const Tables* tables;
    const void* qkv;    // [tokens, (heads + 2 kv_heads) dim], queries not yet turned
    const void* keys;   // of the layer: in each block [kv_heads, block_tokens, dim], of type Kept, and scales where it has them
    const void* values; // the same
    float* partials;
    void* out; // [tokens, heads dim]
    int heads;
    int kv_heads;
    int dim;
    int pairs;
    int block_tokens;
    int block_numbers; // from one block to the next
    int window; // positions back that a query sees, itself included; 0: all
    float scale; // log2(e) / sqrt(dim)
};

// A row of a task: the reader and its query head.
struct Query {
    Row row;
    int head;
    int number; // of the row's partial results
};

DEVICE Query query_of(const AttendArgs& a, const Part& part, const Task& task, int kv_head, int number) {
    const int group = a.heads / a.kv_heads, row = task.first + number;
    const int at = part.first_row + row / group;
    Query query = {a.tables->rows[at], kv_head * group + row % group, at};
    return query;
}

// Number `i` of a query of `row`, turned by its angle and scaled.
template <class T> DEVICE float turned(const AttendArgs& a, const T* query, int angle, int i) {
    const float x = widen(query[i]);
    if (i >= 2 * a.pairs) return x * a.scale;
    const float* cosines = a.tables->angles + (size_t)angle * 2 * a.pairs;
    if (i < a.pairs) return (x * cosines[i] - widen(query[i + a.pairs]) * cosines[i + a.pairs]) * a.scale;
    return (x * cosines[i - a.pairs] + widen(query[i - a.pairs]) * cosines[i]) * a.scale;
}

// Whether a query at `position` sees token `i` of a part.
DEVICE bool sees(const AttendArgs& a, const Part& part, int position, int i) {
    const int of_key = part.position + i;
    return (!part.is_causal || of_key <= position) && (a.window == 0 || position - of_key < a.window);
}

// A token's row among the keys, or the values, of its block.
struct KeptRow {
    size_t block; // where the block's begin
    int row;
};

DEVICE KeptRow row_of(const AttendArgs& a, const Part& part, int kv_head, int i) {
    const int at = part.first_lane + i;
    const int block = a.tables->blocks[part.first_block + at / a.block_tokens];
    return {(size_t)block * a.block_numbers, kv_head * a.block_tokens + at % a.block_tokens};
}

// Where token `i` of a part lies among keys or values.
DEVICE size_t place_of(const AttendArgs& a, const Part& part, int kv_head, int i) {
    const KeptRow kept = row_of(a, part, kv_head, i);
    return kept.block + (size_t)kept.row * a.dim;
}

// The scale of token `i` among keys or values of eight bits.
DEVICE bf16 scale_of(const AttendArgs& a, const void* all, const Part& part, int kv_head, int i) {
    const KeptRow kept = row_of(a, part, kv_head, i);
    return scales_behind((unsigned char*)all + kept.block, (size_t)a.kv_heads * a.block_tokens * a.dim)[kept.row];
}

// The number at `place` among keys or values, which is of token `i`.
template <class Kept> DEVICE float kept_number(const AttendArgs& a, const void* all, size_t place, const Part& part, int kv_head, int i) {
    const Kept kept = ((const Kept*)all)[place];
    if constexpr (Scaled<Kept>::value) return Scaled<Kept>::number(kept) * widen(scale_of(a, all, part, kv_head, i));
    else return widen(kept);
}

// One number of a row's result, to where it belongs.
template <class T> DEVICE void put(const AttendArgs& a, const Query& query, int i, float x, float sum) {
    if (query.row.is_only) {
        ((T*)a.out)[((size_t)query.row.token * a.heads + query.head) * a.dim + i] = narrow<T>(x / sum);
    } else {
        a.partials[((size_t)query.number * a.heads + query.head) * (a.dim + 2) + i] = x;
    }
}
DEVICE void put_sum(const AttendArgs& a, const Query& query, float highest, float sum) {
    if (query.row.is_only) return;
    float* end = a.partials + ((size_t)query.number * a.heads + query.head) * (a.dim + 2) + a.dim;
    end[0] = highest;
    end[1] = sum;
}

#define PLAIN_ROWS 16
#define PLAIN_TOKENS 32
#define PLAIN_DIM_MAX 256

// Any number and any width of a head, in single precision: 16 rows, 8 threads each. Shared memory:
// [16 + 32][dim + 1] and [32][dim] numbers.
template <class T, class Kept> DEVICE void attend_plain(const AttendArgs& a) {
    DYNAMIC_SHARED(memory);
    SHARED(float, weights, PLAIN_ROWS * PLAIN_TOKENS);
    const int stride = a.dim + 1, row = threadIdx.x / 8, lane = threadIdx.x % 8, kv_head = blockIdx.x;
    float* queries = (float*)memory;               // [rows][stride]
    float* keys = queries + PLAIN_ROWS * stride;   // [tokens][stride]
    float* values = keys + PLAIN_TOKENS * stride;  // [tokens][dim]
    for (int number = blockIdx.y; number < a.tables->flat_count; number += gridDim.y) {
        const Task task = a.tables->flat[number];
        const Part part = a.tables->parts[task.part];
        const bool is_row = row < task.count;
        const Query query = query_of(a, part, task, kv_head, is_row ? row : 0);
        const T* from = (const T*)a.qkv +
                        (size_t)query.row.token * (a.heads + 2 * a.kv_heads) * a.dim + (size_t)query.head * a.dim;
        __syncthreads(); // the task before has been read
        for (int i = lane; i < a.dim; i += 8) queries[row * stride + i] = turned(a, from, query.row.angle, i);
        float sums[PLAIN_DIM_MAX / 8];
        for (int i = 0; i < PLAIN_DIM_MAX / 8; i++) sums[i] = 0.0f;
        float highest = NEVER, sum = 0.0f;
        for (int first = task.from; first < task.to; first += PLAIN_TOKENS) {
            const int count = smaller(PLAIN_TOKENS, task.to - first);
            __syncthreads();
            for (int at = threadIdx.x; at < PLAIN_TOKENS * a.dim; at += blockDim.x) {
                const int token = at / a.dim, i = at % a.dim;
                const size_t place = token < count ? place_of(a, part, kv_head, first + token) + i : 0;
                auto kept = [&](const void* all) {
                    return token < count ? kept_number<Kept>(a, all, place, part, kv_head, first + token) : 0.0f;
                };
                keys[token * stride + i] = kept(a.keys);
                values[token * a.dim + i] = kept(a.values);
            }
            __syncthreads();
            float scores[PLAIN_TOKENS / 8], top = highest;
            for (int j = 0; j < PLAIN_TOKENS / 8; j++) {
                const int token = lane + 8 * j;
                float score = 0.0f;
                for (int i = 0; i < a.dim; i++) score += queries[row * stride + i] * keys[token * stride + i];
                const bool is_seen = token < count && sees(a, part, query.row.position, first + token);
                scores[j] = is_seen ? score : NEVER;
                top = is_seen ? fmaxf(top, score) : top;
            }
            top = max_of_lanes<8>(top);
            const float shrink = exp2f(highest - top);
            highest = top;
            float added = 0.0f;
            for (int j = 0; j < PLAIN_TOKENS / 8; j++) {
                const float weight = scores[j] == NEVER ? 0.0f : exp2f(scores[j] - top);
                weights[row * PLAIN_TOKENS + lane + 8 * j] = weight;
                added += weight;
            }
            sum = sum * shrink + sum_of_lanes<8>(added);
            __syncthreads();
            for (int i = lane, at = 0; i < a.dim; i += 8, at++) {
                float x = sums[at] * shrink;
                for (int token = 0; token < count; token++) {
                    x += weights[row * PLAIN_TOKENS + token] * values[token * a.dim + i];
                }
                sums[at] = x;
            }
        }
        if (is_row) {
            for (int i = lane, at = 0; i < a.dim; i += 8, at++) put<T>(a, query, i, sums[at], sum);
            if (lane == 0) put_sum(a, query, highest, sum);
        }
    }
}
KERNEL(attend_f32, AttendArgs, 128) { attend_plain<float, float>(a); }
KERNEL(attend_bf16, AttendArgs, 128) { attend_plain<bf16, bf16>(a); }
KERNEL(attend_f16, AttendArgs, 128) { attend_plain<f16, bf16>(a); }
KERNEL(attend_q8_f32, AttendArgs, 128) { attend_plain<float, q8>(a); }
KERNEL(attend_q8_bf16, AttendArgs, 128) { attend_plain<bf16, q8>(a); }
KERNEL(attend_q8_f16, AttendArgs, 128) { attend_plain<f16, q8>(a); }
KERNEL(attend_fp8_f32, AttendArgs, 128) { attend_plain<float, e4m3>(a); }
KERNEL(attend_fp8_bf16, AttendArgs, 128) { attend_plain<bf16, e4m3>(a); }
KERNEL(attend_fp8_f16, AttendArgs, 128) { attend_plain<f16, e4m3>(a); }

#define MERGED 8 // parts that are read at once
#define MERGING_WARPS 4 // of a block

struct MergeArgs {
    AttendArgs attention;
    int warps; // that put one token's head together: one, or all of a block
};

// Puts together what a token's parts gave, of each head by one warp; or by a whole block, whose warps take the parts in turn: a few rows of
// long contexts have many, and each time that some are read is waited for. Where the first of them lie is known before the kernel before
// has ended; then all numbers of some parts are read at once.
template <class T> DEVICE void merge(const MergeArgs& all) {
    constexpr int EACH = PLAIN_DIM_MAX / 32;
    SHARED(float, results, MERGING_WARPS * (PLAIN_DIM_MAX + 2)); // of each warp: numbers, highest, sum
    const AttendArgs& a = all.attention;
    const int warps = all.warps, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int number = (blockIdx.x * MERGING_WARPS + warp) / warps;
    const int token = number / a.heads, head = number % a.heads;
    const bool is_there = token < a.tables->token_count;
    const int from = is_there ? a.tables->first_reading[token] : 0, to = is_there ? a.tables->first_reading[token + 1] : 0;
    int readings[MERGED];
    auto look_up = [&](int first) {
#pragma unroll
        for (int i = 0; i < MERGED; i++) readings[i] = first + i * warps < to ? a.tables->readings[first + i * warps] : -1;
    };
    const int begin = from + warp % warps, step = MERGED * warps;
    look_up(begin);
    await_kernel_before();
    if (from == to) return; // its only part wrote it
    float x[EACH], highest = NEVER, sum = 0.0f;
#pragma unroll
    for (int k = 0; k < EACH; k++) x[k] = 0.0f;
    for (int first = begin; first < to; first += step) {
        float ends[MERGED][2], numbers[MERGED][EACH];
#pragma unroll
        for (int i = 0; i < MERGED; i++) {
            const bool is_part = readings[i] >= 0;
            const float* one = a.partials + ((size_t)larger(readings[i], 0) * a.heads + head) * (a.dim + 2);
            ends[i][0] = is_part ? one[a.dim] : NEVER;
            ends[i][1] = is_part ? one[a.dim + 1] : 0.0f;
#pragma unroll
            for (int k = 0; k < EACH; k++) numbers[i][k] = is_part && lane + 32 * k < a.dim ? one[lane + 32 * k] : 0.0f;
        }
        look_up(first + step);
        float top = highest;
#pragma unroll
        for (int i = 0; i < MERGED; i++) top = fmaxf(top, ends[i][0]);
        const float shrink = exp2f(highest - top);
        highest = top;
        sum *= shrink;
#pragma unroll
        for (int k = 0; k < EACH; k++) x[k] *= shrink;
#pragma unroll
        for (int i = 0; i < MERGED; i++) {
            const float weight = exp2f(ends[i][0] - top);
            sum += ends[i][1] * weight;
#pragma unroll
            for (int k = 0; k < EACH; k++) x[k] += numbers[i][k] * weight;
        }
    }
    if (warps > 1) { // then all of the block have the same token
        float* own = results + warp * (PLAIN_DIM_MAX + 2);
#pragma unroll
        for (int k = 0; k < EACH; k++) own[lane + 32 * k] = x[k];
        if (lane == 0) {
            own[PLAIN_DIM_MAX] = highest;
            own[PLAIN_DIM_MAX + 1] = sum;
        }
        __syncthreads();
        if (warp > 0) return;
        float top = highest;
        for (int other = 1; other < warps; other++) top = fmaxf(top, results[other * (PLAIN_DIM_MAX + 2) + PLAIN_DIM_MAX]);
        const float shrink = exp2f(highest - top);
        sum *= shrink;
#pragma unroll
        for (int k = 0; k < EACH; k++) x[k] *= shrink;
        for (int other = 1; other < warps; other++) {
            const float* one = results + other * (PLAIN_DIM_MAX + 2);
            const float weight = exp2f(one[PLAIN_DIM_MAX] - top);
            sum += one[PLAIN_DIM_MAX + 1] * weight;
#pragma unroll
            for (int k = 0; k < EACH; k++) x[k] += one[lane + 32 * k] * weight;
        }
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int d = lane + 32 * k;
        if (d < a.dim) ((T*)a.out)[((size_t)token * a.heads + head) * a.dim + d] = narrow<T>(x[k] / sum);
    }
}
// Said to have 512 threads, they take no more registers than four blocks of 128 have on a multiprocessor.
KERNEL_AHEAD(merge_f32, MergeArgs, 512) { merge<float>(a); }
KERNEL_AHEAD(merge_bf16, MergeArgs, 512) { merge<bf16>(a); }
KERNEL_AHEAD(merge_f16, MergeArgs, 512) { merge<f16>(a); }
