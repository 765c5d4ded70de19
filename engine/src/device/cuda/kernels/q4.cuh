// Products of few rows with weights of four bits, in groups of 32 inputs: a weight is `scale * number + minimum`, as on the processor
// (device/cpu/layout/nibbles.rs). 5 bits of each are read.
//
// Weights lie in tiles of 16 outputs by 64 inputs, two groups (device/cuda/four_bits.rs), those of the same outputs behind each other: for
// each lane 16 bytes of numbers, then for each two outputs, eight apart, 16 bytes of scales and minima. A lane's word `2 * group + half` has
// eight numbers of output lane / 4 + 8 half, from input 32 group + 8 (lane % 4) on: the even ones in its lower half, the odd ones in its upper,
// so that one shift and one mask give a pair.
//
// A number is made a factor by its bits alone: in the last bits of a power of two, which is taken off the sums again with the
// minimum. So a group's sums have no rounding but their own, and scales come in behind them, in single precision.
//
// With one row the kernel's instructions bound it, not its reading: mask and power of two are one of them, and a scale and a minimum are a
// fused multiply-add each. For 9 to 16 rows, whose sums take most registers, the compiler's own choice is faster.

#define Q4_INPUTS 64 // of a tile
#define Q4_NUMBERS_BYTES 512
#define Q4_TILE_BYTES 640

DEVICE int q4_tiles(int inputs) { return (inputs + Q4_INPUTS - 1) / Q4_INPUTS; }

// A power of two above whose last bits a number lies, twice; what it is; one, twice.
template <class T> struct Q4Factor;
template <> struct Q4Factor<bf16> {
    static constexpr u32 ABOVE = 0x43004300, ONES = 0x3f803f80;
    static constexpr float OFFSET = 128.0f;
};
template <> struct Q4Factor<f16> {
    static constexpr u32 ABOVE = 0x64006400, ONES = 0x3c003c00;
    static constexpr float OFFSET = 1024.0f;
};

DEVICE float q4_scale(u32 ends) { return from_f16({(u16)(ends & 0xffff)}); }
DEVICE float q4_minimum(u32 ends) { return from_f16({(u16)(ends >> 16)}); }

