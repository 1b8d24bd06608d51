// Share tasks out to threads, which take note of how long they wait for one another (stalls.h).
#pragma once
#include <omp.h>

#include "stalls.h"

namespace {

// Tasks are taken by threads from ranges, one for each, in their order: who is done goes on with another's range.
struct alignas(64) Range {
    std::atomic<long> next;
    long stop;
};
constexpr int THREADS = 256;

template <typename Work>
void shared_out(long tasks, int threads, Work work) {
    if (threads < 2) {
        for (long task = 0; task < tasks; ++task) work(task);
        return;
    }
    Range ranges[THREADS];  // set before the others start, so that the first can do everything while they don't
    for (int i = 0; i < threads; ++i) {
        ranges[i].next = tasks * i / threads;
        ranges[i].stop = tasks * (i + 1) / threads;
    }
    const long began = nanoseconds();
    long work_time = 0;
#pragma omp parallel num_threads(threads)
    {
        const int own = omp_get_thread_num();
        const long start = own == 0 ? nanoseconds() : 0;
        for (int i = 0; i < threads; ++i) {
            Range& range = ranges[(own + i) % threads];
            for (long task; (task = range.next++) < range.stop;) work(task);
        }
        if (own == 0) work_time = nanoseconds() - start;
    }
    const long ended = nanoseconds();
    waited(ended - began - work_time, work_time, ended);  // for the others to start, and to end
}

}  // namespace
