// The kernels of the GPU on a processor: every thread of a block is a fiber, blocks run one after another.
//
// Here the names of kernels/prelude.cuh mean the same as on a GPU, done slowly: a barrier or an exchange between lanes gives the
// processor to the next fiber until all have come. A block that would hang on a GPU, because some of its threads miss a
// barrier, ends with a message; the blocks of a cluster run together. Every other block runs its warps last to first, and copies behind a
// reader's back arrive when they are waited for, not before: what needs a barrier or a wait that is not there comes out wrong.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <vector>

#define EMULATED
#define DEVICE static inline
#define SHARED(Type, name, count)                                                                                \
    static thread_local emulated::Shared<Type, count> shared_##name;                                             \
    Type* const name = shared_##name.of_block()
#define DYNAMIC_SHARED(name) unsigned char* name = emulated::own_memory()
#define KERNEL(name, Args, threads)                                                                              \
    static void body_##name(const Args& a);                                                                      \
    extern "C" void kernel_##name(const void* args) {                                                            \
        await_kernel_before();                                                                                   \
        body_##name(*(const Args*)args);                                                                         \
    }                                                                                                            \
    static void body_##name(const Args& a)
// Kernels run one after another here; still each must wait for the one before.
#define KERNEL_AHEAD(name, Args, threads)                                                                        \
    static void body_##name(const Args& a);                                                                      \
    extern "C" void kernel_##name(const void* args) { body_##name(*(const Args*)args); }                         \
    static void body_##name(const Args& a)

#define KERNEL_LATE KERNEL_AHEAD
#define KERNEL_SPLIT KERNEL_AHEAD

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct Index {
    u32 x = 0, y = 0, z = 0;
};

namespace emulated {

constexpr size_t STACK = 64 << 10;
constexpr size_t MEMORY_MAX = 227 << 10; // shared memory of a block on sm_90
constexpr int LANES = 32;

enum class At { Work, Warp, Block, Cluster, Spin, End };

// A copy that is under way.
struct Copy {
    void* to;
    const void* from; // null: zeros
};

// Bytes on their way to a barrier of a block.
struct Delivery {
    unsigned char* to;
    std::vector<unsigned char> bytes;
};

// A lane's part of a warpgroup's product that is under way.
struct Product {
    float (*sums)[4]; // [8]
    float left[2][16];
    const unsigned char* right;
    bool is_transposed;
    bool adds;
};

// What a call keeps (the System V ABI, the procedure call standard of Arm) goes onto the stack that is left, whose end
// goes to `left`, and comes from the one that is gone to; but for how floating point rounds, which nobody changes here. That of the C
// library changes the mask of signals too, a system call at each exchange between lanes: nine tenths of these tests' time.
extern "C" void change_stacks(void** left, void* to) asm("change_stacks");
#if defined(__x86_64__)
constexpr int KEPT = 6, RETURN = 6; // registers, and where the address to go on at lies behind them
asm(".text\n"
    "change_stacks:\n"
    "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n"
    "ret\n");
#elif defined(__aarch64__)
constexpr int KEPT = 20, RETURN = 11;
asm(".text\n"
    ".p2align 2\n"
    "change_stacks:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n stp x25, x26, [sp, #48]\n"
    "stp x27, x28, [sp, #64]\n stp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n stp d12, d13, [sp, #128]\n stp d14, d15, [sp, #144]\n"
    "mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
    "ldp x19, x20, [sp]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n ldp x25, x26, [sp, #48]\n"
    "ldp x27, x28, [sp, #64]\n ldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\n ldp d10, d11, [sp, #112]\n ldp d12, d13, [sp, #128]\n ldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\n"
    "ret\n");
#else
#error "no change of stacks for this processor"
#endif

// A stack of `bytes` as if it had been left where `begin` is called.
static void* stack_of(char* bytes, void (*begin)()) {
    uintptr_t* end = (uintptr_t*)(((uintptr_t)bytes + STACK) / 16 * 16);
    // An address of sixteen, where a call would lie; nothing returns there.
    uintptr_t* kept = end - 2 - KEPT;
    memset(kept, 0, (KEPT + 2) * sizeof(uintptr_t));
    kept[RETURN] = (uintptr_t)begin;
    return kept;
}

struct Fiber {
    void* context; // the end of its stack
    std::unique_ptr<char[]> stack{new char[STACK]};
    At at = At::Work;
    bool has_awaited = false; // the kernel before
    std::vector<std::vector<Copy>> copies{1}; // by group, the last one open
    bool shows_copies = true;                 // to products that come later
    std::vector<std::vector<Product>> products{1}; // the same
};

// What the lanes of a warp hand to one another.
struct Exchange {
    u64 words[LANES];
    u32 registers[LANES][6];
};

// A block, or the blocks of a cluster: fibers and memory of one behind those of the other.
struct Block {
    std::vector<Fiber> fibers;
    std::vector<Exchange> warps;
    void* scheduler; // the end of its stack
    void (*kernel)(const void*);
    const void* args;
    unsigned char* memory;
    int running;
    int blocks = 1;    // of a cluster
    u32 first = 0;     // of them
    size_t stride = 0; // from the memory of one to that of the next
    u64 serial = 0; // no other block of the process has it
    int hidden = 0; // fibers whose copies products that come later do not see
    u64 events = 0; // what others may wait for: whoever only looks again has done nothing
    std::map<const u64*, std::vector<Delivery>> deliveries; // by barrier
    std::set<const unsigned char*> awaited;                 // where they go
};

static thread_local Block* block;
static std::atomic<u64> serials{0};

// Memory of a block that a kernel has beside what it is launched with. Whatever is read before it is written is not a number, nor a place.
template <class T, size_t count> struct Shared {
    T numbers[count];
    u64 serial = 0;
    T* of_block() {
        if (serial != block->serial) memset((void*)numbers, 0xff, sizeof(numbers));
        serial = block->serial;
        return numbers;
    }
};

static int lane() { return block->running % LANES; }
static unsigned char* own_memory();
static Exchange& exchange() { return block->warps[block->running / LANES]; }

static void wait_at(At at) {
    Fiber& fiber = block->fibers[block->running];
    fiber.at = at;
    block->events += at != At::Spin;
    change_stacks(&fiber.context, block->scheduler);
}

static void run_fiber() {
    block->kernel(block->args);
    if (!block->fibers[block->running].has_awaited) {
        fprintf(stderr, "a kernel does not wait for the one before\n");
        abort();
    }
    if (block->fibers[block->running].products.size() > 1) {
        fprintf(stderr, "a kernel does not wait for its products\n");
        abort();
    }
    wait_at(At::End);
}

} // namespace emulated

