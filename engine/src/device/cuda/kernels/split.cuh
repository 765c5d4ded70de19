// Products of 9 rows and more, on cards with thread block clusters: what is left to spare beside reading weights is how often `x` is read.
//
// The blocks of a cluster split the inputs (split-K): each keeps its part of all rows of `x` in shared memory for good, and a tile, 16 GROUPS
// outputs, is a warp's of each block: warp w of a cluster has its tiles w, w + WARPS, and so on. Weights come through a ring of the warp's
// own, CHUNK bytes of `x` deep each stage, and no warp waits for another of its block. One more warp fetches `x`, PASS chunks at once into two
// buffers; what two hold stays, more goes round for each WARPS tiles. At a tile's end the warps of a number send one another their sums, each
// an equal share to each, through the cluster's shared memory (st.async) to two slots in turn, and add up and write what came for the tile
// before; so they wait for what left a whole tile ago. That is also why a slot is free when it is written to again: whoever sends the sums of
// tile i + 2 has got those of i + 1 from all, who sent them after they had read i. Sums are added in the order of blocks: the same bits always.
// A grid has as many clusters as fit, or as there are tiles; nothing waits for another cluster.

// How a kernel is laid out: rows, sixteens of outputs of a tile, blocks of a cluster, bytes of a row of `x` in a chunk, stages of a ring, warps
// that multiply, chunks of a pass. What it takes of shared memory is said here and where it is launched (device/cuda/split.rs).
template <int ROWS_, int GROUPS_, int BLOCKS_, int CHUNK_, int DEPTH_, int WARPS_, int PASS_> struct SplitLayout {
    static constexpr int ROWS = ROWS_, GROUPS = GROUPS_, BLOCKS = BLOCKS_, CHUNK = CHUNK_, DEPTH = DEPTH_, WARPS = WARPS_, PASS = PASS_;
};
template <class T> struct FourBits {}; // weights, and activations of T
template <class W, int ROWS> struct SplitOf;
template <> struct SplitOf<bf16, 16> : SplitLayout<16, 2, 4, 128, 5, 7, 7> { static constexpr int SHARED_BYTES = 202896; };
template <> struct SplitOf<bf16, 32> : SplitLayout<32, 2, 4, 128, 5, 5, 7> { static constexpr int SHARED_BYTES = 204912; };
template <> struct SplitOf<f16, 16> : SplitOf<bf16, 16> {};
template <> struct SplitOf<f16, 32> : SplitOf<bf16, 32> {};
template <> struct SplitOf<e4m3, 16> : SplitLayout<16, 2, 4, 128, 5, 8, 4> { static constexpr int SHARED_BYTES = 215200; };
template <> struct SplitOf<e4m3, 32> : SplitLayout<32, 2, 4, 128, 4, 7, 4> { static constexpr int SHARED_BYTES = 209040; };
template <class T> struct SplitOf<FourBits<T>, 16> : SplitLayout<16, 2, 4, 256, 7, 8, 4> { static constexpr int SHARED_BYTES = 211104; };
template <class T> struct SplitOf<FourBits<T>, 32> : SplitLayout<32, 2, 4, 256, 5, 7, 4> { static constexpr int SHARED_BYTES = 216720; };
template <class T> struct SplitOf<FourBits<T>, 64> : SplitLayout<64, 1, 8, 128, 10, 10, 4> { static constexpr int SHARED_BYTES = 219840; };

// What weights are multiplied with, and whether they are of four bits.
template <class W> struct SplitFactors {
    typedef W Of;
    static constexpr bool IN_FOUR_BITS = false;
};
template <class T> struct SplitFactors<FourBits<T>> {
    typedef T Of;
    static constexpr bool IN_FOUR_BITS = true;
};

