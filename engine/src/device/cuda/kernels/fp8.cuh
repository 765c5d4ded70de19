// Products of numbers of eight bits: weights, and what meets them, as E4M3 (FP8 Formats for Deep Learning, arXiv
// 2209.05433, section 3), every row under a scale of its own by which its largest number becomes the largest there is.
// The library multiplies them without their scales; the kernels that read such sums bring the scales in.

struct e4m3 { unsigned char bits; };

#define E4M3_MAX 448.0f

// The nearest of eight bits, of two the even one. What is not a finite number becomes one that is none.
DEVICE e4m3 to_e4m3(float x) {
    const u32 sign = to_bits(x) >> 24 & 0x80;
    const u32 size = to_bits(x) & 0x7fffffff;
    if (size >= 0x7f800000u) return {(unsigned char)(sign | 0x7f)};
    const float y = fminf(from_bits(size), E4M3_MAX); // a little above it by the rounding of scales
    // Below 2^-6 they lie 2^-9 apart, which is the last bit of numbers from 2^14 on.
    if (y < 0.015625f) return {(unsigned char)(sign | (to_bits(y + 16384.0f) & 0xff))};
    const u32 rounded = to_bits(y) + 0x7ffff + (to_bits(y) >> 20 & 1);
    return {(unsigned char)(sign | ((rounded >> 20) - (120 << 3)))};
}

// What numbers of a row are multiplied by whose largest one is `most`: a row of nothing stays one.
DEVICE float inverse_of(float most) { return most > 1e-30f ? E4M3_MAX / most : 0.0f; }

// Four numbers, at an address of whole fours.
DEVICE void write_four(e4m3* to, const float (&x)[4]) {
    u32 all = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) all |= (u32)to_e4m3(x[i]).bits << (8 * i);
    *(u32*)to = all;
}

// Writes a row, whose number i is `number(i)`, and its scale; a block of threads. Where its width is whole fours, `four(i, x)` has
// number i and the next three.
template <class Number, class Four>
DEVICE void write_fp8(int width, e4m3* to, float* scale, Number number, Four four) {
    float most = 0.0f, x[4];
    if (width % 4 == 0) {
        for (int i = 4 * threadIdx.x; i < width; i += 4 * blockDim.x) {
            four(i, x);
            most = fmaxf(most, fmaxf(fmaxf(fabsf(x[0]), fabsf(x[1])), fmaxf(fabsf(x[2]), fabsf(x[3]))));
        }
        most = max_of_block(most);
        const float inverse = inverse_of(most);
        for (int i = 4 * threadIdx.x; i < width; i += 4 * blockDim.x) {
            four(i, x);
            for (int j = 0; j < 4; j++) x[j] *= inverse;
            write_four(to + i, x);
        }
        if (threadIdx.x == 0) *scale = most / E4M3_MAX;
        return;
    }
    for (int i = threadIdx.x; i < width; i += blockDim.x) most = fmaxf(most, fabsf(number(i)));
    most = max_of_block(most);
    const float inverse = inverse_of(most);
    for (int i = threadIdx.x; i < width; i += blockDim.x) to[i] = to_e4m3(number(i) * inverse);
    if (threadIdx.x == 0) *scale = most / E4M3_MAX;
}

struct QuantizeArgs {
    const void* from; // [rows, width]
    e4m3* to;         // [rows, width]
    float* scales;    // [rows]
    u32* most;        // [rows] that `activate_sums` raises later, or null: becomes 0
    int width;
};

template <class T> DEVICE void quantize(const QuantizeArgs& a) {
    const T* from = (const T*)a.from + (size_t)blockIdx.x * a.width;
    if (a.most && threadIdx.x == 0) a.most[blockIdx.x] = 0;
    write_fp8(a.width, a.to + (size_t)blockIdx.x * a.width, a.scales + blockIdx.x,
                  [=](int i) { return widen(from[i]); }, [=](int i, float (&x)[4]) { read_four(from + i, x); });
}
KERNEL(quantize_f32, QuantizeArgs, 1024) { quantize<float>(a); }
KERNEL(quantize_bf16, QuantizeArgs, 1024) { quantize<bf16>(a); }
KERNEL(quantize_f16, QuantizeArgs, 1024) { quantize<f16>(a); }

