// Attention on tensor cores, for keys and values in bf16 and heads of 64 or 128: the queries of all who read a part are one
// matrix, rounded to bf16 whatever they come as.
//
// `tall`: 64 rows, 16 to each of four warps, which all go through every token. `flat`: 16 rows, as a decode step has, whose
// tokens the four warps share; each warp's result is merged at the end. Tokens come 64 at a time, the next ones on
// their way while these are multiplied.
//
// Numbers of eight bits come as they are, in half the bytes, and are widened to a tile of bf16, which holds each of them exactly:
// every thread widens what it has fetched itself. A token's scales are those of its column of scores, and of weights.

#define TILE_TOKENS 64
#define WARPS 4

// A tile of rows of DIM numbers in shared memory; 16-byte pieces change places by row, so that eight rows' pieces of one
// column lie in different banks.
template <int DIM> DEVICE bf16* piece(bf16* tile, int row, int at) {
    return tile + row * DIM + ((at ^ (row & 7)) * 8);
}

// The same of numbers of eight bits, which are read by who wrote them alone.
template <int DIM> DEVICE q8* piece(q8* tile, int row, int at) { return tile + row * DIM + at * 16; }
template <int DIM> DEVICE e4m3* piece(e4m3* tile, int row, int at) { return tile + row * DIM + at * 16; }

// Numbers `i` to `i + 7` of a query, turned and scaled.
template <class T> DEVICE Sixteen turned_eight(const AttendArgs& a, const T* query, int angle, int i) {
    float x[8];
    if (a.pairs % 8 == 0 && i < 2 * a.pairs) {
        // All of them turn with the eight of the other half.
        const bool is_first = i < a.pairs;
        const float* cosines = a.tables->angles + (size_t)angle * 2 * a.pairs + (is_first ? i : i - a.pairs);
        const float sign = is_first ? -a.scale : a.scale;
#pragma unroll
        for (int four = 0; four < 8; four += 4) {
            float own[4], other[4], cosine[4], sine[4];
            read_four(query + i + four, own);
            read_four(query + (is_first ? i + a.pairs : i - a.pairs) + four, other);
            read_four(cosines + four, cosine);
            read_four(cosines + a.pairs + four, sine);
#pragma unroll
            for (int j = 0; j < 4; j++) x[four + j] = own[j] * cosine[j] * a.scale + other[j] * sine[j] * sign;
        }
    } else {
        for (int j = 0; j < 8; j++) x[j] = turned(a, query, angle, i + j);
    }
    return {{pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])}};
}

// Starts the copies of tokens `first..first + 64` of the part: first all places are looked up, then all copies go out.
template <class Kept, int DIM>
DEVICE void fetch(const AttendArgs& a, const Part& part, int kv_head, int first, int to, Kept* keys, Kept* values) {
    constexpr int EACH = 16 / sizeof(Kept), PIECES = DIM / EACH, THREADS = 32 * WARPS, STEPS = TILE_TOKENS * PIECES / THREADS;
    const int token = threadIdx.x / PIECES, at = threadIdx.x % PIECES;
    size_t places[STEPS];
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int i = first + token + step * (THREADS / PIECES);
        places[step] = i < to ? place_of(a, part, kv_head, i) + at * EACH : 0;
    }
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int row = token + step * (THREADS / PIECES);
        const bool is_there = first + row < to;
        copy_later(piece<DIM>(keys, row, at), (const Kept*)a.keys + places[step], is_there);
        copy_later(piece<DIM>(values, row, at), (const Kept*)a.values + places[step], is_there);
    }
    end_copies();
}

// The scale that a thread brings of such a tile, of a key or of a value.
DEVICE bf16 fetch_scale(const AttendArgs& a, const Part& part, int kv_head, int first, int to) {
    const int i = first + threadIdx.x % TILE_TOKENS;
    if (i >= to) return {0};
    return scale_of(a, threadIdx.x < TILE_TOKENS ? a.keys : a.values, part, kv_head, i);
}

// Two of four integers in bf16. Behind the first byte of 128 a byte's last seven bits are 128 more than they count; its first bit, in the
// exponent, makes what is taken off 256.
DEVICE u32 widen_two(q8, u32 four, int first) {
    const u32 two = pick_bytes(four, 0x43434343u, first ? 0x4342 : 0x4140);
    return multiply_add_pairs(two & 0xff80ff80u, 0xbf80bf80u, two & 0xff7fff7fu);
}