// Two numbers of a row, side by side.
DEVICE void read_two(const float* from, float (&x)[2]) {
    const Eight both = *aligned((const Eight*)from);
    x[0] = from_bits(both.words[0]), x[1] = from_bits(both.words[1]);
}
DEVICE void read_two(const bf16* from, float (&x)[2]) {
    const u32 both = *aligned((const u32*)from);
    x[0] = from_bits(both << 16), x[1] = from_bits(both & 0xffff0000u);
}
DEVICE void read_two(const f16* from, float (&x)[2]) {
    const u32 both = *aligned((const u32*)from);
    x[0] = from_f16({(u16)both}), x[1] = from_f16({(u16)(both >> 16)});
}
DEVICE u32 pair_of(bf16, float low, float high) { return pack(low, high); }
DEVICE u32 pair_of(f16, float low, float high) { return pack_f16(low, high); }
DEVICE void write_two(float* to, const float (&x)[2]) { *aligned((Eight*)to) = {{to_bits(x[0]), to_bits(x[1])}}; }
template <class Out> DEVICE void write_two(Out* to, const float (&x)[2]) { *aligned((u32*)to) = pair_of(Out(), x[0], x[1]); }

// Two registers of factors of a tensor core, from the sixteen bytes' word `i` on.
template <class T> DEVICE void two_factors(const Sixteen& all, int i, u32& low, u32& high) {
    if constexpr (sizeof(T) == 1) e4m3_to_f16(all.words[i], low, high);
    else low = all.words[i], high = all.words[i + 1];
}

// Eight numbers of four bits as weights, four pairs of them. A number stays at its bits, the last or those before of a half of a word, which
// as half precision are those of a subnormal number: a multiple of 2^-24 or 2^-20, for which the scale makes up. All that is exact.
template <class T> DEVICE void weights_of(u32 eight, float scale, float minimum, u32 (&pairs)[4]) {
    const float by_place[2] = {scale * 16777216.0f, scale * 1048576.0f};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const u32 two = (k < 2 ? eight : eight >> 8) & (k % 2 ? 0x00f000f0 : 0x000f000f);
        const float low = from_f16({(u16)two}), high = from_f16({(u16)(two >> 16)});
        pairs[k] = pair_of(T(), fmaf(by_place[k % 2], low, minimum), fmaf(by_place[k % 2], high, minimum));
    }
}

#ifdef HAS_CLUSTERS

