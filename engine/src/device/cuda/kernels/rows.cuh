// Operations on rows of numbers: one block of threads a row.

struct EmbedArgs {
    const Tables* tables;
    const void* table;       // [vocabulary of this rank, width]
    const float* positions;  // [positions, width] or null: learned, added
    float* out;              // [tokens, width]
    int width;
    int first;      // token id of the table's first row
    int vocabulary; // its rows
    int offset;     // rows of `positions` before position 0
};

// A token that another rank has, or that only fills a batch up, is 0.
template <class T> DEVICE void embed(const EmbedArgs& a) {
    const int token = blockIdx.x;
    const bool is_there = token < a.tables->token_count;
    const int id = is_there ? a.tables->tokens[token] - a.first : -1;
    const T* row = (const T*)a.table + (size_t)larger(id, 0) * a.width;
    for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
        a.out[(size_t)token * a.width + i] = id >= 0 && id < a.vocabulary ? widen(row[i]) : 0.0f;
    }
}
KERNEL(embed_f32, EmbedArgs, 256) { embed<float>(a); }
KERNEL(embed_bf16, EmbedArgs, 256) { embed<bf16>(a); }
KERNEL(embed_f16, EmbedArgs, 256) { embed<f16>(a); }

KERNEL(add_positions, EmbedArgs, 256) {
    const int token = blockIdx.x;
    if (token >= a.tables->token_count) return;
    const float* row = a.positions + (size_t)(a.tables->positions[token] + a.offset) * a.width;
    for (int i = threadIdx.x; i < a.width; i += blockDim.x) a.out[(size_t)token * a.width + i] += row[i];
}

struct NormArgs {
    const float* x;      // [rows, width]
    const float* weight; // [width]
    const float* bias;   // [width], or null: root mean square
    void* out;           // [rows, width]; may be `x`
    int width;
    float epsilon;
};

// Where a row's numbers lie, and how far apart.
struct Spread {
    float mean;
    float scale;
};

DEVICE Spread spread_of(const float* x, int width, bool has_mean, float epsilon) {
    float mean = 0.0f;
    if (has_mean) {
        for (int i = threadIdx.x; i < width; i += blockDim.x) mean += x[i];
        mean = sum_of_block(mean) / width;
    }
    float squares = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) squares += (x[i] - mean) * (x[i] - mean);
    return {mean, 1.0f / sqrtf(sum_of_block(squares) / width + epsilon)};
}

DEVICE float normed(const float* x, const float* weight, const float* bias, Spread spread, int i) {
    const float y = (x[i] - spread.mean) * spread.scale * weight[i];
    return bias ? y + bias[i] : y;
}

// Fours that a thread holds at most, of a row that its block reads once.
#define HELD 8

DEVICE bool is_held(int width) { return width % 4 == 0 && width <= 4 * HELD * (int)blockDim.x; }

// Where a thread's four number `k` of a row begins; the row may end before it.
DEVICE int four_at(int k) { return 4 * (k * blockDim.x + threadIdx.x); }

// A thread's numbers of a row that it can hold, normalised. One block of threads has the row. Weights are read before the kernel
// before has ended.
DEVICE void norm_held(const float* x, const float* weight, const float* bias, int width, float epsilon, float (&y)[HELD][4]) {
    float by[HELD][4];
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        if (four_at(k) < width) read_four(weight + four_at(k), by[k]);
    }
    await_kernel_before();
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        if (four_at(k) < width) read_four(x + four_at(k), y[k]);
    }
    float mean = 0.0f, squares = 0.0f;
    if (bias) {
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            if (four_at(k) < width) mean += (y[k][0] + y[k][1]) + (y[k][2] + y[k][3]);
        }
        mean = sum_of_block(mean) / width;
    }
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        if (four_at(k) >= width) continue;
#pragma unroll
        for (int i = 0; i < 4; i++) squares += (y[k][i] - mean) * (y[k][i] - mean);
    }
    const float scale = 1.0f / sqrtf(sum_of_block(squares) / width + epsilon);
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        if (four_at(k) >= width) continue;
        float then[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (bias) read_four(bias + four_at(k), then);
#pragma unroll
        for (int i = 0; i < 4; i++) y[k][i] = (y[k][i] - mean) * scale * by[k][i] + then[i];
    }
}

