// Keys and values on their way to the pool: normalised, turned, and written as what they are kept as.
//
// Of eight bits they are integers, or floats (E4M3), all of a token and head under one scale. The scales, in bf16, lie behind the
// numbers of a layer's keys in a block, and behind those of its values: [kv_heads, block_tokens].

struct q8 { signed char number; };

#define Q8_MAX 127.0f

// Numbers of eight bits that have scales: the largest of them, and the nearest to a number that was turned into one.
template <class Kept> struct Scaled { static constexpr bool value = false; };
template <> struct Scaled<q8> {
    static constexpr bool value = true;
    DEVICE float most() { return Q8_MAX; }
    // Of two the even one: in the last bits of a number that has no others.
    DEVICE q8 nearest(float x) { return {(signed char)(to_bits(x + 12582912.0f) & 0xff)}; }
    DEVICE float number(q8 x) { return (float)x.number; }
};
template <> struct Scaled<e4m3> {
    static constexpr bool value = true;
    DEVICE float most() { return E4M3_MAX; }
    // What is not a number is nothing under a scale that is none, or no end: a score, or a result, is no number then.
    DEVICE e4m3 nearest(float x) { return x == x ? to_e4m3(x) : e4m3{0}; }
    // Its bits in the places of bf16 make a number 2^120 times too small.
    DEVICE float number(e4m3 x) { return from_bits((u32)(x.bits & 0x80) << 24 | (u32)(x.bits & 0x7f) << 20) * 0x1p120f; }
};

// The scales behind so many numbers.
DEVICE bf16* scales_behind(void* numbers, size_t count) { return (bf16*)((unsigned char*)numbers + (count + 1) / 2 * 2); }

// What turns numbers into those whose scale is `scale`.
DEVICE float inverse_of_scale(bf16 scale) { return widen(scale) >= 1.17549435e-38f ? 1.0f / widen(scale) : 0.0f; }

struct RotateArgs {
    const Tables* tables;
    void* qkv;           // [tokens, (heads + 2 kv_heads) dim]
    void* keys;          // of the layer: in each block [kv_heads, block_tokens, dim], of type Kept, and scales where it has them
    void* values;        // the same
    const float* q_norm; // [dim] or null
    const float* k_norm;
    int heads;
    int kv_heads;
    int dim;
    int pairs; // that are turned; 0: none
    int block_tokens;
    int block_numbers; // from one block to the next
    float epsilon;
};

#define PAIRS_HELD 4 // of a head, that a lane turns: heads have 256 numbers at most

// Writes a head's numbers, of which a lane has those at `place(k)` that are there.
template <class Kept, class Place>
DEVICE void write_kept(const RotateArgs& a, void* block, int row, const float (&x)[2 * PAIRS_HELD], Place place) {
    Kept* to = (Kept*)block + (size_t)row * a.dim;
    if constexpr (Scaled<Kept>::value) {
        // Sizes are ordered as their bits are, and above all of them is what is not a number.
        u32 most = 0;
#pragma unroll
        for (int k = 0; k < 2 * PAIRS_HELD; k++) {
            const u32 size = place(k) < a.dim ? to_bits(x[k]) & 0x7fffffff : 0;
            most = size > most ? size : most;
        }
#pragma unroll
        for (int other = 16; other > 0; other /= 2) {
            const u32 size = from_lane(most, other);
            most = size > most ? size : most;
        }
        const bf16 scale = to_bf16(from_bits(most) / Scaled<Kept>::most());
        const float inverse = inverse_of_scale(scale);
#pragma unroll
        for (int k = 0; k < 2 * PAIRS_HELD; k++) {
            if (place(k) < a.dim) to[place(k)] = Scaled<Kept>::nearest(x[k] * inverse);
        }
        if (threadIdx.x % 32 == 0) scales_behind(block, (size_t)a.kv_heads * a.block_tokens * a.dim)[row] = scale;
    } else {
#pragma unroll
        for (int k = 0; k < 2 * PAIRS_HELD; k++) {
            if (place(k) < a.dim) to[place(k)] = narrow<Kept>(x[k]);
        }
    }
}