struct NormQuantizeArgs {
    const float* x;      // [rows, width]
    const float* weight; // [width]
    const float* bias;   // [width], or null: root mean square
    e4m3* to;            // [rows, width]
    float* scales;       // [rows]
    u32* most;           // [rows] that `activate_sums` raises later: becomes 0
    int width;
    float epsilon;
};

KERNEL_AHEAD(norm_e4m3, NormQuantizeArgs, 256) {
    const float* x = a.x + (size_t)blockIdx.x * a.width;
    e4m3* to = a.to + (size_t)blockIdx.x * a.width;
    if (is_held(a.width)) {
        float y[HELD][4], most = 0.0f;
        norm_held(x, a.weight, a.bias, a.width, a.epsilon, y);
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            for (int i = 0; i < 4; i++) most = four_at(k) < a.width ? fmaxf(most, fabsf(y[k][i])) : most;
        }
        most = max_of_block(most);
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            if (four_at(k) >= a.width) continue;
            for (int i = 0; i < 4; i++) y[k][i] *= inverse_of(most);
            write_four(to + four_at(k), y[k]);
        }
        if (threadIdx.x == 0) {
            a.scales[blockIdx.x] = most / E4M3_MAX;
            a.most[blockIdx.x] = 0;
        }
        return;
    }
    await_kernel_before();
    if (threadIdx.x == 0) a.most[blockIdx.x] = 0;
    const Spread spread = spread_of(x, a.width, a.bias != 0, a.epsilon);
    auto number = [&](int i) { return normed(x, a.weight, a.bias, spread, i); };
    write_fp8(a.width, to, a.scales + blockIdx.x, number, [&](int i, float (&y)[4]) {
        for (int j = 0; j < 4; j++) y[j] = number(i + j);
    });
}

// Sums of products of such numbers.
struct Sums {
    const float* sums;       // [rows, width]
    const float* row_scales; // [rows]
    const float* scales;     // [width], of the weights
    const float* bias;       // [width] or null
};

DEVICE float sum_of(const Sums& a, float row_scale, size_t row, int width, int i) {
    const float x = a.sums[row * width + i] * (row_scale * a.scales[i]);
    return a.bias ? x + a.bias[i] : x;
}

// The same of number i and the next three, where the width is whole fours.
DEVICE void sum_of_four(const Sums& a, float row_scale, size_t row, int width, int i, float (&x)[4]) {
    float by[4];
    read_four(a.sums + row * width + i, x);
    read_four(a.scales + i, by);
#pragma unroll
    for (int j = 0; j < 4; j++) x[j] *= row_scale * by[j];
    if (!a.bias) return;
    read_four(a.bias + i, by);
#pragma unroll
    for (int j = 0; j < 4; j++) x[j] += by[j];
}

struct ActivateSumsArgs {
    Sums in;   // gated: twice the width, gates first
    void* out; // [rows, width]
    u32* most; // [rows] bits of each row's largest number, which was 0
    int width;
    int activation;
};