template <class W, class Out, int MOST_ROWS, bool GATED> struct SplitProduct {
    typedef SplitOf<W, MOST_ROWS> Layout;
    typedef typename SplitFactors<W>::Of T;
    static constexpr bool IN_FOUR_BITS = SplitFactors<W>::IN_FOUR_BITS;
    static constexpr int GROUPS = Layout::GROUPS, BLOCKS = Layout::BLOCKS, CHUNK = Layout::CHUNK, WARPS = Layout::WARPS, PASS = Layout::PASS;
    static constexpr int TILES = MOST_ROWS / 8, OUTPUTS = 16 * GROUPS;
    static constexpr int STEPS = IN_FOUR_BITS ? CHUNK / 128 : CHUNK / 64; // of a chunk: 64 inputs, or 64 bytes
    static constexpr int STRIP = CHUNK / 128 * Q4_TILE_BYTES;             // of four bits: a chunk of 16 outputs
    static constexpr int STAGE = IN_FOUR_BITS ? GROUPS * STRIP : OUTPUTS * CHUNK, RING = Layout::DEPTH * STAGE;
    static constexpr int X_LINE = PASS * CHUNK + 64, X_BYTES = MOST_ROWS * X_LINE; // rows lie half of all banks apart
    // A fragment: sums of 16 outputs and 8 rows, 16 bytes a lane. Each block adds up its share of a tile's.
    static constexpr int FRAGMENTS = GROUPS * TILES, OWN = FRAGMENTS / BLOCKS, SLOT = FRAGMENTS * 512;
    static constexpr int RINGS_AT = 2 * X_BYTES, SLOTS_AT = RINGS_AT + WARPS * RING, BARRIERS_AT = SLOTS_AT + WARPS * 2 * SLOT;
    static_assert(OWN * BLOCKS == FRAGMENTS && X_LINE % 128 == 64 && STAGE % 128 == 0, "a layout that does not divide");
    static_assert(BARRIERS_AT + (2 * WARPS + 4) * 8 == Layout::SHARED_BYTES && Layout::SHARED_BYTES <= 227 * 1024, "shared memory");

    // A row's sixteens lie where lanes that read two rows at once meet no other's bank.
    DEVICE int place_of(int row, int at) { return row * CHUNK + (at ^ (row & 1) << 2) * 16; }

    DEVICE void run(const ProductArgs& a, int activation, u32* most) {
        DYNAMIC_SHARED(memory);
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = block_of_cluster();
        Barrier* slots_come = (Barrier*)(memory + BARRIERS_AT); // two of each warp
        Barrier *const x_come = slots_come + 2 * WARPS, *const x_done = x_come + 2;
        const int end = IN_FOUR_BITS ? a.inputs * 2 : a.inputs * (int)sizeof(T); // bytes of a row of `x`
        const int chunks = end / CHUNK, first_chunk = rank * chunks / BLOCKS, own_chunks = (rank + 1) * chunks / BLOCKS - first_chunk;
        const int passes = (own_chunks + PASS - 1) / PASS;
        const int tiles = (a.outputs + OUTPUTS - 1) / OUTPUTS, cluster = blockIdx.x / BLOCKS, clusters = gridDim.x / BLOCKS;
        const int own_tiles = (tiles - cluster + clusters - 1) / clusters, rounds = (own_tiles + WARPS - 1) / WARPS;
        const bool stays = passes <= 2;
        if (threadIdx.x == 0) {
            for (int i = 0; i < 2 * WARPS + 2; i++) begin_barrier(slots_come + i, 1);
            for (int i = 0; i < 2; i++) begin_barrier(x_done + i, WARPS);
            show_barriers();
        }
        await_lanes();
        arrive_in_cluster();
        if (warp == WARPS) {
            let_next_begin();
            await_kernel_before();
            await_cluster(); // the barriers have begun
            fetch_x(a, memory, x_come, x_done, first_chunk, own_chunks, end, stays ? passes : rounds * passes);
            return;
        }

        // Of tile n of this warp the first output, or gate.
        auto first_of = [&](int n) { return ((warp + n * WARPS) * clusters + cluster) * (GATED ? OUTPUTS / 2 : OUTPUTS); };
        const int count = warp < own_tiles ? (own_tiles - warp + WARPS - 1) / WARPS : 0; // tiles of this warp
        unsigned char* const ring = memory + RINGS_AT + warp * RING;
        unsigned char* const slots = memory + SLOTS_AT + warp * 2 * SLOT;
        slots_come += 2 * warp;
        const int width = GATED ? a.outputs / 2 : a.outputs;

        // Where this lane's sixteens of a stage come from and go to.
        constexpr int ACROSS = CHUNK / 16, DOWN = 32 / ACROSS, SIXTEENS = STAGE / 16, TIMES = (SIXTEENS + 31) / 32;
        static_assert(IN_FOUR_BITS || (8 % DOWN == 0 && DOWN % 2 == 0), "a copy's rows are of one half");
        const int strip_bytes = IN_FOUR_BITS ? q4_tiles(a.inputs) * Q4_TILE_BYTES : 0;
        const int row = lane / ACROSS, to = IN_FOUR_BITS ? lane * 16 : place_of(row, lane % ACROSS);
        int from[IN_FOUR_BITS ? TIMES : 1];
        if constexpr (IN_FOUR_BITS) {
#pragma unroll
            for (int i = 0; i < TIMES; i++) {
                const int at = (i * 32 + lane) * 16;
                from[i] = at / STRIP * strip_bytes + at % STRIP;
                pin(from[i]);
            }
        } else {
            from[0] = row * end + lane % ACROSS * 16;
            pin(from[0]);
        }
        const size_t others = (size_t)width * end; // from gates to what they gate
        const size_t tile_bytes = IN_FOUR_BITS ? (size_t)GROUPS * strip_bytes : (size_t)(GATED ? OUTPUTS / 2 : OUTPUTS) * end;
        constexpr int ALONG = IN_FOUR_BITS ? STRIP : CHUNK; // from a chunk to the next
        int next_tile = 0, next_chunk = 0, next_stage = 0, left = width - first_of(0);
        const unsigned char* w = (const unsigned char*)a.w + (size_t)(warp * clusters + cluster) * tile_bytes + (size_t)first_chunk * ALONG;
        auto fetch_stage = [&]() {
            if (next_tile < count) {
                unsigned char* stage = ring + next_stage + to;
#pragma unroll
                for (int i = 0; i < TIMES; i++) {
                    if constexpr (IN_FOUR_BITS) {
                        if (SIXTEENS % 32 != 0 && i == TIMES - 1 && lane >= SIXTEENS % 32) break;
                        copy_later(stage + i * 512, w + from[i], true);
                    } else {
                        // Gates and what they gate come in turn, eight of each.
                        constexpr bool IN_TURN = GATED;
                        const int down = IN_TURN ? i * DOWN / 16 * 8 + i * DOWN % 8 : i * DOWN;
                        const size_t half = IN_TURN && i * DOWN / 8 % 2 ? others : 0;
                        copy_later(stage + i * DOWN * CHUNK, w + from[0] + down * end + half, row + down < left);
                    }
                }
                next_stage = next_stage + STAGE == RING ? 0 : next_stage + STAGE;
                w += ALONG;
                if (++next_chunk == own_chunks) {
                    next_chunk = 0;
                    next_tile++;
                    w += (size_t)WARPS * clusters * tile_bytes - (size_t)own_chunks * ALONG;
                    left -= first_of(1) - first_of(0);
                }
            }
            end_copies();
        };
#pragma unroll 1
        for (int i = 0; i < Layout::DEPTH - 1; i++) fetch_stage();
        let_next_begin();
        await_kernel_before();
        await_cluster();

        float largest[OWN]; // of this lane's row in each fragment that its block adds up
#pragma unroll
        for (int i = 0; i < OWN; i++) largest[i] = 0.0f;
        // Waits for all blocks' sums of tile n, adds them up and writes them.
        auto finish = [&](int n) {
            await_barrier(slots_come + n % 2, n / 2 % 2);
            const unsigned char* slot = slots + n % 2 * SLOT + lane * 16;
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
                for (int block = 0; block < BLOCKS; block++) {
                    float part[4];
                    read_four((const float*)(slot + (block * OWN + i) * 512), part);
#pragma unroll
                    for (int k = 0; k < 4; k++) sum[k] += part[k];
                }
                const int fragment = rank * OWN + i;
                write(a, activation, first_of(n) + fragment / TILES * (GATED ? 8 : 16), fragment % TILES * 8, sum, largest[i]);
            }
        };

        // Where this lane reads its factors: of weights in a stage, even and odd steps, or numbers and their ends; and of `x`.
        int left_at = IN_FOUR_BITS ? lane * 16 : place_of(lane / 4, lane % 4);
        int left_then = IN_FOUR_BITS ? Q4_NUMBERS_BYTES + lane / 4 * 16 : place_of(lane / 4, 4 + lane % 4);
        int x_at = lane / 4 * X_LINE + lane % 4 * 16;
        pin(left_at), pin(left_then), pin(x_at);
        int stage_at = 0, use = 0;
#pragma unroll 1
        for (int round = 0; round < rounds; round++) {
            float sums[GROUPS][TILES][4];
#pragma unroll
            for (int i = 0; i < GROUPS * TILES * 4; i++) sums[i / 4 / TILES][i / 4 % TILES][i % 4] = 0.0f;
#pragma unroll 1
            for (int pass = 0; pass < passes; pass++, use++) {
                // What stays has come once; what goes round is given back by warps without a tile, too.
                const int buffer = use % 2;
                if (!stays) await_barrier(x_come + buffer, use / 2 % 2);
                else if (round == 0) await_barrier(x_come + pass, 0);
                const unsigned char* x = memory + (stays ? pass : buffer) * X_BYTES + x_at;
                const int now = round < count ? smaller(PASS, own_chunks - pass * PASS) : 0;
#pragma unroll 1
                for (int i = 0; i < now; i++, x += CHUNK) {
                    await_copies<Layout::DEPTH - 2>();
                    await_lanes(); // their copies are there, and the stage before has been read
                    fetch_stage();
                    const unsigned char* stage = ring + stage_at;
                    stage_at = stage_at + STAGE == RING ? 0 : stage_at + STAGE;
#pragma unroll
                    for (int step = 0; step < STEPS; step++) {
                        if constexpr (IN_FOUR_BITS) {
                            const unsigned char* tile = stage + step * Q4_TILE_BYTES;
                            multiply_four_bits(tile + left_at, tile + left_then, x + step * 128, sums);
                        } else {
                            const unsigned char* half = stage + (step % 2 ? left_then : left_at) + step / 2 * 128;
                            multiply_plain(half, x + step * 64, sums);
                        }
                    }
                }
                if (!stays) {
                    await_lanes();
                    if (lane == 0) arrive_at(x_done + buffer);
                }
            }
            if (round >= count) continue;
            if (round > 0) finish(round - 1);
            await_lanes();
            if (lane == 0) arrive_expecting(slots_come + round % 2, SLOT);
#pragma unroll
            for (int i = 0; i < FRAGMENTS; i++) {
                unsigned char* slot = slots + round % 2 * SLOT + (rank * OWN + i % OWN) * 512 + lane * 16;
                hand_over(slot, i / OWN, sums[i / TILES][i % TILES], slots_come + round % 2);
            }
        }
        if (count > 0) finish(count - 1);
        await_copies<0>();
        if constexpr (GATED) {
            if (!most) return;
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                float x = largest[i];
                x = fmaxf(x, from_lane(x, 8));
                x = fmaxf(x, from_lane(x, 16));
                const int row = (rank * OWN + i) % TILES * 8 + lane % 4 * 2 + lane / 4 % 2;
                if (lane < 8 && row < a.rows) raise(most + row, to_bits(x));
            }
        }
    }

    // Fetches this block's part of `x`, each pass to the buffers in turn; whoever multiplies waits for it to come, and gives a buffer back.
    DEVICE void fetch_x(const ProductArgs& a, unsigned char* memory, Barrier* come, Barrier* done, int first, int own, int end, int uses) {
        const int lane = threadIdx.x % 32;
        for (int use = 0, pass = 0; use < uses; use++) {
            const int buffer = use % 2;
            if (use >= 2) await_barrier(done + buffer, (use / 2 - 1) % 2);
            const int from = (first + pass) * CHUNK, bytes = smaller(PASS, own - pass) * CHUNK;
            if (lane == 0) arrive_expecting(come + buffer, bytes * a.rows);
            await_lanes();
            // Rows behind the last are not read, and what the product has of them is not written.
            for (int row = lane; row < a.rows; row += 32) {
                const unsigned char* x = (const unsigned char*)a.x + (size_t)row * end + from;
                copy_many(memory + buffer * X_BYTES + row * X_LINE, x, bytes, come + buffer);
            }
            pass = pass + PASS < own ? pass + PASS : 0;
        }
    }

    // Writes a fragment whose first output, or gate, is `first`, and first row `first_row`.
    DEVICE void write(const ProductArgs& a, int activation, int first, int first_row, const float (&sum)[4], float& largest) {
        const int lane = threadIdx.x % 32, width = GATED ? a.outputs / 2 : a.outputs;
        const int row = first_row + lane % 4 * 2, is_odd = lane / 4 % 2;
        float numbers[2][2]; // of two outputs, eight apart or a gate and its own, two rows
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int column = first + lane / 4 + (GATED ? 0 : 8 * half), output = GATED ? half * width + column : column;
            const bool is_there = column < width;
            const float scale = a.scales && is_there ? a.scales[output] : 1.0f;
            float bias = 0.0f;
            if (a.bias && is_there) bias = a.scales ? ((const float*)a.bias)[output] : widen(((const Out*)a.bias)[output]);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float by = a.scales && row + i < a.rows ? a.row_scales[row + i] * scale : 1.0f;
                numbers[half][i] = sum[2 * half + i] * by + bias;
            }
        }
