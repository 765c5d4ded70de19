// Products of few rows, as decode steps have: all that counts is how fast weights are read.
//
// There are two blocks for each multiprocessor, side by side where its memory has room for both. A block takes every so manieth piece of
// 16 outputs, or of 32 where rows are many enough that reading them counts. Its warps share the inputs, so that all of them read every
// output's weights at once, and add up what they have at a piece's end.
//
// Weights come through a ring in shared memory, of which each warp has a part of its own, and which goes on over the ends of pieces. Nobody
// writes weights, so that the first of them come before the kernel before has ended. The ring's size is what makes that worth it: beside a
// block of the kernel before there is room for one of this, so that early blocks lie evenly. Without it they lie where there happens to be
// room, four on one multiprocessor and none on another, which costs a fifth of a decode step.
//
// What of a row of weights and the same piece of a row of `x` meets in one step of a tensor core is the same in both, which is all that a
// sum over inputs asks for: their order there is not that of memory.

#define PRODUCT_WARPS 8
#define PRODUCT_UNIT 4096 // bytes of weights that a warp fetches, and then multiplies, at once
// Units under way or being multiplied, for each warp. What compiles this for a card says it, and launches with as much memory.
#ifndef PRODUCT_DEPTH
#define PRODUCT_DEPTH 3
#endif

// How far a warp has come in what its block goes through: a round of a piece's inputs after the other, and the place of each in the ring.
struct ProductWalk {
    int piece;
    int round;
    int slot;
};
DEVICE void go_on(ProductWalk& walk, int rounds) {
    walk.slot = (walk.slot + 1) % PRODUCT_DEPTH;
    if (++walk.round < rounds) return;
    walk.round = 0;
    walk.piece++;
}