static thread_local Index threadIdx, blockIdx, blockDim, gridDim;

static unsigned char* emulated::own_memory() {
    return block->memory + (size_t)block->running / blockDim.x * block->stride;
}

static inline void __syncthreads() { emulated::wait_at(emulated::At::Block); }
static inline void sync_warp() { emulated::wait_at(emulated::At::Warp); }

static inline void let_next_begin() {}
static inline void await_kernel_before() { emulated::block->fibers[emulated::block->running].has_awaited = true; }

struct bf16 {
    u16 bits;
};
struct f16 {
    u16 bits;
};

DEVICE float from_bits(u32 bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
DEVICE u32 to_bits(float x) {
    u32 bits;
    memcpy(&bits, &x, 4);
    return bits;
}
DEVICE bf16 to_bf16(float x) {
    u32 bits = to_bits(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return {(u16)0x7fff};
    return {(u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}
DEVICE float from_f16(f16 x) {
    const int exponent = x.bits >> 10 & 31, last = x.bits & 0x3ff;
    const float size = exponent == 31 ? (last ? NAN : INFINITY)
                       : exponent     ? ldexpf((float)(1024 + last), exponent - 25)
                                      : ldexpf((float)last, -24);
    return x.bits & 0x8000 ? -size : size;
}
DEVICE f16 nearest_f16(float x) {
    const u16 sign = (u16)(to_bits(x) >> 16 & 0x8000);
    if (x != x) return {(u16)(sign | 0x7e00)};
    // They lie 2^(e - 11) apart below 2^e, and 2^-24 at least.
    int e;
    frexpf(fabsf(x), &e);
    const int step = std::max(e - 11, -24);
    const float size = ldexpf(nearbyintf(ldexpf(fabsf(x), -step)), step);
    if (size < ldexpf(1.0f, -14)) return {(u16)(sign | (u16)ldexpf(size, 24))};
    const float mantissa = frexpf(size, &e);
    if (e > 16) return {(u16)(sign | 0x7c00)};
    return {(u16)(sign | (e + 14) << 10 | ((int)ldexpf(mantissa, 11) - 1024))};
}
DEVICE u32 pack(float low, float high) { return to_bf16(low).bits | (u32)to_bf16(high).bits << 16; }

template <class T> DEVICE T from_lane(T x, int other) {
    static_assert(sizeof(T) <= 8);
    memcpy(&emulated::exchange().words[emulated::lane()], &x, sizeof(T));
    sync_warp();
    T y;
    memcpy(&y, &emulated::exchange().words[emulated::lane() ^ other], sizeof(T));
    sync_warp();
    return y;
}

DEVICE void await_lanes() { sync_warp(); }

// Fibers take turns at barriers alone.
DEVICE int add_to(int* at, int x) {
    const int before = *at;
    *at += x;
    return before;
}

DEVICE void raise(u32* at, u32 x) { *at = std::max(*at, x); }

// What is read or written as one must be aligned, as on a GPU.
template <class T> static inline T* aligned(T* at) {
    if ((uintptr_t)at % sizeof(T)) {
        fprintf(stderr, "%d bytes in one are not aligned\n", (int)sizeof(T));
        abort();
    }
    return at;
}

DEVICE void copy_later(void* to, const void* from, bool is_there) {
    aligned((__int128*)to);
    if (is_there) aligned((const __int128*)from);
    memset(to, 0xff, 16); // nobody may read it yet, and nobody may still read what was there
    emulated::block->fibers[emulated::block->running].copies.back().push_back({to, is_there ? from : nullptr});
}
DEVICE void end_copies() { emulated::block->fibers[emulated::block->running].copies.emplace_back(); }
template <int left> DEVICE void await_copies() {
    auto& groups = emulated::block->fibers[emulated::block->running].copies;
    while ((int)groups.size() - 1 > left) {
        for (const emulated::Copy& copy : groups.front()) {
            if (copy.from) memcpy(copy.to, copy.from, 16);
            else memset(copy.to, 0, 16);
        }
        groups.erase(groups.begin());
        emulated::Fiber& fiber = emulated::block->fibers[emulated::block->running];
        if (fiber.shows_copies) emulated::block->hidden++;
        fiber.shows_copies = false;
    }
}

// ldmatrix: each lane's address is a row of a matrix.
DEVICE void load_matrices(u32 (&r)[4], const void* row, bool is_transposed = false) {
    auto& exchange = emulated::exchange();
    const int lane = emulated::lane();
    exchange.words[lane] = (u64)row;
    sync_warp();
    auto element = [&](int matrix, int row, int column) { return (u32)((const u16*)exchange.words[8 * matrix + row])[column]; };
    for (int matrix = 0; matrix < 4; matrix++) {
        const int major = lane / 4, minor = 2 * (lane % 4);
        r[matrix] = is_transposed ? element(matrix, minor, major) | element(matrix, minor + 1, major) << 16
                                  : element(matrix, major, minor) | element(matrix, major, minor + 1) << 16;
    }
    sync_warp();
}
DEVICE void load_transposed(u32 (&r)[4], const void* row) { load_matrices(r, row, true); }

// mma of 16 rows and 8 columns, by the fragments of the PTX ISA: a register has as many of the `DEPTH` factors as its bytes
// hold, of which `number(register, i)` is one; lanes have them in groups of four times as many, the second half of the depth in
// registers of its own.
template <int DEPTH, class Number> DEVICE void multiply_fragments(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, Number number) {
    constexpr int EACH = DEPTH / 8;
    auto& exchange = emulated::exchange();
    const int lane = emulated::lane();
    u32* own = exchange.registers[lane];
    memcpy(own, a, 16);
    own[4] = b0;
    own[5] = b1;
    sync_warp();
    auto left = [&](int row, int k) {
        const int of = (row % 8) * 4 + k % (4 * EACH) / EACH;
        return number(exchange.registers[of][row / 8 + 2 * (k / (4 * EACH))], k % EACH);
    };
    auto right = [&](int k, int column) {
        const int of = column * 4 + k % (4 * EACH) / EACH;
        return number(exchange.registers[of][4 + k / (4 * EACH)], k % EACH);
    };
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
        float sum = c[i];
        for (int k = 0; k < DEPTH; k++) sum += left(row, k) * right(k, column);
        c[i] = sum;
    }
    sync_warp();
}

// wgmma: a warp's rows by the fragments of mma.m16n8k16; they come when they are waited for.
#define HAS_WGMMA
typedef const unsigned char* Matrix;
DEVICE Matrix matrix_at(const void* from) { return (Matrix)from; }
DEVICE unsigned char* whole_kilobyte(unsigned char* from) { return from + (-(uintptr_t)from & 1023); }
DEVICE void show_copies() {
    emulated::Fiber& fiber = emulated::block->fibers[emulated::block->running];
    if (!fiber.shows_copies) emulated::block->hidden--;
    fiber.shows_copies = true;
}
template <int TRANSPOSED> DEVICE void multiply_later(float (&c)[8][4], const u32 (&a)[4], Matrix b, bool adds) {
    if (emulated::block->hidden) {
        fprintf(stderr, "a product reads what a copy brought that it cannot see\n");
        abort();
    }
    auto& exchange = emulated::exchange();
    const int lane = emulated::lane();
    memcpy(exchange.registers[lane], a, 16);
    sync_warp();
    emulated::Product product{c, {}, b, (bool)TRANSPOSED, adds};
    for (int half = 0; half < 2; half++) {
        for (int k = 0; k < 16; k++) {
            const u32 pair = exchange.registers[lane / 4 * 4 + k % 8 / 2][half + 2 * (k / 8)];
            product.left[half][k] = from_bits(k % 2 ? pair & 0xffff0000u : pair << 16);
        }
    }
    sync_warp();
    emulated::block->fibers[emulated::block->running].products.back().push_back(product);
}
DEVICE void begin_products() {}
DEVICE void end_products() { emulated::block->fibers[emulated::block->running].products.emplace_back(); }
DEVICE void finish(const emulated::Product& product) {
    const int lane = emulated::lane();
    for (int i = 0; i < 32; i++) {
        const int column = i / 4 * 8 + 2 * (lane % 4) + i % 2;
        float sum = product.adds ? product.sums[i / 4][i % 4] : 0.0f;
        for (int k = 0; k < 16; k++) {
            // Rows of 128 bytes, eight of them a kilobyte; the pieces of 16 bytes change places by the row's number.
            const int row = product.is_transposed ? k : column, at = product.is_transposed ? column : k;
            uintptr_t place = (uintptr_t)product.right + row * 128 + at * 2;
            place ^= (place >> 7 & 7) << 4;
            sum += product.left[i / 2 % 2][k] * from_bits((u32) * (const u16*)place << 16);
        }
        product.sums[i / 4][i % 4] = sum;
    }
}
template <int left> DEVICE void await_products() {
    auto& groups = emulated::block->fibers[emulated::block->running].products;
    while ((int)groups.size() - 1 > left) {
        for (const emulated::Product& product : groups.front()) finish(product);
        groups.erase(groups.begin());
    }
}
DEVICE void hold(float (&)[8][4]) {}

DEVICE float power_of_two(float x) { return exp2f(x); }
DEVICE void pin(u32&) {}
DEVICE void pin(int&) {}
template <u32 ABOVE> DEVICE u32 masked(u32 x, u32 mask) { return (x & mask) | ABOVE; }
DEVICE int bits_of(int x) { return __builtin_popcount((u32)x); }
DEVICE u32 pick_bytes(u32 x, u32 y, u32 digits) {
    const u64 all = (u64)y << 32 | x;
    u32 picked = 0;
    for (int i = 0; i < 4; i++) picked |= (u32)(all >> (8 * (digits >> (4 * i) & 7)) & 0xff) << (8 * i);
    return picked;
}
DEVICE u32 multiply_add_pairs(u32 x, u32 y, u32 z) {
    auto number = [](u32 pair, int i) { return from_bits(i ? pair & 0xffff0000u : pair << 16); };
    return pack(fmaf(number(x, 0), number(y, 0), number(z, 0)), fmaf(number(x, 1), number(y, 1), number(z, 1)));
}
// What is asked for ahead must be whole sixteens of bytes, and there.
DEVICE void fetch_ahead(const void* from, int bytes) {
    const volatile unsigned char* all = (const unsigned char*)from;
    aligned((const __int128*)from);
    if (bytes % 16) abort();
    for (int i = 0; i < bytes; i += 16) (void)all[i];
}

// mma.m16n8k16 of bf16.
DEVICE void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    multiply_fragments<16>(c, a, b0, b1, [](u32 pair, int i) { return from_bits(i ? pair & 0xffff0000u : pair << 16); });
}

// mma.m16n8k16 of half precision.
DEVICE void multiply_f16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    multiply_fragments<16>(c, a, b0, b1, [](u32 pair, int i) { return from_f16({(u16)(pair >> (16 * i))}); });
}

// What half precision makes of four E4M3.
DEVICE void e4m3_to_f16(u32 four, u32& low, u32& high) {
    auto half = [four](int i) {
        const u32 bits = four >> (8 * i) & 0xff, exponent = bits >> 3 & 15, last = bits & 7;
        const float size = exponent ? ldexpf(8.0f + (float)last, (int)exponent - 10) : ldexpf((float)last, -9);
        return (u32)nearest_f16(bits & 0x80 ? -size : size).bits;
    };
    low = half(0) | half(1) << 16;
    high = half(2) | half(3) << 16;
}

#include "clusters.h"

#include "prelude.cuh"
#include "rows.cuh"
#include "fp8.cuh"
#include "kept.cuh"
#include "product.cuh"
#include "q4.cuh"
#include "split.cuh"
#include "attention.cuh"
#include "tensor_core.cuh"
#include "warpgroup.cuh"
#include "sampling.cuh"

namespace emulated {

// Whether all of the fibers `first..last` that have not ended are at `at`.
static bool have_come(At at, int first, int last) {
    bool any = false;
    for (int i = first; i < last; i++) {
        if (block->fibers[i].at == At::End) continue;
        if (block->fibers[i].at != at) return false;
        any = true;
    }
    return any;
}

static void release(int first, int last) {
    for (int i = first; i < last; i++) {
        if (block->fibers[i].at != At::End) block->fibers[i].at = At::Work;
    }
}

// Runs a warp until it has ended or waits for others.
static void run_warp(int first, int last) {
    for (;;) {
        for (int i = first; i < last; i++) {
            Fiber& fiber = block->fibers[i];
            if (fiber.at != At::Work) continue;
            block->running = i;
            threadIdx.x = (u32)i % blockDim.x;
            blockIdx.x = block->first + (u32)i / blockDim.x;
            change_stacks(&block->scheduler, fiber.context);
        }
        if (!have_come(At::Warp, first, last)) return;
        release(first, last);
    }
}

// Runs one block to its end, or those of a cluster, its warps from the first on or from the last; whether all its threads got there, and all
// that was sent.
static bool run_block(bool is_reversed) {
    const int of_block = (int)blockDim.x, threads = of_block * block->blocks;
    for (int i = 0; i < threads; i++) {
        Fiber& fiber = block->fibers[i];
        fiber.at = At::Work;
        fiber.has_awaited = false;
        fiber.copies.assign(1, {});
        fiber.shows_copies = true;
        fiber.products.assign(1, {});
        fiber.context = stack_of(fiber.stack.get(), run_fiber);
    }
    const int warps = (threads + LANES - 1) / LANES;
    for (;;) {
        const u64 before = block->events;
        for (int i = 0; i < warps; i++) {
            const int first = LANES * (is_reversed ? warps - 1 - i : i);
            run_warp(first, std::min(first + LANES, threads));
        }
        bool left = false, released = false;
        for (int i = 0; i < threads; i++) left |= block->fibers[i].at != At::End;
        if (!left) return block->deliveries.empty();
        for (int first = 0; first < threads; first += of_block) {
            if (!have_come(At::Block, first, first + of_block)) continue;
            release(first, first + of_block);
            released = true;
        }
        if (have_come(At::Cluster, 0, threads)) {
            release(0, threads);
            released = true;
        }
        if (!released && block->events == before) return false;
        for (Fiber& fiber : block->fibers) {
            if (fiber.at == At::Spin) fiber.at = At::Work;
        }
    }
}

} // namespace emulated

// Runs a grid, of clusters of so many blocks; 0, or why it cannot: 1 shared memory, 2 a barrier that not all threads come to, or bytes that
// nobody waits for, 3 clusters that do not make up the grid.
extern "C" int emulated_launch(
    void (*kernel)(const void*), const void* args, const u32* grid, u32 threads, u32 memory, u32 cluster) {
    using namespace emulated;
    if (memory > MEMORY_MAX) return 1;
    if (grid[0] % cluster || (cluster > 1 && threads % LANES)) return 3;
    Block own;
    own.blocks = (int)cluster;
    own.stride = (memory + 127) / 128 * 128;
    own.fibers.resize(threads * cluster);
    own.warps.resize((threads * cluster + LANES - 1) / LANES);
    std::vector<unsigned char> shared(own.stride * cluster + 128);
    own.memory = (unsigned char*)(((uintptr_t)shared.data() + 127) / 128 * 128);
    own.kernel = kernel;
    own.args = args;
    block = &own;
    blockDim = {threads, 1, 1};
    gridDim = {grid[0], grid[1], 1};
    for (u32 y = 0; y < grid[1]; y++) {
        for (u32 x = 0; x < grid[0]; x += cluster) {
            blockIdx = {x, y, 0};
            own.first = x;
            own.serial = ++serials;
            // Whatever a block reads before it writes it is not a number, nor what the block before has left.
            std::fill(shared.begin(), shared.end(), 0xff);
            if (!run_block((x / cluster + y) % 2)) return 2;
        }
    }
    block = nullptr;
    return 0;
}
