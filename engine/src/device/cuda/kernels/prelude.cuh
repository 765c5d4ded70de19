// What the kernels are written in: CUDA C++ without any header, so that NVRTC alone compiles it.
//
// Everything that a processor lacks has a name here; the tests give these names another meaning and run the same
// kernels without a GPU (tests/cuda/emulated.cpp).

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef EMULATED

// A kernel takes one struct of arguments. `threads`: most threads of a block.
//
// From 9.0 on, a kernel's blocks come to the multiprocessors while the last of the kernel before still run there (programmatic
// dependent launch), and wait until that has ended. Each waits, so that what one has waited for, the next has too.
// KERNEL_AHEAD: one that does something first, and calls `await_kernel_before` itself. KERNEL_LATE: one that itself lets the next
// begin, too, and of which two blocks lie on a multiprocessor.
#define KERNEL_LATE(name, Args, threads)                                                                         \
    static __device__ __forceinline__ void body_##name(const Args& a);                                           \
    extern "C" __global__ void __launch_bounds__(threads, 2) name(const __grid_constant__ Args a) {              \
        body_##name(a);                                                                                          \
    }                                                                                                            \
    static __device__ __forceinline__ void body_##name(const Args& a)
// KERNEL_SPLIT: the same, of which one block has a multiprocessor to itself, and those of a cluster work together.
#define KERNEL_SPLIT(name, Args, threads)                                                                        \
    static __device__ __forceinline__ void body_##name(const Args& a);                                           \
    extern "C" __global__ void __launch_bounds__(threads, 1) name(const __grid_constant__ Args a) {              \
        body_##name(a);                                                                                          \
    }                                                                                                            \
    static __device__ __forceinline__ void body_##name(const Args& a)
#define KERNEL_AHEAD(name, Args, threads)                                                                        \
    static __device__ __forceinline__ void body_##name(const Args& a);                                           \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Args a) {                 \
        let_next_begin();                                                                                        \
        body_##name(a);                                                                                          \
    }                                                                                                            \
    static __device__ __forceinline__ void body_##name(const Args& a)
#define KERNEL(name, Args, threads)                                                                              \
    static __device__ __forceinline__ void body_##name(const Args& a);                                           \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Args a) {                 \
        let_next_begin();                                                                                        \
        await_kernel_before();                                                                                   \
        body_##name(a);                                                                                          \
    }                                                                                                            \
    static __device__ __forceinline__ void body_##name(const Args& a)
#define DEVICE static __device__ __forceinline__
#define SHARED(Type, name, count) __shared__ Type name[count]
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]

struct bf16 { u16 bits; };
struct f16 { u16 bits; };

DEVICE void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
DEVICE void await_kernel_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