// Of so many pieces those of this block, and the number of one of them.
DEVICE int own_pieces(int pieces) { return (pieces - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x; }
DEVICE int number_of(int piece) { return (int)blockIdx.x + piece * (int)gridDim.x; }

struct ProductArgs {
    const void* x;    // [rows, inputs]
    const void* w;    // [outputs, inputs]
    const void* bias; // [outputs] as `y` is, single precision where there are scales; or null
    void* y;          // [rows, outputs]
    const float* row_scales; // [rows] of sums of eight-bit floats, or null
    const float* scales;     // [outputs] of the weights, or null
    int rows;    // 8 TILES at most
    int outputs; // whole blocks'
    int inputs;  // whole pieces of 16 bytes
    int adds;    // `y` keeps what it has and gets the product added
};

// The same of a product of gates and what they gate, which is activated as it is written: `y` has half the outputs. There are no sums to
// add to.
struct GatedProductArgs {
    u32* most; // [rows] bits of each row's largest number, which was 0, where there are scales; or null
    ProductArgs product;
    int activation;
};

DEVICE void multiply_as(bf16, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { multiply(c, a, b0, b1); }
DEVICE void multiply_as(f16, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { multiply_f16(c, a, b0, b1); }
DEVICE void multiply_as(e4m3, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { multiply_f16(c, a, b0, b1); }

// Sixteen bytes of factors as tensor cores get them. Eight-bit floats become half precision, whose sums have the bits of others': cards of
// 9.0 have no product of such floats but that of warpgroups (the compiler makes this of `mma.sync`), and others keep fewer bits of its sums.
template <class T> struct ProductFactors {
    static constexpr int WORDS = sizeof(T) == 1 ? 8 : 4;
    u32 words[WORDS];
};
template <class T> DEVICE ProductFactors<T> factors_of(const Sixteen& all) {
    ProductFactors<T> factors;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (sizeof(T) == 1) e4m3_to_f16(all.words[i], factors.words[2 * i], factors.words[2 * i + 1]);
        else factors.words[i] = all.words[i];
    }
    return factors;
}

// Puts what each warp has of a group's 16 outputs where all threads of the block read it.
template <int TILES>
DEVICE void share_sums(float* parts, const float (&sums)[TILES][4]) {
    constexpr int ROWS = 8 * TILES;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < TILES * 4; i++) {
        const int output = lane / 4 + 8 * (i % 4 / 2), row = i / 4 * 8 + lane % 4 * 2 + i % 2;
        parts[(warp * 16 + output) * ROWS + row] = sums[i / 4][i % 4];
    }
    __syncthreads();
}

// Adds up what a block's warps have of a piece's outputs, from `first` on, and writes it.
template <class Out, int TILES, int GROUPS>
DEVICE void write_sums(const ProductArgs& a, int first, const float (&sums)[GROUPS][TILES][4]) {
    constexpr int ROWS = 8 * TILES;
    SHARED(float, parts, PRODUCT_WARPS * 16 * ROWS);
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
        if (group > 0) __syncthreads(); // the sums of the group before have been read
        share_sums<TILES>(parts, sums[group]);
        for (int i = threadIdx.x; i < 16 * a.rows; i += blockDim.x) {
            const int row = i / 16, output = first + group * 16 + i % 16;
            if (output >= a.outputs) continue;
            float sum = 0.0f;
#pragma unroll
            for (int other = 0; other < PRODUCT_WARPS; other++) sum += parts[(other * 16 + i % 16) * ROWS + i / 16];
            if (a.scales) sum *= a.row_scales[row] * a.scales[output];
            if (a.bias) sum += a.scales ? ((const float*)a.bias)[output] : widen(((const Out*)a.bias)[output]);
            Out* y = (Out*)a.y + (size_t)row * a.outputs + output;
            *y = narrow<Out>(a.adds ? widen(*y) + sum : sum);
        }
    }
}

// The same where the first eight outputs of each group are gates, and the others what they gate. `most`: bits of each row's largest number
// of the block, or null.
template <class Out, int TILES, int GROUPS>
DEVICE void write_gated(const ProductArgs& a, int activation, u32* most, int first, const float (&sums)[GROUPS][TILES][4]) {
    constexpr int ROWS = 8 * TILES;
    SHARED(float, parts, PRODUCT_WARPS * 16 * ROWS);
    const int width = a.outputs / 2;
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
        if (group > 0) __syncthreads(); // the sums of the group before have been read
        share_sums<TILES>(parts, sums[group]);
        for (int i = threadIdx.x; i < 8 * a.rows; i += blockDim.x) {
            const int row = i / 8, column = first + group * 8 + i % 8;
            float both[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float sum = 0.0f;
#pragma unroll
                for (int other = 0; other < PRODUCT_WARPS; other++) sum += parts[(other * 16 + 8 * half + i % 8) * ROWS + row];
                const int output = half * width + column;
                if (a.scales) sum *= a.row_scales[row] * a.scales[output];
                if (a.bias) sum += a.scales ? ((const float*)a.bias)[output] : widen(((const Out*)a.bias)[output]);
                both[half] = sum;
            }
            const Out x = narrow<Out>(activated(activation, both[0]) * both[1]);
            ((Out*)a.y)[(size_t)row * width + column] = x;
            if (most) raise(most + row, to_bits(fmaxf(fabsf(widen(x)), 0.0f)));
        }
    }
}

