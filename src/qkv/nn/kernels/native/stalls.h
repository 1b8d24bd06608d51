// Compute with one thread for a while where threads that work together wait for each other longer than for their work.
//
// A thread that is done spins until the last one is. If another program computes on the core of the last, or both of them share
// a core, a wait takes a time slice of the scheduler, and two threads are slower than one. A wait that is longer than the work
// is a stall. After two of them one thread computes alone, at first for a short time, then, as long as a stall follows the
// pause, for longer.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>

namespace {

constexpr long STALL = 1'500'000;        // nanoseconds, at least
constexpr long TOGETHER = 200'000'000;   // between stalls that have one cause
constexpr long SHORTEST_PAUSE = 50'000'000, LONGEST_PAUSE = 1'600'000'000;

std::atomic<long> last_stall{-TOGETHER}, pause_end{0}, pause_length{SHORTEST_PAUSE};

inline long nanoseconds() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// As many of `threads` as make sense now.
inline int available_threads(int threads, long now) { return threads > 1 && now < pause_end ? 1 : threads; }

// Take note of how long the first thread worked and waited for the others, up to now. Tasks of large products take long, but no
// longer than the work of a thread.
inline void waited(long length, long work, long now) {
    if (length < std::max(STALL, 2 * work)) return;
    const bool again = now - pause_end < TOGETHER, alone = now - last_stall.exchange(now) > TOGETHER;
    if (alone && !again) return;  // an accident
    pause_length = again ? std::min(2 * pause_length, LONGEST_PAUSE) : SHORTEST_PAUSE;
    pause_end = now + pause_length;
}

}  // namespace