DEVICE float from_bits(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 to_bits(float x) { return __float_as_uint(x); }

DEVICE bf16 to_bf16(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

DEVICE float from_f16(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
// The nearest of half precision; a number that is in its range.
DEVICE f16 nearest_f16(float x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

// The pair (low, high) as bf16 in one register.
DEVICE u32 pack(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

template <class T> DEVICE T from_lane(T x, int other) { return __shfl_xor_sync(0xffffffffu, x, other); }

// Until all lanes of a warp have come, and see what the others wrote to shared memory.
DEVICE void await_lanes() { __syncwarp(); }

// Adds to a number that a block's threads share; what it was before.
DEVICE int add_to(int* at, int x) { return atomicAdd(at, x); }

// Makes a number that blocks share at least `x`.
DEVICE void raise(u32* at, u32 x) { atomicMax(at, x); }

// Copies 16 bytes from global to shared memory behind the reader's back; zeros where `is_there` is false.
DEVICE void copy_later(void* to, const void* from, bool is_there) {
    u32 at = (u32)__cvta_generic_to_shared(to);
    int bytes = is_there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}
DEVICE void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `left` groups of copies are under way.
template <int left> DEVICE void await_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory"); }

// Four 8x8 matrices of bf16; lanes 8i..8i+7 give the rows of matrix i. A lane gets of each (PTX ISA, ldmatrix): row
// lane / 4, columns 2 (lane % 4) and the next; transposed: these two rows, that column.
DEVICE void load_matrices(u32 (&r)[4], const void* row) {
    u32 at = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEVICE void load_transposed(u32 (&r)[4], const void* row) {
    u32 at = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// c[16, 8] += a[16, 16] b[16, 8] (PTX ISA, mma.m16n8k16).
DEVICE void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same of half precision.
DEVICE void multiply_f16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four eight-bit floats (E4M3) as two pairs of half precision, which holds each of them exactly; where there is such a conversion.
DEVICE void e4m3_to_f16(u32 four, u32& low, u32& high) {
    low = high = 0;
#if __CUDA_ARCH__ >= 890
    asm("{\n"
        ".reg .b16 first, second;\n"
        "mov.b32 {first, second}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, first;\n"
        "cvt.rn.f16x2.e4m3x2 %1, second;\n"
        "}\n"
        : "=r"(low), "=r"(high) : "r"(four));
#endif
}

DEVICE float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Four of eight bytes, those of `x` before those of `y`: the first is the last digit's.
DEVICE u32 pick_bytes(u32 x, u32 y, u32 digits) { return __byte_perm(x, y, digits); }

// x y + z of pairs of bf16, rounded once.
DEVICE u32 multiply_add_pairs(u32 x, u32 y, u32 z) {
    u32 pair;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(x), "r"(y), "r"(z));
    return pair;
}

// Keeps a number in a register: otherwise the compiler knows what it is, and writes it into each instruction.
DEVICE void pin(u32& x) { asm volatile("" : "+r"(x)); }
DEVICE void pin(int& x) { asm volatile("" : "+r"(x)); }

// (x & mask) | ABOVE in one instruction, which has room for one number of its own: `mask` must be `pin`ned.
template <u32 ABOVE> DEVICE u32 masked(u32 x, u32 mask) {
    u32 y;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(x), "r"(mask), "n"(ABOVE));
    return y;
}

// How many bits are set.
DEVICE int bits_of(int x) { return __popc(x); }

// Asks for bytes that a later kernel reads, whole sixteens of them, to be in the cache by then.
DEVICE void fetch_ahead(const void* from, int bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

// ---- Blocks of a cluster, from 9.0 on: each reaches the others' shared memory, and barriers in it count what comes there. Cards of 12 have
// too little of it for what is done with them.

#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
#define HAS_CLUSTERS

DEVICE int block_of_cluster() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return (int)rank;
}
// A barrier of all threads of a cluster, in two halves.
DEVICE void arrive_in_cluster() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEVICE void await_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// A barrier in shared memory (PTX ISA, mbarrier): a phase of it ends when so many have arrived, and all bytes that they expect have come.
typedef u64 Barrier;
DEVICE u32 shared_at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void begin_barrier(Barrier* at, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(at)), "r"(arrivals) : "memory");
}
// Shows barriers that have begun to the other blocks, and to copies.
DEVICE void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void arrive_at(Barrier* at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(at)) : "memory");
}
DEVICE void arrive_expecting(Barrier* at, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(at)), "r"(bytes) : "memory");
}
// Until the phase of this parity has ended; the first is 0.
DEVICE void await_barrier(Barrier* at, int parity) {
    u32 has_ended = 0;
    while (!has_ended) {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}\n"
                     : "=r"(has_ended) : "r"(shared_at(at)), "r"(parity) : "memory");
    }
}
// Copies whole sixteens of bytes from global to shared memory; they come to the barrier.
DEVICE void copy_many(void* to, const void* from, int bytes, Barrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared_at(to)), "l"(from), "r"(bytes), "r"(shared_at(barrier)) : "memory");
}
// Writes four numbers to this place of another block, and comes to the barrier of this place there.
DEVICE void hand_over(void* to, int block, const float (&x)[4], Barrier* barrier) {
    u32 there, arrives;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_at(to)), "r"(block));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(arrives) : "r"(shared_at(barrier)), "r"(block));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
                 ::"r"(there), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(arrives) : "memory");
}
#endif

