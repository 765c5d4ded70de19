// What a draw needs of a row of logits, found where they are: the highest of them, or the sum of all tokens' weights, and
// then the token that a draw falls on; and the place of a token among them. One block of threads a row, but for what is found of each
// piece of a row, by a block of its own: one block reads a large vocabulary in 43 us.

// What is wanted of a row.
struct SampleQuery {
    int top_k; // so many of the highest
    float inverse_temperature;  // one over the temperature of its weights; 0: they are not added up
    int mask;    // of the tokens that may be drawn; -1: all may
};

// Tokens that may be drawn.
struct Allowed {
    int vocabulary;
    int end; // tokens from here on may not be drawn
};

// Logits of a piece of a row: the same whatever the step is, so that a row's sums are.
#define LOGIT_PIECE 8192

// What is found in one.
struct LogitPiece {
    double sum;   // of the weights of tokens that may be drawn, the highest's being 1
    float max;    // of those; minus infinity: there are none
    int token;    // of the highest, the first of equals
    u32 is_sound; // all logits are finite
    u32 unused;
};

struct LogitStatsArgs {
    const float* logits; // [rows, vocabulary]
    const u32* masks;   // [masks][ceil(vocabulary / 32)]
    const SampleQuery* queries; // [rows]
    LogitPiece* pieces; // [rows][ceil(vocabulary / LOGIT_PIECE)]
    u32* out;           // [rows][4 + 2 most]: LogitStats, then logits' bits, then their tokens, in any order
    int vocabulary;
    int end;
    int most;
};

struct LogitStats {
    u32 is_sound; // all logits are finite
    float max;    // of those that may be drawn; minus infinity: there are none
    double sum;   // of their weights, the highest's being 1
};

// A row's mask; null: all tokens may be drawn.
DEVICE const u32* mask_of(const u32* masks, int number, int vocabulary) {
    return number < 0 ? 0 : masks + (size_t)number * ((vocabulary + 31) / 32);
}

DEVICE bool is_finite(float x) { return (to_bits(x) & 0x7f800000u) != 0x7f800000u; }

// Whether token `i` of logit `x` may be drawn.
DEVICE bool is_allowed(const Allowed& a, const u32* bits, int i, float x) {
    return i < a.end && is_finite(x) && (!bits || (bits[i / 32] >> (i % 32) & 1));
}

