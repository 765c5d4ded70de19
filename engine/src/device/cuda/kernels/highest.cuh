// The highest logits of each row: all that greedy and top-k sampling need of them. One block of threads a row.

struct HighestArgs {
    const float* logits; // [rows, vocabulary]
    const u32* allowed;  // [rows][ceil(vocabulary / 32)] bits of tokens that may be drawn, or null: all
    float* out;          // [rows][1 + 2 wanted]: 1 where all logits are finite, then logits, then tokens' bits
    int vocabulary;
    int end; // tokens from here on may not be drawn
    int wanted;
};

// Whether logit `x` of token `i` stands before logit `y` of token `j`.
DEVICE bool precedes(float x, int i, float y, int j) { return x > y || (x == y && i < j); }

KERNEL(highest, HighestArgs, 512) {
    SHARED(float, warp_logits, 32);
    SHARED(int, warp_tokens, 32);
    SHARED(int, odd, 1);
    const float* logits = a.logits + (size_t)blockIdx.x * a.vocabulary;
    const u32* allowed = a.allowed ? a.allowed + (size_t)blockIdx.x * ((a.vocabulary + 31) / 32) : 0;
    float* out = a.out + (size_t)blockIdx.x * (1 + 2 * a.wanted);
    const int none = 0x7fffffff;
    if (threadIdx.x == 0) odd[0] = 0;
    __syncthreads();
    float last_logit = from_bits(0x7f800000u); // infinity: everything comes after
    int last_token = -1;
    for (int place = 0; place < a.wanted; place++) {
        float logit = from_bits(0xff800000u);
        int token = none;
        bool is_odd = false;
        for (int i = threadIdx.x; i < a.vocabulary; i += blockDim.x) {
            const float x = logits[i];
            const bool is_finite = (to_bits(x) & 0x7f800000u) != 0x7f800000u;
            is_odd |= !is_finite;
            const bool may = is_finite && i < a.end && (!allowed || (allowed[i / 32] >> (i % 32)) & 1);
            if (may && precedes(last_logit, last_token, x, i) && precedes(x, i, logit, token)) {
                logit = x;
                token = i;
            }
        }
        if (place == 0 && is_odd) odd[0] = 1;
        for (int other = 16; other > 0; other /= 2) {
            const float x = from_lane(logit, other);
            const int i = from_lane(token, other);
            if (precedes(x, i, logit, token)) {
                logit = x;
                token = i;
            }
        }
        __syncthreads();
        if (threadIdx.x % 32 == 0) {
            warp_logits[threadIdx.x / 32] = logit;
            warp_tokens[threadIdx.x / 32] = token;
        }
        __syncthreads();
        for (int warp = 0; warp < (int)blockDim.x / 32; warp++) {
            if (precedes(warp_logits[warp], warp_tokens[warp], logit, token)) {
                logit = warp_logits[warp];
                token = warp_tokens[warp];
            }
        }
        if (threadIdx.x == 0) {
            if (place == 0) out[0] = odd[0] ? 0.0f : 1.0f;
            out[1 + place] = token == none ? from_bits(0xff800000u) : logit;
            out[1 + a.wanted + place] = from_bits((u32)token);
        }
        last_logit = logit;
        last_token = token;
    }
}
