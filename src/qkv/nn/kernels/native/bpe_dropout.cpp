// BPE-dropout with the random numbers of Python's `random.Random`, seeded for each text.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>
#include <vector>

namespace {

// MT19937 (Matsumoto & Nishimura 1998), seeded and read as in CPython, so that the Python fallback draws the same numbers.
class Random {
  public:
    explicit Random(uint64_t seed) {
        static const State begun;
        std::copy(begun.words, begun.words + N, state_);
        const uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
        const int length = key[1] ? 2 : 1;
        int i = 1;
        for (int k = 0; k < N; ++k) {
            const int j = k % length;
            state_[i] = (state_[i] ^ mixed(i) * 1664525u) + key[j] + j;
            i = next(i);
        }
        for (int k = 1; k < N; ++k) {
            state_[i] = (state_[i] ^ mixed(i) * 1566083941u) - i;
            i = next(i);
        }
        state_[0] = 0x80000000u;
    }

    double uniform() {
        const uint32_t a = word() >> 5, b = word() >> 6;
        return (a * 67108864.0 + b) * (1.0 / 9007199254740992.0);
    }

  private:
    static constexpr int N = 624, M = 397;

    struct State {
        uint32_t words[N];
        State() {
            words[0] = 19650218u;
            for (int i = 1; i < N; ++i) words[i] = 1812433253u * (words[i - 1] ^ (words[i - 1] >> 30)) + i;
        }
    };

    uint32_t state_[N];
    int at_ = 0;

    uint32_t mixed(int i) const { return state_[i - 1] ^ (state_[i - 1] >> 30); }

    int next(int i) {
        if (++i < N) return i;
        state_[0] = state_[N - 1];
        return 1;
    }

    // Most texts need few words of the state, so each is twisted when it is read.
    uint32_t word() {
        const uint32_t twisted = (state_[at_] & 0x80000000u) | (state_[(at_ + 1) % N] & 0x7fffffffu);
        uint32_t y = state_[at_] = state_[(at_ + M) % N] ^ (twisted >> 1) ^ (twisted & 1 ? 0x9908b0dfu : 0u);
        at_ = (at_ + 1) % N;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c5680u;
        y ^= (y << 15) & 0xefc60000u;
        return y ^ (y >> 18);
    }
};

struct Merge {
    int rank, made;
};

struct Candidate {
    int rank, place, made;
    // std's heaps have the greatest element first
    bool operator<(const Candidate& other) const {
        return rank != other.rank ? rank > other.rank : place > other.place;
    }
};

class Model {
  public:
    // Merge r joins pairs[2 r] and pairs[2 r + 1] into made[r], which is split into them again if splits[r].
    Model(const int* pairs, const int* made, const char* splits, long merges, long vocabulary, double log_keep)
        : halves_(2 * vocabulary, -1), sizes_(vocabulary, 0), log_keep_(log_keep) {
        long slots = 16;
        while (slots < 2 * merges) slots *= 2;
        table_.assign(slots, {-1, -1, {0, 0}});
        for (long r = 0; r < merges; ++r) {
            const int left = pairs[2 * r], right = pairs[2 * r + 1];
            Entry& entry = table_[slot(left, right)];
            if (entry.left < 0) entry = {left, right, {int(r), made[r]}};
            if (splits[r] && halves_[2 * made[r]] < 0) {
                halves_[2 * made[r]] = left;
                halves_[2 * made[r] + 1] = right;
            }
        }
        for (long id = 0; id < vocabulary; ++id) measure(int(id));
    }

    bool sound() const { return sound_; }
    long vocabulary() const { return long(sizes_.size()); }
    long size(int id) const { return whole(id) ? 1 : sizes_[id]; }

    long gap(Random& random) const {
        const double drawn = std::log1p(-random.uniform()) / log_keep_;
        return drawn < 9e18 ? long(drawn) : long(9e18);
    }

    const Merge* find(int left, int right) const {
        const Entry& entry = table_[slot(left, right)];
        return entry.left < 0 ? nullptr : &entry.merge;
    }

    // The symbols of a word before any merge.
    void apart(const int* word, long length, std::vector<int>& symbols, std::vector<int>& waiting) const {
        symbols.clear();
        waiting.assign(std::reverse_iterator<const int*>(word + length), std::reverse_iterator<const int*>(word));
        while (!waiting.empty()) {
            const int symbol = waiting.back();
            waiting.pop_back();
            if (whole(symbol)) {
                symbols.push_back(symbol);
            } else {
                waiting.push_back(halves_[2 * symbol + 1]);
                waiting.push_back(halves_[2 * symbol]);
            }
        }
    }

  private:
    struct Entry {
        int left, right;
        Merge merge;
    };

    std::vector<Entry> table_;  // hashed, with linear probing
    std::vector<int> halves_;   // two of each id, -1 where it is never split
    std::vector<long> sizes_;   // of each id in symbols that are not split
    double log_keep_;
    bool sound_ = true;

    // Ids above the vocabulary are of added tokens.
    bool whole(int id) const { return id >= vocabulary() || halves_[2 * id] < 0; }

    long slot(int left, int right) const {
        const long last = long(table_.size()) - 1;
        uint64_t hash = (uint64_t(uint32_t(left)) << 32 | uint32_t(right)) * 0x9e3779b97f4a7c15u;
        long at = long(hash >> 32) & last;
        while (table_[at].left >= 0 && (table_[at].left != left || table_[at].right != right)) at = (at + 1) & last;
        return at;
    }