// Numbers in the order of floats, both zeros being the same.
DEVICE u32 order_of(float x) {
    const u32 bits = to_bits(x + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Whether logit `x` of token `i` stands before logit `y` of token `j`.
DEVICE bool precedes(float x, int i, float y, int j) { return x > y || (x == y && i < j); }

// Has `each(i, logits[i])` for `from`, `from + stride`, .. below `to`: several are read before the first is looked at.
template <class Each> DEVICE void for_each_logit(const float* logits, int from, int to, int stride, Each each) {
    constexpr int MANY = 16;
    for (int first = from; first < to; first += MANY * stride) {
        float x[MANY];
#pragma unroll
        for (int j = 0; j < MANY; j++) x[j] = logits[smaller(first + j * stride, to - 1)];
#pragma unroll
        for (int j = 0; j < MANY; j++) {
            if (first + j * stride < to) each(first + j * stride, x[j]);
        }
    }
}

#define NO_TOKEN 0x7fffffff
#define NOTHING from_bits(0xff800000u) // minus infinity: below all logits

struct Leader {
    float logit;
    int token;
};

// The first of a block's threads' leaders, given to all of them.
DEVICE Leader first_of_block(Leader own) {
    SHARED(float, logits, 32);
    SHARED(int, tokens, 32);
    for (int other = 16; other > 0; other /= 2) {
        const float x = from_lane(own.logit, other);
        const int i = from_lane(own.token, other);
        if (precedes(x, i, own.logit, own.token)) own = {x, i};
    }
    __syncthreads(); // whoever still reads earlier ones
    if (threadIdx.x % 32 == 0) {
        logits[threadIdx.x / 32] = own.logit;
        tokens[threadIdx.x / 32] = own.token;
    }
    __syncthreads();
    for (int warp = 0; warp < (int)blockDim.x / 32; warp++) {
        if (precedes(logits[warp], tokens[warp], own.logit, own.token)) own = {logits[warp], tokens[warp]};
    }
    return own;
}

DEVICE double sum_of_warp(double x) {
    for (int other = 16; other > 0; other /= 2) x += from_lane(x, other);
    return x;
}

// Weights of tokens `from` to `to`, added up by the lanes of a warp.
DEVICE double weights_of(const float* logits, const Allowed& a, const u32* bits, float max, float inverse_temperature, int from, int to) {
    double sum = 0.0;
    for_each_logit(logits, from + threadIdx.x % 32, to, 32, [&](int i, float x) {
        if (is_allowed(a, bits, i, x)) sum += expf((x - max) * inverse_temperature);
    });
    return sum_of_warp(sum);
}

// Tokens `from` to `to` fall to the warps of a block in stretches of this length.
DEVICE int stretch(int from, int to) {
    const int warps = blockDim.x / 32;
    return (to - from + 32 * warps - 1) / (32 * warps) * 32;
}

// The `wanted` highest, in any order, by four looks at a byte of their order each: how many begin like the last of them.
DEVICE void write_top_k(const float* logits, const Allowed& a, const u32* bits, int wanted, u32* values, u32* tokens) {
    SHARED(int, counts, 256);
    SHARED(int, place, 1);
    u32 known = 0, mask = 0;
    int left = wanted;
    bool are_fewer = false; // than are wanted
    for (int shift = 24; shift >= 0 && !are_fewer; shift -= 8) {
        __syncthreads();
        for (int i = threadIdx.x; i < 256; i += blockDim.x) counts[i] = 0;
        __syncthreads();
        for_each_logit(logits, threadIdx.x, a.vocabulary, blockDim.x, [&](int i, float x) {
            const u32 order = order_of(x);
            if (is_allowed(a, bits, i, x) && (order & mask) == known) add_to(&counts[order >> shift & 255], 1);
        });
        __syncthreads();
        int byte = 255, above = 0;
        while (byte >= 0 && above + counts[byte] < left) above += counts[byte--];
        are_fewer = byte < 0; // only at the first look
        if (!are_fewer) {
            left -= above;
            known |= (u32)byte << shift;
            mask |= 255u << shift;
        }
    }
    // All above the last, then of its equals the `left` first.
    __syncthreads();
    if (threadIdx.x == 0) place[0] = 0;
    __syncthreads();
    for_each_logit(logits, threadIdx.x, a.vocabulary, blockDim.x, [&](int i, float x) {
        if (is_allowed(a, bits, i, x) && (are_fewer || order_of(x) > known)) {
            const int at = add_to(place, 1);
            values[at] = to_bits(x);
            tokens[at] = (u32)i;
        }
    });
    __syncthreads();
    int at = place[0], last = -1;
    for (; !are_fewer && left > 0; left--, at++) {
        Leader own = {NOTHING, NO_TOKEN};
        for_each_logit(logits, threadIdx.x, a.vocabulary, blockDim.x, [&](int i, float x) {
            if (i > last && i < own.token && order_of(x) == known && is_allowed(a, bits, i, x)) own = {x, i};
        });
        const Leader next = first_of_block(own);
        if (threadIdx.x == 0) {
            values[at] = to_bits(next.logit);
            tokens[at] = (u32)next.token;
        }
        last = next.token;
    }
    for (int i = at + threadIdx.x; i < wanted; i += blockDim.x) values[i] = to_bits(NOTHING);
}

// Sum over a block, in the order of its warps; given to all its threads.
DEVICE double double_sum_of_block(double x) {
    SHARED(double, sums, 32);
    const double of_warp = sum_of_warp(x);
    __syncthreads(); // whoever still reads earlier ones
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = of_warp;
    __syncthreads();
    double sum = 0.0;
    for (int warp = 0; warp < (int)blockDim.x / 32; warp++) sum += sums[warp];
    return sum;
}

DEVICE int pieces_of(int vocabulary) { return (vocabulary + LOGIT_PIECE - 1) / LOGIT_PIECE; }

// Blocks are [pieces, rows].
KERNEL(logit_pieces, LogitStatsArgs, 512) {
    SHARED(int, odd, 1);
    const SampleQuery query = a.queries[blockIdx.y];
    const Allowed allowed = {a.vocabulary, a.end};
    const float* logits = a.logits + (size_t)blockIdx.y * a.vocabulary;
    const u32* bits = mask_of(a.masks, query.mask, a.vocabulary);
    const int from = blockIdx.x * LOGIT_PIECE, to = smaller(from + LOGIT_PIECE, a.vocabulary);
    if (threadIdx.x == 0) odd[0] = 0;
    __syncthreads();
    Leader own = {NOTHING, NO_TOKEN};
    bool is_odd = false;
    for_each_logit(logits, from + threadIdx.x, to, blockDim.x, [&](int i, float x) {
        is_odd |= !is_finite(x);
        if (is_allowed(allowed, bits, i, x) && precedes(x, i, own.logit, own.token)) own = {x, i};
    });
    if (is_odd) odd[0] = 1;
    const Leader leader = first_of_block(own);
    double sum = 0.0;
    if (query.inverse_temperature > 0.0f) {
        for_each_logit(logits, from + threadIdx.x, to, blockDim.x, [&](int i, float x) {
            if (is_allowed(allowed, bits, i, x)) sum += expf((x - leader.logit) * query.inverse_temperature);
        });
        sum = double_sum_of_block(sum);
    }
    if (threadIdx.x == 0) {
        a.pieces[(size_t)blockIdx.y * gridDim.x + blockIdx.x] = {sum, leader.logit, leader.token, odd[0] ? 0u : 1u, 0};
    }
}

// What the row's pieces have, taken together.
KERNEL(logit_stats, LogitStatsArgs, 512) {
    SHARED(int, odd, 1);
    const SampleQuery query = a.queries[blockIdx.x];
    const Allowed allowed = {a.vocabulary, a.end};
    const float* logits = a.logits + (size_t)blockIdx.x * a.vocabulary;
    const u32* bits = mask_of(a.masks, query.mask, a.vocabulary);
    u32* out = a.out + (size_t)blockIdx.x * (4 + 2 * a.most);
    u32 *values = out + 4, *tokens = values + a.most;
    if (threadIdx.x == 0) odd[0] = 0;
    __syncthreads();
    Leader own = {NOTHING, NO_TOKEN};
    const int count = pieces_of(a.vocabulary);
    const LogitPiece* pieces = a.pieces + (size_t)blockIdx.x * count;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        if (!pieces[i].is_sound) odd[0] = 1;
        if (precedes(pieces[i].max, pieces[i].token, own.logit, own.token)) own = {pieces[i].max, pieces[i].token};
    }
    const Leader leader = first_of_block(own);
    double sum = 0.0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        // One that has nothing to draw has no highest. What is no number stays so: then nothing is drawn by the sum.
        if (pieces[i].sum != 0.0) sum += pieces[i].sum * expf((pieces[i].max - leader.logit) * query.inverse_temperature);
    }
    sum = double_sum_of_block(sum);
    if (threadIdx.x == 0) {
        *(LogitStats*)out = {odd[0] ? 0u : 1u, leader.logit, sum};
        if (query.top_k == 1) {
            values[0] = to_bits(leader.logit);
            tokens[0] = (u32)leader.token;
        }
    }
    if (query.top_k > 1) write_top_k(logits, allowed, bits, query.top_k, values, tokens);
}

