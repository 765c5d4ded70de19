// The same attention by warpgroups, where there are their products (9.0): FlashAttention-3 (arXiv 2407.08608), section 3.2, without
// roles of warps. While a tile's scores become weights, the tensor cores multiply the weights of the tile before with its values.
//
// A task has 128 rows, 64 to each of two warpgroups, whose queries stay in registers.

#define GROUP_ROWS 128
#define GROUP_THREADS 256
#define STAGES 4 // tiles of keys and values in shared memory

#ifdef HAS_WGMMA

// Bytes from a tile's first 64 numbers of each row to its next.
#define HALF_BYTES (TILE_TOKENS * 128)

// Where 16 bytes of a tile's row lie.
DEVICE int swizzled(int row, int at) { return at / 8 * HALF_BYTES + row * 128 + ((at % 8) ^ (row & 7)) * 16; }

// Starts the copies of a tile, keys and then values: first all places are looked up, then all copies go out.
template <int DIM>
DEVICE void fetch_swizzled(const AttendArgs& a, const Part& part, int kv_head, int first, int to, unsigned char* tile) {
    constexpr int PIECES = DIM / 8, STEPS = TILE_TOKENS * PIECES / GROUP_THREADS;
    const int token = threadIdx.x / PIECES, at = threadIdx.x % PIECES;
    const int last = a.block_tokens - 1, shift = (a.block_tokens & last) == 0 ? bits_of(last) : -1;
    size_t places[STEPS];
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int i = first + token + step * (GROUP_THREADS / PIECES), lane = part.first_lane + i;
        const int number = shift < 0 ? lane / a.block_tokens : lane >> shift;
        const int block = i < to ? a.tables->blocks[part.first_block + number] : 0;
        const int in_block = kv_head * a.block_tokens + lane - number * a.block_tokens;
        places[step] = i < to ? (size_t)block * a.block_numbers + (size_t)in_block * DIM + at * 8 : 0;
    }
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int row = token + step * (GROUP_THREADS / PIECES);
        const bool is_there = first + row < to;
        copy_later(tile + swizzled(row, at), (const bf16*)a.keys + places[step], is_there);
        copy_later(tile + TILE_TOKENS * DIM * 2 + swizzled(row, at), (const bf16*)a.values + places[step], is_there);
    }
}

#endif

// Shared memory: STAGES times keys [64][DIM] and values [64][DIM], from a whole kilobyte on.
template <class T, int DIM> DEVICE void attend_by_warpgroups(const AttendArgs& a) {
#ifdef HAS_WGMMA
    constexpr int STAGE = 2 * TILE_TOKENS * DIM * 2;
    DYNAMIC_SHARED(memory);
    SHARED(Reader, readers, GROUP_ROWS);
    unsigned char* stages = whole_kilobyte(memory);
    bf16* queries = (bf16*)(stages + (STAGES - 1) * STAGE); // until the last stage is needed
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, kv_head = blockIdx.x;
    const int upper = warp * 16 + lane / 4, column = 2 * (lane % 4); // this lane's rows are `upper` and the eighth after

    for (int number = blockIdx.y; number < a.tables->tall_count; number += gridDim.y) {
        const Task task = a.tables->tall[number];
        const Part part = a.tables->parts[task.part];
        const int tiles = (task.to - task.from + TILE_TOKENS - 1) / TILE_TOKENS;
        auto fetch_tile = [&](int tile) {
            if (tile < tiles) {
                const int first = task.from + tile * TILE_TOKENS;
                fetch_swizzled<DIM>(a, part, kv_head, first, task.to, stages + tile % STAGES * STAGE);
            }
            end_copies();
        };
        __syncthreads(); // the task before has been read
        fetch_tile(0);
        fetch_tile(1);
        stage_queries<T, DIM, GROUP_ROWS, GROUP_THREADS>(a, part, task, queries, readers);
        __syncthreads();
        const bool works = warp / 4 * 64 < task.count; // one warpgroup may have no rows
        const int lowest = smaller(readers[upper].position, readers[upper + 8].position);
        u32 left[DIM / 16][4], weights[TILE_TOKENS / 16][4];
#pragma unroll
        for (int k = 0; k < DIM / 16; k++) load_matrices(left[k], piece<DIM>(queries, warp * 16 + lane % 16, 2 * k + lane / 16));

        float scores[8][4], sums[DIM / 64][8][4], highest[2] = {NEVER, NEVER}, sum[2] = {0.0f, 0.0f}, shrink[2];
#pragma unroll
        for (int i = 0; i < DIM / 2; i++) sums[i / 32][i / 4 % 8][i % 4] = 0.0f;

        // A tile's copies are there, and whoever read what lay where the next but one goes has done so.
        auto await_tile = [&](int tile) {
            await_copies<1>();
            show_copies();
            __syncthreads();
            fetch_tile(tile + 2);
        };
        auto multiply_keys = [&](int tile) {
            const unsigned char* keys = stages + tile % STAGES * STAGE;
            begin_products();
#pragma unroll
            for (int k = 0; k < DIM / 16; k++) {
                multiply_later<0>(scores, left[k], matrix_at(keys + k / 4 * HALF_BYTES + k % 4 * 32), k > 0);
            }
            end_products();
        };
        auto multiply_values = [&](int tile) {
            const unsigned char* values = stages + tile % STAGES * STAGE + STAGE / 2;
            begin_products();
#pragma unroll
            for (int k = 0; k < TILE_TOKENS / 16; k++) {
#pragma unroll
                for (int half = 0; half < DIM / 64; half++) {
                    multiply_later<1>(sums[half], weights[k], matrix_at(values + half * HALF_BYTES + k * 16 * 128), true);
                }
            }
            end_products();
        };
        // Scores become weights; `shrink` is what the sums of the tiles before are worth then.
        auto soften = [&](int tile) {
            const int first = task.from + tile * TILE_TOKENS;
            const bool is_whole = first + TILE_TOKENS <= task.to && a.window == 0 &&
                                  (!part.is_causal || part.position + first + TILE_TOKENS - 1 <= lowest);
            if (!is_whole) {
                const int at[2] = {readers[upper].position, readers[upper + 8].position};
#pragma unroll
                for (int i = 0; i < 32; i++) {
                    const int token = first + i / 4 * 8 + column + i % 2;
                    const bool is_seen = token < task.to && sees(a, part, at[i / 2 % 2], token);
                    scores[i / 4][i % 4] = is_seen ? scores[i / 4][i % 4] : NEVER;
                }
            }
            float top[2] = {highest[0], highest[1]};
#pragma unroll
            for (int i = 0; i < 32; i++) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], scores[i / 4][i % 4]);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float before = highest[half];
                highest[half] = max_of_lanes<4>(top[half]);
                // Where nothing is seen yet all weights are 0.
                top[half] = highest[half] == NEVER ? 0.0f : highest[half];
                shrink[half] = power_of_two(before - top[half]);
                sum[half] *= shrink[half];
            }