// The same of floats: their bits in the places of bf16 make numbers 2^120 times too small.
DEVICE u32 widen_two(e4m3, u32 four, int first) {
    const u32 two = pick_bytes(four, 0, first ? 0x3424 : 0x1404);
    return multiply_add_pairs((two >> 4 & 0x07f007f0u) | (two & 0x80008000u), 0x7b807b80u, 0x80008000u);
}

// Widens the numbers of a tile that a thread has fetched.
template <int DIM, class Kept> DEVICE void widen_tile(Kept* from, bf16* to) {
    constexpr int PIECES = DIM / 16, THREADS = 32 * WARPS, STEPS = TILE_TOKENS * PIECES / THREADS;
    const int token = threadIdx.x / PIECES, at = threadIdx.x % PIECES;
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int row = token + step * (THREADS / PIECES);
        const Sixteen all = *aligned((const Sixteen*)piece<DIM>(from, row, at));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            Sixteen wide;
#pragma unroll
            for (int i = 0; i < 4; i++) wide.words[i] = widen_two(Kept(), all.words[2 * half + i / 2], i % 2 * 2);
            *aligned((Sixteen*)piece<DIM>(to, row, 2 * at + half)) = wide;
        }
    }
}

// Brings to the cache what a block's first task of few rows reads and no kernel before it writes, but for a token or two: each of
// these readings waits for the one before it.
template <class Kept, int DIM> DEVICE void fetch_first_task(const AttendArgs& a) {
    if ((int)blockIdx.y >= a.tables->flat_count) return;
    const Task task = a.tables->flat[blockIdx.y];
    const Part part = a.tables->parts[task.part];
    const int token = task.from + threadIdx.x / 2;
    const Kept* all = (const Kept*)(threadIdx.x % 2 ? a.values : a.keys);
    if (token < task.to) fetch_ahead(all + place_of(a, part, blockIdx.x, token), DIM * sizeof(Kept));
    if ((int)threadIdx.x < task.count && a.pairs > 0) {
        const int angle = query_of(a, part, task, blockIdx.x, threadIdx.x).row.angle;
        fetch_ahead(a.tables->angles + (size_t)angle * 2 * a.pairs, 2 * a.pairs * sizeof(float));
    }
}

// A row of a task, kept in shared memory: what is asked of it when its results are written waits for no memory then.
struct Reader {
    int position;
    int token;  // or -1: it reads other parts too
    int number; // of the row's partial results
};

DEVICE Query kept_query(const AttendArgs& a, const Task& task, int kv_head, int row, const Reader& reader) {
    const int group = a.heads / a.kv_heads;
    return {{reader.token, 0, reader.position, reader.token >= 0}, kv_head * group + (task.first + row) % group, reader.number};
}

// Turns the queries of a task's rows into a matrix of bf16, zeros where there is no row: first all rows are looked up.
template <class T, int DIM, int ROWS, int THREADS>
DEVICE void stage_queries(const AttendArgs& a, const Part& part, const Task& task, bf16* queries, Reader* readers) {
    constexpr int PIECES = DIM / 8, STEPS = ROWS * PIECES / THREADS;
    const int at = threadIdx.x % PIECES, kv_head = blockIdx.x;
    Query all[STEPS];
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int row = threadIdx.x / PIECES + step * (THREADS / PIECES);
        all[step] = query_of(a, part, task, kv_head, row < task.count ? row : 0);
    }
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int row = threadIdx.x / PIECES + step * (THREADS / PIECES);
        const Query& query = all[step];
        const T* from = (const T*)a.qkv + (size_t)query.row.token * (a.heads + 2 * a.kv_heads) * DIM + (size_t)query.head * DIM;
        // What has no row is not looked at.
        *aligned((Sixteen*)piece<DIM>(queries, row, at)) =
            row < task.count ? turned_eight(a, from, query.row.angle, at * 8) : Sixteen{{0, 0, 0, 0}};
        if (at == 0) readers[row] = {query.row.position, query.row.is_only ? query.row.token : -1, query.number};
    }
}

