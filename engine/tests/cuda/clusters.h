// Blocks of a cluster, on a processor: barriers that count bytes, and what comes to them behind a reader's back. Included by emulated.cpp.
//
// What is under way to a barrier comes when somebody waits there, and until then nobody can read what was there before: what is read without
// waiting, or written to while another still reads, comes out wrong.

#define HAS_CLUSTERS

typedef u64 Barrier;

namespace emulated {

// A barrier as it lies in eight bytes of a block's memory.
struct Count {
    unsigned char arrivals, missing; // of each phase; of this one
    unsigned char parity, is_begun;
    int bytes; // expected and not come, below 0 where they come first
};
static_assert(sizeof(Count) == sizeof(Barrier));

[[noreturn]] static void stop(const char* why) {
    fprintf(stderr, "%s\n", why);
    abort();
}

// Changes a barrier's count; its phase ends when nothing is missing.
template <class Change> static void count_at(Barrier* at, Change change) {
    Count count;
    memcpy(&count, at, sizeof(count));
    if (count.is_begun != 1) stop("a barrier has not begun");
    change(count);
    if (count.missing == 0 && count.bytes == 0) {
        count.parity ^= 1;
        count.missing = count.arrivals;
    }
    memcpy(at, &count, sizeof(count));
    block->events++;
}

static void send(unsigned char* to, const void* from, int bytes, Barrier* barrier) {
    const unsigned char* all = (const unsigned char*)from;
    if (!block->awaited.insert(to).second) stop("something is sent to a place that something else is on its way to");
    block->deliveries[barrier].push_back({to, {all, all + bytes}});
    memset(to, 0xff, (size_t)bytes);
}

static void deliver_to(Barrier* at) {
    const auto found = block->deliveries.find(at);
    if (found == block->deliveries.end()) return;
    for (const Delivery& delivery : found->second) {
        memcpy(delivery.to, delivery.bytes.data(), delivery.bytes.size());
        block->awaited.erase(delivery.to);
        count_at(at, [&](Count& count) { count.bytes -= (int)delivery.bytes.size(); });
    }
    block->deliveries.erase(found);
}

} // namespace emulated

DEVICE int block_of_cluster() { return emulated::block->running / (int)blockDim.x; }
// Both halves of the barrier are the second.
DEVICE void arrive_in_cluster() {}
DEVICE void await_cluster() { emulated::wait_at(emulated::At::Cluster); }

DEVICE void begin_barrier(Barrier* at, int arrivals) {
    const emulated::Count count = {(unsigned char)arrivals, (unsigned char)arrivals, 0, 1, 0};
    memcpy(aligned(at), &count, sizeof(count));
}
DEVICE void show_barriers() {}
DEVICE void arrive_expecting(Barrier* at, int bytes) {
    emulated::count_at(at, [bytes](emulated::Count& count) {
        if (count.missing == 0) emulated::stop("more come to a barrier than it waits for");
        count.missing--;
        count.bytes += bytes;
    });
}
DEVICE void arrive_at(Barrier* at) { arrive_expecting(at, 0); }
DEVICE void await_barrier(Barrier* at, int parity) {
    for (;;) {
        emulated::deliver_to(at);
        emulated::Count count;
        memcpy(&count, at, sizeof(count));
        if (count.parity != parity) break;
        emulated::wait_at(emulated::At::Spin);
    }
    emulated::block->events++;
}
DEVICE void copy_many(void* to, const void* from, int bytes, Barrier* barrier) {
    aligned((__int128*)to);
    aligned((const __int128*)from);
    if (bytes % 16) emulated::stop("a copy is not of whole sixteens of bytes");
    emulated::send((unsigned char*)to, from, bytes, barrier);
}
DEVICE void hand_over(void* to, int other, const float (&x)[4], Barrier* barrier) {
    emulated::Block& block = *emulated::block;
    if (other < 0 || other >= block.blocks) emulated::stop("a cluster has no such block");
    const ptrdiff_t there = (ptrdiff_t)(other - block_of_cluster()) * (ptrdiff_t)block.stride;
    const int threads = (int)blockDim.x;
    auto has_left = [&](const emulated::Fiber& fiber) { return fiber.at == emulated::At::End; };
    const auto first = block.fibers.begin() + other * threads;
    if (std::all_of(first, first + threads, has_left)) emulated::stop("something is sent to a block that has left");
    emulated::send((unsigned char*)aligned((__int128*)to) + there, x, 16, (Barrier*)((unsigned char*)barrier + there));
}