// ---- Products of four warps, a warpgroup (PTX ISA, wgmma), on 9.0 alone. Their right matrix lies in shared memory, and they come
// behind the reader's back.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WGMMA

// A matrix as they read it: rows of 128 bytes, eight of them a kilobyte, whose pieces of 16 bytes lie at their number XOR that of
// the row (swizzle of 128 bytes). Nothing but the distance from eight rows to the next is looked at.
typedef u64 Matrix;
DEVICE Matrix matrix_at(const void* from) {
    const u64 at = (u32)__cvta_generic_to_shared(from);
    return at >> 4 | 1ull << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}

// c[64, 8 x 8] = a[64, 16] b[16, 64], or that added to it: of each warp 16 rows, by the fragments of mma.m16n8k16. The rows of `b` in
// memory are columns, or rows where it is TRANSPOSED.
template <int TRANSPOSED> DEVICE void multiply_later(float (&c)[8][4], const u32 (&a)[4], Matrix b, bool adds) {
    asm volatile("{\n"
                 ".reg .pred adds;\n"
                 "setp.ne.b32 adds, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, adds, 1, 1, %38;\n"
                 "}\n"
                 : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]),
                   "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]),
                   "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
                   "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]),
                   "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]),
                   "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
                   "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
                   "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)adds), "n"(TRANSPOSED));
}
// Before the first of a group of products, whose registers others may have written.
DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `left` groups of products are under way; then `hold` what they gave before it is read.
template <int left> DEVICE void await_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory"); }
DEVICE void hold(float (&c)[8][4]) {
#pragma unroll
    for (int i = 0; i < 32; i++) asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
}
// Shows those products what a thread's copies have brought, before a barrier.
DEVICE void show_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Where the next kilobyte of shared memory begins.
DEVICE unsigned char* whole_kilobyte(unsigned char* from) { return from + (-(u32)__cvta_generic_to_shared(from) & 1023); }

#endif

#endif

#define NEVER (-1e30f) // below every score; its power of two is 0

#define F16_MAX 65504.0f

// What half precision has no room for becomes its largest number, not infinity, which no later number would survive.
DEVICE f16 to_f16(float x) { return nearest_f16(fabsf(x) > F16_MAX ? copysignf(F16_MAX, x) : x); }

// A pair of such.
DEVICE u32 pack_f16(float low, float high) {
#ifdef EMULATED
    return to_f16(low).bits | (u32)to_f16(high).bits << 16;
#else
    u32 pair;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#endif
}

DEVICE float widen(float x) { return x; }
DEVICE float widen(bf16 x) { return from_bits((u32)x.bits << 16); }
DEVICE float widen(f16 x) { return from_f16(x); }
template <class T> struct Narrow;
template <> struct Narrow<float> { DEVICE float of(float x) { return x; } };
template <> struct Narrow<bf16> { DEVICE bf16 of(float x) { return to_bf16(x); } };
template <> struct Narrow<f16> { DEVICE f16 of(float x) { return to_f16(x); } };
template <class T> DEVICE T narrow(float x) { return Narrow<T>::of(x); }

// Several numbers, read and written as one.
struct alignas(8) Eight { u32 words[2]; };
struct alignas(16) Sixteen { u32 words[4]; };

#ifndef EMULATED
template <class T> DEVICE T* aligned(T* at) { return at; }
#endif

// Sixteen bytes that nobody writes and nobody reads again, at an address of whole sixteens.
DEVICE Sixteen read_once(const void* from) {
#ifdef EMULATED
    return *aligned((const Sixteen*)from);
#else
    Sixteen all;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(all.words[0]), "=r"(all.words[1]), "=r"(all.words[2]), "=r"(all.words[3]) : "l"(from));
    return all;
#endif
}

