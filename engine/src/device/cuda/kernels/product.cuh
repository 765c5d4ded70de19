// Products of few rows, as decode steps have: all that counts is how fast weights are read.
//
// A block has 16 outputs, or 32 where rows are many enough that reading them counts. Its warps share the inputs, so that all
// of them read every output's weights at once, and add up what they have at the end.
//
// Blocks come when the kernel before has ended, and let the next come when their weights have been read. Blocks that come earlier lie
// where there happens to be room, four on one multiprocessor and none on another, which costs a fifth of a decode step.
//
// A lane reads 16 bytes of a row of weights and the same 16 of a row of `x`. What of them meets in one step of a tensor core is the
// same in both, which is all that a sum over inputs asks for: their order there is not that of memory.

#define PRODUCT_WARPS 8
#define PRODUCT_STEPS 4 // pieces of 64 bytes of a row that a warp has under way

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

// The same of a product of gates and what they gate, which is activated as it is written: `y` has half the outputs. There are neither
// scales nor sums to add to.
struct GatedProductArgs {
    ProductArgs product;
    int activation;
};

// A lane's part of a warp's reading: of every sixteen outputs two rows of weights, eight apart; or of eight gates one, and one of what
// they gate.
template <int GROUPS> struct ProductPieces {
    Sixteen rows[PRODUCT_STEPS][GROUPS][2];
};