// Shared memory: queries [ROWS][DIM], then twice keys [64][DIM] and values [64][DIM]; of eight bits once as bf16, and twice as they are.
template <class T, class Kept, int DIM, bool TALL> DEVICE void attend_on_tensor_cores(const AttendArgs& a) {
    constexpr bool IS_SCALED = Scaled<Kept>::value;
    constexpr int ROWS = TALL ? 16 * WARPS : 16;
    constexpr int TOKENS = TALL ? TILE_TOKENS : TILE_TOKENS / WARPS; // of a tile, for one warp
    DYNAMIC_SHARED(memory);
    SHARED(Reader, readers, ROWS);
    SHARED(float, scales, IS_SCALED ? 2 * TILE_TOKENS : 1); // of a tile's keys, then of its values
    bf16* queries = (bf16*)memory;
    bf16* tiles = queries + ROWS * DIM;
    Kept* fetched = (Kept*)(tiles + (IS_SCALED ? 2 * TILE_TOKENS * DIM : 0));
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, kv_head = blockIdx.x;
    const int first_row = TALL ? warp * 16 : 0, first_token = TALL ? 0 : warp * TOKENS;
    const int upper = first_row + lane / 4, column = 2 * (lane % 4); // this lane's rows are `upper` and the eighth after

    if (!TALL) fetch_first_task<Kept, DIM>(a);
    await_kernel_before();
    const Task* tasks = TALL ? a.tables->tall : a.tables->flat;
    const int count = TALL ? a.tables->tall_count : a.tables->flat_count;
    for (int number = blockIdx.y; number < count; number += gridDim.y) {
        const Task task = tasks[number];
        const Part part = a.tables->parts[task.part];
        __syncthreads(); // the task before has been read
        bf16 next_scale = {0};
        auto fetch_tile = [&](int first, int buffer) {
            Kept* keys = fetched + buffer * 2 * TILE_TOKENS * DIM;
            fetch<Kept, DIM>(a, part, kv_head, first, task.to, keys, keys + TILE_TOKENS * DIM);
            if constexpr (IS_SCALED) next_scale = fetch_scale(a, part, kv_head, first, task.to);
        };
        if (task.from < task.to) fetch_tile(task.from, 0);
        stage_queries<T, DIM, ROWS, 32 * WARPS>(a, part, task, queries, readers);
        float sums[DIM / 8][4], highest[2] = {NEVER, NEVER}, sum[2] = {0.0f, 0.0f};
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0.0f;

        int buffer = 0, lowest = 0; // position of the lane's rows
        for (int first = task.from; first < task.to; first += TILE_TOKENS, buffer ^= 1) {
            bf16* keys = tiles + (IS_SCALED ? 0 : buffer * 2 * TILE_TOKENS * DIM);
            bf16* values = keys + TILE_TOKENS * DIM;
            [[maybe_unused]] const bf16 scale = next_scale;
            if (first + TILE_TOKENS < task.to) {
                fetch_tile(first + TILE_TOKENS, buffer ^ 1);
                await_copies<1>();
            } else {
                await_copies<0>();
            }
            if constexpr (IS_SCALED) {
                // The tile before has been read.
                Kept* own = fetched + buffer * 2 * TILE_TOKENS * DIM;
                widen_tile<DIM>(own, keys);
                widen_tile<DIM>(own + TILE_TOKENS * DIM, values);
                scales[threadIdx.x] = widen(scale);
            }
            __syncthreads();
            if (first == task.from) lowest = smaller(readers[upper].position, readers[upper + 8].position);

            float scores[TOKENS / 8][4];
#pragma unroll
            for (int n = 0; n < TOKENS / 8; n++) scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0.0f;
#pragma unroll
            for (int k = 0; k < DIM / 16; k++) {
                u32 left[4];
                load_matrices(left, piece<DIM>(queries, first_row + lane % 16, 2 * k + lane / 16));
#pragma unroll
                for (int n = 0; n < TOKENS / 16; n++) {
                    u32 right[4];
                    const int token = first_token + n * 16 + (lane / 16) * 8 + lane % 8;
                    load_matrices(right, piece<DIM>(keys, token, 2 * k + (lane / 8) % 2));
                    multiply(scores[2 * n], left, right[0], right[1]);
                    multiply(scores[2 * n + 1], left, right[2], right[3]);
                }
            }

            if constexpr (IS_SCALED) {
#pragma unroll
                for (int n = 0; n < TOKENS / 8; n++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) scores[n][i] *= scales[first_token + n * 8 + column + i % 2];
                }
            }

            // Most tiles are seen as a whole.
            const bool is_whole = first + TILE_TOKENS <= task.to && a.window == 0 &&
                                  (!part.is_causal || part.position + first + TILE_TOKENS - 1 <= lowest);
            if (!is_whole) {
#pragma unroll
                for (int n = 0; n < TOKENS / 8; n++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int token = first + first_token + n * 8 + column + i % 2;
                        const bool is_seen = token < task.to && sees(a, part, readers[upper + 8 * (i / 2)].position, token);
                        scores[n][i] = is_seen ? scores[n][i] : NEVER;
                    }
                }
            }
            float top[2] = {highest[0], highest[1]};
#pragma unroll
            for (int n = 0; n < TOKENS / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) top[i / 2] = fmaxf(top[i / 2], scores[n][i]);
            }
            float shrink[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                top[half] = max_of_lanes<4>(top[half]);
                shrink[half] = exp2f(highest[half] - top[half]);
                highest[half] = top[half];
                sum[half] *= shrink[half];
            }