// A draw that falls into a row.
struct Draw {
    int row;
    float inverse_temperature;
    float max;
    int mask;
    double target; // weights before the token that is drawn are at most this
};

struct DrawArgs {
    const float* logits; // [rows, vocabulary]
    const u32* masks;
    const Draw* draws;
    const LogitPiece* pieces; // of the same logits, at the draws' temperatures
    int* out; // [draws] tokens; -1: none has any weight
    int vocabulary;
    int end;
};

// The token at which the running sum of weights passes the target; the last that has any, where rounding lets it fall short. First the piece
// in which it does, by what is known of each; then a stretch of that, and so on.
KERNEL(draw, DrawArgs, 512) {
    SHARED(double, sums, 32);
    const Draw draw = a.draws[blockIdx.x];
    const Allowed allowed = {a.vocabulary, a.end};
    const float* logits = a.logits + (size_t)draw.row * a.vocabulary;
    const u32* bits = mask_of(a.masks, draw.mask, a.vocabulary);
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
    const int count = pieces_of(a.vocabulary);
    const LogitPiece* pieces = a.pieces + (size_t)draw.row * count;
    int piece = 0;
    double before = 0.0, sum_until = 0.0;
    for (int other = 0; other < count && sum_until <= draw.target; other++) {
        if (!(pieces[other].sum > 0.0)) continue;
        const double sum = pieces[other].sum * expf((pieces[other].max - draw.max) * draw.inverse_temperature);
        if (!(sum > 0.0)) continue;
        piece = other;
        before = sum_until;
        sum_until += sum;
    }
    int from = piece * LOGIT_PIECE, to = smaller(from + LOGIT_PIECE, a.vocabulary);
    while (to - from > 64) {
        const int length = stretch(from, to), own = from + warp * length;
        const double sum = weights_of(logits, allowed, bits, draw.max, draw.inverse_temperature, own, smaller(own + length, to));
        __syncthreads(); // whoever still reads earlier ones
        if (threadIdx.x % 32 == 0) sums[warp] = sum;
        __syncthreads();
        int chosen = 0;
        double until = before, start = before;
        for (int other = 0; other < warps && until <= draw.target; other++) {
            if (sums[other] > 0.0) {
                chosen = other;
                start = until;
            }
            until += sums[other];
        }
        before = start;
        from += chosen * length;
        to = smaller(from + length, to);
    }
    if (threadIdx.x != 0) return;
    int last = -1;
    for (int i = from; i < to && before <= draw.target; i++) {
        if (!is_allowed(allowed, bits, i, logits[i])) continue;
        const float weight = expf((logits[i] - draw.max) * draw.inverse_temperature);
        if (weight > 0.0f) last = i;
        before += weight;
    }
    a.out[blockIdx.x] = last;
}