DEVICE void multiply_as(bf16, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { multiply(c, a, b0, b1); }
DEVICE void multiply_as(f16, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { multiply_f16(c, a, b0, b1); }
DEVICE void multiply_as(e4m3, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { multiply_e4m3(c, a, b0, b1); }

// What lies behind a row's end counts as zeros. `group_bytes`: from one group's rows to the next one's; `half_bytes`: from the first row
// of a group to the second.
template <int GROUPS>
DEVICE ProductPieces<GROUPS> read_pieces(const unsigned char* w, size_t group_bytes, size_t half_bytes, int from, int end) {
    ProductPieces<GROUPS> pieces;
#pragma unroll
    for (int step = 0; step < PRODUCT_STEPS; step++) {
        const int at = from + step * 64 + threadIdx.x % 4 * 16;
#pragma unroll
        for (int i = 0; i < 2 * GROUPS; i++) {
            const unsigned char* row = w + i / 2 * group_bytes + i % 2 * half_bytes;
            pieces.rows[step][i / 2][i % 2] = at < end ? read_once(row + at) : Sixteen{{0, 0, 0, 0}};
        }
    }
    return pieces;
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

// Adds up what a block's warps have of its rows and outputs, from these on, and writes it.
template <class Out, int TILES, int GROUPS>
DEVICE void write_sums(const ProductArgs& a, int first_row, int first, const float (&sums)[GROUPS][TILES][4]) {
    constexpr int ROWS = 8 * TILES;
    SHARED(float, parts, PRODUCT_WARPS * 16 * ROWS);
    const int rows = smaller(a.rows - first_row, ROWS);
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
        if (group > 0) __syncthreads(); // the sums of the group before have been read
        share_sums<TILES>(parts, sums[group]);
        for (int i = threadIdx.x; i < 16 * rows; i += blockDim.x) {
            const int row = first_row + i / 16, output = first + group * 16 + i % 16;
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

// The same where the first eight outputs of each group are gates, and the others what they gate.
template <class Out, int TILES, int GROUPS>
DEVICE void write_gated(const ProductArgs& a, int activation, int first, const float (&sums)[GROUPS][TILES][4]) {
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
                both[half] = a.bias ? sum + widen(((const Out*)a.bias)[half * width + column]) : sum;
            }
            ((Out*)a.y)[(size_t)row * width + column] = narrow<Out>(activated(activation, both[0]) * both[1]);
        }
    }
}

// GROUPS: sixteens of outputs of a block, which share what they read of `x`. GATED: `y` is activated, and has half the outputs.
template <class T, class Out, int TILES, int GROUPS, bool GATED = false> DEVICE void product(const ProductArgs& a, int activation = 0) {
    constexpr int STRIDE = PRODUCT_WARPS * PRODUCT_STEPS * 64;
    // Tensor cores keep fewer bits of sums of eight-bit floats than of others: they add up a round's only.
    constexpr bool BY_ROUNDS = sizeof(T) == 1;
    constexpr int GROUP = GATED ? 8 : 16; // rows of weights from a group to the next
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.x * GROUP * GROUPS;
    const int end = a.inputs * (int)sizeof(T);
    const size_t group_bytes = (size_t)GROUP * end, half_bytes = (size_t)(GATED ? a.outputs / 2 : 8) * end;
    const unsigned char* w = (const unsigned char*)a.w + (size_t)(first + lane / 4) * end;
    ProductPieces<GROUPS> now = read_pieces<GROUPS>(w, group_bytes, half_bytes, warp * PRODUCT_STEPS * 64, end);
    await_kernel_before();

    float sums[GROUPS][TILES][4], before[GROUPS][TILES][4];
#pragma unroll
    for (int i = 0; i < GROUPS * TILES * 4; i++) {
        sums[i / 4 / TILES][i / 4 % TILES][i % 4] = 0.0f;
        before[i / 4 / TILES][i / 4 % TILES][i % 4] = 0.0f;
    }
    for (int from = warp * PRODUCT_STEPS * 64; from < end; from += STRIDE) {
        const ProductPieces<GROUPS> next = read_pieces<GROUPS>(w, group_bytes, half_bytes, from + STRIDE, end);
#pragma unroll
        for (int step = 0; step < PRODUCT_STEPS; step++) {
            const int at = from + step * 64 + lane % 4 * 16;
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                const int row = tile * 8 + lane / 4;
                Sixteen right = {{0, 0, 0, 0}};
                if (row < a.rows && at < end) right = *aligned((const Sixteen*)((const unsigned char*)a.x + (size_t)row * end + at));
#pragma unroll
                for (int group = 0; group < GROUPS; group++) {
                    const Sixteen(&left)[2] = now.rows[step][group];
#pragma unroll
                    for (int i = 0; i < 4; i += 2) {
                        const u32 four[4] = {left[0].words[i], left[1].words[i], left[0].words[i + 1], left[1].words[i + 1]};
                        multiply_as(T(), sums[group][tile], four, right.words[i], right.words[i + 1]);
                    }
                }
            }
        }
        now = next;
#pragma unroll
        for (int i = 0; BY_ROUNDS && i < GROUPS * TILES * 4; i++) {
            float &sum = sums[i / 4 / TILES][i / 4 % TILES][i % 4], &all = before[i / 4 / TILES][i / 4 % TILES][i % 4];
            all += sum;
            sum = 0.0f;
        }
    }
    let_next_begin();
#pragma unroll
    for (int i = 0; i < GROUPS * TILES * 4; i++) sums[i / 4 / TILES][i / 4 % TILES][i % 4] += before[i / 4 / TILES][i / 4 % TILES][i % 4];
    if constexpr (GATED) write_gated<Out, TILES, GROUPS>(a, activation, first, sums);
    else write_sums<Out, TILES, GROUPS>(a, 0, first, sums);
}
KERNEL_LATE(product_bf16_bf16_8, ProductArgs, 256) { product<bf16, bf16, 1, 1>(a); }
KERNEL_LATE(product_bf16_bf16_16, ProductArgs, 256) { product<bf16, bf16, 2, 1>(a); }
KERNEL_LATE(product_bf16_bf16_32, ProductArgs, 256) { product<bf16, bf16, 4, 2>(a); }
KERNEL_LATE(product_bf16_f32_8, ProductArgs, 256) { product<bf16, float, 1, 1>(a); }
KERNEL_LATE(product_bf16_f32_16, ProductArgs, 256) { product<bf16, float, 2, 1>(a); }
KERNEL_LATE(product_bf16_f32_32, ProductArgs, 256) { product<bf16, float, 4, 2>(a); }
KERNEL_LATE(product_f16_f16_8, ProductArgs, 256) { product<f16, f16, 1, 1>(a); }
KERNEL_LATE(product_f16_f16_16, ProductArgs, 256) { product<f16, f16, 2, 1>(a); }
KERNEL_LATE(product_f16_f16_32, ProductArgs, 256) { product<f16, f16, 4, 2>(a); }
KERNEL_LATE(product_f16_f32_8, ProductArgs, 256) { product<f16, float, 1, 1>(a); }
KERNEL_LATE(product_f16_f32_16, ProductArgs, 256) { product<f16, float, 2, 1>(a); }
KERNEL_LATE(product_f16_f32_32, ProductArgs, 256) { product<f16, float, 4, 2>(a); }
KERNEL_LATE(product_e4m3_bf16_8, ProductArgs, 256) { product<e4m3, bf16, 1, 1>(a); }
KERNEL_LATE(product_e4m3_bf16_16, ProductArgs, 256) { product<e4m3, bf16, 2, 1>(a); }
KERNEL_LATE(product_e4m3_bf16_32, ProductArgs, 256) { product<e4m3, bf16, 4, 2>(a); }
KERNEL_LATE(product_e4m3_f16_8, ProductArgs, 256) { product<e4m3, f16, 1, 1>(a); }
KERNEL_LATE(product_e4m3_f16_16, ProductArgs, 256) { product<e4m3, f16, 2, 1>(a); }
KERNEL_LATE(product_e4m3_f16_32, ProductArgs, 256) { product<e4m3, f16, 4, 2>(a); }
KERNEL_LATE(product_e4m3_f32_8, ProductArgs, 256) { product<e4m3, float, 1, 1>(a); }
KERNEL_LATE(product_e4m3_f32_16, ProductArgs, 256) { product<e4m3, float, 2, 1>(a); }
KERNEL_LATE(product_e4m3_f32_32, ProductArgs, 256) { product<e4m3, float, 4, 2>(a); }
KERNEL_LATE(product_gated_bf16_8, GatedProductArgs, 256) { product<bf16, bf16, 1, 1, true>(a.product, a.activation); }
KERNEL_LATE(product_gated_bf16_16, GatedProductArgs, 256) { product<bf16, bf16, 2, 1, true>(a.product, a.activation); }
KERNEL_LATE(product_gated_bf16_32, GatedProductArgs, 256) { product<bf16, bf16, 4, 2, true>(a.product, a.activation); }
KERNEL_LATE(product_gated_f16_8, GatedProductArgs, 256) { product<f16, f16, 1, 1, true>(a.product, a.activation); }
KERNEL_LATE(product_gated_f16_16, GatedProductArgs, 256) { product<f16, f16, 2, 1, true>(a.product, a.activation); }
KERNEL_LATE(product_gated_f16_32, GatedProductArgs, 256) { product<f16, f16, 4, 2, true>(a.product, a.activation); }