#pragma unroll
        for (int half = 0; half < (GATED ? 1 : 2); half++) {
            float low = numbers[half][0], high = numbers[half][1]; // of two rows
            if constexpr (GATED) low = activated(activation, low) * numbers[1][0], high = activated(activation, high) * numbers[1][1];
            // Of two outputs and one row: lanes of outputs side by side change a number each.
            const float other = from_lane(is_odd ? low : high, 4);
            float both[2] = {is_odd ? other : low, is_odd ? high : other};
            const int own_row = row + is_odd, column = first + 8 * half + lane / 4 - is_odd;
            if (own_row >= a.rows || column >= width) continue;
            Out* y = (Out*)a.y + (size_t)own_row * width + column;
            if (a.adds) {
                float before[2];
                read_two(y, before);
                both[0] += before[0], both[1] += before[1];
            }
            write_two(y, both);
            if constexpr (GATED) largest = fmaxf(largest, fmaxf(fabsf(widen(narrow<Out>(both[0]))), fabsf(widen(narrow<Out>(both[1])))));
        }
    }

    // 64 bytes of inputs.
    DEVICE void multiply_plain(const unsigned char* w, const unsigned char* x, float (&sums)[GROUPS][TILES][4]) {
        Sixteen left[GROUPS][2], right[TILES];
#pragma unroll
        for (int i = 0; i < 2 * GROUPS; i++) left[i / 2][i % 2] = *aligned((const Sixteen*)(w + i * 8 * CHUNK));
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) right[tile] = *aligned((const Sixteen*)(x + tile * 8 * X_LINE));
#pragma unroll
        for (int i = 0; i < 4; i += sizeof(T) == 1 ? 1 : 2) {
            u32 four[GROUPS][4];
#pragma unroll
            for (int j = 0; j < 2 * GROUPS; j++) two_factors<T>(left[j / 2][j % 2], i, four[j / 2][j % 2], four[j / 2][2 + j % 2]);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                u32 low, high;
                two_factors<T>(right[tile], i, low, high);
#pragma unroll
                for (int group = 0; group < GROUPS; group++) multiply_as(T(), sums[group][tile], four[group], low, high);
            }
        }
    }

    // 64 inputs whose weights have four bits, and become the very numbers that a matrix is unpacked to (q4.cuh): `scale * number` is exact in
    // single precision, and is rounded with the minimum added, then once more.
    DEVICE void multiply_four_bits(
        const unsigned char* numbers_at, const unsigned char* ends_at, const unsigned char* x, float (&sums)[GROUPS][TILES][4]) {
        Sixteen numbers[GROUPS], ends[GROUPS];
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            numbers[group] = *aligned((const Sixteen*)(numbers_at + group * STRIP));
            ends[group] = *aligned((const Sixteen*)(ends_at + group * STRIP));
        }