    void measure(int whole) {
        std::vector<int> stack{whole};
        while (!stack.empty() && sound_) {
            const int id = stack.back(), left = halves_[2 * id], right = halves_[2 * id + 1];
            if (sizes_[id] || left < 0) {
                if (!sizes_[id]) sizes_[id] = 1;
                stack.pop_back();
            } else if (sizes_[left] && sizes_[right]) {
                sizes_[id] = sizes_[left] + sizes_[right];
                stack.pop_back();
            } else {
                if (!sizes_[right]) stack.push_back(right);
                if (!sizes_[left]) stack.push_back(left);
            }
            sound_ = long(stack.size()) <= 2 * vocabulary() + 2;  // more only where a piece contains itself
        }
    }
};

// Buffers for the merges of a word, reused for the next one.
struct Buffers {
    std::vector<int> symbols, waiting, after, before;
    std::vector<Candidate> heap, dropped;
};

void push(const Model& model, Buffers& buffers, int left) {
    const int right = buffers.after[left];
    if (const Merge* merge = model.find(buffers.symbols[left], buffers.symbols[right])) {
        buffers.heap.push_back({merge->rank, left, merge->made});
        std::push_heap(buffers.heap.begin(), buffers.heap.end());
    }
}

// Merges by rank and drops a candidate whenever the gap is used up. Returns the remaining gap.
long merge(const Model& model, Buffers& buffers, long gap, Random& random) {
    const int size = int(buffers.symbols.size());
    buffers.after.resize(size);
    buffers.before.resize(size);
    buffers.heap.clear();
    buffers.dropped.clear();
    for (int i = 0; i < size; ++i) buffers.after[i] = i + 1, buffers.before[i] = i - 1;
    for (int i = 0; i + 1 < size; ++i) push(model, buffers, i);
    while (!buffers.heap.empty()) {
        std::pop_heap(buffers.heap.begin(), buffers.heap.end());
        const Candidate best = buffers.heap.back();
        buffers.heap.pop_back();
        const int i = best.place, j = buffers.after[i];
        if (buffers.symbols[i] < 0 || j == size) continue;
        const Merge* now = model.find(buffers.symbols[i], buffers.symbols[j]);
        if (!now || now->rank != best.rank || now->made != best.made) continue;  // an earlier merge has used a symbol
        if (gap == 0) {
            gap = model.gap(random);
            buffers.dropped.push_back(best);
            continue;
        }
        --gap;
        buffers.symbols[i] = best.made;
        buffers.symbols[j] = -1;
        buffers.after[i] = buffers.after[j];
        if (buffers.after[i] < size) buffers.before[buffers.after[i]] = i;
        if (buffers.before[i] >= 0) push(model, buffers, buffers.before[i]);
        if (buffers.after[i] < size) push(model, buffers, i);
        for (const Candidate& one : buffers.dropped) {  // dropped for this step only
            buffers.heap.push_back(one);
            std::push_heap(buffers.heap.begin(), buffers.heap.end());
        }
        buffers.dropped.clear();
    }
    return gap;
}

}  // namespace

extern "C" {

// Returns null if a piece contains itself or memory runs out.
void* qkv_bpe_dropout_new(const int* pairs, const int* made, const char* splits, long merges, long vocabulary, double log_keep) {
    try {
        Model* model = new Model(pairs, made, splits, merges, vocabulary, log_keep);
        if (model->sound()) return model;
        delete model;
    } catch (const std::bad_alloc&) {
    }
    return nullptr;
}

void qkv_bpe_dropout_free(void* model) { delete static_cast<Model*>(model); }

// `texts` holds for each text the number of words, the length of each word, and the ids of all words. Writes up to
// `capacity` ids of all texts to `out`, and the number of ids of each text to `lengths`. Returns the number of all ids,
// also if it exceeds `capacity`, -1 if memory runs out, or -2 if texts don't end where the `size_of_all` numbers do.
long qkv_bpe_dropout_sample(
    const void* handle, const int* texts, long size_of_all, const uint64_t* seeds, long count, int* out, long capacity,
    long* lengths
) {
    const Model& model = *static_cast<const Model*>(handle);
    const int* end = texts + size_of_all;
    long written = 0;
    const auto put = [&](int id) {
        if (written < capacity) out[written] = id;
        ++written;
    };
    try {
        Buffers buffers;
        for (long t = 0; t < count; ++t) {
            if (texts >= end || texts[0] < 0 || texts[0] > end - texts - 1) return -2;
            const long words = texts[0], start = written;
            const int *size = texts + 1, *ids = size + words;
            Random random(seeds[t]);
            long gap = model.gap(random);
            for (long w = 0; w < words; ids += size[w++]) {
                if (size[w] < 0 || size[w] > end - ids) return -2;
                long symbols = 0;
                for (long i = 0; i < size[w]; ++i) symbols += model.size(ids[i]);
                const long merges = symbols - size[w];
                if (gap >= merges) {
                    gap -= merges;
                    for (long i = 0; i < size[w]; ++i) put(ids[i]);
                    continue;
                }
                model.apart(ids, size[w], buffers.symbols, buffers.waiting);
                gap = merge(model, buffers, gap, random);
                for (const int symbol : buffers.symbols)
                    if (symbol >= 0) put(symbol);
            }
            texts = ids;
            lengths[t] = written - start;
        }
        if (texts != end) return -2;
    } catch (const std::bad_alloc&) {
        return -1;
    }
    return written;
}
}