// GROUPS: sixteens of outputs of a piece, which share what they read of `x`. GATED: `y` is activated, and has half the outputs; each row's
// largest number goes to `most` where that is not null.
template <class T, class Out, int TILES, int GROUPS, bool GATED = false>
DEVICE void product(const ProductArgs& a, int activation = 0, u32* most = 0) {
    constexpr bool HAS_MOST = GATED && sizeof(T) == 1;
    constexpr int ROWS = 16 * GROUPS, ROW = PRODUCT_UNIT / ROWS, STEPS = ROW / 64; // rows of weights in a unit, and bytes of each
    constexpr int STRIDE = PRODUCT_WARPS * ROW;
    constexpr int GROUP = GATED ? 8 : 16; // rows of weights from a group to the next
    DYNAMIC_SHARED(memory);
    SHARED(u32, of_block, HAS_MOST ? 8 * TILES : 1);
    if (HAS_MOST && threadIdx.x < 8 * TILES) of_block[threadIdx.x] = 0; // which is raised behind a barrier
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned char* ring = memory + warp * PRODUCT_DEPTH * PRODUCT_UNIT;
    const int end = a.inputs * (int)sizeof(T), rounds = (end + STRIDE - 1) / STRIDE;
    const size_t half_bytes = (size_t)(GATED ? a.outputs / 2 : 8) * end; // from the first eight rows of a group to the others
    const int pieces = own_pieces(a.outputs / ROWS);
    auto first_of = [](int piece) { return number_of(piece) * GROUP * GROUPS; };
    // A row's sixteens lie where lanes that read two rows at once meet no other's bank.
    auto place_of_sixteen = [](int row, int at) { return row * ROW + (at ^ (row & 1) << 2) * 16; };

    ProductWalk next = {0, 0, 0};
    auto fetch_unit = [&]() {
        if (next.piece < pieces) {
            const int from = next.round * STRIDE + warp * ROW;
            const unsigned char* w = (const unsigned char*)a.w + (size_t)first_of(next.piece) * end + from;
            unsigned char* unit = ring + next.slot * PRODUCT_UNIT;
#pragma unroll
            for (int i = 0; i < PRODUCT_UNIT / 512; i++) {
                const int row = (i * 32 + lane) / (ROW / 16), at = (i * 32 + lane) % (ROW / 16);
                const size_t begin = (size_t)(row / 16 * GROUP + row % 8) * end + row % 16 / 8 * half_bytes;
                // What lies behind a row's end counts as zeros.
                copy_later(unit + place_of_sixteen(row, at), w + begin + at * 16, from + at * 16 < end);
            }
            go_on(next, rounds);
        }
        end_copies();
    };
#pragma unroll
    for (int i = 0; i < PRODUCT_DEPTH - 1; i++) fetch_unit();
    let_next_begin();
    await_kernel_before();

    int slot = 0;
    for (int piece = 0; piece < pieces; piece++) {
        float sums[GROUPS][TILES][4];
#pragma unroll
        for (int i = 0; i < GROUPS * TILES * 4; i++) sums[i / 4 / TILES][i / 4 % TILES][i % 4] = 0.0f;
        for (int round = 0; round < rounds; round++) {
            Sixteen right[STEPS][TILES];
#pragma unroll
            for (int i = 0; i < STEPS * TILES; i++) {
                const int at = round * STRIDE + warp * ROW + i / TILES * 64 + lane % 4 * 16, row = i % TILES * 8 + lane / 4;
                const bool is_there = row < a.rows && at < end;
                const unsigned char* x = (const unsigned char*)a.x + (size_t)row * end + at;
                right[i / TILES][i % TILES] = is_there ? *aligned((const Sixteen*)x) : Sixteen{{0, 0, 0, 0}};
            }
            await_copies<PRODUCT_DEPTH - 2>();
            await_lanes(); // their copies are there, and the unit before has been read
            fetch_unit();
            const unsigned char* unit = ring + slot * PRODUCT_UNIT;
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                ProductFactors<T> columns[TILES];
#pragma unroll
                for (int tile = 0; tile < TILES; tile++) columns[tile] = factors_of<T>(right[step][tile]);
#pragma unroll
                for (int group = 0; group < GROUPS; group++) {
                    ProductFactors<T> left[2];
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const int row = group * 16 + half * 8 + lane / 4;
                        left[half] = factors_of<T>(*aligned((const Sixteen*)(unit + place_of_sixteen(row, step * 4 + lane % 4))));
                    }
#pragma unroll
                    for (int tile = 0; tile < TILES; tile++) {
                        const ProductFactors<T>& of = columns[tile];
#pragma unroll
                        for (int i = 0; i < ProductFactors<T>::WORDS; i += 2) {
                            const u32 four[4] = {left[0].words[i], left[1].words[i], left[0].words[i + 1], left[1].words[i + 1]};
                            multiply_as(T(), sums[group][tile], four, of.words[i], of.words[i + 1]);
                        }
                    }
                }
            }
            slot = (slot + 1) % PRODUCT_DEPTH;
        }
        if (piece > 0) __syncthreads(); // the sums of the piece before have been read
        if constexpr (GATED) write_gated<Out, TILES, GROUPS>(a, activation, HAS_MOST ? of_block : 0, first_of(piece), sums);
        else write_sums<Out, TILES, GROUPS>(a, first_of(piece), sums);
    }
    if (!HAS_MOST) return;
    __syncthreads();
    if ((int)threadIdx.x < a.rows) raise(most + threadIdx.x, of_block[threadIdx.x]);
}
KERNEL_LATE(product_bf16_bf16_8, ProductArgs, 256) { product<bf16, bf16, 1, 1>(a); }
KERNEL_LATE(product_bf16_bf16_16, ProductArgs, 256) { product<bf16, bf16, 2, 2>(a); }
KERNEL_LATE(product_bf16_bf16_32, ProductArgs, 256) { product<bf16, bf16, 4, 2>(a); }
KERNEL_LATE(product_bf16_f32_8, ProductArgs, 256) { product<bf16, float, 1, 1>(a); }
KERNEL_LATE(product_bf16_f32_16, ProductArgs, 256) { product<bf16, float, 2, 2>(a); }
KERNEL_LATE(product_bf16_f32_32, ProductArgs, 256) { product<bf16, float, 4, 2>(a); }
KERNEL_LATE(product_f16_f16_8, ProductArgs, 256) { product<f16, f16, 1, 1>(a); }
KERNEL_LATE(product_f16_f16_16, ProductArgs, 256) { product<f16, f16, 2, 2>(a); }
KERNEL_LATE(product_f16_f16_32, ProductArgs, 256) { product<f16, f16, 4, 2>(a); }
KERNEL_LATE(product_f16_f32_8, ProductArgs, 256) { product<f16, float, 1, 1>(a); }
KERNEL_LATE(product_f16_f32_16, ProductArgs, 256) { product<f16, float, 2, 2>(a); }
KERNEL_LATE(product_f16_f32_32, ProductArgs, 256) { product<f16, float, 4, 2>(a); }
KERNEL_LATE(product_e4m3_bf16_8, ProductArgs, 256) { product<e4m3, bf16, 1, 1>(a); }
KERNEL_LATE(product_e4m3_bf16_16, ProductArgs, 256) { product<e4m3, bf16, 2, 2>(a); }
KERNEL_LATE(product_e4m3_bf16_32, ProductArgs, 256) { product<e4m3, bf16, 4, 2>(a); }
KERNEL_LATE(product_e4m3_f16_8, ProductArgs, 256) { product<e4m3, f16, 1, 1>(a); }
KERNEL_LATE(product_e4m3_f16_16, ProductArgs, 256) { product<e4m3, f16, 2, 2>(a); }
KERNEL_LATE(product_e4m3_f16_32, ProductArgs, 256) { product<e4m3, f16, 4, 2>(a); }
KERNEL_LATE(product_e4m3_f32_8, ProductArgs, 256) { product<e4m3, float, 1, 1>(a); }
KERNEL_LATE(product_e4m3_f32_16, ProductArgs, 256) { product<e4m3, float, 2, 2>(a); }
KERNEL_LATE(product_e4m3_f32_32, ProductArgs, 256) { product<e4m3, float, 4, 2>(a); }
KERNEL_LATE(product_gated_bf16_8, GatedProductArgs, 256) { product<bf16, bf16, 1, 1, true>(a.product, a.activation); }
KERNEL_LATE(product_gated_bf16_16, GatedProductArgs, 256) { product<bf16, bf16, 2, 2, true>(a.product, a.activation); }
KERNEL_LATE(product_gated_bf16_32, GatedProductArgs, 256) { product<bf16, bf16, 4, 2, true>(a.product, a.activation); }
KERNEL_LATE(product_gated_f16_8, GatedProductArgs, 256) { product<f16, f16, 1, 1, true>(a.product, a.activation); }
KERNEL_LATE(product_gated_f16_16, GatedProductArgs, 256) { product<f16, f16, 2, 2, true>(a.product, a.activation); }
KERNEL_LATE(product_gated_f16_32, GatedProductArgs, 256) { product<f16, f16, 4, 2, true>(a.product, a.activation); }
KERNEL_LATE(product_gated_e4m3_bf16_8, GatedProductArgs, 256) { product<e4m3, bf16, 1, 1, true>(a.product, a.activation, a.most); }
KERNEL_LATE(product_gated_e4m3_bf16_16, GatedProductArgs, 256) { product<e4m3, bf16, 2, 2, true>(a.product, a.activation, a.most); }
KERNEL_LATE(product_gated_e4m3_bf16_32, GatedProductArgs, 256) { product<e4m3, bf16, 4, 2, true>(a.product, a.activation, a.most); }
KERNEL_LATE(product_gated_e4m3_f16_8, GatedProductArgs, 256) { product<e4m3, f16, 1, 1, true>(a.product, a.activation, a.most); }
KERNEL_LATE(product_gated_e4m3_f16_16, GatedProductArgs, 256) { product<e4m3, f16, 2, 2, true>(a.product, a.activation, a.most); }
KERNEL_LATE(product_gated_e4m3_f16_32, GatedProductArgs, 256) { product<e4m3, f16, 4, 2, true>(a.product, a.activation, a.most); }