#pragma unroll
            for (int i = 0; i < 32; i++) {
                scores[i / 4][i % 4] = power_of_two(scores[i / 4][i % 4] - top[i / 2 % 2]);
                sum[i / 2 % 2] += scores[i / 4][i % 4];
            }
        };
        auto pack_weights = [&]() {
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const float(&four)[4] = scores[i / 4 * 2 + i / 2 % 2];
                weights[i / 4][i % 4] = i % 2 ? pack(four[2], four[3]) : pack(four[0], four[1]);
            }
        };
        if (tiles > 0) await_tile(0);
        if (tiles > 0 && works) {
            multiply_keys(0);
            await_products<0>();
            hold(scores);
            soften(0);
            pack_weights();
        }
        for (int tile = 1; tile < tiles; tile++) {
            await_tile(tile);
            if (!works) continue;
            multiply_keys(tile);
            multiply_values(tile - 1);
            await_products<1>();
            hold(scores);
            soften(tile);
            await_products<0>();
#pragma unroll
            for (int half = 0; half < DIM / 64; half++) {
                hold(sums[half]);
#pragma unroll
                for (int i = 0; i < 32; i++) sums[half][i / 4][i % 4] *= shrink[i / 2 % 2];
            }
            pack_weights();
        }
        if (!works) continue;
        if (tiles > 0) {
            multiply_values(tiles - 1);
            await_products<0>();
#pragma unroll
            for (int half = 0; half < DIM / 64; half++) hold(sums[half]);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            sum[half] = sum_of_lanes<4>(sum[half]);
            const int row = upper + 8 * half;
            if (row >= task.count) continue;
            const Query query = kept_query(a, task, kv_head, row, readers[row]);
#pragma unroll
            for (int i = 0; i < DIM / 4; i++) {
                const int d = i / 2 * 8 + column + i % 2;
                put<T>(a, query, d, sums[i / 16][i / 2 % 8][2 * half + i % 2], sum[half]);
            }
            if (lane % 4 == 0) put_sum(a, query, highest[half], sum[half]);
        }
    }
#endif
}
KERNEL(attend_wgmma_64_bf16, AttendArgs, GROUP_THREADS) { attend_by_warpgroups<bf16, 64>(a); }
KERNEL(attend_wgmma_128_bf16, AttendArgs, GROUP_THREADS) { attend_by_warpgroups<bf16, 128>(a); }
KERNEL(attend_wgmma_64_f16, AttendArgs, GROUP_THREADS) { attend_by_warpgroups<f16, 64>(a); }
KERNEL(attend_wgmma_128_f16, AttendArgs, GROUP_THREADS) { attend_by_warpgroups<f16, 128>(a); }