#pragma unroll
        for (int half = 0; half < 2; half++) { // a group of inputs
            Sixteen right[TILES];
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) right[tile] = *aligned((const Sixteen*)(x + half * 64 + tile * 8 * X_LINE));
#pragma unroll
            for (int group = 0; group < GROUPS; group++) {
                u32 left[2][4];
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const u32 both = ends[group].words[2 * half + j];
                    weights_of<T>(numbers[group].words[2 * half + j], q4_scale(both), q4_minimum(both), left[j]);
                }
#pragma unroll
                for (int k = 0; k < 4; k += 2) {
                    const u32 four[4] = {left[0][k], left[1][k], left[0][k + 1], left[1][k + 1]};
#pragma unroll
                    for (int tile = 0; tile < TILES; tile++) {
                        multiply_as(T(), sums[group][tile], four, right[tile].words[k], right[tile].words[k + 1]);
                    }
                }
            }
        }
    }
};

#endif

template <class W, class Out, int MOST_ROWS, bool GATED = false>
DEVICE void product_split(const ProductArgs& a, int activation = 0, u32* most = 0) {
#ifdef HAS_CLUSTERS
    SplitProduct<W, Out, MOST_ROWS, GATED>::run(a, activation, most);
#endif
}
KERNEL_SPLIT(product_split_bf16_bf16_16, ProductArgs, 256) { product_split<bf16, bf16, 16>(a); }
KERNEL_SPLIT(product_split_bf16_bf16_32, ProductArgs, 192) { product_split<bf16, bf16, 32>(a); }
KERNEL_SPLIT(product_split_bf16_f32_16, ProductArgs, 256) { product_split<bf16, float, 16>(a); }
KERNEL_SPLIT(product_split_bf16_f32_32, ProductArgs, 192) { product_split<bf16, float, 32>(a); }
KERNEL_SPLIT(product_split_f16_f16_16, ProductArgs, 256) { product_split<f16, f16, 16>(a); }
KERNEL_SPLIT(product_split_f16_f16_32, ProductArgs, 192) { product_split<f16, f16, 32>(a); }
KERNEL_SPLIT(product_split_f16_f32_16, ProductArgs, 256) { product_split<f16, float, 16>(a); }
KERNEL_SPLIT(product_split_f16_f32_32, ProductArgs, 192) { product_split<f16, float, 32>(a); }
KERNEL_SPLIT(product_split_e4m3_bf16_16, ProductArgs, 288) { product_split<e4m3, bf16, 16>(a); }
KERNEL_SPLIT(product_split_e4m3_bf16_32, ProductArgs, 256) { product_split<e4m3, bf16, 32>(a); }
KERNEL_SPLIT(product_split_e4m3_f16_16, ProductArgs, 288) { product_split<e4m3, f16, 16>(a); }
KERNEL_SPLIT(product_split_e4m3_f16_32, ProductArgs, 256) { product_split<e4m3, f16, 32>(a); }
KERNEL_SPLIT(product_split_e4m3_f32_16, ProductArgs, 288) { product_split<e4m3, float, 16>(a); }
KERNEL_SPLIT(product_split_e4m3_f32_32, ProductArgs, 256) { product_split<e4m3, float, 32>(a); }
KERNEL_SPLIT(product_split_gated_bf16_16, GatedProductArgs, 256) { product_split<bf16, bf16, 16, true>(a.product, a.activation); }
KERNEL_SPLIT(product_split_gated_bf16_32, GatedProductArgs, 192) { product_split<bf16, bf16, 32, true>(a.product, a.activation); }
KERNEL_SPLIT(product_split_gated_f16_16, GatedProductArgs, 256) { product_split<f16, f16, 16, true>(a.product, a.activation); }
KERNEL_SPLIT(product_split_gated_f16_32, GatedProductArgs, 192) { product_split<f16, f16, 32, true>(a.product, a.activation); }
KERNEL_SPLIT(product_split_gated_e4m3_bf16_16, GatedProductArgs, 288) { product_split<e4m3, bf16, 16, true>(a.product, a.activation, a.most); }
KERNEL_SPLIT(product_split_gated_e4m3_bf16_32, GatedProductArgs, 256) { product_split<e4m3, bf16, 32, true>(a.product, a.activation, a.most); }
KERNEL_SPLIT(product_split_gated_e4m3_f16_16, GatedProductArgs, 288) { product_split<e4m3, f16, 16, true>(a.product, a.activation, a.most); }
KERNEL_SPLIT(product_split_gated_e4m3_f16_32, GatedProductArgs, 256) { product_split<e4m3, f16, 32, true>(a.product, a.activation, a.most); }
KERNEL_SPLIT(product_split_q4_bf16_bf16_16, ProductArgs, 288) { product_split<FourBits<bf16>, bf16, 16>(a); }
KERNEL_SPLIT(product_split_q4_bf16_bf16_32, ProductArgs, 256) { product_split<FourBits<bf16>, bf16, 32>(a); }
KERNEL_SPLIT(product_split_q4_bf16_bf16_64, ProductArgs, 352) { product_split<FourBits<bf16>, bf16, 64>(a); }
KERNEL_SPLIT(product_split_q4_bf16_f32_16, ProductArgs, 288) { product_split<FourBits<bf16>, float, 16>(a); }
KERNEL_SPLIT(product_split_q4_bf16_f32_32, ProductArgs, 256) { product_split<FourBits<bf16>, float, 32>(a); }
KERNEL_SPLIT(product_split_q4_bf16_f32_64, ProductArgs, 352) { product_split<FourBits<bf16>, float, 64>(a); }
KERNEL_SPLIT(product_split_q4_f16_f16_16, ProductArgs, 288) { product_split<FourBits<f16>, f16, 16>(a); }
KERNEL_SPLIT(product_split_q4_f16_f16_32, ProductArgs, 256) { product_split<FourBits<f16>, f16, 32>(a); }
KERNEL_SPLIT(product_split_q4_f16_f16_64, ProductArgs, 352) { product_split<FourBits<f16>, f16, 64>(a); }
KERNEL_SPLIT(product_split_q4_f16_f32_16, ProductArgs, 288) { product_split<FourBits<f16>, float, 16>(a); }
KERNEL_SPLIT(product_split_q4_f16_f32_32, ProductArgs, 256) { product_split<FourBits<f16>, float, 32>(a); }
KERNEL_SPLIT(product_split_q4_f16_f32_64, ProductArgs, 352) { product_split<FourBits<f16>, float, 64>(a); }
