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

// Writes a row, whose number i is `number(i)`, and its scale; a block of threads.
template <class Number> DEVICE void write_eighths(int width, e4m3* to, float* scale, Number number) {
    float most = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) most = fmaxf(most, fabsf(number(i)));
    most = max_of_block(most);
    const float inverse = most > 1e-30f ? E4M3_MAX / most : 0.0f; // a row of nothing stays one
    for (int i = threadIdx.x; i < width; i += blockDim.x) to[i] = to_e4m3(number(i) * inverse);
    if (threadIdx.x == 0) *scale = most / E4M3_MAX;
}

struct QuantizeArgs {
    const void* from; // [rows, width]
    e4m3* to;         // [rows, width]
    float* scales;    // [rows]
    int width;
};

template <class T> DEVICE void quantize(const QuantizeArgs& a) {
    const T* from = (const T*)a.from + (size_t)blockIdx.x * a.width;
    write_eighths(a.width, a.to + (size_t)blockIdx.x * a.width, a.scales + blockIdx.x,
                  [=](int i) { return widen(from[i]); });
}
KERNEL(quantize_f32, QuantizeArgs, 256) { quantize<float>(a); }
KERNEL(quantize_bf16, QuantizeArgs, 256) { quantize<bf16>(a); }

struct NormQuantizeArgs {
    const float* x;      // [rows, width]
    const float* weight; // [width]
    const float* bias;   // [width], or null: root mean square
    e4m3* to;            // [rows, width]
    float* scales;       // [rows]
    int width;
    float epsilon;
};

KERNEL(norm_e4m3, NormQuantizeArgs, 256) {
    const float* x = a.x + (size_t)blockIdx.x * a.width;
    const Spread spread = spread_of(x, a.width, a.bias != 0, a.epsilon);
    write_eighths(a.width, a.to + (size_t)blockIdx.x * a.width, a.scales + blockIdx.x,
                  [&](int i) { return normed(x, a.weight, a.bias, spread, i); });
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

struct ActivateQuantizeArgs {
    Sums in;       // gated: twice the width, gates first
    e4m3* to;      // [rows, width]
    float* scales; // [rows]; may be those of the rows that were multiplied
    int width;
    int is_gated;
};

KERNEL(activate_e4m3, ActivateQuantizeArgs, 256) {
    const size_t row = blockIdx.x;
    const float row_scale = a.in.row_scales[row];
    const int wide = a.is_gated ? 2 * a.width : a.width;
    write_eighths(a.width, a.to + row * a.width, a.scales + row, [&](int i) {
        const float x = sum_of(a.in, row_scale, row, wide, i);
        if (!a.is_gated) return fmaxf(x, 0.0f);
        return x / (1.0f + expf(-x)) * sum_of(a.in, row_scale, row, wide, a.width + i);
    });
}

struct ScaleArgs {
    Sums in;
    void* out; // [rows, width]
    int width;
    int adds; // `out` keeps what it has and gets the product added
};

template <class T> DEVICE void scale(const ScaleArgs& a) {
    const size_t row = blockIdx.x;
    const float row_scale = a.in.row_scales[row];
    T* out = (T*)a.out + row * a.width;
    for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
        const float x = sum_of(a.in, row_scale, row, a.width, i);
        out[i] = narrow<T>(a.adds ? widen(out[i]) + x : x);
    }
}
KERNEL(scale_f32, ScaleArgs, 256) { scale<float>(a); }
KERNEL(scale_bf16, ScaleArgs, 256) { scale<bf16>(a); }