#pragma unroll
            for (int n = 0; n < TOKENS / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float score = scores[n][i];
                    scores[n][i] = score == NEVER ? 0.0f : exp2f(score - top[i / 2]);
                    sum[i / 2] += scores[n][i];
                }
            }
            if constexpr (IS_SCALED) {
                // What is not seen weighs nothing, whatever its scale is.
#pragma unroll
                for (int n = 0; n < TOKENS / 8; n++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const float of_value = scales[TILE_TOKENS + first_token + n * 8 + column + i % 2];
                        scores[n][i] = scores[n][i] == 0.0f ? 0.0f : scores[n][i] * of_value;
                    }
                }
            }
#pragma unroll
            for (int n = 0; n < DIM / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) sums[n][i] *= shrink[i / 2];
            }
#pragma unroll
            for (int k = 0; k < TOKENS / 16; k++) {
                u32 left[4] = {pack(scores[2 * k][0], scores[2 * k][1]), pack(scores[2 * k][2], scores[2 * k][3]),
                               pack(scores[2 * k + 1][0], scores[2 * k + 1][1]),
                               pack(scores[2 * k + 1][2], scores[2 * k + 1][3])};
#pragma unroll
                for (int n = 0; n < DIM / 16; n++) {
                    u32 right[4];
                    const int token = first_token + k * 16 + ((lane / 8) % 2) * 8 + lane % 8;
                    load_transposed(right, piece<DIM>(values, token, 2 * n + lane / 16));
                    multiply(sums[2 * n], left, right[0], right[1]);
                    multiply(sums[2 * n + 1], left, right[2], right[3]);
                }
            }
            __syncthreads(); // the next but one tile takes this place
        }