// Pieces and ring are those of product.cuh. A unit of the ring has four tiles: as many of the same outputs, or half as many of each 16 of 32.
template <class T, class Out, int TILES, int GROUPS> DEVICE void product_q4(const ProductArgs& a) {
    constexpr bool HAS_FEW_INSTRUCTIONS = TILES != 2;
    constexpr int STEPS = 4 / GROUPS, STRIDE = PRODUCT_WARPS * STEPS, SIXTEENS = Q4_TILE_BYTES / 16;
    DYNAMIC_SHARED(memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned char* ring = memory + warp * PRODUCT_DEPTH * PRODUCT_UNIT;
    const int tiles = q4_tiles(a.inputs), rounds = (tiles + STRIDE - 1) / STRIDE;
    const int pieces = own_pieces((a.outputs + 16 * GROUPS - 1) / (16 * GROUPS));

    ProductWalk next = {0, 0, 0};
    auto fetch_unit = [&]() {
        if (next.piece < pieces) {
            const int from = next.round * STRIDE + warp * STEPS;
            const unsigned char* w = (const unsigned char*)a.w + (size_t)number_of(next.piece) * GROUPS * tiles * Q4_TILE_BYTES;
#pragma unroll
            for (int i = 0; i < 4 * SIXTEENS / 32; i++) {
                const int tile = (i * 32 + lane) / SIXTEENS, at = (i * 32 + lane) % SIXTEENS, step = from + tile % STEPS;
                const unsigned char* there = w + ((size_t)(tile / STEPS) * tiles + step) * Q4_TILE_BYTES + at * 16;
                // What lies behind the last tile counts as zeros.
                copy_later(ring + next.slot * PRODUCT_UNIT + (i * 32 + lane) * 16, there, step < tiles);
            }
            go_on(next, rounds);
        }
        end_copies();
    };
#pragma unroll
    for (int i = 0; i < PRODUCT_DEPTH - 1; i++) fetch_unit();
    let_next_begin();
    await_kernel_before();

    const u32 ones[4] = {Q4Factor<T>::ONES, Q4Factor<T>::ONES, Q4Factor<T>::ONES, Q4Factor<T>::ONES};
    u32 mask = 0x000f000f;
    if (HAS_FEW_INSTRUCTIONS) pin(mask);
    int slot = 0;
    for (int piece = 0; piece < pieces; piece++) {
        float sums[GROUPS][TILES][4];
#pragma unroll
        for (int i = 0; i < GROUPS * TILES * 4; i++) sums[i / 4 / TILES][i / 4 % TILES][i % 4] = 0.0f;
        for (int round = 0; round < rounds; round++) {
            await_copies<PRODUCT_DEPTH - 2>();
            await_lanes(); // their copies are there, and the unit before has been read
            fetch_unit();
            const unsigned char* unit = ring + slot * PRODUCT_UNIT;
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                Sixteen numbers[GROUPS], ends[GROUPS];
#pragma unroll
                for (int group = 0; group < GROUPS; group++) {
                    const unsigned char* tile = unit + (group * STEPS + step) * Q4_TILE_BYTES;
                    numbers[group] = *aligned((const Sixteen*)(tile + lane * 16));
                    ends[group] = *aligned((const Sixteen*)(tile + Q4_NUMBERS_BYTES + lane / 4 * 16));
                }
#pragma unroll
                for (int half = 0; half < 2; half++) { // a group of inputs
                    const int at = (round * STRIDE + warp * STEPS + step) * Q4_INPUTS + half * 32 + lane % 4 * 8;
                    u32 left[GROUPS][2][4]; // of two outputs four pairs each
                    float scale[GROUPS][2], least[GROUPS][2];
#pragma unroll
                    for (int j = 0; j < 2 * GROUPS; j++) {
                        const u32 eight = numbers[j / 2].words[2 * half + j % 2], both = ends[j / 2].words[2 * half + j % 2];
#pragma unroll
                        for (int k = 0; k < 4; k++) {
                            constexpr u32 ABOVE = Q4Factor<T>::ABOVE;
                            const u32 pair = eight >> (4 * k);
                            left[j / 2][j % 2][k] = HAS_FEW_INSTRUCTIONS ? masked<ABOVE>(pair, mask) : (pair & mask) | ABOVE;
                        }
                        scale[j / 2][j % 2] = q4_scale(both);
                        least[j / 2][j % 2] = fmaf(-Q4Factor<T>::OFFSET, scale[j / 2][j % 2], q4_minimum(both));
                    }
#pragma unroll
                    for (int tile = 0; tile < TILES; tile++) {
                        const int row = tile * 8 + lane / 4;
                        Sixteen right = {{0, 0, 0, 0}};
                        if (row < a.rows && at < a.inputs) right = *aligned((const Sixteen*)((const T*)a.x + (size_t)row * a.inputs + at));
                        float all[4] = {0.0f, 0.0f, 0.0f, 0.0f}; // of the group's inputs themselves
                        multiply_as(T(), all, ones, right.words[0], right.words[1]);
                        multiply_as(T(), all, ones, right.words[2], right.words[3]);
#pragma unroll
                        for (int group = 0; group < GROUPS; group++) {
                            const u32(&of)[2][4] = left[group];
                            float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
                            for (int k = 0; k < 4; k += 2) {
                                const u32 four[4] = {of[0][k], of[1][k], of[0][k + 1], of[1][k + 1]};
                                multiply_as(T(), part, four, right.words[k], right.words[k + 1]);
                            }
#pragma unroll
                            for (int k = 0; k < 4; k++) {
                                const float by = scale[group][k / 2], then = least[group][k / 2];
                                float& sum = sums[group][tile][k];
                                sum = HAS_FEW_INSTRUCTIONS ? fmaf(by, part[k], fmaf(then, all[k], sum))
                                                           : sum + (by * part[k] + then * all[k]);
                            }
                        }
                    }
                }
            }
            slot = (slot + 1) % PRODUCT_DEPTH;
        }
        if (piece > 0) __syncthreads(); // the sums of the piece before have been read
        write_sums<Out, TILES, GROUPS>(a, number_of(piece) * 16 * GROUPS, sums);
    }
}
KERNEL_LATE(product_q4_bf16_bf16_8, ProductArgs, 256) { product_q4<bf16, bf16, 1, 1>(a); }
KERNEL_LATE(product_q4_bf16_bf16_16, ProductArgs, 256) { product_q4<bf16, bf16, 2, 2>(a); }
KERNEL_LATE(product_q4_bf16_bf16_32, ProductArgs, 256) { product_q4<bf16, bf16, 4, 1>(a); }
KERNEL_LATE(product_q4_bf16_f32_8, ProductArgs, 256) { product_q4<bf16, float, 1, 1>(a); }
KERNEL_LATE(product_q4_bf16_f32_16, ProductArgs, 256) { product_q4<bf16, float, 2, 2>(a); }
KERNEL_LATE(product_q4_bf16_f32_32, ProductArgs, 256) { product_q4<bf16, float, 4, 1>(a); }
KERNEL_LATE(product_q4_f16_f16_8, ProductArgs, 256) { product_q4<f16, f16, 1, 1>(a); }
KERNEL_LATE(product_q4_f16_f16_16, ProductArgs, 256) { product_q4<f16, f16, 2, 2>(a); }
KERNEL_LATE(product_q4_f16_f16_32, ProductArgs, 256) { product_q4<f16, f16, 4, 1>(a); }
KERNEL_LATE(product_q4_f16_f32_8, ProductArgs, 256) { product_q4<f16, float, 1, 1>(a); }
KERNEL_LATE(product_q4_f16_f32_16, ProductArgs, 256) { product_q4<f16, float, 2, 2>(a); }
KERNEL_LATE(product_q4_f16_f32_32, ProductArgs, 256) { product_q4<f16, float, 4, 1>(a); }