// Writes keys, turned to their positions, and values to the pool; normalises queries in place where the model does. One
// warp a token and head.
template <class T, class Kept> DEVICE void rotate_and_write(const RotateArgs& a) {
    const int queries = a.q_norm ? a.heads : 0, per_token = queries + 2 * a.kv_heads;
    const int lane = threadIdx.x % 32;
    const int number = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int token = number / per_token, head = number % per_token;
    const bool is_there = token < a.tables->token_count;
    const int cell = is_there ? a.tables->cells[token] : -1;
    const float* cosines = a.tables->angles + (is_there ? (size_t)a.tables->positions[token] * 2 * a.pairs : 0);
    float cosine[PAIRS_HELD], sine[PAIRS_HELD];
#pragma unroll
    for (int k = 0; k < PAIRS_HELD; k++) {
        if (lane + 32 * k >= a.pairs) continue;
        cosine[k] = cosines[lane + 32 * k];
        sine[k] = cosines[a.pairs + lane + 32 * k];
    }
    await_kernel_before();
    if (!is_there) return;
    T* all = (T*)a.qkv + (size_t)token * (a.heads + 2 * a.kv_heads) * a.dim;
    T* own = all + (size_t)(a.heads - queries + head) * a.dim;
    const bool is_query = head < queries, is_key = !is_query && head < queries + a.kv_heads;
    const float* weight = is_query ? a.q_norm : is_key ? a.k_norm : 0;
    float scale = 1.0f;
    if (weight) {
        float squares = 0.0f;
        for (int i = lane; i < a.dim; i += 32) squares += widen(own[i]) * widen(own[i]);
        scale = 1.0f / sqrtf(sum_of_lanes<32>(squares) / a.dim + a.epsilon);
    }
    if (is_query) {
        for (int i = lane; i < a.dim; i += 32) own[i] = narrow<T>(widen(own[i]) * scale * weight[i]);
        return;
    }
    if (cell < 0) return;
    const int kv_head = (head - queries) % a.kv_heads, block = cell / a.block_tokens, at = cell % a.block_tokens;
    Kept* to = (Kept*)(is_key ? a.keys : a.values) + (size_t)block * a.block_numbers;
    const int row = kv_head * a.block_tokens + at;
    float numbers[2 * PAIRS_HELD];
    if (!is_key || a.pairs == 0) {
#pragma unroll
        for (int k = 0; k < 2 * PAIRS_HELD; k++) {
            const int i = lane + 32 * k;
            if (i >= a.dim) continue;
            numbers[k] = weight ? widen(own[i]) * scale * weight[i] : widen(own[i]);
        }
        write_kept<Kept>(a, to, row, numbers, [=](int k) { return lane + 32 * k; });
        return;
    }
#pragma unroll
    for (int k = 0; k < PAIRS_HELD; k++) {
        const int i = lane + 32 * k, j = i + a.pairs;
        if (i >= a.pairs) continue;
        const float x = widen(own[i]) * scale * (weight ? weight[i] : 1.0f);
        const float y = widen(own[j]) * scale * (weight ? weight[j] : 1.0f);
        numbers[k] = x * cosine[k] - y * sine[k];
        numbers[PAIRS_HELD + k] = y * cosine[k] + x * sine[k];
    }
    const int pairs = a.pairs, dim = a.dim;
    write_kept<Kept>(a, to, row, numbers, [=](int k) {
        const int i = lane + 32 * (k % PAIRS_HELD);
        return i >= pairs ? dim : k < PAIRS_HELD ? i : i + pairs;
    });
}
// Beside half precision keys and values are bf16: neither leaves its range, and their products are the same kernels'.
KERNEL_AHEAD(rotate_f32, RotateArgs, 128) { rotate_and_write<float, float>(a); }
KERNEL_AHEAD(rotate_bf16, RotateArgs, 128) { rotate_and_write<bf16, bf16>(a); }
KERNEL_AHEAD(rotate_f16, RotateArgs, 128) { rotate_and_write<f16, bf16>(a); }
KERNEL_AHEAD(rotate_q8_f32, RotateArgs, 128) { rotate_and_write<float, q8>(a); }
KERNEL_AHEAD(rotate_q8_bf16, RotateArgs, 128) { rotate_and_write<bf16, q8>(a); }
KERNEL_AHEAD(rotate_q8_f16, RotateArgs, 128) { rotate_and_write<f16, q8>(a); }
KERNEL_AHEAD(rotate_fp8_f32, RotateArgs, 128) { rotate_and_write<float, e4m3>(a); }
KERNEL_AHEAD(rotate_fp8_bf16, RotateArgs, 128) { rotate_and_write<bf16, e4m3>(a); }
KERNEL_AHEAD(rotate_fp8_f16, RotateArgs, 128) { rotate_and_write<f16, e4m3>(a); }