#pragma unroll
        for (int half = 0; half < 2; half++) sum[half] = sum_of_lanes<4>(sum[half]);

        if (!TALL) {
            // The tiles are free: [WARPS][16][DIM + 2] results of the warps.
            float* results = (float*)tiles;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float* own = results + (warp * 16 + upper + 8 * half) * (DIM + 2);
#pragma unroll
                for (int n = 0; n < DIM / 8; n++) {
                    own[n * 8 + column] = sums[n][2 * half];
                    own[n * 8 + column + 1] = sums[n][2 * half + 1];
                }
                if (lane % 4 == 0) {
                    own[DIM] = highest[half];
                    own[DIM + 1] = sum[half];
                }
            }
            __syncthreads();
            for (int i = threadIdx.x; i < task.count * DIM; i += blockDim.x) {
                const int row = i / DIM, d = i % DIM;
                float top = NEVER, all = 0.0f, x = 0.0f;
                for (int w = 0; w < WARPS; w++) top = fmaxf(top, results[(w * 16 + row) * (DIM + 2) + DIM]);
                for (int w = 0; w < WARPS; w++) {
                    const float* one = results + (w * 16 + row) * (DIM + 2);
                    const float weight = exp2f(one[DIM] - top);
                    x += one[d] * weight;
                    all += one[DIM + 1] * weight;
                }
                const Query query = kept_query(a, task, kv_head, row, readers[row]);
                put<T>(a, query, d, x, all);
                if (d == 0) put_sum(a, query, top, all);
            }
        } else {
            if (task.from >= task.to) __syncthreads(); // as no tile was waited for: the rows that others have staged
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = upper + 8 * half;
                if (row >= task.count) continue;
                const Query query = kept_query(a, task, kv_head, row, readers[row]);
#pragma unroll
                for (int n = 0; n < DIM / 8; n++) {
                    put<T>(a, query, n * 8 + column, sums[n][2 * half], sum[half]);
                    put<T>(a, query, n * 8 + column + 1, sums[n][2 * half + 1], sum[half]);
                }
                if (lane % 4 == 0) put_sum(a, query, highest[half], sum[half]);
            }
        }
    }
}
KERNEL_AHEAD(attend_flat_64_bf16, AttendArgs, 128) { attend_on_tensor_cores<bf16, bf16, 64, false>(a); }
KERNEL_AHEAD(attend_tall_64_bf16, AttendArgs, 128) { attend_on_tensor_cores<bf16, bf16, 64, true>(a); }
KERNEL_AHEAD(attend_flat_128_bf16, AttendArgs, 128) { attend_on_tensor_cores<bf16, bf16, 128, false>(a); }
KERNEL_AHEAD(attend_tall_128_bf16, AttendArgs, 128) { attend_on_tensor_cores<bf16, bf16, 128, true>(a); }
KERNEL_AHEAD(attend_flat_64_f16, AttendArgs, 128) { attend_on_tensor_cores<f16, bf16, 64, false>(a); }
KERNEL_AHEAD(attend_tall_64_f16, AttendArgs, 128) { attend_on_tensor_cores<f16, bf16, 64, true>(a); }
KERNEL_AHEAD(attend_flat_128_f16, AttendArgs, 128) { attend_on_tensor_cores<f16, bf16, 128, false>(a); }
KERNEL_AHEAD(attend_tall_128_f16, AttendArgs, 128) { attend_on_tensor_cores<f16, bf16, 128, true>(a); }
KERNEL_AHEAD(attend_flat_64_q8_bf16, AttendArgs, 128) { attend_on_tensor_cores<bf16, q8, 64, false>(a); }
KERNEL_AHEAD(attend_tall_64_q8_bf16, AttendArgs, 128) { attend_on_tensor_cores<bf16, q8, 64, true>(a); }
KERNEL_AHEAD(attend_flat_128_q8_bf16, AttendArgs, 128) { attend_on_tensor_cores<bf16, q8, 128, false>(a); }
KERNEL_AHEAD(attend_tall_128_q8_bf16, AttendArgs, 128) { attend_on_tensor_cores<bf16, q8, 128, true>(a); }
KERNEL_AHEAD(attend_flat_64_q8_f16, AttendArgs, 128) { attend_on_tensor_cores<f16, q8, 64, false>(a); }
KERNEL_AHEAD(attend_tall_64_q8_f16, AttendArgs, 128) { attend_on_tensor_cores<f16, q8, 64, true>(a); }
KERNEL_AHEAD(attend_flat_128_q8_f16, AttendArgs, 128) { attend_on_tensor_cores<f16, q8, 128, false>(a); }
KERNEL_AHEAD(attend_tall_128_q8_f16, AttendArgs, 128) { attend_on_tensor_cores<f16, q8, 128, true>(a); }
KERNEL_AHEAD(attend_flat_64_fp8_bf16, AttendArgs, 128) { attend_on_tensor_cores<bf16, e4m3, 64, false>(a); }
KERNEL_AHEAD(attend_tall_64_fp8_bf16, AttendArgs, 128) { attend_on_tensor_cores<bf16, e4m3, 64, true>(a); }
KERNEL_AHEAD(attend_flat_128_fp8_bf16, AttendArgs, 128) { attend_on_tensor_cores<bf16, e4m3, 128, false>(a); }
KERNEL_AHEAD(attend_tall_128_fp8_bf16, AttendArgs, 128) { attend_on_tensor_cores<bf16, e4m3, 128, true>(a); }
KERNEL_AHEAD(attend_flat_64_fp8_f16, AttendArgs, 128) { attend_on_tensor_cores<f16, e4m3, 64, false>(a); }
KERNEL_AHEAD(attend_tall_64_fp8_f16, AttendArgs, 128) { attend_on_tensor_cores<f16, e4m3, 64, true>(a); }
KERNEL_AHEAD(attend_flat_128_fp8_f16, AttendArgs, 128) { attend_on_tensor_cores<f16, e4m3, 128, false>(a); }
KERNEL_AHEAD(attend_tall_128_fp8_f16, AttendArgs, 128) { attend_on_tensor_cores<f16, e4m3, 128, true>(a); }