// A block's threads have four columns each: a row is as many blocks as it takes, which find its largest number together.
template <class T> DEVICE void activate_sums(const ActivateSumsArgs& a) {
    const bool gated = is_gated(a.activation);
    const size_t row = blockIdx.x;
    const float row_scale = a.in.row_scales[row];
    const int wide = gated ? 2 * a.width : a.width, first = 4 * (blockIdx.y * blockDim.x + threadIdx.x);
    T* out = (T*)a.out + row * a.width;
    float most = 0.0f;
    if (a.width % 4 == 0 && first < a.width) {
        float x[4], by[4] = {1.0f, 1.0f, 1.0f, 1.0f};
        sum_of_four(a.in, row_scale, row, wide, first, x);
        if (gated) sum_of_four(a.in, row_scale, row, wide, a.width + first, by);
        for (int i = 0; i < 4; i++) {
            x[i] = widen(narrow<T>(activated(a.activation, x[i]) * by[i]));
            most = fmaxf(most, fabsf(x[i]));
        }
        write_four(out + first, x);
    } else {
        for (int i = first; i < smaller(first + 4, a.width); i++) {
            const float x = activated(a.activation, sum_of(a.in, row_scale, row, wide, i));
            out[i] = narrow<T>(gated ? x * sum_of(a.in, row_scale, row, wide, a.width + i) : x);
            most = fmaxf(most, fabsf(widen(out[i])));
        }
    }
    most = max_of_block(most);
    if (threadIdx.x == 0) raise(a.most + row, to_bits(most));
}
KERNEL(activate_sums_f32, ActivateSumsArgs, 256) { activate_sums<float>(a); }
KERNEL(activate_sums_bf16, ActivateSumsArgs, 256) { activate_sums<bf16>(a); }
KERNEL(activate_sums_f16, ActivateSumsArgs, 256) { activate_sums<f16>(a); }

struct RoundKnownArgs {
    const void* from; // [rows, width]
    const u32* most;  // [rows] bits of each row's largest number
    e4m3* to;         // [rows, width]
    float* scales;    // [rows]
    int width;
};

// The same rows in eight bits: a row is as many blocks as it takes.
template <class T> DEVICE void round_known(const RoundKnownArgs& a) {
    const size_t row = blockIdx.x;
    const float most = from_bits(a.most[row]), inverse = inverse_of(most);
    const T* from = (const T*)a.from + row * a.width;
    e4m3* to = a.to + row * a.width;
    const int first = 4 * (blockIdx.y * blockDim.x + threadIdx.x);
    if (first == 0) a.scales[row] = most / E4M3_MAX;
    if (a.width % 4 == 0 && first < a.width) {
        float x[4];
        read_four(from + first, x);
        for (int i = 0; i < 4; i++) x[i] *= inverse;
        write_four(to + first, x);
        return;
    }
    for (int i = first; i < smaller(first + 4, a.width); i++) to[i] = to_e4m3(widen(from[i]) * inverse);
}
KERNEL(round_known_f32, RoundKnownArgs, 256) { round_known<float>(a); }
KERNEL(round_known_bf16, RoundKnownArgs, 256) { round_known<bf16>(a); }
KERNEL(round_known_f16, RoundKnownArgs, 256) { round_known<f16>(a); }

struct ScaleArgs {
    Sums in;
    void* out; // [rows, width]
    int width;
    int adds; // `out` keeps what it has and gets the product added
};

// A block's threads have four columns each: a row is as many blocks as it takes.
template <class T> DEVICE void scale(const ScaleArgs& a) {
    const size_t row = blockIdx.x;
    const float row_scale = a.in.row_scales[row];
    T* out = (T*)a.out + row * a.width;
    const int first = 4 * (blockIdx.y * blockDim.x + threadIdx.x);
    if (a.width % 4 == 0 && first < a.width) {
        float x[4], before[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        sum_of_four(a.in, row_scale, row, a.width, first, x);
        if (a.adds) read_four(out + first, before);
        for (int i = 0; i < 4; i++) x[i] += before[i];
        write_four(out + first, x);
        return;
    }
    for (int i = first; i < smaller(first + 4, a.width); i++) {
        const float x = sum_of(a.in, row_scale, row, a.width, i);
        out[i] = narrow<T>(a.adds ? widen(out[i]) + x : x);
    }
}
KERNEL(scale_f32, ScaleArgs, 256) { scale<float>(a); }
KERNEL(scale_bf16, ScaleArgs, 256) { scale<bf16>(a); }
KERNEL(scale_f16, ScaleArgs, 256) { scale<f16>(a); }