// A token whose place in a row of logits is looked for.
struct PlaceQuery {
    int token;   // of this part of the vocabulary; -1: it has none, and the logit is given
    float logit;
};

struct LogitPlace {
    float logit; // the token's
    u32 above;   // how many of those that may be drawn are above it
};

struct TokenPlacesArgs {
    const float* logits; // [rows, vocabulary]
    const PlaceQuery* queries; // [rows]
    LogitPlace* out; // [rows]
    int vocabulary;
    int end;
};

KERNEL(token_places, TokenPlacesArgs, 512) {
    SHARED(int, above, 1);
    const PlaceQuery query = a.queries[blockIdx.x];
    const Allowed allowed = {a.vocabulary, a.end};
    const float* logits = a.logits + (size_t)blockIdx.x * a.vocabulary;
    const float logit = query.token < 0 ? query.logit : logits[query.token];
    if (threadIdx.x == 0) above[0] = 0;
    __syncthreads();
    int own = 0;
    for_each_logit(logits, threadIdx.x, a.vocabulary, blockDim.x, [&](int i, float x) {
        if (x > logit && is_allowed(allowed, 0, i, x)) own++;
    });
    if (own > 0) add_to(above, own);
    __syncthreads();
    if (threadIdx.x == 0) a.out[blockIdx.x] = {logit, (u32)above[0]};
}