template <class T> DEVICE void norm(const NormArgs& a) {
    const float* x = a.x + (size_t)blockIdx.x * a.width;
    T* out = (T*)a.out + (size_t)blockIdx.x * a.width;
    if (is_held(a.width)) {
        float y[HELD][4];
        norm_held(x, a.weight, a.bias, a.width, a.epsilon, y);
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            if (four_at(k) < a.width) write_four(out + four_at(k), y[k]);
        }
        return;
    }
    await_kernel_before();
    const Spread spread = spread_of(x, a.width, a.bias != 0, a.epsilon);
    for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
        out[i] = narrow<T>(normed(x, a.weight, a.bias, spread, i));
    }
}
KERNEL_AHEAD(norm_f32, NormArgs, 256) { norm<float>(a); }
KERNEL_AHEAD(norm_bf16, NormArgs, 256) { norm<bf16>(a); }
KERNEL_AHEAD(norm_f16, NormArgs, 256) { norm<f16>(a); }

struct ActivateArgs {
    void* in;  // gated: [rows, 2 width], gates first; else [rows, width], which is changed in place
    void* out; // gated: [rows, width]
    int width;
    int activation;
};

// The activation of a gate, or of what there is no gate for.
// What becomes of a number, or of a gate, and whether there are gates.
enum Activation { RELU, GATED_SILU, GELU, GATED_GELU };
DEVICE bool is_gated(int activation) { return activation == GATED_SILU || activation == GATED_GELU; }

// GELU by tanh (of gates) is x times the logistic function of 2u; else it is as it is defined.
DEVICE float activated(int activation, float x) {
    switch (activation) {
    case GATED_SILU: return x / (1.0f + expf(-x));
    case GATED_GELU: return x / (1.0f + expf(-1.5957691f * (x + 0.044715f * x * x * x)));
    case GELU: return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    default: return fmaxf(x, 0.0f);
    }
}

// A block's threads have four columns each: a row is as many blocks as it takes.
template <class T> DEVICE void activate(const ActivateArgs& a) {
    const bool gated = is_gated(a.activation);
    const size_t row = blockIdx.x;
    T* in = (T*)a.in + row * a.width * (gated ? 2 : 1);
    T* out = gated ? (T*)a.out + row * a.width : in;
    const int first = 4 * (blockIdx.y * blockDim.x + threadIdx.x);
    if (a.width % 4 == 0 && first < a.width) {
        float x[4], by[4] = {1.0f, 1.0f, 1.0f, 1.0f};
        read_four(in + first, x);
        if (gated) read_four(in + a.width + first, by);
        for (int i = 0; i < 4; i++) x[i] = activated(a.activation, x[i]) * by[i];
        write_four(out + first, x);
        return;
    }
    for (int i = first; i < smaller(first + 4, a.width); i++) {
        const float x = activated(a.activation, widen(in[i]));
        out[i] = narrow<T>(gated ? x * widen(in[a.width + i]) : x);
    }
}
KERNEL(activate_f32, ActivateArgs, 256) { activate<float>(a); }
KERNEL(activate_bf16, ActivateArgs, 256) { activate<bf16>(a); }
KERNEL(activate_f16, ActivateArgs, 256) { activate<f16>(a); }

struct GatherArgs {
    const Tables* tables;
    const void* from; // [tokens, width]
    void* to;         // [sampled, width]
    int width;
};

// The rows of tokens that sample. Rows that only fill a batch up are those of token 0.
template <class T> DEVICE void gather(const GatherArgs& a) {
    const int row = blockIdx.x;
    const int token = row < a.tables->sampled_count ? a.tables->sampled[row] : 0;
    const T* from = (const T*)a.from + (size_t)token * a.width;
    T* to = (T*)a.to + (size_t)row * a.width;
    for (int i = threadIdx.x; i < a.width; i += blockDim.x) to[i] = from[i];
}
KERNEL(gather_f32, GatherArgs, 256) { gather<float>(a); }
KERNEL(gather_bf16, GatherArgs, 256) { gather<bf16>(a); }
KERNEL(gather_f16, GatherArgs, 256) { gather<f16>(a); }

struct RoundArgs {
    const float* from;
    void* to;
    int count;
};

template <class T> DEVICE void round_numbers(const RoundArgs& a) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += gridDim.x * blockDim.x) {
        ((T*)a.to)[i] = narrow<T>(a.from[i]);
    }
}
KERNEL(round_f32, RoundArgs, 256) { round_numbers<float>(a); }
KERNEL(round_bf16, RoundArgs, 256) { round_numbers<bf16>(a); }
KERNEL(round_f16, RoundArgs, 256) { round_numbers<f16>(a); }