struct UnpackArgs {
    const unsigned char* from; // tiles
    void* to;                  // [outputs, inputs]
    int outputs;
    int inputs; // whole eights
};

// The same weights as numbers, for products of many rows: a block has 16 outputs, a warp of it a tile.
template <class T> DEVICE void unpack_q4(const UnpackArgs& a) {
    const int lane = threadIdx.x % 32, tiles = q4_tiles(a.inputs);
    const int number = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
    if (number >= tiles) return;
    const unsigned char* tile = a.from + ((size_t)blockIdx.x * tiles + number) * Q4_TILE_BYTES;
    const Sixteen numbers = read_once(tile + lane * 16), ends = read_once(tile + Q4_NUMBERS_BYTES + lane / 4 * 16);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int output = blockIdx.x * 16 + lane / 4 + 8 * (i % 2);
        const int at = number * Q4_INPUTS + i / 2 * 32 + lane % 4 * 8;
        if (output >= a.outputs || at >= a.inputs) continue;
        const float scale = q4_scale(ends.words[i]), minimum = q4_minimum(ends.words[i]);
        T* to = (T*)a.to + (size_t)output * a.inputs + at;
#pragma unroll
        for (int four = 0; four < 8; four += 4) {
            float x[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int k = four + j;
                x[j] = scale * (float)(numbers.words[i] >> (k / 2 * 4 + k % 2 * 16) & 15) + minimum;
            }
            write_four(to + four, x);
        }
    }
}
KERNEL(unpack_q4_f32, UnpackArgs, 256) { unpack_q4<float>(a); }
KERNEL(unpack_q4_bf16, UnpackArgs, 256) { unpack_q4<bf16>(a); }
KERNEL(unpack_q4_f16, UnpackArgs, 256) { unpack_q4<f16>(a); }