// Four numbers in a row, at an address of whole fours.
DEVICE void read_four(const float* from, float (&x)[4]) {
    const Sixteen all = *aligned((const Sixteen*)from);
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = from_bits(all.words[i]);
}
DEVICE void read_four(const bf16* from, float (&x)[4]) {
    const Eight all = *aligned((const Eight*)from);
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = from_bits(i % 2 ? all.words[i / 2] & 0xffff0000u : all.words[i / 2] << 16);
}
DEVICE void read_four(const f16* from, float (&x)[4]) {
    const Eight all = *aligned((const Eight*)from);
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = from_f16({(u16)(all.words[i / 2] >> (i % 2 * 16))});
}
DEVICE void write_four(float* to, const float (&x)[4]) {
    *aligned((Sixteen*)to) = {{to_bits(x[0]), to_bits(x[1]), to_bits(x[2]), to_bits(x[3])}};
}
DEVICE void write_four(bf16* to, const float (&x)[4]) { *aligned((Eight*)to) = {{pack(x[0], x[1]), pack(x[2], x[3])}}; }

DEVICE void write_four(f16* to, const float (&x)[4]) {
    u32 words[2];
#pragma unroll
    for (int i = 0; i < 2; i++) words[i] = to_f16(x[2 * i]).bits | (u32)to_f16(x[2 * i + 1]).bits << 16;
    *aligned((Eight*)to) = {{words[0], words[1]}};
}

DEVICE int smaller(int a, int b) { return a < b ? a : b; }
DEVICE int larger(int a, int b) { return a > b ? a : b; }

// Sum and maximum over the `lanes` lanes that a lane is among, a power of two.
template <int lanes> DEVICE float sum_of_lanes(float x) {
#pragma unroll
    for (int other = lanes / 2; other > 0; other /= 2) x += from_lane(x, other);
    return x;
}
template <int lanes> DEVICE float max_of_lanes(float x) {
#pragma unroll
    for (int other = lanes / 2; other > 0; other /= 2) x = fmaxf(x, from_lane(x, other));
    return x;
}

// What the warps of a block have, taken together and given to all its threads.
template <class Both> DEVICE float join_warps(float x, Both both) {
    SHARED(float, warps, 32);
    __syncthreads(); // whoever still reads what was joined before
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    float all = warps[0];
    for (int warp = 1; warp < (int)blockDim.x / 32; warp++) all = both(all, warps[warp]);
    return all;
}

// Sum and maximum over a block of whole warps, given to all its threads.
DEVICE float sum_of_block(float x) {
    return join_warps(sum_of_lanes<32>(x), [](float a, float b) { return a + b; });
}
DEVICE float max_of_block(float x) {
    return join_warps(max_of_lanes<32>(x), [](float a, float b) { return fmaxf(a, b); });
}

// ---- What a step computes, at a fixed address, so that a recorded graph finds each step's own.

// Consecutive cached positions that some rows of the step read.
struct Part {
    int first_block; // in `blocks`
    int first_lane;  // where in the first block it begins
    int tokens;
    int position;  // of its first token as it is read
    int is_causal; // a row sees it up to its own position
    int first_row; // in `rows`
};

// A token of the step as a reader of a part.
struct Row {
    int token;
    int angle; // position to which its queries turn for this part
    int position;
    int is_only; // it reads nothing else: no partial result is needed
};

// Rows of queries over a stretch of a part, for one block of threads.
struct Task {
    int part;
    int first; // of the part's rows times the query heads that share a key-value head
    int count;
    int from; // of the part's tokens
    int to;
};

struct Tables {
    const float* angles;   // [positions][2][pairs] cosines, then sines
    const int* tokens;     // [tokens] ids
    const int* positions;  // [tokens]
    const int* cells;      // [tokens] block * block_tokens + lane; -1: nothing is kept of it
    const Task* flat; // tasks of few rows
    const Task* tall; // tasks of many
    const Part* parts;
    const Row* rows;
    const int* blocks;
    const int* first_reading; // [tokens + 1], into `readings`
    const int* readings;      // rows of partial results that make up a token's attention
    const int* sampled;       // [sampled] tokens whose last hidden states are wanted
    int token_count;
    int flat_count;
    int tall_count;
    int sampled_count;
};
